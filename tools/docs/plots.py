#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plots.py [--check]: draws the pictures of docs/gallery.md, docs/img/plot-*.svg, from the measurements in bench/results.
Each picture keeps a digest of its figures; --check (which needs no matplotlib) says which pictures are out of date."""
import csv
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/img"
COLORS = ["#00796b", "#b0bec5", "#ffb300", "#5c6bc0"]  # ours first
DIGEST = re.compile(r"figures ([0-9a-f]{16})")


def rows(name, **wanted):
    """The rows of a file of bench/results whose columns have these values."""
    with open(ROOT / f"bench/results/{name}.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]


def last(name, column, groups, **wanted):
    """{group: float of the last row of it}; groups: {label: {column: value}}."""
    found = {}
    for label, of in groups.items():
        matching = rows(name, **wanted, **of)
        if matching:
            found[label] = float(matching[-1][column])
    return found


def bars(title, unit, series, **look):
    """A chart of bars: series is {name: {group: value}}."""
    return {"title": title, "unit": unit, "series": series, **look}


def python():
    def of(package, *dtypes):  # of the last run of each shape
        return {shape: float([row for row in rows("python", shape=shape)
                              if row["package"].startswith(package) and row["dtype"] in dtypes][-1]["ms_token"])
                for shape in ("t5-small", "gpt2", "t5-base")}
    return bars("generate() of Python on two cores, batch 1", "ms a token (less is better)", {
        "Proa f32": of("proa", "f32"), "transformers f32": of("transformers", "f32", "float32"),
        "Proa bf16": of("proa", "bf16"), "Proa int8": of("proa", "f32 int8")})


def llama_cpp():
    types = {name: {"type": name} for name in ("bf16", "q8_0", "q4_k_m", "q4_0")}
    return bars("Decoding a Llama on two cores, batch 1, by the type of the weights", "tokens/s", {
        "Proa": last("llama_cpp", "proa_tokens_s", types), "llama.cpp": last("llama_cpp", "llama_tokens_s", types)})


def forests():
    sizes = {f"{t} x {d}, {n} row{'s' if n != '1' else ''}": {"trees": t, "depth": d, "rows": n}
             for n in ("1", "4096") for t, d in (("100", "6"), ("500", "8"), ("2000", "10"))}
    return bars("Forests: trees x depth, rows of a request", "us a request (less is better)", {
        "Proa": last("forest", "proa us", sizes), "XGBoost": last("forest", "xgboost us", sizes)}, log=True, wide=True)


def gpu():
    work = {"GPT-J-6B f16": "GPT-J-6B f16 batch 1", "Llama-2-7B f16": "Llama-2-7B f16 batch 1", "GPT-2 XL f16": "GPT-2 XL f16 batch 1",
            "T5-3B bf16": "T5-3B bf16 batch 1 32/32 all in all"}
    def of(prefix):
        return last("gpu", "value", {label: {"work": prefix + name} for label, name in work.items()}, date="2026-11-22")
    return bars("One H200, batch 1", "tokens/s", {
        "Proa": of(""), "PyTorch eager": of("PyTorch eager: "), "PyTorch compiled": of("PyTorch compiled: ")})


def two_gpus():
    models = {"GPT-J-6B f16\nbatch 1": {"model": "gptj-6b", "quant": "none", "batch": "1", "prompt": "512"},
              "GPT-J-6B fp8\nbatch 128": {"model": "gptj-6b", "quant": "fp8", "batch": "128"},
              "Llama-3-8B fp8\nbatch 1": {"model": "llama3-8b", "quant": "fp8", "batch": "1"},
              "Llama-3-8B fp8\nbatch 64": {"model": "llama3-8b", "quant": "fp8", "batch": "64"},
              "Mixtral fp8\nbatch 64": {"model": "mixtral-8x7b", "batch": "64"},
              "T5-3B f16\nbatch 1": {"model": "t5-3b", "batch": "1"}}
    one, two = ({label: float(rows("ranks_gpu", tp=tp, **of)[0]["decode_tokens_s"]) for label, of in models.items()} for tp in "12")
    return bars("Two H100s beside one", "times the tokens/s of one", {"two GPUs": {m: round(two[m] / one[m], 3) for m in models}}, line=1)


def serving():
    loads = {"128 in, 400 out": ("default options", "128", "400"), "the same beside prompts\nof 8,000 tokens": (
        "4 prompts of 8,000 tokens a second beside it", "128", "400")}
    def of(column):
        return {name: float(rows("serving_gpu", label=label, clients="64", prompt=prompt, tokens=tokens)[-1][column])
                for name, (label, prompt, tokens) in loads.items()}
    return bars("Llama-3-8B in fp8, 64 streams on one H100: time between tokens", "ms (less is better)", {
        "median": of("itl_p50_ms"), "99th percentile": of("itl_p99_ms")})


def formats():
    names = {"int8": "int8", "fp8": "fp8", "int4": "int4 by least squared error"}
    gpu_change = {label: float(rows("quality", device="one H100", format=name)[-1]["change_percent"]) for label, name in names.items()}
    calibrated = {"int8": "int8 smoothquant, calibrated", "fp8": "fp8 gptq, calibrated", "int4": "int4 awq-gptq 64, calibrated"}
    change = {label: float(rows("quality", format=name)[-1]["change_percent"]) for label, name in calibrated.items()}
    return bars("What a format costs: perplexity of a Llama of 28 M parameters", "% more than bf16 (less is better)", {
        "quantised at load": gpu_change, "calibrated (proa convert)": change})


def pipeline():
    kinds = {"no transformer": "steps only", "on a GPU": "transformer on the GPU", "int8, 16 cores": "transformer in int8",
             "f32, 16 cores": "transformer on the CPU"}
    def of(steps):
        return {label: float(rows("pipeline", pipeline=name, steps=steps, commit="1002738")[-1]["p50_ms"]) for label, name in kinds.items()}
    return bars("A transformer and a forest in one request", "ms for one text, median (less is better)", {
        "native steps": of("native"), "steps in Python": of("Python")})


def drafts():
    cases = {"draft model, greedy": ("classics-3m", "draft", "0.0"), "draft model, temperature 1": ("classics-3m", "draft", "1.0"),
             "prompt lookup, greedy": ("prompt lookup", "plain", "0.0"), "prompt lookup, temperature 1": ("prompt lookup", "plain", "1.0")}
    def of(batch):
        return {label: float(rows("speculation", drafter=d, case=c, temperature=t, batch=batch)[-1]["ratio"])
                for label, (d, c, t) in cases.items()}
    return bars("Draft tokens: a Llama of 28 M parameters on two cores", "times the tokens/s without", {
        "1 request": of("1"), "8 requests": of("8")}, line=1, wide=True)


PLOTS = [python, llama_cpp, forests, gpu, two_gpus, serving, formats, pipeline, drafts]


def digest_of(chart):
    return hashlib.sha256(json.dumps(chart, sort_keys=True).encode()).hexdigest()[:16]


def draw(chart, path):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "proa", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"})
    groups = list(dict.fromkeys(group for values in chart["series"].values() for group in values))
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    width = 0.8 / len(chart["series"])
    for i, (name, values) in enumerate(chart["series"].items()):
        at = [groups.index(group) + (i - (len(chart["series"]) - 1) / 2) * width for group in values]
        drawn = axes.bar(at, list(values.values()), width * 0.92, label=name, color=COLORS[i])
        axes.bar_label(drawn, [f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" for v in values.values()], padding=1, fontsize=7)
    axes.set_xticks(range(len(groups)), groups, fontsize=8 if not chart.get("wide") else 7)
    axes.set_title(chart["title"], fontsize=10, loc="left")
    axes.set_ylabel(chart["unit"])
    if chart.get("log"):
        axes.set_yscale("log")
    if chart.get("line"):
        axes.axhline(chart["line"], color="#607d8b", linewidth=0.8, linestyle="--")
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart["series"]) > 1:
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None, "Description": f"figures {digest_of(chart)}"})
    plt.close(figure)


def main(arguments):
    stale = []
    for plot in PLOTS:
        chart, path = plot(), IMAGES / f"plot-{plot.__name__.replace('_', '-')}.svg"
        if arguments == ["--check"]:
            found = DIGEST.search(path.read_text(encoding="utf-8")) if path.exists() else None
            if not found or found.group(1) != digest_of(chart):
                stale.append(str(path.relative_to(ROOT)))
        else:
            draw(chart, path)
    for path in stale:
        print(f"{path}: bench/results has newer figures: run tools/docs/plots.py")
    return 1 if stale else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
