# SPDX-License-Identifier: Apache-2.0
"""What the scripts beside it ask of the NVIDIA driver, in one line where there is none."""
import pathlib
import subprocess
import sys


def ask(what):
    """The first card's properties of these names (nvidia-smi --help-query-gpu); ends the program where there is no card."""
    query = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        reason = getattr(error, "stdout", None) or error
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: needs an NVIDIA GPU, and nvidia-smi shows none: {str(reason).strip()}")


def needed(device):
    """Before long work: is there what `--device` names?"""
    if device.startswith("cuda"):
        ask("name")
