"""Tables: made, listed, described, dropped."""

import contextlib
import itertools
import random
import signal
import threading
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import thalweg

COLUMNS = {"ts": "timestamp", "v": "double"}
DAYS = pandas.date_range("2026-01-01", periods=3)
FRAME = pandas.DataFrame({"ts": DAYS, "s": ["a", None, "c"], "v": [0.5, 1.5, None]})


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
        (COLUMNS, {"time": "v"}, thalweg.SchemaError, "double"),
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
        (5, {}, thalweg.SchemaError, "int"),
        (None, {}, thalweg.SchemaError, "NoneType"),
        ([], {}, thalweg.SchemaError, "no rows"),
        ([1, 2], {}, thalweg.SchemaError, "list of int"),
        ({"a": Decimal}, {}, thalweg.SchemaError, r"decimal\(18, 3\)"),
        ({"a": dict}, {}, thalweg.SchemaError, "dict"),
        ({"a": [1], "b": [[1]]}, {}, thalweg.SchemaError, '"b".*bigint'),
        ({"a": [1, 2], "b": [1]}, {}, thalweg.SchemaError, "a: 2, b: 1"),
        ({"a": [1, None]}, {"time": "a"}, thalweg.SchemaError, "row 1 is null"),
        (pandas.DataFrame({"a": DAYS, "b": DAYS}), {}, thalweg.SchemaError, r'\(a, b\).*time="a"'),
        (pandas.DataFrame({"a": [1]}), {"time": "b"}, thalweg.NotFoundError, '"b"'),
        (COLUMNS, {"time": 5}, thalweg.Error, "time is 5"),
        (COLUMNS, {"time": "ts", "split": [1]}, thalweg.Error, "split is"),
        (COLUMNS, {"time": "ts", "split": 1000}, thalweg.Error, "1000"),
        (COLUMNS, {"layout": 5}, thalweg.Error, "layout is 5"),
        (COLUMNS, {"summaries": 5}, thalweg.Error, "summaries is 5"),
        (pyarrow.schema([("a", pyarrow.list_(pyarrow.int64()))]), {}, thalweg.SchemaError, "bigint"),
    ],
)
def test_what_cannot_be_a_table(db, schema, options, kind, word):
    with pytest.raises(kind, match=word):
        db.create_table("t", schema, **options)
    assert db.tables() == []


def test_a_view_is_read_by_queries_alone(path, db, cpu):
    db.sql('CREATE VIEW "Hot ones" (at, v) AS SELECT ts, sys FROM cpu WHERE sys > 3')
    assert db.tables() == ["cpu"]
    assert db.sql("SHOW TABLES").fetchall() == [("Hot ones",), ("cpu",)]
    for call in (db.table, db.drop_table):
        with pytest.raises(thalweg.UnsupportedError, match='"Hot ones" is a view.*db.sql'):
            call("HOT ONES")
    with pytest.raises(thalweg.AlreadyExistsError, match="view"):
        db.create_table("hot ones", {"ts": "int64"})
    with db.transaction() as tx:
        with pytest.raises(thalweg.UnsupportedError, match="view"):
            tx.table("hot ones")
    rows = db.sql('SELECT * FROM "hot ones"').fetchall()
    assert rows and rows == db.sql("SELECT ts, sys FROM cpu WHERE sys > 3").fetchall()
    v = pyarrow.table({"x": [1]})  # noqa: F841 a view sees no variables
    with pytest.raises(thalweg.NotFoundError, match='view "w": there is no table "v"'):
        db.sql("CREATE VIEW w AS SELECT * FROM v")
    db.close()
    with thalweg.connect(path, read_only=True) as reader:
        assert reader.sql('SELECT * FROM "hot ones"').fetchall() == rows
        with pytest.raises(thalweg.Error):
            reader.sql("CREATE VIEW w AS SELECT 1 AS a")


def test_a_view_shows_what_a_transaction_has_changed(db, cpu):
    db.sql("CREATE VIEW all_rows AS SELECT count(*) AS n FROM cpu")
    with db.transaction() as tx:
        before = tx.sql("SELECT n FROM all_rows").fetchone()[0]
        tx.sql("DELETE FROM cpu")
        assert tx.sql("SELECT n FROM all_rows").fetchone() == (0,)
        assert db.sql("SELECT n FROM all_rows").fetchone() == (before,)
        with pytest.raises(thalweg.UnsupportedError, match="CREATE VIEW within a transaction"):
            tx.sql("CREATE VIEW w AS SELECT 1 AS a")
    assert db.sql("SELECT n FROM all_rows").fetchone() == (0,)


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


