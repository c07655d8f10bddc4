# SPDX-License-Identifier: Apache-2.0
"""Backends that are shared libraries of --backend-directory: the example, built by its own CMake file, and files that are
no backend. What cannot be loaded is an error of its model; the others serve."""
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from wire import ROOT, Server

EXAMPLE = ROOT / "examples/backend"
COMPILER = os.environ.get("CC", "cc")
CONFIG = """backend: "%s"
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
NO_EXECUTE = """#include <proa/backend.h>
static proa_backend_table table = {.bytes = sizeof table, .version = VERSION};
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *e);
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *e)
{ return h && !e ? 0 : &table; }
"""
CALLS_NOBODY = """int no_such_function(void);
int proa_backend_entry(void);
__attribute__((visibility("default"))) int proa_backend_entry(void) { return no_such_function(); }
"""
# What the host tells about a model, as numbers of an output that the library owns; [6]: outputs released so far.
REPORTS = """#include <proa/backend.h>
#include <stdlib.h>
#include <string.h>
static const proa_backend_host *host;
static const proa_backend_model *model;
static int released;
static proa_status opened(void **state, proa_backend_model *m, proa_err *err)
{ (void)err; model = m; *state = m; return PROA_OK; }
static proa_status instance(void **state, void *m, const proa_backend_instance *i, proa_err *err)
{ (void)m; (void)err; *state = (void *)(uintptr_t)(host->instance_kind(i) + 1); return PROA_OK; }
static void release(void *arg) { released++; free(arg); }
static float *report(const void *state, proa_backend_request *r)
{
    const proa_backend_io *in = host->model_io(model, PROA_BACKEND_IO_INPUT, 0);
    const proa_backend_io *control = host->model_io(model, PROA_BACKEND_IO_CONTROL, 0);
    const proa_backend_io *next = host->model_io(model, PROA_BACKEND_IO_NEXT_STATE, 0);
    float *v = malloc(8 * sizeof *v);
    v[0] = (float)in->dims[0], v[1] = (float)host->model_max_batch(model);
    v[2] = (float)((uintptr_t)state - 1), v[3] = (float)host->request_input_device(r, 0);
    v[4] = control ? (float)control->type : 0, v[5] = next && !strcmp(next->name, "NEXT");
    v[6] = (float)released, v[7] = !host->model_io(model, PROA_BACKEND_IO_INPUT, 1);
    return v;
}
static void execute(void *state, proa_backend_request *const *requests, int count)
{
    host->compute_begins(requests, count);
    for (int i = 0; i < count; i++) {
        proa_err err = {0};
        int64_t shape[2] = {1, 8};
        float *v = report(state, requests[i]);
        proa_backend_response *response = host->response_new(requests[i]);
        proa_status status = host->response_output_of(response, "OUTPUT", PROA_BACKEND_FP32, shape, 2, v,
                                                      8 * sizeof *v, NULL, release, v, &err);
        if (status != PROA_OK) host->response_error(response, status, err.text);
        host->response_send(requests[i], response, true);
    }
}
static proa_backend_table table = {.bytes = sizeof table, .version = PROA_BACKEND_VERSION, .model_open = opened,
                                   .instance_open = instance, .execute = execute};
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *e);
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *e)
{ (void)e; host = h; return &table; }
"""

pytestmark = pytest.mark.skipif(not shutil.which("cmake") or not shutil.which(COMPILER), reason="builds a library")


def build(folder, name, text, *flags):
    """folder/NAME/libproa_NAME.so of a C text."""
    (folder / name).mkdir()
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([COMPILER, "-shared", "-fPIC", f"-I{ROOT / 'include'}", *flags, source, "-o",
                    folder / name / f"libproa_{name}.so"], check=True)


def model(folder, name, backend):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(CONFIG % backend)


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    """The directory that the example's CMake file makes, and broken libraries beside it."""
    folder = tmp_path_factory.mktemp("example")
    subprocess.run(["cmake", "-S", EXAMPLE, "-B", folder], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder], check=True, stdout=subprocess.DEVNULL)
    backends = folder / "backends"
    library = (backends / "scale/libproa_scale.so").read_bytes()
    build(backends, "noexecute", NO_EXECUTE, "-DVERSION=1")
    build(backends, "newer", NO_EXECUTE, "-DVERSION=77")
    build(backends, "reports", REPORTS)
    build(backends, "noentry", "int something;")
    build(backends, "undefined", CALLS_NOBODY)
    for name, content in {
        "text": b"not a library",
        "empty": b"",
        "cut": library[: len(library) // 2],
        "machine": library[:18] + (40).to_bytes(2, "little") + library[20:],  # ARM
        "narrow": library[:4] + b"\1" + library[5:],  # 32 bits
    }.items():
        (backends / name).mkdir()
        (backends / name / f"libproa_{name}.so").write_bytes(content)
    return backends


WHY = {
    "noexecute": "has no function execute",
    "newer": "has version 77 of the backend interface, this is version 1",
    "noentry": "is not a backend: it exports neither proa_backend_entry nor TRITONBACKEND_ModelInstanceExecute",
    "undefined": "undefined symbol: no_such_function",
    "text": "is not a shared library",
    "empty": "is not a shared library",
    "cut": "is cut",
    "machine": "was built for ARM, this machine is",
    "narrow": "is not a 64-bit",
    "absent": "unable to find backend library for backend 'absent'",
    "pytorch": "backend 'pytorch' needs the plug-in libproa_torch.so, which is neither beside the program nor in",
    "../scale": "unable to find backend library for backend '../scale'",
}


# A library runs in processes of its own, or in the server's: it answers the same.
MODES = {"isolated": (), "in-process": ("--in-process", "all")}


@pytest.fixture(scope="module", params=MODES)
def server(request, backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    shutil.copytree(EXAMPLE / "repository/half", repository / "half")
    model(repository, "plain", "scale")
    model(repository, "reports", 'reports"\nmax_batch_size: 4\ninstance_group { kind: KIND_MODEL }\nversion_policy: { '
          'latest { num_versions: 1 } }\nsequence_batching { control_input { name: "START" control { kind: '
          'CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } state { input_name: "PAST" output_name: "NEXT" '
          'data_type: TYPE_FP32 dims: [ 2 ] } }\nplatform: "')
    for i, backend in enumerate(WHY):
        model(repository, f"broken{i}", backend)
    (repository / "wrong" / "1").mkdir(parents=True)
    (repository / "wrong" / "config.pbtxt").write_text(
        CONFIG % "scale" + 'parameters { key: "factor" value { string_value: "much" } }')
    with Server("--backend-directory", str(backends), "--exit-on-error=false", *MODES[request.param],
                repositories=[repository]) as one:
        yield one
        assert one.stop() == 0


def call(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url(path), data), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, json.loads(answer.read() or b"{}")


def infer(server, name, values, shape, **more):
    body = {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": shape, "data": values}], **more}
    return call(server, f"/v2/models/{name}/infer", body)


def test_scales_by_the_parameter_of_the_configuration(server):
    status, answer = infer(server, "half", [1, 2, 3, 4, 5, 6], [2, 3], id="7")
    assert status == 200 and answer["id"] == "7"
    assert answer["outputs"] == [{"name": "OUTPUT", "datatype": "FP32", "shape": [2, 3], "data": [0.5, 1, 1.5, 2, 2.5, 3]}]
    assert infer(server, "plain", [1.5], [1])[1]["outputs"][0]["data"] == [1.5]


def test_an_empty_tensor(server):
    assert infer(server, "plain", [], [0])[1]["outputs"][0]["shape"] == [0]


def test_large_tensors(server):
    """Their outputs have blocks of their own in shared memory, which come back: more than it holds would not fit."""
    values = list(range(50_000))
    for _ in range(5):
        assert infer(server, "plain", values, [50_000])[1]["outputs"][0]["data"] == values
    assert infer(server, "half", values, [2, 25_000])[1]["outputs"][0]["data"][-1] == 24999.5


def test_statistics_count_its_executions(server):
    before = call(server, "/v2/models/half/stats")[1]["model_stats"][0]["inference_count"]
    assert infer(server, "half", [1, 2], [2, 1])[0] == 200
    assert call(server, "/v2/models/half/stats")[1]["model_stats"][0]["inference_count"] == before + 2


def test_what_the_host_tells_and_outputs_of_the_library(server):
    def values(**parameters):
        status, answer = infer(server, "reports", [1, 2], [1, 2], parameters={"sequence_id": 5, **parameters})
        assert status == 200, answer
        return answer["outputs"][0]["data"]

    first = values(sequence_start=True)
    assert first[:6] == [-1, 4, 2, -1, 8, 1] and first[7] == 1  # dims, max_batch_size, kind, device, INT32, NEXT
    assert values()[6] == first[6] + 1  # an output is released when its response has gone


def test_a_bad_parameter_fails_at_load(server):
    assert reasons(server)["wrong"].endswith("parameter 'factor' is not a number")


def reasons(server):
    return {m["name"]: m.get("reason", "") for m in call(server, "/v2/repository/index", {})[1]}


@pytest.mark.parametrize("at", range(len(WHY)))
def test_a_library_that_cannot_be_used_is_an_error_of_its_model(server, at):
    backend, why = list(WHY.items())[at]
    if backend == "pytorch" and (ROOT / "build/torch/libproa_torch.so").exists():
        pytest.skip("the plug-in is built")
    assert why in reasons(server)[f"broken{at}"], backend
    assert call(server, f"/v2/models/broken{at}/ready")[0] != 200
    assert infer(server, "plain", [2], [1])[0] == 200


def test_runtime_names_the_file(backends, tmp_path):
    """It comes before a built-in backend of the name, and may not leave the folder."""
    (backends / "identity").mkdir()
    shutil.copy(backends / "scale/libproa_scale.so", backends / "identity/mine.so")
    model(tmp_path, "library", 'identity"\nruntime: "mine.so')
    model(tmp_path, "outside", 'identity"\nruntime: "../scale/libproa_scale.so')
    with Server("--backend-directory", str(backends), "--exit-on-error=false", repositories=[tmp_path]) as one:
        assert infer(one, "library", [3], [1])[1]["outputs"][0]["data"] == [3]
        assert "is not the name of a file" in reasons(one)["outside"]
