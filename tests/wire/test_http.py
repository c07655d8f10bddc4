# SPDX-License-Identifier: Apache-2.0
"""KServe v2 over HTTP, by the public client (sync and aio) and by plain requests."""
import asyncio
import gzip
import json
import struct
import zlib

import ml_dtypes
import numpy as np
import pytest
import requests
import tritonclient.http as http
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException
from wire import NOT_IN_JSON, VALUES, identity_of, values_of


@pytest.fixture(scope="module")
def client(server):
    with http.InferenceServerClient(server.http) as one:
        yield one


def make_input(name, array, datatype, binary=True):
    tensor = http.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def identity(client, datatype, array, binary_in=True, binary_out=True, **kwargs):
    result = client.infer(identity_of(datatype), [make_input("INPUT0", array, datatype, binary_in)],
                          outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary_out)], **kwargs)
    return result.as_numpy("OUTPUT0")


def post(server, path, body, headers=None):
    return requests.post(server.url(path), data=body if isinstance(body, (bytes, str)) else json.dumps(body), headers=headers,
                         timeout=60)


def infer(server, model, body, **kwargs):
    return post(server, f"/v2/models/{model}/infer", body, **kwargs)


# ---- health, metadata, configuration ----


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("simple") and client.is_model_ready("simple", "1")
    assert not client.is_model_ready("none")
    meta = client.get_server_metadata()
    assert meta["name"] == "triton" and meta["version"]
    assert meta["extensions"] == ["classification", "sequence", "model_repository", "model_repository(unload_dependents)",
                                  "schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
                                  "binary_tensor_data", "parameters", "statistics", "trace", "logging"]
    simple = client.get_model_metadata("simple")
    assert list(simple) == ["name", "versions", "platform", "inputs", "outputs"]
    assert simple["versions"] == ["1"]
    assert simple["inputs"] == [{"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("INPUT0", "INPUT1")]
    assert client.get_model_metadata("identity_nobatch")["inputs"][0]["shape"] == [-1, -1]


def test_config(client):
    config = client.get_model_config("simple")
    assert config["name"] == "simple" and config["max_batch_size"] == 8
    assert config["input"][0]["dims"] == [16]  # numbers, not strings
    assert config["input"][0]["data_type"] == "TYPE_INT32"
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert client.get_model_config("repeat_int32")["model_transaction_policy"]["decoupled"] is True
    assert client.get_model_config("ensemble_identity")["model_transaction_policy"] == {"decoupled": False}
    assert "model_transaction_policy" not in client.get_model_config("simple")


# ---- every datatype, both ways in and out ----


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("datatype", VALUES)
def test_datatypes(client, datatype, binary_in, binary_out):
    array = values_of(datatype)
    if datatype == "BYTES" and not (binary_in and binary_out):
        array = np.array([b"", b"plain", "\u00e4\u20ac\U0001f600\"\\\n\x00".encode()], dtype=np.object_)
    batch = np.stack([array, array[::-1]])
    if datatype in NOT_IN_JSON and not (binary_in and binary_out):
        with pytest.raises(InferenceServerException, match=f"{datatype} data via JSON is not supported"):
            body = {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": datatype, "data": [1]}]}
            if binary_in:
                identity(client, datatype, batch, True, False)
            else:  # the client itself refuses to send it
                raise InferenceServerException(infer_error(client, datatype, body))
        return
    result = identity(client, datatype, batch, binary_in, binary_out)
    assert result.shape == batch.shape
    assert result.dtype == batch.dtype
    if datatype == "BYTES":  # the client gives str for what came as JSON
        assert [v if isinstance(v, bytes) else v.encode() for v in result.flat] == list(batch.flat)
    else:
        assert result.tobytes() == batch.tobytes()


def infer_error(client, datatype, body):
    answer = client._post(f"v2/models/{identity_of(datatype)}/infer", json.dumps(body), None, None)
    return json.loads(answer.read())["error"]


def test_bf16(client):
    array = np.array([[1.5, -2.0, 0.0078125]], dtype=ml_dtypes.bfloat16)
    result = identity(client, "BF16", array)
    assert (result == array).all()


def test_floats_survive_json(client):
    """Every float32 comes back as itself through JSON on both ways, NaN and the infinities too."""
    random = np.random.default_rng(1).integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    array = np.concatenate([random[np.isfinite(random)], np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)])[None, :]
    result = identity(client, "FP32", array, False, False)
    finite = np.isfinite(array)
    assert result[finite].tobytes() == array[finite].tobytes()
    assert np.isnan(result[np.isnan(array)]).all()
    assert (result[np.isinf(array)] == array[np.isinf(array)]).all()


def test_nested_and_flat_data(server):
    for data in ([[1, 2], [3, 4]], [1, 2, 3, 4], [[[1], [2]], [[3], [4]]]):
        body = {"inputs": [{"name": "INPUT0", "shape": [2, 2], "datatype": "INT32", "data": data}]}
        answer = infer(server, "identity_int32", body)
        assert answer.json()["outputs"] == [{"name": "OUTPUT0", "datatype": "INT32", "shape": [2, 2], "data": [1, 2, 3, 4]}]


@pytest.mark.parametrize("model", ["simple", "simple_int8", "simple_fp32", "simple_string"])
@pytest.mark.parametrize("binary", [True, False])
def test_sums_and_differences(client, model, binary):
    datatype, dtype = {"simple": ("INT32", np.int32), "simple_int8": ("INT8", np.int8), "simple_fp32": ("FP32", np.float32),
                       "simple_string": ("BYTES", np.object_)}[model]
    a, b = np.arange(16).reshape(1, 16), np.ones((1, 16), int)
    send = [np.vectorize(str, otypes=[np.object_])(v) if datatype == "BYTES" else v.astype(dtype) for v in (a, b)]
    result = client.infer(model, [make_input(f"INPUT{i}", v, datatype, binary) for i, v in enumerate(send)],
                          outputs=[http.InferRequestedOutput(f"OUTPUT{i}", binary_data=binary) for i in range(2)])
    for name, want in (("OUTPUT0", a + b), ("OUTPUT1", a - b)):
        got = result.as_numpy(name)
        got = np.vectorize(int)(got) if datatype == "BYTES" else got
        assert (got == want).all()


# ---- sizes ----


def test_zero_size(client, server):
    empty = np.zeros((1, 0), np.float32)
    for binary_in in (True, False):
        for binary_out in (True, False):
            assert identity(client, "FP32", empty, binary_in, binary_out).shape == (1, 0)
    assert identity(client, "BYTES", np.zeros((1, 0), np.object_)).shape == (1, 0)


@pytest.mark.parametrize("binary_out", [True, False])
def test_huge(client, binary_out):
    """As much as a body may hold, less the JSON head."""
    count = (64 << 20) // 4 - 1024 if binary_out else 1 << 18
    array = np.arange(count, dtype=np.int32)[None, :]
    assert (identity(client, "INT32", array, True, binary_out) == array).all()


# ---- asking for outputs, ids, parameters ----


def simple_inputs(binary=True):
    a = np.arange(16, dtype=np.int32)[None, :]
    return [make_input("INPUT0", a, "INT32", binary), make_input("INPUT1", a, "INT32", binary)]


def test_requested_outputs(client):
    result = client.infer("simple", simple_inputs(), outputs=[http.InferRequestedOutput("OUTPUT1")])
    assert [o["name"] for o in result.get_response()["outputs"]] == ["OUTPUT1"]
    everything = client.infer("simple", simple_inputs())
    assert [o["name"] for o in everything.get_response()["outputs"]] == ["OUTPUT0", "OUTPUT1"]


def test_mixed_outputs(client):
    outputs = [http.InferRequestedOutput("OUTPUT0", binary_data=False), http.InferRequestedOutput("OUTPUT1", binary_data=True)]
    result = client.infer("simple", simple_inputs(), outputs=outputs)
    assert "data" in result.get_output("OUTPUT0") and "data" not in result.get_output("OUTPUT1")
    assert (result.as_numpy("OUTPUT0") == np.arange(16) * 2).all() and (result.as_numpy("OUTPUT1") == 0).all()


def test_id_and_order_of_keys(server):
    body = {"id": "a\u00e4\"b", "inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [0.1]}]}
    answer = infer(server, "identity_fp32", body)
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.text == ('{"id":"a\u00e4\\"b","model_name":"identity_fp32","model_version":"1","outputs":[{"name":"OUTPUT0",'
                           '"datatype":"FP32","shape":[1,1],"data":[0.1]}]}')


def test_parameters(client):
    result = client.infer("simple", simple_inputs(), request_id="7", parameters={"a": 1, "b": "x", "c": True, "d": 0.5},
                          priority=1, timeout=10_000_000)
    assert result.get_response()["id"] == "7"


def test_binary_data_output(server):
    body = {"parameters": {"binary_data_output": True},
            "inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "INT32", "data": [5, 6]}]}
    answer = infer(server, "identity_int32", body)
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert json.loads(answer.content[:size])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert answer.content[size:] == struct.pack("<2i", 5, 6)


def test_versions(client):
    assert client.infer("simple", simple_inputs(), model_version="1").get_response()["model_version"] == "1"
    with pytest.raises(InferenceServerException, match="'simple' version 9 is not found"):
        client.infer("simple", simple_inputs(), model_version="9")


def test_sequences(client):
    def step(value, identifier, **kwargs):
        array = np.array([[value]], np.int32)
        result = client.infer("simple_sequence", [make_input("INPUT", array, "INT32")], sequence_id=identifier, **kwargs)
        return int(result.as_numpy("OUTPUT")[0][0])

    for identifier in (1001, "1003"):
        assert step(5, identifier, sequence_start=True) == 6
        assert step(7, identifier) == 7
        assert step(9, identifier, sequence_end=True) == 9
    with pytest.raises(InferenceServerException, match="must specify the START flag on the first request of the sequence"):
        step(1, 1002)


# ---- classification ----


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client, binary):
    array = np.array([[0.5, 2.25, -1.0, 2.0], [9, 8, 7, 6]], np.float32)
    result = client.infer("identity_fp32", [make_input("INPUT0", array, "FP32")],
                          outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary, class_count=2)])
    got = result.as_numpy("OUTPUT0")
    text = [[v.decode() if isinstance(v, bytes) else v for v in row] for row in got]
    assert text == [["2.250000:1", "2.000000:3"], ["9.000000:0", "8.000000:1"]]


def test_classification_refused(client):
    with pytest.raises(InferenceServerException, match="class result not available for output due to unsupported type 'BYTES'"):
        client.infer("identity_bytes", [make_input("INPUT0", np.array([[b"x"]], np.object_), "BYTES")],
                     outputs=[http.InferRequestedOutput("OUTPUT0", class_count=1)])


# ---- raw binary requests ----


def test_raw_binary(server):
    body = np.arange(4, dtype=np.float32).tobytes()
    answer = infer(server, "identity_fp32", body, headers={"Inference-Header-Content-Length": "0"})
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.content[:size])["outputs"][0]["shape"] == [1, 4]
    assert answer.content[size:] == body


