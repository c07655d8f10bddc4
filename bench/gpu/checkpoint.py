#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a random GPT-J checkpoint in f16, sharded as Hugging Face shards, for measuring how long loading takes.

    bench/gpu/checkpoint.py FOLDER [--layers 28] [--shard-gb 2]
"""
import argparse
import json
import os

HIDDEN, FFN, VOCAB, HEADS = 4096, 16384, 50400, 16
BLOCK = 64 << 20


def tensors(layers):
    yield "transformer.wte.weight", [VOCAB, HIDDEN]
    for i in range(layers):
        at = f"transformer.h.{i}."
        yield at + "ln_1.weight", [HIDDEN]
        yield at + "ln_1.bias", [HIDDEN]
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield at + f"attn.{name}.weight", [HIDDEN, HIDDEN]
        yield at + "mlp.fc_in.weight", [FFN, HIDDEN]
        yield at + "mlp.fc_in.bias", [FFN]
        yield at + "mlp.fc_out.weight", [HIDDEN, FFN]
        yield at + "mlp.fc_out.bias", [HIDDEN]
    yield "transformer.ln_f.weight", [HIDDEN]
    yield "transformer.ln_f.bias", [HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]
    yield "lm_head.bias", [VOCAB]


def size(shape):
    count = 2
    for n in shape:
        count *= n
    return count


def random_block():
    """f16 numbers of either sign between 1/64 and 1/32."""
    block = bytearray(os.urandom(BLOCK))
    block[1::2] = bytes(block[1::2]).translate(bytes((b & 0x83) | 0x24 for b in range(256)))
    return bytes(block)


def write_shard(path, members, block):
    header, at = {}, 0
    for name, shape in members:
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size(shape)]}
        at += size(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while at:
            at -= file.write(block[: min(at, BLOCK)])


def shards(layers, limit):
    shard, have = [], 0
    for name, shape in tensors(layers):
        if shard and have + size(shape) > limit:
            yield shard
            shard, have = [], 0
        shard.append((name, shape))
        have += size(shape)
    yield shard


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--shard-gb", type=float, default=2)
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    parts = list(shards(args.layers, args.shard_gb * 1e9))
    block, where = random_block(), {}
    for i, members in enumerate(parts):
        name = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        write_shard(os.path.join(args.folder, name), members, block)
        where.update({tensor: name for tensor, _ in members})
    total = sum(size(shape) for _, shape in tensors(args.layers))
    with open(os.path.join(args.folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)
    config = {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": HIDDEN, "n_layer": args.layers,
              "n_head": HEADS, "n_positions": 2048, "rotary_dim": 64, "vocab_size": VOCAB,
              "activation_function": "gelu_new", "bos_token_id": 50256, "eos_token_id": 50256}
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    print(f"{total / 1e9:.2f} GB in {len(parts)} files at {args.folder}")


if __name__ == "__main__":
    main()
