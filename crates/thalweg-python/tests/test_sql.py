"""Statements, parameters, variables of the caller."""

import random
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy
import pandas
import polars
import pyarrow
import pytest

import thalweg

MODULE_FRAME = pandas.DataFrame({"a": [7]})


def test_statements_that_change_something_run_at_the_call(db):
    assert db.sql("CREATE TABLE t (ts TIMESTAMP, v DOUBLE) WITH (layout = 'stream', time = 'ts')").columns == ["count"]
    result = db.sql("INSERT INTO t VALUES ('2026-01-01', 1.5), ('2026-01-02', 2.5)")
    assert len(db.table("t")) == 2
    assert result.fetchall() == [(2,)]
    db.sql("INSERT INTO t SELECT ts + INTERVAL '1 day', v FROM t")
    assert db.sql("SELECT sum(v), count(*) FROM t").fetchone() == (8.0, 4)
    assert db.sql("SHOW TABLES").fetchall() == [("t",)]
    db.sql("DROP TABLE t")
    assert db.tables() == []


def test_a_query_sees_the_snapshot_of_its_call(db, cpu):
    result = db.sql("SELECT count(sys) FROM cpu WHERE sys >= 0")
    rows = db.sql("SELECT * FROM cpu")
    cpu.append({"ts": [99], "sys": [1.0]})
    assert result.fetchone() == (10,)
    assert len(rows.fetchall()) == 10


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("SELEC 1", thalweg.QueryError, "SELEC"),
        ("SELECT x FROM cpu", thalweg.QueryError, "x"),
        ("SELECT * FROM nowhere", thalweg.NotFoundError, '"nowhere".*cpu'),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM cpu", thalweg.UnsupportedError, "MATERIALIZED"),
        ("CREATE TABLE cpu (a INT)", thalweg.AlreadyExistsError, "cpu"),
        ("CREATE TABLE t (a INT) WITH (colour = 'red')", thalweg.Error, "colour"),
        ("SELECT ?", thalweg.QueryError, "parameter"),
    ],
)
def test_what_cannot_be_run(db, cpu, text, kind, word):
    with pytest.raises(kind, match=word):
        db.sql(text)


def test_several_statements_run_one_after_the_other(db):
    text = "CREATE TABLE t (k VARCHAR); INSERT INTO t VALUES ('a;b'), ('c'); -- the last one;\n SELECT k FROM t ORDER BY k;"
    assert db.sql(text).fetchall() == [("a;b",), ("c",)]
    frame = pandas.DataFrame({"k": ["d"]})  # a variable that the second statement names
    assert db.execute("INSERT INTO t VALUES ('e'); INSERT INTO t SELECT k FROM frame; SELECT count(*) FROM t").fetchone() == (4,)
    assert len(frame) == 1
    with pytest.raises(thalweg.QueryError, match="line 2, column 11: .*SELEC"):
        db.sql("DROP TABLE t;\nSELECT 1; SELEC 1")
    assert db.tables() == ["t"], "nothing runs where a statement cannot be parsed"
    with pytest.raises(thalweg.QueryError, match="one statement"):
        db.sql("SELECT 1; SELECT ?", [1])
    with pytest.raises(thalweg.Error, match="'?a;b"):
        db.sql("SELECT CAST(k AS INT) FROM t; DROP TABLE t")
    assert db.tables() == ["t"], "nothing runs after a query that fails"


@pytest.mark.parametrize(
    ("width", "bucket"),
    [
        (timedelta(days=7), datetime(2024, 1, 1)),
        ("1 week", datetime(2024, 1, 1)),
        (timedelta(hours=7), datetime(2024, 1, 3, 8)),
        ("1 month", datetime(2024, 1, 1)),
        ("5 months", datetime(2023, 10, 1)),
    ],
)
def test_a_width_that_is_a_parameter_counts_from_where_a_written_one_does(db, width, bucket):
    assert db.sql("SELECT time_bucket(?, TIMESTAMP '2024-01-03T08:00:00')", [width]).fetchone() == (bucket,)
    text = "SELECT time_bucket($1, ts) AS b, count(*) FROM (VALUES (TIMESTAMP '2024-01-03T08:00:00')) AS t(ts) GROUP BY b"
    assert db.sql(text, [width]).fetchall() == [(bucket, 1)]


def test_a_timedelta_is_the_width_of_buckets(db, cpu):
    text = "SELECT time_bucket(?, ts) AS b, count(*) FROM cpu GROUP BY b ORDER BY b"
    begins = [(datetime(1970, 1, 1), 5), (datetime(1970, 1, 1, 0, 0, 5), 5)]
    assert db.sql(text, [timedelta(seconds=5)]).fetchall() == begins
    assert db.sql(text, ["5 seconds"]).fetchall() == begins
    assert db.sql("SELECT INTERVAL '1 day' * ?", [1.5]).fetchone() == (timedelta(days=1.5),)