def test_raw_binary_of_a_row_beyond_all_bytes(start, tmp_path):
    """2^61 + 1 numbers of 8 bytes are no row of 8 bytes."""
    (tmp_path / "wide/1").mkdir(parents=True)
    tensor = '[ { name: "%s" data_type: TYPE_INT64 dims: [ -1, 2305843009213693953 ] } ]'
    (tmp_path / "wide/config.pbtxt").write_text(f'backend: "identity"\ninput {tensor % "INPUT0"}\noutput {tensor % "OUTPUT0"}\n')
    running = start(repositories=[tmp_path])
    answer = requests.post(running.url("/v2/models/wide/infer"), data=b"x" * 16, headers={"Inference-Header-Content-Length": "0"}, timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (
        400, "byte size for tensor 'INPUT0' exceeds maximum size of 9223372036854775807")


def test_raw_binary_refused(server):
    head = {"Inference-Header-Content-Length": "0"}
    answer = infer(server, "simple", b"x" * 64, headers=head)
    assert answer.status_code == 400
    assert "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'simple' model configuration" in answer.text
    answer = infer(server, "identity_bytes", b"x", headers=head)
    assert answer.status_code == 400
    assert "For BYTE datatype raw input 'INPUT0', the model must have input shape [1]" in answer.text


# ---- compression ----


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client, algorithm):
    array = np.zeros((1, 5000), np.float32)
    assert (identity(client, "FP32", array, request_compression_algorithm=algorithm,
                     response_compression_algorithm=algorithm) == array).all()


