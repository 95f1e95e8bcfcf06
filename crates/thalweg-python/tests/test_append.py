"""Rows on their way in: every form of table, single rows, and what is refused."""

import collections
import dataclasses
import decimal
import signal
import sqlite3
import threading
import types
import uuid
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from programs import run

import thalweg

TIMES = [datetime(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 1, 3)]
ROWS = list(zip(TIMES, ["a", None, "c"], [0.5, 1.5, None]))
ARROW = pyarrow.table(
    {"ts": pyarrow.array(TIMES, pyarrow.timestamp("ms")), "s": ["a", None, "c"], "v": [0.5, 1.5, None]}
)


class OnlyStream:
    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


@pytest.fixture
def table(db):
    return db.create_table("t", {"ts": "timestamp(ms)", "s": "varchar", "v": "double"}, time="ts")


@pytest.mark.parametrize(
    "data",
    [
        ARROW,
        ARROW.to_batches()[0],
        ARROW.to_reader(),
        ARROW.to_batches()[0].to_struct_array(),
        OnlyStream(ARROW),
        OnlyArray(ARROW.to_batches()[0]),
        ARROW.select(["v", "ts", "s"]),
        ARROW.rename_columns(["TS", "S", "V"]),
        ARROW.set_column(0, "ts", pyarrow.array(TIMES, pyarrow.timestamp("ns"))),
        ARROW.set_column(0, "ts", pyarrow.array(TIMES, pyarrow.timestamp("s")).cast(pyarrow.timestamp("s", "UTC"))),
        ARROW.set_column(1, "s", pyarrow.array(["a", None, "c"]).dictionary_encode()),
        ARROW.set_column(1, "s", pyarrow.array(["a", None, "c"], pyarrow.string_view())),
        ARROW.set_column(1, "s", pyarrow.array(["a", None, "c"], pyarrow.large_string())),
        ARROW.to_pandas(),
        ARROW.to_pandas().set_index("ts"),
        ARROW.to_pandas().set_index(["ts", "s"]),
        polars.from_arrow(ARROW),
        {"ts": numpy.array(TIMES, "M8[ms]"), "s": numpy.array(["a", None, "c"]), "v": [0.5, 1.5, None]},
        {"ts": numpy.array(TIMES, "M8[D]"), "s": ["a", None, "c"], "v": numpy.ma.array([0.5, 1.5, 9], mask=[0, 0, 1])},
        {"ts": numpy.array(TIMES, "M8[m]"), "s": pyarrow.array(["a", None, "c"]), "v": pandas.Series([0.5, 1.5, None])},
        {"ts": polars.Series(TIMES), "s": polars.Series(["a", None, "c"]), "v": ARROW["v"]},
        {"ts": ["2026-01-01", "2026-01-02T00:00", "2026-01-03T02:00:00+02:00"], "s": ["a", None, "c"], "v": (0.5, 1.5, None)},
        ARROW.to_pandas().set_index("ts").rename_axis(None),
        ARROW.to_pandas().set_index("ts").rename_axis(None).tz_localize("UTC"),
        polars.from_arrow(ARROW).lazy(),
        [dict(zip(["ts", "s", "v"], row)) for row in ROWS],
        ({name: value for name, value in zip(["v", "s", "ts"], row[::-1]) if value is not None} for row in ROWS),
        ARROW.to_pylist(),
        ARROW.to_batches(max_chunksize=1),
        iter(ARROW.to_batches(max_chunksize=2)),
        [ARROW.slice(2), ARROW.to_pandas()[:1], polars.from_arrow(ARROW.slice(1, 1))],
        [polars.from_arrow(ARROW.slice(1)).lazy(), {"ts": TIMES[0], "s": "a", "v": 0.5}],
        [{"ts": TIMES[:2], "s": ["a", None], "v": [0.5, 1.5]}, {"ts": TIMES[2], "s": "c"}],
        numpy.array([(0, 0.5), (1, 1.5), (2, 0)], [("ts", "M8[D]"), ("v", "f8")]),
    ],
)
def test_every_form_of_table(table, data):
    if isinstance(data, numpy.ndarray):
        data["ts"] += numpy.datetime64(TIMES[0], "D").astype("i8")
        assert table.append(data) == 3
        assert table.scan(columns=["ts", "v"]).fetchall() == list(zip(TIMES, [0.5, 1.5, 0.0]))
        return
    assert table.append(data) == 3
    assert table.scan().fetchall() == ROWS


def test_missing_columns_become_null_and_order_is_by_time(table):
    table.append({"ts": numpy.array([3, 1, 2]), "s": ["c", "a", "b"]})
    table.append({"ts": numpy.array([2, 0]), "v": numpy.array([1, 2], ">i4")})
    assert table.scan(columns=["s", "v"]).fetchall() == [(None, 2.0), ("a", None), ("b", None), (None, 1.0), ("c", None)]


def test_a_frame_without_its_made_up_index(table):
    frame = ARROW.to_pandas().iloc[[0, 2]]
    assert list(frame.index) == [0, 2]
    assert table.append(frame) == 2


