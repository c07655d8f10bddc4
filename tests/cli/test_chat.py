# SPDX-License-Identifier: Apache-2.0
"""`proa chat` and `proa top`, in a terminal (a pty) and in a pipe."""
import contextlib
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
import urllib.request

import pytest
from harness import LM, PROA, fails, ok, proa

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@pytest.fixture(name="model", scope="module")
def chat_model(tmp_path_factory):
    """A small model with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "talker"
    shutil.copytree(LM, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


class Recorder(http.server.BaseHTTPRequestHandler):
    """A server with OpenAI's API that answers `pong N`, one word an event, and keeps the requests."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_json(self, body, code=200):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.send_json({"data": [{"id": "pinger"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((dict(self.headers), body))
        said = body["messages"][-1]["content"]
        if said == "fail":
            self.send_json({"error": {"message": "out of\x1b[2J order"}}, 503)
            return
        if said == "interim":
            for _ in range(100):
                self.send_response_only(100)
                self.end_headers()
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        words = ["pong", f" {len(self.server.requests)}"] if said != "long" else [f"word{i} " for i in range(1000)]
        if said == "escape":
            words = ["a\tb\n\x1b]0;title\x07", "\x9b31m\x7fé"]
        try:
            if said.startswith("think"):
                name = said.partition(" ")[2] or "reasoning_content"
                self.event({"choices": [{"index": 0, "delta": {name: "hm"}}]})
            for word in words:
                self.event({"choices": [{"index": 0, "delta": {"content": word}}]})
                time.sleep(0.02 if said == "long" else 0)
            self.event({"choices": [], "usage": {"completion_tokens": len(words), "prompt_tokens": 7}})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.server.cut = True
        self.close_connection = True

    def event(self, body):
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()


@pytest.fixture(name="server")
def record_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.requests, server.cut = [], False
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


def messages(server):
    return [[(m["role"], m["content"]) for m in body["messages"]] for _, body in server.requests]


class Terminal:
    """A program on a pty: what it shows is waited for."""

    def __init__(self, *args, env=None):
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PROA, [str(PROA), *map(str, args)], {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def wait(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown)):
            if time.monotonic() > end or (not self.read(1) and self.ended()):
                raise AssertionError(f"{pattern!r} did not come in:\n{self.shown}")
        self.shown = self.shown[found.end():]
        return found

    def ended(self):
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def type(self, text):
        os.write(self.fd, text.encode())

    def prompt(self):
        """Keys before the prompt would be the kernel's, which edits lines in its own way; so would some behind it, until
        libedit has set the terminal."""
        self.wait("> $")
        end = time.monotonic() + 60
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end, self.shown
            time.sleep(0.001)

    def close(self):
        end = time.monotonic() + 30
        while not self.ended() and time.monotonic() < end:
            self.read(0.1)
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


# ---- chat ----

def test_local_model(model):
    env = {"TMPDIR": "/tmp"}
    before = set(os.listdir("/tmp"))
    out = ok("chat", model, "--max-tokens", 8, "--temperature", 0, stdin="Who are you?\nAnd then?\n", env=env)
    assert out.count("\n") >= 2 and out.strip()
    assert not {n for n in set(os.listdir("/tmp")) - before if n.startswith("proa-chat")}  # nothing is left behind
    again = ok("chat", model, "--max-tokens", 8, "--temperature", 0, stdin="Who are you?\n")
    assert out.startswith(again)


def test_conversation(server):
    out = ok("chat", "--url", server.url, "--system", "Be brief.", stdin="one\n/set temperature 0.5\n/set stop-strings x y\ntwo\n/clear\n"
             "/unset temperature\n/system -\nthree\n")
    assert out == "pong 1\npong 2\npong 3\n"
    assert messages(server) == [[("system", "Be brief."), ("user", "one")],
                                [("system", "Be brief."), ("user", "one"), ("assistant", "pong 1"), ("user", "two")],
                                [("user", "three")]]
    bodies = [body for _, body in server.requests]
    assert bodies[0]["model"] == "pinger" and bodies[0]["stream"] and "temperature" not in bodies[0]
    assert bodies[1]["temperature"] == 0.5 and bodies[1]["stop"] == ["x y"]
    assert "temperature" not in bodies[2] and "stop" in bodies[2]


