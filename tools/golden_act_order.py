#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arch/gptq_act_order: the checkpoint arch/llama in GPTQ's four bits with act-order, groups of 32.

The inputs of each matrix are put into groups by falling mean square of their activations over the prompts, as act-order does, so
that neighbouring inputs belong to different groups (in arch/autogptq_act_order the groups are in order). Codes are rounded, with a
scale and a zero point for each group. The layout is that of GPTQ's checkpoints: qweight [K / 8, N] with eight codes of neighbouring
inputs a word, qzeros [groups, N / 8] of the zero points less one, scales [groups, N], g_idx [K].

The logits are those of the numbers that the stored codes stand for, in float64, by formulas that do not come from Proa: the parts
of golden_variants.py. Before anything is written, the same function must give the logits of arch/llama, which transformers made.

    tools/golden_act_order.py       (needs numpy and safetensors)
"""
import json

import numpy as np
from golden_variants import FOLDER, NEW, Model, attention, plain_freqs, rms_norm, rotate
from safetensors.numpy import load_file, save_file

GROUP = 32
CONFIG = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": True, "damp_percent": 0.01}


class Observed(Model):
    """A model that keeps the inputs of its matrices."""

    inputs = None

    def linear(self, x, name):
        if self.inputs is not None:
            self.inputs.setdefault(name, []).append(x)
        return super().linear(x, name)


def llama(m, ids):
    """modeling_llama.py: logits [T, vocabulary]."""
    x = m.w["model.embed_tokens.weight"][ids]
    freqs = plain_freqs(m.d, m.theta)
    for _, p in m.layers():
        n = rms_norm(x, m.w[p + "input_layernorm.weight"], m.eps)
        q, k, v = (m.split(m.linear(n, f"{p}self_attn.{part}_proj")) for part in "qkv")
        x = x + m.linear(attention(rotate(q, freqs), rotate(k, freqs), v), p + "self_attn.o_proj")
        x = x + m.gated(rms_norm(x, m.w[p + "post_attention_layernorm.weight"], m.eps), p + "mlp.")
    return m.head(rms_norm(x, m.w["model.norm.weight"], m.eps))


def packed(codes):
    """Numbers of four bits [n, N] as int32 [n / 8, N], the first one in the lowest bits."""
    shifted = codes.reshape(-1, 8, codes.shape[1]).astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))[None, :, None]
    return np.bitwise_or.reduce(shifted, 1).view(np.int32)


def unpacked(words):
    return (words.view(np.uint32)[:, None, :] >> (4 * np.arange(8, dtype=np.uint32))[None, :, None] & 15).reshape(-1, words.shape[1])


def quantise(w, inputs):
    """w [N, K]: the stored tensors, and the numbers [N, K] that they stand for."""
    order = np.argsort(-(np.concatenate(inputs) ** 2).mean(0), kind="stable")
    group = np.empty(w.shape[1], np.int32)
    group[order] = np.arange(w.shape[1]) // GROUP
    groups = [w[:, group == g] for g in range(group.max() + 1)]
    low, high = (np.stack([f(part.min(1), 0) if f is np.minimum else f(part.max(1), 0) for part in groups]) for f in (np.minimum, np.maximum))
    scales = ((high - low) / 15).astype(np.float16)  # [groups, N]
    zeros = np.clip(np.round(-low / scales.astype(np.float64)), 1, 15)  # a stored zero point is one less
    codes = np.clip(np.round(w.T / scales.astype(np.float64)[group] + zeros[group]), 0, 15)
    stored = {"qweight": packed(codes), "qzeros": np.ascontiguousarray(packed((zeros - 1).T).T), "scales": scales, "g_idx": group}
    numbers = (unpacked(stored["qweight"]) - (unpacked(stored["qzeros"].T.copy()).T[group] + 1.0)) * stored["scales"].astype(np.float64)[group]
    return stored, numbers.T


def case(m, ids):
    logits = llama(m, ids)
    out = {"input_ids": ids, "logits_first": logits[0].tolist(), "logits_last": logits[-1].tolist(), "greedy": [], "greedy_logprobs": []}
    tokens = list(ids)
    for _ in range(NEW):
        last = llama(m, tokens)[-1]
        tokens.append(int(last.argmax()))
        out["greedy"].append(tokens[-1])
        out["greedy_logprobs"].append(float(-np.log(np.exp(last - last.max()).sum())))
    return out


def main():
    source, target = FOLDER / "llama", FOLDER / "gptq_act_order"
    config = json.loads((source / "config.json").read_text())
    golden = json.loads((source / "golden.json").read_text())["cases"]
    m = Observed(config, {n: t.astype(np.float64) for n, t in load_file(source / "model.safetensors").items()})
    m.inputs = {}
    for known in golden:
        error = np.abs(llama(m, known["input_ids"])[-1] - known["logits_last"]).max() / np.abs(known["logits_last"]).max()
        assert error < 1e-5, error
    tensors = {}
    for name, inputs in m.inputs.items():
        stored, m.w[name + ".weight"] = quantise(m.w[name + ".weight"], inputs)
        tensors.update({f"{name}.{key}": value for key, value in stored.items()})
        jumps = np.abs(np.diff(stored["g_idx"])) > 0
        assert jumps.mean() > 0.3, (name, jumps.mean())
    quantised = {name + ".weight" for name in m.inputs}
    for name, numbers in m.w.items():
        if name not in quantised:
            tensors[name] = numbers.astype(np.float16)
            m.w[name] = tensors[name].astype(np.float64)
    m.inputs = None
    target.mkdir(exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config.update(dtype="float16", quantization_config=CONFIG)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    made = {"note": "tools/golden_act_order.py, numpy in float64", "class": "LlamaForCausalLM", "kind": "lm"}
    (target / "golden.json").write_text(json.dumps({**made, "cases": [case(m, known["input_ids"]) for known in golden]}))


if __name__ == "__main__":
    main()
