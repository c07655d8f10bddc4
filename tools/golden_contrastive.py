#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/contrastive.json: choices of contrastive search over made-up probabilities and hidden states.

Su et al. 2022 (arXiv 2202.06417), equation 5, in numpy and f64:
    (1 - alpha) p(v) - alpha max_j cos(h_v, h_j)
All values are multiples of 2^-10 made from a hash, exact in f32 (tests/unit/engine/test_contrastive.c has the same). A
case is left out when a choice in it hangs on a difference that f32 could lose.
Needs numpy only:  python3 tools/golden_contrastive.py > tests/golden/contrastive.json
"""
import json

import numpy as np

from beam_table_model import MASK, mix


def value(seed, place, row, column):
    return mix(mix(mix(seed ^ place) + row & MASK) + column & MASK)


def states(seed, place, rows, hidden):
    """Rows that lean in one of four directions each, so that many are alike."""
    out = np.empty((rows, hidden))
    for r in range(rows):
        lean = value(seed, place, r, MASK) % 4
        for i in range(hidden):
            out[r, i] = (value(seed, place, r, i) >> 8) % 2048 - 1024 + (3000 if i % 4 == lean else 0)
    return out / 1024


def choose(case):
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    context = unit(states(case["seed"], 0, case["prompt"], case["hidden"]))
    alpha, chosen = float(np.float32(case["alpha"])), []
    for step in range(1, case["steps"] + 1):
        p = np.array([(value(case["seed"], step, j, MASK - 1) >> 8) % 1024 for j in range(case["k"])]) / 1024
        h = unit(states(case["seed"], step, case["k"], case["hidden"]))
        score = (1 - alpha) * p - alpha * (h @ context.T).max(axis=1)
        order = np.argsort(-score, kind="stable")
        if case["k"] > 1 and 0 < abs(score[order[0]] - score[order[1]]) < 1e-5:
            return None
        chosen.append(int(order[0]))
        context = np.concatenate([context, h[order[:1]]])
    return chosen


def main():
    random = np.random.default_rng(31)
    cases = []
    while len(cases) < 60:
        case = {"seed": int(random.integers(0, 1 << 31)), "k": int(random.integers(1, 9)),
                "alpha": float(random.choice([0, 0.25, 0.5, 0.6, 0.75, 1])),
                "hidden": int(random.choice([1, 4, 15, 16, 33, 64])), "prompt": int(random.integers(1, 12)),
                "steps": int(random.integers(1, 25))}
        case["chosen"] = choose(case)
        if case["chosen"]:
            cases.append(case)
    head = {"made_by": "tools/golden_contrastive.py", "numpy": np.__version__}
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


main()
