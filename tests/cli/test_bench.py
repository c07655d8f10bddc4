# SPDX-License-Identifier: Apache-2.0
"""`proa bench` and `proa explain`: shapes and sums; speeds are looked at in bench/, not tested."""
import csv
import io
import json
import math
import subprocess
import xml.etree.ElementTree as xml

import pytest
from harness import BERT, GOLDEN, LM, PROA, ROOT, T5, ok, ok_json

QUICK = ("--tokens", 8, "--prompt", 16, "--repeats", 1)


@pytest.fixture(scope="module")
def decode(tmp_path_factory):
    svg = tmp_path_factory.mktemp("bench") / "plot.svg"
    return ok_json("bench", LM, "--batches", "1,2,8", "--plot", svg, *QUICK), svg


def stops_paying(batches):
    """bench/README.md: the first batch from which doubling gives less than 20 % more."""
    for before, after in zip(batches, batches[1:]):
        doublings = math.log2(after["batch"] / before["batch"])
        rate = "decode_tokens_per_s" if "decode_tokens_per_s" in after else "sequences_per_s"
        if (after[rate] / before[rate]) ** (1 / doublings) < 1.2:
            return before["batch"]
    return None


def test_bench_json(decode):
    out, _ = decode
    assert [b["batch"] for b in out["batches"]] == [1, 2, 8]
    assert out["bandwidth"] > 1e8 and out["model"] == "classics-10m" and out["parameters"] == 10059840
    assert 0 < out["step_weight_bytes"] <= out["weight_bytes"]
    for b in out["batches"]:
        kv = b["batch"] * (16 + 8 / 2) * out["kv_token_bytes"]
        assert b["step_bytes"] == pytest.approx(out["step_weight_bytes"] + kv)
        assert b["bytes_per_s"] == pytest.approx(b["step_bytes"] / b["step_s"], rel=1e-6)
        assert b["bandwidth_share"] == pytest.approx(b["bytes_per_s"] / out["bandwidth"], rel=1e-6)
        assert 0 < b["between_tokens_s"] <= b["between_tokens_p99_s"]
        assert b["prompt_tokens_per_s"] > 0 and b["first_token_s"] > 0 and b["decode_tokens_per_s"] > 0
        assert b["first_token_s"] <= b["ready_s"] and b["all_tokens_per_s"] > 0
        assert "step_share" not in b  # of what is measured on a GPU alone
    assert out["stops_paying_at"] == stops_paying(out["batches"])


def test_bench_plot(decode):
    _, svg = decode
    root = xml.parse(svg).getroot()
    assert root.tag.endswith("svg") and "prefers-color-scheme: dark" in svg.read_text()
    texts = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")]
    assert {"1", "2", "8", "measured"} <= set(texts) and any("read bandwidth allows" in t for t in texts)
    width, height = float(root.get("width")), float(root.get("height"))
    dots = [e for e in root.iter() if e.tag.endswith("circle") and e.get("fill")]
    assert len(dots) == 3
    assert all(0 < float(d.get("cx")) < width and 0 < float(d.get("cy")) < height for d in dots)


def test_bench_table_and_csv():
    text = ok("bench", LM, "--batches", "1,2", *QUICK)
    assert "read bandwidth of this machine" in text and "tokens/s" in text and "share" in text
    rows = list(csv.DictReader(io.StringIO(ok("bench", LM, "--batches", "1,2", "--csv", *QUICK))))
    assert [r["batch"] for r in rows] == ["1", "2"] and all(float(r["decode_tokens_s"]) > 0 for r in rows)


def test_bench_translator_and_encoder():
    out = ok_json("bench", T5, "--batches", "1,4", *QUICK)
    assert out["step_weight_bytes"] < out["weight_bytes"]  # the encoder is not read in a decoding step
    out = ok_json("bench", BERT, "--batches", "1,4", *QUICK)
    assert all(b["sequences_per_s"] > 0 for b in out["batches"])
    assert out["stops_paying_at"] == stops_paying(out["batches"])
    out = ok_json("bench", GOLDEN / "arch/t5_cls", "--batches", 1, *QUICK)  # its inputs need an end token
    assert out["batches"][0]["sequences_per_s"] > 0


