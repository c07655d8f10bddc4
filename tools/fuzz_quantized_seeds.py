#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus/quantized: each layout of quantised weights once as it should be (good-*), and with parts
that do not fit each other (lie-*). The form of an input is described at the head of tests/fuzz/fuzz_quantized.c."""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/fuzz/corpus/quantized"
ENDINGS = [".qweight", ".qzeros", ".scales", ".g_idx", ".weight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".bias",
           ".weight_zero_point", ".weight_shape", ".weight_g_idx", "_blocks", "_scales"]
DTYPES = ["I32", "F16", "BF16", "F32", "U8", "I8", "F8_E4M3", "I64"]


def write(name, *tensors, data=bytes([0x31, 0x2C, 0x45, 0x2E, 0x17, 0x2D, 0x7A])):
    out = b""
    for ending, dtype, *shape in tensors:
        out += bytes([ENDINGS.index(ending), DTYPES.index(dtype) + len(DTYPES) * len(shape), *shape])
    (FOLDER / name).write_bytes(out + b"\xff" + data)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    gptq = [(".qweight", "I32", 8, 16), (".qzeros", "I32", 2, 2), (".scales", "F16", 2, 16)]
    write("good-gptq", *gptq)
    write("good-gptq-act-order", *gptq, (".g_idx", "I32", 64), data=bytes(4))
    write("good-gptq-8-bits", (".qweight", "I32", 16, 16), (".qzeros", "I32", 2, 4), (".scales", "F16", 2, 16))
    write("good-awq", (".qweight", "I32", 64, 2), (".qzeros", "I32", 2, 2), (".scales", "F16", 2, 16))
    # the shape is the first data: 16, 64 as I64
    packed = [(".weight_shape", "I64", 2), (".weight_packed", "I32", 16, 8), (".weight_scale", "F16", 16, 2)]
    shape = (16).to_bytes(8, "little") + (64).to_bytes(8, "little")
    write("good-packed", *packed, data=shape)
    write("good-packed-zeros", *packed, (".weight_zero_point", "I32", 2, 2), data=shape)
    write("good-int8", (".weight", "I8", 16, 64), (".weight_scale", "F32", 16, 1))
    write("good-fp8-blocks", (".weight", "F8_E4M3", 48, 64), (".weight_scale_inv", "F32", 3, 4))
    write("good-fp8-one", (".weight", "F8_E4M3", 16, 64), (".weight_scale", "F32"))
    write("good-mxfp4", ("_blocks", "U8", 16, 2, 16), ("_scales", "U8", 16, 2))
    write("lie-gptq-columns", gptq[0], gptq[1], (".scales", "F16", 2, 15))
    write("lie-gptq-no-scales", gptq[0], gptq[1])
    write("lie-gptq-group", *gptq, (".g_idx", "I32", 64))
    write("lie-gptq-twice", *gptq, (".weight", "F16", 16, 64))
    write("lie-awq-zeros", (".qweight", "I32", 64, 2), (".qzeros", "I32", 3, 2), (".scales", "F16", 2, 16))
    write("lie-packed-shape", *packed, data=bytes([255] * 16))
    write("lie-scale-rank", (".weight", "I8", 16, 64), (".weight_scale", "F32", 1, 1, 1))
    write("lie-scale-zero", (".weight", "I8", 16, 64), (".weight_scale", "F32", 0, 1))
    write("lie-fp8-blocks", (".weight", "F8_E4M3", 48, 64), (".weight_scale_inv", "F32", 7, 5))
    write("lie-mxfp4-blocks", ("_blocks", "U8", 16, 2, 15), ("_scales", "U8", 16, 2))


main()
