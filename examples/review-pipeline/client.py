#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores texts with the review pipeline: one JSON object a line.

python3 client.py "a warm and funny film" "a dull film"
python3 client.py --model review_python --file reviews.txt
"""

import argparse
import json
import sys

import numpy as np
import tritonclient.http as triton


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--file", help="a text a line")
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="review", help="review, or review_python: the steps in Python")
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    texts = options.texts + (open(options.file, encoding="utf-8").read().splitlines() if options.file else [])
    client = triton.InferenceServerClient(options.url)
    for first in range(0, len(texts), options.batch):
        part = texts[first : first + options.batch]
        tensor = triton.InferInput("TEXT", [len(part), 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[text.encode()] for text in part], dtype=object))
        answer = client.infer(options.model, [tensor])
        rows = {name: answer.as_numpy(name) for name in ("SCORE", "BERT", "FOREST")}
        for i, text in enumerate(part):
            scores = {name.lower(): round(float(values[i, 0]), 4) for name, values in rows.items()}
            print(json.dumps({"praise": scores["score"] > 0.5, **scores, "text": text}))


if __name__ == "__main__":
    try:
        main()
    except (
        triton.InferenceServerException,
        OSError,
    ) as error:  # nobody serves there, or it refuses; a file that is not there
        sys.exit(f"client.py: {error}")
