# SPDX-License-Identifier: Apache-2.0
"""Forests over the wire: the libraries' own predictions (tests/golden/forest), Triton's parameters and errors."""
import json
import pathlib
import threading

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from wire import ROOT, Server

GOLDEN = ROOT / "tests/golden/forest"
X = np.fromfile(GOLDEN / "inputs.f32", np.float32).reshape(40, 6)
KINDS = {"json": "xgboost_json", "ubj": "xgboost_ubj", "txt": "lightgbm", "tl": "treelite_checkpoint"}
FILES = {"xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj", "lightgbm": "model.txt", "treelite_checkpoint": "checkpoint.tl"}
CASES = [line.split() for line in (GOLDEN / "cases.txt").read_text().splitlines() if line and not line.startswith("#")]


def config(width, parameters, features=6, batch=64, more=""):
    """A config.pbtxt; parameters: a dictionary."""
    text = f'backend: "fil"\nmax_batch_size: {batch}\n'
    text += f'input [{{ name: "input__0" data_type: TYPE_FP32 dims: [ {features} ] }}]\n'
    text += f'output [{{ name: "output__0" data_type: TYPE_FP32 dims: [ {width} ] }}]\n'
    for key, value in parameters.items():
        text += f'parameters [{{ key: "{key}" value: {{ string_value: "{value}" }} }}]\n'
    return text + more


def add_model(folder, name, golden, text):
    """A model of the repository `folder` from a golden file."""
    path = pathlib.Path(golden)
    place = folder / name / "1"
    place.mkdir(parents=True)
    (place / FILES[KINDS[path.suffix[1:]]]).write_bytes((GOLDEN / path).read_bytes())
    if text is not None:
        (folder / name / "config.pbtxt").write_text(text)


def kind_of(golden):
    return KINDS[golden.rsplit(".", 1)[1]]


def model_of(golden):
    return "golden-" + golden.replace(".", "-")


def golden_of(name, outputs, what):
    """(sums, scores), each [40][outputs] or None."""
    values = np.fromfile((GOLDEN / name).with_suffix(".out"), np.float32).reshape(-1, 40, outputs)
    if what == "final":
        return None, values[0]
    return values[0], values[1] if len(values) > 1 else None


CLASSIFIER = {"is_classifier": "true"}
PROBA = {"is_classifier": "true", "predict_proba": "true"}
NEW = [  # name, golden file, width of the output, parameters
    ("binary", "xgb-binary-logistic.json", 1, CLASSIFIER),
    ("binary_03", "xgb-binary-logistic.json", 1, {**CLASSIFIER, "threshold": "0.3"}),
    ("binary_p", "xgb-binary-logistic.json", 1, PROBA),
    ("binary_pp", "lgb-binary.txt", 2, PROBA),
    ("classes", "xgb-multi-softprob.json", 1, CLASSIFIER),
    ("classes_p", "xgb-multi-softprob.ubj", 3, PROBA),
    ("trees_p", "tl-sklearn-rf-classes.tl", 3, PROBA),
    ("old", "lgb-multiclass.txt", 1, {"output_class": "true", "algo": "BATCH_TREE_REORG", "storage_type": "SPARSE8", "blocks_per_sm": "2",
                                      "threads_per_tree": "1", "transfer_threshold": "3"}),
    ("targets", "tl-sklearn-rf-class-targets.tl", 2, CLASSIFIER),
    ("targets_p", "tl-sklearn-rf-class-targets.tl", "2, 3", PROBA),
    ("above", "xgb-targets.json", 2, {**CLASSIFIER, "threshold": "0.25"}),
    ("regression", "xgb-reg-squarederror.ubj", 1, {"is_classifier": "false", "cpu_nthread": "1", "use_experimental_optimizations": "true"}),
]
BAD = [  # name, golden file, width, parameters, a piece of the reason
    ("no_class", "xgb-binary-logistic.json", 1, {}, "Required parameter is_classifier not found in config"),
    ("bad_bool", "xgb-binary-logistic.json", 1, {"is_classifier": "yes"}, "Expected 'true' or 'false' for parameter 'is_classifier', got: 'yes'"),
    ("bad_threshold", "xgb-binary-logistic.json", 1, {**CLASSIFIER, "threshold": "high"}, "Bad input for parameter threshold"),
    ("bad_kind", "xgb-binary-logistic.json", 1, {**CLASSIFIER, "model_type": "onnx"}, "onnx not recognized as a valid serialization format."),
    ("bad_width", "xgb-multi-softprob.json", 2, PROBA, "'output__0' has 2 elements a row in the configuration, the forest gives 3"),
    ("bad_format", "xgb-binary-logistic.json", 1, {**CLASSIFIER, "model_type": "xgboost_ubj"}, "xgboost.ubj"),
    ("bad_targets", "tl-sklearn-rf-targets.tl", 1, {"is_classifier": "false"}, "'output__0' has 1 elements a row in the configuration, the forest gives 2"),
]


