# SPDX-License-Identifier: Apache-2.0
"""Libraries that were compiled as backends of Triton. libraries/triton_probe.c is one, written against the binary
interface: it needs libtritonserver.so, which nobody has installed here."""
import json
import os
import queue
import shutil
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from wire import ROOT, Server

COMPILER = os.environ.get("CC", "cc")
PROBE = ROOT / "tests/wire/libraries/triton_probe.c"
BATCHED = """backend: "%s"
max_batch_size: 8
input { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] }
"""
DECOUPLED = BATCHED.replace("max_batch_size: 8", "model_transaction_policy { decoupled: true }")
# functions that Proa does not have, and one that it has
MISSING = """struct o; struct o *TRITONSERVER_ServerOptionsNew(void); struct o *TRITONBACKEND_ApiVersion(void *, void *);
struct o *TRITONSERVER_ServerNew(void);
__attribute__((visibility("default"))) struct o *TRITONBACKEND_ModelInstanceExecute(void)
{ TRITONBACKEND_ApiVersion(0, 0); TRITONSERVER_ServerNew(); return TRITONSERVER_ServerOptionsNew(); }
"""
SEQUENCE = "sequence_batching { state { input_name: \"I\" output_name: \"O\" data_type: TYPE_INT32 dims: [ 1 ] } }\n"

pytestmark = pytest.mark.skipif(not shutil.which(COMPILER), reason="builds a library")


def build(folder, name, source):
    (folder / name).mkdir()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-fvisibility=hidden", source, "-o", folder / name / f"libtriton_{name}.so",
                    "-Wl,--no-as-needed", f"-L{folder}", "-ltritonserver"], check=True)


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backends")
    (folder / "empty.c").write_text("")
    subprocess.run([COMPILER, "-shared", "-Wl,-soname,libtritonserver.so", folder / "empty.c", "-o",
                    folder / "libtritonserver.so"], check=True)
    build(folder, "probe", PROBE)
    (folder / "missing.c").write_text(MISSING)
    build(folder, "missing", folder / "missing.c")
    (folder / "libtritonserver.so").unlink()  # as where no Triton is installed
    return folder


# A library runs in processes of its own, or in the server's: it answers the same.
MODES = {"isolated": (), "in-process": ("--in-process", "probe")}


@pytest.fixture(scope="module", params=MODES)
def server(request, backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    for name, config in {
        "once": BATCHED % "probe",
        "batches": BATCHED % "probe" + "dynamic_batching { max_queue_delay_microseconds: 1000 }\n",
        "sequences": BATCHED % "probe" + "sequence_batching { }\n",
        "two": BATCHED % "probe" + "instance_group { count: 2 }\n",
        "many": DECOUPLED % "probe",
        "lacking": BATCHED % "missing",
        "states": BATCHED % "probe" + SEQUENCE,
        "unloadable": BATCHED % "probe" + 'parameters { key: "k" value { string_value: "unloadable" } }\n',
    }.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
    with Server("--backend-directory", str(backends), "--exit-on-error=false", "--backend-config", "probe,setting=value",
                *MODES[request.param], repositories=[repository]) as one:
        yield one
        assert one.stop() == 0


def call(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url(path), data), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, json.loads(answer.read() or b"{}")


def infer(server, name="once", shape=(1, 3), **more):
    data = list(range(int(np.prod(shape))))
    body = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": list(shape), "data": data}], **more}
    return call(server, f"/v2/models/{name}/infer", body)


@pytest.mark.parametrize("name", ["once", "batches"])
@pytest.mark.parametrize("shape", [(1, 3), (8, 100), (2, 0)])
def test_copies_its_input(server, name, shape):
    status, answer = infer(server, name, shape, id="7")
    assert status == 200 and answer["id"] == "7"
    output = answer["outputs"][0]
    assert output["shape"] == list(shape) and output["data"] == list(range(shape[0] * shape[1]))
    assert answer["parameters"]["type"] == "INT32"


def test_what_the_backend_sees(server):
    facts = infer(server, parameters={"text": "t", "number": -7})[1]["parameters"]
    assert facts["text"] == "t" and facts["number"] == -7
    assert facts["instance"].startswith("once") and facts["outputs"] == 1 and facts["flags"] == 0
    assert json.loads(facts["settings"])["cmdline"]["setting"] == "value"


def test_two_instances(server):
    """They have names of their own, and both answer when there are many requests."""
    seen = set()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            answers = list(pool.map(lambda _: infer(server, "two", (8, 1000)), range(16)))
            assert all(status == 200 and a["outputs"][0]["data"] == list(range(8000)) for status, a in answers)
            seen |= {a["parameters"]["instance"] for _, a in answers}
            if len(seen) == 2:
                break
    assert seen == {"two_0_0", "two_0_1"}


def test_sequences(server):
    start = infer(server, "sequences", parameters={"sequence_id": 5, "sequence_start": True})[1]["parameters"]
    end = infer(server, "sequences", parameters={"sequence_id": 5, "sequence_end": True})[1]["parameters"]
    assert (start["sequence"], start["flags"], end["flags"]) == (5, 1, 2)


@pytest.mark.parametrize("what, status, text", [
    ("error", 400, "the probe was asked to fail"),
    ("refuse", 503, "the probe refuses"),
    ("silent", 500, "backend 'probe' released the request without a final response"),
    ("short", 500, "output 'OUTPUT' has 8 bytes, which is not INT32 of shape [1,3]"),
])
def test_errors(server, what, status, text):
    got, answer = infer(server, id=what)
    assert got == status and text in answer["error"]
    assert infer(server)[0] == 200


def test_only_the_first_final_response_counts(server):
    assert infer(server, id="twice")[0] == 200


def test_decoupled(server):
    grpc = pytest.importorskip("tritonclient.grpc")
    got = queue.Queue()
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: got.put((result, error)))
        tensor = grpc.InferInput("INPUT", [1], "INT32")
        tensor.set_data_from_numpy(np.zeros(1, np.int32))
        client.async_stream_infer("many", [tensor], enable_empty_final_response=True)
        for i in range(4):
            result, error = got.get(timeout=20)
            assert error is None
            final = result.get_response().parameters["triton_final_response"].bool_param
            assert final == (i == 3) and (final or result.as_numpy("OUTPUT").tolist() == [i])
        client.stop_stream()


