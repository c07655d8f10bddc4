# SPDX-License-Identifier: Apache-2.0
"""SHAP values of models in tests/golden/forest, as their own libraries say them.

    /path/to/venv/bin/python tools/golden_shap.py        (made with xgboost 3.2.0, lightgbm 4.7.0)

Writes NAME.shap beside the model: float32, [rows][outputs][features + 1], the mean last. XGBoost computes them in floats.
"""
import pathlib

import lightgbm
import numpy as np
import xgboost

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/forest"
XGBOOST = ["xgb-binary-logistic.json", "xgb-multi-softprob.json", "xgb-reg-squarederror.json", "xgb-dart.json", "xgb-categories.json",
           "xgb-base.json", "xgb-pruned.json"]
LIGHTGBM = ["lgb-binary.txt", "lgb-multiclass.txt", "lgb-regression.txt", "lgb-zero.txt", "lgb-no-missing.txt", "lgb-dart.txt"]


def main():
    x = np.fromfile(FOLDER / "inputs.f32", np.float32).reshape(40, 6)
    for name in XGBOOST:
        booster = xgboost.Booster(model_file=FOLDER / name)
        matrix = xgboost.DMatrix(x, feature_types=booster.feature_types, enable_categorical=True)
        values = booster.predict(matrix, pred_contribs=True)
        (FOLDER / name).with_suffix(".shap").write_bytes(values.astype(np.float32).tobytes())
    for name in LIGHTGBM:
        values = lightgbm.Booster(model_file=FOLDER / name).predict(x.astype(np.float64), pred_contrib=True)
        (FOLDER / name).with_suffix(".shap").write_bytes(values.astype(np.float32).tobytes())


if __name__ == "__main__":
    main()
