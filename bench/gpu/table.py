#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU's table: each figure beside its bar, the ceiling measured in the same run, and PyTorch on the same card.

    bench/gpu/table.py [--only WORDS] [--no-torch] [--no-compile] [--rounds 3] [--minutes 9.5] [--csv FILE]

Proa and PyTorch take turns, the median counts; random weights of the true shapes, nothing is downloaded. PROA_BIN names
the program. Rows are appended to bench/results/gpu.csv. What does not fit into the minutes is said, not measured.
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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIDE_LIMIT, COMPILE_LIMIT, PROA_LIMIT = 60, 150, 120  # seconds of one figure


def row(title, model, work, bar, unit, *, dtype="f16", quant="none", prompt=128, tokens=64, batches=(1,), goal=None,
        torch=("eager",), rounds=None, options=()):
    return {"title": title, "model": model, "work": work, "bar": bar, "goal": goal, "unit": unit, "dtype": dtype,
            "quant": quant, "prompt": prompt, "tokens": tokens, "batches": batches, "torch": torch, "rounds": rounds,
            "options": list(options)}


BOTH = ("eager", "compiled")
ROWS = [
    row("GPT-J-6B f16, batch 1", "gptj-6b", "decode", 300, "tokens/s", goal=335, torch=BOTH),
    row("GPT-J-6B fp8, batch 1", "gptj-6b", "decode", 480, "tokens/s", quant="fp8", goal=620, torch=()),
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


def torch_figure(torch, r, how, limit, again):
    """In the row's unit, or None."""
    work = {"encode_ms": "encode"}.get(r["work"], r["work"])
    key = (r["title"], how)
    if key in torch.failed or limit < 15:
        return None
    question = {"model": r["model"], "dtype": r["dtype"], "work": work, "prompt": r["prompt"], "tokens": r["tokens"],
                "batch": r["batches"][0], "compiled": how == "compiled", "again": again}
    reply = torch.ask(question, min(limit, COMPILE_LIMIT if how == "compiled" else SIDE_LIMIT))
    if "error" in reply:
        torch.failed.add(key)
        print(f"  PyTorch {how}, {r['title']}: {reply['error']}", file=sys.stderr)
        return None
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


def measure(proa, torch, r, args, until, ceilings):
    ours, theirs = [], {how: [] for how in r["torch"]}
    for turn in range(r["rounds"] or args.rounds):
        left = until - time.monotonic()
        figure = proa_figure(proa, r, left, ceilings) if left > 10 else None
        if figure is None:
            break
        ours.append(figure)
        for how in r["torch"] if torch else ():
            if how == "compiled" and (args.no_compile or turn > 1):
                continue  # compiling is paid once, but its first run takes a minute
            value = torch_figure(torch, r, how, until - time.monotonic(), turn > 0)
            if value is not None:
                theirs[how].append(value)
    middle = statistics.median(v for v, _ in ours) if ours else None
    share = statistics.median(s for _, s in ours) if ours else None
    return middle, share, {how: statistics.median(v) for how, v in theirs.items() if v}


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def ratio(r, ours, theirs):
    if ours is None or theirs is None:
        return ""
    return f"{theirs / ours if r['unit'] == 'ms' else ours / theirs:.1f}x"


HEAD = ("work", "unit", "bar", "goal", "measured", "of peak", "", "PyTorch", "", "compiled", "")
FORMAT = "{:<44} {:<11} {:>7} {:>7} {:>9} {:>8} {:<4} {:>8} {:>6} {:>8} {:>6}"


def print_row(r, ours, share, theirs):
    met = "" if ours is None or r["bar"] is None else "ok" if (ours <= r["bar"]) == (r["unit"] == "ms") else "miss"
    eager, compiled = theirs.get("eager"), theirs.get("compiled")
    print(FORMAT.format(r["title"], r["unit"], number(r["bar"]), number(r["goal"]), number(ours),
                        f"{100 * share:.0f} %" if share is not None else "-", met, number(eager), ratio(r, ours, eager),
                        number(compiled), ratio(r, ours, compiled)), flush=True)


def card():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    return name, driver


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9.5, help="after which nothing new begins")
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/gpu.csv")
    return parser.parse_args()


def main():
    args = arguments()
    until = time.monotonic() + 60 * args.minutes
    proa = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    about, ceilings, figures = (*card(), commit(proa)), [], []
    torch = None if args.no_torch else Torch()
    words = args.only.lower().split(",") if args.only else [""]
    print(f"{about[0]}, driver {about[1]}, commit {about[2]}")
    print(FORMAT.format(*HEAD), flush=True)
    try:
        for r in ROWS:
            if not any(word in r["title"].lower() for word in words):
                continue
            ours, share, theirs = measure(proa, torch, r, args, until, ceilings)
            print_row(r, ours, share, theirs)
            figures += [(r["title"], ours, r["unit"])] if ours is not None else []
            figures += [(f"PyTorch {how}: {r['title']}", value, r["unit"]) for how, value in theirs.items()]
    finally:
        if torch:
            torch.stop()
        append(args.csv, about, figures + ceilings_rows(ceilings))
    for name, value, unit in ceilings_rows(ceilings):
        print(f"{name}, measured in each run (median): {number(value)} {unit}")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
