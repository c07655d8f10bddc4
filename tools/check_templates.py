#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_templates.py - published chat templates, rendered by Proa and by transformers: any difference is printed.

The templates of models are not part of this repository (their licences differ); they are given as files, for example
those of llama.cpp's models/templates. The requests are those of golden_templates.py. Needs transformers and jinja2, and
tests/text/chatdump.c built. Usage: python tools/check_templates.py FILE.jinja...
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jinja2
import transformers
from golden_templates import CASES, TOKENS, run_chat

ROOT = pathlib.Path(__file__).resolve().parent.parent
DUMP = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).parent / "tests/text_chatdump"


def render(folder, path):
    """What Proa answers to each case."""
    lines = "".join(json.dumps(case) + "\n" for case in CASES.values())
    done = subprocess.run([DUMP, folder, path], input=lines, capture_output=True, text=True, check=True)
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines())))


def main():
    total = failing = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(TOKENS))
        for path in map(pathlib.Path, sys.argv[1:]):
            source = path.read_text()
            for name, got in render(folder, path).items():
                want = run_chat(source, CASES[name])
                total += 1
                failing += "error" in want
                if want.get("output") != got.get("output"):
                    bad += 1
                    print(f"{path.name}: {name}\n  want {want}\n  got  {got}")
    print(f"jinja2 {jinja2.__version__}, transformers {transformers.__version__}: {total} renderings, "
          f"{failing} that both refuse, {bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
