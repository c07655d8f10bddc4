#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU's table: each figure beside its bar, the ceiling measured in the same run, what its format costs in quality, and
PyTorch on the same card.

    bench/gpu/table.py [--only WORDS] [--no-torch] [--no-compile] [--no-costs] [--rounds 3] [--within 570] [--csv FILE]

Proa and PyTorch take turns, the median counts; random weights of the true shapes, nothing is downloaded. PROA_BIN names
the program. Rows are appended to bench/results/gpu.csv. What counts most comes first: costs (quality.py), every row once
beside PyTorch eager, torch.compile, then the other rounds; what does not fit into the seconds is said, not measured.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import time

import card
import quality

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIDE_LIMIT, COMPILE_LIMIT, PROA_LIMIT = 60, 150, 120  # seconds of one figure
SIDE_LEAST, COMPILE_LEAST, PROA_LEAST = 10, 45, 8  # with fewer left none begins
COST_WINDOWS = 64  # of perplexity, 1,023 tokens each


def row(title, model, work, bar, unit, *, dtype="f16", quant="none", prompt=128, tokens=64, batches=(1,), goal=None,
        torch=("eager",), rounds=None, options=()):
    return {"title": title, "model": model, "work": work, "bar": bar, "goal": goal, "unit": unit, "dtype": dtype,
            "quant": quant, "prompt": prompt, "tokens": tokens, "batches": batches, "torch": torch, "rounds": rounds,
            "options": list(options)}


BOTH = ("eager", "compiled")
ROWS = [
    row("GPT-J-6B f16, batch 1", "gptj-6b", "decode", 300, "tokens/s", goal=335, torch=BOTH),
    row("GPT-J-6B fp8, batch 1", "gptj-6b", "decode", 480, "tokens/s", quant="fp8", goal=620, torch=()),
    row("GPT-J-6B int8, batch 1", "gptj-6b", "decode", None, "tokens/s", quant="int8", torch=()),
    row("GPT-J-6B int4, batch 1", "gptj-6b", "decode", 750, "tokens/s", quant="int4", goal=1050, torch=()),
    row("Llama-2-7B f16, batch 1", "llama2-7b", "decode", 260, "tokens/s", goal=290, torch=BOTH),
    row("GPT-2 XL f16, batch 1", "gpt2-xl", "decode", 600, "tokens/s", goal=1050, torch=BOTH),
    row("T5-3B bf16, batch 1, 32/32, all in all", "t5-3b", "all", 600, "tokens/s", dtype="bf16", goal=1100, prompt=32,
        tokens=32),
    row("T5-small f16, batch 1, 32/64, all in all", "t5-small", "all", 4000, "tokens/s", goal=14000, prompt=32),
    row("T5-small f16, batch 128, 32/64, all in all", "t5-small", "all", 150000, "tokens/s", goal=400000, prompt=32,
        batches=(128,), options=("--step-tokens", "4096")),
    row("GPT-J-6B f16, prompt of 2,045", "gptj-6b", "prompt", 50, "ms", goal=39, prompt=2045, tokens=1,
        options=("--step-tokens", "2048")),
    row("BERT-large f16, 1 x 128", "bert-large", "encode_ms", 1.0, "ms", goal=0.6),
    row("BERT-large f16, 64 x 384", "bert-large", "encode", 2600, "sequences/s", goal=3800, prompt=384, batches=(64,),
        options=("--step-tokens", "24576")),
    row("GPT-J-6B fp8, 128/128, best batch", "gptj-6b", "all", 22000, "tokens/s", quant="fp8", goal=36000, tokens=128,
        batches=(128, 256, 512), torch=(), rounds=1, options=("--step-tokens", "4096", "--kv-dtype", "fp8")),
    row("Llama-3-8B fp8, 1,024/1,024, batch 256", "llama3-8b", "all", 14000, "tokens/s", quant="fp8", goal=23000,
        prompt=1024, tokens=1024, batches=(256,), torch=(), rounds=1,
        options=("--step-tokens", "4096", "--kv-dtype", "fp8")),
    row("GPT-J-6B f16, 128/64, batch 256", "gptj-6b", "decode", None, "tokens/s", batches=(256,), torch=(), rounds=1,
        options=("--step-tokens", "4096")),
]