def test_errors_while_it_runs(db, cpu):
    result = db.sql("SELECT 1 / CAST(sys AS BIGINT) FROM cpu")
    with pytest.raises(thalweg.QueryError, match="(?i)zero"):
        result.fetchall()
    with pytest.raises(thalweg.QueryError, match="(?i)zero"):
        db.sql("SELECT 1 / CAST(sys AS BIGINT) FROM cpu").reader().read_all()
    with pytest.raises(pyarrow.ArrowInvalid, match="(?i)zero"):
        pyarrow.table(db.sql("SELECT 1 / CAST(sys AS BIGINT) FROM cpu"))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -5,
        2**64 - 1,
        1.5,
        "it's",
        b"\0\xff",
        datetime(2026, 1, 1, 12, 0, 0, 5),
        datetime(2026, 1, 1, tzinfo=timezone.utc),
        date(2026, 1, 1),
        timedelta(seconds=90),
        Decimal("-1.50"),
        Decimal(10) ** 30,
    ],
)
def test_parameters_come_back(db, value):
    for text, params in (("SELECT ?", [value]), ("SELECT $1", (value,)), ("SELECT $x", {"x": value})):
        back = db.sql(text, params=params).fetchone()[0]
        assert back == value and type(back) is type(value)
        assert db.prepare(text).execute(params).fetchone() == (value,)


def test_numpy_and_pandas_parameters(db):
    values = [numpy.int32(4), numpy.float32(0.5), numpy.datetime64("2026-01-01T00:00:00.5"), pandas.Timestamp("2026-01-01")]
    row = db.sql("SELECT ?, ?, ?, ?", params=values).fetchone()
    assert row == (4, 0.5, datetime(2026, 1, 1, 0, 0, 0, 500_000), datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("text", "params"),
    [("SELECT ?", [1, 2]), ("SELECT ?", {"x": 1}), ("SELECT $x", [1]), ("SELECT $x", {"y": 1}), ("SELECT ?", 5), ("SELECT ?", "ab"), ("SELECT $x", {1: 1})],
)
def test_parameters_that_do_not_fit(db, text, params):
    with pytest.raises(thalweg.QueryError):
        db.sql(text, params=params)


def test_parameters_in_conditions(db, cpu):
    assert db.sql("SELECT sys FROM cpu WHERE ts >= ? AND host = ?", params=["1970-01-01T00:00:05", "c"]).fetchall() == [(2.5,), (4.0,)]
    query = db.prepare("SELECT sys FROM cpu WHERE ts = $at")
    assert query.parameters == ["at"]
    for second in (3, 7):
        assert query.execute({"at": datetime(1970, 1, 1, 0, 0, second)}).fetchall() == [(second / 2,)]


def test_parameters_in_aggregates(db, cpu):
    for bound in ("1970-01-01T00:00:05", datetime(1970, 1, 1, 0, 0, 5), datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)):
        assert db.sql("SELECT count(*), max(sys) FROM cpu WHERE ts >= ?", params=[bound]).fetchone() == (5, 4.5)


def test_a_prepared_statement_follows_the_table(db, cpu):
    count = db.prepare("SELECT count(*) FROM cpu")
    assert count.execute().fetchone() == (10,)
    cpu.put(0, "a", 1.0)
    assert count.execute().fetchone() == (11,)
    with pytest.raises(thalweg.QueryError):
        db.prepare("SELEC")


def test_variables_of_the_caller_are_tables(db, cpu):
    frame = pandas.DataFrame({"host": ["a", "b"], "weight": [1, 2]})
    Polars = polars.DataFrame({"a": [1, 2]})
    arrow = pyarrow.table({"a": [1, 2]})
    batch = arrow.to_batches()[0]
    columns = {"a": numpy.array([1, 2])}
    lazy = Polars.lazy()
    result = cpu.scan(columns=["sys"])
    for name in ("Polars", "arrow", "batch", "columns", "lazy"):
        assert db.sql(f"SELECT sum(a) FROM {name}").fetchone() == (3,), name
    assert db.sql("SELECT sum(sys) FROM result").fetchone() == (22.5,)
    assert db.sql("SELECT a FROM MODULE_FRAME").fetchone() == (7,)
    joined = db.sql("SELECT weight, count(*) FROM cpu JOIN frame ON cpu.host = frame.host GROUP BY weight ORDER BY weight")
    assert joined.fetchall() == [(1, 3), (2, 3)]
    assert db.sql("SELECT count(*) FROM frame f JOIN frame g ON f.host = g.host").fetchone() == (2,)
    assert db.sql("INSERT INTO cpu SELECT arrow_cast(weight, 'Timestamp(Millisecond, None)') AS ts, host, 1.0 AS sys FROM frame").fetchone() == (2,)
    assert len(cpu) == 12 and frame is not None and Polars is not None and batch is not None and columns is not None and lazy is not None


