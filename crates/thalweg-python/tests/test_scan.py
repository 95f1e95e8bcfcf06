"""Ranges of time, conditions, columns, order."""

from datetime import date, datetime, timedelta, timezone

import numpy
import pandas
import pytest

import thalweg

BASE = datetime(2026, 1, 1)


@pytest.fixture
def table(db):
    """A reading every second of an hour in UTC, in order except for one."""
    table = db.create_table("t", {"ts": "timestamp(ms, UTC)", "v": "double", "n": "int64"}, time="ts", block_rows=64)
    seconds = numpy.arange(3_600)
    late = numpy.r_[seconds[seconds != 1_800], 1_800]
    table.append({"ts": numpy.datetime64(BASE, "ms") + late * 1_000, "v": late / 10, "n": late})
    return table


def seconds(result):
    return [row[0] for row in result.fetchall()]


START = 1_767_225_600_000 + 10_000


@pytest.mark.parametrize(
    "start",
    [
        START,
        numpy.int64(START),
        "2026-01-01T00:00:10",
        "2026-01-01 00:00:10Z",
        "2026-01-01T02:00:10+02:00",
        BASE + timedelta(seconds=10),
        (BASE + timedelta(seconds=10)).replace(tzinfo=timezone.utc),
        (BASE + timedelta(seconds=10)).replace(tzinfo=timezone.utc).astimezone(timezone(timedelta(hours=-3))),
        numpy.datetime64("2026-01-01T00:00:10"),
        numpy.datetime64("2026-01-01T00:00:09.999000001", "ns"),
        pandas.Timestamp("2026-01-01T00:00:10"),
    ],
)
def test_times_in_every_form(table, start):
    assert seconds(table.scan(columns=["n"], start=start, end=START + 5_000)) == [10, 11, 12, 13, 14]
    assert seconds(table.scan(columns=["n"], end=start)) == list(range(10))


def test_whole_days_and_beyond_the_type(table):
    assert len(table.scan(start=date(2026, 1, 1), end=date(2026, 1, 2)).fetchall()) == 3_600
    assert len(table.scan(start=-(2**100), end=2**100).fetchall()) == 3_600
    assert table.scan(start=date(2026, 1, 2)).fetchall() == []
    assert table.scan(start=START + 5_000, end=START).fetchall() == []


def test_late_rows_come_in_their_place(table):
    assert seconds(table.scan(columns=["n"])) == list(range(3_600))
    assert seconds(table.scan(columns=["n"], limit=3)) == [0, 1, 2]
    assert seconds(table.scan(columns=["n"], limit=0)) == []


def test_equal_times_keep_the_order_of_arrival(db):
    for time in ("ts", None):
        table = db.create_table(f"t_{time}", {"ts": "int64", "n": "int64"}, time=time)
        table.append({"ts": [5, 5, 5], "n": [0, 1, 2]})
        table.put(5, 3)
        table.append({"ts": [5, 5], "n": [4, 5]})
        assert seconds(table.scan(columns=["n"])) == [0, 1, 2, 3, 4, 5]
        assert seconds(table.scan(columns=["n"], where="n <> 2")) == [0, 1, 3, 4, 5]


def test_conditions(table):
    assert seconds(table.scan(columns=["n"], where="v > 10 AND v <= 10.2")) == [101, 102]
    assert seconds(table.scan(columns=["n"], where="v > 10 -- a comment", end=START + 93_000)) == [101, 102]
    assert seconds(table.scan(columns=["n"], where="n % 1000 = 0 OR n = 1", limit=3)) == [0, 1, 1000]
    assert seconds(table.scan(columns=["N"], where='"N" = 5 AND TS < \'2026-01-01T00:01:00Z\'')) == [5]
    assert table.scan(columns=["V", "n"], where="n = 5").fetchall() == [(0.5, 5)]
    assert table.scan(where="false").arrow().schema == table.schema


