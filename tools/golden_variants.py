#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/NAME for variants of decoders whose plain form has a golden by transformers: a tiny random float32
checkpoint, and golden.json with what this program computes from it. It is independent of Proa: numpy in float64, the whole
sequence again for each token, attention as one matrix, every formula written down from transformers' modeling files.
`check` compares the same functions with transformers' goldens of the plain forms; so only the variant itself rests on it.

cohere_qk_norm   modeling_cohere.py with use_qk_norm and grouped queries, as Command R+
phi_qk_norm      modeling_phi.py with qk_layernorm
cohere2          modeling_cohere2.py: windows, no positions in the layers without one
olmo3            modeling_olmo3.py: windows, YaRN in the layers without one
exaone4          modeling_exaone4.py: norms of what the sublayers give and of heads, windows, no positions without one
smollm3          modeling_smollm3.py: every second layer without positions
minicpm          modeling_minicpm.py of openbmb/MiniCPM-2B: three factors
seed_oss         modeling_seed_oss.py: biases of q, k and v alone
internlm         modeling_internlm.py of internlm/internlm-7b: biases of q, k, v and o
internlm3        modeling_internlm3.py of internlm/internlm3-8b-instruct, as vLLM's llama.py: all biases, dynamic NTK
nemotron         modeling_nemotron.py: LayerNorm of 1 + w, squared ReLU, half of each head rotated
arcee            modeling_arcee.py: squared ReLU, YaRN

Seeds are taken in order until no greedy choice is closer than 1e-2. Needs numpy:
    python3 tools/golden_variants.py check NAME...
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


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def plain_freqs(dim, theta):
    return theta ** (-np.arange(0, dim, 2) / dim)


def yarn_freqs(dim, theta, scaling):
    """Frequencies, and the factor of cosines and sines."""
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

    def dimension(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1))), dim - 1)
    divided = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    freqs = plain_freqs(dim, theta)
    return freqs / factor * divided + freqs * (1 - divided), scaling.get("attention_factor", 0.1 * math.log(factor) + 1)


def rotate(x, freqs, pairs=False, scale=1.0):
    """x [T, heads, d]: the first 2 len(freqs) numbers of each head, in halves or in pairs of neighbours."""
    half = len(freqs)
    angle = np.arange(x.shape[0])[:, None] * freqs
    cos, sin = scale * np.cos(angle)[:, None], scale * np.sin(angle)[:, None]
    y = x.copy()
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if pairs else (slice(0, half), slice(half, 2 * half))
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., b] * cos + x[..., a] * sin
    return y


