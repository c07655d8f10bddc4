#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one tiny Llama in every form that torch and transformers have written: tests/golden/checkpoint/llama/FORM.

usage: tools/golden_checkpoint.py [FOLDER]      default: tests/golden/checkpoint

tests/unit/engine/test_checkpoints.c asserts that all forms give bitwise the same logits. Also writes
tests/golden/arch/opennmt_pt: the checkpoint arch/opennmt as OpenNMT-py 3 saves it. Needs torch and safetensors
(made with torch 2.6.0, safetensors 0.6.2); the weights come from Python's own random numbers with a fixed seed.
"""

import argparse
import json
import pathlib
import random
import sys

import torch
from safetensors.torch import load_file, save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}


def shapes():
    d, f, v, kv = 32, 40, 64, 16
    yield "model.embed_tokens.weight", (v, d)
    for i in range(2):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (d,)
        for name, rows, cols in (("q", d, d), ("k", kv, d), ("v", kv, d), ("o", d, d)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, cols)
        yield layer + "post_attention_layernorm.weight", (d,)
        yield layer + "mlp.gate_proj.weight", (f, d)
        yield layer + "mlp.up_proj.weight", (f, d)
        yield layer + "mlp.down_proj.weight", (d, f)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (v, d)


def weights():
    rng = random.Random(7)
    out = {}
    for name, shape in shapes():
        n = torch.Size(shape).numel()
        centre = 1.0 if len(shape) == 1 else 0.0
        out[name] = torch.tensor([rng.gauss(centre, 0.2) for _ in range(n)], dtype=torch.float32).reshape(shape)
    return out


def halves(state):
    """The state dict in two parts, cut in the middle of a layer."""
    names = list(state)
    cut = len(names) // 2
    return [{n: state[n] for n in names[:cut]}, {n: state[n] for n in names[cut:]}]


def write_index(folder, stem, parts, ending):
    files = [f"{stem}-{i + 1:05d}-of-{len(parts):05d}.{ending}" for i in range(len(parts))]
    index = {"metadata": {"total_size": sum(t.nbytes for p in parts for t in p.values())},
             "weight_map": {name: file for part, file in zip(parts, files) for name in part}}
    (folder / f"{stem}.{ending}.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return files


def strided(state):
    """The same numbers as views: matrices stored transposed, all in one storage, norms as parameters with an offset; one
    tensor has two names, as tied weights have."""
    total = sum(t.numel() for t in state.values())
    pool, at, out = torch.empty(total + 5), 5, {}
    for name, t in state.items():
        part = pool[at:at + t.numel()]
        if t.dim() == 2:
            part.copy_(t.t().reshape(-1))
            out[name] = part.view(t.shape[1], t.shape[0]).t()
        else:
            part.copy_(t)
            out[name] = torch.nn.Parameter(part)
        at += t.numel()
    out["model.tied_to_the_embedding.weight"] = out["model.embed_tokens.weight"]
    return out


def opennmt(arch):
    """model.pt of the golden checkpoint: options, vocabulary and generator are where OpenNMT-py has them."""
    state = load_file(arch / "opennmt" / "model.safetensors")
    options = json.loads((arch / "opennmt" / "config.json").read_text())
    derived = ("architectures", "model_type", "src_vocab_size", "tgt_vocab_size", "max_position_embeddings")
    words = ["<unk>", "<blank>", "<s>", "</s>"] + [f"w{i}" for i in range(4, options["tgt_vocab_size"])]
    kept = {key: value for key, value in options.items() if key not in derived and not key.endswith("_token_id")}
    generator = {name: state.pop(f"generator.{name}") for name in ("weight", "bias") if f"generator.{name}" in state}
    folder = arch / "opennmt_pt"
    folder.mkdir(exist_ok=True)
    (folder / "golden.json").write_bytes((arch / "opennmt" / "golden.json").read_bytes())
    torch.save({"model": state, "generator": generator, "vocab": {"src": words, "tgt": words},
                "opt": argparse.Namespace(**kept), "optim": None}, folder / "model.pt")


def main():
    if len(sys.argv) == 1:
        opennmt(pathlib.Path("tests/golden/arch"))
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/checkpoint") / "llama"
    state = weights()
    for form in ("safetensors", "safetensors_sharded", "bin", "bin_sharded", "bin_legacy", "bin_views"):
        folder = root / form
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(state, root / "safetensors" / "model.safetensors")
    parts = halves(state)
    for part, file in zip(parts, write_index(root / "safetensors_sharded", "model", parts, "safetensors")):
        save_file(part, root / "safetensors_sharded" / file)
    for part, file in zip(parts, write_index(root / "bin_sharded", "pytorch_model", parts, "bin")):
        torch.save(part, root / "bin_sharded" / file)
    torch.save(state, root / "bin" / "pytorch_model.bin")
    torch.save(state, root / "bin_legacy" / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    run = {"epoch": 3, "state_dict": strided(state), "lr": 0.5}
    torch.save(run, root / "bin_views" / "pytorch_model.bin", pickle_protocol=4)


if __name__ == "__main__":
    main()
