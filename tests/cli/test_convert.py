# SPDX-License-Identifier: Apache-2.0
"""`proa convert`: every golden family there and back, bit for bit; what interrupts it, and what it refuses."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import urllib.request

import numpy as np
import pytest
from harness import GOLDEN, LM, PROA, T5, fails, ok, ok_json, proa
from test_quantized import GROUP, codes_of, gptq, pack, save, write

FAMILIES = sorted(folder for folder in (GOLDEN / "arch").iterdir() if folder.is_dir())
FORMS = sorted(folder for folder in GOLDEN.glob("checkpoint/*/*") if folder.name != "safetensors")
names = lambda folder: f"{folder.parent.name}/{folder.name}"  # noqa: E731


def read(folder):
    """name -> (dtype, shape, bytes) of all safetensors files of a folder, whose index must list them."""
    tensors, files = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        header.pop("__metadata__", None)
        for name, t in header.items():
            begin, end = (8 + size + x for x in t["data_offsets"])
            tensors[name], files[name] = (t["dtype"], t["shape"], raw[begin:end]), path.name
    if (folder / "model.safetensors.index.json").exists():
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["weight_map"] == files
        assert index["metadata"]["total_size"] == sum(len(t[2]) for t in tensors.values())
    return tensors


def as_f32(tensor):
    dtype, shape, raw = tensor
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(raw, {"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32).reshape(shape)


def convert(source, out, *options):
    return ok_json("convert", source, out, *options)


# ---- there and back ----

@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_families_to_hugging_face(family, tmp_path):
    own = family / "config.json"
    codes = own.exists() and "quantization_config" in json.loads(own.read_text())
    result = convert(family, tmp_path / "hf", *(("--dtype", "f32") if codes else ()))  # codes are exact in f32
    assert result["logit_difference"] == 0 and result["tokens_same"] == result["tokens"]
    files = {path.name for path in (tmp_path / "hf").iterdir()}
    assert {"config.json", "model.safetensors"} <= files and not any("part" in f or "journal" in f for f in files)
    if list(family.glob("*.safetensors")) and not codes:
        assert read(tmp_path / "hf") == read(family)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    if "bitnet" in family.name:  # the matrices are floats, but rows that they multiply are rounded as before
        assert config["quantization_config"]["linear_class"] == "autobitlinear"
    else:
        assert "quantization_config" not in config
    widest = max((np.prod(t[1]), t[0]) for t in read(tmp_path / "hf").values())[1]
    key = "dtype" if "dtype" in config else "torch_dtype"
    assert config[key] == {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[widest]


QUANTISED = {"llama", "deepseek_v3", "gguf_gpt_oss", "t5", "bert", "deberta_v3", "opennmt_pt"}


@pytest.mark.parametrize("family, quant", [(f, "none") for f in FAMILIES] + [(f, "int8") for f in FAMILIES if f.name in QUANTISED],
                         ids=lambda p: getattr(p, "name", p))
def test_families_to_packed(family, quant, tmp_path):
    result = convert(family, tmp_path / "packed", "--to", "packed", "--quant", quant)
    assert result["logit_difference"] == 0 and result["tokens_same"] == result["tokens"]
    assert {path.name for path in (tmp_path / "packed").iterdir()} >= {"config.json", "model.proa"}


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_forms_of_one_checkpoint(form, tmp_path):
    """FasterTransformer's ranks, torch files with views, shards: the tensors of the safetensors file."""
    assert convert(form, tmp_path / "hf")["logit_difference"] == 0
    want, have = read(form.parent / "safetensors"), read(tmp_path / "hf")
    assert have.keys() <= want.keys()
    for name, tensor in have.items():
        assert tensor == want[name], name
    for name in want.keys() - have.keys():  # tied weights are written once
        assert any(want[name][2] == tensor[2] for tensor in have.values()), name


@pytest.mark.parametrize("key", ["text_config", "llm_config", "thinker_config"])
def test_codes_of_a_multimodal_class_become_the_type_of_its_text_model(key, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / "arch/autogptq", source, ignore=shutil.ignore_patterns("golden.json"))
    text = json.loads((source / "config.json").read_text())
    quantisation = text.pop("quantization_config")
    text.pop("dtype", None)
    text["torch_dtype"] = "bfloat16"
    config = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", key: text,
              "quantization_config": quantisation}
    (source / "config.json").write_text(json.dumps(config))
    ok("convert", source, tmp_path / "hf")
    assert {t[0] for name, t in read(tmp_path / "hf").items() if "proj.weight" in name} == {"BF16"}


