#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arch/gguf_NAME: the checkpoint tests/golden/arch/NAME as a GGUF file, and its golden.json.

usage: tools/golden_gguf.py LLAMA_CPP [NAME...]      default: NAMES below

"baichuan_40" as a NAME writes tests/golden/checkpoint/baichuan_40 instead: a tiny random Baichuan with ALiBi as safetensors
and as a GGUF file. It has 40 layers because llama.cpp knows the 13B models by that number.

LLAMA_CPP is a folder with llama.cpp's sources; the committed files are from those in the sdist of llama-cpp-python 0.3.36
(PyPI, vendor/llama.cpp). Its own converter writes the file, in float32; it needs torch, transformers, safetensors and
numpy. The checkpoints have no tokenizer, so none is converted. Keys that the converter expects by their older names are
added to the configuration before.
"""

import json
import pathlib
import shutil
import sys
import tempfile

NAMES = """llama llama3 gpt2 gpt_neox falcon40b mixtral gpt_oss t5 minicpm exaone exaone4 olmo3 deepseek_v2 deepseek_v3
modernbert_bare t5_encoder olmoe_unclipped granitemoe glm4_moe dots1_full ernie4_5 ernie4_5_moe hunyuan_v1_dense hunyuan_v1_moe
nomic_bert ministral3 mistral3 qwen2_vl qwen3_vl umt5 llama4_usual embeddinggemma granitemoehybrid granitemoehybrid_dense
qwen3_5_text qwen3_5_moe_text qwen3_next_routed olmo bamba falcon_h1 lfm2_unbiased lfm2_moe_unscaled nemotron_h
nemotron_h_moe nemotron_h_latent mamba2 mamba falcon_mamba jamba jamba_dense""".split()
# Their classes have no default for the token that ends a text, or another one.
NO_END = ("umt5", "granitemoehybrid", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "bamba", "falcon_h1", "lfm2", "lfm2_moe",
          "nemotron_h", "mamba2", "mamba", "falcon_mamba", "jamba")
ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/arch"


def older_keys(config):
    config.setdefault("n_ctx", config.get("n_positions"))
    config.setdefault("rotary_pct", config.get("rope_parameters", {}).get("partial_rotary_factor", 0.25))
    if config["model_type"] == "falcon" and config["multi_query"] and not config["new_decoder_architecture"]:
        config["num_kv_heads"] = 1
    if config["model_type"] == "deepseek_v3":
        config.setdefault("scoring_func", "sigmoid")
    if config["model_type"].startswith("hunyuan_v1"):
        config["max_position_embeddings"] = 32768  # the only one that the converter takes
    if config["model_type"] == "hunyuan_v1_moe":
        for key, value in ("moe_topk", 1), ("num_shared_expert", 1), ("moe_intermediate_size", config["intermediate_size"]):
            config[key] = [config.get(key, value)] * config["num_hidden_layers"]
    if config["model_type"] == "granitemoehybrid":
        names = {"full_attention": "attention", "linear_attention": "mamba"}
        config["layer_types"] = [names[kind] for kind in config["layer_types"]]
    if config["model_type"] == "falcon_h1":
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if config["model_type"] == "bamba":  # as the published configurations say how many numbers of a head rotate
        config["attn_rotary_emb"] = config["hidden_size"] // config["num_attention_heads"] // 2
    if config["model_type"] == "nemotron_h":  # the list says nothing of dense layers to it
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        config["hybrid_override_pattern"] = "".join(letters[kind] for kind in config.pop("layers_block_type"))
        config["num_hidden_layers"] = len(config["hybrid_override_pattern"])
        config["mamba_d_head"] = config["mamba_head_dim"]  # else it checks sizes of 64
        if "E" not in config["hybrid_override_pattern"]:
            del config["num_experts_per_tok"]
    if config["model_type"] == "nomic_bert":  # as the published configurations say it
        config.update(n_positions=8192, max_trained_positions=2048, activation_function="swiglu", causal=False, prenorm=False,
                      qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, rotary_emb_fraction=1.0,
                      rotary_emb_interleaved=False, rotary_emb_scale_base=None,
                      rotary_emb_base=config["rope_parameters"]["rope_theta"])
    if config["model_type"] == "mpt":
        config["architectures"] = ["MPTForCausalLM"]
        config["attn_config"].setdefault("clip_qkv", None)
    return config


# EXAONE 3's names of Llama's tensors.
EXAONE = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f", "model.layers.": "transformer.h.",
          "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
          "self_attn.": "attn.attention.", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"}


def name_as_exaone(folder, config):
    """A Llama as EXAONE 3, which computes the same and which transformers has no class for."""
    from safetensors.torch import load_file, save_file
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for own, other in EXAONE.items():
            name = name.replace(own, other)
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config.update(architectures=["ExaoneForCausalLM"], model_type="exaone", num_layers=config["num_hidden_layers"],
                  activation_function="silu", layer_norm_epsilon=config["rms_norm_eps"])


def add_next_tokens(folder, config):
    """A layer that predicts a further token, as the files of GLM-4.5 have it behind their last one: which has no use here."""
    import torch
    from safetensors.torch import load_file, save_file
    tensors, hidden, last = load_file(folder / "model.safetensors"), config["hidden_size"], config["num_hidden_layers"]
    for name in [n for n in tensors if f".layers.{last - 1}." in n]:
        tensors[name.replace(f".layers.{last - 1}.", f".layers.{last}.")] = -tensors[name]
    for name, shape in (("eh_proj", (hidden, 2 * hidden)), ("enorm", (hidden,)), ("hnorm", (hidden,)),
                        ("shared_head.norm", (hidden,)), ("shared_head.head", tuple(tensors["lm_head.weight"].shape)),
                        ("embed_tokens", tuple(tensors["lm_head.weight"].shape))):
        tensors[f"model.layers.{last}.{name}.weight"] = torch.ones(shape)
    save_file(tensors, folder / "model.safetensors")
    config["num_nextn_predict_layers"] = 1


def add_mixers_of_next_tokens(folder, config):
    """The same of Nemotron 3: attention and a mixture, which the converter makes one layer of."""
    import torch
    from safetensors.torch import load_file, save_file
    tensors, hidden = load_file(folder / "model.safetensors"), config["hidden_size"]
    for i, kind in enumerate("*E"):
        source = f"backbone.layers.{config['hybrid_override_pattern'].rindex(kind)}."
        for name in [n for n in tensors if n.startswith(source)]:
            tensors[name.replace(source, f"mtp.layers.{i}.")] = -tensors[name]
    for name, shape in (("0.eh_proj", (hidden, 2 * hidden)), ("0.enorm", (hidden,)), ("0.hnorm", (hidden,)), ("1.final_layernorm", (hidden,))):
        tensors[f"mtp.layers.{name}.weight"] = torch.ones(shape)
    save_file(tensors, folder / "model.safetensors")
    config["num_nextn_predict_layers"] = 1


def write_no_vocab(self):
    self.gguf_writer.add_tokenizer_model("no_vocab")
    if self.hparams["model_type"] in NO_END:
        self.gguf_writer.add_eos_token_id(self.hparams["eos_token_id"])


def without_vocab(model_class):
    """Also of the class that a class leaves its work to."""
    for one in [model_class, *(value for value in vars(model_class).values() if isinstance(value, type))]:
        one.set_vocab = write_no_vocab


def mend(model_class):
    """The converter of Baichuan calls itself without end for all but W_pack. That of NomicBERT looks into a tokenizer. That
    of Granite 4 says that a model with recurrent layers has no rotary positions, whatever position_embedding_type says;
    llama.cpp computes what the file says."""
    if model_class.__name__.startswith("Qwen3"):
        model_class.no_mtp = True  # the goldens have no layer that predicts further tokens
    if model_class.__name__ == "NomicBertModel":
        model_class._is_tokenizer_xlmroberta = lambda self: False
    original = model_class.modify_tensors

    def modify_tensors(self, data, name, layer):
        if name.endswith("W_pack.weight"):
            return original(self, data, name, layer)
        return [(self.map_tensor_name(name), data)]

    if model_class.__name__ == "BaichuanModel":
        model_class.modify_tensors = modify_tensors


def convert(source, out):
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        config = older_keys(json.loads((source / "config.json").read_text()))
        if config["model_type"] == "glm4_moe":
            add_next_tokens(pathlib.Path(folder), config)
        if source.name == "nemotron_h_moe":
            add_mixers_of_next_tokens(pathlib.Path(folder), config)
        if out.parent.name == "gguf_exaone":
            name_as_exaone(pathlib.Path(folder), config)
        if config["model_type"].startswith(("gemma3", "gemma4")):  # their converters count the tokens
            text = config.get("text_config", config)
            vocabulary = {"model": {"vocab": list(range(text["vocab_size"]))}, "added_tokens": []}
            (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(vocabulary))
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        loaded = ModelBase.load_hparams(pathlib.Path(folder), False)
        model_class = get_model_class(get_model_architecture(loaded, ModelType.TEXT))
        mend(model_class)
        without_vocab(model_class)
        with torch.inference_mode():
            # transformers would add experts that the model has not
            given = {"hparams": dict(config)} if config["model_type"] == "nemotron_h" else {}
            model = model_class(pathlib.Path(folder), gguf.LlamaFileType.ALL_F32, out, **given)
            if config.get("position_embedding_type") == "rope":
                write = model.gguf_writer.add_rope_scaling_finetuned
                model.gguf_writer.add_rope_scaling_finetuned = lambda _: write(True)
            for key, value in config.items():
                model.hparams.setdefault(key, value)
            model.write()


def baichuan_40():
    import numpy as np
    from safetensors.numpy import save_file
    layers, hidden, ffn, vocab = 40, 16, 16, 64
    random = np.random.default_rng(13)

    def matrix(rows, cols):
        return (random.standard_normal((rows, cols)) * 0.15).astype(np.float32)

    def gain():
        return (1 + random.standard_normal(hidden) * 0.1).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden), "lm_head.weight": matrix(vocab, hidden),
               "model.norm.weight": gain()}
    for i in range(layers):
        at = f"model.layers.{i}."
        tensors[at + "input_layernorm.weight"], tensors[at + "post_attention_layernorm.weight"] = gain(), gain()
        for name, rows, cols in (("self_attn.W_pack", 3 * hidden, hidden), ("self_attn.o_proj", hidden, hidden),
                                 ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden), ("mlp.down_proj", hidden, ffn)):
            tensors[at + name + ".weight"] = matrix(rows, cols)
    config = {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "hidden_size": hidden,
              "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": 2, "vocab_size": vocab,
              "model_max_length": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
              "bos_token_id": 1, "eos_token_id": 2}
    folder = ROOT.parent / "checkpoint/baichuan_40"
    for form in ("safetensors", "gguf"):
        (folder / form).mkdir(parents=True, exist_ok=True)
    (folder / "safetensors/config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "safetensors/model.safetensors")
    (folder / "safetensors/model.safetensors").chmod(0o644)
    convert(folder / "safetensors", folder / "gguf/model.gguf")


def main():
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
    for name in sys.argv[2:] or NAMES:
        if name == "baichuan_40":
            baichuan_40()
            continue
        target = ROOT / f"gguf_{name}"
        target.mkdir(exist_ok=True)
        source = ROOT / {"exaone": "llama"}.get(name, name)
        convert(source, target / "model.gguf")
        shutil.copy(source / "golden.json", target)


main()
