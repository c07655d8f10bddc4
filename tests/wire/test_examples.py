# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/clients against `proa serve` on the repositories they name: what they print is what `proa run`
says for the same model and options."""
import json
import re
import socket
import subprocess
import sys

import pytest
from wire import PROA, ROOT, Server

CLIENTS, REPOSITORIES, MODELS = ROOT / "examples/clients", ROOT / "examples/repository", ROOT / "models"
LM, T5, BERT = MODELS / "classics-10m", MODELS / "m30k-t5", MODELS / "polarity-bert"
NIGHT = "It was a dark and stormy night"


def served(*paths):
    """A fixture: these paths served while the tests of this file run; the server must end well."""

    @pytest.fixture(scope="module")
    def fixture():
        with Server(repositories=paths) as one:
            yield one
            assert one.stop() == 0

    return fixture


gptj = served(REPOSITORIES / "gptj-text-ensemble")
t5 = served(REPOSITORIES / "t5-client-tokens")
llama = served(REPOSITORIES / "llama-streaming")
shipped = served(T5, LM, BERT)


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """classics-10m with a chat template, since the model that ships has none."""
    folder = tmp_path_factory.mktemp("chat") / "classics-chat"
    folder.mkdir()
    for file in LM.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((LM / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}narrator:"
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with Server(repositories=[folder]) as one:
        yield one
        assert one.stop() == 0


def client(program, *args, status=0):
    """Runs it with standard output as bytes arrive; returns what it printed."""
    command = [] if program.endswith(".sh") else [sys.executable]
    ran = subprocess.run([*command, CLIENTS / program, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout if status == 0 else ran.stderr


def said(model, text, *options, dtype="exact"):
    """proa run's object for this prompt."""
    ran = subprocess.run([PROA, "run", model, text, "--dtype", dtype, *map(str, options), "--json"],
                         capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


# ---- GPT-J's guide ----


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_gptj_batch(gptj, protocol):
    prompts = [NIGHT, "The sea", "He said that he"]
    printed = client("gptj_text.py", "--protocol", protocol, "--url", getattr(gptj, protocol), "--tokens", 14, *prompts)
    expected = [p + said(LM, p, "--style", "ft", "--max-tokens", 14)["text"] for p in prompts]
    assert printed == "\n".join(expected) + "\n"


def test_gptj_words_and_sampling(gptj):
    plain = client("gptj_text.py", "--url", gptj.http, NIGHT)
    assert " wind had" in plain
    assert " wind" not in client("gptj_text.py", "--url", gptj.http, NIGHT, "--bad-words", " wind, rain")
    stopped = client("gptj_text.py", "--url", gptj.http, NIGHT, "--stop-words", " sun, wind")
    assert stopped == plain[: plain.index(" wind") + len(" wind")] + "\n"
    options = ["--top-k", 30, "--temperature", 0.9, "--seed", 7]
    drawn = client("gptj_text.py", "--url", gptj.http, NIGHT, *options)
    assert drawn == NIGHT + said(LM, NIGHT, "--style", "ft", "--max-tokens", 16, *options)["text"] + "\n"
    assert drawn != plain


# ---- T5's guide, whose config.pbtxt has data_type auto ----


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_t5_batch(t5, protocol):
    texts = [
        "translate English to German: Two young women are playing with a dog on the beach.",
        "translate English to French: A man reads a newspaper.",
        "translate English to German: A dog runs.",
    ]
    printed = client("t5_tokens.py", "--tokenizer", T5, "--protocol", protocol, "--url", getattr(t5, protocol), *texts)
    assert printed.splitlines() == [said(T5, text, dtype="auto")["text"] for text in texts]
    assert printed.splitlines()[0] == "Zwei junge Frauen spielen mit einem Hund am Strand."


def test_t5_beams(t5):
    text = "translate English to German: Two young women are playing with a dog."
    printed = client("t5_tokens.py", "--tokenizer", T5, "--url", t5.http, "--beams", 4, "--all", text).splitlines()
    run = said(T5, text, "--beams", 4, "--style", "ft", "--max-tokens", 64, dtype="auto")
    assert len(printed) == 4
    for line, beam in zip(printed, run["beams"]):
        score, translation = line.split(" ", 1)
        assert translation == beam["text"]
        assert abs(float(score) - beam["score"]) < 1e-3


# ---- TensorRT-LLM's ensemble ----


def test_llama_streams(llama):
    printed = client("llama_stream.py", "--url", llama.grpc, "--tokens", 24, NIGHT)
    assert printed == said(LM, NIGHT, "--style", "trtllm", "--max-tokens", 24)["text"] + "\n"
    assert client("llama_stream.py", "--url", llama.grpc, "--tokens", 24, "--whole", NIGHT) == printed


def test_llama_many_on_one_stream(llama):
    prompts = [f"Chapter {i}. {NIGHT}" for i in range(8)]
    printed = client("llama_stream.py", "--url", llama.grpc, "--tokens", 12, *prompts)
    expected = [p + said(LM, p, "--style", "trtllm", "--max-tokens", 12)["text"] for p in prompts]
    assert printed == "\n".join(expected) + "\n"


def test_llama_words_and_errors(llama):
    whole = client("llama_stream.py", "--url", llama.grpc, "--tokens", 24, NIGHT)
    assert " wind had" in whole
    words = ["--stop-words", " sun", " wind", "--", NIGHT]
    stopped = client("llama_stream.py", "--url", llama.grpc, "--tokens", 24, *words)
    assert stopped == whole[: whole.index(" wind") + len(" wind")] + "\n"
    words = ["--bad-words", " wind", " rain", "--", NIGHT]
    assert " wind" not in client("llama_stream.py", "--url", llama.grpc, "--tokens", 24, *words)
    assert "request_output_len is 0" in client("llama_stream.py", "--url", llama.grpc, "--tokens", 0, status=1)


# ---- OpenAI ----


def test_openai_completion(shipped):
    url = f"http://{shipped.http}/v1"
    printed = client("openai_chat.py", "--url", url, "--model", "classics-10m", "--tokens", 20, "--usage", NIGHT)
    run = said(LM, NIGHT, "--max-tokens", 20)
    assert printed == f"{run['text']}\n{run['prompt_tokens']} tokens in, 20 out\n"
    stopped = client("openai_chat.py", "--url", url, "--model", "classics-10m", "--tokens", 20, NIGHT, "--stop", ".", "sun")
    assert stopped == run["text"][: run["text"].index(".")] + "\n"
    assert "does not exist" in client("openai_chat.py", "--url", url, "--model", "nobody", status=1)


def test_openai_chat(chat):
    printed = client("openai_chat.py", "--url", f"http://{chat.http}/v1", "--chat", "--system", "Be brief.", "--tokens", 16, "The sea")
    prompt = "system: Be brief.\nuser: The sea\nnarrator:"
    ids = " ".join(map(str, encoded(prompt)))
    ran = subprocess.run([PROA, "run", LM, "--dtype", "exact", "--ids", ids, "--max-tokens", "16", "--json"],
                         capture_output=True, text=True, check=True)
    assert printed == json.loads(ran.stdout)["text"] + "\n"


def encoded(text):
    """A chat template writes its own special tokens, so none are added."""
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(LM / "tokenizer.json")).encode(text, add_special_tokens=False).ids


