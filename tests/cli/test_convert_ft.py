# SPDX-License-Identifier: Apache-2.0
"""`proa convert --to ft`: golden models as folders of FasterTransformer, for one rank and several, read again."""
import configparser
import json
import shutil
import subprocess
import time

import numpy as np
import pytest
from harness import GOLDEN, PROA, T5, fails, ok, ok_json
from test_quantized import load, save

ARCH, CHECKPOINT = GOLDEN / "arch", GOLDEN / "checkpoint"
MODELS = ["bloom", "gpt2", "gguf_gpt2", "opt", "gptj", "codegen", "gpt_neox", "t5", "t5_v1_1", "mt5", "gguf_t5"]


def logits(model, *options):
    return np.array(ok_json("run", model, "--ids", "5 6 7 8 9 10", "--logits", "--dtype", "f32", *options)["logits"])


def convert(model, out, ranks, *options):
    ok("convert", model, out, "--to", "ft", "--ranks", ranks, "--threads", "2", *options)
    ini = configparser.ConfigParser()
    ini.read(out / "config.ini")
    return ini


def options_of(name):
    golden = json.loads((ARCH / name / "golden.json").read_text())
    return ["--decoder-ids", "0 5 9"] if golden["kind"] == "s2s" else []


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_same_bits(name, ranks, tmp_path):
    convert(ARCH / name, tmp_path / "x", ranks)
    options = options_of(name)
    assert (logits(tmp_path / "x", *options) == logits(ARCH / name, *options)).all()
    split = [p.name for p in (tmp_path / "x").glob("*.bin") if p.name.split(".")[-2].isdigit()]
    assert {int(name.split(".")[-2]) for name in split} == set(range(ranks))
    assert not list((tmp_path / "x").glob(".*")) and not list((tmp_path / "x").glob("*.partial"))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["gpt2", "gptj", "gpt_neox", "t5"])
def test_files_are_those_of_its_own_converters(name, ranks, tmp_path):
    """The committed folders have the layout of FasterTransformer's converters (tools/golden_ft_folders.py)."""
    want = CHECKPOINT / name / f"ft_{ranks}"
    convert(CHECKPOINT / name / "safetensors", tmp_path / "x", ranks)
    files = {p.name for p in want.glob("*.bin")} - {"shared.weight.bin"}  # which FasterTransformer does not read
    assert files == {p.name for p in (tmp_path / "x").glob("*.bin")}
    for file in files:
        assert (want / file).read_bytes() == (tmp_path / "x" / file).read_bytes(), file


def test_bloom_has_q_k_and_v_side_by_side(tmp_path):
    """As huggingface_bloom_convert.py: [in, heads, 3, size] of the class is [in, 3, heads, size] in the files."""
    ini = convert(ARCH / "bloom", tmp_path / "x", 2)
    assert ini["gpt"]["model_variant"] == "bloom-pre" and ini["gpt"]["use_attention_linear_bias"] == "True"
    heads, size = int(ini["gpt"]["head_num"]), int(ini["gpt"]["size_per_head"])
    stored = load(ARCH / "bloom" / "model.safetensors")
    name = next(n for n in stored if n.endswith("h.1.self_attention.query_key_value.weight"))
    for ending, width in ((".weight", heads * size), (".bias", 1)):
        w = stored[name.replace(".weight", ending)]
        want = w.T.reshape(width, heads, 3, size).transpose(0, 2, 1, 3).reshape(width, 3, heads * size)
        for rank, part in enumerate(np.split(want, 2, axis=-1)):
            file = tmp_path / "x" / f"model.layers.1.attention.query_key_value{ending}.{rank}.bin"
            assert file.read_bytes() == np.ascontiguousarray(part, np.float32).tobytes()