class Torch:
    """The other process; one that does not answer in time is ended and started anew."""

    def __init__(self):
        self.process = None
        self.failed = set()
        self.model, self.warm = None, set()  # what the process holds, and what it has run of it

    def start(self):
        self.process = subprocess.Popen([sys.executable, str(HERE / "torch_side.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        start_new_session=True)

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process:
            self.process.wait()
        self.process = None

    def ask(self, question, limit):
        if not self.process:
            self.start()
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], limit)
            line = self.process.stdout.readline() if ready else ""
        except OSError as error:
            line, ready = "", str(error)
        if line:
            return json.loads(line)
        self.stop()
        return {"error": "the process ended" if ready else f"no answer in {limit:.0f} s"}


def torch_figure(torch, r, how, limit):
    """In the row's unit, or None."""
    work = {"encode_ms": "encode"}.get(r["work"], r["work"])
    key = (r["title"], how)
    if key in torch.failed or limit < (COMPILE_LEAST if how == "compiled" and key not in torch.warm else SIDE_LEAST):
        return None
    if torch.model != (r["model"], r["dtype"]):
        torch.model, torch.warm = (r["model"], r["dtype"]), set()
    question = {"model": r["model"], "dtype": r["dtype"], "work": work, "prompt": r["prompt"], "tokens": r["tokens"],
                "batch": r["batches"][0], "compiled": how == "compiled", "again": key in torch.warm}
    reply = torch.ask(question, min(limit, COMPILE_LIMIT if how == "compiled" else SIDE_LIMIT))
    if "error" in reply:
        torch.failed.add(key)
        torch.model = None
        print(f"  PyTorch {how}, {r['title']}: {reply['error']}", file=sys.stderr)
        return None
    torch.warm.add(key)
    value = reply["value"]
    return value * 1e3 if work == "prompt" else 1e3 / value if r["work"] == "encode_ms" else value


def proa_command(proa, r):
    decoding = r["tokens"] - 1 if r["work"] == "all" else r["tokens"]  # the prompt's own token is one
    command = [proa, "bench", "--synthetic", r["model"], "--device", "cuda", "--json", "--dtype", r["dtype"], "--quant",
               r["quant"], "--prompt", str(r["prompt"]), "--tokens", str(max(decoding, 1)), "--repeats",
               "1" if r["rounds"] == 1 else "3", "--batches", ",".join(str(b) for b in r["batches"])]
    return command + r["options"]


def proa_value(r, batch):
    """The figure in its unit, and its share of the time that the measured rates allow."""
    if r["work"] == "decode":
        return batch["decode_tokens_per_s"], batch["step_share"]
    if r["work"] == "prompt":
        return batch["first_token_s"] * 1e3, batch["ready_share"]
    if r["work"] == "encode":
        return batch["sequences_per_s"], batch["ready_share"]
    if r["work"] == "encode_ms":
        return batch["batch_s"] * 1e3, batch["ready_share"]
    steps = r["tokens"] * batch["step_s"]
    floor = batch["ready_share"] * batch["ready_s"] + batch["step_share"] * steps
    return batch["all_tokens_per_s"], floor / (batch["ready_s"] + steps)


def proa_figure(proa, r, limit, ceilings):
    """The best batch's (value, share), or None with the reason said."""
    try:
        done = subprocess.run(proa_command(proa, r), capture_output=True, text=True, timeout=min(limit, PROA_LIMIT),
                              check=False)
    except subprocess.TimeoutExpired:
        print(f"  {r['title']}: no figure in time", file=sys.stderr)
        return None
    if done.returncode:
        print(f"  {r['title']}: {done.stderr.strip()[-200:]}", file=sys.stderr)
        return None
    out = json.loads(done.stdout)
    ceilings.append((out["bandwidth"], "e4m3" if r["quant"] == "fp8" else "16 bit", out.get("matrix_rate", 0)))
    values = [proa_value(r, batch) for batch in out["batches"]]
    return min(values) if r["unit"] == "ms" else max(values)


class Figures:
    """What has been measured of one row."""

    def __init__(self, r):
        self.row, self.ours, self.theirs, self.seconds = r, [], {how: [] for how in r["torch"]}, 0.0

    def rounds(self, args):
        return self.row["rounds"] or args.rounds

    def value(self):
        return statistics.median(v for v, _ in self.ours) if self.ours else None

    def share(self):
        return statistics.median(s for _, s in self.ours) if self.ours else None

    def torch(self):
        return {how: statistics.median(v) for how, v in self.theirs.items() if v}


class Session:
    """The run: a clock, both sides, and the order in which things are measured."""

    def __init__(self, args, proa):
        self.args, self.proa, self.ceilings = args, proa, []
        self.until = time.monotonic() + args.within
        self.torch = None if args.no_torch else Torch()
        self.quality = None if args.no_costs else quality.Quality(proa, args.lm, windows=COST_WINDOWS)

    def left(self):
        return self.until - time.monotonic()

    def visit(self, figures, hows):
        """One turn of each side; says what each took. False: no time for ours."""
        r, start, took = figures.row, time.monotonic(), []
        figure = proa_figure(self.proa, r, self.left(), self.ceilings) if self.left() > PROA_LEAST else None
        if figure is None:
            return False
        figures.ours.append(figure)
        took.append(f"Proa {time.monotonic() - start:.1f} s")
        for how in hows if self.torch else ():
            begin = time.monotonic()
            value = torch_figure(self.torch, r, how, self.left())
            took.append(f"{how} {time.monotonic() - begin:.1f} s")
            figures.theirs[how] += [value] if value is not None else []
        figures.seconds = time.monotonic() - start
        print(f"  {self.args.within - self.left():4.0f} s  {r['title']}: {', '.join(took)}", file=sys.stderr, flush=True)
        return True

    def costs(self, table):
        """Of all formats in the table."""
        start = time.monotonic()
        self.quality.measure([BASE] + [format_of(figures.row) for figures in table])
        print(f"  {self.args.within - self.left():4.0f} s  costs: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)

    def measure(self, table):
        if self.quality:
            self.costs(table)
        for figures in table:
            self.visit(figures, [how for how in figures.row["torch"] if how == "eager"])
        for figures in table:  # compiling is paid once, and for as long as the other side holds the model
            if "compiled" in figures.row["torch"] and self.torch and not self.args.no_compile:
                for _ in range(2):
                    self.visit(figures, figures.row["torch"])
        for turn in range(1, self.args.rounds):
            for figures in table:
                if len(figures.ours) == turn < figures.rounds(self.args) and figures.seconds < self.left():
                    self.visit(figures, [how for how in figures.row["torch"] if how == "eager"])

    def missing(self, table):
        """What did not come, in words."""
        for figures in table:
            r, rounds = figures.row, len(figures.ours)
            if rounds < figures.rounds(self.args):
                yield f"{r['title']} ({rounds} of {figures.rounds(self.args)} rounds)"
            for how in r["torch"] if self.torch else ():
                if not figures.theirs[how] and not (how == "compiled" and self.args.no_compile):
                    yield f"PyTorch {how}: {r['title']}"


BASE = quality.Format("cuda", "f32")


def format_of(r):
    """Of the row's weights, pages and class of batch."""
    pages = r["options"][r["options"].index("--kv-dtype") + 1] if "--kv-dtype" in r["options"] else "auto"
    return quality.Format("cuda", r["dtype"], r["quant"], pages, 16 if max(r["batches"]) <= 16 else 256)


MEASURES = (("bleu", "BLEU", "{:+.2f}"), ("perplexity", "perplexity", "{:+.2f} %"), ("accuracy", "accuracy", "{:+.2f}"))


def costs_of(measured, form, kinds):
    """(what, value, text) of the measures that are there."""
    for what, word, text in MEASURES:
        value = measured.cost(what, form, BASE) if what in kinds else None
        if value is not None:
            yield what, value, f"{word} {text.format(value)}"


def cost(measured, r):
    kinds = ("accuracy",) if r["work"].startswith("encode") else ("bleu", "perplexity")
    return ", ".join(text for _, _, text in costs_of(measured, format_of(r), kinds)) if measured else ""


def cost_rows(measured, table):
    """For the file: a row for each format and measure."""
    for form in dict.fromkeys(format_of(figures.row) for figures in table):
        for what, value, _ in costs_of(measured, form, measured.models):
            if what == "bleu" or form.together == 16 or form.pages != "auto":
                name = form.name() + (f" {form.together} at once" if what == "bleu" else "")
                unit = "%" if what == "perplexity" else "points"
                yield f"cost of {name}: {what} of {measured.models[what].name}", value, unit


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def ratio(r, ours, theirs):
    if ours is None or theirs is None:
        return ""
    return f"{theirs / ours if r['unit'] == 'ms' else ours / theirs:.1f}x"


HEAD = ("work", "unit", "bar", "goal", "measured", "of peak", "", "turns", "PyTorch", "", "compiled", "", "cost")
FORMAT = "{:<44} {:<11} {:>7} {:>7} {:>9} {:>8} {:<4} {:>5} {:>8} {:>6} {:>8} {:>6}  {}"


def print_row(figures, measured):
    r, ours, share, theirs = figures.row, figures.value(), figures.share(), figures.torch()
    met = "" if ours is None or r["bar"] is None else "ok" if (ours <= r["bar"]) == (r["unit"] == "ms") else "miss"
    eager, compiled = theirs.get("eager"), theirs.get("compiled")
    print(FORMAT.format(r["title"], r["unit"], number(r["bar"]), number(r["goal"]), number(ours),
                        f"{100 * share:.0f} %" if share is not None else "-", met, len(figures.ours), number(eager),
                        ratio(r, ours, eager), number(compiled), ratio(r, ours, compiled), cost(measured, r)))


def commit(proa):
    done = subprocess.run([proa, "version", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout).get("commit") or "unknown"


def append(path, about, figures):
    fresh = not path.exists() or not path.stat().st_size
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["date", "card", "driver", "commit", "work", "value", "unit"])
        for work, value, unit in figures:
            writer.writerow([datetime.date.today().isoformat(), *about, work.replace(",", ""), f"{value:.6g}", unit])


def ceilings_rows(ceilings):
    rows = [("read rate", statistics.median(b for b, _, _ in ceilings) / 1e9, "GB/s")] if ceilings else []
    for kind in ("16 bit", "e4m3"):
        rates = [r for _, k, r in ceilings if r and k == kind]
        rows += [(f"matrix rate {kind}", statistics.median(rates) / 1e12, "TFLOP/s")] if rates else []
    return rows


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", help="rows whose title has one of these words, between commas")
    parser.add_argument("--no-torch", action="store_true", help="without PyTorch")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--no-costs", action="store_true", help="without what formats cost in quality")
    parser.add_argument("--lm", type=pathlib.Path, help="the language model of the costs (quality.py)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--within", type=float, default=570, help="seconds for all of it")
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/gpu.csv")
    return parser.parse_args()


def finish(session, table, about, path):
    """The table, what is missing, and the file."""
    print(f"{about[0]}, driver {about[1]}, commit {about[2]}")
    print(FORMAT.format(*HEAD))
    rows = []
    for figures in table:
        print_row(figures, session.quality)
        title, unit, ours = figures.row["title"], figures.row["unit"], figures.value()
        rows += [(title, ours, unit)] if ours is not None else []
        rows += [(f"PyTorch {how}: {title}", value, unit) for how, value in figures.torch().items()]
    for name, value, unit in ceilings_rows(session.ceilings):
        print(f"{name}, measured in each run (median): {number(value)} {unit}")
    rows += ceilings_rows(session.ceilings)
    if session.quality:
        print(f"cost: beside f32 on this card; {session.quality.about()} (1,000 sentences, {COST_WINDOWS} windows)")
        rows += cost_rows(session.quality, table)
    missing = list(session.missing(table))
    print(f"not in time, or failed: {'; '.join(missing) or 'nothing'}", flush=True)
    append(path, about, rows)
    return bool(rows)


def main():
    args = arguments()
    proa = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    about = (*card.ask("name,driver_version"), commit(proa))
    session = Session(args, proa)
    words = args.only.lower().split(",") if args.only else [""]
    table = [Figures(r) for r in ROWS if any(word in r["title"].lower() for word in words)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # who ends it still gets what there is
    done = False
    try:
        session.measure(table)
    finally:
        if session.torch:
            session.torch.stop()
        done = finish(session, table, about, args.csv)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
