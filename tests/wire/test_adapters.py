# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters of a tiny model (tests/golden/adapters): by name as models of OpenAI's API, by the option of the
other protocols, loaded and unloaded while the server runs. Tokens are those of PEFT's goldens."""
import json
import random
import struct
import urllib.error
import urllib.request

import pytest
from wire import ROOT, Server

GOLDEN = ROOT / "tests/golden"
ADAPTERS = GOLDEN / "adapters/llama"


def golden(name):
    return json.loads((ADAPTERS / name / "golden.json").read_text(encoding="utf-8"))["cases"][0]


@pytest.fixture(scope="module")
def models():
    options = (f"--lora=a={ADAPTERS / 'a'}", "--lora-max=2", "--lora-slots=1", "--lora-rank=32", "--allow-lora-updates",
               "--dtype=f32")
    with Server(*options, repositories=[GOLDEN / "arch/llama"]) as running:
        yield running


def post(server, path, body):
    """Status and body of a request; JSON if it is."""
    request = urllib.request.Request(server.url(path), json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as failure:
        status, text = failure.code, failure.read().decode()
    return status, json.loads(text) if text.startswith("{") else text


def listed(server):
    with urllib.request.urlopen(server.url("/v1/models"), timeout=60) as answer:
        return {m["id"]: m.get("parent") for m in json.load(answer)["data"]}


def tokens_of(server, case, adapter=None, model="llama"):
    """New tokens by KServe's protocol."""
    ids, new = case["input_ids"], len(case["greedy"])
    inputs = [{"name": "input_ids", "datatype": "INT32", "shape": [len(ids)], "data": ids},
              {"name": "max_tokens", "datatype": "INT32", "shape": [1], "data": [new]},
              {"name": "ignore_eos", "datatype": "BOOL", "shape": [1], "data": [True]}]
    if adapter:
        inputs.append({"name": "adapter", "datatype": "BYTES", "shape": [1], "data": [adapter]})
    status, answer = post(server, f"/v2/models/{model}/infer", {"inputs": inputs})
    assert status == 200, answer
    return next(o["data"] for o in answer["outputs"] if o["name"] == "output_ids")[:new]


def test_kserve(models):
    case = golden("a")
    assert tokens_of(models, case, "a") == case["greedy"]
    assert tokens_of(models, case) != case["greedy"]
    assert tokens_of(models, case, "a") == case["greedy"]  # no page of the model alone is reused


def write_adapter(folder, model):
    """A folder of PEFT with an adapter of rank 2 of one module, large enough to change the text."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    hidden, numbers = config["hidden_size"], random.Random(5)
    module = "base_model.model.model.layers.0.mlp.down_proj"
    shapes = {f"{module}.lora_A.weight": (2, config["intermediate_size"]), f"{module}.lora_B.weight": (hidden, 2)}
    header, data = {}, b""
    for name, (rows, columns) in shapes.items():
        values = [numbers.gauss(0, 1) for _ in range(rows * columns)]
        bits = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text('{"peft_type":"LORA","r":2,"lora_alpha":4}', encoding="utf-8")


def test_openai(start, tmp_path):
    model = ROOT / "models/classics-10m"
    write_adapter(tmp_path, model)
    server = start(f"--lora=strange={tmp_path}", repositories=[model])
    assert listed(server) == {"classics-10m": None, "strange": "classics-10m"}
    body = {"prompt": "It was the", "max_tokens": 12, "temperature": 0}
    texts = {}
    for name in ("classics-10m", "strange"):
        status, answer = post(server, "/v1/completions", {"model": name, **body})
        assert status == 200 and answer["model"] == name
        texts[name] = answer["choices"][0]["text"]
    assert texts["classics-10m"] != texts["strange"]
    asked = {"text_input": "It was the", "max_tokens": 12, "temperature": 0, "adapter": "strange"}
    status, answer = post(server, "/v2/models/classics-10m/generate", asked)
    assert status == 200 and answer["text_output"] == texts["strange"]
    with urllib.request.urlopen(server.url("/v1/models/strange"), timeout=60) as one:
        assert json.load(one)["id"] == "strange"


def test_loading(models):
    case = golden("b")
    status, text = post(models, "/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(ADAPTERS / "b")})
    assert status == 200 and "added" in text
    assert listed(models) == {"llama": None, "a": "llama", "b": "llama"}
    assert tokens_of(models, case, "b") == case["greedy"]  # takes the only slot of "a"
    assert tokens_of(models, golden("a"), "a") == golden("a")["greedy"]
    again = {"lora_name": "b", "lora_path": str(ADAPTERS / "b"), "base_model_name": "llama"}
    status, error = post(models, "/v1/load_lora_adapter", again)
    assert status == 400 and "loaded already" in error["error"]["message"]
    status, text = post(models, "/v1/unload_lora_adapter", {"lora_name": "b"})
    assert status == 200 and "removed" in text
    assert listed(models) == {"llama": None, "a": "llama"}
    status, error = post(models, "/v1/completions", {"model": "b", "prompt": [5, 6], "max_tokens": 1})
    assert status == 404 and error["error"]["code"] == "model_not_found"


def test_prompt_tables(start):
    """Prefix tuning and prompt tuning beside a low-rank adapter: listed, chosen and unloaded like it."""
    tables = GOLDEN / "prompt_tables/llama"
    server = start(f"--lora=prefix={tables / 'prefix'}", f"--lora=a={ADAPTERS / 'a'}", "--lora-max=3",
                   "--allow-lora-updates", "--dtype=f32", repositories=[GOLDEN / "arch/llama"])
    status, text = post(server, "/v1/load_lora_adapter", {"lora_name": "soft", "lora_path": str(tables / "prompt")})
    assert status == 200, text
    assert listed(server) == {"llama": None, "prefix": "llama", "a": "llama", "soft": "llama"}
    for name, folder in (("prefix", "prefix"), ("soft", "prompt"), ("prefix", "prefix")):
        case = json.loads((tables / folder / "golden.json").read_text(encoding="utf-8"))["cases"][0]
        assert tokens_of(server, case, name) == case["greedy"]
        body = {"model": name, "prompt": case["input_ids"], "max_tokens": 3, "temperature": 0}
        status, answer = post(server, "/v1/completions", body)
        assert status == 200 and answer["usage"]["prompt_tokens"] == len(case["input_ids"]), answer
    assert tokens_of(server, golden("a"), "a") == golden("a")["greedy"]
    status, text = post(server, "/v1/unload_lora_adapter", {"lora_name": "prefix"})
    assert status == 200 and "prefix" not in listed(server)


def test_prompt_tables_of_an_encoder_decoder(start):
    """They need no slots: --lora-max alone makes room for those that clients load."""
    tables = GOLDEN / "prompt_tables/t5"
    server = start(f"--lora=prefix={tables / 'prefix'}", "--lora-max=2", "--allow-lora-updates", "--dtype=f32",
                   repositories=[GOLDEN / "arch/t5"])
    status, text = post(server, "/v1/load_lora_adapter", {"lora_name": "soft", "lora_path": str(tables / "prompt")})
    assert status == 200, text
    assert listed(server) == {"t5": None, "prefix": "t5", "soft": "t5"}
    for name, folder in (("prefix", "prefix"), ("soft", "prompt"), ("prefix", "prefix")):
        case = json.loads((tables / folder / "golden.json").read_text(encoding="utf-8"))["cases"][1]
        assert tokens_of(server, case, name, "t5") == case["greedy"]
        body = {"model": name, "prompt": case["input_ids"], "max_tokens": 3, "temperature": 0}
        status, answer = post(server, "/v1/completions", body)
        assert status == 200 and answer["usage"]["prompt_tokens"] == len(case["input_ids"]) + 1, answer
    refused = {"lora_name": "a", "lora_path": str(ADAPTERS / "a")}
    status, text = post(server, "/v1/unload_lora_adapter", {"lora_name": "soft"})
    assert status == 200, text
    status, error = post(server, "/v1/load_lora_adapter", refused)
    assert status >= 400 and "low-rank adapters of a t5: only decoders and encoders take them" in error["error"]["message"]


def test_refusals(models):
    for body, member in (({}, "lora_name"), ({"lora_name": 5}, "lora_name"), ({"lora_name": "x"}, "lora_path")):
        status, error = post(models, "/v1/load_lora_adapter", body)
        assert status == 400 and error["error"]["param"] == member
    status, error = post(models, "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/nowhere"})
    assert status == 404 and "no such folder" in error["error"]["message"]
    wrong = {"lora_name": "x", "lora_path": str(GOLDEN / "adapters/gpt2/a")}
    status, error = post(models, "/v1/load_lora_adapter", wrong)
    assert status >= 400 and "of no matrix of a llama" in error["error"]["message"]
    status, error = post(models, "/v1/unload_lora_adapter", {"lora_name": "x"})
    assert status == 404 and "no adapter 'x'" in error["error"]["message"]
    inputs = [{"name": "input_ids", "datatype": "INT32", "shape": [1], "data": [5]},
              {"name": "adapter", "datatype": "BYTES", "shape": [1], "data": ["none"]}]
    status, error = post(models, "/v2/models/llama/infer", {"inputs": inputs})
    assert status == 400 and "'adapter': there is no adapter 'none' (loaded: a)" in error["error"]


def test_closed(start):
    server = start(f"--lora=a={ADAPTERS / 'a'}", repositories=[GOLDEN / "arch/llama"])
    status, error = post(server, "/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(ADAPTERS / "b")})
    assert status == 403 and "--allow-lora-updates" in error["error"]["message"]
