"""Paths of databases."""

import os

from thalweg._thalweg import Error


def resolve(path):
    """The path with the home folder in place of ~, and the one name of its folder; None for a database in memory."""
    try:
        text = os.fsdecode(path)
        if text == ":memory:":
            return text, None
        if text.startswith(":"):
            raise Error(f'{text!r} is no path of a database: in memory it is ":memory:"; write "./{text}" for a folder')
        expanded = os.path.expanduser(text)
        name = os.path.realpath(expanded)
    except (TypeError, ValueError) as error:
        raise Error(f"{path!r} is no path of a database: {error}") from None
    if expanded.startswith("~"):
        raise Error(f'there is no home folder for {expanded.split(os.sep)[0]}; write "./{expanded}" for a folder of that name')
    return expanded, name
