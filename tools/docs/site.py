#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""site.py PROGRAM: builds the documentation site into build/site, and the manual pages into build/docs/man1.

The Markdown files of the repository are copied to build/docs/pages in their folders, so links between them stay as they
are. A link to another file leads to a copy of it, one to a folder to its README. The pages of docs/reference are made
from the program's tables and the headers. Then MkDocs builds the site with --strict: a warning is an error."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

import c_api
import manual
import reference
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "build/docs/pages"
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?(?: \"[^\"]*\")?\))")
CODE = re.compile(r"(^ *```.*?^ *```\s*?$|`[^`\n]+`)", re.M | re.S)
ASSETS = (".png", ".svg", ".css", ".js")


def sources():
    """The files of the repository that are pages or parts of them."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.splitlines():
        path = pathlib.PurePath(name)
        if not (ROOT / name).exists():
            continue
        if path.suffix == ".md" and path.parts[:2] != ("tests", "parts"):
            yield path
        elif path.parts[0] == "docs" and path.suffix in ASSETS:
            yield path


def place_of(target):
    """What a page links to for a file or folder of the repository; None where nothing can be shown."""
    if (ROOT / target).is_dir():
        return target / "README.md" if (ROOT / target / "README.md").exists() else None
    if target.suffix == ".md" or target.suffix in ASSETS or not (ROOT / target).exists():
        return target
    return target.with_name(target.name + ".txt")  # so that a browser shows it


def relink(page, text):
    """Rewrites the links of a page to what is not a page, and copies those files."""
    def one(found):
        link = found.group(2)
        if re.match(r"[a-z]+:", link):
            return found.group()
        target = pathlib.PurePath(os.path.normpath(page.parent / link))
        place = place_of(target)
        if place is None:
            return "](" + os.path.relpath("README.md", page.parent) + ")"
        if place != target or place.suffix in ASSETS:
            (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / target).is_file():
                shutil.copyfile(ROOT / target, PAGES / place)
        return found.group(1) + os.path.relpath(place, page.parent) + found.group(3)

    parts = CODE.split(text)  # code at the odd places
    for i, part in enumerate(parts):
        # GitHub wants a bar of code in a table escaped; here it would show the backslash
        parts[i] = LINK.sub(one, part) if i % 2 == 0 else part if part.lstrip().startswith("```") else part.replace("\\|", "|")
    return "".join(parts)


def stage():
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in sources():
        (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (PAGES / path).write_text(relink(path, (ROOT / path).read_text()))
        else:
            shutil.copyfile(ROOT / path, PAGES / path)


def generate(program):
    folder = PAGES / "docs/reference"
    pages = {**reference.commands(program), "metrics.md": reference.metrics(program, ROOT),
             "statuses.md": reference.statuses(ROOT), "c-api.md": c_api.c_api(ROOT)}
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def named(entries):
    """The pages that the navigation names without a pattern."""
    for entry in entries:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from named(below)
        elif "*" not in entry:
            yield entry


def expand(entries, names, taken):
    """The navigation with its patterns replaced by the pages that match; taken: those that are named elsewhere."""
    out = []
    for entry in entries:
        if isinstance(entry, dict):
            out += [{title: expand(below, names, taken)} for title, below in entry.items()]
        elif "*" not in entry:
            out.append(entry)
        else:
            matching = [n for n in fnmatch.filter(names, entry) if n not in taken and n.count("/") == entry.count("/")]
            taken.update(matching)
            out += matching
    return out


def configure():
    """Writes MkDocs' configuration with the navigation expanded."""
    settings = yaml.safe_load((ROOT / "docs/site/mkdocs.yml").read_text())
    names = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))
    settings.update(docs_dir=str(PAGES), site_dir=str(ROOT / "build/site"), nav=expand(settings["nav"], names, set(named(settings["nav"]))))
    path = ROOT / "build/docs/mkdocs.yml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def main(program):
    stage()
    generate(program)
    manual.main(program, ROOT / "build/docs/man1")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configure()]
    sys.exit(subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]))
