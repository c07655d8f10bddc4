# SPDX-License-Identifier: Apache-2.0
"""OpenAI's API with its own client, on the shipped models: a decoder, an encoder-decoder and an encoder."""
import gzip
import json
import math
import socket
import struct
import time
import zlib

import openai
import pytest
import requests
from wire import ROOT, Server, raw_request, read_answer, wait_until

DECODER, TRANSLATOR, ENCODER = "classics-10m", "m30k-t5", "polarity-bert"
PROMPT = "It was the"


@pytest.fixture(scope="module")
def models():
    with Server(repositories=[ROOT / "models" / name for name in (DECODER, TRANSLATOR, ENCODER)]) as running:
        yield running


@pytest.fixture
def client(models):
    with openai.OpenAI(base_url=models.url("/v1"), api_key="none", max_retries=0, timeout=60) as one:
        yield one


def figures(server):
    with server.connect() as sock:
        sock.sendall(raw_request("/figures", method="GET"))
        return json.loads(read_answer(sock)[2])


def of_model(server, name):
    return next(m for m in figures(server)["models"] if m["name"] == name)


def test_models(client):
    assert [m.id for m in client.models.list()] == sorted([DECODER, TRANSLATOR, ENCODER])
    one = client.models.retrieve(DECODER)
    assert one.id == DECODER and one.object == "model" and one.created > 1.6e9
    with pytest.raises(openai.NotFoundError) as failure:
        client.models.retrieve("nothing")
    assert failure.value.code == "model_not_found"


def test_completion(client):
    answer = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.object == "text_completion" and answer.model == DECODER and answer.id.startswith("cmpl-")
    assert answer.system_fingerprint.startswith("fp_") and abs(answer.created - time.time()) < 60
    choice = answer.choices[0]
    assert choice.text and choice.finish_reason == "length" and choice.index == 0 and choice.logprobs is None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    echoed = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=12, temperature=0, echo=True)
    assert echoed.choices[0].text == PROMPT + choice.text


def test_cached_tokens(client):
    """A prompt that came before is not computed again, but for its last page."""
    ids = [3 + i * 7 % 1000 for i in range(150)]
    first = client.completions.create(model=DECODER, prompt=ids, max_tokens=5, temperature=0)
    again = client.completions.create(model=DECODER, prompt=ids, max_tokens=5, temperature=0)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens == 128
    assert again.choices[0].text == first.choices[0].text
    salted = [client.completions.create(model=DECODER, prompt=ids, max_tokens=5, temperature=0, extra_body={"cache_salt": salt})
              for salt in ("a", "b", "a")]
    assert [one.usage.prompt_tokens_details.cached_tokens for one in salted] == [0, 0, 128]
    assert {one.choices[0].text for one in salted} == {first.choices[0].text}
    with pytest.raises(openai.BadRequestError, match="cache_salt"):
        client.completions.create(model=DECODER, prompt=ids, max_tokens=5, extra_body={"cache_salt": 3})
    both = client.completions.create(model=DECODER, prompt=[ids, ids[:100]], max_tokens=5, temperature=0)
    assert both.usage.prompt_tokens_details.cached_tokens == 128 + 64


def test_default_length(client):
    assert client.completions.create(model=DECODER, prompt=PROMPT, temperature=0).usage.completion_tokens == 16


def test_stream_is_the_same(client):
    settings = {"model": DECODER, "prompt": PROMPT, "max_tokens": 24, "temperature": 0.9, "seed": 11}
    whole = client.completions.create(**settings)
    parts = list(client.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.text for p in parts for c in p.choices) == whole.choices[0].text
    assert parts[-1].choices == [] and parts[-1].usage == whole.usage
    assert all(p.usage is None and p.id == parts[0].id for p in parts[:-1])
    assert [c.finish_reason for p in parts for c in p.choices][-1] == "length"
    assert len(parts) > 10


def test_seeds(client):
    def said(**more):
        return client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=16, temperature=1, **more).choices[0].text
    assert said(seed=5) == said(seed=5)
    assert len({said() for _ in range(4)}) > 1


