#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/prompt_tables/MODEL/KIND: prompt tables made by PEFT for the tiny checkpoints of
tests/golden/arch, with the logits and greedy tokens that transformers with PEFT gives. KIND is `prompt` (prompt
tuning), `ptuning` (p-tuning, the table that its encoder makes) or `prefix` (prefix tuning: keys and values). Of an
encoder-decoder `input_ids` are the encoder's, `decoder_ids` what its decoder begins with.

    golden_prompt_tables.py [MODEL ...]     needs torch, transformers, peft
"""
import json
import os
import sys

import peft
import torch
import transformers
from peft import PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
# Learned positions (gpt2, opt), a norm behind the embedding (bloom), an embedding whose scale applies to tables (granite)
# or does not (gemma2), heads in groups (qwen3, gemma2, phi3), sliding windows (gemma2).
MODELS = ["llama", "qwen3", "gpt2", "bloom", "gemma2", "opt", "granite", "phi3", "gptj"]
# Relative positions (t5), learned ones with a scaled embedding (mbart) or not (bart), sinusoids (marian).
SEQ2SEQ = ["t5", "bart", "mbart", "marian"]
# The encoder of marian would lack the scale of its embeddings with the others; gptj is for FasterTransformer's prefixes.
KINDS = {"marian": ["prefix"], "gptj": ["prefix"]}
CONFIGS = {"prompt": lambda task: PromptTuningConfig(task_type=task, num_virtual_tokens=5),
           "ptuning": lambda task: PromptEncoderConfig(task_type=task, num_virtual_tokens=70, encoder_hidden_size=32),
           "prefix": lambda task: PrefixTuningConfig(task_type=task, num_virtual_tokens=67)}


def run(model, ids, virtual, new, decoder_ids=None):
    """Logits of the first and the last real token, and `new` greedy ones, each from a pass of its own."""
    begin = ids if decoder_ids is None else decoder_ids
    out, logprobs, first, last = list(begin), [], None, None
    with torch.no_grad():
        for step in range(new):
            inputs = {"input_ids": torch.tensor([out])}
            if decoder_ids is not None:
                inputs = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([out])}
            rows = model(**inputs).logits[0].float()[-len(out):]
            if step == 0:
                first, last = rows[0], rows[-1]
            row = torch.log_softmax(rows[-1], -1)
            logprobs.append(round(float(row.max()), 6))
            out.append(int(row.argmax()))
    case = {"input_ids": ids, "virtual_tokens": virtual, "logits_first": [round(float(v), 5) for v in first],
            "logits_last": [round(float(v), 5) for v in last], "greedy": out[len(begin):], "greedy_logprobs": logprobs}
    return case if decoder_ids is None else {**case, "decoder_ids": decoder_ids}


def randomize(adapted, scale):
    """Numbers as large as the model's own embeddings, so that the table matters."""
    for name, p in adapted.named_parameters():
        if "prompt_encoder" in name:
            p.data.normal_(0, scale)


def make(name, kind):
    folder = os.path.join(ROOT, "arch", name)
    torch.manual_seed(sum(map(ord, name + kind)))
    seq2seq = name in SEQ2SEQ
    auto = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    config = CONFIGS[kind]("SEQ_2_SEQ_LM" if seq2seq else "CAUSAL_LM")
    adapted = get_peft_model(model, config)
    adapted.eval()
    scale = float(model.get_input_embeddings().weight.std()) if kind == "prompt" else 0.5
    randomize(adapted, scale)
    vocab = model.config.vocab_size
    prompts = [[(7 * i * i + 13 * j + 3) % vocab for i in range(n)] for j, n in enumerate((5, 9))]
    starts = [[model.config.decoder_start_token_id, 11, 7], [model.config.decoder_start_token_id]] if seq2seq else [None] * 2
    out = os.path.join(ROOT, "prompt_tables", name, kind)
    os.makedirs(out, exist_ok=True)
    adapted.save_pretrained(out, safe_serialization=kind != "ptuning")
    if os.path.exists(os.path.join(out, "README.md")):
        os.remove(os.path.join(out, "README.md"))
    path = os.path.join(out, "adapter_config.json")
    with open(path) as f:
        text = json.load(f)
    text["base_model_name_or_path"] = name
    with open(path, "w") as f:
        json.dump(text, f, indent=2, sort_keys=True)
    golden = {"reference": f"peft {peft.__version__}, transformers {transformers.__version__}, float32, CPU",
              "cases": [run(adapted, p, config.num_virtual_tokens, 8, start) for p, start in zip(prompts, starts)]}
    with open(os.path.join(out, "golden.json"), "w") as f:
        json.dump(golden, f)


if __name__ == "__main__":
    for model_name in sys.argv[1:] or MODELS + SEQ2SEQ:
        for kind_name in KINDS.get(model_name, CONFIGS):
            make(model_name, kind_name)
            print(model_name, kind_name)
