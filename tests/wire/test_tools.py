# SPDX-License-Identifier: Apache-2.0
"""Tool calls and reasoning of chats, with OpenAI's client. No shipped model calls tools, so the text is forced: the option
allowed_words leaves the decoder one token for each step. The forms come from the chat templates of tests/golden."""
import json

import openai
import pytest
from tokenizers import Tokenizer
from wire import ROOT, Server

DECODER = ROOT / "models" / "classics-10m"
TEMPLATES = ROOT / "tests/golden/templates/chats"
END_ID = 2
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}
ASK = [{"role": "user", "content": "Weather?"}]
ARGUMENTS = '{"city": "Zürich", "days": 2}'

# template, text of the model, reasoning, content, arguments of each call
FORMS = {
    "qwen3": ("<think>\nhm {é}\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": %s}\n</tool_call>\n"
              "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>", "hm {é}", "I look.", [ARGUMENTS, "{}"]),
    "qwen25": ("<tool_call>{\"name\": \"get_weather\", \"arguments\": %s}</tool_call>", None, None, [ARGUMENTS]),
    "llama3": ("{\"name\": \"get_weather\", \"parameters\": %s}", None, None, [ARGUMENTS]),
    "mistral": ("[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": %s, \"id\": \"abcdefghi\"}]", None, None, [ARGUMENTS]),
    "harmony": ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
                "<|constrain|>json<|message|>%s", "hm", None, [ARGUMENTS]),
    "coder": ("<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
              "</function>\n</tool_call>", None, None, [ARGUMENTS]),
}


def add_model(folder, name, template, more=""):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(
        'backend: "engine"\n'
        f'parameters {{ key: "model_path" value {{ string_value: "{DECODER}" }} }}\n'
        f'parameters {{ key: "chat_template" value {{ string_value: "{template}" }} }}\n' + more)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name in FORMS:
        if name != "coder":
            add_model(folder, name, TEMPLATES / f"{name}.jinja")
    add_model(folder, "coder", "chatml", 'parameters { key: "tool_parser" value { string_value: "qwen3_coder" } }\n')
    add_model(folder, "plain", "plain")
    with Server("--allow-external-paths=true", repositories=[folder]) as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url("/v1"), api_key="none", max_retries=0, timeout=60) as one:
        yield one


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(DECODER / "tokenizer.json"))


