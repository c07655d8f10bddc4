# SPDX-License-Identifier: Apache-2.0
"""`proa inspect`: the list of a checkpoint's tensors, beside numpy."""
import json

import numpy as np
from harness import LM, fails, ok, ok_json
from test_quantized import load, save


def test_values_are_those_of_numpy():
    out = ok_json("inspect", LM)
    have = {t["name"]: t for t in out["tensors"]}
    want = load(LM / "model.safetensors")
    assert have.keys() == want.keys() and out["tensors_count"] == len(want)
    assert out["numbers"] == sum(w.size for w in want.values()) and out["not_finite"] == 0
    for name, w in want.items():
        t = have[name]
        assert t["type"] == "bf16" and t["shape"] == list(w.shape) and t["bytes"] == 2 * w.size
        assert np.float32(t["min"]) == w.min() and np.float32(t["max"]) == w.max() and t["nan"] == t["infinite"] == 0
        assert abs(t["rms"] - np.sqrt(np.mean(w.astype(np.float64) ** 2))) < 1e-6 * t["rms"]


def test_nan_and_infinite_numbers_are_counted(tmp_path):
    path = tmp_path / "model.safetensors"
    values = np.array([[1, np.nan, -3], [np.inf, 5, -np.inf]], np.float32)
    save(path, {"a": values, "b.ids": np.array([1, 2], np.int64), "empty": np.zeros((0, 4), np.float32)})
    out = ok_json("inspect", path)
    a, ids, empty = out["tensors"]
    assert (a["min"], a["max"], a["nan"], a["infinite"]) == (-3, 5, 1, 2) and out["not_finite"] == 1
    assert "min" not in ids and "min" not in empty
    text = ok("inspect", path)
    assert "1 NaN  2 infinite" in text and "3 tensors" in text and "1 with NaN or infinite numbers" in text


def test_filter_and_no_values():
    text = ok("inspect", LM, "--filter", "layers.1.mlp", "--no-values")
    lines = text.splitlines()
    assert lines[0].split() == ["name", "type", "shape", "bytes"]
    assert [line.split()[0] for line in lines[1:4]] == [f"model.layers.1.mlp.{x}_proj.weight" for x in ("down", "gate", "up")]
    assert lines[5].startswith("3 tensors, ")
    assert "min" not in json.loads(ok("inspect", LM, "--no-values", "--json"))["tensors"][0]


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"\x09\0\0\0\0\0\0\0{}")
    assert "x.safetensors" in fails("inspect", tmp_path / "x.safetensors")
    assert "no weights" in fails("inspect", tmp_path)