def test_n_and_lists(client):
    two = client.completions.create(model=DECODER, prompt=[PROMPT, "She said"], n=3, max_tokens=8, seed=3, temperature=1)
    assert [c.index for c in two.choices] == list(range(6)) and two.usage.completion_tokens == 48
    one = client.completions.create(model=DECODER, prompt="She said", n=3, max_tokens=8, seed=3, temperature=1)
    assert [c.text for c in one.choices] == [c.text for c in two.choices[3:]]
    assert len({c.text for c in one.choices}) > 1


def test_streams_of_n(client):
    settings = {"model": DECODER, "prompt": [PROMPT, "She said"], "n": 2, "max_tokens": 8, "seed": 3, "temperature": 1}
    whole = client.completions.create(**settings)
    texts = {}
    for part in client.completions.create(**settings, stream=True):
        for c in part.choices:
            texts[c.index] = texts.get(c.index, "") + c.text
    assert texts == {c.index: c.text for c in whole.choices}


def test_token_ids(client):
    from tokenizers import Tokenizer
    ids = Tokenizer.from_file(str(ROOT / "models" / DECODER / "tokenizer.json")).encode(PROMPT).ids
    by_text = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=8, temperature=0)
    by_ids = client.completions.create(model=DECODER, prompt=ids, max_tokens=8, temperature=0)
    by_lists = client.completions.create(model=DECODER, prompt=[ids, ids], max_tokens=8, temperature=0)
    assert by_ids.choices[0].text == by_text.choices[0].text == by_lists.choices[1].text
    assert by_ids.usage.prompt_tokens == len(ids)


def test_best_of(client):
    answer = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=8, best_of=4, n=2, seed=1)
    assert len(answer.choices) == 2
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=DECODER, prompt=PROMPT, best_of=4, n=2, stream=True)


def test_stop(client):
    free = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=40, temperature=0).choices[0].text
    word = free.split()[3]
    stopped = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=40, temperature=0, stop=word).choices[0]
    assert stopped.text == free[:free.index(word)] and stopped.finish_reason == "stop"
    streamed = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=40, temperature=0, stop=[word], stream=True)
    assert "".join(c.text for p in streamed for c in p.choices) == stopped.text


def test_stop_token_ids(models, client):
    """vLLM's: the token ends the text and is part of it."""
    settings = {"model": DECODER, "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    free = client.completions.create(**settings, logprobs=0).choices[0]
    body = {"model": DECODER, "prompt": free.text, "add_special_tokens": False}
    ids = requests.post(models.url("/tokenize"), timeout=30, json=body).json()["tokens"]
    stopped = client.completions.create(**settings, extra_body={"stop_token_ids": [ids[5]]}).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == "".join(free.logprobs.tokens[:ids.index(ids[5]) + 1])


def test_logprobs(client):
    answer = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3)
    told = answer.choices[0].logprobs
    assert "".join(told.tokens) == answer.choices[0].text
    assert len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset) == 6
    assert all(max(top.values()) == pytest.approx(p) for top, p in zip(told.top_logprobs, told.token_logprobs))
    assert told.text_offset == [len("".join(told.tokens[:i])) for i in range(6)]
    assert all(p <= 0 for p in told.token_logprobs)
    told = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=40, temperature=2, seed=3, logprobs=1,
                                     extra_body={"ignore_eos": True}).choices[0].logprobs
    assert {len(top) for top in told.top_logprobs} == {1, 2}  # the sampled token is always there
    assert all(top[t] == p for top, t, p in zip(told.top_logprobs, told.tokens, told.token_logprobs))


