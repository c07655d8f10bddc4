# SPDX-License-Identifier: Apache-2.0
"""Draft tokens over the protocols: who drafts, from what, what is counted, and what is refused. The model drafts for
itself, so that drafts are right."""
import json

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tokenizers import Tokenizer

from wire import ROOT, Server, metric

MODELS = ROOT / "models"
DECODER = MODELS / "classics-10m"
PROMPT = "It was a dark night, and the"
TOKENS = 40


def config(backend, more="", **parameters):
    entries = {"model_path": DECODER, "draft_model": DECODER, "draft_tokens": 4} | parameters
    return f'backend: "{backend}"\n{more}' + "".join(
        f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n' for k, v in entries.items() if v is not None)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name, text in (("chat", config("engine", chat_template="chatml")), ("trt", config("tensorrtllm", "max_batch_size: 4\n")),
                       ("other", config("engine", draft_model=MODELS / "m30k-t5")), ("bare", config("engine", draft_model=None))):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
    with Server("--allow-external-paths=true", "--exit-on-error=false", repositories=[folder]) as running:
        yield running


def generate(server, model="chat", **more):
    answer = requests.post(server.url(f"/v2/models/{model}/generate"), timeout=60,
                           json={"text_input": PROMPT, "max_tokens": TOKENS} | more)
    return answer.status_code, answer.json()


def chat(server, **more):
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS, "temperature": 0}
    answer = requests.post(server.url("/v1/chat/completions"), json=body | more, timeout=60)
    return answer.status_code, answer.json()


def counted(server, name):
    return metric(requests.get(f"http://{server.metrics}/metrics", timeout=60).text, name, model="chat")


def test_texts_are_the_same(server):
    texts = set()
    for more in ({"speculation": "none"}, {"speculation": "ngram"}, {"speculation": "draft"}, {"draft_tokens": 2},
                 {"prediction": "man who had been"}, {"draft_ids": [5, 6, 7]}):
        status, answer = generate(server, **more)
        assert status == 200, answer
        texts.add(answer["text_output"])
    assert len(texts) == 1


def accepted_predictions(server, text, content, tries=100):
    """How many predicted tokens a request had accepted. Where drafts do not pay by the measured times of passes, as on a
    busy machine, most requests go without; after 128 passes, about three requests, a draft is tried all the same."""
    for _ in range(tries):
        status, answer = chat(server, prediction={"type": "content", "content": content}, draft_tokens=8)
        assert status == 200 and answer["choices"][0]["message"]["content"] == text
        details = answer["usage"].get("completion_tokens_details")
        if details and details["accepted_prediction_tokens"] > 0:
            return details["accepted_prediction_tokens"]
    return 0


def test_usage(server):
    """A prediction that is right: its tokens are accepted, and counted."""
    status, plain = chat(server, speculation="none")
    assert status == 200 and "completion_tokens_details" not in plain["usage"]
    text = plain["choices"][0]["message"]["content"]
    for content in (text, [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]):
        assert accepted_predictions(server, text, content) > 0
    drafted, accepted = (counted(server, f"proa_engine_{what}_tokens") for what in ("draft", "accepted_draft"))
    assert drafted >= accepted > 0


@pytest.mark.parametrize("more, told", [
    ({"speculation": "drat"}, "must be none, ngram, draft, medusa or eagle"), ({"draft_tokens": 17}, "option 'draft_tokens' is 17"),
    ({"draft_ids": [8192]}, "option 'draft_ids'"), ({"prediction": {"type": "file"}}, "prediction"),
    ({"prediction": "a text"}, "prediction")])
def test_bad_values(server, more, told):
    status, answer = chat(server, **more)
    assert status == 400 and told in json.dumps(answer), answer
    if "prediction" in more:
        return
    status, answer = generate(server, **more)
    assert status == 400 and told in answer["error"], answer


def test_no_draft_model(server):
    status, answer = generate(server, "bare", speculation="draft")
    assert status == 400 and "has no draft model" in answer["error"]


def test_other_vocabulary(server):
    """The model is not loaded, and the reason names the option."""
    index = requests.post(server.url("/v2/repository/index"), timeout=60).json()
    reason = {one["name"]: one.get("reason", "") for one in index}["other"]
    assert "option 'draft-model': a t5 cannot draft" in reason


@pytest.mark.parametrize("module", [triton_http, triton_grpc])
def test_trtllm(server, module):
    ids = Tokenizer.from_file(str(DECODER / "tokenizer.json")).encode(PROMPT).ids

    def tensor(name, values, shape):
        made = module.InferInput(name, shape, "INT32")
        made.set_data_from_numpy(np.array(values, dtype=np.int32).reshape(shape))
        return made

    def run(*more):
        inputs = [tensor("input_ids", ids, [1, len(ids)]), tensor("input_lengths", [len(ids)], [1, 1]),
                  tensor("request_output_len", [TOKENS], [1, 1]), *more]
        with module.InferenceServerClient(server.http if module is triton_http else server.grpc) as client:
            answer = client.infer("trt", inputs)
        length = answer.as_numpy("sequence_length")[0][0]
        return answer.as_numpy("output_ids")[0][0][:length].tolist()

    plain = run()
    assert run(tensor("draft_input_ids", plain[len(ids):], [1, TOKENS])) == plain
    with pytest.raises(Exception, match="draft_ids"):
        run(tensor("draft_input_ids", [8192], [1, 1]))
