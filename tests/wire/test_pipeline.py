# SPDX-License-Identifier: Apache-2.0
"""examples/review-pipeline over the wire: as good as its README says, the same with native steps and with steps in Python,
features by one definition, tensors handed on by reference, the transformer on a GPU by one line."""
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from wire import ROOT, Server, metric

EXAMPLE = ROOT / "examples/review-pipeline"
NATIVE, PYTHON = EXAMPLE / "repository", EXAMPLE / "repository-python"
sys.path.insert(0, str(EXAMPLE))
import textfeatures  # noqa: E402

LINES = [line.split("\t") for line in (ROOT / "tests/golden/data/polarity-test.tsv").read_text().splitlines()]
LABELS, TEXTS = np.array([int(line[0]) for line in LINES]), [line[2] for line in LINES]
ODD = ["", " ", "\u00c4RGER \u2026 \u0130stanbul\u2019s na\u00efve!", "3.5 stars?! \u3042\u3044\u3002", "'quoted' don't 'tis", "\ud7ff a\u0301b",
       "tab\there\nand there", "x" * 3000, "a " * 3000]


@pytest.fixture(scope="module")
def native():
    with Server(repositories=[NATIVE]) as running:
        yield running


@pytest.fixture(scope="module")
def both():
    with Server(repositories=[NATIVE, PYTHON], env={"PROA_PYTHON": sys.executable}) as running:
        yield running


def ask(server, model, name, texts, face="http"):
    """Outputs by name; 512 texts a request."""
    triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[face]
    rows, patience = {}, {"network_timeout": 300} if face == "http" else {}
    with triton.InferenceServerClient(getattr(server, face), **patience) as client:
        for first in range(0, len(texts), 512):
            part = np.array([[text.encode()] for text in texts[first : first + 512]], dtype=object)
            tensor = triton.InferInput(name, list(part.shape), "BYTES")
            tensor.set_data_from_numpy(part)
            answer = client.infer(model, [tensor])
            outputs = answer.get_response()["outputs"] if face == "http" else answer.get_response().outputs
            for output in outputs:
                key = output["name"] if face == "http" else output.name
                rows.setdefault(key, []).append(answer.as_numpy(key))
    return {key: np.concatenate(parts) for key, parts in rows.items()}


@pytest.fixture(scope="module")
def scores(native):
    return {key: rows.reshape(-1) for key, rows in ask(native, "review", "TEXT", TEXTS).items()}


def accuracy(values):
    return float(np.mean((values > 0.5) == LABELS))


def test_the_average_is_better_than_either_model(scores):
    bert, forest, both_of_them = (accuracy(scores[key]) for key in ("BERT", "FOREST", "SCORE"))
    assert round(bert, 4) == 0.7787  # the reference implementation's
    assert forest > 0.77
    assert both_of_them >= max(bert, forest), (bert, forest, both_of_them)
    np.testing.assert_allclose(scores["SCORE"], (np.clip(scores["BERT"], 0, 1) + scores["FOREST"]) / 2, atol=1e-6)
    reference = np.array([float(line[1]) for line in LINES])
    np.testing.assert_allclose(scores["BERT"], reference, atol=2e-3)


def test_features_by_one_definition(native):
    lexicon = textfeatures.read_lexicon(NATIVE / "features/1/lexicon.tsv")
    features = textfeatures.Features(counts=textfeatures.COUNTS, lexicon=lexicon, stats=textfeatures.STATS)
    texts = TEXTS + ODD
    want = np.array([features.row(text) for text in texts], dtype=np.float32)
    have = ask(native, "features", "TEXT", texts)["FEATURES"]
    np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-6)
    assert np.array_equal(have, want)  # all of it is computed in doubles, in one order


def test_one_text_is_what_it_is_in_a_batch(native, scores):
    for i in range(0, 20):
        face = "grpc" if i % 2 else "http"
        alone = ask(native, "review", "TEXT", [TEXTS[i]], face)
        assert {key: rows[0, 0] for key, rows in alone.items()} == {key: scores[key][i] for key in alone}


def copied(server):
    return metric(requests.get(f"http://{server.metrics}/metrics", timeout=60).text, "proa_tensor_copied_bytes_total")


def test_native_steps_hand_tensors_on_by_reference(native):
    before = copied(native)
    ask(native, "review", "TEXT", TEXTS[:100])
    assert copied(native) == before


def test_steps_in_python_give_the_same(both, scores):
    texts = TEXTS[:256]
    before = copied(both)
    have = ask(both, "review_python", "TEXT", texts)
    for key, rows in have.items():
        np.testing.assert_allclose(rows.reshape(-1), scores[key][: len(texts)], atol=1e-5, err_msg=key)
    # What a process in Python reads lies in memory that both share: the texts and two scores are put there once.
    once = sum(4 + len(text.encode()) for text in texts) + 2 * 4 * len(texts)
    assert copied(both) - before == once


