# SPDX-License-Identifier: Apache-2.0
"""Constrained output by every protocol: KServe over HTTP and gRPC, generate, TensorRT-LLM's tensors, OpenAI's and Anthropic's
APIs; and its errors, which name the field."""
import json
import re

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tokenizers import Tokenizer
from wire import ROOT, Server

DECODER = ROOT / "models/classics-10m"
SCHEMA = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["color", "size"], "additionalProperties": False}
ENDLESS = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}
GRAMMAR = 'root ::= "yes" | "no" " "? second\nsecond ::= "yes" | "no"'  # every text of it ends within max_tokens
LEFT = 'root ::= root "a" | "b"'
# option, value, what is wrong with it
BAD = [("json_schema", json.dumps(ENDLESS), "no finite text"), ("json_schema", '{"not": {}}', "'not' is not supported"),
       ("json_schema", '{"type": "thing"}', "thing"), ("grammar", LEFT, "left recursion"), ("grammar", "root = 5 = 6", "line 1"),
       ("regex", "(a", "regex"), ("regex", "(?=a)b", "regex")]


def check(kind, text):
    if kind == "json_schema":
        value = json.loads(text)
        assert value["color"] in ("red", "green") and 0 <= value["size"] <= 99 and len(value) == 2
    elif kind == "regex":
        assert re.fullmatch("[a-c]{3}-[0-9]{2}", text)
    elif kind == "grammar":
        assert re.fullmatch("yes|no ?(yes|no)", text)
    elif kind == "json_object":
        assert isinstance(json.loads(text), dict)
    else:
        assert text in ("left", "right")


GOOD = [("json_schema", json.dumps(SCHEMA)), ("regex", "[a-c]{3}-[0-9]{2}"), ("grammar", GRAMMAR), ("choice", '["left", "right"]')]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name, backend, more in (("chat", "engine", 'parameters { key: "chat_template" value { string_value: "chatml" } }\n'),
                                ("trt", "tensorrtllm", "max_batch_size: 4\n")):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(
            f'backend: "{backend}"\nparameters {{ key: "model_path" value {{ string_value: "{DECODER}" }} }}\n' + more)
    with Server("--allow-external-paths=true", repositories=[folder]) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(DECODER / "tokenizer.json"))


def texts(module, name, values, shape=None):
    array = np.array([v.encode() for v in values], dtype=np.object_).reshape(shape or [len(values)])
    made = module.InferInput(name, list(array.shape), "BYTES")
    made.set_data_from_numpy(array)
    return made


