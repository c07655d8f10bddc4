# SPDX-License-Identifier: Apache-2.0
"""A model on two hosts, started as in the pods of a LeaderWorkerSet (deploy/mpi/proa-host): by ssh, without root."""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest
from harness import LM, PROA, ROOT
from hosts import HOSTS, NETWORK, is_ready, on_host, programs_of, set_cable, two_hosts, wait_for

SCRIPT = ROOT / "deploy" / "mpi" / "proa-host"
SSHD = os.environ.get("SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
USER, PORT = 1000, 18949
LEADER = "chat-0.chat.llm"  # the name of a LeaderWorkerSet's first pod; its worker is chat-0-1


def as_user(folder, i, *command):
    """The command on host i, with names of both hosts and an account of the user, which only it sees."""
    mounts = " && ".join(f"mount --bind {folder}/{name} /etc/{name}" for name in ("hosts", "passwd"))
    drop = f"setpriv --reuid {USER} --regid {USER} --clear-groups"
    return [*on_host(i), "sh", "-c", f'{mounts} && exec {drop} "$@"', "sh", *map(str, command)]


@pytest.fixture
def home(tmp_path):
    """A folder of the user, with the group's keys and the files of /etc."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="proa-hosts-"))
    (folder / "keys").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / "keys" / "id"], check=True)
    worker = LEADER.replace("chat-0", "chat-0-1")
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{NETWORK}.1 {LEADER}\n{NETWORK}.2 {worker}\n")
    others = [f"{p.pw_name}:x:{p.pw_uid}:{p.pw_gid}::{p.pw_dir}:{p.pw_shell}" for p in pwd.getpwall() if p.pw_uid != USER]
    (folder / "passwd").write_text("\n".join([*others, f"proa:x:{USER}:{USER}::{folder}:/bin/bash", ""]))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def pods(home):
    """Starts proa-host on host i; returns the process, whose messages are in home/errors-i."""
    for program in ("mpirun", "ssh", "ssh-keygen", "setpriv"):
        if not shutil.which(program):
            pytest.skip(f"no {program}")
    if not SSHD or not (PROA.parent / "libproa_mpi.so").exists():
        pytest.skip("no sshd (SSHD names one), or no libproa_mpi.so")
    started = []

    def start(i):
        env = {**os.environ, "LWS_LEADER_ADDRESS": LEADER, "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(i),
               "PROA_HOST_KEYS": str(home / "keys"), "PROA_HOST_FOLDER": str(home / HOSTS[i]), "SSHD": SSHD,
               "HOME": str(home), "PROA": str(PROA), "PROA_GROUP": str(SCRIPT.with_name("proa-group")), "GROUP_SILENCE": "2",
               "GROUP_DRAIN": "2", "GROUP_PAUSE_MAX": "2"}  # fmt: skip
        options = ("--threads", "2", "--http-address", "127.0.0.1", "--http-port", PORT, "--allow-grpc", "false",
                   "--allow-metrics", "false")  # fmt: skip
        with (home / f"errors-{i}").open("w") as errors:
            run = subprocess.Popen(as_user(home, i, SCRIPT, "serve", LM, *options), stdout=subprocess.DEVNULL, stderr=errors,
                                   env=env, cwd="/")  # fmt: skip
        started.append(run)
        return run

    with two_hosts():
        if subprocess.run(as_user(home, 0, PROA, "version"), capture_output=True, check=False).returncode != 0:
            pytest.skip("another user may not run the program here")
        yield start
    for run in started:
        run.wait(10)


def test_pods_of_two_hosts(pods, home):
    """The leader waits for its worker; a cut cable ends the ranks, and with the cable they come back; SIGTERM ends all."""
    leader = pods(0)
    wait_for(lambda: "sleep" in programs_of(0), 10, "a leader that waits")
    pods(1)
    wait_for(lambda: is_ready(on_host(0), PORT), 60, "ready")
    assert programs_of(0).count("proa") == 1 and programs_of(1).count("proa") == 1
    set_cable("down")
    wait_for(lambda: "the job is ended" in (home / "errors-0").read_text(), 20, "the end of the job")
    wait_for(lambda: "proa" not in programs_of(1), 20, "the end of the worker's rank")
    set_cable("up")
    wait_for(lambda: is_ready(on_host(0), PORT), 60, "ready again")
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(30) == 0
    wait_for(lambda: "proa" not in programs_of(1), 20, "the end of the worker's rank")


def test_wrong_calls():
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([SCRIPT, "serve", "m"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "runs in a pod of a LeaderWorkerSet" in done.stderr
    env.update(LWS_LEADER_ADDRESS=LEADER, LWS_GROUP_SIZE="2", LWS_WORKER_INDEX="0")
    done = subprocess.run([SCRIPT, "run", "m"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("usage: proa-host serve MODEL")
