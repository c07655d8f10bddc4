#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the variants of the review pipeline: latency of one text, throughput of 512, steps native or in Python.

    python3 compare.py --proa ../../build/release/proa --texts ../../tests/golden/data/polarity-test.tsv \\
        --csv pipeline.csv

Needs Python with numpy for the steps in Python, nothing else: the client here is a socket that sends the same bytes
again and again, so that what is measured is the server. --gpu adds the variants with the transformer on a GPU. Rows
"steps only" leave the transformer out: its score comes in with the request, which shows what features, forest and
average cost.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = """
platform: "ensemble"
max_batch_size: 512
input [ { name: "TEXT" data_type: TYPE_STRING dims: 1 }, { name: "BERT" data_type: TYPE_FP32 dims: 1 } ]
output { name: "SCORE" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step { model_name: "features%s" model_version: -1
         input_map { key: "TEXT" value: "TEXT" } output_map { key: "FEATURES" value: "f" } }
  step { model_name: "forest" model_version: -1
         input_map { key: "input__0" value: "f" } output_map { key: "output__0" value: "FOREST" } }
  step { model_name: "average%s" model_version: -1
         input_map [ { key: "BERT" value: "BERT" }, { key: "FOREST" value: "FOREST" } ]
         output_map { key: "SCORE" value: "SCORE" } }
}
"""


INT8 = 'parameters { key: "quant" value { string_value: "int8" } }\n'
# name: what becomes of bert/config.pbtxt
TRANSFORMERS = {
    "transformer on the CPU": lambda config: config,
    "transformer in int8": lambda config: config + INT8,
    "transformer on the GPU": lambda config: config.replace("kind: KIND_CPU", "kind: KIND_GPU"),
}


