#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small forests with the libraries that are installed and writes model files with what the libraries predict.

usage: tools/golden_forest.py PREFIX KIND...      KIND: xgboost lightgbm treelite sklearn

Writes tests/golden/forest: PREFIX-NAME.EXT (the model), PREFIX-NAME.out (float32, [rows][outputs]: the sums before
the transform, then behind it) and the case's line in cases.txt: NAME.EXT, outputs, and what the .out holds: "both",
"raw", "final", or "near": both, but added in another order (xgboost 1.0: the base score last) or in floats where the
model has doubles (treelite 3.9). inputs.f32 ([rows][6] float32) is made once. It has missing values, zeros, values
beside zero, and in its last two columns categories with some that no model knows. Other cases than PREFIX's stay as
they are:

  xgb      xgboost 3.2.0, treelite 4.8.1, lightgbm 4.7.0, scikit-learn 1.9.1: all kinds
  xgb10, xgb17, xgb21, xgb30: xgboost 1.0.2, 1.7.6, 2.1.4, 3.0.5
  lgb23, lgb33: lightgbm 2.3.1, 3.3.5
  tl39     treelite 3.9.1 with scikit-learn 1.3.2, lightgbm 4.1.0: treelite, sklearn
  tl40     treelite 4.0.0 with scikit-learn 1.3.2: sklearn
