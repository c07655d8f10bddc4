# SPDX-License-Identifier: Apache-2.0
"""A sequence of KServe is a session of a language model: a conversation goes on without sending its prompt again."""
import numpy
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from wire import ROOT, Server

MODEL = "classics-10m"
TURNS = [list(range(20, 90)), [300], list(range(400, 470))]
OPTIONS = {"max_tokens": 8, "ignore_eos": True, "return_ids": True}


@pytest.fixture(scope="module")
def server():
    with Server(repositories=[ROOT / "models" / MODEL]) as running:
        yield running


def post(server, ids, status=200, **parameters):
    answer = requests.post(server.url(f"/v2/models/{MODEL}/infer"), timeout=60, json={
        "inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [len(ids)], "data": ids}],
        "parameters": {**OPTIONS, **parameters}})
    assert answer.status_code == status, answer.text
    if status != 200:
        return answer.json()["error"]
    return next(o["data"] for o in answer.json()["outputs"] if o["name"] == "output_ids")


@pytest.fixture(scope="module")
def straight(server):
    """What each turn must answer: the model's answer to the whole conversation so far."""
    answers, ids = [], []
    for turn in TURNS:
        answers.append(post(server, ids + turn))
        ids = ids + turn + answers[-1]
    return answers


@pytest.mark.parametrize("name", [7, 2**63 - 5, "chat", "7"])
def test_turns(server, straight, name):
    for i, turn in enumerate(TURNS):
        ends = i + 1 == len(TURNS)
        assert post(server, turn, sequence_id=name, sequence_start=i == 0, sequence_end=ends) == straight[i]
    assert "must specify the START flag on the first request of the sequence" in post(server, [5], 400, sequence_id=name)


def test_sequences_are_apart(server, straight):
    """Numbers, texts and other ids do not mix; START begins anew."""
    for name in (1, "1", 2):
        assert post(server, TURNS[0], sequence_id=name, sequence_start=True) == straight[0]
    for name in ("1", 2, 1):
        assert post(server, TURNS[1], sequence_id=name) == straight[1]
    assert post(server, TURNS[0], sequence_id=2, sequence_start=True) == straight[0]
    assert post(server, TURNS[1], sequence_id=2, sequence_end=True) == straight[1]
    assert post(server, TURNS[2], sequence_id=1, sequence_end=True) == straight[2]


def test_refused(server):
    text = post(server, [5], 400, sequence_id=99)
    assert f"inference request for sequence 99 to model '{MODEL}' must specify the START flag" in text
    assert "'n', 'best_of' and 'beams' must be 1" in post(server, [5], 400, sequence_id=5, sequence_start=True, n=2)
    assert "must specify the START flag" in post(server, [5], 400, sequence_id=5)
    assert "sessions are for texts" in post(server, [5], 501, sequence_id=5, sequence_start=True, task="score")
    assert post(server, TURNS[0], sequence_id=0) == post(server, TURNS[0], sequence_id="") == post(server, TURNS[0])


@pytest.mark.parametrize("client, port", [(tritonclient.http, "http"), (tritonclient.grpc, "grpc")])
def test_clients_of_triton(server, straight, client, port):
    with client.InferenceServerClient(getattr(server, port)) as one:
        for i, turn in enumerate(TURNS):
            value = client.InferInput("input_ids", [len(turn)], "INT32")
            value.set_data_from_numpy(numpy.array(turn, numpy.int32))
            answer = one.infer(MODEL, [value], sequence_id=21, sequence_start=i == 0, sequence_end=i == 2, parameters=OPTIONS)
            assert answer.as_numpy("output_ids").ravel().tolist() == straight[i]


def test_generate(server, straight):
    """The extension takes the same parameters; a text that continues a sequence gets no start token."""
    def generate(text, **more):
        body = {"text_input": text, "max_tokens": 4, "ignore_eos": True, **more}
        return requests.post(server.url(f"/v2/models/{MODEL}/generate"), timeout=60, json=body)
    first = generate("It was a dark night", sequence_id=31, sequence_start=True).json()
    second = generate(" and the wind", sequence_id=31, sequence_end=True).json()
    assert second["prompt_tokens"] >= first["prompt_tokens"] + 4 + 3
    assert generate("x", sequence_id=31).status_code == 400
