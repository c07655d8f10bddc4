#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/NAME for heads and variants of ModernBERT, DeBERTa, XLNet and T5: a tiny random float32 checkpoint as
transformers saves it, and golden.json with what transformers computes from it on the CPU: the logits of the head, or the hidden
states of a model without one.

The longest input has 90 tokens: more than a page of keys, than a local window, than the exact part of the position buckets and
than the distances at which positions are clamped. Needs torch and transformers 5.17.0:
    python3 tools/golden_encoders.py deberta_mlm
"""
import json
import sys

import torch
import transformers
from golden_arch import FOLDER, VOCAB, fill
from transformers import DebertaV2Config, ModernBertConfig, T5Config, XLNetConfig

LENGTHS = (7, 1, 90)
MODERN = {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64, "local_attention": 10,
          "max_position_embeddings": 128, "vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
          "cls_token_id": 1, "sep_token_id": 2}
DEBERTA = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "relative_attention": True,
           "max_position_embeddings": 128, "pos_att_type": "c2p|p2c", "vocab_size": VOCAB}
XLNET = {"d_model": 48, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": VOCAB}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
ROWS = {
    "modernbert_cls": ("ModernBertForSequenceClassification", lambda: ModernBertConfig(
        num_labels=3, classifier_activation="silu", **MODERN)),
    "modernbert_mean": ("ModernBertForSequenceClassification", lambda: ModernBertConfig(
        num_labels=3, classifier_pooling="mean", **dict(MODERN, num_hidden_layers=2, global_attn_every_n_layers=2))),
    "modernbert_token": ("ModernBertForTokenClassification", lambda: ModernBertConfig(num_labels=5, **BIASES, **MODERN)),
    "modernbert_bare": ("ModernBertModel", lambda: ModernBertConfig(**MODERN)),
    "deberta_bare": ("DebertaV2Model", lambda: DebertaV2Config(
        position_biased_input=True, type_vocab_size=2, max_relative_positions=20, **DEBERTA)),
    "deberta_token": ("DebertaV2ForTokenClassification", lambda: DebertaV2Config(
        num_labels=5, position_biased_input=False, type_vocab_size=0, position_buckets=32, norm_rel_ebd="layer_norm",
        conv_kernel_size=5, **DEBERTA)),
    "deberta_mlm": ("DebertaV2ForMaskedLM", lambda: DebertaV2Config(
        position_biased_input=False, type_vocab_size=0, position_buckets=16, share_att_key=True, norm_rel_ebd="layer_norm",
        **DEBERTA)),
    "xlnet_bare": ("XLNetModel", lambda: XLNetConfig(**XLNET)),
    "xlnet_token": ("XLNetForTokenClassification", lambda: XLNetConfig(num_labels=5, clamp_len=30, **XLNET)),
    "t5_encoder": ("T5EncoderModel", lambda: T5Config(
        d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4, vocab_size=VOCAB, relative_attention_num_buckets=16,
        feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1)),
    "xlnet_pair": ("XLNetForTokenClassification", lambda: XLNetConfig(num_labels=5, **XLNET)),
    "xlnet_pair_cls": ("XLNetForSequenceClassification", lambda: XLNetConfig(num_labels=3, **XLNET)),
}


def rounded(values):
    return [rounded(row) for row in values] if values.dim() > 1 else [float(f"{x:.6g}") for x in values.tolist()]


def segments(row, length):
    """Token types of a pair as XLNet's tokenizer gives them: 0, then 1, and 2 for the last token; of the shortest input none."""
    if "pair" not in row or length == 1:
        return None
    return [int(i > length // 3) for i in range(length - 1)] + [2]


@torch.no_grad()
def make(row):
    name, config = ROWS[row]
    model = getattr(transformers, name)._from_config(config(), attn_implementation="eager").float().eval()
    fill(model, 1).tie_weights()
    random = torch.Generator().manual_seed(1001)
    kind, key = ("cls", "logits") if "For" in name else ("enc", "last_hidden_state")
    cases = []
    for length in LENGTHS:
        ids = torch.randint(3, VOCAB - 1, (length,), generator=random).tolist()
        types = segments(row, length)
        output = model(torch.tensor([ids]), token_type_ids=torch.tensor([types])) if types else model(torch.tensor([ids]))
        case = {"input_ids": ids, "token_type_ids": types} if types else {"input_ids": ids}
        cases.append(case | {key: rounded(getattr(output, key)[0])})
    model.save_pretrained(FOLDER / row)
    golden = {"transformers": transformers.__version__, "class": name, "kind": kind, "cases": cases}
    (FOLDER / row / "golden.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    for folder in sys.argv[1:] or ROWS:
        make(folder)
