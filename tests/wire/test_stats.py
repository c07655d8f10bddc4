# SPDX-License-Identifier: Apache-2.0
"""Statistics and metrics that add up."""
import socket

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException
from wire import metric

PARTS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


def make_input(array, name="INPUT0"):
    tensor = http.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def stats_of(client, model):
    return client.get_inference_statistics(model)["model_stats"][0]


def test_they_add_up(start):
    running = start()
    with http.InferenceServerClient(running.http) as client:
        empty = stats_of(client, "identity_fp32")
        assert list(empty) == ["name", "version", "last_inference", "inference_count", "execution_count", "inference_stats",
                               "response_stats", "batch_stats", "memory_usage"]
        assert empty["inference_count"] == 0 and tuple(empty["inference_stats"]) == PARTS
        for rows in (1, 1, 3):
            client.infer("identity_fp32", [make_input(np.ones((rows, 2), np.float32))])
        with pytest.raises(InferenceServerException):
            client.infer("identity_fp32", [make_input(np.ones((65, 2), np.float32))])
        stats = stats_of(client, "identity_fp32")
        parts = stats["inference_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (5, 3)
        assert parts["success"]["count"] == 3
        assert stats["last_inference"] > 1_600_000_000_000  # milliseconds since 1970
        assert sum(b["compute_infer"]["count"] for b in stats["batch_stats"]) == 3
        assert sum(b["batch_size"] * b["compute_infer"]["count"] for b in stats["batch_stats"]) == 5
        inner = sum(parts[p]["ns"] for p in ("queue", "compute_input", "compute_infer", "compute_output"))
        assert 0 < inner <= parts["success"]["ns"]
        everything = client.get_inference_statistics()["model_stats"]
        assert stats["name"] in [m["name"] for m in everything]
        assert client.get_inference_statistics("identity_fp32", "1")["model_stats"][0]["version"] == "1"
        with pytest.raises(InferenceServerException, match="requested model 'none' is not available|unknown model"):
            client.get_inference_statistics("none")


def test_metrics(start):
    running = start()
    with http.InferenceServerClient(running.http) as client:
        for _ in range(4):
            client.infer("identity_fp32", [make_input(np.ones((2, 2), np.float32))])
    answer = requests.get(f"http://{running.metrics}/metrics", timeout=60)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    text, labels = answer.text, {"model": "identity_fp32", "version": "1"}
    assert metric(text, "nv_inference_request_success", **labels) == 4
    assert metric(text, "nv_inference_count", **labels) == 8
    assert metric(text, "nv_inference_exec_count", **labels) == 4
    assert metric(text, "nv_inference_request_duration_us", **labels) >= 0
    for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
        assert metric(text, "nv_inference_request_failure", reason=reason, **labels) == 0
    assert metric(text, "proa_requests_in_flight") == 0
    assert metric(text, "proa_connections", face="http") >= 0
    for line in text.splitlines():  # every family has its help and type, and every line is of the text format
        assert line.startswith("# HELP ") or line.startswith("# TYPE ") or len(line.rsplit(" ", 1)) == 2
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types))
    assert requests.get(f"http://{running.metrics}/metrics/", timeout=60).status_code == 200
    other = requests.get(f"http://{running.metrics}/other", timeout=60)
    assert (other.status_code, other.content) == (200, b"")


def test_http_counters(start):
    running = start()
    for path in ("/v2", "/v2", "/v2/none", "/v2/models/none"):
        requests.get(running.url(path), timeout=60)
    requests.post(running.url("/v2/models/simple/infer"), data=b"x" * 1000, timeout=60)
    text = requests.get(f"http://{running.metrics}/metrics", timeout=60).text
    assert metric(text, "proa_http_answers_total", status="2xx") >= 2
    assert metric(text, "proa_http_answers_total", status="4xx") == 3
    assert metric(text, "proa_http_request_body_bytes_total") == 1000
    assert metric(text, "proa_http_answer_body_bytes_total") > 100


def test_one_port_for_all(start):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = start(ports=[f"--{face}-port={port}" for face in ("http", "grpc", "metrics")])
    assert running.http == running.grpc == running.metrics
    assert requests.get(running.url("/v2"), timeout=60).json()["name"] == "triton"
    assert "nv_inference_count" in requests.get(running.url("/metrics"), timeout=60).text
    with grpc.InferenceServerClient(running.grpc) as client:
        assert client.is_server_live()
