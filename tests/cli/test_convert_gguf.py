# SPDX-License-Identifier: Apache-2.0
"""`proa convert --to gguf`: every golden model that the format can express, read again; types, tokenizers, refusals.

The public reader of GGUF (`gguf` of PyPI) checks the files too where it is installed."""
import json
import random
import shutil
import subprocess
import time

import numpy as np
import pytest
from harness import GOLDEN, LM, PROA, T5, fails, ok, ok_json, proa

ARCH = GOLDEN / "arch"
# What the format has no way to say, and what the error names.
REFUSED = {
    "llama_dynamic": "dynamic scaling", "smollm3": "layer 1 has no rotary", "gemma2": "attention_scale",
    "stablelm_12b": "q_layernorm.norms", "phi_qk_norm": "q_layernorm", "mpt_grouped": "kv_heads",
    "cohere_qk_norm": "qk_norm", "falcon_rw": "input_layernorm", "gptj": "computes what a gptj does",
    "modernbert_cls": "head_of_mean", "modernbert_token": "computes what a modernbert_tok does",
    "olmoe": "qkv_clip", "qwen3_vl_moe": "computes what a qwen3_vl_moe does",
    "longt5": "computes what a longt5 does", "llama4": "query_scale.length", "llama4_text": "qk_norm", "gemma3_embed": "attention_scale", "jina_bert_code": "layer_norm_q", "nomic_bert_moe": "mlp.experts.bias",
    "jina_bert_plain": "output.LayerNorm",
    "lfm2": "mix.bias", "lfm2_moe": "router.scale",
    "afmoe": "self_attn.o_proj.bias", "exaone_moe": "layer 1 has no experts", "hy_v3": "self_attn.q_proj.bias",
    "gemma4_biased": "self_attn.q_proj.bias",
    "opt": "computes what a opt does", "qwen3_next": "mlp.gate_proj", "baichuan_13b": "rotary_dim",  # llama.cpp knows it by its 40 layers
}
MIXERS = ["nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "mamba2", "mamba", "falcon_mamba", "jamba", "jamba_dense"]
RECURRENT = ["granitemoehybrid", "granitemoehybrid_dense", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next_routed", "bamba",
             "falcon_h1", "falcon_h1_normed", "mamba_biased", *MIXERS]
# A window is not written for a Llama; contexts of the golden are longer than it.
WINDOW_LOST = {"mistral"}
WRITTEN = [
    *[f"{form}{name}" for form in ("", "gguf_") for name in (
        "dots1_full", "ernie4_5", "ernie4_5_moe", "glm4_moe", "granitemoe", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral3",
        "granitemoehybrid", "granitemoehybrid_dense", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next_routed",
        "bamba", "falcon_h1", "olmo", "lfm2_unbiased", "lfm2_moe_unscaled",
        "llama4_usual", "mistral3", "olmoe_unclipped", "qwen2_vl", "qwen3_vl", "umt5", *MIXERS)],
    "arcee", "chatglm2", "chatglm3", "falcon_h1_normed", "mamba_biased", "glm", "glm4", "nemotron",
    "baichuan2_7b", "baichuan_7b", "bloom", "bloom_6heads", "byt5", "cohere", "deepseek_v2", "deepseek_v3", "falcon40b", "falcon7b", "gemma",
    "gemma2_b", "gemma3", "gemma3_multimodal", "gemma3n", "gemma4", "gemma4_moe", "gemma4_small", "gguf_falcon40b", "gguf_gpt2", "gguf_gpt_neox", "gguf_gpt_oss",
    "exaone4", "gguf_deepseek_v2", "gguf_deepseek_v3", "gguf_exaone", "gguf_exaone4", "gguf_olmo3", "olmo3",
    "gguf_llama", "gguf_llama3", "gguf_minicpm", "gguf_mixtral", "gguf_t5", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss", "granite",
    "granitemoeshared", "internlm2", "mistral4", "llama", "llama3", "llama_linear", "llama_yarn", "minicpm", "minimax_m2", "mixtral", "mpt", "mpt_clip", "mt5",
    "olmo2", "phi", "phi3", "phi3_longrope", "phimoe", "qwen2", "qwen2_moe", "qwen2_yarn", "qwen3", "qwen3_moe",
    "seed_oss", "stablelm", "starcoder2", "t5", "t5_v1_1",
]


def logits(model, ids, *options):
    return np.array(ok_json("run", model, "--ids", " ".join(map(str, ids)), "--logits", "--dtype", "f32", *options)["logits"])


def convert(model, out, *options):
    ok("convert", model, out, "--threads", "2", *options)
    return out


def case(name):
    """Ids of the first golden case, and the options of an encoder-decoder."""
    golden = json.loads((ARCH / name / "golden.json").read_text())
    first = golden["cases"][0]
    decoder = ["--decoder-ids", "0 5 9"] if golden["kind"] == "s2s" else []
    return first["input_ids"], decoder


@pytest.mark.parametrize("name", WRITTEN)
def test_logits_are_the_same_bits(name, tmp_path):
    ids, options = case(name)
    out = convert(ARCH / name, tmp_path / "x.gguf", "--type", "f32")
    want, have = logits(ARCH / name, ids, *options), logits(out, ids, *options)
    # rotary divisors: 1 / (divisor * power) rounds otherwise than Llama 3's formula; rates of decay: log(exp(A_log)) is rounded,
    # and so are products of weights and factors (Falcon-H1)
    rounded = {"llama3": 1e-6, "llama4_usual": 1e-6} | dict.fromkeys(RECURRENT, 1e-5)
    if limit := rounded.get(name.removeprefix("gguf_")):
        assert np.abs(have - want).max() < limit * np.abs(want).max()
    else:
        assert (have == want).all(), np.abs(have - want).max()


@pytest.mark.parametrize("name", ["gemma3n", "gemma4", "gemma4_moe", "gemma4_small"])
def test_gemma_there_and_back(name, tmp_path):
    """All tensors as they were: zeros of layers that share keys and values are left out again, the table grows."""
    convert(convert(ARCH / name, tmp_path / "x.gguf", "--type", "f32"), tmp_path / "hf")
    want, have = ({t["name"].replace("language_model.", ""): t["shape"] for t in ok_json("inspect", model)["tensors"]}
                  for model in (ARCH / name, tmp_path / "hf"))
    table = "model.embed_tokens_per_layer.weight"
    if name == "gemma3n":
        assert (want.pop(table)[0], have.pop(table)[0]) == (180, 200)
    assert have == {n: shape for n, shape in want.items() if "vision" not in n}


@pytest.mark.parametrize("name", ["gemma3n", "gemma4_small"])
def test_quantised_inputs_of_layers(name, tmp_path):
    """Tables, stacked matrices and zeros of layers that share keys and values, where rows are no multiple of 32."""
    ids, _ = case(name)
    want = logits(ARCH / name, ids)
    have = logits(convert(ARCH / name, tmp_path / "x.gguf", "--type", "q8_0"), ids)
    assert 0 < np.abs(have - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize("change", [
    {"final_logit_softcapping": 9.0}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                                           "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}},
    {"per_layer_config": {"1": {"head_dim": 24}, "3": {"head_dim": 24, "num_key_value_heads": 2}}}])
def test_variants_of_gemma4(change, tmp_path):
    shutil.copytree(ARCH / "gemma4_small", tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | change))
    out = convert(tmp_path / "m", tmp_path / "x.gguf", "--type", "f32")
    assert (logits(out, range(20)) == logits(tmp_path / "m", range(20))).all()


def patched(model, out, key, old, new):
    """A file with other bytes behind a key."""
    raw = bytearray(model.read_bytes())
    at = raw.index(key) + len(key)
    assert raw[at:at + len(old)] == old, raw[at:at + 32]
    raw[at:at + len(old)] = new
    out.write_bytes(raw)
    return out


def test_damaged_files_of_gemma(tmp_path):
    def u32(*numbers):
        return b"".join(n.to_bytes(4, "little") for n in numbers)

    four = convert(ARCH / "gemma4_small", tmp_path / "4.gguf", "--type", "f32")
    heads = u32(9, 4, 4, 0)  # array of u32: count
    for key, old, new, error in (
            (b"gemma4.attention.head_count_kv", heads + u32(2, 2), heads + u32(2, 0), "is 0 for layer 1"),
            (b"gemma4.attention.head_count_kv", heads + u32(2, 2), heads + u32(2, 4), "for layer 3"),
            (b"gemma4.feed_forward_length", heads + u32(40, 40, 80, 80), heads + u32(40, 40, 80, 90), "is 90 for layer 3"),
            (b"gemma4.attention.shared_kv_layers", u32(4, 2), u32(4, 4), "4 of 4 layers")):
        assert error in fails("inspect", patched(four, tmp_path / "x.gguf", key, old, new)), error
    n = convert(ARCH / "gemma3n", tmp_path / "n.gguf", "--type", "f32")
    floats = u32(9, 6, 4, 0)
    error = fails("inspect", patched(n, tmp_path / "x.gguf", b"gemma3n.activation_sparsity_scale", floats + np.float32(0.52440047).tobytes(),
                                     floats + np.float32(np.nan).tobytes()))
    assert "numbers up to 10" in error


def test_baichuan_13b(tmp_path):
    model = ARCH.parent / "checkpoint/baichuan_40/safetensors"
    out = convert(model, tmp_path / "x.gguf", "--type", "f32")
    assert (logits(out, range(20)) == logits(model, range(20))).all()


def test_every_fourth_layer_of_command_r7b_is_global(tmp_path):
    """llama.cpp knows no other pattern; the golden's is another."""
    shutil.copytree(ARCH / "cohere2", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert "layer 2 has no rotary" in fails("convert", tmp_path / "m", tmp_path / "x.gguf")
    config["layer_types"] = ["sliding_attention"] * 3 + ["full_attention"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    out = convert(tmp_path / "m", tmp_path / "x.gguf")
    assert (logits(out, range(20)) == logits(tmp_path / "m", range(20))).all()


def edited(name, folder, config, renamed=lambda name: name):
    """The golden `name` with other members of config.json. renamed: names of each tensor, or None to leave it out."""
    shutil.copytree(ARCH / name, folder)
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data, out, written = json.loads(raw[8:8 + size]), raw[8 + size:], b"", {}
    header.pop("__metadata__", None)
    for own, tensor in header.items():
        names = renamed(own)
        for new in [names] if isinstance(names, str) else names or []:
            part = data[slice(*tensor["data_offsets"])]
            written[new] = tensor | {"data_offsets": [len(out), len(out) + len(part)]}
            out += part
    text = json.dumps(written).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + out)
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | config))
    return folder


