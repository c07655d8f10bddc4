#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every row of the model table on a GPU against its golden checkpoint (tests/golden/arch), in each type.

Prints a line for each row and type: the largest difference of any output over the largest output, the same on the CPU, of
log-probabilities, of beam scores, and how many greedy tokens and beams are the reference's. f32 must hold the tolerance of the
CPU's tests (1e-4) and all tokens. f16 and bf16 round: they must not be off by more than 3 times what the CPU is in that type; their
tokens are shown, not judged: these checkpoints are random, and their logits close. Exit 1 when one does not hold.

    bench/gpu/goldens.py [--device cuda] [--golden FOLDER] [--dtypes f32,f16,bf16] [ROW...]

PROA_BIN names the program."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import card

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMES_CPU = 3


def evaluate(program, folder, device, dtype):
    """The report of `proa eval --golden`, or the reason why there is none."""
    command = [program, "eval", folder, "--golden", folder, "--device", device, "--dtype", dtype]
    done = subprocess.run(command + ["--json"], capture_output=True, text=True, timeout=300)
    try:
        return json.loads(done.stdout), None
    except ValueError:
        return None, (done.stderr.strip().splitlines() or ["no output"])[-1]


def total(report, key):
    return sum(case[key] for case in report["cases"])


def largest(report, key):
    return max((case[key] for case in report["cases"] if case[key] is not None), default=None)


def shown(value):
    return "-" if value is None else f"{value:.1e}"


def holds(dtype, report, cpu):
    if dtype == "f32":
        return report["passed"]
    return largest(report, "difference") <= TIMES_CPU * largest(cpu, "difference")


def line(row, dtype, report, cpu):
    columns = [largest(r, key) for r, key in ((report, "difference"), (cpu, "difference"), (report, "logprob_difference"),
                                              (report, "score_difference"))]
    greedy = f"{total(report, 'greedy_same')}/{total(report, 'greedy')}"
    beams = f"{total(report, 'beams_same')}/{total(report, 'beams')}"
    numbers = "".join(f"{shown(c):>10}" for c in columns)
    return f"{row:<14}{dtype:<6}{numbers}{greedy:>9}{beams:>8}  {'ok' if holds(dtype, report, cpu) else 'DIFFERS'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--golden", type=pathlib.Path, default=ROOT / "tests/golden/arch")
    parser.add_argument("--dtypes", default="f32,f16,bf16")
    args = parser.parse_args()
    card.needed(args.device)
    program = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    failed = False
    print(f"{'row':<14}{'type':<6}{'outputs':>10}{'on CPU':>10}{'logprobs':>10}{'scores':>10}{'greedy':>9}{'beams':>8}")
    for row in args.rows or sorted(p.name for p in args.golden.iterdir()):
        for dtype in args.dtypes.split(","):
            report, reason = evaluate(program, str(args.golden / row), args.device, dtype)
            cpu, _ = evaluate(program, str(args.golden / row), "cpu", dtype)
            print(line(row, dtype, report, cpu) if report and cpu else f"{row:<14}{dtype:<6}{reason}", flush=True)
            failed |= not (report and cpu and holds(dtype, report, cpu))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
