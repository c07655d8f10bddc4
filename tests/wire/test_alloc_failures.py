# SPDX-License-Identifier: Apache-2.0
"""A server that is refused memory: single allocations, and all beyond a limit.

The short form tries what a few seconds allow; PROA_ALLOC_SECONDS=600 gives each scenario ten minutes.
"""
import concurrent.futures
import http.client
import json
import os
import resource

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from alloc_failures import OK, Campaign, Control
from wire import PROA, REPOSITORY, ROOT, Server, raw_request, read_answer

LIBRARY = PROA.parent / "tests/failing_malloc.so"
SECONDS = float(os.environ.get("PROA_ALLOC_SECONDS", "1"))
FP32 = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
PROMPT = {"model": "text", "prompt": "It was", "max_tokens": 4}
CHAT = {"model": "text", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "stream": True}
TEXT = {"text_input": "It was", "max_tokens": 4}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alloc")
    models = folder / "models"
    for name in ("simple", "simple_string", "simple_sequence", "identity_fp32", "ensemble_identity", "repeat_int32"):
        models.mkdir(exist_ok=True)
        (models / name).symlink_to(REPOSITORY / name)
    for name, model in (("text", "classics-10m"), ("t5", "m30k-t5"), ("bert", "polarity-bert")):
        (models / name).mkdir()
        (models / name / "1").symlink_to(ROOT / "models" / model)
    (models / "text/config.pbtxt").write_text(
        'backend: "engine" parameters { key: "chat_template" value { string_value: "chatml" } }')
    return models


@pytest.fixture(scope="module")
def campaign(repository):
    if not LIBRARY.exists():
        pytest.skip("this build has no failing_malloc.so: sanitizers have a malloc of their own")
    path = repository.parent / "control"
    control = Control(path)
    loads = [f"--load-model={name}" for name in ("text", "identity_fp32", "ensemble_identity", "repeat_int32")]
    with Server("--model-control-mode=explicit", *loads, repositories=(repository,),
                env={"LD_PRELOAD": str(LIBRARY), "FAILING_MALLOC": str(path)}) as server:
        fill_error_texts(server)
        yield Campaign(server, control)


def fill_error_texts(server, count=1100):
    """Fails often enough for the server's table of long error texts, which is bounded, to be full: it is no leak."""
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    for _ in range(count):
        connection.request("POST", "/v2/models/two%0alines/infer", json.dumps(FP32), {"Content-Type": "application/json"})
        assert "two\nlines" in json.loads(connection.getresponse().read())["error"]
    connection.close()


def exchange(server, method, path, body=None):
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return OK if answer.status == 200 and b'"error"' not in text else f"{answer.status} {text.decode(errors='replace')}"


def get(path):
    return lambda server: exchange(server, "GET", path)


def post(path, body):
    return lambda server: exchange(server, "POST", path, body)


def load_unload(name):
    def run(server):
        loaded = exchange(server, "POST", f"/v2/repository/models/{name}/load", {})
        unloaded = exchange(server, "POST", f"/v2/repository/models/{name}/unload", {})
        return loaded if loaded != OK else unloaded

    return run


def grpc_infer(server):
    client = grpcclient.InferenceServerClient(server.grpc, channel_args=[("grpc.use_local_subchannel_pool", 1)])
    tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    try:
        client.infer("identity_fp32", [tensor], client_timeout=20)
        return OK
    except grpcclient.InferenceServerException as e:
        return f"{e.status()} {e.message()}"
    finally:
        client.close()


def grpc_stream(server):
    """repeat_int32: three answers and the end of the stream."""
    answers = []
    client = grpcclient.InferenceServerClient(server.grpc, channel_args=[("grpc.use_local_subchannel_pool", 1)])
    inputs = []
    for name, dtype, values in (("IN", "INT32", [1, 2, 3]), ("DELAY", "UINT32", [0, 0, 0]), ("WAIT", "UINT32", [0])):
        array = np.array(values, np.int32 if dtype == "INT32" else np.uint32)
        inputs.append(grpcclient.InferInput(name, list(array.shape), dtype))
        inputs[-1].set_data_from_numpy(array)
    try:
        client.start_stream(lambda result, error: answers.append(error))
        client.async_stream_infer("repeat_int32", inputs)
        client.stop_stream()
    finally:
        client.close()
    errors = [str(e) for e in answers if e]
    return OK if len(answers) == 3 and not errors else f"{len(answers)} answers {errors}"


SCENARIOS = {
    "ready": get("/v2/health/ready"),
    "metadata": get("/v2/models/identity_fp32"),
    "index": post("/v2/repository/index", {}),
    "statistics": get("/v2/models/stats"),
    "infer": post("/v2/models/identity_fp32/infer", FP32),
    "ensemble": post("/v2/models/ensemble_identity/infer", FP32),
    "generate": post("/v2/models/text/generate", TEXT),
    "generate_stream": post("/v2/models/text/generate_stream", TEXT),
    "completions": post("/v1/completions", PROMPT),
    "chat": post("/v1/chat/completions", CHAT),
    "grpc": grpc_infer,
    "grpc_stream": grpc_stream,
    "load_simple": load_unload("simple"),
    "load_strings": load_unload("simple_string"),
    "load_sequence": load_unload("simple_sequence"),
    "load_t5": load_unload("t5"),
    "load_bert": load_unload("bert"),
}


def clear_error(text):
    """An HTTP status with a text, a gRPC status, or a stream's error; not a closed connection."""
    return text[:3].isdigit() or text.startswith("StatusCode") or "answers" in text


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_allocation_may_fail_once(campaign, name):
    campaign.problems.clear()
    found, tried, met = campaign.run(name, lambda: SCENARIOS[name](campaign.server), clear_error, seconds=SECONDS)
    print(f"{name}: {found} chains of callers allocate, {tried} were tried, {met} failed")
    assert not campaign.problems, "\n".join(campaign.problems)
    assert met > 0


def large_body(count):
    """One FP32 tensor of `count` elements as JSON."""
    return (b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,%d],"data":[' % count
            + b",".join([b"0.5"] * count) + b"]}]}")


def large_infer(server, body):
    with server.connect(60) as sock:
        try:
            sock.sendall(raw_request("/v2/models/identity_fp32/infer", body))
        except BrokenPipeError:
            pass  # it was refused before the whole body was sent
        return read_answer(sock)


@pytest.mark.skipif("asan" in str(PROA) or "tsan" in str(PROA), reason="a sanitizer needs the address space itself")
def test_a_server_without_memory_refuses_and_goes_on(start, repository):
    server = start("--model-control-mode=explicit", "--load-model=identity_fp32", "--load-model=text",
                   repositories=(repository,))
    body = large_body(4_000_000)
    assert large_infer(server, body)[0] == 200  # with memory this is served
    pid = server.process.pid
    text = open(f"/proc/{pid}/status", encoding="ascii").read()
    size = next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmSize"))
    unlimited = resource.prlimit(pid, resource.RLIMIT_AS, (size + (48 << 20), resource.RLIM_INFINITY))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: large_infer(server, body), range(8)))
    assert server.alive()
    refused = [body for status, _, body in answers if status != 200]
    assert refused and all(b'"error"' in body for body in refused)
    assert get("/v2/health/live")(server) == OK
    resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
    assert large_infer(server, body)[0] == 200
    assert post("/v1/completions", PROMPT)(server) == OK