def swapped(name):
    """The FFNs of layers 0 and 1."""
    at, other = (".layers.0.mlp.", ".layers.1.mlp.") if ".layers.0.mlp." in name else (".layers.1.mlp.", ".layers.0.mlp.")
    return name.replace(at, other)


def unbiased(name):
    return None if name.endswith(".bias") and "self_attn" in name else name


@pytest.mark.parametrize("name, config, renamed", [
    ("afmoe", {"attention_bias": False, "layer_types": ["sliding_attention"] * 3}, unbiased),
    ("exaone_moe", {"mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": 1}, swapped),
    ("exaone_moe", {"mlp_layer_types": ["dense", "sparse", "sparse"], "n_group": 1, "norm_topk_prob": False}, swapped),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": 1}, swapped),
    ("hy_v3", {"attention_bias": False}, unbiased)], ids=lambda x: x if isinstance(x, str) else "")
def test_mixtures_that_llama_cpp_computes(name, config, renamed, tmp_path):
    """Goldens have biases, dense layers or windows that a file cannot say."""
    model = edited(name, tmp_path / "m", config, renamed)
    out = convert(model, tmp_path / "x.gguf", "--type", "f32")
    assert (logits(out, range(20)) == logits(model, range(20))).all()


def test_glm_4_7_flash_without_the_key_of_sigmoids(tmp_path):
    """Files of it do not say how experts are weighed; the correction shows it."""
    config = {"mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": 1}
    out = convert(edited("glm4_moe_lite", tmp_path / "m", config, swapped), tmp_path / "x.gguf", "--type", "f32")
    key, other = b"deepseek2.expert_gating_func", b"deepseek2.expert_gating_xxxx"
    (tmp_path / "y.gguf").write_bytes(out.read_bytes().replace(key, other))
    assert (logits(tmp_path / "y.gguf", range(20)) == logits(tmp_path / "m", range(20))).all()


