# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as public quantisers write them. Each test quantises classics-10m with numpy in one quantiser's layout
(written from its documentation, without its code), and the model must give what its own dequantised weights give: in f32
within 1e-5 of the largest logit, and with the format that the CPU chooses by itself within what int8 activations cost."""
import json
import shutil

import numpy as np
import pytest
from harness import GOLDEN, LM, fails, ok, ok_json

GROUP = 32
IDS = "5 812 316 44 1020 77 9 3000"
SMALL_IDS = "5 81 116 44 120 77 9 130"  # for the models of tests/golden/arch


def load(path):
    """name -> f32 array, of a safetensors file with bf16 or f32 numbers."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + x for x in t["data_offsets"])
        if t["dtype"] == "BF16":
            values = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw[begin:end], np.float32)
        tensors[name] = values.reshape(t["shape"])
    return tensors


DTYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8"}


def save(path, tensors):
    """A value is an array, or (dtype name, array) where numpy has no such dtype."""
    header, data, at = {}, [], 0
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (DTYPES[value.dtype.name], value)
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def is_matrix(name):
    return "proj.weight" in name


def write(folder, convert, config=None, model=LM, chosen=is_matrix):
    """The quantised model and the model of its dequantised numbers. convert: (name, W) -> (tensors, dequantised), for
    the tensors whose names are chosen."""
    plain, quantised = {}, {}
    for name, w in load(model / "model.safetensors").items():
        if chosen(name):
            parts, back = convert(name.removesuffix(".weight"), w)
            quantised.update(parts)
            plain[name] = back.astype(np.float32)
        else:
            plain[name] = quantised[name] = w
    for kind, tensors in (("plain", plain), ("quantised", quantised)):
        (folder / kind).mkdir()
        for file in model.iterdir():
            if file.suffix == ".json" and "index" not in file.name and file.name != "golden.json":
                shutil.copy(file, folder / kind)
        save(folder / kind / "model.safetensors", tensors)
    if config:
        path = folder / "quantised/config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": config}))


def logits(folder, *options, ids=IDS, isa=""):
    return np.array(ok_json("run", folder, "--ids", ids, "--logits", *options, env={"PROA_ISA": isa} if isa else {})["logits"])


def compare(folder, limit=0.05, ids=IDS, isa=""):
    want = logits(folder / "plain", "--dtype", "f32", ids=ids)
    largest = np.abs(want).max()
    assert np.abs(logits(folder / "quantised", "--dtype", "f32", ids=ids, isa=isa) - want).max() < 1e-5 * largest
    own = logits(folder / "quantised", ids=ids, isa=isa)
    assert 0 < np.abs(own - want).max() < limit * largest


def codes_of(w, group=GROUP, symmetric=True):
    """4-bit codes [N, K], f16 scales and zero points [N, G], and the numbers that they stand for."""
    n, k = w.shape
    blocks = w.reshape(n, k // group, group)
    if symmetric:
        scale = (np.abs(blocks).max(2) / 7.5).astype(np.float16)
        zero = np.full(scale.shape, 8)
    else:
        low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
        scale = ((high - low) / 15).astype(np.float16)
        zero = np.clip(np.rint(-low / scale.astype(np.float32)), 1, 15).astype(int)
    wide = scale.astype(np.float32)[:, :, None]
    codes = np.clip(np.rint(blocks / wide) + zero[:, :, None], 0, 15).astype(int)
    back = wide * (codes - zero[:, :, None])
    return codes.reshape(n, k), scale, zero, back.reshape(n, k)


def pack(codes, axis, order=range(8), bits=4):
    """Neighbours along an axis into 32-bit words, the first in the lowest bits; order[i]: the neighbour in place i."""
    each = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, each)
    words = np.zeros(codes.shape[:-1], np.uint32)
    for place, i in enumerate(list(order)[:each]):
        words |= codes[..., i] << np.uint32(bits * place)
    return np.moveaxis(words, -1, axis).view(np.int32)


