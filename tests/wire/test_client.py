# SPDX-License-Identifier: Apache-2.0
"""What `proa client` prints of an answer: a text, several, none; numbers as they are; and what it refuses."""
import subprocess

import pytest
from wire import PROA, ROOT, Server

DOG = "translate English to German: A dog runs."
TWO = "--- 1 ---\nEin Hund rennt.\n--- 2 ---\nEin Hund läuft.\n"


@pytest.fixture(scope="module")
def models():
    with Server(repositories=[ROOT / "models" / name for name in ("m30k-t5", "classics-10m", "polarity-bert")]) as running:
        yield running


def client(*arguments):
    return subprocess.run([PROA, "client", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def said(server, *arguments, face="http"):
    ran = client(*arguments, "--url", f"{face}://{getattr(server, face)}")
    assert ran.returncode == 0 and ran.stderr == "", ran
    return ran.stdout


@pytest.mark.parametrize("face", ["http", "grpc"])
def test_texts(models, face):
    assert said(models, "m30k-t5", DOG, face=face) == "Ein Hund rennt.\n"
    assert said(models, "m30k-t5", DOG, "--stream", face=face) == "Ein Hund rennt.\n"
    assert said(models, "m30k-t5", DOG, "--param", "beams=4", "--param", "beams_returned=2", face=face) == TWO


def test_several_of_openai(models):
    texts = said(models, "m30k-t5", DOG, "--endpoint-type", "completions", "--param", "n=2", "--param", "temperature=0")
    assert texts == "--- 1 ---\nEin Hund rennt.\n--- 2 ---\nEin Hund rennt.\n"


@pytest.mark.parametrize("face", ["http", "grpc"])
@pytest.mark.parametrize("route", ["completions", "generate"])
def test_several_of_a_stream(models, face, route):
    """They come token by token in turn; each is told as a whole, the first as it comes."""
    several = ["--stream", "--endpoint-type", route, "--param", "n=3", "--param", "temperature=0"]
    texts = said(models, "m30k-t5", DOG, *several, face=face)
    assert texts == "".join(f"--- {i} ---\nEin Hund rennt.\n" for i in (1, 2, 3))


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_an_encoder_has_no_text(models, stream):
    lines = said(models, "polarity-bert", "a warm and funny film", *stream).splitlines()
    answer = dict(line.split(": ") for line in lines)
    assert set(answer) == {"prompt_tokens", "logits", "scores", "label", "labels"}
    assert answer["label"] == '"LABEL_0"' and abs(float(answer["scores"]) - 1.0446) < 1e-3


@pytest.mark.parametrize("face", ["http", "grpc"])
@pytest.mark.parametrize("datatype, values", [
    ("INT64", ["-9223372036854775808", "1234567890123"]), ("UINT64", ["18446744073709551615", "10000000000"]),
    ("FP64", ["0.1234567890123456", "0.1"]), ("FP32", ["0.1", "16777216"])])
def test_numbers_as_they_are(server, face, datatype, values):
    tensor = f"INPUT0={datatype}[1,2]:{','.join(values)}"
    line = said(server, f"identity_{datatype.lower()}", "--input", tensor, face=face)
    assert line.startswith(f"OUTPUT0 {datatype} [1,2]: ")
    shown = line.split(": ")[1].split()
    if datatype.startswith("FP"):
        assert [round(float(x), 7 if datatype == "FP32" else 17) for x in shown] == [float(x) for x in values]
    else:
        assert shown == values


def test_addresses_that_are_none():
    assert client("x", "hi", "--url", "ftp://localhost:1").stderr == \
        "proa: 'ftp://localhost:1' is none of http://, https://, grpc://, grpcs:// and unix:PATH\n"
    assert client("x", "hi", "--url", "localhost:eight").stderr == "proa: 'eight' is not a port\n"
