#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Medusa heads for a decoder on text, with the model frozen (Medusa-1 of Cai et al. 2024).

    tools/train_medusa.py MODEL TEXT OUT [--heads 3] [--minutes 8] [--threads 1]

MODEL: a folder that transformers opens; TEXT: a file of UTF-8 text, of which the last tenth measures the heads.
OUT gets config.json and medusa_lm_head.safetensors as published heads have them, for
`proa run MODEL --speculation medusa --draft-model OUT`. Needs torch and transformers (tested with 2.15 and 5.24).
Head d guesses the token d + 2 places ahead; its loss counts 0.8 ** d."""

import heads_training
import torch

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
    last = int(len(x) * 0.9) - len(heads) - 2

    def loss_of():
        at = torch.randint(0, last, (BATCH,))
        loss = sum(
            0.8**d * torch.nn.functional.cross_entropy(head(x[at]), ids[at + d + 2]) for d, head in enumerate(heads)
        )
        return loss, f"loss {loss.item():.3f}"

    return heads_training.train(heads.parameters(), minutes, lambda step: 1e-3, loss_of)


def main():
    parser = heads_training.make_parser()
    parser.add_argument("--heads", type=int, default=3)
    args = parser.parse_args()
    model, ids = heads_training.load(args)
    x = hidden_states(model, ids)
    heads = torch.nn.ModuleList(Head(model.lm_head.weight.data) for _ in range(args.heads))
    steps = train(heads, x, ids, args.minutes)
    held_out = torch.arange(int(len(x) * 0.9), len(x) - len(heads) - 2)
    for d, row in enumerate(accuracy(heads, x, ids, held_out)):
        print(f"head {d}: right by rank " + " ".join(f"{r:.3f}" for r in row))
    tensors = {}
    for d, head in enumerate(heads):
        tensors[f"{d}.0.linear.weight"] = head.linear.weight.data
        tensors[f"{d}.0.linear.bias"] = head.linear.bias.data
        tensors[f"{d}.1.weight"] = head.output.weight.data
    config = {"medusa_num_heads": args.heads, "medusa_num_layers": 1, "base_model_name_or_path": args.model}
    heads_training.save(args.out, "medusa_lm_head.safetensors", tensors, config)
    print(f"{steps} steps, {args.out}")


if __name__ == "__main__":
    main()
