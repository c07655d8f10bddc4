#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trained/m30k-t5.ft.json: translations by a T5 in f64 with FasterTransformer's beam search.

The first 100 sentences of Multi30k test 2016, English to German, 4 beams, length penalty 1, at most 64 new tokens.
The model is stated from its paper (Raffel and others, arXiv 1910.10683) and the layout of its checkpoint; the search
is that of golden_beam_styles.py, with the pool. Nothing of Proa runs here. `gap` is the smallest relative difference
between two neighbours among the candidates of a step, or two scores in the pool, that the search met: below 1e-6 an
engine in f32 may rank them otherwise.
Needs numpy and tokenizers:  python3 tools/golden_ft_translate.py > tests/golden/trained/m30k-t5.ft.json
"""
import gzip
import json
import struct
from pathlib import Path

import numpy as np
import tokenizers

from golden_beam_styles import DEAD, Search

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/m30k-t5"
PREFIX = "translate English to German: "
COUNT, BEAMS, PENALTY, MAX_NEW = 100, 4, 1.0, 64


def read_safetensors(path):
    """bf16 is the upper half of f32."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "BF16", name
            begin, end = (8 + size + at for at in entry["data_offsets"])
            wide = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
            out[name] = wide.view("<f4").astype(np.float64).reshape(entry["shape"])
    return out


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class T5:
    def __init__(self, folder):
        self.w = read_safetensors(folder / "model.safetensors")
        self.c = json.loads((folder / "config.json").read_text())
        assert self.c["dense_act_fn"] == "relu" and self.c["tie_word_embeddings"]
        self.heads, self.size = self.c["num_heads"], self.c["d_kv"]

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.c["layer_norm_epsilon"])
        return x / scale * self.w[name + "layer_norm.weight"]

    def project(self, x, name):
        """[n, d] to [heads, n, size]."""
        return (x @ self.w[name + ".weight"].T).reshape(len(x), self.heads, self.size).transpose(1, 0, 2)

    def attend(self, q, k, v, bias, name):
        """No division by sqrt(size): T5 has it in its initial weights."""
        out = softmax(q @ k.transpose(0, 2, 1) + bias) @ v
        return out.transpose(1, 0, 2).reshape(q.shape[1], -1) @ self.w[name + ".o.weight"].T

    def feed(self, x, name):
        inner = self.norm(x, name) @ self.w[name + "DenseReluDense.wi.weight"].T
        return x + np.maximum(inner, 0) @ self.w[name + "DenseReluDense.wo.weight"].T

    def bias(self, side, ask, keys):
        """[heads, asking positions, key positions] from block 0's table: half of the buckets for distances one by
        one, the other half in logarithmic steps up to max_distance; the encoder has such a set for each direction."""
        distance = np.arange(keys)[None, :] - np.asarray(ask)[:, None]
        buckets, first = self.c["relative_attention_num_buckets"], 0
        if side == "encoder":
            buckets //= 2
            first = np.where(distance > 0, buckets, 0)
            distance = np.abs(distance)
        else:
            distance = np.maximum(-distance, 0)
        exact = buckets // 2
        steps = np.log(np.maximum(distance, 1) / exact) / np.log(self.c["relative_attention_max_distance"] / exact)
        far = np.minimum(exact + np.floor(steps * (buckets - exact) + 1e-9).astype(int), buckets - 1)
        table = self.w[side + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        return table[first + np.where(distance < exact, distance, far)].transpose(2, 0, 1)

    def encode(self, ids):
        """Keys and values [heads, n, size] that each decoder layer reads."""
        x, bias = self.w["shared.weight"][ids], self.bias("encoder", range(len(ids)), len(ids))
        for layer in range(self.c["num_layers"]):
            block = f"encoder.block.{layer}.layer."
            q, k, v = (self.project(self.norm(x, block + "0."), block + "0.SelfAttention." + n) for n in "qkv")
            x = x + self.attend(q, k, v, bias, block + "0.SelfAttention")
            x = self.feed(x, block + "1.")
        x = self.norm(x, "encoder.final_")
        name = "decoder.block.{}.layer.1.EncDecAttention.{}"
        return [[self.project(x, name.format(i, n)) for n in "kv"] for i in range(self.c["num_decoder_layers"])]

    def decode(self, cross, past, token):
        """Log-probabilities after one more token, and the keys and values of all; past: those before, or None."""
        x, now = self.w["shared.weight"][[token]], []
        at = past[0][0].shape[1] if past else 0
        bias = self.bias("decoder", [at], at + 1)
        for layer in range(self.c["num_decoder_layers"]):
            block = f"decoder.block.{layer}.layer."
            q, k, v = (self.project(self.norm(x, block + "0."), block + "0.SelfAttention." + n) for n in "qkv")
            if past:
                k, v = (np.concatenate([old, new], 1) for old, new in zip(past[layer], (k, v)))
            now.append((k, v))
            x = x + self.attend(q, k, v, bias, block + "0.SelfAttention")
            q = self.project(self.norm(x, block + "1."), block + "1.EncDecAttention.q")
            x = x + self.attend(q, *cross[layer], 0, block + "1.EncDecAttention")
            x = self.feed(x, block + "2.")
        x = self.norm(x, "decoder.final_")[0] * self.c["d_model"] ** -0.5
        logits = self.w["shared.weight"] @ x
        top = logits.max()
        return logits - top - np.log(np.exp(logits - top).sum()), now


class Translation(Search):
    def __init__(self, model, ids):
        super().__init__({
            "style": "ft", "with_pool": True, "beams": BEAMS, "returned": BEAMS, "max_new": MAX_NEW,
            "length_penalty": PENALTY, "diversity_rate": 0.0, "end_ids": [model.c["eos_token_id"]], "grain": 20,
        })
        self.model, self.cross, self.known, self.gap = model, model.encode(ids), {}, np.inf

    def row(self, tokens):
        if tokens not in self.known:
            past = self.known[tokens[:-1]][1] if tokens else None
            token = tokens[-1] if tokens else self.model.c["decoder_start_token_id"]
            self.known[tokens] = self.model.decode(self.cross, past, token)
        return self.known[tokens][0]

    def compare(self, a, b):
        """Notes how near it was instead of giving the case up."""
        if min(a, b) > DEAD / 2 / MAX_NEW:
            self.gap = min(self.gap, abs(a - b) / max(1, abs(a), abs(b)))
        return a - b


def main():
    model = T5(MODEL)
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    lines = gzip.open(ROOT / "tests/golden/data/test_2016_flickr.en.gz", "rt", encoding="utf-8").read().split("\n")
    cases = []
    for line in lines[:COUNT]:
        search = Translation(model, tokenizer.encode(PREFIX + line).ids)
        steps, results = search.search()
        ids, score, total = results[0]
        cases.append({
            "text": PREFIX + line, "steps": steps, "ids": ids, "score": float(f"{score:.9g}"),
            "sum": float(f"{total:.9g}"), "gap": float(f"{search.gap:.2g}"), "out": tokenizer.decode(ids),
        })
    head = {
        "made_by": "tools/golden_ft_translate.py", "numpy": np.__version__, "tokenizers": tokenizers.__version__,
        "beams": BEAMS, "length_penalty": PENALTY, "max_new": MAX_NEW,
    }
    body = ",\n".join(json.dumps(c, separators=(",", ":"), ensure_ascii=False) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + body + "\n]}")


if __name__ == "__main__":
    main()
