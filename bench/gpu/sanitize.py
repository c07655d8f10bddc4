#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer over kerncheck's small shapes and over whole models: a table of what each tool names.

Every op in f32 and in views of 16 bits, the own product of Hopper in place of cuBLASLt (PROA_TUNE=own), and passes of models
with recorded graphs, quantised weights, pages of e4m3, beams and draws. Says which kinds of kernels ran, and which never did.

    bench/gpu/sanitize.py [--tools memcheck,racecheck] [--every 61] [--within 180] [--jobs N] [--only WORDS]

Exit 1: a tool named something or kerncheck failed. Exit 2: else, but something did not come in time or a kernel did not run.
Without --every 1 it is a sample; a prime meets all variants. PROA_BIN and PROA_KERNCHECK name the programs."""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import card

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCH, MODELS = ROOT / "tests/golden/arch", ROOT / "models"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 99  # compute-sanitizer's exit status when it names something; kerncheck's own is 1
KINDS = ("attend (decode)", "attend (prefill)", "attend (short)", "attend (fallback)", "attend (plain)", "linear (few rows)",
         "linear (skinny)", "linear (cuBLASLt)", "argmax", "sample", "top_k", "rope_append")
OWN_OF_BF16 = ("attend", "linear", "rope_append", "kv_append")  # a sample takes the others' in f16
HOPPER_KINDS = ("attend (flash)", "linear (pipelined)", "linear (split-K)", "linear (wgmma)")


RUNNING = set()


def end(process):
    """It and what runs under it: the tool starts the program as a process of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_all(*_):
    for process in list(RUNNING):
        end(process)
    os._exit(143)  # threads wait for more work