def test_qwen3_next_with_experts_everywhere(tmp_path):
    """llama.cpp has experts in each layer: here layer 1, whose FFN is dense, gets those of layer 0."""
    def renamed(name):
        if ".0.mlp." in name:
            return [name, name.replace(".0.mlp.", ".1.mlp.")]
        return None if ".layers.1.mlp." in name else name

    model = edited("qwen3_next", tmp_path / "m", {"mlp_only_layers": []}, renamed)
    want = logits(model, range(20))
    first = convert(model, tmp_path / "x.gguf", "--type", "f32")
    assert np.abs(logits(first, range(20)) - want).max() < 1e-5 * np.abs(want).max()
    assert (logits(convert(first, tmp_path / "y.gguf", "--type", "f32"), range(20)) == logits(first, range(20))).all()


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_factors_are_part_of_the_weights(kind, tmp_path):
    """Falcon-H1's: of embeddings and head too, whose matrix is written twice where the model has it once."""
    shutil.copytree(ARCH / "falcon_h1_normed", tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    factors = {"embedding_multiplier": 2.5, "lm_head_multiplier": 0.4, "key_multiplier": 0.6, "ssm_in_multiplier": 1.3,
               "ssm_multipliers": [0.5, 1.5, 0.8, 1.25, 0.6]}
    (tmp_path / "m/config.json").write_text(json.dumps(config | factors))
    want = logits(tmp_path / "m", range(20))
    exact = convert(tmp_path / "m", tmp_path / "x.gguf", "--type", "f32")
    assert np.abs(logits(exact, range(20)) - want).max() < 1e-5 * np.abs(want).max()
    names = {t["name"] for t in ok_json("inspect", exact, "--no-values")["tensors"]}
    assert "lm_head.weight" in names and "model.embed_tokens.weight" in names
    rounded = logits(convert(tmp_path / "m", tmp_path / "y.gguf", "--type", kind), range(20))
    assert np.abs(rounded - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize("change, error", [({"mamba_norm_before_gate": True}, "gate_first"), ({"time_step_limit": [0, 0.1]}, "step_max")])
def test_a_falcon_h1_that_gguf_cannot_say(change, error, tmp_path):
    shutil.copytree(ARCH / "falcon_h1_normed", tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | change))
    assert error in fails("convert", tmp_path / "m", tmp_path / "x.gguf")


def test_epsilon_of_falcon_mamba_is_not_in_a_file(tmp_path):
    shutil.copytree(ARCH / "falcon_mamba", tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | {"mixer_rms_eps": 0.1}))
    assert "params_eps" in fails("convert", tmp_path / "m", tmp_path / "x.gguf")