"""

import pathlib
import sys
import warnings

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "forest"
ROWS, COLUMNS = 40, 6
CATEGORIES = (12, 40)  # of the last two columns
warnings.filterwarnings("ignore")


def training(rows=600, seed=7):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    x[:, 1] = np.round(x[:, 1])  # many zeros
    for column, count in zip((4, 5), CATEGORIES):
        x[:, column] = rng.integers(0, count, rows)
    effect = rng.normal(size=CATEGORIES[1])
    y = 1.5 * x[:, 0] - x[:, 1] + np.abs(x[:, 2]) + effect[x[:, 4].astype(int)] + effect[x[:, 5].astype(int)]
    x[rng.random(x.shape) < 0.08] = np.nan
    return x, (y + rng.normal(scale=0.3, size=rows)).astype(np.float32)


def inputs():
    path = FOLDER / "inputs.f32"
    if not path.exists():
        x, _ = training(ROWS, 11)
        x[:12, 1] = [0.0, -0.0, 1e-36, -1e-36, 1e-35, -1e-35, 2e-35, -2e-35, 1e-40, 3e38, -3e38, np.nan]
        x[:12, 4] = [0, 11, 12, 31, 32, 63, 64, 1000, 2.7, 0.5, 16777215, np.nan]
        x[12:16, 5] = [39, 40, 127, 65536]
        x.tofile(path)
    return np.fromfile(path, np.float32).reshape(ROWS, COLUMNS)


def add(name, save, outputs, raw=None, final=None, near=False):
    """One case; `save` writes the model to the path it is given."""
    save(str(FOLDER / name))
    parts = [np.asarray(p, dtype=np.float64).astype(np.float32) for p in (raw, final) if p is not None]
    parts = [p.swapaxes(0, 1) if p.ndim == 3 and len(p) != ROWS else p for p in parts]  # treelite 4.0: targets first
    parts = [p.reshape(ROWS, outputs) for p in parts]
    (FOLDER / name).with_suffix(".out").write_bytes(b"".join(p.tobytes() for p in parts))
    what = "near" if near else "both" if len(parts) == 2 else "raw" if raw is not None else "final"
    path = FOLDER / "cases.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in lines if line.split()[0] != name] + [f"{name} {outputs} {what}"]
    path.write_text("\n".join(sorted(lines)) + "\n")


def labels(objective, y):
    if objective.startswith(("binary", "reg:logistic", "cross", "rank:map")):
        return (y > 0).astype(np.float32)
    if objective.startswith("multi"):
        return np.digitize(y, [-1, 1]).astype(np.float32)
    if objective.startswith("rank") or objective == "lambdarank":
        return np.clip(np.digitize(y, [-1, 0, 1]), 0, 3)
    if objective in ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft", "poisson", "gamma",
                     "tweedie", "reg:squaredlogerror"):
        return np.abs(y) + 0.1
    return y


XGB = ["reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror", "reg:absoluteerror",
       "reg:quantileerror", "reg:gamma", "reg:tweedie", "count:poisson", "survival:cox", "survival:aft",
       "binary:logistic", "binary:logitraw", "binary:hinge", "multi:softmax", "multi:softprob", "rank:pairwise",
       "rank:ndcg", "rank:map"]


class Xgb:
    def __init__(self, prefix):
        import xgboost
        self.xgb, self.prefix, self.old = xgboost, prefix, prefix != "xgb"
        self.version = tuple(int(v) for v in xgboost.__version__.split(".")[:2])
        self.extensions = ["json", "ubj"] if self.version >= (1, 6) else ["json"]

    def matrix(self, x, y=None, categories=False):
        if categories:
            return self.xgb.DMatrix(x, y, feature_types=["q"] * 4 + ["c"] * 2, enable_categorical=True)
        return self.xgb.DMatrix(x, y)

    def predict(self, booster, raw, categories=False):
        return booster.predict(self.matrix(inputs(), categories=categories), output_margin=raw)

    def case(self, name, params, rounds=3, categories=False, y=None, extensions=None):
        x, target = training()
        objective = params["objective"]
        d = self.matrix(x, labels(objective, target) if y is None else y, categories)
        if objective.startswith("rank"):
            d.set_group([20] * (len(x) // 20))
        if objective == "survival:aft":
            d = self.matrix(x)
            d.set_float_info("label_lower_bound", labels(objective, target))
            d.set_float_info("label_upper_bound", labels(objective, target) + 1)
        booster = self.xgb.train({"max_depth": 3, "nthread": 1, "seed": 3, **params}, d, rounds)
        raw, final = (self.predict(booster, r, categories) for r in (True, False))
        if objective == "multi:softmax":
            final = None  # the class, of which the scores are not known
        outputs = int(np.prod(raw.shape[1:])) if raw.ndim > 1 else 1
        for extension in extensions or self.extensions:
            add(f"{self.prefix}-{name}.{extension}", booster.save_model, outputs, raw, final, self.version < (1, 4))

    def make(self):
        for objective in XGB:
            if self.version < (1, 7) and objective in ("reg:absoluteerror", "reg:quantileerror"):
                continue
            if self.version < (2, 0) and objective == "reg:quantileerror":
                continue
            extra = {"num_class": 3} if objective.startswith("multi") else {}
            if objective == "reg:quantileerror":
                extra["quantile_alpha"] = 0.7
            if self.old and objective not in ("reg:squarederror", "multi:softprob", "count:poisson",
                                              "binary:logitraw"):
                continue
            first = objective == "reg:squarederror" or objective == "multi:softprob" and not self.old
            self.case(objective.replace(":", "-"), {"objective": objective, **extra},
                      extensions=None if first else ["json"])
        if self.version >= (1, 6):  # 1.0 writes six decimals, and reads them a bit in the last place off
            self.case("base", {"objective": "binary:logistic", "base_score": 0.2}, extensions=["json"])
        self.case("dart", {"objective": "reg:squarederror", "booster": "dart", "rate_drop": 0.4}, rounds=5,
                  extensions=["json"] if self.old else None)
        if not self.old:
            self.case("forest", {"objective": "binary:logistic", "num_parallel_tree": 4, "subsample": 0.6, "eta": 1},
                      rounds=1, extensions=["json"])
            self.case("pruned", {"objective": "reg:squarederror", "tree_method": "exact", "gamma": 30,
                                 "max_depth": 5}, rounds=2, extensions=["json"])
        if self.version < (1, 6):
            return
        _, y = training()
        self.case("categories", {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 4},
                  categories=True, extensions=["ubj"] if self.old else None)
        if not self.old:
            self.case("onehot", {"objective": "binary:logistic", "tree_method": "hist", "max_cat_to_onehot": 100},
                      categories=True, extensions=["json"])
        two = np.stack([y, -2 * y], axis=1)
        self.case("targets", {"objective": "reg:squarederror", "tree_method": "hist"}, y=two, extensions=["json"])
        if self.version >= (2, 0):
            self.case("vectors", {"objective": "reg:squarederror", "tree_method": "hist",
                                  "multi_strategy": "multi_output_tree"}, y=two,
                      extensions=["json"] if self.old else None)
        if not self.old:
            self.case("vector-classes", {"objective": "multi:softprob", "num_class": 3, "tree_method": "hist",
                                         "multi_strategy": "multi_output_tree"}, extensions=["json"])
            self.case("quantiles", {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.5, 0.9],
                                    "tree_method": "hist"}, rounds=2, extensions=["json"])


LGB = ["regression", "regression_l1", "huber", "fair", "quantile", "mape", "poisson", "gamma", "tweedie",
       "binary", "multiclass", "multiclassova", "cross_entropy", "cross_entropy_lambda", "lambdarank", "rank_xendcg"]


class Lgb:
    def __init__(self, prefix):
        import lightgbm
        self.lgb, self.prefix, self.old = lightgbm, prefix, prefix != "lgb"

    def case(self, name, params, rounds=3, categories=False):
        x, target = training()
        objective = params["objective"]
        if objective == "rank_xendcg":
            y = labels("lambdarank", target)
        else:
            y = labels(objective, target)
        d = self.lgb.Dataset(x, y, categorical_feature=[4, 5] if categories else [],
                             group=[20] * (len(x) // 20) if "rank" in objective else None)
        booster = self.lgb.train({"num_leaves": 9, "verbose": -1, "num_threads": 1, "seed": 3, "min_data_in_leaf": 5,
                                  **params}, d, rounds)
        outputs = 3 if objective.startswith("multi") else 1
        forest = params.get("boosting") == "rf"  # raw_score is the sum there
        add(f"{self.prefix}-{name}.txt", booster.save_model, outputs,
            None if forest else booster.predict(inputs(), raw_score=True), booster.predict(inputs()))

    def make(self):
        if self.old:
            self.case("categories", {"objective": "binary", "min_data_per_group": 5, "cat_smooth": 1},
                      categories=True)
            self.case("zero", {"objective": "poisson", "zero_as_missing": True})
            self.case("forest-classes", {"objective": "multiclass", "num_class": 3, "boosting": "rf",
                                         "bagging_freq": 1, "bagging_fraction": 0.6}, rounds=2)
            return
        for objective in LGB:
            self.case(objective, {"objective": objective, **({"num_class": 3} if objective.startswith("multi") else {})})
        self.case("sqrt", {"objective": "regression", "reg_sqrt": True})
        self.case("sigmoid", {"objective": "binary", "sigmoid": 0.7})
        self.case("categories", {"objective": "regression", "min_data_per_group": 5, "cat_smooth": 1}, categories=True)
        self.case("onehot", {"objective": "binary", "max_cat_to_onehot": 100}, categories=True)
        self.case("zero", {"objective": "regression", "zero_as_missing": True})
        self.case("no-missing", {"objective": "regression", "use_missing": False})
        self.case("dart", {"objective": "regression", "boosting": "dart", "drop_rate": 0.5}, rounds=6)
        self.case("forest", {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
                  rounds=4)
        self.case("forest-classes", {"objective": "multiclass", "num_class": 3, "boosting": "rf", "bagging_freq": 1,
                                     "bagging_fraction": 0.6})
        self.case("stump", {"objective": "regression", "min_data_in_leaf": 10000})
        self.case("linear", {"objective": "regression", "linear_tree": True, "linear_lambda": 0.01}, categories=True)
        self.case("linear-classes", {"objective": "multiclass", "num_class": 3, "linear_tree": True, "boosting": "dart",
                                     "drop_rate": 0.5})
        self.case("linear-forest", {"objective": "binary", "linear_tree": True, "boosting": "rf", "bagging_freq": 1,
                                    "bagging_fraction": 0.6})


class Treelite:
    """Models of other libraries, and such built by hand, through treelite's checkpoints."""

    def __init__(self, prefix):
        import treelite
        self.tl, self.prefix = treelite, prefix
        self.major = int(treelite.__version__.split(".")[0])

    def case(self, name, model, outputs, floats=False):
        x = inputs() if floats else inputs().astype(np.float64)
        if self.major >= 4:
            predict = lambda raw: self.tl.gtil.predict(model, x, pred_margin=raw)
        else:
            predict = lambda raw: self.tl.gtil.predict(model, inputs(), pred_margin=raw)
        add(f"{self.prefix}-{name}.tl", model.serialize, outputs, predict(True), predict(False), self.major < 4)

    def make(self):
        x, y = training()
        import lightgbm
        for objective, outputs in (("regression", 1), ("binary", 1), ("multiclass", 3)):
            if self.major < 4 and outputs == 3:
                continue
            d = lightgbm.Dataset(x, labels(objective, y), categorical_feature=[4, 5])
            booster = lightgbm.train({"objective": objective, "num_leaves": 9, "verbose": -1, "num_threads": 1,
                                      **({"num_class": 3} if outputs == 3 else {})}, d, 3)
            load = self.tl.frontend.from_lightgbm if self.major >= 4 else self.tl.Model.from_lightgbm
            self.case(f"lightgbm-{objective}", load(booster), outputs)
        if self.major < 4:
            return
        import xgboost
        for objective, outputs in (("reg:squarederror", 1), ("binary:logistic", 1), ("multi:softprob", 3)):
            d = xgboost.DMatrix(x, labels(objective, y), feature_types=["q"] * 4 + ["c"] * 2, enable_categorical=True)
            booster = xgboost.train({"objective": objective, "max_depth": 3, "nthread": 1, "tree_method": "hist",
                                     **({"num_class": 3} if outputs == 3 else {})}, d, 3)
            self.case("xgboost-" + objective.replace(":", "-"), self.tl.frontend.from_xgboost(booster), outputs, True)
        self.built()

    def built(self):
        """All comparisons and postprocessors; leaves for several targets."""
        from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation
        for name in ("signed_square", "hinge", "sigmoid", "exponential", "exponential_standard_ratio",
                     "logarithm_one_plus_exp"):
            for kind in ("float32", "float64"):
                extra = {"sigmoid": {"sigmoid_alpha": 1.5}, "exponential_standard_ratio": {"ratio_c": 2.5}}.get(name, {})
                builder = ModelBuilder(threshold_type=kind, leaf_output_type=kind,
                                       metadata=Metadata(num_feature=6, task_type="kRegressor", average_tree_output=True,
                                                         num_target=1, num_class=[1], leaf_vector_shape=(1, 1)),
                                       tree_annotation=TreeAnnotation(num_tree=5, target_id=[0] * 5, class_id=[0] * 5),
                                       postprocessor=PostProcessorFunc(name=name, **extra), base_scores=[0.1])
                for i, op in enumerate(("<", "<=", ">", ">=", "==")):
                    builder.start_tree()
                    builder.start_node(0)
                    builder.numerical_test(feature_id=1, threshold=0.0 if i != 2 else 1.0, default_left=i % 2 == 0,
                                           opname=op, left_child_key=1, right_child_key=2)
                    builder.end_node()
                    for key, value in ((1, 0.3 * (i + 1)), (2, -0.7 / (i + 1))):
                        builder.start_node(key)
                        builder.leaf(value)
                        builder.end_node()
                    builder.end_tree()
                self.case(f"{name}-{kind}", builder.commit(), 1, kind == "float32")


