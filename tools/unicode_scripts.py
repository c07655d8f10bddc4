#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/scripts.inc: the script of each character, for the pre-tokenizer UnicodeScripts.

    tools/unicode_scripts.py      (needs fonttools, whose tables are Unicode's Scripts.txt, and tokenizers)

A number is the first code point of a range << 8 | the script. Script 0 is none (unassigned, and the space). Hiragana,
Katakana and U+30FC count as Han, as in the tokenizers library; characters that its older table lacks have no script.
"""
import importlib.metadata
import pathlib

from fontTools import unicodedata
from tokenizers import pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[1] / "src/text/scripts.inc"


LIBRARY = pre_tokenizers.UnicodeScripts()


def cuts(a, b):
    return len(LIBRARY.pre_tokenize_str(a + b)) == 2


def script(c):
    if 0xD800 <= c < 0xE000 or not (cuts("a", chr(c)) or cuts("\u0434", chr(c))):
        return "Zzzz"
    name = unicodedata.script(chr(c))
    if c == 0x20:
        return "Zzzz"
    return "Hani" if name in ("Hira", "Kana") or c == 0x30FC else name


def main():
    ids, rows, before, first = {"Zzzz": 0}, [], None, {}
    for c in range(0x110000):
        name = script(c)
        if name != "Zzzz" and cuts(chr(first.setdefault(name, c)), chr(c)):  # it was of another script then
            name = next(n for n, one in first.items() if not cuts(chr(one), chr(c)))
        if name != before:
            rows.append(c << 8 | ids.setdefault(name, len(ids)))
        before = name
    lines = ["/* SPDX-License-Identifier: Apache-2.0",
             f" * Made by tools/unicode_scripts.py of fonttools {importlib.metadata.version('fonttools')}: "
             f"{len(rows)} ranges of {len(ids)} scripts. */"]
    for i in range(0, len(rows), 10):
        lines.append(" ".join(f"0x{r:08X}," for r in rows[i:i + 10]))
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
