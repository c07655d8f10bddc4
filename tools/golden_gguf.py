#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arch/gguf_NAME: the checkpoint tests/golden/arch/NAME as a GGUF file, and its golden.json.

usage: tools/golden_gguf.py LLAMA_CPP [NAME...]      default: llama llama3 gpt2 gpt_neox falcon40b mixtral gpt_oss t5
                                                           minicpm exaone4 olmo3 deepseek_v2 deepseek_v3 modernbert_bare

LLAMA_CPP is a folder with llama.cpp's sources; the committed files are from those in the sdist of llama-cpp-python 0.3.36
(PyPI, vendor/llama.cpp). Its own converter writes the file, in float32; it needs torch, transformers, safetensors and
numpy. The checkpoints have no tokenizer, so none is converted. Keys that the converter expects by their older names are
added to the configuration before.
"""

import json
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"


def older_keys(config):
    config.setdefault("n_ctx", config.get("n_positions"))
    config.setdefault("rotary_pct", config.get("rope_parameters", {}).get("partial_rotary_factor", 0.25))
    if config["model_type"] == "falcon" and config["multi_query"] and not config["new_decoder_architecture"]:
        config["num_kv_heads"] = 1
    if config["model_type"] == "deepseek_v3":
        config.setdefault("scoring_func", "sigmoid")
    if config["model_type"] == "mpt":
        config["architectures"] = ["MPTForCausalLM"]
        config["attn_config"].setdefault("clip_qkv", None)
    return config


def convert(source, out):
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        config = older_keys(json.loads((source / "config.json").read_text()))
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        loaded = ModelBase.load_hparams(pathlib.Path(folder), False)
        model_class = get_model_class(get_model_architecture(loaded, ModelType.TEXT))
        model_class.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("no_vocab")
        with torch.inference_mode():
            model = model_class(pathlib.Path(folder), gguf.LlamaFileType.ALL_F32, out)
            for key, value in config.items():
                model.hparams.setdefault(key, value)
            model.write()


def main():
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
    for name in sys.argv[2:] or ["llama", "llama3", "gpt2", "gpt_neox", "falcon40b", "mixtral", "gpt_oss", "t5", "minicpm", "exaone4", "olmo3",
                                 "deepseek_v2", "deepseek_v3", "modernbert_bare"]:
        target = ROOT / f"gguf_{name}"
        target.mkdir(exist_ok=True)
        convert(ROOT / name, target / "model.gguf")
        shutil.copy(ROOT / name / "golden.json", target)


main()
