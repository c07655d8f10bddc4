#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forests: Proa's prediction beside XGBoost's, on the same cores, in turns; appended to bench/results/forest.csv.

    python bench/forest.py [--models 100x6,500x8,2000x10] [--rounds 5] [--seconds 0.4] [--rt]

Trains regressions of TREESxDEPTH on 100 features (kept in the folder PROA_FOREST_MODELS, build/forest-models) and predicts
1 and 4,096 rows. Of all rounds the least time of a call counts, for both; XGBoost's is the better of inplace_predict and of
predict with a DMatrix that is new each time (predicting the same DMatrix again is looked up, not computed) and whose making is
not counted. --rt: both run with real-time priority, so that other work on the machine waits. Needs xgboost, numpy and
`ninja -C build/release bench-forest`.
"""
import argparse
import csv
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import time

import numpy as np
import xgboost as xgb

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("PROA_BUILD", ROOT / "build/release"))
FOLDER = pathlib.Path(os.environ.get("PROA_FOREST_MODELS", ROOT / "build/forest-models"))
FEATURES, TRAIN_ROWS, THREADS = 100, 20000, os.cpu_count()
BARS = {1: 2.0, 4096: 1.2}
COLUMNS = ["date", "machine", "commit", "load", "xgboost", "isa", "trees", "depth", "rows", "threads", "proa us", "xgboost us", "times", "bar",
           "same bits", "priority"]


def rows():
    return np.random.default_rng(1).standard_normal((TRAIN_ROWS, FEATURES), dtype=np.float32)


def train(name):
    """The model's file, made when it is not there."""
    path = FOLDER / f"m{name}.ubj"
    if not path.exists():
        trees, depth = map(int, name.split("x"))
        rng = np.random.default_rng(1)
        x = rng.standard_normal((TRAIN_ROWS, FEATURES), dtype=np.float32)
        y = x @ rng.standard_normal(FEATURES) + 3 * np.sin(3 * x[:, 0] * x[:, 1]) + x[:, 2] ** 2 + 2 * rng.standard_normal(TRAIN_ROWS)
        print(f"training {name}", file=sys.stderr)
        FOLDER.mkdir(parents=True, exist_ok=True)
        xgb.train({"max_depth": depth, "eta": 0.05, "tree_method": "hist", "nthread": THREADS}, xgb.DMatrix(x, y), trees).save_model(path)
    return path


def xgboost_us(booster, x, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        booster.inplace_predict(x)
        best = min(best, time.perf_counter() - begin)
        matrix = xgb.DMatrix(x)
        begin = time.perf_counter()
        booster.predict(matrix)
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def proa_us(model, count, seconds, inputs):
    line = subprocess.run([BUILD / "tests/bench-forest", model, str(count), str(seconds), str(THREADS), inputs], check=True, capture_output=True,
                          text=True).stdout.split()
    return float(line[1]), float(line[5])


def measure(name, count, options):
    model, x = train(name), rows()[:count].copy()
    inputs = FOLDER / "rows.f32"
    rows().tofile(inputs)
    booster = xgb.Booster(model_file=model)
    booster.set_param({"nthread": THREADS})
    ours, theirs = [], []
    for _ in range(options.rounds):
        us, total = proa_us(model, count, options.seconds, inputs)
        ours.append(us)
        theirs.append(xgboost_us(booster, x, options.seconds))
    same = np.isclose(booster.inplace_predict(x).astype(np.float64).sum(), total, rtol=1e-8)
    return min(ours), min(theirs), same


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{model} x{os.cpu_count()}"


def commit():
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True)
    return described.stdout.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="100x6,500x8,2000x10")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--rt", action="store_true")
    options = parser.parse_args()
    for name in options.models.split(","):
        train(name)
    if options.rt:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
        except PermissionError:
            raise SystemExit("--rt is refused by this system: it takes root (CAP_SYS_NICE) or `ulimit -r 5`") from None
    path = ROOT / "bench/results/forest.csv"
    new = not path.exists()
    with open(path, "a", newline="") as file:
        out = csv.writer(file)
        if new:
            out.writerow(COLUMNS)
        for name in options.models.split(","):
            for count, bar in BARS.items():
                load = f"{os.getloadavg()[0]:.2f}"
                ours, theirs, same = measure(name, count, options)
                trees, depth = name.split("x")
                out.writerow([datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), machine(), commit(), load, xgb.__version__,
                              os.environ.get("PROA_ISA", "best"), trees, depth, count, THREADS, f"{ours:.2f}", f"{theirs:.1f}",
                              f"{theirs / ours:.1f}", bar, "yes" if same else "NO", "real-time" if options.rt else "usual"])
                file.flush()
                print(f"{name} {count} rows: {ours:.1f} us, XGBoost {theirs:.1f} us: {theirs / ours:.1f} times ({bar})", file=sys.stderr)


if __name__ == "__main__":
    main()
