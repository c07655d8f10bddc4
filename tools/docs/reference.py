# SPDX-License-Identifier: Apache-2.0
"""Pages made of the program's own tables: its commands, its metrics and its statuses. Each function returns Markdown."""
import json
import pathlib
import re
import subprocess
import tempfile
import urllib.request

# What is served while the metrics are read: a model of each kind.
SERVED = ["models/m30k-t5", "models/polarity-bert", "examples/review-pipeline/repository"]
FOR_METRICS = ["summary_latencies", "histogram_latencies"]
REQUEST = {"text_input": "translate English to German: A dog runs."}


def cell(text):
    return (text or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def usage_of(row):
    value = row["value"] or ""
    return f"{row['name']} [{value}]" if value and row["value_optional"] else f"{row['name']} {value}".strip()


def options(rows):
    lines = ["| option | default | what it does |", "|---|---|---|"]
    for row in rows:
        lines.append(f"| `{usage_of(row)}` | {cell(row['default'])} | {cell(row['help'])} |")
    return "\n".join(lines)


def command_page(command):
    page = [f"# proa {command['name']}", command["summary"][0].upper() + command["summary"][1:] + ".",
            f"    {command['usage']}"]
    for table in command["tables"]:
        page += [f"## {table['title'][0].upper()}{table['title'][1:]}", options(table["rows"])]
    if command["examples"]:
        page += ["## Examples", command["examples"].replace("\n  ", "\n    ").rstrip().replace("  ", "    ", 1)]
    return "\n\n".join(page) + "\n"


def commands(program):
    """{file name: page} of all commands, with the overview as commands.md."""
    listed = json.loads(subprocess.run([program, "help", "--json"], check=True, capture_output=True).stdout)["commands"]
    lines = ["# The commands", "", "Each command has a manual page too (`man proa-run`), made from the same tables. The exit status is "
             "0 on success,", "1 after a failure, 2 after a wrong command line, and 130 after Ctrl-C.", "",
             "| command | what it does |", "|---|---|"]
    lines += [f"| [`proa {c['name']}`](commands/{c['name']}.md) | {c['summary']} |" for c in listed]
    pages = {f"commands/{c['name']}.md": command_page(c) for c in listed}
    return {"commands.md": "\n".join(lines) + "\n", **pages}


def scrape(program, root):
    """The text of /metrics of a server that has answered a request."""
    config = [word for key in FOR_METRICS for word in ("--metrics-config", f"{key}=true")]
    ports = [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen([program, "serve", *SERVED, *ports, *config, "--cache-config", "local,size=1048576",
                               "--trace-config", "file=/dev/null", "--json"],
                              cwd=root, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            try:
                line = server.stdout.readline()
                if not line:
                    log.seek(0)
                    raise SystemExit("the server did not start:\n" + log.read())
                ready = json.loads(line)
                urllib.request.urlopen(f"http://localhost:{ready['http_port']}/v2/models/m30k-t5/generate",
                                       json.dumps(REQUEST).encode(), timeout=60).read()
                with urllib.request.urlopen(f"http://localhost:{ready['metrics_port']}/metrics", timeout=60) as answer:
                    return answer.read().decode()
            finally:
                server.terminate()


def metrics(program, root):
    """The metrics that a server with one model of each kind has."""
    families, labels = {}, {}
    for line in scrape(program, root).splitlines():
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            families.setdefault(name, {"help": text})
        elif line.startswith("# TYPE "):
            families[line.split(" ")[2]]["type"] = line.split(" ")[3]
        else:
            name, found = re.match(r"(\w+)(?:\{(.*)\})?", line).groups()
            family = next((n for n in (name, re.sub(r"_(bucket|sum|count)$", "", name)) if n in families), None)
            keys = re.findall(r'(\w+)="', found or "")
            labels.setdefault(family, dict.fromkeys(keys)).update(dict.fromkeys(keys))
    page = ["# Metrics", "",
            "`GET http://HOST:8002/metrics` gives these in Prometheus' text form. The table was read from a server with a "
            "transformer,", "an encoder, a forest, an ensemble and a response cache, and with `--metrics-config` for "
            + " and ".join(f"`{k}=true`" for k in FOR_METRICS) + ".",
            "[The server](../server.md#metrics-and-statistics) explains the most important ones. Further families are those of",
            "[GPUs](../server.md#metrics-and-statistics), [replicas](../gpu.md#replicas) and "
            "[Python models](../python.md), where these are.", "",
            "| metric | type | labels | what it is |", "|---|---|---|---|"]
    for name in sorted(families):
        keys = ", ".join(f"`{key}`" for key in labels.get(name, {}) if key not in ("le", "quantile"))
        page.append(f"| `{name}` | {families[name].get('type', '')} | {keys} | {cell(families[name]['help'])} |")
    return "\n".join(page) + "\n"


def statuses(root):
    """The statuses of the library and what each is in the protocols."""
    text = (pathlib.Path(root) / "include/proa/status.h").read_text()
    rows = re.findall(r'X\((\w+), (\d+), (\d+), "([^"]*)"\)', text)
    grpc = {0: "OK", 1: "CANCELLED", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
            8: "RESOURCE_EXHAUSTED", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS"}
    page = ["# Statuses", "", "Every error has one of these statuses and one line of text that says what is wrong and where. "
            "The library returns it,", "the program prints the line after `proa:`, the server answers with the code of the protocol. "
            "[The C library](c-api.md#proa_err)", "describes `proa_err`.", "",
            "| status | meaning | HTTP | gRPC |", "|---|---|---|---|"]
    page += [f"| `PROA_{name}` | {meaning} | {http} | {code} {grpc[int(code)]} |" for name, code, http, meaning in rows]
    return "\n".join(page) + "\n"
