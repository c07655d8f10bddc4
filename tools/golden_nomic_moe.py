#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/nomic_bert_moe: NomicBERT with a mixture of experts (nomic-embed-text-v2-moe), for which
transformers has no code. The formulas, in float64, are those of Nomic's own modeling_hf_nomic_bert.py, and of vLLM's
bert_with_rope.py for the experts: post-norm layers with biases, rotary halves; every second layer has experts, whose weights are
the softmax over all scores, not renormalised, and whose sum has one bias.

Without experts and biases and with a gated FFN the same functions must give what transformers computes: they are compared with
tests/golden/arch/nomic_bert first.

    python3 tools/golden_nomic_moe.py"""
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
CONFIG = {
    "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "gelu", "n_embd": 48, "n_head": 4,
    "n_layer": 4, "n_inner": 64, "n_positions": 64, "vocab_size": 200, "type_vocab_size": 1, "layer_norm_epsilon": 1e-5,
    "rotary_emb_base": 10000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "qkv_proj_bias": True,
    "mlp_fc1_bias": True, "mlp_fc2_bias": True, "prenorm": False, "use_rms_norm": False, "causal": False, "num_experts": 4,
    "moe_top_k": 2, "moe_every_n_layers": 2, "moe_normalize_expert_weights": False, "num_shared_experts": 0, "pad_token_id": 1}


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(t, name, x, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name + ".weight"] + t[name + ".bias"]


def linear(t, name, x):
    return x @ t[name + ".weight"].T + t.get(name + ".bias", 0)


def rotate(x, base):
    """x [T, heads, d]: halves."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def attend(t, layer, x, c):
    heads, rows = c["n_head"], len(x)
    q, k, v = linear(t, layer + "attn.Wqkv", x).reshape(rows, 3, heads, -1).transpose(1, 0, 2, 3)
    q, k = rotate(q, c["rotary_emb_base"]), rotate(k, c["rotary_emb_base"])
    weights = softmax(np.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[-1]))
    return linear(t, layer + "attn.out_proj", np.einsum("hts,shd->thd", weights, v).reshape(rows, -1))


def experts(t, layer, x, c):
    """w1 and w2 have the rows of all experts, one expert behind the other: x w1^T, then w2."""
    w1 = t[layer + "mlp.experts.mlp.w1"].reshape(c["num_experts"], -1, x.shape[1])
    w2 = t[layer + "mlp.experts.mlp.w2"].reshape(c["num_experts"], -1, x.shape[1])
    scores = softmax(linear(t, layer + "mlp.router.layer", x))
    out = np.zeros_like(x)
    for row, score in enumerate(scores):
        for e in np.argsort(-score, kind="stable")[:c["moe_top_k"]]:
            out[row] += score[e] * (gelu(x[row] @ w1[e].T) @ w2[e])
    return out + t[layer + "mlp.experts.bias"]


def ffn(t, layer, x, c):
    if layer + "mlp.experts.mlp.w1" in t:
        return experts(t, layer, x, c)
    if c["activation_function"] == "gelu":
        return linear(t, layer + "mlp.fc2", gelu(linear(t, layer + "mlp.fc1", x)))
    gate = linear(t, layer + "mlp.fc12", x)
    return linear(t, layer + "mlp.fc2", gate / (1 + np.exp(-gate)) * linear(t, layer + "mlp.fc11", x))


def forward(t, ids, c):
    eps = c["layer_norm_epsilon"]
    x = norm(t, "emb_ln", t["embeddings.word_embeddings.weight"][ids] + t["embeddings.token_type_embeddings.weight"][0], eps)
    for i in range(c["n_layer"]):
        layer = f"encoder.layers.{i}."
        x = norm(t, layer + "norm1", x + attend(t, layer, x, c), eps)
        x = norm(t, layer + "norm2", x + ffn(t, layer, x, c), eps)
    return x


def check_plain():
    """The functions against transformers' golden of the dense model."""
    golden, config = (json.loads((FOLDER / "nomic_bert" / f).read_text()) for f in ("golden.json", "config.json"))
    c = {"n_head": config["num_attention_heads"], "n_layer": config["num_hidden_layers"], "activation_function": "swiglu",
         "layer_norm_epsilon": config["layer_norm_eps"], "rotary_emb_base": config["rope_parameters"]["rope_theta"]}
    stored = load_file(FOLDER / "nomic_bert/model.safetensors")
    t = {n.removeprefix("nomic_bert."): v.astype(np.float64) for n, v in stored.items()}
    for case in golden["cases"]:
        off = np.abs(forward(t, case["input_ids"], c) - np.array(case["last_hidden_state"])).max()
        assert off < 1e-4, off


def tensors(random):
    c, t = CONFIG, {}
    width, ffn_width, total = c["n_embd"], c["n_inner"], c["num_experts"]

    def matrix(name, rows, cols, scale=2.0, bias=False):
        t[name] = random.standard_normal((rows, cols)) * scale / math.sqrt(cols)
        if bias:
            t[name.replace("weight", "bias")] = 0.2 * random.standard_normal(rows)

    def normed(name):
        t[name + ".weight"] = 1 + 0.2 * random.standard_normal(width)
        t[name + ".bias"] = 0.2 * random.standard_normal(width)

    matrix("embeddings.word_embeddings.weight", c["vocab_size"], width)
    matrix("embeddings.token_type_embeddings.weight", 1, width)
    normed("emb_ln")
    for i in range(c["n_layer"]):
        layer = f"encoder.layers.{i}."
        matrix(layer + "attn.Wqkv.weight", 3 * width, width, bias=True)
        matrix(layer + "attn.out_proj.weight", width, width, bias=True)
        normed(layer + "norm1")
        normed(layer + "norm2")
        if i % c["moe_every_n_layers"] == 1:
            matrix(layer + "mlp.router.layer.weight", total, width)
            matrix(layer + "mlp.experts.mlp.w1", total * ffn_width, width)
            matrix(layer + "mlp.experts.mlp.w2", total * ffn_width, width)
            t[layer + "mlp.experts.bias"] = random.standard_normal(width)
        else:
            matrix(layer + "mlp.fc1.weight", ffn_width, width, bias=True)
            matrix(layer + "mlp.fc2.weight", width, ffn_width, bias=True)
    return {n: v.astype(np.float32) for n, v in t.items()}


def main():
    check_plain()
    random, out = np.random.default_rng(7), FOLDER / "nomic_bert_moe"
    stored = tensors(random)
    t = {n: v.astype(np.float64) for n, v in stored.items()}
    out.mkdir(exist_ok=True)
    save_file(stored, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    cases = []
    for length in (7, 1, 23):
        ids = random.integers(3, CONFIG["vocab_size"], length).tolist()
        rows = [[float(f"{v:.9g}") for v in row] for row in forward(t, ids, CONFIG)]
        cases.append({"input_ids": ids, "last_hidden_state": rows})
    golden = {"numpy": np.__version__, "class": "NomicBertModel", "kind": "enc", "cases": cases}
    (out / "golden.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    main()
