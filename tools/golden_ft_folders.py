#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny GPT-2, GPT-J, GPT-NeoX and T5 models as safetensors and as folders of FasterTransformer of 1 and 2 ranks.

usage: tools/golden_ft_folders.py [FOLDER]      default: tests/golden/checkpoint

tests/unit/engine/test_checkpoints.c asserts that all forms give bitwise the same logits. Needs numpy and safetensors
(made with numpy 2.4.6, safetensors 0.6.2). The layouts follow NVIDIA/FasterTransformer's converters
(examples/pytorch/{gpt,gptj,gptneox,t5}/utils/huggingface_*_convert.py): matrices are [in, out], q, k and v are side by
side as [in, 3, out], ranks share the outputs of the first matrix of a pair and the inputs of the second.
"""

import configparser
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

HIDDEN, HEADS, LAYERS, VOCAB, POSITIONS, FFN, BUCKETS = 32, 2, 2, 64, 48, 48, 8
RNG = np.random.default_rng(11)


def matrix(*shape):
    return (RNG.standard_normal(shape) * 0.15).astype(np.float32)


def gain(n):
    return (1 + RNG.standard_normal(n) * 0.1).astype(np.float32)


class Folder:
    """The files of FasterTransformer."""

    def __init__(self, path, ranks):
        self.path, self.ranks = path, ranks
        path.mkdir(parents=True, exist_ok=True)

    def whole(self, name, value):
        np.ascontiguousarray(value).tofile(self.path / f"{name}.bin")

    def split(self, name, value, axis):
        for rank, part in enumerate(np.split(value, self.ranks, axis)):
            np.ascontiguousarray(part).tofile(self.path / f"{name}.{rank}.bin")

    def config(self, **sections):
        ini = configparser.ConfigParser()
        for section, values in sections.items():
            ini[section] = {key: str(value) for key, value in values.items()}
        with open(self.path / "config.ini", "w") as f:
            ini.write(f)


def side_by_side(q, k, v):
    """[in, 3, out] of matrices [in, out]."""
    return np.stack([q, k, v], axis=-2)


# ---- GPT-2 ----

def gpt2():
    w = {"transformer.wte.weight": matrix(VOCAB, HIDDEN), "transformer.wpe.weight": matrix(POSITIONS, HIDDEN),
         "transformer.ln_f.weight": gain(HIDDEN), "transformer.ln_f.bias": matrix(HIDDEN)}
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            w[f"{h}{norm}.weight"], w[f"{h}{norm}.bias"] = gain(HIDDEN), matrix(HIDDEN)
        for name, rows, cols in (("attn.c_attn", HIDDEN, 3 * HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN),
                                 ("mlp.c_fc", HIDDEN, FFN), ("mlp.c_proj", FFN, HIDDEN)):
            w[f"{h}{name}.weight"], w[f"{h}{name}.bias"] = matrix(rows, cols), matrix(cols)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": HIDDEN, "n_head": HEADS,
              "n_layer": LAYERS, "n_inner": FFN, "n_positions": POSITIONS, "vocab_size": VOCAB, "bos_token_id": 1,
              "eos_token_id": 2, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"}
    return config, w


def gpt2_ft(folder, w):
    folder.config(gpt={"model_name": "gpt", "head_num": HEADS, "size_per_head": HIDDEN // HEADS, "inter_size": FFN,
                       "max_pos_seq_len": POSITIONS, "num_layer": LAYERS, "vocab_size": VOCAB, "start_id": 1,
                       "end_id": 2, "weight_data_type": "fp32", "tensor_para_size": folder.ranks})
    folder.whole("model.wte", w["transformer.wte.weight"])
    folder.whole("model.wpe", w["transformer.wpe.weight"])
    folder.whole("model.final_layernorm.weight", w["transformer.ln_f.weight"])
    folder.whole("model.final_layernorm.bias", w["transformer.ln_f.bias"])
    for i in range(LAYERS):
        h, f = f"transformer.h.{i}.", f"model.layers.{i}."
        for theirs, ours in (("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2")):
            folder.whole(f"{f}{theirs}.weight", w[f"{h}{ours}.weight"])
            folder.whole(f"{f}{theirs}.bias", w[f"{h}{ours}.bias"])
        folder.split(f + "attention.query_key_value.weight", w[h + "attn.c_attn.weight"].reshape(HIDDEN, 3, HIDDEN), -1)
        folder.split(f + "attention.query_key_value.bias", w[h + "attn.c_attn.bias"].reshape(3, HIDDEN), -1)
        folder.split(f + "attention.dense.weight", w[h + "attn.c_proj.weight"], 0)
        folder.whole(f + "attention.dense.bias", w[h + "attn.c_proj.bias"])
        folder.split(f + "mlp.dense_h_to_4h.weight", w[h + "mlp.c_fc.weight"], -1)
        folder.split(f + "mlp.dense_h_to_4h.bias", w[h + "mlp.c_fc.bias"], -1)
        folder.split(f + "mlp.dense_4h_to_h.weight", w[h + "mlp.c_proj.weight"], 0)
        folder.whole(f + "mlp.dense_4h_to_h.bias", w[h + "mlp.c_proj.bias"])


# ---- GPT-J ----

def gptj():
    w = {"transformer.wte.weight": matrix(VOCAB, HIDDEN), "lm_head.weight": matrix(VOCAB, HIDDEN),
         "lm_head.bias": matrix(VOCAB), "transformer.ln_f.weight": gain(HIDDEN), "transformer.ln_f.bias": matrix(HIDDEN)}
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        w[h + "ln_1.weight"], w[h + "ln_1.bias"] = gain(HIDDEN), matrix(HIDDEN)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            w[f"{h}attn.{name}.weight"] = matrix(HIDDEN, HIDDEN)
        w[h + "mlp.fc_in.weight"], w[h + "mlp.fc_in.bias"] = matrix(4 * HIDDEN, HIDDEN), matrix(4 * HIDDEN)
        w[h + "mlp.fc_out.weight"], w[h + "mlp.fc_out.bias"] = matrix(HIDDEN, 4 * HIDDEN), matrix(HIDDEN)
    config = {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": HIDDEN, "n_head": HEADS,
              "n_layer": LAYERS, "n_inner": None, "rotary_dim": 8, "n_positions": 2048, "vocab_size": VOCAB,
              "bos_token_id": 1, "eos_token_id": 2, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
              "tie_word_embeddings": False}
    return config, w


def gptj_ft(folder, w):
    folder.config(gptj={"model_name": "gptj", "head_num": HEADS, "size_per_head": HIDDEN // HEADS,
                        "inter_size": 4 * HIDDEN, "num_layer": LAYERS, "rotary_embedding": 8, "vocab_size": VOCAB,
                        "start_id": 1, "end_id": 2, "weight_data_type": "fp32"})
    for theirs, ours in (("model.wte", "transformer.wte.weight"), ("model.lm_head.weight", "lm_head.weight"),
                         ("model.lm_head.bias", "lm_head.bias"),
                         ("model.final_layernorm.weight", "transformer.ln_f.weight"),
                         ("model.final_layernorm.bias", "transformer.ln_f.bias")):
        folder.whole(theirs, w[ours])
    for i in range(LAYERS):
        h, f = f"transformer.h.{i}.", f"model.layers.{i}."
        folder.whole(f + "input_layernorm.weight", w[h + "ln_1.weight"])
        folder.whole(f + "input_layernorm.bias", w[h + "ln_1.bias"])
        qkv = side_by_side(*(w[f"{h}attn.{name}_proj.weight"].T for name in "qkv"))
        folder.split(f + "attention.query_key_value.weight", qkv, -1)
        folder.split(f + "attention.dense.weight", w[h + "attn.out_proj.weight"].T, 0)
        folder.split(f + "mlp.dense_h_to_4h.weight", w[h + "mlp.fc_in.weight"].T, -1)
        folder.split(f + "mlp.dense_h_to_4h.bias", w[h + "mlp.fc_in.bias"], -1)
        folder.split(f + "mlp.dense_4h_to_h.weight", w[h + "mlp.fc_out.weight"].T, 0)
        folder.whole(f + "mlp.dense_4h_to_h.bias", w[h + "mlp.fc_out.bias"])


# ---- GPT-NeoX: q, k and v head by head; attention and FFN are parallel ----

def gptneox():
    w = {"gpt_neox.embed_in.weight": matrix(VOCAB, HIDDEN), "embed_out.weight": matrix(VOCAB, HIDDEN),
         "gpt_neox.final_layer_norm.weight": gain(HIDDEN), "gpt_neox.final_layer_norm.bias": matrix(HIDDEN)}
    for i in range(LAYERS):
        h = f"gpt_neox.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            w[f"{h}{norm}.weight"], w[f"{h}{norm}.bias"] = gain(HIDDEN), matrix(HIDDEN)
        for name, rows, cols in (("attention.query_key_value", 3 * HIDDEN, HIDDEN), ("attention.dense", HIDDEN, HIDDEN),
                                 ("mlp.dense_h_to_4h", FFN, HIDDEN), ("mlp.dense_4h_to_h", HIDDEN, FFN)):
            w[f"{h}{name}.weight"], w[f"{h}{name}.bias"] = matrix(rows, cols), matrix(rows)
    config = {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": HIDDEN,
              "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": FFN, "vocab_size": VOCAB,
              "max_position_embeddings": 2048, "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5,
              "hidden_act": "gelu", "use_parallel_residual": True, "tie_word_embeddings": False, "bos_token_id": 1,
              "eos_token_id": 2}
    return config, w


def gptneox_ft(folder, w):
    size = HIDDEN // HEADS
    folder.config(gptneox={"model_name": "pythia", "head_num": HEADS, "size_per_head": size, "inter_size": FFN,
                           "num_layer": LAYERS, "rotary_embedding": size // 4, "vocab_size": VOCAB, "start_id": 1,
                           "end_id": 2, "use_gptj_residual": 1, "weight_data_type": "fp32"})
    for theirs, ours in (("model.wte", "gpt_neox.embed_in.weight"), ("model.lm_head.weight", "embed_out.weight"),
                         ("model.final_layernorm.weight", "gpt_neox.final_layer_norm.weight"),
                         ("model.final_layernorm.bias", "gpt_neox.final_layer_norm.bias")):
        folder.whole(theirs, w[ours])
    for i in range(LAYERS):
        h, f = f"gpt_neox.layers.{i}.", f"model.layers.{i}."
        for name in ("input_layernorm.weight", "input_layernorm.bias", "post_attention_layernorm.weight",
                     "post_attention_layernorm.bias"):
            folder.whole(f + name, w[h + name])
        for ending, width in ((".weight", HIDDEN), (".bias", 1)):
            qkv = w[h + "attention.query_key_value" + ending].T.reshape(width, HEADS, 3, size).transpose(0, 2, 1, 3)
            folder.split(f + "attention.query_key_value" + ending, qkv.reshape(width, 3, HIDDEN), -1)
        folder.split(f + "attention.dense.weight", w[h + "attention.dense.weight"].T, 0)
        folder.split(f + "mlp.dense_h_to_4h.weight", w[h + "mlp.dense_h_to_4h.weight"].T, -1)
        folder.split(f + "mlp.dense_h_to_4h.bias", w[h + "mlp.dense_h_to_4h.bias"], -1)
        folder.split(f + "mlp.dense_4h_to_h.weight", w[h + "mlp.dense_4h_to_h.weight"].T, 0)
        biases = [w[h + name + ".bias"] / np.float32(folder.ranks) for name in ("attention.dense", "mlp.dense_4h_to_h")]
        folder.whole(f + "attention.dense.bias", biases[0])
        folder.whole(f + "mlp.dense_4h_to_h.bias", biases[1])
        folder.whole(f + "mlp.attention.bias.sum", biases[0] + biases[1])


# ---- T5 v1.1: gated, untied ----

T5 = {"d_model": HIDDEN, "d_kv": 8, "d_ff": FFN, "num_heads": HEADS, "num_layers": LAYERS, "vocab_size": VOCAB,
      "relative_attention_max_distance": 20, "layer_norm_epsilon": 1e-6, "feed_forward_proj": "gated-gelu",
      "tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def t5():
    inner = T5["d_kv"] * HEADS
    w = {"shared.weight": matrix(VOCAB, HIDDEN), "lm_head.weight": matrix(VOCAB, HIDDEN)}

    def attention(name):
        for part, rows, cols in (("q", inner, HIDDEN), ("k", inner, HIDDEN), ("v", inner, HIDDEN), ("o", HIDDEN, inner)):
            w[f"{name}.{part}.weight"] = matrix(rows, cols)

    for stack in ("encoder", "decoder"):
        for i in range(LAYERS):
            parts = ["SelfAttention"] + ["EncDecAttention"] * (stack == "decoder") + ["DenseReluDense"]
            for n, part in enumerate(parts):
                layer = f"{stack}.block.{i}.layer.{n}."
                w[layer + "layer_norm.weight"] = gain(HIDDEN)
                if part != "DenseReluDense":
                    attention(layer + part)
                    continue
                w[layer + part + ".wi_0.weight"], w[layer + part + ".wi_1.weight"] = matrix(FFN, HIDDEN), matrix(FFN, HIDDEN)
                w[layer + part + ".wo.weight"] = matrix(HIDDEN, FFN)
        w[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = matrix(BUCKETS, HEADS)
        w[f"{stack}.final_layer_norm.weight"] = gain(HIDDEN)
    config = dict(T5, architectures=["T5ForConditionalGeneration"], model_type="t5", num_decoder_layers=LAYERS,
                  relative_attention_num_buckets=BUCKETS)
    return config, w


def t5_ft(folder, w):
    stack = dict(T5, relative_attention_num_buckets_or_max_pos_seq_len=BUCKETS, weight_data_type="fp32",
                 _name_or_path="", task_specific_params={"a": 1}, bos_token_id=None)
    folder.config(encoder=stack, decoder=stack,
                  structure={"t5_with_bias": "false", "use_gated_activation": "1", "position_embedding_type": "relative"})
    for name, value in w.items():
        if name == "shared.weight":
            folder.whole("shared.weight", value.T)
            folder.whole("shared.weight_T", value)
        elif name == "lm_head.weight" or "layer_norm" in name:
            folder.whole(name, value)
        elif name.endswith((".o.weight", ".wo.weight")) or "relative_attention_bias" in name:
            folder.split(name, value.T, 0)
        elif name.endswith(".q.weight") and name.startswith("decoder") and "SelfAttention" in name:
            qkv = side_by_side(*(w[name.replace(".q.", f".{part}.")].T for part in "qkv"))
            folder.split(name.replace(".q.", ".qkv."), qkv, -1)
        elif name.startswith("decoder") and "SelfAttention" in name:
            continue  # k and v are in the same file as q
        else:
            folder.split(name.replace("wi_0", "wi").replace("wi_1", "wi2"), value.T, -1)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/checkpoint")
    for model, make, write in (("gpt2", gpt2, gpt2_ft), ("gptj", gptj, gptj_ft), ("t5", t5, t5_ft),
                               ("gpt_neox", gptneox, gptneox_ft)):
        config, w = make()
        folder = root / model / "safetensors"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(w, folder / "model.safetensors")
        (folder / "model.safetensors").chmod(0o644)
        for ranks in (1, 2):
            write(Folder(root / model / f"ft_{ranks}", ranks), w)


if __name__ == "__main__":
    main()
