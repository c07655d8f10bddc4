# SPDX-License-Identifier: Apache-2.0
"""Tool calls and reasoning as items of OpenAI's responses and as content blocks of Anthropic's messages, with the forms and
forced texts of test_tools.py."""
import json

import openai
import pytest
import requests
from test_tools import ARGUMENTS, FORMS, WEATHER, force, server, tokenizer  # noqa: F401

FUNCTION = {"type": "function", **WEATHER["function"]}
TOOL = {"name": "get_weather", "description": "Of a city.", "input_schema": WEATHER["function"]["parameters"]}
EVENTS = {"message": ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                      "output_item.done"],
          "reasoning": ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                        "content_part.done", "output_item.done"],
          "function_call": ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                            "output_item.done"]}


@pytest.fixture
def client(server):  # noqa: F811
    with openai.OpenAI(base_url=server.url("/v1"), api_key="none", max_retries=0, timeout=60) as one:
        yield one


def forced_text(tokenizer, model):  # noqa: F811
    text = FORMS[model][0]
    return force(tokenizer, text % ARGUMENTS if "%s" in text else text)


def respond(client, model, forced, **more):
    body = {"model": model, "input": "Weather?", "tools": [FUNCTION], "temperature": 0,
            "max_output_tokens": forced["max_tokens"], "extra_body": forced["extra_body"]}
    return client.responses.create(**body | more)


def summary(output):
    """(type, text or arguments) of each item."""
    return [(i.type, i.arguments if i.type == "function_call" else i.content[0].text) for i in output]


def expected(model):
    _, reasoning, content, arguments = FORMS[model]
    texts = [("reasoning", reasoning), ("message", content)]
    return [(kind, text) for kind, text in texts if text] + [("function_call", a) for a in arguments]


@pytest.mark.parametrize("model", FORMS)
def test_response(client, tokenizer, model):  # noqa: F811
    answer = respond(client, model, forced_text(tokenizer, model))
    assert summary(answer.output) == expected(model) and answer.status == "completed"
    calls = [i for i in answer.output if i.type == "function_call"]
    assert {c.name for c in calls} == {"get_weather"} and all(c.status == "completed" for c in calls)
    assert len({i.id for i in answer.output}) == len(answer.output) and len({c.call_id for c in calls}) == len(calls)


