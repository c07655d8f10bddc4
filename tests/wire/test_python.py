# SPDX-License-Identifier: Apache-2.0
"""Models in Python: the contract of model.py end to end, and what happens when such a model misbehaves."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame, WindowUpdateFrame
from test_grpc_frames import STREAM, Client, framed
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException
from wire import Server, children_of, metric, raw_request, read_answer, shared_files, wait_until

PYTHON = {"PROA_PYTHON": sys.executable, "OPENBLAS_NUM_THREADS": "1"}
HEAD = """
import json, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def out(request, array, name="OUT"):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])

def value(request, name="IN"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
"""
IO = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""


def write_model(folder, name, code, config=IO):
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(HEAD + textwrap.dedent(code))
    (folder / name / "config.pbtxt").write_text('backend: "python"\n' + textwrap.dedent(config))


def execute_only(body):
    """A model whose execute is these lines, once for each request."""
    return ("class TritonPythonModel:\n    def execute(self, requests):\n        responses = []\n        for request in requests:\n"
            + textwrap.indent(textwrap.dedent(body), " " * 12) + "        return responses\n")


def ask(server, model, values=(1, 2, 3), path="infer", **more):
    body = {"inputs": [{"name": "IN", "shape": [len(values)], "datatype": "INT32", "data": list(values)}], **more}
    return requests.post(server.url(f"/v2/models/{model}/{path}"), json=body, timeout=30)


def out_of(answer, name="OUT"):
    assert answer.status_code == 200, answer.text
    return next(one["data"] for one in answer.json()["outputs"] if one["name"] == name)


def is_ready(server, model):
    return requests.get(server.url(f"/v2/models/{model}/ready"), timeout=30).status_code == 200


# ---- models that behave ----

BATCHED = """
max_batch_size: 64
dynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: [ 4 ] }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
MOODY = '''
class TritonPythonModel:
    """Ready says what the last input was: 1 yes, 0 no, 2 what is no boolean."""

    mood = 1

    async def is_ready(self):
        return 7 if self.mood == 2 else self.mood == 1

    def execute(self, requests):
        self.mood = int(value(requests[-1])[0])
        return [out(one, value(one)) for one in requests]
'''

GOOD = {
    "double": (execute_only("responses.append(out(request, value(request) * 2))\n"), IO),
    "same": (execute_only("responses.append(out(request, value(request)))\n"), IO),
    "batch": (execute_only("responses.append(out(request, np.array([[len(requests)]], np.int32)))\n"), BATCHED),
    "moody": (MOODY, IO),
}

STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } output_map { key: "%s" value: "%s" } }'
ENSEMBLE = {
    "native": 'backend: "identity"' + IO.replace('"IN"', '"INPUT0"').replace('"OUT"', '"OUTPUT0"'),
    "chain": 'platform: "ensemble"' + IO + "ensemble_scheduling { "
             + STEP % ("native", "INPUT0", "IN", "OUTPUT0", "a") + STEP % ("double", "IN", "a", "OUT", "b")
             + STEP % ("native", "INPUT0", "b", "OUTPUT0", "c") + STEP % ("same", "IN", "c", "OUT", "d")
             + STEP % ("native", "INPUT0", "d", "OUTPUT0", "OUT") + " }",
}  # yapf: disable


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    for name, (code, config) in GOOD.items():
        write_model(folder, name, code, config)
    for name, config in ENSEMBLE.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    with Server(repositories=(folder, ), env=PYTHON) as running:
        yield running


def metrics_of(server):
    return requests.get(f"http://{server.metrics}/metrics", timeout=30).text


def test_numpy_in_and_out(good):
    assert out_of(ask(good, "double", [1, -2, 3])) == [2, -4, 6]
    assert out_of(ask(good, "double", [])) == []


def test_inputs_are_copied_once_and_outputs_never(good):
    """Counters: an input goes into shared memory once, an output is answered from there."""

    def bytes_of(name, model):
        return metric(metrics_of(good), f"proa_python_{name}_bytes_total", model=model)

    before = [bytes_of(name, model) for model in ("double", "same") for name in ("input", "output", "passed")]
    out_of(ask(good, "double", range(1000)))
    assert out_of(ask(good, "same", range(1000))) == list(range(1000))
    after = [bytes_of(name, model) for model in ("double", "same") for name in ("input", "output", "passed")]
    assert [b - a for a, b in zip(before, after)] == [4000, 4000, 0, 4000, 0, 4000]


