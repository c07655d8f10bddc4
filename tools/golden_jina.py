#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/jina_bert*: Jina BERT (jina-embeddings-v2), for which transformers has no code. The formulas, in
float64, are those of the code that Jina publishes with the models (jina-bert-implementation and, for the model for code,
jina-bert-v2-qk-post-norm): post-norm layers as BERT's; ALiBi to both sides, -slope |i - j|, with the slopes of the paper; a
gated FFN, of whose stored matrix the gate is the first half, or the second one in the model for code. That model also norms
queries and keys as whole rows, and norms the sum of attention and the layer's input twice, adding the input each time.

With learned positions and a plain FFN the same functions must give what transformers computes: they are compared with
tests/golden/arch/bert_types, bert_mlm_untied and bert_token first; the slopes with those that transformers' BLOOM has, by the
published rule for six heads.

    python3 tools/golden_jina.py"""
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
CONFIG = {"model_type": "bert", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 64,
          "max_position_embeddings": 64, "vocab_size": 200, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
          "pad_token_id": 0, "position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"}
CODE = {"auto_map": {"AutoConfig": "jinaai/jina-bert-v2-qk-post-norm--configuration_bert.JinaBertConfig"}}
LABELS = {"id2label": {str(i): f"LABEL_{i}" for i in range(3)}}
ROWS = {  # class, what the configuration has beside the common keys
    "jina_bert": ("JinaBertModel", {}),
    "jina_bert_code": ("JinaBertModel", CODE),
    "jina_bert_cls": ("JinaBertForSequenceClassification", {"feed_forward_type": "reglu", **LABELS}),
    "jina_bert_token": ("JinaBertForTokenClassification", LABELS),
    "jina_bert_qa": ("JinaBertForQuestionAnswering", CODE),
    "jina_bert_mlm": ("JinaBertForMaskedLM", {"num_attention_heads": 4}),
    "jina_bert_plain": ("JinaBertModel", {"feed_forward_type": "original", "hidden_act": "relu"}),
}


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


ACTS = {"gelu": gelu, "relu": lambda x: np.maximum(x, 0)}


def norm(t, name, x, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name + ".weight"] + t[name + ".bias"]


def linear(t, name, x):
    return x @ t[name + ".weight"].T + t.get(name + ".bias", 0)


def slopes(heads):
    """Of a power of 2: 2^(-8/n), its powers; beyond it every second one that twice as many heads would have."""
    whole = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 / whole * (i + 1)) for i in range(whole)]
    return np.array(first + [2.0 ** (-4 / whole * (2 * i + 1)) for i in range(heads - whole)])


def attend(t, layer, x, c):
    heads, rows = c["num_attention_heads"], len(x)
    q, k, v = (linear(t, f"{layer}attention.self.{n}", x) for n in ("query", "key", "value"))
    if layer + "attention.self.layer_norm_q.weight" in t:
        q, k = (norm(t, f"{layer}attention.self.layer_norm_{n}", a, c["layer_norm_eps"]) for n, a in (("q", q), ("k", k)))
    q, k, v = (a.reshape(rows, heads, -1) for a in (q, k, v))
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[-1])
    if c["position_embedding_type"] == "alibi":
        at = np.arange(rows)
        scores -= slopes(heads)[:, None, None] * np.abs(at[:, None] - at)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return linear(t, layer + "attention.output.dense", np.einsum("hts,shd->thd", weights, v).reshape(rows, -1))


def ffn(t, layer, x, c):
    if layer + "mlp.gated_layers.weight" in t:
        gate, up = np.split(linear(t, layer + "mlp.gated_layers", x), 2, -1)
        down = "mlp.wo"
    elif layer + "mlp.up_gated_layer.weight" in t:
        up, gate = np.split(linear(t, layer + "mlp.up_gated_layer", x), 2, -1)
        down = "mlp.down_layer"
    else:
        return linear(t, layer + "output.dense", ACTS[c["hidden_act"]](linear(t, layer + "intermediate.dense", x)))
    return linear(t, layer + down, ACTS["relu" if c["feed_forward_type"] == "reglu" else "gelu"](gate) * up)


def forward(t, ids, types, c):
    eps = c["layer_norm_eps"]
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.token_type_embeddings.weight"][types]
    if c["position_embedding_type"] == "absolute":
        x = x + t["embeddings.position_embeddings.weight"][:len(ids)]
    x = norm(t, "embeddings.LayerNorm", x, eps)
    for i in range(c["num_hidden_layers"]):
        layer, code = f"encoder.layer.{i}.", f"encoder.layer.{i}.layer_norm_1.weight" in t
        y = norm(t, layer + "attention.output.LayerNorm", x + attend(t, layer, x, c), eps)
        x = norm(t, layer + "layer_norm_1", x + y, eps) if code else y
        last = "layer_norm_2" if code else "mlp.layernorm" if layer + "mlp.wo.weight" in t else "output.LayerNorm"
        x = norm(t, layer + last, x + ffn(t, layer, x, c), eps)
    return x


def pooled(t, x):
    return np.tanh(linear(t, "pooler.dense", x[0]))


def masked(t, x, c):
    y = norm(t, "cls.predictions.transform.LayerNorm", ACTS[c["hidden_act"]](linear(t, "cls.predictions.transform.dense", x)),
             c["layer_norm_eps"])
    head = t.get("cls.predictions.decoder.weight", t["embeddings.word_embeddings.weight"])
    return y @ head.T + t.get("cls.predictions.decoder.bias", t.get("cls.predictions.bias"))


def outputs(t, x, name, c):
    """The head of a class, by its name."""
    if name.endswith("MaskedLM"):
        return masked(t, x, c)
    if name.endswith("QuestionAnswering"):
        return linear(t, "qa_outputs", x)
    if name.endswith("SequenceClassification"):
        return linear(t, "classifier", pooled(t, x))
    return linear(t, "classifier", x) if name.endswith("TokenClassification") else x


def check_plain():
    """The functions against transformers' goldens of BERT."""
    for row in ("bert_types", "bert_mlm_untied", "bert_token"):
        golden, c = (json.loads((FOLDER / row / f).read_text()) for f in ("golden.json", "config.json"))
        c = dict(c, position_embedding_type="absolute", feed_forward_type="original")
        t = {n.removeprefix("bert."): v.astype(np.float64) for n, v in load_file(FOLDER / row / "model.safetensors").items()}
        for case in golden["cases"]:
            ids = case["input_ids"]
            have = outputs(t, forward(t, ids, case.get("token_type_ids", [0] * len(ids)), c), golden["class"], c)
            off = np.abs(have - np.array(case["last_hidden_state" if row == "bert_types" else "logits"])).max()
            assert off < 1e-4, (row, off)
    assert np.allclose(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])


