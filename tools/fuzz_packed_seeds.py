#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus/packed: a packed file of a small Llama (tests/fuzz/fuzz_packed.c), and what is done to it.

    tools/fuzz_packed_seeds.py [PROA]
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/fuzz/corpus/packed"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16, "hidden_size": 8,
          "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
LAYER = {"input_layernorm": [8], "post_attention_layernorm": [8], "self_attn.q_proj": [8, 8], "self_attn.k_proj": [4, 8],
         "self_attn.v_proj": [4, 8], "self_attn.o_proj": [8, 8], "mlp.gate_proj": [8, 8], "mlp.up_proj": [8, 8],
         "mlp.down_proj": [8, 8]}


def write_model(folder):
    shapes = {"model.embed_tokens.weight": [16, 8], "model.norm.weight": [8]}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()}
    header, data = {}, b""
    rng = random.Random(1)
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        numbers = struct.pack(f"<{n}f", *(rng.uniform(-1, 1) for _ in range(n)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def changed(packed, change):
    """The file with another header; the block stays."""
    length, = struct.unpack_from("<Q", packed, 8)
    header = json.loads(packed[16:16 + length])
    block = packed[-header["block_bytes"]:]
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    head = packed[:8] + struct.pack("<Q", len(text)) + text
    return head + b"\0" * (-len(head) % 4096) + block


def change_weight(i, at, value):
    def change(header):
        header["weights"][i][at] = value
    return change


def main():
    proa = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/proa"
    CORPUS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        source = pathlib.Path(name) / "source"
        source.mkdir()
        write_model(source)
        files = {}
        for quant in ("none", "int8", "int4"):
            out = pathlib.Path(name) / quant
            subprocess.run([proa, "convert", source, out, "--to", "packed", "--quant", quant, "--no-probe"], check=True)
            files[f"good-{quant}"] = (out / "model.proa").read_bytes()
        good = files["good-none"]
        files |= {
            "cut": good[:-64], "longer": good + b"\0" * 64, "head-only": good[:16], "magic-only": good[:8],
            "header-too-long": good[:8] + struct.pack("<Q", 1 << 40) + good[16:],
            "other-layout": changed(good, lambda h: h.update(layout="x86-64 panels 999")),
            "other-version": changed(good, lambda h: h.update(version=2)),
            "shares": changed(good, lambda h: h.update(ranks=2, rank=1)),
            "other-format": changed(good, change_weight(2, 3, "bf16")),
            "unknown-format": changed(good, change_weight(2, 3, "x")),
            "less-bytes": changed(good, change_weight(2, 4, 64)),
            "more-bytes": changed(good, change_weight(2, 4, 1 << 62)),
            "negative-bytes": changed(good, change_weight(2, 4, -64)),
            "other-layer": changed(good, change_weight(2, 1, 1 << 40)),
            "other-stack": changed(good, change_weight(2, 0, 7)),
            "other-slot": changed(good, change_weight(2, 2, "router")),
            "no-weights": changed(good, lambda h: h.update(weights=[])),
            "no-tensors": changed(good, lambda h: h.update(tensors={})),
            "extra-tensor": changed(good, lambda h: h["tensors"].update(x={"dtype": "f32", "shape": [1]})),
            "large-shape": changed(good, lambda h: h["tensors"].update(x={"dtype": "f32", "shape": [1 << 40] * 4})),
        }
    for name, data in files.items():
        (CORPUS / name).write_bytes(data)


main()
