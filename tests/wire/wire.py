# SPDX-License-Identifier: Apache-2.0
"""What the tests on the wire share: the program as a server, models by datatype, raw requests.

PROA or PROA_BIN names the program; without them build/release/proa is taken.
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROA = pathlib.Path(os.environ.get("PROA_BIN") or os.environ.get("PROA") or ROOT / "build/release/proa").resolve()
REPOSITORY = ROOT / "tests/repository"
START_SECONDS = 60

# datatype: numpy's type, and values that try its edges
VALUES = {
    "BOOL": (np.bool_, [True, False, True]),
    "UINT8": (np.uint8, [0, 7, 255]),
    "UINT16": (np.uint16, [0, 7, 65535]),
    "UINT32": (np.uint32, [0, 7, 2**32 - 1]),
    "UINT64": (np.uint64, [0, 7, 2**64 - 1]),
    "INT8": (np.int8, [-128, 0, 127]),
    "INT16": (np.int16, [-(2**15), 0, 2**15 - 1]),
    "INT32": (np.int32, [-(2**31), 0, 2**31 - 1]),
    "INT64": (np.int64, [-(2**63), 0, 2**63 - 1]),
    "FP16": (np.float16, [-1.5, 0, 65504]),
    "FP32": (np.float32, [-3.4028235e38, 0.1, 1e-45]),
    "FP64": (np.float64, [-1.7976931348623157e308, 0.1, 5e-324]),
    "BYTES": (np.object_, [b"", b"plain", bytes(range(256))]),
}
NOT_IN_JSON = ("FP16", "BF16")


def identity_of(datatype):
    return "identity_" + datatype.lower()


def values_of(datatype):
    dtype, values = VALUES[datatype]
    if datatype == "BYTES":
        array = np.empty(len(values), dtype=dtype)
        array[:] = values
        return array
    return np.array(values, dtype=dtype)


class Server:
    """`proa serve` on ports that the kernel picks. http, grpc, metrics are "127.0.0.1:PORT"."""

    def __init__(self, *options, repositories=(REPOSITORY,), env=None, ports=("--http-port=0", "--grpc-port=0", "--metrics-port=0")):
        self.command = [str(PROA), "serve", "--json", *ports, *options]
        if not any("dtype" in str(option) for option in options):
            self.command += ["--dtype", "exact"]  # tests compare bits
        for path in repositories:
            self.command += ["--model-repository", str(path)]
        self.env = {**os.environ, **(env or {})}
        self.process = None

    def __enter__(self):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="proa-serve-", suffix=".log")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=self.env)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise AssertionError(f"{self.command} ended with {self.process.returncode}:\n{self.log_text()}")
        self.ready = json.loads(line)
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{self.ready[face + '_port']}" for face in ("http", "grpc", "metrics"))
        return self

    def __exit__(self, *_):
        assert self.stop() == 0, self.log_text()  # a sanitiser's finding shows here

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, signal_number=signal.SIGTERM, seconds=60):
        """Ends it; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        status = self.process.wait(seconds)
        if not self.process.stdout.closed:
            self.process.stdout.close()
        return status

    def alive(self):
        return self.process.poll() is None

    def url(self, path):
        return f"http://{self.http}{path}"

    def connect(self, seconds=20):
        host, port = self.http.split(":")
        return socket.create_connection((host, int(port)), timeout=seconds)

    def resident_bytes(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def children_of(pid):
    """Processes whose parent it is: (pid, state)."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append((int(path.parent.name), fields[0]))
    return found


def shared_files(pid):
    """Files of /dev/shm that a process or one of its descendants has open or mapped. What other programs of the machine
    have there is theirs."""
    names = set()
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        names = {line.split(maxsplit=5)[5] for line in (folder / "maps").read_text().splitlines() if "/dev/shm/" in line}
        names |= {os.readlink(path) for path in (folder / "fd").iterdir()}
    except OSError:
        pass  # it ended, or closed a descriptor, in the meantime
    for child, _ in children_of(pid):
        names |= shared_files(child)
    return {name for name in names if name.startswith("/dev/shm/")}


def read_answer(sock):
    """One HTTP answer from a socket: status, headers (lower case), body."""
    stream = sock.makefile("rb")
    status = int(stream.readline().split()[1])
    headers = {}
    while (line := stream.readline().strip()):
        name, value = line.split(b":", 1)
        headers[name.decode().lower()] = value.strip().decode()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (size := int(stream.readline(), 16)):
            body += stream.read(size)
            stream.readline()
        stream.readline()
    else:
        body = stream.read(int(headers.get("content-length", 0)))
    return status, headers, body


def raw_request(path, body=b"", headers=(), method="POST"):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return (head + "".join(f"{line}\r\n" for line in headers) + "\r\n").encode() + body


def wait_until(done, seconds=20, pause=0.02):
    """Waits for done() to be true; fails when it takes longer."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(pause)


def executions(server, model):
    """How often a model was executed until now."""
    with urllib.request.urlopen(server.url(f"/v2/models/{model}/stats"), timeout=60) as answer:
        return sum(version["execution_count"] for version in json.load(answer)["model_stats"])


def metric(text, name, **labels):
    """The value of one metric, summed over those that have these labels."""
    total, found = 0.0, False
    for line in text.splitlines():
        if not line.startswith(name) or line[len(name)] not in "{ ":
            continue
        if all(f'{key}="{value}"' in line for key, value in labels.items()):
            total, found = total + float(line.rsplit(" ", 1)[1]), True
    return total if found else None