def test_nan_is_a_value_except_in_pandas(table):
    table.append({"ts": [1], "v": numpy.array([numpy.nan])})
    table.append(pyarrow.table({"ts": [2], "v": [float("nan")]}))
    table.append(pandas.DataFrame({"ts": [3], "v": [float("nan")]}))
    values = table.scan(columns=["v"]).arrow()["v"]
    assert values.null_count == 1
    assert numpy.isnan(values[0].as_py()) and numpy.isnan(values[1].as_py())


def test_one_row_as_a_dict(table):
    assert table.append({"ts": "2026-01-01", "s": "a"}) == 1
    assert table.append([]) == 0 and table.append(iter([])) == 0
    assert table.scan().fetchall() == [(TIMES[0], "a", None)]


def test_many_rows_as_dicts_are_one_append(table):
    rows = 150_000

    def made(last):
        for number in range(rows):
            yield {"ts": number, "v": None if number < 100_000 else 0.5}
        yield last

    with pytest.raises(thalweg.SchemaError, match='"v"'):
        table.append(made({"ts": 5, "v": "a"}))
    assert len(table) == 0
    assert table.append(made({"ts": 5, "v": 1.5})) == rows + 1
    assert table.scan(where="v = 1.5").fetchall() == [(datetime(1970, 1, 1, 0, 0, 0, 5_000), None, 1.5)]


def test_a_generator_that_fails_stores_nothing(table):
    def rows():
        yield {"ts": 1}
        raise ValueError("the sensor is gone")

    with pytest.raises(thalweg.SchemaError, match="the sensor is gone"):
        table.append(rows())
    assert len(table) == 0


@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        (["0.1", "1.50", "-1E+3", "0"], "double", [0.1, 1.5, -1000.0, 0.0]),
        (["0.1", "16777217"], "double", [0.1, 16777217.0]),
        (["0.1", "0.25"], "real", [float(numpy.float32("0.1")), 0.25]),
        (["16777217"], "real", None),
        (["0.12345678901234567"], "double", None),
        (["9007199254740993"], "double", None),
        (["5", "-7.00"], "int64", [5, -7]),
        (["5.5"], "int64", None),
        (["300"], "uint8", None),
    ],
)
def test_decimals_go_into_numbers_with_the_same_digits(db, values, kind, stored):
    table = db.create_table("t", {"n": "int64", "x": kind}, time="n")
    decimals = [decimal.Decimal(value) for value in values]
    if stored is None:
        with pytest.raises(thalweg.SchemaError, match=values[0]):
            table.append({"n": range(len(values)), "x": decimals})
        with pytest.raises(thalweg.SchemaError, match=values[0]):
            table.put(0, decimals[0])
        return
    table.append({"n": range(len(values)), "x": decimals})
    for value in decimals:
        table.put(100, value)
    assert table.scan(columns=["x"]).fetchall() == [(value,) for value in stored * 2]


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("int64", decimal.Decimal("1.5"), "bigint cannot hold 1.5 exactly"),
        ("varchar", decimal.Decimal("-0.05"), "is varchar and does not take -0.05"),
        ("date", datetime(2024, 1, 1, 12), "date cannot hold 2024-01-01T12:00:00 exactly"),
        ("int64", date(2024, 1, 2), "is bigint and does not take 2024-01-02"),
        ("timestamp", "now", '"now" is not a time; write for example'),
        ("timestamp(s)", "2024-01-01T00:00:00.5", "more precise than timestamp"),
    ],
)
def test_values_are_shown_as_they_are_written(db, kind, given, says):
    table = db.create_table("t", {"x": kind})
    with pytest.raises(thalweg.SchemaError, match=f'table "t": column "x".*{says}'):
        table.put(given)


def test_types_are_named_as_they_are_written(db):
    table = db.create_table("t", {"x": "int64"})
    kinds = (
        (pyarrow.list_(pyarrow.string()), ["x"], r"varchar\[\]"), (pyarrow.time64("us"), 1, "time"),
    )
    for kind, value, name in kinds:
        with pytest.raises(thalweg.SchemaError, match=f"does not take {name}"):
            table.append(pyarrow.table({"x": pyarrow.array([value], kind)}))


