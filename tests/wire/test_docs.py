# SPDX-License-Identifier: Apache-2.0
"""The console blocks of docs/server.md, docs/python.md and README.md, run: what stands after $ must print what stands below it, where ... is
anything. `proa serve` starts a server for the commands behind it; 8000, 8001 and 8002 are its ports."""
import os
import re
import subprocess
import sys

import pytest
from wire import PROA, ROOT, Server


def commands(page):
    """[(command, expected output), ...] of all console blocks, in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


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
        if not running:
            continue
        line = command.replace("proa client", f"proa client --url http://{running.http}") if "--url" not in command else command
        for port, url in ((8000, running.http), (8001, running.grpc), (8002, running.metrics)):
            line = line.replace(f"localhost:{port}", url)
        done = subprocess.run(line, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
        assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}{done.stderr}"
        ran += 1
    assert ran >= {"docs/server.md": 12, "docs/python.md": 2, "README.md": 1}[page]
