# SPDX-License-Identifier: Apache-2.0
"""The repositories of examples/two-gpus in two ranks of the CPU: what comes through them is what one rank says."""
import json
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.http as httpclient
from wire import PROA, ROOT, Server

EXAMPLE, CLIENTS, LM = ROOT / "examples/two-gpus", ROOT / "examples/clients", ROOT / "models/classics-10m"
GPTJ = ROOT / "tests/golden/arch/gptj"
NIGHT = "It was a dark and stormy night"


def settings(checkpoint, tokenizer=LM):
    pairs = {"device": "cpu", "tp": 2, "checkpoint": checkpoint, "tokenizer": tokenizer}
    return [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]


def said(text, style, tokens):
    ran = subprocess.run([PROA, "run", LM, text, "--style", style, "--max-tokens", str(tokens), "--json"],
                         capture_output=True, text=True, check=True)  # fmt: skip
    return json.loads(ran.stdout)["text"]


def client(program, *args):
    ran = subprocess.run([sys.executable, CLIENTS / program, *map(str, args)], capture_output=True, text=True,
                         timeout=120, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def divided(server, model):
    return f"model '{model}': divided among 2 ranks" in server.log_text()


def test_gptj_ensemble():
    """Texts through the ensemble."""
    with Server(*settings(LM), repositories=[EXAMPLE / "gptj"]) as server:
        prompts = [NIGHT, "The sea"]
        printed = client("gptj_text.py", "--url", server.http, "--tokens", 14, *prompts)
        assert printed == "\n".join(p + said(p, "ft", 14) for p in prompts) + "\n"
        assert divided(server, "fastertransformer")
        assert server.stop() == 0


def test_llama_ensemble():
    with Server(*settings(LM), repositories=[EXAMPLE / "llama"]) as server:
        printed = client("llama_stream.py", "--url", server.grpc, "--tokens", 24, NIGHT)
        assert printed == said(NIGHT, "trtllm", 24) + "\n"
        assert divided(server, "tensorrt_llm")
        assert server.stop() == 0


@pytest.fixture(scope="module")
def two_parts(tmp_path_factory):
    """A checkpoint of GPT-J in FasterTransformer's files for two GPUs."""
    folder = tmp_path_factory.mktemp("ft") / "gptj-ft"
    subprocess.run([PROA, "convert", GPTJ, folder, "--to", "ft", "--ranks", "2", "--dtype", "f32"], check=True,
                   capture_output=True)  # fmt: skip
    assert list(folder.rglob("*.1.bin")), "no file of a second GPU"
    return folder


def test_gptj_in_two_parts(two_parts):
    """Token ids of the guide's `fastertransformer` model, by the reference's checkpoint."""
    prompt = [5, 9, 17, 4, 33, 8, 71]
    ran = subprocess.run([PROA, "run", GPTJ, "--ids", " ".join(map(str, prompt)), "--max-tokens", "12", "--style", "ft",
                          "--dtype", "f32", "--json"], capture_output=True, text=True, check=True)  # fmt: skip
    expected = json.loads(ran.stdout)["ids"]
    with Server(*settings(two_parts), "--dtype", "f32", repositories=[EXAMPLE / "gptj"]) as server:
        triton = httpclient.InferenceServerClient(server.http)
        inputs = []
        for name, value in {"input_ids": [prompt], "input_lengths": [[len(prompt)]], "request_output_len": [[12]]}.items():
            data = np.array(value, np.uint32)
            inputs.append(httpclient.InferInput(name, data.shape, "UINT32"))
            inputs[-1].set_data_from_numpy(data)
        answer = triton.infer("fastertransformer", inputs)
        ids = answer.as_numpy("output_ids")[0, 0].tolist()
        assert divided(server, "fastertransformer")
        assert ids[: len(prompt)] == prompt and ids[len(prompt) : len(prompt) + len(expected)] == expected
        assert server.stop() == 0