class Served:
    """`proa serve` over a copy of the repositories, with the ensembles of steps only, and one connection to it."""

    def __init__(self, options, change):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="proa-compare-"))
        example = self.folder / "examples/review-pipeline"
        shutil.copytree(HERE, example, ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "models").symlink_to(HERE.parents[1] / "models")
        for name, suffix in (("steps", ""), ("steps_python", "_python")):
            (example / "repository-python" / name / "1").mkdir(parents=True)
            (example / "repository-python" / name / "config.pbtxt").write_text(STEPS % (suffix, suffix))
        config = example / "repository/bert/config.pbtxt"
        config.write_text(change(config.read_text()))
        command = [
            options.proa,
            "serve",
            "--json",
            "--http-port=0",
            "--grpc-port=0",
            "--metrics-port=0",
            "--log-error=true",
            f"--model-repository={example}/repository",
            f"--model-repository={example}/repository-python",
        ]
        log = self.folder / "log"
        try:
            with open(log, "w", encoding="utf-8") as errors:
                self.process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, "PROA_PYTHON": os.environ.get("PROA_PYTHON", sys.executable)},
                )
        except OSError as error:
            shutil.rmtree(self.folder)
            raise SystemExit(
                f"cannot run {options.proa}: {error.strerror} (./do build makes it; --proa names another)"
            ) from None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            why = [said for said in log.read_text().splitlines() if said.startswith(("E", "proa:"))]
            shutil.rmtree(self.folder)
            raise SystemExit(f"{options.proa} did not start: {why[0] if why else f'status {self.process.returncode}'}")
        self.socket = socket.create_connection(("127.0.0.1", json.loads(line)["http_port"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder)

    def ask(self, request):
        """Sends a request; the answer's body."""
        self.socket.sendall(request)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.socket.recv(1 << 20)
        head, _, body = got.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{head.decode()} {body.decode(errors='replace')}")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += self.socket.recv(1 << 20)
        return body


def request_of(model, texts):
    """An infer request with tensors in binary; steps get a transformer's score of 0.5."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    rows = len(texts)
    inputs = [{"name": "TEXT", "shape": [rows, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}]
    if model.startswith("steps"):
        inputs.append(
            {"name": "BERT", "shape": [rows, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4 * rows}}
        )
        data += struct.pack("<f", 0.5) * rows
    outputs = [{"name": "SCORE", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    return (
        (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(head) + len(data)}\r\n"
            f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
        ).encode()
        + head
        + data
    )


def times(served, requests, seconds, least):
    """How long each of the requests took, one after the other, round and round; the first ones do not count."""
    taken, begin, i = [], time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or i < least:
        start = time.perf_counter()
        served.ask(requests[i % len(requests)])
        taken.append(time.perf_counter() - start)
        i += 1
    return sorted(taken[min(10, len(taken) // 3) :])


def measure(served, model, texts, seconds):
    ones = times(served, [request_of(model, [text]) for text in texts[:256]], seconds, 100)
    batches = times(
        served, [request_of(model, (texts * 2)[first : first + 512]) for first in (0, 256, 512)], seconds, 4
    )
    return {
        "p50_ms": ones[len(ones) // 2] * 1e3,
        "p99_ms": ones[len(ones) * 99 // 100] * 1e3,
        "texts_per_second_1": len(ones) / sum(ones),
        "texts_per_second_512": 512 * len(batches) / sum(batches),
    }


def about_here():
    """The columns that all tables of bench/results begin with."""
    name = next(
        (
            line.split(":")[1].strip()
            for line in open("/proc/cpuinfo", encoding="utf-8")
            if line.startswith("model name")
        ),
        "?",
    )
    git = subprocess.run(
        ["git", "-C", HERE, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "machine": f"{name} x{os.cpu_count()}",
        "commit": git.stdout.strip(),
        "load": round(os.getloadavg()[0], 2),
        "priority": "real-time" if os.sched_getscheduler(0) == os.SCHED_RR else "normal",
    }


def scores(served, model, texts):
    body = served.ask(request_of(model, texts))
    return struct.unpack(f"<{len(texts)}f", body[-4 * len(texts) :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--proa", default=str(HERE.parents[1] / "build/release/proa"), type=lambda p: str(pathlib.Path(p).resolve())
    )
    parser.add_argument(
        "--texts", default=HERE.parents[1] / "tests/golden/data/polarity-test.tsv", help="the last column is a text"
    )
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="the best counts: other work on the machine only adds")
    parser.add_argument("--csv", help="append the rows there")
    parser.add_argument("--gpu", action="store_true", help="also with the transformer on a GPU")
    parser.add_argument("--rt", action="store_true", help="before all other work of the machine (needs the right to)")
    options = parser.parse_args()
    if options.rt:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # the server inherits it
        except PermissionError:
            raise SystemExit("--rt is refused by this system: it takes root (CAP_SYS_NICE) or `ulimit -r 1`") from None
    try:
        texts = [line.rstrip("\n").split("\t")[-1].encode() for line in open(options.texts, encoding="utf-8")]
    except OSError as error:
        raise SystemExit(f"cannot read {options.texts}: {error.strerror}") from None
    rows = []
    for number, transformer in enumerate(list(TRANSFORMERS)[: 2 + options.gpu]):
        served = Served(options, TRANSFORMERS[transformer])
        pairs = [("steps", "steps_python", "steps only")] if number == 0 else []
        for native, python, name in [("review", "review_python", transformer)] + pairs:
            apart = max(
                abs(a - b) for a, b in zip(scores(served, native, texts[:512]), scores(served, python, texts[:512]))
            )
            if apart > 1e-5:
                raise SystemExit(f"{native} and {python} differ by {apart}")
            best = {}
            for _ in range(options.rounds):
                for model in (native, python):
                    got = measure(served, model, texts, options.seconds)
                    if model not in best or got["p50_ms"] < best[model]["p50_ms"]:
                        best[model] = {
                            **got,
                            "texts_per_second_512": max(
                                got["texts_per_second_512"], best.get(model, got)["texts_per_second_512"]
                            ),
                        }
            for model, steps in ((native, "native"), (python, "Python")):
                rows.append(
                    {"pipeline": name, "steps": steps, **{key: round(value, 3) for key, value in best[model].items()}}
                )
        served.close()
    print("| pipeline | steps | one text, p50 | p99 | texts a second, by one | by 512 |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['pipeline']} | {row['steps']} | {row['p50_ms']:.3f} ms | {row['p99_ms']:.3f} ms | "
            f"{row['texts_per_second_1']:,.0f} | {row['texts_per_second_512']:,.0f} |"
        )
    if options.csv:
        about = about_here()
        rows = [{**about, **row} for row in rows]
        new = not pathlib.Path(options.csv).exists()
        with open(options.csv, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