def name_in(original, name):
    """Files of a bare model, or of a text model within a multimodal one, have the same names behind another beginning."""
    short = name.removeprefix("nomic_bert.").removeprefix("model.")
    return next(n for n in (name, short, f"model.language_model.{short}", f"language_model.{name}",
                            f"language_model.model.{short}") if n in original)


def stack_experts(tensors):
    """Adds the tensors of all experts to those of each, which transformers saves of a Qwen3.5."""
    for name in [n for n in tensors if n.endswith("mlp.experts.0.gate_proj.weight")]:
        base, experts = name.removesuffix("0.gate_proj.weight"), []
        while f"{base}{len(experts)}.up_proj.weight" in tensors:
            experts.append([tensors[f"{base}{len(experts)}.{part}_proj.weight"] for part in ("gate", "up", "down")])
        (dtype, (rows, cols), _), count = experts[0][0], len(experts)
        tensors[base + "gate_up_proj"] = (dtype, [count, 2 * rows, cols], b"".join(gate[2] + up[2] for gate, up, _ in experts))
        tensors[base + "down_proj"] = (dtype, [count, cols, rows], b"".join(down[2] for _, _, down in experts))
    return tensors


def factors_of(name, config):
    """What llama.cpp's converter multiplies a tensor of Falcon-H1 by: a number, or one of each row."""
    if config["model_type"] != "falcon_h1":
        return 1
    c, attention = config, config["attention_in_multiplier"]
    keys, values = c["mamba_n_groups"] * c["mamba_d_state"], c["mamba_d_ssm"]
    parts = np.repeat(c["ssm_multipliers"], [values, values, keys, keys, c["mamba_n_heads"]])[:, None]
    factors = {"embed_tokens": c["embedding_multiplier"], "lm_head": c["lm_head_multiplier"], "q_proj": attention,
               "k_proj": attention * c["key_multiplier"], "v_proj": attention, "self_attn.o_proj": c["attention_out_multiplier"],
               "gate_proj": c["mlp_multipliers"][0], "down_proj": c["mlp_multipliers"][1],
               "in_proj": c["ssm_in_multiplier"] * parts, "mamba.out_proj": c["ssm_out_multiplier"]}
    return next((factor for part, factor in factors.items() if part in name), 1)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name.startswith("gguf_")], ids=lambda f: f.name)
def test_gguf_is_the_model_that_it_was_made_of(family, tmp_path):
    """llama.cpp stores weights transposed, regrouped, rotated and with 1 added: all is undone. Factors stay in them."""
    convert(family, tmp_path / "hf")
    name = family.name.removeprefix("gguf_")
    original = family.parent / {"exaone": "llama"}.get(name, name)
    want, have = stack_experts(read(original)), read(tmp_path / "hf")
    config = json.loads((original / "config.json").read_text())
    for written, tensor in have.items():
        name = name_in(want, written)
        assert tensor[1] == want[name][1], name
        limit = {"F32": 1e-7 if config["model_type"] != "falcon_h1" else 2e-7, "F16": 1e-3, "BF16": 8e-3}[tensor[0]]
        a, b = as_f32(tensor), as_f32(want[name]).reshape(want[name][1])
        a, b = a.reshape(b.shape), b * factors_of(name, config)
        size = max(np.abs(b).max(), 1) if name.endswith("A_log") else np.abs(b).max()  # a logarithm of what is stored
        assert np.abs(a - b).max() <= limit * size, name


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_dtype(dtype, tmp_path):
    """Each number is the nearest one of the type."""
    convert(LM, tmp_path / "a", "--dtype", dtype)
    have, want = read(tmp_path / "a"), read(LM)
    for name, tensor in have.items():
        assert tensor[0] == dtype.upper()
        exact = as_f32(want[name])
        assert (as_f32(tensor) == (exact.astype(np.float16).astype(np.float32) if dtype == "f16" else exact)).all()
    for name in ("tokenizer.json", "generation_config.json"):
        if (LM / name).exists():
            assert (tmp_path / "a" / name).read_bytes() == (LM / name).read_bytes()
    assert ok("run", tmp_path / "a", "It was", "--max-tokens", "4") == ok("run", LM, "It was", "--max-tokens", "4") or dtype == "f16"


