# SPDX-License-Identifier: Apache-2.0
"""A server whose model has ranks in processes: one is killed, the model is not ready until it is restarted, another model
goes on."""
import json
import os
import pathlib
import signal
import time
import urllib.error
import urllib.request

from wire import ROOT

TEXT = {"prompt": "It was a dark", "max_tokens": 4, "temperature": 0}


def status_of(server, path):
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def complete(server, model):
    request = urllib.request.Request(f"http://{server.http}/v1/completions", json.dumps({"model": model, **TEXT}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["text"]


def rank_processes(parent):
    found = []
    for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "proa-rank":
                found.append(int(pid))
    return found


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def make_model(folder, name, *lines):
    (folder / name / "1").mkdir(parents=True)
    parameters = [("model_checkpoint_path", str(ROOT / "models/classics-10m")), *lines]
    text = "".join(f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}\n' for k, v in parameters)
    (folder / name / "config.pbtxt").write_text('backend: "engine"\nmodel_transaction_policy { decoupled: true }\n' + text)


def test_killed_rank(tmp_path, start):
    make_model(tmp_path, "divided", ("tp", 2), ("ranks", "process"), ("threads", 2))
    make_model(tmp_path, "whole", ("threads", 1))
    server = start("--strict-readiness=true", repositories=(tmp_path,))
    before = complete(server, "divided")
    assert complete(server, "whole") == before
    (rank,) = rank_processes(server.process.pid)
    os.kill(rank, signal.SIGKILL)
    assert wait_until(lambda: status_of(server, "/v2/models/divided/ready") != 200, 10)
    assert status_of(server, "/v2/health/ready") != 200
    assert complete(server, "whole") == before
    assert wait_until(lambda: status_of(server, "/v2/health/ready") == 200, 30)
    assert complete(server, "divided") == before
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    assert 'proa_engine_rank_restarts{model="divided",version="1"} 1' in metrics
