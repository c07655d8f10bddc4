# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses API, with its own client and by raw requests."""
import json

import openai
import pytest
import requests
from wire import ROOT, Server

BODY = {"model": "chat", "input": "Tell me", "max_output_tokens": 12}


@pytest.fixture(scope="module")
def models():
    with Server(repositories=[ROOT / "tests/fuzz/repository/chat"]) as running:
        yield running


@pytest.fixture
def client(models):
    with openai.OpenAI(base_url=models.url("/v1"), api_key="none", max_retries=0, timeout=60) as one:
        yield one


def chat(client, messages, **more):
    return client.chat.completions.create(model="chat", messages=messages, max_tokens=12, temperature=0, **more)


def test_response(client):
    told = client.responses.create(**BODY, temperature=0, metadata={"a": "b"})
    same = chat(client, [{"role": "user", "content": "Tell me"}])
    assert told.output_text == same.choices[0].message.content and told.id.startswith("resp_")
    assert told.status == "incomplete" and told.incomplete_details.reason == "max_output_tokens"
    assert told.usage.input_tokens == same.usage.prompt_tokens and told.usage.output_tokens == 12
    assert told.output[0].role == "assistant" and told.temperature == 0 and told.metadata == {"a": "b"}
    assert told.error is None and told.model == "chat" and told.max_output_tokens == 12 and told.tools == []


def test_items_and_instructions(client, models):
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "Tell me"}]
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes", "annotations": []}]},
             {"type": "message", "role": "user", "content": "Tell me"}]
    told = client.responses.create(**BODY | {"input": items}, instructions="Be brief", temperature=0)
    assert told.output_text == chat(client, messages).choices[0].message.content


