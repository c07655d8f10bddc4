#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What draft tokens gain: completions with and without them, in turns, on one server.

    bench/speculation.py MODEL --text FILE [--draft-model FOLDER] [--cases draft,edit,copy,plain] [--csv FILE]

Cases:

draft  pieces of the text are continued with what --draft-model names, a draft model or Medusa or EAGLE heads, and without.
edit   pieces of the text are continued, and the request predicts the output: what the model writes, with one word in
       twelve replaced, as when a text is written anew with changes; lookup in this prediction, and without.
copy   a passage stands in the prompt three times and begins again, of which a small model copies little; prompt lookup,
       and without.
plain  pieces of the text are continued with prompt lookup, and without: it finds little there, and must not cost much.

Each case runs greedily and with temperature 1, and with one and with eight requests at a time (--temperatures, --batches).
In each round every prompt runs once without and once with draft tokens; which comes first alternates. Prompts are in the
prefix cache by then. The ratio of a prompt is the median of those of its two times in a round; that of all prompts weighs
them by their time. The spread is that of the ratios of single rounds. Rounds go on for --seconds at most.
"""
import argparse
import concurrent.futures
import csv
import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["date", "machine", "commit", "load", "model", "drafter", "case", "temperature", "batch", "rounds", "off_tokens_s",
           "on_tokens_s", "ratio", "ratio_low", "ratio_high", "drafted", "accepted", "same_text"]


class Server:
    def __init__(self, args):
        command = [str(args.proa), "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", str(args.model),
                   "--sequences=8", *args.option]
        if args.draft_model:
            command.append(f"--draft-model={args.draft_model}")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the server did not start: " + " ".join(command))
        self.port, self.name = json.loads(line)["http_port"], args.model.name
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

    def complete(self, prompt, tokens, temperature, speculation, prediction=None):
        """speculation None: what the server does by itself, by what --draft-model names."""
        body = {"model": self.name, "prompt": prompt, "max_tokens": tokens, "temperature": temperature, "seed": 7,
                "ignore_eos": True}
        if speculation:
            body["speculation"] = speculation
        if prediction:
            body["prediction"] = {"type": "content", "content": prediction}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "error" in answer:
            sys.exit(answer["error"]["message"])
        details = answer["usage"].get("completion_tokens_details", {})
        return (answer["choices"][0]["text"], details.get("accepted_prediction_tokens", 0),
                details.get("rejected_prediction_tokens", 0))

    def complete_all(self, prompts, tokens, temperature, speculation, predictions=None):
        """Seconds that all prompts at once take, their texts, and the draft tokens that were accepted and rejected."""
        predictions = predictions or [None] * len(prompts)
        begin = time.monotonic()
        answers = list(self.pool.map(lambda p, q: self.complete(p, tokens, temperature, speculation, q), prompts, predictions))
        seconds = time.monotonic() - begin
        texts, accepted, rejected = zip(*answers)
        return seconds, texts, sum(accepted), sum(rejected)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def pieces(text, count, words):
    """Passages that begin with a paragraph, at equal distances in the text."""
    found = []
    for i in range(count):
        at = text.find("\n\n", len(text) * (2 * i + 1) // (2 * count)) + 2
        found.append(" ".join(text[at:at + 40 * words].split()[:words]))
    return found


def prompts_of(case, text, count):
    if case != "copy":
        return pieces(text, count, 30)
    return [f"{p}\n\n" * 3 + " ".join(p.split()[:8]) for p in pieces(text, count, 40)]


def changed(text):
    words = text.split(" ")
    return " ".join("another" if i % 12 == 11 else word for i, word in enumerate(words))


def median_ratio(rounds, group):
    return statistics.median(off[group] / on[group] for off, on in rounds)


def measure(server, args, case, temperature, batch):
    prompts = prompts_of(case, args.text.read_text(encoding="utf-8"), max(args.prompts, batch))
    tokens = min(args.tokens, 80) if case == "copy" else args.tokens
    groups = [prompts[i:i + batch] for i in range(0, len(prompts) - batch + 1, batch)]
    drafter = None if case == "draft" else "ngram"
    rounds, same, counts, predictions = [], True, [0, 0], []
    for group in groups:
        texts = server.complete_all(group, tokens, temperature, "none")[1]
        predictions.append([changed(text) for text in texts] if case == "edit" else None)
        server.complete_all(group, tokens, temperature, drafter, predictions[-1])
    deadline = time.monotonic() + args.seconds
    while len(rounds) < 3 or time.monotonic() < deadline and len(rounds) < args.rounds:
        times = {"none": [], drafter: []}  # of each group
        for i, group in enumerate(groups):
            order, texts = ["none", drafter][::1 if (i + len(rounds)) % 2 else -1], {}
            for speculation in order:
                seconds, texts[speculation], accepted, rejected = server.complete_all(
                    group, tokens, temperature, speculation, predictions[i] if speculation != "none" else None)
                times[speculation].append(seconds)
                counts[0] += accepted + rejected
                counts[1] += accepted
            same = same and texts["none"] == texts[drafter]
        rounds.append((times["none"], times[drafter]))
    ratios, total = sorted(sum(off) / sum(on) for off, on in rounds), len(groups) * batch * tokens
    times = [statistics.median(off[i] for off, _ in rounds) for i in range(len(groups))]
    off, on = sum(times), sum(t / median_ratio(rounds, i) for i, t in enumerate(times))
    return {"case": case, "drafter": pathlib.Path(args.draft_model).name if case == "draft" else "prompt lookup",
            "temperature": temperature, "batch": batch, "rounds": len(rounds),
            "off_tokens_s": round(total / off),
            "on_tokens_s": round(total / on),
            "ratio": round(off / on, 3), "ratio_low": round(ratios[0], 3), "ratio_high": round(ratios[-1], 3),
            "drafted": counts[0] // len(rounds), "accepted": counts[1] // len(rounds), "same_text": "yes" if same else "no"}


def machine(given):
    if given:
        return given
    model = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} x {model[0] if model else 'CPU'}"


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True, help="prose of the kind that the model knows")
    parser.add_argument("--draft-model", type=pathlib.Path)
    parser.add_argument("--cases", type=numbers(str))
    parser.add_argument("--temperatures", type=numbers(float), default=[0, 1])
    parser.add_argument("--batches", type=numbers(int), default=[1, 8])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=200, help="new tokens of a request; copy: 80 at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--proa", type=pathlib.Path, default=ROOT / "build/release/proa")
    parser.add_argument("--option", action="append", default=[], help="of proa serve, such as --option=--device=cuda")
    parser.add_argument("--machine")
    parser.add_argument("--csv", type=pathlib.Path)
    args = parser.parse_args()
    cases = args.cases or (["draft"] if args.draft_model else []) + ["edit", "copy", "plain"]
    if "draft" in cases and not args.draft_model:
        parser.error("the case draft needs --draft-model")
    commit = json.loads(subprocess.run([args.proa, "version", "--json"], capture_output=True, text=True, check=True).stdout)["commit"]
    about = {"date": datetime.date.today().isoformat(), "machine": machine(args.machine), "commit": commit,
             "load": round(os.getloadavg()[0], 1), "model": args.model.name}
    server = Server(args)
    try:
        for case in cases:
            for temperature in args.temperatures:
                for batch in args.batches:
                    row = about | measure(server, args, case, temperature, batch)
                    print("  ".join(f"{key} {row[key]}" for key in COLUMNS[5:]), flush=True)
                    if args.csv:
                        new = not args.csv.exists()
                        with open(args.csv, "a", newline="") as out:
                            writer = csv.DictWriter(out, COLUMNS)
                            if new:
                                writer.writeheader()
                            writer.writerow(row)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
