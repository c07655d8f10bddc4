# SPDX-License-Identifier: Apache-2.0
"""generate of a language model, which is a typed generation from JSON to JSON, against infer, which is made of tensors."""
import json

import pytest
import requests
from wire import ROOT, Server

PROMPT = "It was a dark and stormy night"
T5_PROMPT = "translate English to German: A dog runs on the beach."


@pytest.fixture(scope="module")
def served():
    with Server(repositories=[ROOT / "models" / name for name in ("classics-10m", "m30k-t5", "polarity-bert")]) as server:
        yield server


def by_infer(server, model, text, **options):
    """Outputs by name, flat, in the order of the reply; options are parameters, lists of them as JSON."""
    parameters = {name: json.dumps(value) if isinstance(value, list) else value for name, value in options.items()}
    answer = requests.post(server.url(f"/v2/models/{model}/infer"), timeout=60, json={
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [text]}], "parameters": parameters})
    assert answer.status_code == 200, answer.text
    return {one["name"]: one["data"][0] if len(one["data"]) == 1 else one["data"] for one in answer.json()["outputs"]}


def by_generate(server, model, text, **options):
    answer = requests.post(server.url(f"/v2/models/{model}/generate"), timeout=60, json={"text_input": text, **options})
    assert answer.status_code == 200, answer.text
    members = answer.json()
    assert (members.pop("model_name"), members.pop("model_version")) == (model, "1")
    return members


SAMPLED = {"temperature": 0.9, "seed": 3}
SAME = [("classics-10m", PROMPT, {"max_tokens": 6, **options}) for options in (
    {}, {"logprobs": True}, {"top_logprobs": 3}, {"top_logprobs": 1}, {"n": 3, **SAMPLED}, {"n": 3, "top_logprobs": 2, **SAMPLED},
    {"n": 4, "stop_strings": [" the", ","], "logprobs": True, "top_logprobs": 2, **SAMPLED},  # rows of different lengths
    {"beams": 3}, {"beams": 4, "beams_returned": 2, "top_logprobs": 2}, {"best_of": 3, "n": 2, "logprobs": True, **SAMPLED},
    {"prompt_logprobs": True}, {"prompt_logprobs": True, "top_logprobs": 2}, {"return_logits": True, "return_hidden": True},
    {"suppress_tokens": [13, 286], "begin_suppress_tokens": [332]}, {"sequence_bias": "[[[286], -5.0]]"}, {"end_ids": [13, 286]},
    {"n": 2, "return_hidden": True, "stop_strings": [" the"], **SAMPLED}, {"echo": True}, {"task": "score"},
    {"task": "score", "top_logprobs": 2}, {"task": "rows"}, {"task": "embed"}, {"task": "embed", "normalize": True})]
SAME += [("m30k-t5", T5_PROMPT, {"max_tokens": 9, **options}) for options in (
    {}, {"beams": 3, "beams_returned": 3, "logprobs": True}, {"task": "embed"}, {"task": "rows"}, {"prompt_logprobs": True})]
SAME += [("polarity-bert", "a fine film", options) for options in (
    {}, {"task": "classify"}, {"task": "embed"}, {"task": "embed", "pooling": "cls", "normalize": True}, {"task": "rows"})]


@pytest.mark.parametrize("model, text, options", SAME)
def test_generate_equals_infer(served, model, text, options):
    tensors, typed = by_infer(served, model, text, **options), by_generate(served, model, text, **options)
    # NaN is no equal of itself, so the texts of both are compared, which also have the order
    assert json.dumps(typed) == json.dumps(tensors)


def test_rows_are_filled_up(served):
    """Sequences that ended earlier have the end token, 0 and empty texts behind them."""
    options = {"max_tokens": 12, "n": 4, "stop_strings": [" the", ","], "top_logprobs": 2, **SAMPLED}
    answer = by_generate(served, "classics-10m", PROMPT, **options)
    lengths, longest = answer["sequence_length"], max(answer["sequence_length"])
    assert min(lengths) < longest and len(answer["output_ids"]) == 4 * longest
    for i, length in enumerate(lengths):
        row = slice(i * longest + length, (i + 1) * longest)
        assert set(answer["output_log_probs"][row]) <= {0.0} and set(answer["token_text"][row]) <= {""}
        assert set(answer["top_ids"][2 * row.start:2 * row.stop]) <= {-1}