def test_nothing_is_fine(table):
    assert table.append({"ts": [], "v": []}) == 0
    assert table.append(ARROW.slice(0, 0)) == 0
    assert len(table) == 0


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({"ts": [1], "x": [1]}, '"x"'),
        ({"v": [1.0]}, '"ts" is missing'),
        ({"ts": [1, None]}, "row 1 is null"),
        ({"ts": numpy.array(["NaT"], "M8[ms]")}, "row 0 is null"),
        ({"ts": [1], "v": ["a"]}, '"v"'),
        ({"ts": [1.5]}, '"ts"'),
        ({"ts": [1], "s": [5]}, '"s"'),
        ({"ts": [1], "s": ["a", "b"]}, "ts: 1, s: 2"),
        ({"ts": [1], "v": 1.0}, 'column "ts" is a list and "v" a float'),
        ({"ts": 1, "v": [1.0, 2.0]}, 'column "v" is a list and "ts" a int'),
        ([{"ts": 1, "s": numpy.array(["a"])}], 'column "s" is a ndarray and "ts" a int'),
        ({"ts": [1], "v": numpy.zeros((1, 1))}, "2 dimensions"),
        ({"ts": [1], "v": numpy.array([1j])}, '"v"'),
        ({"ts": [1, 2], "s": ["a", 5]}, '"s"'),
        ({"ts": ["yesterday"]}, "yesterday"),
        ({"ts": [2**70]}, '"ts"'),
        ({5: [1]}, "5"),
        (pyarrow.table([[1], [1.0], [2.0]], names=["ts", "v", "V"]), "twice"),
        (pyarrow.table({"ts": pyarrow.array(TIMES, pyarrow.timestamp("us")), "v": [2**53 + 1] * 3}), '"v"'),
        (pyarrow.array([1]), "one column"),
        (pyarrow.chunked_array([[1]]), "one column"),
        (pyarrow.array([{"ts": 1}, None]), "null as a whole"),
        (pyarrow.chunked_array([[{"ts": 1}, None]]), "null as a whole"),
        (pandas.DataFrame({"ts": [1, 2], "s": ["a", 5]}), "s"),
        (pandas.Series([1]), "one column"),
        ([1, 2], "list"),
        ("file.csv", "str"),
        (None, "NoneType"),
        (iter([1]), "came with int"),
        ([{"ts": 1}, 5], "came with int"),
        ([(1, "a")], r"a row has 2 values, the table has \d columns"),
        ([{"ts": 1, "x": 5}], '"x"'),
        ([{"ts": 1}, {"s": "a"}], '"ts".*null'),
        ([ARROW, {"ts": [1], "v": ["a"]}], '"v"'),
        ({"ts": 1, "s": 5}, '"s"'),
        (ARROW.to_pandas().set_index("ts").rename_axis("Date"), r'df.rename_axis\("ts"\)'),
        (numpy.zeros((2, 2)), "ndarray"),
    ],
)
def test_what_does_not_fit_is_named_and_not_stored(table, data, word):
    with pytest.raises(thalweg.SchemaError, match=word):
        table.append(data)
    assert len(table) == 0


def test_tuples_have_the_order_of_the_columns(db):
    table = db.create_table("t", {"ts": "int64", "k": str, "v": float}, time="ts")
    assert table.append([(1, "a", 0.5), [2, None, None]]) == 2
    assert table.append((row for row in [(3, "b", 1)])) == 1
    assert table.scan().fetchall() == [(1, "a", 0.5), (2, None, None), (3, "b", 1.0)]


def test_periods_become_the_times_they_begin_at(db):
    frame = pandas.DataFrame({"ts": pandas.period_range("2024-01", periods=2, freq="M"), "v": [1, 2]})
    begins = [datetime(2024, 1, 1), datetime(2024, 2, 1)]
    for name, data in [
        ("frame", frame),
        ("by_index", frame.set_index("ts")),
        ("columns", {"ts": frame["ts"], "v": [1, 2]}),
        ("index", {"ts": pandas.PeriodIndex(frame["ts"]), "v": [1, 2]}),
    ]:
        table = db.create_table(name, data)
        assert table.scan(columns=["ts"]).fetchall() == [(begin,) for begin in begins], name
        table.append(frame)
        assert len(table) == 4
    assert db.sql("SELECT max(ts) FROM frame").fetchone() == (begins[1],)
    assert frame.dtypes["ts"] == "period[M]"


def test_text_that_is_no_text(table):
    offsets = pyarrow.py_buffer(numpy.array([0, 1], "i4").tobytes())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, offsets, pyarrow.py_buffer(b"\xff")])
    for data in (pyarrow.table({"ts": [1], "s": text}), pyarrow.record_batch({"ts": [1], "s": text})):
        with pytest.raises(thalweg.SchemaError, match='"s".*(?i:utf)'):
            table.append(data)


def test_a_string_above_the_limit(table):
    with pytest.raises(thalweg.LimitError, match="17825792"):
        table.append({"ts": [1], "s": ["x" * (17 << 20)]})
    with pytest.raises(thalweg.LimitError):
        table.put(1, "x" * (17 << 20), None)


def test_a_reader_that_fails_stores_nothing(table):
    def batches():
        yield pyarrow.record_batch({"ts": [1]})
        raise ValueError("the sensor is gone")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("ts", pyarrow.int64())]), batches())
    with pytest.raises(thalweg.SchemaError, match="the sensor is gone") as caught:
        table.append(reader)
    assert len(table) == 0
    assert isinstance(caught.value.__cause__, ValueError)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_program_comes_out_of_a_reader_as_itself(db, table, raised):
    def batches():
        yield pyarrow.record_batch({"ts": [1]})
        raise raised

    def reader():
        return pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("ts", pyarrow.int64())]), batches())

    with pytest.raises(type(raised)):
        table.append(reader())
    assert len(table) == 0
    rows = reader()
    with pytest.raises(type(raised)):
        db.sql("SELECT * FROM rows").fetchall()


def test_a_reader_that_runs_python_beside_other_threads(table):
    def batches():
        for i in range(50):
            yield pyarrow.record_batch({"ts": pyarrow.array([i], pyarrow.int64())})

    schema = pyarrow.schema([("ts", pyarrow.int64())])

    def append():
        table.append(pyarrow.RecordBatchReader.from_batches(schema, batches()))

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(table) == 200


