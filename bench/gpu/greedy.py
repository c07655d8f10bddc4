#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of a GPU in f32, f16 and bf16 against the CPU's in f32: the same, but where two tokens are nearly as likely.

Of the trained models (models/, and where they are classics-3m and classics-28m of PROA_SHARED or ../shared) and of the golden
checkpoints of random weights. Where a sequence first takes another token the gap is told: the two best logits of the CPU's f32
there, one less the other. A line fails when a gap is larger than its bound: TIMES_ERROR times the largest difference of
log-probabilities that this type shows anywhere (five best tokens, same context), and never more than LARGEST.

    bench/gpu/greedy.py [--device cuda] [--dtypes f32,f16,bf16] [--together 16,64] [--no-arch] [--models FOLDER,...]

A type's tokens are those of a run without log-probabilities (chosen on the card, a step ahead); another run with them gives the
differences. --together: sequences at once; beyond 16 rows registers are of 16 bits. PROA_BIN names the program. Exit 1 when a line
fails."""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import card

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA, ARCH = ROOT / "tests/golden/data", ROOT / "tests/golden/arch"
TIMES_ERROR = 4  # two logits may each be off by the error, in opposite ways; and as much again for what was not met
LARGEST = {"f32": 1e-3, "f16": 0.05, "bf16": 0.25}
TOP = 5
AT_ONCE = 6  # models that share the card: nothing is timed


def english(count):
    """Captions of Multi30k's test set as m30k-t5 wants them."""
    with gzip.open(DATA / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [{"prompt": "translate English to German: " + line} for line in lines[::max(1, len(lines) // count)][:count]]


def beginnings(count):
    """First twelve words of paragraphs of the books that the language models were not trained on."""
    with gzip.open(DATA / "classics-validation.txt.gz", "rt", encoding="utf-8") as file:
        paragraphs = [p.split() for p in re.split(r"\n\s*\n", file.read())]
    long = [" ".join(words[:12]) for words in paragraphs if len(words) >= 40]
    return [{"prompt": text} for text in long[::max(1, len(long) // count)][:count]]


def ids_of(folder):
    """Prompts of a golden checkpoint; none of an encoder."""
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    if golden["kind"] not in ("lm", "s2s"):
        return []
    return [{"ids": case["input_ids"]} for case in golden["cases"]]


def generate(program, folder, prompts, device, dtype, tokens, together, *options):
    """The lines of `proa run --json`, or None with the reason said."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
        file.flush()
        command = [program, "run", str(folder), "--input", file.name, "--json", "--device", device, "--dtype", dtype,
                   "--max-tokens", str(tokens), "--sequences", str(together), "--temperature", "0", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        print(f"  {folder.name} {device} {dtype}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return [json.loads(line) for line in done.stdout.splitlines()]


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def gap(right, at):
    """Of the two best logits; a list that ended before has none."""
    best = right["top_logprobs"][at]
    return best[0][1] - best[1][1]


def gaps_of(right, mine):
    """Where each sequence first takes another token: the f32 gap there."""
    found = []
    for r, m in zip(right, mine):
        at = common(r["ids"], m["ids"])
        if at < len(r["ids"]) or at < len(m["ids"]):
            found.append(gap(r, at) if at < len(r["ids"]) else float("inf"))
    return sorted(found)


def largest_error(right, mine):
    """Of the log-probabilities of tokens that both name, while the contexts are the same."""
    worst = 0.0
    for r, m in zip(right, mine):
        for a, b in list(zip(r["top_logprobs"], m["top_logprobs"]))[:common(r["ids"], m["ids"]) + 1]:
            other = dict(b)
            worst = max([worst] + [abs(value - other[token]) for token, value in a if token in other])
    return worst


def report(name, dtype, together, right, mine, scored, most):
    """A line, and whether it holds."""
    gaps, error = gaps_of(right, mine), largest_error(right, scored)
    bound = min(TIMES_ERROR * error, most)
    before = sum(common(r["ids"], m["ids"]) for r, m in zip(right, mine))
    tokens = sum(len(r["ids"]) for r in right)
    holds = not gaps or gaps[-1] <= bound
    text = (f"{name:<14}{dtype:<6}{together:>8}{f'{len(right) - len(gaps)}/{len(right)}':>10}{f'{before}/{tokens}':>12}"
            f"{error:>10.1e}{bound:>10.1e}{f'{gaps[-1]:.1e}' if gaps else '-':>10}  {'ok' if holds else 'DIFFERS'}")
    return text + ("\n    gaps: " + " ".join(f"{g:.2g}" for g in gaps) if gaps else ""), holds


def check(program, args, folder, prompts, tokens, *options):
    """All types of one model: lines, and whether all hold."""
    scores = ("--top-logprobs", str(TOP))
    right = generate(program, folder, prompts, "cpu", "f32", tokens, 16, *options, *scores)
    lines, holds = [], right is not None
    for dtype in args.dtypes.split(",") if right else ():
        for together in [int(n) for n in args.together.split(",")]:
            if together > max(16, len(prompts)):
                continue
            mine = generate(program, folder, prompts, args.device, dtype, tokens, together, *options)
            scored = generate(program, folder, prompts, args.device, dtype, tokens, together, *options, *scores)
            text, well = (f"{folder.name:<14}{dtype:<6}no tokens", False)
            if mine is not None and scored is not None:
                text, well = report(folder.name, dtype, together, right, mine, scored, LARGEST[dtype])
            lines.append(text)
            holds = holds and well
    return lines, holds


def trained_models(args):
    """(folder, prompts, new tokens); those that are not here are named."""
    shared = pathlib.Path(os.environ.get("PROA_SHARED", str(ROOT.parent / "shared"))) / "models"
    wanted = [ROOT / "models/m30k-t5", ROOT / "models/classics-10m", shared / "classics-3m", shared / "classics-28m"]
    if args.models is not None:
        wanted = [pathlib.Path(folder) for folder in args.models.split(",") if folder]
    for folder in wanted:
        if not (folder / "config.json").exists():
            print(f"  no {folder}: left out", file=sys.stderr)
        elif "t5" in folder.name:
            yield folder, english(2 * args.prompts), 64
        else:
            yield folder, beginnings(args.prompts), 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", default="f32,f16,bf16")
    parser.add_argument("--together", default="16,64")
    parser.add_argument("--prompts", type=int, default=64, help="of a language model; of a translator twice as many")
    parser.add_argument("--models", help="these trained models in place of those found, between commas")
    parser.add_argument("--no-arch", action="store_true", help="without the golden checkpoints")
    return parser.parse_args()


def main():
    args = arguments()
    card.needed(args.device)
    program = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    work = list(trained_models(args))
    for folder in () if args.no_arch else sorted(ARCH.iterdir()):
        work += [(folder, prompts, 24, "--ignore-eos") for prompts in [ids_of(folder)] if prompts]
    print(f"{'model':<14}{'type':<6}{'together':>8}{'same':>10}{'tokens':>12}{'error':>10}{'bound':>10}{'gap':>10}", flush=True)
    holds = True
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        os.environ["XDG_CACHE_HOME"] = cache  # what is timed on a shared card is for nobody else
        for lines, well in pool.map(lambda w: check(program, args, *w), work):
            print("\n".join(lines), flush=True)
            holds = holds and well
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