def test_a_reader_is_a_table_once(db):
    reader = pyarrow.table({"a": [1, 2]}).to_reader()
    assert db.sql("SELECT sum(a) FROM reader").fetchone() == (3,)
    reader = pyarrow.table({"a": [1, 2]}).to_reader()
    with pytest.raises(thalweg.QueryError, match="once"):
        db.sql("SELECT count(*) FROM reader r JOIN reader s ON r.a = s.a").fetchall()
    assert reader is not None


def test_a_reader_that_runs_python(db):
    def batches():
        for i in range(100):
            yield pyarrow.record_batch({"a": pyarrow.array([i], pyarrow.int64())})

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("a", pyarrow.int64())]), batches())
    assert polars.DataFrame(db.sql("SELECT a, count(*) AS n FROM reader GROUP BY a")).height == 100
    assert reader is not None


def test_variables_that_are_no_tables(db, cpu):
    number = 5
    with pytest.raises(thalweg.NotFoundError, match="number holds a value of type int"):
        db.sql("SELECT * FROM number")
    cpu_rows = db.sql("SELECT count(*) FROM cpu")
    cpu = pandas.DataFrame({"a": [1]})
    assert cpu_rows.fetchone() == db.sql("SELECT count(*) FROM cpu").fetchone() == (10,), "stored tables come first"
    assert number and cpu is not None


def test_system_tables(db, cpu):
    assert db.sql("SELECT name, rows FROM thalweg_tables").fetchall() == [("cpu", 10)]


def test_execute_is_sql(db, cpu):
    local = pandas.DataFrame({"a": [1, 2]})
    assert db.execute("SELECT count(*) FROM cpu WHERE sys > ?", [1]).fetchone() == (7,)
    assert db.execute("SELECT sum(a) FROM local").fetchone() == (3,) and local is not None


@pytest.mark.parametrize(
    ("text", "rows", "stored"),
    [
        ("INSERT INTO t VALUES (?, ?, ?)", [(1, "a", 0.5), (2, None, 1), [3, "c", None]], [(1, "a", 0.5), (2, None, 1.0), (3, "c", None)]),
        ("insert into T (s, n) values ($2, $1);", [(1, "a"), (2, "b")], [(1, "a", None), (2, "b", None)]),
        ("INSERT INTO t (n, s) VALUES ($n + 1, upper($s) || '?')", [{"n": 1, "s": "a"}, {"s": "b", "n": 2}], [(2, "A?", None), (3, "B?", None)]),
        ("INSERT INTO t (n, v) /* ? */ VALUES (?, -1.5) -- ?", [[1], [2]], [(1, None, -1.5), (2, None, -1.5)]),
        ("INSERT INTO t (n) SELECT ?", [[1], [2]], [(1, None, None), (2, None, None)]),
        ("INSERT INTO t (n) VALUES (?), (10)", [[1], [2]], [(1, None, None), (2, None, None), (10, None, None), (10, None, None)]),
        ("INSERT INTO t (n, v) VALUES (?, ?)", ((n, str(n)) for n in range(3)), [(0, None, 0.0), (1, None, 1.0), (2, None, 2.0)]),
        ("INSERT INTO t (n, v) VALUES (?, ?)", [(1, Decimal("0.1"))], [(1, None, 0.1)]),
        ("INSERT INTO t (n) VALUES (?)", [], []),
    ],
)
def test_one_statement_for_many_rows(db, text, rows, stored):
    table = db.create_table("t", {"n": "int64", "s": "varchar", "v": "double"}, time="n")
    assert db.executemany(text, rows).fetchall() == [(len(stored),)]
    assert table.scan().fetchall() == stored


def test_an_insert_of_many_rows_is_one_commit(db):
    table = db.create_table("t", {"n": "int64", "s": "varchar"}, time="n")
    with pytest.raises(thalweg.Error):
        db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "a") for n in range(1_000)] + [(None, "b")])
    assert len(table) == 0
    assert db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "a") for n in range(100_000)]).fetchone() == (100_000,)
    assert len(table) == 100_000


def test_a_table_with_the_name_of_a_parameter(db):
    db.create_table("parameter 1", {"n": "int64"})
    assert db.executemany('INSERT INTO "parameter 1" VALUES (?)', [[1]]).fetchone() == (1,)


