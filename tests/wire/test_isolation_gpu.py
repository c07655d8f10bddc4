# SPDX-License-Identifier: Apache-2.0
"""Tensors of isolated backends on a GPU: between the steps of a pipeline they stay there, what is copied is counted, and a
process that is killed takes nothing with it. The GPUs are tests/fake_gpu, the backend is libraries/backend_device.c."""
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as http
from test_isolation import COMPILER, call, children, wait_until
from test_python_gpu import FAKE_CUDA, FAKE_GPU, ROWS, SCALE, ask, copied, files_of_gpu
from test_triton_backends import PROBE, build
from wire import ROOT, Server

pytestmark = pytest.mark.skipif(not shutil.which(COMPILER), reason="builds a library")
ENV = {"PROA_CUDA_PLUGIN": str(FAKE_GPU), "LD_LIBRARY_PATH": str(FAKE_CUDA)}
GPU = "instance_group { kind: KIND_GPU gpus: [ 0 ] count: %d }\n"
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }\n'
IN_OUT = ('max_batch_size: 64 input { name: "IN" data_type: TYPE_FP32 dims: [ 6 ] }\n'
          'output { name: "OUT" data_type: TYPE_FP32 dims: [ 6 ] }\n')
DEVICE = 'backend: "device"\n' + IN_OUT
MODELS = {
    "add": DEVICE + PARAMETER % ("do", "add") + GPU % 1,
    "copy": DEVICE + PARAMETER % ("do", "copy") + GPU % 2,
    "slow": DEVICE + PARAMETER % ("do", "slow") + GPU % 1,
    "where": DEVICE + PARAMETER % ("do", "where") + GPU % 1,
    "host": DEVICE + PARAMETER % ("do", "where") + PARAMETER % ("host_inputs", "yes") + GPU % 1,
    "cpu": DEVICE + PARAMETER % ("do", "where") + "instance_group { kind: KIND_CPU }\n",
    "spread": DEVICE + PARAMETER % ("do", "where") + """instance_group [ { kind: KIND_GPU gpus: [ 0, 1 ] count: 2 },
        { kind: KIND_CPU } ]\n""",
    "die": DEVICE + PARAMETER % ("do", "die") + GPU % 1,
    "pair": DEVICE + 'output { name: "OUT2" data_type: TYPE_FP32 dims: [ 6 ] }\n' + PARAMETER % ("do", "pair") + GPU % 1,
    "probe": 'backend: "probe"\n' + IN_OUT.replace('"IN"', '"INPUT"').replace('"OUT"', '"OUTPUT"') + GPU % 1,
    "scale": SCALE,
}
STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } %s }\n'
MAP = 'output_map { key: "%s" value: "%s" }'


def write_chain(folder, name, *steps, pair=False):
    """x to s: the steps one after the other; with `pair` the last one has a second output, s2."""
    text, value = 'platform: "ensemble" max_batch_size: 64\ninput { name: "x" data_type: TYPE_FP32 dims: [ 6 ] }\n', "x"
    text += "".join('output { name: "%s" data_type: TYPE_FP32 dims: [ 6 ] }\n' % s for s in ("s", "s2")[:1 + pair])
    text += "ensemble_scheduling {\n"
    for number, step in enumerate(steps):
        to = "s" if number + 1 == len(steps) else f"v{number}"
        names = {"scale": ("x", "y"), "probe": ("INPUT", "OUTPUT")}.get(step, ("IN", "OUT"))
        more = MAP % ("OUT2", "s2") if pair and to == "s" else ""
        text += STEP % (step, names[0], value, MAP % (names[1], to) + more)
        value = to
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(text + "}")


CHAINS = {"middle": ("scale", "add", "scale"), "row": ("scale", "add", "copy", "add", "scale"), "first": ("add", "scale"),
          "last": ("scale", "add"), "seen": ("scale", "where"), "forced": ("scale", "host"), "on_cpu": ("scale", "cpu"), "everywhere": ("scale", "spread"),
          "killed": ("scale", "die", "scale"), "copies": ("scale", "copy", "scale"),
          "waiting": ("scale", "slow", "scale"), "triton": ("scale", "probe", "scale"), "triton_alone": ("probe", ), "triton_last": ("scale", "probe")}  # yapf: disable


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    if not FAKE_GPU.exists() or not FAKE_CUDA.exists():
        pytest.skip("tests/libfake_gpu.so and tests/fake_cuda are not built")
    folder = tmp_path_factory.mktemp("backends")
    (folder / "device").mkdir()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}",
                    ROOT / "tests/wire/libraries/backend_device.c", "-o", folder / "device/libproa_device.so"], check=True)
    (folder / "empty.c").write_text("")
    subprocess.run([COMPILER, "-shared", "-Wl,-soname,libtritonserver.so", folder / "empty.c", "-o", folder / "libtritonserver.so"],
                   check=True)
    build(folder, "probe", PROBE)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, text in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
    for name, steps in CHAINS.items():
        write_chain(folder, name, *steps)
    write_chain(folder, "both", "scale", "pair", pair=True)
    return folder