@pytest.fixture
def unmaintained():
    """A database in which nothing is put in order without being asked."""
    with thalweg.connect(maintenance="manual") as opened:
        yield opened


def test_maintain_puts_late_rows_in_order(unmaintained):
    table = unmaintained.create_table("late", {"ts": "int64", "n": "int64"}, time="ts")
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


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"a": float, "b": int, "c": str, "d": bool, "e": bytes}, ["double", "int64", "string", "bool", "binary"]),
        ({"a": datetime, "b": date, "c": timedelta}, ["timestamp[ns]", "date32[day]", "duration[us]"]),
        ({"a": numpy.float32, "b": numpy.dtype("int16"), "c": numpy.dtype("O"), "d": numpy.dtype("U5")}, ["float", "int16", "string", "string"]),
        ({"a": pyarrow.field("x", pyarrow.int8()), "b": pyarrow.large_string(), "c": pyarrow.string_view()}, ["int8", "string", "string"]),
        (polars.Schema({"a": polars.Float32, "b": polars.String, "c": polars.Datetime("ms", "UTC")}), ["float", "string", "timestamp[ms, tz=UTC]"]),
        ({"a": polars.Int8, "b": polars.Decimal(10, 2), "c": polars.Categorical()}, ["int8", "decimal128(10, 2)", "string"]),
        (pyarrow.schema({"a": pyarrow.large_binary()}), ["binary"]),
        (
            pandas.DataFrame({"a": [1.5], "b": ["x"], "c": pandas.array([1], "Int32"), "d": pandas.array([True], "boolean")}).dtypes.to_dict(),
            ["double", "string", "int32", "bool"],
        ),
        (
            pandas.DataFrame({"a": DAYS.as_unit("ms").tz_localize("Europe/Berlin"), "b": pandas.Categorical(["x", "y", "z"])}).dtypes.to_dict(),
            ["timestamp[ms, tz=Europe/Berlin]", "string"],
        ),
        ({"a": pandas.ArrowDtype(pyarrow.int8()), "b": pandas.StringDtype(), "c": pandas.CategoricalDtype([1, 2])}, ["int8", "string", "int64"]),
    ],
)
def test_columns_in_every_form(db, schema, types):
    assert [str(kind) for kind in db.create_table("t", schema).schema.types] == types
    assert len(db.table("t")) == 0


@pytest.mark.parametrize(
    "data",
    [
        FRAME,
        FRAME.set_index("ts"),
        FRAME.set_index(["ts", "s"]),
        polars.from_pandas(FRAME),
        polars.from_pandas(FRAME).lazy(),
        pyarrow.Table.from_pandas(FRAME),
        pyarrow.Table.from_pandas(FRAME).to_batches()[0],
        pyarrow.Table.from_pandas(FRAME).to_reader,
        [{"ts": day.to_pydatetime(), "s": s, "v": v} for day, s, v in zip(DAYS, ["a", None, "c"], [0.5, 1.5, None])],
        {"ts": DAYS.to_numpy(), "s": ["a", None, "c"], "v": pyarrow.array([0.5, 1.5, None])},
        [FRAME[:1], FRAME[1:]],
    ],
)
@pytest.mark.parametrize("options", [{}, {"time": "ts", "split": timedelta(days=1)}])
def test_a_table_of_data(db, data, options):
    # A reader can be read once.
    table = db.create_table("t", data() if callable(data) else data, **options)
    assert table.stats()["time"] == "ts"
    rows = table.scan(columns=["ts", "s", "v"]).fetchall()
    assert rows == [(datetime(2026, 1, 1), "a", 0.5), (datetime(2026, 1, 2), None, 1.5), (datetime(2026, 1, 3), "c", None)]
    table.put(*[datetime(2026, 1, 4) if name == "ts" else None for name in table.schema.names])


def test_a_table_of_a_frame_whose_index_has_no_name(db):
    frame = pandas.DataFrame({"v": [1.0, 2.0, 3.0]}, index=DAYS)
    assert db.create_table("a", frame).schema.names == ["ts", "v"]
    assert db.create_table("b", frame, time="at").schema.names == ["at", "v"]
    assert (db.table("b").stats()["time"], len(db.table("b"))) == ("at", 3)
    assert db.create_table("c", frame.reset_index(drop=True)).schema.names == ["v"]