@pytest.mark.parametrize("mode", MODES)
def test_activities_are_traced(backends, tmp_path, mode):
    (tmp_path / "models/once/1").mkdir(parents=True)
    (tmp_path / "models/once/config.pbtxt").write_text(BATCHED % "probe")
    options = [word for one in (f"file={tmp_path}/trace", "level=TIMESTAMPS", "rate=1") for word in ("--trace-config", one)]
    with Server("--backend-directory", str(backends), "--backend-config", "probe,setting=value", *options, *MODES[mode],
                repositories=[tmp_path / "models"]) as one:
        assert infer(one)[0] == 200
    times = {stamp["name"]: stamp["ns"] for entry in json.loads((tmp_path / "trace").read_text()) for stamp in entry.get("timestamps", ())}
    assert times["COMPUTE_START"] <= times['PROBE "LOOKS"'] <= times["REQUEST_END"]


def test_statistics_and_metrics(server):
    before = call(server, "/v2/models/once/stats")[1]["model_stats"][0]
    assert infer(server)[0] == 200
    after = call(server, "/v2/models/once/stats")[1]["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["execution_count"] == before["execution_count"] + 1
    page = urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=20).read().decode()
    lines = [line for line in page.splitlines() if line.startswith("probe_requests")]
    assert len(lines) == 1 and lines[0].startswith('probe_requests{kind="a \\"probe\\""} ')
    assert float(lines[0].split()[-1]) > 0
    assert '"once"' in server.log_text()  # LogMessage


@pytest.mark.parametrize("name, why", [
    ("lacking", "that Proa does not have: TRITONSERVER_ServerNew, TRITONSERVER_ServerOptionsNew"),
    ("states", "sequence_batching with 'state' is not supported for backends of Triton"),
    ("unloadable", "the probe does not load this"),
])
def test_what_cannot_be_loaded_is_an_error_of_its_model(server, name, why):
    reasons = {m["name"]: m.get("reason", "") for m in call(server, "/v2/repository/index", {})[1]}
    if name == "lacking":  # in the order of the library's table
        assert "that Proa does not have: " in reasons[name] and "ApiVersion" not in reasons[name]
        assert set(reasons[name].split("have: ")[1].split(", ")) == set(why.split("have: ")[1].split(", "))
    else:
        assert why in reasons[name]
    assert infer(server)[0] == 200
