"""Tables: made, listed, described, dropped."""

from datetime import datetime, timezone

import numpy
import pyarrow
import pytest

import thalweg

COLUMNS = {"ts": "timestamp", "v": "double"}


def test_a_table_from_a_schema_and_from_names(db):
    schema = pyarrow.schema([("ts", pyarrow.timestamp("us", "UTC")), ("v", pyarrow.float32())])
    assert db.create_table("a", schema, time="ts").schema.field("ts").type == pyarrow.timestamp("us", "UTC")
    mixed = {"ts": numpy.dtype("datetime64[ns]"), "v": pyarrow.float32(), "s": "varchar"}
    types = db.create_table("b", mixed, time="ts").schema.types
    assert types == [pyarrow.timestamp("ns"), pyarrow.float32(), pyarrow.string()]
    assert db.tables() == ["a", "b"]
    db.drop_table("A")
    assert db.tables() == ["b"]


def test_names_keep_their_case_and_match_in_any(db):
    db.create_table('Öl "1"', {"Ts": "int64"}, time="ts")
    assert db.tables() == ['Öl "1"']
    assert db.table('öl "1"').schema.names == ["Ts"]
    with pytest.raises(thalweg.AlreadyExistsError):
        db.create_table('öL "1"', {"Ts": "int64"})


@pytest.mark.parametrize(
    ("schema", "options", "kind", "word"),
    [
        (COLUMNS, {"time": "x"}, thalweg.Error, "x"),
        (COLUMNS, {"time": "v"}, thalweg.SchemaError, "float64"),
        (COLUMNS, {"time": "ts", "split": "sometimes"}, thalweg.Error, "sometimes"),
        (COLUMNS, {"time": "ts", "block_rows": 1}, thalweg.Error, "block_rows"),
        (COLUMNS, {"time": "ts", "block_rows": -1}, thalweg.Error, "block_rows"),
        (COLUMNS, {"time": "ts", "summaries": ["x"]}, thalweg.Error, "x"),
        (COLUMNS, {"time": "ts", "colour": "red"}, thalweg.Error, "colour"),
        (COLUMNS, {"time": "ts", "index": ["v"]}, thalweg.UnsupportedError, "index"),
        (COLUMNS, {"layout": "points", "dimensions": ["v"]}, thalweg.UnsupportedError, "points"),
        (COLUMNS, {"layout": "series", "key": "v"}, thalweg.UnsupportedError, "series"),
        (COLUMNS, {"layout": "heap"}, thalweg.Error, "heap"),
        ({"a": "int64", "A": "int64"}, {}, thalweg.SchemaError, "case"),
        ({"a": "number"}, {}, thalweg.SchemaError, "number"),
        ({"a": 5}, {}, thalweg.SchemaError, "5"),
        ({5: "int64"}, {}, thalweg.SchemaError, "5"),
        ({"": "int64"}, {}, thalweg.SchemaError, "empty"),
        ({}, {}, thalweg.SchemaError, "column"),
        ("ts int64", {}, thalweg.SchemaError, "str"),
        (pyarrow.schema([("a", pyarrow.list_(pyarrow.int64()))]), {}, thalweg.SchemaError, "List"),
    ],
)
def test_what_cannot_be_a_table(db, schema, options, kind, word):
    with pytest.raises(kind, match=word):
        db.create_table("t", schema, **options)
    assert db.tables() == []


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
def test_what_cannot_be_a_name(db, name):
    with pytest.raises(thalweg.SchemaError, match="name"):
        db.create_table(name, COLUMNS)


def test_missing_tables_are_named_with_those_there_are(db, cpu):
    for call in (db.table, db.drop_table):
        with pytest.raises(thalweg.NotFoundError, match='"gpu".*cpu'):
            call("gpu")


def test_a_dropped_table(db, cpu):
    rows = cpu.scan()
    db.drop_table("cpu")
    assert len(rows.fetchall()) == 10, "a result keeps its snapshot"
    for call in (cpu.scan, cpu.stats, lambda: cpu.put(0, "a", 1.0)):
        with pytest.raises(thalweg.Error, match="dropped"):
            call()


def test_stats(db, cpu):
    stats = cpu.stats()
    assert {"rows", "bytes", "blocks", "fragments", "min_time", "max_time", "late_rows"} <= stats.keys()
    assert stats["rows"] == len(cpu) == 10
    assert stats["bytes"] > 0
    assert (stats["min_time"], stats["max_time"]) == (datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 9))
    empty = db.create_table("empty", COLUMNS, time="ts")
    assert (empty.stats()["rows"], empty.stats()["min_time"]) == (0, None)
    assert empty, "a table without rows is true"
    assert repr(empty) == "<thalweg.Table empty (ts, v)>"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int8", -7, -7),
        ("timestamp(s, UTC)", 0, datetime(1970, 1, 1, tzinfo=timezone.utc)),
        ("timestamp(s)", 10**12, "+33658-09-27T01:46:40"),
    ],
)
def test_stats_show_times_as_values(db, kind, value, shown):
    table = db.create_table("t", {"ts": kind}, time="ts")
    table.put(value)
    assert table.stats()["max_time"] == shown


def test_maintain_and_flush(cpu):
    cpu.flush()
    cpu.maintain()
    assert len(cpu) == 10


def test_maintain_puts_late_rows_in_order(db):
    table = db.create_table("late", {"ts": "int64", "n": "int64"}, time="ts")
    for first in (0, 1):
        table.append({"ts": list(range(first, 100_000, 2)), "n": [first] * 50_000})
    assert table.stats()["late_rows"] > 0
    before = table.scan().arrow()
    table.maintain()
    stats = table.stats()
    assert (stats["late_rows"], stats["rows"]) == (0, 100_000)
    assert table.scan().arrow().equals(before)


def test_what_only_other_layouts_have(cpu):
    for call in (lambda: cpu.read(sensors=["a"]), lambda: cpu.at(0)):
        with pytest.raises(thalweg.UnsupportedError):
            call()


def test_two_thousand_columns(db):
    names = [f"c{i}" for i in range(2_000)]
    table = db.create_table("wide", {"ts": "int64", **dict.fromkeys(names, "double")}, time="ts")
    table.append({"ts": numpy.arange(3), **{name: numpy.arange(3.0) for name in names}})
    table.put(3, *range(2_000))
    rows = table.scan().arrow()
    assert rows.shape == (4, 2_001)
    assert rows["c1999"].to_pylist() == [0.0, 1.0, 2.0, 1999.0]
    assert "more columns" in repr(table.scan())


def test_time_zones_exist(db):
    for zone in ("UTC", "+01:00", "Europe/Berlin"):
        db.create_table(f"in {zone}", {"ts": f"timestamp(ms, {zone})"}, time="ts")
    with pytest.raises(thalweg.SchemaError, match="Mars/Phobos"):
        db.create_table("mars", {"ts": "timestamp(ms, Mars/Phobos)"}, time="ts")
    assert "mars" not in db.tables()