def test_a_result_can_be_appended(table):
    table.append(ARROW)
    assert table.append(table.scan()) == 3
    assert len(table) == 6


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        ("int64", 5, 5),
        ("int64", True, None),
        ("int64", 5.0, 5),
        ("int64", numpy.int8(-5), -5),
        ("int64", numpy.array(7), 7),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("uint8", 256, None),
        ("int64", 2**64, None),
        ("int64", 2**200, None),
        ("double", 5, 5.0),
        ("double", 2**53 + 1, None),
        ("double", numpy.float64(0.1), 0.1),
        ("double", numpy.float32(0.5), 0.5),
        ("real", 0.5, 0.5),
        ("real", 0.1, float(numpy.float32(0.1))),
        ("real", 1e40, None),
        ("real", 16777217, None),
        ("real", float("-inf"), float("-inf")),
        ("decimal(10, 2)", 1.25, decimal.Decimal("1.25")),
        ("decimal(10, 2)", 0.1 + 0.2, None),
        ("decimal(10, 2)", float("nan"), None),
        ("double", "5", None),
        ("double", decimal.Decimal("0.5"), 0.5),
        ("double", decimal.Decimal("0.1"), 0.1),
        ("double", decimal.Decimal("0.10000000000000001"), None),
        ("int64", decimal.Decimal("5.00"), 5),
        ("bool", True, True),
        ("bool", numpy.bool_(False), False),
        ("bool", 1, None),
        ("varchar", "ä😀", "ä😀"),
        ("varchar", numpy.str_("x"), "x"),
        ("varchar", "\ud800", None),
        ("varchar", b"abc", "abc"),
        ("varchar", b"\xff", None),
        ("varchar", 5, None),
        ("binary", b"\x00\xff", b"\x00\xff"),
        ("binary", numpy.bytes_(b"x"), b"x"),
        ("binary", [1], None),
        ("decimal(10, 2)", decimal.Decimal("-1.5"), decimal.Decimal("-1.50")),
        ("decimal(10, 2)", decimal.Decimal("1E+3"), decimal.Decimal("1000.00")),
        ("decimal(10, 2)", 7, decimal.Decimal("7.00")),
        ("decimal(10, 2)", decimal.Decimal("1.555"), None),
        ("decimal(10, 2)", decimal.Decimal("NaN"), None),
        ("decimal(38, 0)", 10**37, decimal.Decimal(10**37)),
        ("timestamp(us)", datetime(2026, 1, 1, 12, 30, 0, 5), datetime(2026, 1, 1, 12, 30, 0, 5)),
        ("timestamp(us)", datetime(2026, 1, 1, tzinfo=BERLIN), datetime(2025, 12, 31, 23)),
        ("timestamp(us, UTC)", datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc)),
        ("timestamp(s)", datetime(2026, 1, 1, 0, 0, 0, 5), None),
        ("timestamp(ms)", "2026-01-01T00:00:00.250", datetime(2026, 1, 1, 0, 0, 0, 250_000)),
        ("timestamp(ms)", "soon", None),
        ("timestamp(ms)", date(2026, 1, 1), datetime(2026, 1, 1)),
        ("timestamp(ms)", 1_000, datetime(1970, 1, 1, 0, 0, 1)),
        ("timestamp(ms)", numpy.datetime64("2026-01-01T01"), datetime(2026, 1, 1, 1)),
        ("timestamp(ns)", pandas.Timestamp("2026-01-01T00:00:00.000001999"), datetime(2026, 1, 1, 0, 0, 0, 1)),
        ("timestamp(us)", pandas.Timestamp("2026-01-01T00:00:00.000001999"), None),
        ("timestamp(us)", numpy.datetime64(1, "ps"), None),
        ("date", date(1969, 12, 31), date(1969, 12, 31)),
        ("date", datetime(2026, 1, 1), date(2026, 1, 1)),
        ("date", datetime(2026, 1, 1, 1), None),
        ("duration(ms)", timedelta(days=-1, milliseconds=3), timedelta(days=-1, milliseconds=3)),
        ("duration(s)", numpy.timedelta64(2, "m"), timedelta(minutes=2)),
        ("duration(s)", pandas.Timedelta("1us"), None),
    ],
)
def test_put_takes_what_loses_nothing(db, kind, given, stored):
    table = db.create_table("t", {"n": "int64", "x": kind}, time="n")
    with table.appender() as appender:
        if stored is None:
            for put in (table.put, appender.put):
                with pytest.raises(thalweg.SchemaError, match='"t"'):
                    put(0, given)
        else:
            table.put(0, given)
            appender.put(1, given)
    rows = table.scan(columns=["x"]).fetchall()
    assert rows == ([] if stored is None else [(stored,), (stored,)])
    assert all(type(row[0]) is type(stored) for row in rows)


@pytest.mark.parametrize("missing", [None, pandas.NaT, pandas.NA, numpy.datetime64("NaT")])
def test_put_null(table, missing):
    table.put(1, None, None)
    table.put(2, missing, missing)
    assert table.scan(columns=["s", "v"]).fetchall() == [(None, None), (None, None)]
    with pytest.raises(thalweg.SchemaError, match="ts"):
        table.put(missing, "a", 1.0)


def test_put_wants_every_column(table):
    for row in ((), (1,), (1, "a"), (1, "a", 1.0, 2.0)):
        with pytest.raises(thalweg.SchemaError, match="3 columns"):
            table.put(*row)
    with pytest.raises(TypeError):
        table.put(ts=1)


