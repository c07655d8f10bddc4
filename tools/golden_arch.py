#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/NAME: a tiny random float32 checkpoint as transformers saves it, and golden.json with what
transformers computes from it on the CPU: logits of the first and last position, 24 greedy tokens and their log-probabilities.

Weights are large enough that every part of the model shows in the logits, and sizes such that a mistake would: heads that are
not a power of two (ALiBi's slopes), a window shorter than the prompts, caps that scores and logits come near. Seeds are taken
in order until no greedy choice is closer than 1e-2: then no rounding of f32 can change a token.

Makes the rows named in ROWS (the older rows were made in the same way). Needs torch and transformers 5.17.0:
    python3 tools/golden_arch.py bloom mpt gemma2
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import BloomConfig, Gemma2Config, MptConfig

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
VOCAB, NEW, PROMPTS, CLEAR = 200, 24, (7, 1, 23), 1e-2
IDS = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ROWS = {
    "bloom": lambda: BloomConfig(hidden_size=96, n_layer=2, n_head=6, **IDS),
    "mpt": lambda: MptConfig(d_model=64, n_layers=2, n_heads=4, max_seq_len=128, **IDS),
    "gemma2": lambda: Gemma2Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=256, query_pre_attn_scalar=24, sliding_window=8, attn_logit_softcapping=3.0,
        final_logit_softcapping=8.0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **IDS),
}


def fill(model, seed):
    """Embeddings are small, so that what the layers add decides and not which token it was; the last norm makes up for it."""
    random = torch.Generator().manual_seed(seed)
    stored_plus_one = type(model).__name__.startswith("Gemma")
    for name, p in model.named_parameters():
        values = torch.randn(p.shape, generator=random)
        if p.dim() == 2:
            p.data = values * ((0.4 if p.shape[0] == VOCAB else 2.0) / p.shape[1] ** 0.5)
        elif name.endswith("weight") and ("norm" in name or "ln_" in name):
            last = name.endswith(("ln_f.weight", "norm_f.weight", "model.norm.weight"))
            p.data = (8.0 if last else 1.0) * (1.0 + 0.2 * values) - (1.0 if stored_plus_one else 0.0)
        else:
            p.data = 0.2 * values
    return model


def rounded(row):
    return [float(f"{x:.9g}") for x in row.tolist()]


def case(model, ids):
    """And how clear the least clear of the greedy choices was."""
    logits = model(torch.tensor([ids])).logits[0]
    tokens, logprobs, gap = [], [], float("inf")
    for _ in range(NEW):
        row = model(torch.tensor([ids + tokens]), use_cache=False).logits[0, -1]
        best = torch.topk(row, 2).values
        gap = min(gap, float(best[0] - best[1]))
        tokens.append(int(row.argmax()))
        logprobs.append(row.log_softmax(-1)[tokens[-1]])
    return {"input_ids": ids, "logits_last": rounded(logits[-1]), "logits_first": rounded(logits[0]), "greedy": tokens,
            "greedy_logprobs": rounded(torch.stack(logprobs))}, gap


def attempt(row, seed):
    config = ROWS[row]()
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    fill(model, seed).tie_weights()
    random = torch.Generator().manual_seed(seed + 1000)
    prompts = [torch.randint(3, VOCAB, (n,), generator=random).tolist() for n in PROMPTS]
    cases = [case(model, ids) for ids in prompts]
    return model, [c for c, _ in cases], min(gap for _, gap in cases)


@torch.no_grad()
def make(row):
    seed, gap, cases = 0, 0.0, []
    for seed in range(300):
        model, cases, gap = attempt(row, seed)
        if gap > CLEAR and len(set(cases[2]["greedy"])) > 6:
            break
    model.save_pretrained(FOLDER / row)
    golden = {"transformers": transformers.__version__, "class": type(model).__name__, "kind": "lm", "cases": cases}
    (FOLDER / row / "golden.json").write_text(json.dumps(golden))
    print(f"{row}: seed {seed}, least gap {gap:.3g}, {len(set(cases[2]['greedy']))} different tokens")


if __name__ == "__main__":
    for name in sys.argv[1:] or ROWS:
        make(name)
