# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of the package's documents: each `print(...)  # TEXT` must print TEXT, in order."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/python-package.md", "python/README.md"])
def test_python_blocks(page):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        if any(f"import {name}" in block for name in ("torch", "transformers")):
            pytest.importorskip("torch")
        lines = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
        done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == lines