def test_executemany_names_the_row_of_a_bad_value(db):
    db.sql("CREATE TABLE t (ts TIMESTAMP, v DOUBLE, n BIGINT)")
    for text, good, bad, words in (
        ("INSERT INTO t (v) VALUES (?)", 1.5, "oops", 'column "v": row 500 holds "oops", which is no value of type double'),
        ("INSERT INTO t (v) VALUES (?)", "1.5", "oops", 'column "v": row 500 holds "oops", which is no value of type double'),
        ("INSERT INTO t (n) VALUES (?)", 1, "oops", 'column "n": row 500 holds "oops", which is no value of type bigint'),
        ("INSERT INTO t (n) VALUES (?)", 1, 1.5, 'column "n": row 500 holds "1.5", which bigint cannot hold exactly; cast or round it first'),
        ("INSERT INTO t (ts) VALUES (?)", "2024-01-01", "x", 'column "ts": row 500 holds "x", which is not a time'),
        ("INSERT INTO t (ts) VALUES (?)", 1, "1500-01-01", 'column "ts": row 500 holds "1500-01-01", .* TIMESTAMP.6. reaches further'),
    ):
        with pytest.raises(thalweg.SchemaError, match=words) as raised:
            db.executemany(text, [(good,)] * 500 + [(bad,)])
        assert "TRY_CAST" not in str(raised.value)
    assert len(db.table("t")) == 0


def test_executemany_takes_the_values_that_its_statement_takes_one_by_one(db):
    db.sql("CREATE TABLE mixed (ts TIMESTAMP, v DOUBLE, note VARCHAR)")
    rows = [
        ("2024-01-01 00:00", 1, "a"),
        (datetime(2024, 1, 2), "2.5", None),
        (date(2024, 1, 3), Decimal("3.25"), "it's $1 ?"),
    ]
    assert db.executemany("INSERT INTO mixed VALUES (?, ?, ?)", rows).fetchone() == (3,)
    named = [{"t": ts, "v": v, "n": note} for ts, v, note in rows]
    assert db.executemany("INSERT INTO mixed (note, v, ts) VALUES ($n, $v + 0, $t);", [named[0], named[0]]).fetchone() == (2,)
    text = "INSERT INTO mixed (note, ts, v) VALUES ('(' || $2, $1, $3)"
    assert db.executemany(text, [(ts, "x", v) for ts, v, _ in rows]).fetchone() == (3,)
    once = db.sql("SELECT * FROM mixed ORDER BY ts, note").fetchall()
    assert [row[1] for row in once] == [1.0, 1.0, 1.0, 1.0, 2.5, 2.5, 3.25, 3.25]
    with pytest.raises(thalweg.Error, match="warm"):
        db.executemany("INSERT INTO mixed (v) VALUES (?)", [(1,), ("warm",)])
    assert len(db.table("mixed")) == 8
    db.sql("CREATE TABLE shares (n BIGINT, v DOUBLE)")
    db.executemany("INSERT INTO shares VALUES (?, 7 / ?)", [(1, 2), (2, 2.0), (3, None)])
    assert db.sql("SELECT v FROM shares ORDER BY n").fetchall() == [(3.0,), (3.5,), (None,)]



@pytest.mark.parametrize(
    ("text", "rows", "word"),
    [
        ("INSERT INTO cpu VALUES (?, ?, ?)", [(1, "a")], "2 for 3 parameters"),
        ("INSERT INTO cpu VALUES (?, ?, ?)", [{"ts": 1}], "list for"),
        ("INSERT INTO cpu VALUES (?, ?, ?)", ["abc"], "list for"),
        ("INSERT INTO cpu (ts) VALUES ($ts)", [[1]], "dict for"),
        ("INSERT INTO cpu (ts) VALUES ($ts)", [{"ts": 1}, {"t": 1}], 'row 1 lacks "ts"'),
        ("INSERT INTO cpu (ts) VALUES ($ts)", [{"ts": 1, "t": 1}], 'row 0 has "t"'),
        ("INSERT INTO cpu (ts) VALUES (?)", 5, "rows is 5"),
        ("INSERT INTO cpu (ts) VALUES (?)", "ab", "rows is 'ab'"),
        ("INSERT INTO nowhere VALUES (?)", [[1]], "nowhere"),
        ("SELECT ?", [[1]], "change something"),
        ("SELEC ?", [[1]], "SELEC"),
    ],
)
def test_many_rows_that_do_not_fit(db, cpu, text, rows, word):
    with pytest.raises(thalweg.Error, match=word):
        db.executemany(text, rows)
    assert len(cpu) == 10


@pytest.mark.parametrize("call", ["sql", "execute", "prepare", "table", "drop_table", "array"])
@pytest.mark.parametrize("given", [5, None, b"x", ["a"]])
def test_what_is_no_text(db, call, given):
    with pytest.raises(thalweg.Error, match="it must be text"):
        getattr(db, call)(given)


