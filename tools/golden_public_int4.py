#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arch/autogptq_NAME and autoawq: the checkpoint arch/llama quantised and packed by AutoGPTQ and AutoAWQ.

    tools/golden_public_int4.py [FOLDER]      (needs auto-gptq 0.7.1, autoawq 0.2.9, transformers, torch, safetensors; on a CPU)

Both packages are no longer maintained, but most of the GPTQ and AWQ checkpoints of the hub were written by them. Their
model classes ask for CUDA and an old transformers, so that only the parts that make codes and files are used: AutoGPTQ's
GPTQ with its QuantLinear, and AutoAWQ's quantiser of groups with its WQLinear_GEMM. The logits are those of the model with
the weights that the packages' own layers compute with, in float32.
"""
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
GROUP = 32
HOME = pathlib.Path(importlib.util.find_spec("auto_gptq").origin).parent
torch.cuda.synchronize = lambda *_: None
for name in ("auto_gptq", "auto_gptq.modeling"):  # their __init__ import what transformers no longer has
    package = types.ModuleType(name)
    package.__path__ = [str(HOME.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package


def inputs_of(model, cases):
    """The inputs of each layer's matrices over the prompts of the golden: {name: [rows, K]}."""
    seen, hooks = {}, []
    for name, module in matrices(model):
        hooks.append(module.register_forward_hook(lambda m, i, o, name=name: seen.setdefault(name, []).append(i[0].flatten(0, -2))))
    for case in cases:
        model(torch.tensor([case["input_ids"]]))
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(rows) for name, rows in seen.items()}


def matrices(model):
    return [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]


def autogptq(module, inputs, symmetric, act_order):
    from auto_gptq.nn_modules.qlinear.qlinear_cuda_old import QuantLinear
    from auto_gptq.quantization.gptq import GPTQ

    work = GPTQ(module)
    work.quantizer.configure(4, perchannel=True, sym=symmetric, mse=False)
    work.add_batch(inputs[None], None)
    scale, zero, g_idx = work.fasterquant(percdamp=0.01, group_size=GROUP, actorder=act_order)
    packed = QuantLinear(4, GROUP, module.in_features, module.out_features, False, weight_dtype=torch.float32)
    packed.pack(module, scale, zero, g_idx)
    # its forward: codes minus (stored zero + 1), times the scale of the input's group
    codes = unpack(packed.qweight.T).T.float()  # [K, N]
    zeros = unpack(packed.qzeros).float() + 1  # [groups, N]
    group = packed.g_idx.long()
    weight = (codes - zeros[group]) * packed.scales.float()[group]
    return weight.T, {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales, "g_idx": packed.g_idx}


def unpack(words):
    """int32 [rows, n] to four-bit numbers [rows, 8 n], lowest bits first."""
    bits = torch.arange(0, 32, 4)
    return ((words[..., None] >> bits) & 15).flatten(-2)


def autoawq(module):
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.quantize.quantizer import AwqQuantizer
    from awq.utils.packing_utils import dequantize_gemm

    work = AwqQuantizer.__new__(AwqQuantizer)
    work.group_size, work.w_bit, work.zero_point = GROUP, 4, True
    module.weight.data, scales, zeros = work.pseudo_quantize_tensor(module.weight.data)
    packed = WQLinear_GEMM.from_linear(module, 4, GROUP, False, scales.T.contiguous(), zeros.T.contiguous())
    weight = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, GROUP)
    return weight.T.float(), {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}


FORMS = {
    "autogptq": (lambda m, x: autogptq(m, x, True, False), {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True,
                                                            "desc_act": False, "damp_percent": 0.01, "true_sequential": True}),
    "autogptq_act_order": (lambda m, x: autogptq(m, x, False, True), {"quant_method": "gptq", "bits": 4, "group_size": GROUP,
                                                                       "sym": False, "desc_act": True, "damp_percent": 0.01}),
    "autoawq": (lambda m, x: autoawq(m), {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
                                          "version": "gemm"}),
}


@torch.no_grad()
def make(name, out):
    quantise, config = FORMS[name]
    golden = json.loads((ROOT / "llama/golden.json").read_text())["cases"]
    model = AutoModelForCausalLM.from_pretrained(ROOT / "llama", dtype=torch.float32)
    inputs = inputs_of(model, golden)
    tensors = {}
    for path, module in matrices(model):
        weight, stored = quantise(module, inputs[path])
        module.weight.data = weight.contiguous()
        tensors.update({f"{path}.{key}": value.contiguous() for key, value in stored.items()})
    replaced = {f"{path}.weight" for path, _ in matrices(model)}
    tensors.update({n: t.half() for n, t in model.state_dict().items() if n not in replaced})
    model.load_state_dict({n: t.float() for n, t in tensors.items() if n in model.state_dict()}, strict=False)
    cases = []
    for case in golden:
        logits = model(torch.tensor([case["input_ids"]])).logits[0]
        cases.append({"input_ids": case["input_ids"], "logits_first": logits[0].tolist(), "logits_last": logits[-1].tolist()})
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    described = json.loads((ROOT / "llama/config.json").read_text())
    described.update(dtype="float16", quantization_config=config)
    (out / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("auto-gptq", "autoawq", "transformers")}
    (out / "golden.json").write_text(json.dumps({**versions, "class": "LlamaForCausalLM", "kind": "lm", "cases": cases}))


if __name__ == "__main__":
    for form in FORMS:
        target = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT) / form
        target.mkdir(parents=True, exist_ok=True)
        make(form, target)
