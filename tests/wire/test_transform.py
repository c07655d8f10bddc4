# SPDX-License-Identifier: Apache-2.0
"""The backend transform from outside: texts and numbers in JSON and binary, batches, ragged ones, auto-completion, refusals
by their words, an ensemble that hands on by reference."""
import json

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from wire import metric

FEATURES = """
backend: "transform"
max_batch_size: 64
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
parameters { key: "steps" value { string_value: "F = text_features(TEXT, counts=[words, sentences, upper_share], vocabulary=v.txt)" } }
"""
MIX = """
backend: "transform"
max_batch_size: 64
input [ { name: "A" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }, { name: "B" data_type: TYPE_INT32 dims: -1 allow_ragged_batch: true } ]
parameters { key: "steps" value { string_value:
  "MEAN = average(A, B, weights=[3, 1]); P = softmax(A); FIRST = slice(A, to=1); BOTH = concat(MEAN, P); H = cast(MEAN, to=FP16)" } }
output [ { name: "MEAN" data_type: TYPE_FP32 dims: -1 }, { name: "P" data_type: TYPE_FP32 dims: -1 },
         { name: "FIRST" data_type: TYPE_FP32 dims: 1 }, { name: "BOTH" data_type: TYPE_FP32 dims: -1 }, { name: "H" data_type: TYPE_FP16 dims: -1 } ]
dynamic_batching { max_queue_delay_microseconds: 1000 }
"""
CUT = """
backend: "transform"
max_batch_size: 0
input { name: "X" data_type: TYPE_FP32 dims: [ -1, 1024 ] }
parameters { key: "steps" value { string_value: "Y = slice(X, axis=0, from=1); Z = X" } }
"""
CHAIN = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: [ -1, 1024 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1, 1024 ] }
ensemble_scheduling {
  step { model_name: "cut" model_version: -1 input_map { key: "X" value: "IN" } output_map { key: "Y" value: "half" } }
  step { model_name: "cut" model_version: -1 input_map { key: "X" value: "half" } output_map { key: "Z" value: "OUT" } }
}
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("transform")
    for name, config in (("features", FEATURES), ("mix", MIX), ("cut", CUT), ("chain", CHAIN)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    (root / "features/1/v.txt").write_text("good\nnot good\n")
    return root


@pytest.fixture
def running(start, repository):
    return start(repositories=[repository])


def texts(*values):
    array = np.array([[value] for value in values], dtype=object)
    tensor = tritonclient.http.InferInput("TEXT", list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array)
    return tensor


def test_features_of_texts(running):
    client = tritonclient.http.InferenceServerClient(running.http)
    answer = client.infer("features", [texts("Good. Not GOOD!".encode(), b"")]).as_numpy("F")
    assert np.array_equal(answer, np.array([[3, 2, 6 / 11, 2, 1], [0, 0, 0, 0, 0]], dtype=np.float32))
    outputs = requests.get(running.url("/v2/models/features"), timeout=20).json()["outputs"]
    assert outputs == [{"name": "F", "datatype": "FP32", "shape": [-1, 5]}]
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["sehr gut"]}]}
    reply = requests.post(running.url("/v2/models/features/infer"), json=body, timeout=20).json()
    assert reply["outputs"][0]["data"] == [2, 1, 0, 0, 0]


@pytest.mark.parametrize("triton, face", [(tritonclient.http, "http"), (tritonclient.grpc, "grpc")])
def test_arithmetic_in_ragged_batches(running, triton, face):
    with triton.InferenceServerClient(getattr(running, face)) as client:
        for columns in (1, 2, 7, 300):
            a = np.linspace(-3, 3, 2 * columns, dtype=np.float32).reshape(2, columns)
            b = np.arange(2 * columns, dtype=np.int32).reshape(2, columns)
            inputs = [triton.InferInput("A", list(a.shape), "FP32"), triton.InferInput("B", list(b.shape), "INT32")]
            inputs[0].set_data_from_numpy(a)
            inputs[1].set_data_from_numpy(b)
            answer = client.infer("mix", inputs)
            mean = (a.astype(np.float64) * 0.75 + b * 0.25).astype(np.float32)
            p = np.exp(a.astype(np.float64))
            p = (p / p.sum(axis=1, keepdims=True)).astype(np.float32)
            assert np.array_equal(answer.as_numpy("MEAN"), mean)
            np.testing.assert_allclose(answer.as_numpy("P"), p, rtol=1e-6)
            assert np.array_equal(answer.as_numpy("FIRST"), a[:, :1])
            assert answer.as_numpy("BOTH").shape == (2, 2 * columns)
            assert np.array_equal(answer.as_numpy("H"), mean.astype(np.float16))


def test_a_clash_of_shapes_is_the_requests(running):
    body = {"inputs": [{"name": "A", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},
                       {"name": "B", "shape": [1, 3], "datatype": "INT32", "data": [1, 2, 3]}]}
    reply = requests.post(running.url("/v2/models/mix/infer"), json=body, timeout=20)
    assert reply.status_code == 400
    assert reply.json()["error"] == "step 1 (average): expected 'A' and 'B' to have matching shapes, got [1,2] and [1,3]"


def test_cuts_go_on_by_reference(running):
    """Both steps of the ensemble only cut: nothing is copied, whatever the size."""
    def copied():
        return metric(requests.get(f"http://{running.metrics}/metrics", timeout=60).text, "proa_tensor_copied_bytes_total")

    client = tritonclient.http.InferenceServerClient(running.http)
    rows = np.random.default_rng(1).random((1025, 1024), dtype=np.float32)
    tensor = tritonclient.http.InferInput("IN", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    before = copied()
    assert np.array_equal(client.infer("chain", [tensor]).as_numpy("OUT"), rows[1:])
    assert copied() == before


@pytest.mark.parametrize("change, words", [
    (("words, sentences", "words, phrases"), "option 'counts' has 'phrases', which is none of characters, words, ..."),
    (("v.txt", "w.txt"), "file 'w.txt' is neither in '"),
    (("F = text", "F = frob(TEXT); G = text"), "'frob' is no operation; there are average, cast"),
    (('"transform"', '"transform" output { name: "F" data_type: TYPE_INT32 dims: 5 }'),
     "unable to load model 'features', configuration expects datatype TYPE_INT32 for output 'F', model provides TYPE_FP32"),
    (('"transform"', '"transform" output { name: "F" data_type: TYPE_FP32 dims: 4 }'),
     "model 'features', tensor 'F': the model expects 2 dimensions (shape [-1,5]) but the model configuration specifies 2 "
     "dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
     "complete shape [-1,4])")])
def test_a_wrong_configuration_fails_alone(start, tmp_path, repository, change, words):
    for name in ("features", "mix"):
        (tmp_path / name).symlink_to(repository / name)
    (tmp_path / "features").unlink()
    (tmp_path / "features/1").mkdir(parents=True)
    (tmp_path / "features/1/v.txt").write_text("good\nnot good\n")
    (tmp_path / "features/config.pbtxt").write_text(FEATURES.replace(*change))
    running = start("--exit-on-error=false", repositories=[tmp_path])
    index = {m["name"]: m for m in requests.post(running.url("/v2/repository/index"), timeout=20).json()}
    assert index["mix"]["state"] == "READY"
    assert index["features"]["state"] == "UNAVAILABLE" and words in index["features"]["reason"], json.dumps(index)