def test_layers_of_jamba_that_its_class_cannot_say(tmp_path):
    """Attention in layers 0 and 1 of four, where the class has every so manyth layer."""
    raw = bytearray((ARCH / "gguf_jamba/model.gguf").read_bytes())
    key = b"jamba.attention.head_count_kv"
    at = raw.index(key) + len(key) + 4 + 4 + 8  # type, type of entries, count
    raw[at:at + 16] = b"".join(n.to_bytes(4, "little") for n in (2, 2, 0, 0))
    (tmp_path / "x.gguf").write_bytes(raw)
    assert "no 'attn_layer_period' says which layers they are: layer 2" in fails("inspect", tmp_path / "x.gguf")


@pytest.mark.parametrize("name, kind", [("mamba", "q8_0"), ("jamba", "f16")])  # eight bits change which experts are chosen
def test_rates_of_mamba1_stay_f32(name, kind, tmp_path):
    out = convert(ARCH / name, tmp_path / "x.gguf", "--type", kind)
    types = {t["name"]: t["type"] for t in ok_json("inspect", out, "--no-values")["tensors"]}
    assert {t for n, t in types.items() if n.endswith(("A_log", ".D", "conv1d.weight"))} == {"f32"}
    ids, _ = case(name)
    want = logits(ARCH / name, ids)
    assert np.abs(logits(out, ids) - want).max() < 0.25 * np.abs(want).max()


