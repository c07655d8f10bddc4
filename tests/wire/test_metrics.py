# SPDX-License-Identifier: Apache-2.0
"""Metrics of what the server runs on: GPUs by a stand-in for NVIDIA's library, and processes of Python models."""
import json
import shutil
import subprocess
import sys

import pytest
import requests
from python_models import write
from wire import PROA, ROOT, Server, children_of, metric, wait_until

WHOLE, PART = "GPU-11111111-2222-3333-4444-555555555555", "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def page(server):
    return requests.get(f"http://{server.metrics}/metrics", timeout=10).text


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The environment of a machine with a driver."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests/wire/libraries/nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


def test_gpus(driver):
    with Server("--metrics-interval-ms=50", repositories=[ROOT / "tests/repository/simple"], env=driver) as server:
        wait_until(lambda: f'nv_gpu_utilization{{gpu_uuid="{WHOLE}"}} 0.37' in page(server))
        text = page(server)
        figures = requests.get(server.url("/figures"), timeout=10).json()["gpus"]
        top = subprocess.run([PROA, "top", f"http://{server.metrics}", "--count", "1", "--interval", "1"], capture_output=True, text=True, timeout=30)
    assert metric(text, "nv_gpu_memory_total_bytes", gpu_uuid=WHOLE) == 80e9
    assert metric(text, "nv_gpu_memory_used_bytes", gpu_uuid=PART) == 2.5e9
    assert metric(text, "nv_gpu_power_usage", gpu_uuid=WHOLE) == pytest.approx(123.456)
    assert metric(text, "nv_gpu_power_limit", gpu_uuid=WHOLE) == 700
    assert f'nv_gpu_utilization{{gpu_uuid="{PART}"' not in text  # it does not report it
    assert [gpu["uuid"] for gpu in figures] == [WHOLE, PART]
    assert figures[0] == {"uuid": WHOLE, "name": "Test GPU", "utilization": 0.37, "memory_total": 80e9, "memory_used": 20e9,
                          "power": 123.456, "power_limit": 700}  # yapf: disable
    assert figures[1]["utilization"] is None
    assert "37 %" in top.stdout and "123 W" in top.stdout, top


@pytest.mark.parametrize("option, env", [("--allow-gpu-metrics=false", True), ("--allow-gpu-metrics=true", False)])
def test_without_gpus(driver, option, env):
    """Not wanted; no driver."""
    with Server(option, repositories=[ROOT / "tests/repository/simple"], env=driver if env else {"LD_LIBRARY_PATH": ""}) as server:
        assert "nv_gpu" not in page(server)
        assert requests.get(server.url("/figures"), timeout=10).json()["gpus"] == []


def test_python_processes(tmp_path):
    write(tmp_path, "works", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests]
    """, more="instance_group [ { count: 2 kind: KIND_CPU } ]")
    with Server(repositories=[tmp_path], env={"PROA_PYTHON": sys.executable}) as server:
        before = page(server)
        body = json.dumps({"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]})
        assert requests.post(server.url("/v2/models/works/infer"), data=body, timeout=30).status_code == 200
        after = page(server)
        processes = len(children_of(server.process.pid))
    used = [sum(metric(text, "proa_python_process_cpu_seconds_total", instance=f"works_0_{i}") for i in range(2)) for text in (before, after)]
    assert metric(after, "proa_python_processes", model="works") == 2 == processes
    assert used[1] - used[0] >= 0.15
    assert all(5e6 < metric(after, "proa_python_process_memory_bytes", instance=f"works_0_{i}") < 1e9 for i in range(2))
