#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The readability pipeline (examples/readability) on one GPU: latency of one excerpt, throughput of batches of 512 from
several clients, where its steps run, and what is copied between host and GPU.

    examples/readability/prepare.py readability
    bench/gpu/readability.py readability --csv bench/results/readability_gpu.csv

| variant | tokenizer | features, average | BERT, forest |
|---|---|---|---|
| gpu | CPU, all cores | GPU | GPU |
| host | CPU, all cores | CPU | GPU |
| one | CPU, one thread | CPU | GPU |
| client | the client, in Python with `tokenizers` | the client, in Python | GPU |

A variant may have a weight format behind a colon: gpu:fp8. The scores of the first texts are compared with those of
the CPU in f32 (--reference cpu), or with the first variant's. Excerpts are cut and filled to --tokens tokens by the
server's own tokenizer, [CLS] and [SEP] included. Each client sends its next request when it has the answer to the one
before. With `gpu`, the script fails if a tensor was copied to the host beside the one that is the answer. Needs nothing
but Python; `client` needs the package tokenizers, too."""

import argparse
import array
import csv
import datetime
import functools
import http.client
import itertools
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/readability"))
import server as proa_server  # noqa: E402

MODELS = ("bert", "forest")
ON_GPU = {"gpu": (*MODELS, "features", "average"), "host": MODELS, "one": MODELS, "client": MODELS, "cpu": ()}
COUNTS = ["words", "distinct_words", "punctuation", "sentences", "characters", "long_words"]


class Client:
    """One connection that is kept open."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def infer(self, model, name, texts, output):
        return self.send(model, *request(name, texts, output))

    def send(self, model, body, header):
        """The bytes of the one output that is asked for."""
        self.http.request("POST", f"/v2/models/{model}/infer", body, {
            "Inference-Header-Content-Length": str(header), "Content-Type": "application/octet-stream"})
        answer = self.http.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{model}: {data[:500].decode()}")
        return data[int(answer.getheader("Inference-Header-Content-Length")):]


def make_request(inputs, output):
    """(body, bytes of its JSON). inputs: (name, type, shape, bytes)"""
    header = json.dumps({
        "inputs": [{"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": len(data)}}
                   for name, kind, shape, data in inputs],
        "outputs": [{"name": output, "parameters": {"binary_data": True}}]}).encode()
    return header + b"".join(data for *_, data in inputs), len(header)


def request(name, texts, output):
    rows = [text.encode() for text in texts]
    data = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
    return make_request([(name, "BYTES", [len(rows), 1], data)], output)


class Ensemble:
    """A client that sends texts, whose requests are made beforehand."""

    def __init__(self, server, _):
        self.client = Client(server.port)

    @staticmethod
    def prepare(texts):
        return request("TEXT", texts, "SCORE")

    def scores(self, prepared):
        return self.client.send("readability", *prepared)


