#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/NAME for decoders of which no reference implementation was at hand: a tiny random float32
checkpoint, and golden.json with what this program computes from it. It is independent of Proa: numpy in float64, the whole
sequence again for each token, attention as one matrix, every formula written down from the model's public source.

internlm2     modeling_internlm2.py of internlm/internlm2-7b: rows of wqkv in groups of a key-value head, gated SiLU
opt_350m      transformers' modeling_opt.py with do_layer_norm_before false and word_embed_proj_dim < hidden_size
stablelm_12b  transformers' modeling_stablelm.py with use_parallel_residual and qk_layernorm, as StableLM 2 12B
mpt_grouped   llm-foundry's modeling_mpt.py with no_bias false, grouped_query_attention and logit_scale
chatglm2_32k  modeling_chatglm.py of THUDM/chatglm2-6b-32k: positions divided by rope_ratio (ChatGLM3 multiplies the base)
qwen          modeling_qwen.py of Qwen/Qwen-7B: of prompts longer than seq_length the base grows, queries are scaled

Seeds are taken in order until no greedy choice is closer than 1e-2. Needs numpy:
    python3 tools/golden_decoders.py internlm2 opt_350m stablelm_12b mpt_grouped chatglm2_32k qwen
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
VOCAB, NEW, PROMPTS, CLEAR = 200, 24, (7, 1, 23), 1e-2
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", "vocab_size": VOCAB}


# ---- parts ----

def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layer_norm(x, w, b, eps):
    y = x - x.mean(-1, keepdims=True)
    return y / np.sqrt((y * y).mean(-1, keepdims=True) + eps) * w + b


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def rotate_halves(x, rotary, theta):
    """x [T, heads, d]: the first `rotary` numbers of each head, pairs (i, i + rotary / 2), by their row's index."""
    half = rotary // 2
    angle = np.arange(x.shape[0])[:, None] * theta ** (-np.arange(half) * 2 / rotary)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:rotary]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., rotary:]], -1)


