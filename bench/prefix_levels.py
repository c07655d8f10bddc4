#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time to the first token of a prompt whose beginning is in a level of the prefix cache.

    bench/prefix_levels.py MODEL [--prompt 4064] [--shared 4000] [--rounds 5] [--option=--device --option=cuda] [--csv FILE]

A server of its own is started for each level, with room for two prompts on the device:

none    --prefix-cache off: the whole prompt is computed.
device  the prompt before began alike, and its pages are on the device.
host    other prompts came meanwhile, so the pages were evicted to memory of the host (--prefix-host-memory).
folder  the server was started anew, and finds the pages in a folder (--prefix-dir).

One client; each round has new token ids. Output: the median time in ms, and how many tokens each level reused.
"""
import argparse
import csv
import datetime
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["date", "machine", "commit", "label", "clients", "rate", "prompt", "tokens", "shared", "requests", "failed", "tokens_s",
           "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms"]


class Server:
    def __init__(self, args, *options):
        command = [str(args.proa), "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", str(args.model),
                   f"--kv-tokens={2 * (args.prompt + 128)}", "--sequences=2", *args.option, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the server did not start: " + " ".join(command))
        self.port = json.loads(line)["http_port"]
        self.name = args.model.name

    def ask(self, ids):
        """Milliseconds to the first token, and the tokens that were found in the cache."""
        body = json.dumps({"model": self.name, "prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        if "error" in answer:
            sys.exit(answer["error"]["message"])
        return (time.monotonic() - begin) * 1e3, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(args, level, folder):
    """Times and reused tokens of all rounds."""
    draw = random.Random(5)
    new = lambda n: [draw.randrange(10, args.vocab) for _ in range(n)]
    shared = [new(args.shared) for _ in range(args.rounds)]
    ask = lambda server, i: server.ask(shared[i] + new(args.prompt - args.shared))
    options = {"none": ["--prefix-cache=off"], "device": [], "host": ["--prefix-host-memory=" + args.host_memory],
               "folder": [f"--prefix-dir={folder}"]}[level]
    server, results = Server(args, *options), []
    server.ask(new(args.prompt))  # what a first request costs beyond others
    if level in ("none", "device"):
        for i in range(args.rounds):
            if level == "device":
                ask(server, i)
            results.append(ask(server, i))
    else:
        for i in range(args.rounds):
            ask(server, i)
        if level == "folder":
            server.stop()
            server = Server(args, *options)
            server.ask(new(args.prompt))
        else:
            ask(server, 0), ask(server, 1)
        results = [ask(server, i) for i in (range(args.rounds) if level == "folder" else range(2, args.rounds))]
    server.stop()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--proa", type=pathlib.Path, default=ROOT / "build/release/proa")
    parser.add_argument("--prompt", type=int, default=4064)
    parser.add_argument("--shared", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=8000, help="ids of prompts are below it")
    parser.add_argument("--host-memory", default="8G")
    parser.add_argument("--levels", default="none,device,host,folder")
    parser.add_argument("--folder", help="where the folder's files are made; default: a temporary folder")
    parser.add_argument("--option", action="append", default=[], help="of proa serve; may be given more than once")
    parser.add_argument("--machine", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--csv", type=pathlib.Path)
    args = parser.parse_args()
    for level in args.levels.split(","):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            results = measure(args, level, folder)
        times, cached = sorted(r[0] for r in results), sorted(r[1] for r in results)
        print(f"{level:7} {statistics.median(times):9.1f} ms   {cached[0]} to {cached[-1]} tokens reused", flush=True)
        row = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": args.machine,
               "commit": args.commit, "label": f"prefix in: {level}", "clients": 1, "rate": 0, "prompt": args.prompt, "tokens": 1,
               "shared": args.shared, "requests": len(times), "failed": 0, "ttft_p50_ms": round(statistics.median(times), 2),
               "ttft_p90_ms": round(times[int(0.9 * (len(times) - 1))], 2), "ttft_p99_ms": round(times[-1], 2)}
        if args.csv:
            with args.csv.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS, restval="").writerow(row)


if __name__ == "__main__":
    main()