@pytest.mark.parametrize("accept, want", [("gzip", "gzip"), ("deflate", "deflate"), ("deflate;q=0.5, gzip;q=0.9", "gzip"),
                                          ("identity", None), ("br", None), ("gzip;q=0", None)])
def test_accept_encoding(server, accept, want):
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 200], "datatype": "INT32", "data": [1] * 200}]}
    answer = infer(server, "identity_int32", body, headers={"Accept-Encoding": accept})
    assert answer.headers.get("Content-Encoding") == want
    assert answer.json()["outputs"][0]["data"] == [1] * 200


def test_content_encoding_refused(server):
    answer = infer(server, "simple", b"x", headers={"Content-Encoding": "br"})
    assert (answer.status_code, answer.json()) == (501, {"error": "Unsupported compression type"})
    assert answer.headers["Accept-Encoding"] == "gzip, deflate"
    answer = infer(server, "simple", b"no gzip", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_bomb(server, pack):
    """A body that would unpack to more than a body may have is refused before it takes the memory."""
    before = server.resident_bytes()
    name = "gzip" if pack is gzip.compress else "deflate"
    answer = infer(server, "simple", pack(b" " * (200 << 20)), headers={"Content-Encoding": name})
    assert answer.status_code in (400, 413)
    assert server.resident_bytes() - before < 150 << 20


# ---- generate ----


def test_generate(server):
    answer = post(server, "/v2/models/identity_int32/generate", {"id": "g", "INPUT0": [1, 2, 3], "parameters": {"other": 1}})
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {"id": "g", "model_name": "identity_int32", "model_version": "1", "OUTPUT0": [1, 2, 3]}
    assert post(server, "/v2/models/identity_bytes/generate", {"INPUT0": "text"}).json()["OUTPUT0"] == "text"
    assert post(server, "/v2/models/identity_fp32/versions/1/generate", {"parameters": {"INPUT0": 0.5}}).json()["OUTPUT0"] == 0.5


def events(answer):
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    blocks = answer.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block[len("data: "):]) for block in blocks]


