# SPDX-License-Identifier: Apache-2.0
"""What the log says of a start that succeeds, but is hardly what its user wanted."""
import pytest
from wire import ROOT

LM = ROOT / "models/classics-10m"


def parameters(**values):
    rows = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()]
    return "\n".join(['backend: "engine"', *rows])


@pytest.fixture
def log_of(start, tmp_path):
    """The log of a server with a model of that configuration."""

    def run(config, *options):
        (tmp_path / "story" / "1").mkdir(parents=True)
        (tmp_path / "story" / "config.pbtxt").write_text(config)
        server = start(*options, repositories=[tmp_path])
        return server.log_text()

    return run


def test_a_misspelt_parameter(log_of):
    log = log_of(parameters(model_path=LM, dtyp="f32", kv_tokns="4096", gpt_model_type="inflight_batching", note="x"))
    assert "model 'story': parameter 'dtyp' has no effect (did you mean 'dtype'?)" in log
    assert "model 'story': parameter 'kv_tokns' has no effect (did you mean 'kv_tokens'?)" in log
    assert log.count("has no effect") == 2  # parameters of other servers, and of nobody, are no mistake


def test_a_parameter_that_is_not_filled_in(log_of):
    log = log_of(parameters(model_path="${folder}", kv_tokens="${tokens}", note="${text}"), "--set", f"folder={LM}")
    assert "model 'story': parameters that no --set fills count as absent: kv_tokens (${tokens})" in log


def test_names_of_backends_that_nothing_has(log_of, tmp_path_factory):
    backends = tmp_path_factory.mktemp("backends")
    (backends / "mine").mkdir()
    log = log_of(parameters(model_path=LM), "--isolate", "onnxruntim", "--in-process", "pytoch", "--in-process", "something",
                 "--backend-config", "tensorflow,version=2", "--backend-directory", str(backends),
                 "--isolate", "onnxruntime", "--isolate", "mine", "--in-process", "pytorch", "--backend-config", "python,thread-pool-size=1",
                 "--backend-config", "engine,kv_tokens=512", "--backend-config", "default-max-batch-size=4")
    assert "--isolate 'onnxruntim' has no effect: there is no such backend (did you mean 'onnxruntime'?)" in log
    assert "--in-process 'pytoch' has no effect: there is no such backend (did you mean 'pytorch'?)" in log
    assert "--in-process 'something' has no effect: there is no such backend, but identity, " in log and ", pytorch, mine" in log
    assert "--backend-config 'tensorflow' has no effect: there is no such backend" in log
    assert log.count("has no effect") == 4


def test_settings_that_a_backend_does_not_have(log_of):
    log = log_of(parameters(model_path=LM), "--backend-config", "python,execute-timeout-m=1", "--backend-config", "python,execute-timeout-m=2",
                 "--backend-config", "onnxruntime,x=1", "--backend-config", "onnxruntime,memory-limit-mb=4000")
    assert "--backend-config python,execute-timeout-m has no effect: the backend has no such setting (did you mean 'execute-timeout-ms'?)" in log
    assert "--backend-config onnxruntime,x has no effect: the backend has no such setting, but library, " in log
    assert log.count("has no effect") == 2


@pytest.mark.parametrize("name", ["missing", "story/config.pbtxt"])
def test_a_folder_of_backends_that_is_none(log_of, tmp_path, name):
    log = log_of(parameters(model_path=LM), "--backend-directory", str(tmp_path / name))
    assert log.count("has no effect") == 1
    assert f"--backend-directory '{tmp_path / name}' has no effect: it is no folder" in log


def test_no_model(start, tmp_path):
    assert "there is no model: a repository has a folder for each model" in start(repositories=[tmp_path]).log_text()