def test_a_table_of_a_result(db, cpu):
    hosts = db.create_table("hosts", db.sql("SELECT host, count(*) AS n FROM cpu GROUP BY host"))
    assert len(hosts) == 4 and all(field.nullable for field in hosts.schema)


def test_a_table_whose_rows_do_not_fit_is_not_there(db):
    with pytest.raises(thalweg.SchemaError, match="null"):
        db.create_table("t", {"ts": [1, None], "v": [0.5, 0.5]}, time="ts")
    with pytest.raises(thalweg.AlreadyExistsError):
        db.create_table("u", {"ts": [1]}) and db.create_table("u", {"ts": [2]})
    assert db.tables() == ["u"] and len(db.table("u")) == 1


def test_split_by_numbers_and_timedeltas(db):
    assert len(db.create_table("a", {"ts": range(5_000)}, time="ts", split=1_000)) == 5_000
    db.create_table("b", COLUMNS, time="ts", split=timedelta(hours=6))
    with pytest.raises(thalweg.Error, match="86400000000 us"):
        db.create_table("c", {"ts": "int64"}, time="ts", split=timedelta(days=1))


def test_late_rows_come_in_order_without_being_asked(db):
    table = db.create_table("late", {"ts": "int64", "n": "int64"}, time="ts")
    for first in (0, 1):
        table.append({"ts": list(range(first, 100_000, 2)), "n": [first] * 50_000})
    before = table.scan().arrow()
    jobs = "SELECT state, rows, error FROM thalweg_jobs WHERE table_name = 'late' AND job = 'late rows' AND steps > 0"
    until = time.monotonic() + 120
    while table.stats()["late_rows"] > 0 or not db.sql(jobs).fetchall():
        assert time.monotonic() < until
        time.sleep(0.05)
    [(state, rows, error)] = db.sql(jobs).fetchall()
    assert state in {"running", "done"} and rows >= 50_000 and error is None
    assert table.scan().arrow().equals(before)


