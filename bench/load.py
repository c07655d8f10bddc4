#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a running server of OpenAI's API with streamed completions, and measures throughput and latencies.

    bench/load.py --model NAME [--url http://localhost:8000] --clients 256 --prompt 1000 --tokens 1000 [--requests 512]

Prompts are random token ids, so that a server needs no particular tokenizer; every request ends after --tokens tokens.

closed loop  (default) each of --clients sends its next request when the last one has ended.
open loop    --rate R: requests arrive at random times, R a second on average (a Poisson process), whatever the server does.
--of-closed X  a closed loop is measured first, and then an open loop at X times its rate of requests.
--shared N   the first N tokens of all prompts are the same (a system prompt).
--intrude P,R  beside the load, R requests a second arrive that have prompts of P tokens and want one token.
--no-max C   the clients want all that fits into a context of C tokens, as chats do that do not name max_tokens; they stop
             reading and close after --tokens tokens.

Output: tokens a second (of the time between the first and the last token of the load), and median, 90th and 99th percentile of the
time to the first token and of the time between tokens, in ms. --json prints one object, --csv FILE appends a row.
"""
import argparse
import asyncio
import csv
import datetime
import json
import multiprocessing
import os
import pathlib
import random
import sys
import time
import urllib.parse

COLUMNS = ["date", "machine", "commit", "label", "clients", "rate", "prompt", "tokens", "shared", "requests", "failed", "tokens_s",
           "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms"]


class Request(asyncio.Protocol):
    """One streamed completion on a connection of its own. `done` gets (begin, [times], tokens, error)."""

    def __init__(self, head, body, limit):
        self.head, self.body, self.limit = head, body, limit
        self.done = asyncio.get_running_loop().create_future()
        self.begin, self.times, self.tokens, self.tail, self.error = time.monotonic(), [], 0, b"", None
        self.begun = False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.head + self.body)

    def data_received(self, data):
        now, data = time.monotonic(), self.tail + data
        line = data.rfind(b"\n") + 1
        data, self.tail = data[:line], data[line:]
        events = data.count(b"\ndata: {") + data.startswith(b"data: {")
        if not self.begun and not data.startswith(b"HTTP/1.1 200"):
            self.error = data[:300].decode("utf-8", "replace")
        self.begun = True
        if events:
            self.times.append(now)
            self.tokens += events
        if b"data: [DONE]" in data or self.error or (self.limit and self.tokens >= self.limit):
            self.transport.close()

    def connection_lost(self, why):
        if not self.done.done():
            self.done.set_result((self.begin, self.times, self.tokens, self.error))


class Load:
    def __init__(self, args, seed):
        self.args, self.random = args, random.Random(seed)
        url = urllib.parse.urlparse(args.url)
        self.host, self.port = url.hostname, url.port or 80
        shared = random.Random(args.seed)
        self.shared = [shared.randrange(10, args.vocab) for _ in range(args.shared)]
        self.results = []

    async def send(self, prompt, tokens):
        ids = self.shared + [self.random.randrange(10, self.args.vocab) for _ in range(prompt - len(self.shared))]
        want = {"model": self.args.model, "prompt": ids, "stream": True, "ignore_eos": True, "temperature": self.args.temperature,
                "seed": self.random.randrange(1 << 30)}
        want["max_tokens"] = self.args.no_max - prompt if self.args.no_max and tokens > 1 else tokens
        want.update(json.loads(self.args.extra))
        body = json.dumps(want).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        limit = tokens if self.args.no_max else 0
        _, request = await asyncio.get_running_loop().create_connection(lambda: Request(head, body, limit), self.host, self.port)
        return await request.done

    async def client(self, requests):
        for _ in range(requests):
            self.results.append(await self.send(self.args.prompt, self.args.tokens))

    async def arrivals(self, rate, requests, prompt, tokens, results):
        running = set()
        for _ in range(requests):
            await asyncio.sleep(self.random.expovariate(rate))
            running.add(asyncio.ensure_future(self.send(prompt, tokens)))
        for request in running:
            results.append(await request)

    async def run(self, clients, requests, rate, intrude):
        intruders = None
        if intrude:
            intruders = asyncio.ensure_future(self.arrivals(intrude[1], 1 << 30, int(intrude[0]), 1, []))
        if rate:
            await self.arrivals(rate, requests, self.args.prompt, self.args.tokens, self.results)
        else:
            each = [requests // clients + (i < requests % clients) for i in range(clients)]
            await asyncio.gather(*(self.client(n) for n in each))
        if intruders:
            intruders.cancel()
        return self.results


def split(total, parts, part):
    return total // parts + (part < total % parts)


def process(args, index, count, start, pipe):
    load = Load(args, args.seed * 1000 + index)
    intrude = tuple(float(x) for x in args.intrude.split(",")) if args.intrude and index == 0 else None
    clients = split(args.clients, count, index)
    time.sleep(max(0.0, start - time.monotonic()))
    pipe.send(asyncio.run(load.run(clients, split(args.requests, count, index), args.rate / count, intrude)))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] * 1000 if values else float("nan")


def summary(args, results):
    good = [r for r in results if not r[3] and r[1]]
    bad = [r for r in results if r[3] or not r[1]]
    if bad:
        print(f"load.py: {len(bad)} requests failed, the first: {bad[0][3] or 'no token'}", file=sys.stderr)
    if not good:
        sys.exit(1)
    gaps = [b - a for r in good for a, b in zip(r[1], r[1][1:])]
    first = [r[1][0] - r[0] for r in good]
    seconds = max(r[1][-1] for r in good) - min(r[0] for r in good)
    row = {"clients": args.clients, "rate": round(args.rate, 3), "prompt": args.prompt, "tokens": args.tokens, "shared": args.shared,
           "requests": len(good), "failed": len(bad), "tokens_s": round(sum(r[2] for r in good) / seconds, 1)}
    for name, values in (("ttft", first), ("itl", gaps)):
        for p in (50, 90, 99):
            row[f"{name}_p{p}_ms"] = round(percentile(values, p / 100), 2)
    return row


def measure(args):
    """One load by several processes: its row, and the requests that ended in a second."""
    count = max(1, min(args.processes, args.clients))
    start, pipes = time.monotonic() + 0.5, []
    for index in range(count):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        multiprocessing.Process(target=process, args=(args, index, count, start, theirs), daemon=True).start()
        pipes.append(ours)
    results = [r for pipe in pipes for r in pipe.recv()]
    ends = [r[1][-1] for r in results if r[1]]
    row = summary(args, results)
    row |= {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": args.machine,
            "commit": args.commit, "label": args.label}
    return row, len(ends) / (max(ends) - min(r[0] for r in results))


def write_row(args, row):
    if args.csv:
        new = not args.csv.exists()
        with args.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)
    if args.json:
        print(json.dumps(row))
        return
    loop = f"open loop, {row['rate']:.2f} requests/s" if row["rate"] else f"closed loop, {row['clients']} clients"
    print(f"{loop}: {row['requests']} requests, {row['failed']} failed, {row['tokens_s']:.0f} tokens/s")
    for name, what in (("ttft", "first token"), ("itl", "between tokens")):
        print(f"{what:15s} ms: " + ", ".join(f"p{p} {row[f'{name}_p{p}_ms']:.2f}" for p in (50, 90, 99)) +
              (f" ({row['itl_p99_ms'] / row['itl_p50_ms']:.2f} times the median)" if name == "itl" else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0, help="open loop: requests a second")
    parser.add_argument("--of-closed", type=float, default=0, help="then an open loop at this share of the closed loop's rate")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--requests", type=int, default=0, help="0: two for each client")
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=8000, help="ids of prompts are below it")
    parser.add_argument("--intrude", help="P,R: beside the load, R prompts of P tokens a second")
    parser.add_argument("--no-max", type=int, default=0, metavar="CONTEXT")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--extra", default="{}", help="JSON members added to every request")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--label", default="")
    parser.add_argument("--machine", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.requests = args.requests or 2 * args.clients
    row, rate = measure(args)
    write_row(args, row)
    if args.of_closed:
        args.rate = args.of_closed * rate
        write_row(args, measure(args)[0])


if __name__ == "__main__":
    main()