def test_ensemble_with_native_steps(good):
    """Native, Python, native, Python, native: the only copies are the two into the processes."""

    def copied():
        return metric(metrics_of(good), "proa_tensor_copied_bytes_total")

    before = copied()
    assert out_of(ask(good, "chain", range(1000))) == list(range(0, 2000, 2))
    assert copied() - before == 2 * 4000


def test_requests_of_a_batch_come_together(good):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        body = {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "INT32", "data": [1]}]}
        answers = list(pool.map(lambda _: requests.post(good.url("/v2/models/batch/infer"), json=body, timeout=30), range(4)))
    assert max(out_of(one)[0] for one in answers) > 1


def test_is_ready_is_asked(good):
    assert is_ready(good, "moody")
    for mood, ready in ((0, False), (1, True), (2, False), (1, True)):
        out_of(ask(good, "moody", [mood]))
        wait_until(lambda: is_ready(good, "moody") == ready)


def test_request_larger_than_what_stays_in_memory(good):
    """36 MB in and out, twice: shared memory grows for it, and is given back."""
    values = np.arange(9 << 20, dtype=np.int32)
    head = json.dumps({"inputs": [{"name": "IN", "shape": [len(values)], "datatype": "INT32",
                                   "parameters": {"binary_data_size": values.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()
    pid = next(pid for pid, _ in children_of(good.process.pid) if b"double" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    for _ in range(2):
        answer = requests.post(good.url("/v2/models/double/infer"), data=head + values.tobytes(), timeout=60,
                               headers={"Inference-Header-Content-Length": str(len(head))})
        at = int(answer.headers["Inference-Header-Content-Length"])
        assert np.array_equal(np.frombuffer(answer.content[at:], np.int32), values * 2)
    assert out_of(ask(good, "double", [1])) == [2]  # whose end gives back what was before
    for fd in (4, 5):
        assert os.stat(f"/proc/{pid}/fd/{fd}").st_blocks * 512 <= 34 << 20


# ---- models that answer when they like ----

DECOUPLED = IO + "model_transaction_policy { decoupled: true }\n"
THREADS = '''
class TritonPythonModel:
    """IN[i] as one reply each, from a thread for each request; -1 waits for the client to go, and notes it."""

    def initialize(self, args):
        self.folder = args["model_repository"]

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(), value(request).copy())).start()

    def answer(self, sender, values):
        for one in values:
            while one == -1 and not sender.is_cancelled():
                time.sleep(0.005)
            if one == -1:
                open(self.folder + "/cancelled", "w").close()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([one], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
MUCH = '''
class TritonPythonModel:
    """IN[0] replies of IN[1] numbers each, until the client has gone: how many were made is noted then."""

    def initialize(self, args):
        self.folder = args["model_repository"]

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(), *value(request).tolist())).start()

    def answer(self, sender, count, size):
        made = 0
        while made < count and not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size, np.int32))]))
            made += 1
            time.sleep(0.005)  # what the server writes of it takes less
        with open(self.folder + "/noted", "w") as file:
            file.write(str(made))
        os.rename(self.folder + "/noted", self.folder + "/made")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
LATER = '''
class TritonPythonModel:
    """Answers through senders, after execute has returned None, though it is not decoupled; -1: never."""

    def execute(self, requests):
        for request in requests:
            sender, values = request.get_response_sender(), value(request)
            if values[0] != -1:
                threading.Timer(0.05, lambda s=sender, v=values: s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", v + 1)]),
                                                        pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)).start()
        return None
'''


WAITS = """
class TritonPythonModel:

    def initialize(self, args):
        self.folder = args["model_repository"]

    def execute(self, requests):
        open(self.folder + "/begun", "w").close()
        while not requests[0].is_cancelled():
            time.sleep(0.005)
        open(self.folder + "/cancelled", "w").close()
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("given up", pb_utils.TritonError.CANCELLED))]
"""
IMPATIENT = """
class TritonPythonModel:

    def execute(self, requests):
        threading.Timer(0.2, lambda: os._exit(5)).start()
        call = pb_utils.InferenceRequest(model_name="waits", requested_output_names=["OUT"], inputs=requests[0].inputs())
        return [call.exec()]
"""


