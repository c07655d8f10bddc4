#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every row of the model table on a GPU against its golden checkpoint (tests/golden/arch), in each type.

Prints a line for each row and type: the largest difference of any output over the largest output, of log-probabilities, of
beam scores, and how many greedy tokens and beams are the reference's. f32 must hold the tolerance of the CPU's tests (1e-4) and
all tokens; f16 and bf16 round, so theirs is looser and a token may differ where two logits were that close. Exit 1 when f32 fails.

    bench/gpu/goldens.py [--device cuda] [--golden FOLDER] [--dtypes f32,f16,bf16] [ROW...]

PROA_BIN names the program."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 1.5e-1}


def evaluate(program, folder, device, dtype):
    """The report of `proa eval --golden`, or the reason why there is none."""
    command = [program, "eval", folder, "--golden", folder, "--device", device, "--dtype", dtype]
    done = subprocess.run(command + ["--tolerance", str(TOLERANCE[dtype]), "--json"], capture_output=True, text=True, timeout=300)
    try:
        return json.loads(done.stdout), None
    except ValueError:
        return None, (done.stderr.strip().splitlines() or ["no output"])[-1]


def total(report, key):
    return sum(case[key] for case in report["cases"])


def largest(report, key):
    values = [case[key] for case in report["cases"] if case[key] is not None]
    return f"{max(values):.1e}" if values else "-"


def line(row, dtype, report):
    greedy = f"{total(report, 'greedy_same')}/{total(report, 'greedy')}"
    beams = f"{total(report, 'beams_same')}/{total(report, 'beams')}"
    return (f"{row:<14}{dtype:<6}{largest(report, 'difference'):>10}{largest(report, 'logprob_difference'):>10}"
            f"{largest(report, 'score_difference'):>10}{greedy:>9}{beams:>8}  {'ok' if report['passed'] else 'DIFFERS'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--golden", type=pathlib.Path, default=ROOT / "tests/golden/arch")
    parser.add_argument("--dtypes", default="f32,f16,bf16")
    args = parser.parse_args()
    program = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    failed = False
    print(f"{'row':<14}{'type':<6}{'outputs':>10}{'logprobs':>10}{'scores':>10}{'greedy':>9}{'beams':>8}")
    for row in args.rows or sorted(p.name for p in args.golden.iterdir()):
        for dtype in args.dtypes.split(","):
            report, reason = evaluate(program, str(args.golden / row), args.device, dtype)
            print(line(row, dtype, report) if report else f"{row:<14}{dtype:<6}{reason}", flush=True)
            failed |= dtype == "f32" and not (report and report["passed"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
