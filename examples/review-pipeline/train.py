#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the forest of the review pipeline on labelled texts: lines of label (0 or 1), tab, text.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 xgboost-cpu==3.2.0
    venv/bin/python train.py train.tsv --test ../../tests/golden/data/polarity-test.tsv

Writes repository/features/1/lexicon.tsv, the weights of words and pairs of words, and
repository/forest/1/xgboost.json, a random forest of XGBoost over the features that textfeatures.py and the backend
`transform` compute alike.

A word's weight is the logarithm of how much more often it stands in texts of praise than in those of blame (naive
Bayes). On the texts that the weights were counted on they say too much, so for training each tenth of the texts gets
weights that were counted on the other nine. --folds tells how good a forest is by the same rule: trained on nine
tenths, asked about the tenth.
All numbers below (--least, --trees, --depth, ...) were chosen by that, not by the test set.
"""

import argparse
import collections
import math
import pathlib

import numpy as np
import xgboost

from textfeatures import COUNTS, STATS, Features, ngrams, read_lexicon, scan

HERE = pathlib.Path(__file__).resolve().parent
LONGEST = 2  # words of an n-gram


def read_texts(path):
    rows = [line.rstrip("\n").split("\t") for line in open(path, encoding="utf-8")]
    return np.array([int(row[0]) for row in rows]), [row[-1] for row in rows]


def count_lexicon(labels, texts, least):
    """n-gram: its weight, and again if it is a pair; of those that at least `least` texts have."""
    have = [collections.Counter(), collections.Counter()]
    for label, text in zip(labels, texts):
        have[label].update(set(ngrams(scan(text)[1], LONGEST)))
    known = sorted(key for key in have[0] + have[1] if have[0][key] + have[1][key] >= least)
    whole = [sum(n[key] + 1 for key in known) for n in have]
    weight = {key: round(math.log((have[1][key] + 1) / whole[1] * whole[0] / (have[0][key] + 1)), 3) for key in known}
    return {key: (weight[key], weight[key] if " " in key else 0.0) for key in known}


def write_lexicon(path, lexicon):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# n-gram, its weight, the same if it is a pair (train.py)\n")
        for key, weights in lexicon.items():
            file.write("\t".join([key, *(f"{w:g}" for w in weights)]) + "\n")


def rows_of(texts, lexicon):
    features = Features(counts=COUNTS, lexicon=lexicon, stats=STATS)
    return np.array([features.row(text) for text in texts], dtype=np.float32)


def crossed_rows(labels, texts, least, folds, seed):
    """The features of each text by a lexicon that has not seen it; and which tenth it is of."""
    tenth = np.random.default_rng(seed).permutation(len(texts)) % folds
    rows = None
    for k in range(folds):
        others, own = np.flatnonzero(tenth != k), np.flatnonzero(tenth == k)
        part = rows_of([texts[i] for i in own], count_lexicon(labels[others], [texts[i] for i in others], least))
        rows = np.zeros((len(texts), part.shape[1]), np.float32) if rows is None else rows
        rows[own] = part
    return rows, tenth


def make_forest(options):
    return xgboost.XGBRFClassifier(
        n_estimators=options.trees,
        max_depth=options.depth,
        subsample=0.6,
        colsample_bynode=0.5,
        min_child_weight=options.leaf,
        reg_lambda=1,
        random_state=options.seed,
        n_jobs=2,
    )


def accuracy(scores, labels):
    return float(np.mean((scores > 0.5) == labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--test", help="texts to tell the accuracy on, at the end")
    parser.add_argument("--out", default=HERE / "repository", type=pathlib.Path)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--least", type=int, default=3, help="texts that an n-gram of the lexicon stands in")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--leaf", type=float, default=30, help="XGBoost's min_child_weight")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    labels, texts = read_texts(options.train)
    rows, tenth = crossed_rows(labels, texts, options.least, options.folds, options.seed)
    held_out = np.zeros(len(texts))
    for k in range(options.folds):
        forest = make_forest(options).fit(rows[tenth != k], labels[tenth != k])
        held_out[tenth == k] = forest.predict_proba(rows[tenth == k])[:, 1]
    print(f"accuracy on held-out tenths: {accuracy(held_out, labels):.4f}")
    forest = make_forest(options).fit(rows, labels)
    lexicon_path, forest_path = options.out / "features/1/lexicon.tsv", options.out / "forest/1/xgboost.json"
    for path in (lexicon_path, forest_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_lexicon(lexicon_path, count_lexicon(labels, texts, options.least))
    forest.get_booster().save_model(forest_path)
    for path in (lexicon_path, forest_path):
        print(f"{path}: {path.stat().st_size} bytes")
    if options.test:
        labels, texts = read_texts(options.test)
        scores = forest.predict_proba(rows_of(texts, read_lexicon(lexicon_path)))[:, 1]
        print(f"accuracy on {options.test}: {accuracy(scores, labels):.4f}")


if __name__ == "__main__":
    main()