def test_text_model_of_llama4(tmp_path):
    """Chunks, scales and layers without positions as published, of the whole model; a key that the nested part leaves out."""
    shutil.copytree(ARCH / "llama4", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    text = config["text_config"]
    text |= {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1, "no_rope_layers": [1, 1, 1, 0]}
    del text["interleave_moe_layer_step"], text["layer_types"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    out = convert(tmp_path / "m", tmp_path / "x.gguf", "--type", "f32")
    assert (logits(out, range(20)) == logits(tmp_path / "m", range(20))).all()


@pytest.mark.parametrize("name", ["bert", "embeddinggemma", "gguf_embeddinggemma", "gguf_modernbert_bare", "gguf_nomic_bert", "modernbert_bare", "nomic_bert", "xlm_roberta",
                                  "eurobert", "jina_bert", "jina_embeddings_v3", "umt5_encoder"])
def test_hidden_states_of_encoders(name, tmp_path):
    """The pooler has no place in a GGUF file; hidden states are the same."""
    out = convert(ARCH / name, tmp_path / "x.gguf", "--type", "f32")
    want = ok_json("run", ARCH / name, "--ids", "5 6 7 8", "--dtype", "f32")["hidden"]
    assert ok_json("run", out, "--ids", "5 6 7 8", "--dtype", "f32")["hidden"] == want


def test_experts_of_nomic_bert(tmp_path):
    """Without the bias of all experts together, for which there is no name; llama.cpp's converter leaves it out."""
    model = edited("nomic_bert_moe", tmp_path / "m", {}, lambda name: None if name.endswith("experts.bias") else name)
    out = convert(model, tmp_path / "x.gguf", "--type", "f32")
    have, want = (ok_json("run", m, "--ids", "5 6 7 8", "--dtype", "f32")["hidden"] for m in (out, model))
    assert have == want


def test_what_llama_cpp_wants_of_encoders(tmp_path):
    """The number of token types, and the pooling that sentence-transformers has beside the model."""
    shutil.copytree(ARCH / "bert", tmp_path / "m")
    (tmp_path / "m/1_Pooling").mkdir()
    for config, kind in (({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, 2), ({"pooling_mode": "mean"}, 1)):
        (tmp_path / "m/1_Pooling/config.json").write_text(json.dumps(config))
        raw = convert(tmp_path / "m", tmp_path / "x.gguf", "--overwrite").read_bytes()
        assert raw.partition(b"bert.pooling_type")[2][:8] == bytes([4, 0, 0, 0, kind, 0, 0, 0])
        assert raw.partition(b"tokenizer.ggml.token_type_count")[2][:8] == bytes([4, 0, 0, 0, 2, 0, 0, 0])
    (tmp_path / "m/1_Pooling/config.json").write_text('{"pooling_mode_max_tokens": true}')
    assert "poolings of mean, cls and lasttoken" in fails("convert", tmp_path / "m", tmp_path / "y.gguf")


def test_classifier_of_modernbert(tmp_path):
    """llama.cpp's head classifies the mean over the rows, and activates by GELU."""
    out = convert(ARCH / "modernbert_mean", tmp_path / "x.gguf", "--type", "f32")
    run = ["--ids", "5 6 7 8", "--dtype", "f32"]
    assert ok_json("run", out, *run) == ok_json("run", ARCH / "modernbert_mean", *run)
    shutil.copytree(ARCH / "modernbert_mean", tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps({**config, "classifier_activation": "silu"}))
    assert "head_act" in fails("convert", tmp_path / "m", tmp_path / "y.gguf")


@pytest.mark.parametrize("name", REFUSED)
def test_what_gguf_cannot_say_is_refused(name, tmp_path):
    error = fails("convert", ARCH / name, tmp_path / "x.gguf")
    assert REFUSED[name] in error and not list(tmp_path.iterdir())


def test_a_lost_window_is_reported(tmp_path):
    run = proa("convert", ARCH / "mistral", tmp_path / "x.gguf")
    assert "window of 16 positions" in run.stderr


# Largest difference of a logit by the largest logit.
@pytest.mark.parametrize("kind, bound", [("f16", 2e-3), ("bf16", 0), ("q8_0", 0.05), ("q4_0", 0.6)])
def test_types(kind, bound, tmp_path):
    ids = list(range(100, 140))
    out = convert(LM, tmp_path / "x.gguf", "--type", kind)
    want, have = logits(LM, ids), logits(out, ids)
    assert np.abs(have - want).max() <= bound * np.abs(want).max()
    types = {t["name"]: t["type"] for t in ok_json("inspect", out, "--no-values")["tensors"]}
    assert types["model.layers.0.self_attn.q_proj.weight"].lower() == kind
    assert types["model.norm.weight"] == "f32"
    assert types["model.embed_tokens.weight"].lower() == ("q8_0" if kind == "q4_0" else kind)  # it makes the logits too


def test_without_a_type_numbers_stay_as_they_are_stored(tmp_path):
    out = convert(LM, tmp_path / "x.gguf")
    stored = {t["name"]: t for t in ok_json("inspect", LM, "--no-values")["tensors"]}
    for t in ok_json("inspect", out, "--no-values")["tensors"]:
        if len(t["shape"]) == 2:
            assert t["type"] == stored[t["name"]]["type"], t
    assert (logits(out, [5, 6, 7]) == logits(LM, [5, 6, 7])).all()


def test_codes_are_kept(tmp_path):
    """A file of q8_0 written as q8_0 again has the same codes."""
    first = convert(LM, tmp_path / "a.gguf", "--type", "q8_0")
    second = convert(first, tmp_path / "b.gguf", "--type", "q8_0")
    assert (logits(first, [5, 6, 7]) == logits(second, [5, 6, 7])).all()


def prompts():
    rng = random.Random(3)
    words = "the a wind river,  don't 1234 caf\u00e9 \u4f60\u597d \u041f\u0440\u0438\u0432\u0435\u0442 \U0001f600 (x+y)=z; \tTab\n".split(" ")
    return ["  two  spaces ", "Line\nbreak"] + [" ".join(rng.choices(words, k=12)) for _ in range(20)]


def results(model, path, *options):
    lines = ok("run", model, "--input", path, *options, "--json", "--dtype", "f32").splitlines()
    return [[json.loads(line).get(key) for key in ("ids", "prompt_tokens", "hidden")] for line in lines]


@pytest.fixture
def words_model(tmp_path):
    """A bare BERT with a WordPiece vocabulary of as many rows as its table has at most."""
    folder = tmp_path / "words"
    shutil.copytree(ARCH / "bert", folder)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    pieces += ["##" + chr(c) for c in range(97, 123)] + ["the", "wind", "river", "##ing", "##s"]
    (folder / "vocab.txt").write_text("\n".join(pieces[:rows]) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "do_lower_case": True, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}))
    return folder


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_tokenizers_give_the_same_ids(kind, tmp_path, words_model):
    model = {"bpe": LM, "unigram": T5, "wordpiece": words_model}[kind]
    options = [] if kind == "wordpiece" else ["--max-tokens", "4"]
    out = convert(model, tmp_path / "x.gguf", "--type", "f32")
    path = tmp_path / "prompts"
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts()))
    assert results(out, path, *options) == results(model, path, *options)