def serve(backends, models, *options, env=None):
    return Server("--backend-directory", str(backends), *options, repositories=[models], env={**ENV, **(env or {})})


@pytest.fixture(scope="module", params=["alone", "all"])
def server(request, backends, models):
    """With the library isolated, and with Proa's own steps in processes too."""
    with serve(backends, models, *(["--isolate", "transform"] if request.param == "all" else [])) as running:
        assert ("scale_0_0" in "".join(children(running))) or request.param == "alone"
        yield running
        assert running.stop() == 0
        assert "host memory" not in running.log_text()


@pytest.mark.parametrize("model, want", [("middle", ROWS * 4 + 2), ("row", (ROWS * 2 + 2) * 2), ("copies", ROWS * 4),
                                         ("triton", ROWS * 4)])
def test_tensors_stay_on_the_gpu(server, model, want):
    answer, count = copied(server, model)
    np.testing.assert_array_equal(answer, want)
    assert count == [1, 1]  # the pipeline's input and its output


@pytest.mark.parametrize("model, want", [("first", ROWS * 2 + 2), ("last", ROWS * 2 + 1)])
def test_at_the_ends_of_a_pipeline(server, model, want):
    answer, count = copied(server, model)
    np.testing.assert_array_equal(answer, want)
    assert count == [1, 1]


@pytest.mark.parametrize("model, want, count", [("triton_alone", ROWS, [0, 0]), ("triton_last", ROWS * 2, [1, 1])])
def test_a_library_of_triton_at_the_ends(server, model, want, count):
    answer, have = copied(server, model)
    np.testing.assert_array_equal(answer, want)
    assert have == count


@pytest.mark.parametrize("model, gpu, count", [("seen", 0, [1, 1]), ("forced", -1, [2, 2]), ("on_cpu", -1, [2, 2])])
def test_where_inputs_are(server, model, gpu, count):
    answer, have = copied(server, model)
    assert (answer == gpu).all()
    assert have == count


def test_instances_on_gpus_and_on_the_cpu_share_a_process(server):
    """Those on GPUs get tensors where they are, on whatever GPU, and that on the CPU gets them in host memory."""
    assert "spread" in children(server)
    with ThreadPoolExecutor(10) as pool:
        for _ in range(10):
            seen = {float(answer[0, 0]) for answer in pool.map(lambda _: ask(server, "everywhere"), range(20))}
            if seen == {0, -1}:
                return
    raise AssertionError(f"inputs were seen at {seen}")


def test_outputs_on_two_gpus(server):
    with http.InferenceServerClient(server.http) as client:
        one = http.InferInput("x", list(ROWS.shape), "FP32")
        one.set_data_from_numpy(ROWS)
        answer = client.infer("both", [one])
    np.testing.assert_array_equal(answer.as_numpy("s"), ROWS * 2 + 1)
    np.testing.assert_array_equal(answer.as_numpy("s2"), ROWS * 2 + 2)


def test_a_killed_process_is_started_again(server):
    np.testing.assert_array_equal(ask(server, "killed"), ROWS * 4)
    for _ in range(2):
        with pytest.raises(http.InferenceServerException, match="is not healthy"):
            ask(server, "killed", ROWS + 13)
        wait_until(lambda: call(server, "/v2/models/die/ready")[0] == 200)
        np.testing.assert_array_equal(ask(server, "killed"), ROWS * 4)


