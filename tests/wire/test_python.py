# SPDX-License-Identifier: Apache-2.0
"""Models in Python: the contract of model.py end to end, and what happens when such a model misbehaves."""
import json
import os
import pathlib
import signal
import sys
import textwrap
import time

import numpy as np
import pytest
import requests

from wire import Server, metric, wait_until

PYTHON = {"PROA_PYTHON": sys.executable}
HEAD = """
import json, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def out(request, array, name="OUT"):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])

def value(request, name="IN"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
"""
IO = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""


def write_model(folder, name, code, config=IO):
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(HEAD + textwrap.dedent(code))
    (folder / name / "config.pbtxt").write_text('backend: "python"\n' + textwrap.dedent(config))


def execute_only(body):
    """A model whose execute is these lines, once for each request."""
    return ("class TritonPythonModel:\n    def execute(self, requests):\n        responses = []\n        for request in requests:\n"
            + textwrap.indent(textwrap.dedent(body), " " * 12) + "        return responses\n")


def ask(server, model, values=(1, 2, 3), path="infer", **more):
    body = {"inputs": [{"name": "IN", "shape": [len(values)], "datatype": "INT32", "data": list(values)}], **more}
    return requests.post(server.url(f"/v2/models/{model}/{path}"), json=body, timeout=30)


def out_of(answer, name="OUT"):
    assert answer.status_code == 200, answer.text
    return next(one["data"] for one in answer.json()["outputs"] if one["name"] == name)


def is_ready(server, model):
    return requests.get(server.url(f"/v2/models/{model}/ready"), timeout=30).status_code == 200


# ---- models that behave ----

GOOD = {
    "double": (execute_only("responses.append(out(request, value(request) * 2))\n"), IO),
    "same": (execute_only("responses.append(out(request, value(request)))\n"), IO),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    for name, (code, config) in GOOD.items():
        write_model(folder, name, code, config)
    with Server(repositories=(folder, ), env=PYTHON) as running:
        yield running


def metrics_of(server):
    return requests.get(f"http://{server.metrics}/metrics", timeout=30).text


def test_numpy_in_and_out(good):
    assert out_of(ask(good, "double", [1, -2, 3])) == [2, -4, 6]
    assert out_of(ask(good, "double", [])) == []


def test_inputs_are_copied_once_and_outputs_never(good):
    """Counters: an input goes into shared memory once, an output is answered from there."""

    def bytes_of(name, model):
        return metric(metrics_of(good), f"proa_python_{name}_bytes_total", model=model)

    before = [bytes_of(name, model) for model in ("double", "same") for name in ("input", "output", "passed")]
    out_of(ask(good, "double", range(1000)))
    assert out_of(ask(good, "same", range(1000))) == list(range(1000))
    after = [bytes_of(name, model) for model in ("double", "same") for name in ("input", "output", "passed")]
    assert [b - a for a, b in zip(before, after)] == [4000, 4000, 0, 4000, 0, 4000]
