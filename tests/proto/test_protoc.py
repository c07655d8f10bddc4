# SPDX-License-Identifier: Apache-2.0
"""Compares Proa's reader of config.pbtxt with protoc --encode: on the corpus, and on 400 mutations of it.

Both must accept or both refuse, and what they make of a text must be the same message. Proa's side is the driver
tests/proto/pbtxt_driver.c (beside the program that $PROA names). Needs protoc; where it is missing, the goldens that it
made (tests/golden/pbtxt, tests/unit/proto/test_pbtxt.c) stand for it. PROA_PBTXT names a folder of further .pbtxt files.
Run by pytest.
"""
import os
import pathlib
import random
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus/pbtxt"
DRIVER = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).parent / "tests/proto_pbtxt"
PIECES = [b"{", b"}", b"<", b">", b"[", b"]", b":", b",", b";", b"-", b".", b"#", b"\n", b" ", b'"', b"'", b"\\", b"0x",
          b"e", b"f", b"1", b"08", b"true", b"inf", b"name", b"dims: 1", b"input { }", b"\\u00e9", b"\\777", b"\xff",
          b"\0", b'"a" "b"', b"max_batch_size: 0", b"version_policy { all { } }"]

pytestmark = pytest.mark.skipif(not shutil.which("protoc"), reason="needs protoc (protobuf-compiler)")


def protoc(text):
    """The wire encoding, or None if protoc refuses the text or doubts that its strings are UTF-8."""
    r = subprocess.run(["protoc", "-I", ROOT / "src/proto", "--encode=inference.ModelConfig", "model_config.proto"],
                       input=text, capture_output=True)
    return None if r.returncode or b"invalid UTF-8" in r.stderr else r.stdout


def proa(paths):
    """For each file the wire encoding, or None and the message; *.pb are read as wire encodings."""
    r = subprocess.run([DRIVER], input="".join(f"{p}\n" for p in paths).encode(), capture_output=True, check=True)
    lines = r.stdout.decode(errors="replace").splitlines()
    assert len(lines) == len(paths)
    return [(bytes.fromhex(x[3:]), "") if x.startswith("ok ") else (None, x) for x in lines]


def stricter(message):
    """Proa refuses what would be of no use: NUL in a string, and \\U beyond U+10FFFF (which protoc keeps as it is)."""
    return "NUL byte" in message or "invalid escape" in message


def compare(texts, folder):
    """How many were accepted by both."""
    wire = [protoc(t) for t in texts]
    paths = []
    for i, (text, w) in enumerate(zip(texts, wire)):
        (folder / f"{i}.pbtxt").write_bytes(text)
        (folder / f"{i}.pb").write_bytes(w or b"")
        paths += [folder / f"{i}.pbtxt", folder / f"{i}.pb"]
    answers = proa(paths)
    accepted = 0
    for text, want, (got, message), (canonical, _) in zip(texts, wire, answers[::2], answers[1::2]):
        if want is None or got is None:
            assert got is None, f"protoc refuses what Proa takes: {text!r}"
            assert want is None or stricter(message), f"protoc takes what Proa refuses ({message}): {text!r}"
            continue
        accepted += 1
        assert got == canonical, text
    return accepted


def mutate(text, rng):
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        cut = rng.choice([0, 0, 1, 1, 3, 10])
        piece = rng.choice([b"", rng.choice(PIECES), rng.choice(PIECES), bytes([rng.randrange(256)])])
        text = text[:at] + piece + text[at + cut:]
    return text


def test_corpus(tmp_path):
    files = sorted(CORPUS.iterdir())
    good = [f.read_bytes() for f in files if f.name.startswith("good-")]
    assert compare(good, tmp_path) == len(good) > 10
    assert compare([f.read_bytes() for f in files if f.name.startswith(("bad-", "stricter-"))], tmp_path) == 0


def test_mutations(tmp_path):
    rng = random.Random(7)
    seeds = [f.read_bytes() for f in sorted(CORPUS.iterdir()) if f.name.startswith("good-")]
    assert 20 < compare([mutate(rng.choice(seeds), rng) for _ in range(400)], tmp_path) < 380


@pytest.mark.skipif("PROA_PBTXT" not in os.environ, reason="PROA_PBTXT names no folder")
def test_folder(tmp_path):
    texts = [f.read_bytes() for f in sorted(pathlib.Path(os.environ["PROA_PBTXT"]).rglob("*")) if f.is_file()]
    print(f"{compare(texts, tmp_path)} of {len(texts)} files accepted, all alike")
