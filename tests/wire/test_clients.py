# SPDX-License-Identifier: Apache-2.0
"""Clients take turns: many requests of one do not hold up those of another. Clients are told apart by API key and header, on
every protocol."""
import threading
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
from wire import ROOT, Server, metric, wait_until

MODEL = "classics-10m"
MANY = 96
KEYS = ("key-of-the-first-tenant", "key-of-the-second-tenant")


@pytest.fixture(scope="module")
def server():
    options = ["--sequences", "2", *(f"--api-key={key}" for key in KEYS), "--log-verbose", "1"]
    with Server(*options, repositories=[ROOT / "models" / MODEL]) as running:
        yield running


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def complete(server, headers, prompts, **options):
    answer = requests.post(server.url("/v1/completions"), headers=headers, timeout=300,
                           json={"model": MODEL, "prompt": prompts, **options})
    assert answer.status_code == 200, answer.text


def ask_openai(server, headers):
    complete(server, headers, ["It was"], max_tokens=8)


def ask_with_x_api_key(server, headers):
    headers = dict(headers, **{"x-api-key": headers["Authorization"].removeprefix("Bearer ")})
    del headers["Authorization"]
    answer = requests.post(server.url("/v1/completions"), headers=headers, timeout=300,
                           json={"model": MODEL, "prompt": "It was", "max_tokens": 8})
    assert answer.status_code == 200, answer.text


def ask_generate(server, headers):
    answer = requests.post(server.url(f"/v2/models/{MODEL}/generate"), headers=headers, timeout=300,
                           json={"text_input": "It was", "max_tokens": 8})
    assert answer.status_code == 200, answer.text


def ask_infer(server, headers):
    inputs = [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["It was"]},
              {"name": "max_tokens", "datatype": "INT32", "shape": [1], "data": [8]}]
    answer = requests.post(server.url(f"/v2/models/{MODEL}/infer"), headers=headers, timeout=300, json={"inputs": inputs})
    assert answer.status_code == 200, answer.text


def tensors():
    inputs = [triton_grpc.InferInput("text_input", [1], "BYTES"), triton_grpc.InferInput("max_tokens", [1], "INT32")]
    inputs[0].set_data_from_numpy(np.array([b"It was"], dtype=np.object_))
    inputs[1].set_data_from_numpy(np.array([8], dtype=np.int32))
    return inputs


def ask_grpc(server, headers):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.infer(MODEL, tensors(), headers={name.lower(): value for name, value in headers.items()})


def ask_grpc_stream(server, headers):
    done = threading.Event()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: done.set(), headers={name.lower(): value for name, value in headers.items()})
        client.async_stream_infer(MODEL, tensors())
        assert done.wait(300)


def waiting(server):
    return metric(requests.get(f"http://{server.metrics}/metrics", timeout=60).text, "proa_engine_waiting")


def share_of_wait(server, ask, greedy, other):
    """A client sends MANY requests at once, then another one a single one: the part of the time that the many take which the
    single one took."""
    ends = {}

    def flood():
        # each may write 500 tokens, which is what it takes from its client's turn; most end after a sentence
        complete(server, greedy, [f"It was {n}" for n in range(MANY)], max_tokens=500, stop=["."])
        ends["greedy"] = time.monotonic()

    thread = threading.Thread(target=flood)
    thread.start()
    wait_until(lambda: waiting(server) > MANY // 2, pause=0.005)
    begin = time.monotonic()
    ask(server, other)
    ends["other"] = time.monotonic()
    thread.join()
    return (ends["other"] - begin) / (ends["greedy"] - begin)


ASKS = [ask_openai, ask_with_x_api_key, ask_generate, ask_infer, ask_grpc, ask_grpc_stream]


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_another_key_does_not_wait_for_all(server, ask):
    assert share_of_wait(server, ask, bearer(KEYS[0]), bearer(KEYS[1])) < 0.6


@pytest.mark.parametrize("ask", [ask_openai, ask_infer, ask_grpc, ask_grpc_stream], ids=lambda ask: ask.__name__)
def test_another_id_under_one_key_does_not_wait_for_all(server, ask):
    one = bearer(KEYS[0])
    assert share_of_wait(server, ask, dict(one, **{"X-Client-Id": "greedy"}), dict(one, **{"X-Client-Id": "other"})) < 0.6


def test_the_same_client_waits(server):
    assert share_of_wait(server, ask_openai, bearer(KEYS[0]), bearer(KEYS[0])) > 0.75


def test_the_header_has_the_name_of_the_option(start):
    running = start("--sequences", "2", "--client-header", "X-Tenant", repositories=[ROOT / "models" / MODEL])
    assert share_of_wait(running, ask_openai, {"x-tenant": "a"}, {"X-TENANT": "b"}) < 0.6
    assert share_of_wait(running, ask_openai, {"x-client-id": "a"}, {"x-client-id": "b"}) > 0.75


def test_no_key_is_logged(server):
    assert server.alive()
    for key in KEYS:
        assert key not in server.log_text()
