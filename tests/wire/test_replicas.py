# SPDX-License-Identifier: Apache-2.0
"""`proa serve --replicas` and `--disaggregate`: texts are those of one engine, requests find their prefix, metrics are those
of each replica."""
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from wire import PROA, ROOT, Server

LM = ROOT / "models/classics-10m"
STORY = "It was a dark and stormy night, and the wind had not yet come. " * 18  # some 250 tokens


def complete(server, prompt, tokens=12):
    answer = requests.post(f"http://{server.http}/v1/completions", timeout=60,
                           json={"model": "classics-10m", "prompt": prompt, "max_tokens": tokens, "temperature": 0})  # fmt: skip
    assert answer.status_code == 200, answer.text
    return answer.json()


def figures(server, name):
    """The values of a family, by replica."""
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    found = re.findall(rf'^{name}{{[^}}]*replica="(\d+)"[^}}]*}} (\S+)$', text, flags=re.M)
    return {int(replica): float(value) for replica, value in found}


def routes(server):
    """Requests of both replicas, by why they went there."""
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    found = re.findall(r'^proa_replica_requests_total{[^}]*reason="(\w+)"} (\d+)$', text, flags=re.M)
    assert len(found) == 6
    return {reason: sum(int(count) for name, count in found if name == reason) for reason, _ in found}


@pytest.fixture(scope="module")
def texts():
    """What one engine says."""
    with Server(repositories=[LM]) as server:
        prompts = [f"Chapter {i}. {STORY}" for i in range(6)]
        return {prompt: complete(server, prompt)["choices"][0]["text"] for prompt in prompts}


def test_replicas(texts):
    with Server("--replicas", "2", "--threads", "2", repositories=[LM]) as server:
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda prompt: complete(server, prompt), texts))
        assert [a["choices"][0]["text"] for a in answers] == list(texts.values())
        assert figures(server, "proa_replica_serves") == {0: 1, 1: 1}
        used = figures(server, "proa_engine_prompt_tokens")
        assert min(used.values()) > 0  # six at once are shared
        hits = sum(figures(server, "proa_engine_prefix_cache_hits").values())
        assert routes(server) == {"session": 0, "prefix": 0, "load": 6}
        for prompt in texts:  # each finds the replica that has it
            cached = complete(server, prompt, 1)["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached >= 128
        assert sum(figures(server, "proa_engine_prefix_cache_hits").values()) >= hits + 6 * 128
        assert routes(server) == {"session": 0, "prefix": 6, "load": 6}


def test_disaggregation(texts):
    with Server("--disaggregate", "prefill=1,decode=1", "--threads", "2", repositories=[LM]) as server:
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda prompt: complete(server, prompt), texts))
        assert [a["choices"][0]["text"] for a in answers] == list(texts.values())
        assert all(a["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 for a in answers)
        new = figures(server, "proa_engine_new_tokens")
        assert new == {0: 6, 1: 6 * 12}  # the first runs prompts, with one token each
        hits = figures(server, "proa_engine_prefix_cache_hits")
        assert hits[0] == 0 and hits[1] >= 6 * 128


@pytest.mark.parametrize("value", ["prefill=1", "prefill=0,decode=1", "prefill=1,decode=64", "decode=1,prefill=1", "x"])
def test_wrong_values(value):
    ran = subprocess.run([PROA, "serve", LM, "--disaggregate", value, "--http-port", "0", "--grpc-port", "0",
                          "--metrics-port", "0"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert ran.returncode != 0
    assert f"parameter 'disaggregate' is '{value}', must be prefill=N,decode=M" in ran.stderr
