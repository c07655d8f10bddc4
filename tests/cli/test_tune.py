# SPDX-License-Identifier: Apache-2.0
"""`proa tune` where there is no GPU: every product of the model at every level that this CPU has; nothing is kept."""
from harness import BERT, T5, ok, ok_json

QUICK = ("--rows", 1)


def test_levels_of_the_cpu(tmp_path):
    out = ok_json("tune", T5, *QUICK, "--dtype", "exact", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert out["format"] == "bf16" and out["kept"] is False and out["takes"]
    shapes = {(p["N"], p["K"]): p["count"] for p in out["products"]}
    assert shapes[(8064, 320)] == 1 and shapes[(320, 1280)] == 8  # the head; the second half of 8 feed-forward blocks
    assert all(p["us"]["1"] > 0 and list(p["us"]) == ["1"] for p in out["products"])
    assert len(out["products"]) == len(shapes) * len({p["isa"] for p in out["products"]})
    assert not list(tmp_path.iterdir())


def test_table():
    text = ok("tune", BERT, *QUICK, "--quant", "int8")
    assert "int8 weights. Nothing is kept" in text and "PROA_ISA" in text
