#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long others wait beside a hostile client: `health_latency.py [--csv FILE] [--case NAME] [PROGRAM]`.

A server with one event loop serves identities and two chat models. For each case one client sends a request, again and
again, that is large, deep, packed or slow; another client asks /v2/health/live on new connections meanwhile. The table
has the median and the worst of its waits, what the hostile client was answered, and the server's memory before, at its
peak and three seconds after. The bar is a median of 100 ms on idle cores. Needs tritonclient (for gRPC).
"""
import argparse
import csv
import datetime
import gzip
import http.client
import json
import multiprocessing
import pathlib
import shutil
import statistics
import tempfile
import time

import compare

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = ["date", "machine", "commit", "load", "case", "sent_mib", "answer", "requests", "checks", "median_ms", "worst_ms", "before_mib",
           "peak_mib", "after_mib"]
SLOW_TEMPLATE = "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x|length }}{% set y = x|upper %}{% endfor %}"
LINES_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content|trim }}\n{% endfor %}"
CHECKS_MIN, SECONDS_MIN = 10, 3


def number_list(mib):
    return b",".join([b"0.12345678"] * (mib * 95325))


def infer_json(mib):
    return b'{"inputs":[{"name":"INPUT0","shape":[1,%d],"datatype":"FP32","data":[%s]}]}' % (mib * 95325, number_list(mib))


def chat(model, count):
    return json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "a"}] * count}).encode()


def members(count):
    return b'{"model":"lines",' + b",".join(b'"k%d":1' % i for i in range(count)) + b"}"


def packed_bomb():
    return gzip.compress(bytes(1 << 30), 9)


INFER, COMPLETIONS, CHATS = "/v2/models/identity_fp32/infer", "/v1/completions", "/v1/chat/completions"
GZIP = {"Content-Encoding": "gzip"}
# case: path, what makes the body, headers
HTTP_CASES = {
    "small chats": (CHATS, lambda: chat("lines", 1), {}),
    "members (07)": (COMPLETIONS, lambda: members(4000000), {}),
    "members, 900,000": (COMPLETIONS, lambda: members(900000), {}),
    "slow template (08)": (CHATS, lambda: chat("slow", 1), {}),
    "600,000 messages (09)": (CHATS, lambda: chat("lines", 600000), {}),
    "130,000 messages": (CHATS, lambda: chat("lines", 130000), {}),
    "JSON infer": (INFER, lambda: infer_json(60), {}),
    "JSON infer, gzip": (INFER, lambda: gzip.compress(infer_json(60), 1), GZIP),
    "gzip bomb": (INFER, packed_bomb, GZIP),
    "generate": ("/v2/models/identity_fp32/generate", lambda: b'{"INPUT0":[%s]}' % number_list(60), {}),
    "deep JSON": (INFER, lambda: b"[" * (60 << 20), {}),
    "deep JSON, OpenAI": (COMPLETIONS, lambda: b"[" * (60 << 20), {}),
    "long prompt": (COMPLETIONS, lambda: json.dumps({"model": "lines", "prompt": "a b " * (4 << 20)}).encode(), {}),
    "token ids": (COMPLETIONS, lambda: json.dumps({"model": "lines", "prompt": [1] * 2000000}).encode(), {}),
}
GRPC_CASES = {"gRPC bomb (02)": "bomb", "gRPC infer, numbers": "numbers", "gRPC infer, numbers, gzip": "gzip", "gRPC infer, raw": "raw"}


def send_http(port, name, ready, stop, results):
    path, make, headers = HTTP_CASES[name]
    body = make()
    ready.set()
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            answer.read()
            results.put((len(body), str(answer.status)))
        except OSError as error:
            results.put((len(body), type(error).__name__))
        connection.close()


def send_grpc(port, name, ready, stop, results):
    import grpc
    from tritonclient.grpc import service_pb2 as pb
    from tritonclient.grpc import service_pb2_grpc
    kind = GRPC_CASES[name]
    asked = pb.ModelInferRequest(model_name="identity_int32")
    tensor = asked.inputs.add(name="INPUT0", datatype="INT32")
    if kind in ("numbers", "gzip"):
        tensor.shape.extend([1, 40000000])
        tensor.contents.int_contents.extend([1] * 40000000)
    else:
        tensor.shape.extend([1, (1 << 28) if kind == "bomb" else (1 << 24)])
        asked.raw_input_contents.append(bytes((1 << 30) if kind == "bomb" else (64 << 20)))
    packing = grpc.Compression.Gzip if kind in ("bomb", "gzip") else grpc.Compression.NoCompression
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        ready.set()
        while not stop.is_set():
            try:
                stub.ModelInfer(asked, compression=packing)
                results.put((asked.ByteSize(), "OK"))
            except grpc.RpcError as error:
                results.put((asked.ByteSize(), error.code().name))


class Served(compare.Served):
    def memory(self, field):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field)) // 1024

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def make_repository(folder):
    for name in ("identity_fp32", "identity_int32"):
        shutil.copytree(ROOT / "tests/repository" / name, folder / name)
    for name, template in (("slow", SLOW_TEMPLATE), ("lines", LINES_TEMPLATE)):
        shutil.copytree(ROOT / "models/classics-10m", folder / name / "1")
        (folder / name / "1/chat_template.jinja").write_text(template)
        (folder / name / "config.pbtxt").write_text('backend: "engine"\n')


def check(port):
    """One health check on a connection of its own, in milliseconds."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().status == 200
    connection.close()
    return 1000 * (time.perf_counter() - begin)


