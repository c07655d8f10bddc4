#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/eagle/NAME: EAGLE heads for the tiny Llama of tests/golden/arch, and what they guess by the
published forward passes (SafeAILab/EAGLE, cnets1.py and cnets.py), computed here in float64.

    golden_eagle.py           needs numpy

one: EAGLE-1, safetensors. three: EAGLE-3 with a vocabulary of its own, as torch saves it. one_published and
three_published: the same in float16, each in the other kind of file, with the fields of config.json that the published
repositories have (eagle/train/vicuna_13B_config.json, eagle/traineagle3/config.json): no head_dim, no rope_theta, for
EAGLE-1 no num_key_value_heads and no bias, but embed_tokens. The matrix fc is fitted to the texts of
tests/unit/engine/test_eagle.c by least squares, so that some drafts are accepted there; all else is random."""
import collections
import io
import json
import pathlib
import pickle
import struct
import sys
import types
import zipfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
TOP, STEPS = 8, 4


# ---- files ----

def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            assert t["dtype"] == "F32"
            out[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4").reshape(t["shape"])
    return {name: t.astype(np.float64) for name, t in out.items()}


SAFETENSORS = {"float16": "F16", "float32": "F32", "int64": "I64", "bool": "BOOL"}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": SAFETENSORS[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


def stand_in(module, name, value):
    for part in (module.rpartition(".")[0], module):
        if part:
            sys.modules.setdefault(part, types.ModuleType(part))
    value.__module__, value.__qualname__, value.__name__ = module, name, name
    setattr(sys.modules[module], name, value)
    return value


REBUILD = stand_in("torch._utils", "_rebuild_tensor_v2", lambda *args: None)
STORAGE = {np.dtype(t): stand_in("torch", f"{n}Storage", type(n, (), {}))
           for t, n in (("float16", "Half"), ("float32", "Float"), ("int64", "Long"), ("bool", "Bool"))}


class Stored:
    def __init__(self, array, key):
        self.array, self.id = array, ("storage", STORAGE[array.dtype], key, "cpu", array.size)


class Rebuilt:
    def __init__(self, array, key):
        strides = tuple(s // array.itemsize for s in array.strides)
        self.args = (Stored(array, key), 0, array.shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return REBUILD, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.id if isinstance(obj, Stored) else None


def write_torch(path, tensors):
    """As torch.save writes a state dictionary."""
    arrays = {name: np.ascontiguousarray(t) for name, t in tensors.items()}
    buffer = io.BytesIO()
    Pickler(buffer, 2).dump(collections.OrderedDict((n, Rebuilt(t, str(i))) for i, (n, t) in enumerate(arrays.items())))
    with zipfile.ZipFile(path, "w") as z:
        for name, data in [("data.pkl", buffer.getvalue()), ("byteorder", b"little"),
                           *((f"data/{i}", t.tobytes()) for i, t in enumerate(arrays.values())), ("version", b"3\n")]:
            z.writestr(zipfile.ZipInfo(f"pytorch_model/{name}", (1980, 1, 1, 0, 0, 0)), data)


# ---- a decoder ----

def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, theta):
    """x [rows, heads, dim] at positions 0, 1, ..."""
    half = x.shape[2] // 2
    angle = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def attention(x, w, prefix, c):
    """Causal attention of rows x with the projections of w."""
    dim = c["head_dim"]
    q, k, v = (x @ w[f"{prefix}self_attn.{n}_proj.weight"].T for n in "qkv")
    q, k = rotate(q.reshape(len(x), -1, dim), c["theta"]), rotate(k.reshape(len(x), -1, dim), c["theta"])
    v = v.reshape(len(x), -1, dim)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
    score[:, np.triu(np.ones((len(x), len(x)), bool), 1)] = -np.inf
    p = np.exp(score - score.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", p, v).reshape(len(x), -1) @ w[f"{prefix}self_attn.o_proj.weight"].T


def feed_forward(x, w, prefix):
    gate = x @ w[f"{prefix}mlp.gate_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[f"{prefix}mlp.up_proj.weight"].T)) @ w[f"{prefix}mlp.down_proj.weight"].T


class Target:
    def __init__(self):
        folder = ROOT / "arch" / "llama"
        c = json.loads((folder / "config.json").read_text())
        self.w = read_safetensors(folder / "model.safetensors")
        self.c = {"head_dim": c["head_dim"], "theta": c["rope_parameters"]["rope_theta"], "eps": c["rms_norm_eps"]}
        self.layers, self.vocab, self.hidden = c["num_hidden_layers"], c["vocab_size"], c["hidden_size"]
        self.embedding, self.head = self.w["model.embed_tokens.weight"], self.w["lm_head.weight"]

    def run(self, ids):
        """The residual stream before each layer and behind the last one, and what the head reads."""
        x, streams = self.embedding[ids], []
        for i in range(self.layers):
            streams.append(x)
            p = f"model.layers.{i}."
            x = x + attention(rms_norm(x, self.w[p + "input_layernorm.weight"], self.c["eps"]), self.w, p, self.c)
            x = x + feed_forward(rms_norm(x, self.w[p + "post_attention_layernorm.weight"], self.c["eps"]), self.w, p)
        streams.append(x)
        return streams, rms_norm(x, self.w["model.norm.weight"], self.c["eps"])

    def generate(self, ids, count):
        ids = list(ids)
        for _ in range(count):
            ids.append(int((self.run(ids)[1][-1] @ self.head.T).argmax()))
        return ids


# ---- heads ----

class One:
    """cnets1.py: fc [embedding; state], a layer whose input has no norm, the target's embedding and head."""

    def __init__(self, target, w, c):
        self.t, self.w, self.c, self.ids = target, w, c, np.arange(target.vocab)
        self.embedding = w.get("embed_tokens.weight", target.embedding)

    def states(self, ids):
        return self.t.run(ids)[1]

    def fuse(self, states):
        return states

    def run(self, ids, states):
        x = np.concatenate((self.embedding[ids], states), -1) @ self.w["fc.weight"].T + self.w["fc.bias"]
        x = x + attention(x, self.w, "layers.0.", self.c)
        return x + feed_forward(rms_norm(x, self.w["layers.0.post_attention_layernorm.weight"], self.c["eps"]), self.w,
                                "layers.0.")

    def logits(self, x):
        return x @ self.t.head.T


