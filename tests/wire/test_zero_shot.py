# SPDX-License-Identifier: Apache-2.0
"""Zero-shot classification by an encoder-decoder (BartForSequenceClassification): each label makes a hypothesis, and the logits of
entailment of the pairs give the scores of transformers' pipeline (tests/golden/arch/bart_cls/zero_shot.json)."""
import json
import math

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from wire import ROOT, Server

FOLDER = ROOT / "tests/golden/arch/bart_cls"
GOLDEN = json.loads((FOLDER / "zero_shot.json").read_text())
CASES = GOLDEN["cases"]
ENTAILMENT = 2


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The model as it is, and as `rows`, which takes batches of up to 4."""
    folder = tmp_path_factory.mktemp("zero") / "rows"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        f'backend: "engine"\nmax_batch_size: 4\nparameters {{ key: "model_path" value {{ string_value: "{FOLDER}" }} }}\n')
    with Server(repositories=[FOLDER, folder.parent]) as server:
        yield server


def generate(server, status=200, **body):
    answer = requests.post(server.url("/v2/models/bart_cls/generate"), json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def softmax(values):
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["text"][:9])
def test_labels_over_generate(served, case):
    entailment = []
    for label, ids, logits in zip(case["labels"], case["input_ids"], case["logits"]):
        answer = generate(served, text_input=case["text"], text_pair=GOLDEN["hypothesis"].format(label))
        assert answer == generate(served, input_ids=ids)
        assert answer["logits"] == pytest.approx(logits, abs=1e-5)
        assert answer["scores"] == pytest.approx(softmax(logits), abs=1e-5)
        assert answer["label"] == ["contradiction", "neutral", "entailment"][int(np.argmax(logits))]
        entailment.append(answer["logits"][ENTAILMENT])
    assert softmax(entailment) == pytest.approx(case["scores"], abs=1e-5)


@pytest.mark.parametrize("client", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["text"][:9])
def test_labels_as_a_batch(served, client, case):
    count, inputs = len(case["labels"]), []
    for name, texts in (("text_input", [case["text"]] * count), ("text_pair", map(GOLDEN["hypothesis"].format, case["labels"]))):
        inputs.append(client.InferInput(name, [count, 1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([[t.encode()] for t in texts], dtype=np.object_))
    with client.InferenceServerClient(served.http if client is tritonclient.http else served.grpc) as connection:
        logits = connection.infer("rows", inputs).as_numpy("logits")
    assert logits == pytest.approx(np.array(case["logits"]), abs=1e-5)
    assert softmax(logits[:, ENTAILMENT].tolist()) == pytest.approx(case["scores"], abs=1e-5)


def test_an_input_needs_an_end(served):
    assert generate(served, 400, input_ids=[0, 33, 5])["error"] == "the input has no end token (2), whose row is classified"
    assert len(generate(served, input_ids=[0, 33, 2, 5])["logits"]) == 3
