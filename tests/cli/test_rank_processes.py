# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes: started by the program itself and by mpirun, on one host and on two."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest
from harness import LM, PROA, fails, ok

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

HOSTS = ("proa-a", "proa-b")
NETWORK = "10.99.7"


def ip(*args, check=True):
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=check)


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return None


@pytest.fixture
def two_hosts(tmp_path):
    """Namespaces with a cable between them; the command before which mpirun's own goes, for the first one."""
    if not shutil.which("ip") or os.geteuid() != 0 or ip("netns", "add", HOSTS[0], check=False).returncode != 0:
        pytest.skip("network namespaces are not permitted here")
    ip("netns", "add", HOSTS[1])
    ip("link", "add", "v0", "netns", HOSTS[0], "type", "veth", "peer", "name", "v1", "netns", HOSTS[1])
    for i, host in enumerate(HOSTS):
        ip("-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", f"v{i}")
        ip("-n", host, "link", "set", f"v{i}", "up")
        ip("-n", host, "link", "set", "lo", "up")
    agent = tmp_path / "agent"  # in place of ssh: HOST COMMAND...
    agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {HOSTS[1]} sh -c "$*"\n')
    agent.chmod(0o755)
    yield ["ip", "netns", "exec", HOSTS[0], "mpirun", "-n", "2", "--host", f"{NETWORK}.1:1,{NETWORK}.2:1",
           *("--mca", "plm_rsh_agent", str(agent)), *("--mca", "btl", "tcp,self"),
           *("--mca", "btl_tcp_if_include", f"{NETWORK}.0/24"), *("--mca", "oob_tcp_if_include", f"{NETWORK}.0/24"),
           str(PROA)]
    for host in HOSTS:
        for pid in ip("netns", "pids", host).stdout.split():
            os.kill(int(pid), 9)
        ip("netns", "delete", host)


@needs_mpi
def test_two_hosts(one_rank, two_hosts):
    run = subprocess.run([*two_hosts, *map(str, RUN)], capture_output=True, text=True, timeout=120,
                         env={**os.environ, **MPI_ENV})
    assert run.returncode == 0, run.stderr
    assert run.stdout == one_rank


@needs_mpi
def test_cut_network(two_hosts, tmp_path):
    """The cable is cut while tokens are generated: an error within 10 s, which names the rank."""
    command = [*two_hosts, "run", str(LM), PROMPT, "--dtype", "f32", "--threads", "2", "--max-tokens", "4000", "--ignore-eos"]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env={**os.environ, **MPI_ENV})
    while not any(name_of(pid) == "proa" for pid in ip("netns", "pids", HOSTS[1]).stdout.split()):
        time.sleep(0.1)
    time.sleep(4)  # it has opened the model by then
    ip("-n", HOSTS[0], "link", "set", "v0", "down")
    cut = time.monotonic()
    while "rank 1 has not answered for 6 s" not in errors.read_text() and time.monotonic() - cut < 30:
        time.sleep(0.1)
    assert time.monotonic() - cut < 10
    run.kill()
    run.wait()
