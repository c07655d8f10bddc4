#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a process of its own costs a backend: the same requests to a library that copies its input and to a small module
of torch, once in the server's process (`--in-process all`) and once isolated, in turns.

    python bench/isolation.py            # appends to bench/results/isolation.csv

Over one HTTP connection with binary tensors: the latency of a request, one at a time. The library is examples/backend,
which reads and writes each element once; it is built by its own CMake file. The module of torch does so too; it is left
out where `./do build torch` has not made the plug-in. PROA_TORCH_PYTHON names the Python that has torch.
"""
import csv
import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
PROA = ROOT / "build/release/proa"
TORCH = ROOT / "build/torch/libproa_torch.so"
SIDES = {"in-process": ["--in-process", "all"], "isolated": []}
SIZES = {"1 KiB": 1 << 10, "4 MiB": 4 << 20}
CONFIG = """backend: "%s"
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
ONE_THREAD = 'parameters { key: "INTRA_OP_THREAD_COUNT" value { string_value: "1" } }\n'  # the client needs a CPU too
TRACE = """import sys, torch
class M(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
torch.jit.trace(M(), torch.rand(2)).save(sys.argv[1])
"""


def write_models(folder):
    """A repository of one model for each backend that is there."""
    for backend in ["scale"] + ["pytorch"] * TORCH.exists():
        model = folder / backend / "copy"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG % backend + ONE_THREAD * (backend == "pytorch"))
    if TORCH.exists():
        python = os.environ.get("PROA_TORCH_PYTHON", "python3")
        subprocess.run([python, "-c", TRACE, folder / "pytorch/copy/1/model.pt"], check=True)


def start(folder, backend, side):
    command = [PROA, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--backend-directory",
               folder / "build/backends", "--model-repository", folder / "models" / backend, *SIDES[side]]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, http.client.HTTPConnection("127.0.0.1", json.loads(server.stdout.readline())["http_port"])


def request_of(size):
    tensor = {"name": "INPUT", "datatype": "FP32", "shape": [size // 4], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUTPUT", "parameters": {"binary_data": True}}]}).encode()
    return head + bytes(size), {"Inference-Header-Content-Length": str(len(head))}


def measure(connection, size, seconds):
    """Latencies in us."""
    body, headers = request_of(size)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        connection.request("POST", "/v2/models/copy/infer", body, headers)
        answer = connection.getresponse()
        data = answer.read()
        times.append(1e6 * (time.perf_counter() - begin))
        assert answer.status == 200 and len(data) > size
    return times


def start_ms(folder, backend, side):
    begin = time.perf_counter()
    server, _ = start(folder, backend, side)
    took = 1e3 * (time.perf_counter() - begin)
    server.terminate()
    server.wait()
    return took


def measure_backend(folder, backend):
    """Rows without date and machine."""
    rows = []
    starts = {side: statistics.median(start_ms(folder, backend, side) for _ in range(5)) for side in SIDES}
    servers = {side: start(folder, backend, side) for side in SIDES}
    for text, size in SIZES.items():
        times = {side: [] for side in SIDES}
        for turn in range(6):
            for side, (_, connection) in servers.items():
                got = measure(connection, size, 1.5)
                times[side] += got if turn else []  # the first turn warms up
        for side, all_times in times.items():
            all_times.sort()
            at = [all_times[int(len(all_times) * q)] for q in (.5, .99)]
            rows.append([backend, text, side, len(all_times), *(f"{t:.0f}" for t in at), f"{starts[side]:.0f}"])
    for server, _ in servers.values():
        server.terminate()
        server.wait()
    return rows


def main():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    machine = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory(prefix="proa-isolation-") as name:
        folder = pathlib.Path(name)
        subprocess.run(["cmake", "-S", ROOT / "examples/backend", "-B", folder / "build"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", folder / "build"], check=True, stdout=subprocess.DEVNULL)
        write_models(folder / "models")
        for backend in sorted(path.name for path in (folder / "models").iterdir()):
            rows += measure_backend(folder, backend)
    path = ROOT / "bench/results/isolation.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow("date commit machine cpus backend bytes side requests p50_us p99_us start_ms".split())
        for row in rows:
            out.writerow([datetime.date.today(), commit, machine, os.cpu_count(), *row])
            print(*row)


if __name__ == "__main__":
    main()
