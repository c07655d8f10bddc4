#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/sampler.json: rows of logits, options, and what is left of them.

The formulae of TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper (generation/logits_process.py of
transformers 5.17.0, applied in the order of _get_logits_processor in generation/utils.py), stated again in numpy with
the arithmetic of torch on a CPU: division and softmax in float32, cumsum accumulated in float64 and stored as float32,
a stable sort. Needs numpy only:  python3 tools/golden_sampler.py > tests/golden/sampler.json

A row is drawn again if a running sum comes closer than 1e-5 to its threshold, so that the last bits of an
exponential do not decide; rows of equal logits, where all sums are exact, are the exception on purpose.
"""
import json

import numpy as np

F = np.float32


def softmax(x):
    e = np.exp((x - x.max()).astype(np.float64)).astype(F)
    return (e / F(e.astype(np.float64).sum())).astype(F)


def warp(logits, temperature, top_k, top_p):
    """What stays (indices), and how near the top-p decision was."""
    x = np.asarray(logits, F) / F(temperature)
    margin = 1.0
    if top_k:
        kth = np.sort(x)[-min(top_k, x.size)]
        x = np.where(x < kth, F(-np.inf), x)
    if 0 < top_p < 1:
        order = np.argsort(x, kind="stable")
        cumulative = np.cumsum(softmax(x[order]).astype(np.float64)).astype(F)
        limit = F(1 - top_p)
        margin = float(np.abs(cumulative - limit).min())
        remove = cumulative <= limit
        remove[-1] = False
        x[order[remove]] = -np.inf
    return x, margin


def case(logits, temperature, top_k, top_p):
    x, margin = warp(logits, temperature, top_k, top_p)
    kept = np.flatnonzero(x > -np.inf)
    weight = np.exp(x[kept].astype(np.float64) - x.max())
    raw = np.asarray(logits, F).astype(np.float64)
    logprob = raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())
    best = int(np.argmax(raw))
    return margin, {
        "logits": [float(f"{v:.6g}") for v in np.asarray(logits, F)],
        "temperature": temperature, "top_k": top_k, "top_p": top_p,
        "kept": kept.tolist(), "probability": [round(float(p), 8) for p in weight / weight.sum()],
        "greedy": best, "greedy_logprob": round(float(logprob[best]), 6),
    }


def main():
    random = np.random.default_rng(20240611)
    cases = []
    for n, top_k, top_p in [(4, 0, 0.5), (4, 0, 0.75), (8, 0, 0.8), (8, 3, 0.5), (4, 2, 0), (10, 0, 0.3), (16, 0, 1e-4),
                            (10, 0, 0.8)]:
        cases.append(case([0.5] * n, 1.0, top_k, top_p)[1])
    for logits in ([1, 3, 3, 2, 3, 2], [0.0, -0.0, -1, 0.0, -5], [-2, -2, 4, 4, 4, -2, 4]):
        for top_k in (1, 2, 3, 4, 5, 100):
            cases.append(case(logits, 0.5, top_k, 0)[1])
    while len(cases) < 150:
        n = int(random.integers(1, 41))
        logits = [float(f"{v:.4g}") for v in random.normal(size=n) * random.choice([0.3, 2, 8])]
        if random.random() < 0.3:  # ties
            logits = [float(round(v)) for v in logits]
        temperature = float(random.choice([0.3, 0.7, 1.0, 1.5]))
        top_k = int(random.choice([0, 0, 1, 2, 5, 10, 50]))
        top_p = float(random.choice([0, 0.1, 0.3, 0.5, 0.8, 0.9, 0.95, 1.0]))
        margin, made = case(logits, temperature, top_k, top_p)
        if margin > 1e-5:
            cases.append(made)
    head = {"made_by": "tools/golden_sampler.py", "meaning": "transformers 5.17.0", "numpy": np.__version__}
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


main()
