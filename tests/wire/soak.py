#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long run of mixed clients against one server: `soak.py [--minutes 30] [--seed 1] [--csv FILE]`.

Clients of all protocols send requests, cancel them, hang up in the middle and send broken ones. Meanwhile models are
reloaded, their files are copied over, their Python processes are killed, and regions of shared memory are shortened.
Every few seconds all clients pause. When the server has come to rest, its descriptors, threads, KV pages, regions of
shared memory and child processes are counted, and its memory is read. They must come back to what they were, and
memory must grow by less than 2 % after the first sixth of the run.

PROA names the program, as for the tests. test_soak.py is the short form.
"""
import argparse
import csv
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import requests
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException
from wire import REPOSITORY, ROOT, Server, metric

GROWTH_MAX = 0.02
WARM = 1 / 6  # of the run: five minutes of thirty
PYTHON_PROCESSES = 2
POOLS = {"descriptors": 4, "threads": 4}  # what pools may still grow by: a leak shows in thousands of requests
REST_SECONDS = 15  # a server that has not come to rest by then has lost something
FAULTS = (OSError, InferenceServerException, requests.RequestException, http_client.InferenceServerException)

PYTHON_MODEL = '''
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() + 1)]) for r in requests]
'''
PYTHON_CONFIG = '''
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: %d kind: KIND_CPU } ]
''' % PYTHON_PROCESSES


def make_repository(folder):
    """identity_fp32 and repeat_int32 of the tests' repository, two text models, one Python model."""
    for name in ("identity_fp32", "repeat_int32", "simple"):
        shutil.copytree(REPOSITORY / name, folder / name)
    for name in ("text", "reloaded"):
        shutil.copytree(ROOT / "models/classics-10m", folder / name / "1")
    (folder / "plus_one/1").mkdir(parents=True)
    (folder / "plus_one/1/model.py").write_text(PYTHON_MODEL)
    (folder / "plus_one/config.pbtxt").write_text(PYTHON_CONFIG)