@pytest.mark.parametrize("values", [["a", "c"], ("a", "c"), {"a", "c"}, numpy.array(["a", "c"]), pandas.Series(["a", "c"])], ids=repr)
def test_a_list_as_a_parameter_stands_for_its_values(db, cpu, values):
    for where in ("host IN ?", "host IN (?)", "host in $1", "NOT host NOT IN ?"):
        assert db.sql(f"SELECT DISTINCT host FROM cpu WHERE {where} ORDER BY host", params=[values]).fetchall() == [("a",), ("c",)]
    assert db.sql("SELECT 'b' IN $hosts, 'b' NOT IN $hosts, 'a' IN $hosts", params={"hosts": values}).fetchone() == (False, True, True)



def test_parameters_stand_where_constants_are_expected(db):
    db.sql("CREATE TABLE c (ts TIMESTAMP, x DOUBLE) WITH (time='ts')")
    db.sql("INSERT INTO c VALUES ('2024-02-03', 1), ('2024-03-04', 2), ('2024-05-06', 4)")
    for unit, values in (("month", [2, 3, 5]), ("day", [3, 4, 6])):
        rows = db.sql("SELECT date_part(?, ts) FROM c ORDER BY ts", params=[unit]).fetchall()
        assert [row[0] for row in rows] == values
    for rows, sums in ((1, [1, 3, 6]), (0, [1, 2, 4])):
        found = db.sql(
            "SELECT sum(x) OVER (ORDER BY ts ROWS BETWEEN $rows PRECEDING AND CURRENT ROW) FROM c ORDER BY ts",
            params={"rows": rows},
        )
        assert [row[0] for row in found.fetchall()] == sums
    for shares, quantiles in (([0, 1], [1, 4]), ([0.5], [2])):
        assert db.sql("SELECT quantile_cont(x, ?) FROM c", params=[shares]).fetchone()[0] == quantiles
    assert db.sql("SELECT quantile_cont(x, ?) FROM c", params=[0.5]).fetchone() == (2,)
    with pytest.raises(thalweg.QueryError, match="whole numbers"):
        db.sql("SELECT sum(x) OVER (ORDER BY ts ROWS ? PRECEDING) FROM c", params=["x"])
    statement = db.prepare("SELECT date_part(?, ts) FROM c WHERE x = ?")
    assert [statement.execute([unit, 4]).fetchone()[0] for unit in ("month", "day", "month")] == [5, 6, 5]


def test_times_of_day_are_parameters(db):
    clock = time(6, 30, 0, 250_000)
    assert db.sql("SELECT ?, TIMESTAMP '2024-01-01 06:31'::TIME > ?", params=[clock, clock]).fetchone() == (clock, True)


def test_a_nan_is_one_value_to_statements(db):
    with numpy.errstate(invalid="ignore"):
        floats = numpy.array([0.0, 1.0, 2.0]) / numpy.array([0.0, 1.0, 1.0])
    t = db.create_table("n", {"x": "double", "y": "real"})
    t.append({"x": floats, "y": floats.astype("float32")})
    t.append([{"x": float(floats[0]), "y": float(-floats[0])}])
    t.put(float(-floats[0]), float(floats[0]))
    assert db.sql("SELECT count(*) FROM n WHERE x > 1.5 AND y > 1.5").fetchone() == (4,)
    assert db.sql("SELECT count(*) FROM n WHERE x = 'NaN' AND y = 'NaN'").fetchone() == (3,)
    assert db.sql("SELECT count(*) FROM n WHERE x < 0 OR y < 0").fetchone() == (0,)
    assert [row[0] for row in db.sql("SELECT x FROM n ORDER BY x LIMIT 2").fetchall()] == [1, 2]
    assert t.scan(where="x > 2").df()["x"].isna().tolist() == [True] * 3
    for kept in (t.scan(), db.sql("SELECT x AS x FROM (SELECT * FROM n) LIMIT 9")):
        bits = kept.arrow()["x"].to_numpy().view("uint64")
        assert bits[-1] != bits[0]
    frame = polars.DataFrame({"x": floats})  # noqa: F841
    arrow = pyarrow.table({"x": pyarrow.array(floats, from_pandas=False)})  # noqa: F841
    for name in ("frame", "arrow"):
        assert db.sql(f"SELECT count(*) FROM {name} WHERE x > 1.5 AND (x = 2 OR x = 'NaN')").fetchone() == (2,)


