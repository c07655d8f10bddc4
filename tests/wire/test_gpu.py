# SPDX-License-Identifier: Apache-2.0
"""A pipeline whose steps compute on a GPU, over HTTP and gRPC, with inputs and outputs in CUDA shared memory of the client.
The GPU is tests/fake_gpu: its memory cannot be read by the server's process without it."""
import base64
import os
import shutil

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException
from wire import PROA, ROOT, metric

FAKE_GPU = PROA.parent / "tests/libfake_gpu.so"
FOREST = ROOT / "tests/golden/forest"
ROWS = np.fromfile(FOREST / "inputs.f32", dtype=np.float32).reshape(40, 6)

SCALE = """backend: "transform" max_batch_size: 64 input { name: "x" data_type: TYPE_FP32 dims: [ 6 ] }
parameters { key: "steps" value { string_value: "y = linear(x, scale=2)" } } instance_group { kind: %s }"""
TREES = """backend: "fil" max_batch_size: 64 default_model_filename: "xgb-reg-squarederror.json"
input { name: "input__0" data_type: TYPE_FP32 dims: [ 6 ] } output { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "model_type" value { string_value: "xgboost_json" } }
parameters { key: "is_classifier" value { string_value: "false" } } instance_group { kind: %s count: 2 }
model_warmup { name: "one" batch_size: 4 inputs { key: "input__0" value { data_type: TYPE_FP32 dims: [ 6 ] zero_data: true } } }"""
ALL = """platform: "ensemble" max_batch_size: 64 input { name: "x" data_type: TYPE_FP32 dims: [ 6 ] }
output { name: "s" data_type: TYPE_FP32 dims: [ 1 ] } ensemble_scheduling {
step { model_name: "scale" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
step { model_name: "trees" model_version: -1 input_map { key: "input__0" value: "y" } output_map { key: "output__0" value: "s" } } }"""


def write(repository, kind):
    for name, text in (("scale", SCALE), ("trees", TREES), ("all", ALL)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text % kind if "%s" in text else text)
    shutil.copy(FOREST / "xgb-reg-squarederror.json", repository / "trees/1")


@pytest.fixture
def gpu(start, tmp_path):
    if not FAKE_GPU.exists():
        pytest.skip("tests/libfake_gpu.so is not built")
    write(tmp_path, "KIND_GPU gpus: [ 0 ]")
    return start("--allow-client-shm=true", repositories=[tmp_path], env={"PROA_CUDA_PLUGIN": str(FAKE_GPU)})


def copies(server):
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    return metric(text, "proa_host_copies_total"), metric(text, "proa_device_copies_total")


def ask(server, rows):
    with http.InferenceServerClient(server.http) as client:
        one = http.InferInput("x", list(rows.shape), "FP32")
        one.set_data_from_numpy(rows)
        return client.infer("all", [one]).as_numpy("s")


def test_one_copy_in_and_one_out(gpu, start, tmp_path):
    write(tmp_path / "cpu", "KIND_CPU")
    cpu = start(repositories=[tmp_path / "cpu"])
    before = copies(gpu)
    have = ask(gpu, ROWS)
    assert [b - a for a, b in zip(before, copies(gpu))] == [1, 1]
    np.testing.assert_array_equal(have, ask(cpu, ROWS))


@pytest.fixture
def region():
    """region(name, bytes): memory that stands for a client's on the GPU, and its handle."""
    made = []

    def make(name, size):
        key = f"/proa-gpu-{os.getpid()}-{name}"
        made.append(shm.create_shared_memory_region(name, key, size))
        return made[-1], base64.b64encode(key.encode().ljust(64, b"\0"))

    yield make
    for one in made:
        shm.destroy_shared_memory_region(one)


