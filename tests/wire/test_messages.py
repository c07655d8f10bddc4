# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages API: by raw requests, and with its own client where that is installed."""
import json

import pytest
import requests
from wire import ROOT, Server

BODY = {"model": "chat", "max_tokens": 12, "messages": [{"role": "user", "content": "Tell me"}]}


@pytest.fixture(scope="module")
def models():
    with Server(repositories=[ROOT / "tests/fuzz/repository/chat", ROOT / "models/polarity-bert"]) as running:
        yield running


@pytest.fixture
def post(models):
    def run(path="/v1/messages", status=200, **body):
        answer = requests.post(models.url(path), json=body, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()
    return run


def events(models, **body):
    """The events of a stream, each checked for its name."""
    answer = requests.post(models.url("/v1/messages"), json=body | {"stream": True}, timeout=60)
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/event-stream")
    list_ = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        list_.append(event)
    return list_


def chat_text(models, messages, **more):
    body = {"model": "chat", "messages": messages, "max_tokens": 12, "temperature": 0} | more
    answer = requests.post(models.url("/v1/chat/completions"), json=body, timeout=60).json()
    return answer["choices"][0]["message"]["content"]


def test_message(post, models):
    answer = post(**BODY, temperature=0)
    assert answer["type"] == "message" and answer["role"] == "assistant" and answer["model"] == "chat"
    assert answer["id"].startswith("msg_") and answer["stop_sequence"] is None
    assert answer["content"] == [{"type": "text", "text": chat_text(models, BODY["messages"])}]
    assert answer["stop_reason"] == "max_tokens" and answer["usage"]["output_tokens"] == 12
    assert post("/v1/messages/count_tokens", model="chat", messages=BODY["messages"]) == {
        "input_tokens": answer["usage"]["input_tokens"]}


def test_system_and_blocks(post, models):
    plain = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Tell me"}]
    wanted = chat_text(models, plain)
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Tell me"}]}]
    for system in ("Be brief", [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}]):
        assert post(**BODY | {"messages": blocks}, system=system, temperature=0)["content"][0]["text"] == wanted


def test_tools_become_those_of_a_chat(post, models):
    """The tokens of the prompt are those of the same chat in OpenAI's form."""
    tool = {"name": "get", "description": "Gets", "input_schema": {"type": "object", "properties": {}}}
    ours = [{"role": "user", "content": "Go"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                                              {"type": "text", "text": "I look"},
                                              {"type": "tool_use", "id": "t1", "name": "get", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                                         {"type": "text", "text": "And?"}]}]
    theirs = [{"role": "user", "content": "Go"},
              {"role": "assistant", "content": "I look", "reasoning_content": "hm",
               "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "get", "arguments": "{\"a\": 1}"}}]},
              {"role": "tool", "tool_call_id": "t1", "content": "42"}, {"role": "user", "content": "And?"}]
    tools = [{"type": "function", "function": {"name": "get", "description": "Gets", "parameters": tool["input_schema"]}}]
    counted = post("/v1/messages/count_tokens", model="chat", messages=ours, tools=[tool])["input_tokens"]
    assert counted == post("/tokenize", model="chat", messages=theirs, tools=tools)["count"]


def test_last_message_of_the_assistant(post, models):
    """It is the beginning of the answer: what comes continues its text."""
    user = {"role": "user", "content": "Tell me"}
    for begun in ("It was", "It was ", [{"type": "text", "text": "It was"}]):
        messages = [user, {"role": "assistant", "content": begun}]
        answer = post(**BODY | {"messages": messages}, temperature=0)
        assert answer["content"][0]["text"] == chat_text(models, messages, continue_final_message=True)
        assert post("/v1/messages/count_tokens", model="chat", messages=messages) == {
            "input_tokens": sum(answer["usage"][name] for name in ("input_tokens", "cache_read_input_tokens"))}
    post(**BODY | {"messages": [user, {"role": "assistant", "content": ""}]})