def numbers(module, name, values, shape, kind="INT32"):
    made = module.InferInput(name, shape, kind)
    made.set_data_from_numpy(np.array(values, dtype={"INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}[kind]).reshape(shape))
    return made


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    module = triton_http if request.param == "http" else triton_grpc
    with module.InferenceServerClient(server.http if request.param == "http" else server.grpc) as one:
        yield module, one


def run_native(triton, kind, value):
    module, client = triton
    values = json.loads(value) if kind == "choice" else [value]
    inputs = [texts(module, "text_input", ["Hi"]), numbers(module, "max_tokens", [100], [1]), texts(module, kind, values)]
    return client.infer("chat", inputs).as_numpy("text_output")[0].decode()


@pytest.mark.parametrize("kind, value", GOOD)
def test_kserve(triton, kind, value):
    check(kind, run_native(triton, kind, value))


@pytest.mark.parametrize("kind, value, told", BAD)
def test_kserve_refused(triton, kind, value, told):
    with pytest.raises(Exception) as failure:
        run_native(triton, kind, value)
    assert f"'{kind}'" in str(failure.value) and told in str(failure.value)


def post(server, path, body, status=200):
    answer = requests.post(server.url(path), json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("kind, value", GOOD)
def test_generate(server, kind, value):
    body = {"text_input": "Hi", "max_tokens": 100, kind: json.loads(value) if kind == "choice" else value}
    check(kind, post(server, "/v2/models/chat/generate", body)["text_output"])


GUIDES = {"json_schema": "json_schema", "regex": "regex", "grammar": "ebnf_grammar"}


def run_trt(triton, tokenizer, guides, rows=1, streaming=False):
    """guides: (type, guide) of each row."""
    module, client = triton
    ids = tokenizer.encode("Hi").ids
    inputs = [numbers(module, "input_ids", [ids] * rows, [rows, len(ids)]), numbers(module, "input_lengths", [len(ids)] * rows, [rows, 1]),
              numbers(module, "request_output_len", [100] * rows, [rows, 1])]
    for name, values in zip(("guided_decoding_guide_type", "guided_decoding_guide"), zip(*guides)):
        if any(v is not None for v in values):
            inputs.append(texts(module, name, [v or "" for v in values], [rows, 1]))
    answer = client.infer("trt", inputs)
    length, out = answer.as_numpy("sequence_length"), answer.as_numpy("output_ids")
    return [tokenizer.decode(out[i][0][len(ids):length[i][0]].tolist()) for i in range(rows)]


def test_trtllm(triton, tokenizer):
    guides = [(GUIDES[kind], value) for kind, value in GOOD if kind in GUIDES]
    for (kind, _), text in zip(GOOD, run_trt(triton, tokenizer, guides, rows=3)):
        check(kind, text)


def test_trtllm_refused(triton, tokenizer):
    for guide, told in ((("xml", "a"), "guided_decoding_guide_type"), (("regex", None), "needs 'guided_decoding_guide'"),
                        ((None, "a"), "needs 'guided_decoding_guide_type'"), (("json_schema", '{"not": {}}'), "'not' is not supported"),
                        (("ebnf_grammar", LEFT), "left recursion")):
        with pytest.raises(Exception) as failure:
            run_trt(triton, tokenizer, [guide])
        assert told in str(failure.value)


def test_trtllm_parameters(server):
    """The same names as parameters, also of the backend `engine`."""
    body = {"text_input": "Hi", "max_tokens": 100, "guided_decoding_guide_type": "regex", "guided_decoding_guide": GOOD[1][1]}
    check("regex", post(server, "/v2/models/chat/generate", body)["text_output"])


MEMBERS = {"json_schema": "guided_json", "regex": "guided_regex", "grammar": "guided_grammar", "choice": "guided_choice"}


def value_of(kind, value):
    return json.loads(value) if kind in ("json_schema", "choice") else value


@pytest.mark.parametrize("kind, value", GOOD)
def test_openai(server, kind, value):
    """JSON without sampling, as test_schemas_of_apis says."""
    asked = {"model": "chat", "max_tokens": 100} | ({"temperature": 0} if kind == "json_schema" else {})
    body = asked | {"messages": [{"role": "user", "content": "Hi"}]}
    told = post(server, "/v1/chat/completions", body | {MEMBERS[kind]: value_of(kind, value)})
    check(kind, told["choices"][0]["message"]["content"])
    body = asked | {"prompt": "Hi", "structured_outputs": {MEMBERS[kind].removeprefix("guided_"): value_of(kind, value)}}
    check(kind, post(server, "/v1/completions", body)["choices"][0]["text"])


@pytest.mark.parametrize("kind, value, told", BAD)
def test_openai_refused(server, kind, value, told):
    value = value_of(kind, value)
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}), ("/v1/completions", {"prompt": "Hi"}),
                       ("/v1/responses", {"input": "Hi"})):
        error = post(server, path, {"model": "chat", MEMBERS[kind]: value} | body, 400)["error"]
        assert kind in error["message"] and told in error["message"]


def test_schemas_of_apis(server):
    """The names that OpenAI's and Anthropic's clients use, and their errors. Without sampling: JSON may have any white
    space between its tokens, and a sample of it can be longer than what is asked for."""
    form = {"type": "json_schema", "schema": SCHEMA}
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "temperature": 0}
    ways = [("/v1/chat/completions", lambda s: asked | {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": s}}},
             lambda a: a["choices"][0]["message"]["content"]),
            ("/v1/responses", lambda s: {"model": "chat", "input": "Hi", "temperature": 0, "text": {"format": form | {"name": "a", "schema": s}}},
             lambda a: a["output"][0]["content"][0]["text"]),
            ("/v1/messages", lambda s: asked | {"output_config": {"format": form | {"schema": s}}}, lambda a: a["content"][0]["text"])]
    for path, body, text in ways:
        check("json_schema", text(post(server, path, body(SCHEMA))))
        refused = post(server, path, body(ENDLESS), 400)
        assert "json_schema" in refused["error"]["message"] and "no finite text" in refused["error"]["message"]


def test_ignore_eos(server):
    """The text goes on as long as the grammar allows more, and ends where it allows nothing."""
    body = {"model": "chat", "prompt": "Hi", "max_tokens": 200, "ignore_eos": True}
    for kind, value in GOOD:
        choice = post(server, "/v1/completions", body | {MEMBERS[kind]: value_of(kind, value)})["choices"][0]
        assert choice["finish_reason"] == "stop"
        check(kind, choice["text"])
    longest = post(server, "/v1/completions", body | {"max_tokens": 20, "guided_regex": "[a-z ]+"})["choices"][0]
    assert longest["finish_reason"] == "length"
    ended = post(server, "/v1/completions", body | {"response_format": {"type": "json_object"}})["choices"][0]
    assert ended["finish_reason"] == "length" or check("json_object", ended["text"]) is None