def test_several_lines(server):
    ok("chat", "--url", server.url, stdin='a \\\nb\n"""\nc\n"\n\nd\\\n"""\n')
    assert [m[-1][1] for m in messages(server)] == ["a \nb", 'c\n"\n\nd\\']


def test_undo_retry_save(server, tmp_path):
    saved = tmp_path / "talk.json"
    ok("chat", "named", "--url", server.url, stdin=f"one\ntwo\n/undo\n/retry\n/save {saved}\n", env={"OPENAI_API_KEY": "sk-x"})
    assert [m[-1][1] for m in messages(server)] == ["one", "two", "one"]
    assert json.loads(saved.read_text()) == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "pong 3"}]
    headers, body = server.requests[0]
    assert headers["Authorization"] == "Bearer sk-x" and body["model"] == "named"


def test_errors(server):
    assert "needs a MODEL, or --url" in fails("chat", status=2)
    assert "is outside" in fails("chat", "--url", server.url, "--top-p", "7", status=2)
    assert fails("chat", "--url", server.url, stdin="fail\n") == "proa: out of?[2J order"
    assert "cannot connect" in fails("chat", "--url", "http://127.0.0.1:1")
    run = proa("chat", "--url", server.url, stdin="/set temprature 1\n/set temperature hot\n/what\n")
    assert run.returncode == 0 and not server.requests[1:]
    assert "did you mean 'temperature'" in run.stderr and "is not a number" in run.stderr and "unknown command '/what'" in run.stderr
    assert "interim answers" in fails("chat", "--url", server.url, stdin="interim\n")


def test_model_without_template():
    assert fails("chat", LM, stdin="x\n").endswith("has no chat template: --chat-template names one (a file, chatml or plain)")


def test_a_template_of_the_command_line(tmp_path):
    (tmp_path / "of_mine.jinja").write_text(TEMPLATE)
    for name in ("plain", tmp_path / "of_mine.jinja"):
        assert proa("chat", LM, "--chat-template", name, "--max-tokens", 3, stdin="x\n").returncode == 0
    run = proa("chat", LM, "--chat-template", tmp_path / "nothing.jinja", stdin="x\n")
    assert run.returncode == 1 and "nothing.jinja" in run.stderr


def test_terminal(server, tmp_path):
    history = tmp_path / "history"
    t = Terminal("chat", "--url", server.url, "--history", history)
    t.wait("pinger: /help lists")
    t.type("hello\r")
    t.wait("pong 1")
    t.wait(r"2 tokens, .* tokens/s, first after .* s, 7 in the prompt")
    t.prompt()
    t.type("\x1b[A\r")  # arrow up: the last line again
    t.wait("pong 2")
    t.prompt()
    t.type("wrold\x1b[D\x1b[D\x1b[D\x1b[D\x04\x1b[C\x1b[C\r")  # deletes the r of "wrold"
    t.wait("pong 3")
    t.prompt()
    t.type("dropped\x03")  # Ctrl-C drops the line
    t.prompt()
    t.type("kept\r")
    t.wait("pong 4")
    t.type("/help\r")
    t.wait("/retry")
    t.type("ä€\r")
    t.wait("pong 5")
    t.prompt()
    t.type("\x04")
    assert t.close() == 0
    assert [m[-1][1] for m in messages(server)] == ["hello", "hello", "wold", "kept", "ä€"]
    assert "hello" in history.read_text() and history.stat().st_mode & 0o077 == 0
    t = Terminal("chat", "--url", server.url, "--history", history)
    t.wait("pinger")
    t.prompt()
    t.type("\x1b[A\x1b[A\x1b[A\r")
    t.wait("pong 6")
    t.prompt()
    t.type("/exit\r")
    assert t.close() == 0
    assert messages(server)[-1] == [("user", "kept")]


def test_control_characters(server):
    """What a model or a server says changes no terminal; into a pipe it is written as it is."""
    t = Terminal("chat", "--url", server.url, "--no-history")
    t.prompt()
    t.type("escape\r")
    t.wait("a\tb\r\n\u241b]0;title\u2407\ufffd31m\u2421é")
    t.prompt()
    t.type("fail\r")
    t.wait(r"out of\?\[2J order")
    t.prompt()
    t.type("\x04")
    assert t.close() == 0
    assert "a\tb\n\x1b]0;title\x07\x9b31m\x7fé" in ok("chat", "--url", server.url, stdin="escape\n")