# ---- the engine's options of the command line ----


@pytest.mark.parametrize("options, expected", [
    (["--dtype", "f32", "--threads", "1", "--kv-tokens", "1000"], r"\(f32, quant none, 1 threads\), room for 1024 tokens"),
    (["--quant", "int8"], r"quant int8"),
    (["--backend-config", "engine,dtype=f32"], r"\(f32, quant none"),
    (["--backend-config", "dtype=f32"], r"\(f32, quant none"),
    (["--backend-config", "tokenizer,dtype=f32"], r"\((bf16|f32), quant none"),
])
def test_settings_reach_the_engine(start, options, expected):
    assert re.search(expected, start(*options, repositories=[LM]).log_text())


# ---- curl ----


def test_curl(shipped):
    printed = client("curl.sh", "--url", f"http://{shipped.http}", "--metrics", f"http://{shipped.metrics}")
    assert printed.startswith("ready: 200\n")
    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    texts = [a["text_output"] for a in answers if "text_output" in a]
    assert texts == ["Ein Hund rennt am Strand.", ["Ein Hund rennt am Strand.", "Ein Hund läuft am Strand."]]
    [about] = [a for a in answers if "platform" in a]
    assert about["name"] == "polarity-bert" and about["inputs"][0]["name"] == "text_input"
    [infer] = [a for a in answers if "outputs" in a and "platform" not in a]
    assert infer["outputs"][0]["name"] == "scores" and infer["outputs"][0]["data"][0] > 0.5
    events = [json.loads(e) for e in re.findall(r"^data: (\{.*\})$", printed, re.M)]
    run = said(LM, "The sea", "--max-tokens", 3)
    assert "".join(e.get("text_output", "") for e in events) == run["text"]
    completion = next(a for a in answers if a.get("object") == "text_completion")
    run = said(LM, "It was a dark and stormy", "--max-tokens", 8)
    assert completion["choices"][0]["text"] == run["text"]
    streamed = "".join(e["choices"][0]["text"] for e in events if "choices" in e)
    assert run["text"].startswith(streamed) and streamed
    assert printed.count("data: [DONE]") == 1
    assert re.search(r"^proa_requests_in_flight 0$", printed, re.M)


@pytest.mark.parametrize("program", sorted(p.name for p in CLIENTS.iterdir() if p.suffix in (".py", ".sh")))
def test_each_program_says_how_to_use_it(program):
    command = [] if program.endswith(".sh") else [sys.executable]
    ran = subprocess.run([*command, CLIENTS / program, "--help"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "proa serve" in ran.stdout and "--url" in ran.stdout
    ran = subprocess.run([*command, CLIENTS / program, "--what"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "--url" in ran.stderr


@pytest.mark.parametrize("program", sorted(p.name for p in CLIENTS.iterdir() if p.suffix == ".py"))
def test_nobody_serves_there(program):
    """One line, not where in a library it was noticed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1" if program.startswith("openai") else f"127.0.0.1:{port}"
    ran = subprocess.run([sys.executable, CLIENTS / program, "--url", url], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and ran.stdout == "" and "Traceback" not in ran.stderr, ran.stderr
    assert re.search("refused|Connection error|failed to connect", ran.stderr)
