#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/processors.json: rows of logits before and after the processors that transformers alone has.

steps     sequence_bias, the encoder's repetition penalty and n-grams, exponential_decay_length_penalty, suppress_tokens,
          begin_suppress_tokens and renormalize_logits, alone and together with older ones, as the list that transformers'
          own _get_logits_processor makes of a GenerationConfig applies them.
warpers   epsilon_cutoff and eta_cutoff, with temperature and top_k: the probability of each token that may be drawn.
files     generation_config.json in transformers' words, and the options that they mean.

Needs torch and transformers:    python3 tools/golden_processors.py > tests/golden/processors.json
"""
import json
import math
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, GenerationMixin

random = np.random.default_rng(20261125)
V = 20
NAMES = {"sequence_bias": "sequence_bias", "encoder_repetition_penalty": "encoder_repetition_penalty",
         "encoder_no_repeat_ngram": "encoder_no_repeat_ngram_size", "suppress_tokens": "suppress_tokens",
         "begin_suppress_tokens": "begin_suppress_tokens", "renormalize_logits": "renormalize_logits",
         "repetition_penalty": "repetition_penalty", "no_repeat_ngram": "no_repeat_ngram_size", "banned_words": "bad_words_ids",
         "forced_bos_id": "forced_bos_token_id", "temperature": "temperature", "top_k": "top_k",
         "epsilon_cutoff": "epsilon_cutoff", "eta_cutoff": "eta_cutoff"}


def ids(least, most, low=0):
    return [int(i) for i in random.integers(low, V, size=int(random.integers(least, most + 1)))]


def draw_options():
    every = {
        "sequence_bias": lambda: [[w, float(random.choice([-2.5, 1.5, -8.0]))] for w in {tuple(ids(1, 3, 1)): 0 for _ in range(4)}],
        "encoder_repetition_penalty": lambda: float(random.choice([0.5, 1.25, 2.0])),
        "encoder_no_repeat_ngram": lambda: int(random.integers(1, 4)),
        "exponential_decay": lambda: [int(random.integers(0, 5)), float(random.choice([1.5, 1.01, 0.5]))],
        "suppress_tokens": lambda: sorted(set(ids(1, 4))),
        "begin_suppress_tokens": lambda: sorted(set(ids(1, 4))),
        "renormalize_logits": lambda: True,
        "repetition_penalty": lambda: 1.5,
        "no_repeat_ngram": lambda: 2,
        "banned_words": lambda: [ids(1, 2, 1)],
        "forced_bos_id": lambda: int(random.integers(1, V)),
    }
    names = [n for n in every if random.random() < (0.35 if n not in ("forced_bos_id", "banned_words") else 0.1)]
    o = {n: every[n]() for n in names}
    if "sequence_bias" in o:
        o["sequence_bias"] = [[list(w), b] for w, b in o["sequence_bias"]]
    if "exponential_decay" in o:
        o["exponential_decay_start"], o["exponential_decay_factor"] = o.pop("exponential_decay")
    o["end_ids"] = [int(random.integers(0, V))]
    return o


def config_of(o, **more):
    config = GenerationConfig(num_beams=1, top_k=0, **more)
    for ours, theirs in NAMES.items():
        if ours in o:
            setattr(config, theirs, o[ours])
    if "exponential_decay_factor" in o:
        config.exponential_decay_length_penalty = (o["exponential_decay_start"], o["exponential_decay_factor"])
    config._eos_token_tensor = torch.tensor(o["end_ids"]) if o.get("end_ids") else None
    return config


def apply(config, prompt, generated, source, logits):
    model = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=True), _merge_criteria_processor_list=lambda made, _: made)
    made = GenerationMixin._get_logits_processor(model, config, input_ids_seq_length=len(prompt),
                                                 encoder_input_ids=torch.tensor([source]), device="cpu")
    row = made(torch.tensor([prompt + generated]), torch.tensor([logits], dtype=torch.float32))[0].double().numpy()
    return [None if v == -math.inf else float(f"{v:.7g}") for v in row]


def step():
    o, prompt, source = draw_options(), ids(1, 3), ids(3, 12)
    generated = [] if random.random() < 0.25 else ids(1, 8)
    if random.random() < 0.5:  # repeat the source, so that its n-grams are about to come
        at = int(random.integers(0, len(source) - 1))
        generated += source[at:at + 2]
    logits = [round(float(v), 3) for v in random.normal(size=V) * 1.5]
    after = apply(config_of(o), prompt, generated, source, logits)
    if any(v is not None and math.isnan(v) for v in after):
        return step()  # a banned end token that decays: infinity minus infinity
    return {"options": o, "prompt": prompt, "source": source, "generated": generated, "logits": logits, "after": after}


def warper():
    o = {"temperature": float(random.choice([0.5, 1.0, 2.0])), "top_k": int(random.choice([0, 5]))}
    if random.random() < 0.6:
        o["epsilon_cutoff"] = float(random.choice([0.02, 0.1, 0.3, 0.9]))
    if random.random() < 0.6:
        o["eta_cutoff"] = float(random.choice([0.001, 0.02, 0.2, 0.7]))
    logits = [round(float(v), 3) for v in random.normal(size=V) * 2]
    row = torch.tensor([-math.inf if v is None else v for v in apply(config_of(o, do_sample=True), [1], [], [2], logits)],
                       dtype=torch.float64)
    chosen = torch.softmax(row, 0)
    return {"options": o, "logits": logits, "probability": [round(float(p), 7) for p in chosen]}


FILES = [
    [{"suppress_tokens": [1, 2], "begin_suppress_tokens": [22, 50]}, {"suppress_tokens": [1, 2], "begin_suppress_tokens": [22, 50]}],
    [{"num_return_sequences": 3, "do_sample": True}, {"n": 3, "temperature": 1.0}],
    [{"num_return_sequences": 2, "num_beams": 4}, {"beams": 4, "beams_returned": 2}],
    [{"penalty_alpha": 0.6, "top_k": 4}, {"penalty_alpha": 0.6, "top_k": 4}],
    [{"top_k": 4, "epsilon_cutoff": 0.1}, {}],
    [{"do_sample": True, "top_k": 4, "epsilon_cutoff": 0.1, "eta_cutoff": 0.0}, {"temperature": 1.0, "top_k": 4, "epsilon_cutoff": 0.1}],
    [{"exponential_decay_length_penalty": [15, 1.6]}, {"exponential_decay_start": 15, "exponential_decay_factor": 1.6}],
    [{"encoder_no_repeat_ngram_size": 3, "encoder_repetition_penalty": 1.5, "renormalize_logits": True},
     {"encoder_no_repeat_ngram": 3, "encoder_repetition_penalty": 1.5, "renormalize_logits": True}],
    [{"sequence_bias": [[[10, 11], -5.0], [[7], 2.0]], "stop_strings": ["END"]}, {"sequence_bias": [[[10, 11], -5.0], [[7], 2.0]], "stop_strings": ["END"]}],
]


def main():
    made = {"made_by": "tools/golden_processors.py", "transformers": transformers.__version__, "torch": torch.__version__}
    for name, make, count in (("steps", step, 160), ("warpers", warper, 60)):
        made[name] = [make() for _ in range(count)]
    made["files"] = [{"file": f, "options": o} for f, o in FILES]
    head = {k: v for k, v in made.items() if not isinstance(v, list)}
    parts = [f'"{k}": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in v) + "\n]" for k, v in made.items() if isinstance(v, list)]
    print(json.dumps(head)[:-1] + ", " + ",\n".join(parts) + "}")


if __name__ == "__main__":
    main()
