# SPDX-License-Identifier: Apache-2.0
"""TorchScript and AOTInductor models through the plug-in, against torch itself: models.py makes the models and torch's
answers with a Python that has torch. Skipped where torch or the plug-in is not there (`./do test torch` builds it)."""
import base64
import concurrent.futures
import functools
import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/wire"))
from wire import Server  # noqa: E402

PYTHON = os.environ.get("PROA_TORCH_PYTHON", "python3")
PLUGIN = ROOT / "build/torch/libproa_torch.so"
NUMPY = {"BOOL": "?", "UINT8": "u1", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2",
         "FP32": "<f4", "FP64": "<f8", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "BF16": "<u2"}


def torch_is_there():
    return subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


pytestmark = [
    pytest.mark.skipif(not PLUGIN.exists(), reason="no build/torch/libproa_torch.so: ./do test torch builds it"),
    pytest.mark.skipif(PLUGIN.exists() and not torch_is_there(), reason="PROA_TORCH_PYTHON has no torch"),
]


def make(folder, part):
    """The repository of a part of models.py, and its cases by model."""
    subprocess.run([PYTHON, pathlib.Path(__file__).with_name("models.py"), folder, part], check=True)
    cases = {}
    for case in json.loads((folder / part / "cases.json").read_text())["cases"]:
        cases.setdefault(case["model"], []).append(case)
    return folder / part / "repository", cases


class Serving:
    def __init__(self, made, part, *options):
        self.repository, self.cases = made(part)
        self.server = Server("--backend-directory", str(PLUGIN.parent), "--exit-on-error=false", *options,
                             repositories=[self.repository])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """make, once for each part."""
    return functools.cache(lambda part: make(tmp_path_factory.mktemp(part), part))


# Each model in a process of its own, or all in the server's: they answer the same.
MODES = {"isolated": (), "in-process": ("--in-process", "pytorch")}


@pytest.fixture(scope="module", params=MODES)
def models(request, made):
    serving = Serving(made, "models", *MODES[request.param])
    with serving.server:
        yield serving


@pytest.fixture(scope="module", params=MODES)
def broken(request, made):
    serving = Serving(made, "broken", *MODES[request.param])
    with serving.server:
        yield serving


@pytest.fixture(scope="module", params=MODES)
def packages(request, made):
    serving = Serving(made, "packages", *MODES[request.param])
    with serving.server:
        yield serving


def strings_bytes(strings):
    return b"".join(len(s.encode()).to_bytes(4, "little") + s.encode() for s in strings)


def post(server, path, body, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url(path), body, headers or {}), timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


def infer(server, model, inputs):
    """(status, {name: (type, shape, bytes)}) or (status, error). inputs: as models.py writes tensors. Binary both ways."""
    head, blobs = {"inputs": [], "parameters": {"binary_data_output": True}}, b""
    for name, t in inputs.items():
        raw = strings_bytes(t["strings"]) if "strings" in t else base64.b64decode(t["bytes"])
        head["inputs"].append({"name": name, "datatype": t.get("type", "BYTES"), "shape": t["shape"],
                               "parameters": {"binary_data_size": len(raw)}})
        blobs += raw
    text = json.dumps(head).encode()
    status, headers, answer = post(server, f"/v2/models/{model}/infer", text + blobs,
                                   {"Inference-Header-Content-Length": str(len(text))})
    if status != 200:
        return status, json.loads(answer)["error"]
    at = int(headers.get("Inference-Header-Content-Length", len(answer)))
    outputs = {}
    for o in json.loads(answer[:at])["outputs"]:
        size = o["parameters"]["binary_data_size"]
        outputs[o["name"]] = (o["datatype"], o["shape"], answer[at:at + size])
        at += size
    return status, outputs


def compare(case, outputs):
    assert set(outputs) == set(case["outputs"])
    for name, want in case["outputs"].items():
        kind, shape, raw = outputs[name]
        if "strings" in want:
            assert (kind, raw) == ("BYTES", strings_bytes(want["strings"])) and shape == want["shape"], name
            continue
        assert (kind, shape) == (want["type"], want["shape"]), name
        if case["tolerance"]:
            have, torch = (np.frombuffer(b, NUMPY[kind]) for b in (raw, base64.b64decode(want["bytes"])))
            np.testing.assert_allclose(have, torch, rtol=case["tolerance"], atol=case["tolerance"], err_msg=name)
        else:
            assert raw == base64.b64decode(want["bytes"]), name


def check_all(serving):
    wrong = []
    for model, cases in serving.cases.items():
        for case in cases:
            status, outputs = infer(serving.server, model, case["inputs"])
            try:
                assert status == 200, outputs
                compare(case, outputs)
            except AssertionError as error:
                wrong.append(f"{model}: {str(error)[:400]}")
    assert not wrong, "\n".join(wrong)


def test_models_give_what_torch_gives(models):
    assert len(models.cases) >= 50
    check_all(models)