class PythonSteps:
    """A client that does the tokenizer's, the features' and the average's work itself."""

    def __init__(self, server, folder):
        import tokenizers

        sys.path.insert(0, str(ROOT / "examples/review-pipeline"))
        import textfeatures

        self.clients = [Client(server.port), Client(server.port)]
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "repository/bert/1/tokenizer.json"))
        self.tokenizer.enable_padding()
        self.features = textfeatures.Features.of_files(COUNTS, folder / "repository/features/1", ["stopwords.txt"],
                                                       "words.txt")

    @staticmethod
    def prepare(texts):
        return texts

    def scores(self, texts):
        rows = self.tokenizer.encode_batch(texts)
        ids = array.array("i", itertools.chain.from_iterable(row.ids for row in rows))
        lengths = array.array("i", [sum(row.attention_mask) for row in rows])
        answers = [None]

        def ask_bert():
            answers[0] = self.clients[0].send("bert", *make_request(
                [("input_ids", "INT32", [len(rows), len(rows[0].ids)], ids.tobytes()),
                 ("input_lengths", "INT32", [len(rows), 1], lengths.tobytes())], "scores"))

        thread = threading.Thread(target=ask_bert)
        thread.start()
        features = array.array("f", itertools.chain.from_iterable(self.features.row(text) for text in texts))
        forest = self.clients[1].send("forest", *make_request(
            [("input__0", "FP32", [len(rows), len(features) // len(rows)], features.tobytes())], "output__0"))
        thread.join()
        return [(a + b) / 2 for a, b in zip(floats(answers[0]), floats(forest), strict=True)]


def floats(data):
    return list(memoryview(data).cast("f"))


def fit_texts(client, texts, tokens):
    """Texts of exactly `tokens` tokens: words are cut from the end, or added to it."""
    words = [text.split() for text in texts]
    left = list(range(len(texts)))
    for _ in range(200):
        parts = [[" ".join(words[i]) for i in left[at : at + 512]] for at in range(0, len(left), 512)]
        data = b"".join(client.infer("tokenizer", "QUERY", part, "REQUEST_INPUT_LEN") for part in parts)
        lengths = list(memoryview(data).cast("i"))
        for i, length in zip(left, lengths, strict=True):
            if length > tokens:
                del words[i][-max(1, (length - tokens) // 3):]
            words[i] += ["the"] * (tokens - length)
        left = [i for i, length in zip(left, lengths, strict=True) if length != tokens]
        if not left:
            break
    return [" ".join(row) for i, row in enumerate(words) if i not in left]


def count_copies(server):
    """(to the host, to the device) since the server started."""
    metrics = http.client.HTTPConnection("127.0.0.1", server.metrics_port)
    metrics.request("GET", "/metrics")
    text = metrics.getresponse().read().decode()
    return [int(re.search(rf"^proa_{name}_copies_total (\d+)", text, re.M).group(1)) for name in ("host", "device")]


class Alone(Ensemble):
    """A client of one step."""

    def __init__(self, server, step):
        super().__init__(server, None)
        self.step = step

    def prepare(self, texts):
        return request(self.step[1], texts, self.step[2])

    def scores(self, prepared):
        return self.client.send(self.step[0], *prepared)


def run_clients(make, texts, batch, clients, seconds):
    """Times of all requests, sorted, and how long all took. The first request of each client does not count."""
    times, barrier, ends = [], threading.Barrier(clients + 1), []

    def work(first):
        client, own = make(), []
        rows = [client.prepare([texts[(i * batch + k) % len(texts)] for k in range(batch)]) for i in range(8)]
        client.scores(rows[first % 8])
        barrier.wait()
        barrier.wait()
        for i in itertools.count(first):
            start = time.perf_counter()
            if start >= ends[0]:
                break
            client.scores(rows[i % 8])
            own.append(time.perf_counter() - start)
        times.extend(own)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter()
    ends.append(begin + seconds)
    barrier.wait()
    for thread in threads:
        thread.join()
    return sorted(times), time.perf_counter() - begin


def measure(server, name, texts, options):
    client = PythonSteps if name.startswith("client") else Ensemble
    makes = [("readability", lambda: client(server, options.folder))]
    makes += [(step[0], functools.partial(Alone, server, step)) for step in options.alone]
    rows = []
    for (model, make), (batch, clients) in itertools.product(makes, options.loads):
        if model != "readability" and batch == 1:
            continue
        before = count_copies(server)
        times, taken = run_clients(make, texts, batch, clients, options.seconds)
        copies = [(now - then) / (len(times) + clients)
                  for now, then in zip(count_copies(server), before, strict=True)]
        row = {"variant": name, "model": model, "tokens": options.tokens, "batch": batch, "clients": clients,
               "requests": len(times), "p50_ms": round(times[len(times) // 2] * 1e3, 3),
               "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 3),
               "texts_per_second": round(batch * len(times) / taken, 1),
               "to_host": round(copies[0], 2), "to_device": round(copies[1], 2)}
        rows.append(row)
        print("{variant:10} {model:11} batch {batch:3} clients {clients}: p50 {p50_ms:8.3f} p99 {p99_ms:8.3f} ms "
              "{texts_per_second:9.1f} texts/s; copies a request: {to_host} to the host, {to_device} to the GPU"
              .format(**row), flush=True)
    return rows


def open_server(options, variant, quant):
    parameters = [("bert", "dtype", options.dtype)] if variant != "cpu" and not quant else []
    if quant:
        parameters.append(("bert", "quant", quant))
    if variant == "one":
        parameters.append(("tokenizer", "threads", "1"))
    return proa_server.Proa(options.proa, options.folder, ON_GPU[variant], parameters + options.set,
                            options.proa_option, options.gpu)


def check_copies(rows, variant):
    for row in rows:
        if variant == "gpu" and row["model"] == "readability" and row["to_host"] != 1:
            return f"{row['to_host']} tensors of a request were copied to the host, must be 1, the answer"
    return None


def run_variant(options, name, texts, reference):
    """(rows, scores of the texts of the check)"""
    variant, _, quant = name.partition(":")
    start = time.perf_counter()
    server = open_server(options, variant, quant)
    try:
        client = Client(server.port)
        scores = floats(client.infer("readability", "TEXT", texts[:options.check], "SCORE"))
        print(f"{name:10} loaded in {time.perf_counter() - start:.1f} s")
        if reference:
            apart = max(abs(a - b) for a, b in zip(scores, reference, strict=True))
            spread = max(reference) - min(reference)
            print(f"{name:10} scores of {len(scores)} texts differ by at most {apart:.2g} (they spread over {spread:.2g})")
        rows = [] if variant == "cpu" else measure(server, name, fit_texts(client, texts, options.tokens), options)
    finally:
        log = server.log.read_text()
        server.close()
        for line in log.splitlines():
            if line[:1] in "EW":
                print(line[:300])
    wrong = check_copies(rows, variant)
    if wrong:
        options.wrong.append(f"{name}: {wrong}")
    return rows, scores


def write_csv(rows, options):
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "machine": options.machine,
             "commit": options.commit or commit}
    new = not options.csv.exists()
    with open(options.csv, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*about, *rows[0]], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({**about, **row} for row in rows)


def read_load(text):
    batch, _, clients = text.partition("x")
    return int(batch), int(clients or 1)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--proa", default=str(ROOT / "build/release/proa"))
    parser.add_argument("--proa-option", action="append", default=[], help="for proa serve")
    parser.add_argument("--set", type=proa_server.parameter, action="append", default=[], metavar="MODEL:KEY=VALUE")
    parser.add_argument("--variants", default="gpu,host,gpu:fp8")
    parser.add_argument("--reference", choices=("cpu", "first"), default="first")
    parser.add_argument("--dtype", default="f16", help="of BERT's weights, where a variant has no format")
    parser.add_argument("--gpu", type=int, default=0, help="its number")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--loads", default="1,512,512x2,512x4", help="BATCHxCLIENTS, ...")
    parser.add_argument("--steps", action="store_true", help="measure the tokenizer and the features alone, too")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--check", type=int, default=8, help="texts whose scores are compared")
    parser.add_argument("--machine", default="one GPU")
    parser.add_argument("--commit", help="default: of the tree")
    parser.add_argument("--csv", type=pathlib.Path, help="a table to append to")
    options = parser.parse_args()
    options.loads = [read_load(load) for load in options.loads.split(",")]
    options.alone = [("tokenizer", "QUERY", "INPUT_ID"), ("features", "TEXT", "FEATURES")] if options.steps else []
    options.wrong = []
    return options


def main():
    options = read_options()
    texts = (options.folder / "excerpts.txt").read_text(encoding="utf-8").splitlines()[:2048]
    names, rows, reference = options.variants.split(","), [], None
    for name in (["cpu"] if options.reference == "cpu" else []) + names:
        own, scores = run_variant(options, name, texts, reference)
        reference = reference or scores
        rows += own
    if options.csv and rows:
        write_csv(rows, options)
    if options.wrong:
        raise SystemExit("\n".join(options.wrong))


if __name__ == "__main__":
    main()