def test_interrupt_ends_the_answer_only(server):
    t = Terminal("chat", "--url", server.url, "--no-history")
    t.wait("pinger")
    t.type("long\r")
    t.wait("word5 ")
    t.type("\x03")
    t.wait("> ")
    t.type("after\r")
    t.wait("pong 2")
    t.type("think\r")
    t.wait("\x1b\\[2mhm\x1b\\[0m")  # dim
    t.wait("pong 3")
    t.prompt()
    t.type("think reasoning\r")
    t.wait("\x1b\\[2mhm\x1b\\[0m")
    t.wait("pong 4")
    t.prompt()
    t.type("\x04")
    assert t.close() == 0
    second = messages(server)[1]
    assert second[0] == ("user", "long") and second[1][1].startswith("word0 word1") and len(second[1][1]) < 2000
    assert second[2] == ("user", "after")
    assert messages(server)[2][-2] == ("assistant", "pong 2")
    deadline = time.monotonic() + 30
    while not server.cut and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.cut  # the connection was closed, so that the server stops


def test_interrupt_with_a_local_model(model):
    t = Terminal("chat", model, "--no-history", "--max-tokens", 900, "--ignore-eos")
    t.wait("loading ")
    t.wait("talker: /help lists")
    t.prompt()
    t.type("Tell me everything.\r")
    t.wait(r"\w+ \w+ \w+ \w+")
    t.type("\x03")
    t.prompt()
    t.type("/set max-tokens 4\r")
    t.prompt()
    t.type("And briefly?\r")
    t.wait("4 tokens, ")
    t.prompt()
    t.type("\x04")
    assert t.close() == 0


# ---- top ----

@pytest.fixture(name="served", scope="module")
def serve_model():
    args = [PROA, "serve", LM, "--http-port", 0, "--metrics-port", 0, "--allow-grpc=false", "--json", "--log-info=false"]
    with subprocess.Popen(list(map(str, args)), stdout=subprocess.PIPE, text=True) as run:
        ports = json.loads(run.stdout.readline())
        yield f"http://127.0.0.1:{ports['http_port']}", f"http://127.0.0.1:{ports['metrics_port']}"
        run.terminate()


def complete(url, tokens=200):
    body = json.dumps({"model": LM.name, "prompt": "It was", "max_tokens": tokens, "ignore_eos": True}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body), timeout=120).read()


def test_top_once(served):
    http_url, metrics_url = served
    lines = ok("top", metrics_url, "--interval", 0.2).splitlines()
    assert lines[0].startswith(f"{metrics_url}: 0 requests in flight, ") and "CPU" in lines[1]
    assert lines[3].split() == ["model", "req/s", "ms", "run", "wait", "tokens/s", "prompt/s", "pages", "cached", "drafts"]
    assert lines[4].split()[0] == LM.name and "/" in lines[4].split()[7]
    asked, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            asked.append(200)
            complete(http_url)

    worker = threading.Thread(target=work)
    worker.start()
    tables = [json.loads(line) for line in ok("top", metrics_url, "--json", "--count", 12, "--interval", 0.25).splitlines()]
    stop.set()
    worker.join()
    assert len(tables) == 12
    most = max(t["models"][0]["new_tokens_per_second"] for t in tables)
    assert most > 10 and tables[0]["models"][0]["pages"] > 0
    generated = sum(t["models"][0]["new_tokens_per_second"] * t["seconds"] for t in tables)
    assert generated <= sum(asked) + 5


def test_top_terminal(served):
    _, metrics_url = served
    t = Terminal("top", metrics_url, "--interval", "0.1")
    t.wait(LM.name)
    t.wait(LM.name)
    t.type("q")
    assert t.close() == 0
    t = Terminal("top", metrics_url, "--interval", "0.1")
    t.wait(LM.name)
    t.type("\x03")
    t.wait(r"\x1b\[\?25h\x1b\[\?1049l")  # the cursor and the screen are put back
    assert t.close() == 0


def test_top_errors(served):
    http_url, _ = served
    assert "to /metrics: give the address of the metrics port" in fails("top", http_url.replace("http://", "http://") + "/")
    assert "cannot connect" in fails("top", "http://127.0.0.1:1")
    assert "127.0.0.9:8002" in fails("top", "http://127.0.0.9")  # the metrics' port, not that of the API
    assert "metrics come over" in fails("top", "grpc://localhost:8001")
