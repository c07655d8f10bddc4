# SPDX-License-Identifier: Apache-2.0
"""Features of a text, by the definitions of docs/transform.md: what `text_features` of the native backend `transform`
computes, for training and for the steps in Python. tests/wire/test_pipeline.py holds the two together.

Nothing but Python's own library: the `python` steps of the pipeline run where no package is installed.
"""

import collections
import functools
import operator
import unicodedata

# What the forest of this pipeline is asked about; repository/features/config.pbtxt says the same.
COUNTS = [
    "characters",
    "words",
    "sentences",
    "punctuation",
    "digits",
    "questions",
    "exclamations",
    "long_words",
    "word_length",
    "distinct_share",
]
STATS = ["sum", "mean", "min", "max"]

END = ".!?\u2026\u3002\uff01\uff1f"
APOSTROPHES = "'\u2019"
LONG_WORD = 7


@functools.lru_cache(maxsize=None)
def kind_of(c):
    """Of one character: "L" a letter, "U" a capital, "D" a digit, "W" another part of words, "P" punctuation, "E" the
    end of a sentence, "A" an apostrophe, "" anything else."""
    if c in APOSTROPHES:
        return "A"
    if c in END:
        return "E"
    category = unicodedata.category(c)
    if category in ("Lu", "Lt"):
        return "U"
    if category == "Nd":
        return "D"
    return {"L": "L", "M": "W", "N": "W", "P": "P"}.get(category[0], "")


@functools.lru_cache(maxsize=None)
def lower(c):
    """The simple lower case: always one character."""
    return c.lower()[0]


def scan(text):
    """(counts, words): the counts by name, the words in lower case."""
    n = dict.fromkeys(
        (
            "characters",
            "words",
            "sentences",
            "punctuation",
            "letters",
            "digits",
            "upper",
            "exclamations",
            "questions",
            "long_words",
        ),
        0,
    )
    words, word, in_sentence = [], [], False
    kinds = [kind_of(c) for c in text]
    n["characters"] = len(text)
    for i, (c, kind) in enumerate(zip(text, kinds)):
        if kind in ("L", "U", "D", "W"):
            n["letters"] += kind in "LU"
            n["upper"] += kind == "U"
            n["digits"] += kind == "D"
            word.append(lower(c))
            continue
        if kind == "A" and word and i + 1 < len(text) and kinds[i + 1] in ("L", "U", "D", "W"):
            word.append("'")
            continue
        if word:
            words.append("".join(word))
            word, in_sentence = [], True
        if kind:
            n["punctuation"] += 1
            n["exclamations"] += c in "!\uff01"
            n["questions"] += c in "?\uff1f"
        if kind == "E":
            n["sentences"] += in_sentence
            in_sentence = False
    if word:
        words.append("".join(word))
        in_sentence = True
    n["sentences"] += in_sentence
    n["words"] = len(words)
    n["long_words"] = sum(len(w) >= LONG_WORD for w in words)
    return n, words


def share(part, whole):
    return part / whole if whole else 0.0


def counts_of(n, words, names):
    """The counts and shares of these names."""
    shares = {
        "word_length": lambda: share(sum(map(len, words)), len(words)),
        "sentence_length": lambda: share(len(words), n["sentences"]),
        "upper_share": lambda: share(n["upper"], n["letters"]),
        "punctuation_share": lambda: share(n["punctuation"], n["characters"]),
        "distinct_share": lambda: share(len(set(words)), len(words)),
        "distinct_words": lambda: float(len(set(words))),
    }
    return [float(n[name]) if name in n else shares[name]() for name in names]


def ngrams(words, longest):
    """By their last word, the shortest first."""
    for i in range(1, len(words) + 1):
        for n in range(1, min(longest, i) + 1):
            yield " ".join(words[i - n : i])


def read_lexicon(path):
    """n-gram: weights."""
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip("\r\n").split("\t") for line in file if line.strip() and not line.startswith("#"))
        return {key: tuple(map(float, weights)) for key, *weights in rows}


def in_order(numbers):
    """Their sum, rounded at each step, as C does it; Python's own sum() corrects itself from 3.12 on."""
    return functools.reduce(operator.add, numbers)


def weights_of(words, lexicon, longest, stats):
    """For each of sum, mean, min and max that is named, that of each column of weights, over the n-grams present."""
    columns = len(next(iter(lexicon.values())))
    found = [lexicon[key] for key in ngrams(words, longest) if key in lexicon]
    if not found:
        return [0.0] * (columns * len(stats))
    columns = list(zip(*found))
    of = {"sum": in_order, "mean": lambda x: in_order(x) / len(x), "min": min, "max": max}
    return [of[stat](column) for stat in stats for column in columns]


def bucket_of(ngram, buckets):
    """FNV-1a of 64 bits, its halves folded together."""
    h = 0xCBF29CE484222325
    for byte in ngram.encode():
        h = ((h ^ byte) * 0x100000001B3) & (2**64 - 1)
    return (h ^ (h >> 32)) % buckets


def read_ngrams(path):
    """The lines of a file, in order."""
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\r\n") for line in file if line.strip() and not line.startswith("#")]


def longest_of(ngrams_of_file):
    return max((key.count(" ") + 1 for key in ngrams_of_file), default=0)


class Features:
    """text_features(counts=[...], lists=[...], vocabulary=..., lexicon=..., stats=[...], hashed=N, ngrams=M)."""

    def __init__(self, counts=(), lexicon=None, stats=("sum",), hashed=0, hashed_ngrams=1, lists=(), vocabulary=()):
        self.counts, self.lexicon, self.stats = list(counts), lexicon, list(stats)
        self.hashed, self.hashed_ngrams = hashed, hashed_ngrams
        self.longest = longest_of(lexicon) if lexicon else 0
        self.lists, self.vocabulary = [set(ngrams_of_file) for ngrams_of_file in lists], list(vocabulary)

    @classmethod
    def of_files(cls, counts, folder, lists, vocabulary):
        return cls(counts, lists=[read_ngrams(folder / name) for name in lists],
                   vocabulary=read_ngrams(folder / vocabulary))

    def listed(self, words):
        """How many n-grams are in each list, and how often each of the vocabulary occurs."""
        seen = collections.Counter(ngrams(words, max(map(longest_of, [*self.lists, self.vocabulary]))))
        row = [float(sum(count for ngram, count in seen.items() if ngram in keys)) for keys in self.lists]
        return row + [float(seen[ngram]) for ngram in self.vocabulary]

    def row(self, text):
        """The features of one text, a str or bytes in UTF-8, as a list of numbers."""
        n, words = scan(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
        row = counts_of(n, words, self.counts)
        if self.lists or self.vocabulary:
            row += self.listed(words)
        if self.lexicon:
            row += weights_of(words, self.lexicon, self.longest, self.stats)
        if self.hashed:
            hashed = [0.0] * self.hashed
            for ngram in ngrams(words, self.hashed_ngrams):
                hashed[bucket_of(ngram, self.hashed)] += 1
            row += hashed
        return row
