# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes: started by the program itself and by mpirun, on one host and on two."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from harness import LM, PROA, fails, ok
from hosts import NETWORK, is_ready, on_host, processes_of, programs_of, set_cable, two_hosts, wait_for

PROMPT = "It was a dark and"
RUN = ("run", LM, PROMPT, "--dtype", "f32", "--max-tokens", 12, "--threads", 2)
MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

needs_mpi = pytest.mark.skipif(
    not shutil.which("mpirun") or not (PROA.parent / "libproa_mpi.so").exists(),
    reason="no mpirun, or no libproa_mpi.so (built where libopenmpi-dev is)")


@pytest.fixture(scope="module")
def one_rank():
    return ok(*RUN)


def mpirun(ranks, *args, options=()):
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), *options, str(PROA), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **MPI_ENV})


@pytest.mark.parametrize("options", [("--tp", 2), ("--tp", 3), ("--pp", 2), ("--tp", 2, "--pp", 2)])
def test_processes(one_rank, options):
    assert ok(*RUN, *options, "--ranks", "process") == one_rank


def test_a_closed_standard_input(one_rank):
    """What the processes are given has the number of a standard stream."""
    run = subprocess.run([PROA, *map(str, RUN), "--tp", "2", "--ranks", "process"], capture_output=True, text=True,
                         timeout=120, preexec_fn=lambda: os.close(0))
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


def test_cached_prefixes_are_refused(tmp_path):
    in_processes = (*RUN, "--tp", 2, "--ranks", "process")
    assert "files of prefixes (--prefix-dir) are for one rank only" in fails(*in_processes, "--prefix-dir", tmp_path)
    assert "prefixes in host memory are for one rank only" in fails(*in_processes, "--prefix-host-memory", "64M")


def test_other_kinds_are_refused():
    assert "none of thread|process|mpi" in fails(*RUN, "--tp", 2, "--ranks", "robots", status=2)
    assert "mpirun has not started this process" in fails(*RUN, "--tp", 2, "--ranks", "mpi")
    assert "'proa rank' is started by rank 0" in fails("rank", status=2)


@needs_mpi
@pytest.mark.parametrize("ranks, options", [(2, ()), (3, ()), (2, ("--pp", 2)), (4, ("--tp", 2, "--pp", 2))])
def test_mpi(one_rank, ranks, options):
    run = mpirun(ranks, *RUN, *options)
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


@needs_mpi
def test_mpi_without_single_copies(one_rank):
    """Where processes may not read each other's memory, a message of MPI leaves only while its sender calls MPI."""
    options = ("--mca", "btl", "vader,self", "--mca", "btl_vader_single_copy_mechanism", "none")
    run = mpirun(2, *RUN, "--pp", "2", options=options)
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


@needs_mpi
def test_mpi_with_another_number_of_ranks():
    run = mpirun(3, *RUN, "--tp", 2)
    assert run.returncode != 0
    assert "mpirun has started 3 processes, the model has 2 ranks (--tp, --pp)" in run.stderr


# ---- GPUs, which are those of tests/fake_gpu/fake_ranks.c ----

FAKE_GPUS = PROA.parent / "tests/libfake_ranks.so"
ON_GPUS = ("--device", "cuda")


@pytest.fixture
def fake_gpus(monkeypatch):
    if not FAKE_GPUS.exists():
        pytest.skip("tests/libfake_ranks.so is not built")
    monkeypatch.setenv("PROA_CUDA_PLUGIN", str(FAKE_GPUS))


@pytest.mark.parametrize("options", [("--tp", 2), ("--pp", 2)])
def test_gpus_of_processes(fake_gpus, one_rank, options):
    assert ok(*RUN, *ON_GPUS, *options, "--ranks", "process") == one_rank