def gptq(base, w, symmetric=True, version="gptq", act_order=False):
    order = np.random.default_rng(1).permutation(w.shape[1]) if act_order else np.arange(w.shape[1])
    codes, scale, zero, back = codes_of(w[:, order], symmetric=symmetric)
    inverse = np.argsort(order)
    stored = zero - (version == "gptq")
    return {base + ".qweight": pack(codes[:, inverse].T, 0), base + ".scales": scale.T,
            base + ".qzeros": pack(stored.T, 1),
            base + ".g_idx": (inverse // GROUP).astype(np.int32)}, back[:, inverse]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq(tmp_path, symmetric, version, act_order):
    write(tmp_path, lambda base, w: gptq(base, w, symmetric, version, act_order), {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": version})
    compare(tmp_path)
    assert ok_json("explain", tmp_path / "quantised")["weight_format"] == ("q4_0" if symmetric else "q4_1")


def test_gptq_of_8_bits(tmp_path):
    def convert(base, w):
        n, k = w.shape
        blocks = w.reshape(n, -1, GROUP)
        scale = (np.abs(blocks).max(2) / 127).astype(np.float16)
        wide = scale.astype(np.float32)[:, :, None]
        codes = np.clip(np.rint(blocks / wide) + 128, 0, 255)
        back = (wide * (codes - 128)).reshape(n, k)
        zero = np.full(scale.shape, 127)
        return {base + ".qweight": pack(codes.reshape(n, k).T, 0, bits=8), base + ".scales": scale.T,
                base + ".qzeros": pack(zero.T, 1, bits=8)}, back

    write(tmp_path, convert)
    compare(tmp_path)


@pytest.mark.parametrize("symmetric", [True, False])
def test_awq(tmp_path, symmetric):
    places = (0, 2, 4, 6, 1, 3, 5, 7)

    def convert(base, w):
        codes, scale, zero, back = codes_of(w, symmetric=symmetric)
        return {base + ".qweight": pack(codes.T, 1, places), base + ".scales": scale.T,
                base + ".qzeros": pack(zero.T, 1, places)}, back

    write(tmp_path, convert, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": not symmetric})
    compare(tmp_path)


@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors_packed(tmp_path, symmetric):
    def convert(base, w):
        codes, scale, zero, back = codes_of(w, symmetric=symmetric)
        parts = {base + ".weight_packed": pack(codes, 1), base + ".weight_scale": scale,
                 base + ".weight_shape": np.array(w.shape, np.int64)}
        if not symmetric:
            parts[base + ".weight_zero_point"] = pack(zero, 0)
        return parts, back

    write(tmp_path, convert, {"quant_method": "compressed-tensors", "format": "pack-quantized"})
    compare(tmp_path)


def test_int8_with_scales_of_rows(tmp_path):
    def convert(base, w):
        scale = np.abs(w).max(1, keepdims=True).astype(np.float32) / 127
        codes = np.rint(w / scale).astype(np.int8)
        return {base + ".weight": codes, base + ".weight_scale": scale}, codes * scale

    write(tmp_path, convert, {"quant_method": "compressed-tensors", "format": "int-quantized"})
    compare(tmp_path)


E4M3 = np.array([(-1.0) ** (b >> 7) * ((b & 7) / 8 * 2.0**-6 if b >> 3 & 15 == 0 else (1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7))
                 for b in range(256)], np.float32)
FINITE = np.array([b for b in range(256) if b & 127 != 127])


def to_e4m3(values):
    order = FINITE[np.argsort(E4M3[FINITE], kind="stable")]
    table = E4M3[order]
    right = np.clip(np.searchsorted(table, values), 1, len(table) - 1)
    nearer = np.where(np.abs(table[right - 1] - values) <= np.abs(table[right] - values), right - 1, right)
    return order[nearer].astype(np.uint8)


@pytest.mark.parametrize("block", [None, 128])
def test_fp8(tmp_path, block):
    """With a scale for each row, or for each block of 128 x 128 as DeepSeek V3 has them."""
    def convert(base, w):
        n, k = w.shape
        rows, cols = (1, k) if block is None else (block, block)
        scale = np.array([[np.abs(w[i:i + rows, j:j + cols]).max() / 448 for j in range(0, k, cols)]
                          for i in range(0, n, rows)], np.float32)
        wide = np.repeat(np.repeat(scale, rows, 0)[:n], cols, 1)[:, :k]
        codes = to_e4m3(w / wide)
        name = ".weight_scale" if block is None else ".weight_scale_inv"
        return {base + ".weight": ("F8_E4M3", codes), base + name: scale}, E4M3[codes] * wide

    write(tmp_path, convert, {"quant_method": "fp8"})
    compare(tmp_path)


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_fp8_of_deepseek(tmp_path, isa):
    """Every matrix but the router in e4m3 with blocks, kv_b_proj too, whose heads are taken apart."""
    def convert(base, w):
        n, k = w.shape
        rows, cols = next(b for b in (32, 16, 8) if n % b == 0), next(b for b in (32, 16, 8) if k % b == 0)
        scale = (np.abs(w.reshape(n // rows, rows, k // cols, cols)).max((1, 3)) / 448).astype(np.float32)
        wide = np.repeat(np.repeat(scale, rows, 0), cols, 1)
        codes = to_e4m3(w / wide)
        return {base + ".weight": ("F8_E4M3", codes), base + ".weight_scale_inv": scale}, E4M3[codes] * wide

    write(tmp_path, convert, {"quant_method": "fp8", "weight_block_size": [32, 32]}, GOLDEN / "arch/deepseek_v3",
          lambda name: "_proj" in name and name.endswith(".weight"))
    compare(tmp_path, ids=SMALL_IDS, isa=isa)


def test_4_bits_of_deepseek(tmp_path):
    def convert(base, w):
        codes, scale, zero, back = codes_of(w, 16 if w.shape[1] % 32 else 32)
        return {base + ".weight_packed": pack(codes, 1), base + ".weight_scale": scale,
                base + ".weight_shape": np.array(w.shape, np.int64)}, back

    write(tmp_path, convert, {"quant_method": "compressed-tensors", "format": "pack-quantized"}, GOLDEN / "arch/deepseek_v3",
          lambda name: "kv_b_proj" in name)
    compare(tmp_path, 0.2, SMALL_IDS)  # 0.12: int8 activations make one token choose another expert


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_mxfp4_of_gpt_oss(tmp_path, isa):
    """The experts as gpt-oss is published: blocks of 32 inputs with an exponent, the outputs first."""
    def convert(base, w):
        groups = w.transpose(0, 2, 1).reshape(w.shape[0], w.shape[2], -1, 32)
        exponent = np.floor(np.log2(np.abs(groups).max(3))) - 2
        wide = 2.0 ** exponent[..., None]
        codes = np.abs(groups[..., None] / wide[..., None] - E2M1).argmin(4).astype(np.uint8)
        back = (E2M1[codes] * wide).reshape(w.shape[0], w.shape[2], -1).transpose(0, 2, 1)
        return {base + "_blocks": codes[..., 0::2] | codes[..., 1::2] << 4, base + "_scales": (exponent + 127).astype(np.uint8)}, back

    write(tmp_path, convert, {"quant_method": "mxfp4"}, GOLDEN / "arch/gpt_oss", lambda name: name.endswith(("gate_up_proj", "down_proj")))
    compare(tmp_path, 0.2, SMALL_IDS, isa)


@pytest.mark.parametrize("change, text", [
    (lambda t, b: t.pop(b + ".scales"), "there is no '.scales' beside it"),
    (lambda t, b: t.update({b + ".qzeros": t[b + ".qzeros"][:, :-1]}), "it is not ["),
    (lambda t, b: t.update({b + ".qweight": t[b + ".qweight"][:-1]}), "its shape does not fit scales"),
    (lambda t, b: t.update({b + ".g_idx": t[b + ".g_idx"] + 100}), "column 0 is in group 100 of"),
    (lambda t, b: t.update({b + ".weight": np.zeros((1, 1), np.float32)}), "it is there quantised too"),
])
def test_parts_that_do_not_fit(tmp_path, change, text):
    def convert(base, w):
        codes, scale, zero, back = codes_of(w)
        return {base + ".qweight": pack(codes.T, 0), base + ".scales": scale.T, base + ".qzeros": pack(zero.T - 1, 1),
                base + ".g_idx": (np.arange(w.shape[1]) // GROUP).astype(np.int32)}, back

    def wrong(base, w):
        parts, back = convert(base, w)
        if base.endswith("layers.0.self_attn.q_proj"):
            change(parts, base)
        return parts, back

    write(tmp_path, wrong)
    line = fails("run", tmp_path / "quantised", "--ids", IDS, "--logits")
    assert text in line and "q_proj" in line


# ---- BitNet ----

@pytest.mark.parametrize("family", ["bitnet_packed", "llama_bitnet"])
def test_bitnet_is_exact_in_the_format_that_the_cpu_chooses(family):
    """Rows are codes with one scale before they are multiplied: another rounding, by groups, would change 4 % of a logit."""
    folder = GOLDEN / "arch" / family
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        out = ok_json("run", folder, "--ids", " ".join(map(str, case["input_ids"])), "--logits")
        want = np.array(case["logits_last"])
        assert np.abs(np.array(out["logits"][-1]) - want).max() <= 1e-4 * np.abs(want).max()
    assert "weights in memory as int8" in ok("explain", folder, "--no-measure")
