# SPDX-License-Identifier: Apache-2.0
"""A log that cannot be written: nobody reads it, or there is no room for it or for the files of a load."""
import base64
import json
import os
import signal
import subprocess

import pytest
import requests
from wire import PROA, REPOSITORY, wait_until

PORTS = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
         "--metrics-address=127.0.0.1"]


@pytest.fixture
def serve(tmp_path):
    """serve(stderr, prefix, *options): the process and its URL."""
    running = []

    def run(*options, stderr=subprocess.DEVNULL, prefix=(), env=None):
        process = subprocess.Popen([*prefix, str(PROA), "serve", "--json", *PORTS, f"--model-repository={REPOSITORY}",
                                    "--model-control-mode=explicit", "--load-model=identity_fp32", *options],
                                   stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, **(env or {})})
        running.append(process)
        return process, f"http://127.0.0.1:{json.loads(process.stdout.readline())['http_port']}"

    yield run
    for process in running:
        process.stdout.close()
        if process.poll() is None:
            process.kill()
        process.wait()


def talk(url, count):
    """Requests with long paths, each of which the verbose log names."""
    assert requests.post(url + "/v2/logging", json={"log_verbose_level": 1}, timeout=10).status_code == 200
    for _ in range(count):
        assert requests.get(url + "/v2/" + "b" * 8000, timeout=10).status_code == 404
        assert requests.get(url + "/v2/health/live", timeout=10).status_code == 200


def test_standard_error_that_nobody_reads(serve):
    read, write = os.pipe()
    process, url = serve(stderr=write)
    os.close(write)
    talk(url, 60)  # half a MB; a pipe takes 64 KiB
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    os.close(read)


def test_a_log_file_at_its_limit_of_size(serve, tmp_path):
    log = tmp_path / "log"
    process, url = serve(f"--log-file={log}", prefix=("prlimit", "--fsize=4000"))
    talk(url, 20)
    assert log.stat().st_size <= 4000
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_no_room_for_a_trace(serve, tmp_path):
    options = ("--trace-config=triton,file=" + str(tmp_path / "trace"), "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
               "--trace-config=triton,log-frequency=1")
    process, url = serve(*options, prefix=("prlimit", "--fsize=100"))
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    for _ in range(20):
        assert requests.post(url + "/v2/models/identity_fp32/infer", json=body, timeout=10).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_no_room_for_the_files_of_a_load(serve, tmp_path):
    process, url = serve(prefix=("prlimit", "--fsize=50000"), env={"TMPDIR": str(tmp_path)})
    config = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]}

    def load(size):
        parameters = {"config": json.dumps(config), "file:1/model.bin": base64.b64encode(bytes(size)).decode()}
        return requests.post(url + "/v2/repository/models/uploaded/load", json={"parameters": parameters}, timeout=20)

    answer = load(60000)
    assert answer.status_code >= 400 and "cannot write override file '1/model.bin'" in answer.json()["error"]
    assert list(tmp_path.iterdir()) == []
    assert load(1000).status_code == 200
    assert requests.post(url + "/v2/repository/models/uploaded/unload", json={}, timeout=20).status_code == 200
    wait_until(lambda: list(tmp_path.iterdir()) == [])