def test_a_gpt_neox_without_parallel_residual(tmp_path):
    """FasterTransformer and its converter disagree on its biases if there are several ranks."""
    shutil.copytree(ARCH / "gpt_neox", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["use_parallel_residual"], config["hidden_act"] = False, "relu"
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    assert "can be written for 1 rank only" in fails("convert", tmp_path / "m", tmp_path / "x", "--to", "ft", "--ranks", 2)
    ini = convert(tmp_path / "m", tmp_path / "x", 1)
    assert ini["gptneox"]["use_gptj_residual"] == "0" and ini["gptneox"]["hidden_act"] == "relu"
    assert not list((tmp_path / "x").glob("*.sum.bin"))
    assert (logits(tmp_path / "x") == logits(tmp_path / "m")).all()


def test_a_tied_gpt_neox_gets_a_head(tmp_path):
    """FasterTransformer reads model.lm_head.weight.bin of every GPT-NeoX."""
    folder = CHECKPOINT / "gpt_neox" / "safetensors"
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    tensors = load(folder / "model.safetensors")
    del tensors["embed_out.weight"]
    save(tmp_path / "m" / "model.safetensors", tensors)
    convert(tmp_path / "m", tmp_path / "x", 2)
    assert (tmp_path / "x" / "model.lm_head.weight.bin").read_bytes() == (tmp_path / "x" / "model.wte.bin").read_bytes()
    assert (logits(tmp_path / "x") == logits(tmp_path / "m")).all()


@pytest.mark.parametrize("dtype, said", [("f32", "fp32"), ("f16", "fp16"), ("bf16", "bf16")])
def test_types(dtype, said, tmp_path):
    ini = convert(ARCH / "gpt2", tmp_path / "x", 2, "--dtype", dtype)
    assert ini["gpt"]["weight_data_type"] == said and ini["gpt"]["tensor_para_size"] == "2"
    want, have = logits(ARCH / "gpt2"), logits(tmp_path / "x")
    bound = {"f32": 0, "f16": 2e-3, "bf16": 2e-2}[dtype]
    assert np.abs(have - want).max() <= bound * np.abs(want).max()
    size = (tmp_path / "x" / "model.wte.bin").stat().st_size
    assert size == want.shape[-1] * int(ini["gpt"]["head_num"]) * int(ini["gpt"]["size_per_head"]) * (4 if dtype == "f32" else 2)


def test_a_tied_head_of_t5_is_a_file_too(tmp_path):
    """FasterTransformer reads lm_head.weight.bin of every T5."""
    convert(ARCH / "t5", tmp_path / "x", 1)
    assert (tmp_path / "x" / "lm_head.weight.bin").read_bytes() == (tmp_path / "x" / "shared.weight_T.bin").read_bytes()


def test_a_trained_translation_model(tmp_path):
    """Its tokenizer goes with it."""
    convert(T5, tmp_path / "x", 5)  # it has five heads
    text = "A man in an orange hat starring at something."
    want = ok_json("run", T5, text, "--dtype", "f32")
    have = ok_json("run", tmp_path / "x", text, "--dtype", "f32")
    assert have["ids"] == want["ids"] and have["text"] == want["text"]


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1])
def test_a_killed_conversion_is_continued(seconds, tmp_path):
    convert(T5, tmp_path / "want", 5)
    args = [PROA, "convert", T5, tmp_path / "x", "--to", "ft", "--ranks", 5, "--threads", 1]
    run = subprocess.Popen(list(map(str, args)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    run.kill()
    run.wait()
    if not (tmp_path / "x" / "config.ini").exists() or (tmp_path / "x" / ".proa-convert").exists():
        ok("convert", T5, tmp_path / "x", "--to", "ft", "--ranks", "5", "--threads", "1")
    names = {p.name for p in (tmp_path / "want").iterdir()}
    assert names == {p.name for p in (tmp_path / "x").iterdir()}
    for name in names:
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "want" / name).read_bytes(), name


def test_a_run_that_was_killed_before_its_mark_was_whole(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".proa-convert.partial").write_text("unfin")
    convert(ARCH / "gpt2", tmp_path / "x", 1)
    assert not list((tmp_path / "x").glob(".*"))


def test_what_cannot_be_written(tmp_path):
    assert "computes what a llama does" in fails("convert", ARCH / "llama", tmp_path / "x", "--to", "ft")
    assert "cannot be shared by 3 ranks" in fails("convert", ARCH / "gpt2", tmp_path / "x", "--to", "ft", "--ranks", 3)
    assert "--type is for GGUF" in fails("convert", ARCH / "gpt2", tmp_path / "x", "--to", "ft", "--type", "q8_0")
    assert not (tmp_path / "x").exists()


def test_an_existing_folder_is_kept(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_text("1")
    assert "not empty" in fails("convert", ARCH / "gpt2", tmp_path / "x", "--to", "ft")
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["mine"]
