# SPDX-License-Identifier: Apache-2.0
"""Repository agents: models whose files must have the checksums that their configurations name."""
import hashlib

import pytest
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

CONFIG = """backend: "identity"
max_batch_size: 2
input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }]
model_repository_agents { agents [ { name: "%s" %s } ] }
"""
WEIGHTS = b"the bytes of a model"
SUM = hashlib.md5(WEIGHTS).hexdigest()


def parameter(key, value):
    return f'parameters {{ key: "{key}" value: "{value}" }}'


@pytest.fixture
def load(start, tmp_path):
    """load(agent, parameters): loads a model with this agent into a server; returns its client."""
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/weights.bin").write_bytes(WEIGHTS)
    (tmp_path / "m/config.pbtxt").write_text(CONFIG % ("checksum", ""))
    running = start("--model-control-mode=explicit", repositories=[tmp_path])
    with http.InferenceServerClient(running.http) as client:
        def load(agent, *parameters):
            (tmp_path / "m/config.pbtxt").write_text(CONFIG % (agent, " ".join(parameters)))
            client.load_model("m")
            return client
        yield load


@pytest.mark.parametrize("key, value", [("MD5:1/weights.bin", SUM), ("md5:1/weights.bin", SUM.upper())])
def test_right_sum(load, key, value):
    assert load("checksum", parameter(key, value)).is_model_ready("m")


@pytest.mark.parametrize("agent, key, value, reason", [
    ("checksum", "MD5:1/weights.bin", "0" * 32,
     f"Mismatched MD5 hash for file 1/weights.bin, expect: {'0' * 32}, got: {SUM}"),
    ("checksum", "MD5:1/weights.bin", "12", "'12', which is no MD5 sum of 32 hexadecimal digits"),
    ("checksum", "MD5:1/none.bin", SUM, "failed to open 1/none.bin for read: No such file or directory"),
    ("checksum", "MD5:1", SUM, "failed to read 1: it is no file"),
    ("checksum", "MD5:../m/1/weights.bin", SUM, "names a file outside of the model's folder"),
    ("checksum", "MD5:1/..", SUM, "names a file outside of the model's folder"),
    ("checksum", "MD5:/etc/passwd", SUM, "names a file outside of the model's folder"),
    ("checksum", "1/weights.bin", SUM, "failed to parse key: 1/weights.bin"),
    ("checksum", "SHA256:1/weights.bin", SUM, "Unsupported checksum algorithm: SHA256"),
    ("seal", "MD5:1/weights.bin", SUM, "unable to find repository agent 'seal'"),
])
def test_refused(load, agent, key, value, reason):
    with pytest.raises(InferenceServerException) as refused:
        load(agent, parameter(key, value))
    assert reason in str(refused.value)


def test_a_changed_file_leaves_what_serves(load, tmp_path):
    client = load("checksum", parameter("MD5:1/weights.bin", SUM))
    (tmp_path / "m/1/weights.bin").write_bytes(WEIGHTS + b".")
    with pytest.raises(InferenceServerException, match="Mismatched MD5 hash"):
        client.load_model("m")
    assert client.is_model_ready("m")