def test_prompt_logprobs(client):
    answer = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=0, echo=True, logprobs=0)
    told = answer.choices[0].logprobs
    assert answer.choices[0].text == PROMPT and answer.usage.completion_tokens == 0
    assert told.token_logprobs[0] is None and all(p < 0 for p in told.token_logprobs[1:])
    more = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=4, echo=True, logprobs=0, temperature=0)
    assert len(more.choices[0].logprobs.tokens) == len(told.tokens) + 4
    assert more.choices[0].logprobs.token_logprobs[1:len(told.tokens)] == pytest.approx(told.token_logprobs[1:], rel=1e-3)


def test_logit_bias(client):
    plain = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=1, temperature=0, extra_body={"top_k": 5})
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / DECODER / "tokenizer.json"))
    first = next(i for t, i in tokenizer.get_vocab().items() if tokenizer.decode([i]) == plain.choices[0].text)
    other = client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=1, temperature=0, logit_bias={str(first): -100})
    assert other.choices[0].text != plain.choices[0].text


def test_translation(client):
    answer = client.completions.create(model=TRANSLATOR, prompt="translate English to German: A dog runs.", max_tokens=30,
                                       temperature=0, extra_body={"beams": 4})
    assert "Hund" in answer.choices[0].text and answer.choices[0].finish_reason == "stop"


def test_embeddings(client):
    answer = client.embeddings.create(model=ENCODER, input=["a fine film", "a dull film"], encoding_format="float")
    a, b = (d.embedding for d in answer.data)
    assert len(a) == len(b) and math.isclose(sum(x * x for x in a), 1, rel_tol=1e-4) and a != b
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 4
    packed = client.with_raw_response.embeddings.create(model=ENCODER, input="a fine film", encoding_format="base64")
    import base64
    text = json.loads(packed.text)["data"][0]["embedding"]
    assert list(struct.unpack(f"<{len(a)}f", base64.b64decode(text))) == pytest.approx(a, abs=1e-6)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=ENCODER, prompt="x")


@pytest.mark.parametrize("more, param", [
    ({"temperature": 5}, "temperature"), ({"n": 0}, "n"), ({"suffix": "x"}, "suffix"), ({"logprobs": 50}, "logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"), ({"stop": 5}, "stop"), ({"extra_body": {"top_k": "many"}}, None),
])
def test_bad_requests(client, more, param):
    with pytest.raises(openai.BadRequestError) as failure:
        client.completions.create(**{"model": DECODER, "prompt": PROMPT, **more})
    assert failure.value.type == "invalid_request_error" and failure.value.param == param


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as failure:
        client.completions.create(model="nothing", prompt="x")
    assert failure.value.code == "model_not_found" and "'nothing'" in failure.value.message


def test_too_long(client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=DECODER, prompt="word " * 20000, max_tokens=1)


def test_chat_needs_a_template(client):
    with pytest.raises(openai.BadRequestError) as failure:
        client.chat.completions.create(model=DECODER, messages=[{"role": "user", "content": "hi"}])
    assert "chat template" in failure.value.message


# ---- chat: the decoder with a template ----