class Three:
    """cnets.py: fc of three states, norms of embedding and state, a vocabulary of its own."""

    def __init__(self, target, w, c):
        self.t, self.w, self.c = target, w, c
        self.ids = np.arange(len(w["d2t"])) + w["d2t"]

    def states(self, ids):
        streams = self.t.run(ids)[0]
        return np.concatenate([streams[i] for i in self.c["taps"]], -1)

    def fuse(self, states):
        return states @ self.w["fc.weight"].T

    def run(self, ids, x):
        w, p, eps = self.w, "midlayer.", self.c["eps"]
        pair = np.concatenate((rms_norm(self.t.embedding[ids], w[p + "input_layernorm.weight"], eps),
                               rms_norm(x, w[p + "hidden_norm.weight"], eps)), -1)
        if self.c["norm_before_residual"]:
            x = rms_norm(x, w[p + "hidden_norm.weight"], eps)
        x = x + attention(pair, w, p, self.c)
        return x + feed_forward(rms_norm(x, w[p + "post_attention_layernorm.weight"], eps), w, p)

    def logits(self, x):
        return rms_norm(x, self.w["norm.weight"], self.c["eps"]) @ self.w["lm_head.weight"].T


def prompt_of(i):
    """Those of requests in tests/unit/engine/test_eagle.c."""
    ids = [((5 if i % 2 else 31 * i) + k * k * 7 + k * 13) % 90 + 3 for k in range(30)]
    return ids if i % 2 else ids[: 6 + 3 * i]


def random_layer(rng, prefix, c, inputs, hidden, ffn):
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    def matrix(rows, cols, scale):
        return rng.normal(0, scale / np.sqrt(cols), (rows, cols))
    return {f"{prefix}self_attn.q_proj.weight": matrix(q, inputs, 1.5), f"{prefix}self_attn.k_proj.weight": matrix(kv, inputs, 1.5),
            f"{prefix}self_attn.v_proj.weight": matrix(kv, inputs, 1), f"{prefix}self_attn.o_proj.weight": matrix(hidden, q, 0.1),
            f"{prefix}post_attention_layernorm.weight": rng.normal(1, 0.1, hidden),
            f"{prefix}mlp.gate_proj.weight": matrix(ffn, hidden, 1), f"{prefix}mlp.up_proj.weight": matrix(ffn, hidden, 1),
            f"{prefix}mlp.down_proj.weight": matrix(hidden, ffn, 0.2)}


def fit(x, y):
    """W of y = x W^T with the least squares, a little regularised."""
    return np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(x.shape[1]), x.T @ y).T


def as_stored(w, kind):
    """What float32 or float16 keeps of the weights."""
    return {n: t.astype(kind) if t.dtype == np.float64 else t for n, t in w.items()}


PUBLISHED = {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
             "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 96, "model_type": "llama",
             "num_attention_heads": 4, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
             "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.1", "use_cache": True}


def make_one(target, texts, published):
    rng = np.random.default_rng(1)
    c = {"heads": 4, "kv_heads": 4 if published else 2, "head_dim": 16, "theta": 10000.0, "eps": 1e-6}
    x = np.concatenate([np.concatenate((target.embedding[t[1:]], target.run(t)[1][:-1]), -1) for t in texts])
    y = np.concatenate([target.run(t)[1][1:] for t in texts])
    w = random_layer(rng, "layers.0.", c, target.hidden, target.hidden, 96)
    w.update({"fc.weight": fit(x, y), "fc.bias": rng.normal(0, 0.02, target.hidden)})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "bias": True,
              "hidden_size": target.hidden, "intermediate_size": 96, "max_position_embeddings": 96,
              "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "rms_norm_eps": 1e-6,
              "vocab_size": target.vocab}
    if published:
        w["embed_tokens.weight"] = target.embedding
        config = PUBLISHED | {"hidden_size": target.hidden, "vocab_size": target.vocab}
    return One, w, c, config