def test_an_appender_commits_when_it_is_left(table):
    with table.appender() as appender:
        for i in range(1_000):
            appender.put(i, "x", i / 2)
        assert "1000 rows" in repr(appender)
        with pytest.raises(thalweg.SchemaError):
            appender.put(1_000, 5, 0.0)
        appender.flush()
        assert len(table) == 1_000
        appender.put(1_000, "y", None)
    assert len(table) == 1_001
    appender.close()
    for call in (appender.flush, lambda: appender.put(1, "a", 1.0)):
        with pytest.raises(thalweg.Error, match="closed"):
            call()


def nanoseconds(times):
    return [None if time is None else time.value for time in times.cast(pyarrow.timestamp("ns")).to_pylist()]


EXACT = pandas.Timestamp("2026-01-01T00:00:00.000000123")


@pytest.mark.parametrize(
    "given, stored",
    [
        (numpy.array([15, "NaT"], "M8[100ms]"), [1_500_000_000, None]),
        (numpy.array([15, 27], "M8[10us]"), [150_000, 270_000]),
        (numpy.array([3], "M8[h]"), [10_800_000_000_000]),
        (numpy.array(["NaT"], "M8"), [None]),
        ([EXACT, None], [EXACT.value, None]),
        (numpy.array([EXACT], object), [EXACT.value]),
        (pandas.Series([EXACT, None], dtype=object), [EXACT.value, None]),
        (numpy.array([15, 27], "M8[ps]"), "use s, ms, us or ns"),
        (numpy.array([2**62, 0], "M8[h]"), "beyond 64 bits"),
        (numpy.array([2**60], "M8[D]"), "beyond 64 bits"),
        (numpy.array([2**62], "M8[100s]"), "beyond 64 bits"),
        (numpy.array([2**40], "M8[D]"), "outside the range"),
        ([pandas.Timestamp("1500-01-01"), EXACT], "overflow"),
    ],
)
@pytest.mark.parametrize("framed", [False, True])
def test_columns_of_times_lose_nothing(db, given, stored, framed):
    table = db.create_table("t", {"n": "int64", "x": "timestamp(ns)"}, time="n")
    columns = {"n": numpy.arange(len(given)), "x": given}
    if framed and not isinstance(given, numpy.ndarray):
        columns = pandas.DataFrame(columns | {"x": pandas.Series(given, dtype=object)})
    if isinstance(stored, str):
        with pytest.raises(thalweg.Error, match=stored):
            table.append(columns)
        assert len(table) == 0
    else:
        table.append(columns)
        assert nanoseconds(table.scan().arrow()["x"]) == stored


def test_columns_of_durations_lose_nothing(db):
    table = db.create_table("t", {"n": "int64", "x": "duration(ns)"}, time="n")
    for number, given in enumerate([numpy.array([15], "m8[100ms]"), [pandas.Timedelta(123, "ns")]]):
        table.append({"n": [number], "x": given})
    assert table.scan().arrow()["x"].cast(pyarrow.int64()).to_pylist() == [1_500_000_000, 123]


@pytest.mark.parametrize("far", [numpy.datetime64(2**62, "h"), numpy.datetime64(2**60, "D"), numpy.datetime64(2**62, "100s")])
def test_put_refuses_times_that_wrap_round(db, far):
    table = db.create_table("t", {"n": "int64", "x": "timestamp(s)"}, time="n")
    with pytest.raises(thalweg.Error, match="beyond 64 bits"):
        table.put(1, far)
    table.put(2, numpy.datetime64(15, "100ms").astype("M8[s]"))
    assert len(table) == 1


def test_lists_of_integers_beyond_int64(db):
    table = db.create_table("t", {"n": "int64", "x": "uint64"}, time="n")
    table.append({"n": [1, 2, 3], "x": [2**64 - 1, None, 5]})
    assert table.scan().arrow()["x"].to_pylist() == [2**64 - 1, None, 5]


def test_a_message_about_text_that_is_no_unicode_can_be_printed(db):
    table = db.create_table("t", {"n": "int64", "x": "varchar"}, time="n")
    with pytest.raises(thalweg.SchemaError, match="surrogates") as raised:
        table.append({"n": [1], "x": ["\ud800"]})
    str(raised.value).encode()


def test_an_appender_whose_table_is_gone_says_so_every_time(db):
    table = db.create_table("t", {"n": "int64"}, time="n")
    appender = table.appender()
    appender.put(1)
    db.sql("DROP TABLE t")
    for call in (appender.flush, appender.flush, appender.close, appender.close, lambda: appender.put(2)):
        with pytest.raises(thalweg.NotFoundError):
            call()
    assert "1 rows" in repr(appender)


def test_an_appender_keeps_rows_before_an_exception(table):
    with pytest.raises(ZeroDivisionError):
        with table.appender() as appender:
            appender.put(1, "x", 1.0)
            raise ZeroDivisionError
    assert len(table) == 1


def test_one_appender_for_several_threads(table):
    with table.appender() as appender:

        def put():
            for i in range(20_000):
                appender.put(i, "x", 1.0)

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(table) == 80_000


def test_a_signal_ends_a_large_append_of_one_batch(db):
    table = db.create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    rows = 8_000_000
    data = {"ts": numpy.arange(rows), "v": numpy.random.default_rng(1).random(rows)}

    def raises(signum, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, raises)
    try:
        with pytest.raises(TimeoutError):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            table.append(data)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(table) == 0
    assert table.append(data) == rows


