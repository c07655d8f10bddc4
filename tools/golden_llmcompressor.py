#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arch/llmc_NAME: the checkpoint arch/llama quantised by llm-compressor, as it is published to vLLM.

    tools/golden_llmcompressor.py [FOLDER]      (needs llmcompressor, compressed-tensors, transformers, torch; on a CPU)

The logits are those of the model with the weights that the codes stand for, in float32 (activations are not
quantised): the f32 arithmetic of Proa.
"""
import importlib.metadata
import json
import pathlib
import sys

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"


def grouped(bits, symmetric):
    return {"config_groups": {"group_0": QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=bits, group_size=32, strategy="group", symmetric=symmetric))}}


FORMS = {"fp8": {"targets": "Linear", "scheme": "FP8_DYNAMIC"}, "w8a8": {"targets": "Linear", "scheme": "W8A8"},
         "w4a16": grouped(4, True), "w4a16_asym": grouped(4, False)}


@torch.no_grad()
def make(name, out):
    model = AutoModelForCausalLM.from_pretrained(ROOT / "llama", dtype=torch.float32)
    oneshot(model=model, recipe=QuantizationModifier(ignore=["lm_head"], **FORMS[name]))
    model.save_pretrained(out, save_compressed=True)
    for extra in ("recipe.yaml", "generation_config.json"):
        (out / extra).unlink(missing_ok=True)
    quantised = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(ROOT / "llama", dtype=torch.float32)
    for (_, a), (_, b) in zip(plain.named_modules(), quantised.named_modules()):
        if isinstance(a, torch.nn.Linear):
            a.weight.copy_(weight_of(b))
    cases = []
    for case in json.loads((ROOT / "llama/golden.json").read_text())["cases"]:
        logits = plain(torch.tensor([case["input_ids"]])).logits[0]
        cases.append({"input_ids": case["input_ids"], "logits_first": logits[0].tolist(), "logits_last": logits[-1].tolist()})
    versions = {p: importlib.metadata.version(p) for p in ("llmcompressor", "compressed-tensors", "transformers")}
    (out / "golden.json").write_text(json.dumps({**versions, "class": "LlamaForCausalLM", "kind": "lm", "cases": cases}))


def weight_of(module):
    """The numbers that a layer's codes stand for."""
    from compressed_tensors.compressors import decompress_module
    if hasattr(module, "weight_packed") or (hasattr(module, "weight_scale") and module.weight.dtype != torch.float32):
        decompress_module(module)
    return module.weight.float()


if __name__ == "__main__":
    for form in FORMS:
        target = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT) / f"llmc_{form}"
        target.mkdir(parents=True, exist_ok=True)
        make(form, target)