def force(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids + [END_ID]
    return {"temperature": 0, "max_tokens": len(ids), "extra_body": {"allowed_words": [ids], "min_tokens": len(ids) - 1}}


def ask(client, model, forced, **more):
    extra = {**forced.get("extra_body", {}), **more.pop("extra_body", {})}
    return client.chat.completions.create(**{"model": model, "messages": ASK, "tools": [WEATHER], **forced, **more, "extra_body": extra})


def join(parts):
    """The message that the deltas of a stream add up to."""
    content, reasoning, calls, finish = "", "", [], None
    for part in parts:
        choice = part.choices[0]
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            if call.index == len(calls):
                assert call.id and call.type == "function" and call.function.arguments == ""
                calls.append([call.id, call.function.name, ""])
            else:
                assert call.index == len(calls) - 1 and not call.id
                calls[-1][2] += call.function.arguments
    return content, reasoning, calls, finish


@pytest.mark.parametrize("model", FORMS)
def test_calls(client, tokenizer, model):
    text, reasoning, content, arguments = FORMS[model]
    forced = force(tokenizer, text % ARGUMENTS if "%s" in text else text)
    choice = ask(client, model, forced).choices[0]
    message = choice.message
    assert choice.finish_reason == "tool_calls" and message.content == content
    assert getattr(message, "reasoning_content", None) == reasoning
    assert [c.function.arguments for c in message.tool_calls] == arguments
    assert [json.loads(c.function.arguments) for c in message.tool_calls]
    assert {c.function.name for c in message.tool_calls} == {"get_weather"}
    assert len({c.id for c in message.tool_calls}) == len(arguments)
    if model == "mistral":
        assert len(message.tool_calls[0].id) == 9
    streamed = join(ask(client, model, forced, stream=True))
    assert streamed[:2] == (content or "", reasoning or "") and streamed[3] == "tool_calls"
    assert [c[2] for c in streamed[2]] == arguments
    parts = list(ask(client, model, forced, stream=True))
    if model != "coder":  # a parameter comes whole
        assert sum(bool(p.choices[0].delta.tool_calls) for p in parts) > 4


def test_switches(client, tokenizer):
    text, reasoning, content, _ = FORMS["qwen3"]
    forced = force(tokenizer, text % ARGUMENTS)
    one = ask(client, "qwen3", forced, parallel_tool_calls=False).choices[0].message
    assert len(one.tool_calls) == 1
    none = ask(client, "qwen3", forced, tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.finish_reason == "stop"
    assert none.message.content.startswith("I look.\n<tool_call>") and none.message.reasoning_content == reasoning
    hidden = ask(client, "qwen3", forced, extra_body={"include_reasoning": False}).choices[0].message
    assert getattr(hidden, "reasoning_content", None) is None and hidden.content == content
    # the prompt closes reasoning: the text has none
    closed = ask(client, "qwen3", force(tokenizer, "Hi."), extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert closed.choices[0].message.content == "Hi."


def test_malformed(client, tokenizer):
    text = "<tool_call>\n{\"name\": 5}\n</tool_call> so"
    choice = ask(client, "qwen25", force(tokenizer, text)).choices[0]
    assert choice.message.content == text and choice.message.tool_calls is None and choice.finish_reason == "stop"
    forced = force(tokenizer, FORMS["qwen25"][0] % ARGUMENTS)
    cut = ask(client, "qwen25", {**forced, "max_tokens": 45}, extra_body={"min_tokens": 45}).choices[0]
    assert cut.finish_reason == "length" and ARGUMENTS.startswith(cut.message.tool_calls[0].function.arguments)


def test_named(client, tokenizer):
    """The prompt begins the call; the model goes on with its arguments."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    for model, end in (("qwen3", "}\n</tool_call>"), ("llama3", "}"), ("mistral", "}]"), ("harmony", "")):
        choice = ask(client, model, force(tokenizer, ARGUMENTS + end), tool_choice=named).choices[0]
        assert choice.finish_reason == "tool_calls", model
        assert [(c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [("get_weather", ARGUMENTS)]
    name = force(tokenizer, "get_weather\", \"arguments\": {}}\n</tool_call>")
    called = ask(client, "qwen25", name, tool_choice="required").choices[0].message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in called] == [("get_weather", "{}")]


HELD = {"type": "function", "function": {"name": "book", "description": "A room.", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Zürich"]}, "nights": {"$ref": "#/$defs/nights"}},
    "required": ["city", "nights"], "additionalProperties": False, "$defs": {"nights": {"type": "integer", "minimum": 1, "maximum": 30}}}}}


@pytest.mark.parametrize("model", FORMS)
def test_held(client, model):
    """The arguments of a call that must come follow the schema of its tool, whatever the model likes to write."""
    for choice in ("required", {"type": "function", "function": {"name": "book"}}):
        for seed in range(3):
            answer = client.chat.completions.create(model=model, messages=ASK, tools=[HELD], tool_choice=choice, seed=seed,
                                                    temperature=1.2, max_tokens=200, parallel_tool_calls=False).choices[0]
            assert answer.finish_reason == "tool_calls" and len(answer.message.tool_calls) == 1, (answer, choice)
            call = answer.message.tool_calls[0].function
            given = json.loads(call.arguments)
            assert call.name == "book" and given.keys() == {"city", "nights"}
            assert given["city"] in ("Rome", "Zürich") and 1 <= given["nights"] <= 30
    streamed = join(client.chat.completions.create(model=model, messages=ASK, tools=[HELD], tool_choice="required", stream=True,
                                                   temperature=1.2, max_tokens=400))
    assert streamed[2] and json.loads(streamed[2][0][2])["city"] in ("Rome", "Zürich")


def test_strict(client):
    """A strict tool is held without being forced; a schema that cannot be is refused, unless it is not to be held."""
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}}
    for more in ({"tool_choice": "required"}, {"tools": [{**bad, "function": {**bad["function"], "strict": True}}]}):
        with pytest.raises(openai.BadRequestError) as failure:
            client.chat.completions.create(**{"model": "qwen3", "messages": ASK, "tools": [bad], "max_tokens": 4, **more})
        assert "tools" in failure.value.message and "arguments_0" in failure.value.message
        assert "at #/properties/a: the keyword 'not' is not supported" in failure.value.message
    loose = {**bad, "function": {**bad["function"], "strict": False}}
    for more in ({"tool_choice": "required", "tools": [loose]}, {}):
        client.chat.completions.create(**{"model": "qwen3", "messages": ASK, "tools": [bad], "max_tokens": 4, **more})


def test_refused(client, tokenizer):
    forced = force(tokenizer, "Hi.")
    other = {"type": "function", "function": {"name": "other"}}
    for more in ({"tool_choice": other}, {"tool_choice": "must"}, {"tools": [], "tool_choice": "required"},
                 {"tools": [{"type": "function", "function": {}}]}, {"parallel_tool_calls": 1}):
        with pytest.raises(openai.BadRequestError) as failure:
            ask(client, "qwen3", forced, **more)
        assert failure.value.param == next(k for k in reversed(more))
    with pytest.raises(openai.BadRequestError) as failure:
        ask(client, "plain", forced, tool_choice="required")
    assert "tool_parser" in failure.value.message


def test_logprobs(client, tokenizer):
    """Each token is in one chunk's log-probabilities, also where its text is held back."""
    forced = force(tokenizer, FORMS["qwen25"][0] % ARGUMENTS)
    whole = ask(client, "qwen25", forced, logprobs=True).choices[0]
    parts = list(ask(client, "qwen25", forced, logprobs=True, stream=True))
    tokens = [t.token for p in parts if p.choices[0].logprobs for t in p.choices[0].logprobs.content]
    assert tokens == [t.token for t in whole.logprobs.content] and len(tokens) == forced["max_tokens"]


def test_continues(client):
    """continue_final_message: the prompt ends in the last message."""
    talk = [*ASK, {"role": "assistant", "content": "It is "}]
    answer = client.chat.completions.create(model="qwen25", messages=talk, max_tokens=4, extra_body={"continue_final_message": True})
    whole = client.chat.completions.create(model="qwen25", messages=talk, max_tokens=4)
    assert 0 < whole.usage.prompt_tokens - answer.usage.prompt_tokens < 40
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="qwen25", messages=talk, max_tokens=4, extra_body={
            "continue_final_message": True, "add_generation_prompt": True})