def test_the_gpu_is_one_line_away(start, tmp_path):
    shutil.copytree(NATIVE, tmp_path / "repository")
    config = tmp_path / "repository/bert/config.pbtxt"
    text = config.read_text().replace("../../../../models", str(ROOT / "models"))
    config.write_text(text.replace("kind: KIND_CPU", "kind: KIND_GPU"))
    running = start("--exit-on-error=false", repositories=[tmp_path / "repository"])
    index = {m["name"]: m for m in requests.post(running.url("/v2/repository/index"), timeout=60).json()}
    assert index["features"]["state"] == index["forest"]["state"] == "READY"
    if index["bert"]["state"] == "READY":  # there is a GPU
        assert accuracy(ask(running, "review", "TEXT", TEXTS)["SCORE"].reshape(-1)) > 0.77
        return
    assert "device 'cuda" in index["bert"]["reason"], index["bert"]
    assert "depends on 'bert' which has no loaded version" in index["review"]["reason"]


PAIR = """
platform: "ensemble"
max_batch_size: 512
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "SCORE" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step { model_name: "features" model_version: -1 input_map { key: "TEXT" value: "TEXT" } output_map { key: "FEATURES" value: "f" } }
  step { model_name: "forest" model_version: -1 input_map { key: "input__0" value: "f" } output_map { key: "output__0" value: "SCORE" } }
}
"""


@pytest.mark.parametrize("change, reason", [
    (("PAIR", 'key: "input__0"', 'key: "input__1"'), "in ensemble pair, ensemble tensor f is mapping to non-existing input input__1 in model forest"),
    (("PAIR", 'key: "FEATURES" value: "f"', 'key: "FEATURES" value: "g"'), "output 'SCORE' for ensemble 'pair' is not written: at least one of its "
     "depending tensors, 'f', is not connected"),
    (("features", ", max]", "]"), "in ensemble pair, ensemble tensor f: inconsistent shape: [-1,16] is inferred from model features while "
     "[-1,18] is inferred from model forest"),
    (("PAIR", 'model_name: "features"', 'model_name: "pair"'), "circular dependency between ensembles: pair -> ... -> pair -> pair"),
])
def test_pipelines_that_do_not_fit(start, tmp_path, change, reason):
    """Forests and transforms between each other: Triton's words, and what is well goes on."""
    repository = tmp_path / "repository"
    shutil.copytree(NATIVE, repository, ignore=shutil.ignore_patterns("bert", "review", "average"))
    (repository / "pair/1").mkdir(parents=True)
    config = {"PAIR": PAIR, "features": (repository / "features/config.pbtxt").read_text().replace("dims: 18", "dims: -1")}
    config[change[0]] = config[change[0]].replace(*change[1:])
    if change[0] == "features":
        config["features"] = config["features"].replace("dims: -1", "dims: 16")
    (repository / "pair/config.pbtxt").write_text(config["PAIR"])
    (repository / "features/config.pbtxt").write_text(config["features"])
    running = start("--exit-on-error=false", repositories=[repository])
    index = {m["name"]: m for m in requests.post(running.url("/v2/repository/index"), timeout=60).json()}
    assert index["features"]["state"] == index["forest"]["state"] == "READY"
    assert index["pair"]["state"] == "UNAVAILABLE" and reason in index["pair"]["reason"], index["pair"]


def test_the_client(native, scores):
    command = [sys.executable, EXAMPLE / "client.py", "--url", native.http, TEXTS[0], TEXTS[1]]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["text"] for answer in answers] == TEXTS[:2]
    assert [answer["score"] for answer in answers] == [round(float(score), 4) for score in scores["SCORE"][:2]]


def test_the_client_says_in_one_line_that_nobody_serves():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens not
        command = [sys.executable, EXAMPLE / "client.py", "--url", f"127.0.0.1:{taken.getsockname()[1]}", TEXTS[0]]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1 and ran.stderr.startswith("client.py: ") and ran.stderr.count("\n") == 1, ran.stderr


def compare(*arguments):
    return subprocess.run([sys.executable, EXAMPLE / "compare.py", *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arguments, said", [
    (["--proa", "/nowhere/proa"], "cannot run /nowhere/proa: No such file or directory"),
    (["--proa", sys.executable], f"{Path(sys.executable).resolve()} did not start: status 2"),
    (["--texts", "/nowhere/texts.tsv"], "cannot read /nowhere/texts.tsv: No such file or directory"),
])
def test_compare_says_in_one_line_why_it_cannot(arguments, said):
    ran = compare(*arguments)
    assert ran.returncode == 1 and ran.stderr.startswith(said) and ran.stderr.count("\n") == 1, ran.stderr


def test_compare_says_why_the_server_did_not_start(tmp_path):
    """The server's own reason, not only that there is one."""
    fails = tmp_path / "proa"
    fails.write_text("#!/bin/sh\necho 'I1 about to load' >&2\necho 'E1 no forest here' >&2\nexit 1\n")
    fails.chmod(0o755)
    ran = compare("--proa", fails)
    assert (ran.returncode, ran.stderr) == (1, f"{fails} did not start: E1 no forest here\n")


REFUSED = """
import os, runpy, sys
def refuse(*_):
    raise PermissionError(1, "Operation not permitted")
os.sched_setscheduler = refuse
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_compare_is_refused_real_time():
    ran = subprocess.run([sys.executable, "-c", REFUSED, EXAMPLE / "compare.py", "--rt"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1 and ran.stderr.startswith("--rt is refused") and ran.stderr.count("\n") == 1, ran.stderr