def test_ranked_merges_of_gemma4(tmp_path):
    """BPE over UTF-8 whose merges keep their ranks: scores of pieces could not say them."""
    folder = tmp_path / "m"
    shutil.copytree(ARCH / "gemma4_small", folder)
    special = ["<pad>", "<bos>", "<eos>", "<unk>", "<|turn>", "<turn|>"]
    merges = [("b", "c"), ("\u2581", "t"), ("h", "e"), ("\u2581t", "he"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("c", "a"), ("\n", "\n")]
    pieces = [*special, "\u2581", "\n", *map(chr, range(33, 127)), *dict.fromkeys(a + b for a, b in merges)]
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate(special)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": added, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {t: i for i, t in enumerate(pieces)}, "merges": [" ".join(m) for m in merges]}}))
    template = "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": template}))
    out = convert(folder, tmp_path / "x.gguf", "--type", "f32")
    assert b"gemma4" in out.read_bytes().partition(b"tokenizer.ggml.model")[2][:24]
    path = tmp_path / "prompts"
    texts = ["abc cabca the  the", "<|turn>user\nabcab<turn|>\n\n\nx", " caf\u00e9 ", *prompts()]
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in texts))
    assert results(out, path, "--max-tokens", "4") == results(folder, path, "--max-tokens", "4")