def test_stop_sequences(post, models):
    text = chat_text(models, BODY["messages"], max_tokens=40)
    word = text.split()[3]
    answer = post(**BODY | {"max_tokens": 40}, temperature=0, stop_sequences=["zzzz", word])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", word)
    assert answer["content"][0]["text"] == text[:text.index(word)]
    streamed = events(models, **BODY | {"max_tokens": 40}, temperature=0, stop_sequences=["zzzz", word])
    assert streamed[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": word}


def test_stream(post, models):
    whole = post(**BODY, temperature=0)
    told = events(models, **BODY, temperature=0)
    types = [e["type"] for e in told]
    assert types[:3] == ["message_start", "content_block_start", "ping"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[3:-3]) == {"content_block_delta"} and len(types) > 10
    assert told[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert "".join(e["delta"]["text"] for e in told if e["type"] == "content_block_delta") == whole["content"][0]["text"]
    assert told[-2]["usage"] == whole["usage"] and told[-2]["delta"]["stop_reason"] == "max_tokens"


def test_cached_tokens(post, models):
    """Those that were found in the prefix cache count apart from the other tokens of the prompt."""
    body = BODY | {"messages": [{"role": "user", "content": "Tell me of the sea " * 30}]}
    first, again = post(**body)["usage"], post(**body)["usage"]
    count = first["input_tokens"]
    assert count > 129 and first["cache_read_input_tokens"] == 0
    assert again["cache_read_input_tokens"] == (count - 1) // 64 * 64
    assert again["input_tokens"] + again["cache_read_input_tokens"] == count
    assert events(models, **body)[-2]["usage"] == again
    assert post(**body, cache_salt="a")["usage"]["cache_read_input_tokens"] == 0
    assert post(**body, cache_salt="a")["usage"] == again


def test_options(post):
    assert post(**BODY, temperature=0.9, top_k=1)["content"] == post(**BODY, temperature=0)["content"]
    post(**BODY, metadata={"user_id": "u"}, service_tier="auto", thinking={"type": "disabled"}, tool_choice={"type": "none"})


def test_schema(post):
    """output_config.format holds the text to a schema, and so does its older name."""
    form = {"type": "json_schema", "schema": {"enum": ["red", "green"]}}
    for more in ({"output_config": {"format": form, "effort": "low"}}, {"output_format": form}):
        assert json.loads(post(**BODY | more)["content"][0]["text"]) in ("red", "green")


@pytest.mark.parametrize("more, told", [
    ({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"), ({"messages": []}, "messages"),
    ({"temperature": 1.5}, "temperature"), ({"stop_sequences": "a"}, "stop_sequences"),
    ({"stop_sequences": ["a", ""]}, "not empty"),
    ({"messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]}, "tool_use"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"), ({"mcp_servers": []}, "mcp_servers"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"), ({"container": "x"}, "container"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice"), ({"output_format": {"type": "xml"}}, "output_format"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config"), ({"output_config": {"effort": 5}}, "output_config"),
    ({"output_config": {"task_budget": {}}}, "output_config")])
def test_refused(post, more, told):
    answer = post(status=400, **BODY | more)
    assert answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"
    assert told in answer["error"]["message"]


def test_errors(post, models, start):
    assert post(status=404, **BODY | {"model": "none"})["error"]["type"] == "not_found_error"
    assert "chat" in post(status=400, **BODY | {"model": "polarity-bert"})["error"]["message"]
    closed = start("--api-key=secret", repositories=[ROOT / "tests/fuzz/repository/chat"])
    for key, status in (("wrong", 401), ("secret", 200)):
        answer = requests.post(closed.url("/v1/messages"), json=BODY, headers={"x-api-key": key}, timeout=60)
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"]["type"] == "authentication_error"


def test_their_client(post, models):
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=models.url(""), api_key="none", max_retries=0, timeout=60) as client:
        whole = client.messages.create(**BODY, extra_body={"temperature": 0})
        assert whole.content[0].text == post(**BODY, temperature=0)["content"][0]["text"]
        with client.messages.stream(**BODY, extra_body={"temperature": 0}) as stream:
            assert "".join(stream.text_stream) == whole.content[0].text
            assert stream.get_final_message().usage.output_tokens == 12
        assert client.messages.count_tokens(model="chat", messages=BODY["messages"]).input_tokens == whole.usage.input_tokens
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**BODY, extra_body={"temperature": 2})
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(**BODY | {"model": "none"})
