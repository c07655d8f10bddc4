#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/medusa/NAME: Medusa heads for the tiny Llama of tests/golden/arch, and what they guess by the
formulas of the public implementation (FasterDecoding/Medusa, medusa_model.py: ResBlock and its heads).

    golden_medusa.py          needs torch, transformers, safetensors

a: three heads of one layer, safetensors, which have learned the texts of tests/unit/engine/test_medusa.c, so that
drafts are accepted there. b: two heads of two layers, torch's format, random."""
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
TOP = 10


class ResBlock(torch.nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.linear = torch.nn.Linear(hidden_size, hidden_size)
        self.act = torch.nn.SiLU()

    def forward(self, x):
        return x + self.act(self.linear(x))


def make_heads(model, count, layers, noise):
    hidden, vocab = model.config.hidden_size, model.config.vocab_size
    heads = torch.nn.ModuleList(
        torch.nn.Sequential(*(ResBlock(hidden) for _ in range(layers)), torch.nn.Linear(hidden, vocab, bias=False))
        for _ in range(count))
    for p in heads.parameters():
        p.data.normal_(0, noise)
    for head in heads:
        head[-1].weight.data += model.lm_head.weight.data
    return heads


def prompt_of(i):
    """Those of requests in tests/unit/engine/test_medusa.c."""
    ids = [((5 if i % 2 else 31 * i) + k * k * 7 + k * 13) % 90 + 3 for k in range(30)]
    return ids if i % 2 else ids[: 6 + 3 * i]


def learn(model, heads):
    """The heads learn the model's own greedy texts, so that drafts are accepted; noise makes some of them wrong."""
    states, targets = [], []
    for i in range(7):
        ids = prompt_of(i)
        text = model.generate(torch.tensor([ids]), max_new_tokens=60, do_sample=False, eos_token_id=None)[0]
        with torch.no_grad():
            x = model.model(text[None]).last_hidden_state[0]
        for at in range(len(ids) - 1, len(text) - 1 - len(heads)):
            states.append(x[at])
            targets.append(text[at + 2 : at + 2 + len(heads)])
    states, targets = torch.stack(states), torch.stack(targets)
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.01)
    for _ in range(300):
        loss = sum(torch.nn.functional.cross_entropy(head(states), targets[:, d]) for d, head in enumerate(heads))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for p in heads.parameters():
        p.data += 0.5 * p.data.std() * torch.randn_like(p)
    rates = [float((head(states).argmax(-1) == targets[:, d]).float().mean()) for d, head in enumerate(heads)]
    print("learned:", " ".join(f"{r:.2f}" for r in rates))


@torch.no_grad()
def case(model, heads, ids):
    x = model.model(torch.tensor([ids])).last_hidden_state[0]
    rows = []
    for row in (0, len(ids) // 2, len(ids) - 1):
        top = [head(x[row]).topk(TOP) for head in heads]
        rows.append({"row": row, "ids": [t.indices.tolist() for t in top],
                     "least_gap": round(min(float((t.values[:-1] - t.values[1:]).min()) for t in top), 6)})
    return {"input_ids": ids, "rows": rows}


def make(name, count, layers, noise, learns, torch_format):
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_pretrained(os.path.join(ROOT, "arch", "llama"), dtype=torch.float32)
    heads = make_heads(model.eval(), count, layers, noise)
    if learns:
        learn(model, heads)
    out = os.path.join(ROOT, "medusa", name)
    os.makedirs(out, exist_ok=True)
    if torch_format:
        torch.save(heads.state_dict(), os.path.join(out, "medusa_lm_head.pt"))
    else:
        save_file(heads.state_dict(), os.path.join(out, "medusa_lm_head.safetensors"))
    config = {"medusa_num_heads": count, "medusa_num_layers": layers, "base_model_name_or_path": "llama"}
    vocab = model.config.vocab_size
    prompts = [[(7 * i * i + 13 * j + 3) % vocab for i in range(n)] for j, n in enumerate((5, 70))]
    golden = {"reference": f"formulas of FasterDecoding/Medusa, transformers {transformers.__version__}, "
                           f"torch {torch.__version__}, float32, CPU",
              "cases": [case(model, heads, p) for p in prompts]}
    for file, content in (("config.json", config), ("golden.json", golden)):
        with open(os.path.join(out, file), "w") as f:
            json.dump(content, f)
            f.write("\n")


make("a", 3, 1, 0.02, True, False)
make("b", 2, 2, 0.2, False, True)
