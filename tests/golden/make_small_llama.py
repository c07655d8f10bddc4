#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/small_llama: a Llama of random weights, a hundredth of models/classics-10m, with the tokenizer of
that model. Sanitizers slow the kernels down fifty times and more; tests whose subject is the scheduler run on this model
there, with the same prompts. Needs numpy alone; the output does not depend on its version."""
import json
import os
import pathlib
import struct

import numpy as np

HIDDEN, LAYERS, HEADS, INNER, VOCABULARY = 64, 2, 4, 160, 8192
FOLDER = pathlib.Path(__file__).parent / "small_llama"
STORIES = pathlib.Path(__file__).parents[2] / "models" / "classics-10m"


def config() -> dict:
    c = json.loads((STORIES / "config.json").read_text())
    c.update(hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS,
             head_dim=HIDDEN // HEADS, intermediate_size=INNER)
    return c


def shapes() -> dict:
    out = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name in "qkvo":
            out[f"{at}self_attn.{name}_proj.weight"] = (HIDDEN, HIDDEN)
        for name, shape in {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}.items():
            out[f"{at}mlp.{name}_proj.weight"] = shape
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{at}{name}.weight"] = (HIDDEN,)
    return out


def bf16(x: np.ndarray) -> bytes:
    """The upper halves of float32: cut, not rounded."""
    return (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def write_safetensors(path: pathlib.Path) -> None:
    random = np.random.RandomState(7)  # this generator's sequence is frozen for ever
    header, data = {}, b""
    for name, shape in shapes().items():
        norm = len(shape) == 1
        values = np.ones(shape) if norm else random.uniform(-1, 1, shape) * (3 / shape[-1]) ** 0.5
        part = bf16(values)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(config(), indent=1) + "\n")
    write_safetensors(FOLDER / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        link = FOLDER / name
        link.unlink(missing_ok=True)
        os.symlink(os.path.relpath(STORIES / name, FOLDER), link)


if __name__ == "__main__":
    main()