def test_generate_stream(server):
    answer = post(server, "/v2/models/repeat_int32/generate_stream", {"IN": [4, 2, 0, 1], "DELAY": [1, 2, 3, 4], "WAIT": 5})
    got = events(answer)
    assert [(e["OUT"], e["IDX"]) for e in got] == [(4, 0), (2, 1), (0, 2), (1, 3)]
    answer = post(server, "/v2/models/identity_int32/generate_stream", {"INPUT0": [7, 8]})
    assert [e["OUTPUT0"] for e in events(answer)] == [[7, 8]]


def test_generate_needs_one_reply(server):
    body = {"IN": [4, 2], "DELAY": [0, 0], "WAIT": 0}
    answer = post(server, "/v2/models/repeat_int32/generate", body)
    assert answer.status_code == 500
    assert answer.json()["error"] == ("generate expects model to produce exactly 1 response, use generate stream for model that "
                                      "generates various number of responses")
    assert post(server, "/v2/models/repeat_int32/generate", {"IN": [4], "DELAY": [0], "WAIT": 0}).json()["OUT"] == 4


@pytest.mark.parametrize("stream", ["", "_stream"])
@pytest.mark.parametrize("body, text", [
    ("{}", "expected 1 inputs but got 0 inputs for model 'identity_int32'"),
    ('{"INPUT0": "x"}', "attempt to access JSON non-signed-integer as signed-integer"),
    ('{"INPUT0": [1], "INPUT0": [2]}', "input 'INPUT0' already exists in request"),
    ('{"INPUT0": [1], "x": []}', "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'."),
    ('{"INPUT0": [1], "parameters": 3}', "Expected JSON object for keyword: 'parameters'"),
    ("", "The document is empty."),
])
def test_generate_errors_have_a_status(server, stream, body, text):
    answer = post(server, f"/v2/models/identity_int32/generate{stream}", body)
    assert answer.status_code == 400 and answer.headers["Content-Type"] == "application/json"
    assert text in answer.json()["error"]


