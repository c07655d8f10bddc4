#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/gguf: small vocabularies as GGUF files, texts, and the ids that llama.cpp makes of them.

usage: tools/golden_gguf_vocab.py [FOLDER]      default: tests/golden/gguf

Needs the PyPI packages gguf 0.19.0, sentencepiece 0.2.3, tokenizers 0.23.3, protobuf and llama-cpp-python 0.3.36 (the committed files
are from these). The vocabularies are trained on the validation text of the classics: SentencePiece BPE with byte
fallback, unigram with a table of normalisations, byte-level BPE with Llama 3's pre-tokenizer, WordPiece. NAME.gguf.inp has
the texts, parted as in llama.cpp's models/ggml-vocab-*.inp; NAME.gguf.out has a line of ids for each.
"""

import gzip
import io
import json
import pathlib
import sys

import gguf
import sentencepiece
import tokenizers
from llama_cpp import Llama

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/golden"
SEPARATOR = "\n__ggml_vocab_test__\n"
TEXTS = [
    "", " ", "  ", "\n", "\t", "a", "Call me Ishmael.", " It was the best of times", "Its  spaces   vary ", "ab\n\n cd",
    "don't, WON'T, we'Ll", "1 12 123 1234 12345", "3.14159, $5", "(a){b}[c]", "x = y + z;", "--- ...!?",
    "Über älter groß", "naïve café", "Ｆｕｌｌ ｗｉｄｔｈ ﬁne", "Привет, мир", "日本語のテキスト", "한국어", "مرحبا", "😀 🚀 👩‍👩‍👧",
    "e\u0301 n\u0303", "zero\u200bwidth", "\ufeffmark", "tab\tand\r\nline", "<s> </s> <unk> <0x41>", "<|turn|> said",
    "[CLS] [SEP]", "▁under", "the" * 20, "The sun did not shine; it was too wet to play."]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def lines():
    with gzip.open(ROOT / "data/classics-validation.txt.gz", "rt") as f:
        return [line for line in f if line.strip()]


def write(path, model, tokens, types, scores=None, merges=None, **more):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores is not None:
        w.add_token_scores(scores)
    if merges is not None:
        w.add_token_merges(merges)
    for key, value in more.items():
        getattr(w, "add_" + key)(value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def sentencepiece_model(path, kind):
    out = io.BytesIO()
    rules = {"normalization_rule_tsv": str(path.with_suffix(".tsv"))} if kind == "unigram" else {
        "normalization_rule_name": "identity"}
    if kind == "unigram":  # code points of the source and the target
        path.with_suffix(".tsv").write_text("FF46\t66\nFB01\t66 69\n65 301\tE9\n9\t20\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=out, vocab_size=600, model_type=kind, character_coverage=0.9995,
        byte_fallback=kind == "bpe", user_defined_symbols=["<|turn|>"], remove_extra_whitespaces=kind == "unigram",
        num_threads=1, hard_vocab_limit=False, **rules)
    path.with_suffix(".tsv").unlink(missing_ok=True)
    m = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    ids = range(m.get_piece_size())
    types = [UNKNOWN if m.is_unknown(i) else CONTROL if m.is_control(i) else UNUSED if m.is_unused(i) else
             BYTE if m.is_byte(i) else USER if m.id_to_piece(i) == "<|turn|>" else NORMAL for i in ids]
    more = {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0}
    if kind == "unigram":
        from sentencepiece import sentencepiece_model_pb2
        proto = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
        more.update(add_space_prefix=True, remove_extra_whitespaces=True,
                    precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap)
    write(path, "llama" if kind == "bpe" else "t5", [m.id_to_piece(i) for i in ids], types,
          [m.get_score(i) for i in ids], **more)


def byte_bpe(path):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(lines(), tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + ["<s>", "</s>", "<|turn|>"]
    types = [NORMAL] * (len(tokens) - 3) + [CONTROL, CONTROL, USER]
    write(path, "gpt2", tokens, types, merges=[" ".join(m) for m in model["merges"]], tokenizer_pre="llama-bpe",
          bos_token_id=len(tokens) - 3, eos_token_id=len(tokens) - 2)


def wordpiece(path):
    t = tokenizers.BertWordPieceTokenizer(lowercase=True)
    t.train_from_iterator(lines(), vocab_size=600, show_progress=False)
    vocab = t.get_vocab()
    tokens, types = [], []
    for token in sorted(vocab, key=vocab.get):
        control = token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        tokens.append(token if control else token[2:] if token.startswith("##") else "▁" + token)
        types.append(CONTROL if control else NORMAL)
    ids = {f"{name}_token_id": vocab[token] for name, token in (
        ("unk", "[UNK]"), ("sep", "[SEP]"), ("pad", "[PAD]"), ("mask", "[MASK]"))}
    write(path, "bert", tokens, types, bos_token_id=vocab["[CLS]"], **ids)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece_model(folder / "spm.gguf", "bpe")
    sentencepiece_model(folder / "unigram.gguf", "unigram")
    byte_bpe(folder / "bpe.gguf")
    wordpiece(folder / "wordpiece.gguf")
    for path in sorted(folder.glob("*.gguf")):
        model = Llama(str(path), vocab_only=True, verbose=False)
        (folder / (path.name + ".inp")).write_text(SEPARATOR.join(TEXTS) + SEPARATOR)
        with open(folder / (path.name + ".out"), "w") as out:
            for text in TEXTS:
                ids = model.tokenize(text.encode(), add_bos=False, special=True)
                out.write("".join(f" {i}" for i in ids) + "\n")


main()
