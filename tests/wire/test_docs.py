# SPDX-License-Identifier: Apache-2.0
"""Runs the console and Python blocks of the documents.

Console: the command after `$` must print the lines below it, where `...` matches anything. A command goes on over lines
that begin with four blanks. `proa serve` starts a server for the commands after it, whose ports replace 8000, 8001 and
8002. Python: each `print(...)  # TEXT` must print TEXT, in order."""
import os
import re
import subprocess
import sys

import pytest
from wire import PROA, ROOT


def commands(page):
    """[(command, expected output), ...] of all console blocks, in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, output = re.fullmatch(r"(.*\n(?:    .*\n)*)([\s\S]*)", part).groups()
            found.append((command.rstrip("\n"), output))
    return found


def programs(page):
    """[(program, [line that it prints, ...]), ...] of all Python blocks."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    return [(block, re.findall(r"^print\(.*\)  # (.*)$", block, re.M)) for block in blocks]


def matches(expected, printed):
    pattern = r"[\s\S]*?".join(re.escape(piece) for piece in expected.strip("\n").split("..."))
    return re.fullmatch(pattern, printed.strip("\n"))


def test_a_match_can_fail():
    assert matches('{...,"a":[1,...]}\n', '{"b":1,"a":[1,2,3]}') and matches("x\n...\n", "x\ny\nz\n")
    assert not matches('{...,"a":[1,...]}\n', '{"b":1,"a":[2,3]}') and not matches("x\n", "xy\n")


@pytest.mark.parametrize("page", ["docs/server.md", "docs/python.md", "README.md"])
def test_console_blocks(start, page, tmp_path):
    running, ran = None, 0
    (tmp_path / "proa").symlink_to(PROA)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for command, expected in commands(page):
        if command.startswith("proa serve"):
            running = start(repositories=[ROOT / path for path in command.split()[2:] if path != "&"], env={"PROA_PYTHON": sys.executable})
            for port, url in ((8000, running.http), (8001, running.grpc), (8002, running.metrics)):
                expected = expected.replace(f"0.0.0.0:{port}", f"0.0.0.0:{url.split(':')[1]}")
            assert matches("..." + expected, running.log_text()), running.log_text()
            continue
        if not running and not command.startswith("proa run"):
            continue
        line = command.replace("proa client", f"proa client --url http://{running.http}") if running and "--url" not in command else command
        for port, url in ((8000, running.http), (8001, running.grpc), (8002, running.metrics)) if running else ():
            line = line.replace(f"localhost:{port}", url)
        done = subprocess.run(line, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
        assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}{done.stderr}"
        ran += 1
    assert ran >= {"docs/server.md": 12, "docs/python.md": 2, "README.md": 3}[page]


@pytest.mark.parametrize("page, models", [("README.md", ["m30k-t5"]), ("docs/openai.md", ["classics-10m"])])
def test_python_blocks(start, page, models):
    running = start(repositories=[ROOT / "models" / name for name in models])
    found = programs(page)
    library = os.path.join(os.path.dirname(PROA), "libproa.so")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PROA_LIBRARY": library}  # of the package proa
    assert found
    for program, lines in found:
        program = program.replace("localhost:8000", running.http)
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout, done.stderr
        printed = iter(done.stdout.splitlines())
        assert all(line in printed for line in lines), done.stdout
