# SPDX-License-Identifier: Apache-2.0
"""What bench/server.sh runs: `proa serve` with bench/repository under wrk and h2load, nginx with a static reply beside it.

One loop thread, one nginx worker, one thread of the client. What is compared runs in turn, round by round, and the median
round counts, since other work on a machine makes single runs lie. No package beyond Python's own is needed.
"""
import argparse
import contextlib
import csv
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import svg

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["date", "machine", "commit", "load", "case", "face", "concurrency", "bytes", "requests_s", "latency_us", "mib_s",
           "copied_bytes", "peak_mib"]
CONCURRENCIES = [1, 8, 64]
SIZES = [64, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
SMALL, LARGE = 64, 16 << 20


# ---- requests ----


def http_request(tensor):
    """(length of the JSON, JSON and tensor) of an inference with one binary FP32 tensor in and out."""
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "shape": [1, len(tensor) // 4], "datatype": "FP32", "parameters": {"binary_data_size": len(tensor)}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}, separators=(",", ":")).encode()
    return len(head), head + tensor


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def grpc_request(model, tensor):
    """A framed inference.ModelInferRequest: model_name 1, inputs 5 {name 1, datatype 2, shape 3}, raw_input_contents 7."""
    inputs = field(1, b"INPUT0") + field(2, b"FP32") + field(3, varint(1) + varint(len(tensor) // 4))
    message = field(1, model.encode()) + field(5, inputs) + field(7, tensor)
    return b"\0" + struct.pack(">I", len(message)) + message


# ---- servers ----


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Proa:
    def __init__(self, program):
        ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        self.process = subprocess.Popen(
            [program, "serve", "--model-repository", HERE / "repository", "--http-thread-count=1", "--log-info=false", "--json", *ports],
            stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.http, self.grpc, self.metrics = (ready[f"{face}_port"] for face in ("http", "grpc", "metrics"))

    def get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def copied(self):
        return int(re.search(r"^proa_tensor_copied_bytes_total (\d+)$", self.get(self.metrics, "/metrics"), re.M)[1])

    def succeeded(self, model):
        stats = json.loads(self.get(self.http, f"/v2/models/{model}/stats"))["model_stats"][0]["inference_stats"]
        if stats["fail"]["count"]:
            raise SystemExit(f"{stats['fail']['count']} requests of {model} failed")
        return stats["success"]["count"]

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
            raise SystemExit("the server did not end well")


@contextlib.contextmanager
def nginx(folder, body_bytes):
    """One worker that answers everything with as many bytes. Yields its port."""
    port = free_port()
    (folder / "nginx.conf").write_text(f"""worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    server {{ listen 127.0.0.1:{port}; location / {{ default_type text/plain; return 200 "{"x" * body_bytes}"; }} }}
}}
""")
    process = subprocess.Popen(["nginx", "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL)
    while subprocess.run(["bash", "-c", f": </dev/tcp/127.0.0.1/{port}"], stderr=subprocess.DEVNULL).returncode:
        time.sleep(0.05)
    yield port
    process.terminate()
    process.wait(10)


# ---- clients: each returns (requests a second, latency in us: wrk tells the median, h2load the mean) ----

UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}


def microseconds(number, unit):
    return float(number) * UNITS[unit]


def wrk(port, path, connections, seconds, script=None):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *(["-s", script] if script else []), f"http://127.0.0.1:{port}{path}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(out)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), microseconds(*re.search(r"50%\s+([\d.]+)(us|ms|s|m)\b", out).groups())


def h2load(port, connections, streams, seconds, body):
    command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", "-D", str(seconds), "--warm-up-time=200ms", "-w30", "-W30", "-d", body,
               "-H", "content-type: application/grpc", "-H", "te: trailers",
               f"http://127.0.0.1:{port}/inference.GRPCInferenceService/ModelInfer"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if not re.search(r" 0 failed, 0 errored, 0 timeout", out):
        raise SystemExit(out)
    mean = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", out)
    return float(re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", out)[1]), microseconds(*mean.groups())


# ---- the cases ----


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.rows = args, folder, []
        self.proa = Proa(args.proa)
        version = json.loads(subprocess.run([args.proa, "version", "--json"], check=True, capture_output=True, text=True).stdout)
        cpu = next((line.split(":", 1)[1] for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
        self.about = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
            "machine": f"{' '.join(cpu.replace(',', ' ').split())} x{os.cpu_count()}",
            "commit": version.get("commit", "unknown"), "load": f"{os.getloadavg()[0]:.2f}"}

    def add(self, case, face, concurrency, size, runs, **more):
        rate, latency = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
        row = {**self.about, "case": case, "face": face, "concurrency": concurrency, "bytes": size, "requests_s": f"{rate:.1f}",
               "latency_us": f"{latency:.1f}", "mib_s": f"{rate * size / (1 << 20):.2f}", **more}
        self.rows.append(row)
        print(f"{case:8} {face:5} concurrency {concurrency:3} {size:9} bytes: {rate:9.0f} requests/s, {latency:8.0f} us, "
              f"{rate * size / (1 << 20):8.1f} MiB/s" + "".join(f", {k} {v}" for k, v in more.items()), file=sys.stderr)
        return rate

    def script(self, size):
        """A wrk script that posts a tensor of that size."""
        length, body = http_request(b"\0\0\x80\x3f" * (size // 4))
        data, lua = self.folder / f"http-{size}", self.folder / f"http-{size}.lua"
        data.write_bytes(body)
        lua.write_text(f'wrk.method = "POST"\nlocal file = io.open("{data}", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
                       'wrk.headers["Content-Type"] = "application/octet-stream"\n'
                       f'wrk.headers["Inference-Header-Content-Length"] = "{length}"\n')
        return lua

    def message(self, model, size):
        path = self.folder / f"grpc-{model}-{size}"
        path.write_bytes(grpc_request(model, b"\0\0\x80\x3f" * (size // 4)))
        return path

    def reply_bytes(self, size):
        length, body = http_request(b"\0" * size)
        request = urllib.request.Request(f"http://127.0.0.1:{self.proa.http}/v2/models/identity/infer", body,
                                         {"Inference-Header-Content-Length": str(length)})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return len(answer.read())

    def http(self, model, connections, size, seconds):
        return wrk(self.proa.http, f"/v2/models/{model}/infer", connections, seconds, self.script(size))

    def grpc(self, model, connections, streams, size, seconds):
        return h2load(self.proa.grpc, connections, streams, seconds, self.message(model, size))

    def small(self):
        """16 floats over both faces, and nginx."""
        rounds, seconds = self.args.rounds, self.args.seconds
        with nginx(self.folder, self.reply_bytes(SMALL)) as port:
            for n in CONCURRENCIES:
                runs = {"static": [], "http": [], "grpc": []}
                for _ in range(rounds):
                    runs["static"].append(wrk(port, "/", n, seconds))
                    runs["http"].append(self.http("identity", n, SMALL, seconds))
                    runs["grpc"].append(self.grpc("identity", min(n, 8), max(n // 8, 1), SMALL, seconds))
                static = self.add("nginx", "http", n, SMALL, runs["static"])
                ours = self.add("identity", "http", n, SMALL, runs["http"])
                print(f"         http is {100 * ours / static:.0f} % of nginx", file=sys.stderr)
                self.add("identity", "grpc", n, SMALL, runs["grpc"])

    def sizes(self):
        for size in SIZES:
            self.add("size", "http", 4, size, [self.http("identity", 4, size, self.args.seconds)])
            self.add("size", "grpc", 4, size, [self.grpc("identity", 4, 1, size, self.args.seconds)])

    def chain(self):
        """16 MiB through one identity and through three: time, copies, and the most memory that the server ever had."""
        for face, call in (("http", lambda m: self.http(m, 1, LARGE, self.args.seconds)),
                           ("grpc", lambda m: self.grpc(m, 1, 1, LARGE, self.args.seconds))):
            for model in ("identity", "chain"):
                copied = self.proa.copied()
                runs = [call(model) for _ in range(self.args.rounds)]
                self.add(model, face, 1, LARGE, runs, copied_bytes=self.proa.copied() - copied, peak_mib=f"{self.proa.peak_mib():.0f}")
        for model in ("identity", "chain"):
            self.proa.succeeded(model)  # ends here if one failed: gRPC says so only in its trailers

    def write(self):
        new = not os.path.exists(self.args.csv) or os.path.getsize(self.args.csv) == 0
        with open(self.args.csv, "a", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                table.writeheader()
            table.writerows(self.rows)

    def points(self, case, face, x, y):
        return [(int(r[x]), float(r[y])) for r in self.rows if r["case"] == case and r["face"] == face and (case != "identity" or r["bytes"] == SMALL)]

    def plots(self):
        about = "{machine}, commit {commit}, load {load}".format(**self.about)
        rates = {"nginx, static reply": self.points("nginx", "http", "concurrency", "requests_s"),
                 "identity, HTTP": self.points("identity", "http", "concurrency", "requests_s"),
                 "identity, gRPC": self.points("identity", "grpc", "concurrency", "requests_s")}
        sizes = {"HTTP": self.points("size", "http", "bytes", "mib_s"), "gRPC": self.points("size", "grpc", "bytes", "mib_s")}
        folder = pathlib.Path(self.args.plots)
        (folder / "server-concurrency.svg").write_text(svg.plot(
            "Requests of 16 floats a second, one loop thread", about, "requests in flight", "requests a second", rates))
        (folder / "server-size.svg").write_text(svg.plot(
            "Tensor bytes a second by size, 4 in flight", about, "bytes of the tensor", "MiB a second each way", sizes, y_log=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("proa", "csv", "plots"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proa-bench-") as folder:
        bench = Bench(args, pathlib.Path(folder))
        try:
            bench.small()
            bench.chain()  # before the sizes, four of which at once would hide its peak of memory
            bench.sizes()
        finally:
            bench.proa.stop()
    bench.write()
    bench.plots()
    print(f"appended to {args.csv}", file=sys.stderr)


if __name__ == "__main__":
    main()
