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