@pytest.fixture(scope="module")
def decoupled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoupled")
    write_model(folder, "waits", WAITS)
    write_model(folder, "impatient", IMPATIENT)
    write_model(folder, "threads", THREADS, DECOUPLED)
    write_model(folder, "much", MUCH, DECOUPLED)
    write_model(folder, "later", LATER)
    with Server(repositories=(folder, ), env=PYTHON) as running:
        running.folder = folder
        yield running


def events(server, model, values):
    body = {"IN": list(values)}
    with requests.post(server.url(f"/v2/models/{model}/generate_stream"), json=body, stream=True, timeout=30) as answer:
        return [json.loads(line[6:])["OUT"] for line in answer.iter_lines() if line.startswith(b"data: ")]


def test_decoupled_replies_from_threads(decoupled):
    assert events(decoupled, "threads", range(50)) == list(range(50))
    assert events(decoupled, "threads", []) == []


def test_decoupled_model_hears_that_its_client_has_gone(decoupled):
    with requests.post(decoupled.url("/v2/models/threads/generate_stream"), json={"IN": [5, -1]}, stream=True, timeout=30) as answer:
        assert next(answer.iter_lines()).startswith(b"data: ")
    wait_until((decoupled.folder / "threads/cancelled").exists)


def made(server):
    """How many replies the model "much" has made when it ended; None: it has not ended."""
    file = server.folder / "much/made"
    if not file.exists():
        return None
    count = int(file.read_text())
    file.unlink()
    return count


def ended(server):
    """Waits for the model "much" to end; says how many replies it has made."""
    wait_until((server.folder / "much/made").exists, seconds=60)
    return made(server)


def test_stream_that_is_not_read_over_http(decoupled):
    """What a client leaves unread has a limit. Then the model is told to stop, and the client why, after all that was sent."""
    size, most, got, count = 500_000, 256 << 20, [], None
    connection = http.client.HTTPConnection(decoupled.http, timeout=60)
    connection.request("POST", "/v2/models/much/generate_stream", json.dumps({"IN": [2000, size]}))
    answer = connection.getresponse()
    while (count := made(decoupled)) is None:  # slow, but never as slow as nobody
        got.append(answer.read(1 << 16))
        time.sleep(0.1)
    assert count < 2000
    body = b"".join(got) + answer.read()
    connection.close()
    events = body.split(b"\n\n")
    assert answer.status == 200 and most < len(body) < most + (64 << 20)
    assert json.loads(events[-2][6:]) == {"error": "the client does not read its answers"} and events[-1] == b""
    assert all(json.loads(event[6:])["OUT"] == [0] * size for event in (events[0], events[-3]))


def much_over_grpc(server, count, size, window):
    """A stream whose client lets no byte come, or all."""
    client = Client(server, settings=False)
    client.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: window}), WindowUpdateFrame(0, window_increment=(1 << 31) - 65536))
    asked = pb.ModelInferRequest(model_name="much")
    asked.inputs.add(name="IN", datatype="INT32").shape.append(2)
    asked.raw_input_contents.append(np.array([count, size], np.int32).tobytes())
    client.send(client.head(1, STREAM), client.data(1, framed(asked.SerializeToString())))
    return client


def end_of(client):
    """Fields of the call's end, and how many bytes came before it."""
    fields, got = {}, 0
    while "grpc-status" not in fields:
        frame = client.read(60)
        if isinstance(frame, HeadersFrame):
            fields.update(client.decoder.decode(frame.data))
        elif isinstance(frame, DataFrame):
            got += len(frame.data)
    return fields, got


def test_stream_that_is_not_read_over_grpc(decoupled):
    with much_over_grpc(decoupled, 2000, 250_000, 0) as client:
        assert ended(decoupled) < 2000
        client.send(WindowUpdateFrame(1, window_increment=(1 << 31) - 1))
        fields, got = end_of(client)
    assert (fields["grpc-status"], fields["grpc-message"]) == ("8", "the client does not read its answers")
    assert 256 << 20 < got < 320 << 20


def test_large_reply_of_a_stream(decoupled):
    """One reply may be larger than what a client may leave unread: this one does read."""
    with much_over_grpc(decoupled, 1, 70_000_000, (1 << 31) - 1) as client:
        fields, got = end_of(client)
    assert fields["grpc-status"] == "0" and got > 280_000_000
    assert ended(decoupled) == 1