def test_tools_become_those_of_a_chat(client):
    parameters = {"type": "object", "properties": {}}
    items = [{"role": "user", "content": "Go"},
             {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
             {"role": "assistant", "content": "I look"},
             {"type": "function_call", "call_id": "t1", "name": "get", "arguments": "{\"a\": 1}"},
             {"type": "function_call", "call_id": "t2", "name": "get", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "t1", "output": "42"},
             {"role": "user", "content": "And?"}]
    calls = [{"id": i, "type": "function", "function": {"name": "get", "arguments": a}}
             for i, a in (("t1", "{\"a\": 1}"), ("t2", "{}"))]
    messages = [{"role": "user", "content": "Go"},
                {"role": "assistant", "content": "I look", "reasoning_content": "hm", "tool_calls": calls},
                {"role": "tool", "tool_call_id": "t1", "content": "42"}, {"role": "user", "content": "And?"}]
    tool = {"type": "function", "name": "get", "parameters": parameters}
    told = client.responses.create(**BODY | {"input": items}, tools=[tool], temperature=0)
    same = chat(client, messages, tools=[{"type": "function", "function": {"name": "get", "parameters": parameters}}])
    assert told.usage.input_tokens == same.usage.prompt_tokens and told.output_text == same.choices[0].message.content


def test_stream(client, models):
    whole = client.responses.create(**BODY, temperature=0)
    events = list(client.responses.create(**BODY, temperature=0, stream=True))
    types = [e.type.removeprefix("response.") for e in events]
    assert types[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert types[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(types[4:-4]) == {"output_text.delta"} and len(types) > 12
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events[4:-4]) == events[-4].text == whole.output_text
    last = events[-1].response
    assert last.output_text == whole.output_text and last.usage == whole.usage and last.id == events[0].response.id
    assert client.responses.retrieve(last.id) == last
    text = requests.post(models.url("/v1/responses"), json=BODY | {"stream": True}, timeout=60).text
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_log_probabilities(client):
    told = client.responses.create(**BODY, temperature=0, include=["message.output_text.logprobs"], top_logprobs=2)
    values = told.output[0].content[0].logprobs
    assert len(values) == 12 and all(len(v.top_logprobs) == 2 and v.logprob <= 0 for v in values)
    events = list(client.responses.create(**BODY, temperature=0, include=["message.output_text.logprobs"], top_logprobs=2,
                                          stream=True))
    streamed = [v for e in events if e.type == "response.output_text.delta" for v in e.logprobs]
    assert [v.token for v in streamed] == [v.token for v in values]
    assert events[-1].response.output[0].content[0].logprobs == values


def test_previous_response(client):
    first = client.responses.create(**BODY, instructions="Be brief", temperature=0)
    second = client.responses.create(**BODY | {"input": "And?"}, previous_response_id=first.id, temperature=0)
    messages = [{"role": "user", "content": "Tell me"}, {"role": "assistant", "content": first.output_text},
                {"role": "user", "content": "And?"}]
    assert second.output_text == chat(client, messages).choices[0].message.content
    assert second.previous_response_id == first.id
    third = client.responses.create(**BODY | {"input": "So?"}, previous_response_id=second.id, temperature=0)
    assert third.usage.input_tokens > second.usage.input_tokens > first.usage.input_tokens


def test_store(client):
    kept = client.responses.create(**BODY)
    assert client.responses.retrieve(kept.id) == kept
    client.responses.delete(kept.id)
    loose = client.responses.create(**BODY, store=False)
    for gone in (kept.id, loose.id, "resp_0"):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone)
        with pytest.raises(openai.BadRequestError) as failure:
            client.responses.create(**BODY, previous_response_id=gone)
        assert failure.value.code == "previous_response_not_found"


def test_cached_tokens(client):
    """Whole pages of 64 tokens of the prompt, but for its last token; other salts share nothing."""
    body = BODY | {"input": "Tell me of the sea " * 30}
    def cached(**more):
        usage = client.responses.create(**body, extra_body=more).usage
        assert usage.input_tokens > 129
        return usage.input_tokens_details.cached_tokens, (usage.input_tokens - 1) // 64 * 64
    assert cached()[0] == 0
    found, whole = cached()
    assert found == whole > 0
    assert cached(cache_salt="a")[0] == 0 and cached(cache_salt="a") == (whole, whole)
    with pytest.raises(openai.BadRequestError, match="cache_salt"):
        cached(cache_salt="")


def test_owner(start):
    """A response belongs to the key that made it."""
    two = start("--api-key=one", "--api-key=two", repositories=[ROOT / "tests/fuzz/repository/chat"])
    keys = [{"Authorization": f"Bearer {k}"} for k in ("one", "two")]
    made = requests.post(two.url("/v1/responses"), json=BODY, headers=keys[0], timeout=60).json()["id"]
    codes = [requests.get(two.url(f"/v1/responses/{made}"), headers=h, timeout=60).status_code for h in keys + [{}]]
    assert codes == [200, 404, 401]


@pytest.mark.parametrize("more, param", [
    ({"input": None}, "input"), ({"input": []}, "input"), ({"input": [5]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"), ({"input": [{"role": "tool", "content": "a"}]}, "input[0]"),
    ({"instructions": 5}, "instructions"), ({"max_output_tokens": 0}, "max_output_tokens"), ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"), ({"conversation": "x"}, "conversation"), ({"n": 2}, "n"),
    ({"include": ["reasoning.encrypted_content"]}, "include"), ({"prompt": {"id": "x"}}, "prompt"),
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"), ({"temperature": 3}, "temperature"), ({"store": 1}, "store")])
def test_refused(models, more, param):
    answer = requests.post(models.url("/v1/responses"), json=BODY | more, timeout=60)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_other_methods(models):
    assert requests.get(models.url("/v1/responses"), timeout=60).status_code == 405
    assert requests.post(models.url("/v1/responses/resp_1"), timeout=60).status_code == 405
    assert requests.post(models.url("/v1/responses/resp_1/cancel"), timeout=60).status_code == 404