def test_shards(tmp_path):
    convert(LM, tmp_path / "one", "--shard-size", "0")
    convert(LM, tmp_path / "many", "--shard-size", "1MB")
    count = len(list((tmp_path / "many").glob("model-*-of-*.safetensors")))
    assert count > 3 and (tmp_path / f"many/model-00001-of-{count:05d}.safetensors").exists()
    assert read(tmp_path / "many") == read(tmp_path / "one") == read(LM)
    assert int.from_bytes((tmp_path / "one/model.safetensors").read_bytes()[:8], "little") % 8 == 0
    for path in (tmp_path / "many").glob("*.safetensors"):
        sizes = [len(t[2]) for t in read(tmp_path / "many").values()]
        assert path.stat().st_size < max(1_000_000, max(sizes)) + 10_000


def test_quantised_checkpoints_are_decoded(tmp_path):
    def in_order(base, w):
        codes, scale, zero, back = codes_of(w)
        return {base + ".qweight": pack(codes.T, 0), base + ".scales": scale.T, base + ".qzeros": pack((zero - 1).T, 1)}, back

    write(tmp_path, in_order, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq"})
    convert(tmp_path / "quantised", tmp_path / "f32", "--dtype", "f32")
    assert "quantization_config" not in json.loads((tmp_path / "f32/config.json").read_text())
    want, have = read(tmp_path / "plain"), read(tmp_path / "f32")
    assert have.keys() == want.keys()
    for name in want:
        assert have[name] == want[name], name
    convert(tmp_path / "quantised", tmp_path / "own")
    assert {t[0] for t in read(tmp_path / "own").values()} <= {"BF16", "F16", "F32"}


def test_encoder_decoder_with_tokenizer(tmp_path):
    convert(T5, tmp_path / "hf")
    args = ("translate English to German: A dog runs.", "--max-tokens", "8")
    assert ok("run", tmp_path / "hf", *args) == ok("run", T5, *args)
    convert(T5, tmp_path / "packed", "--to", "packed")
    assert ok("run", tmp_path / "packed", *args) == ok("run", T5, *args)


# ---- packed folders ----

def test_packed_is_a_model_for_every_command(tmp_path):
    out = tmp_path / "packed"
    assert "0 of the largest" in ok("convert", LM, out, "--to", "packed", "--quant", "int8")
    assert ok("run", out, "It was", "--max-tokens", "6") == ok("run", LM, "It was", "--max-tokens", "6", "--quant", "int8")
    assert "packed" in ok("inspect", out) and ok_json("explain", out)["weight_format"] == "int8"
    assert ok("run", out / "model.proa", "It was", "--max-tokens", "2") == ok("run", out, "It was", "--max-tokens", "2")
    for isa in ("avx2", "avx512"):
        run = proa("run", out, "It was", "--max-tokens", "6", env={"PROA_ISA": isa})
        assert run.returncode == 0 or "CPU" in run.stderr, run.stderr
    line = fails("run", out, "x", env={"PROA_ISA": "generic"})
    assert "is packed as 'x86-64 panels" in line and "proa convert MODEL OUT --to packed" in line
    assert "is packed with --quant int8" in fails("run", out, "x", "--quant", "int4")
    assert "is packed with --dtype auto" in fails("run", out, "x", "--dtype", "f32")
    assert "is packed: give the model" in fails("convert", out, tmp_path / "again")
    assert "is packed: give the model" in fails("convert", out, tmp_path / "again", "--to", "packed")


@pytest.mark.parametrize("family, quant, ranks", [("llama", "none", 2), ("llama", "int4", 2), ("gpt2", "int8", 2), ("t5", "none", 2),
                                                  ("mixtral", "none", 2), ("deepseek_v3", "none", 2), ("gguf_gpt_oss", "none", 2),
                                                  ("autogptq", "none", 2), ("bert_regress", "none", 2),
                                                  ("granitemoehybrid", "none", 4), ("bamba", "int8", 2), ("falcon_h1_normed", "none", 3),
                                                  ("minimax", "none", 2), ("zamba2", "none", 2)])
def test_packed_for_ranks(family, quant, ranks, tmp_path):
    """A file for each rank; together they compute what the source does in as many ranks, to the bit."""
    out, source = tmp_path / "packed", GOLDEN / "arch" / family
    result = convert(source, out, "--to", "packed", "--quant", quant, "--ranks", str(ranks))
    assert result["logit_difference"] == 0 and result["tokens_same"] == result["tokens"]
    assert {path.name for path in out.glob("*.proa")} == {f"model-{i + 1:05d}-of-{ranks:05d}.proa" for i in range(ranks)}
    run = ["--ids", "5 6 7 8", *(["--logits"] if family != "bert_regress" else [])]
    assert ok_json("run", out, *run) == ok_json("run", source, *run, "--quant", quant, "--tp", str(ranks))
    shown = ok("inspect", out, "--no-values")
    assert all(f"rank {i} of {ranks}" in shown for i in range(ranks))
    part = out / f"model-00001-of-{ranks:05d}.proa"
    assert f"is rank 0 of {ranks} of a packed model" in fails("run", part, *run, "--tp", "1")
    assert "is packed: give the model" in fails("convert", out, tmp_path / "again")


@pytest.mark.parametrize("family, ranks, stages", [("llama", 1, 2), ("gpt2", 2, 2), ("t5", 1, 2), ("deepseek_v3", 1, 3), ("bert_regress", 2, 2)])
def test_packed_in_stages(family, ranks, stages, tmp_path):
    """A stage takes its layers of the file: the bits of one stage."""
    out, source = tmp_path / "packed", GOLDEN / "arch" / family
    convert(source, out, "--to", "packed", "--ranks", str(ranks), "--no-probe")
    run = ["--ids", "5 6 7 8", *(["--logits"] if family != "bert_regress" else [])]
    assert ok_json("run", out, *run, "--pp", str(stages)) == ok_json("run", source, *run, "--tp", str(ranks))


READERS = [("llama", "none"), ("llama", "int4"), ("gpt2", "none"), ("gptj", "none"), ("t5", "none"), ("mixtral", "none"),
           ("deepseek_v3", "none"), ("gpt_bigcode", "none"), ("gguf_llama", "none"), ("gguf_gpt_oss", "none"), ("deberta_v3", "none"),
           ("granitemoehybrid", "none"), ("falcon_h1_normed", "none"), ("falcon_h1", "none"), ("minimax", "none"), ("zamba2", "none")]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("family, quant", READERS)
def test_packed_for_another_number_of_ranks(family, quant, ranks, tmp_path):
    """Weights are put together from the parts: the bits of the source in as many ranks. A group of numbers with one scale
    stays whole, so what would cut one is refused."""
    out, source = tmp_path / "packed", GOLDEN / "arch" / family
    convert(source, out, "--to", "packed", "--quant", quant, "--ranks", str(ranks), "--no-probe")
    run = ["--ids", "5 6 7 8", "--threads", "2", *(["--logits"] if family != "deberta_v3" else [])]
    read = 0
    for readers in {1, 2, 3, 4} - {ranks}:
        want = proa("run", source, *run, "--quant", quant, "--tp", readers, "--json")
        if want.returncode:  # too little of something for so many
            assert fails("run", out, *run, "--tp", readers) == want.stderr.splitlines()[-1].replace(str(source), str(out))
            continue
        have = proa("run", out, *run, "--tp", readers, "--json")
        if have.returncode:
            assert f"packed with --ranks {ranks} and cannot be read with --tp {readers}: in 'o' of" in have.stderr
            assert (family, quant, readers) in [("llama", "int4", 3), ("llama", "int4", 4)]
            continue
        assert json.loads(have.stdout) == json.loads(want.stdout), readers
        read += 1
    assert read >= 1


@pytest.mark.parametrize("family, ranks", [("llama", 1), ("llama", 2), ("llama", 4), ("gpt2", 1), ("gpt2", 4), ("t5", 2), ("mixtral", 1)])
def test_packed_in_int8_for_other_ranks(family, ranks, tmp_path):
    """A row of int8 has one scale, in the part of each rank that of the whole row: what any number reads is the source in
    as many ranks, and the folder that was made for that number."""
    source, run = GOLDEN / "arch" / family, ["--ids", "5 6 7 8", "--logits", "--threads", "2"]
    convert(source, tmp_path / "packed", "--to", "packed", "--quant", "int8", "--ranks", str(ranks), "--no-probe")
    for readers in {1, 2, 4} - {ranks}:
        want = ok_json("run", source, *run, "--quant", "int8", "--tp", readers)
        assert ok_json("run", tmp_path / "packed", *run, "--tp", readers) == want, readers
        if family == "llama":
            own = tmp_path / f"for {readers}"
            convert(source, own, "--to", "packed", "--quant", "int8", "--ranks", str(readers), "--no-probe")
            assert ok_json("run", own, *run, "--tp", readers) == want
    if ranks == 1:
        whole = ok_json("run", source, *run, "--quant", "int8")
        assert ok_json("run", tmp_path / "packed", *run, "--tp", 3, "--rank-sums", "whole") == whole


def test_packed_in_int8_with_scales_of_parts(tmp_path):
    """A folder whose parts were rounded by themselves, as older versions did, is read by its own number of ranks only."""
    source, out = GOLDEN / "arch/llama", tmp_path / "packed"
    convert(source, out, "--to", "packed", "--quant", "int8", "--ranks", "2", "--no-probe")
    run = ["--ids", "5 6 7 8", "--logits"]
    assert ok_json("run", out, *run, "--tp", 4)
    part = out / "model-00002-of-00002.proa"
    row = as_f32(read(source)["model.layers.0.self_attn.o_proj.weight"])[5]
    scale, data = np.abs(row).max() / np.float32(127), part.read_bytes()
    assert data.count(scale.tobytes()) == 1
    part.write_bytes(data.replace(scale.tobytes(), (scale * 2).tobytes()))
    for readers in (1, 4):
        line = fails("run", out, *run, "--tp", readers)
        assert "(int8) numbers with one scale would be parted or joined" in line and "with --ranks 2" in line
    assert ok_json("run", out, *run, "--tp", 2)


@pytest.mark.parametrize("options", [("--tp", 2, "--pp", 2), ("--tp", 4, "--ranks", "process"), ("--tp", 2, "--expert-parallel", "on"),
                                     ("--tp", 4, "--rank-sums", "whole")])
@pytest.mark.parametrize("family", ["mixtral", "granitemoehybrid"])
def test_packed_for_ranks_of_other_kinds(family, options, tmp_path):
    """Stages, processes, whole experts and whole sums read a folder that was packed for ranks with parts of experts, and
    of the groups of a norm."""
    source = GOLDEN / "arch" / family
    convert(source, tmp_path / "packed", "--to", "packed", "--ranks", "2", "--no-probe")
    run = ["--ids", "5 6 7 8", "--logits", *options]
    assert ok_json("run", tmp_path / "packed", *run) == ok_json("run", source, *run)


def test_parts_that_do_not_fit_together(tmp_path):
    """Parts of two conversions, and a missing one."""
    for dtype in ("bf16", "f32"):
        convert(GOLDEN / "arch/llama", tmp_path / dtype, "--to", "packed", "--ranks", "2", "--dtype", dtype, "--no-probe")
    second = "model-00002-of-00002.proa"
    (tmp_path / "f32" / second).write_bytes((tmp_path / "bf16" / second).read_bytes())
    assert "is not the same in all parts" in fails("run", tmp_path / "f32", "--ids", "5 6", "--tp", 1)
    (tmp_path / "f32" / second).unlink()
    assert second in fails("run", tmp_path / "f32", "--ids", "5 6", "--tp", 1)


def test_ranks_that_do_not_divide(tmp_path):
    line = fails("convert", GOLDEN / "arch/llama", tmp_path / "packed", "--to", "packed", "--ranks", "64")
    assert "cannot be divided among 64 ranks" in line and not (tmp_path / "packed").exists()


def test_packed_is_served(tmp_path):
    """A served model has no file open, so a packed one is copied."""
    convert(LM, tmp_path / "packed", "--to", "packed")
    server = subprocess.Popen([PROA, "serve", tmp_path / "packed", "--http-address", "127.0.0.1", "--http-port", "18931", "--allow-grpc", "false",
                               "--allow-metrics", "false"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if "Started HTTPService" in line:
                break
        os.unlink(tmp_path / "packed/model.proa")
        body = json.dumps({"model": "packed", "prompt": "It was", "max_tokens": 6, "temperature": 0}).encode()
        request = urllib.request.Request("http://127.0.0.1:18931/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = json.load(answer)["choices"][0]["text"]
    finally:
        server.kill()
        server.wait()
    assert text == ok_json("run", LM, "It was", "--max-tokens", "6")["text"]


def test_damaged_packed_files(tmp_path):
    out = tmp_path / "packed"
    convert(LM, out, "--to", "packed")
    good = (out / "model.proa").read_bytes()
    (out / "model.proa").write_bytes(good[:-1])
    assert "cut short or longer" in fails("run", out, "x")
    config = json.loads((out / "config.json").read_text())
    (out / "model.proa").write_bytes(good)
    (out / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] - 1}))
    fails("run", out, "x")


def test_packed_orders_of_inputs(tmp_path):
    """GPTQ's act-order: a matrix' order of inputs is at the end of its bytes, and is checked."""
    write(tmp_path, lambda base, w: gptq(base, w, act_order=True), {"quant_method": "gptq", "bits": 4, "group_size": GROUP})
    out = tmp_path / "packed"
    assert convert(tmp_path / "quantised", out, "--to", "packed")["logit_difference"] == 0
    raw = bytearray((out / "model.proa").read_bytes())
    length = int.from_bytes(raw[8:16], "little")
    header, at = json.loads(raw[16:16 + length]), (16 + length + 4095) // 4096 * 4096
    for _, layer, slot, form, size in header["weights"]:
        at += size
        if form == "q4_0+order":
            break
    raw[at - 4:at] = np.int32(-1).tobytes()
    (out / "model.proa").write_bytes(raw)
    assert f"of '{slot}' of layer {layer} is -1, must be 0 to " in fails("run", out, "--ids", "5 6")


# ---- what interrupts it ----

@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """40 tensors of 8 MB: no model, but a checkpoint."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(1)
    save(folder / "model.safetensors", {f"t{i}": rng.integers(0, 9999, (2048, 2048)).astype(np.float16) for i in range(40)})
    (folder / "config.json").write_text("{}")
    return folder


def start(large, out):
    return subprocess.Popen([PROA, "convert", large, out, "--dtype", "f32", "--no-probe", "--threads", "1"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def stop_when_begun(run, out, number, most=1.0):
    """Sends the signal when a part of the file is written; false if it was too late."""
    partial = out / "model.safetensors.partial"
    until = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < until:
        if partial.exists() and partial.stat().st_size > 50e6:
            run.send_signal(number)
            break
        time.sleep(0.002)
    return run.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_second_run_continues(large, tmp_path, number):
    ok("convert", large, tmp_path / "whole", "--dtype", "f32", "--no-probe")
    run = start(large, tmp_path / "cut")
    status = stop_when_begun(run, tmp_path / "cut", number)
    if status == 0:
        pytest.skip("it was written before the signal came")
    if number == signal.SIGINT:
        assert status == 130 and "the same command continues" in run.stderr.read()
    assert "is no model: it has neither config.json nor weights" in fails("run", tmp_path / "cut", "x")
    line = fails("convert", large, tmp_path / "cut", "--dtype", "bf16", "--no-probe")
    assert "begun from another source or with other options" in line
    ok("convert", large, tmp_path / "cut", "--dtype", "f32", "--no-probe")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(os.listdir(tmp_path / "cut")) == sorted(os.listdir(tmp_path / "whole"))


def test_full_disk(large, tmp_path):
    run = subprocess.run([PROA, "convert", large, tmp_path / "out", "--dtype", "f32", "--no-probe"], capture_output=True, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000_000, 100_000_000)))
    assert run.returncode == 1 and "cannot write" in run.stderr and len(run.stderr.splitlines()) == 1
    ok("convert", large, tmp_path / "out", "--dtype", "f32", "--no-probe")


# ---- what it refuses ----

def test_places_that_are_taken(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    assert "exists and is not empty" in fails("convert", LM, tmp_path / "mine")
    convert(LM, tmp_path / "mine", "--overwrite")
    assert (tmp_path / "mine/notes.txt").read_text() == "x" and read(tmp_path / "mine") == read(LM)
    convert(LM, tmp_path / "mine", "--overwrite", "--shard-size", "1MB")
    assert read(tmp_path / "mine") == read(LM) and not (tmp_path / "mine/model.safetensors").exists()
    assert "holds the source" in fails("convert", tmp_path / "mine", tmp_path / "mine", "--overwrite")
    assert "holds the source" in fails("convert", tmp_path / "mine", tmp_path, "--overwrite")
    assert "cannot make the folder" in fails("convert", LM, tmp_path / "mine/notes.txt")
    assert "cannot make the folder" in fails("convert", LM, tmp_path / "none/out")


def test_wrong_usage(tmp_path):
    assert "no such file" in fails("convert", tmp_path / "none", tmp_path / "out")
    assert "is no size" in fails("convert", LM, tmp_path / "out", "--shard-size", "5 parsecs")
    fails("convert", LM, status=2)
    fails("convert", LM, tmp_path / "out", "--to", "onnx", status=2)
    fails("convert", LM, tmp_path / "out", "--to", "packed", "--device", "cuda:99")


def test_a_model_that_does_not_run_is_not_compared(large, tmp_path):
    assert "is written, but cannot be compared" in fails("convert", large, tmp_path / "out")
    assert sorted(read(tmp_path / "out")) == sorted(read(large))
