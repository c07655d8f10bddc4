# SPDX-License-Identifier: Apache-2.0
"""tests/golden/option_edges.json, every row through every protocol: what an option means at the edges of its range."""
import json
import math

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from wire import ROOT, Server

TABLE = json.loads((ROOT / "tests/golden/option_edges.json").read_text())["rows"]
MODEL = ROOT / "models/classics-10m"
PROMPT, TOKENS, PROMPT_IDS = "It was", 4, [332, 286]
GREEDY = {"is": {"temperature": 0}, "openai": {"temperature": 0}, "ft": {"top_k": 1}, "trtllm": {"top_k": 1}}
NUMPY = {"FP32": np.float32, "INT32": np.int32, "UINT32": np.uint32, "UINT64": np.uint64}


# Refusals of values that JSON, or the type of the input, does not have: nothing knows the option then.
UNNAMED = ("not a number", "not numbers", "Unable to parse 'data'")


class Refused(Exception):
    """The client's mistake; its text is the server's."""


def number(value):
    return float(value) if isinstance(value, str) else value


def options_of(row, more=None, without=None):
    """Sampling unless the row says otherwise, the row's other options, then the one that is tried."""
    options = {"temperature": 1, "seed": 7} | row.get("with", {}) | (more or {})
    options.pop(without, None)
    return options


# ---- one function for each protocol: answers, or raises Refused; None where the option cannot be sent ----

def http_answer(answer):
    if answer.status_code == 400:
        raise Refused(answer.text)
    assert answer.status_code == 200, answer.text
    return answer.json()


def by_openai(server, options):
    body = {"model": "classics-10m", "prompt": PROMPT, "max_tokens": TOKENS, **options}
    # json.dumps writes NaN and Infinity, which are no JSON: refused as such
    answer = requests.post(server.url("/v1/completions"), data=json.dumps(body), timeout=60)
    return [choice["text"] for choice in http_answer(answer)["choices"]]


def by_generate(server, options):
    body = {"text_input": PROMPT, "max_tokens": TOKENS, **options}
    answer = requests.post(server.url("/v2/models/classics-10m/generate"), data=json.dumps(body), timeout=60)
    return http_answer(answer)["text_output"]


def client_answer(module, server, infer):
    """What infer(client) returns; the errors of both of tritonclient's clients."""
    with module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc) as client:
        try:
            return infer(client)
        except InferenceServerException as error:
            assert error.status() in ("400", "StatusCode.INVALID_ARGUMENT"), error
            raise Refused(error.message()) from None


def tensor(module, name, datatype, values, dtype=None):
    array = np.array(values, dtype=dtype or NUMPY[datatype])
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def holds(datatype, value):
    """Whether a tensor of the type can have the value."""
    if isinstance(value, str) or datatype == "FP32":
        return True
    limits = np.iinfo(NUMPY[datatype])
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max


def option_tensors(module, types, options, shape):
    """None if one of the options is not among the model's inputs, or its type cannot hold the value."""
    made = []
    for name, value in options.items():
        if name not in types or not holds(types[name], value):
            return None
        dtype = object if types[name] == "BYTES" else None
        with np.errstate(over="ignore"):
            made.append(tensor(module, name, types[name], np.full(shape, value.encode() if dtype else value), dtype))
    return made


def by_tensors(module):
    def send(server, options):
        made = option_tensors(module, server.types["classics-10m"], {"max_tokens": TOKENS, **options}, [1])
        if made is None:
            return None
        made.append(tensor(module, "text_input", "BYTES", [PROMPT.encode()], object))
        result = client_answer(module, server, lambda client: client.infer("classics-10m", made))
        return result.as_numpy("text_output").tolist()

    return send


def by_parameters(server, options):
    text = tensor(tritonclient.grpc, "text_input", "BYTES", [PROMPT.encode()], object)
    parameters = {"max_tokens": TOKENS, **options}
    result = client_answer(tritonclient.grpc, server, lambda client: client.infer("classics-10m", [text], parameters=parameters))
    return result.as_numpy("text_output").tolist()