def test_response_after_execute_has_returned(decoupled):
    assert out_of(ask(decoupled, "later", [1, 2])) == [2, 3]
    answer = ask(decoupled, "later", [-1])
    assert answer.status_code == 500 and "let go of the response sender" in answer.text


def test_client_that_goes_is_heard_of_in_execute(decoupled):
    begun, noted = decoupled.folder / "waits/begun", decoupled.folder / "waits/cancelled"
    begun.unlink(missing_ok=True)
    body = json.dumps({"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}).encode()
    with decoupled.connect() as sock:
        sock.sendall(raw_request("/v2/models/waits/infer", body))
        wait_until(begun.exists)
    wait_until(noted.exists)
    noted.unlink()


def test_calls_of_a_process_that_dies_are_cancelled(decoupled):
    answer = ask(decoupled, "impatient")
    assert answer.status_code == 500 and "'impatient_0' is not healthy. It ended with exit status 5" in answer.text
    wait_until((decoupled.folder / "waits/cancelled").exists)
    wait_until(lambda: is_ready(decoupled, "impatient"))


# ---- models that misbehave: one error each, a new process, and the rest serves ----

FAULTS = '''
class TritonPythonModel:

    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        values = value(requests[0])
        if values[0] == -1:
            getattr(self, self.name)()
        return [out(one, value(one) * 2) for one in requests]

    def segfault(self):
        os.kill(os.getpid(), 11)

    def exits(self):
        sys.exit(3)

    def leaves(self):
        os._exit(4)

    def raises(self):
        raise ValueError("no such luck")

    def hangs(self):
        while True:
            pass

    def eats(self):
        hoard = []
        while True:
            hoard.append(np.empty(1 << 20))

    def scribbles(self):
        pb_utils._channel.send((66, 1, 12345, 1 << 40, 1 << 40, 0))
        time.sleep(20)

    def pair(self):
        os._exit(6)

    brittle = pair
'''
FAULT_CONFIG = {
    "segfault": "", "exits": "", "leaves": "", "raises": "", "scribbles": "",
    "pair": "instance_group { count: 2 }", "brittle": "",
    "hangs": 'parameters { key: "execute_timeout_ms" value { string_value: "1500" } }',
    "eats": 'parameters { key: "memory_limit_mb" value { string_value: "1500" } }',
}  # yapf: disable
WRONG = {
    "wrong_name": ("responses.append(out(request, value(request), 'ELSE'))", "unexpected output 'ELSE'"),
    "wrong_type": ("responses.append(out(request, value(request).astype(np.float32)))", "has type FP32, its configuration says INT32"),
    "wrong_rank": ("responses.append(out(request, value(request).reshape(1, -1)))", "has shape [1,3], its configuration says [-1]"),
    "wrong_count": ("pass", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0"),
    "wrong_item": ("responses.append(7)", "Expected an 'InferenceResponse' object in the execute function return list, found type"),
}  # yapf: disable


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    for name, config in FAULT_CONFIG.items():
        write_model(folder, name, FAULTS, IO + config)
    for name, (body, _) in WRONG.items():
        write_model(folder, name, execute_only(body + "\n"), IO + 'parameters { key: "strict_outputs" value { string_value: "true" } }')
    write_model(folder, "sound", *GOOD["double"])
    write_model(folder, "caller", execute_only("""
        inner = pb_utils.InferenceRequest(model_name="segfault", requested_output_names=["OUT"], inputs=request.inputs()).exec()
        responses.append(inner)
    """))
    with Server(repositories=(folder, ), env=PYTHON) as running:
        yield running


@pytest.mark.parametrize("model, text", [
    ("segfault", "Stub process 'segfault_0' is not healthy. It was killed by signal 11"),
    ("exits", "Stub process 'exits_0' is not healthy. It ended with exit status 3"),
    ("leaves", "Stub process 'leaves_0' is not healthy. It ended with exit status 4"),
    ("hangs", "Stub process 'hangs_0' is not healthy. It was killed: execute took longer than 1500 ms"),
    ("scribbles", "Stub process 'scribbles_0' is not healthy. It was killed: the process sent a payload outside its memory"),
])
def test_process_that_ends_is_started_again(faults, model, text):
    assert out_of(ask(faults, model, [1])) == [2]
    starts = metric(metrics_of(faults), "proa_python_process_starts_total", model=model)
    answer = ask(faults, model, [-1])
    assert answer.status_code == 500 and text in answer.json()["error"]
    assert not is_ready(faults, model) or \
        metric(metrics_of(faults), "proa_python_process_starts_total", model=model) == starts + 1  # it may be that quick
    assert is_ready(faults, "sound")
    assert out_of(ask(faults, "sound", [4])) == [8]
    assert out_of(ask(faults, model, [1])) == [2]  # waits for the new process
    assert is_ready(faults, model)
    assert metric(metrics_of(faults), "proa_python_process_starts_total", model=model) == starts + 1
    assert all(state != "Z" for _, state in children_of(faults.process.pid))


def process_of(server, model):
    """The process of the first instance; None while there is none."""
    for pid, _ in children_of(server.process.pid):
        with contextlib.suppress(OSError):  # it ended in the meantime
            if f"{model}_0".encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def test_process_that_is_killed_while_it_waits(faults):
    wait_until(lambda: is_ready(faults, "raises"))
    children, pid = children_of(faults.process.pid), process_of(faults, "raises")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid) and process_of(faults, "raises") not in (None, pid))
    wait_until(lambda: is_ready(faults, "raises"))
    assert out_of(ask(faults, "raises", [1])) == [2]
    assert len(children_of(faults.process.pid)) == len(children)


def test_process_that_is_stopped(faults):
    """Nobody may ever continue it: it counts as one that hangs, with its request and without; a short stop does not."""
    wait_until(lambda: is_ready(faults, "leaves"))

    def stop():
        pid = process_of(faults, "leaves")
        os.kill(pid, signal.SIGSTOP)
        return pid

    pid = stop()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, faults, "leaves", [1])
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        assert out_of(asked.result()) == [2]
    stop()
    answer = ask(faults, "leaves", [1])
    assert answer.status_code == 500
    assert "Stub process 'leaves_0' is not healthy. It was killed: it was stopped (SIGSTOP) for more than 5000 ms" in answer.text
    assert out_of(ask(faults, "leaves", [1])) == [2]
    pid = stop()
    wait_until(lambda: gone(pid))
    wait_until(lambda: is_ready(faults, "leaves"))


