# SPDX-License-Identifier: Apache-2.0
"""Random forests of XGBoost and LightGBM, of 1 to 2,000 trees and depths of 1 to 16, served by `proa serve` and compared with the
libraries' own predictions: sums to the last bit, scores within 1e-6.

    /path/to/venv/bin/python tools/compare_forests.py [SEED [COUNT]]      (xgboost, lightgbm, numpy; build/release/proa or PROA)

Not part of the tests, for which the libraries are too large: to be run when src/forest changes. Prints a line for each forest and
ends with 1 if any differs.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import lightgbm
import numpy as np
import xgboost

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROA = os.environ.get("PROA", ROOT / "build/release/proa")
SIZES = [(1, 1), (1, 16), (3, 12), (10, 5), (40, 7), (100, 6), (300, 3), (2000, 2)]
XGBOOST = ["reg:squarederror", "binary:logistic", "binary:logitraw", "multi:softprob", "count:poisson", "reg:gamma", "reg:tweedie", "rank:pairwise",
           "reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror", "survival:cox", "survival:aft", "binary:hinge", "rank:ndcg"]
LIGHTGBM = ["regression", "binary", "multiclass", "poisson", "quantile", "cross_entropy", "lambdarank", "huber", "fair", "mape", "gamma",
            "tweedie", "multiclassova", "cross_entropy_lambda", "rank_xendcg"]
EXACT = {"reg:squarederror", "binary:logitraw", "rank:pairwise", "regression", "quantile", "lambdarank", "reg:absoluteerror",
         "reg:quantileerror", "reg:pseudohubererror", "binary:hinge", "rank:ndcg", "huber", "fair", "mape", "rank_xendcg"}


def data(rng, rows, features, categories, missing):
    x = rng.standard_normal((rows, features)).astype(np.float32)
    if categories:
        x[:, 0] = rng.integers(0, 40, rows)
    x[rng.random(x.shape) < 0.1] = 0
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


def labels(rng, objective, x):
    score = np.nan_to_num(x[:, -1]) + np.nan_to_num(x[:, 0]) / 10 + 0.3 * rng.standard_normal(len(x))
    if "multi" in objective:
        return np.digitize(score, [-0.5, 0.5]).astype(np.float32)
    if "binary" in objective or "cross" in objective:
        return (score > 0).astype(np.float32)
    if "rank" in objective:
        return np.digitize(score, [-1, 0, 1]).astype(np.float32)
    return (np.exp(score / 2) if objective.split(":")[-1] in ("poisson", "gamma", "tweedie", "cox", "aft") else score).astype(np.float32)


def of_xgboost(rng, objective, trees, depth, x, y, categories):
    kinds = ["c" if categories and i == 0 else "q" for i in range(x.shape[1])]
    matrix = xgboost.DMatrix(x, y, feature_types=kinds, enable_categorical=True)
    if "rank" in objective:
        matrix.set_group([50] * (len(x) // 50))
    options = {"objective": objective, "max_depth": depth, "eta": 0.1, "min_child_weight": 0, "nthread": 1, "seed": int(rng.integers(1 << 30))}
    if "multi" in objective:
        options["num_class"] = 3
        trees = max(1, trees // 3)
    if objective == "reg:quantileerror":
        options["quantile_alpha"] = [0.2, 0.5, 0.9]
    if objective in ("multi:softprob", "reg:quantileerror") and rng.random() < 0.5:
        options.update(multi_strategy="multi_output_tree", tree_method="hist")
    if objective == "survival:aft":
        matrix.set_float_info("label_lower_bound", y)
        matrix.set_float_info("label_upper_bound", np.where(rng.random(len(y)) < 0.3, np.inf, y + 1))
    if "multi_strategy" not in options and trees < 50 and rng.random() < 0.3:
        options.update(booster="dart", rate_drop=0.1)
    return xgboost.train(options, matrix, trees), kinds


def of_lightgbm(rng, objective, trees, depth, x, y, categories):
    options = {"objective": objective, "max_depth": depth, "num_leaves": min(2**depth, 60), "min_data_in_leaf": 1, "verbose": -1, "num_threads": 1,
               "zero_as_missing": bool(rng.random() < 0.3), "use_missing": bool(rng.random() < 0.8), "learning_rate": 0.1, "seed": int(rng.integers(1 << 30))}
    if "multi" in objective:
        options["num_class"] = 3
        trees = max(1, trees // 3)
    if not options["zero_as_missing"] and objective not in ("regression_l1", "mape", "quantile") and rng.random() < 0.4:
        options.update(linear_tree=True, linear_lambda=0.01)
    group = [50] * (len(x) // 50) if objective in ("lambdarank", "rank_xendcg") else None
    return lightgbm.train(options, lightgbm.Dataset(x.astype(np.float64), y, group=group, categorical_feature=[0] if categories else []), trees)


def make(folder, rng, number):
    """A model of the repository, and what its library says of some rows."""
    ours = number % 2 == 0
    objective = (XGBOOST if ours else LIGHTGBM)[number // 2 % len(XGBOOST if ours else LIGHTGBM)]
    trees, depth = SIZES[int(rng.integers(len(SIZES)))]
    categories, missing = bool(rng.random() < 0.4), bool(rng.random() < 0.6)
    features = int(rng.integers(2, 40))
    x = data(rng, 600, features, categories, missing)
    y = labels(rng, objective, x)
    place = folder / f"m{number}" / "1"
    place.mkdir(parents=True)
    test = data(rng, 300, features, categories, missing)
    if ours:
        booster, kinds = of_xgboost(rng, objective, trees, depth, x, y, categories)
        booster.save_model(place / ("xgboost.json" if number % 4 else "xgboost.ubj"))
        matrix = xgboost.DMatrix(test, feature_types=kinds, enable_categorical=True)
        kind, want = "xgboost_json" if number % 4 else "xgboost_ubj", booster.predict(matrix)
    else:
        booster = of_lightgbm(rng, objective, trees, depth, x, y, categories)
        booster.save_model(place / "model.txt")
        kind, want = "lightgbm", lightgbm.Booster(model_file=place / "model.txt").predict(test.astype(np.float64)).astype(np.float32)
    want = want.reshape(len(test), -1)
    (folder / f"m{number}/config.pbtxt").write_text(
        f'backend: "fil" max_batch_size: 1000\ninput [{{ name: "input__0" data_type: TYPE_FP32 dims: [ {features} ] }}]\n'
        f'output [{{ name: "output__0" data_type: TYPE_FP32 dims: [ {want.shape[1]} ] }}]\n'
        f'parameters [{{ key: "model_type" value: {{ string_value: "{kind}" }} }}]\nparameters [{{ key: "is_classifier" value: {{ string_value: "false" }} }}]\n')
    return f"m{number}", f"{kind} {objective} {trees}x{depth}{' categories' * categories}{' missing' * missing}", objective in EXACT, test, want


def ask(port, model, x):
    head = json.dumps({"inputs": [{"name": "input__0", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/{model}/infer", head + x.tobytes(),
                                     {"Inference-Header-Content-Length": str(len(head))})
    with urllib.request.urlopen(request) as answer:
        body = answer.read()
        return np.frombuffer(body[int(answer.headers["Inference-Header-Content-Length"]):], np.float32).reshape(len(x), -1)


def compare(port, model, what, exact, x, want):
    got = np.vstack([ask(port, model, x[begin:end]) for begin, end in ((0, 1), (1, 8), (8, 72), (72, 300))])
    same = np.array_equal(got, want) if exact else np.allclose(got, want, rtol=1e-6, atol=1e-6)
    print(f"{'ok  ' if same else 'FAIL'} {what}" + ("" if same else f": {np.sum(got != want)} of {want.size}, most {np.abs(got - want).max():.3g}"), flush=True)
    return same


def main():
    seed, count = int(sys.argv[1]) if len(sys.argv) > 1 else 1, int(sys.argv[2]) if len(sys.argv) > 2 else 32
    with tempfile.TemporaryDirectory() as folder:
        models = [make(pathlib.Path(folder), np.random.default_rng([seed, i]), i) for i in range(count)]
        command = [PROA, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--log-info=false", "--model-repository", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                port = json.loads(server.stdout.readline())["http_port"]
                results = [compare(port, *model) for model in models]
            finally:
                server.terminate()
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
