#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the variants of the readability pipeline: latency of one excerpt, throughput by batch from 1 to 512.

    venv/bin/pip install numpy tokenizers matplotlib 'tritonclient[http]'
    venv/bin/python examples/readability/table.py readability --plot readability.png

| variant | tokenizer, features, average | BERT, forest |
|---|---|---|
| cpu | server, CPU | CPU |
| client | the client, in Python | CPU, or with --gpu the GPU |
| gpu | server, GPU; the tokenizer CPU | GPU; only with --gpu |
| triton | Python models in a tritonserver | onnxruntime and treelite in Python models |

The folder is what prepare.py made. Requests go one after the other over HTTP with tensors in binary. A batch is
measured for --seconds; batches whose requests take longer than --longest seconds end a variant's row. The variant
triton needs the package nvidia-pytriton (with numpy below 2), onnxruntime and treelite. --set bert:quant=int8 adds
a parameter to a model's configuration.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import tokenizers
import tritonclient.http as triton

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "review-pipeline"), str(ROOT / "tests/triton")]
import server as proa_server  # noqa: E402
import servers  # noqa: E402
import textfeatures  # noqa: E402

COUNTS = ["words", "distinct_words", "punctuation", "sentences", "characters", "long_words"]
MODELS = ("bert", "forest")  # the others are pre- and postprocessing
ANSWER_SECONDS = 600


class Triton:
    """The tritonserver of the wheel, over the steps in Python."""

    def __init__(self, options):
        self.folder = tempfile.TemporaryDirectory()
        repository = f"--model-repository={(options.folder / 'repository-python').resolve()}"
        servers.START_SECONDS = ANSWER_SECONDS  # BERT-large takes long to load
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
        self.server = servers.Triton([repository], self.folder.name)
        self.server.start("/v2/models/readability_python/ready")
        self.port = self.server.http_port

    def close(self):
        self.server.stop()
        self.folder.cleanup()


def tensor(name, array, kind):
    made = triton.InferInput(name, list(array.shape), kind)
    made.set_data_from_numpy(array)
    return made


class Ensemble:
    """A client that sends texts."""

    def __init__(self, server, model):
        self.model, self.client = model, triton.InferenceServerClient(
            f"127.0.0.1:{server.port}", network_timeout=ANSWER_SECONDS, connection_timeout=ANSWER_SECONDS)

    def scores(self, texts):
        texts = np.array([[text.encode()] for text in texts], dtype=object)
        # All outputs: Triton's ensembles stop if one that a later step needs is left out.
        return self.client.infer(self.model, [tensor("TEXT", texts, "BYTES")]).as_numpy("SCORE")


class Client:
    """A client that does the tokenizer's, the features' and the average's work itself."""

    def __init__(self, server, folder):
        self.client = triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=2,
                                                   network_timeout=ANSWER_SECONDS, connection_timeout=ANSWER_SECONDS)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "repository/bert/1/tokenizer.json"))
        self.tokenizer.enable_truncation(512)
        self.tokenizer.enable_padding()
        self.features = textfeatures.Features.of_files(COUNTS, folder / "repository/features/1", ["stopwords.txt"],
                                                       "words.txt")

    def scores(self, texts):
        rows = self.tokenizer.encode_batch(texts)
        ids = np.array([row.ids for row in rows], np.int32)
        lengths = np.array([[sum(row.attention_mask)] for row in rows], np.int32)
        inputs = [tensor("input_ids", ids, "INT32"), tensor("input_lengths", lengths, "INT32")]
        bert = self.client.async_infer("bert", inputs)
        features = np.array([self.features.row(text) for text in texts], np.float32)
        forest = self.client.async_infer("forest", [tensor("input__0", features, "FP32")])
        return (bert.get_result().as_numpy("scores") + forest.get_result().as_numpy("output__0")) / 2


def measure(client, texts, batch, seconds):
    """Times of requests, sorted; the first one does not count, unless it alone took longer than all are given."""
    rows = [texts[i % len(texts)] for i in range(batch * 8)]
    taken, begin, i = [], time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or i < 2:
        start = time.perf_counter()
        client.scores(rows[i % 8 * batch : i % 8 * batch + batch])
        taken.append(time.perf_counter() - start)
        i += 1
        if i == 1 and taken[0] > seconds:
            break
    return sorted(taken[1:] or taken)