def test_lists_of_numbers_times_and_nothing(db, cpu):
    one = db.sql("SELECT 1 IN ?, 1 IN ?, 1 NOT IN ?, NULL IN ?, 2 IN ?", params=[[1, 2.5], [], [], [], [1, None]]).fetchone()
    assert one == (True, False, True, False, None)
    decimals = [Decimal("1.5"), Decimal("12.25"), 3]
    assert db.sql("SELECT CAST(3 AS DECIMAL(4, 2)) IN ?", params=[decimals]).fetchone() == (True,)
    times = numpy.array(["1970-01-01T00:00:05", "1970-01-01T00:00:01"], dtype="datetime64[s]")
    assert db.sql("SELECT count(*) FROM cpu WHERE ts IN ? AND host <> ?", params=[times, "z"]).fetchone()[0] == len(
        [row for row in db.sql("SELECT ts FROM cpu").fetchall() if row[0].second in (1, 5)]
    )
    with pytest.raises(thalweg.QueryError, match="parameter 1: a list has values of one type, not bigint and varchar"):
        db.sql("SELECT 1 IN ?", params=[[1, "x"]])


def test_lists_of_parameters_are_compared_by_their_values():
    with thalweg.connect(":memory:") as db:
        db.sql("CREATE TABLE t AS SELECT value % 7 AS k, value AS n FROM generate_series(1, 70)")
        lists = [[1, 2, 3, 4], [3, 4, 5, 6]]
        for condition in (
            "k IN ? AND k IN ?",
            "1 = 1 AND k IN ? AND k IN ?",
            "k IN ? AND n IN (SELECT n FROM t) AND k IN ?",
        ):
            assert db.sql(f"SELECT count(*) FROM t WHERE {condition}", params=lists).fetchone() == (20,)
        window = "SELECT count(*) FROM (SELECT k, lag(n) OVER (PARTITION BY k ORDER BY n) FROM t WHERE k IN ?) WHERE k IN ?"
        assert db.sql(window, params=lists).fetchone() == (20,)
        joined = "SELECT count(*) FROM t JOIN (SELECT DISTINCT k FROM t) s ON t.k = s.k WHERE t.k IN ? AND s.k IN ?"
        assert db.sql(joined, params=lists).fetchone() == (20,)


def test_a_kept_plan_knows_how_long_its_lists_are():
    with thalweg.connect(":memory:") as db:
        db.sql("CREATE TABLE t AS SELECT value AS k, value AS n FROM generate_series(1, 4)")
        for lists, found in [
            ([[1, 2], [2]], [2]),
            ([[1], [1, 3]], [1]),
            ([[], [1, 2, 3]], []),
            ([[1, 2, 3], []], []),
            ([[3, 1, 4], [3]], [3]),
            ([[4], [1, 3, 4]], [4]),
        ]:
            for params in (lists, dict(zip("ab", lists, strict=True))):
                places = ("?", "?") if params is lists else ("$a", "$b")
                query = "SELECT k FROM t WHERE k IN {} AND n IN {} ORDER BY k".format(*places)
                assert [row[0] for row in db.sql(query, params=params).fetchall()] == found
                query = "SELECT count(*), count(*) FILTER (WHERE k IN {}) FROM t WHERE n NOT IN {}".format(*places)
                both = set(lists[0]) - set(lists[1])
                assert db.sql(query, params=params).fetchone() == (4 - len(lists[1]), len(both))


def test_create_table_as_sees_local_frames(db):
    frame = pandas.DataFrame({"x": [1, 2]})
    assert db.sql("CREATE TABLE copy AS SELECT x * ? AS y FROM frame", params=[10]).fetchone() == (2,)
    assert db.sql("SELECT * FROM copy").fetchall() == [(10,), (20,)]
    assert [row[0] for row in db.sql("SUMMARIZE frame").fetchall()] == ["x"]
    assert len(frame) == 2


def test_a_named_index_is_a_column(db):
    frame = pandas.DataFrame({"v": [1, 2, 4]}, index=pandas.Index(["a", "b", "b"], name="k"))
    assert db.sql("SELECT k, v FROM frame WHERE v < 4").fetchall() == [("a", 1), ("b", 2)]
    sums = frame.groupby("k").agg("sum")
    assert db.sql("SELECT k, v FROM sums ORDER BY v DESC").fetchall() == [("b", 6), ("a", 1)]
    assert db.sql("DESCRIBE sums").fetchall() == [("k", "VARCHAR", "YES"), ("v", "BIGINT", "YES")]
    plain = pandas.DataFrame({"v": [1]})
    assert db.sql("SELECT * FROM plain").columns == ["v"]


def test_names_of_system_tables_are_kept(db):
    for make in (lambda: db.create_table("thalweg_x", {"v": "int"}), lambda: db.sql("CREATE TABLE Thalweg_y (v INT)")):
        with pytest.raises(thalweg.AlreadyExistsError, match="kept for system tables"):
            make()