NESTED = """
db = thalweg.connect(":memory:")
table = db.create_table("t", {"ts": "int64", "v": "double"}, time="ts")
table.append({"ts": [1, 2, 3], "v": [1.0, 2.0, 3.0]})

def rows():
    return db.sql("SELECT * FROM t LIMIT 3")

def reader():
    batches = (batch for _ in range(2) for batch in pyarrow.table(rows()).to_batches())
    return pyarrow.RecordBatchReader.from_batches(table.schema, batches)

class Path:
    def __fspath__(self):
        assert len(pyarrow.table(rows())) == 3
        return path

def handler(*_):
    assert len(pyarrow.table(rows())) == 3
    raise InterruptedError

shown = rows()
shown.fetchone()
assert table.append([rows()]) == 3
assert table.append([rows(), table.scan(limit=3), shown]) == 8
assert table.append([table]) == 14
assert table.append(pyarrow.table(rows()) for _ in range(2)) == 6
assert table.append(reader()) == 6
read = reader()
assert db.sql("SELECT count(*) FROM read").fetchone() == (6,)
assert len(db.create_table("u", [table.scan(limit=2)])) == 2
thalweg.connect(Path()).close()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    db.sql("SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b").fetchall()
except InterruptedError:
    print("nested")
# The end of what was never read.
rest = iter(rows().reader())
next(rest)
del rest
gc.collect()
"""


def test_what_is_appended_may_be_read_from_the_same_database(tmp_path):
    # Below an append pyarrow lets go of the interpreter by itself, and calls the stream of a result.
    assert "nested" in run(NESTED, tmp_path / "d.thal")


def test_rows_take_the_scalars_of_numpy_and_pandas(db):
    table = db.create_table("t", {"ts": "timestamp[ns]", "d": "date32", "v": "float64", "s": "string"}, time="ts")
    missing = [None, pandas.NA, pandas.NaT, numpy.datetime64("NaT")]
    for unit, text in [("Y", "2024"), ("M", "2024-01"), ("D", "2024-01-01"), ("h", "2024-01-01T00"), ("m", "2024-01-01T00:00")]:
        table.append({"ts": numpy.datetime64(text, unit), "d": numpy.datetime64("2024-01-02"), "v": 1.0, "s": unit})
        table.append([{"ts": numpy.datetime64(text, unit), "v": value} for value in missing])
        table.append([(numpy.datetime64(text, unit), numpy.datetime64("NaT"), pandas.NA, pandas.NA)])
    table.append([{"ts": numpy.datetime64("2024-01-01T00", "h")}, {"ts": numpy.datetime64("2024-01-01T00:00:00.000000001", "ns")}])
    assert db.sql("SELECT count(*), min(ts), max(epoch_ns(ts)) - min(epoch_ns(ts)), count(d), min(d), count(v), count(s) FROM t").fetchall() == [
        (32, datetime(2024, 1, 1), 1, 5, date(2024, 1, 2), 5, 5)
    ]
    with pytest.raises(thalweg.SchemaError, match='"ts"'):
        table.append({"ts": numpy.datetime64("NaT")})


def test_frames_of_polars_with_columns_without_values_and_of_objects(db):
    frame = polars.DataFrame({"ts": ["2024-01-01"], "v": [None]})
    table = db.create_table("t", {"ts": "timestamp", "v": "double"}, time="ts")
    assert table.append(frame) == 1
    assert db.sql("SELECT v FROM t").fetchall() == [(None,)]
    assert db.sql("SELECT v, ts FROM frame").fetchall() == [(None, "2024-01-01")]
    objects = polars.DataFrame({"x": polars.Series([object()], dtype=polars.Object)})
    with pytest.raises(thalweg.SchemaError, match='"x" is of Python objects'):
        db.create_table("o", objects)


def _shapes(values):
    """The same column in every form that holds Python objects."""
    objects = numpy.empty(len(values), dtype=object)
    objects[:] = values
    return [
        {"v": values},
        [{"v": value} for value in values],
        [(value,) for value in values],
        {"v": objects},
        pandas.DataFrame({"v": pandas.Series(values, dtype=object)}),
    ]


@pytest.mark.parametrize(
    "of_type, values, stored",
    [
        (
            "TIMESTAMP",
            [date(2024, 1, 1), datetime(2024, 1, 2, 5, 6, 7)],
            [datetime(2024, 1, 1), datetime(2024, 1, 2, 5, 6, 7)],
        ),
        (
            "TIMESTAMP",
            [datetime(2024, 1, 2, 5, 6, 7), None, date(2024, 1, 1)],
            [datetime(2024, 1, 2, 5, 6, 7), None, datetime(2024, 1, 1)],
        ),
        ("DATE", [date(2024, 1, 1), pandas.NaT, None], [date(2024, 1, 1), None, None]),
        (
            "TIMESTAMP",
            [numpy.datetime64("2024-01-01T01", "h"), numpy.datetime64("2024-01-01T00:00:00.000001", "us")],
            [datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)],
        ),
        ("TIMESTAMP(0)", [numpy.datetime64("2024-01-01", "25s"), numpy.datetime64("NaT")], [datetime(2024, 1, 1), None]),
        ("DATE", [date(2024, 1, 1), numpy.datetime64("NaT")], [date(2024, 1, 1), None]),
        ("DOUBLE", [numpy.timedelta64("NaT"), 0.5], [None, 0.5]),
        ("DOUBLE", [numpy.float16(0.5), 3, pandas.NA], [0.5, 3.0, None]),
        ("BIGINT", [1, numpy.int8(2), None], [1, 2, None]),
    ],
)
def test_values_of_one_family_are_stored_as_they_are(db, of_type, values, stored):
    for number, rows in enumerate(_shapes(values)):
        db.sql(f"CREATE TABLE f{number} (v {of_type})")
        db.table(f"f{number}").append(rows)
        assert [row[0] for row in db.sql(f"SELECT v FROM f{number}").fetchall()] == stored


