# SPDX-License-Identifier: Apache-2.0
"""Backends in processes of their own: one that crashes, hangs or is stopped ends only itself. The backend is
libraries/backend_faults.c, which does what a request asks for."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from wire import PROA, ROOT, Server

COMPILER = os.environ.get("CC", "cc")
CONFIG = """backend: "%s"
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""

pytestmark = pytest.mark.skipif(not shutil.which(COMPILER), reason="builds a library")


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backends")
    (folder / "faults").mkdir()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}",
                    ROOT / "tests/wire/libraries/backend_faults.c", "-o", folder / "faults/libproa_faults.so"], check=True)
    return folder


def write_models(folder, **models):
    for name, more in models.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG % "faults" + more)


def serve(backends, folder, *options):
    return Server("--backend-directory", str(backends), "--model-control-mode", "explicit", "--load-model", "*",
                  "--exit-on-error=false", *options, repositories=[folder])


@pytest.fixture
def server(backends, tmp_path):
    write_models(tmp_path, one="", other="")
    with serve(backends, tmp_path) as running:
        yield running
        assert running.stop() == 0
        assert not children(running)


@pytest.fixture
def shared(backends, tmp_path):
    """A model with three instances, and one with one."""
    write_models(tmp_path, many="instance_group { count: 3 }", other="")
    with serve(backends, tmp_path) as running:
        yield running
        assert running.stop() == 0
        assert not children(running)


def call(server, path, body=None, timeout=30):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url(path), data), timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as answer:
        return answer.code, json.loads(answer.read() or b"{}")


def infer(server, name="one", values=(1, 2), timeout=30, **parameters):
    body = {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [len(values)], "data": list(values)}],
            "parameters": parameters}
    return call(server, f"/v2/models/{name}/infer", body, timeout)


def children(server):
    """Processes of the server that run a backend: {instance: pid}."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == server.process.pid and words[1:2] == [b"backend-host"]:
            found[words[4].decode()] = int(folder.name)
    return found


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_for_executions(server, what, count=1):
    """So many requests have reached execute and stay there: what is "hangs" or "holds"."""
    wait_until(lambda: server.log_text().count(f"an execution {what}") == count)


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_each_model_has_a_process(server):
    assert set(children(server)) == {"one_0", "other_0"}
    assert infer(server)[1]["outputs"][0]["data"] == [1, 2]
    assert "the model of faults is open" in server.log_text()
    page = urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=20).read().decode()
    assert 'proa_isolated_processes{model="one",version="1"} 1' in page


@pytest.mark.parametrize("what, how", [("crash", "was killed by signal 11 (Segmentation fault)"),
                                       ("abort", "was killed by signal 6 (Aborted)"), ("exit", "ended with exit status 3")])
def test_a_crash_ends_only_itself(server, what, how):
    before = children(server)
    status, answer = infer(server, do=what)
    assert status == 500 and answer["error"] == f"Backend process 'one_0' is not healthy. It {how}"
    assert infer(server, "other")[0] == 200
    wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    assert infer(server)[0] == 200
    after = children(server)
    assert after["other_0"] == before["other_0"] and after["one_0"] != before["one_0"]


def test_restarts_with_back_off_and_is_not_ready_meanwhile(server):
    for _ in range(8):  # each start waits longer than the one before, until it is seen
        assert infer(server, do="crash")[0] == 500
        if call(server, "/v2/models/one/ready")[0] != 200:
            break
        wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    else:
        pytest.fail("ready after each crash")
    assert call(server, "/v2/models/other/ready")[0] == 200
    wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    assert infer(server)[0] == 200


def test_what_comes_back_soon_says_so(server):
    """503 of a model whose process starts again has Retry-After, as OpenAI's routes have it; 500 has not."""
    inputs = [{"name": "INPUT", "datatype": "FP32", "shape": [2], "data": [1, 2]}]
    body = json.dumps({"inputs": inputs, "parameters": {"do": "crash"}}).encode()
    code = 500
    while code == 500:  # until a start waits for longer than a request
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(server.url("/v2/models/one/infer"), body, timeout=30)
        code, text = failed.value.code, json.loads(failed.value.read())["error"]
        assert failed.value.headers["Retry-After"] == ("1" if code == 503 else None)
    assert code == 503 and text.endswith("is being started again")
    with pytest.raises(urllib.error.HTTPError) as never:
        urllib.request.urlopen(server.url("/v2/repository/models/nothing/load"), b"{}", timeout=30)
    assert never.value.headers["Retry-After"] is None