@pytest.fixture(scope="module")
def forests(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forests")
    for name, outputs, _ in CASES:
        add_model(folder, model_of(name), name, config(outputs, {"model_type": kind_of(name), "is_classifier": "false"}))
    for name, golden, width, parameters in NEW:
        add_model(folder, name, golden, config(width, {"model_type": kind_of(golden), **parameters}, more="dynamic_batching {}\n"))
    for name, golden, width, parameters, _ in BAD:
        add_model(folder, name, golden, config(width, {"model_type": kind_of(golden), **parameters}))
    shap = 'output [{ name: "treeshap_output" data_type: TYPE_FP32 dims: [ %s ] }]\n'
    add_model(folder, "explained", "xgb-binary-logistic.json", config(1, {"model_type": "xgboost_json", **PROBA}, more=shap % "7"))
    add_model(folder, "explained3", "lgb-multiclass.txt", config(3, {"model_type": "lightgbm", **PROBA}, more=shap % "3, 7"))
    add_model(folder, "explained2", "xgb-targets.json", config(2, {"model_type": "xgboost_json", "is_classifier": "false"}, more=shap % "2, 7"))
    add_model(folder, "open.fil", "lgb-multiclass.txt", None)
    add_model(folder, "targets.fil", "tl-sklearn-rf-class-targets.tl", None)
    (folder / "targets_open/1").mkdir(parents=True)
    (folder / "targets_open/1/checkpoint.tl").write_bytes((GOLDEN / "tl-sklearn-rf-class-targets.tl").read_bytes())
    (folder / "targets_open/config.pbtxt").write_text(
        'backend: "fil" parameters [{ key: "is_classifier" value: { string_value: "true" } }, { key: "predict_proba" value: { string_value: "true" } }]')
    add_model(folder, "broken", "xgb-binary-logistic.json", config(1, {"model_type": "xgboost_json", **CLASSIFIER}))
    (folder / "broken/1/xgboost.json").write_bytes((GOLDEN / "xgb-binary-logistic.json").read_bytes()[:-900])
    (folder / "chain/1").mkdir(parents=True)
    (folder / "chain/config.pbtxt").write_text(CHAIN)
    (folder / "half/1").mkdir(parents=True)
    (folder / "half/config.pbtxt").write_text(HALF)
    with Server("--exit-on-error=false", repositories=(folder,)) as running:
        yield running


HALF = """backend: "identity" max_batch_size: 64
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }]
"""
CHAIN = """platform: "ensemble" max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [ 6 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }]
ensemble_scheduling { step [
 { model_name: "regression" model_version: -1 input_map { key: "input__0" value: "x" } output_map { key: "output__0" value: "r" } },
 { model_name: "half" model_version: -1 input_map { key: "INPUT0" value: "r" } output_map { key: "OUTPUT0" value: "y" } }
] }
"""


def ask(server, model, x, outputs=None, module=http, name="input__0"):
    with module.InferenceServerClient(server.http if module is http else server.grpc) as client:
        tensor = module.InferInput(name, list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        return client.infer(model, [tensor], outputs=outputs and [module.InferRequestedOutput(o) for o in outputs])


def scores(server, model, x=X, **kwargs):
    return ask(server, model, x, **kwargs).as_numpy("output__0")


def reasons(server):
    index = requests.post(server.url("/v2/repository/index"), timeout=20).json()
    return {m["name"]: m.get("reason", "") for m in index}


def test_libraries_predictions(forests):
    """Each golden model, 40 rows in one request: the scores of its library."""
    said = reasons(forests)
    compared = 0
    for name, outputs, what in CASES:
        assert not said[model_of(name)], (name, said[model_of(name)])
        _, want = golden_of(name, int(outputs), what)
        got = scores(forests, model_of(name)).reshape(40, int(outputs))
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=name)
            compared += 1
    assert compared > 100


def test_exact(forests):
    """A regression is its sum, to the last bit, one row at a time, all at once, over HTTP and gRPC."""
    sums, _ = golden_of("xgb-reg-squarederror.json", 1, "both")
    for module in (http, grpc):
        np.testing.assert_array_equal(scores(forests, "regression", module=module), sums[:, 0])
    for i in range(40):
        np.testing.assert_array_equal(scores(forests, "regression", X[i : i + 1]), sums[i])


def test_answers(forests):
    """Classes, thresholds, one probability or two: shapes leave out dimensions of 1."""
    _, p = golden_of("xgb-binary-logistic.json", 1, "both")
    np.testing.assert_array_equal(scores(forests, "binary"), (p[:, 0] > 0.5).astype(np.float32))
    np.testing.assert_array_equal(scores(forests, "binary_03"), (p[:, 0] > np.float32(0.3)).astype(np.float32))
    np.testing.assert_allclose(scores(forests, "binary_p"), p[:, 0], atol=1e-6)
    _, q = golden_of("lgb-binary.txt", 1, "both")
    np.testing.assert_allclose(scores(forests, "binary_pp"), np.hstack([1 - q, q]), atol=1e-6)
    _, c = golden_of("xgb-multi-softprob.json", 3, "both")
    np.testing.assert_array_equal(scores(forests, "classes"), c.argmax(1).astype(np.float32))
    np.testing.assert_allclose(scores(forests, "classes_p"), c, atol=1e-6)
    assert scores(forests, "classes_p").shape == (40, 3) and scores(forests, "classes").shape == (40,)
    np.testing.assert_allclose(scores(forests, "trees_p").sum(1), 1, atol=1e-5)
    _, m = golden_of("lgb-multiclass.txt", 3, "both")
    np.testing.assert_array_equal(scores(forests, "old"), m.argmax(1).astype(np.float32))


def test_targets(forests):
    """Several targets: each has its own answer, its own threshold's question and its own SHAP values."""
    _, p = golden_of("tl-sklearn-rf-class-targets.tl", 6, "both")
    p = p.reshape(40, 2, 3)
    assert p[:, 1, 2].max() == 0  # the second target has two classes
    best = p.argmax(2).astype(np.float32)
    np.testing.assert_array_equal(scores(forests, "targets"), best)
    np.testing.assert_array_equal(scores(forests, "targets.fil"), best)
    for model in ("targets_p", "targets_open"):
        np.testing.assert_allclose(scores(forests, model), p, atol=1e-6)
        np.testing.assert_allclose(scores(forests, model, X[:1]), p[:1], atol=1e-6)
    sums, _ = golden_of("xgb-targets.json", 2, "both")
    np.testing.assert_array_equal(scores(forests, "above"), (sums > 0.25).astype(np.float32))
    values = ask(forests, "explained2", X).as_numpy("treeshap_output")
    assert values.shape == (40, 2, 7)
    np.testing.assert_allclose(values.sum(2), sums, rtol=1e-5, atol=1e-4)


def test_errors(forests):
    """Each bad model has the backend's error; the others serve."""
    said = reasons(forests)
    for name, _, _, _, text in BAD:
        assert text in said[name], name
    assert "xgboost.json" in said["broken"]
    assert requests.get(forests.url("/v2/models/binary/ready"), timeout=20).status_code == 200
    answer = requests.post(forests.url("/v2/models/binary/infer"), timeout=20, data=json.dumps(
        {"inputs": [{"name": "input__0", "shape": [1, 5], "datatype": "FP32", "data": [0.0] * 5}]}))
    assert answer.status_code == 400 and "unexpected shape for input 'input__0'" in answer.json()["error"]


def test_completed(forests):
    """Without a configuration the file says what there is."""
    done = requests.get(forests.url("/v2/models/open.fil/config"), timeout=20).json()
    assert done["input"][0]["dims"] == [6] and done["output"][0]["dims"] == [1] and done["max_batch_size"] > 1
    assert done["parameters"]["model_type"]["string_value"] == "lightgbm"
    assert done["parameters"]["is_classifier"]["string_value"] == "true"
    _, m = golden_of("lgb-multiclass.txt", 3, "both")
    np.testing.assert_array_equal(scores(forests, "open.fil"), m.argmax(1).astype(np.float32))


def test_explained(forests):
    """SHAP values and the mean make the margin; a request that does not ask for them gets none."""
    sums, _ = golden_of("xgb-binary-logistic.json", 1, "both")
    result = ask(forests, "explained", X)
    values = result.as_numpy("treeshap_output")
    assert values.shape == (40, 7)
    np.testing.assert_allclose(values.sum(1), sums[:, 0], atol=1e-5)
    three = ask(forests, "explained3", X, outputs=["treeshap_output"])
    margins, _ = golden_of("lgb-multiclass.txt", 3, "both")
    assert three.as_numpy("output__0") is None
    np.testing.assert_allclose(three.as_numpy("treeshap_output").sum(2), margins, atol=1e-5)


def test_many_at_once(forests):
    """Requests of few rows from many clients, joined or not, each get their own rows' scores."""
    sums, _ = golden_of("xgb-reg-squarederror.json", 1, "both")
    failures = []

    def client(seed):
        rng = np.random.default_rng(seed)
        with http.InferenceServerClient(forests.http) as c:
            for _ in range(40):
                rows = rng.integers(0, 40, rng.integers(1, 9))
                tensor = http.InferInput("input__0", [len(rows), 6], "FP32")
                tensor.set_data_from_numpy(X[rows])
                if not np.array_equal(c.infer("regression", [tensor]).as_numpy("output__0"), sums[rows, 0]):
                    failures.append(seed)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


def test_in_an_ensemble(forests):
    """A forest's reply has no dimension of 1; the next step's configuration has it."""
    sums, _ = golden_of("xgb-reg-squarederror.json", 1, "both")
    got = ask(forests, "chain", X[:5], name="x").as_numpy("y")
    np.testing.assert_array_equal(got.reshape(-1), sums[:5, 0])