STUCK_START = """
class TritonPythonModel:
    def initialize(self, args):
        open(FLAG, "w").close()
        time.sleep(1000)

    def execute(self, requests):
        return [out(one, value(one)) for one in requests]
"""


def test_process_that_is_stopped_before_it_serves(start, tmp_path):
    """A load does not wait for ever for a process that is stopped in initialize."""
    flag = tmp_path / "flag"
    write_model(tmp_path / "models", "opens", f"FLAG = {str(flag)!r}\n" + STUCK_START)
    running = start("--model-control-mode", "explicit", repositories=[tmp_path / "models"], env=PYTHON)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loading = pool.submit(requests.post, running.url("/v2/repository/models/opens/load"), timeout=20)
        wait_until(flag.exists)
        pid = children_of(running.process.pid)[0][0]
        os.kill(pid, signal.SIGSTOP)
        try:
            answer = loading.result(15)
        finally:
            if not loading.done():
                os.kill(pid, signal.SIGKILL)
    assert answer.status_code != 200 and "it was stopped (SIGSTOP) for more than 5000 ms" in answer.text
    assert gone(pid)


def test_pauses_grow_and_requests_do_not_wait_for_ever(faults):
    """A process that ends with each request: in the end a request comes while none runs for long."""
    codes = []
    for _ in range(8):
        codes.append(ask(faults, "brittle", [-1]).status_code)
        if codes[-1] == 503:
            break
    assert codes[-1] == 503 and codes[0] == 500
    assert not is_ready(faults, "brittle")


def test_other_instances_help_out(faults):
    """One of two processes is gone: no request fails for that, nor waits for its start."""
    wait_until(lambda: is_ready(faults, "pair"))
    assert ask(faults, "pair", [-1]).status_code == 500
    assert [out_of(ask(faults, "pair", [k])) for k in range(20)] == [[2 * k] for k in range(20)]
    wait_until(lambda: is_ready(faults, "pair"))


def test_caller_of_a_model_that_crashes(faults):
    wait_until(lambda: is_ready(faults, "segfault"))
    starts = metric(metrics_of(faults), "proa_python_process_starts_total", model="caller")
    assert out_of(ask(faults, "caller", [2])) == [4]
    answer = ask(faults, "caller", [-1])
    assert answer.status_code == 500 and "Stub process 'segfault_0' is not healthy. It was killed by signal 11" in answer.text
    wait_until(lambda: is_ready(faults, "segfault"))
    assert out_of(ask(faults, "caller", [2])) == [4]
    assert metric(metrics_of(faults), "proa_python_process_starts_total", model="caller") == starts


