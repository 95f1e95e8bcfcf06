"""The examples of guides that are written as sessions of Python run, and give what the guides say."""

import doctest
import pathlib

import pytest

GUIDES = pathlib.Path(__file__).parents[3] / "docs" / "guides"


@pytest.mark.parametrize("name", ["changing-data.md", "transactions.md"])
def test_examples_of_guides_run(name):
    text = (GUIDES / name).read_text().replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert len(examples.examples) >= 10
    assert doctest.DocTestRunner().run(examples).failed == 0