@pytest.mark.parametrize("model", ["identity_int32", "identity_bytes"])
def test_generate_empty_list(server, model):
    assert post(server, f"/v2/models/{model}/generate", {"INPUT0": []}).json()["OUTPUT0"] == []
    answer = post(server, f"/v2/models/{model}/generate_stream", {"INPUT0": []})
    assert answer.status_code == 200 and json.loads(answer.text.removeprefix("data: "))["OUTPUT0"] == []
    answer = post(server, "/v2/models/simple/generate", {"INPUT0": [], "INPUT1": []})  # [-1, 16]: of no row
    assert answer.status_code == 400, answer.text


def test_generate_shape(server):
    values = list(range(16))
    answer = post(server, "/v2/models/simple/generate", {"INPUT0": values, "INPUT1": values})
    assert answer.json()["OUTPUT0"] == [2 * v for v in values]
    answer = post(server, "/v2/models/simple/generate", {"INPUT0": values[:15], "INPUT1": values})
    assert answer.json()["error"] == "The schema can not convert input 'INPUT0' to tensor with proper shape"
    answer = post(server, "/v2/models/identity_int32/generate", {"INPUT0": [1]})
    answer = requests.post(server.url("/v2/models/identity_int32/generate"), data=gzip.compress(b"{}"),
                           headers={"Content-Encoding": "gzip"}, timeout=60)
    assert answer.json()["error"] == "Unsupported content-encoding, only 'identity' is supported."


# ---- refusals, by status and text ----

