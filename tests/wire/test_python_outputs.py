# SPDX-License-Identifier: Apache-2.0
"""Outputs of a Python model: which ones it is asked for, and what becomes of those that its configuration does not describe."""
import json
import os

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from test_python import ENSEMBLE, IO, PYTHON, STEP, ask, out_of, write_model
from wire import Server

# The first input value names the case.
ODD = '''
CASES = {
    1: lambda: [pb_utils.Tensor("OUT", np.array([1.5, 2.5, 3.5]))],
    2: lambda: [pb_utils.Tensor("OUT", np.array([[1, 2], [3, 4]], np.int32))],
    3: lambda: [pb_utils.Tensor("NOPE", np.array([1], np.int32))],
    4: lambda: [pb_utils.Tensor("NOPE", np.array([1], np.int32)), pb_utils.Tensor("OUT", np.array([7], np.int32))],
    5: lambda: [pb_utils.Tensor("OUT", np.array([b"text", b""], dtype=np.object_))],
    6: lambda: [pb_utils.Tensor("OUT", np.array([1, 2], np.int32))],
    7: lambda: [pb_utils.Tensor("OUT", np.array(9, np.int32))],
}

class TritonPythonModel:

    def initialize(self, args):
        self.decoupled = "model_transaction_policy" in json.loads(args["model_config"])

    def execute(self, requests):
        answers = [pb_utils.InferenceResponse(CASES[int(value(one).ravel()[0])]()) for one in requests]
        if not self.decoupled:
            return answers
        for one, answer in zip(requests, answers):
            sender = one.get_response_sender()
            sender.send(answer)
            sender.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
NAMES = '''
class TritonPythonModel:

    def execute(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        names = request.requested_output_names()
        assert isinstance(names, set)
        text = np.array([" ".join(sorted(names)).encode()], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("FIRST", text), pb_utils.Tensor("SECOND", text)])
'''
CALLER = '''
class TritonPythonModel:

    def execute(self, requests):
        answers = []
        for one in requests:
            wanted = ["FIRST"] if value(one)[0] else []
            inner = pb_utils.InferenceRequest(model_name="names", requested_output_names=wanted, inputs=one.inputs())
            assert inner.requested_output_names() == set(wanted)
            answers.append(inner.exec())
            if wanted:
                assert [t.name() for t in answers[-1].output_tensors()] == wanted
        return answers
