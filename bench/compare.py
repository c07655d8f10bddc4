#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the server's speed in two programs: `compare.py BEFORE AFTER [--only WORD] [--rounds 9] [--seconds 2] [--csv FILE]`.

Five loads, by wrk and h2load on the same machine: an identity of 16 floats over HTTP and over gRPC, streamed chats of
48 tokens with models/classics-10m, by 8 and by 64 clients, and greedy ones by 64 clients with a tiny random model, which
shows what the server costs beside the model. The programs take turns (A B B A ...), and each round
gives the requests a second and the processor time that the server took for one. The median round counts. Processor
time varies less than the rate where other work shares the machine. Nothing else should run meanwhile. Needs wrk and
h2load (Debian: nghttp2-client).
"""
import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import server

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = ["date", "machine", "before", "after", "case", "before_requests_s", "after_requests_s", "rate_ratio",
           "before_cpu_us", "after_cpu_us", "cpu_ratio", "rounds"]
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "It was a dark night"}], "max_tokens": 48, "stream": True, "seed": 1,
        "temperature": 0.8}
CONFIG = 'backend: "engine"\nparameters { key: "chat_template" value { string_value: "plain" } }\n'


class Served(server.Proa):
    """A program that serves bench/repository and a chat model, with one loop thread."""

    def __init__(self, program, repository):
        ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        self.process = subprocess.Popen(
            [program, "serve", "--model-repository", repository, "--http-thread-count=1", "--log-info=false", "--json", *ports],
            stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.http, self.grpc, self.metrics = (ready[f"{face}_port"] for face in ("http", "grpc", "metrics"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_tiny_model(folder):
    """A Llama of one layer with 32 hidden values, random weights from a fixed seed, and the tokenizer of classics-10m."""
    hidden, inner = 32, 64
    config = json.loads((folder / "config.json").read_text())
    config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1, num_attention_heads=1,
                  num_key_value_heads=1, head_dim=hidden, dtype="float32")
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,),
              layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
              layer + "mlp.gate_proj.weight": (inner, hidden), layer + "mlp.up_proj.weight": (inner, hidden),
              layer + "mlp.down_proj.weight": (hidden, inner)}
    shapes |= {f"{layer}self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
    draw, head, data = random.Random(1), {}, bytearray()
    for name, shape in shapes.items():
        values = [1.0 if len(shape) == 1 else draw.gauss(0, 0.3) for _ in range(math.prod(shape))]
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_repository(folder):
    shutil.copytree(server.HERE / "repository", folder, dirs_exist_ok=True)
    for model in ("chat", "tiny"):
        shutil.copytree(ROOT / "models/classics-10m", folder / model / "1")
        (folder / model / "config.pbtxt").write_text(CONFIG)
    make_tiny_model(folder / "tiny/1")


def make_loads(folder, seconds):
    """Functions of a server that put load on it for some seconds and return its requests a second."""
    length, body = server.http_request(b"\0\0\x80\x3f" * 16)
    (folder / "identity").write_bytes(body)
    (folder / "identity.lua").write_text(
        f'wrk.method = "POST"\nlocal file = io.open("{folder}/identity", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
        f'wrk.headers["Content-Type"] = "application/octet-stream"\nwrk.headers["Inference-Header-Content-Length"] = "{length}"\n')
    for name, chat in (("chat", CHAT), ("tiny", {**CHAT, "model": "tiny", "temperature": 0})):
        (folder / f"{name}.lua").write_text(
            f'wrk.method = "POST"\nwrk.body = [[{json.dumps(chat)}]]\nwrk.headers["Content-Type"] = "application/json"\n')
    (folder / "message").write_bytes(server.grpc_request("identity", b"\0\0\x80\x3f" * 16))
    return {
        "identity http": lambda s: server.wrk(s.http, "/v2/models/identity/infer", 8, seconds, folder / "identity.lua")[0],
        "identity grpc": lambda s: server.h2load(s.grpc, 8, 1, seconds, folder / "message")[0],
        "chat stream": lambda s: server.wrk(s.http, "/v1/chat/completions", 8, seconds, folder / "chat.lua")[0],
        "chat stream 64": lambda s: server.wrk(s.http, "/v1/chat/completions", 64, seconds, folder / "chat.lua")[0],
        "tiny stream 64": lambda s: server.wrk(s.http, "/v1/chat/completions", 64, seconds, folder / "tiny.lua")[0],
    }


def measure(served, load, seconds):
    """(requests a second, microseconds of the server's processor time for one)."""
    begin = served.cpu_seconds()
    rate = load(served)
    return rate, 1e6 * (served.cpu_seconds() - begin) / (rate * seconds)


def version_of(program):
    return json.loads(subprocess.run([program, "version", "--json"], check=True, capture_output=True, text=True).stdout)["commit"]


def compare(programs, options, folder):
    repository = folder / "repository"
    make_repository(repository)
    both = [Served(program, repository) for program in programs]
    rows = []
    for case, load in make_loads(folder, options.seconds).items():
        if options.only not in case:
            continue
        runs = [[], []]
        for i in range(options.rounds):
            for side in (0, 1) if i % 2 == 0 else (1, 0):
                runs[side].append(measure(both[side], load, options.seconds))
        rate, cpu = ([statistics.median(run[k] for run in runs[side]) for side in (0, 1)] for k in (0, 1))
        rows.append({"case": case, "before_requests_s": f"{rate[0]:.1f}", "after_requests_s": f"{rate[1]:.1f}",
                     "rate_ratio": f"{rate[1] / rate[0]:.3f}", "before_cpu_us": f"{cpu[0]:.2f}", "after_cpu_us": f"{cpu[1]:.2f}",
                     "cpu_ratio": f"{cpu[1] / cpu[0]:.3f}", "rounds": options.rounds})
        print(f"{case:14} {rate[0]:10.1f} -> {rate[1]:10.1f} requests/s ({rate[1] / rate[0]:.3f}), "
              f"{cpu[0]:8.2f} -> {cpu[1]:8.2f} us of CPU each ({cpu[1] / cpu[0]:.3f})", flush=True)
    for one in both:
        one.stop()
    return rows


def append(path, rows, programs):
    cpu = next((line.split(":", 1)[1] for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
             "machine": f"{' '.join(cpu.replace(',', ' ').split())} x{os.cpu_count()}",
             "before": version_of(programs[0]), "after": version_of(programs[1])}
    new = not os.path.exists(path)
    with open(path, "a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            table.writeheader()
        table.writerows({**about, **row} for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default="", help="the loads with this in their name")
    parser.add_argument("--csv")
    options = parser.parse_args()
    programs = [options.before, options.after]
    with tempfile.TemporaryDirectory(prefix="proa-compare-") as folder:
        rows = compare(programs, options, pathlib.Path(folder))
    if options.csv:
        append(options.csv, rows, programs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
