# SPDX-License-Identifier: Apache-2.0
"""Prompt tables in FasterTransformer's folders: tasks of config.ini by their names as models of OpenAI's API and as
adapters, and by their numbers as FasterTransformer's clients send them. The tables are PEFT's (tests/golden), written
as FasterTransformer's converters write them."""
import configparser
import json
import struct
import subprocess

import numpy as np
import pytest
import requests
from wire import PROA, ROOT

GOLDEN = ROOT / "tests/golden"
PBTXT = """backend: "fastertransformer"
max_batch_size: 8
parameters {{ key: "model_type" value {{ string_value: "{kind}" }} }}
parameters {{ key: "model_checkpoint_path" value {{ string_value: "{folder}" }} }}
parameters {{ key: "data_type" value {{ string_value: "fp32" }} }}
"""


def table_of(model, kind):
    """PEFT's table: [tokens or more, columns]."""
    data = (GOLDEN / "prompt_tables" / model / kind / "adapter_model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + length])["prompt_embeddings"]
    return np.frombuffer(data[8 + length:], dtype=np.float32).reshape(entry["shape"])


def case_of(model, kind, number=0):
    return json.loads((GOLDEN / "prompt_tables" / model / kind / "golden.json").read_text(encoding="utf-8"))["cases"][number]


def ft_folder(out, model, section, tasks, **keys):
    """The golden as a folder of two ranks, with keys in its section and tasks of these names and lengths."""
    command = [PROA, "convert", GOLDEN / "arch" / model, out, "--to", "ft", "--ranks", "2", "--dtype", "f32", "--no-probe"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    ini = configparser.ConfigParser()
    ini.read(out / "config.ini")
    ini[section].update({"num_tasks": str(len(tasks)), **{k: str(v) for k, v in keys.items()}})
    for i, (name, length) in enumerate(tasks):
        ini[f"task_{i}"] = {"task_name": name, "prompt_length": str(length)}
    with open(out / "config.ini", "w", encoding="utf-8") as file:
        ini.write(file)
    return out


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Two tasks of p-tuning, one of them without tokens; ids from 150 on are rows of the other's table."""
    folder = ft_folder(tmp_path_factory.mktemp("ft") / "gpt2", "gpt2", "gpt", [("none", 0), ("soft", 5)],
                       prompt_learning_type=3, prompt_learning_start_id=150)
    table_of("gpt2", "prompt").tofile(folder / "model.prompt_table.soft.weight.bin")
    return folder


@pytest.fixture(scope="module")
def gptj(tmp_path_factory):
    """A prefix of keys and values, [layers][2][heads / ranks][tokens][head] for each of two ranks."""
    table, config = table_of("gptj", "prefix"), json.loads((GOLDEN / "arch/gptj/config.json").read_text(encoding="utf-8"))
    layers, heads, hidden = config["n_layer"], config["n_head"], config["n_embd"]
    folder = ft_folder(tmp_path_factory.mktemp("ft") / "gptj", "gptj", "gptj", [("squad", len(table))], prompt_learning_type=2)
    parts = table.reshape(len(table), layers, 2, heads, hidden // heads).transpose(1, 2, 3, 0, 4)
    for rank, part in enumerate(np.split(parts, 2, axis=2)):
        np.ascontiguousarray(part).tofile(folder / f"model.prefix_prompt.squad.weight.{rank}.bin")
    return folder


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = ft_folder(tmp_path_factory.mktemp("ft") / "t5", "t5", "encoder", [("brief", 5)], prompt_learning_type=3,
                       prompt_learning_start_id=200)
    table_of("t5", "prompt")[:5].tofile(folder / "model.prompt_table.brief.weight.bin")
    return folder


def served_as_ft(start, tmp_path, folder, kind):
    model = tmp_path / "models/ft"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(PBTXT.format(kind=kind, folder=folder), encoding="utf-8")
    return start("--dtype=f32", repositories=[model.parent])


def ask_ft(server, ids, new, names=("input_lengths", "request_output_len"), **more):
    """New tokens of one row."""
    values = {"input_ids": ids, names[0]: len(ids), names[1]: new, "runtime_top_k": 1, **more}
    inputs = [{"name": name, "datatype": "UINT32", "shape": [1, len(v) if isinstance(v, list) else 1],
               "data": v if isinstance(v, list) else [v]} for name, v in values.items()]
    answer = requests.post(server.url("/v2/models/ft/infer"), json={"inputs": inputs}, timeout=60)
    if answer.status_code != 200:
        return answer.json()["error"]
    out = next(o for o in answer.json()["outputs"] if o["name"] == "output_ids")["data"]
    return out[0 if names[0] == "sequence_length" else len(ids):][:new]


def by_adapter(server, model, case, adapter):
    """New tokens by KServe's protocol."""
    inputs = [{"name": "input_ids", "datatype": "INT32", "shape": [len(case["input_ids"])], "data": case["input_ids"]},
              {"name": "max_tokens", "datatype": "INT32", "shape": [1], "data": [8]},
              {"name": "ignore_eos", "datatype": "BOOL", "shape": [1], "data": [True]},
              {"name": "adapter", "datatype": "BYTES", "shape": [1], "data": [adapter]}]
    answer = requests.post(server.url(f"/v2/models/{model}/infer"), json={"inputs": inputs}, timeout=60)
    assert answer.status_code == 200, answer.text
    return next(o["data"] for o in answer.json()["outputs"] if o["name"] == "output_ids")[:8]


@pytest.mark.parametrize("model, task, kind, number", [("gpt2", "soft", "prompt", 0), ("gptj", "squad", "prefix", 0), ("t5", "brief", "prompt", 1)])
def test_by_name(request, start, model, task, kind, number):
    server = start("--dtype=f32", repositories=[request.getfixturevalue(model)])
    case = case_of(model, kind, number)
    listed = {m["id"]: m.get("parent") for m in requests.get(server.url("/v1/models"), timeout=60).json()["data"]}
    assert listed == {model: None, task: model}
    assert by_adapter(server, model, case, task) == case["greedy"]
    body = {"model": task, "prompt": case["input_ids"], "max_tokens": 1, "temperature": 0}
    answer = requests.post(server.url("/v1/completions"), json=body, timeout=60).json()
    assert answer["usage"]["prompt_tokens"] == len(case["input_ids"]) + (model == "t5"), answer


def until_end(tokens, end):
    """FasterTransformer's contract ends at the end token, the goldens go on."""
    return tokens[:tokens.index(end)] if end in tokens else tokens


def test_p_tuning_by_number(start, tmp_path, gpt2):
    """The rows that a prompt uses are named by its ids; without such ids a task changes nothing."""
    server = served_as_ft(start, tmp_path, gpt2, "GPT")
    case = case_of("gpt2", "prompt")
    ids, no_end = case["input_ids"], {"end_id": 149}
    plain = ask_ft(server, ids, 4, **no_end)
    named = ask_ft(server, [150, 151, 152, 153, 154, *ids], 4, prompt_learning_task_name_ids=1, **no_end)
    assert max(ids) < 150 and named == case["greedy"][:4] and named != plain
    assert ask_ft(server, ids, 4, prompt_learning_task_name_ids=1, **no_end) == plain
    assert ask_ft(server, ids, 4, prompt_learning_task_name_ids=0, **no_end) == plain
    assert "prompt_learning_task_name_ids' is 2" in ask_ft(server, ids, 4, prompt_learning_task_name_ids=2)
    assert "outside of the vocabulary and the prompt table" in ask_ft(server, [155, *ids], 4, prompt_learning_task_name_ids=1)


def test_prefix_by_number(start, tmp_path, gptj):
    server = served_as_ft(start, tmp_path, gptj, "GPT-J")
    for number in (0, 1):
        case = case_of("gptj", "prefix", number)
        have = ask_ft(server, case["input_ids"], 8, prompt_learning_task_name_ids=0, end_id=199)
        assert until_end(have, 199) == until_end(case["greedy"], 199)


def test_t5_by_number(start, tmp_path, t5):
    server = served_as_ft(start, tmp_path, t5, "T5")
    case = case_of("t5", "prompt", 1)
    have = ask_ft(server, [*range(200, 205), *case["input_ids"]], 8, ("sequence_length", "max_output_len"),
                  prompt_learning_task_name_ids=0, end_id=199)
    assert until_end(have, 199) == until_end(case["greedy"], 199)