def attention(q, k, v, scale=None, window=0):
    """q [T, H, d], k and v [T, Hk, d] -> [T, H d], causal; with a window each row sees that many keys, its own included."""
    rows, heads, d = q.shape
    out = np.empty_like(q)
    back = np.arange(rows)[:, None] - np.arange(rows)[None]
    hidden = (back < 0) | ((back >= window) if window else False)
    for h in range(heads):
        g = h // (heads // k.shape[1])
        score = np.where(hidden, -np.inf, q[:, h] @ k[:, g].T * (scale or d ** -0.5))
        p = np.exp(score - score.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
    return out.reshape(rows, heads * d)


class Model:
    """The weights of a configuration, and what all models do with them."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps = config.get("rms_norm_eps", config.get("layer_norm_eps", config.get("norm_eps")))
        self.theta = config.get("rope_theta", 10000.0)

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def split(self, x):
        return x.reshape(x.shape[0], -1, self.d)

    def gated(self, x, prefix):
        return self.linear(silu(self.linear(x, prefix + "gate_proj")) * self.linear(x, prefix + "up_proj"), prefix + "down_proj")

    def norm(self, x, name):
        w, b = self.w[name + ".weight"], self.w.get(name + ".bias")
        return rms_norm(x, w, self.eps) if b is None else layer_norm(x, w, b, self.eps)

    def ffn(self, x, prefix):
        """A gated FFN, or where there is a router a mixture: the best of a softmax, renormalised or not, and shared experts."""
        if prefix + "gate.weight" not in self.w:
            return self.gated(x, prefix)
        chosen, out = self.c["num_experts_per_tok"], np.zeros_like(x)
        score = self.linear(x, prefix + "gate")
        score = np.exp(score - score.max(-1, keepdims=True))
        score /= score.sum(-1, keepdims=True)
        for t, row in enumerate(score):
            best = np.argsort(-row)[:chosen]
            weights = row[best] / (row[best].sum() if self.c.get("norm_topk_prob", True) else 1)
            out[t] = sum(w * self.expert(x[t], f"{prefix}experts.{e}.") for w, e in zip(weights, best))
        return out + (self.gated(x, prefix + "shared_experts.") if self.c.get("n_shared_experts") else 0)

    def expert(self, x, prefix):
        if prefix + "w1.weight" not in self.w:
            return self.gated(x, prefix)
        return self.linear(silu(self.linear(x, prefix + "w1")) * self.linear(x, prefix + "w3"), prefix + "w2")

    def layers(self):
        return [(i, f"model.layers.{i}.") for i in range(self.c["num_hidden_layers"])]

    def head(self, x):
        name = "lm_head.weight" if "lm_head.weight" in self.w else "model.embed_tokens.weight"
        return x @ self.w[name].T + self.w.get("lm_head.bias", 0)

    def window(self, i):
        return self.c["sliding_window"] if self.c["layer_types"][i] == "sliding_attention" else 0


# ---- models ----

def cohere(m, ids):
    """With layer_types Cohere 2."""
    x = m.w["model.embed_tokens.weight"][ids]
    for i, p in m.layers():
        window = m.window(i) if "layer_types" in m.c else 0
        freqs = plain_freqs(m.d, m.theta) * (window > 0 or "layer_types" not in m.c)
        n = layer_norm(x, m.w[p + "input_layernorm.weight"], 0, m.eps)
        q, k, v = (m.split(m.linear(n, f"{p}self_attn.{part}_proj")) for part in "qkv")
        if m.c.get("use_qk_norm"):
            q = layer_norm(q, m.w[p + "self_attn.q_norm.weight"], 0, m.eps)
            k = layer_norm(k, m.w[p + "self_attn.k_norm.weight"], 0, m.eps)
        mixed = attention(rotate(q, freqs, True), rotate(k, freqs, True), v, window=window)
        x = x + m.linear(mixed, p + "self_attn.o_proj") + m.gated(n, p + "mlp.")
    return m.head(layer_norm(x, m.w["model.norm.weight"], 0, m.eps)) * m.c["logit_scale"]


def phi(m, ids):
    x = m.w["model.embed_tokens.weight"][ids]
    freqs = plain_freqs(int(m.d * m.c["partial_rotary_factor"]), m.theta)
    for _, p in m.layers():
        n = layer_norm(x, m.w[p + "input_layernorm.weight"], m.w[p + "input_layernorm.bias"], m.eps)
        q, k, v = (m.split(m.linear(n, f"{p}self_attn.{part}_proj")) for part in "qkv")
        if m.c["qk_layernorm"]:
            q = layer_norm(q, m.w[p + "self_attn.q_layernorm.weight"], m.w[p + "self_attn.q_layernorm.bias"], m.eps)
            k = layer_norm(k, m.w[p + "self_attn.k_layernorm.weight"], m.w[p + "self_attn.k_layernorm.bias"], m.eps)
        mixed = attention(rotate(q, freqs), rotate(k, freqs), v)
        x = x + m.linear(mixed, p + "self_attn.dense") + m.linear(gelu_tanh(m.linear(n, p + "mlp.fc1")), p + "mlp.fc2")
    return m.head(layer_norm(x, m.w["model.final_layernorm.weight"], m.w["model.final_layernorm.bias"], m.eps))


def olmo(m, ids):
    """OLMo 2, or with layer_types OLMo 3: rope_scaling is for the layers without a window."""
    x = m.w["model.embed_tokens.weight"][ids]
    for i, p in m.layers():
        window, scaling = m.window(i) if "layer_types" in m.c else 0, m.c.get("rope_scaling")
        freqs, scale = plain_freqs(m.d, m.theta), 1
        if scaling and not window:
            freqs, scale = yarn_freqs(m.d, m.theta, scaling)
        q, k, v = (m.linear(x, f"{p}self_attn.{part}_proj") for part in "qkv")
        q = m.split(rms_norm(q, m.w[p + "self_attn.q_norm.weight"], m.eps))
        k = m.split(rms_norm(k, m.w[p + "self_attn.k_norm.weight"], m.eps))
        mixed = attention(rotate(q, freqs, scale=scale), rotate(k, freqs, scale=scale), m.split(v), window=window)
        x = x + rms_norm(m.linear(mixed, p + "self_attn.o_proj"), m.w[p + "post_attention_layernorm.weight"], m.eps)
        x = x + rms_norm(m.gated(x, p + "mlp."), m.w[p + "post_feedforward_layernorm.weight"], m.eps)
    return m.head(rms_norm(x, m.w["model.norm.weight"], m.eps))


def exaone(m, ids):
    x = m.w["model.embed_tokens.weight"][ids]
    for i, p in m.layers():
        window = m.window(i)
        freqs = plain_freqs(m.d, m.theta) * (window > 0)
        q, k, v = (m.split(m.linear(x, f"{p}self_attn.{part}_proj")) for part in "qkv")
        q = rms_norm(q, m.w[p + "self_attn.q_norm.weight"], m.eps)
        k = rms_norm(k, m.w[p + "self_attn.k_norm.weight"], m.eps)
        mixed = attention(rotate(q, freqs), rotate(k, freqs), v, window=window)
        x = x + rms_norm(m.linear(mixed, p + "self_attn.o_proj"), m.w[p + "post_attention_layernorm.weight"], m.eps)
        x = x + rms_norm(m.gated(x, p + "mlp."), m.w[p + "post_feedforward_layernorm.weight"], m.eps)
    return m.head(rms_norm(x, m.w["model.norm.weight"], m.eps))


def llama(m, ids):
    """Llama, Granite, MiniCPM, SmolLM3, Seed-OSS, Orion (LayerNorm), DeepSeek's first mixture."""
    c, layers = m.c, m.c["num_hidden_layers"]
    residual = c.get("residual_multiplier", c.get("scale_depth", math.sqrt(layers)) / math.sqrt(layers))
    divisor = c.get("logits_scaling", c["hidden_size"] / c.get("dim_model_base", c["hidden_size"]))
    rotated = c.get("no_rope_layers", [1] * layers)
    x = m.w["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", c.get("scale_emb", 1))
    for i, p in m.layers():
        freqs = plain_freqs(m.d, m.theta) * rotated[i]
        n = m.norm(x, p + "input_layernorm")
        q, k, v = (m.split(m.linear(n, f"{p}self_attn.{part}_proj")) for part in "qkv")
        mixed = attention(rotate(q, freqs), rotate(k, freqs), v, c.get("attention_multiplier"))
        x = x + residual * m.linear(mixed, p + "self_attn.o_proj")
        x = x + residual * m.ffn(m.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return m.head(m.norm(x, "model.norm")) / divisor


def nemotron(m, ids):
    """Nemotron, or with rms_norm_eps Arcee."""
    def norm(x, name):
        w = m.w[name + ".weight"]
        return rms_norm(x, w, m.eps) if "rms_norm_eps" in m.c else layer_norm(x, 1 + w, m.w[name + ".bias"], m.eps)

    x, scale = m.w["model.embed_tokens.weight"][ids], 1
    freqs = plain_freqs(int(m.d * m.c.get("partial_rotary_factor", 1)), m.theta)
    if "rope_scaling" in m.c:
        freqs, scale = yarn_freqs(m.d, m.theta, m.c["rope_scaling"])
    for _, p in m.layers():
        n = norm(x, p + "input_layernorm")
        q, k, v = (m.split(m.linear(n, f"{p}self_attn.{part}_proj")) for part in "qkv")
        x = x + m.linear(attention(rotate(q, freqs, scale=scale), rotate(k, freqs, scale=scale), v), p + "self_attn.o_proj")
        up = np.maximum(m.linear(norm(x, p + "post_attention_layernorm"), p + "mlp.up_proj"), 0)
        x = x + m.linear(up * up, p + "mlp.down_proj")
    return m.head(norm(x, "model.norm"))


# ---- checkpoints: config.json and the shapes of the tensors ----

def common_shapes(c, ffn=("gate_proj", "up_proj", "down_proj"), out="o_proj"):
    """Embedding, q, k, v, o and the FFN's matrices, without norms; the last of `ffn` goes back to hidden."""
    h, f, d = c["hidden_size"], c["intermediate_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv = d * c["num_attention_heads"], d * c["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (VOCAB, h)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "self_attn.q_proj.weight": (q, h), p + "self_attn.k_proj.weight": (kv, h),
                   p + "self_attn.v_proj.weight": (kv, h), f"{p}self_attn.{out}.weight": (h, q)}
        shapes |= {f"{p}mlp.{n}.weight": (h, f) if n == ffn[-1] else (f, h) for n in ffn}
    return shapes


def in_layers(c, **tensors):
    return {f"model.layers.{i}.{name.replace('__', '.')}": shape for i in range(c["num_hidden_layers"])
            for name, shape in tensors.items()}


def cohere_qk_norm_config():
    return {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128,
            "layer_norm_eps": 1e-5, "logit_scale": 0.25, "use_qk_norm": True, "hidden_act": "silu", "rope_theta": 10000.0, **IDS}


def cohere_qk_norm_shapes(c):
    return common_shapes(c) | {"model.norm.weight": (64,)} | in_layers(
        c, input_layernorm__weight=(64,), self_attn__q_norm__weight=(4, 16), self_attn__k_norm__weight=(2, 16))


def phi_qk_norm_config():
    return {"architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128,
            "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "qk_layernorm": True, "hidden_act": "gelu_new",
            "rope_theta": 10000.0, "tie_word_embeddings": False, **IDS}


def phi_qk_norm_shapes(c):
    shapes = common_shapes(c, ("fc1", "fc2"), "dense") | {"lm_head.weight": (VOCAB, 64)}
    biases = {name[:-6] + "bias": shape[:1] for name, shape in shapes.items() if "embed" not in name}
    norms = {f"model.final_layernorm.{part}": (64,) for part in ("weight", "bias")}
    for part in ("weight", "bias"):
        norms |= in_layers(c, **{f"input_layernorm__{part}": (64,), f"self_attn__q_layernorm__{part}": (16,),
                                 f"self_attn__k_layernorm__{part}": (16,)})
    return shapes | biases | norms


def olmo3_config():
    return {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 500000, "attention_bias": False, "hidden_act": "silu", "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8, "beta_fast": 8,
                             "beta_slow": 0.5, "attention_factor": 1.2}, "tie_word_embeddings": False, **IDS}


def olmo3_shapes(c):
    return common_shapes(c) | {"model.norm.weight": (64,), "lm_head.weight": (VOCAB, 64)} | in_layers(
        c, self_attn__q_norm__weight=(64,), self_attn__k_norm__weight=(32,), post_attention_layernorm__weight=(64,),
        post_feedforward_layernorm__weight=(64,))


def cohere2_config():
    return {"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128,
            "layer_norm_eps": 1e-5, "logit_scale": 0.25, "hidden_act": "silu", "rope_theta": 50000.0, "sliding_window": 6,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], **IDS}