def test_exception_is_the_error_of_its_request_only(faults):
    starts = metric(metrics_of(faults), "proa_python_process_starts_total", model="raises")
    answer = ask(faults, "raises", [-1])
    assert answer.status_code == 500
    assert "Failed to process the request(s) for model 'raises_0', message: ValueError: no such luck" in answer.json()["error"]
    assert "model.py" in answer.json()["error"]
    assert out_of(ask(faults, "raises", [3])) == [6]
    assert metric(metrics_of(faults), "proa_python_process_starts_total", model="raises") == starts


def test_memory_limit(faults):
    answer = ask(faults, "eats", [-1])
    assert answer.status_code == 500 and "MemoryError" in answer.text
    assert out_of(ask(faults, "eats", [3])) == [6]


@pytest.mark.parametrize("model", WRONG)
def test_wrong_responses(faults, model):
    for _ in range(2):
        answer = ask(faults, model)
        assert answer.status_code == 500 and WRONG[model][1] in answer.json()["error"], answer.text
    assert is_ready(faults, model)


NO_MODELS = {
    "syntax": ("class TritonPythonModel\n", "SyntaxError"),
    "no_class": ("class Other: pass\n", "has no class TritonPythonModel"),
    "no_execute": ("class TritonPythonModel: pass\n", "must have an 'execute' function"),
    "no_start": (execute_only("pass\n") + "    def initialize(self, args):\n        raise RuntimeError('not today')\n", "not today"),
    "no_import": ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "quits": ("os._exit(7)\n", "ended with exit status 7"),
}  # yapf: disable


def test_models_that_do_not_load(tmp_path, start):
    for name, (code, _) in NO_MODELS.items():
        write_model(tmp_path, name, code)
    write_model(tmp_path, "forced", GOOD["same"][0],
                IO + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }')
    write_model(tmp_path, "gpu", GOOD["same"][0], IO + "instance_group { kind: KIND_GPU gpus: [ 63 ] }")
    write_model(tmp_path, "no_file", "")
    (tmp_path / "no_file/1/model.py").unlink()
    write_model(tmp_path, "sound", *GOOD["double"])
    server = start("--exit-on-error=false", repositories=(tmp_path, ), env=PYTHON)
    index = requests.post(server.url("/v2/repository/index"), timeout=30).json()
    reasons = {one["name"]: one.get("reason", "") for one in index}
    for name, (_, text) in NO_MODELS.items():
        assert text in reasons[name], (name, reasons[name])
    assert "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe" in reasons["forced"]
    assert "model.py" in reasons["no_file"]
    assert "no GPUs are available" in reasons["gpu"] or "asks for GPU 63 of" in reasons["gpu"]
    assert out_of(ask(server, "sound", [4])) == [8]
    assert len(children_of(server.process.pid)) == 1


def test_instances_start_side_by_side(tmp_path, start):
    """Four that each need the three others to have begun; and one of four that fails ends them all."""
    meet = """
        class TritonPythonModel:
            def initialize(self, args):
                folder = args["model_repository"] + "/1/"
                open(folder + args["model_instance_name"], "w").close()
                while len(os.listdir(folder)) < 5:
                    time.sleep(0.01)
                if os.path.basename(folder[:-3]) == "fail" and args["model_instance_name"].endswith("2"):
                    raise RuntimeError("the third does not want to")
            def execute(self, requests):
                return [out(one, value(one)) for one in requests]
    """
    for name in ("meet", "fail"):
        write_model(tmp_path, name, meet, IO + "instance_group { count: 4 }")
    server = start("--exit-on-error=false", repositories=(tmp_path, ), env={**PYTHON, "PYTHONDONTWRITEBYTECODE": "1"})
    assert out_of(ask(server, "meet", [1])) == [1]
    index = requests.post(server.url("/v2/repository/index"), timeout=30).json()
    assert any("the third does not want to" in one.get("reason", "") for one in index)
    assert len(children_of(server.process.pid)) == 4


