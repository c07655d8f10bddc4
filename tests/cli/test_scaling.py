# SPDX-License-Identifier: Apache-2.0
"""`proa explain --hosts`: the tables of docs/scaling.md are current, its figures agree with measured steps, and with
arithmetic that is done here once more."""
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROA = os.environ.get("PROA", str(ROOT / "build" / "release" / "proa"))


def explain(*words, status=0):
    ran = subprocess.run([PROA, "explain", *map(str, words)], capture_output=True, text=True, check=False)
    assert ran.returncode == status, ran.stderr
    return json.loads(ran.stdout) if "--json" in words else ran.stdout + ran.stderr


def test_the_page_is_current():
    ran = subprocess.run([sys.executable, ROOT / "tools/scaling-doc", "--check", PROA], capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_predictions_are_near_to_what_was_measured():
    """Steps of decoders on one and two H100s: within 15 %, and within 6 % on the average."""
    errors = []
    for row in csv.DictReader((ROOT / "bench/results/ranks_gpu.csv").open()):
        if row["commit"] != "eeb44ef" or row["model"].startswith("t5"):
            continue
        said = explain(f"synthetic:{row['model']}", "--hosts", 1, "--tp", row["tp"], "--quant", row["quant"], "--dtype",
                       row["dtype"], "--batches", row["batch"], "--json", "--context",
                       int(row["prompt"]) + int(row["tokens"]) // 2)  # fmt: skip
        errors.append(1e3 * said["steps"][0]["step_s"] / float(row["step_ms"]) - 1)
    assert len(errors) >= 12
    assert max(map(abs, errors)) < 0.15, errors
    assert sum(map(abs, errors)) / len(errors) < 0.06, errors


def test_one_gpu_by_hand():
    """Llama-3-8B in fp8: its matrices, and of 2,048 tokens the keys and values of 32 layers, 8 heads of 128."""
    step = explain("synthetic:llama3-8b", "--hosts", 1, "--quant", "fp8", "--batches", 1, "--json")["steps"][0]
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    weights = 32 * layer + 128256 * 4096
    assert step["weights_s"] == pytest.approx(weights / 3.1e12, rel=1e-4)
    assert step["kv_s"] == pytest.approx(2048 * 32 * 2 * 8 * 128 * 2 / 3.1e12, rel=1e-4)
    assert step["overhead_s"] == pytest.approx(32 * 17e-6, rel=1e-4)
    assert step["sums_s"] == 0 and step["link_bytes"] == 0
    assert step["step_s"] == pytest.approx(step["weights_s"] + step["kv_s"] + step["overhead_s"], rel=1e-4)


def test_recurrent_states_by_hand():
    """Bamba-9B: three of its 32 layers attend, with 8 heads of 128; 29 have a state that a step reads and writes."""
    said = explain("synthetic:bamba-9b", "--hosts", 1, "--batches", 1, "--json")
    state = 29 * 4 * (128 * 128 * 64 + 3 * (128 * 64 + 2 * 128))
    assert said["state_bytes"] == state
    assert said["steps"][0]["kv_s"] == pytest.approx((2048 * 3 * 2 * 8 * 128 * 2 + 2 * state) / 3.1e12, rel=1e-4)
    assert "MB of states a sequence" in explain("synthetic:bamba-9b", "--hosts", 1)


def test_layers_of_one_part():
    """Mamba-2: one sum of each of its three layers, and heads though none attends."""
    two = explain(ROOT / "tests/golden/arch/mamba2", "--hosts", 1, "--tp", 2, "--batches", 1, "--json")["steps"][0]
    assert two["sums_s"] == pytest.approx(3 * 5e-6, rel=0.01)


def test_links_by_hand():
    """Two sums of each layer; one shot sends a row to each of the other GPUs. Over two hosts, halving and doubling."""
    two = explain("synthetic:llama3-8b", "--hosts", 1, "--tp", 2, "--batches", 1, "--json")["steps"][0]
    assert two["link_bytes"] == 64 * 4096 * 2 and two["net_bytes"] == 0
    assert two["sums_s"] == pytest.approx(64 * (5e-6 + 8192 / 2.3e11), rel=1e-4)
    four = explain("synthetic:llama3-8b", "--hosts", 2, "--host-gpus", 2, "--tp", 4, "--batches", 1, "--json")["steps"][0]
    within, among = 2 * 5e-6 + 8192 / 2.3e11, 2 * 5e-6 + 4096 / 5e10
    assert four["sums_s"] == pytest.approx(64 * (within + among), rel=1e-4)
    assert four["net_bytes"] == 64 * 4096
    piped = explain("synthetic:llama3-8b", "--hosts", 2, "--host-gpus", 1, "--pp", 2, "--batches", 1, "--json")["steps"][0]
    assert piped["net_bytes"] == 8192 and piped["sends_s"] == pytest.approx(5e-6 + 8192 / 5e10, rel=1e-4)


def test_a_folder_and_figures():
    said = explain(ROOT / "models/classics-10m", "--hosts", 1, "--gpu-bandwidth", 1000, "--batches", "1,8", "--json")
    assert [s["batch"] for s in said["steps"]] == [1, 8] and said["arch"] == "llama"
    assert said["steps"][0]["weights_s"] == pytest.approx(said["weight_bytes"] / 1e12, rel=1e-3)
    assert "do not pay" in explain("synthetic:llama3-70b", "--quant", "fp8", "--hosts", 1)


@pytest.mark.parametrize("words, text", [
    (["synthetic:llama3-8b", "--hosts", 2], "'hosts' is 2"),
    (["synthetic:llama3-8b", "--hosts", 1, "--tp", 16], "16 GPUs"),
    (["synthetic:llama3-8b", "--hosts", 8, "--tp", 64], "32 heads"),
    (["synthetic:t5-3b", "--hosts", 1], "decoders"),
    (["synthetic:nothing", "--hosts", 1], "no synthetic model"),
    (["synthetic:llama3-8b", "--hosts", 1, "--batches", "1,,2"], "'batches'"),
    (["synthetic:llama3-8b", "--hosts", 1, "--batches", "0"], "'batches'"),
])  # fmt: skip
def test_what_is_refused(words, text):
    assert text in explain(*words, status=1)