def test_killed_while_others_read(server):
    """Requests that were answered before, or are in other processes, keep their tensors."""
    wrong, stop = [], threading.Event()

    def run():
        while not stop.is_set():
            try:
                if not (ask(server, "copies") == ROWS * 4).all():
                    wrong.append("a wrong answer")
            except http.InferenceServerException as error:
                if "healthy" not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for one in threads:
        one.start()
    for _ in range(4):
        time.sleep(0.3)
        wait_until(lambda: "copy" in children(server))
        os.kill(children(server)["copy"], signal.SIGKILL)
    stop.set()
    for one in threads:
        one.join()
    assert not wrong
    wait_until(lambda: call(server, "/v2/models/copy/ready")[0] == 200)
    np.testing.assert_array_equal(ask(server, "copies"), ROWS * 4)


def test_memory_is_used_again(server):
    for _ in range(3):
        ask(server, "row")
    pid = children(server)["add_0_0"] if "add_0_0" in children(server) else children(server)["add_0"]
    before, open_before = files_of_gpu(server.process.pid), files_of_gpu(pid)
    for _ in range(200):
        ask(server, "row")
    assert files_of_gpu(server.process.pid) <= before + 2
    assert files_of_gpu(pid) <= open_before + 2


def test_memory_that_is_not_used_is_closed(server):
    """Requests that wait have their inputs in memory of their own; a process keeps 64 pieces of it open."""
    with ThreadPoolExecutor(150) as pool:
        for _ in range(2):
            for answer in pool.map(lambda i: ask(server, "waiting", ROWS + i) - 4 * i, range(300)):
                np.testing.assert_array_equal(answer, ROWS * 4)
    assert files_of_gpu(server.process.pid) > 80
    pid = next(pid for name, pid in children(server).items() if name.startswith("slow"))
    assert 60 < files_of_gpu(pid) <= 64 + 12  # and those of its outputs


def test_sizes_that_change(server):
    for rows in (1, 64, 3, 17, 64, 2):
        given = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
        np.testing.assert_array_equal(ask(server, "copies", given), given * 4)


def test_more_sizes_than_memory_ahead(backends, tmp_path):
    """Memory for the next response is asked for in four sizes at most: that of the oldest goes back."""
    write_chain(tmp_path, "copies", *CHAINS["copies"])
    for name in ("scale", "copy"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(MODELS[name])
    for config in tmp_path.glob("*/config.pbtxt"):
        config.write_text(config.read_text().replace("max_batch_size: 64", "max_batch_size: 1024"))
    with serve(backends, tmp_path) as running:
        before = children(running)
        for rows in (1, 20, 40, 80, 160, 320, 640) * 3:
            np.testing.assert_array_equal(ask(running, "copies", np.full((rows, 6), rows, np.float32)), 4 * rows)
        assert children(running) == before


def test_memory_that_cannot_be_shared(backends, models):
    with serve(backends, models, env={"FAKE_GPU_SHARES": "no"}) as running:
        answer, count = copied(running, "middle")
        np.testing.assert_array_equal(answer, ROWS * 4 + 2)
        assert count == [3, 3]  # each step's
        np.testing.assert_array_equal(ask(running, "row"), (ROWS * 2 + 2) * 2)
        lines = [line for line in running.log_text().splitlines() if "pass through host memory" in line]
        assert len(lines) == len({line.split("'")[1] for line in lines}) >= 4  # one for each process
        assert any("'add_0_0': tensors of GPU 0 pass through host memory: " in line or "'add_0'" in line for line in lines)


@pytest.mark.parametrize("options", [(), ("--in-process", "all")], ids=["isolated", "in-process"])
@pytest.mark.parametrize("full, gpu", [("no", 0), ("yes", -1)])
def test_an_output_of_triton_where_the_gpu_is_full(backends, tmp_path, options, full, gpu):
    """A library asks for memory on the GPU; Triton's interface has the server give it host memory then."""
    write_chain(tmp_path, "asked", "probe", "where")
    for name, more in (("probe", PARAMETER % ("memory", "gpu")), ("where", "")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(MODELS[name] + more)
    with serve(backends, tmp_path, *options, env={"FAKE_GPU_FULL": full}) as running:
        for _ in range(2):
            assert (ask(running, "asked") == gpu).all()
        assert running.log_text().count("the output is in host memory") == (full == "yes")


def test_in_the_server(backends, models):
    with serve(backends, models, "--in-process", "all") as running:
        assert not children(running)
        for model, want in (("row", (ROWS * 2 + 2) * 2), ("triton", ROWS * 4)):
            answer, count = copied(running, model)
            np.testing.assert_array_equal(answer, want)
            assert count == [1, 1]
