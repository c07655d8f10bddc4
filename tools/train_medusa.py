#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Medusa heads for a decoder on text, with the model frozen (Medusa-1 of Cai et al. 2024).

    tools/train_medusa.py MODEL TEXT OUT [--heads 3] [--minutes 8] [--threads 1]

MODEL: a folder that transformers opens; TEXT: a file of UTF-8 text, of which the last tenth measures the heads.
OUT gets config.json and medusa_lm_head.safetensors as published heads have them, for
`proa run MODEL --speculation medusa --draft-model OUT`. Needs torch and transformers (tested with 2.15 and 5.24).
Head d guesses the token d + 2 places ahead; its loss counts 0.8 ** d."""

import argparse
import json
import pathlib
import time

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW, BATCH = 512, 128


class Head(torch.nn.Module):
    def __init__(self, output):
        super().__init__()
        width = output.shape[1]
        self.linear = torch.nn.Linear(width, width)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)
        self.output = torch.nn.Linear(width, output.shape[0], bias=False)
        self.output.weight.data = output.clone()

    def forward(self, x):
        return self.output(x + torch.nn.functional.silu(self.linear(x)))


@torch.no_grad()
def hidden_states(model, ids):
    """What the model's head reads at each token, window by window; the first tokens of a window lack context."""
    out = []
    for at in range(0, len(ids) - WINDOW + 1, WINDOW):
        out.append(model.model(ids[None, at : at + WINDOW]).last_hidden_state[0])
    return torch.cat(out)


@torch.no_grad()
def accuracy(heads, x, ids, at, ranks=10):
    """For each head, how often its guess of each rank is right."""
    rows = []
    for d, head in enumerate(heads):
        top = head(x[at]).topk(ranks).indices
        rows.append((top == ids[at + d + 2, None]).float().mean(0).tolist())
    return rows


def train(heads, x, ids, minutes):
    steps, end = 0, time.time() + 60 * minutes
    optimizer = torch.optim.AdamW(heads.parameters(), lr=1e-3, weight_decay=0)
    last = int(len(x) * 0.9) - len(heads) - 2
    while time.time() < end:
        left = max(0.0, (end - time.time()) / (60 * minutes))
        optimizer.param_groups[0]["lr"] = 1e-3 * left
        at = torch.randint(0, last, (BATCH,))
        loss = sum(
            0.8**d * torch.nn.functional.cross_entropy(head(x[at]), ids[at + d + 2]) for d, head in enumerate(heads)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps}: loss {loss.item():.3f}", flush=True)
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    x = hidden_states(model, ids)
    heads = torch.nn.ModuleList(Head(model.lm_head.weight.data) for _ in range(args.heads))
    steps = train(heads, x, ids, args.minutes)
    held_out = torch.arange(int(len(x) * 0.9), len(x) - len(heads) - 2)
    for d, row in enumerate(accuracy(heads, x, ids, held_out)):
        print(f"head {d}: right by rank " + " ".join(f"{r:.3f}" for r in row))
    tensors = {}
    for d, head in enumerate(heads):
        tensors[f"{d}.0.linear.weight"] = head.linear.weight.data.bfloat16()
        tensors[f"{d}.0.linear.bias"] = head.linear.bias.data.bfloat16()
        tensors[f"{d}.1.weight"] = head.output.weight.data.bfloat16()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.out / "medusa_lm_head.safetensors")
    config = {"medusa_num_heads": args.heads, "medusa_num_layers": 1, "base_model_name_or_path": args.model}
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    print(f"{steps} steps, {args.out}")


if __name__ == "__main__":
    main()