def test_chat_template_is_kept(tmp_path):
    gguf = pytest.importorskip("gguf")
    folder = tmp_path / "m"
    shutil.copytree(LM, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    r = gguf.GGUFReader(convert(folder, tmp_path / "x.gguf"))
    assert r.fields["tokenizer.chat_template"].contents() == config["chat_template"]


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1])
def test_a_killed_conversion_is_continued(seconds, tmp_path):
    want = convert(LM, tmp_path / "want.gguf", "--type", "f32").read_bytes()
    out = tmp_path / "x.gguf"
    args = [PROA, "convert", LM, out, "--type", "f32", "--threads", "1"]
    run = subprocess.Popen(list(map(str, args)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    run.kill()
    run.wait()
    if out.exists():
        assert out.read_bytes() == want
    else:
        assert convert(LM, out, "--type", "f32").read_bytes() == want
    assert not list(tmp_path.glob("x.gguf.*"))


def test_existing_files_are_kept(tmp_path):
    out = tmp_path / "x.gguf"
    out.write_text("mine")
    assert "exists" in fails("convert", ARCH / "llama", out) and out.read_text() == "mine"
    convert(ARCH / "llama", out, "--overwrite")
    assert out.read_bytes()[:4] == b"GGUF" and [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


def test_the_public_reader(tmp_path):
    gguf = pytest.importorskip("gguf")
    r = gguf.GGUFReader(convert(LM, tmp_path / "x.gguf", "--type", "q8_0"))
    config = json.loads((LM / "config.json").read_text())
    field = {name: f.contents() for name, f in r.fields.items() if not name.startswith("GGUF.")}
    assert field["general.architecture"] == "llama" and field["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0
    assert field["llama.embedding_length"] == config["hidden_size"] and field["llama.block_count"] == config["num_hidden_layers"]
    assert len(field["tokenizer.ggml.tokens"]) == config["vocab_size"] and field["tokenizer.ggml.pre"] == "gpt-2"
    tensors = {t.name: t for t in r.tensors}
    assert tensors["blk.0.attn_q.weight"].tensor_type == gguf.GGMLQuantizationType.Q8_0
    assert tensors["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
