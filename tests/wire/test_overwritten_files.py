# SPDX-License-Identifier: Apache-2.0
"""Files that change under the server: a model's that is copied over, a client's shared memory that is shortened."""
import mmap
import os
import shutil
import threading
import time

import pytest
import requests
from wire import REPOSITORY, ROOT, wait_until

WEIGHTS = "model.safetensors"
PROMPT = {"text_input": "It was", "max_tokens": 12}


@pytest.fixture
def repository(tmp_path):
    """Two copies of a text model, of which one is overwritten."""
    for name in ("changed", "other"):
        shutil.copytree(ROOT / "models/classics-10m", tmp_path / name / "1")
    return tmp_path


def ask(server, model):
    answer = requests.post(server.url(f"/v2/models/{model}/generate"), json=PROMPT, timeout=30)
    return answer.status_code, answer.json().get("text_output", answer.text)


def overwrite(path, source):
    """As cp does: the same file is cut to nothing and written again."""
    with open(source, "rb") as old, open(path, "r+b") as new:
        new.truncate(0)
        time.sleep(0.01)
        shutil.copyfileobj(old, new, 1 << 20)


def test_copying_over_a_polled_model_costs_no_request(start, repository):
    server = start("--model-control-mode=poll", "--repository-poll-secs=1", repositories=(repository,))
    expected = ask(server, "changed")
    assert expected[0] == 200
    answers, ends = [], threading.Event()

    def load():
        while not ends.is_set():
            answers.append(ask(server, "changed"))
            answers.append(ask(server, "other"))

    client = threading.Thread(target=load)
    client.start()
    for _ in range(12):
        overwrite(repository / "changed/1" / WEIGHTS, ROOT / "models/classics-10m" / WEIGHTS)
        time.sleep(0.25)
    ends.set()
    client.join()
    assert server.alive()
    assert answers and set(answers) == {expected}  # the weights are the same in every version that was loaded


def test_a_served_model_does_not_depend_on_its_file(start, repository):
    server = start("--model-control-mode=explicit", "--load-model=changed", "--load-model=other", repositories=(repository,))
    path = repository / "changed/1" / WEIGHTS
    expected = ask(server, "changed")
    assert expected[0] == 200
    with open(path, "r+b") as weights:  # as long as before, all numbers 0
        size = os.fstat(weights.fileno()).st_size
        header = 8 + int.from_bytes(weights.read(8), "little")
        weights.seek(header)
        weights.write(bytes(size - header))
    assert ask(server, "changed") == expected
    os.truncate(path, 1000)
    assert ask(server, "changed") == expected
    answer = requests.post(server.url("/v2/repository/models/changed/load"), json={}, timeout=60)
    assert answer.status_code == 400 and WEIGHTS in answer.text  # and says why
    assert ask(server, "changed") == expected  # what was loaded goes on
    assert ask(server, "other") == expected
    overwrite(path, ROOT / "models/classics-10m" / WEIGHTS)
    assert requests.post(server.url("/v2/repository/models/changed/load"), json={}, timeout=60).status_code == 200
    assert ask(server, "changed") == expected


def test_a_file_that_shrinks_while_it_is_loaded_fails_that_load(start, repository):
    server = start("--model-control-mode=explicit", "--load-model=other", repositories=(repository,))
    path = repository / "changed/1" / WEIGHTS
    whole = path.read_bytes()
    ends = threading.Event()

    def writer():
        while not ends.is_set():
            os.truncate(path, 4096)
            with open(path, "r+b") as file:
                file.write(whole)

    thread = threading.Thread(target=writer)
    thread.start()
    codes = set()
    for _ in range(25):
        codes.add(requests.post(server.url("/v2/repository/models/changed/load"), json={}, timeout=60).status_code)
    ends.set()
    thread.join()
    assert server.alive() and codes <= {200, 400}
    assert ask(server, "other")[0] == 200
    assert requests.post(server.url("/v2/repository/models/changed/load"), json={}, timeout=60).status_code == 200
    assert ask(server, "changed") == ask(server, "other")


class Region:
    """Shared memory of `count` pages, of which only the file's length matters."""

    def __init__(self, name, count):
        self.path = f"/dev/shm/{name}"
        self.bytes = count * mmap.PAGESIZE
        with open(self.path, "wb") as file:
            file.write(bytes(self.bytes))

    def remove(self):
        os.unlink(self.path)


@pytest.fixture
def region():
    made = Region(f"proa-test-{os.getpid()}", 8)
    yield made
    made.remove()


def infer_with(name, binary, out=None):
    """identity_fp32 over the last page but one of a region."""
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16],
                        "parameters": {"shared_memory_region": name, "shared_memory_byte_size": 64,
                                       "shared_memory_offset": 6 * mmap.PAGESIZE}}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": binary}}]}
    if out:
        body["outputs"][0]["parameters"] = {"shared_memory_region": out, "shared_memory_byte_size": 64,
                                            "shared_memory_offset": 7 * mmap.PAGESIZE}
    return body


@pytest.mark.parametrize("out", [None, "r"])
def test_a_shortened_region_fails_its_requests_only(start, region, out):
    server = start("--allow-client-shm=true", repositories=(REPOSITORY,))
    url = server.url("/v2/models/identity_fp32/infer")
    register = {"key": "/" + os.path.basename(region.path), "offset": 0, "byte_size": region.bytes}
    assert requests.post(server.url("/v2/systemsharedmemory/region/r/register"), json=register, timeout=20).status_code == 200
    assert requests.post(url, json=infer_with("r", False, out), timeout=20).status_code == 200
    os.truncate(region.path, 4096)
    for _ in range(3):
        answer = requests.post(url, json=infer_with("r", False, out), timeout=20)
        assert answer.status_code == 400 and "'r' is shorter than" in answer.json()["error"]
    plain = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert requests.post(url, json=plain, timeout=20).json()["outputs"][0]["data"] == [1, 2]
    os.truncate(region.path, region.bytes)
    assert requests.post(server.url("/v2/systemsharedmemory/region/r/unregister"), timeout=20).status_code == 200
    assert requests.post(server.url("/v2/systemsharedmemory/region/r/register"), json=register, timeout=20).status_code == 200
    assert requests.post(url, json=infer_with("r", False, out), timeout=20).status_code == 200
    wait_until(server.alive)


def test_binary_output_out_of_a_shortened_region(start, region):
    """The bytes of an identity's answer leave from the region itself: this connection may end, the server not."""
    server = start("--allow-client-shm=true", repositories=(REPOSITORY,))
    register = {"key": "/" + os.path.basename(region.path), "offset": 0, "byte_size": region.bytes}
    assert requests.post(server.url("/v2/systemsharedmemory/region/r/register"), json=register, timeout=20).status_code == 200
    os.truncate(region.path, 4096)
    try:
        answer = requests.post(server.url("/v2/models/identity_fp32/infer"), json=infer_with("r", True), timeout=20)
        assert answer.status_code == 400
    except requests.RequestException:
        pass
    assert requests.get(server.url("/v2/health/live"), timeout=20).status_code == 200
