# SPDX-License-Identifier: Apache-2.0
"""Each check of tools/ that ./do lint runs over text fails on a fault that is planted here, in a small tree of its own, and
passes without it. Run by pytest; needs no build: what a check reads of one is compiled here."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = "/* SPDX-License-Identifier: Apache-2.0\n * {0} - what it is for. */\n"
LAYERS = "# the floors\nbase:\nnet: base\n"
GRAPH = """<!-- layers -->
```
net        may include  base
base       may include  nothing
```
<!-- /layers -->
"""
CLEAN = {
    "src/LAYERS": LAYERS,
    "ARCHITECTURE.md": GRAPH,
    "src/base/README.md": "text.h, text.c\n",
    "src/base/text.h": HEAD.format("text.h") + "typedef struct proa_text proa_text;\n#define PROA_TEXT_MAX 8\n",
    "src/base/text.c": HEAD.format("text.c") + '#include "base/text.h"\nstruct proa_text {\n    int size;\n};\n',
    "src/net/README.md": "wire.c\n",
    "src/net/wire.c": HEAD.format("wire.c") + '#include "base/text.h"\ntypedef struct wire wire;\n',
}


def put(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tools").mkdir()
    for tool in ("check-names", "check-form", "check-layers", "check-complexity", "check-commits",
                 "check-circles"):
        shutil.copy(ROOT / "tools" / tool, tmp_path / "tools")
    put(tmp_path, {"tools/form.allow": "", "tools/complexity.allow": "", "tools/names.allow": "",
                   "tools/circles.allow": "", **CLEAN})
    names = tmp_path / "tools/check-names"  # the names of this repository are not those of the small tree
    names.write_text("".join("KNOWN = set()\n" if line.startswith("KNOWN") else line for line in names.open()))
    for folder in ("include", "examples", "tests", "bench"):
        (tmp_path / folder).mkdir()
    return tmp_path


def check(tree, tool, *args, **more):
    done = subprocess.run([tree / "tools" / tool, *args], capture_output=True, text=True, timeout=60, **more)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def fails(tree, files, message, tool, *args):
    assert check(tree, tool, *args) == (0, "")
    put(tree, files)
    code, out = check(tree, tool, *args)
    assert code == 1 and message in out, out


def source(name, text):
    return HEAD.format(name) + text


@pytest.mark.parametrize("text, word", [
    ("typedef struct {\n    int (*of)(int);\n} proa_span;\n", "type proa_span"),
    ("typedef enum { PROA_ONE } proa_span;\n", "type proa_span"),
    ("struct proa_span {\n    int at;\n};\n", "type proa_span"),
    ("typedef int (*proa_span)(int a, int b);\n", "type proa_span"),
    ("typedef int64_t proa_span;\n", "type proa_span"),
    ("union proa_span { int i; float f; };\n", "type proa_span"),
])
def test_type_in_two_floors(tree, text, word):
    put(tree, {"src/base/span.h": source("span.h", "typedef struct proa_span {\n    int begin;\n} proa_span;\n")})
    fails(tree, {"src/net/span.h": source("span.h", text)}, word, "check-names")


def test_type_of_the_public_header_in_a_floor(tree):
    put(tree, {"include/proa/proa.h": source("proa.h", "typedef enum proa_finish { A, B } proa_finish;\n")})
    fails(tree, {"src/net/wire.c": source("wire.c", "typedef struct {\n    int a;\n} proa_finish;\n")},
          "type proa_finish is defined in 2 floors", "check-names")


def test_macro_in_two_floors(tree):
    fails(tree, {"src/net/wire.h": source("wire.h", "#  define PROA_TEXT_MAX 9\n")}, "macro PROA_TEXT_MAX", "check-names")


def test_declared_twice_is_defined_once(tree):
    put(tree, {"src/net/wire.h": source("wire.h", "typedef struct proa_text proa_text;\n/* typedef int proa_text; */\n")})
    assert check(tree, "check-names") == (0, "")


def test_names_of_one_file_may_be_in_two(tree):
    job = "typedef struct {\n    int a;\n} job;\n#define ROW 1\n"
    put(tree, {"src/net/wire.c": source("wire.c", job), "src/base/text.c": source("text.c", job)})
    assert check(tree, "check-names") == (0, "")


@pytest.mark.parametrize("name, code, word", [
    ("src/net/wire.c", "static int read(int a)\n{\n    return a;\n}\n", "read"),
    ("src/net/wire.c", "static PROA_COLD const char *name(void);\n", "name"),
    ("src/net/wire.h", "static inline void step(int a) { (void)a; }\n", "step"),
    ("src/net/wire.h", "V_INLINE void widen(float *out)\n{\n}\n", "widen"),
    ("src/net/wire.cu", "template <int N>\nstatic __global__ void __launch_bounds__(256) sum(float *x)\n{\n}\n", "sum"),
    ("src/net/wire.cu", "static int list(const std::vector<int> &a,\n                int b)\n{\n}\n", "list"),
])
def test_static_of_one_word(tree, name, code, word):
    fails(tree, {name: source("wire", code)}, f"{name}: static function '{word}' has a name of one word", "check-names")
    put(tree, {"tools/names.allow": f"{name} {word}  # as POSIX calls it\n"})
    assert check(tree, "check-names") == (0, "")
    put(tree, {name: source("wire", "")})
    code, out = check(tree, "check-names")
    assert code == 1 and f"has no static function '{word}' any more" in out, out


def test_statics_that_are_fine(tree):
    put(tree, {"src/net/wire.c": source("wire.c", "static int read_header(int a);\n/* static int read(int a); */\n"
                                        "static const int table[] = {read(1)};\nstatic int x = read(2);\n"
                                        "#define MAKE(t) static void t##_run(t)\nint main(void);\n"
                                        "static void (*hook)(int);\n")})
    assert check(tree, "check-names") == (0, "")


@pytest.mark.parametrize("name, text", [
    ("src/net/loop.c", "/* SPDX-License-Identifier: Apache-2.0 */\nint a;\n"),
    ("src/net/loop.c", HEAD.format("wire.c")),
    ("src/net/loop.cu", "int a;\n"),
    ("include/loop.h", ""),
    ("bench/loop.cuh", "// loop.cuh - of another form\n"),
])
def test_head(tree, name, text):
    fails(tree, {name: text}, f"{name}:1: heads: does not begin with", "check-form", "heads")


@pytest.mark.parametrize("name", ["src/net/wire.c", "src/base/gpu.cu", "tests/a.h", "examples/a.c"])
def test_width(tree, name):
    fails(tree, {name: source("wire.c", "int a;\n/* " + "x" * 118 + " */\n")}, f"{name}:4: width: 124 characters", "check-form",
          "width")


def test_prose(tree):
    put(tree, {"docs/a.md": "| " + "x " * 80 + "|\n```\n" + "x " * 80 + "\n```\n[" + "a b](" + "x/" * 80 + "y.md)\n"})
    fails(tree, {"docs/b.md": "one\n" + "ab " * 41 + "\n"}, "docs/b.md:2: prose: 123 characters", "check-form", "prose")


@pytest.mark.parametrize("text, message", [
    ("1. Read it. 2. Write it.", "a numbered item inside a line"),
    ("1. Read it\n   twice.   Then", "several spaces inside a line"),
    ("It ends with status\n1. Then", "a line of a paragraph begins like a numbered item"),
])
def test_broken_list(tree, text, message):
    put(tree, {"docs/a.md": "# A\n1.  One of `a  b`,\n    code  here\n2. and 3.5. Two\n- of 4\n\n    ./x  # 5. It\n"})
    assert check(tree, "check-form", "prose") == (0, "")
    fails(tree, {"docs/b.md": text + "\n"}, message, "check-form", "prose")


@pytest.mark.parametrize("code", [
    "int a __attribute__((unused));", "int f(int a) { return __builtin_ctz(a); }", '__asm__ volatile("pause");',
    "int b = ({ 1; });", "__typeof__(1) a;",
])
def test_extension(tree, code):
    put(tree, {"src/base/compiler.h": source("compiler.h", code), "src/base/note.c": source("note.c", "/* ({ */\n")})
    fails(tree, {"src/net/wire.c": source("wire.c", "\n" + code + "\n")}, "src/net/wire.c:4: extensions: ", "check-form",
          "extensions")


def test_allowed_files_only_shrink(tree):
    wide = "/* " + "x" * 130 + " */\n"
    put(tree, {"src/net/wire.c": source("wire.c", wide), "tools/form.allow": "width src/net/ 1  # one\nheads src/base/text.c\n"})
    assert check(tree, "check-form", "width") == (0, "")
    code, out = check(tree, "check-form", "heads")
    assert code == 1 and "'heads src/base/text.c' is no longer needed" in out
    put(tree, {"src/net/wire.h": source("wire.h", wide)})
    code, out = check(tree, "check-form", "width")
    assert code == 1 and "src/net/: 2 where tools/form.allow has 1" in out
    (tree / "src/net/wire.h").unlink()
    assert check(tree, "check-form", "--shrink") == (0, "")
    assert (tree / "tools/form.allow").read_text() == "width src/net/ 1  # one\n"


@pytest.mark.parametrize("files, message", [
    ({"src/base/text.c": source("text.c", '#include "net/wire.h"\n')}, "base must not include net/wire.h"),
    ({"src/net/wire.c": source("wire.c", "")}, "no file of net includes base: remove the grant"),
    ({"src/net/loop.cu": source("loop.cu", "")}, "src/net/README.md: does not name loop.cu"),
    ({"src/net/tls/tls.c": source("tls.c", ""), "src/net/README.md": "wire.c tls.c\n"}, "does not name tls/"),
    ({"src/net/README.md": " ".join(f"f{i}.c" for i in range(19)) + " wire.c", **{f"src/net/f{i}.c": "" for i in range(19)}},
     "src/net: 20 sources in one folder"),
    ({"ARCHITECTURE.md": GRAPH.replace("nothing", "net")}, "ARCHITECTURE.md: between"),
])
def test_layers(tree, files, message):
    fails(tree, files, message, "check-layers")


def test_complexity_of_cuda(tree):
    if not shutil.which("pmccabe"):
        pytest.skip("no pmccabe")
    kernel = ("template <int N>\n__global__ void __launch_bounds__(N * (1 + 2), 2)\n    branchy_kernel(int *a)\n{\n"
              + "    if (a[0]) a[1]++;\n" * 15 + "}\n")
    fails(tree, {"src/base/gpu.cu": source("gpu.cu", kernel)}, "branchy_kernel has 20 lines and complexity 16", "check-complexity")
    put(tree, {"tools/complexity.allow": "src/base/gpu.cu branchy_kernel 20 16  # a reason\n"})
    assert check(tree, "check-complexity") == (0, "")


def compiled(tree, files):
    """Puts the files there and compiles them as the build does, each into the objects of its floor."""
    put(tree, files)
    for name in files:
        target = tree / f"build/release/CMakeFiles/proa_{name.split('/')[1]}.dir/{name}.o"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-c", "-o", target, tree / name], check=True, timeout=60)


needs_objects = pytest.mark.skipif(not (shutil.which("cc") and shutil.which("nm")), reason="no cc or no nm")
LOW, HIGH = "int low(void) { return 1; }\n", "int low(void);\nint high(void) { return low(); }\n"
UP = "int high(void);\nint low(void) { return high(); }\n"
ROUND = "src/net: circle of 2 files: high.c needs low of low.c; low.c needs high of high.c\n"


@needs_objects
def test_circles(tree):
    code, out = check(tree, "check-circles")
    assert code == 1 and "build/release: no objects" in out, out
    assert "circles: no objects in build/release" in lint(tree, "circles")[1]
    compiled(tree, {"src/net/low.c": LOW, "src/net/high.c": HIGH})
    assert check(tree, "check-circles") == (0, "")
    compiled(tree, {"src/net/low.c": UP})
    assert check(tree, "check-circles") == (1, ROUND)
    code, out = lint(tree, "circles")
    assert code == 1 and ROUND in out and "0 passed, 1 failed" in out, out


@needs_objects
def test_circles_through_a_table_and_a_third_file(tree):
    compiled(tree, {"src/net/a.c": "extern int (*const table[1])(void);\nint a(void) { return table[0](); }\n",
                    "src/net/b.c": "int c(void);\nint (*const table[1])(void) = {c};\n",
                    "src/net/c.c": "int a(void);\nint c(void) { return a(); }\n"})
    way = "src/net: circle of 3 files: a.c needs table of b.c; b.c needs c of c.c; c.c needs a of a.c\n"
    assert check(tree, "check-circles") == (1, way)


@needs_objects
def test_circles_of_two_folders_and_of_moved_files_do_not_count(tree):
    compiled(tree, {"src/net/high.c": HIGH, "src/net/inner/low.c": UP, "src/net/low.c": UP})
    (tree / "src/net/low.c").unlink()
    assert check(tree, "check-circles") == (0, "")


@needs_objects
def test_allowed_circles_only_shrink(tree):
    compiled(tree, {"src/net/low.c": UP, "src/net/high.c": HIGH})
    put(tree, {"tools/circles.allow": check(tree, "check-circles", "--list")[1] + "# a remark\n"})
    assert check(tree, "check-circles") == (0, "")
    compiled(tree, {"src/net/low.c": "int high(void), third(void);\nint low(void) { return high() + third(); }\n",
                    "src/net/third.c": "int low(void);\nint third(void) { return low(); }\n"})
    code, out = check(tree, "check-circles")
    assert code == 1 and "src/net: circle of 3 files" in out, out
    compiled(tree, {"src/net/low.c": LOW})
    code, out = check(tree, "check-circles")
    assert code == 1 and "tools/circles.allow: src/net/low.c is in no circle that is allowed any more" in out, out


def test_subjects_of_commits(tree):
    if not shutil.which("git"):
        pytest.skip("no git")
    assert "skipped" in check(tree, "check-commits")[1]
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(tree)]
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("first", "x" * 72, "y" * 73):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject, "-m", "z" * 90], check=True)
    env = {"PATH": "/usr/bin:/bin", "SINCE": "HEAD~2", "HOME": str(tree)}
    code, out = check(tree, "check-commits", env=env)
    assert code == 1 and "73 characters" in out and "xxx" not in out
    assert check(tree, "check-commits", env={**env, "SINCE": "HEAD"}) == (0, "")


def lint(tree, name):
    """One check of tools/lint itself, with what it printed."""
    shutil.copy(ROOT / "tools/lint", tree / "tools")
    shutil.copy(ROOT / "tools/words", tree / "tools")
    shutil.copy(ROOT / ".clang-format", tree)
    for tool in ("fmt", "check-links", "check-references"):
        shutil.copy(ROOT / "tools" / tool, tree / "tools")
    (tree / "build").mkdir(exist_ok=True)
    done = subprocess.run([tree / "tools/lint"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "LINT": name})
    assert done.returncode == (0 if "1 passed, 0 failed" in done.stdout else 1), done.stdout + done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("check, needs, files, message", [
    ("format", "clang-format", {"src/base/gpu.cu": source("gpu.cu", "int  a;\n")}, "src/base/gpu.cu:3:"),
    ("format", "clang-format", {"bench/tile.cuh": source("tile.cuh", "int a ;\n")}, "bench/tile.cuh:3:"),
    ("banned", "grep", {"src/net/loop.c": source("loop.c", "void f(char *a)\n{\n    strcpy(a, a);\n}\n")}, "loop.c:5:"),
    ("banned", "grep", {"src/base/gpu.cu": source("gpu.cu", "int f(char *a)\n{\n    return atoi(a);\n}\n")}, "gpu.cu:5:"),
    ("spelling", "codespell", {"src/base/gpu.cu": source("gpu.cu", "/* teh tile */\n")}, "gpu.cu:3: teh"),
    ("spelling", "codespell", {"docs/a.md": "A recieved text.\n"}, "docs/a.md:1: recieved"),
    ("links", "sed", {"docs/a.md": "[b](b.md)\n"}, "docs/a.md: b.md is not there"),
    ("links", "sed", {"docs/a.md": "# A `b` c\n[here](#a-b-c)\n[there](#c)\n"}, "docs/a.md: #c has no such heading"),
    ("references", "sed", {"src/net/wire.c": source("wire.c", "/* Freed by proa_text_drop. */\n")},
     "src/net/wire.c:3: there is no proa_text_drop"),
    ("references", "sed", {"src/net/README.md": "`wire.c`, `wires.c`\n"}, "src/net/README.md:1: there is no wires.c"),
    ("width", "sed", {"src/net/README.md": "wire.c\n", "src/base/gpu.cuh": source("gpu.cuh", "/* " + "x" * 120 + " */\n")},
     "gpu.cuh:3: width"),
    ("prose", "sed", {"src/net/README.md": "wire.c " + "x " * 60 + "\n"}, "src/net/README.md:1: prose"),
])
def test_check_of_lint(tree, check, needs, files, message):
    if not shutil.which(needs):
        pytest.skip(f"no {needs}")
    code, out = lint(tree, check)
    assert code == 0, out
    put(tree, files)
    code, out = lint(tree, check)
    assert code == 1 and message in out and "0 passed, 1 failed" in out, out


@pytest.mark.parametrize("check, path, text, message", [
    ("ruff", "tools/a.py", "import os\n", "F401"),
    ("ruff", "python/proa/a.py", "A = " + "1 + " * 40 + "1\n", "E501"),
    ("mypy", "python/proa/a.py", "def f(a):\n    return a\n", "no-untyped-def"),
    ("mypy", "python/proa/a.py", "A: int = 'a'\n", "assignment"),
])
def test_python_check_of_lint(tree, monkeypatch, check, path, text, message):
    venv = ROOT / "build/lint-venv"
    if not venv.exists():
        pytest.skip("no build/lint-venv: ./do lint makes it")
    monkeypatch.setenv("PROA_LINT_VENV", str(venv))
    put(tree, {name: "A = 1\n" for name in ("python/proa/b.py", "bench/b.py", "examples/b.py", "tests/b.py", "tools/b.py")})
    shutil.copy(ROOT / "python/pyproject.toml", tree / "python")
    code, out = lint(tree, check)
    assert code == 0, out
    put(tree, {path: text})
    code, out = lint(tree, check)
    assert code == 1 and message in out and "0 passed, 1 failed" in out, out