@pytest.mark.parametrize(
    "of_type, values, message",
    [
        ("DATE", [date(2024, 1, 1), datetime(2024, 1, 2, 5)], "row 1 holds"),
        ("TIMESTAMP", [datetime(2024, 1, 2), 5], "5 is of type int among values of type datetime"),
        ("TIMESTAMP", [date(2024, 1, 2), 5], "5 is of type int among values of type date"),
        ("DOUBLE", [1.5, True], "True is of type bool among values of type float"),
        ("DOUBLE", [numpy.uint64(2**64 - 1), 1.5], "an integer is beyond 64 bits"),
        ("BIGINT", [5, -(2**63) - 1], "an integer is beyond 64 bits"),
        ("BIGINT", [0, uuid.UUID(int=5)], "is of type UUID among values of type int"),
        ("TIMESTAMP", [numpy.datetime64("9999", "Y"), numpy.datetime64(1, "ns")], "do not fit 64 bits of ns"),
        ("TIMESTAMP", [numpy.datetime64("2024-01-01"), numpy.bool_(True)], "of type bool among values of type datetime64"),
        ("BIGINT", [numpy.timedelta64(400, "Y"), numpy.timedelta64(1, "ns")], "incompatible"),
    ],
)
def test_values_of_several_families_are_refused(db, of_type, values, message):
    db.sql(f"CREATE TABLE f (v {of_type})")
    table = db.table("f")
    for rows in _shapes(values):
        with pytest.raises(thalweg.Error, match=message):
            table.append(rows)
    assert len(table) == 0


def test_empty_slices_are_no_rows(db):
    db.sql("CREATE TABLE e (s VARCHAR, b BLOB, n BIGINT)")
    table = db.table("e")
    batch = pyarrow.record_batch({"s": ["abc", "de"], "b": [b"x", b"yz"], "n": [1, 2]})
    empty = batch.slice(1, 0)
    table.append(empty)
    table.append(pyarrow.Table.from_batches([empty, batch, empty]))
    table.append(pyarrow.RecordBatchReader.from_batches(batch.schema, [empty, batch]))
    assert db.sql("SELECT count(*) FROM empty").fetchall() == [(0,)]
    assert db.sql("SELECT s, n FROM e ORDER BY n").fetchall() == [("abc", 1), ("abc", 1), ("de", 2), ("de", 2)]


Reading = collections.namedtuple("Reading", "v ts s")


@dataclasses.dataclass
class Sample:
    s: str
    ts: datetime
    v: float


def _sqlite_rows():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    return connection.execute("SELECT 1.5 v, 'b' s, '2026-01-02' ts").fetchall()


@pytest.mark.parametrize(
    "rows",
    [
        [Reading(1.5, TIMES[1], "b")],
        Reading(1.5, TIMES[1], "b"),
        [Sample("b", TIMES[1], 1.5)],
        Sample("b", TIMES[1], 1.5),
        [types.MappingProxyType({"v": 1.5, "s": "b", "ts": TIMES[1]})],
        collections.ChainMap({"v": 1.5, "s": "b"}, {"ts": TIMES[1]}),
        _sqlite_rows(),
        iter(_sqlite_rows()),
        [row for _, row in pandas.DataFrame({"v": [1.5], "s": ["b"], "ts": [TIMES[1]]}).iterrows()],
        pandas.DataFrame({"v": [1.5], "s": ["b"], "ts": [TIMES[1]]}).itertuples(index=False),
        list(pandas.DataFrame({"v": [1.5], "s": ["b"], "ts": [TIMES[1]]}).to_records(index=False)),
    ],
)
def test_rows_with_names_are_matched_by_them(db, table, rows):
    assert table.append(rows) == 1
    assert table.scan().fetchall() == [(TIMES[1], "b", 1.5)]


def test_rows_with_names_make_a_table(db):
    for name, rows in [("a", [Reading(1.5, TIMES[1], "b")]), ("b", [Sample("b", TIMES[1], 1.5)])]:
        table = db.create_table(name, rows, time="ts")
        assert table.scan(columns=["ts", "s", "v"]).fetchall() == [(TIMES[1], "b", 1.5)]
    with pytest.raises(thalweg.SchemaError, match="tuple, whose values have no names"):
        db.create_table("c", [(TIMES[1], 1.5)])


