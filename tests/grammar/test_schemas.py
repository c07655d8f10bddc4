# SPDX-License-Identifier: Apache-2.0
"""test_schemas.py - 500 schemas: random walks through their masks give texts that python's jsonschema accepts, and texts
that it accepts are accepted.

PROA_GRAMMAR_WALK names the built program tests/grammar_walk, PROA_GRAMMAR_TOKENIZER a folder with a tokenizer."""
import json
import os
import pathlib
import random
import subprocess

import pytest
import schemas

jsonschema = pytest.importorskip("jsonschema")

ROOT = pathlib.Path(__file__).resolve().parents[2]
WALK = os.environ.get("PROA_GRAMMAR_WALK", str(ROOT / "build/release/tests/grammar_walk"))
TOKENIZER = os.environ.get("PROA_GRAMMAR_TOKENIZER", str(ROOT / "tests/golden/tokenizers/tiktoken_o200k_base"))
WALKS = 4


def run_walks(lines):
    done = subprocess.run([WALK, TOKENIZER, str(WALKS), "1"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def validator(schema):
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def documents(schema, r):
    found = []
    for _ in range(3):
        document = schemas.document_of(r, schema, schema)
        if "\\u0000" not in json.dumps(document) and validator(schema).is_valid(document):
            found += [json.dumps(document, ensure_ascii=False), json.dumps(document, ensure_ascii=False, indent=2),
                      json.dumps(document, ensure_ascii=False, separators=(",", ":"))]
    return found


def test_schemas():
    r = random.Random(5)
    all_of_them = schemas.all_schemas()
    accept = [documents(s, r) for s in all_of_them]
    answers = run_walks([schemas.to_line(s, a) for s, a in zip(all_of_them, accept)])
    assert len(answers) == len(all_of_them)
    texts, unfinished, refused, accepted = 0, 0, 0, 0
    for schema, documents_of, answer in zip(all_of_them, accept, answers):
        if "error" in answer: # nothing matches, or a length beside a pattern
            assert "no finite text" in answer["error"], (schema, answer)
            refused += 1
            continue
        for walk in answer["walks"]:
            if walk.get("error"):
                assert walk["error"] == "unfinished", (schema, walk)
                unfinished += 1
                continue
            value = json.loads(walk["text"])
            assert validator(schema).is_valid(value), (schema, walk["text"])
            texts += 1
        for text, was_accepted in zip(documents_of, answer["accepted"]):
            assert was_accepted, (schema, text)
            accepted += 1
    print(f"{texts} texts valid, {unfinished} unfinished, {accepted} documents accepted, {refused} schemas match nothing")
    assert texts > 1800 and accepted > 1000 and refused < 20