def test_stream_adds_up(served):
    options = {"max_tokens": 12, "n": 2, "logprobs": True, **SAMPLED}
    whole = by_generate(served, "classics-10m", PROMPT, **options)
    answer = requests.post(served.url("/v2/models/classics-10m/generate_stream"), stream=True, timeout=60,
                           json={"text_input": PROMPT, "stream": True, **options})
    texts, ids, values = ["", ""], [[], []], [[], []]
    for line in answer.iter_lines():
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        i, count = event["sequence_index"], event["sequence_length"]
        texts[i] += event["text_output"]
        ids[i] += [event["output_ids"]] if count == 1 else event["output_ids"]
        values[i] += [event["output_log_probs"]] if count == 1 else event["output_log_probs"]
        assert event["completion_tokens"] == len(ids[i])
    assert texts == whole["text_output"] and sum(ids, []) == whole["output_ids"] and sum(values, []) == whole["output_log_probs"]


def test_order_of_sources(served):
    """An input goes before a parameter, a parameter before `options`; where they stand in the body does not matter."""
    bodies = [({"max_tokens": 3, "parameters": {"max_new_tokens": 4}, "options": '{"max_tokens": 5}'}, 3),
              ({"options": '{"max_tokens": 5}', "parameters": {"max_new_tokens": 4}, "max_tokens": 3}, 3),
              ({"options": '{"max_tokens": 5}', "max_new_tokens": 4}, 4), ({"options": '{"max_tokens": 5}'}, 5)]
    for body, tokens in bodies:
        assert by_generate(served, "classics-10m", PROMPT, **body)["completion_tokens"] == tokens


REFUSED = [({"temperature": -1}, "option 'temperature' is -1, must be 0 to 10000"),
           ({"parameters": {"runtime_top_k": 2.5}}, "option 'top_k' is 2.5, must be an integer"),
           ({"options": '{"top_k": 2.5}'}, "option 'top_k' is 2.5, must be an integer"),
           ({"options": '{"ignore_eos": 3}'}, "option 'ignore_eos' must be true or false"),
           ({"temprature": 1}, "unknown option 'temprature' (did you mean 'temperature'?)"),
           ({"task": "x"}, "'task' is 'x', must be one of generate, score, ..."),
           ({"input_ids": [5]}, "a request needs one of text_input, input_ids and messages"),
           ({"end_ids": [5, -1]}, "option 'end_ids' has the token id -1"),
           ({"guided_json": '{"not": {}}'}, "option 'json_schema': at #: the keyword 'not' is not supported"),
           ({"json_schema": {}}, "input 'json_schema': Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
           ({"max_tokens": "5"}, "input 'max_tokens': Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
           ({"text_input": ["a", "b"]}, "The schema can not convert input 'text_input' to tensor with proper shape")]


@pytest.mark.parametrize("body, text", REFUSED)
@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_refused(served, route, body, text):
    answer = requests.post(served.url(f"/v2/models/classics-10m/{route}"), timeout=60, json={"text_input": PROMPT, **body})
    assert answer.status_code in (400, 501) and answer.json()["error"] == text


def test_a_list_of_texts_counts_with_its_memory():
    """Of an empty text a body has three bytes, and the list of them 16."""
    with Server("--http-max-input-size=2000000", repositories=[ROOT / "models/classics-10m"]) as own:
        url = own.url("/v2/models/classics-10m/generate")
        answer = requests.post(url, timeout=60, json={"text_input": PROMPT, "max_tokens": 1, "stop_strings": [""] * 200000})
        assert answer.status_code == 400 and "'stop_strings' of size 3200000 bytes exceeds the maximum" in answer.json()["error"]


def test_refused_options_count_as_failures(served):
    def failures():
        text = requests.get(f"http://{served.metrics}/metrics", timeout=60).text
        lines = [line for line in text.splitlines() if line.startswith('nv_inference_request_failure{model="classics-10m",reason="OTHER"')]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    before = failures()
    test_refused(served, "generate", *REFUSED[0])
    assert failures() == before + 1
