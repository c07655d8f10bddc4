# SPDX-License-Identifier: Apache-2.0
"""`proa convert --calibrate`: what it writes is read by numpy as compressed-tensors documents it, without Proa's readers,
and must give the logits of the numbers that numpy finds. Calibrated models must be better than rounded ones."""
import gzip
import json
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from harness import GOLDEN, LM, PROA, T5, fails, ok_json
from test_convert import as_f32, read
from test_quantized import compare, save

TEXT = gzip.open(GOLDEN / "data/classics-validation.txt.gz", "rt").read()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A text to calibrate on, and another one to measure with: of other books."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "calibrate.txt").write_text(TEXT[:30000])
    (folder / "measure.txt").write_text(TEXT[-20000:])
    return folder


@pytest.fixture(scope="module")
def calibrated(texts, tmp_path_factory):
    """classics-10m as (method, *options): made once each."""
    made = {}

    def make(*options):
        if options not in made:
            made[options] = tmp_path_factory.mktemp("calibrated") / "model"
            ok_json("convert", LM, made[options], "--calibrate", texts / "calibrate.txt", "--calibrate-tokens", 4096,
                    *options)
        return made[options]

    return make


def unpack(words, count):
    """4-bit codes of 32-bit words [rows, count / 8], the first in the lowest bits."""
    codes = words.view(np.uint32)[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    return codes.reshape(words.shape[0], -1)[:, :count].astype(int)


def e4m3(raw):
    raw = raw.astype(int)
    e, m = raw >> 3 & 15, raw & 7
    return np.where(raw & 128, -1, 1) * np.where(e, 2.0 ** (e - 7) * (1 + m / 8), m / 512)


def array(tensor):
    dtype, shape, raw = tensor
    kinds = {"I32": np.int32, "I64": np.int64, "I8": np.int8, "F8_E4M3": np.uint8}
    return np.frombuffer(raw, kinds[dtype]).reshape(shape) if dtype in kinds else as_f32(tensor)


def decode(tensors, base):
    """The numbers [N, K] of a quantised matrix."""
    part = lambda end: array(tensors[base + end])  # noqa: E731
    scale = part(".weight_scale")
    if base + ".weight" in tensors:
        codes = part(".weight")
        return scale * (e4m3(codes) if codes.dtype == np.uint8 else codes)
    n, k = part(".weight_shape")
    codes, zero = unpack(part(".weight_packed"), k), np.full(scale.shape, 8)
    if base + ".weight_zero_point" in tensors:
        zero = unpack(part(".weight_zero_point").T, n).T
    wide = lambda x: np.repeat(x, k // scale.shape[1], axis=1)  # noqa: E731
    return wide(scale) * (codes - wide(zero))


def plain_of(folder, to):
    """The same model with the numbers in place of the codes. Returns them by name."""
    tensors, numbers = read(folder), {}
    for name in tensors:
        base, end = name.rsplit(".", 1)
        if end == "weight_scale":
            numbers[base + ".weight"] = decode(tensors, base).astype(np.float32)
    for name, tensor in tensors.items():
        if name.endswith((".weight", ".bias")) and name not in numbers:
            numbers[name] = as_f32(tensor)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((to / "config.json").read_text())
    del config["quantization_config"]
    (to / "config.json").write_text(json.dumps(config))
    save(to / "model.safetensors", numbers)
    return numbers


def quantised_names(folder):
    return sorted(name.rsplit(".", 1)[0] for name in read(folder) if name.endswith(".weight_scale"))


def norm_of(name):
    """The norm whose output a matrix of classics-10m reads."""
    layer, part = name.rsplit(".", 3)[0], name.split(".")[-2]
    norms = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "input_layernorm") | dict.fromkeys(("gate_proj", "up_proj"), "post_attention_layernorm")
    return f"{layer}.{norms[part]}.weight" if part in norms else None


FORMS = [("int4",), ("int4", "--zero-points"), ("int4", "--method", "awq"), ("int4", "--method", "awq-gptq"), ("int8",),
         ("int8", "--method", "smoothquant"), ("fp8",)]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_numpy_reads_the_same_numbers(form, calibrated, tmp_path):
    folder = calibrated("--quant", *form)
    (tmp_path / "quantised").symlink_to(folder)
    numbers = plain_of(folder, tmp_path / "plain")
    compare(tmp_path)
    matrices = [name for name in read(LM) if "proj.weight" in name]
    assert quantised_names(folder) == sorted(name.removesuffix(".weight") for name in matrices)
    source, moved = read(LM), 0
    for name in matrices:  # close to the source's, when what was moved from the norms is taken back
        w, norm = as_f32(source[name]), norm_of(name)
        scale = numbers[norm] / as_f32(source[norm]) if norm else np.ones(w.shape[1], np.float32)
        moved += np.abs(scale - 1).max() > 0.05
        limit = {"int4": 0.2, "int8": 0.03, "fp8": 0.06}[form[0]]
        assert np.abs(numbers[name] * scale - w).mean() < limit * np.abs(w).mean()
    assert (moved > 0) == any(method in form for method in ("awq", "awq-gptq", "smoothquant"))


def test_config_names_the_layout(calibrated):
    config = json.loads((calibrated("--quant", "int4") / "config.json").read_text())
    own = config["quantization_config"]
    assert own["quant_method"] == "compressed-tensors" and own["format"] == "pack-quantized"
    group = own["config_groups"]["group_0"]
    assert group["targets"] == ["Linear"] and group["input_activations"] is None
    assert group["weights"] | {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"} == group["weights"]
    assert "lm_head" in own["ignore"] and not any("proj" in name for name in own["ignore"])


def nll(model, texts):
    return ok_json("eval", model, "--data", texts / "measure.txt")["nll"]


def test_error_feedback_is_better_than_rounding(calibrated, texts):
    source = nll(LM, texts)
    rounded = nll(calibrated("--quant", "int4", "--method", "rtn"), texts)
    for options in ((), ("--method", "awq-gptq")):
        assert source < nll(calibrated("--quant", "int4", *options), texts) < source + 0.85 * (rounded - source)


def test_encoder_decoder(tmp_path):
    """Sources with and without targets; the target's tokens are what the decoder reads."""
    lines = gzip.open(GOLDEN / "data/test_2016_flickr.en.gz", "rt").read().splitlines()[:12]
    targets = gzip.open(GOLDEN / "data/test_2016_flickr.de.gz", "rt").read().splitlines()[:12]
    given = {"sources": lines, "pairs": [f"{a}\t{b}" for a, b in zip(lines, targets)]}
    for name, text in given.items():
        long = "a dog and " * 400  # is cut off
        (tmp_path / name).write_text("\n\n".join([*text, long if name == "sources" else f"{long}\t{long}"]))
        result = ok_json("convert", T5, tmp_path / f"{name}-int4", "--calibrate", tmp_path / name, "--prefix",
                         "translate English to German: ")
        assert result["logit_difference"] < 0.2
    both = [read(tmp_path / f"{name}-int4") for name in given]
    names = quantised_names(tmp_path / "pairs-int4")
    assert len(names) == 4 * 6 + 4 * 10 and names == quantised_names(tmp_path / "sources-int4")
    # what the encoder gives does not depend on the targets, but for the order of sums; what the decoder reads does
    for name in names:
        codes = [unpack(array(t[name + ".weight_packed"]), 1 << 20) for t in both]
        of_encoder = "encoder." in name or name.endswith(("EncDecAttention.k", "EncDecAttention.v"))
        assert ((codes[0] != codes[1]).mean() < 0.01) == of_encoder


def test_fp8_has_the_scale_of_the_inputs(calibrated):
    tensors = read(calibrated("--quant", "fp8"))
    for base in quantised_names(calibrated("--quant", "fp8")):
        assert tensors[base + ".input_scale"][1] == [1] and array(tensors[base + ".input_scale"])[0] > 0


# ---- other architectures ----

# the norms that take scales: (their number, a part of their names)
NORMS = {"llama": (4, "layernorm"), "gemma": (4, "layernorm"), "phi3": (4, "layernorm"), "gpt_neox": (4, "layernorm"),
         "opt": (4, "layer_norm"), "bloom": (4, "layernorm"), "mixtral": (2, "input_layernorm"), "stablelm": (4, "layernorm"),
         "deepseek_v2": (1, "post_attention"), "t5": (10, "layer_norm"), "mbart": (10, "layer_norm"),
         "modernbert": (7, "norm"), "falcon7b": (0, ""), "bert": (0, ""), "olmo2": (0, ""), "chatglm2": (4, "layernorm")}


def with_words(family, folder):
    """A model of tests/golden/arch with a vocabulary of words, and a text of them."""
    shutil.copytree(GOLDEN / "arch" / family, folder)
    config = json.loads((folder / "config.json").read_text())
    size = config.get("vocab_size") or config["padded_vocab_size"]
    model = {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(size)}, "unk_token": "w1"}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}}))
    words = np.random.default_rng(1).integers(3, size, (24, 12))
    (folder / "text.txt").write_text("\n".join(" ".join(f"w{i}" for i in line) for line in words))
    return folder


