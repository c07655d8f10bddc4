#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the safetensors fuzz target: tiny files, good ones and each kind of lie.

usage: tools/golden_safetensors.py [FOLDER]      default: tests/fuzz/corpus/safetensors

Needs nothing but Python 3. Running it again writes the same bytes. Files that begin with '{' are header and data
without the length (tests/fuzz/fuzz_safetensors.c puts it before them), the others are whole files.
"""

import json
import pathlib
import struct
import sys


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header(**members):
    return json.dumps(members, separators=(",", ":")).encode()


def whole(head, data=b"", length=None):
    return struct.pack("<Q", len(head) if length is None else length) + head + data


TWO = header(a=tensor("F32", [2, 2], 0, 16), b=tensor("BF16", [3], 16, 22))
SEEDS = {
    "good-two": whole(TWO, bytes(range(22))),
    "good-empty": whole(b"{}"),
    "good-padded": whole(TWO + b"      ", bytes(22)),
    "good-metadata": whole(header(__metadata__={"format": "pt"}, x=tensor("I8", [1], 0, 1)), b"\x01"),
    "good-scalar": header(s=tensor("F64", [], 0, 8)) + bytes(8),
    "good-zero": header(z=tensor("F16", [4, 0, 2], 0, 0)),
    "good-dtypes": header(
        a=tensor("F16", [1], 0, 2), b=tensor("I16", [1], 2, 4), c=tensor("I32", [1], 4, 8),
        d=tensor("I64", [1], 8, 16), e=tensor("U8", [1], 16, 17), f=tensor("BOOL", [1], 17, 18)) + bytes(18),
    "good-names": '{"é\\n\\u00e9":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}\x01'.encode(),
    "lie-empty-file": b"\0",
    "lie-short": b"\x02\0\0",
    "lie-length-huge": whole(b"{}", length=2**64 - 1),
    "lie-length-over": whole(b"{}", length=3),
    "lie-not-json": whole(b'{"a":'),
    "lie-array": whole(b"[]"),
    "lie-dtype": header(x=tensor("F8_E5M2", [1], 0, 1)) + b"\0",
    "lie-dtype-unknown": header(x=tensor("F128", [1], 0, 16)) + bytes(16),
    "lie-rank": header(x=tensor("U8", [1, 1, 1, 1, 1], 0, 1)) + b"\0",
    "lie-negative": header(x=tensor("U8", [-1], 0, 1)) + b"\0",
    "lie-overflow": header(x=tensor("F32", [2**32, 2**32, 0], 0, 0)),
    "lie-integer": header(x=tensor("U8", [2**64], 0, 2**63)) + b"\0",
    "lie-reversed": header(x=tensor("U8", [4], 4, 0)) + bytes(4),
    "lie-beyond": header(x=tensor("U8", [9], 0, 9)) + bytes(8),
    "lie-span": header(x=tensor("F32", [3], 0, 11)) + bytes(11),
    "lie-overlap": header(a=tensor("U8", [4], 0, 4), b=tensor("U8", [4], 2, 6)) + bytes(6),
    "lie-hole": header(a=tensor("U8", [4], 0, 4), b=tensor("U8", [4], 5, 9)) + bytes(9),
    "lie-trailing": header(a=tensor("U8", [4], 0, 4)) + bytes(5),
    "lie-twice": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "lie-twice-escaped": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0061":{}}',
    "lie-key-twice": b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "lie-nul": b'{"a\\u0000":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "lie-metadata": b'{"__metadata__":{"a":1}}',
    "lie-depth": b'{"a":{"b":{"c":[[[[]]]]}}}',
    "lie-name-long": header(**{"n" * 513: tensor("U8", [0], 0, 0)}),
}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/fuzz/corpus/safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)
    print(f"{len(SEEDS)} files in {folder}")


if __name__ == "__main__":
    main()
