# SPDX-License-Identifier: Apache-2.0
"""The page of the C library, made of the public headers: each declaration with its comment, in the headers' order."""
import re

HEADERS = {"proa.h": "The engine", "hub.h": "Models by name", "status.h": "Errors"}
# A comment before a declaration, or a preprocessor line with its continuations, or a declaration up to its semicolon.
COMMENT = re.compile(r"/\*.*?\*/\n?", re.S)
DIRECTIVE = re.compile(r"#(?:[^\n]*\\\n)*[^\n]*\n?")
HEADS = "(?:Owner|Threads|Errors|Way in)"  # the paragraphs of a header's comment
HIDDEN = re.compile(r"#(?!define PROA_)|#define PROA_\w+_H\b|#define PROA_EXPORT|extern \"C\" \{|\}\n")


def text_of(comment):
    """The text of a comment without its stars; lines that are indented stay code."""
    lines = [re.sub(r"^ *\* ?", "", line) for line in comment.strip()[1:-2].split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def declaration_end(source, at):
    """Where the declaration that begins at `at` ends: behind the semicolon outside of braces, with a comment there."""
    depth, i = 0, at
    while i < len(source):
        if source.startswith("/*", i):
            i = source.index("*/", i) + 2
            continue
        depth += {"{": 1, "}": -1}.get(source[i], 0)
        i += 1
        if source[i - 1] == ";" and depth == 0:
            break
    trailing = re.compile(r" *(/\*.*?\*/)?\n?", re.S).match(source, i)
    return trailing.end()


def declarations(source):
    """[(comment or "", declaration), ...] of a header behind its first comment."""
    found, comment, at = [], "", COMMENT.match(source).end()
    while at < len(source):
        if source[at] == "\n":
            comment, at = "", at + 1
            continue
        part = COMMENT.match(source, at)
        if part:
            comment, at = part.group(), part.end()
            continue
        hidden = HIDDEN.match(source, at)
        part = DIRECTIVE.match(source, at)
        end = part.end() if part else hidden.end() if hidden else declaration_end(source, at)
        if not hidden:
            found.append((text_of(comment) if comment else "", source[at:end].rstrip()))
        comment, at = comment if hidden else "", end
    return found


def name_of(declaration):
    """The name that a declaration declares."""
    if declaration.startswith("#define"):
        return re.match(r"#define (\w+)", declaration).group(1)
    code = COMMENT.sub("", declaration)
    if code.startswith("typedef") and "{" in code:
        return re.search(r"\}\s*(\w+)\s*;\s*$", code).group(1)
    if code.startswith("typedef") and "(" not in code:
        return re.search(r"(\w+)\s*;\s*$", code).group(1)
    return re.search(r"(\w+)\(", code).group(1)


def mark_code(text):
    """Identifiers and pointers of a sentence as code, which Markdown would take for emphasis."""
    return re.sub(r"\*\w+|\b(?:proa|PROA|HF)_\w+(?:\.\w+)*|\b\w+_\w+\b|\w+\[[^\]]*\]", r"`\g<0>`", text)


def code(declaration):
    """A declaration as a block, without the mark of the shared library and the padding of macros."""
    if declaration.startswith("PROA_EXPORT "):
        declaration = re.sub(r"^ {12}", "", declaration.removeprefix("PROA_EXPORT "), flags=re.M)
    return "```c\n" + re.sub(r" +\\$", r" \\", declaration, flags=re.M) + "\n```"


def prose(text):
    """A comment as Markdown: indented examples become code blocks, lines of `Word:  text` a list."""
    blocks = []
    for part in re.split(r"\n{2,}", text):
        lines = part.split("\n")
        if all(line.startswith("    ") for line in lines):
            blocks.append("```c\n" + "\n".join(line[4:] for line in lines) + "\n```")
            continue
        joined = re.sub(r"\n\s*", " ", re.sub(rf"\n(?={HEADS}:)", "\0", part))
        entries = [re.sub(rf"^({HEADS}):\s+", r"**\1**: ", mark_code(entry)) for entry in joined.split("\0")]
        blocks.append("\n\n".join(entries))
    return "\n\n".join(blocks)


def examples_apart(text):
    """Blank lines around the indented lines of a comment, so that prose() sees them as blocks of their own."""
    lines = text.split("\n")
    out = []
    for before, line in zip([""] + lines, lines):
        if before.strip() and line.strip() and before.startswith("    ") != line.startswith("    "):
            out.append("")
        out.append(line)
    return "\n".join(out)


def header_page(name, title, source):
    """The section of a header."""
    first = text_of(COMMENT.match(source).group())
    about = re.sub(r"\A.*\n\S+ - ", "", first.replace("SPDX-License-Identifier: Apache-2.0", "", 1))
    about = re.sub(r"^ {9}(?=\S)", "", about, flags=re.M)  # lines that go on below the word after a colon
    page = [f"## {title}: proa/{name}", prose(examples_apart(about[0].upper() + about[1:]))]
    for comment, declaration in declarations(source):
        section = re.match(r"---- (.*?) -*\n+", comment)
        if section:
            page.append("## " + section.group(1)[0].upper() + section.group(1)[1:])
            comment = comment[section.end():]
        page.append(f"### {name_of(declaration)}")
        if comment:
            page.append(prose(examples_apart(comment)))
        page.append(code(declaration))
    return "\n\n".join(page)


def c_api(root):
    """The page as Markdown."""
    sections = [header_page(name, title, (root / "include/proa" / name).read_text()) for name, title in HEADERS.items()]
    return "# The C library\n\nMade from the headers in `include/proa`. A program includes `proa/proa.h` and links with " \
           "`pkg-config --libs proa`;\n`examples/generate.c` is a complete one.\n\n" + "\n\n".join(sections) + "\n"