@pytest.mark.parametrize("protocol", [http, grpc])
def test_cuda_shared_memory(gpu, region, protocol):
    memory_in, handle_in = region("in", 1024)
    memory_out, handle_out = region("out", 256)
    shm.set_shared_memory_region(memory_in, [ROWS])
    expected = ask(gpu, ROWS)
    with protocol.InferenceServerClient(gpu.http if protocol is http else gpu.grpc) as client:
        client.register_cuda_shared_memory("in", handle_in, 0, 960)
        client.register_cuda_shared_memory("out", handle_out, 0, 256)
        one, out = protocol.InferInput("x", [40, 6], "FP32"), protocol.InferRequestedOutput("s")
        one.set_shared_memory("in", 960)
        out.set_shared_memory("out", 160, 64)
        before = copies(gpu)
        client.infer("all", [one], outputs=[out])
        assert copies(gpu) == before
        np.testing.assert_array_equal(shm.get_contents_as_numpy(memory_out, np.float32, [40], 64), expected.reshape(-1))
        # to a model and an output on the host
        one.set_shared_memory("in", 24)
        one.set_shape([1, 6])
        answer = client.infer("all", [one])
        np.testing.assert_array_equal(answer.as_numpy("s"), expected[:1])
        assert [b - a for a, b in zip(before, copies(gpu))] == [1, 0]
        with pytest.raises(InferenceServerException, match="already in manager"):
            client.register_cuda_shared_memory("in", handle_in, 0, 64)
        status = client.get_cuda_shared_memory_status()
        if protocol is http:
            assert status == [{"name": "in", "device_id": 0, "byte_size": 960}, {"name": "out", "device_id": 0, "byte_size": 256}]
        else:
            assert {k: (r.device_id, r.byte_size) for k, r in status.regions.items()} == {"in": (0, 960), "out": (0, 256)}
        assert not (client.get_system_shared_memory_status() if protocol is http else client.get_system_shared_memory_status().regions)
        client.unregister_system_shared_memory()  # of the other kind: all stay
        client.unregister_cuda_shared_memory("in")
        with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'in'"):
            client.get_cuda_shared_memory_status("in")
        client.unregister_cuda_shared_memory()
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
            client.infer("all", [one], outputs=[out])


def test_handles_that_are_refused(gpu, region):
    _, handle = region("r", 128)
    with http.InferenceServerClient(gpu.http) as client:
        for args, text in (((handle, 0, 129), "byte_size is 129, the memory has 128 bytes"), ((handle, 0, 0), "byte_size is 0"),
                           ((base64.b64encode(b"x" * 64), 0, 64), "failed to open CUDA IPC handle"),
                           ((base64.b64encode(b"x" * 63), 0, 64), "the handle has 63 bytes, must have 64"),
                           ((handle, 7, 64), "GPUs not supported"), ((handle, 99, 64), "gpu 99 is none of 0 to 63")):
            with pytest.raises(InferenceServerException, match="failed to register CUDA shared memory region: 'r', .*" + text):
                client.register_cuda_shared_memory("r", *args)
    for body, text in (("{}", "Shared memory register request has no 'raw_handle' field"), ('{"raw_handle":{}}', "raw_handle"),
                       ('{"raw_handle":{"b64":"AAAA"}}', "no 'device_id' field"),
                       ('{"raw_handle":{"b64":"AAAA"},"device_id":0}', "no 'byte_size' field"),
                       ('{"raw_handle":{"b64":"*"},"device_id":0,"byte_size":1}', "the handle is not base64")):
        answer = requests.post(gpu.url("/v2/cudasharedmemory/region/r/register"), data=body, timeout=60)
        assert answer.status_code == 400 and text in answer.json()["error"], answer.text
    assert requests.get(gpu.url("/v2/cudasharedmemory/status"), timeout=60).json() == []


def test_a_gpu_that_is_not_there(start, tmp_path):
    write(tmp_path, "KIND_GPU gpus: [ 5 ]")
    running = start("--exit-on-error=false", repositories=[tmp_path], env={"PROA_CUDA_PLUGIN": str(FAKE_GPU)})
    index = {m["name"]: m for m in requests.post(running.url("/v2/repository/index"), timeout=60).json()}
    for name in ("scale", "trees"):
        assert index[name]["state"] == "UNAVAILABLE" and "device 'cuda:5': there are 3 GPUs" in index[name]["reason"], index