def make_three(target, texts, published):
    rng = np.random.default_rng(3)
    c = {"heads": 4, "kv_heads": 4, "head_dim": 16, "theta": 10000.0, "eps": 1e-6, "taps": [0, 1, 2],
         "norm_before_residual": False}
    hidden, used = 64, sorted({i for t in texts for i in t[1:]})
    chosen = np.array(sorted(set(used) | set(range(0, target.vocab, 5))))
    def fused(t):
        streams = target.run(t)[0]
        return np.concatenate([streams[i] for i in c["taps"]], -1)
    states = np.concatenate([fused(t)[:-2] for t in texts])
    y = np.concatenate([target.run(t)[1][1:-1] for t in texts])
    w = random_layer(rng, "midlayer.", c, 2 * hidden, hidden, 96)
    w.update({"midlayer.input_layernorm.weight": rng.normal(1, 0.1, hidden),
              "midlayer.hidden_norm.weight": rng.normal(1, 0.1, hidden), "norm.weight": rng.normal(1, 0.05, hidden),
              "fc.weight": fit(states, y), "lm_head.weight": target.head[chosen].copy(),
              "d2t": (chosen - np.arange(len(chosen))).astype(np.int64), "t2d": np.isin(np.arange(target.vocab), chosen)})
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
              "draft_vocab_size": len(chosen), "hidden_size": hidden, "intermediate_size": 96,
              "max_position_embeddings": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
              "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "vocab_size": target.vocab,
              "eagle_config": {"eagle_aux_hidden_state_layer_ids": c["taps"], "use_aux_hidden_state": True}}
    if published:
        # a published configuration without eagle_config stands for layers 2, n / 2 and n - 3: the target has two
        config = PUBLISHED | {"hidden_size": hidden, "vocab_size": target.vocab, "num_key_value_heads": 4,
                              "draft_vocab_size": len(chosen), "eagle_config": config["eagle_config"]}
    return Three, w, c, config


# ---- what they guess ----

def guesses(head, x):
    logits = head.logits(x)
    logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    order = np.argsort(-logprobs, kind="stable")[: TOP + 1]
    gap = float((-np.diff(logprobs[order])).min())
    return order[:TOP], {"ids": head.ids[order[:TOP]].tolist(),
                         "logprobs": [round(float(p), 5) for p in logprobs[order[:TOP]]], "least_gap": round(gap, 6)}


def case(head, ids, then):
    """The tokens `ids`, behind which the target has chosen `then`; the head goes on by its own first guesses."""
    tokens, states, steps = list(ids[1:]) + [then], head.fuse(head.states(ids)), []
    for _ in range(STEPS):
        x = head.run(np.array(tokens), states)
        order, step = guesses(head, x[-1])
        steps.append(step)
        tokens.append(int(head.ids[order[0]]))
        states = np.concatenate((states, x[-1:]))
    return {"input_ids": [int(i) for i in ids], "next": int(then), "steps": steps}


def make(name, maker, target, texts, torch_format, published=False):
    kind, w, c, config = maker(target, texts, published)
    stored = as_stored(w, np.float16 if published else np.float32)
    head = kind(target, {n: t.astype(np.float64) if t.dtype.kind == "f" else t for n, t in stored.items()}, c)
    right = total = 0
    for t in texts:
        x = head.run(np.array(t[1:]), head.fuse(head.states(t[:-1])))
        right += int((head.ids[head.logits(x).argmax(-1)][:-1] == np.array(t[2:])).sum())
        total += len(t) - 2
    out = ROOT / "eagle" / name
    out.mkdir(parents=True, exist_ok=True)
    if torch_format:
        write_torch(out / "pytorch_model.bin", stored)
    else:
        write_safetensors(out / "model.safetensors", stored)
    prompts = [[(7 * i * i + 13 * j + 3) % target.vocab for i in range(n)] for j, n in enumerate((2, 5, 70))]
    golden = {"reference": "formulas of SafeAILab/EAGLE in float64",
              "cases": [case(head, p, (11 * j + 5) % target.vocab) for j, p in enumerate(prompts)]}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: {right} of {total} first guesses are right")


TARGET = Target()
TEXTS = [TARGET.generate(prompt_of(i), 60) for i in range(7)]
make("one", make_one, TARGET, TEXTS, False)
make("three", make_three, TARGET, TEXTS, True)
make("one_published", make_one, TARGET, TEXTS, True, True)
make("three_published", make_three, TARGET, TEXTS, False, True)
