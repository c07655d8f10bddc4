# SPDX-License-Identifier: Apache-2.0
"""constrained.py - time of a mask and of compiling, beside llguidance and xgrammar from PyPI, on the same schemas, the same
vocabulary and the same tokens (random walks through Proa's masks).

    python bench/constrained.py FOLDER [--schemas N] [--walks N] [--peer llguidance|xgrammar]

FOLDER has a tokenizer as tiktoken's ranks (tokenizer.model). The program tests/grammar_walk must be built. Each schema is
compiled once; its walks share what was computed, in all programs. A walk stops where a peer refuses its next token."""
import argparse
import base64
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/grammar"))
import schemas  # noqa: E402


def read_ranks(folder):
    lines = (pathlib.Path(folder) / "tokenizer.model").read_text().split("\n")
    return [base64.b64decode(line.split()[0]) for line in lines if line]


class Llguidance:
    def __init__(self, tokens):
        import llguidance
        import llguidance.numpy

        class Tokens:
            eos_token_id, bos_token_id, special_token_ids = len(tokens), None, [len(tokens)]

            def __call__(self, text):
                return list(text if isinstance(text, bytes) else text.encode())

        Tokens.tokens = tokens + [b"\xff<end>"]
        self.module, self.masks = llguidance, llguidance.numpy
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()))
        self.mask = self.masks.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        self.grammar = self.module.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = self.module.LLMatcher(self.tokenizer, self.grammar)
        return None if matcher.is_error() else matcher

    def begin(self, compiled):
        compiled.reset()
        return compiled

    def fill(self, matcher):
        self.masks.fill_next_token_bitmask(matcher, self.mask, 0)

    def take(self, matcher, token):
        return matcher.consume_token(token)


class Xgrammar:
    def __init__(self, tokens):
        import xgrammar

        self.module = xgrammar
        info = xgrammar.TokenizerInfo(tokens + [b"<end>"], xgrammar.VocabType.RAW, stop_token_ids=[len(tokens)])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, len(tokens) + 1)

    def compile(self, schema):
        try:
            return self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
        except RuntimeError:
            return None

    def begin(self, compiled):
        return self.module.GrammarMatcher(compiled)

    def fill(self, matcher):
        matcher.fill_next_token_bitmask(self.mask)

    def take(self, matcher, token):
        return matcher.accept_token(token)


def measure(peer, schema, walks):
    begin = time.perf_counter_ns()
    compiled = peer.compile(schema)
    compile_us = (time.perf_counter_ns() - begin) * 1e-3
    if compiled is None:
        return None
    masks = []
    for walk in walks:
        matcher = peer.begin(compiled)
        for token in walk["ids"]:
            begin = time.perf_counter_ns()
            peer.fill(matcher)
            masks.append((time.perf_counter_ns() - begin) * 1e-3)
            if not peer.take(matcher, token):
                break
    return compile_us, masks


def show(name, compiles, masks):
    ordered = sorted(masks)
    print(f"{name:12} compile mean {statistics.mean(compiles):9.1f} us   median {statistics.median(compiles):8.1f}   "
          f"mask mean {statistics.mean(masks):8.2f} us   median {statistics.median(masks):7.2f}   "
          f"p99 {ordered[int(0.99 * len(ordered))]:9.1f}   max {ordered[-1]:9.1f}   masks {len(masks)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--walks", type=int, default=4)
    parser.add_argument("--peer", choices=["llguidance", "xgrammar"], default="llguidance")
    args = parser.parse_args()
    tokens = read_ranks(args.folder)
    chosen = schemas.all_schemas(args.schemas)
    lines = "\n".join(schemas.to_line(s) for s in chosen) + "\n"
    done = subprocess.run([ROOT / "build/release/tests/grammar_walk", args.folder, str(args.walks), "1"], input=lines,
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    peer = {"llguidance": Llguidance, "xgrammar": Xgrammar}[args.peer](tokens)
    ours, theirs, refused = ([], []), ([], []), 0
    for schema, answer in zip(chosen, answers):
        found = None if "error" in answer else measure(peer, schema, answer["walks"])
        if found is None:
            refused += 1
            continue
        ours[0].append(answer["compile_us"])
        ours[1].extend(answer["times"])
        theirs[0].append(found[0])
        theirs[1].extend(found[1])
    print(f"{len(tokens)} tokens, {len(chosen) - refused} of {len(chosen)} schemas, which both compile")
    show("proa", *ours)
    show(args.peer, *theirs)


if __name__ == "__main__":
    main()
