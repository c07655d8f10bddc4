#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains an EAGLE-1 head for a Llama-like decoder on text, with the model frozen (Li et al. 2024): the head learns the
model's next hidden state (smooth L1) and its distribution of the token after it (cross entropy, times 0.1).

    tools/train_eagle.py MODEL TEXT OUT [--minutes 8] [--threads 1] [--ffn N]

MODEL: a folder that transformers opens; TEXT: a file of UTF-8 text, of which the last tenth measures the head. OUT gets
config.json and model.safetensors as published heads have them, for `proa run MODEL --draft-model OUT`. Needs torch and
transformers (tested with 2.15 and 5.24)."""

import heads_training
import torch
from torch.nn import functional

WINDOW, BATCH = 256, 4


def rotate(x, theta):
    """x [batch, heads, rows, dim] at positions 0, 1, ..."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


class Head(torch.nn.Module):
    """cnets1.py: fc [embedding; state], then one layer whose input has no norm."""

    def __init__(self, c, ffn, theta):
        super().__init__()
        hidden, self.dim, self.theta, self.eps = c.hidden_size, c.head_dim, theta, c.rms_norm_eps
        queries, keys = c.num_attention_heads * self.dim, c.num_key_value_heads * self.dim
        self.fc = torch.nn.Linear(2 * hidden, hidden)
        self.q_proj, self.o_proj = linear(hidden, queries), linear(queries, hidden)
        self.k_proj, self.v_proj = linear(hidden, keys), linear(hidden, keys)
        self.norm = torch.nn.Parameter(torch.ones(hidden))
        self.gate_proj, self.up_proj, self.down_proj = linear(hidden, ffn), linear(hidden, ffn), linear(ffn, hidden)
        for p in (self.o_proj.weight, self.down_proj.weight):
            p.data.mul_(0.1)

    def forward(self, embedded, states):
        x = self.fc(torch.cat((embedded, states), -1))
        q, k, v = (p(x).unflatten(-1, (-1, self.dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, self.theta), rotate(k, self.theta)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        n = functional.rms_norm(x, self.norm.shape, self.norm, self.eps)
        return x + self.down_proj(functional.silu(self.gate_proj(n)) * self.up_proj(n))


@torch.no_grad()
def hidden_states(model, ids):
    return torch.stack([model.model(w[None]).last_hidden_state[0] for w in ids])


def losses(model, head, ids, states):
    """Row i has token i + 1 and state i, and shall give state i + 1."""
    made = head(model.model.embed_tokens(ids[:, 1:]), states[:, :-1])
    with torch.no_grad():
        target = model.lm_head(states[:, 1:]).softmax(-1)
    logits = model.lm_head(made)
    return functional.smooth_l1_loss(made, states[:, 1:]), functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(0, 1)), (logits.argmax(-1) == target.argmax(-1)).float().mean()


def train(model, head, ids, states, minutes):
    def loss_of():
        at = torch.randint(0, len(ids), (BATCH,))
        noise = states[at] + 0.1 * states.std() * (torch.rand_like(states[at]) - 0.5)
        feature, tokens, right = losses(model, head, ids[at], noise)
        return feature + 0.1 * tokens, f"state {feature:.4f}, tokens {tokens:.3f}, right {right:.3f}"

    return heads_training.train(head.parameters(), minutes, lambda step: 2e-3 * min(1, (step + 1) / 50), loss_of)


def published_name(name):
    if name.startswith("fc."):
        return name
    if name == "norm":
        return "layers.0.post_attention_layernorm.weight"
    return ("layers.0.mlp." if name.split("_")[0] in ("gate", "up", "down") else "layers.0.self_attn.") + name


def main():
    parser = heads_training.make_parser()
    parser.add_argument("--ffn", type=int, default=0, help="of the head; 0: as the model")
    args = parser.parse_args()
    model, ids = heads_training.load(args)
    c = model.config
    theta, ffn = c.rope_parameters["rope_theta"], args.ffn or c.intermediate_size
    ids = ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
    states = hidden_states(model, ids)
    head, held_out = Head(c, ffn, theta), max(1, len(ids) // 10)
    steps = train(model, head, ids[:-held_out], states[:-held_out], args.minutes)
    with torch.no_grad():
        print(f"held out: right {losses(model, head, ids[-held_out:], states[-held_out:])[2]:.3f}")
    tensors = {published_name(name): p for name, p in head.state_dict().items()}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bias": True, "hidden_act": "silu",
              "hidden_size": c.hidden_size, "intermediate_size": ffn, "head_dim": c.head_dim, "rope_theta": theta,
              "num_attention_heads": c.num_attention_heads, "num_key_value_heads": c.num_key_value_heads,
              "num_hidden_layers": 1, "max_position_embeddings": c.max_position_embeddings,
              "rms_norm_eps": c.rms_norm_eps, "vocab_size": c.vocab_size, "torch_dtype": "bfloat16"}
    heads_training.save(args.out, "model.safetensors", tensors, config)
    print(f"{steps} steps, {args.out}")


if __name__ == "__main__":
    main()
