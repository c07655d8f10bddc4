#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/beam.json: beam searches over a made-up language model, and their results.

The algorithm of _beam_search and its helpers (generation/utils.py of transformers 5.17.0) for one prompt without
sampling, stated again in numpy with whole sequences and the K*V scores of each step in one row, f32 as in torch.
Where torch.topk leaves the order of equals open, the lower index is first (a stable sort).
The made-up model is that of beam_table_model.py.
Needs numpy only:  python3 tools/golden_beam.py > tests/golden/beam.json
"""
import json

import numpy as np

from beam_table_model import row

F = np.float32
NONE = F(-1.0e9)


def top(x, k):
    return np.argsort(-x, kind="stable")[:k]


def power(length, penalty):
    return F(float(length) ** penalty)


def search(case):
    K, V, max_new, ends = case["beams"], case["vocab"], case["max_new"], case["end_ids"]
    penalty = float(F(case["length_penalty"]))
    keep = max(2, 1 + len(ends)) * K
    running = np.full((K, max_new), -1)
    running_scores = np.full(K, NONE, F)
    running_scores[0] = 0
    places, scores, lengths = running.copy(), np.full(K, NONE, F), np.zeros(K, int)
    finished = np.zeros(K, bool)
    unsatisfied = True
    in_top = np.arange(keep) < K
    length = 0
    while True:
        rows = []
        for sequence in running:
            rows.append(row(case, sequence[:length]).astype(F))
        total = (np.stack(rows) + running_scores[:, None]).reshape(-1)
        index = top(total, keep)
        sums, sequences = total[index], running[index // V].copy()
        sequences[:, length] = index % V
        ended = np.isin(sequences[:, length], ends) | (length + 1 >= max_new)

        pushed = sums + ended.astype(F) * NONE
        chosen = top(pushed, K)
        running, running_scores = sequences[chosen], pushed[chosen]

        just = ended & in_top
        score = sums / power(length + 1, penalty)
        score = score + F(finished.all() and case["early"] == "true") * NONE
        score = score + F(not unsatisfied) * NONE
        score = score + (~just).astype(F) * NONE
        merged = np.concatenate([scores, score])
        chosen = top(merged, K)
        places = np.concatenate([places, sequences])[chosen]
        lengths = np.concatenate([lengths, np.full(keep, length + 1)])[chosen]
        finished = np.concatenate([finished, just])[chosen]
        scores = merged[chosen]

        length += 1
        hope = max_new if case["early"] == "never" and penalty > 0 else length
        possible = running_scores[0] / power(hope, penalty)
        worst = np.where(finished, scores.min(), NONE)
        unsatisfied = unsatisfied and bool((possible > worst).any())
        if not unsatisfied or ended.all() or (finished.all() and case["early"] == "true"):
            break
    returned = [(s[:n].tolist(), float(x)) for s, n, f, x in zip(places, lengths, finished, scores) if f]
    return length, returned[: case["returned"]]


def main():
    random = np.random.default_rng(17)
    cases = []
    for _ in range(480):
        K = int(random.integers(1, 9))
        ends = int(random.choice([0, 1, 1, 1, 2, 3]))
        V = int(random.choice([4, 7, 8, 11, 20, 50]))
        case = {
            "seed": int(random.integers(0, 1 << 31)), "beams": K, "vocab": V,
            "max_new": int(random.choice([1, 2, 3, 5, 8, 8, 14, 14])),
            "length_penalty": float(random.choice([-1, -0.5, 0, 0.6, 1, 1, 1.3, 2])),
            "early": str(random.choice(["false", "true", "never"])),
            "end_ids": sorted(random.choice(V, ends, replace=False).tolist()),
            "end_eighths": int(random.choice([-12, -8, -6, -2, 0, 4])),
            "grain": int(random.choice([4, 10, 20, 20])), "returned": int(random.integers(1, K + 1)),
        }
        case["steps"], results = search(case)
        case["ids"] = [ids for ids, _ in results]
        case["scores"] = [float(f"{score:.9g}") for _, score in results]
        cases.append(case)
    head = {"made_by": "tools/golden_beam.py", "meaning": "transformers 5.17.0", "numpy": np.__version__}
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


main()