def test_interpreter_without_numpy(tmp_path, start):
    (tmp_path / "path").mkdir()
    (tmp_path / "path/numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n")
    write_model(tmp_path / "models", "sound", *GOOD["double"])
    server = start("--exit-on-error=false", repositories=(tmp_path / "models", ), env={**PYTHON, "PYTHONPATH": str(tmp_path / "path")})
    index = requests.post(server.url("/v2/repository/index"), timeout=30).json()
    assert "has no numpy, which Python models need" in index[0]["reason"]


# ---- ends ----


def gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists() or "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()


SHARES = """
import sys
from multiprocessing import shared_memory
region = shared_memory.SharedMemory(create=True, size=64)
print(region.name, flush=True)
sys.stdin.read()
region.unlink()
"""


@pytest.fixture
def other_program():
    """A program that has a region in /dev/shm, as a tritonserver with Python models does."""
    with subprocess.Popen([sys.executable, "-c", SHARES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.region = "/dev/shm/" + process.stdout.readline().strip()
        yield process
        process.communicate()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(tmp_path, other_program, end):
    """A process that computes for ever does not outlive its server; neither has a file in /dev/shm, so none is left."""
    assert shared_files(other_program.pid) == {other_program.region}
    write_model(tmp_path, "hangs", FAULTS, IO + FAULT_CONFIG["hangs"].replace("1500", "60000"))
    write_model(tmp_path, "sound", *GOOD["double"])
    server = Server(repositories=(tmp_path, ), env=PYTHON).__enter__()
    pids = [pid for pid, _ in children_of(server.process.pid)]
    assert len(pids) == 2
    assert out_of(ask(server, "sound", [4])) == [8]
    assert not shared_files(server.process.pid)
    if end == signal.SIGKILL:
        with pytest.raises(requests.exceptions.Timeout):
            requests.post(server.url("/v2/models/hangs/infer"), timeout=0.3,
                          json={"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [-1]}]})
        assert not shared_files(server.process.pid)
    server.stop(end)
    wait_until(lambda: all(gone(pid) for pid in pids))


# ---- loads that wait ----

SLOW_START = """
class TritonPythonModel:
    def initialize(self, args):
        while os.path.exists(FLAG):
            time.sleep(0.02)

    def execute(self, requests):
        return [out(one, value(one)) for one in requests]
"""


def answered(socks):
    """Those that have something to read; there are more than select takes."""
    poll, by_fd = select.poll(), {sock.fileno(): sock for sock in socks}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(0)]


def test_loads_that_wait_have_a_limit(start, tmp_path):
    """Four threads load; 1,024 more requests wait for them, and the next ones are told so at once, by either face."""
    flag, threads, waiting = tmp_path / "flag", 4, 1024
    flag.touch()
    for i in range(threads):
        write_model(tmp_path / "models", f"slow{i}", f"FLAG = {str(flag)!r}\n" + SLOW_START)
    running = start("--model-control-mode", "explicit", repositories=[tmp_path / "models"], env=PYTHON)
    states = lambda: [m.get("state") for m in requests.post(running.url("/v2/repository/index"), timeout=30).json()]
    with contextlib.ExitStack() as open_ones:
        open_ones.callback(flag.unlink, missing_ok=True)

        def send(path):
            sock = open_ones.enter_context(running.connect(60))
            sock.sendall(raw_request(path))
            return sock

        loads = [send(f"/v2/repository/models/slow{i}/load") for i in range(threads)]
        wait_until(lambda: states() == ["LOADING"] * threads)
        rest = [send("/v2/repository/models/none/unload") for _ in range(waiting + 40)]
        wait_until(lambda: len(answered(rest)) >= 40)
        refused = answered(rest)
        assert len(refused) == 40
        for sock in refused:
            status, headers, body = read_answer(sock)
            assert (status, headers["retry-after"]) == (429, "1")
            assert json.loads(body)["error"] == f"Exceeds maximum queue size: {waiting} model loads and unloads wait already"
        with grpc.InferenceServerClient(running.grpc) as client, pytest.raises(InferenceServerException) as refusal:
            client.load_model("slow0")
        assert refusal.value.status() == "StatusCode.UNAVAILABLE" and "Exceeds maximum queue size" in refusal.value.message()
        flag.unlink()
        assert [read_answer(sock)[0] for sock in loads] == [200] * threads
        assert all(read_answer(sock)[0] != 429 for sock in rest if sock not in refused)
        assert read_answer(send("/v2/repository/models/slow0/unload"))[0] == 200
