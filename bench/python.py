#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate() of the Python package beside transformers', in one process, by turns: greedy, batch 1. And a decoding loop
of one's own over proa.Session beside the engine's.

    python bench/python.py --make gpt2 t5-small    # random models of the shapes into --folder; then measures them
    python bench/python.py gpt2 t5-small           # measures, and appends to bench/results/python.csv
    python bench/python.py --device cuda --make t5-3b gpt2-xl    # to bench/results/python_gpu.csv

Needs torch, transformers, and the package proa. Each side runs `--rounds` times after a warm-up; the median counts. The
first row of a shape is transformers in float32, on a GPU in float16; the others are proa with the options of the row.
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
T5_3B = {"d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 32}
SHAPES = {
    "gpt2": (transformers.GPT2Config, {}),
    "gpt2-xl": (transformers.GPT2Config, {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "t5-small": (transformers.T5Config, {}),
    "t5-base": (transformers.T5Config, {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "t5-3b": (transformers.T5Config, T5_3B),
}
THEIRS = {"cpu": "float32", "cuda": "float16"}
SIDES = {
    "cpu": [{"dtype": "f32"}, {"dtype": "bf16"}, {"dtype": "f32", "quant": "int8"}],
    "cuda": [{"dtype": "f16"}],
}


def make(shape, options):
    """Random weights, made on the device and stored in the type in which transformers runs them."""
    kind, values = SHAPES[shape]
    torch.manual_seed(1)
    auto = transformers.AutoModelForSeq2SeqLM if shape.startswith("t5") else transformers.AutoModelForCausalLM
    config = kind(**values, decoder_start_token_id=0) if shape.startswith("t5") else kind(**values)
    with torch.device(options.device):
        model = auto.from_config(config, dtype=getattr(torch, THEIRS[options.device]))
    model.save_pretrained(options.folder / shape)


def device_name(options):
    if options.device == "cuda":
        return torch.cuda.get_device_name()
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def once(model, ids, tokens):
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False).cpu()
    return time.perf_counter() - begin, out


def open_proa(shape, options, side):
    name = "AutoModelForSeq2SeqLM" if shape.startswith("t5") else "AutoModelForCausalLM"
    return getattr(proa, name).from_pretrained(
        options.folder / shape, max_num_seqs=1, device=options.device, kv_tokens=4096, **side
    )


def measure(shape, options):
    """[(package, options, seconds), ...]"""
    auto = transformers.AutoModelForSeq2SeqLM if shape.startswith("t5") else transformers.AutoModelForCausalLM
    dtype = getattr(torch, THEIRS[options.device])
    theirs = auto.from_pretrained(options.folder / shape, dtype=dtype).to(options.device).eval()
    sides = [("transformers", THEIRS[options.device], theirs)]
    for side in SIDES[options.device]:
        sides.append(("proa", " ".join(side.values()), open_proa(shape, options, side)))
    ids = torch.tensor(np.random.RandomState(3).randint(3, 30000, (1, options.prompt)), device=options.device)
    times = {side: [] for side in range(len(sides))}
    outs = [once(model, ids, options.tokens)[1] for _, _, model in sides]
    same = int((outs[0] == outs[1]).long().cumprod(1).sum())
    print(f"{shape:10} the first {same} of {outs[0].shape[1]} ids are the same")
    assert options.device != "cpu" or torch.equal(outs[0], outs[1]), "the ids of float32 differ"
    for _ in range(options.rounds):
        for side, (_, _, model) in enumerate(sides):
            times[side].append(once(model, ids, options.tokens)[0])
    rows = [(package, text, statistics.median(times[i]) / options.tokens) for i, (package, text, _) in enumerate(sides)]
    return rows + measure_steps(shape, options, sides[1], ids)


def own_loop(session, model, ids, tokens):
    """Seconds a token of a greedy loop: a step, argmax where the logits are, and the next step."""
    session.truncate(0)
    if model.engine.info["kind"] == "encoder-decoder":
        session.encode(ids[0])
        ids = ids.new_full((1, 1), model.engine.info["decoder_start_id"])
    token = session.step(ids).argmax(-1)
    int(token[0])
    begin = time.perf_counter()
    for _ in range(tokens):
        token = session.step(token[:, None]).argmax(-1)
    int(token[0])
    return (time.perf_counter() - begin) / tokens


def engine_loop(model, ids, tokens):
    """Seconds a token of the engine's own loop, the prompt left out."""
    short, long = once(model, ids, 2)[0], once(model, ids, tokens + 2)[0]
    return (long - short) / tokens


def measure_steps(shape, options, side, ids):
    """A token of the engine's own loop and of one over a session, in turns."""
    _, text, model = side
    times = {"engine": [], "session": []}
    with proa.Session(model) as session:
        own_loop(session, model, ids, options.tokens)
        for _ in range(max(3, options.rounds)):
            times["engine"].append(engine_loop(model, ids, options.tokens))
            times["session"].append(own_loop(session, model, ids, options.tokens))
    return [("proa", f"{text} {loop}", statistics.median(seconds)) for loop, seconds in times.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []])
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/proa-bench-python"))
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    for shape in options.shapes:
        if options.make:
            make(shape, options)
        load = os.getloadavg()[0]
        rows = measure(shape, options)
        path = ROOT / "bench/results" / ("python.csv" if options.device == "cpu" else "python_gpu.csv")
        new = not path.exists()
        with path.open("a", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            if new:
                out.writerow("date commit device threads load shape prompt tokens package dtype ms_token ratio".split())
            for package, dtype, seconds in rows:
                row = [datetime.date.today(), commit.stdout.strip(), device_name(options), torch.get_num_threads()]
                row += [f"{load:.1f}", shape, options.prompt, options.tokens, f"{package} {version(package)}", dtype]
                out.writerow([*row, f"{1e3 * seconds:.2f}", f"{rows[0][2] / seconds:.2f}"])
                print(f"{shape:10} {package:12} {dtype:14} {1e3 * seconds:8.2f} ms/token  x{rows[0][2] / seconds:.2f}")


def version(package):
    return transformers.__version__ if package == "transformers" else proa.__version__


if __name__ == "__main__":
    main()
