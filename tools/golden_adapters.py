#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adapters/MODEL/NAME: low-rank adapters made by PEFT for the tiny checkpoints of
tests/golden/arch, with the logits and greedy tokens that transformers with PEFT gives.

    golden_adapters.py [MODEL ...]          needs torch, transformers, peft
"""
import json
import os
import sys

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
# "a": all linear modules of the layers; "b": some, with the other options.
MODELS = ["llama", "qwen3", "gpt2", "gpt_neox", "falcon7b", "falcon40b", "bloom", "phi3", "phi", "gptj", "codegen",
          "mpt", "opt", "stablelm", "glm4", "granite", "gemma2", "olmo3", "starcoder2", "cohere", "granitemoehybrid",
          "lfm2", "falcon_h1", "nemotron_h_moe", "mamba2", "mamba"]
ENCODERS = ["bert", "qwen3_embed"]  # the first and last of their hidden states
EXCLUDED = ("lm_head", "embed", "rotary")


def linear_modules(model):
    """Names of all linear modules (and GPT-2's Conv1D) inside of the layers. PEFT refuses out_proj of
    some models of Mamba, and transformers reads the matrix of Mamba-1's dt_proj without its adapter."""
    refused = model.config.model_type in ("falcon_h1", "mamba", "mamba2", "nemotron_h")
    return sorted(n for n, m in model.named_modules()
                  if type(m).__name__ in ("Linear", "Conv1D", "FalconLinear")
                  and not any(e in n for e in EXCLUDED) and any(c.isdigit() for c in n.split("."))
                  and not (refused and n.endswith("out_proj")) and not n.endswith("mixer.dt_proj"))


def config_a(names):
    return LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=12, target_modules=sorted({n.split(".")[-1] for n in names}),
                      init_lora_weights=False)


def config_b(names):
    some = sorted({n.split(".")[-1] for n in names})
    first = some[0]
    return LoraConfig(task_type="CAUSAL_LM", r=6, lora_alpha=4, use_rslora=True, target_modules=some[:2],
                      rank_pattern={first: 19}, alpha_pattern={first: 9}, layers_to_transform=[0],
                      init_lora_weights=False)


def run(model, ids, new):
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = model(tokens).logits[0].float()
        out, logprobs = list(ids), []
        for _ in range(new):
            row = torch.log_softmax(model(torch.tensor([out])).logits[0, -1].float(), -1)
            logprobs.append(round(float(row.max()), 6))
            out.append(int(row.argmax()))
    return {"input_ids": ids, "logits_last": [round(float(v), 5) for v in logits[-1]],
            "logits_first": [round(float(v), 5) for v in logits[0]],
            "greedy": out[len(ids):], "greedy_logprobs": logprobs}


def hidden_rows(model, ids):
    with torch.no_grad():
        rows = model(torch.tensor([ids])).last_hidden_state[0].float()
    return {"input_ids": ids, "logits_last": [round(float(v), 6) for v in rows[-1]], "logits_first": [round(float(v), 6) for v in rows[0]]}


def make(name):
    folder = os.path.join(ROOT, "arch", name)
    for kind, config_of in (("a", config_a), ("b", config_b)):
        torch.manual_seed(sum(map(ord, name + kind)))
        auto = AutoModel if name in ENCODERS else AutoModelForCausalLM
        model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        model.eval()
        names = linear_modules(model)
        config = config_of(names)
        if name in ENCODERS:
            config.task_type, config.exclude_modules = "FEATURE_EXTRACTION", ".*pooler.*"
            config.layers_to_transform = None  # PEFT finds no layers in names that begin with them
        adapted = get_peft_model(model, config)
        adapted.eval()
        for n, p in adapted.named_parameters():
            if "lora_" in n:
                p.data.normal_(0, 0.2)
        vocab = model.config.vocab_size
        prompts = [[(7 * i * i + 13 * j + 3) % vocab for i in range(n)] for j, n in enumerate((5, 9))]
        out = os.path.join(ROOT, "adapters", name, kind)
        os.makedirs(out, exist_ok=True)
        adapted.save_pretrained(out, safe_serialization=kind == "a")
        if os.path.exists(os.path.join(out, "README.md")):
            os.remove(os.path.join(out, "README.md"))
        golden = {"reference": f"peft {peft.__version__}, transformers {transformers.__version__}, float32, CPU",
                  "cases": [hidden_rows(adapted, p) if name in ENCODERS else run(adapted, p, 8) for p in prompts]}
        with open(os.path.join(out, "golden.json"), "w") as f:
            json.dump(golden, f)
        print(name, kind, names[:9])


if __name__ == "__main__":
    for model_name in sys.argv[1:] or MODELS + ENCODERS:
        make(model_name)
