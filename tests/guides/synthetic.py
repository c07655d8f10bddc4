# SPDX-License-Identifier: Apache-2.0
"""Small random checkpoints with the vocabularies that the guides' clients have in their texts: GPT-2's 50,257 tokens for GPT-J,
T5's 32,128. What such a model says has no meaning, but it is the same in every run."""
import json
import pathlib
import struct

import numpy as np

GPT2_TOKENS = 50257
HIDDEN, HEADS, LAYERS, INNER = 64, 4, 2, 256


def save(folder, config, tensors):
    """config.json and model.safetensors in float16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.astype(np.float16).tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))
    return folder


class Draw:
    """Matrices whose products keep the size of what they are given."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape, gain=2.0):
        return self.random.standard_normal(shape) * gain / np.sqrt(shape[-1])


def gptj(folder, vocabulary):
    """A GPT-J of 50,400 rows, as the real one has them, with GPT-2's tokenizer; `vocabulary` is the folder with gpt2-vocab.json and
    gpt2-merges.txt. Rows without a token are never the most likely."""
    folder, vocabulary, rows, draw = pathlib.Path(folder), pathlib.Path(vocabulary), 50400, Draw(7)
    ones, zeros = np.ones(HIDDEN), np.zeros(HIDDEN)
    unused = np.zeros(rows)
    unused[GPT2_TOKENS:] = -1000
    tensors = {"transformer.wte.weight": draw(rows, HIDDEN, gain=8.0)}
    for layer in range(LAYERS):
        name = f"transformer.h.{layer}."
        tensors |= {name + "ln_1.weight": ones, name + "ln_1.bias": zeros}
        tensors |= {name + f"attn.{part}_proj.weight": draw(HIDDEN, HIDDEN) for part in ("q", "k", "v", "out")}
        tensors |= {name + "mlp.fc_in.weight": draw(INNER, HIDDEN), name + "mlp.fc_in.bias": np.zeros(INNER)}
        tensors |= {name + "mlp.fc_out.weight": draw(HIDDEN, INNER), name + "mlp.fc_out.bias": zeros}
    tensors |= {"transformer.ln_f.weight": ones, "transformer.ln_f.bias": zeros}
    tensors |= {"lm_head.weight": draw(rows, HIDDEN, gain=1.0), "lm_head.bias": unused}
    config = {
        "architectures": ["GPTJForCausalLM"], "model_type": "gptj", "activation_function": "gelu_new",
        "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_inner": INNER, "rotary_dim": 8, "n_positions": 2048,
        "vocab_size": rows, "layer_norm_epsilon": 1e-5, "bos_token_id": 50256, "eos_token_id": 50256, "tie_word_embeddings": False,
    }
    save(folder, config, tensors)
    gpt2_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    return folder


def gpt2_tokenizer(vocabulary):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    files = [str(vocabulary / "gpt2-vocab.json"), str(vocabulary / "gpt2-merges.txt")]
    tokenizer = Tokenizer(models.BPE.from_file(*files))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def t5(folder):
    """A T5 v1.0 of 32,128 rows without a tokenizer: for requests of token ids."""
    draw, ones = Draw(8), np.ones(HIDDEN)
    attention, feed = ("q", "k", "v", "o"), {"wi": (INNER, HIDDEN), "wo": (HIDDEN, INNER)}
    tensors = {"shared.weight": draw(32128, HIDDEN, gain=8.0)}
    for stack, parts in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention", "EncDecAttention"])):
        for block in range(LAYERS):
            name = f"{stack}.block.{block}.layer."
            for i, part in enumerate(parts):
                tensors |= {name + f"{i}.{part}.{one}.weight": draw(HIDDEN, HIDDEN) for one in attention}
                tensors[name + f"{i}.layer_norm.weight"] = ones
            tensors |= {name + f"{len(parts)}.DenseReluDense.{one}.weight": draw(*shape) for one, shape in feed.items()}
            tensors[name + f"{len(parts)}.layer_norm.weight"] = ones
        tensors[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = draw(32, HEADS)
        tensors[f"{stack}.final_layer_norm.weight"] = ones
    config = {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": HIDDEN, "d_kv": HIDDEN // HEADS, "d_ff": INNER,
        "num_heads": HEADS, "num_layers": LAYERS, "num_decoder_layers": LAYERS, "vocab_size": 32128, "feed_forward_proj": "relu",
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": True,
    }
    return save(pathlib.Path(folder), config, tensors)
