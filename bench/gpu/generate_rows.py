#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate() of the Python package with tensors of torch on the GPU and on the host, in turns: ids alone, and ids with
scores and logits; greedy, sampled, with beams.

    python bench/gpu/generate_rows.py      # gpt2-xl with random weights, f16; appends to bench/results/generate_gpu.csv

Needs torch, transformers and the packages proa and proa_cuda (or PROA_LIBRARY, PROA_CUDA_PLUGIN).
"""
import argparse
import csv
import datetime
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
import transformers

import proa

ROOT = pathlib.Path(__file__).parents[2]
ROWS = {"output_scores": True, "output_logits": True, "return_dict_in_generate": True}
SEARCHES = {"greedy": {}, "sampled": {"do_sample": True, "top_k": 50, "top_p": 0.9}, "4 beams": {"num_beams": 4}}
HEADER = "date device commit search batch outputs tensors ms_token least most".split()


def make(folder):
    torch.manual_seed(1)
    with torch.device("cuda"):
        config = transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    model.save_pretrained(folder)


def once(model, ids, tokens, options):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    model.generate(ids, max_new_tokens=tokens, eos_token_id=-1, pad_token_id=50256, **options)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / tokens


def measure(model, batch, options, tokens, rounds):
    """{where the tensors are: milliseconds a token of each round}. The first two rounds do not count."""
    host = torch.tensor(np.random.RandomState(3).randint(3, 30000, (batch, 32)))
    sides = {"gpu": host.cuda(), "host": host}
    times = {name: [] for name in sides}
    for _ in range(rounds + 2):
        for name, ids in sides.items():
            times[name].append(once(model, ids, tokens, options))
    return {name: values[2:] for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    path = ROOT / "bench/results/generate_gpu.csv"
    new = not path.exists()
    with tempfile.TemporaryDirectory() as folder, path.open("a", newline="") as file:
        make(folder)
        model = proa.AutoModelForCausalLM.from_pretrained(
            folder, dtype="f16", device="cuda", max_num_seqs=32, kv_tokens=16384
        )
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow(HEADER)
        begin = [datetime.date.today(), torch.cuda.get_device_name(), commit.stdout.strip()]
        for batch in (1, 8):
            for search, how in SEARCHES.items():
                for outputs, wanted in (("ids", {}), ("rows", ROWS)):
                    times = measure(model, batch, {**how, **wanted}, options.tokens, options.rounds)
                    for where, values in times.items():
                        numbers = [f"{x:.3f}" for x in (statistics.median(values), min(values), max(values))]
                        out.writerow([*begin, search, batch, outputs, where, *numbers])
                        print(f"{search:8} batch {batch} {outputs:4} {where:4} {numbers[0]} ms a token")
        model.close()


if __name__ == "__main__":
    main()
