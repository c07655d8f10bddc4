#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what GPTQ's act-order costs: decoding of the same codes with inputs in order and permuted, in turns.

    bench/act_order.py [--proa PROGRAM] [--device cpu] [--folder FOLDER] [--turns 2]       (needs numpy and safetensors)

The checkpoint has the shape of a Llama of 1.1 billion parameters, random codes of four bits in groups of 128. Matrices that read
the same inputs have the same order, as in GPTQ. Rows go to results/act_order.csv.
"""
import argparse
import csv
import datetime
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCAB, GROUP = 2048, 5632, 22, 32, 4, 32000, 128
SHARED = HIDDEN * KV_HEADS // HEADS
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 1,
          "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float16"}
READERS = ((HIDDEN, {"self_attn.q_proj": HIDDEN, "self_attn.k_proj": SHARED, "self_attn.v_proj": SHARED}),
           (HIDDEN, {"self_attn.o_proj": HIDDEN}), (HIDDEN, {"mlp.gate_proj": INNER, "mlp.up_proj": INNER}),
           (INNER, {"mlp.down_proj": HIDDEN}))


def write(folder, permuted):
    random, tensors = np.random.default_rng(0), {}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for inputs, matrices in READERS:
            group = np.arange(inputs, dtype=np.int32) // GROUP
            shuffled = random.permutation(group)
            for name, outputs in matrices.items():
                at = prefix + name
                tensors[at + ".qweight"] = random.integers(-2**31, 2**31, (inputs // 8, outputs), dtype=np.int32)
                tensors[at + ".qzeros"] = np.full((inputs // GROUP, outputs // 8), 0x77777777, np.int32)
                tensors[at + ".scales"] = np.full((inputs // GROUP, outputs), 0.002, np.float16)
                tensors[at + ".g_idx"] = shuffled if permuted else group
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{norm}.weight"] = np.ones(HIDDEN, np.float16)
    tensors["model.norm.weight"] = np.ones(HIDDEN, np.float16)
    for name in ("model.embed_tokens", "lm_head"):
        tensors[name + ".weight"] = (random.standard_normal((VOCAB, HIDDEN), np.float32) / 50).astype(np.float16)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantised = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": permuted, "damp_percent": 0.01}
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantised}))


def measure(args, folder):
    command = [args.proa, "bench", folder, "--device", args.device, "--csv", "--batches", "1", "--prompt", "64", "--tokens", "32"]
    lines = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.splitlines()
    return next(csv.DictReader(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--proa", default=ROOT / "build/release/proa")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the checkpoints")
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or pathlib.Path(temporary)
        for form in ("in-order", "act-order"):
            if not (folder / form).exists():
                write(folder / form, form == "act-order")
        for form in ("in-order", "act-order") * args.turns:
            row = measure(args, folder / form)
            kept = [row[key] for key in ("quant", "isa", "threads", "prompt", "tokens", "batch", "decode_tokens_s", "step_ms")]
            with open(ROOT / "bench/results/act_order.csv", "a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerow([datetime.date.today(), commit, form, *kept])
            print(form, *kept)


if __name__ == "__main__":
    main()