def test_times_within_lists_are_of_python(db):
    db.sql("CREATE TABLE n (ts TIMESTAMP, z TIMESTAMPTZ)")
    db.sql("INSERT INTO n VALUES ('2024-01-01 00:00:00.123456789', '2024-01-01')")
    lists, within = db.sql("SELECT list(ts), {'d': ts - TIMESTAMP '2023-12-31', 'z': z} FROM n GROUP BY ts, z").fetchone()
    time = datetime(2024, 1, 1, 0, 0, 0, 123_456)
    assert [type(value) for value in lists] == [datetime] and lists == [time]
    assert within == {"d": timedelta(days=1, microseconds=123_456), "z": datetime(2024, 1, 1, tzinfo=timezone.utc)}
    assert type(within["d"]) is timedelta and type(within["z"]) is datetime


def test_an_outer_join_has_the_same_rows_from_either_side(db):
    chance = random.Random(5)
    draw = {
        "k": lambda: chance.choice(["a", "b", "c", "d", None]),
        "n": lambda: chance.choice([0, 1, 2, 3, 4, None]),
        "w": lambda: chance.randrange(9),
    }
    for name, rows in [("s", 3), ("m", 20), ("l", 200)]:
        db.sql(f"CREATE TABLE {name} (k VARCHAR, n INT, w INT)")
        db.table(name).append([{column: value() for column, value in draw.items()} for _ in range(rows)])
    conditions = [
        "{0}.k IS NULL", "{0}.k IS NOT NULL", "coalesce({0}.k, 'x') = 'b'", "{0}.k IS NOT DISTINCT FROM 'b'", "{0}.n > 1",
        "ifnull({0}.w, 1) < 3", "{0}.n IS NULL OR {0}.w > 4", "{0}.k IN ('a', 'b')", "NOT coalesce({0}.n = 1, false)",
    ]  # fmt: skip
    for _ in range(300):
        one, other = chance.sample(["s", "m", "l"], 2)
        on = chance.choice(["a.k = b.k", "a.n = b.n", "a.k = b.k AND a.n < b.n"])
        where = " AND ".join(chance.choice(conditions).format(chance.choice("ab")) for _ in range(chance.randint(1, 3)))
        columns = "a.k, a.n, a.w, b.k, b.n, b.w"

        def rows(join, to=columns, where=where, on=on):
            return db.sql(f"SELECT {to} FROM {join} ON {on} WHERE {where} ORDER BY ALL").fetchall()

        left, right = rows(f"{one} a LEFT JOIN {other} b"), rows(f"{one} a RIGHT JOIN {other} b")
        context = f"{one} a, {other} b ON {on} WHERE {where}"
        assert left == rows(f"{other} b RIGHT JOIN {one} a"), context
        assert right == rows(f"{other} b LEFT JOIN {one} a"), context
        inner = rows(f"{one} a JOIN {other} b")
        full = sorted(rows(f"{one} a FULL JOIN {other} b"), key=repr)
        only = [row for row in left if row not in inner] + [row for row in right if row not in inner]
        assert full == sorted(inner + only, key=repr), context


@pytest.mark.parametrize("kind", ["pandas", "categories", "polars", "large", "view"])
def test_texts_of_frames_are_those_of_tables(db, kind):
    frame = pandas.DataFrame({"w": ["Dongsi", "Aoti"], "s": ["2016-01-01 10:00", "2016-01-01 9:05:00"]})
    texts = {
        "pandas": lambda: frame,
        "categories": lambda: frame.astype("category"),
        "polars": lambda: polars.from_pandas(frame),
        "large": lambda: pyarrow.table(frame.to_dict("list"), schema=pyarrow.schema({"w": pyarrow.large_string(), "s": pyarrow.large_string()})),
        "view": lambda: pyarrow.table(frame.to_dict("list"), schema=pyarrow.schema({"w": pyarrow.string_view(), "s": pyarrow.string_view()})),
    }[kind]()
    times = [(datetime(2016, 1, 1, 9, 5),), (datetime(2016, 1, 1, 10, 0),)]
    assert db.sql("SELECT CAST(s AS TIMESTAMP) t FROM texts ORDER BY t").fetchall() == times
    assert db.sql("SELECT TRY_CAST(s AS TIMESTAMP) t FROM texts ORDER BY t").fetchall() == times
    assert db.sql("SELECT mode(w), min(w[1:2]), min(hour(s)), min(to_char(s, 'YYYY')) FROM texts").fetchone()[1:] == ("Ao", 9, "2016")
    assert db.sql("SELECT count(*) FROM texts WHERE s > TIMESTAMP '2016-01-01 09:30'").fetchone() == (1,)


