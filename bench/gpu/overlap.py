#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do kernels that overlap give what they give one by one? Models of true size, each format, to the bit.

With PROA_TRACE=1 each kernel waits for the one before and nothing is recorded; without it kernels start early, branches run
beside, passes are recorded. Both have the same arithmetic, so tokens and log-probabilities must be the same to the last bit.
kerncheck and the small golden models cannot tell: what is large enough to stay on the card while others begin is not in them.
Texts of 60 tokens, an encoder's too, with PROA_TUNE=own: which algorithm of cuBLASLt is taken would depend on the clock.

    bench/gpu/overlap.py [--models gptj-6b,llama2-7b,...] [--quants none,fp8,int8,int4] [--tokens 24] [--times 2] [--device cuda]

A model is a name of --synthetic or a folder. One sequence, two beams, a text. PROA_BIN names the program. Exit 1 when a line differs."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import card

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = "gptj-6b,llama2-7b,llama3-8b,gpt2-xl,t5-3b,t5-small,bert-large"
IDS = "100 19 8 1 77 40 23 9 112 33"
TEXT = " ".join(str(7 + 37 * i % 9000) for i in range(60))
ENCODERS = ("bert-large",)
LIMIT = 120  # seconds of one run


def is_encoder(model):
    config = pathlib.Path(model) / "config.json"
    return model in ENCODERS or (config.exists() and json.loads(config.read_text(encoding="utf-8")).get("model_type") == "bert")


def answer(program, model, quant, rows, args, **environment):
    """What a run says of its tokens; None with the reason said."""
    named = [model] if pathlib.Path(model).exists() else ["--synthetic", model]
    chosen = ["--beams", "2"] if rows == "2 beams" else ["--top-logprobs", "2"]
    tokens = [] if is_encoder(model) else ["--max-tokens", str(args.tokens), "--ignore-eos", *chosen]
    command = [program, "run", *named, "--device", args.device, "--quant", quant, "--ids", TEXT if rows == "text" else IDS, "--json", *tokens]
    if rows == "text":
        environment["PROA_TUNE"] = "own"
        if quant == "none":
            command += ["--dtype", "f16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **environment}, check=False)
    if done.returncode:
        print(f"  {model} {quant}: {done.stderr.strip()[-200:]}", file=sys.stderr)
        return None
    said = json.loads(done.stdout)
    return {name: value for name, value in said.items() if not name.endswith("_s")}  # but times


def first_difference(right, mine):
    """Where tokens part, or that only numbers do."""
    pairs = list(zip(right.get("ids", []), mine.get("ids", [])))
    for i, (a, b) in enumerate(pairs):
        if a != b:
            return f"token {i + 1} is {b}, alone {a}"
    return "the tokens are the same, numbers differ" if pairs else "numbers differ"


def check(program, model, quant, rows, args):
    """Prints a line; is it the same each time?"""
    right = answer(program, model, quant, rows, args, PROA_TRACE="1")
    mine = [answer(program, model, quant, rows, args) for _ in range(args.times)]
    wrong = [m for m in mine if right is None or m is None or m != right]
    failed = right is None or None in mine
    verdict = "ok" if not wrong else "a run failed" if failed else first_difference(right, wrong[0])
    print(f"{pathlib.Path(model).name:<14}{quant:<6}{rows:<9}{len(mine) - len(wrong)} of {len(mine)}  {verdict}", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS, help="names of --synthetic, or folders, between commas")
    parser.add_argument("--quants", default="none,fp8,int8,int4")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--times", type=int, default=2, help="runs compared with the one of PROA_TRACE=1")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    card.needed(args.device)
    program = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    print(f"{'model':<14}{'quant':<6}{'rows':<9}same")
    lines = [check(program, model, quant, rows, args) for model in args.models.split(",") for quant in args.quants.split(",")
             for rows in (("text",) if is_encoder(model) else ("1", "2 beams", "text"))]
    sys.exit(0 if all(lines) else 1)


if __name__ == "__main__":
    main()
