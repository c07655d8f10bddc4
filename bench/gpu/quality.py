#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each format costs: BLEU of a translator, perplexity of a language model and accuracy of an encoder, on the CPU in f32 and
on the GPU in every format.

    bench/gpu/quality.py [--lm FOLDER] [--lines N] [--windows N] [--device cuda] [--no-cpu]

m30k-t5 translates Multi30k test 2016 (English to German, greedy), 16 or 256 sentences at once: beyond 16 rows a step computes in
other forms (docs/gpu.md). Perplexity is of prompts, so of many rows, over the books that classics-28m was not trained on; it is looked
for in PROA_SHARED and ../shared, and where it is not models/classics-10m stands in, which is said. PROA_BIN names the program.

Exit 1: the GPU in f32, f16 or bf16 is more than 0.2 BLEU or 0.1 % of perplexity from the CPU in f32, or a figure is missing.
Formats of fewer bits are shown, not judged. table.py prints the same costs beside its speeds."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

import card

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/golden/data"
BLEU_MOST, PERPLEXITY_MOST = 0.2, 0.1  # BLEU; per cent
AT_ONCE = 6  # runs that share the card: nothing is timed


class Format(typing.NamedTuple):
    """As the options of proa say it; together: sentences translated at once."""
    device: str
    dtype: str
    quant: str = "none"
    pages: str = "auto"
    together: int = 16

    def name(self):
        quant = "" if self.quant == "none" else f" {self.quant}"
        return self.dtype + quant + ("" if self.pages == "auto" else f", {self.pages} pages")

    def options(self):
        return ["--device", self.device, "--dtype", self.dtype, "--quant", self.quant, "--kv-dtype", self.pages, "--json"]


def every_format(device):
    g = device
    return [Format(g, "f32"), Format(g, "f16"), Format(g, "f16", together=256), Format(g, "bf16"), Format(g, "f16", "fp8"),
            Format(g, "f16", "fp8", together=256), Format(g, "f16", "fp8", "fp8", 256), Format(g, "f16", "int8"),
            Format(g, "f16", "int4")]


def language_model():
    """classics-28m where it is, else what the repository has."""
    shared = pathlib.Path(os.environ.get("PROA_SHARED", str(ROOT.parent / "shared"))) / "models/classics-28m"
    return shared if (shared / "config.json").exists() else ROOT / "models/classics-10m"


class Quality:
    """Figures by format, each measured once. windows and lines: 0 is all. A model that is not there is said and left out."""

    def __init__(self, program, lm=None, lines=0, windows=0):
        self.program, self.lines, self.windows = program, lines, windows
        self.models = {"bleu": ROOT / "models/m30k-t5", "perplexity": lm or language_model(),
                       "accuracy": ROOT / "models/polarity-bert"}
        self.known, self.environment = {}, None
        for what, folder in list(self.models.items()):
            if not (folder / "config.json").exists():
                print(f"  no {folder}: no {what}", file=sys.stderr)
                del self.models[what]

    def about(self):
        return ", ".join(f"{what} of {folder.name}" for what, folder in self.models.items())

    def evaluate(self, what, form, options):
        """One number of the report; None with the reason said."""
        command = [self.program, "eval", str(self.models[what]), *options, *form.options()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=self.environment, check=False)
        if done.returncode:
            print(f"  {what}, {form.name()}: {done.stderr.strip()[-200:]}", file=sys.stderr)
            return None
        return json.loads(done.stdout)[what]

    def bleu(self, form):
        return self.evaluate("bleu", form, ["--source", str(DATA / "test_2016_flickr.en.gz"), "--target",
                                            str(DATA / "test_2016_flickr.de.gz"), "--prefix", "translate English to German: ",
                                            "--limit", str(self.lines), "--sequences", str(form.together)])

    def perplexity(self, form):
        return self.evaluate("perplexity", form, ["--data", str(DATA / "classics-validation.txt.gz"), "--limit",
                                                  str(self.windows)])

    def accuracy(self, form):
        return self.evaluate("accuracy", form, ["--labels", str(DATA / "polarity-test.tsv"), "--limit", str(self.lines)])

    def measure(self, forms):
        """All that is not known yet, several at once."""
        wanted = sorted({(what, self.asked(what, form)) for form in forms for what in self.models} - set(self.known))
        with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            self.environment = {**os.environ, "XDG_CACHE_HOME": cache}  # what is timed on a shared card is for nobody else
            values = list(pool.map(lambda w: getattr(self, w[0])(w[1]), wanted))
        self.known.update(zip(wanted, values))

    @staticmethod
    def asked(what, form):
        """How many run at once is the translator's alone."""
        return form if what == "bleu" else form._replace(together=16)

    def value(self, what, form):
        return self.known.get((what, self.asked(what, form)))

    def cost(self, what, form, base):
        """BLEU or accuracy (in points) less base's; perplexity in per cent of base's. None: not known."""
        mine, right = self.value(what, form), self.value(what, base)
        if mine is None or right is None:
            return None
        return 100 * (mine / right - 1) if what == "perplexity" else (mine - right) * (100 if what == "accuracy" else 1)


def holds(quality, form, base):
    """Whether a format that does not quantise is as good as the CPU's f32."""
    most = {"bleu": BLEU_MOST, "perplexity": PERPLEXITY_MOST}
    costs = {what: quality.cost(what, form, base) for what in most if what in quality.models}
    return all(value is not None and abs(value) <= most[what] for what, value in costs.items())


def shown(value, form):
    return "-" if value is None else form.format(value)


def print_row(quality, form, base, verdict):
    percent = 100 if quality.value("accuracy", form) is not None else None
    numbers = ((quality.value("bleu", form), "{:.2f}"), (quality.cost("bleu", form, base), "{:+.2f}"),
               (quality.value("perplexity", form), "{:.4f}"), (quality.cost("perplexity", form, base), "{:+.3f} %"),
               (percent and percent * quality.value("accuracy", form), "{:.2f} %"),
               (quality.cost("accuracy", form, base), "{:+.2f}"))
    print(f"{form.device:<7}{form.name():<22}{form.together:>8}" + "".join(f"{shown(v, f):>11}" for v, f in numbers)
          + f"  {verdict}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm", type=pathlib.Path, default=language_model(), help="a language model")
    parser.add_argument("--lines", type=int, default=0, help="sentences to translate; 0: all 1,000")
    parser.add_argument("--windows", type=int, default=0, help="of the language model's context; 0: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-cpu", action="store_true", help="compare with the device's own f32")
    return parser.parse_args()


def main():
    args = arguments()
    card.needed(args.device)
    quality = Quality(os.environ.get("PROA_BIN", str(ROOT / "build/release/proa")), args.lm, args.lines, args.windows)
    forms = every_format(args.device)
    base = forms[0] if args.no_cpu else Format("cpu", "f32")
    print(quality.about())
    print(f"{'':<7}{'':<22}{'at once':>8}" + "".join(f"{w:>11}" for w in ("BLEU", "", "perplexity", "", "accuracy", "")))
    missing = failed = False
    quality.measure([base] + forms)
    for form in dict.fromkeys([base] + forms):
        judged = form != base and form.quant == "none"
        verdict = "" if not judged else "ok" if holds(quality, form, base) else "DIFFERS"
        print_row(quality, form, base, verdict)
        failed |= verdict == "DIFFERS"
        missing |= any(quality.value(what, form) is None for what in quality.models)
    return 1 if failed or missing or not quality.models else 0


if __name__ == "__main__":
    sys.exit(main())
