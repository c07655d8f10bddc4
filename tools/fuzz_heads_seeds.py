#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus/heads: configuration and header of the golden draft heads, and of some that must be refused.

    fuzz_heads_seeds.py"""
import json
import pathlib
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"


def header_of(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size])


def dense(header):
    return json.dumps(header, separators=(",", ":")).encode()


def write(name, letter, config, header):
    text = letter.encode() + json.dumps(config).encode() + b"\0" + dense(header)
    (TESTS / "fuzz" / "corpus" / "heads" / name).write_bytes(text)


(TESTS / "fuzz" / "corpus" / "heads").mkdir(parents=True, exist_ok=True)
for name in ("one", "three_published"):
    folder = TESTS / "golden" / "eagle" / name
    write("eagle_" + name, "e", json.loads((folder / "config.json").read_text()), header_of(folder / "model.safetensors"))
HEADS = {}
for d in range(2):
    for tensor, shape in (("0.linear.weight", [64, 64]), ("0.linear.bias", [64]), ("1.weight", [200, 64])):
        begin = max([t["data_offsets"][1] for t in HEADS.values()], default=0)
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        HEADS[f"{d}.{tensor}"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + 4 * count]}
write("medusa", "m", {"medusa_num_heads": 2, "medusa_num_layers": 1}, HEADS)
write("medusa_many_layers", "m", {"medusa_num_heads": 2, "medusa_num_layers": 1 << 40}, HEADS)
write("medusa_gap", "m", {}, {name.replace("1.", "7.", 1): t for name, t in HEADS.items()})