@pytest.mark.parametrize("model", FORMS)
def test_response_stream(client, tokenizer, model):  # noqa: F811
    events = list(respond(client, model, forced_text(tokenizer, model), stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    last = events[-1].response
    assert events[-1].type == "response.completed" and summary(last.output) == expected(model)
    for index, item in enumerate(last.output):
        own = [e for e in events if getattr(e, "output_index", -1) == index]
        names = [e.type.removeprefix("response.") for e in own]
        assert list(dict.fromkeys(names)) == EVENTS[item.type]
        assert own[0].item.id == item.id and own[-1].item == item
        text = "".join(e.delta for e in own if e.type.endswith(".delta"))
        assert text == summary([item])[0][1]


def test_response_goes_on(client, tokenizer):  # noqa: F811
    """A stored response is the same conversation as one that is sent with its items."""
    first = respond(client, "qwen3", forced_text(tokenizer, "qwen3"))
    outputs = [{"type": "function_call_output", "call_id": i.call_id, "output": "7"} for i in first.output if i.type == "function_call"]
    body = {"model": "qwen3", "tools": [FUNCTION], "max_output_tokens": 4, "temperature": 0}
    stored = client.responses.create(**body, input=outputs, previous_response_id=first.id)
    items = [{"role": "user", "content": "Weather?"}, *(i.to_dict() for i in first.output), *outputs]
    sent = client.responses.create(**body, input=items)
    assert stored.usage.input_tokens == sent.usage.input_tokens > first.usage.input_tokens + 20
    assert stored.output_text == sent.output_text


def test_response_cut(client, tokenizer):  # noqa: F811
    forced = forced_text(tokenizer, "qwen25")
    forced["extra_body"]["min_tokens"] = 45
    cut = respond(client, "qwen25", forced, max_output_tokens=45)
    assert cut.status == cut.output[-1].status == "incomplete" and cut.output[-1].type == "function_call"
    assert ARGUMENTS.startswith(cut.output[-1].arguments)


def test_response_choice(client, tokenizer):  # noqa: F811
    named = respond(client, "qwen3", force(tokenizer, ARGUMENTS + "}\n</tool_call>"), tool_choice={"type": "function", "name": "get_weather"})
    assert summary(named.output) == [("function_call", ARGUMENTS)]
    one = respond(client, "qwen3", forced_text(tokenizer, "qwen3"), parallel_tool_calls=False)
    assert [i.type for i in one.output] == ["reasoning", "message", "function_call"]
    none = respond(client, "qwen25", forced_text(tokenizer, "qwen25"), tool_choice="none")
    assert none.output_text.startswith("<tool_call>")


# ---- Anthropic ----


def message_body(model, forced, **more):
    return {"model": model, "max_tokens": forced["max_tokens"], "messages": [{"role": "user", "content": "Weather?"}],
            "tools": [TOOL], "temperature": 0, **forced["extra_body"], **more}


def send(server, body, status=200):  # noqa: F811
    answer = requests.post(server.url("/v1/messages"), json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def blocks_of(model):
    _, reasoning, content, arguments = FORMS[model]
    texts = [("thinking", reasoning), ("text", content)]
    return [(kind, text) for kind, text in texts if text] + [("tool_use", json.loads(a)) for a in arguments]


def block_summary(content):
    return [(b["type"], b[{"tool_use": "input"}.get(b["type"], b["type"])]) for b in content]


@pytest.mark.parametrize("model", FORMS)
def test_message(server, tokenizer, model):  # noqa: F811
    answer = send(server, message_body(model, forced_text(tokenizer, model)))
    assert block_summary(answer["content"]) == blocks_of(model) and answer["stop_reason"] == "tool_use"
    calls = [b for b in answer["content"] if b["type"] == "tool_use"]
    assert {c["name"] for c in calls} == {"get_weather"} and len({c["id"] for c in calls}) == len(calls)


@pytest.mark.parametrize("model", FORMS)
def test_message_stream(server, tokenizer, model):  # noqa: F811
    body = message_body(model, forced_text(tokenizer, model), stream=True)
    text = requests.post(server.url("/v1/messages"), json=body, timeout=60).text
    events = [json.loads(block.split("\ndata: ")[1]) for block in text.strip().split("\n\n")]
    blocks = []
    for e in events:
        if e["type"] == "content_block_start":
            assert e["index"] == len(blocks)
            blocks.append([e["content_block"]["type"], ""])
        if e["type"] == "content_block_delta":
            assert e["index"] == len(blocks) - 1
            blocks[-1][1] += next(v for k, v in e["delta"].items() if k != "type")
            assert e["delta"]["type"] == {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[blocks[-1][0]]
    told = [(kind, json.loads(text) if kind == "tool_use" else text) for kind, text in blocks]
    assert told == blocks_of(model)
    assert sum(e["type"] == "content_block_stop" for e in events) == len(blocks)
    assert events[-2]["delta"]["stop_reason"] == "tool_use" and events[-1]["type"] == "message_stop"


def test_message_choice(server, tokenizer):  # noqa: F811
    forced = force(tokenizer, ARGUMENTS + "}\n</tool_call>")
    named = send(server, message_body("qwen3", forced, tool_choice={"type": "tool", "name": "get_weather"}))
    assert block_summary(named["content"]) == [("tool_use", json.loads(ARGUMENTS))]
    one = send(server, message_body("qwen3", forced_text(tokenizer, "qwen3"), tool_choice={
        "type": "auto", "disable_parallel_tool_use": True}))
    assert [b["type"] for b in one["content"]] == ["thinking", "text", "tool_use"]
    quiet = send(server, message_body("qwen3", force(tokenizer, "Hi."), thinking={"type": "disabled"}))
    assert block_summary(quiet["content"]) == [("text", "Hi.")]
    cut = message_body("qwen25", forced_text(tokenizer, "qwen25")) | {"max_tokens": 45, "min_tokens": 45}
    answer = send(server, cut)
    assert answer["stop_reason"] == "max_tokens" and answer["content"][0]["input"] == {}


def test_their_client(server, tokenizer):  # noqa: F811
    anthropic = pytest.importorskip("anthropic")
    body = message_body("qwen3", forced_text(tokenizer, "qwen3"))
    known = {k: body.pop(k) for k in ("model", "max_tokens", "messages", "tools")}
    with anthropic.Anthropic(base_url=server.url(""), api_key="none", max_retries=0, timeout=60) as one:
        whole = one.messages.create(**known, extra_body=body)
        assert [b.type for b in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
        with one.messages.stream(**known, extra_body=body) as stream:
            final = stream.get_final_message()
        assert block_summary([b.to_dict() for b in final.content]) == blocks_of("qwen3")
        result = [{"type": "tool_result", "tool_use_id": b.id, "content": "7"} for b in whole.content if b.type == "tool_use"]
        talk = [*known["messages"], {"role": "assistant", "content": [b.to_dict() for b in whole.content]}, {"role": "user", "content": result}]
        after = one.messages.create(**known | {"messages": talk, "max_tokens": 4}, extra_body={"temperature": 0})
        told, before = (u.input_tokens + u.cache_read_input_tokens for u in (after.usage, whole.usage))
        assert told > before + 20