def test_requests_of_a_batch(models):
    """Sent at once, they are put together; each gets its rows."""
    cases = models.cases["bert"] * 8
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda case: infer(models.server, "bert", case["inputs"]), cases))
    for case, (status, outputs) in zip(cases, answers):
        assert status == 200, outputs
        compare(case, outputs)
    stats = json.loads(post(models.server, "/v2/models/bert/stats", None)[2])["model_stats"][0]
    assert stats["execution_count"] < stats["inference_count"]


def test_state_is_not_sent_late(models):
    """Outputs that a module keeps are copied: later requests do not change them."""
    case = models.cases["counter"][0]
    for _ in range(3):
        compare(case, infer(models.server, "counter", case["inputs"])[1])


def test_a_request_that_does_not_fit_is_an_error_of_its_own(models):
    """torch finds a wrong shape while it runs; the text is its reason, in one line."""
    case = models.cases["conv"][0]
    x = dict(case["inputs"]["INPUT__0"], shape=[2, 6, 16, 8])
    status, error = infer(models.server, "conv", {"INPUT__0": x})
    assert status == 500 and "PyTorch execute failure: RuntimeError: " in error and "\n" not in error, error
    compare(case, infer(models.server, "conv", case["inputs"])[1])
    ids = models.cases["embedding_bag"][0]["inputs"]["INPUT__0"]
    beyond = dict(ids, bytes=base64.b64encode(np.full(12, 1 << 40, "<i8").tobytes()).decode())
    assert infer(models.server, "embedding_bag", {"INPUT__0": beyond})[0] == 500
    assert models.server.alive()


def test_packages_give_what_torch_gives(packages):
    check_all(packages)


def test_compiled_code_gets_no_other_shapes(packages):
    """It would read beyond its inputs: AOTI_RUNTIME_CHECK_INPUTS makes it look at them first."""
    for model in ("package_static", "package_dynamic"):
        case = packages.cases[model][0]
        inputs = {name: dict(t, shape=[t["shape"][0] * 2, 3]) for name, t in case["inputs"].items()}
        status, error = infer(packages.server, model, inputs)
        assert status == 500 and "PyTorch execute failure: " in error and "\n" not in error, error
        compare(case, infer(packages.server, model, case["inputs"])[1])


def test_rows_of_a_package(packages):
    """The batch is dynamic: twice the rows give twice the answer."""
    case = packages.cases["package_dynamic"][0]
    double = {n: dict(t, shape=[4, 6], bytes=base64.b64encode(base64.b64decode(t["bytes"]) * 2).decode())
              for n, t in case["inputs"].items()}
    whole = infer(packages.server, "package_dynamic", case["inputs"])[1]
    for name, (_, shape, raw) in infer(packages.server, "package_dynamic", double)[1].items():
        assert shape == [4, 6] and raw == whole[name][2] * 2, name


WHY = {
    "half": "failed to load model 'broken_half'",
    "head": "failed to load model 'broken_head'",
    "empty": "failed to load model 'broken_empty'",
    "text": "failed to load model 'broken_text'",
    "weights": "failed to load model 'broken_weights'",
    "state": "no state for you",
    "file": "unable to find '",
    "package": "failed to load model 'broken_package'",
    "input_index": "input 'INPUT__5' is argument 5, forward has 1",
    "input_twice": "input 'b__0' of model 'broken_input_twice' fills argument 'x' a second time",
    "input_string": "input 'INPUT__0' of model 'broken_input_string' has TYPE_STRING, argument 'x' of forward takes no List[str]",
    "parameter": "parameter 'INFERENCE_MODE' of model 'broken_parameter' must be 'true' or 'false', got 'perhaps'",
    "gpu": "KIND_GPU: ",
}


def test_broken_models_are_errors_of_their_own(broken):
    reasons = {m["name"]: m.get("reason", "") for m in json.loads(post(broken.server, "/v2/repository/index", b"{}")[2])}
    for name, why in WHY.items():
        reason = reasons[f"broken_{name}"]
        assert why in reason and "\n" not in reason and len(reason) < 700, f"{name}: {reason}"
    x = {"type": "FP32", "shape": [1, 2], "bytes": base64.b64encode(np.array([1, 2], "<f4").tobytes()).decode()}
    large = dict(x, bytes=base64.b64encode(np.array([100, 2], "<f4").tobytes()).decode())
    assert infer(broken.server, "broken_not", {"INPUT__0": x})[0] == 200
    assert "output 'OUTPUT__0' is a scalar" in infer(broken.server, "broken_scalar", {"INPUT__0": x})[1]
    status, error = infer(broken.server, "broken_not", {"INPUT__0": large})
    assert status == 500 and error.endswith("PyTorch execute failure: RuntimeError: the sum is too large"), error
    assert "refers to an output index which doesn't exist" in infer(broken.server, "broken_output_index", {"INPUT__0": x})[1]
    assert "expects datatype TYPE_INT32 for output 'OUTPUT__0', model provides TYPE_FP32" in infer(
        broken.server, "broken_type", {"INPUT__0": x})[1]
    assert infer(broken.server, "broken_not", {"INPUT__0": x})[0] == 200