def tensors(random, name, c):
    width, ffn_width, t = c["hidden_size"], c["intermediate_size"], {}

    def matrix(name, rows, cols, scale=2.0, bias=True):
        t[name + ".weight"] = (random.standard_normal((rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)
        if bias:
            t[name + ".bias"] = (0.2 * random.standard_normal(rows)).astype(np.float32)

    def norm_of(name):
        t[name + ".weight"] = (1 + 0.2 * random.standard_normal(width)).astype(np.float32)
        t[name + ".bias"] = (0.2 * random.standard_normal(width)).astype(np.float32)

    matrix("embeddings.word_embeddings", c["vocab_size"], width, 0.4, False)
    matrix("embeddings.token_type_embeddings", 2, width, bias=False)
    norm_of("embeddings.LayerNorm")
    code, plain = "auto_map" in c, c["feed_forward_type"] == "original"
    for i in range(c["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            matrix(f"{layer}attention.self.{part}", width, width)
        matrix(layer + "attention.output.dense", width, width)
        norm_of(layer + "attention.output.LayerNorm")
        up, down = ("mlp.up_gated_layer", "mlp.down_layer") if code else ("mlp.gated_layers", "mlp.wo")
        if plain:
            up, down = "intermediate.dense", "output.dense"
        matrix(layer + up, ffn_width * (1 if plain else 2), width, bias=plain)
        matrix(layer + down, width, ffn_width)
        for n in (("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2") if code
                  else ("output.LayerNorm",) if plain else ("mlp.layernorm",)):
            norm_of(layer + n)
    if name.endswith(("Model", "SequenceClassification")):
        matrix("pooler.dense", width, width)
    if name.endswith("Classification"):
        matrix("classifier", 3, width)
    if name.endswith("QuestionAnswering"):
        matrix("qa_outputs", 2, width)
    if name.endswith("MaskedLM"):
        matrix("cls.predictions.transform.dense", width, width)
        norm_of("cls.predictions.transform.LayerNorm")
        t["cls.predictions.bias"] = (0.2 * random.standard_normal(c["vocab_size"])).astype(np.float32)
    return t


def make(row):
    name, more = ROWS[row]
    c = {"architectures": [name], **CONFIG, **more}
    random = np.random.default_rng(1)
    stored = tensors(random, name, c)
    t = {n: v.astype(np.float64) for n, v in stored.items()}
    cases = []
    for n in (7, 1, 23):
        ids = random.integers(3, c["vocab_size"], n).tolist()
        types = {"token_type_ids": [2 * i // n for i in range(n)]} if row == "jina_bert" else {}
        x = forward(t, ids, types.get("token_type_ids", [0] * n), c)
        y = np.asarray(outputs(t, x, name, c))
        rows = [float(f"{v:.9g}") for v in y] if y.ndim == 1 else [[float(f"{v:.9g}") for v in r] for r in y]
        cases.append({"input_ids": ids, **types, "last_hidden_state" if name.endswith("Model") else "logits": rows})
        if name.endswith("Model"):
            cases[-1]["pooler"] = [float(f"{v:.9g}") for v in pooled(t, x)]
    folder = FOLDER / row
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    bare = name.endswith("Model")  # published without a prefix
    heads = ("classifier", "qa_outputs", "cls.")
    save_file({n if bare or n.startswith(heads) else "bert." + n: v for n, v in stored.items()}, folder / "model.safetensors",
              {"format": "pt"})
    golden = {"numpy": np.__version__, "class": name, "kind": "enc" if bare else "cls", "cases": cases}
    (folder / "golden.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    check_plain()
    for name in ROWS:
        make(name)