@pytest.mark.parametrize("variables, message", [
    ({"FAKE_GPUS": "1"}, "rank 1: device 'cuda:1': there are 1 GPUs, numbered from 0"),
    ({"FAKE_GPU_NAME": "a"}, "ranks 0 and 1 have the same GPU (a)"),
    ({"PROA_COLLECTIVES": "smoke"}, "PROA_COLLECTIVES is 'smoke', must be auto, peer or nccl"),
    ({"PROA_COLLECTIVES": "nccl", "PROA_NCCL": "/nowhere/libnccl.so.2"}, "install NVIDIA's package libnccl2"),
])
def test_gpus_that_cannot_be_connected(fake_gpus, monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert message in fails(*RUN, *ON_GPUS, "--tp", 2, "--ranks", "process")


@needs_mpi
def test_gpus_of_mpi(fake_gpus, one_rank):
    """The ranks of a host have its GPUs in their order; where a launcher leaves each one GPU, it has that one."""
    run = mpirun(2, *RUN, *ON_GPUS)
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank
    command = [str(PROA), *map(str, RUN), *ON_GPUS]
    each = [["-n", "1", "-x", "FAKE_GPUS=1", "-x", f"FAKE_GPU_NAME={name}", *command] for name in "ab"]
    run = subprocess.run(["mpirun", "--oversubscribe", *each[0], ":", *each[1]], capture_output=True, text=True,
                         timeout=120, env={**os.environ, **MPI_ENV})
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


@needs_mpi
def test_mpi_with_fewer_gpus_than_ranks(fake_gpus, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "1")
    run = mpirun(2, *RUN, *ON_GPUS)
    assert run.returncode != 0
    assert "ranks 0 and 1 have the same GPU (gpu-0): a host needs as many as it has ranks" in run.stderr


# ---- two hosts, which are network namespaces ----

PAIR = ("-n", "2", "--host", f"{NETWORK}.1:1,{NETWORK}.2:1")


@pytest.fixture
def cable(tmp_path):
    """Two hosts, and the options of mpirun on the first of them by which it reaches the other one."""
    agent = tmp_path / "agent"  # in place of ssh: HOST COMMAND...
    agent.write_text(f'#!/bin/sh\nshift\nexec {" ".join(on_host(1))} sh -c "$*"\n')
    agent.chmod(0o755)
    with two_hosts():
        yield [*("--mca", "plm_rsh_agent", str(agent)), *("--mca", "btl", "tcp,self"),
               *("--mca", "btl_tcp_if_include", f"{NETWORK}.0/24"), *("--mca", "oob_tcp_if_include", f"{NETWORK}.0/24")]


def run_on_hosts(*command):
    return subprocess.run([*on_host(0), "mpirun", *map(str, command)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **MPI_ENV})


@needs_mpi
def test_two_hosts(one_rank, cable):
    run = run_on_hosts(*PAIR, *cable, PROA, *RUN)
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


@needs_mpi
@pytest.mark.parametrize("options", [("--tp", 2), ("--pp", 2)])
def test_gpus_of_two_hosts(fake_gpus, one_rank, cable, monkeypatch, options):
    """GPUs of two hosts are connected by NCCL: their memory is not opened, and without the library they are refused."""
    each = [("-n", 1, "--host", f"{NETWORK}.{i + 1}:1", "-x", f"FAKE_GPU_NAME={i}", PROA, *RUN, *ON_GPUS, *options)
            for i in range(2)]  # fmt: skip
    monkeypatch.setenv("PROA_NCCL", str(FAKE_GPUS.with_name("libfake_nccl.so")))
    run = run_on_hosts(*cable, *each[0], ":", *each[1])
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank
    monkeypatch.setenv("PROA_NCCL", "/nowhere/libnccl.so.2")
    assert "install NVIDIA's package libnccl2" in run_on_hosts(*cable, *each[0], ":", *each[1]).stderr
    monkeypatch.setenv("PROA_COLLECTIVES", "peer")
    refused = run_on_hosts(*cable, *each[0], ":", *each[1]).stderr
    assert "PROA_COLLECTIVES is 'peer', but ranks 0 and 1 are on different hosts" in refused


# ---- a job that is started again (deploy/mpi/proa-group) ----

GROUP = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "mpi" / "proa-group"
PORT = 18947


@contextlib.contextmanager
def group(before, *options, errors):
    """The server of two ranks. `before`: the command before its own, as `ip netns exec NAME`."""
    env = {**os.environ, **MPI_ENV, "PROA": str(PROA), "GROUP_SILENCE": "2", "GROUP_DRAIN": "2", "GROUP_PAUSE_MAX": "2"}
    serve = ["--", str(LM), "--threads", "2", "--http-address", "127.0.0.1", "--http-port", str(PORT), "--allow-grpc", "false",
             "--allow-metrics", "false"]
    with errors.open("w") as stderr:
        run = subprocess.Popen([*before, GROUP, *options, *serve], stdout=subprocess.DEVNULL, stderr=stderr, env=env)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 0


def ranks_of(run):
    """The processes of the program that descend from this one."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
            parents[int(stat.parent.name)] = (int(rest.split()[1]), name)
    found = []
    for pid, (parent, name) in parents.items():
        while name == "proa" and parent > 1 and parent != run.pid:
            parent = parents.get(parent, (0, ""))[0]
        if name == "proa" and parent == run.pid:
            found.append(pid)
    return found


@needs_mpi
def test_a_killed_rank_and_the_group_comes_back(tmp_path):
    errors = tmp_path / "errors"
    with group((), "-n", "2", "--oversubscribe", errors=errors) as run:
        wait_for(lambda: is_ready((), PORT), 60, "ready")
        first = ranks_of(run)
        assert len(first) == 2
        os.kill(max(first), signal.SIGKILL)
        wait_for(lambda: not is_ready((), PORT), 10, "not ready")
        wait_for(lambda: is_ready((), PORT), 60, "ready again")
        assert len(ranks_of(run)) == 2 and not set(ranks_of(run)) & set(first)
    assert "next start in 1 s" in errors.read_text()


def stop_other_host():
    """Its rank does not run any more, but for the system the connection is fine."""
    for pid, name in processes_of(1):
        if name == "proa":
            os.kill(pid, signal.SIGSTOP)


@needs_mpi
@pytest.mark.parametrize("lose", [lambda: set_cable("down"), stop_other_host], ids=["cable", "stopped"])
def test_lost_host(cable, tmp_path, lose):
    """The cable is cut, or the other rank stops: an error within 10 s, which names the rank; then the group comes back."""
    errors = tmp_path / "errors"
    with group(on_host(0), *PAIR, *cable, errors=errors):
        wait_for(lambda: is_ready(on_host(0), PORT), 60, "ready")
        lose()
        wait_for(lambda: "rank 1 has not answered for 6 s" in errors.read_text(), 10, "an error")
        wait_for(lambda: "not ready for 2 s: the job is ended" in errors.read_text(), 10, "the end of the job")
        set_cable("up")
        wait_for(lambda: is_ready(on_host(0), PORT), 60, "ready again")
        wait_for(lambda: programs_of(1).count("proa") == 1, 30, "one rank on the other host")
