#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a random checkpoint, sharded as Hugging Face shards: for measuring how long loading takes, and for serving a shape.

    bench/gpu/checkpoint.py FOLDER [--shape gptj-6b] [--layers 28] [--shard-gb 2]

GPT-J is f16. The Llama shapes are bf16 and have a byte-level tokenizer of as many random words as the model has ids, so that a server
can print what they generate.
"""
import argparse
import json
import os
import random

BLOCK = 64 << 20
GPTJ = {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048,
        "rotary_dim": 64, "vocab_size": 50400, "activation_function": "gelu_new", "bos_token_id": 50256, "eos_token_id": 50256}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "max_position_embeddings": 32768, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
         "bos_token_id": 0, "eos_token_id": 1}
SHAPES = {
    "gptj-6b": GPTJ,
    "llama3-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                          "num_key_value_heads": 8, "vocab_size": 128256},
    "llama-tiny": LLAMA | {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "num_key_value_heads": 2, "vocab_size": 4000},
    "llama-1.1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
                           "num_key_value_heads": 4, "vocab_size": 32000},
}


def gptj_tensors(c):
    hidden, vocab = c["n_embd"], c["vocab_size"]
    yield "transformer.wte.weight", [vocab, hidden]
    for i in range(c["n_layer"]):
        at = f"transformer.h.{i}."
        yield at + "ln_1.weight", [hidden]
        yield at + "ln_1.bias", [hidden]
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield at + f"attn.{name}.weight", [hidden, hidden]
        yield at + "mlp.fc_in.weight", [4 * hidden, hidden]
        yield at + "mlp.fc_in.bias", [4 * hidden]
        yield at + "mlp.fc_out.weight", [hidden, 4 * hidden]
        yield at + "mlp.fc_out.bias", [hidden]
    yield "transformer.ln_f.weight", [hidden]
    yield "transformer.ln_f.bias", [hidden]
    yield "lm_head.weight", [vocab, hidden]
    yield "lm_head.bias", [vocab]


def llama_tensors(c):
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    shared = hidden * c["num_key_value_heads"] // c["num_attention_heads"]
    yield "model.embed_tokens.weight", [c["vocab_size"], hidden]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [hidden]
        for name, rows in (("q", hidden), ("k", shared), ("v", shared), ("o", hidden)):
            yield at + f"self_attn.{name}_proj.weight", [rows, hidden]
        yield at + "post_attention_layernorm.weight", [hidden]
        yield at + "mlp.gate_proj.weight", [inner, hidden]
        yield at + "mlp.up_proj.weight", [inner, hidden]
        yield at + "mlp.down_proj.weight", [hidden, inner]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [c["vocab_size"], hidden]


def tensors(c):
    return gptj_tensors(c) if c["model_type"] == "gptj" else llama_tensors(c)


def size(shape):
    count = 2
    for n in shape:
        count *= n
    return count


def bytes_to_letters():
    """The printable letter that a byte-level BPE writes for each byte (Radford et al. 2019)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(other)}


def write_tokenizer(folder, vocab):
    letters, draw, words = bytes_to_letters(), random.Random(1), {"<s>": 0, "</s>": 1}
    for letter in letters.values():
        words[letter] = len(words)
    while len(words) < vocab:
        word = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(3, 7)))
        words.setdefault(letters[32] + word, len(words))
    special = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for t, i in (("<s>", 0), ("</s>", 1))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump({"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level, "decoder": level,
                   "model": {"type": "BPE", "vocab": words, "merges": []}}, file)


def random_block(gptj):
    """Numbers of either sign: f16 between 1/64 and 1/32, bf16 between 1/128 and 1/32."""
    block, (keep, exponent) = bytearray(os.urandom(BLOCK)), (0x83, 0x24) if gptj else (0x80, 0x3C)
    block[1::2] = bytes(block[1::2]).translate(bytes((b & keep) | exponent for b in range(256)))
    return bytes(block)


def write_shard(path, members, block, dtype):
    header, at = {}, 0
    for name, shape in members:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size(shape)]}
        at += size(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while at:
            at -= file.write(block[: min(at, BLOCK)])


def shards(c, limit):
    shard, have = [], 0
    for name, shape in tensors(c):
        if shard and have + size(shape) > limit:
            yield shard
            shard, have = [], 0
        shard.append((name, shape))
        have += size(shape)
    yield shard


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--shape", choices=SHAPES, default="gptj-6b")
    parser.add_argument("--layers", type=int, default=0, help="0: those of the shape")
    parser.add_argument("--shard-gb", type=float, default=2)
    args = parser.parse_args()
    config = dict(SHAPES[args.shape])
    gptj = config["model_type"] == "gptj"
    if args.layers:
        config["n_layer" if gptj else "num_hidden_layers"] = args.layers
    os.makedirs(args.folder, exist_ok=True)
    parts = list(shards(config, args.shard_gb * 1e9))
    block, where = random_block(gptj), {}
    for i, members in enumerate(parts):
        name = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        write_shard(os.path.join(args.folder, name), members, block, "F16" if gptj else "BF16")
        where.update({tensor: name for tensor, _ in members})
    total = sum(size(shape) for _, shape in tensors(config))
    with open(os.path.join(args.folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    if not gptj:
        write_tokenizer(args.folder, config["vocab_size"])
    print(f"{total / 1e9:.2f} GB in {len(parts)} files at {args.folder}")


if __name__ == "__main__":
    main()
