#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/drop_in.npz: what tests/python/drop_in_scripts.py gives with transformers in float32.

Of a row of more than 512 floats every 31st is kept.
Needs torch 2.15 and transformers 5.24:  python3 tools/golden_drop_in.py [SCRIPT...]
"""
import pathlib
import sys

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from drop_in_scripts import SCRIPTS  # noqa: E402

models = {}


def load(kind, path):
    if (kind, path) not in models:
        auto = getattr(transformers, "AutoModelFor" + kind if kind else "AutoModel")
        models[kind, path] = auto.from_pretrained(ROOT / path, dtype=torch.float32).eval()
    return models[kind, path]


def kept(array):
    array = np.asarray(array.detach())
    if array.dtype.kind != "f":
        return array.astype(np.int32)
    return array[..., ::31] if array.shape[-1] > 512 else array


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the sums of one thread are the same everywhere
    golden = {"versions": np.array([torch.__version__, transformers.__version__])}
    for name in sys.argv[1:] or SCRIPTS:
        with torch.no_grad():
            results = SCRIPTS[name](load, torch.tensor)
        golden |= {f"{name}/{key}": kept(value) for key, value in results.items()}
    np.savez_compressed(ROOT / "tests/golden/drop_in.npz", **golden)


if __name__ == "__main__":
    main()
