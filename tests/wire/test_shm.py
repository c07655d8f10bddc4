# SPDX-License-Identifier: Apache-2.0
"""System shared memory in and out over HTTP, its registry, and CUDA's routes where there is no GPU."""
import os
import re

import numpy as np
import pytest
import requests
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(server):
    with http.InferenceServerClient(server.http) as one:
        yield one
        one.unregister_system_shared_memory()


@pytest.fixture
def region():
    """region(name, bytes) makes a region that lives as long as the test."""
    made = []

    def make(name, size):
        made.append(shm.create_shared_memory_region(name, f"/proa-test-{os.getpid()}-{name}", size))
        return made[-1], f"/proa-test-{os.getpid()}-{name}"

    yield make
    for one in made:
        shm.destroy_shared_memory_region(one)


def test_in_and_out(client, region):
    a = np.arange(16, dtype=np.int32).reshape(1, 16)
    inputs, outputs = [], []
    memory_in, key_in = region("in", 128)
    memory_out, key_out = region("out", 128)
    shm.set_shared_memory_region(memory_in, [a, np.ones_like(a)])
    client.register_system_shared_memory("in", key_in, 128)
    client.register_system_shared_memory("out", key_out, 128)
    for i in range(2):
        inputs.append(http.InferInput(f"INPUT{i}", [1, 16], "INT32"))
        inputs[-1].set_shared_memory("in", 64, 64 * i)
        outputs.append(http.InferRequestedOutput(f"OUTPUT{i}"))
        outputs[-1].set_shared_memory("out", 64, 64 * i)
    result = client.infer("simple", inputs, outputs=outputs)
    for i, want in ((0, a + 1), (1, a - 1)):
        output = result.get_output(f"OUTPUT{i}")
        assert output["shape"] == [1, 16] and "data" not in output and "binary_data_size" not in output.get("parameters", {})
        assert (shm.get_contents_as_numpy(memory_out, np.int32, [1, 16], 64 * i) == want).all()


def test_registry(client, region):
    _, key = region("r", 256)
    client.register_system_shared_memory("r", key, 128, offset=64)
    assert client.get_system_shared_memory_status() == [{"name": "r", "key": key, "offset": 64, "byte_size": 128}]
    assert client.get_system_shared_memory_status("r") == [{"name": "r", "key": key, "offset": 64, "byte_size": 128}]
    with pytest.raises(InferenceServerException, match="shared memory region 'r' already in manager"):
        client.register_system_shared_memory("r", key, 128)
    with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'x'"):
        client.get_system_shared_memory_status("x")
    client.unregister_system_shared_memory("r")
    assert client.get_system_shared_memory_status() == []


@pytest.mark.parametrize("offset, size, text", [(0, 65, "Invalid offset \\+ byte size for shared memory region: 'r'"),
                                                (64, 1, "Invalid offset for shared memory region: 'r'"),
                                                (2**63, 2**63, "shared memory region")])
def test_outside_of_a_region(server, client, region, offset, size, text):
    _, key = region("r", 64)
    client.register_system_shared_memory("r", key, 64)
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "parameters": {
        "shared_memory_region": "r", "shared_memory_offset": offset, "shared_memory_byte_size": size}}]}
    answer = requests.post(server.url("/v2/models/identity_fp32/infer"), json=body, timeout=60)
    assert answer.status_code == 400
    assert re.search(text, answer.json()["error"]), answer.text


def test_refusals(server, client, region):
    _, key = region("r", 64)
    client.register_system_shared_memory("r", key, 64)
    one = http.InferInput("INPUT0", [1, 4], "FP32")
    one.set_data_from_numpy(np.ones((1, 4), np.float32))
    small = http.InferRequestedOutput("OUTPUT0")
    small.set_shared_memory("r", 8)
    with pytest.raises(InferenceServerException, match="shared memory size specified with the request for output 'OUTPUT0' "
                                                       "\\(8 bytes\\) should be at least 16 bytes to hold the results"):
        client.infer("identity_fp32", [one], outputs=[small])
    small.set_shared_memory("none", 16)
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'none'"):
        client.infer("identity_fp32", [one], outputs=[small])
    for body, text in [('{"byte_size":1}', "Shared memory register request has no 'key' field"),
                       ('{"key":"x"}', "Shared memory register request has no 'byte_size' field"),
                       ('{"key":"/no-such-key","byte_size":1}', "Unable to open shared memory region: '/no-such-key'"),
                       ('{"key":"/triton_python_backend_shm_region_x","byte_size":1}', "")]:
        answer = requests.post(server.url("/v2/systemsharedmemory/region/n/register"), data=body, timeout=60)
        assert answer.status_code >= 400 and text in answer.json()["error"]
    answer = requests.post(server.url("/v2/systemsharedmemory/register"), data="{}", timeout=60)
    assert answer.json()["error"] == "'region name' is necessary to register system shared memory region"


def test_off_unless_asked_for(start):
    running = start()
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for kind in ("system", "cuda"):
        assert requests.get(running.url(f"/v2/{kind}sharedmemory/status"), timeout=60).json() == []
        for action in ("region/r/register", "region/r/unregister", "unregister"):
            answer = requests.post(running.url(f"/v2/{kind}sharedmemory/{action}"), data="{}", timeout=60)
            assert (answer.status_code, answer.json()["error"]) == (501, text)
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "parameters": {
        "shared_memory_region": "r", "shared_memory_byte_size": 4}}]}
    answer = requests.post(running.url("/v2/models/identity_fp32/infer"), json=body, timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (501, text)


def test_cuda_without_a_gpu(client):
    assert client.get_cuda_shared_memory_status() == []
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'r'"):
        client.get_cuda_shared_memory_status("r")
    with pytest.raises(InferenceServerException, match="failed to register CUDA shared memory region: 'r', GPUs not supported"):
        client.register_cuda_shared_memory("r", b"x" * 64, 0, 64)
    client.unregister_cuda_shared_memory("r")
    client.unregister_cuda_shared_memory()
