# SPDX-License-Identifier: Apache-2.0
"""Repository index, load and unload, trace and logging settings, drain at the end, over HTTP."""
import base64
import json
import os
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import requests
import tritonclient.http as http
from tritonclient.utils import InferenceServerException
from wire import REPOSITORY, raw_request, read_answer, wait_until


def make_input(array, name="INPUT0", datatype="FP32"):
    tensor = http.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def states(client):
    return {m["name"]: m.get("state", "") for m in client.get_model_repository_index()}


@pytest.fixture
def explicit(start):
    running = start("--model-control-mode", "explicit", "--load-model", "simple")
    with http.InferenceServerClient(running.http) as client:
        yield running, client


# ---- index ----


def test_index(server):
    answer = requests.post(server.url("/v2/repository/index"), timeout=60)
    models = answer.json()
    assert {"name": "simple", "version": "1", "state": "READY"} in models
    assert len(models) == len([p for p in REPOSITORY.iterdir() if p.is_dir()])
    assert requests.post(server.url("/v2/repository/any/index"), timeout=60).json() == models
    assert requests.post(server.url("/v2/repository/index"), data='{"ready":true}', timeout=60).json() == models
    answer = requests.post(server.url("/v2/repository/index"), data='{"ready":1}', timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid value for 'ready': expected a boolean")


# ---- load and unload ----


def test_standard_output_is_no_connection(server):
    """It is closed after the ports were printed; a connection in its place would get what a library prints."""
    assert os.readlink(f"/proc/{server.process.pid}/fd/1") == "/dev/null"


def test_load_and_unload(explicit):
    _, client = explicit
    before = states(client)
    assert before["simple"] == "READY" and before["identity_fp32"] == ""
    with pytest.raises(InferenceServerException, match="unknown model"):
        client.infer("identity_fp32", [make_input(np.ones((1, 2), np.float32))])
    client.load_model("identity_fp32")
    assert states(client)["identity_fp32"] == "READY"
    assert client.infer("identity_fp32", [make_input(np.ones((1, 2), np.float32))]).as_numpy("OUTPUT0").sum() == 2
    client.unload_model("identity_fp32")
    wait_until(lambda: states(client)["identity_fp32"] == "UNAVAILABLE")
    assert client.is_server_ready()
    assert not client.is_model_ready("identity_fp32")
    ready = client._post("v2/repository/index", '{"ready":true}', None, None)
    assert [m["name"] for m in json.loads(ready.read())] == ["simple"]


def test_load_with_config(explicit):
    _, client = explicit
    config = {"name": "identity_int32", "backend": "identity", "max_batch_size": 3,
              "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
    client.load_model("identity_int32", config=json.dumps(config))
    assert client.get_model_config("identity_int32")["max_batch_size"] == 3
    assert client.get_model_metadata("identity_int32")["inputs"][0]["shape"] == [-1, -1]
    client.load_model("identity_int32")  # the repository's own again
    assert client.get_model_config("identity_int32")["max_batch_size"] == 64


def test_load_with_files(explicit):
    _, client = explicit
    config = {"backend": "identity", "max_batch_size": 2, "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]}
    client.load_model("brought", config=json.dumps(config), files={"file:7/model.bin": b"\x00\xff any"})
    assert client.is_model_ready("brought", "7")


def test_load_refusals(explicit, server):
    running, client = explicit
    for name, body, status, text in [
            ("none", "", 500, "failed to load 'none', failed to poll from model repository"),
            ("simple", '{"parameters":{"other":"x"}}', 500, "unexpected error on creating Triton parameter"),
            ("simple", '{"parameters":{"config":3}}', 400, "attempt to access JSON non-string as string"),
            ("simple", '{"parameters":{"file:1/x":"!"}}', 400, "'file:1/x' must be a valid base64 encoded string"),
            ("simple", "{", 400, "failed to parse the request JSON buffer"),
            ("simple", json.dumps({"parameters": {"config": "{}", "file:1/x": base64.b64encode(b"x").decode() * 3}}), None, None)]:
        answer = requests.post(running.url(f"/v2/repository/models/{name}/load"), data=body, timeout=60)
        if status:
            assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text
    assert client.is_model_ready("simple")
    answer = requests.post(running.url("/v2/repository/r/models/simple/load"), timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (501, "'repository_name' specification is not supported")
    answer = requests.post(running.url("/v2/repository/models/simple/unload"), data='{"parameters":{"unload_dependents":1}}', timeout=60)
    assert "Unable to parse 'unload_dependents'" in answer.json()["error"]
    for action in ("load", "unload"):  # the shared server is not in explicit mode
        answer = requests.post(server.url(f"/v2/repository/models/simple/{action}"), timeout=60)
        assert (answer.status_code, answer.json()["error"]) == (
            503, "explicit model load / unload is not allowed if polling is enabled")


def test_reload_under_load(start, tmp_path):
    """Requests go on without one failure while their model is loaded anew again and again."""
    shutil.copytree(REPOSITORY / "simple_fp32", tmp_path / "simple_fp32")
    running = start("--model-control-mode", "explicit", "--load-model", "*", repositories=[tmp_path])
    failures, done, stop = [], [0], threading.Event()

    def ask():
        with http.InferenceServerClient(running.http) as client:
            inputs = [make_input(np.ones((1, 16), np.float32), f"INPUT{i}") for i in range(2)]
            while not stop.is_set():
                try:
                    assert (client.infer("simple_fp32", inputs).as_numpy("OUTPUT0") == 2).all()
                    done[0] += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                    failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    with http.InferenceServerClient(running.http) as client:
        loads = 0
        while loads < 20 or (done[0] < 50 and not failures):
            client.load_model("simple_fp32")
            loads += 1
            time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_bad_model_leaves_the_others(start, tmp_path):
    shutil.copytree(REPOSITORY / "simple", tmp_path / "simple")
    (tmp_path / "bad/1").mkdir(parents=True)
    (tmp_path / "bad/config.pbtxt").write_text('backend: "none_such"\n')
    running = start("--exit-on-error=false", "--strict-readiness=false", repositories=[tmp_path])
    with http.InferenceServerClient(running.http) as client:
        index = {m["name"]: m for m in client.get_model_repository_index()}
        assert index["simple"]["state"] == "READY"
        assert index["bad"]["state"] == "UNAVAILABLE" and "none_such" in index["bad"]["reason"]
        assert client.is_model_ready("simple") and not client.is_model_ready("bad")


# ---- settings ----


def test_trace_settings(start, tmp_path):
    running = start()
    with http.InferenceServerClient(running.http) as client:
        assert client.get_trace_settings() == {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1",
                                               "log_frequency": "0", "trace_file": "", "trace_mode": "triton"}
        assert client.update_trace_settings("simple", {"trace_rate": "5"})["trace_rate"] == "5"
        assert client.update_trace_settings(settings={"trace_rate": "7", "log_frequency": "2"})["trace_rate"] == "7"
        assert client.get_trace_settings("simple")["trace_rate"] == "5"
        assert client.get_trace_settings("simple")["log_frequency"] == "2"
        assert client.update_trace_settings("simple", {"trace_rate": None})["trace_rate"] == "7"
        for settings, text in [({"trace_file": "x"}, "trace file location can not be updated through network protocol"),
                               ({"trace_rate": "x"}, "Unable to parse 'trace_rate', got: x"),
                               ({"trace_level": ["OFF", "TENSORS"]}, "Expect only one trace level 'OFF' is specified"),
                               ({"trace_level": ["TIMESTAMPS"]}, "trace file name is not given")]:
            with pytest.raises(InferenceServerException, match=text):
                client.update_trace_settings(settings=settings)
        with pytest.raises(InferenceServerException, match="unknown model"):
            client.get_trace_settings("none")


def test_log_settings(start):
    running = start()
    with http.InferenceServerClient(running.http) as client:
        assert client.get_log_settings() == {"log_file": "", "log_info": True, "log_warning": True, "log_error": True,
                                             "log_verbose_level": 0, "log_format": "default"}
        assert client.update_log_settings({"log_format": "json"})["log_format"] == "JSON"  # as the option says it
        changed = client.update_log_settings({"log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"})
        assert (changed["log_info"], changed["log_verbose_level"], changed["log_format"]) == (False, 2, "ISO8601")
        for settings, text in [({"log_file": "x"}, "log file location can not be updated through network protocol"),
                               ({"log_format": "x"}, "invalid argument for log_format, got: x"),
                               ({"log_info": "x"}, "expect boolean for 'log_info'")]:
            with pytest.raises(InferenceServerException, match=text):
                client.update_log_settings(settings)


# ---- the end ----


def test_drain(start):
    """What was sent before SIGTERM is answered, though nobody had looked at it yet; then the program ends with status 0."""
    running = start()
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 1]}]}).encode()
    socks = [running.connect() for _ in range(3)]
    for sock in socks:
        sock.sendall(raw_request("/v2/models/identity_slow/infer", body))
    running.process.terminate()
    for sock in socks:
        status, headers, answer = read_answer(sock)
        assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [1, 1] and headers["connection"] == "close"
        assert sock.recv(1) == b""
        sock.close()
    assert running.process.wait(30) == 0


def test_drain_of_a_stream(start):
    """A stream that runs when SIGTERM comes is told to its end."""
    running = start()
    with running.connect() as sock:
        body = json.dumps({"IN": list(range(20)), "DELAY": [20] * 20, "WAIT": 0}).encode()
        sock.sendall(raw_request("/v2/models/repeat_int32/generate_stream", body))
        running.process.terminate()
        status, headers, answer = read_answer(sock)
        assert status == 200 and headers["connection"] == "close"
        assert [json.loads(event[6:])["OUT"] for event in answer.split(b"\n\n")[:-1]] == list(range(20))
        assert sock.recv(1) == b""
    assert running.process.wait(30) == 0


def test_idle_connections_do_not_hold_up_the_end(start):
    running = start()
    sockets = [running.connect() for _ in range(20)]
    for sock in sockets[:10]:
        sock.sendall(raw_request("/v2/health/live", method="GET"))
        assert read_answer(sock)[0] == 200
    assert running.stop(signal.SIGTERM) == 0  # while the clients' sides are open
    for sock in sockets:
        sock.close()
