"""The reference pages say what the code says, and their examples run."""

import doctest
import importlib.util
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]
BIN = os.environ.get("THALWEG_BIN")


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(name):
    return (ROOT / "docs/reference" / name).read_text()


def test_the_page_of_python_is_that_of_the_stubs(reference):
    assert stored("python.md") == reference.python(), "scripts/reference.py docs/reference writes it anew"


@pytest.mark.skipif(BIN is None, reason="THALWEG_BIN names the command line")
def test_the_page_of_the_command_line_is_its_help(reference):
    assert stored("command-line.md") == reference.command_line(BIN), "scripts/reference.py docs/reference writes it anew"


def test_examples_run():
    parts = stored("python.md").split("```pycon\n")[1:]
    assert len(parts) >= 10
    for number, part in enumerate(parts):
        examples = doctest.DocTestParser().get_doctest(part.split("```")[0], {}, f"example {number}", None, None)
        assert doctest.DocTestRunner().run(examples).failed == 0
