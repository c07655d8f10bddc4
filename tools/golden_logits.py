#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/logits.json: what options do to rows of logits, in three parts.

steps     rows before and after the processors (bans, biases, penalties). Style hf: the processors of transformers
          itself, in the order of its own _get_logits_processor; presence and frequency, which it lacks, stand after
          the repetition penalty with OpenAI's formula. Styles ft and trtllm: a float64 program in this file, from
          the formulas of FasterTransformer's and TensorRT-LLM's kernels.
warpers   rows, options and the probability of each token that may be drawn. hf: transformers' warpers; ft and trtllm:
          float64 again.
decay     top_p after each token (FasterTransformer's computeToppDecay).

A row is drawn again if a change of 1e-5 in an option, or of 1e-6 in the logits, changes which tokens stay: then the
last bits of an exponential would decide. Needs torch and transformers:
    python3 tools/golden_logits.py > tests/golden/logits.json
"""
import json
import math
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, LogitsProcessor

random = np.random.default_rng(20241120)
V = 24


def pick(*choices):
    return choices[int(random.integers(len(choices)))]


def ids(n, low=0):
    return [int(i) for i in random.integers(low, V, size=n)]


def words(count, longest, low=0):
    return [ids(int(random.integers(1, longest + 1)), low) for _ in range(count)]


# ---- style hf: transformers ----

class Penalties(LogitsProcessor):
    """OpenAI: subtracted from tokens that were generated."""

    def __init__(self, start, presence, frequency):
        self.start, self.presence, self.frequency = start, presence, frequency

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.start:], minlength=scores.shape[1]).to(scores.dtype)
        return scores - self.frequency * counts - self.presence * (counts > 0)


def continuations(allowed, ends, generated):
    """Brute force over all ways to cut the generated tokens into allowed words."""
    out = set()

    def walk(rest):
        if not rest:
            out.update(ends)
        for word in allowed:
            if rest[:len(word)] == word:
                walk(rest[len(word):])
            if len(rest) < len(word) and word[:len(rest)] == rest:
                out.add(word[len(rest)])

    walk(generated)
    return sorted(out)


def processors(o, prompt):
    config = GenerationConfig(do_sample="temperature" in o, num_beams=1)
    given = {"repetition_penalty": "repetition_penalty", "no_repeat_ngram": "no_repeat_ngram_size",
             "banned_words": "bad_words_ids", "min_tokens": "min_new_tokens", "temperature": "temperature",
             "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "typical_p": "typical_p"}
    config.top_k = 0
    for ours, theirs in given.items():
        if ours in o:
            setattr(config, theirs, o[ours])
    if "logit_bias" in o:
        config.sequence_bias = [[[i], b] for i, b in o["logit_bias"]]
    config._eos_token_tensor = torch.tensor(o["end_ids"]) if o.get("end_ids") else None
    allowed = None
    if "allowed_words" in o:
        def allowed(_, input_ids):
            return continuations(o["allowed_words"], o.get("end_ids", []), input_ids.tolist()[len(prompt):])
    model = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False),
                            _merge_criteria_processor_list=lambda made, _: made)
    made = GenerationMixin._get_logits_processor(model, config, input_ids_seq_length=len(prompt),
                                                 prefix_allowed_tokens_fn=allowed, device="cpu")
    if "presence_penalty" in o or "frequency_penalty" in o:
        names = [type(p).__name__ for p in made]
        at = max([names.index(n) + 1 for n in ("SequenceBiasLogitsProcessor", "RepetitionPenaltyLogitsProcessor")
                  if n in names], default=0)
        made.insert(at, Penalties(len(prompt), o.get("presence_penalty", 0.0), o.get("frequency_penalty", 0.0)))
    return made


def run_hf(o, prompt, generated, logits):
    rows = torch.tensor([logits], dtype=torch.float32)
    history = torch.tensor([prompt + generated], dtype=torch.long)
    return processors(o, prompt)(history, rows)[0].double().numpy()


# ---- styles ft and trtllm: float64 ----

def ban_words(l, o, h):
    for word in o.get("banned_words", []):
        before = word[:-1]
        if word[-1] > 0 and (not before or h[-len(before):] == before):
            l[word[-1]] = -math.inf


def ban_ngrams(l, o, h):
    n = o.get("no_repeat_ngram", 0)
    if n and len(h) >= n:
        tail = h[len(h) - n + 1:]
        for i in range(len(h) - n + 1):
            if h[i:i + n - 1] == tail:
                l[h[i + n - 1]] = -math.inf


def penalise(l, o, h):
    for t in set(h):
        if "repetition_penalty" in o:
            r = o["repetition_penalty"]
            l[t] = l[t] * r if l[t] < 0 else l[t] / r
        l[t] -= o.get("presence_penalty", 0)
        l[t] -= o.get("frequency_penalty", 0) * h.count(t)


def hold_ends(l, o, generated):
    if len(generated) < o.get("min_tokens", 0):
        for e in o.get("end_ids", []):
            l[e] = -math.inf


def keep_allowed(l, o, generated):
    if "allowed_words" in o:
        may = continuations(o["allowed_words"], o.get("end_ids", []), generated)
        for i in range(len(l)):
            if i not in may:
                l[i] = -math.inf


def bias_and_temperature(l, o, always):
    for i, b in o.get("logit_bias", []):
        l[i] += b
    t = o.get("temperature", 1.0)
    if t != 1 or (always and "logit_bias" in o):
        l /= t + 1e-6


def run_ft(o, prompt, generated, logits):
    l, h = np.array(logits, np.float64), prompt + generated
    ban_words(l, o, h)
    ban_ngrams(l, o, h)
    bias_and_temperature(l, o, True)
    if len(h) > 1:
        penalise(l, o, h)
    hold_ends(l, o, generated)
    keep_allowed(l, o, generated)
    return l


def run_trtllm(o, prompt, generated, logits):
    l, h = np.array(logits, np.float64), prompt + generated
    bias_and_temperature(l, o, False)
    penalise(l, o, h)
    hold_ends(l, o, generated)
    ban_ngrams(l, o, h)
    ban_words(l, o, h)
    keep_allowed(l, o, generated)
    return l


RUN = {"hf": run_hf, "ft": run_ft, "trtllm": run_trtllm}


# ---- cases ----

def some_options(style, h):
    """A mixture of options; words and ends are drawn so that they matter."""
    o = {}
    if random.random() < 0.4:
        o["logit_bias"] = [[i, float(pick(-5.0, 0.75, 3.0))] for i in sorted(set(ids(3, 1)))]
    if random.random() < 0.4:
        o["repetition_penalty"] = float(pick(0.5, 1.25, 2.0))
    if random.random() < 0.4 and not (style == "ft" and "repetition_penalty" in o):
        o["presence_penalty"] = float(pick(-1.5, 0.5, 2.0))
    if random.random() < 0.3 and style != "ft":
        o["frequency_penalty"] = float(pick(-0.25, 0.5))
    if random.random() < 0.3:
        o["no_repeat_ngram"] = pick(1, 2, 2, 3)
    if random.random() < 0.5:
        o["end_ids"] = sorted(set(ids(pick(1, 2), 1)))
    if random.random() < 0.4:
        banned = words(3, 3)
        if h:
            n = min(len(h), pick(1, 2, 3, 8))
            banned.append(h[len(h) - n:] + ids(1))  # about to come
        if o.get("end_ids"):
            banned.append([o["end_ids"][0]])
        banned.append([0])
        o["banned_words"] = [list(w) for w in dict.fromkeys(map(tuple, banned))]
    if random.random() < 0.4 and o.get("end_ids"):
        o["min_tokens"] = pick(1, 3, 6)
    if style != "hf" and random.random() < 0.5:
        o["temperature"] = float(pick(0.25, 0.8, 1.5))
    return o


def allowed_case(style):
    """The generated tokens are words in a row, the last one perhaps begun."""
    few = [[int(i) for i in random.integers(1, 5, size=int(random.integers(1, 4)))] for _ in range(4)]
    said = sum((pick(*few) for _ in range(pick(0, 1, 2, 3))), [])
    begun = pick(*few)
    said += begun[:int(random.integers(0, len(begun)))]
    return {"allowed_words": [list(w) for w in dict.fromkeys(map(tuple, few))], "end_ids": ids(pick(1, 2), 5)}, said


def numbers(row):
    return [None if v == -math.inf else float(f"{v:.7g}") for v in row]


def logits_row(logprobs):
    row = np.round(random.normal(size=V) * pick(1, 3), 3)
    if logprobs:  # as beams have them
        row = np.round(row - np.log(np.exp(row).sum()), 3)
    return [float(v) for v in row]


def step_case(style, kind):
    prompt, generated = ids(pick(1, 2, 6, 10)), ids(pick(0, 0, 1, 4, 9))
    if random.random() < 0.5:  # few different tokens, so that n-grams repeat
        prompt, generated = [i % 4 for i in prompt], [i % 4 for i in generated]
    o, logits = some_options(style, prompt + generated), logits_row(kind == "logprobs")
    if kind == "allowed":
        more, generated = allowed_case(style)
        for name in ("no_repeat_ngram", "banned_words", "min_tokens"):
            o.pop(name, None)
        o.update(more)
    after = RUN[style](o, prompt, generated, logits)
    return {"style": style, "options": o, "prompt": prompt, "generated": generated, "logits": logits,
            "after": numbers(after)}


def some_warpers(style):
    o = {"temperature": float(pick(0.5, 1.0, 1.0, 1.7))} if style == "hf" else {}
    if random.random() < 0.4:
        o["top_k"] = pick(1, 2, 5, 12, 100)
    if random.random() < 0.5 or (style != "hf" and "top_k" not in o):
        o["top_p"] = float(pick(0.2, 0.5, 0.8, 0.9, 0.95))
    if style == "hf":
        if random.random() < 0.4:
            o["min_p"] = float(pick(0.02, 0.1, 0.3, 1.0))
        if random.random() < 0.4:
            o["typical_p"] = float(pick(0.2, 0.5, 0.8, 0.95))
    return o


def probabilities(style, o, logits):
    if style == "hf":
        x = run_hf(o, [1], [], logits)
        e = np.exp(x - x.max())
        return e / e.sum()
    # falling order, lower ids first; a uniform number in (0, p * sum] runs along it
    order = np.argsort(-np.array(logits), kind="stable")[:o.get("top_k", 0) or None]
    e = np.exp(np.array(logits, np.float64)[order] - max(logits))
    limit = o.get("top_p", 1.0) * e.sum()
    out, said = np.zeros(len(logits)), 0.0
    for i, w in zip(order, e):
        out[i] = max(0.0, min(w, limit - said)) / limit
        said += w
    return out


def steady(style, o, logits, tied):
    """Whether the tokens that stay do so in spite of small changes. transformers sorts without keeping the order of
    equal logits: rows where one stays and its equal does not are left out (Proa's own rule is in sampler.h)."""
    kept = probabilities(style, o, logits) > 0
    x = np.array(logits)
    if style == "hf" and set(x[kept]) & set(x[~kept]):
        return False
    for name in ("top_p", "min_p", "typical_p"):
        for change in (-1e-5, 1e-5):
            if name in o and 0 < o[name] + change < 1:
                if (kept != (probabilities(style, {**o, name: o[name] + change}, logits) > 0)).any():
                    return False
    noise = (random.random(size=len(logits)) - 0.5) * 2e-6
    return tied or not (kept != (probabilities(style, o, list(np.array(logits) + noise)) > 0)).any()


def warper_case(style):
    while True:
        n = pick(5, 20, 40)
        logits = [float(v) for v in np.round(random.normal(size=n) * pick(0.5, 2, 5), 3)]
        tied = random.random() < 0.25
        if tied:
            logits = [float(round(v)) for v in logits]
        o = some_warpers(style)
        if steady(style, o, logits, tied):
            p = probabilities(style, o, logits)
            return {"style": style, "options": o, "logits": logits, "kept": np.flatnonzero(p > 0).tolist(),
                    "probability": [round(float(v), 8) for v in p[p > 0]]}


def decay_case():
    o = {"top_p": float(pick(0.9, 0.5)), "top_p_decay": float(pick(0.9, 0.5)), "top_p_min": float(pick(0.1, 0.3)),
         "top_p_reset_id": 7}
    said, p, after = [int(i) for i in random.integers(5, 12, size=30)], o["top_p"], []
    for token in [None] + said:
        if token is not None:
            p = o["top_p"] if token == o["top_p_reset_id"] else max(p * o["top_p_decay"], o["top_p_min"])
        after.append(float(f"{p:.7g}"))
    return {"options": o, "generated": said, "top_p": after}


def lines(cases):
    return "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]"


def main():
    kinds = ["plain"] * 5 + ["logprobs", "allowed", "allowed"]
    steps = [step_case(s, kinds[i % len(kinds)]) for s in RUN for i in range(64)]
    warpers = [warper_case(s) for s in RUN for _ in range(80 if s == "hf" else 30)]
    head = {"made_by": "tools/golden_logits.py", "transformers": transformers.__version__, "torch": torch.__version__,
            "numpy": np.__version__}
    print(json.dumps(head)[:-1] + ', "steps": ' + lines(steps) + ', "warpers": ' + lines(warpers) + ', "decay": '
          + lines([decay_case() for _ in range(5)]) + "}")


main()
