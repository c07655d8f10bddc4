#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a process of its own costs a backend: the same requests to a library that copies its input, once in the server's
process (`--in-process all`) and once isolated, in turns.

    python bench/isolation.py            # appends to bench/results/isolation.csv

Over one HTTP connection with binary tensors: the latency of a request, one at a time. The library is examples/backend,
which reads and writes each element once; it is built by its own CMake file.
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
SIDES = {"in-process": ["--in-process", "all"], "isolated": []}
SIZES = {"1 KiB": 1 << 10, "4 MiB": 4 << 20}
CONFIG = """backend: "scale"
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def start(folder, side):
    command = [PROA, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--backend-directory",
               folder / "build/backends", "--model-repository", folder / "models", *SIDES[side]]
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


def start_ms(folder, side):
    begin = time.perf_counter()
    server, _ = start(folder, side)
    took = 1e3 * (time.perf_counter() - begin)
    server.terminate()
    server.wait()
    return took


def main():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    machine = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory(prefix="proa-isolation-") as name:
        folder = pathlib.Path(name)
        subprocess.run(["cmake", "-S", ROOT / "examples/backend", "-B", folder / "build"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", folder / "build"], check=True, stdout=subprocess.DEVNULL)
        (folder / "models/copy/1").mkdir(parents=True)
        (folder / "models/copy/config.pbtxt").write_text(CONFIG)
        starts = {side: statistics.median(start_ms(folder, side) for _ in range(5)) for side in SIDES}
        servers = {side: start(folder, side) for side in SIDES}
        for text, size in SIZES.items():
            times = {side: [] for side in SIDES}
            for turn in range(6):
                for side, (_, connection) in servers.items():
                    got = measure(connection, size, 1.5)
                    times[side] += got if turn else []  # the first turn warms up
            for side, all_times in times.items():
                all_times.sort()
                at = [all_times[int(len(all_times) * q)] for q in (.5, .99)]
                rows.append([text, side, len(all_times), *(f"{t:.0f}" for t in at), f"{starts[side]:.0f}"])
        for server, _ in servers.values():
            server.terminate()
            server.wait()
    path = ROOT / "bench/results/isolation.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow("date commit machine cpus bytes backend requests p50_us p99_us start_ms".split())
        for row in rows:
            out.writerow([datetime.date.today(), commit, machine, os.cpu_count(), *row])
            print(*row)


if __name__ == "__main__":
    main()
