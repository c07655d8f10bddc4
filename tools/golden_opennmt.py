#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/opennmt and opennmt_gated: tiny random OpenNMT-py transformers, with the logits and greedy tokens
that OpenNMT-py's own modules compute from them in float32 on the CPU. The checkpoint is stored as safetensors, with the
configuration that Proa makes from `opt` (src/weights reads OpenNMT-py's files).

    pip install torch safetensors configargparse six pyyaml; pip install --no-deps OpenNMT-py==3.5.1
    python3 tools/golden_opennmt.py
"""
import argparse
import json
import pathlib
import sys
from unittest.mock import MagicMock

for missing in ("ctranslate2", "pyonmttok", "rapidfuzz", "ahocorasick", "fasttext", "spacy", "flask", "waitress", "tensorboard",
                "torch.utils.tensorboard"):
    sys.modules.setdefault(missing, MagicMock())  # of its training and its server

import torch  # noqa: E402
from onmt.decoders.transformer import TransformerDecoder  # noqa: E402
from onmt.encoders.transformer import TransformerEncoder  # noqa: E402
from onmt.modules.embeddings import Embeddings  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"
VOCAB, NEW, PROMPTS, CLEAR = 200, 20, (7, 1, 23), 2e-3
UNK, PAD, BOS, EOS = 0, 1, 2, 3
COMMON = {
    "encoder_type": "transformer", "decoder_type": "transformer", "enc_layers": 2, "dec_layers": 2, "heads": 4,
    "enc_hid_size": 48, "dec_hid_size": 48, "transformer_ff": 64, "position_encoding": True,
    "position_encoding_type": "SinusoidalInterleaved", "self_attn_type": "scaled-dot", "max_relative_positions": 0,
    "layer_norm": "standard", "norm_eps": 1e-6, "copy_attn": False, "parallel_residual": False, "num_kv": 0,
}
ROWS = {
    "opennmt": {"pos_ffn_activation_fn": "relu", "add_qkvbias": True, "add_ffnbias": True, "share_embeddings": True},
    "opennmt_gated": {"pos_ffn_activation_fn": "silu", "add_qkvbias": False, "add_ffnbias": True, "share_embeddings": False},
}
UNUSED = {
    "dropout": 0.0, "attention_dropout": 0.0, "relative_positions_buckets": 0, "aan_useffn": False, "alignment_heads": 0,
    "full_context_alignment": False, "alignment_layer": -1, "shared_layer_norm": False, "use_ckpting": [], "world_size": 1,
    "parallel_mode": "data_parallel", "sliding_window": 0, "rotary_interleave": True, "rotary_theta": 1e4, "rotary_dim": 0,
    "num_experts": 0, "num_experts_per_tok": 0,
}


def build(opt):
    tables = [Embeddings(opt.enc_hid_size, VOCAB, PAD, position_encoding=True, position_encoding_type=opt.position_encoding_type)
              for _ in range(2)]
    if opt.share_embeddings:
        tables[1].word_lut.weight = tables[0].word_lut.weight
    model = torch.nn.ModuleDict({"encoder": TransformerEncoder.from_opt(opt, tables[0]),
                                 "decoder": TransformerDecoder.from_opt(opt, tables[1]),
                                 "generator": torch.nn.Linear(opt.dec_hid_size, VOCAB)})
    return model.float().eval()


def fill(model, seed):
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        values = torch.randn(p.shape, generator=random)
        if p.dim() == 2:
            scale = 0.5 if "emb_luts" in name else 2.0
            p.data = values * (scale / p.shape[1] ** 0.5)
        elif name.endswith("norm.weight") or "layer_norm_" in name and name.endswith("weight"):
            p.data = 1.0 + 0.2 * values
        else:
            p.data = 0.2 * values


def logits_of(model, source, target):
    src = torch.tensor(source).view(1, -1, 1)
    memory, _ = model["encoder"](src, torch.tensor([len(source)]))[:2]
    model["decoder"].init_state(src, memory, memory)
    out, _ = model["decoder"](torch.tensor(target).view(1, -1, 1), memory, src_len=torch.tensor([len(source)]), step=None)
    return model["generator"](out)[0]


def rounded(row):
    return [float(f"{x:.9g}") for x in row.tolist()]


def greedy(model, source):
    tokens, gap = [BOS], float("inf")
    while len(tokens) <= NEW and tokens[-1] != EOS:
        best = torch.topk(logits_of(model, source, tokens)[-1], 2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens, gap


def attempt(model, seed):
    random = torch.Generator().manual_seed(seed + 1000)
    cases, least = [], float("inf")
    fill(model, seed)
    for n in PROMPTS:
        source, more = (torch.randint(4, VOCAB, (k,), generator=random).tolist() for k in (n, 5))
        tokens, gap = greedy(model, source)
        given, least = [BOS, *more], min(least, gap)
        cases.append({"input_ids": source, "decoder_input_ids": given,
                      "logits": [rounded(row) for row in logits_of(model, source, given)],
                      "beam1_lp1.0": {"ids": tokens, "score": None}})
    return cases, least


@torch.no_grad()
def make(row):
    options = {**COMMON, **ROWS[row]}
    model = build(argparse.Namespace(**options, **UNUSED))
    for seed in range(300):
        cases, gap = attempt(model, seed)
        if gap > CLEAR and len({t for c in cases for t in c["beam1_lp1.0"]["ids"]}) > 8:
            break
    tensors = {name: t.clone().contiguous() for name, t in model.state_dict().items()}
    context = 64
    for name in [n for n in tensors if n.endswith("pe.pe")]:  # one row stores its positions, the other leaves them out
        tensors[name] = tensors[name][:context].contiguous()
        if row == "opennmt_gated":
            del tensors[name]
    (FOLDER / row).mkdir(exist_ok=True)
    save_file(tensors, FOLDER / row / "model.safetensors")
    config = {"architectures": ["OpenNMTTransformer"], "model_type": "opennmt", **options, "src_vocab_size": VOCAB,
              "tgt_vocab_size": VOCAB, "max_position_embeddings": context, "unk_token_id": UNK, "pad_token_id": PAD,
              "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    (FOLDER / row / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    golden = {"opennmt": "3.5.1", "class": "TransformerEncoder, TransformerDecoder", "kind": "s2s", "cases": cases}
    (FOLDER / row / "golden.json").write_text(json.dumps(golden))
    print(f"{row}: seed {seed}, least gap {gap:.3g}")


torch.set_num_threads(1)
if __name__ == "__main__":
    for name in sys.argv[1:] or ROWS:
        make(name)