ONE = {"name": "INPUT0", "shape": [1, 1], "datatype": "INT32"}
REFUSALS = [
    # model, body, headers, status, text
    ("none", {}, {}, 404, "Request for unknown model: 'none' is not found"),
    ("simple/versions/3", {}, {}, 404, "Request for unknown model: 'simple' version 3 is not found"),
    ("repeat_int32", {}, {}, 501, "HTTP end point doesn't support models with decoupled transaction policy"),
    ("identity_int32", "", {}, 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ("identity_int32", "{", {}, 400, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    ("identity_int32", {}, {}, 400, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    ("identity_int32", {"inputs": [ONE]}, {}, 400,
     "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in "
     "'parameters'. But no field is set"),
    ("identity_int32", {"inputs": [{**ONE, "data": [1], "parameters": {"binary_data_size": 4}}]}, {}, 400,
     "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in "
     "'parameters'. But set 'data' 'binary_data_size'"),
    ("identity_int32", {"inputs": [{**ONE, "data": [1, 2]}]}, {}, 500,
     "Unable to parse 'data': Shape does not match true shape of 'data' field"),
    ("identity_nobatch", {"inputs": [{**ONE, "datatype": "FP32", "shape": [], "data": [1]}]}, {}, 400, "Expected [-1,-1], got []."),
    ("identity_int32", {"inputs": [{**ONE, "data": []}]}, {}, 500, "Failed to parse 'data' field: shape does not match true shape"),
    ("identity_int32", {"inputs": [{**ONE, "data": [1.5]}]}, {}, 400,
     "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    ("identity_int8", {"inputs": [{**ONE, "datatype": "INT8", "data": [128]}]}, {}, 400,
     "Unable to parse 'data': 128 is out of range of datatype INT8"),
    ("identity_int32", {"inputs": [{**ONE, "parameters": {"binary_data_size": 4}}]}, {}, 400,
     "unexpected size for input 'INPUT0', expecting 4 additional bytes for model 'identity_int32'"),
    ("identity_int32", '{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"INT32","data":[1]}]}xxxx',
     {"Inference-Header-Content-Length": "74"}, 400, "unexpected additional input data for model 'identity_int32'"),
    ("identity_int32", "{}", {"Inference-Header-Content-Length": "3"}, 400, "inference header size should be in range (0, 2), got: 3"),
    ("identity_int32", "{}", {"Inference-Header-Content-Length": "-1"}, 400,
     "inference header size should be in range (0, 2), got: -1"),
    ("identity_int32", "{}", {"Inference-Header-Content-Length": "x"}, 400, "Unable to parse Inference-Header-Content-Length, got: x"),
    ("identity_int32", {"inputs": [{**ONE, "data": [1]}], "outputs": [{"name": "X"}]}, {}, 400,
     "unexpected inference output 'X' for model 'identity_int32'"),
    ("identity_int32", {"id": "7", "inputs": [{**ONE, "name": "X", "data": [1]}]}, {}, 400,
     "unexpected inference input 'X' for model 'identity_int32'"),
    ("identity_int32", {"inputs": [{**ONE, "data": [1]}, {**ONE, "data": [1]}]}, {}, 400,
     "[request id: <id_unknown>] input 'INPUT0' already exists in request"),
    ("identity_int32", {"inputs": [{**ONE, "datatype": "FP32", "data": [1]}]}, {}, 400,
     "[request id: <id_unknown>] inference input 'INPUT0' data-type is 'FP32', but model 'identity_int32' expects 'INT32'"),
    ("identity_int32", {"inputs": [{**ONE, "shape": [65, 1], "data": [1] * 65}]}, {}, 400,
     "[request id: <id_unknown>] inference request batch-size must be <= 64 for 'identity_int32'"),
    ("identity_int32", {"inputs": []}, {}, 400, "expected 1 inputs but got 0 inputs for model 'identity_int32'"),
    ("identity_bytes", {"inputs": [{**ONE, "shape": [1, 2], "datatype": "BYTES", "data": ["x"]}]}, {}, 400,
     "expected 2 string elements for inference input 'INPUT0' for model 'identity_bytes', got 1"),
    ("simple", {"inputs": [{**ONE, "shape": [1, 17], "data": [1] * 17}, {**ONE, "name": "INPUT1", "shape": [1, 16], "data": [1] * 16}]},
     {}, 400, "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,17]."),
    ("identity_int32", {"inputs": [{**ONE, "data": [1]}], "parameters": {"triton_x": 1}}, {}, 400,
     "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
    ("identity_fp16", {"inputs": [{**ONE, "datatype": "FP16", "data": [1]}]}, {}, 400,
     "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT0"),
]


@pytest.mark.parametrize("model, body, headers, status, text", REFUSALS)
def test_refusals(server, model, body, headers, status, text):
    answer = infer(server, model, body, headers=headers)
    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text


def test_strict_triton(start):
    strict = start("--strict-triton=true")
    assert infer(strict, "identity_int32", "{").status_code == 500
    body = {"inputs": [{**ONE, "datatype": "INT8", "data": [257]}]}
    assert infer(strict, "identity_int8", body).json()["outputs"][0]["data"] == [1]


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/v2/models/simple/infer", 405), ("POST", "/v2/models/simple", 405), ("POST", "/v2/health/live", 405),
    ("GET", "/v2/repository/index", 405), ("DELETE", "/v2/models/simple", 405), ("GET", "/v2/nothing", 404),
    ("GET", "/v2/models/simple/versions/x", 404), ("GET", "/v2/models//ready", 404), ("GET", "/v2/models/simple/infer/x", 404),
    ("POST", "/v2/models/simple/versions/1/trace/setting", 404), ("GET", "/nothing/here", 404)])
def test_routes(server, method, path, status):
    answer = requests.request(method, server.url(path), timeout=60)
    assert answer.status_code == status
    assert answer.json() == {"error": {404: "Not Found", 405: "Method Not Allowed"}[status]}


def test_bad_version(server):
    answer = requests.get(server.url("/v2/models/simple/versions/99999999999999999999"), timeout=60)
    assert answer.status_code == 400
    assert "failed to get model version from specified version string '99999999999999999999'" in answer.json()["error"]


def test_names_are_decoded(server):
    assert requests.get(server.url("/v2/models/s%69mple/ready"), timeout=60).status_code == 200
    answer = requests.get(server.url("/v2/models/no%20such"), timeout=60)
    assert answer.json()["error"] == "Request for unknown model: 'no such' is not found"


# ---- the aio client, many at once ----


def test_aio(server):
    async def run():
        async with aio.InferenceServerClient(server.http) as client:
            assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("simple")
            assert (await client.get_server_metadata())["name"] == "triton"
            assert (await client.get_model_metadata("simple"))["name"] == "simple"
            assert (await client.get_model_config("simple"))["name"] == "simple"
            assert any(m["name"] == "simple" for m in await client.get_model_repository_index())
            assert "model_stats" in await client.get_inference_statistics()
            assert (await client.get_trace_settings())["trace_level"] == ["OFF"]
            assert "log_info" in await client.get_log_settings()

            async def one(i):
                array = np.full((1, 16), i, np.int32)
                result = await client.infer("simple", [make_input("INPUT0", array, "INT32"), make_input("INPUT1", array, "INT32")])
                return (result.as_numpy("OUTPUT0") == 2 * i).all()

            assert all(await asyncio.gather(*(one(i) for i in range(200))))
            with pytest.raises(InferenceServerException, match="unknown model"):
                await client.infer("none", simple_inputs())

    asyncio.run(run())


def test_async_infer(client):
    calls = [client.async_infer("identity_fp32", [make_input("INPUT0", np.full((1, 4), i, np.float32), "FP32")]) for i in range(20)]
    assert all((call.get_result().as_numpy("OUTPUT0") == i).all() for i, call in enumerate(calls))


def test_header_forwarding(start):
    own = start("--http-header-forward-pattern", "x-my.*|timeout")
    body = {"inputs": [{**ONE, "data": [1]}]}
    assert infer(own, "identity_int32", body, headers={"X-My-Header": "a"}).status_code == 200
    answer = infer(own, "identity_int32", body, headers={"timeout": "a"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "Header 'timeout' is reserved for Triton usage and cannot be forwarded."


# ---- keys and restrictions ----


def test_restricted(start):
    own = start("--http-restricted-api", "inference,model-repository:secret-key=secret-value")
    body = {"inputs": [{**ONE, "data": [1]}]}
    answer = infer(own, "identity_int32", body)
    assert (answer.status_code, answer.json()) == (403, {"error": "This API is restricted, expecting header 'secret-key'"})
    assert infer(own, "identity_int32", body, headers={"secret-key": "wrong"}).status_code == 403
    assert infer(own, "identity_int32", body, headers={"Secret-Key": "secret-value"}).status_code == 200
    assert post(own, "/v2/repository/index", "").status_code == 403
    assert requests.get(own.url("/v2/models/simple"), timeout=60).status_code == 200


def test_api_keys(start):
    own = start("--api-key", "one", "--api-key", "two")
    assert requests.get(own.url("/v2/health/ready"), timeout=60).status_code == 200
    answer = requests.get(own.url("/v2"), timeout=60)
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    for key, status in (("one", 200), ("two", 200), ("three", 401), ("", 401)):
        answer = requests.get(own.url("/v2"), headers={"Authorization": f"Bearer {key}"}, timeout=60)
        assert answer.status_code == status