def test_nesting_that_the_parser_does_not_count_is_an_error(db):
    for text in ("EXPLAIN " * 5000 + "SELECT 1", "SELECT CAST(NULL AS int" + "[]" * 5000 + ")"):
        with pytest.raises(thalweg.QueryError, match="nested deeper than 128 levels"):
            db.sql(text)


def test_a_nan_of_any_sign_is_a_parameter(db):
    t = db.create_table("n", {"x": "double"})
    t.append({"x": [1.0, float("nan"), 2.0]})
    inf = float("inf")
    for nan in (inf - inf, -(inf - inf), float("nan")):
        assert db.sql("SELECT count(*) FROM n WHERE x = ?", params=[nan]).fetchone() == (1,)
        assert db.sql("SELECT count(*) FROM n WHERE x < ?", params=[nan]).fetchone() == (2,)
        assert db.sql("SELECT count(*) FROM n WHERE x IN ?", params=[[nan, 1.0]]).fetchone() == (2,)


def test_times_of_day_need_no_other_package():
    program = (
        "import datetime, sys, thalweg\n"
        "db = thalweg.connect(':memory:')\n"
        "row = db.sql(\"SELECT TIME '10:00', TIME '23:59:59.123456789', NULL::TIME, arrow_cast(TIME '00:01:01', 'Time32(Second)')\").fetchone()\n"
        "day = datetime.time\n"
        "assert row == (day(10), day(23, 59, 59, 123456), None, day(0, 1, 1)), row\n"
        "assert not {'pyarrow', 'pandas'} & sys.modules.keys()\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("unit", ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP", "TIMESTAMPTZ", "DATE"])
def test_lists_of_times_with_gaps(unit):
    with thalweg.connect(":memory:") as db:
        db.sql(f"CREATE TABLE t (ts {unit}, n BIGINT) WITH (time = 'ts')")
        db.sql("INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2), ('2024-01-03', 3)")
        days = [datetime(2024, 1, day, tzinfo=timezone.utc if unit == "TIMESTAMPTZ" else None) for day in (1, 2, 3)]

        def found(text, *params):
            return [row[0] for row in db.sql(f"SELECT n FROM t WHERE {text} ORDER BY n", params=list(params)).fetchall()]

        for _ in range(2):
            assert found("ts IN ?", [days[0], None]) == [1]
            assert found("ts IN ?", [None, *days]) == [1, 2, 3]
            assert found("ts IN ?", [None, None]) == []
            assert found("ts IN ? OR n = 3", [None]) == [3]
            assert found("ts IN ?", pandas.Series([days[0], pandas.NaT])) == [1]
            assert found("ts = ANY(?)", days[:2]) == [1, 2]
            assert found("ts <> ALL(?)", days[:2]) == [3]
            assert found("ts >= ? AND ts < ?", days[1], None) == []
        assert [row[1] for row in db.table("t").scan(where="ts IN ?", params=[[days[0], None]]).fetchall()] == [1]


def test_lengths_are_added_whole_and_nothing_is_no_time():
    with thalweg.connect(":memory:") as db:
        db.sql("CREATE TABLE t (ts TIMESTAMP(0), d DATE) WITH (time = 'ts')")
        db.sql("INSERT INTO t VALUES ('2024-01-01', '2024-01-01'), ('2024-01-02', NULL)")
        half = timedelta(milliseconds=500)
        assert db.sql("SELECT ts + ?, ts - ?, max(ts) OVER () + ? FROM t ORDER BY ts LIMIT 1", params=[half] * 3).fetchone() == (
            datetime(2024, 1, 1, 0, 0, 0, 500_000),
            datetime(2023, 12, 31, 23, 59, 59, 500_000),
            datetime(2024, 1, 2, 0, 0, 0, 500_000),
        )
        assert db.sql("SELECT d + ?, ? + d, d - ? FROM t", params=[timedelta(hours=5)] * 3).fetchall() == [
            (datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 5), datetime(2023, 12, 31, 19)),
            (None, None, None),
        ]
        last_day = "SELECT count(*) FROM t WHERE ts >= ? - ?"
        assert db.sql(last_day, params=[date(2024, 1, 2), timedelta(days=1)]).fetchone() == (2,)
        assert db.sql(last_day, params=[datetime(2024, 1, 2), None]).fetchone() == (0,)
        assert db.sql("SELECT count(*) FROM t WHERE ts < ? + INTERVAL '1 day'", params=[None]).fetchone() == (0,)
        assert db.sql("SELECT count(*) FROM t WHERE ? - ts < INTERVAL '1 day'", params=[None]).fetchone() == (0,)
        assert db.sql("SELECT ? - d, ? - ts FROM t LIMIT 1", params=[None, None]).fetchone() == (None, None)
