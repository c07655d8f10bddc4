# SPDX-License-Identifier: Apache-2.0
"""The package under python/ with the library of this build: what PROA names is beside libproa.so."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).parent
os.environ.setdefault("PROA_LIBRARY", str(BUILD / "libproa.so"))
os.environ["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
sys.path.insert(0, str(ROOT / "python"))
