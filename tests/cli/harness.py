# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: where it is, how it is run, where the models and references are.

PROA or PROA_BIN names the program; without them build/release/proa is taken. Models that do not ship are looked for in
$PROA_SHARED and in ../shared beside the checkout (see tests/golden/README.md); a test that wants one is else skipped.
"""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROA = pathlib.Path(os.environ.get("PROA_BIN") or os.environ.get("PROA") or ROOT / "build/release/proa").resolve()
GOLDEN = ROOT / "tests/golden"
MODELS = ROOT / "models"
LM, T5, BERT = MODELS / "classics-10m", MODELS / "m30k-t5", MODELS / "polarity-bert"


def proa(*args, stdin="", timeout=300, env=None, **kwargs):
    """Runs the program; standard input is closed unless text is given."""
    return subprocess.run([str(PROA), *map(str, args)], input=stdin, capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, **kwargs)


def ok(*args, **kwargs):
    """The same, which must succeed. Returns standard output."""
    run = proa(*args, **kwargs)
    assert run.returncode == 0, run.stderr
    return run.stdout


def ok_json(*args, **kwargs):
    """The same with --json: exactly one object on standard output."""
    return json.loads(ok(*args, "--json", **kwargs))


def fails(*args, status=1, **kwargs):
    """Must fail with this status and one line on standard error, which is returned."""
    run = proa(*args, **kwargs)
    assert run.returncode == status, (run.returncode, run.stdout, run.stderr)
    lines = run.stderr.splitlines()
    assert lines and lines[-1].startswith("proa: "), run.stderr
    assert len([line for line in lines if line.startswith("proa: ")]) == 1, run.stderr
    return lines[-1]


def shared_model(name):
    for place in (os.environ.get("PROA_SHARED"), ROOT.parent / "shared"):
        if place and (pathlib.Path(place) / "models" / name).is_dir():
            return pathlib.Path(place) / "models" / name
    pytest.skip(f"{name} does not ship: name its place with PROA_SHARED")