@pytest.fixture(scope="module")
def chatty(tmp_path_factory):
    """The decoder as a model of a repository whose configuration names a template."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "chat" / "1").mkdir(parents=True)
    (folder / "chat" / "config.pbtxt").write_text(
        'backend: "engine"\n'
        f'parameters {{ key: "model_path" value {{ string_value: "{ROOT / "models" / DECODER}" }} }}\n'
        'parameters { key: "chat_template" value { string_value: "plain" } }\n')
    with Server(repositories=[folder]) as running:
        yield running


@pytest.fixture
def chat(chatty):
    with openai.OpenAI(base_url=chatty.url("/v1"), api_key="none", max_retries=0, timeout=60) as one:
        yield one


TALK = [{"role": "system", "content": "A story."}, {"role": "user", "content": [{"type": "text", "text": "Who came?"}]}]


def test_chat(chat):
    settings = {"model": "chat", "messages": TALK, "max_completion_tokens": 12, "temperature": 0}
    answer = chat.chat.completions.create(**settings, logprobs=True, top_logprobs=2)
    message = answer.choices[0].message
    assert answer.object == "chat.completion" and message.role == "assistant" and message.content
    told = answer.choices[0].logprobs.content
    assert len(told) == 12 and all(len(t.top_logprobs) == 2 for t in told)
    assert b"".join(bytes(t.bytes) for t in told).decode() == message.content
    by_hand = chat.completions.create(model="chat", prompt="A story.\n\nUser: Who came?\nAssistant:", max_tokens=12, temperature=0)
    assert by_hand.usage.prompt_tokens >= answer.usage.prompt_tokens
    parts = list(chat.chat.completions.create(**settings, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in parts) == message.content
    assert parts[-1].choices[0].finish_reason == "length"


def test_chat_choices(chat):
    answer = chat.chat.completions.create(model="chat", messages=TALK, n=3, max_tokens=8, seed=4, temperature=1)
    assert [c.index for c in answer.choices] == [0, 1, 2] and answer.usage.completion_tokens == 24


def test_chat_refuses(chat):
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    for more in ({"messages": picture}, {"tool_choice": "required"}, {"response_format": {"type": "xml"}}):
        with pytest.raises(openai.BadRequestError):
            chat.chat.completions.create(**{"model": "chat", "messages": TALK, **more})


@pytest.mark.parametrize("role", ["asistant", "", "User", "ipython"])
def test_chat_refuses_a_role(chat, role):
    with pytest.raises(openai.BadRequestError) as refused:
        chat.chat.completions.create(model="chat", messages=[*TALK, {"role": role, "content": "x"}])
    error = refused.value.body
    assert error["param"] == "messages[2].role" and error["code"] == "invalid_value"
    assert error["message"].startswith(f"Invalid value: '{role}'. Supported values of 'messages[2].role' are: 'system', ")


@pytest.mark.parametrize("role", ["system", "assistant", "user", "function", "tool", "developer"])
def test_chat_takes_the_roles_of_openai(chat, role):
    chat.chat.completions.create(model="chat", messages=[{"role": role, "content": "x"}, *TALK[1:]], max_tokens=1)


# ---- clients ----

def test_client_gone(models):
    """A stream and a whole answer whose clients leave: their pages are free at once."""
    body = {"model": DECODER, "prompt": [PROMPT] * 4, "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
    for more in ({"stream": True}, {}):
        sock = models.connect()
        sock.sendall(raw_request("/v1/completions", json.dumps({**body, **more}).encode()))
        wait_until(lambda: of_model(models, DECODER)["running"] == 4)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        wait_until(lambda: of_model(models, DECODER)["running"] == 0)
        wait_until(lambda: figures(models)["in_flight"] == 0)


def test_keys():
    with Server("--api-key", "secret", repositories=[ROOT / "models" / DECODER]) as locked:
        def client(key):
            return openai.OpenAI(base_url=locked.url("/v1"), api_key=key, max_retries=0)
        with pytest.raises(openai.AuthenticationError) as failure:
            client("wrong").models.list()
        assert failure.value.code == "invalid_api_key"
        assert client("secret").completions.create(model=DECODER, prompt=PROMPT, max_tokens=2).usage.completion_tokens == 2


def test_many_at_once(client):
    """32 requests side by side say what each says alone."""
    from concurrent.futures import ThreadPoolExecutor

    def said(seed):
        return client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=12, temperature=1, seed=seed).choices[0].text
    alone = [said(seed) for seed in range(8)]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(said, [s % 8 for s in range(32)])) == [alone[s % 8] for s in range(32)]


FIELDS = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    "completion": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embedding": ("/v1/embeddings", {"input": "a"}),
    "response": ("/v1/responses", {"input": "a", "max_output_tokens": 1}),
    "message": ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    "rerank": ("/rerank", {"query": "a", "documents": ["b"]}),
    "score": ("/score", {"text_1": "a", "text_2": "b"}),
    "tokenize": ("/tokenize", {"prompt": "a"}),
    "detokenize": ("/detokenize", {"tokens": [1]}),
}


@pytest.fixture(scope="module")
def talker():
    with Server(repositories=[ROOT / "tests/fuzz/repository/chat"]) as running:
        yield running


@pytest.mark.parametrize("operation", FIELDS)
def test_fields_of_others_are_refused(talker, operation):
    """A member that no operation has is refused by its name, null is as if it was not there."""
    path, body = FIELDS[operation]
    for more, status in (({"no_such": 1}, 400), ({"no_such": None}, 200), ({}, 200)):
        answer = requests.post(talker.url(path), json={"model": "chat"} | body | more, timeout=60)
        assert answer.status_code == status, answer.text
        assert status == 200 or "no_such" in answer.text


@pytest.mark.parametrize("operation, field, good, bad", [
    ("chat", "store", False, True), ("chat", "metadata", {"a": "b"}, "b"), ("chat", "user", "u", 5),
    ("chat", "service_tier", "auto", "flex"), ("chat", "verbosity", "medium", "low"), ("chat", "prediction", None, {}),
    ("chat", "parallel_tool_calls", False, 5), ("chat", "audio", None, {}), ("chat", "prompt_cache_key", "k", []),
    ("chat", "safety_identifier", "s", 1), ("chat", "top_k", 5, "x"), ("chat", "modalities", ["text"], ["audio"]),
    ("chat", "continue_final_message", False, 5), ("completion", "user", "u", 5), ("completion", "messages", None, []),
    ("embedding", "user", "u", 5), ("embedding", "top_k", None, 5), ("response", "parallel_tool_calls", False, 5),
    ("response", "max_tokens", None, 5), ("message", "metadata", {"user_id": "u"}, 5), ("message", "n", None, 1)])
def test_each_field(talker, operation, field, good, bad):
    path, body = FIELDS[operation]
    for value, status in ((good, 200), (bad, 400)):
        answer = requests.post(talker.url(path), json={"model": "chat"} | body | {field: value}, timeout=60)
        assert answer.status_code == status, answer.text
    assert field in answer.json()["error"]["message"]


def test_stream_options(talker):
    path, body = FIELDS["chat"]
    for options, status in (({"include_usage": True, "include_obfuscation": False}, 200),
                            ({"include_obfuscation": True}, 400), ({"nothing": 1}, 400)):
        answer = requests.post(talker.url(path), timeout=60,
                               json={"model": "chat", "stream": True, "stream_options": options} | body)
        assert answer.status_code == status, answer.text



@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)])
def test_compressed_body(models, coding, pack):
    body = {"model": DECODER, "prompt": PROMPT, "max_tokens": 2, "temperature": 0}
    answer = requests.post(models.url("/v1/completions"), data=pack(json.dumps(body).encode()), timeout=60,
                           headers={"Content-Encoding": coding})
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("coding, status, words", [("br", 415, "'Content-Encoding' 'br'"), ("gzip", 400, "decompress")])
def test_body_that_cannot_be_decompressed(models, coding, status, words):
    answer = requests.post(models.url("/v1/chat/completions"), data=b"{}", headers={"Content-Encoding": coding}, timeout=60)
    assert answer.status_code == status and words in answer.json()["error"]["message"]


def test_compressed_body_that_is_too_large():
    body = gzip.compress(json.dumps({"model": DECODER, "prompt": "x" * 70000}).encode())
    with Server("--http-max-input-size", "65536", repositories=[ROOT / "models" / DECODER]) as running:
        answer = requests.post(running.url("/v1/completions"), data=body, timeout=60, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413 and "65536" in answer.json()["error"]["message"]


def test_top_k_of_all_tokens(client):
    """vLLM's clients send -1 where we say 0."""
    def text(top_k):
        return client.completions.create(model=DECODER, prompt=PROMPT, max_tokens=12, temperature=1.5, seed=3,
                                         extra_body={"top_k": top_k}).choices[0].text
    assert text(-1) == text(0) != text(1)
    with pytest.raises(openai.BadRequestError, match="option 'top_k' is -2, must be 0 to 2097152"):
        text(-2)
