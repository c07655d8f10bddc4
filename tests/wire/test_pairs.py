# SPDX-License-Identifier: Apache-2.0
"""Text pairs and token types of an encoder through every protocol: the logits of transformers, and what is refused."""
import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from wire import ROOT, Server

MODEL = "polarity-bert"
# Two texts, their ids as one input, its length before the second text, and the logit of transformers 5.17.0:
#     t = AutoTokenizer.from_pretrained(MODEL)(first, second, return_tensors="pt", return_token_type_ids=True)
#     BertForSequenceClassification.from_pretrained(MODEL).eval()(**t).logits
PAIRS = [("a fine film", "but long, too long", [2, 39, 1383, 160, 3, 175, 551, 16, 327, 551, 3], 5, 0.9878307580947876),
         ("It was dull.", "A great cast.", [2, 128, 498, 1036, 18, 3, 39, 579, 601, 18, 3], 6, 0.08629575371742249),
         ("ein Film über Käse", "the film of the year, and of the last",
          [2, 43, 106, 160, 59, 440, 6282, 184, 3, 107, 160, 117, 107, 512, 16, 118, 117, 107, 1049, 3], 9,
          0.9630427360534668)]
# The same ids with token types of zero only give other logits: a server that dropped the types would show here.
ZEROS = [0.6111612319946289, 0.07953845709562302, 0.5521544218063354]
CLIENTS = [tritonclient.http, tritonclient.grpc]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The model as it is, and as `rows`, which takes batches of up to 4."""
    folder = tmp_path_factory.mktemp("pairs") / "rows"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'backend: "engine"\nmax_batch_size: 4\n'
        f'parameters {{ key: "model_path" value {{ string_value: "{ROOT / "models" / MODEL}" }} }}\n')
    with Server(repositories=[ROOT / "models" / MODEL, folder.parent]) as server:
        yield server


def types_of(ids, first):
    return [0] * first + [1] * (len(ids) - first)


def tensor(client, name, values, shape):
    text = isinstance(values[0], str)
    array = np.array([v.encode() for v in values] if text else values, dtype=np.object_ if text else np.int32)
    made = client.InferInput(name, shape, "BYTES" if text else "INT32")
    made.set_data_from_numpy(array.reshape(shape))
    return made


def infer(client, server, model, inputs):
    """Logits and prompt tokens; inputs are (name, values, shape)."""
    with client.InferenceServerClient(server.http if client is tritonclient.http else server.grpc) as connection:
        result = connection.infer(model, [tensor(client, *one) for one in inputs])
        return result.as_numpy("logits"), result.as_numpy("prompt_tokens")


def generate(server, **body):
    return requests.post(server.url(f"/v2/models/{MODEL}/generate"), json=body, timeout=60)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("first, second, ids, cut, logit", PAIRS)
def test_pairs_as_tensors(served, client, first, second, ids, cut, logit):
    texts = infer(client, served, MODEL, [("text_input", [first], [1]), ("text_pair", [second], [1])])
    typed = infer(client, served, MODEL, [("input_ids", ids, [len(ids)]), ("token_type_ids", types_of(ids, cut), [len(ids)])])
    assert texts[0] == pytest.approx([logit], abs=2e-6)
    assert texts[1].tolist() == typed[1].tolist() == [len(ids)]
    assert texts[0].tobytes() == typed[0].tobytes()


@pytest.mark.parametrize("first, second, ids, cut, logit", PAIRS)
def test_pairs_over_generate(served, first, second, ids, cut, logit):
    texts = generate(served, text_input=first, text_pair=second).json()
    typed = generate(served, input_ids=ids, token_type_ids=types_of(ids, cut)).json()
    assert texts == typed
    assert texts["logits"] == pytest.approx(logit, abs=2e-6) and texts["prompt_tokens"] == len(ids)


@pytest.mark.parametrize("row", range(len(PAIRS)))
def test_token_types_are_used(served, row):
    _, _, ids, _, logit = PAIRS[row]
    zeros = generate(served, input_ids=ids, token_type_ids=[0] * len(ids)).json()
    assert zeros == generate(served, input_ids=ids).json()
    assert zeros["logits"] == pytest.approx(ZEROS[row], abs=2e-6) and abs(zeros["logits"] - logit) > 1e-3


@pytest.mark.parametrize("client", CLIENTS)
def test_batches_of_pairs(served, client):
    inputs = [("text_input", [p[0] for p in PAIRS], [3, 1]), ("text_pair", [p[1] for p in PAIRS], [3, 1])]
    logits, tokens = infer(client, served, "rows", inputs)
    assert logits.shape == (3, 1) and logits[:, 0] == pytest.approx([p[4] for p in PAIRS], abs=2e-6)
    assert tokens.reshape(-1).tolist() == [len(p[2]) for p in PAIRS]
    same = PAIRS[:2]  # both have 11 ids
    logits, _ = infer(client, served, "rows", [("input_ids", [p[2] for p in same], [2, 11]),
                                               ("token_type_ids", [types_of(p[2], p[3]) for p in same], [2, 11])])
    assert logits[:, 0] == pytest.approx([p[4] for p in same], abs=2e-6)


IDS = [2, 39, 3]
REFUSED = [({"input_ids": IDS, "text_pair": "b"}, "text_pair goes with text_input, token_type_ids with input_ids"),
           ({"text_input": "a", "token_type_ids": [0, 0, 1]}, "text_pair goes with text_input, token_type_ids with input_ids"),
           ({"text_pair": "b"}, "a request needs one of text_input, input_ids and messages"),
           ({"input_ids": IDS, "token_type_ids": [0, 1]}, "token_type_ids has 2 numbers, input_ids 3"),
           ({"input_ids": IDS, "token_type_ids": [0, 0, 0, 1]}, "token_type_ids has 4 numbers, input_ids 3"),
           ({"input_ids": IDS, "token_type_ids": [0, 2, 0]},
            "token type 2 at position 1 is outside of the model's (0 to 1)"),
           ({"input_ids": IDS, "token_type_ids": [0, 0, -1]},
            "token type -1 at position 2 is outside of the model's (0 to 1)")]


@pytest.mark.parametrize("body, text", REFUSED)
def test_refused(served, body, text):
    answer = generate(served, **body)
    assert answer.status_code == 400 and answer.json()["error"] == text
    inputs = [(name, [v] if isinstance(v, str) else v, [1 if isinstance(v, str) else len(v)]) for name, v in body.items()]
    for client in CLIENTS:
        with pytest.raises(InferenceServerException) as caught:
            infer(client, served, MODEL, inputs)
        assert caught.value.message() == text


def test_pairs_are_for_encoders(start):
    server = start(repositories=[ROOT / "models/classics-10m"])
    answer = requests.post(server.url("/v2/models/classics-10m/infer"), timeout=60, json={"inputs": [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": ["a"]} for name in ("text_input", "text_pair")]})
    assert answer.status_code == 400 and "unexpected inference input 'text_pair'" in answer.json()["error"]