def attention(q, k, v, slopes=None):
    """q [T, H, d], k and v [T, Hk, d] -> [T, H d], causal; slopes[h] (j - i) is added to the score of row i and key j."""
    rows, heads, d = q.shape
    out = np.empty_like(q)
    distance = np.arange(rows)[None] - np.arange(rows)[:, None]
    for h in range(heads):
        g = h // (heads // k.shape[1])
        score = q[:, h] @ k[:, g].T / math.sqrt(d)
        if slopes is not None:
            score = score + slopes[h] * distance
        score = np.where(distance > 0, -np.inf, score)
        p = np.exp(score - score.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
    return out.reshape(rows, heads * d)


def alibi_slopes(heads, largest):
    power = 2 ** math.ceil(math.log2(heads))
    all_of = [2.0 ** -(largest * (i + 1) / power) for i in range(power)]
    return all_of if power == heads else (all_of[1::2] + all_of[::2])[:heads]


def heads_of(x, d):
    return x.reshape(x.shape[0], -1, d)


# ---- models: config.json; shapes of the tensors; logits of all rows ----

def internlm2_config():
    return {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "hidden_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 160, "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5, "rope_theta": 1000000, "rope_scaling": None, "bias": False, "hidden_act": "silu",
            "tie_word_embeddings": False, **IDS}


def internlm2_shapes(c):
    h, f, v, kv = c["hidden_size"], c["intermediate_size"], VOCAB, c["num_key_value_heads"] * 16
    shapes = {"model.tok_embeddings.weight": (v, h), "model.norm.weight": (h,), "output.weight": (v, h)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "attention_norm.weight": (h,), p + "attention.wqkv.weight": (h + 2 * kv, h),
                   p + "attention.wo.weight": (h, h), p + "ffn_norm.weight": (h,), p + "feed_forward.w1.weight": (f, h),
                   p + "feed_forward.w3.weight": (f, h), p + "feed_forward.w2.weight": (h, f)}
    return shapes


def internlm2(c, w, ids):
    heads, kv, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    d = c["hidden_size"] // heads
    x = w["model.tok_embeddings.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(x, w[p + "attention_norm.weight"], eps)
        grouped = (n @ w[p + "attention.wqkv.weight"].T).reshape(len(ids), kv, heads // kv + 2, d)
        q = rotate_halves(grouped[:, :, :-2].reshape(len(ids), heads, d), d, c["rope_theta"])
        k = rotate_halves(grouped[:, :, -2], d, c["rope_theta"])
        x = x + attention(q, k, grouped[:, :, -1]) @ w[p + "attention.wo.weight"].T
        n = rms_norm(x, w[p + "ffn_norm.weight"], eps)
        gate, up = n @ w[p + "feed_forward.w1.weight"].T, n @ w[p + "feed_forward.w3.weight"].T
        x = x + (silu(gate) * up) @ w[p + "feed_forward.w2.weight"].T
    return rms_norm(x, w["model.norm.weight"], eps) @ w["output.weight"].T


def opt_350m_config():
    return {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 64, "word_embed_proj_dim": 32,
            "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 160, "max_position_embeddings": 96,
            "do_layer_norm_before": False, "_remove_final_layer_norm": False, "activation_function": "relu", **IDS}


def opt_350m_shapes(c):
    h, e, f = c["hidden_size"], c["word_embed_proj_dim"], c["ffn_dim"]
    b = "model.decoder."
    shapes = {b + "embed_tokens.weight": (VOCAB, e), b + "embed_positions.weight": (c["max_position_embeddings"] + 2, h),
              b + "project_in.weight": (h, e), b + "project_out.weight": (e, h)}
    for i in range(c["num_hidden_layers"]):
        p = f"{b}layers.{i}."
        for name, rows, cols in (("self_attn.q_proj", h, h), ("self_attn.k_proj", h, h), ("self_attn.v_proj", h, h),
                                 ("self_attn.out_proj", h, h), ("fc1", f, h), ("fc2", h, f)):
            shapes |= {f"{p}{name}.weight": (rows, cols), f"{p}{name}.bias": (rows,)}
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            shapes |= {f"{p}{name}.weight": (h,), f"{p}{name}.bias": (h,)}
    return shapes


def opt_350m(c, w, ids):
    b, d = "model.decoder.", c["hidden_size"] // c["num_attention_heads"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    x = w[b + "embed_tokens.weight"][ids] @ w[b + "project_in.weight"].T
    x = x + w[b + "embed_positions.weight"][2:2 + len(ids)]
    for i in range(c["num_hidden_layers"]):
        p = f"{b}layers.{i}."
        q, k, v = (heads_of(linear(x, f"{p}self_attn.{n}_proj"), d) for n in "qkv")
        x = x + linear(attention(q, k, v), p + "self_attn.out_proj")
        x = layer_norm(x, w[p + "self_attn_layer_norm.weight"], w[p + "self_attn_layer_norm.bias"], 1e-5)
        x = x + linear(np.maximum(linear(x, p + "fc1"), 0), p + "fc2")
        x = layer_norm(x, w[p + "final_layer_norm.weight"], w[p + "final_layer_norm.bias"], 1e-5)
    return x @ w[b + "project_out.weight"].T @ w[b + "embed_tokens.weight"].T


def stablelm_12b_config():
    return {"architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "hidden_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 160, "max_position_embeddings": 128,
            "layer_norm_eps": 1e-5, "rope_theta": 10000, "partial_rotary_factor": 0.25, "qk_layernorm": True,
            "use_parallel_residual": True, "use_qkv_bias": False, "hidden_act": "silu", "tie_word_embeddings": False, **IDS}


def stablelm_12b_shapes(c):
    h, f, v, kv = c["hidden_size"], c["intermediate_size"], VOCAB, c["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,), "model.norm.bias": (h,), "lm_head.weight": (v, h)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (h,), p + "input_layernorm.bias": (h,),
                   p + "self_attn.q_proj.weight": (h, h), p + "self_attn.k_proj.weight": (16 * kv, h),
                   p + "self_attn.v_proj.weight": (16 * kv, h), p + "self_attn.o_proj.weight": (h, h),
                   p + "mlp.gate_proj.weight": (f, h), p + "mlp.up_proj.weight": (f, h), p + "mlp.down_proj.weight": (h, f)}
        for part, count in (("q", c["num_attention_heads"]), ("k", kv)):
            shapes |= {f"{p}self_attn.{part}_layernorm.norms.{j}.weight": (16,) for j in range(count)}
    return shapes


def stablelm_12b(c, w, ids):
    d, rotary = 16, 4

    def heads_norm(x, name):
        return np.stack([layer_norm(x[:, j], w[f"{name}.norms.{j}.weight"], 0, 1e-5) for j in range(x.shape[1])], 1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = layer_norm(x, w[p + "input_layernorm.weight"], w[p + "input_layernorm.bias"], 1e-5)
        q, k, v = (heads_of(n @ w[f"{p}self_attn.{part}_proj.weight"].T, d) for part in "qkv")
        q = rotate_halves(heads_norm(q, p + "self_attn.q_layernorm"), rotary, c["rope_theta"])
        k = rotate_halves(heads_norm(k, p + "self_attn.k_layernorm"), rotary, c["rope_theta"])
        ffn = silu(n @ w[p + "mlp.gate_proj.weight"].T) * (n @ w[p + "mlp.up_proj.weight"].T)
        x = x + attention(q, k, v) @ w[p + "self_attn.o_proj.weight"].T + ffn @ w[p + "mlp.down_proj.weight"].T
    return layer_norm(x, w["model.norm.weight"], w["model.norm.bias"], 1e-5) @ w["lm_head.weight"].T


def mpt_grouped_config():
    return {"architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 96, "n_layers": 2, "n_heads": 6,
            "expansion_ratio": 2, "max_seq_len": 128, "no_bias": False, "logit_scale": 0.5,
            "tie_word_embeddings": True,
            "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2, "alibi": True, "alibi_bias_max": 8,
                            "clip_qkv": 1.5, "qk_ln": False, "prefix_lm": False, "softmax_scale": None}, **IDS}


def mpt_grouped_shapes(c):
    h, kv = c["d_model"], 16 * c["attn_config"]["kv_n_heads"]
    shapes = {"transformer.wte.weight": (VOCAB, h), "transformer.norm_f.weight": (h,), "transformer.norm_f.bias": (h,)}
    for i in range(c["n_layers"]):
        p = f"transformer.blocks.{i}."
        for name, rows, cols in (("attn.Wqkv", h + 2 * kv, h), ("attn.out_proj", h, h), ("ffn.up_proj", 2 * h, h),
                                 ("ffn.down_proj", h, 2 * h)):
            shapes |= {f"{p}{name}.weight": (rows, cols), f"{p}{name}.bias": (rows,)}
        for name in ("norm_1", "norm_2"):
            shapes |= {f"{p}{name}.weight": (h,), f"{p}{name}.bias": (h,)}
    return shapes


def mpt_grouped(c, w, ids):
    h, d, clip = c["d_model"], 16, c["attn_config"]["clip_qkv"]
    slopes = alibi_slopes(c["n_heads"], c["attn_config"]["alibi_bias_max"])

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids]
    for i in range(c["n_layers"]):
        p = f"transformer.blocks.{i}."
        n = layer_norm(x, w[p + "norm_1.weight"], w[p + "norm_1.bias"], 1e-5)
        qkv = heads_of(np.clip(linear(n, p + "attn.Wqkv"), -clip, clip), d)
        q, k, v = np.split(qkv, [h // d, h // d + c["attn_config"]["kv_n_heads"]], 1)
        x = x + linear(attention(q, k, v, slopes), p + "attn.out_proj")
        n = layer_norm(x, w[p + "norm_2.weight"], w[p + "norm_2.bias"], 1e-5)
        x = x + linear(gelu(linear(n, p + "ffn.up_proj")), p + "ffn.down_proj")
    x = layer_norm(x, w["transformer.norm_f.weight"], w["transformer.norm_f.bias"], 1e-5)
    return x @ w["transformer.wte.weight"].T * c["logit_scale"]


def chatglm2_32k_config():
    return {"_name_or_path": "THUDM/chatglm2-6b-32k", "architectures": ["ChatGLMModel"], "model_type": "chatglm",
            "hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": True,
            "multi_query_group_num": 2, "ffn_hidden_size": 96, "padded_vocab_size": VOCAB, "layernorm_epsilon": 1e-5,
            "rmsnorm": True, "post_layer_norm": True, "add_bias_linear": False, "add_qkv_bias": True, "original_rope": True,
            "apply_residual_connection_post_layernorm": False, "seq_length": 128, "rope_ratio": 4, "tie_word_embeddings": False,
            **IDS}


def chatglm2_32k_shapes(c):
    h, f, q, kv = 64, c["ffn_hidden_size"], 64, 32
    shapes = {"transformer.embedding.word_embeddings.weight": (VOCAB, h), "transformer.output_layer.weight": (VOCAB, h),
              "transformer.encoder.final_layernorm.weight": (h,)}
    for i in range(c["num_layers"]):
        p = f"transformer.encoder.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
                   p + "self_attention.query_key_value.weight": (q + 2 * kv, h),
                   p + "self_attention.query_key_value.bias": (q + 2 * kv,), p + "self_attention.dense.weight": (h, q),
                   p + "mlp.dense_h_to_4h.weight": (2 * f, h), p + "mlp.dense_4h_to_h.weight": (h, f)}
    return shapes


def rotate_pairs(x, rotary, positions):
    """The first `rotary` numbers of each head, pairs (2 i, 2 i + 1)."""
    angle = positions[:, None] * 10000.0 ** (-np.arange(rotary // 2) * 2 / rotary)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    y = x.copy()
    y[..., 0:rotary:2] = x[..., 0:rotary:2] * cos - x[..., 1:rotary:2] * sin
    y[..., 1:rotary:2] = x[..., 1:rotary:2] * cos + x[..., 0:rotary:2] * sin
    return y


def chatglm2_32k(c, w, ids):
    eps, positions = c["layernorm_epsilon"], np.arange(len(ids)) / c["rope_ratio"]
    x = w["transformer.embedding.word_embeddings.weight"][ids]
    for i in range(c["num_layers"]):
        p = f"transformer.encoder.layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        qkv = n @ w[p + "self_attention.query_key_value.weight"].T + w[p + "self_attention.query_key_value.bias"]
        q, k, v = np.split(heads_of(qkv, 16), [4, 6], 1)
        q, k = rotate_pairs(q, 8, positions), rotate_pairs(k, 8, positions)
        x = x + attention(q, k, v) @ w[p + "self_attention.dense.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = np.split(n @ w[p + "mlp.dense_h_to_4h.weight"].T, 2, 1)
        x = x + (silu(gate) * up) @ w[p + "mlp.dense_4h_to_h.weight"].T
    return rms_norm(x, w["transformer.encoder.final_layernorm.weight"], eps) @ w["transformer.output_layer.weight"].T


def qwen_config():
    return {"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "kv_channels": 8, "intermediate_size": 80, "seq_length": 6, "max_position_embeddings": 96,
            "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000, "rotary_pct": 1.0, "use_dynamic_ntk": True,
            "use_logn_attn": True, "no_bias": True, "scale_attn_weights": True, "tie_word_embeddings": False, **IDS}


def qwen_shapes(c):
    h, f = c["hidden_size"], c["intermediate_size"] // 2
    shapes = {"transformer.wte.weight": (VOCAB, h), "transformer.ln_f.weight": (h,), "lm_head.weight": (VOCAB, h)}
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}."
        shapes |= {p + "ln_1.weight": (h,), p + "attn.c_attn.weight": (3 * h, h), p + "attn.c_attn.bias": (3 * h,),
                   p + "attn.c_proj.weight": (h, h), p + "ln_2.weight": (h,), p + "mlp.w1.weight": (f, h),
                   p + "mlp.w2.weight": (f, h), p + "mlp.c_proj.weight": (h, f)}
    return shapes


def qwen(c, w, ids):
    """The base follows the length of the prompt, doubled lengths of seq_length; tokens after it have the same."""
    eps, d, trained = c["layer_norm_epsilon"], c["kv_channels"], c["seq_length"]
    alpha = max(2 ** math.ceil(math.log2(c["prompt"] / trained) + 1) - 1, 1)
    theta = c["rotary_emb_base"] * alpha ** (d / (d - 2))
    longer = np.maximum(np.log(np.arange(len(ids)) + 1) / math.log(trained), 1)
    x = w["transformer.wte.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}."
        qkv = rms_norm(x, w[p + "ln_1.weight"], eps) @ w[p + "attn.c_attn.weight"].T + w[p + "attn.c_attn.bias"]
        q, k, v = (heads_of(part, d) for part in np.split(qkv, 3, 1))
        q, k = rotate_halves(q, d, theta) * longer[:, None, None], rotate_halves(k, d, theta)
        x = x + attention(q, k, v) @ w[p + "attn.c_proj.weight"].T
        n = rms_norm(x, w[p + "ln_2.weight"], eps)
        x = x + (n @ w[p + "mlp.w1.weight"].T * silu(n @ w[p + "mlp.w2.weight"].T)) @ w[p + "mlp.c_proj.weight"].T
    return rms_norm(x, w["transformer.ln_f.weight"], eps) @ w["lm_head.weight"].T


MODELS = {name: (globals()[name + "_config"], globals()[name + "_shapes"], globals()[name])
          for name in ("internlm2", "opt_350m", "stablelm_12b", "mpt_grouped", "chatglm2_32k", "qwen")}
LAST_NORMS = ("model.norm.weight", "transformer.norm_f.weight", "transformer.ln_f.weight", "transformer.encoder.final_layernorm.weight")


# ---- checkpoints and outputs ----

def fill(shapes, seed):
    """Embeddings are small, so that what the layers add decides; the last norm makes up for it. OPT-350m has none, and its
    sublayers must be weak, or the stream is nearly the same for all tokens."""
    random, weights = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape)
        if len(shape) == 2:
            small = name.endswith(("model.embed_tokens.weight", "tok_embeddings.weight", "wte.weight", "word_embeddings.weight"))
            weak = small or name.endswith(("fc2.weight", "self_attn.out_proj.weight"))
            values *= (0.4 if weak else 2.0) / math.sqrt(shape[1])
        elif name.endswith("weight"):
            values = (8.0 if name in LAST_NORMS else 1.0) * (1 + 0.2 * values)
        else:
            values *= 0.2
        weights[name] = values.astype(np.float32)
    return weights


def save(path, weights):
    header, at = {}, 0
    for name, values in sorted(weights.items()):
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(values.tobytes() for _, values in sorted(weights.items()))
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rounded(row):
    return [float(f"{x:.9g}") for x in row]


def case(model, config, weights, ids):
    """And how clear the least clear of the greedy choices was."""
    config = {**config, "prompt": len(ids)}
    logits = model(config, weights, ids)
    tokens, logprobs, gap = [], [], float("inf")
    for _ in range(NEW):
        row = model(config, weights, ids + tokens)[-1]
        best = np.sort(row)[-2:]
        gap = min(gap, best[1] - best[0])
        tokens.append(int(row.argmax()))
        logprobs.append(best[1] - (row.max() + math.log(np.exp(row - row.max()).sum())))
    return {"input_ids": ids, "logits_last": rounded(logits[-1]), "logits_first": rounded(logits[0]), "greedy": tokens,
            "greedy_logprobs": rounded(logprobs)}, gap


def make(name):
    make_config, make_shapes, model = MODELS[name]
    config, seed, gap = make_config(), -1, 0.0
    while gap < CLEAR:
        seed += 1
        weights = fill(make_shapes(config), seed)
        wide = {key: values.astype(np.float64) for key, values in weights.items()}
        random = np.random.default_rng(seed + 1000)
        results = [case(model, config, wide, random.integers(3, VOCAB, n).tolist()) for n in PROMPTS]
        gap = min(g for _, g in results)
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(folder / "model.safetensors", weights)
    golden = {"reference": "tools/golden_decoders.py, numpy float64", "class": config["architectures"][0], "kind": "lm",
              "cases": [c for c, _ in results]}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, "seed", seed, "gap", gap, "tokens", len({t for c in golden["cases"] for t in c["greedy"]}))


for wanted in sys.argv[1:]:
    make(wanted)