# Their names of the table's options.
NAMES = {
    "ft": {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "seed": "random_seed", "beams": "beam_width",
           "length_penalty": "len_penalty", "diversity_rate": "beam_search_diversity_rate",
           "top_p_reset_id": "top_p_reset_ids"},
    "trtllm": {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "beams": "beam_width", "top_p_decay": "runtime_top_p_decay",
               "top_p_min": "runtime_top_p_min", "top_p_reset_id": "runtime_top_p_reset_ids", "length_penalty": "len_penalty",
               "diversity_rate": "beam_search_diversity_rate"},
}


def by_contract(model, module):
    """The tensors of FasterTransformer or TensorRT-LLM; without beams they sample by top-k."""
    def send(server, options):
        style = options.pop("style", model)
        if style != model:
            return None
        if options.get("beams", 0) < 2 or math.isnan(options["beams"]):
            options = {"top_k": 40, **options}
        options = {NAMES[model].get(name, name): value for name, value in options.items()}
        types = server.types[model]
        made = option_tensors(module, types, {**options, "request_output_len": TOKENS, "input_lengths": len(PROMPT_IDS)}, [1, 1])
        if made is None:
            return None
        made.append(tensor(module, "input_ids", types["input_ids"], [PROMPT_IDS]))
        result = client_answer(module, server, lambda client: client.infer(model, made))
        return result.as_numpy("output_ids").tolist()

    return send


HTTP, GRPC = tritonclient.http, tritonclient.grpc
PROTOCOLS = {
    "openai": ("openai", by_openai),
    "generate": ("is", by_generate),
    "tensors over http": ("is", by_tensors(HTTP)),
    "tensors over grpc": ("is", by_tensors(GRPC)),
    "parameters over grpc": ("is", by_parameters),
    "ft over http": ("ft", by_contract("ft", HTTP)),
    "ft over grpc": ("ft", by_contract("ft", GRPC)),
    "trtllm over http": ("trtllm", by_contract("trtllm", HTTP)),
    "trtllm over grpc": ("trtllm", by_contract("trtllm", GRPC)),
}

CONFIG = """
backend: "{backend}"
max_batch_size: 8
parameters {{ key: "{key}" value {{ string_value: "{path}" }} }}
{more}
"""
MODEL_TYPE = 'parameters { key: "model_type" value { string_value: "GPT-J" } }'

def input_types(server, model):
    metadata = requests.get(server.url(f"/v2/models/{model}"), timeout=10).json()
    return {one["name"]: one["datatype"] for one in metadata["inputs"]}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    contracts = (("ft", "fastertransformer", "model_checkpoint_path", MODEL_TYPE), ("trtllm", "tensorrtllm", "gpt_model_path", ""))
    for name, backend, key, more in contracts:
        (folder / name / "1").mkdir(parents=True)
        config = CONFIG.format(backend=backend, key=key, path=MODEL, more=more)
        (folder / name / "config.pbtxt").write_text(config)
    with Server(repositories=[MODEL, folder]) as server:
        server.types = {name: input_types(server, name) for name in ("classics-10m", "ft", "trtllm")}
        yield server


known = {}


def wanted_of(server, send, reference):
    """The answer to options that lie well within their ranges."""
    key = send, json.dumps(reference)
    if key not in known:
        known[key] = send(server, dict(reference))
    return known[key]


def expect(server, send, column, row, value):
    """What is wrong with one value, or None."""
    option, meaning = row["option"], row.get(column, row["is"])
    try:
        got = send(server, options_of(row, {option: value}))
    except Refused as refusal:
        if meaning != "refused":
            return f"refused: {refusal}"
        named = any(words in str(refusal) for words in (option, *UNNAMED))
        return None if named else f"the refusal does not name the option: {refusal}"
    if got is None or meaning == "accepted":
        return None
    if meaning == "refused":
        return f"not refused: {got}"
    reference = GREEDY[column] if meaning == "likeliest" else options_of(row, without=option)
    wanted = wanted_of(server, send, reference)
    return None if got == wanted else f"{got}, and {meaning} is {wanted}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_edges(served, protocol):
    column, send = PROTOCOLS[protocol]
    wrong = []
    for row in TABLE:
        for value in row["values"]:
            problem = expect(served, send, column, row, number(value))
            if problem:
                wrong.append(f"{row['option']} {value}: {problem}")
    assert not wrong, "\n".join(wrong)