def drain(results):
    got = []
    while not results.empty():
        got.append(results.get())
    return got


def machine():
    cpu = next((line.split(":", 1)[1] for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{' '.join(cpu.replace(',', ' ').split())} x{multiprocessing.cpu_count()}"


def measure(served, name):
    spawn = multiprocessing.get_context("spawn")
    ready, stop, results = spawn.Event(), spawn.Event(), spawn.Queue()
    send, port = (send_grpc, served.grpc) if name in GRPC_CASES else (send_http, served.http)
    client = spawn.Process(target=send, args=(port, name, ready, stop, results))
    before = served.memory("VmRSS")
    served.forget_peak()
    client.start()
    while not ready.wait(1):
        if not client.is_alive():
            raise SystemExit(f"the client of '{name}' ended with {client.exitcode}")
    waits, got, begin = [], [], time.monotonic()
    while len(waits) < CHECKS_MIN or not got or time.monotonic() - begin < SECONDS_MIN:
        waits.append(check(served.http))
        time.sleep(0.02)
        got += drain(results)
    stop.set()
    client.join()
    got += drain(results)
    peak = served.memory("VmHWM")
    time.sleep(3)
    return {"case": name, "sent_mib": round(got[0][0] / 2**20, 1), "answer": "/".join(sorted({answer for _, answer in got})),
            "requests": len(got), "checks": len(waits), "median_ms": round(statistics.median(waits), 2),
            "worst_ms": round(max(waits), 1), "before_mib": before, "peak_mib": peak, "after_mib": served.memory("VmRSS")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=ROOT / "build/release/proa")
    parser.add_argument("--case", action="append", choices=[*HTTP_CASES, *GRPC_CASES])
    parser.add_argument("--csv", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proa-latency-") as folder:
        make_repository(pathlib.Path(folder))
        served = Served(args.program, folder)
        for name in args.case or [*HTTP_CASES, *GRPC_CASES]:
            row = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": machine(),
                   "commit": compare.version_of(args.program), "load": pathlib.Path("/proc/loadavg").read_text().split()[0],
                   **measure(served, name)}
            print("  ".join(f"{row[c]:>{30 if c == 'case' else 11}}" for c in COLUMNS[4:]), flush=True)
            if args.csv:
                append(args.csv, row)
        served.stop()


def append(path, row):
    new = not path.exists()
    with path.open("a", newline="") as out:
        table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        if new:
            table.writeheader()
        table.writerow(row)


if __name__ == "__main__":
    main()