def test_killed_from_outside(server):
    os.kill(children(server)["one_0"], signal.SIGKILL)
    wait_until(lambda: children(server).get("one_0") and infer(server)[0] == 200)
    assert infer(server, "other")[0] == 200


def test_requests_in_flight_get_an_error_each(server):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(infer, server, do="hang")
        wait_for_executions(server, "hangs")
        os.kill(children(server)["one_0"], signal.SIGKILL)
        status, text = answer.result()
    assert status == 500 and "was killed by signal 9" in text["error"]


def test_a_stopped_process_is_ended(server):
    pid = children(server)["one_0"]
    os.kill(pid, signal.SIGSTOP)
    status, answer = infer(server)
    assert status == 500 and "was stopped (SIGSTOP) for more than 5000 ms" in answer["error"]
    wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    assert children(server)["one_0"] != pid


def test_a_cancel_reaches_the_backend(server):
    with pytest.raises(TimeoutError):
        infer(server, timeout=0.3, do="hang")
    assert infer(server)[0] == 200  # execute has returned


def test_an_unload_does_not_wait_for_a_library_that_hangs(server):
    pid = children(server)["one_0"]
    assert infer(server, do="orphan")[0] == 200
    assert call(server, "/v2/repository/models/one/unload", {})[0] == 200
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10)
    assert infer(server, "other")[0] == 200


def test_the_server_ends_though_a_library_hangs(backends, tmp_path):
    write_models(tmp_path, one="")
    with serve(backends, tmp_path) as running:
        pid = children(running)["one_0"]
        assert infer(running, do="orphan")[0] == 200
        assert running.stop() == 0
        assert not os.path.exists(f"/proc/{pid}")


def test_nothing_is_left_behind(server):
    shm = set(os.listdir("/dev/shm"))
    for _ in range(3):
        assert infer(server, do="crash")[0] == 500
        wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    files = open_files(server)
    assert infer(server, do="crash")[0] == 500
    wait_until(lambda: call(server, "/v2/models/one/ready")[0] == 200)
    assert abs(open_files(server) - files) <= 2  # connections come and go
    assert set(os.listdir("/dev/shm")) <= shm
    assert len(children(server)) == 2


def test_the_process_ends_with_the_server(backends, tmp_path):
    write_models(tmp_path, one="")
    running = serve(backends, tmp_path).__enter__()
    pid = children(running)["one_0"]
    assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_region_of_a_process_that_is_killed_is_removed(server):
    pid = children(server)["one_0"]
    region = Path(f"/dev/shm/backend_faults_{pid}")
    assert infer(server, do="region")[0] == 200 and region.exists()
    assert infer(server, do="orphan")[0] == 200
    assert call(server, "/v2/repository/models/one/unload", {})[0] == 200
    wait_until(lambda: not region.exists(), 10)


def test_a_region_that_the_load_made_is_removed_after_a_crash(server, tmp_path):
    write_models(tmp_path, maps='parameters { key: "open" value { string_value: "region" } }')
    assert call(server, "/v2/repository/models/maps/load", {})[0] == 200
    region = Path(f"/dev/shm/backend_faults_{children(server)['maps_0']}")
    assert region.exists()
    assert infer(server, "maps", do="crash")[0] == 500
    wait_until(lambda: not region.exists())
    wait_until(lambda: call(server, "/v2/models/maps/ready")[0] == 200)
    other = Path(f"/dev/shm/backend_faults_{children(server)['maps_0']}")
    assert other.exists()  # that of the next process stays
    other.unlink()


@pytest.mark.parametrize("what, why", [("crash", "was killed by signal 11"), ("fail", "the model does not want to open"),
                                       ("exit", "ended with exit status 3")])
def test_a_load_that_fails(server, tmp_path, what, why):
    write_models(tmp_path, bad='parameters { key: "open" value { string_value: "%s" } }' % what)
    status, answer = call(server, "/v2/repository/models/bad/load", {})
    assert status == 400 and why in answer["error"]
    assert infer(server)[0] == 200
    assert set(children(server)) == {"one_0", "other_0"}