def test_nan_beside_other_kinds_is_a_missing_value(db, table):
    frame = pandas.DataFrame({"ts": TIMES, "s": ["a", None, "c"], "v": [0.5, 1.5, 2.5]})
    for rows in (frame.to_dict("records"), frame.to_dict("list"), frame.itertuples(index=False), frame.values.tolist()):
        table.append(rows)
    assert {row[0] for row in db.sql("SELECT s FROM t WHERE v = 1.5").fetchall()} == {None}
    table.append({"ts": [TIMES[0]], "s": ["x"], "v": [float("nan")]})
    assert db.sql("SELECT count(*) FROM t WHERE isnan(v)").fetchone() == (1,)


@pytest.mark.parametrize(
    "data, message",
    [
        ((TIMES[0], "a", 1.5), r"append\(\[row\]\) and put"),
        ({"ts": TIMES, "s": [uuid.uuid4()] * 3}, "column \"s\": row 0 holds"),
        ({"ts": TIMES, "v": numpy.arange(3, dtype="longdouble")}, "values of type float128 cannot be stored"),
        (polars.DataFrame({"ts": TIMES[:1], "v": polars.Series([5], dtype=polars.Int128)}), "Int128, which cannot be stored"),
        (pandas.DataFrame({"ts": TIMES}).to_dict(), r"to_dict\('list'\) makes columns"),
    ],
)
def test_what_append_does_not_take_is_said_in_its_own_words(table, data, message):
    with pytest.raises(thalweg.SchemaError, match=message):
        table.append(data)
    assert len(table) == 0


def test_bytes_of_fixed_length_go_where_others_do(db):
    table = db.create_table("f", {"s": "varchar", "b": "binary"})
    fixed = pyarrow.array([b"abc", None, b"def"], pyarrow.binary(3))
    table.append({"s": fixed, "b": fixed})
    assert table.scan().fetchall() == [("abc", b"abc"), (None, None), ("def", b"def")]


@pytest.mark.parametrize("text", ["2026-01-02 9:05", "2026-01-02T09:05", "2026-01-02 9:05:00"])
def test_times_without_seconds_or_with_an_hour_of_one_digit(text):
    db = thalweg.connect()
    table = db.create_table("t", {"ts": "timestamp", "v": float}, time="ts")
    table.append({"ts": [text], "v": [1.0]})
    table.put(text, 2.0)
    table.append(pandas.DataFrame({"ts": [text], "v": [3.0]}))
    table.append([{"ts": text, "v": 4.0}])
    assert table.scan(start=text, end="2026-01-02 9:06").arrow()["v"].to_pylist() == [1.0, 2.0, 3.0, 4.0]
    assert db.sql("SELECT count(*) FROM t WHERE ts = ?", [text]).fetchall() == [(4,)]


@pytest.mark.parametrize("frames", [pandas, polars])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_frame_is_no_column(frames, rows):
    db = thalweg.connect()
    table = db.create_table("t", {"ts": "timestamp", "v": float}, time="ts")
    frame = frames.DataFrame({"v": [1.5] * rows})
    with pytest.raises(thalweg.SchemaError, match=r"column \"v\": a DataFrame has columns of its own; take one of them"):
        table.append({"ts": TIMES[:rows], "v": frame})
    assert len(table) == 0


def test_a_column_without_values_fits_every_type(db):
    table = db.create_table("chunks", {"n": int, "s": str, "b": bool, "t": "timestamp", "d": "date", "l": "duration"})
    missing = {name: [numpy.nan] for name in "sbtdl"}
    assert table.append(pandas.DataFrame({"n": [1], **missing})) == 1
    assert table.scan().arrow().to_pylist() == [{"n": 1, "s": None, "b": None, "t": None, "d": None, "l": None}]
    with pytest.raises(thalweg.SchemaError, match="does not take double"):
        table.append(pandas.DataFrame({"n": [1], "s": [1.5]}))


def test_a_row_of_a_frame_and_datasets_are_rows(db, tmp_path):
    frame = pandas.DataFrame({"ts": pandas.to_datetime(["2024-01-01", "2024-01-02"]), "s": ["a", "b"], "v": [1.5, None]})
    table = db.create_table("f", {"ts": "timestamp", "s": "varchar", "v": "double"}, time="ts")
    table.append(frame.iloc[1])
    table.append(pandas.Series({"ts": "2024-01-01", "s": "a", "v": 1.5}))
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "f.parquet")
    dataset = pyarrow.dataset.dataset(tmp_path / "f.parquet")
    table.append(dataset)
    table.append(dataset.scanner(filter=pyarrow.dataset.field("v") > 1))
    assert db.sql("SELECT s, v FROM f ORDER BY ts").fetchall() == [("a", 1.5)] * 3 + [("b", None)] * 2


def test_uuids_among_texts_say_what_to_give(db):
    table = db.create_table("u", {"id": "varchar"})
    with pytest.raises(thalweg.SchemaError, match=r"no text in UTF-8; of a UUID of Python str\(\.\.\.\)"):
        table.append({"id": [uuid.UUID(int=2**127)]})
    with pytest.raises(thalweg.SchemaError, match=r"give str\(id\)"):
        table.put(uuid.UUID(int=5))


def test_rows_are_counted_over_all_frames(db):
    table = db.create_table("t", {"n": "bigint"})
    with pytest.raises(thalweg.SchemaError, match='column "n": row 3 holds "1.5"'):
        table.append([{"n": [1, 2]}, {"n": [3.0, 1.5]}])
