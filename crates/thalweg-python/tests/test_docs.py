"""Examples run, and stubs say what there is."""

import ast
import doctest
import inspect
import pathlib

import pytest

import thalweg
from thalweg import _thalweg

FOLDER = pathlib.Path(thalweg.__file__).parent
CLASSES = [thalweg.Database, thalweg.Prepared, thalweg.Table, thalweg.Appender, thalweg.Result]


def docs():
    yield "thalweg", thalweg.__doc__
    yield "connect", thalweg.connect.__doc__
    for kind in CLASSES:
        yield kind.__name__, kind.__doc__
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}", member.__doc__


@pytest.mark.parametrize(("name", "text"), [pytest.param(*pair, id=pair[0]) for pair in docs()])
def test_examples_run(name, text):
    assert text, f"{name} has no documentation"
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_examples_exist():
    assert sum(">>>" in (text or "") for _, text in docs()) >= 10


def test_the_stub_names_everything():
    tree = ast.parse((FOLDER / "_thalweg.pyi").read_text())
    stub = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    public = {name for name in vars(_thalweg) if not name.startswith("_")}
    assert public == set(stub)
    assert set(thalweg.__all__) == public | {"__version__"}
    for kind in CLASSES:
        members = {node.name for node in stub[kind.__name__].body if isinstance(node, ast.FunctionDef)}
        members |= {node.target.id for node in stub[kind.__name__].body if isinstance(node, ast.AnnAssign)}
        there = {name for name in vars(kind) if not name.startswith("_")}
        assert there == {name for name in members if not name.startswith("_")}, kind
    assert (FOLDER / "py.typed").exists()


def test_stubs_have_the_signatures_of_the_code():
    tree = ast.parse((FOLDER / "_thalweg.pyi").read_text())
    checked = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and hasattr(thalweg, node.name):
            functions = [(getattr(thalweg, node.name), item) for item in node.body if isinstance(item, ast.FunctionDef)]
        elif isinstance(node, ast.Module):
            functions = [(thalweg, item) for item in node.body if isinstance(item, ast.FunctionDef)]
        else:
            continue
        for owner, item in functions:
            if item.name.startswith("__"):
                continue
            wanted = [argument.arg for argument in item.args.args if argument.arg != "self"]
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
            parameters = inspect.signature(getattr(owner, item.name)).parameters.values()
            assert [p.name for p in parameters if p.kind in kinds and p.name != "self"] == wanted, item.name
            checked += 1
    assert checked > 30


def documented(tree):
    """Everything in the stub that has a name of its own, with its text and that of the code."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            code = getattr(thalweg, node.name)
            yield node.name, ast.get_docstring(node), code.__doc__
        if isinstance(node, ast.ClassDef):
            for item, after in zip(node.body, [*node.body[1:], None]):
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                    yield f"{node.name}.{item.name}", ast.get_docstring(item), getattr(code, item.name).__doc__
                elif isinstance(item, ast.AnnAssign):
                    text = after.value.value if isinstance(after, ast.Expr) else None
                    yield f"{node.name}.{item.target.id}", text, getattr(code, item.target.id).__doc__


def test_stubs_have_the_documentation_of_the_code():
    found = list(documented(ast.parse((FOLDER / "_thalweg.pyi").read_text())))
    assert len(found) > 60
    for name, text, wanted in found:
        assert text and inspect.cleandoc(text) == inspect.cleandoc(wanted), name