def test_limits_of_time_and_memory(backends, tmp_path):
    write_models(tmp_path, one="")
    with serve(backends, tmp_path, "--backend-config", "faults,execute-timeout-ms=1000",
               "--backend-config", "faults,memory-limit-mb=200") as running:
        status, answer = infer(running, do="hang")
        assert status == 500 and "was killed: execute took longer than 1000 ms" in answer["error"]
        wait_until(lambda: call(running, "/v2/models/one/ready")[0] == 200)
        limits = Path(f"/proc/{children(running)['one_0']}/limits").read_text()
        assert "Max data size             209715200" in limits
        assert infer(running)[0] == 200


@pytest.mark.parametrize("setting", ["execute-timeout-ms=x", "memory-limit-mb=-1"])
def test_a_limit_that_is_no_number(backends, tmp_path, setting):
    write_models(tmp_path, one="")
    with serve(backends, tmp_path, "--backend-config", f"faults,{setting}") as running:
        reasons = call(running, "/v2/repository/index", {})[1][0]["reason"]
        assert f"backend configuration '{setting.split('=')[0]}' of faults must be a number" in reasons


def test_in_the_same_process_on_request(backends, tmp_path):
    write_models(tmp_path, one="")
    with serve(backends, tmp_path, "--in-process", "faults") as running:
        assert not children(running)
        assert infer(running)[1]["outputs"][0]["data"] == [1, 2]


@pytest.fixture
def plugin(backends, tmp_path):
    """(its folder, a repository): the library of faults, where Proa looks for its plug-in for torch."""
    shutil.copy(backends / "faults/libproa_faults.so", tmp_path / "libproa_torch.so")
    (tmp_path / "models/torch/1").mkdir(parents=True)
    (tmp_path / "models/torch/1/model.pt").touch()
    (tmp_path / "models/torch/config.pbtxt").write_text(CONFIG % "pytorch")
    return tmp_path, tmp_path / "models"


def test_a_plug_in_has_processes_too(plugin):
    """What links to code of others is not built in, whoever brings it."""
    with serve(*plugin) as running:
        assert set(children(running)) == {"torch_0"}
        assert infer(running, "torch", do="crash")[0] == 500
        wait_until(lambda: call(running, "/v2/models/torch/ready")[0] == 200)
        assert infer(running, "torch")[1]["outputs"][0]["data"] == [1, 2]


@pytest.mark.parametrize("name", ["pytorch", "all"])
def test_a_plug_in_in_the_same_process_on_request(plugin, name):
    with serve(*plugin, "--in-process", name) as running:
        assert not children(running)
        assert infer(running, "torch")[1]["outputs"][0]["data"] == [1, 2]


def test_a_built_in_backend_in_a_process(tmp_path):
    (tmp_path / "sums/1").mkdir(parents=True)
    (tmp_path / "sums/config.pbtxt").write_text("""backend: "add_sub"
        input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 2 ] } ]
        output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 2 ] } ]
        instance_group { count: 2 }""")
    with Server("--isolate", "add_sub", repositories=[tmp_path]) as running:
        assert set(children(running)) == {"sums"}
        inputs = [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [2], "data": [1, i]} for i in range(2)]
        status, answer = call(running, "/v2/models/sums/infer", {"inputs": inputs})
        assert status == 200 and [o["data"] for o in answer["outputs"]] == [[2, 1], [0, -1]]


@pytest.mark.parametrize("options, why", [(("--isolate", "engine"), "cannot run in a process of its own"),
                                          (("--isolate", "x", "--in-process", "x"), "contradicts --in-process x")])
def test_what_cannot_be_asked_for(tmp_path, options, why):
    write_models(tmp_path, one="")
    run = subprocess.run([PROA, "serve", "--model-repository", tmp_path, *options], capture_output=True,
                         text=True, timeout=60)
    assert run.returncode != 0 and why in run.stderr


def at_once(server, *whats, name="many"):
    """The answers to requests that are sent at the same time, one for each of `whats`."""
    with ThreadPoolExecutor(len(whats)) as pool:
        return list(pool.map(lambda what: infer(server, name, do=what), whats))