@pytest.mark.parametrize("family", NORMS)
def test_smoothing_changes_no_product(family, tmp_path):
    """int8 of these models differs from f32 by 0.005 to 0.2 of the largest logit; a scale that is on one side only would
    change it altogether."""
    model = with_words(family, tmp_path / "model")
    result = ok_json("convert", model, tmp_path / "out", "--calibrate", model / "text.txt", "--quant", "int8", "--method",
                     "smoothquant")
    assert result["logit_difference"] < 0.25
    before, after = read(model), read(tmp_path / "out")
    changed = [n for n in before if n.endswith("weight") and len(before[n][1]) == 1 and before[n] != after[n]]
    count, part = NORMS[family]
    assert len(changed) == count and all(part in name for name in changed)


def test_matrices_that_are_stored_transposed(tmp_path):
    model = with_words("gpt2", tmp_path / "model")
    assert "no matrices" in fails("convert", model, tmp_path / "out", "--calibrate", model / "text.txt")


def test_an_interrupted_run_can_be_repeated(texts, tmp_path):
    out = tmp_path / "out"
    command = ("convert", LM, out, "--calibrate", texts / "calibrate.txt", "--calibrate-tokens", 2048)
    run = subprocess.Popen([PROA, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (out / ".proa-convert").exists():
        assert run.poll() is None, run.returncode
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) != 0 and "interrupted" in run.stderr.read()
    assert not (out / "config.json").exists()
    assert "other options" in fails(*command, "--method", "rtn")
    assert ok_json(*command)["logit_difference"] < 1
    assert {path.name for path in out.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not (out / ".proa-convert").exists()


def test_refusals(texts, tmp_path):
    text, out = texts / "calibrate.txt", tmp_path / "out"
    assert "--to hf" in fails("convert", LM, tmp_path / "m.gguf", "--calibrate", text)
    assert "--calibrate" in fails("convert", LM, out, "--quant", "int4")
    (tmp_path / "empty.txt").write_text("")
    fails("convert", LM, out, "--calibrate", tmp_path / "empty.txt")
    fails("convert", LM, out, "--calibrate", tmp_path / "none.txt")
    assert "--calibrate" in fails("convert", LM, out, "--calibrate", text, "--group", 128)
    assert "int8" in fails("convert", LM, out, "--calibrate", text, "--method", "smoothquant")
    assert "int4" in fails("convert", LM, out, "--calibrate", text, "--method", "awq", "--quant", "fp8")
    assert "int4" in fails("convert", LM, out, "--calibrate", text, "--group", 32, "--quant", "int8")
    assert "int4, int8 or fp8" in fails("convert", LM, out, "--calibrate", text, "--quant", "none")
    assert not out.exists() or not (out / "config.json").exists()