def open_variant(options, variant):
    """(server, client)"""
    if variant == "triton":
        server = Triton(options)
        return server, Ensemble(server, "readability_python")
    on_gpu = {"cpu": (), "client": MODELS if options.gpu else (),
              "gpu": (*MODELS, "features", "average")}[variant]
    server = proa_server.Proa(options.proa, options.folder, on_gpu, options.set, options.proa_option)
    return server, Client(server, options.folder) if variant == "client" else Ensemble(server, "readability")


def run_variant(options, variant, texts):
    """(rows of the table, the scores of some texts)"""
    server, client = open_variant(options, variant)
    rows = []
    try:
        scores = client.scores(texts[: options.check])
        for batch in options.batches:
            taken = measure(client, texts, batch, options.seconds)
            middle = taken[len(taken) // 2]
            rows.append({"variant": variant, "batch": batch, "requests": len(taken), "p50_ms": round(middle * 1e3, 3),
                         "p99_ms": round(taken[len(taken) * 99 // 100] * 1e3, 3),
                         "texts_per_second": round(batch * len(taken) / sum(taken), 3)})
            print(f"{variant:8} batch {batch:4}: {middle * 1e3:10.3f} ms {rows[-1]['texts_per_second']:12.3f} texts/s",
                  flush=True)
            if middle * 2 > options.longest:
                break
    finally:
        server.close()
    return rows, scores


def print_table(rows, options):
    print("\n| variant | latency at batch 1 | " + " | ".join(f"batch {batch}" for batch in options.batches) + " |")
    print("|---|---|" + "---|" * len(options.batches))
    for variant in options.variants:
        own = {row["batch"]: row for row in rows if row["variant"] == variant}
        rates = [f"{own[batch]['texts_per_second']:.1f}/s" if batch in own else "" for batch in options.batches]
        one = f"{own[1]['p50_ms']:.2f} ms" if 1 in own else ""
        print(f"| {variant} | {one} | " + " | ".join(rates) + " |")


def draw(rows, options):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for variant in options.variants:
        own = [row for row in rows if row["variant"] == variant]
        axes.plot([row["batch"] for row in own], [row["texts_per_second"] for row in own], "o-", label=variant)
    axes.set(xscale="log", yscale="log", xlabel="excerpts in a request", ylabel="excerpts per second",
             title="Readability pipeline: throughput by batch")
    axes.set_xticks(options.batches, [str(batch) for batch in options.batches])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(options.plot, dpi=120)


def machine():
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()) or [platform.machine()]
    return f"{names[0]} x{os.cpu_count()}"


def write_csv(rows, options):
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout
    layers = json.loads((options.folder / "repository/bert/1/config.json").read_text())["num_hidden_layers"]
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": machine(),
             "commit": commit.strip(), "load": round(os.getloadavg()[0], 2), "layers": layers,
             "set": " ".join(f"{model}:{key}={value}" for model, key, value in options.set)}
    new = not options.csv.exists()
    with open(options.csv, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*about, *rows[0]], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({**about, **row} for row in rows)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--proa", default=shutil.which("proa") or str(ROOT / "build/release/proa"))
    parser.add_argument("--proa-option", action="append", default=[], help="for proa serve")
    parser.add_argument("--variants", help="cpu,client,gpu,triton; default cpu,client and with --gpu gpu")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--set", type=proa_server.parameter, action="append", default=[], metavar="MODEL:KEY=VALUE")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128,256,512")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--longest", type=float, default=60)
    parser.add_argument("--check", type=int, default=4, help="texts whose scores all variants must agree on")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--csv", type=pathlib.Path, help="a table to append to")
    parser.add_argument("--plot", type=pathlib.Path)
    options = parser.parse_args()
    options.variants = (options.variants or ("cpu,client,gpu" if options.gpu else "cpu,client")).split(",")
    options.batches = [int(batch) for batch in options.batches.split(",")]
    return options


def main():
    options = read_options()
    texts = (options.folder / "excerpts.txt").read_text(encoding="utf-8").splitlines()
    rows, reference = [], None
    for variant in options.variants:
        own, scores = run_variant(options, variant, texts)
        rows += own
        reference = scores if reference is None else reference
        apart = float(np.abs(scores - reference).max())
        print(f"{variant:8} scores differ from {options.variants[0]}'s by {apart:.2g}")
        if apart > options.tolerance:
            raise SystemExit(f"the scores of '{variant}' differ by more than --tolerance {options.tolerance}")
    print_table(rows, options)
    if options.csv:
        write_csv(rows, options)
    if options.plot:
        draw(rows, options)


if __name__ == "__main__":
    main()