def test_instances_share_a_process(shared):
    assert set(children(shared)) == {"many", "other_0"}
    for _ in range(3):
        assert [answer[0] for answer in at_once(shared, "meet", "meet", "meet")] == [200] * 3
    assert shared.log_text().count("the model of faults is open") == 2  # once for each model
    page = urllib.request.urlopen(f"http://{shared.metrics}/metrics", timeout=20).read().decode()
    assert 'proa_isolated_processes{model="many",version="1"} 1' in page
    assert 'proa_isolated_process_starts_total{model="many",version="1"} 1' in page
    assert call(shared, "/v2/repository/models/many/unload", {})[0] == 200
    wait_until(lambda: set(children(shared)) == {"other_0"})


def test_a_crash_ends_the_requests_of_all_instances(shared):
    """Each with one error; no request is tried at a neighbour, which is gone too, and all instances come back."""
    before = children(shared)
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(infer, shared, "many", do="hang") for _ in range(2)]
        wait_for_executions(shared, "hangs", 2)
        answers = [infer(shared, "many", do="crash"), *(other.result() for other in others)]
    assert {status for status, _ in answers} == {500}
    assert {a["error"] for _, a in answers} == {"Backend process 'many' is not healthy. It was killed by signal 11 (Segmentation fault)"}
    assert infer(shared, "other")[0] == 200
    wait_until(lambda: call(shared, "/v2/models/many/ready")[0] == 200)
    assert [answer[0] for answer in at_once(shared, "meet", "meet", "meet")] == [200] * 3
    after = children(shared)
    assert after["other_0"] == before["other_0"] and after["many"] != before["many"]


def test_requests_wait_while_all_instances_start_again(shared):
    """Only what was in the process fails: what comes in the meantime waits, whichever instance would have it."""
    for _ in range(2):
        assert infer(shared, "many", do="crash")[0] == 500
        assert [answer[0] for answer in at_once(shared, *[""] * 6)] == [200] * 6
    assert len(children(shared)) == 2


def test_an_execute_that_takes_too_long_names_its_instance(backends, tmp_path):
    """What shares its process ends with it, and is told why."""
    write_models(tmp_path, many="instance_group { count: 3 }")
    with serve(backends, tmp_path, "--backend-config", "faults,execute-timeout-ms=3000") as running:
        with ThreadPoolExecutor(3) as pool:
            slow = pool.submit(infer, running, "many", do="hang")
            wait_for_executions(running, "hangs")
            others = [pool.submit(infer, running, "many", do="hold") for _ in range(2)]
            answers = [one.result() for one in (slow, *others)]
        assert {status for status, _ in answers} == {500}
        text = {answer["error"] for _, answer in answers}.pop()
        assert all(answer["error"] == text for _, answer in answers)
        assert re.fullmatch(r"Backend process 'many' is not healthy. It was killed: execute of instance 'many_0_[012]' took "
                            "longer than 3000 ms", text)
        wait_until(lambda: call(running, "/v2/models/many/ready")[0] == 200)
        assert [answer[0] for answer in at_once(running, "meet", "meet", "meet")] == [200] * 3


def test_a_cancel_reaches_its_instance_only(shared):
    pid = children(shared)["many"]
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(infer, shared, "many", do="hold")
        wait_for_executions(shared, "holds")
        with pytest.raises(TimeoutError):
            infer(shared, "many", timeout=0.3, do="hang")
        assert infer(shared, "many", do="release")[0] == 200
        assert neighbour.result()[0] == 200
    assert [answer[0] for answer in at_once(shared, "meet", "meet", "meet")] == [200] * 3  # execute has returned
    assert children(shared)["many"] == pid


def test_is_ready_while_an_instance_executes(shared):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(infer, shared, "many", do="hold")
        wait_for_executions(shared, "holds")
        assert call(shared, "/v2/models/many/ready")[0] == 200
        assert infer(shared, "many")[0] == 200
        assert not slow.done()
        assert infer(shared, "many", do="release")[0] == 200
        assert slow.result()[0] == 200


def test_a_load_that_fails_for_all_instances(shared, tmp_path):
    write_models(tmp_path, bad='instance_group { count: 3 } parameters { key: "open" value { string_value: "crash" } }')
    status, answer = call(shared, "/v2/repository/models/bad/load", {})
    assert status == 400 and "Backend process 'bad' is not healthy. It was killed by signal 11" in answer["error"]
    assert set(children(shared)) == {"many", "other_0"}


def test_is_not_a_command_of_users():
    run = subprocess.run([PROA, "backend-host"], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and "started by 'proa serve'" in run.stderr