def test_ctrl_c_ends_maintain_and_loses_nothing(unmaintained):
    db = unmaintained
    table = db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
    rows = numpy.arange(400_000)
    for late in range(5):
        table.append({"ts": rows * 5 + late, "v": rows})

    def handler(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            table.maintain()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(table) == 2_000_000
    table.maintain()
    assert table.stats()["late_rows"] == 0
    times = db.sql("SELECT ts FROM t").numpy()["ts"]
    assert (times == numpy.arange(2_000_000)).all()


def test_texts_in_the_column_of_times_become_times():
    with thalweg.connect() as db:
        rows = [{"ts": "2024-01-02 06:00", "k": "2024"}, {"ts": "2024-01-01", "k": "x"}]
        table = db.create_table("t", rows, time="TS")
        assert table.columns == ["ts", "k"]
        assert [str(field.type) for field in table.schema] == ["timestamp[ns]", "string"]
        assert [row[1] for row in db.sql("SELECT * FROM t").fetchall()] == ["x", "2024"]
        with pytest.raises(thalweg.SchemaError, match="never"):
            db.create_table("u", [{"ts": "never", "k": "x"}], time="ts")
        assert db.tables() == ["t"]


@pytest.mark.parametrize("statement", [None, "CREATE TABLE t AS SELECT * FROM reader"])
def test_a_failed_create_drops_no_table_that_has_taken_its_name(db, statement):
    schema = pyarrow.schema([("n", pyarrow.int64())])

    def rows():
        yield pyarrow.record_batch([[1]], schema=schema)
        assert db.tables() == []
        db.create_table("t", {"n": "int64"}).append({"n": list(range(100))})
        yield pyarrow.record_batch([[2]], schema=schema)

    reader = pyarrow.RecordBatchReader.from_batches(schema, rows())
    with pytest.raises(thalweg.AlreadyExistsError):
        db.sql(statement).fetchall() if statement else db.create_table("t", reader)
    assert len(db.table("t")) == 100 and db.tables() == ["t"]


def test_a_table_that_was_made_is_the_callers_own(db):
    """Also where others make and drop tables of the same name."""
    found, errors = [], []

    def make(first):
        for number in itertools.count(first):
            if number >= first + 150 and found:
                break
            with contextlib.suppress(thalweg.AlreadyExistsError, thalweg.NotFoundError):
                table = db.create_table("t", {"n": "int64"})
                table.append({"n": [number]})
                rows = [n for (n,) in table.scan().fetchall()]
                found.append(number)
                if rows != [number]:
                    errors.append((number, rows))

    def drop():
        while makers[0].is_alive() or makers[1].is_alive():
            with contextlib.suppress(thalweg.NotFoundError):
                db.drop_table("t")
            # Else it may be quicker than any row each time.
            time.sleep(random.uniform(0, 0.002))

    makers = [threading.Thread(target=make, args=(first,)) for first in (0, 1_000)]
    for thread in makers:
        thread.start()
    drop()
    for thread in makers:
        thread.join()
    assert found and not errors


def test_data_may_be_ordered_by_arrival(db):
    times = pandas.to_datetime(["2024-01-02", None])
    frame = pandas.DataFrame({"id": [2, 1], "shipped": times})
    with pytest.raises(thalweg.SchemaError, match='column "shipped": row 1 is null.*time="" keeps the order of arrival'):
        db.create_table("orders", frame)
    assert db.tables() == []
    for number, data in enumerate((frame, frame.assign(ordered=pandas.Timestamp("2024-01-01")), frame.iloc[:1])):
        table = db.create_table(f"orders{number}", data, time="")
        assert table.scan().arrow()["id"].to_pylist() == data["id"].tolist()
        assert db.sql(f"SELECT count(shipped) FROM orders{number}").fetchone() == (1,)
    assert db.create_table("empty", {"ts": "timestamp"}, time="").append({"ts": [None]}) == 1


def test_the_dtypes_of_a_frame_are_a_schema(db):
    frame = pandas.DataFrame({"n": [1], "x": [0.5], "s": ["a"], "t": pandas.to_datetime(["2024-01-01"]), "c": pandas.Categorical(["a"])})
    frame["i"] = frame["n"].astype("Int64")
    table = db.create_table("t", frame.dtypes, time="t")
    assert table.append(frame) == 1
    assert table.scan().arrow().num_columns == 6
    with pytest.raises(thalweg.SchemaError):
        db.create_table("u", frame["x"])


def test_chunks_of_two_types_are_told_by_their_places(db):
    frames = [pandas.DataFrame({"a": [1]}), pandas.DataFrame({"a": [2]}), pandas.DataFrame({"a": ["x"]})]
    words = 'column "a" is bigint in the first frame and varchar in frame 3: give it one type in all of them'
    for given in (frames, iter(frames)):
        with pytest.raises(thalweg.SchemaError, match=words):
            db.create_table("t", given)
    rows = [{"a": None, "b": True}] * 65_536 + [{"a": 1, "b": 2.5}]
    with pytest.raises(thalweg.SchemaError, match='column "b" is boolean in the rows from 0 on and double in the rows from 65536 on'):
        db.create_table("t", rows)
    assert db.tables() == []
    # Types that have a common one, as bigint and double, are still taken.
    assert len(db.create_table("t", [frames[0].iloc[:0].astype(str), frames[0], pandas.DataFrame({"a": [1.5], "b": ["x"]})])) == 2


def test_a_dataset_makes_a_table(db, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"v": [1.5, 2.5]}), tmp_path / "f.parquet")
    dataset = pyarrow.dataset.dataset(tmp_path / "f.parquet")
    assert len(db.create_table("all", dataset)) == 2
    assert len(db.create_table("some", dataset.scanner(filter=pyarrow.dataset.field("v") > 2))) == 1


def test_rows_expire(tmp_path):
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    times = [now - timedelta(minutes=n) for n in range(0, 240, 10)]
    with thalweg.connect(tmp_path / "db", maintenance="manual") as db:
        table = db.create_table("t", {"ts": "timestamp", "n": "int64"}, time="ts", retention=timedelta(hours=1))
        table.append({"ts": times, "n": range(24)})
        assert len(table) == 24
        table.maintain()
        assert len(table) == 6
        for wrong in ("1 month", "soon", "0 days", 5):
            with pytest.raises(thalweg.Error, match="retention"):
                db.create_table("u", {"ts": "timestamp"}, time="ts", retention=wrong)
        with pytest.raises(thalweg.Error, match="retention"):
            db.create_table("u", {"ts": "int64"}, time="ts", retention="1 day")
    # By itself where maintenance is not left to programs.
    with thalweg.connect(tmp_path / "other") as db:
        table = db.create_table("t", {"ts": "timestamp", "n": "int64"}, time="ts", retention="1 hour")
        table.append({"ts": times, "n": range(24)})
        until = time.monotonic() + 60
        while len(table) > 6 and time.monotonic() < until:
            time.sleep(0.1)
        assert len(table) == 6