def processes_below(pid):
    """The children of a process, as process ids."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:  # the thread has ended
            pass
    return [int(child) for child in found]


def soak_server(repository, start=Server):
    return start("--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true", repositories=(repository,),
                 env={"PROA_PYTHON": sys.executable})


class Sample:
    """What a server at rest holds."""

    COUNTS = ("descriptors", "threads", "pages", "regions", "children", "pending")

    def __init__(self, server):
        pid = server.process.pid
        text = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
        regions = requests.get(server.url("/v2/systemsharedmemory/status"), timeout=30).json()
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        self.threads = len(os.listdir(f"/proc/{pid}/task"))
        self.pages = metric(text, "proa_engine_pages_used") or 0
        self.pending = (metric(text, "nv_inference_pending_request_count") or 0) + (metric(text, "proa_engine_running") or 0)
        self.regions = len(regions) + pathlib.Path(f"/proc/{pid}/maps").read_text().count("/dev/shm/")
        self.children = len(processes_below(pid))
        self.bytes = server.resident_bytes()

    def counts(self):
        return {name: getattr(self, name) for name in self.COUNTS}

    def is_quiet(self):
        return self.pages == self.regions == self.pending == 0 and self.children == PYTHON_PROCESSES

    def within(self, most):
        return most is None or all(value <= most[name] + POOLS.get(name, 0) for name, value in self.counts().items())


class Soak:
    """Runs the clients. problems: what went wrong, one text each; done: requests by client."""

    def __init__(self, server, repository, seed=1):
        self.server, self.repository, self.seed = server, repository, seed
        self.running, self.ended = threading.Event(), threading.Event()
        self.resting = threading.Semaphore(0)
        self.problems, self.done, self.failed = [], {}, {}
        self.clients = [self.http_infer, self.grpc_infer, self.grpc_stream, self.chat, self.generate, self.broken,
                        self.shared, self.python, self.kill_python, self.reload, self.overwrite]

    # ---- clients: each is one turn, with its own source of randomness

    def http_infer(self, rng):
        binary = rng.random() < 0.5
        with http_client.InferenceServerClient(self.server.http, network_timeout=30) as client:
            for _ in range(rng.randrange(1, 6)):
                values = np.array([[rng.random() for _ in range(rng.randrange(1, 4000))]], np.float32)
                tensor = http_client.InferInput("INPUT0", values.shape, "FP32")
                tensor.set_data_from_numpy(values, binary_data=binary)
                how = rng.choice((None, "gzip", "deflate"))
                answer = client.infer("identity_fp32", [tensor], request_compression_algorithm=how)
                if not (answer.as_numpy("OUTPUT0") == values).all():
                    self.problems.append("identity over HTTP gave other values")

    def grpc_infer(self, rng):
        with grpc_client.InferenceServerClient(self.server.grpc) as client:
            for _ in range(rng.randrange(1, 6)):
                values = np.full((1, rng.randrange(1, 4000)), rng.random(), np.float32)
                tensor = grpc_client.InferInput("INPUT0", values.shape, "FP32")
                tensor.set_data_from_numpy(values)
                answer = client.infer("identity_fp32", [tensor], client_timeout=30)
                if not (answer.as_numpy("OUTPUT0") == values).all():
                    self.problems.append("identity over gRPC gave other values")

    def grpc_stream(self, rng):
        """A decoupled model; every second stream is cancelled before its last response."""
        count = rng.randrange(1, 20)
        answers, came = [], threading.Event()

        def take(result, error):
            answers.append(error or result)
            came.set()

        client = grpc_client.InferenceServerClient(self.server.grpc)
        client.start_stream(take)
        tensors = []
        for name, values in (("IN", np.arange(count, dtype=np.int32)), ("DELAY", np.full(count, 2, np.uint32)), ("WAIT", np.zeros(1, np.uint32))):
            tensors.append(grpc_client.InferInput(name, values.shape, "UINT32" if values.dtype == np.uint32 else "INT32"))
            tensors[-1].set_data_from_numpy(values)
        client.async_stream_infer("repeat_int32", tensors)
        came.wait(30)
        client.stop_stream(cancel_requests=rng.random() < 0.5)
        client.close()

    def chat(self, rng):
        """A streamed completion; half of the clients hang up after the first event."""
        body = {"model": "text", "prompt": "It was", "max_tokens": rng.randrange(1, 60), "stream": True, "temperature": rng.random()}
        with requests.post(self.server.url("/v1/completions"), json=body, stream=True, timeout=60) as answer:
            for line in answer.iter_lines():
                if line and rng.random() < 0.1:
                    break

    def generate(self, rng):
        name = rng.choice(("text", "reloaded"))
        body = {"text_input": "It was a " + "very " * rng.randrange(40), "max_tokens": rng.randrange(1, 40)}
        requests.post(self.server.url(f"/v2/models/{name}/generate"), json=body, timeout=rng.choice((0.05, 60)))

    def broken(self, rng):
        """Bytes that are no request, or half of one."""
        whole = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n" + b'{"inputs": [{"name": ' * 9
        data = bytes(rng.randrange(256) for _ in range(200)) if rng.random() < 0.5 else whole[:rng.randrange(len(whole))]
        host, port = rng.choice((self.server.http, self.server.grpc)).split(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            sock.sendall(data)
            sock.settimeout(0.1)
            try:
                sock.recv(1000)
            except TimeoutError:
                pass

    def shared(self, rng):
        """A region that is registered, used, sometimes shortened while registered, and given up."""
        values = np.arange(1024, dtype=np.float32).reshape(1, -1)
        region = shared_memory.SharedMemory(create=True, size=values.nbytes)
        resource_tracker.unregister(region._name, "shared_memory")
        region.buf[:] = values.tobytes()
        client = http_client.InferenceServerClient(self.server.http, network_timeout=30)
        try:
            client.register_system_shared_memory(region.name, "/" + region.name, values.nbytes)
            if rng.random() < 0.3:
                os.truncate(f"/dev/shm/{region.name}", 0)
            tensor = http_client.InferInput("INPUT0", values.shape, "FP32")
            tensor.set_shared_memory(region.name, values.nbytes)
            client.infer("identity_fp32", [tensor])
        finally:
            client.unregister_system_shared_memory(region.name)
            client.close()
            os.unlink(f"/dev/shm/{region.name}")
            region.close()

    def python(self, rng):
        with http_client.InferenceServerClient(self.server.http, network_timeout=30) as client:
            for _ in range(10):
                tensor = http_client.InferInput("IN", [3], "FP32")
                tensor.set_data_from_numpy(np.array([1, 2, 3], np.float32))
                answer = client.infer("plus_one", [tensor]).as_numpy("OUT")
                if answer.tolist() != [2, 3, 4]:
                    self.problems.append(f"plus_one gave {answer}")

    def kill_python(self, rng):
        children = processes_below(self.server.process.pid)
        if children:
            try:
                os.kill(rng.choice(children), rng.choice((signal.SIGKILL, signal.SIGTERM)))
            except ProcessLookupError:
                pass
        self.ended.wait(rng.uniform(0.5, 3))

    def reload(self, rng):
        """Loads or unloads a model; at the end of its turn all models are loaded."""
        name = rng.choice(("reloaded", "plus_one", "repeat_int32"))
        if rng.random() < 0.3:
            requests.post(self.server.url(f"/v2/repository/models/{name}/unload"), json={}, timeout=120)
            self.ended.wait(rng.random())
        requests.post(self.server.url(f"/v2/repository/models/{name}/load"), json={}, timeout=120)
        self.ended.wait(rng.uniform(0.2, 2))

    def overwrite(self, rng):
        """As cp does: the weights are cut to nothing and written again."""
        weights = self.repository / "reloaded/1/model.safetensors"
        with open(ROOT / "models/classics-10m/model.safetensors", "rb") as source, open(weights, "r+b") as target:
            target.truncate(0)
            self.ended.wait(rng.random() * 0.05)
            shutil.copyfileobj(source, target, 1 << 20)
        self.ended.wait(rng.uniform(0.5, 3))

    # ---- the run

    def repeat(self, client, index):
        rng = random.Random(f"{self.seed} {client.__name__} {index}")
        name, rested = client.__name__, False
        while not self.ended.is_set():
            if not self.running.is_set():
                if not rested:
                    self.resting.release()
                rested = True
                self.running.wait(0.1)
                continue
            rested = False
            try:
                client(rng)
            except FAULTS:  # a model that is reloaded, a killed process: a clear error is an answer
                self.failed[name] = self.failed.get(name, 0) + 1
            except Exception as e:
                self.problems.append(f"{name}: {type(e).__name__}: {e}")
            self.done[name] = self.done.get(name, 0) + 1
            time.sleep(rng.random() * 0.02)

    def rest(self, most=None):
        """Pauses the clients; a sample once nothing is under way and no count exceeds `most`, or after REST_SECONDS."""
        self.running.clear()
        for _ in self.threads:
            self.resting.acquire()
        for name in ("reloaded", "plus_one", "repeat_int32"):
            answer = requests.post(self.server.url(f"/v2/repository/models/{name}/load"), json={}, timeout=120)
            if answer.status_code != 200:
                self.problems.append(f"{name} does not load: {answer.text}")
        end = time.monotonic() + REST_SECONDS
        while True:
            sample = Sample(self.server)
            if sample.is_quiet() and sample.within(most):
                return sample
            if time.monotonic() > end:
                self.problems.append(f"at rest {sample.counts()} where at most {most} were expected")
                return sample
            time.sleep(0.25)

    def run(self, seconds, every, show=None):
        """Runs all clients for so long and rests every so often; returns the samples, each with its time in seconds.
        Pools of threads and connections grow while the run is warming up, and not after that."""
        self.threads = [threading.Thread(target=self.repeat, args=(client, i), daemon=True)
                        for client in self.clients for i in range(1 if client in (self.reload, self.overwrite, self.kill_python) else 2)]
        begin, samples, most = time.monotonic(), [], None
        self.running.set()
        for thread in self.threads:
            thread.start()
        while time.monotonic() - begin < seconds and self.server.alive():
            self.running.set()
            time.sleep(every)
            warm = time.monotonic() - begin < seconds * WARM
            samples.append((time.monotonic() - begin, self.rest(None if warm else most)))
            if warm or most is None:
                counts = [sample.counts() for _, sample in samples]
                most = {name: max(one[name] for one in counts) for name in Sample.COUNTS}
            if show:
                show(*samples[-1], self)
        self.ended.set()
        self.running.set()
        for thread in self.threads:
            thread.join(60)
        return samples


def growth(samples, seconds):
    """How much memory grew after the warm part of the run: the mean of the last third against the first third behind it."""
    late = [sample.bytes for at, sample in samples if at > seconds * WARM]
    third = max(1, len(late) // 3)
    return sum(late[-third:]) / sum(late[:third]) - 1 if late else 0.0


def show(at, sample, soak):
    counts = " ".join(f"{name} {value:g}" for name, value in sample.counts().items())
    print(f"{at:7.0f} s  {sample.bytes / 2**20:8.1f} MiB  {counts}  requests {sum(soak.done.values())}  problems {len(soak.problems)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", help="writes the samples to this file")
    options = parser.parse_args()
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="proa-soak-") as folder:
        repository = pathlib.Path(folder)
        make_repository(repository)
        with soak_server(repository) as server:
            soak = Soak(server, repository, options.seed)
            samples = soak.run(seconds, max(2, seconds / 90), show)
    grown = growth(samples, seconds)
    print("requests", dict(sorted(soak.done.items())), "of which errors", dict(sorted(soak.failed.items())))
    print(f"memory grew by {100 * grown:.2f} % after the first sixth")
    for problem in soak.problems[:40]:
        print("problem:", problem)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["seconds", "resident_bytes", *Sample.COUNTS])
            table.writerows([f"{at:.0f}", sample.bytes, *sample.counts().values()] for at, sample in samples)
    return 1 if soak.problems or grown > GROWTH_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
