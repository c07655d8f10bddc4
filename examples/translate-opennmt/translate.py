#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translates a test set with an OpenNMT-py transformer in f32, f16 and bf16 and measures BLEU, as FasterTransformer's
example examples/pytorch/decoding/translate_example.py does.

    translate.py MODEL SOURCE TARGET [--dtype f32,f16,bf16] [--beams 4] [--pieces] [--output FOLDER]

MODEL is a folder with a checkpoint of OpenNMT-py, its SentencePiece model and its vocabulary. SOURCE and TARGET have a
sentence on each line, as text or, with --pieces, as SentencePiece pieces with blanks between (FasterTransformer's
test.en and test.de); such lines are joined first ("undo BPE"). Files may end in .gz. BLEU is sacrebleu's default. With
a threshold (--least X) the exit status is 1 if some BLEU is below it. Needs `proa` in the PATH, or --proa.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

MARK = "\u2581"  # SentencePiece writes it for a blank


def lines_of(path):
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def undo_pieces(line):
    """ "▁A ▁d og" is "A dog"."""
    return "".join(line.split()).replace(MARK, " ").strip()


def write_text(folder, name, path, pieces):
    lines = lines_of(path)
    text = [undo_pieces(line) for line in lines] if pieces else lines
    out = folder / name
    out.write_text("".join(line + "\n" for line in text), encoding="utf-8")
    return out


def translate(args, source, target, dtype, output):
    command = [
        args.proa,
        "eval",
        args.model,
        "--source",
        source,
        "--target",
        target,
        "--dtype",
        dtype,
        "--beams",
        str(args.beams),
        "--output",
        output,
        "--device",
        args.device,
        "--json",
    ]
    if args.limit:
        command += ["--limit", str(args.limit)]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--dtype", default="f32,f16,bf16", help="one or more of f32, f16, bf16")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--pieces", action="store_true", help="the lines of SOURCE and TARGET are SentencePiece pieces")
    parser.add_argument("--limit", type=int, default=0, help="only the first lines; 0: all")
    parser.add_argument("--least", type=float, default=0, help="exit with 1 if a BLEU is below it")
    parser.add_argument("--output", type=pathlib.Path, help="folder for the translations, hyp.DTYPE.txt")
    parser.add_argument("--proa", default="proa")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output = args.output or folder
        output.mkdir(parents=True, exist_ok=True)
        source = write_text(folder, "source.txt", args.source, args.pieces)
        target = write_text(folder, "target.txt", args.target, args.pieces)
        print(f"{'dtype':<6} {'BLEU':>6} {'lines':>6} {'tokens/s':>9}")
        worst = float("inf")
        for dtype in args.dtype.split(","):
            result = translate(args, source, target, dtype, output / f"hyp.{dtype}.txt")
            worst = min(worst, result["bleu"])
            print(f"{dtype:<6} {result['bleu']:6.2f} {result['lines']:6d} {result['tokens_per_s']:9.0f}", flush=True)
    return 0 if worst >= args.least else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:  # proa has said why
        sys.exit(error.returncode)
    except OSError as error:  # a file that is not there, or no proa in the PATH
        sys.exit(f"translate.py: {error}")