def cohere2_shapes(c):
    return common_shapes(c) | {"model.norm.weight": (64,)} | in_layers(c, input_layernorm__weight=(64,))


def exaone4_config():
    return {"architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "hidden_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "hidden_act": "silu",
            "sliding_window": 6, "sliding_window_pattern": "LLG",
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "tie_word_embeddings": True, **IDS}


def exaone4_shapes(c):
    return common_shapes(c) | {"model.norm.weight": (64,)} | in_layers(
        c, self_attn__q_norm__weight=(16,), self_attn__k_norm__weight=(16,), post_attention_layernorm__weight=(64,),
        post_feedforward_layernorm__weight=(64,))


def llama_config(**more):
    return {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 96, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", **more, **IDS}


def llama_shapes(c):
    h = c["hidden_size"]
    return common_shapes(c) | {"model.norm.weight": (h,)} | in_layers(
        c, input_layernorm__weight=(h,), post_attention_layernorm__weight=(h,))


def smollm3_config():
    return llama_config(architectures=["SmolLM3ForCausalLM"], model_type="smollm3", no_rope_layers=[1, 0, 1, 0],
                        no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None) | {"num_hidden_layers": 4}


def minicpm_config():
    return llama_config(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=3, scale_depth=1.1,
                        dim_model_base=24, num_experts=0)


def seed_oss_config():
    return llama_config(architectures=["SeedOssForCausalLM"], model_type="seed_oss", head_dim=24, attention_bias=True,
                        attention_out_bias=False, mlp_bias=False, tie_word_embeddings=False)


def seed_oss_shapes(c):
    return llama_shapes(c) | {"lm_head.weight": (VOCAB, 64)} | in_layers(
        c, self_attn__q_proj__bias=(96,), self_attn__k_proj__bias=(48,), self_attn__v_proj__bias=(48,))


def internlm_config():
    return llama_config(architectures=["InternLMForCausalLM"], model_type="internlm", bias=True, tie_word_embeddings=False)


def internlm_shapes(c):
    shapes = llama_shapes(c) | {"lm_head.weight": (VOCAB, 64)}
    return shapes | {name[:-6] + "bias": shape[:1] for name, shape in shapes.items() if "self_attn" in name}


def internlm3_config():
    return llama_config(architectures=["InternLM3ForCausalLM"], model_type="internlm3", qkv_bias=True, bias=True,
                        rope_scaling={"rope_type": "dynamic", "factor": 6.0}, tie_word_embeddings=False)


def internlm3_shapes(c):
    shapes = llama_shapes(c) | {"lm_head.weight": (VOCAB, 64)}
    return shapes | {name[:-6] + "bias": shape[:1] for name, shape in shapes.items() if "_proj" in name}


def nemotron_config():
    config = llama_config(architectures=["NemotronForCausalLM"], model_type="nemotron", norm_eps=1e-5, head_dim=16,
                          partial_rotary_factor=0.5, attention_bias=False, mlp_bias=False, tie_word_embeddings=False)
    return {key: value for key, value in config.items() if key != "rms_norm_eps"} | {"hidden_act": "relu2"}


def nemotron_shapes(c):
    return common_shapes(c, ("up_proj", "down_proj")) | {"model.norm.weight": (64,), "model.norm.bias": (64,),
                                                         "lm_head.weight": (VOCAB, 64)} | in_layers(
        c, input_layernorm__weight=(64,), input_layernorm__bias=(64,), post_attention_layernorm__weight=(64,),
        post_attention_layernorm__bias=(64,))


def arcee_config():
    return llama_config(architectures=["ArceeForCausalLM"], model_type="arcee", attention_bias=False, mlp_bias=False,
                        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
                        max_position_embeddings=64, tie_word_embeddings=False) | {"hidden_act": "relu2"}


def arcee_shapes(c):
    return common_shapes(c, ("up_proj", "down_proj")) | {"model.norm.weight": (64,), "lm_head.weight": (VOCAB, 64)} | in_layers(
        c, input_layernorm__weight=(64,), post_attention_layernorm__weight=(64,))


def small_config(**more):
    return llama_config(**more) | {"hidden_size": 32, "intermediate_size": 40}


def expert_shapes(c, first, size, names):
    """The layers from `first` on have a router and experts in place of the FFN; names: gate, up, down."""
    def kept(name):
        return "mlp." not in name or int(name.split(".")[2]) < first
    h, shapes = c["hidden_size"], {name: shape for name, shape in llama_shapes(c).items() if kept(name)}
    count = c.get("n_routed_experts") or c["num_experts"]
    for i in range(first, c["num_hidden_layers"]):
        p = f"model.layers.{i}.mlp."
        shapes[p + "gate.weight"] = (count, h)
        for e in range(count):
            shapes |= {f"{p}experts.{e}.{n}.weight": (h, size) if n == names[-1] else (size, h) for n in names}
        if c.get("n_shared_experts"):
            shared = size * c["n_shared_experts"]
            shapes |= {f"{p}shared_experts.{n}.weight": (h, shared) if n == names[-1] else (shared, h) for n in names}
    return shapes


def deepseek_config():
    return small_config(architectures=["DeepseekForCausalLM"], model_type="deepseek", first_k_dense_replace=1, moe_layer_freq=1,
                        moe_intermediate_size=12, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
                        norm_topk_prob=False, scoring_func="softmax", attention_bias=False, tie_word_embeddings=False)


def deepseek_shapes(c):
    return expert_shapes(c, 1, c["moe_intermediate_size"], ("gate_proj", "up_proj", "down_proj")) | {"lm_head.weight": (VOCAB, 32)}


def minicpm_moe_config():
    return small_config(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=3, scale_depth=1.1,
                        dim_model_base=24, num_experts=4, num_experts_per_tok=2) | {"intermediate_size": 16}


def minicpm_moe_shapes(c):
    return expert_shapes(c, 0, c["intermediate_size"], ("w1", "w3", "w2"))


def orion_config():
    return small_config(architectures=["OrionForCausalLM"], model_type="orion", attention_bias=False, tie_word_embeddings=False)


def orion_shapes(c):
    shapes = llama_shapes(c) | {"lm_head.weight": (VOCAB, 32)}
    return shapes | {name[:-6] + "bias": shape for name, shape in shapes.items() if "norm" in name}


smollm3_shapes = minicpm_shapes = llama_shapes
MODELS = {"cohere_qk_norm": cohere, "phi_qk_norm": phi, "cohere2": cohere, "olmo3": olmo, "exaone4": exaone,
          "smollm3": llama, "minicpm": llama, "seed_oss": llama, "internlm": llama, "internlm3": llama, "nemotron": nemotron, "arcee": nemotron,
          "deepseek": llama, "minicpm_moe": llama, "orion": llama}
PLAIN = {"cohere": cohere, "phi": phi, "olmo2": olmo, "granite": llama, "llama": llama}
LAST_NORMS = ("model.norm.weight", "model.final_layernorm.weight")


# ---- outputs ----

def fill(shapes, seed):
    """Embeddings are small, so that what the layers add decides; the last norm makes up for it."""
    random, weights = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape)
        if name.endswith("norm.weight"):
            values = (8.0 if name in LAST_NORMS else 1.0) * (1 + 0.2 * values)
        elif name.endswith("weight"):
            values *= (0.4 if "embed" in name else 2.0) / math.sqrt(shape[1])
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


