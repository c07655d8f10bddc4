# SPDX-License-Identifier: Apache-2.0
"""Texts of errors arrive as the model made them: their length and their line ends, over every route."""
import json

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
from test_python import IO, PYTHON, STEP, ask, write_model
from tritonclient.utils import InferenceServerException
from wire import Server

LINES = 'schön "quoted" \n newline \x01 ctrl\tend'
HTTP_MAX, GRPC_MAX = 64 << 10, 4 << 10
# The first input value is the length of the text; 0: LINES.
ERRORS = f'''
def text_of(size):
    return ("line\\n" * (size // 5 + 1))[:size] if size else {LINES!r}

class TritonPythonModel:

    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(text_of(int(value(one)[0])))) for one in requests]
'''
CALLER = '''
class TritonPythonModel:

    def execute(self, requests):
        answers = []
        for one in requests:
            answer = pb_utils.InferenceRequest(model_name="errors", requested_output_names=["OUT"], inputs=one.inputs()).exec()
            answers.append(pb_utils.InferenceResponse(error=answer.error()))
        return answers
'''
STREAM = '''
class TritonPythonModel:

    def execute(self, requests):
        for one in requests:
            text = ("line\\n" * (int(value(one)[0]) // 5 + 1))[:int(value(one)[0])]
            one.get_response_sender().send(pb_utils.InferenceResponse(error=pb_utils.TritonError(text)),
                                           pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
BROKEN = '''
class TritonPythonModel:

    def initialize(self, args):
        raise pb_utils.TritonModelException("first line\\n" + "x" * 5000 + "\\nlast line")

    def execute(self, requests):
        return []
'''
LOADS = '''
class TritonPythonModel:

    def execute(self, requests):
        try:
            pb_utils.load_model("broken")
        except pb_utils.TritonModelException as error:
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))) for _ in requests]
'''
MODELS = {
    "errors": (ERRORS, IO),
    "caller": (CALLER, IO),
    "stream": (STREAM, IO + "model_transaction_policy { decoupled: true }"),
    "broken": (BROKEN, IO),
    "loads": (LOADS, IO),
}
ENSEMBLED = 'platform: "ensemble"' + IO + "ensemble_scheduling { " + STEP % ("errors", "IN", "IN", "OUT", "OUT") + " }"


def lines(size):
    return ("line\n" * (size // 5 + 1))[:size]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("errors")
    for name, (code, config) in MODELS.items():
        write_model(folder, name, code, config)
    (folder / "ensembled" / "1").mkdir(parents=True)
    (folder / "ensembled" / "config.pbtxt").write_text(ENSEMBLED)
    with Server("--model-control-mode=explicit", "--load-model=errors", "--load-model=caller", "--load-model=stream", "--load-model=loads",
                "--load-model=ensembled", repositories=(folder, ), env=PYTHON) as running:
        yield running


def grpc_error(server, model, size):
    tensor = grpc.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.array([size], np.int32))
    with grpc.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer(model, [tensor])
    return caught.value.message()


@pytest.mark.parametrize("model", ["errors", "caller", "ensembled"])
@pytest.mark.parametrize("size", [0, 479, 480, 481, 4000, 10000, 60000])
def test_http(server, model, size):
    answer = ask(server, model, [size])
    assert answer.status_code == 500
    text = answer.json()["error"]
    prefix = "in ensemble 'ensembled', " if model == "ensembled" else ""
    assert text == prefix + (lines(size) if size else LINES)


def test_http_cuts_at_64_kib(server):
    assert ask(server, "errors", [HTTP_MAX]).json()["error"] == lines(HTTP_MAX)
    assert ask(server, "errors", [HTTP_MAX + 1]).json()["error"] == lines(HTTP_MAX)


@pytest.mark.parametrize("size", [0, 480, 4000, GRPC_MAX])
def test_grpc(server, size):
    assert grpc_error(server, "errors", size) == (lines(size) if size else LINES)
    assert grpc_error(server, "caller", size) == (lines(size) if size else LINES)


def test_grpc_cuts_at_4_kib(server):
    assert grpc_error(server, "errors", 10000) == lines(GRPC_MAX)


@pytest.mark.parametrize("size", [480, 10000, 60000])
def test_streams(server, size):
    answer = requests.post(server.url("/v2/models/stream/generate_stream"), json={"IN": size}, timeout=30)
    assert json.loads(answer.text.removeprefix("data: "))["error"] == lines(size)
    answers = []
    tensor = grpc.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.array([size], np.int32))
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.append(error))
        client.async_stream_infer("stream", [tensor])
        client.stop_stream()
    assert answers[0].message() == lines(size)


def test_a_failed_load(server):
    whole = "first line\n" + "x" * 5000 + "\nlast line"
    answer = requests.post(server.url("/v2/repository/models/broken/load"), json={}, timeout=30)
    assert answer.status_code == 400 and whole in answer.json()["error"]
    index = requests.post(server.url("/v2/repository/index"), json={}, timeout=30).json()
    assert whole in next(one["reason"] for one in index if one["name"] == "broken")
    with grpc.InferenceServerClient(server.grpc) as client:
        index = client.get_model_repository_index().models
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("broken")
    assert whole in next(one.reason for one in index if one.name == "broken")
    assert "first line\nxxx" in caught.value.message() and len(caught.value.message()) == GRPC_MAX
    assert whole in ask(server, "loads").json()["error"]


def test_the_log_keeps_one_line_an_entry(server):
    ask(server, "errors", [0])
    assert not any(line.startswith(" newline") for line in server.log_text().splitlines())