'''
TEXTS = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "FIRST" data_type: TYPE_STRING dims: [ 1 ] }, { name: "SECOND" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
STRICT = 'parameters { key: "strict_outputs" value { string_value: "%s" } }'
BATCHED = """
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ]
"""
MODELS = {
    "odd": (ODD, IO),
    "odd_strict": (ODD, IO + STRICT % "true"),
    "odd_stream": (ODD, IO + "model_transaction_policy { decoupled: true }"),
    "odd_cached": (ODD, IO + "response_cache { enable: true }"),
    "odd_batched": (ODD, BATCHED),
    "names": (NAMES, TEXTS),
    "names_caller": (CALLER, TEXTS),
    "names_sequence": (NAMES, TEXTS + "sequence_batching { }"),
}
CONFIGS = {
    "native": ENSEMBLE["native"],
    "odd_then_same": 'platform: "ensemble"' + IO + "ensemble_scheduling { " + STEP % ("odd", "IN", "IN", "OUT", "a")
                     + STEP % ("native", "INPUT0", "a", "OUTPUT0", "OUT") + " }",
    "odd_alone": 'platform: "ensemble"' + IO + "ensemble_scheduling { " + STEP % ("odd", "IN", "IN", "OUT", "OUT") + " }",
}  # yapf: disable
AS_MADE = {
    1: ("FP64", [3], [1.5, 2.5, 3.5]),
    2: ("INT32", [2, 2], [1, 2, 3, 4]),
    4: ("INT32", [1], [7]),
    5: ("BYTES", [2], ["text", ""]),
    6: ("INT32", [2], [1, 2]),
    7: ("INT32", [], [9]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("outputs")
    for name, (code, config) in MODELS.items():
        write_model(path, name, code, config)
    for name, config in CONFIGS.items():
        (path / name / "1").mkdir(parents=True)
        (path / name / "config.pbtxt").write_text(config)
    return path


@pytest.fixture(scope="module")
def server(folder):
    with Server("--allow-client-shm=true", "--cache-config=local,size=1000000", repositories=(folder, ), env=PYTHON) as running:
        yield running


def outputs_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"]


# ---- outputs that the configuration does not describe ----


@pytest.mark.parametrize("model", ["odd", "odd_alone", "odd_cached"])
@pytest.mark.parametrize("case", AS_MADE)
def test_type_and_shape_are_the_models_own(server, model, case):
    datatype, shape, data = AS_MADE[case]
    for _ in range(2):  # the second one may come from the cache
        assert outputs_of(ask(server, model, [case])) == [{"name": "OUT", "datatype": datatype, "shape": shape, "data": data}]


def test_unknown_names_are_dropped(server):
    assert outputs_of(ask(server, "odd", [3])) == []
    assert outputs_of(ask(server, "odd", [3], outputs=[{"name": "OUT"}])) == []


def test_over_grpc(server):
    with grpc.InferenceServerClient(server.grpc) as client:
        tensor = grpc.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([1], np.int32))
        output = client.infer("odd", [tensor]).as_numpy("OUT")
        assert output.dtype == np.float64 and output.tolist() == [1.5, 2.5, 3.5]


def test_binary_and_classes_go_by_the_real_type(server):
    with http.InferenceServerClient(server.http) as client:
        tensor = http.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([1], np.int32))
        output = client.infer("odd", [tensor]).as_numpy("OUT")
        assert output.dtype == np.float64 and output.tolist() == [1.5, 2.5, 3.5]
        classes = client.infer("odd", [tensor], outputs=[http.InferRequestedOutput("OUT", class_count=2)]).as_numpy("OUT")
        assert classes.tolist() == [b"3.500000:2", b"2.500000:1"]
    answer = ask(server, "odd", [5], outputs=[{"name": "OUT", "parameters": {"classification": 1}}])
    assert answer.status_code == 400 and "unsupported type 'BYTES'" in answer.json()["error"]


def test_shared_memory_takes_what_was_made(server):
    key = f"/proa-odd-{os.getpid()}"
    memory = shm.create_shared_memory_region("odd", key, 24)
    with http.InferenceServerClient(server.http) as client:
        try:
            client.register_system_shared_memory("odd", key, 24)
            tensor, output = http.InferInput("IN", [1], "INT32"), http.InferRequestedOutput("OUT")
            tensor.set_data_from_numpy(np.array([1], np.int32))
            output.set_shared_memory("odd", 24)
            client.infer("odd", [tensor], outputs=[output])
            assert shm.get_contents_as_numpy(memory, np.float64, [3]).tolist() == [1.5, 2.5, 3.5]
            output.set_shared_memory("odd", 12)  # room for three INT32, as the configuration has it
            with pytest.raises(http.InferenceServerException):
                client.infer("odd", [tensor], outputs=[output])
        finally:
            client.unregister_system_shared_memory()
            shm.destroy_shared_memory_region(memory)


def test_responses_of_a_decoupled_model(server):
    answer = requests.post(server.url("/v2/models/odd_stream/generate_stream"), json={"IN": 1}, timeout=20)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [one["OUT"] for one in events] == [[1.5, 2.5, 3.5]] * 2
    answer = requests.post(server.url("/v2/models/odd_stream/generate_stream"), json={"IN": 3}, timeout=20)
    assert [set(json.loads(line[6:])) for line in answer.text.splitlines() if line.startswith("data: ")] == [{"model_name", "model_version"}] * 2


def test_next_step_of_an_ensemble_checks_its_input(server):
    assert out_of(ask(server, "odd_then_same", [6])) == [1, 2]
    answer = ask(server, "odd_then_same", [1])
    assert answer.status_code == 400
    assert answer.json()["error"] == ("in ensemble 'odd_then_same', [request id: <id_unknown>] inference input 'INPUT0' data-type is 'FP64', "
                                      "but model 'native' expects 'INT32'")


def test_reshape_leaves_other_shapes_alone(server):
    """Of the shapes that the model makes, only [n,2,2] is one that the reshape starts from."""
    def ask_row(case):
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [case]}]}
        (output, ) = outputs_of(requests.post(server.url("/v2/models/odd_batched/infer"), json=body, timeout=20))
        return output["shape"], output["data"]

    assert ask_row(1) == ([3], [1.5, 2.5, 3.5])
    assert ask_row(2) == ([2, 2], [1, 2, 3, 4])
    assert ask_row(7) == ([], [9])


def test_one_warning_for_a_model(folder):
    with Server("--model-control-mode=explicit", "--load-model=odd", repositories=(folder, ), env=PYTHON) as running:
        for case in (6, 1, 2, 1, 3, 4, 5):
            outputs_of(ask(running, "odd", [case]))
        lines = [line for line in running.log_text().splitlines() if "of Python model 'odd'" in line]
        assert len(lines) == 1 and "has type FP64, its configuration says INT32" in lines[0] and lines[0].startswith("W")


# ---- strict_outputs ----

REFUSED = {
    1: "output 'OUT' of Python model '%s' has type FP64, its configuration says INT32",
    2: "output 'OUT' of Python model '%s' has shape [2,2], its configuration says [-1]",
    3: "unexpected output 'NOPE' from Python model '%s': its configuration has none of this name",
    4: "unexpected output 'NOPE' from Python model '%s': its configuration has none of this name",
}


@pytest.mark.parametrize("case", REFUSED)
def test_strict_model_refuses(server, case):
    answer = ask(server, "odd_strict", [case])
    assert (answer.status_code, answer.json()["error"]) == (500, REFUSED[case] % "odd_strict")
    assert out_of(ask(server, "odd_strict", [6])) == [1, 2]


def test_strict_for_all_models(folder):
    write_model(folder, "odd_lenient", ODD, IO + STRICT % "false")
    write_model(folder, "odd_wrong", ODD, IO + STRICT % "maybe")
    with Server("--backend-config=python,strict-outputs=true", "--model-control-mode=explicit", "--load-model=odd",
                repositories=(folder, ), env=PYTHON) as running:
        assert ask(running, "odd", [1]).json()["error"] == REFUSED[1] % "odd"
        assert requests.post(running.url("/v2/repository/models/odd_lenient/load"), timeout=20).status_code == 200
        assert out_of(ask(running, "odd_lenient", [1])) == [1.5, 2.5, 3.5]
        answer = requests.post(running.url("/v2/repository/models/odd_wrong/load"), timeout=20)
        assert answer.status_code == 400 and "parameter 'strict_outputs' must be true or false, got 'maybe'" in answer.json()["error"]


# ---- requested_output_names ----


def test_no_names_mean_all(server):
    assert out_of(ask(server, "names"), "FIRST") == ["FIRST SECOND"]
    assert [one["name"] for one in outputs_of(ask(server, "names"))] == ["FIRST", "SECOND"]


def test_names_are_those_of_the_client(server):
    (output, ) = outputs_of(ask(server, "names", outputs=[{"name": "SECOND"}]))
    assert output["name"] == "SECOND" and output["data"] == ["SECOND"]


def test_names_over_generate(server):
    answer = requests.post(server.url("/v2/models/names/generate"), json={"IN": [1]}, timeout=20).json()
    assert answer["FIRST"] == answer["SECOND"] == "FIRST SECOND"


def test_names_over_grpc(server):
    with grpc.InferenceServerClient(server.grpc) as client:
        tensor = grpc.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([1], np.int32))
        assert client.infer("names", [tensor]).as_numpy("SECOND").tolist() == [b"FIRST SECOND"]
        named = client.infer("names", [tensor], outputs=[grpc.InferRequestedOutput("FIRST")])
        assert named.as_numpy("FIRST").tolist() == [b"FIRST"] and named.as_numpy("SECOND") is None


def test_names_of_a_sequence(server):
    parameters = {"sequence_id": 5, "sequence_start": True, "sequence_end": True}
    assert out_of(ask(server, "names_sequence", parameters=parameters), "FIRST") == ["FIRST SECOND"]


def test_names_of_a_call_from_a_model(server):
    assert out_of(ask(server, "names_caller", [0]), "FIRST") == ["FIRST SECOND"]
    assert out_of(ask(server, "names_caller", [1]), "FIRST") == ["FIRST"]
