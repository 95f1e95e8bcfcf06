"""Every type there and back, by tables and by single rows."""

import decimal
import math
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import thalweg

TOP = {bits: 2 ** (bits - 1) - 1 for bits in (8, 16, 32, 64)}
BERLIN = ZoneInfo("Europe/Berlin")

VALUES = {
    **{getattr(pyarrow, f"int{bits}")(): [top, -top - 1, 0, None] for bits, top in TOP.items()},
    **{getattr(pyarrow, f"uint{bits}")(): [2 * top + 1, 0, None] for bits, top in TOP.items()},
    pyarrow.bool_(): [True, False, None],
    pyarrow.float32(): [0.5, -0.0, math.inf, -math.inf, None],
    pyarrow.float64(): [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, None],
    pyarrow.string(): ["", "a\0b", "ä😀", "x" * 10_000, None],
    pyarrow.binary(): [b"", b"\0\xff", None],
    pyarrow.date32(): [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None],
    pyarrow.decimal128(38, 10): [decimal.Decimal("9" * 28 + "." + "9" * 10), decimal.Decimal("-0.0000000001"), None],
    pyarrow.decimal128(5, 0): [decimal.Decimal(-99_999), None],
    pyarrow.timestamp("s"): [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), None],
    pyarrow.timestamp("us"): [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 1, 0, 0, 0, 1), None],
    pyarrow.timestamp("ms", "UTC"): [datetime(2026, 7, 1, 12, tzinfo=timezone.utc), None],
    pyarrow.timestamp("us", "Europe/Berlin"): [
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
        None,
    ],
    pyarrow.timestamp("ns", "+05:30"): [datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))), None],
    pyarrow.duration("us"): [timedelta(days=-1, microseconds=1), timedelta(microseconds=-1), None],
    pyarrow.duration("s"): [timedelta(days=100_000), None],
}


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return numpy.float64(a).tobytes() == numpy.float64(b).tobytes() or (a != a and b != b)
    return a == b and type(a) is type(b)


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_come_back(db, kind):
    values = VALUES[kind]
    schema = pyarrow.schema([("n", pyarrow.int64()), ("x", kind)])
    table = db.create_table("t", schema, time="n")
    given_rows = pyarrow.table({"n": range(len(values)), "x": pyarrow.array(values, kind)})
    table.append(given_rows)
    for n, value in enumerate(values, len(values)):
        table.put(n, value)
    stored = table.scan(columns=["x"]).arrow()["x"]
    assert stored.type == kind
    assert stored.to_pylist() == values * 2
    fetched = [row[0] for row in table.scan(columns=["x"])]
    assert all(map(same, fetched, values * 2)), fetched
    offsets = [value.utcoffset() for value in fetched if isinstance(value, datetime) and value.tzinfo]
    assert offsets == [value.utcoffset() for value in values * 2 if isinstance(value, datetime) and value.tzinfo]
    assert [row[0] for row in db.sql("SELECT x FROM t ORDER BY n")] == fetched
    if "+" not in str(kind):  # zones that polars does not have
        assert table.scan(columns=["x"]).pl()["x"].to_list() == stored.to_pylist()
    assert len(table.scan().df()) == len(table)


def test_nan_keeps_its_bits(db):
    table = db.create_table("t", {"n": "int64", "x": "double", "y": "real"}, time="n")
    odd = numpy.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000], "u8").view("f8")
    table.append({"n": [0, 1], "x": odd, "y": odd.astype("f4")})
    back = table.scan().numpy()
    assert back["x"].tobytes() == odd.tobytes()
    assert back["y"].tobytes() == odd.astype("f4").tobytes()


@pytest.mark.parametrize(("kind", "value"), [("timestamp(s)", 10**12), ("date", 2**31 - 1), ("duration(s)", 2**62)])
def test_what_python_cannot_hold_is_an_error_not_another_value(db, kind, value):
    table = db.create_table("t", {"n": "int64", "x": kind}, time="n")
    table.append(pyarrow.table({"n": [1], "x": pyarrow.array([value], pyarrow.int64())}) if kind != "date" else {"n": [1], "x": numpy.array([value], "i4")})
    with pytest.raises(thalweg.OutOfDomainError, match=str(value)):
        table.scan().fetchall()
    assert table.scan().arrow()["x"].cast(pyarrow.int32() if kind == "date" else pyarrow.int64()).to_pylist() == [value]


def test_nanoseconds_are_cut_downwards(db):
    table = db.create_table("t", {"ts": "timestamp(ns)"}, time="ts")
    table.append({"ts": numpy.array([-1, 1_999], "i8")})
    assert table.scan().fetchall() == [(datetime(1969, 12, 31, 23, 59, 59, 999_999),), (datetime(1970, 1, 1, 0, 0, 0, 1),)]
    assert table.scan().numpy()["ts"].view("i8").tolist() == [-1, 1_999]


def test_types_that_only_queries_have(db):
    row = db.sql("SELECT [1, 2] AS l, NULL AS n, CAST('12:30:00' AS TIME) AS t, arrow_cast(1.5, 'Float16') AS h").fetchone()
    assert row[0] == [1, 2]
    assert row[1] is None
    assert str(row[2]) == "12:30:00"
    assert row[3] == 1.5


NULLABLE = {
    "b": st.booleans(),
    "i": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**64 - 1),
    "f": st.floats(),
    "s": st.text(max_size=20),
    "y": st.binary(max_size=20),
    "d": st.dates(),
    "t": st.datetimes(),
    "z": st.datetimes(timezones=st.just(timezone.utc)),
    "m": st.decimals(-10**15, 10**15, places=3),
}
KINDS = {
    "b": "bool",
    "i": "int64",
    "u": "uint64",
    "f": "double",
    "s": "varchar",
    "y": "binary",
    "d": "date",
    "t": "timestamp(us)",
    "z": "timestamp(us, UTC)",
    "m": "decimal(20, 3)",
}
ROW = st.tuples(st.integers(-5, 5), *(st.none() | strategy for strategy in NULLABLE.values()))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["put", "append", "appender"]), st.lists(ROW, max_size=8)), max_size=4))
def test_random_rows_come_back_in_order(db, steps):
    table = db.create_table(f"t{len(db.tables())}", {"n": "int64", **KINDS}, time="n")
    names = ["n", *KINDS]
    expected = []
    for step, rows in steps:
        expected += rows
        if step == "put":
            for row in rows:
                table.put(*row)
        elif step == "append":
            columns = zip(names, zip(*rows)) if rows else ((name, ()) for name in names)
            arrays = {name: pyarrow.array(values, table.schema.field(name).type) for name, values in columns}
            assert table.append(pyarrow.table(arrays)) == len(rows)
        else:
            with table.appender() as appender:
                for row in rows:
                    appender.put(*row)
    expected.sort(key=lambda row: row[0])
    fetched = table.scan().fetchall()
    assert len(fetched) == len(expected)
    for got, wanted in zip(fetched, expected):
        assert all(map(same, got, wanted)), (got, wanted)
    assert len(table) == len(expected)
