# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes: started by the program itself and by mpirun, on one host and on two."""
import os
import shutil
import subprocess

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
