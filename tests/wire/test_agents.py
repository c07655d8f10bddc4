# SPDX-License-Identifier: Apache-2.0
"""Repository agents: models whose files must have the checksums that their configurations name; agents that were compiled
for Triton, of which libraries/triton_agent.c is one."""
import hashlib
import os
import shutil
import subprocess

import pytest
import tritonclient.http as http
from tritonclient.utils import InferenceServerException
from wire import ROOT

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


# ---- compiled agents ----

COMPILER = os.environ.get("CC", "cc")
AGENT = ROOT / "tests/wire/libraries/triton_agent.c"
# with a function that Proa does not have
MISSING = """struct o; struct o *TRITONREPOAGENT_Nothing(void);
__attribute__((visibility("default"))) struct o *TRITONREPOAGENT_ModelAction(void) { return TRITONREPOAGENT_Nothing(); }
"""
# The calls that an agent gets, as a real tritonserver makes them.
BEFORE = ["initialize", "LOAD", "config an object",
          "config of version 2 model configuration version 2 not supported, supported versions are: 1",
          "release of nothing No mutable location to be deleted"]
MOVED = [*BEFORE, "acquired again the same"]


def build(folder, name, source):
    (folder / name).mkdir()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-fvisibility=hidden", source, "-o", folder / name / f"libtritonrepoagent_{name}.so",
                    "-Wl,--no-as-needed", f"-L{folder}", "-ltritonserver"], check=True)


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    if not shutil.which(COMPILER):
        pytest.skip("builds a library")
    folder = tmp_path_factory.mktemp("agents")
    (folder / "empty.c").write_text("")
    subprocess.run([COMPILER, "-shared", "-Wl,-soname,libtritonserver.so", folder / "empty.c", "-o", folder / "libtritonserver.so"],
                   check=True)
    build(folder, "probe", AGENT)
    (folder / "missing.c").write_text(MISSING)
    build(folder, "missing", folder / "missing.c")
    (folder / "empty").mkdir()
    (folder / "empty/libtritonrepoagent_empty.so").write_text("no library")
    (folder / "libtritonserver.so").unlink()  # as where no Triton is installed
    return folder


class Probed:
    """A server with the model `m`, whose agents are probes with these parameters; the calls that they get."""

    def __init__(self, start, folder, agents, temporary):
        self.folder, self.log, self.temporary = folder / "m", folder / "log", temporary
        (self.folder / "1").mkdir(parents=True)
        (self.folder / "1/sealed").write_bytes(WEIGHTS)
        self.write([{}])
        temporary.mkdir()
        self.server = start("--model-control-mode=explicit", f"--repoagent-directory={agents}", repositories=[folder],
                            env={"TMPDIR": str(temporary)})

    def write(self, probes, agent="probe", backend="identity", more=""):
        wanted = ""
        for i, probe in enumerate(probes):
            named = {"log": self.log, "name": i, **probe}
            wanted += f'{{ name: "{agent}" {" ".join(parameter(k, v) for k, v in named.items())} }} '
        text = CONFIG.replace('"identity"', f'"{backend}"').replace('agents [ { name: "%s" %s } ]', f"agents [ {wanted.replace('} {', '}, {')} ]")
        (self.folder / "config.pbtxt").write_text(text + more)

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def probed(start, agents, tmp_path):
    return Probed(start, tmp_path / "repository", agents, tmp_path / "tmp")


def named(number, calls):
    return [f"{number} {call}" for call in calls]


def test_calls_of_two_agents(probed):
    probed.write([{}, {}])
    with http.InferenceServerClient(probed.server.http) as client:
        client.load_model("m")
        assert probed.calls() == [*named(0, BEFORE), *named(1, BEFORE), "1 LOAD_COMPLETE", "0 LOAD_COMPLETE"]
        client.unload_model("m")
    probed.server.stop()
    assert probed.calls()[12:] == ["0 UNLOAD", "1 UNLOAD", "1 UNLOAD_COMPLETE", "0 UNLOAD_COMPLETE", "0 finalize model",
                                   "1 finalize model"]


def test_a_model_that_an_agent_moves(probed):
    """It is loaded from the folder that the server has made for the agent, which is there as long as the model."""
    probed.write([{"move": "yes"}, {"late": "LOAD_COMPLETE"}],
                 more='parameters { key: "x" value { string_value: "read from the copy" } }')
    with http.InferenceServerClient(probed.server.http) as client:
        client.load_model("m")
        copies = list(probed.temporary.glob("proa-agent-*"))
        assert len(copies) == 1 and (copies[0] / "1/opened").read_bytes() == WEIGHTS
        assert client.is_model_ready("m") and client.get_model_config("m")["parameters"]["x"]["string_value"] == "read from the copy"
        assert "1 late location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is " \
               "TRITONREPOAGENT_ACTION_LOAD_COMPLETE" in probed.calls()
        # a new configuration: the agents see the repository's folder again, and the old copy goes
        probed.write([{"move": "yes"}], more="version_policy { all { } }")
        client.load_model("m")
        assert probed.calls().count("0 initialize") == 2
        client.unload_model("m")
    probed.server.stop()
    assert not list(probed.temporary.glob("proa-agent-*"))
    assert probed.calls()[:6] == named(0, MOVED) and probed.calls().count("0 finalize model") == 2


def test_a_load_that_fails(probed):
    with http.InferenceServerClient(probed.server.http) as client:
        probed.write([{"move": "yes"}, {"fail": "LOAD"}])
        with pytest.raises(InferenceServerException, match="the agent refuses"):
            client.load_model("m")
        assert probed.calls()[-5:] == ["1 LOAD", "1 LOAD_FAIL", "1 finalize model", "0 LOAD_FAIL", "0 finalize model"]
        probed.log.unlink()
        probed.write([{}], backend="fil")  # the agent agrees, and its file is not there
        with pytest.raises(InferenceServerException):
            client.load_model("m")
        assert probed.calls() == named(0, [*BEFORE, "LOAD_FAIL", "finalize model"])
        probed.write([{"fail": "UNLOAD"}])  # an error that comes too late to matter
        client.load_model("m")
        client.unload_model("m")
    assert not list(probed.temporary.glob("proa-agent-*"))


@pytest.mark.parametrize("agent, reason", [
    ("missing", "needs functions of Triton that Proa does not have: TRITONREPOAGENT_Nothing"),
    ("empty", "libtritonrepoagent_empty.so"), ("../probe", "unable to find repository agent '../probe'"),
    ("checksum", "failed to parse key: log"),  # the built-in one, which the directory has not
])
def test_agents_that_cannot_be_loaded(probed, agent, reason):
    probed.write([{}], agent=agent)
    with http.InferenceServerClient(probed.server.http) as client:
        with pytest.raises(InferenceServerException) as refused:
            client.load_model("m")
        assert reason in str(refused.value)
        probed.write([{}])
        client.load_model("m")
        assert client.is_model_ready("m")
