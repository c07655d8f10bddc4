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


def test_no_model(start, tmp_path):
    assert "there is no model: a repository has a folder for each model" in start(repositories=[tmp_path]).log_text()