def test_bench_script_appends(tmp_path):
    results = tmp_path / "cpu.csv"
    for _ in range(2):
        subprocess.run(["sh", ROOT / "bench/cpu.sh", "-o", results, "-p", tmp_path / "new/plots", "-a", "--batches 1 --tokens 4 --prompt 8 --repeats 1", LM],
                       check=True, env={"PROA_BIN": str(PROA), "PATH": "/usr/bin:/bin"}, cwd=tmp_path, capture_output=True)
    rows = list(csv.DictReader(results.open()))
    assert len(rows) == 2 and all(r["model"] == "classics-10m" and r["date"] and r["machine"] for r in rows)
    commit = json.loads(ok("version", "--json"))["commit"] or "unknown"
    assert all(r["commit"] == commit and float(r["load"]) >= 0 for r in rows)
    assert (tmp_path / "new/plots/classics-10m.svg").exists()


def test_bench_script_says_what_it_takes():
    ran = subprocess.run(["sh", ROOT / "bench/cpu.sh", "-h"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Measures") and "-p: also draws" in ran.stdout


@pytest.mark.parametrize("model", [LM, T5, BERT, GOLDEN / "arch/mistral", GOLDEN / "arch/t5_cls"])
def test_explain(model):
    """The parts of the memory plan add up, the floor is bytes over bandwidth, and the text shows what the JSON says."""
    text = ok("explain", model, "--bandwidth", 10)
    out = ok_json("explain", model, "--bandwidth", 10)
    memory = out["memory"]
    parts = {key: size for key, size in memory.items() if key not in ("total_bytes", "available_bytes")}
    assert sum(parts.values()) == memory["total_bytes"] and min(parts["weights_bytes"], parts["kv_bytes"]) > 0
    assert out["bandwidth_bytes_s"] == 10e9
    assert out["floor_step_s"] == pytest.approx(out["step_weight_bytes"] / 10e9)
    assert out["floor_tokens_s"] == pytest.approx(1 / out["floor_step_s"])
    assert "floor at 10.0 GB/s read bandwidth" in text
    for section in out["program"]:
        assert section["section"] in text and section["steps"]
        for step in section["steps"]:
            assert any(line.split()[:1] == [step["op"]] and step["out"] in line for line in text.splitlines()), step
    total = next(line.split() for line in text.splitlines() if line.split()[:1] == ["total"])
    assert float(total[1]) == pytest.approx(memory["total_bytes"] / 1e6, abs=1e-3)


def test_explain_of_ranks():
    whole, out = ok_json("explain", LM, "--no-measure"), ok_json("explain", LM, "--tp", 2, "--pp", 3, "--no-measure")
    ranks = out["ranks"]
    assert "ranks" not in whole and [r["stage"] for r in ranks] == [0, 0, 1, 1, 2, 2]
    assert [(r["first_layer"], r["end_layer"]) for r in ranks[::2]] == [(0, 2), (2, 4), (4, 6)] and whole["layers"] == 6
    assert [r["stage_bytes_row"] for r in ranks] == [4 * whole["hidden"]] * 4 + [0, 0]  # rows of the stream, in f32
    # two sums in each layer, of terms of a row in f32
    assert all(r["sums"] == 4 and r["sum_bytes_row"] == 4 * 4 * whole["hidden"] for r in ranks)
    matrices = sum(r["weights_bytes"] for r in ranks)
    assert 0.9 * whole["memory"]["weights_bytes"] < matrices < 1.3 * whole["memory"]["weights_bytes"]
    text = ok("explain", LM, "--tp", 2, "--pp", 3, "--no-measure")
    assert "5 of stage  2    4..5" in text and f"to the next stage  {4 * whole['hidden']} T" in text


def test_explain_foretells_the_peak_memory():
    """Within 10 % of what a run then takes."""
    def peak(*args):
        code = ("import resource,subprocess,sys;r=subprocess.run(sys.argv[1:],capture_output=True);"
                "print(r.returncode,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024)")
        status, size = subprocess.run(["python3", "-c", code, PROA, *args], capture_output=True, text=True,
                                      check=True).stdout.split()
        assert status == "0"
        return int(size)
    out = ok_json("explain", LM, "--no-measure")
    total = out["memory"]["total_bytes"]
    used = peak("run", str(LM), "word " * 900, "--max-tokens", "4")
    assert abs(used - total) <= 0.1 * total, (used, total)
