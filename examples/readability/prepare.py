#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the models of the readability pipeline and a repository with them.

    python3 -m venv venv && venv/bin/pip install numpy scikit-learn treelite onnx
    venv/bin/python examples/readability/prepare.py readability --bert small

The folder gets `repository`, a copy of the one beside this script with the models in it, and `excerpts.txt`.

BERT has the shape that --bert names and random weights: as model.safetensors with its tokenizer, as model.onnx if the
package onnx is installed, and as model.pt (TorchScript) if torch is. The forest is scikit-learn's, trained on the
excerpts to predict Flesch's reading ease (Flesch, A new readability yardstick, 1948).
"""

import argparse
import collections
import pathlib
import random
import re
import shutil
import sys

import numpy as np
import treelite.sklearn
from sklearn.ensemble import RandomForestRegressor

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "review-pipeline"))
import bert  # noqa: E402
import textfeatures  # noqa: E402

# repository/features/config.pbtxt says the same.
COUNTS = ["words", "distinct_words", "punctuation", "sentences", "characters", "long_words"]
FREQUENT, RARE = 100, 100  # words of words.txt


def read_sentences(path):
    """The sentences of a table whose last column is a text, as they are written in books."""
    for line in open(path, encoding="utf-8"):
        text = re.sub(r" ([.,;:!?)'])", r"\1", line.rstrip("\n").split("\t")[-1]).strip()
        yield text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def make_excerpts(sentences, count, rng):
    """Texts of two to seven sentences; with BERT's tokenizer 128 tokens on average."""
    return [" ".join(rng.sample(sentences, rng.randint(2, 7))) for _ in range(count)]


def choose_words(texts):
    """The most and the least frequent words of the texts, by the rules of docs/transform.md."""
    seen = collections.Counter(word for text in texts for word in textfeatures.scan(text)[1])
    ranked = sorted(seen, key=lambda word: (-seen[word], word))
    return ranked[:FREQUENT] + ranked[-RARE:]


def reading_ease(text):
    """Flesch's formula, from 0 (hard) to 100 (easy), as 0 to 1. A syllable is a run of vowels."""
    counts, words = textfeatures.scan(text)
    syllables = sum(max(1, len(re.findall("[aeiouy]+", word.removesuffix("e")))) for word in words)
    ease = 206.835 - 1.015 * len(words) / max(1, counts["sentences"]) - 84.6 * syllables / max(1, len(words))
    return ease / 100


def train_forest(features, texts, trees, depth):
    rows = np.array([features.row(text) for text in texts], np.float32)
    forest = RandomForestRegressor(n_estimators=trees, max_depth=depth, max_features=0.3, n_jobs=2, random_state=1)
    labels = np.array([reading_ease(text) for text in texts])
    part = len(texts) * 4 // 5
    forest.fit(rows[:part], labels[:part])
    error = np.sqrt(np.mean((forest.predict(rows[part:]) - labels[part:]) ** 2))
    print(f"forest: {trees} trees, deepest {max(tree.get_depth() for tree in forest.estimators_)}, "
          f"error {error:.3f} on the last fifth, whose deviation is {labels[part:].std():.3f}")
    return forest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--bert", choices=bert.SHAPES, default="large")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--excerpts", type=int, default=2500)
    parser.add_argument("--texts", type=pathlib.Path, default=ROOT / "tests/golden/data/polarity-test.tsv",
                        help="sentences, in the last column of a table with tabs")
    options = parser.parse_args()
    repository = options.out / "repository"
    for source in (HERE / "repository", HERE / "repository-python"):
        shutil.copytree(source, options.out / source.name, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("bert", "features", "forest", "readability", "tokenizer", "average"):
        (repository / name / "1").mkdir(exist_ok=True)
    texts = make_excerpts(list(read_sentences(options.texts)), options.excerpts, random.Random(1))
    (options.out / "excerpts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")

    (repository / "features/1/words.txt").write_text("\n".join(choose_words(texts)) + "\n", encoding="utf-8")
    features = textfeatures.Features.of_files(COUNTS, repository / "features/1", ["stopwords.txt"], "words.txt")
    forest = train_forest(features, texts, options.trees, options.depth)
    treelite.sklearn.import_model(forest).serialize(str(repository / "forest/1/checkpoint.tl"))
    shutil.copy(HERE.parent / "review-pipeline/textfeatures.py",
                options.out / "repository-python/features_python/1")
    bert.make(repository / "bert/1", options.bert, ROOT / "models/polarity-bert")
    for path in sorted(repository.glob("*/1/*")):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
