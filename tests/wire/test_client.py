# SPDX-License-Identifier: Apache-2.0
"""What `proa client` prints of an answer: a text, several, none; numbers as they are; and what it refuses."""
import contextlib
import socket
import subprocess
import threading

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


def test_events_of_other_servers():
    """Lines may end in CRLF, a space behind the colon is optional, and events may have comments and other fields."""
    events = [': a comment\r\n\r\n', 'event: delta\r\ndata:{"text_output": "Ein"}\r\n\r\n',
              'data: {"text_output":\ndata: " Hund"}\n\n', 'data: {"text_output": " rennt."}\n\n', 'data: [DONE]\r\n\r\n']
    body = "".join(events).encode()
    for step in (1, 7, len(body)):
        with answering(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", body, step) as url:
            assert client("m", "text", "--stream", "--url", url).stdout == "Ein Hund rennt.\n"


@contextlib.contextmanager
def answering(head, body, step):
    """The URL of a server that sends the body in pieces of so many bytes, whatever one asks."""
    def answer():
        connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            connection.recv(1 << 16)
            connection.sendall(head)
            for at in range(0, len(body), step):
                connection.sendall(body[at:at + step])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


HALVES = ["1.5", "-2", "0.333251953", '"NaN"', '"-Infinity"']


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_numbers_that_json_lacks(tmp_path, datatype):
    """gRPC carries halves, NaN and infinities, which have no form in JSON."""
    (tmp_path / "echo" / "1").mkdir(parents=True)
    tensor = f'{{ name: "%s" data_type: TYPE_{datatype} dims: [ -1 ] }}'
    (tmp_path / "echo" / "config.pbtxt").write_text(
        f'backend: "identity" input {tensor % "INPUT0"} output {tensor % "OUTPUT0"}')
    with Server(repositories=[tmp_path]) as server:
        ran = client("echo", "--input", f"INPUT0={datatype}:1.5,-2,0.333251953,nan,-inf", "--url", f"grpc://{server.grpc}")
        assert ran.stdout == f"OUTPUT0 {datatype} [5]: {' '.join(HALVES)}\n"
