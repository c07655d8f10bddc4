# SPDX-License-Identifier: Apache-2.0
"""HTTP and gRPC beside each other: they say the same of models, requests and refusals; shared memory and classes over
gRPC; nobody gets another's answer."""
import os
import threading

import numpy as np
import pytest
import requests
import tritonclient.grpc as client_grpc
import tritonclient.http as client_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException


@pytest.fixture(scope="module")
def client(server):
    with client_grpc.InferenceServerClient(server.grpc) as one:
        yield one


@pytest.fixture(scope="module")
def client_of_http(server):
    with client_http.InferenceServerClient(server.http) as one:
        yield one


def make_input(name, array, datatype):
    tensor = client_grpc.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def simple_inputs(value=1):
    array = np.full((1, 16), value, np.int32)
    return [make_input("INPUT0", array, "INT32"), make_input("INPUT1", array, "INT32")]


def test_both_faces_say_the_same(server, client):
    config = requests.get(server.url("/v2/models/simple_dyna_sequence/config"), timeout=60).json()
    assert client.get_model_config("simple_dyna_sequence").config.sequence_batching.oldest.max_candidate_sequences == (
        config["sequence_batching"]["oldest"]["max_candidate_sequences"])
    index = requests.post(server.url("/v2/repository/index"), timeout=60).json()
    assert [(m.name, m.version, m.state) for m in client.get_model_repository_index().models] == [
        (m["name"], m.get("version", ""), m.get("state", "")) for m in index]
    stats = requests.get(server.url("/v2/models/simple/stats"), timeout=60).json()["model_stats"][0]
    other = client.get_inference_statistics("simple").model_stats[0]
    assert other.inference_count == stats["inference_count"]
    assert other.inference_stats.success.count == stats["inference_stats"]["success"]["count"]


def test_both_refuse_alike(client, client_of_http):
    """The same text from both, whatever is wrong; gRPC's code is that of Triton's table."""
    ones = np.ones((1, 16), np.int32)
    for model, names, shape, datatype, code in [("none", ["A"], (1, 16), "INT32", "NOT_FOUND"),
                                                ("simple", ["INPUT0"], (1, 16), "INT32", "INVALID_ARGUMENT"),
                                                ("simple", ["INPUT0", "X"], (1, 16), "INT32", "INVALID_ARGUMENT"),
                                                ("simple", ["INPUT0", "INPUT1"], (9, 16), "INT32", "INVALID_ARGUMENT"),
                                                ("simple", ["INPUT0", "INPUT1"], (1, 17), "INT32", "INVALID_ARGUMENT"),
                                                ("simple", ["INPUT0", "INPUT1"], (1, 16), "FP32", "INVALID_ARGUMENT")]:
        array = np.resize(ones, shape).astype({"INT32": np.int32, "FP32": np.float32}[datatype])
        texts = []
        for module, asked in ((client_grpc, client), (client_http, client_of_http)):
            inputs = [module.InferInput(name, list(shape), datatype) for name in names]
            for one in inputs:
                one.set_data_from_numpy(array)
            with pytest.raises(InferenceServerException) as error:
                asked.infer(model, inputs)
            texts.append(error.value.message())
            if module is client_grpc:
                assert error.value.status() == f"StatusCode.{code}"
        assert texts[0] == texts[1]


def test_classification_over_grpc(client):
    array = np.array([[0.5, 2.25, -1.0]], np.float32)
    result = client.infer("identity_fp32", [make_input("INPUT0", array, "FP32")],
                          outputs=[client_grpc.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"2.250000:1", b"0.500000:0"]]


def test_shared_memory(server, client):
    key = f"/proa-grpc-{os.getpid()}"
    region = shm.create_shared_memory_region("both", key, 128)
    try:
        array = np.arange(16, dtype=np.float32).reshape(1, 16)
        shm.set_shared_memory_region(region, [array])
        client.register_system_shared_memory("both", key, 128)
        status = client.get_system_shared_memory_status(as_json=True)["regions"]["both"]
        assert status["key"] == key and status["byte_size"] == "128"
        with pytest.raises(InferenceServerException, match="shared memory region 'both' already in manager"):
            client.register_system_shared_memory("both", key, 128)
        one = client_grpc.InferInput("INPUT0", [1, 16], "FP32")
        one.set_shared_memory("both", 64)
        out = client_grpc.InferRequestedOutput("OUTPUT0")
        out.set_shared_memory("both", 64, offset=64)
        response = client.infer("identity_fp32", [one], outputs=[out]).get_response()
        assert list(response.raw_output_contents) in ([], [b""])
        assert (shm.get_contents_as_numpy(region, np.float32, [1, 16], 64) == array).all()
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(region)
    assert not client.get_system_shared_memory_status(as_json=True).get("regions")


def test_many_threads(server):
    """16 threads with a channel each: nobody gets another's answer."""
    failures = []

    def ask(thread):
        with client_grpc.InferenceServerClient(server.grpc) as one:
            for i in range(40):
                value = thread * 1000 + i
                if not (one.infer("simple", simple_inputs(value)).as_numpy("OUTPUT0") == 2 * value).all():
                    failures.append(value)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures

