"""Writes the reference pages of the Python package and the command line.

scripts/reference.py FOLDER: with THALWEG_BIN naming the command line. Python's page is made of the stubs, the other one
of the help; a test compares both with what is in docs/reference.
"""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).parent.parent
STUBS = ROOT / "crates/thalweg-python/python/thalweg/_thalweg.pyi"
WIDTH = 120
REMARK = "A test compares this page with its source; `scripts/reference.py docs/reference` writes it anew."


def wrapped(text, indent="", begin=None):
    return textwrap.fill(
        " ".join(text.split()), WIDTH, initial_indent=indent if begin is None else begin, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )


def python():
    """The page of the Python package."""
    tree = ast.parse(STUBS.read_text())
    errors = [node for node in tree.body if isinstance(node, ast.ClassDef) and is_error(node)]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not is_error(node)]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    parts = [f"# Python\n\n{wrapped(REMARK)}"]
    types = [node for node in tree.body if isinstance(node, ast.Assign)]
    for node in functions:
        parts += function(node, "##")
    for node in classes:
        parts += [f"## {node.name}", *document(ast.get_docstring(node) or "")]
        for item, after in zip(node.body, [*node.body[1:], None]):
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                parts += function(item, "###", f"{node.name}.")
            elif isinstance(item, ast.AnnAssign):
                name = item.target.id
                parts += [f"### {node.name}.{name}", code(f"{name}: {ast.unparse(item.annotation)}")]
                parts += document(inspect.cleandoc(after.value.value))
    parts += ["## Types of arguments", code("\n".join(ast.unparse(node) for node in types))]
    rows = [f"| `{node.name}` | {' '.join(ast.get_docstring(node).split())} |" for node in errors]
    parts += ["## Exceptions", "\n".join(["| exception | raised for |", "| --- | --- |", *rows])]
    return "\n\n".join(parts) + "\n"


def is_error(node):
    return any(ast.unparse(base) in ("Exception", "Error") for base in node.bases)


def function(node, level, owner=""):
    plain = ast.FunctionDef(
        name=node.name, args=node.args, body=[ast.Expr(ast.Constant(...))], decorator_list=[], returns=node.returns,
        type_params=[], lineno=0,
    )
    for argument in plain.args.args[:1]:
        if argument.arg == "self":
            plain.args.args = plain.args.args[1:]
    signature = ast.unparse(plain).replace("\n    ...", "").rstrip(":")
    signature = re.sub(r"(: [^:=]+?)=(?=[\w'])", r"\1 = ", signature).replace("'", '"')
    if len(signature) > WIDTH:
        head, rest = signature.split("(", 1)
        arguments, returned = rest.rsplit(") ->", 1)
        lines = re.split(r", (?=\w+(?::|=)|\*)", arguments)
        signature = "\n".join([f"{head}(", *(f"    {line}," for line in lines), f") ->{returned}"])
    return [f"{level} {owner}{node.name}", code(signature), *document(ast.get_docstring(node) or "")]


def code(text, language="python"):
    return f"```{language}\n{text}\n```"


def document(text):
    """The paragraphs of a docstring: prose, lists of arguments, examples."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith(">>>"):
            yield code(paragraph, "pycon")
            continue
        items = re.split(r"\n(?=\w[\w, ]*: )", paragraph)
        described = [re.fullmatch(r"([a-z_]+(?:, [a-z_]+)*): (.*)", item, re.DOTALL) for item in items]
        if all(described):
            lines = []
            for found in described:
                names = ", ".join(f"`{name}`" for name in found[1].split(", "))
                lines.append(wrapped(f"{names}: {found[2]}", "  ", "- "))
            yield "\n".join(lines)
        else:
            yield wrapped(paragraph)


def command_line(program):
    """The page of the command line."""
    help_of_all = run(program, "-h")
    about, usage, sections = read(help_of_all)
    parts = [f"# Command line\n\n{wrapped(REMARK)}", wrapped(f"{about}."), code(usage, "text")]
    parts += [list_of([*sections["Arguments"], *sections["Options"]])]
    for name, _ in sections["Commands"]:
        if name != "help":
            about, usage, inner = read(run(program, name, "-h"))
            parts += [f"## thalweg {name}", wrapped(f"{about}."), code(usage, "text")]
            parts += [list_of([entry for entries in inner.values() for entry in entries])]
    shell = "`thalweg DATABASE` reads statements, which end with a semicolon, and these commands:"
    parts += ["## The shell", shell]
    parts += [code(run(program, ":memory:", given=".help\n").strip(), "text")]
    parts += ["## Exit status", "0, 1 when something failed, 2 for a wrong call, 130 after Ctrl-C."]
    return "\n\n".join(part for part in parts if part) + "\n"


def run(program, *arguments, given=""):
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=True)
    return done.stdout or done.stderr


def read(text):
    """What a command is for, how it is called, and the entries of every section of its help."""
    about, rest = text.split("\n\nUsage: ", 1)
    usage, *others = rest.split("\n\n")
    sections = {}
    for section in others:
        title, _, lines = section.partition(":\n")
        found = (re.match(r"\s+(\S.*?)(?:\s{2,}(.*))?$", line) for line in lines.rstrip().splitlines())
        sections[title] = [(entry[1], entry[2] or "") for entry in found]
    return about, "\n".join(line.strip() for line in usage.splitlines()), sections


def list_of(entries):
    shown = (entry for entry in entries if "--help" not in entry[0])
    return "\n".join(wrapped(f"`{name}`: {text}", "  ", "- ") for name, text in shown)


def pages(program):
    """The text of every page by its name."""
    return {"python.md": python(), "command-line.md": command_line(program)}


if __name__ == "__main__":
    if len(sys.argv) != 2 or "THALWEG_BIN" not in os.environ:
        sys.exit(__doc__)
    for name, text in pages(os.environ["THALWEG_BIN"]).items():
        (pathlib.Path(sys.argv[1]) / name).write_text(text)
