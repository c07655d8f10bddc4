#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the vectors of the block encodings: stored blocks and the numbers that they are.

usage: tools/golden_encodings.py [FOLDER]      default: tests/golden/encodings

Needs the PyPI packages gguf (0.19.0) and numpy (2.4.6). Each file is NAME.bin: n blocks, then their numbers as
little-endian f32; n follows from the file's size. The blocks are random bytes with random finite f16 scales (MXFP4: the
exponents 0, 1, 2, 127 and random ones), so that every code, scale and bit position occurs; the numbers are from gguf's
dequantisation in numpy. Running it again writes the same bytes.
"""

import pathlib
import sys

import gguf
import numpy as np

# Encoding, offsets of f16 numbers in the block, blocks that are written.
ENCODINGS = {
    "Q4_0": ([0], 16), "Q4_1": ([0, 2], 16), "Q5_0": ([0], 16), "Q5_1": ([0, 2], 16), "Q8_0": ([0], 16),
    "IQ4_NL": ([0], 16), "MXFP4": ([], 16), "Q2_K": ([80, 82], 4), "Q3_K": ([108], 4), "Q4_K": ([0, 2], 4),
    "Q5_K": ([0, 2], 4), "Q6_K": ([208], 4), "IQ4_XS": ([0], 4)}


def blocks_of(name, halves, count, rng):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in halves:
        bits = rng.integers(0, 0x7C00, count, dtype=np.uint16) | rng.integers(0, 2, count, dtype=np.uint16) << 15
        bits[:2] = 0x0001, 0x8000  # the smallest number, and minus zero
        blocks[:, at:at + 2] = bits.astype("<u2").view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:4, 0] = 0, 1, 2, 127
        blocks[:, 0] = np.minimum(blocks[:, 0], 250)  # larger ones overflow
    return blocks


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/encodings")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20250101)
    for name, (halves, count) in ENCODINGS.items():
        blocks = blocks_of(name, halves, count, rng)
        numbers = gguf.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType[name])
        assert np.isfinite(numbers).all(), name
        (folder / f"{name}.bin").write_bytes(blocks.tobytes() + numbers.astype("<f4").tobytes())


main()
