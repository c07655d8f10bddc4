# SPDX-License-Identifier: Apache-2.0
"""64 streams of two models, over four faces at once, say what `proa run` says for the same options and seed."""
import json
import subprocess
import threading

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from wire import PROA, ROOT, Server

MODELS = {"classics-10m": ["It was", "Call me", "When she opened the door", "The river", "He said that"],
          "m30k-t5": ["translate English to German: A dog runs on the beach.",
                      "translate English to French: A man reads a newspaper.",
                      "translate English to German: Two children play in the snow."]}
COUNT = 64


def asked(i):
    """Model, prompt and options of the i-th stream: lengths, greedy and sampled ones, penalties and stops mixed."""
    model = list(MODELS)[i % 2]
    options = {"max_tokens": 8 + 5 * (i % 9)}
    if i % 3:
        options |= {"temperature": 0.5 + 0.1 * (i % 6), "seed": 1000 + i, "top_p": 0.7 + 0.05 * (i % 5)}
    if i % 5 == 0:
        options["repetition_penalty"] = 1.2
    return model, MODELS[model][i // 2 % len(MODELS[model])], options


@pytest.fixture(scope="module")
def expected():
    texts = [None] * COUNT
    for model in MODELS:
        mine = [i for i in range(COUNT) if asked(i)[0] == model]
        lines = "".join(json.dumps({"prompt": asked(i)[1], **asked(i)[2]}) + "\n" for i in mine)
        run = subprocess.run([PROA, "run", ROOT / "models" / model, "--dtype", "exact", "--input", "-", "--json"], input=lines,
                             capture_output=True, text=True, timeout=120, check=True)
        for i, line in zip(mine, run.stdout.splitlines(), strict=True):
            texts[i] = json.loads(line)["text"]
    return texts


@pytest.fixture(scope="module")
def served():
    with Server(repositories=[ROOT / "models" / model for model in MODELS]) as server:
        yield server


def by_openai(server, model, prompt, options):
    text = ""
    answer = requests.post(f"http://{server.http}/v1/completions", stream=True, timeout=120,
                           json={"model": model, "prompt": prompt, "stream": True, "temperature": 0, **options})
    for line in answer.iter_lines():
        if line.startswith(b"data: {"):
            text += json.loads(line[6:])["choices"][0]["text"]
    return text


def by_generate_stream(server, model, prompt, options):
    text = ""
    answer = requests.post(f"http://{server.http}/v2/models/{model}/generate_stream", stream=True, timeout=120,
                           json={"text_input": prompt, "stream": True, **options})
    for line in answer.iter_lines():
        if line.startswith(b"data: "):
            text += json.loads(line[6:]).get("text_output", "")
    return text


def by_generate(server, model, prompt, options):
    answer = requests.post(f"http://{server.http}/v2/models/{model}/generate", timeout=120,
                           json={"text_input": prompt, **options})
    return answer.json()["text_output"]


def by_grpc(server, model, prompt, options):
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([prompt.encode()], dtype=np.object_))
    with triton.InferenceServerClient(server.grpc) as client:
        result = client.infer(model, [text], parameters=options)
        return result.as_numpy("text_output")[0].decode()


FACES = [by_openai, by_generate_stream, by_generate, by_grpc]


def test_mixed_streams(served, expected):
    texts = [None] * COUNT

    def one(i):
        texts[i] = FACES[i // 2 % len(FACES)](served, *asked(i))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == expected