class Sklearn:
    def __init__(self, prefix):
        self.case = Treelite(prefix).case
        self.major, self.old = Treelite(prefix).major, prefix != "tl"

    def make(self):
        import sklearn.ensemble as e
        import treelite
        load = treelite.sklearn.import_model
        x, y = training()
        x = np.nan_to_num(x)
        classes, two = labels("multi", y).astype(int), np.stack([y, -2 * y], axis=1)
        size = {"n_estimators": 4, "max_leaf_nodes": 9, "random_state": 3}
        boost = {**size, "init": None if self.major >= 4 else "zero"}
        for name, model, target, outputs in (
                ("rf-regressor", e.RandomForestRegressor(**size), y, 1),
                ("rf-binary", e.RandomForestClassifier(**size), y > 0, 2 if self.major >= 4 else 1),
                ("rf-classes", e.RandomForestClassifier(**size), classes, 3),
                ("extra-regressor", e.ExtraTreesRegressor(**size), y, 1),
                ("extra-classes", e.ExtraTreesClassifier(**size), classes, 3),
                ("gb-regressor", e.GradientBoostingRegressor(**boost), y, 1),
                ("gb-binary", e.GradientBoostingClassifier(**boost), y > 0, 1),
                ("gb-classes", e.GradientBoostingClassifier(**boost), classes, 3),
                ("isolation", e.IsolationForest(n_estimators=4, max_samples=32, random_state=3), None, 1)):
            if self.old and name.startswith(("extra", "gb-c")):
                continue
            model = load(model.fit(x) if target is None else model.fit(x, target))
            self.case(f"sklearn-{name}", model, outputs)
        if self.major < 4:
            return
        ragged = np.stack([classes, (y > 0).astype(int)], axis=1)
        for name, model, target, outputs in (
                ("rf-targets", e.RandomForestRegressor(**size), two, 2),
                ("rf-class-targets", e.RandomForestClassifier(**size), ragged, 6),
                *(() if self.old else (
                    ("hist-regressor", e.HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=9), y, 1),
                    ("hist-classes", e.HistGradientBoostingClassifier(
                        max_iter=3, max_leaf_nodes=9, categorical_features=[4, 5]), classes, 3)))):
            try:
                self.case(f"sklearn-{name}", load(model.fit(x, target)), outputs)
            except Exception as error:  # of versions that do not know it
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)


def main():
    kinds = {"xgboost": Xgb, "lightgbm": Lgb, "treelite": Treelite, "sklearn": Sklearn}
    if len(sys.argv) < 3 or any(k not in kinds for k in sys.argv[2:]):
        sys.exit(__doc__)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in sys.argv[2:]:
        prefix = sys.argv[1]
        names = {"lightgbm": "lgb", "treelite": "tl", "sklearn": "tl"}
        kinds[kind](names.get(kind, prefix) if prefix == "xgb" else prefix).make()


main()
