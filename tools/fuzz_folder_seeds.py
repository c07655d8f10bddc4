#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus/folder: one input of fuzz_folder for each architecture of tests/golden/arch.

The configuration is the golden one, and of the weights the header alone is kept (tests/fuzz/fuzz_folder.c fills in
the tensors). A tokenizer and chat templates of the other corpora go with some of them.
"""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/fuzz/corpus"
TOKENIZERS = ["model-bpe-affix", "model-unigram", "model-wordlevel", "model-wordpiece", "decoder-wordpiece-43"]
TEMPLATES = ["chatml.jinja", "gemma2.jinja", "zephyr.jinja", "plain_llama2.jinja"]


def header(path):
    data = path.read_bytes()
    return data[8:8 + struct.unpack("<Q", data[:8])[0]].rstrip()


def folder_of(index, source):
    files = {b"config.json": (source / "config.json").read_bytes()}
    if (source / "generation_config.json").exists():
        files[b"generation_config.json"] = (source / "generation_config.json").read_bytes()
    if index % 5 == 4:  # by an index
        tensors = [name for name in json.loads(header(source / "model.safetensors")) if name != "__metadata__"]
        weight_map = dict.fromkeys(tensors, "part1.safetensors")
        files[b"model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
        files[b"part1.safetensors header"] = header(source / "model.safetensors")
    else:
        files[b"model.safetensors header"] = header(source / "model.safetensors")
    if index % 3 < 2:
        files[b"tokenizer.json"] = (CORPUS / "tokenizer" / TOKENIZERS[index % len(TOKENIZERS)]).read_bytes()
        files[b"tokenizer_config.json"] = b'{"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true}'
        files[b"chat_template.jinja"] = (CORPUS / "template" / TEMPLATES[index % len(TEMPLATES)]).read_bytes()
    return b"\n".join(b"@@ " + name + b"\n" + text for name, text in files.items())


def main():
    target = CORPUS / "folder"
    target.mkdir(exist_ok=True)
    sources = [source for source in sorted((ROOT / "tests/golden/arch").iterdir()) if (source / "config.json").exists()]
    for index, source in enumerate(sources):
        (target / source.name).write_bytes(folder_of(index, source))


if __name__ == "__main__":
    main()
