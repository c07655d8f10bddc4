#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/golden.txt: what the PyPI package `tokenizers` makes of fixed strings with the shipped tokenizers;
and tests/text/pipelines.txt: the same for small tokenizers, one for each stage of tokenizer.json.

    tools/golden_text.py       (needs tokenizers; run it again when the strings or a shipped tokenizer change)

A line is a string (bytes outside printable UTF-8 as \\xNN), then for each tokenizer a tab and `count ids text`: the
number of ids with special tokens, FNV-1a (32 bits) of the ids as little-endian 32-bit numbers and of the decoded text
without special tokens. The first strings also have `: ids`, to see what differs. In pipelines.txt a line that begins
with `{` is the tokenizer.json of the lines after it. tests/unit/text/test_golden.c reads both.
"""
import json
import pathlib
import struct
import sys

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/text"))
from oracle_strings import SAMPLES, strings  # noqa: E402

NAMES = ["m30k-t5", "classics-10m", "polarity-bert"]
COUNT, SHOWN = 1200, 80


def fnv(data):
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{h:08x}"


def escape(raw):
    out = []
    for c in raw.decode("utf-8", "surrogateescape"):
        plain = c.isprintable() and c != "\\"
        out.append(c if plain else "".join(f"\\x{b:02x}" for b in c.encode("utf-8", "surrogateescape")))
    return "".join(out)


def field(tok, raw, shown):
    ids = tok.encode(raw.decode("utf-8", "replace")).ids
    text = tok.decode(ids, skip_special_tokens=True)
    out = f"{len(ids)} {fnv(struct.pack(f'<{len(ids)}i', *ids))} {fnv(text.encode())}"
    return out + (": " + " ".join(map(str, ids)) if shown else "")


def step(kind, **members):
    return {"type": kind, **members}


def regex(pattern):
    return {"Regex": pattern}


SPLIT = [step("Split", pattern=p, behavior=b, invert=i) for b in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
         for p, i in [(regex(r"\s+|[aeiou]"), False), ({"String": "e"}, True)]]
NORMALIZERS = [step(k) for k in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]] + [
    step("Strip", strip_left=True, strip_right=False), step("Strip", strip_left=False, strip_right=True),
    step("Replace", pattern={"String": "l"}, content="LL"), step("Replace", pattern=regex(r"\w\s*$|o"), content="0"), step("Prepend", prepend="Xy"),
    step("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
    step("BertNormalizer", clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
    step("Sequence", normalizers=[step("NFD"), step("Sequence", normalizers=[step("StripAccents"), step("Lowercase")])])]
PRE_TOKENIZERS = SPLIT + [step(k) for k in ["Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"]] + [
    step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=False),
    step("Metaspace", replacement="▁", prepend_scheme="always", split=True), step("Metaspace", replacement="_", prepend_scheme="first", split=True),
    step("Metaspace", replacement="▁", prepend_scheme="never", split=False), step("Punctuation", behavior="Isolated"),
    step("Punctuation", behavior="MergedWithNext"), step("Digits", individual_digits=True), step("Digits", individual_digits=False),
    step("CharDelimiterSplit", delimiter="e"), step("FixedLength", length=3),
    step("Sequence", pretokenizers=[step("WhitespaceSplit"), step("Digits", individual_digits=True), step("Punctuation", behavior="Removed")])]
DECODERS = [step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), step("Metaspace", replacement="▁", prepend_scheme="always", split=True),
            step("WordPiece", prefix="##", cleanup=True), step("WordPiece", prefix="e", cleanup=False), step("BPEDecoder", suffix="o"), step("ByteFallback"),
            step("Fuse"), step("CTC", pad_token="l", word_delimiter_token="o", cleanup=True),
            step("Sequence", decoders=[step("Replace", pattern={"String": "▁"}, content=" "), step("ByteFallback"), step("Fuse"), step("Strip", content=" ", start=1, stop=0)]),
            step("Sequence", decoders=[step("Fuse"), step("Replace", pattern=regex("l+"), content="-"), step("Strip", content="H", start=1, stop=0)])]
CHARS = "▁ĠĊabcdefghilmnorstuvwyHTIX0123.,!?'_-áé"
TEXTS = [s.encode() for s in SAMPLES if 0 < len(s) < 90][::2]


def tiny(kind, stage):
    """A character model with a few pieces and bytes; only the stage in question is there."""
    pieces = ["<unk>", "[X]"] + [f"<0x{b:02X}>" for b in (0xC3, 0xA4, 0xE4, 0xBD, 0xA0)] + list(CHARS) + ["he", "ll", "##l"]
    added = [{"id": 0, "content": "<unk>", "special": True}, {"id": 1, "content": "[X]", "special": True}]
    added += [{"id": len(pieces), "content": "Café", "special": False, "normalized": True, "lstrip": True},
              {"id": len(pieces) + 1, "content": "er", "special": False, "single_word": True, "normalized": False, "rstrip": True}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{**flags, **a} for a in added],
            "normalizer": None, "pre_tokenizer": None, "decoder": None,
            "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[X]", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"[X]": {"id": "[X]", "ids": [1], "tokens": ["[X]"]}}},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": kind == "decoder",
                      "byte_fallback": True, "ignore_merges": False, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": [["h", "e"], ["l", "l"]]}}
    data[kind] = stage
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def pipelines():
    lines = [f"# tokenizers {tokenizers.__version__}; made by tools/golden_text.py"]
    for kind, stages in [("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS), ("decoder", DECODERS)]:
        for stage in stages:
            data = tiny(kind, stage)
            tok = tokenizers.Tokenizer.from_str(data)
            lines.append(data)
            lines += [escape(raw) + "\t" + field(tok, raw, len(raw) < 12) for raw in TEXTS]
    return lines


def main():
    toks = [tokenizers.Tokenizer.from_file(str(ROOT / "models" / n / "tokenizer.json")) for n in NAMES]
    lines = [f"# tokenizers {tokenizers.__version__}; made by tools/golden_text.py; " + " ".join(NAMES)]
    for i, raw in enumerate(strings(COUNT)):
        lines.append("\t".join([escape(raw)] + [field(tok, raw, i < SHOWN) for tok in toks]))
    for name, content in [("golden.txt", lines), ("pipelines.txt", pipelines())]:
        (ROOT / "tests/text" / name).write_text("\n".join(content) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