def load(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data, np.float32, math.prod(t["shape"]), 8 + size + t["data_offsets"][0])
            .reshape(t["shape"]).astype(np.float64) for name, t in header.items() if name != "__metadata__"}


def rounded(row):
    return [float(f"{x:.9g}") for x in row]


def case(run, model, ids):
    """And how clear the least clear of the greedy choices was."""
    logits = run(model, ids)
    tokens, logprobs, gap = [], [], float("inf")
    for _ in range(NEW):
        row = run(model, ids + tokens)[-1]
        best = np.sort(row)[-2:]
        gap = min(gap, best[1] - best[0])
        tokens.append(int(row.argmax()))
        logprobs.append(best[1] - (row.max() + math.log(np.exp(row - row.max()).sum())))
    return {"input_ids": ids, "logits_last": rounded(logits[-1]), "logits_first": rounded(logits[0]), "greedy": tokens,
            "greedy_logprobs": rounded(logprobs)}, gap


def make(name):
    config, seed, gap = globals()[name + "_config"](), -1, 0.0
    while gap < CLEAR:
        seed += 1
        weights = fill(globals()[name + "_shapes"](config), seed)
        model = Model(config, {key: values.astype(np.float64) for key, values in weights.items()})
        random = np.random.default_rng(seed + 1000)
        results = [case(MODELS[name], model, random.integers(3, VOCAB, n).tolist()) for n in PROMPTS]
        gap = min(g for _, g in results)
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(folder / "model.safetensors", weights)
    golden = {"reference": "tools/golden_variants.py, numpy float64", "class": config["architectures"][0], "kind": "lm",
              "cases": [c for c, _ in results]}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, "seed", seed, "gap", gap, "tokens", len({t for c in golden["cases"] for t in c["greedy"]}))


def check():
    for name, run in PLAIN.items():
        model = Model(json.loads((FOLDER / name / "config.json").read_text()), load(FOLDER / name / "model.safetensors"))
        for c in json.loads((FOLDER / name / "golden.json").read_text())["cases"]:
            logits, want = run(model, c["input_ids"])[-1], np.array(c["logits_last"])
            off = abs(logits - want).max() / abs(want).max()
            print(name, f"{off:.2g} of the largest")
            assert off < 2e-5


for wanted in sys.argv[1:]:
    check() if wanted == "check" else make(wanted)