def test_boxes_include_both_ends(table):
    assert seconds(table.scan(columns=["n"], box={"v": (1.0, 1.2)})) == [10, 11, 12]
    assert seconds(table.scan(columns=["n"], box={"v": (None, 0.2)})) == [0, 1, 2]
    assert seconds(table.scan(columns=["n"], box={"ts": ("2026-01-01T00:00:10", START + 2_000)})) == [10, 11, 12]
    assert seconds(table.scan(columns=["n"], box={"ts": (None, START), "N": (9, None)})) == [9, 10]
    assert seconds(table.scan(columns=["n"], box={"v": (0, 10), "n": (4, 7)}, where="n <> 5", start=0)) == [4, 6, 7]
    assert seconds(table.scan(columns=["n"], box={"n": (2, 1)})) == []


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"columns": ["x"]}, thalweg.NotFoundError, '"x".*ts, v, n'),
        ({"columns": []}, thalweg.Error, "columns"),
        ({"where": "v >"}, thalweg.QueryError, "expression"),
        ({"where": "x > 1"}, thalweg.QueryError, "x"),
        ({"start": "soon"}, thalweg.Error, "soon"),
        ({"start": 1.5}, thalweg.Error, "start is 1.5"),
        ({"end": True}, thalweg.Error, "end is True"),
        ({"end": [1]}, thalweg.Error, "end is"),
        ({"limit": -1}, thalweg.Error, "limit"),
        ({"box": {"x": (1, 2)}}, thalweg.NotFoundError, "x"),
        ({"box": {"v": 1}}, thalweg.Error, "pair"),
        ({"box": {"ts": ("soon", None)}}, thalweg.Error, "soon"),
        ({"box": [("v", 1)]}, thalweg.Error, "box is .* dict"),
        ({"box": {5: (1, 2)}}, thalweg.Error, "box is 5"),
        ({"columns": 5}, thalweg.Error, "columns is 5"),
        ({"columns": [1]}, thalweg.Error, r"columns is \[1\]"),
        ({"columns": "x"}, thalweg.NotFoundError, '"x"'),
        ({"where": 5}, thalweg.Error, "where is 5"),
        ({"limit": "all"}, thalweg.Error, "limit is 'all'"),
        ({"reverse": "yes"}, thalweg.Error, "reverse is 'yes'"),
        ({"params": [1]}, thalweg.QueryError, "where"),
        ({"where": "v > ?", "params": [1, 2]}, thalweg.QueryError, "1 parameter and is given 2 values"),
        ({"where": "v > ?"}, thalweg.QueryError, r"parameter \?: give its value, as params"),
        ({"where": "v > $x", "reverse": True}, thalweg.QueryError, r"parameter \$x: give its value"),
        ({"where": "v > ?", "params": 5}, thalweg.QueryError, "params is a list"),
        ({"where": "v > $x", "params": {"y": 5}}, thalweg.QueryError, "y"),
    ],
)
def test_what_cannot_be_asked(table, options, kind, word):
    with pytest.raises(kind, match=word):
        table.scan(**options)


def test_bounds_need_a_time_column(db):
    table = db.create_table("t", {"n": "int64"})
    table.append({"n": [2, 1]})
    assert table.scan().fetchall() == [(2,), (1,)]
    with pytest.raises(thalweg.Error, match="arrival"):
        table.scan(start=1)


def test_a_scan_sees_the_snapshot_of_its_call(table):
    before, filtered = table.scan(), table.scan(where="true")
    table.append({"ts": [0], "n": [-1]})
    assert len(before.fetchall()) == len(filtered.fetchall()) == 3_600
    assert len(table.scan().fetchall()) == 3_601


def test_texts_with_signs_of_placeholders(table):
    assert len(table.scan(where="'?' = '?' AND '$1' <> '$2'", limit=2).fetchall()) == 2


def test_a_single_column_by_its_name(table):
    assert table.scan(columns="n", limit=2).fetchall() == [(0,), (1,)]


