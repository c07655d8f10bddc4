# SPDX-License-Identifier: Apache-2.0
"""What the guides have in common: a prepared copy of a model repository, Proa as its server, clients run as they are, and what
`proa run` says for the same requests."""
import ast
import contextlib
import dataclasses
import difflib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wire"))
from wire import PROA, Server  # noqa: E402

CLIENT_SECONDS = 600


class Failed(Exception):
    """A client ended otherwise than it should, or got something else than `proa run` says."""


def expect(true, text):
    if not true:
        raise Failed(text)


# ---- repositories ----


class Repository:
    """A copy of a checkout's model repository, and which of its lines differ from the checkout's."""

    def __init__(self, source, folder):
        self.source, self.path = pathlib.Path(source), pathlib.Path(folder)
        shutil.copytree(self.source, self.path)

    def put(self, file, old, new):
        """Puts one path in place of another."""
        text = (self.path / file).read_text()
        expect(text.count(old) == 1, f"{file} does not have {old!r} once")
        (self.path / file).write_text(text.replace(old, new))

    def fill(self, fill_template, file, values):
        """The checkout's own fill_template.py, as the guide calls it."""
        text = ",".join(f"{name}:{value}" for name, value in values.items())
        subprocess.run([sys.executable, fill_template, "--in_place", self.path / file, text], check=True)

    def changed(self):
        """Names of the parameters on lines that are not the checkout's."""
        names = set()
        for file in sorted(self.path.rglob("config.pbtxt")):
            lines = file.read_text().splitlines()
            before = (self.source / file.relative_to(self.path)).read_text().splitlines()
            for tag, _, _, begin, end in difflib.SequenceMatcher(None, before, lines, autojunk=False).get_opcodes():
                names |= {name_of(lines, at) for at in range(begin, end)} if tag != "equal" else set()
        return ", ".join(sorted(names))


def name_of(lines, at):
    """The parameter whose value stands on this line, or the field itself."""
    for line in reversed(lines[max(0, at - 2) : at + 1] if "string_value" in lines[at] else []):
        if (key := re.search(r'key: "(\w+)"', line)):
            return key[1]
    return lines[at].split(":")[0].strip()


@contextlib.contextmanager
def serving(repository, *options):
    """Proa on Triton's usual ports, since some clients know no others; Python models run under this Python."""
    env = {"PROA_PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"}
    with Server("--model-repository", str(repository), *options, repositories=(), env=env, ports=()) as server:
        yield server


# ---- clients ----


class Ran:
    def __init__(self, process, seconds):
        self.status, self.out, self.err, self.seconds = process.returncode, process.stdout, process.stderr, seconds

    def section(self, title):
        """What it printed behind the line with this title, up to the next line of equal signs."""
        return self.out.split(title, 1)[1].split("\n", 1)[1].split("\n=====", 1)[0]


def run_client(script, *arguments, folder, status=0):
    begin = time.monotonic()
    command = [sys.executable, str(script), *map(str, arguments)]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CLIENT_SECONDS)
    ran = Ran(process, time.monotonic() - begin)
    expect(ran.status == status, f"status {ran.status}: {(ran.out + ran.err).strip()[-400:]}")
    return ran


def post(path, body):
    """What the guides ask with curl; gives the answer's lines as JSON."""
    command = ["curl", "-s", "-X", "POST", "localhost:8000" + path, "-d", json.dumps(body)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CLIENT_SECONDS).stdout
    answers = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    expect(answers and "error" not in answers[0], text)
    return answers


# ---- what numpy printed, what a script sends ----


def numbers(text):
    """The integers of a printed array, of a list of numpy's integers too."""
    return [int(one) for one in re.findall(r"-?\d+", re.sub(r"np\.u?int\d+", "", text))]


def rows(text):
    """The innermost lists of integers."""
    return [numbers(one) for one in re.findall(r"\[([^\[\]]*)\]", re.sub(r"np\.u?int\d+", "", text))]


def byte_texts(text):
    """The bytes objects of a printed array or list."""
    found = re.findall(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""", text)
    return [ast.literal_eval(one).decode("utf-8", "replace") for one in found]


def constant(script, name):
    """The first value that a script gives to a variable, if it is written out: its prompts."""
    for node in ast.walk(ast.parse(pathlib.Path(script).read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            with contextlib.suppress(ValueError):
                value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
                return ast.literal_eval(value)
    raise Failed(f"{script} has no {name}")


# ---- the oracle ----


class Oracle:
    """`proa run` on a model's folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __call__(self, requests):
        """Results of these requests, as docs/decoding.md describes JSON lines, in their order."""
        text = "".join(json.dumps(one) + "\n" for one in requests)
        command = [str(PROA), "run", str(self.folder), "--input", "-", "--json"]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CLIENT_SECONDS)
        expect(ran.returncode == 0, f"proa run: {ran.stderr.strip()[-400:]}")
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def one(self, **request):
        return self([request])[0]

    @property
    def tokenizer(self):
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))


# ---- the table ----


@dataclasses.dataclass
class Row:
    script: str
    arguments: str
    result: str
    good: bool


class Table:
    """Rows in sections: one for each model repository, with what was changed in it."""

    def __init__(self):
        self.sections = []

    def section(self, title, changed):
        self.sections.append((title, changed, []))

    def add(self, script, arguments, check):
        """One row: check() runs the client and says what was compared, or raises Failed."""
        try:
            result, good = check(), True
        except (Failed, AssertionError, subprocess.SubprocessError, LookupError, ValueError) as wrong:
            result, good = f"FAILED: {type(wrong).__name__}: {wrong}", False
        self.sections[-1][2].append(Row(str(script), arguments, result, good))
        print(f"{'ok    ' if good else 'FAILED'} {script} {arguments}: {result}", file=sys.stderr, flush=True)

    def note(self, script, why):
        """Scripts that cannot run here, and why."""
        self.sections[-1][2].append(Row(script, "", why, True))

    def markdown(self):
        lines = []
        for title, changed, rows_of in self.sections:
            lines += [f"## {title}", ""] + ([f"Changed: {changed}.", ""] if changed else [])
            lines += ["| script | arguments | result |", "|---|---|---|"]
            for row in rows_of:
                cells = [one.replace("\n", " ").replace("|", "\\|") for one in (row.script, row.arguments, row.result)]
                lines.append("| " + " | ".join(cells) + " |")
            lines.append("")
        return "\n".join(lines)

    @property
    def failed(self):
        return [row for _, _, rows_of in self.sections for row in rows_of if not row.good]


@contextlib.contextmanager
def work_folder(keep):
    """A folder for prepared repositories and what clients write."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="proa-guides-"))
    try:
        yield folder
    finally:
        if keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
