#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures perplexities of a decoder quantised by `proa convert --calibrate`, on books that the calibration has not seen.

    bench/calibrated.py --model ../shared/models/classics-28m [--proa PROGRAM] [--only "int4 gptq 32,fp8 gptq"] [--folder FOLDER]

The validation text of the classics is cut: its first 400,000 characters calibrate, the books that begin after them
measure. All rows of one run are on one machine, so their changes can be compared. They go to results/quality.csv.
"""
import argparse
import csv
import datetime
import gzip
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = ROOT / "tests/golden/data/classics-validation.txt.gz"
CALIBRATE, SEPARATOR = 400_000, "-------\n"
FORMS = {
    "int4 rtn 128": ["--quant", "int4", "--method", "rtn", "--group", "128"],
    "int4 gptq 128": ["--quant", "int4", "--method", "gptq", "--group", "128"],
    "int4 awq-gptq 128": ["--quant", "int4", "--method", "awq-gptq", "--group", "128"],
    "int4 awq-gptq 64": ["--quant", "int4", "--method", "awq-gptq", "--group", "64"],
    "int4 gptq 32": [],
    "int8 gptq": ["--quant", "int8"],
    "int8 smoothquant": ["--quant", "int8", "--method", "smoothquant"],
    "fp8 gptq": ["--quant", "fp8"],
}


def cut(folder):
    text = gzip.open(TEXT, "rt", encoding="utf-8", newline="").read()
    (folder / "calibrate.txt").write_text(text[:CALIBRATE], encoding="utf-8", newline="")
    (folder / "measure.txt").write_text(text[text.index(SEPARATOR, CALIBRATE):], encoding="utf-8", newline="")


def run(*command):
    return json.loads(subprocess.run([*map(str, command), "--json"], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--proa", default=ROOT / "build/release/proa")
    parser.add_argument("--only", default=",".join(FORMS))
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the quantised models")
    args = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    source = None
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or pathlib.Path(temporary)
        cut(folder)
        for form in ["as stored (bf16)", *args.only.split(",")]:
            model = args.model
            if form in FORMS:
                model = folder / form.replace(" ", "-")
                run(args.proa, "convert", args.model, model, "--calibrate", folder / "calibrate.txt", "--overwrite", *FORMS[form])
            o = run(args.proa, "eval", model, "--data", folder / "measure.txt")
            source = source or o["perplexity"]
            row = [datetime.date.today(), commit, "x86-64 CPU", args.model.name, form + (", calibrated" if form in FORMS else ""),
                   o["tokens"], o["nll"], o["perplexity"], round(100 * (o["perplexity"] / source - 1), 3)]
            with open(ROOT / "bench/results/quality.csv", "a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(row)
            print(*row[4:], flush=True)


if __name__ == "__main__":
    main()