def test_the_latest_first(table):
    assert seconds(table.scan(columns=["n"], reverse=True)) == list(range(3_599, -1, -1))
    assert table.scan(reverse=True, limit=1).arrow().schema.names == table.schema.names
    assert seconds(table.scan(columns=["n"], reverse=True, limit=3)) == [3_599, 3_598, 3_597]
    assert seconds(table.scan(columns=["n"], reverse=True, limit=2, end=START)) == [9, 8]
    assert seconds(table.scan(columns=["n"], reverse=True, start=START, end=START + 3_000)) == [12, 11, 10]
    assert seconds(table.scan(columns=["n"], reverse=True, where="n % 1000 = 0 -- a comment", limit=2)) == [3_000, 2_000]
    assert seconds(table.scan(columns=["n"], reverse=True, box={"v": (1.0, 1.2), "ts": (START + 1_000, None)})) == [12, 11]
    assert seconds(table.scan(columns=["n"], reverse=True, start=START, end=START)) == []
    assert seconds(table.scan(columns=["N"], reverse=True, limit=0)) == []
    assert seconds(table.scan(columns=["n"], reverse=False, limit=1)) == [0]


def test_the_latest_first_needs_a_time_column(db):
    with pytest.raises(thalweg.Error, match="reverse needs a time column"):
        db.create_table("t", {"n": "int64"}).scan(reverse=True)


def test_a_dropped_table_is_not_taken_for_a_new_one(db):
    old = db.create_table("t", {"n": "int64"}, time="n")
    db.drop_table("t")
    db.create_table("t", {"n": "int64"}, time="n").put(1)
    with pytest.raises(thalweg.Error, match="dropped"):
        old.scan(reverse=True)


@pytest.mark.parametrize(
    ("where", "params"),
    [
        ("n > ? AND n <> ?", [5, 7]),
        ("n > ? AND n <> ? AND '$1' = '$1'", (5, 7)),
        ("n > $1 AND n <> $2", [5, 7]),
        ("n <> $2 AND n > $1 AND '?' = '?'", [5, 7]),
        ("n > $low AND n <> $not", {"low": 5, "not": 7}),
    ],
)
def test_parameters_of_conditions(table, where, params):
    assert seconds(table.scan(columns=["n"], where=where, params=params, limit=3)) == [6, 8, 9]
    options = {"box": {"v": (None, 1.1)}, "start": "2026-01-01T00:00:08", "end": START + 5_000}
    assert seconds(table.scan(columns=["n"], where=where, params=params, **options)) == [8, 9, 10, 11]
    assert seconds(table.scan(columns=["n"], where=where, params=params, reverse=True, **options)) == [11, 10, 9, 8]


@pytest.mark.parametrize("kind", ["uint64", "int8", "date", "timestamp(ns)", "timestamp(s, Europe/Berlin)"])
def test_the_latest_first_by_every_kind_of_time(db, kind):
    table = db.create_table("odd \"name\"", {"a \"b\"": kind, "n": "int64"}, time="a \"b\"")
    for n in range(100):
        table.append({"a \"b\"": numpy.array([n], "i4" if kind == "date" else "i8"), "n": [n]})
    assert seconds(table.scan(columns=["n"], reverse=True, start=numpy.int64(90), end=95)) == [94, 93, 92, 91, 90]
    assert table.scan(reverse=True, limit=1).fetchall() == table.scan(start=99).fetchall()


def test_bounds_of_another_kind_are_shown_as_given(db):
    table = db.create_table("t", {"n": "int64"}, time="n")
    for given, shown in (("2024-01-01", '"2024-01-01"'), (date(2024, 1, 1), "2024-01-01"), (BASE, "2026-01-01T00:00:00")):
        with pytest.raises(thalweg.Error, match=f"the time column is bigint: give an integer, not {shown}"):
            table.scan(start=given)