class Job:
    """One command under one tool."""

    def __init__(self, title, tool, command, **environment):
        self.title, self.tool, self.command, self.environment = title, tool, command, environment
        self.state, self.seconds, self.kinds, self.text = "late", 0.0, set(), ""

    def run(self, until, sanitizer):
        left = until - time.monotonic()
        if left < 5:
            return
        command = [sanitizer, "--tool", self.tool, "--error-exitcode", str(FOUND), "--print-limit", "5"] + self.command
        start = time.monotonic()
        process = subprocess.Popen(command, env={**os.environ, **self.environment}, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        RUNNING.add(process)
        try:
            text, _ = process.communicate(timeout=left)
            self.judge(process.returncode, text)
        except subprocess.TimeoutExpired:
            end(process)
        RUNNING.discard(process)
        self.seconds = time.monotonic() - start

    def judge(self, status, text):
        named = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
        count = sum(int(number) for pair in named for number in pair if number)
        self.kinds = {kind for kind in KINDS + HOPPER_KINDS if re.search(rf"^{re.escape(kind)} +\d+ ", text, re.M)}
        self.state = "ok" if status == 0 and named and not count else f"{count} named" if count else "failed"
        self.text = text


def ops():
    lists = (ROOT / "src/kernels" / name for name in ("ops.def", "decode.def"))
    return [op for path in lists for op in re.findall(r"^PROA_OP\((\w+),", path.read_text(encoding="utf-8"), re.M)]


def kerncheck_jobs(tool, args):
    program = os.environ.get("PROA_KERNCHECK", str(ROOT / "build/release/tests/kerncheck"))
    base = [program, "--device", "cuda", "--every", str(args.every)]
    for op in ops():
        for narrow in ("f16", "bf16", "f32") if op in OWN_OF_BF16 or args.every == 1 else ("f16", "f32"):
            view = [] if narrow == "f32" else ["--narrow", narrow]
            yield Job(f"{op} {narrow}", tool, base + ["--op", op] + view, PROA_TRACE="1")
            if op == "linear" and view:
                yield Job(f"{op} {narrow}, own product", tool, base + ["--op", op] + view, PROA_TRACE="1", PROA_TUNE="own")


def model_jobs(tool):
    program = os.environ.get("PROA_BIN", str(ROOT / "build/release/proa"))
    runs = (
        ("llama f16", ARCH / "llama", "--ids", "5 6 7 8", "--dtype", "f16"),
        ("llama3 bf16, draws", ARCH / "llama3", "--ids", "5 6 7 8", "--dtype", "bf16", "--temperature", "0.8", "--top-k", "9"),
        ("gptj f16, int8", ARCH / "gptj", "--ids", "5 6 7 8", "--dtype", "f16", "--quant", "int8"),
        ("mistral f16, int4", ARCH / "mistral", "--ids", "5 6 7 8", "--dtype", "f16", "--quant", "int4"),
        ("classics-10m f16, fp8, e4m3 pages", MODELS / "classics-10m", "It was a dark and stormy night, " * 6, "--dtype", "f16",
         "--quant", "fp8", "--kv-dtype", "fp8"),
        ("m30k-t5 f16, beams", MODELS / "m30k-t5", "translate English to German: A dog runs.", "--dtype", "f16", "--beams", "4"),
        ("polarity-bert f16", MODELS / "polarity-bert", "a warm and funny film", "--dtype", "f16"),
    )
    for title, folder, *options in runs:
        if not (folder / "config.json").exists():
            print(f"  no {folder}: left out", file=sys.stderr)
            continue
        tokens = [] if "bert" in title else ["--max-tokens", "6"]
        yield Job(title, tool, [program, "run", str(folder), *options, *tokens, "--device", "cuda"], PROA_TUNE="off")


def print_table(jobs, tools):
    """A line for each thing that was run, a column for each tool."""
    print(f"{'':<36}" + "".join(f"{tool:>12}{'s':>7}" for tool in tools))
    for title in dict.fromkeys(job.title for job in jobs):
        row = {job.tool: job for job in jobs if job.title == title}
        print(f"{title:<36}" + "".join(f"{row[tool].state:>12}{row[tool].seconds:>7.1f}" for tool in tools))


def print_reasons(jobs):
    for job in jobs:
        if job.state not in ("ok", "late"):
            print(f"\n{job.tool}, {job.title}: {' '.join(job.command)}\n" + "\n".join(job.text.splitlines()[:40]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", default="memcheck,racecheck", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--every", type=int, default=61, help="each Nth case of kerncheck")
    parser.add_argument("--within", type=float, default=180, help="seconds for all")
    parser.add_argument("--jobs", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 2)), help="at once")
    parser.add_argument("--only", help="rows whose title has one of these words, between commas")
    parser.add_argument("--sanitizer", default=os.environ.get("PROA_SANITIZER", "compute-sanitizer"))
    return parser.parse_args()


def main():
    args = arguments()
    capability, = card.ask("compute_cap")
    start = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_all)
    tools = args.tools.split(",")
    words = args.only.split(",") if args.only else [""]
    jobs = [job for tool in tools for job in (*kerncheck_jobs(tool, args), *model_jobs(tool))
            if any(word in job.title for word in words)]
    jobs.sort(key=lambda job: (not job.title.startswith("attend"), not job.title.startswith("linear")))  # what takes longest
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        os.environ["XDG_CACHE_HOME"] = cache  # what is chosen under a tool is no choice for others
        list(pool.map(lambda job: job.run(start + args.within, args.sanitizer), jobs))
    print_table(jobs, tools)
    print_reasons(jobs)
    wanted = KINDS + (HOPPER_KINDS if capability == "9.0" else ())
    missing = {tool: sorted(set(wanted).difference(*(job.kinds for job in jobs if job.tool == tool))) for tool in tools}
    for tool, kinds in missing.items():
        print(f"{tool}: every kind of kernel ran" if not kinds else f"{tool}: never ran: {', '.join(kinds)}")
    late = sum(job.state == "late" for job in jobs)
    bad = sum(job.state not in ("ok", "late") for job in jobs)
    print(f"{len(jobs)} runs in {time.monotonic() - start:.0f} s, every {args.every}th case: {bad} not clean, {late} not in time")
    return 1 if bad else 2 if late or (not args.only and any(missing.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
