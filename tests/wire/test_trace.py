# SPDX-License-Identifier: Apache-2.0
"""Traces of requests: files in Triton's form, with steps of ensembles and calls of Python models."""
import json
import sys

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
from python_models import write
from wire import Server

MODEL_TIMES = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END"]
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "double" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "twice" } },
  { model_name: "caller" model_version: -1 input_map { key: "IN" value: "twice" } output_map { key: "OUT" value: "OUT" } }
] }
"""


def front_end(name, start, end):
    return [f"{name}_{start}_START", f"{name}_{start}_END", "INFER_RESPONSE_COMPLETE", f"{name}_{end}_START", f"{name}_{end}_END"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """double; caller, which calls double within its trace and once outside of it; both, an ensemble of the two."""
    folder = tmp_path_factory.mktemp("models")
    write(folder, "double", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            values = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * value)]) for value in values]
    """)
    write(folder, "caller", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            responses = []
            for one in requests:
                for trace in (one.trace(), None):
                    call = pb_utils.InferenceRequest(model_name="double", requested_output_names=["OUT"], inputs=one.inputs(), trace=trace)
                    response = call.exec()
                responses.append(response)
            return responses
    """)
    (folder / "both" / "1").mkdir(parents=True)
    (folder / "both" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


def serve(models, *options):
    return Server(*[word for option in options for word in ("--trace-config", option)], repositories=(models, ),
                  env={"PROA_PYTHON": sys.executable})


def ask(server, model, headers=None, **more):
    body = {"inputs": [{"name": "IN", "shape": [3], "datatype": "INT32", "data": [1, 2, 3]}], **more}
    answer = requests.post(server.url(f"/v2/models/{model}/infer"), json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


def ask_grpc(server, model):
    tensor = grpc.InferInput("IN", [3], "INT32")
    tensor.set_data_from_numpy(np.array([1, 2, 3], np.int32))
    with grpc.InferenceServerClient(server.grpc) as client:
        return client.infer(model, [tensor], request_id="by grpc").as_numpy("OUT").tolist()


def read_trace(path):
    """{id: {"model_name", "request_id", "parent_id", "times": {name: ns}, "tensors": [(activity, name, data)]}}"""
    traces = {}
    for entry in json.loads(path.read_text()):
        one = traces.setdefault(entry["id"], {"times": {}, "tensors": []})
        one |= {key: value for key, value in entry.items() if key not in ("id", "timestamps", "activity", "tensor")}
        one["times"] |= {stamp["name"]: stamp["ns"] for stamp in entry.get("timestamps", ())}
        if "tensor" in entry:
            one["tensors"].append((entry["activity"], entry["tensor"]["name"], entry["tensor"]["data"]))
    return traces


def expect_order(times, *names):
    """These times exist and follow each other."""
    assert [times[name] for name in names] == sorted(times[name] for name in names), times


def test_file(models, tmp_path):
    with serve(models, f"file={tmp_path}/trace", "level=TIMESTAMPS", "level=TENSORS", "rate=1") as server:
        assert ask(server, "double", id="first") == [2, 4, 6]
        assert ask_grpc(server, "double") == [2, 4, 6]
        assert ask(server, "both") == [4, 8, 12]
    traces = read_trace(tmp_path / "trace")
    assert [one["model_name"] for one in traces.values()] == ["double", "double", "both", "double", "caller", "double"]
    first, second, both, *steps = traces.values()
    both_id, caller_id = list(traces)[2], list(traces)[4]
    assert [one.get("request_id") for one in (first, second, both)] == ["first", "by grpc", None]
    assert [one.get("parent_id") for one in traces.values()] == [None, None, None, both_id, both_id, caller_id]
    assert set(first["times"]) == {*front_end("HTTP", "RECV", "SEND"), *MODEL_TIMES}
    assert set(second["times"]) == {*front_end("GRPC", "WAITREAD", "SEND"), *MODEL_TIMES}
    assert set(both["times"]) == {*front_end("HTTP", "RECV", "SEND"), "REQUEST_START", "QUEUE_START", "REQUEST_END"}
    expect_order(first["times"], "HTTP_RECV_START", "HTTP_RECV_END", *MODEL_TIMES, "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END")
    for one in steps:
        assert set(one["times"]) == set(MODEL_TIMES)
        assert both["times"]["REQUEST_START"] <= one["times"]["REQUEST_START"] <= one["times"]["REQUEST_END"] <= both["times"]["HTTP_SEND_START"]
    assert first["tensors"] == [("TENSOR_QUEUE_INPUT", "IN", "1,2,3"), ("TENSOR_BACKEND_OUTPUT", "OUT", "2,4,6")]
    assert steps[1]["tensors"] == [("TENSOR_QUEUE_INPUT", "IN", "2,4,6"), ("TENSOR_BACKEND_OUTPUT", "OUT", "4,8,12")]


def test_sampling_and_numbered_files(models, tmp_path):
    """One of two requests; a file for two of them; the last one when the count is used up."""
    with serve(models, f"triton,file={tmp_path}/trace", "level=TIMESTAMPS", "rate=2", "count=3", "triton,log-frequency=2") as server:
        for number in range(10):
            ask(server, "double", id=str(number))
        assert requests.get(server.url("/v2/trace/setting"), timeout=10).json()["trace_count"] == "0"
    found = [[one["request_id"] for one in read_trace(path).values()] for path in sorted(tmp_path.iterdir())]
    assert found == [["1", "3"], ["5"]]


def test_settings_of_a_model(models, tmp_path):
    with serve(models, f"file={tmp_path}/trace") as server:
        setting = server.url("/v2/models/double/trace/setting")
        ask(server, "double", id="before")
        changed = requests.post(setting, json={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, timeout=10).json()
        assert (changed["trace_level"], changed["trace_rate"], changed["trace_mode"]) == (["TIMESTAMPS"], "1", "triton")
        ask(server, "double", id="traced")
        ask(server, "both")
        requests.post(setting, json={"trace_level": None}, timeout=10)
        ask(server, "double", id="after")
    assert [one["request_id"] for one in read_trace(tmp_path / "trace").values()] == ["traced"]
