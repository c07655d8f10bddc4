# SPDX-License-Identifier: Apache-2.0
"""Follows each tutorial from top to bottom, in a folder that looks like a clone with a build.

A console block has commands after `$`, which go on over lines that begin with four blanks; what follows must be what the
command prints, where `...` stands for anything. A block with a title is a file, which is written. A block of text is a
picture. There are no other blocks, so nothing in a tutorial stays unchecked. The commands run in one shell, as a reader
types them; the ports 8000 to 8002 are replaced by free ones, since tests run side by side. `proa serve` runs until the
next one or the end, as in a terminal of its own."""
import os
import pathlib
import re
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROA = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).resolve()
# README.md says what comes before the others: it is first, and makes their virtual environment.
TUTORIALS = sorted((path.name for path in (ROOT / "docs/tutorials").glob("*.md")), key=lambda name: (name != "README.md", name))
SERVE = re.compile(r"(\w+=\S+ +)*proa serve\b")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
LIMIT_S = 300
# What a tutorial's scripts import and pip would have to fetch, if it is not in the tests' own environment.
NEEDS = {"readability.md": ("sklearn", "treelite", "onnx", "onnxruntime", "tokenizers")}
# The build is there already, and another process may be using it: only what follows the build is run.
IN_PLACE_OF = {"./do wheel": f"PROA_BUILD={PROA.parent} {ROOT}/tools/wheel"}


def blocks(text):
    """[(title or None, language, body), ...]"""
    for info, body in FENCE.findall(text):
        title = re.search(r'title="([^"]+)"', info)
        yield title and title.group(1), info.split(" ")[0], body


def commands(body):
    """[(command, expected output), ...] of a console block."""
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, output = re.fullmatch(r"(.*\n(?:    .*\n)*)([\s\S]*)", part).groups()
        yield command.rstrip("\n"), output


def matches(expected, printed):
    expected = re.sub(r"(?<=[,\[{])\n *(?=[\[{\"])", "", expected.strip())  # JSON is broken into lines to be read
    pattern = r"[\s\S]*?".join(re.escape(piece) for piece in expected.split("..."))
    return re.fullmatch(pattern, printed.strip())


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return dict(zip(("8000", "8001", "8002"), map(str, ports)))


class Shell:
    """One bash that runs a tutorial's commands one after the other."""

    def __init__(self, folder):
        env = {**os.environ, "PATH": f"{PROA.parent}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
               "VIRTUAL_ENV": sys.prefix}  # where servers look for libraries of packages
        for name in ("PROA_LIBRARY", "PROA_PYTHON", "PYTHONPATH"):
            env.pop(name, None)
        self.folder, self.ports = folder, free_ports(3)
        self.process = subprocess.Popen(["bash", "--norc"], cwd=folder, env=env, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.process.stdout, selectors.EVENT_READ)
        self.server, self.env = None, env
        for packages in (folder / "venv/lib").glob("python*/site-packages"):
            # packages of the test's own environment count as installed in the reader's, so that pip needs no network
            (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
            self.run(". venv/bin/activate")

    def moved(self, text):
        """A text with the tutorial's ports replaced."""
        return re.sub(r"\b800[012]\b", lambda port: self.ports[port.group()], text)

    def run(self, command):
        """(exit status, what a terminal shows)."""
        command = IN_PLACE_OF.get(command, self.moved(command))
        self.process.stdin.write(f"{{\n{command}\n}} </dev/null; printf '\\n<%d>\\n' $?\n")
        printed, deadline = "", time.monotonic() + LIMIT_S
        while not (end := re.search(r"\n<(\d+)>\n$", printed)):
            assert time.monotonic() < deadline and self.process.poll() is None, f"$ {command}\n{printed}"
            if self.ready.select(1):
                printed += os.read(self.process.stdout.fileno(), 65536).decode()
        return int(end.group(1)), printed[: end.start()]

    def serve(self, command, expected):
        ports = " ".join(f"--{name}-port {self.ports[port]}" for name, port in (("http", "8000"), ("grpc", "8001"), ("metrics", "8002")))
        self.stop_server()
        self.log = open(self.folder / "server.log", "w+")
        self.server = subprocess.Popen(["bash", "-c", f"exec env {command} {ports}"], cwd=self.folder, env=self.env, stdout=self.log,
                                       stderr=subprocess.STDOUT)
        deadline, expected = time.monotonic() + LIMIT_S, self.moved(expected)
        while not matches(expected, text := (self.folder / "server.log").read_text()):
            assert time.monotonic() < deadline and self.server.poll() is None, f"$ {command}\n{text}"
            time.sleep(0.05)

    def stop_server(self):
        if self.server:
            self.server.send_signal(signal.SIGINT)
            assert self.server.wait(30) == 0
            self.server = None

    def close(self):
        self.stop_server()
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("proa")
    for name in ("models", "examples", "tests", "build"):
        (path / name).symlink_to(ROOT / name)
    return path


@pytest.fixture
def shell(folder):
    running = Shell(folder)
    yield running
    running.close()


def test_a_comparison_can_fail():
    assert matches("a\n...\nc\n", "a\nb\nc\n") and not matches("a\n...\nc\n", "a\nb\nd\n") and not matches("a", "ab")
    assert list(commands("$ a \\\n    b\nc\n$ d\n")) == [("a \\\n    b", "c\n"), ("d", "")]


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial(shell, name):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    text, ran = (ROOT / "docs/tutorials" / name).read_text(), 0
    for title, language, body in blocks(text):
        if title:
            path = shell.folder / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shell.moved(body))
            continue
        if language == "text":
            continue
        assert language == "console", f"a block without a title is neither a command nor a file:\n{body}"
        for command, expected in commands(body):
            ran += 1
            if SERVE.match(command):
                shell.serve(command, expected)
                continue
            status, printed = shell.run(command)
            assert status == 0 and matches(shell.moved(expected), printed), f"$ {command}\n{printed}"
    assert ran >= 3
    assert name == "README.md" or not re.search(r"^    \S", FENCE.sub("", text), re.M), "an indented block is not run"
