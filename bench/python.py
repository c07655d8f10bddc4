#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate() of the Python package beside transformers', in one process, by turns: greedy, batch 1.

    python bench/python.py --make                  # random models of the shapes into --folder
    python bench/python.py gpt2 t5-small           # measures, and appends to bench/results/python.csv

Needs torch, transformers, and the package proa. Each side runs `--rounds` times after a warm-up; the median counts. The
first row of a shape is transformers in float32; the others are proa with the options of the row.
"""
import argparse
import csv
import datetime
import os
import pathlib
import statistics
import subprocess
import time

import numpy as np
import torch
import transformers

import proa

ROOT = pathlib.Path(__file__).parents[1]
SHAPES = {
    "gpt2": (transformers.GPT2Config, {}),
    "t5-small": (transformers.T5Config, {}),
    "t5-base": (transformers.T5Config, {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
}
SIDES = [{"dtype": "f32"}, {"dtype": "bf16"}, {"dtype": "f32", "quant": "int8"}]


def make(folder, shape):
    kind, values = SHAPES[shape]
    torch.manual_seed(1)
    auto = transformers.AutoModelForSeq2SeqLM if shape.startswith("t5") else transformers.AutoModelForCausalLM
    config = kind(**values, decoder_start_token_id=0) if shape.startswith("t5") else kind(**values)
    auto.from_config(config).save_pretrained(folder / shape)


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def once(model, ids, tokens):
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
    return time.perf_counter() - begin, out


def measure(folder, shape, options):
    """[(package, options, seconds), ...]"""
    name = "Seq2SeqLM" if shape.startswith("t5") else "CausalLM"
    theirs = getattr(transformers, "AutoModelFor" + name).from_pretrained(folder / shape, dtype=torch.float32).eval()
    sides = [("transformers", "f32", theirs)]
    for side in SIDES:
        model = getattr(proa, "AutoModelFor" + name).from_pretrained(folder / shape, max_num_seqs=1, **side)
        sides.append(("proa", " ".join(side.values()), model))
    ids = torch.tensor(np.random.RandomState(3).randint(3, 30000, (1, options.prompt)))
    times = {side: [] for side in range(len(sides))}
    outs = [once(model, ids, options.tokens)[1] for _, _, model in sides]
    assert torch.equal(outs[0], outs[1]), "the ids of float32 differ"
    for _ in range(options.rounds):
        for side, (_, _, model) in enumerate(sides):
            times[side].append(once(model, ids, options.tokens)[0])
    return [(package, text, statistics.median(times[i])) for i, (package, text, _) in enumerate(sides)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []])
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/proa-bench-python"))
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.make:
        for shape in SHAPES:
            make(options.folder, shape)
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    for shape in options.shapes:
        load = os.getloadavg()[0]
        rows = measure(options.folder, shape, options)
        path = ROOT / "bench/results/python.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            if new:
                out.writerow("date commit cpu threads load shape prompt tokens package dtype ms_token ratio".split())
            for package, dtype, seconds in rows:
                per_token = 1e3 * seconds / options.tokens
                row = [datetime.date.today(), commit.stdout.strip(), cpu_name(), torch.get_num_threads(), f"{load:.1f}"]
                row += [shape, options.prompt, options.tokens, f"{package} {version(package)}", dtype]
                out.writerow([*row, f"{per_token:.2f}", f"{rows[0][2] / seconds:.2f}"])
                print(f"{shape:10} {package:12} {dtype:10} {per_token:8.2f} ms/token  x{rows[0][2] / seconds:.2f}")


def version(package):
    return transformers.__version__ if package == "transformers" else proa.__version__


if __name__ == "__main__":
    main()
