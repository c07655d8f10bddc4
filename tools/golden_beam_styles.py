#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/beam_styles.json: beam searches in the styles of FasterTransformer and TensorRT-LLM.

Their rules stated again from the kernels' formulas (FasterTransformer df4a753: online_softmax_beamsearch_kernels.cu,
beam_search_topk_kernels.cu, decoding_kernels.cu; TensorRT-LLM 2025: beamSearchKernelsTemplate.h, decodingKernels.cu),
in numpy and f64, with whole sequences and all candidates of a step in one list; see src/engine/decode/beam.h for the two
readings of TensorRT-LLM. The made-up model is that of beam_table_model.py.
The engine computes in f32, so a case is left out when a decision in it hangs on a difference that f32 could lose.
Needs numpy only:  python3 tools/golden_beam_styles.py > tests/golden/beam_styles.json
"""
import json

import numpy as np

from beam_table_model import row

DEAD = -1.0e20


class Risk(Exception):
    """A decision within rounding of f32."""


class Search:
    def __init__(self, case):
        self.__dict__.update(case)
        self.case = case
        self.ends = set(case["end_ids"])
        self.count = max(2, 1 + len(self.ends)) * self.beams
        self.exact_sums = case["grain"] <= 10
        # a running beam: [tokens], sum, length, ended
        self.running = [[(), 0.0 if i == 0 else DEAD, 0, False] for i in range(self.beams)]
        self.pool = []  # [score, sum, tokens]
        self.done = False

    def norm(self, value, length):
        return value if self.length_penalty == 0 or length == 1 else value / float(length) ** self.length_penalty

    def compare(self, a, b):
        """a - b, where a and b are scores; equal ones must come of equal sums."""
        if self.exact_sums and self.length_penalty == 0:
            return a - b
        if abs(a - b) < 1e-5 * max(1, abs(a), abs(b)):
            raise Risk
        return a - b

    def row(self, tokens):
        return row(self.case, tokens)

    def candidates(self, length):
        out = []
        first = self.running[0]
        for beam, (tokens, total, _, ended) in enumerate(self.running):
            if ended:
                listed = [(tokens[-1], 0.0)]
            else:
                values = self.row(tokens)
                order = np.argsort(-values, kind="stable")[: self.count]
                listed = [(int(t), float(values[t])) for t in order]
            for rank, (token, value) in enumerate(listed):
                total_new = total + value
                if self.style == "trtllm":
                    key, term = total_new, self.diversity_rate * beam
                else:
                    if self.with_pool:
                        n = length
                    else:
                        n = self.prompt_tokens - 1 + (first[2] if first[3] else length)
                    key, term = self.norm(total_new, n), self.diversity_rate * (rank % self.beams)
                out.append((key + term, beam, rank, token, total_new, term))
        out.sort(key=lambda c: (-c[0], c[1], c[2]))
        out = out[: self.count + 1]
        for a, b in zip(out, out[1:]):
            same = self.exact_sums and a[4] == b[4] and a[5] == b[5]
            if not same and a[4] > DEAD / 2 and b[4] > DEAD / 2:
                if not (self.exact_sums and (self.length_penalty == 0 or self.style == "trtllm")):
                    self.compare(a[0], b[0])
        return out[: self.count]

    def enter(self, score, total, tokens):
        """False when the walk ends."""
        if len(self.pool) < self.beams:
            self.pool.append([score, total, tokens])
            return True
        worst = min(range(self.beams), key=lambda i: self.pool[i][0])
        if self.compare(score, self.pool[worst][0]) < 0:
            return self.style == "trtllm" and self.early != "true"
        self.pool[worst] = [score, total, tokens]
        return True

    def step(self, length):
        best = self.candidates(length)
        running = []
        if self.style == "ft" and not self.with_pool:
            for _, beam, _, token, total, _ in best[: self.beams]:
                tokens, _, lived, ended = self.running[beam]
                running.append([tokens + (token,), total, lived if ended else length, token in self.ends])
            self.running = running
            self.done = all(r[3] for r in running)
            return
        for rank, (key, beam, _, token, total, _) in enumerate(best):
            tokens = self.running[beam][0] + (token,)
            if token in self.ends:
                score = key if self.style == "ft" else self.norm(total, length)
                if rank < self.beams and not self.enter(score, total, tokens):
                    break
            else:
                running.append([tokens, total, length, False])
            if len(running) == self.beams:
                break
        self.running = running
        if len(self.pool) < self.beams:
            return
        if self.style == "ft" or self.early == "true":
            self.done = True
            return
        hope = self.max_new if self.early == "never" and self.length_penalty > 0 else length
        attainable = self.norm(best[0][0], hope)
        self.done = self.compare(min(p[0] for p in self.pool), attainable) >= 0

    def search(self):
        length = 0
        while not self.done and length < self.max_new:
            length += 1
            self.step(length)
        if self.style == "ft" and not self.with_pool:
            results = [(list(t[:n]), self.norm(s, self.prompt_tokens - 1 + n), s) for t, s, n, _ in self.running]
        else:
            if not self.done:
                self.pool += [[self.norm(s, n), s, t] for t, s, n, _ in self.running]
            self.pool.sort(key=lambda p: -p[0])
            for a, b in zip(self.pool, self.pool[1:]):
                if min(a[1], b[1]) > DEAD / 2 and (a[1] != b[1] or len(a[2]) != len(b[2])):
                    self.compare(a[0], b[0])
            results = [(list(t), p, s) for p, s, t in self.pool[: self.beams]]
        return length, [r for r in results if r[2] > DEAD / 2][: self.returned]


def make_case(random):
    style = str(random.choice(["ft", "ft", "trtllm"]))
    K = int(random.integers(1, 9))
    ends = int(random.choice([0, 1, 1, 1, 1, 2]))
    V = int(random.choice([4, 7, 11, 20, 50]))
    large = random.random() < 0.02
    if large:
        K, V = int(random.choice([33, 64])), 90
    rate = float(random.choice([0, 0, 0.25, 0.125, 0.5, 1])) * (1 if style == "trtllm" else random.choice([1, -1]))
    return {
        "style": style, "seed": int(random.integers(0, 1 << 31)), "beams": K, "vocab": V,
        "max_new": 4 if large else int(random.choice([1, 2, 3, 5, 8, 12])),
        "length_penalty": float(random.choice([-1, 0, 0, 0.5, 1, 1, 2])),
        "early": str(random.choice(["false", "true", "never"])), "with_pool": bool(random.random() < 0.6),
        "diversity_rate": rate, "prompt_tokens": int(random.choice([1, 1, 2, 7])),
        "end_ids": sorted(random.choice(V, ends, replace=False).tolist()),
        "end_eighths": int(random.choice([-40, -28, -20, -12, -8, -4, 0])), "grain": int(random.choice([4, 8, 10, 20])),
        "returned": min(K, int(random.integers(1, 5))),
    }


def main():
    random = np.random.default_rng(29)
    cases, left_out = [], 0
    while len(cases) < 420:
        case = make_case(random)
        try:
            case["steps"], results = Search(case).search()
        except Risk:
            left_out += 1
            continue
        case["ids"] = [ids for ids, _, _ in results]
        case["scores"] = [float(f"{score:.7g}") for _, score, _ in results]
        case["sums"] = [float(f"{total:.7g}") for _, _, total in results]
        cases.append(case)
    head = {"made_by": "tools/golden_beam_styles.py", "numpy": np.__version__, "left_out": left_out}
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
