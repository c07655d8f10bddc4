#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual.py PROGRAM FOLDER: writes the manual pages proa.1 and proa-COMMAND.1 from the tables of the help
(`PROGRAM help --json`), in mdoc. The date is that of SOURCE_DATE_EPOCH where it is set, else today."""
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import time

ABOUT = """\
.Nm
loads models of Hugging Face, GGUF, OpenNMT-py and FasterTransformer without conversion, generates and scores texts
with them, and serves them over OpenAI's API and Triton Inference Server's protocol.
Each command has a page of its own;
.Ic proa help Ar COMMAND
prints its options.
"""
STATUS = [("0", "success"), ("1", "the command failed; one line on standard error says why"),
          ("2", "the command line is wrong"), ("130", "interrupted by Ctrl-C")]


def escape(text):
    """Text that roff leaves as it is: backslashes, dashes and control characters at the start of a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith((".", "'")) else text


def argument(text):
    """A text as one argument of a macro: quoted, and never taken for a macro or for punctuation."""
    return '"\\&' + escape(text).replace('"', '""') + '"'


def sentences(text):
    """Running text in short lines, each sentence beginning a new one, as mdoc wants it."""
    parts = re.split(r"(?<=[.!?]) +(?=[A-Z])", text.strip())
    lines = [line for part in parts for line in textwrap.wrap(part, 70, break_on_hyphens=False)]
    return "\n".join(map(escape, lines)) + "\n"


def head(title, name, summary):
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    date = time.strftime("%B %d, %Y", time.gmtime(seconds)).replace(" 0", " ")
    return f".Dd {date}\n.Dt {title.upper()} 1\n.Os Proa\n.Sh NAME\n.Nm {name}\n.Nd {escape(summary)}\n"


def row(entry):
    if entry["name"].startswith("--"):
        item = ".It Fl " + argument(entry["name"][1:])
        if entry["value"]:
            item += (" Op Ar " if entry["value_optional"] else " Ar ") + argument(entry["value"])
    else:
        item = ".It Ar " + argument(entry["name"])
    text = entry["help"] or ""
    if entry["default"]:
        text += f" (default {entry['default']})"
    return item + "\n" + (sentences(text) if text else "")


def table(entries):
    return ".Bl -tag -width Ds\n" + "".join(map(row, entries)) + ".El\n"


def exit_status():
    items = "".join(f".It {code}\n{sentences(text)}" for code, text in STATUS)
    return ".Sh EXIT STATUS\n.Bl -tag -width Ds\n" + items + ".El\n"


def examples(text):
    lines = "".join(escape(line.strip()) + "\n" for line in text.rstrip("\n").split("\n"))
    return ".Sh EXAMPLES\n.Bd -literal\n" + lines + ".Ed\n"


def see_also(names):
    return ".Sh SEE ALSO\n" + "".join(f".Xr {name} 1{' ,' if name != names[-1] else ''}\n" for name in names)


def command_page(command, names):
    name = "proa-" + command["name"]
    words = command["usage"].split()[2:-1]  # without `proa NAME` and `[options]`
    synopsis = ".Sh SYNOPSIS\n.Nm proa " + argument(command["name"]) + "\n"
    for word in words:
        optional = word.startswith("[")
        dots = " ..." if word.endswith("...") else ""
        synopsis += (".Op Ar " if optional else ".Ar ") + argument(word.strip("[.]")) + dots + "\n"
    synopsis += ".Op Ar options\n"
    first, *others = command["tables"]
    page = head(name, name, command["summary"]) + synopsis
    summary = command["summary"]
    page += ".Sh DESCRIPTION\n" + sentences(summary[0].upper() + summary[1:] + ".") + table(first["rows"])
    for part in others:
        page += f".Ss {escape(part['title'][0].upper() + part['title'][1:])}\n" + table(part["rows"])
    page += exit_status()
    if command["examples"]:
        page += examples(command["examples"])
    return page + see_also(names)


def overview_page(commands):
    summary = "runs and serves transformer models"
    page = head("proa", "proa", summary) + ".Sh SYNOPSIS\n.Nm\n.Ar COMMAND\n.Op Ar options\n"
    page += ".Sh DESCRIPTION\n" + ABOUT + ".Bl -tag -width Ds\n"
    for command in commands:
        page += f".It Xr proa-{command['name']} 1\n" + sentences(command["summary"])
    page += ".It Ic help Op Ar COMMAND\nPrint the commands, or the options of one.\n"
    page += ".It Ic help decoding\nPrint the options of a request and their names in other engines.\n"
    page += ".It Ic help models\nPrint the architectures that run.\n"
    page += ".It Ic help heads\nPrint the classifiers and embedders that are made of decoders.\n.El\n"
    return page + exit_status() + see_also([f"proa-{command['name']}" for command in sorted(commands, key=lambda c: c["name"])])


def main(program, folder):
    commands = json.loads(subprocess.run([program, "help", "--json"], check=True, capture_output=True).stdout)["commands"]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "proa.1").write_text(overview_page(commands))
    for command in commands:
        (folder / f"proa-{command['name']}.1").write_text(command_page(command, ["proa"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
