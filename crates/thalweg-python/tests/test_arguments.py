"""Every argument of every function, given things that it is not: the error is Thalweg's, and names what was given."""

import inspect

import pytest

import thalweg


class Odd:
    def __repr__(self):
        return "<odd>"


VALID = {
    "connect": {"path": ":memory:"},
    "create_table": {"name": "new", "schema": {"a": "int64"}},
    "table": {"name": "cpu"},
    "drop_table": {"name": "cpu"},
    "array": {"name": "a"},
    "sql": {"text": "SELECT ?"},
    "execute": {"text": "SELECT ?"},
    "executemany": {"text": "INSERT INTO cpu VALUES (?, ?, ?)", "rows": [(1, "a", 0.5)]},
    "prepare": {"text": "SELECT 1"},
    "append": {"data": {"ts": [1]}},
    "scan": {"where": "sys > ?"},
    "to_parquet": {"path": "a.parquet"},
    "write_csv": {"path": "a.csv"},
}
ODD = [Odd(), [Odd()], (1, Odd()), {"x": Odd()}, {1: 2}, 1.5, -1, b"x", "\ud800", True]
SENSIBLE = {
    ("connect", "writer"), ("sql", "params"), ("execute", "params"), ("create_table", "options"), ("append", "data"),
    ("scan", "params"), ("scan", "columns"), ("create_table", "schema"),
}


def arguments():
    functions = [("connect", thalweg.connect)]
    for kind in (thalweg.Database, thalweg.Table, thalweg.Result):
        functions += [(f"{kind.__name__}.{name}", member) for name, member in vars(kind).items() if callable(member)]
    for name, function in functions:
        short = name.rsplit(".", 1)[-1]
        if short.startswith("_") or short in ("create_array", "read", "at", "put"):
            continue
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "self" and parameter.kind == parameter.POSITIONAL_OR_KEYWORD:
                yield pytest.param(name, parameter.name, id=f"{name}-{parameter.name}")


@pytest.mark.parametrize(("function", "argument"), list(arguments()))
def test_odd_arguments(db, cpu, tmp_path, monkeypatch, function, argument):
    monkeypatch.chdir(tmp_path)  # bytes are a path
    owner, _, name = function.rpartition(".")
    owners = {"": thalweg, "Database": db, "Table": cpu}
    refused = 0
    for odd in ODD:
        call = getattr(owners.get(owner) or cpu.scan(), name)
        try:
            call(**{**VALID.get(name, {}), argument: odd})
        except thalweg.Error as error:
            refused += 1
            text = str(error)
            str(text).encode()
            for word in ("PyDict", "PyString", "Bound", "cannot be converted", "cannot be cast", "is not an instance"):
                assert word not in text, text
    # Some take one or the other of these, as a limit of True does; nothing takes them all.
    assert refused >= (len(ODD) // 3 if (name, argument) in SENSIBLE else len(ODD) // 2), refused
