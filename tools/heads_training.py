# SPDX-License-Identifier: Apache-2.0
"""What train_medusa.py and train_eagle.py share: their arguments, the frozen model with its text, the time of the
training, and the folder that they write. Needs torch and transformers (tested with 2.15 and 5.24)."""

import argparse
import json
import pathlib
import time

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def make_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--threads", type=int, default=1)
    return parser


def load(args):
    """The model, frozen, and the ids of the text."""
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval().requires_grad_(False)
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(args.model)(text, add_special_tokens=False)["input_ids"]
    return model, torch.tensor(ids)


def train(parameters, minutes, rate, loss_of):
    """Adam with a learning rate that falls to 0 at the end of the time. loss_of() gives the loss of a random batch and
    what is printed of it. Returns the number of steps."""
    steps, end = 0, time.time() + 60 * minutes
    optimizer = torch.optim.AdamW(parameters, weight_decay=0)
    while time.time() < end:
        left = max(0.0, (end - time.time()) / (60 * minutes))
        optimizer.param_groups[0]["lr"] = rate(steps) * left
        loss, report = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps}: {report}", flush=True)
    return steps


def save(out, name, tensors, config):
    """The folder of published heads: config.json and a file of tensors, in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    save_file({key: t.bfloat16() for key, t in tensors.items()}, out / name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
