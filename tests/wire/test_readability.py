# SPDX-License-Identifier: Apache-2.0
"""examples/readability with a small BERT: every step gives what its Python library gives, one line of the
configuration chooses the backend of BERT, and another the device of each step."""
import os
import subprocess
import sys

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from wire import PROA, ROOT, Server, metric

treelite = pytest.importorskip("treelite")
pytest.importorskip("sklearn")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
tokenizers = pytest.importorskip("tokenizers")

EXAMPLE = ROOT / "examples/readability"
sys.path[:0] = [str(EXAMPLE), str(EXAMPLE.parent / "review-pipeline")]
import textfeatures  # noqa: E402

COUNTS = ["words", "distinct_words", "punctuation", "sentences", "characters", "long_words"]
ODD = ["", "The", "don\u2019t, DON'T the THE\u2026 \u00c4 \u0130", "a " * 600]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readability")
    command = [sys.executable, EXAMPLE / "prepare.py", folder, "--bert", "small", "--trees", "20", "--excerpts", "150"]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder


def environment():
    return {"PROA_PYTHON": sys.executable, "VIRTUAL_ENV": sys.prefix, "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def served(made):
    with Server(repositories=[made / "repository"], env=environment()) as running:
        yield running


@pytest.fixture(scope="module")
def excerpts(made):
    return (made / "excerpts.txt").read_text(encoding="utf-8").splitlines()


def ask(server, model, **inputs):
    """Outputs by name."""
    with triton.InferenceServerClient(server.http, network_timeout=120) as client:
        tensors = []
        for name, array in inputs.items():
            kind = {"O": "BYTES", "i": "INT32", "f": "FP32"}[array.dtype.kind]
            tensors.append(triton.InferInput(name, list(array.shape), kind))
            tensors[-1].set_data_from_numpy(array)
        answer = client.infer(model, tensors)
        return {output["name"]: answer.as_numpy(output["name"]) for output in answer.get_response()["outputs"]}


def column(texts):
    return np.array([[text.encode()] for text in texts], dtype=object)


def tokens_of(made, texts):
    tokenizer = tokenizers.Tokenizer.from_file(str(made / "repository/bert/1/tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(texts)
    return (np.array([row.ids for row in rows], np.int32),
            np.array([[sum(row.attention_mask)] for row in rows], np.int32))


def test_features(made, served, excerpts):
    features = textfeatures.Features.of_files(COUNTS, made / "repository/features/1", ["stopwords.txt"], "words.txt")
    want = np.array([features.row(text) for text in excerpts + ODD], np.float32)
    assert want.shape[1] == 207 and want[:, 6].max() > 5
    have = ask(served, "features", TEXT=column(excerpts + ODD))["FEATURES"]
    assert np.array_equal(have, want)


def test_tokens(made, served, excerpts):
    ids, lengths = tokens_of(made, excerpts)
    have = ask(served, "tokenizer", QUERY=column(excerpts))
    assert np.array_equal(have["REQUEST_INPUT_LEN"], lengths)
    assert np.array_equal(have["INPUT_ID"], ids)


def test_forest(made, served, excerpts):
    rows = ask(served, "features", TEXT=column(excerpts))["FEATURES"]
    forest = treelite.Model.deserialize(str(made / "repository/forest/1/checkpoint.tl"))
    want = treelite.gtil.predict(forest, rows.astype(np.float64)).reshape(-1).astype(np.float32)
    have = ask(served, "forest", input__0=rows)["output__0"].reshape(-1)
    assert np.array_equal(have, want)
    assert have.std() > 0.02


def onnx_scores(made, texts):
    ids, lengths = tokens_of(made, texts)
    session = onnxruntime.InferenceSession(str(made / "repository/bert/1/model.onnx"))
    return session.run(["scores"], {"input_ids": ids, "input_lengths": lengths})[0]


def test_pipeline(made, served, excerpts):
    before = metric(requests.get(f"http://{served.metrics}/metrics", timeout=60).text, "proa_tensor_copied_bytes_total")
    have = ask(served, "readability", TEXT=column(excerpts))
    np.testing.assert_allclose(have["BERT"], onnx_scores(made, excerpts), atol=1e-5)
    assert have["BERT"].std() > 1e-3
    assert np.array_equal(have["SCORE"], ((have["BERT"].astype(float) + have["FOREST"]) / 2).astype(np.float32))
    alone = ask(served, "readability", TEXT=column(excerpts[3:4]))
    assert alone["SCORE"][0, 0] == have["SCORE"][3, 0]
    after = metric(requests.get(f"http://{served.metrics}/metrics", timeout=60).text, "proa_tensor_copied_bytes_total")
    assert after == before  # tensors go from step to step by reference


def test_lengths(served):
    ids = np.array([[2, 77, 99, 3, 0, 0], [2, 70, 90, 80, 60, 3]], np.int32)
    have = ask(served, "bert", input_ids=ids, input_lengths=np.array([[4], [6]], np.int32))["scores"]
    for row, length in ((0, 4), (1, 6)):
        one = ask(served, "bert", input_ids=ids[row : row + 1, :length], input_lengths=np.array([[length]], np.int32))
        assert one["scores"][0, 0] == have[row, 0]
    with pytest.raises(Exception, match="input 'input_lengths' is 7 in row 1, must be 0 to 6"):
        ask(served, "bert", input_ids=ids, input_lengths=np.array([[4], [7]], np.int32))


def moved(made, folder, change):
    """A copy of the repository (of its configurations; models are linked) with lines replaced: {model: (old, new)}."""
    for model in ("readability", "tokenizer", "bert", "features", "forest", "average"):
        (folder / model).mkdir(parents=True)
        (folder / model / "1").symlink_to(made / "repository" / model / "1")
        text = (made / "repository" / model / "config.pbtxt").read_text()
        old, new = change.get(model, ("", ""))
        assert old in text
        (folder / model / "config.pbtxt").write_text(text.replace(old, new))
    return folder


@pytest.mark.parametrize("backend", ["onnxruntime", "pytorch"])
def test_another_backend_is_one_line(made, excerpts, tmp_path, backend):
    if backend == "pytorch":
        pytest.importorskip("torch")
        if not (PROA.parent / "libproa_torch.so").exists():
            pytest.skip("./do build torch makes the plug-in libproa_torch.so")
    repository = moved(made, tmp_path / "r", {"bert": ('backend: "engine"', f'backend: "{backend}"')})
    with Server(repositories=[repository], env=environment()) as running:
        have = ask(running, "readability", TEXT=column(excerpts[:16]))
        np.testing.assert_allclose(have["BERT"], onnx_scores(made, excerpts[:16]), atol=1e-5)


def test_another_device_is_one_line(made, served, excerpts, tmp_path):
    steps = ("bert", "features", "forest", "average")
    repository = moved(made, tmp_path / "r", {step: ("kind: KIND_CPU", "kind: KIND_GPU") for step in steps})
    with Server("--exit-on-error=false", repositories=[repository], env=environment()) as running:
        index = {m["name"]: m for m in requests.post(running.url("/v2/repository/index"), timeout=60).json()}
        assert index["tokenizer"]["state"] == "READY"
        if all(index[step]["state"] == "READY" for step in steps):  # there is a GPU
            have = ask(running, "readability", TEXT=column(excerpts[:16]))
            want = ask(served, "readability", TEXT=column(excerpts[:16]))
            assert np.array_equal(have["FOREST"], want["FOREST"])
            np.testing.assert_allclose(have["SCORE"], want["SCORE"], atol=5e-3)
            return
        for step in steps:
            assert "device 'cuda" in index[step]["reason"], index[step]
        assert "which has no loaded version" in index["readability"]["reason"]


def copies(server):
    """(to the host, to a GPU)"""
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    return [metric(text, f"proa_{where}_copies_total") for where in ("host", "device")]


def test_nothing_is_copied_between_steps_on_a_gpu(made, served, excerpts, tmp_path):
    plugin = PROA.parent / "tests/libfake_gpu.so"
    if not plugin.exists():
        pytest.skip("tests/libfake_gpu.so is not built")
    steps = ("bert", "features", "forest", "average")
    repository = moved(made, tmp_path / "r", {step: ("kind: KIND_CPU", "kind: KIND_GPU gpus: [ 2 ]") for step in steps})
    want = ask(served, "readability", TEXT=column(excerpts[:20]))
    with Server(repositories=[repository], env={**environment(), "PROA_CUDA_PLUGIN": str(plugin)}) as running:
        before = copies(running)
        have = ask(running, "readability", TEXT=column(excerpts[:20]))
        assert [b - a for a, b in zip(before, copies(running))] == [3, 1]  # the three outputs, the texts
    for name, rows in want.items():
        np.testing.assert_allclose(have[name], rows, atol=1e-6, err_msg=name)


def test_steps_in_python_give_the_same(made, served, excerpts):
    both = [made / "repository", made / "repository-python"]
    with Server(repositories=both, env={**os.environ, **environment()}) as running:
        have = ask(running, "readability_python", TEXT=column(excerpts[:16]))
    want = ask(served, "readability", TEXT=column(excerpts[:16]))
    for name, rows in want.items():
        np.testing.assert_allclose(have[name], rows, atol=1e-5, err_msg=name)
