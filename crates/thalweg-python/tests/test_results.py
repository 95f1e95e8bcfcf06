"""The forms that results take."""

import gc
import gzip
import threading
import warnings
from datetime import datetime, timedelta

import numpy
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import thalweg

FORMS = ["arrow", "df", "pl", "numpy", "reader", "to_arrow", "to_pandas", "to_polars", "to_numpy", "fetchnumpy", "fetch_arrow_table"]


def test_every_form_has_the_same_rows(cpu):
    arrow = cpu.scan().arrow()
    assert isinstance(arrow, pyarrow.Table) and arrow.schema == cpu.schema
    assert cpu.scan().reader().read_all() == arrow
    assert pyarrow.table(cpu.scan()) == arrow
    assert polars.DataFrame(cpu.scan()).equals(cpu.scan().pl())
    assert isinstance(cpu.scan().reader(), pyarrow.RecordBatchReader)
    rows = cpu.scan().fetchall()
    assert rows[0] == (datetime(1970, 1, 1), "a", 0.0) and rows[9] == (datetime(1970, 1, 1, 0, 0, 9), None, 4.5)
    assert list(cpu.scan()) == rows
    assert [tuple(row.values()) for row in arrow.to_pylist()] == rows
    assert cpu.scan().pl().rows() == rows
    frame = cpu.scan().df()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["ts", "host", "sys"]
    assert frame["sys"].tolist() == [row[2] for row in rows]


def test_numpy_masks_nulls(db):
    table = db.create_table("t", {"n": "int64", "i": "int32", "f": "real", "b": "bool", "t": "timestamp(ms)", "s": "varchar"}, time="n")
    table.append({"n": [1, 2], "i": [5, None], "f": [1.5, None], "b": [True, None], "t": [7, None], "s": ["x", None]})
    arrays = table.scan().numpy()
    assert type(arrays["n"]) is numpy.ndarray
    kinds = {"i": "i4", "f": "f4", "b": "bool", "t": "M8[ms]", "s": "O"}
    for name, kind in kinds.items():
        assert isinstance(arrays[name], numpy.ma.MaskedArray), name
        assert arrays[name].mask.tolist() == [False, True], name
        assert arrays[name].dtype == numpy.dtype(kind), name
    assert (arrays["i"][0], arrays["s"][0]) == (5, "x")
    full = table.scan(where="n = 1").numpy()
    assert not any(isinstance(array, numpy.ma.MaskedArray) for array in full.values())


def test_empty_results_have_their_columns(cpu):
    for options in ({"limit": 0}, {"where": "false"}):
        assert cpu.scan(**options).arrow().schema == cpu.schema
        assert cpu.scan(**options).fetchall() == []
        assert cpu.scan(**options).fetchone() is None
        assert list(cpu.scan(**options).df().columns) == ["ts", "host", "sys"]
        assert cpu.scan(**options).pl().shape == (0, 3)
        assert {name: len(array) for name, array in cpu.scan(**options).numpy().items()} == {"ts": 0, "host": 0, "sys": 0}


@pytest.mark.parametrize("form", FORMS)
def test_a_result_is_read_once(cpu, form):
    result = cpu.scan()
    getattr(result, form)()
    for again in (*FORMS, "fetchall", "fetchone"):
        with pytest.raises(thalweg.Error, match="read before"):
            getattr(result, again)()
    assert repr(result) == "<thalweg.Result, read: ts, host, sys>"
    assert result.columns == ["ts", "host", "sys"] and result.schema == cpu.schema


def test_forms_take_what_was_not_fetched(cpu):
    result = cpu.scan(columns=["sys"])
    assert result.fetchone() == (0.0,)
    assert next(iter(result)) == (0.5,)
    assert result.arrow()["sys"].to_pylist() == [i / 2 for i in range(2, 10)]
    result = cpu.scan(columns=["sys"])
    result.fetchone()
    assert result.reader().read_all().num_rows == 9
    result = cpu.scan()
    assert len(result.fetchall()) == 10
    assert (result.fetchall(), result.fetchone()) == ([], None)


def test_showing_takes_nothing(db, cpu):
    result = cpu.scan()
    text = repr(result)
    assert "1970-01-01T00:00:09" in text and "null" in text and "host" in text
    assert repr(result) == text
    assert len(result.fetchall()) == 10
    long = db.sql("SELECT repeat('x', 100) AS s")
    assert "x" * 40 + "..." in repr(long) and "x" * 41 not in repr(long)
    table = db.create_table("many", {"n": "int64"})
    table.append({"n": range(100)})
    assert repr(table.scan()).endswith("(more rows)")


def test_results_have_the_habits_of_others(db, cpu, capsys):
    result = cpu.scan()
    result.show()
    assert capsys.readouterr().out == f"{result!r}\n"
    assert result.fetchdf().equals(cpu.df())
    with pytest.raises(thalweg.Error, match="read before"):
        result.show()
    with pytest.raises(thalweg.UnsupportedError, match='polars.*"i"'):
        db.sql("SELECT INTERVAL '1 day' AS i").pl()


def test_the_last_rows(db, cpu):
    assert cpu.tail(2).fetchall() == cpu.scan().fetchall()[-2:]
    assert cpu.tail().columns == ["ts", "host", "sys"]
    assert cpu.tail(100).fetchall() == cpu.scan().fetchall()
    assert cpu.tail(0).fetchall() == []
    with pytest.raises(thalweg.Error, match="tail needs a time column"):
        db.create_table("plain", {"v": float}).tail()


def test_memory_outlives_the_database(path):
    with thalweg.connect(path) as db:
        table = db.create_table("t", {"n": "int64", "s": "varchar"}, time="n")
        table.append({"n": numpy.arange(10_000), "s": ["x"] * 10_000})
        kept, column, late = table.scan().arrow(), table.scan().numpy()["n"], table.scan()
    del db, table
    gc.collect()
    assert kept["n"].to_pylist() == list(range(10_000)) and column.sum() == 49_995_000
    # What was not read yet is in files that are not this process's any more.
    with pytest.raises(thalweg.Error, match="closed"):
        late.fetchall()


def test_batches_are_pulled_as_they_are_asked_for(db):
    table = db.create_table("t", {"n": "int64", "v": "double"}, time="n")
    table.append({"n": numpy.arange(500_000), "v": numpy.random.default_rng(1).random(500_000)})
    reader = table.scan().reader()
    first = reader.read_next_batch()
    assert 0 < first.num_rows < 100_000
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 500_000
    pyarrow_total = pyarrow.total_allocated_bytes()
    held = [batch for batch in table.scan().reader()]
    assert pyarrow.total_allocated_bytes() == pyarrow_total, "batches are the engine's memory, not copies"
    assert sum(batch.num_rows for batch in held) == 500_000


def test_one_reader_at_a_time(db):
    table = db.create_table("t", {"n": "int64"})
    table.append({"n": numpy.arange(200_000)})
    result, rows, errors = table.scan(), [], []

    def read():
        try:
            for row in result:
                rows.append(row)
        except thalweg.Error as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all("another thread" in str(error) for error in errors)
    assert len(rows) == len(set(rows)) and (len(errors) == 3 or len(rows) == 200_000)


def test_columns_of_equal_names_are_numbered(db, cpu):
    text = "SELECT a.sys, b.sys, c.sys, 5 AS sys_1 FROM cpu a JOIN cpu b ON a.ts = b.ts JOIN cpu c ON b.ts = c.ts ORDER BY 1"
    names = ["sys", "sys_2", "sys_3", "sys_1"]
    arrays = db.sql(text).numpy()
    assert list(arrays) == names and arrays["sys_3"].tolist()[:2] == [0.0, 0.5] and arrays["sys_1"].tolist() == [5] * 10
    assert db.sql(text).pl().columns == list(db.sql(text).df().columns) == names
    assert db.sql(text).arrow().column_names == ["sys", "sys", "sys", "sys_1"]
    text = "SELECT a.sys, b.sys FROM cpu a JOIN cpu b ON a.ts = b.ts"
    for shown in (db.sql(text).numpy(), db.sql(text).pl().columns, db.sql(text).df().columns):
        assert list(shown) == ["sys", "sys_1"]


def test_rows_in_portions(cpu):
    result = cpu.scan(columns=["sys"])
    assert result.fetchmany() == [(0.0,)]
    assert result.fetchone() == (0.5,)
    assert result.fetchmany(0) == []
    assert result.fetchmany(3) == [(1.0,), (1.5,), (2.0,)]
    assert len(result.fetchmany(size=100)) == 5
    assert result.fetchmany(2) == []
    for size in (-1, "two", 1.5):
        with pytest.raises(thalweg.Error, match="size is"):
            result.fetchmany(size)


def test_the_description_of_columns(db, cpu):
    described = cpu.scan().description
    assert [column[:2] for column in described] == [("ts", "timestamp(ms)"), ("host", "string"), ("sys", "float64")]
    assert all(len(column) == 7 and column[2:] == (None,) * 5 for column in described)
    result = db.sql("SELECT 1 AS a")
    result.fetchall()
    assert len(result.description) == 1


def test_notebooks_show_the_first_rows(db, cpu):
    result = cpu.scan()
    html = result._repr_html_()
    assert html == result._repr_html_() and html.count("<tr>") == 11 and "<th>host</th>" in html
    assert len(result.fetchall()) == 10
    assert cpu.scan(columns=["sys"])._repr_html_().count("<td>") == 10
    assert "<p>cpu: 10 rows</p>" in cpu._repr_html_()
    odd = db.sql("""SELECT '<b>&' AS "<i>" """)._repr_html_()
    assert "&lt;b&gt;&amp;" in odd and "&lt;i&gt;" in odd and "<b>" not in odd
    many = db.create_table("many", {"n": numpy.arange(100_000)})
    assert many._repr_html_().count("<tr>") == 11 and "(more rows)" in many._repr_html_()
    result = many.scan()
    result._repr_html_()
    assert len(result.fetchall()) == 100_000
    result = many.scan()
    result.arrow()
    assert result._repr_html_() is None
    db.close()
    assert many._repr_html_() is None


def test_a_plan_is_shown_whole(db, cpu):
    shown = repr(db.sql("EXPLAIN SELECT host, avg(sys) FROM cpu WHERE sys > 1 GROUP BY host ORDER BY host"))
    assert "..." not in shown and len(shown) > 200


def test_tables_in_every_form(cpu):
    assert cpu.arrow() == cpu.scan().arrow()
    assert cpu.df().equals(cpu.scan().df())
    assert cpu.pl().equals(cpu.scan().pl())
    assert cpu.numpy()["sys"].tolist() == cpu.scan().numpy()["sys"].tolist()
    assert len(cpu.head().fetchall()) == 5
    assert cpu.head(2).fetchall() == cpu.scan(limit=2).fetchall()
    assert len(cpu.head(n=100).fetchall()) == 10
    for n in (-1, "two"):
        with pytest.raises(thalweg.Error, match="n is"):
            cpu.head(n)


def test_a_table_is_rows_for_whoever_speaks_arrow(db, cpu, tmp_path):
    assert pyarrow.table(cpu) == cpu.arrow() and polars.DataFrame(cpu).equals(cpu.pl())
    copy = db.create_table("copy", cpu)
    assert copy.append(cpu) == 10 and len(copy) == 20
    with thalweg.connect(":memory:") as other:
        assert other.sql("SELECT count(*) FROM cpu").fetchone() == (10,)


def test_intervals_without_months_are_timedeltas(db):
    row = db.sql("SELECT INTERVAL '1 day 2 hours', INTERVAL '-1 microsecond', INTERVAL '1 month', NULL::INTERVAL").fetchone()
    assert row[:2] == (timedelta(days=1, hours=2), timedelta(microseconds=-1))
    # As arrow() has it: a tuple, which says what it holds.
    assert (row[2], row[3]) == ((1, 0, 0), None)
    assert repr(row[2]) == "MonthDayNano(months=1, days=0, nanoseconds=0)"


def test_a_zone_that_there_is_not(db):
    with pytest.raises(thalweg.Error, match='time zone "Nowhere/City"') as raised:
        db.sql("SELECT arrow_cast(0, 'Timestamp(Second, Some(\"Nowhere/City\"))')").fetchall()
    assert "tzdata" not in str(raised.value)


def test_a_reader_that_failed_is_not_at_its_end(db):
    # The first batch is fine, a later one is not.
    result = db.sql("SELECT CASE WHEN value = 99999 THEN 1 / (value - 99999) ELSE value END AS v FROM generate_series(1, 100000)")
    reader = result.reader()
    rows = 0
    for _ in range(3):
        with pytest.raises(thalweg.QueryError):
            while True:
                rows += reader.read_next_batch().num_rows
    with pytest.raises(thalweg.QueryError):
        reader.read_all()
    assert rows < 100_000


def test_the_first_rows_come_from_as_many_batches_as_it_takes(db):
    few = db.sql("SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3 ORDER BY 1")
    assert all(f"| {n} |" in repr(few) for n in (1, 2, 3))
    assert few.fetchone() == (1,)
    assert "| 1 |" not in repr(few) and "| 3 |" in repr(few)
    assert few.fetchall() == [(2,), (3,)]
    chunks = pyarrow.chunked_array([[i] for i in range(13)])
    many = pyarrow.table({"n": chunks})
    result = db.sql("SELECT n FROM many")
    assert "| 9 |" in repr(result) and "(more rows)" in repr(result) and "(more rows)" in result._repr_html_()
    assert result.fetchall() == [(i,) for i in range(13)]


TAKEN = {
    "arrow": lambda r: r.arrow().num_rows,
    "table": lambda r: pyarrow.table(r).num_rows,
    "reader": lambda r: pyarrow.RecordBatchReader.from_stream(r).read_all().num_rows,
    "own reader": lambda r: r.reader().read_all().num_rows,
    "polars": lambda r: polars.DataFrame(r).height,
    "pl": lambda r: r.pl().height,
    "df": lambda r: len(r.df()),
    "numpy": lambda r: len(r.numpy()["n"]),
    "rows": lambda r: len(r.fetchall()),
    "iteration": lambda r: sum(1 for _ in r),
    "append": lambda r: thalweg.connect(":memory:").create_table("t", {"n": "int64"}).append(r),
}


@pytest.mark.parametrize("fetched", [0, 1, 4])
@pytest.mark.parametrize("form", TAKEN)
def test_a_result_that_was_shown_has_all_its_rows(db, form, fetched):
    many = pyarrow.table({"n": pyarrow.chunked_array([[3 * i, 3 * i + 1] for i in range(40)])})
    result = db.sql("SELECT n FROM many")
    for _ in range(fetched):
        result.fetchone()
    assert "more rows" in repr(result)
    assert TAKEN[form](result) == 80 - fetched


def test_rows_are_written_to_files(tmp_path):
    with thalweg.connect() as db:
        query = "SELECT n, n / 2.0 AS v, 'x' AS k FROM generate_series(1, 20000) t(n) ORDER BY n"
        db.sql(query).to_parquet(tmp_path / "a.parquet")
        assert pyarrow.parquet.read_table(tmp_path / "a.parquet") == db.sql(query).arrow()
        db.sql(query).write_csv(str(tmp_path / "a.csv"))
        lines = (tmp_path / "a.csv").read_text().splitlines()
        assert lines[:2] == ['n,v,k', '1,0.5,x'] and len(lines) == 20_001
        with pytest.raises(OSError):
            db.sql(query).write_csv(tmp_path / "missing" / "a.csv")
        with pytest.raises(thalweg.QueryError):
            db.sql("SELECT 9223372036854775807 + n FROM generate_series(0, 1) t(n)").write_csv(tmp_path / "b.csv")
        assert not (tmp_path / "b.csv").exists()
        before = (tmp_path / "a.csv").read_bytes()
        with pytest.raises(thalweg.QueryError):
            db.sql("SELECT 9223372036854775807 + n FROM generate_series(0, 1) t(n)").write_csv(tmp_path / "a.csv")
        assert (tmp_path / "a.csv").read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.parquet"]


@pytest.mark.parametrize(
    ("column", "writes", "refuses"),
    [
        ("INTERVAL '90 minutes'", ["write_csv"], ["to_parquet"]),
        ("TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01'", ["to_parquet", "write_csv"], []),
        ("[1, 2]", ["to_parquet", "write_csv"], []),
    ],
)
def test_files_that_have_no_form_for_a_column(db, tmp_path, column, writes, refuses):
    for name in writes:
        getattr(db.sql(f"SELECT {column} AS x"), name)(tmp_path / "a")
    for name in refuses:
        with pytest.raises(thalweg.UnsupportedError, match='cannot hold the column "x"'):
            getattr(db.sql(f"SELECT {column} AS x"), name)(tmp_path / "b")


def test_csv_is_written_as_the_command_line_prints_it(db, tmp_path):
    db.sql(
        "SELECT TIMESTAMP '2024-01-02 03:04:05.5' AS t, DATE '2024-01-02' AS d, 0.0::DOUBLE AS v, NULL::BIGINT AS n, '' AS e, 'a,b' AS s, "
        "INTERVAL '90 minutes' AS i, TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01' AS l, X'00ff' AS x"
    ).write_csv(tmp_path / "a.csv")
    header, row, end = (tmp_path / "a.csv").read_text().split("\n")
    assert (header, end) == ("t,d,v,n,e,s,i,l,x", "")
    assert row == '2024-01-02T03:04:05.500,2024-01-02,0.0,,"","a,b",1 hours 30 mins,PT86400S,00ff'
    db.sql("SELECT 1 AS a WHERE false").write_csv(tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "a\n"


def test_dates_in_pandas_are_times(db):
    frame = db.sql("SELECT DATE '2024-01-02' AS d, 1.0 AS v UNION ALL SELECT NULL, 2.0 ORDER BY v").df()
    assert frame["d"].dtype.kind == "M"
    assert frame["d"][0] == pandas.Timestamp("2024-01-02")
    assert pandas.isna(frame["d"][1])
    assert list(frame[:1].set_index("d").resample("1D")["v"].sum()) == [1.0]


def test_frames_in_sql_keep_their_order(db):
    frame = pandas.DataFrame({"k": range(200_000)})
    assert db.sql("SELECT k FROM frame LIMIT 3").fetchall() == [(0,), (1,), (2,)]
    assert db.sql("SELECT first(k), last(k) FROM frame").fetchone() == (0, 199_999)
    db.sql("CREATE TABLE kept AS SELECT k FROM frame WHERE k % 2 = 0")
    kept = [row[0] for row in db.table("kept").scan().fetchall()]
    assert kept == list(range(0, 200_000, 2))


def test_a_cursor_is_what_programs_of_the_database_interface_want(db):
    cursor = db.cursor()
    assert cursor.description is None and cursor.rowcount == -1
    with pytest.raises(thalweg.Error, match=r"execute\(\) comes first"):
        cursor.fetchall()
    assert cursor.execute("SELECT value AS n FROM range(5) WHERE value > ?", [0]) is cursor
    assert [column[0] for column in cursor.description] == ["n"]
    assert (cursor.fetchone(), cursor.fetchmany(), cursor.fetchmany(2), cursor.fetchall()) == ((1,), [(2,)], [(3,), (4,)], [])
    cursor.execute("CREATE TABLE made (n BIGINT)")
    cursor.executemany("INSERT INTO made VALUES (?)", [(1,), (2,)])
    assert list(cursor.execute("SELECT n FROM made")) == [(1,), (2,)]
    cursor.close()
    with pytest.raises(thalweg.Error):
        cursor.fetchone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        frame = pandas.read_sql("SELECT n, n * 0.5 AS half FROM made WHERE n > ?", db, params=[1])
    assert frame.to_dict("list") == {"n": [2], "half": [1.0]}


@pytest.mark.parametrize("form", FORMS)
def test_a_result_that_is_used_up_is_no_empty_table(db, form):
    result = db.sql("SELECT value FROM range(2)")
    assert result.fetchall() == [(0,), (1,)]
    with pytest.raises(thalweg.Error, match="was read before"):
        getattr(result, form)()
    assert result.fetchall() == [] and result.fetchone() is None
    for row in (rows := db.sql("SELECT 1")):
        assert row == (1,)
    with pytest.raises(thalweg.Error, match="was read before"):
        getattr(rows, form)()
    none = db.sql("SELECT 1 AS a WHERE false")
    assert none.fetchall() == []
    assert none.arrow().num_rows == 0


def test_csv_is_compressed_by_the_name_of_its_file(db, tmp_path):
    def written(name):
        db.sql("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL ORDER BY a").write_csv(tmp_path / name)
        return (tmp_path / name).read_bytes()

    plain = written("t.csv")
    assert plain.startswith(b"a,b\n1,x\n2,")
    assert gzip.decompress(written("t.csv.gz")) == plain
    packed = written("T.CSV.ZST")
    assert packed != plain and pyarrow.input_stream(pyarrow.BufferReader(packed), compression="zstd").read() == plain


def test_names_of_other_libraries(db, tmp_path):
    table = db.create_table("names", {"a": [1, 2]})

    def result():
        return db.sql("SELECT a FROM names ORDER BY a")

    assert result().fetch_arrow_table() == result().arrow() == table.to_arrow()
    assert list(result().fetchnumpy()["a"]) == list(table.to_numpy()["a"]) == [1, 2]
    assert list(table.to_pandas()["a"]) == list(table.to_polars()["a"]) == [1, 2]
    result().write_parquet(tmp_path / "t.parquet")
    result().to_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "a\n1\n2\n"
    with pytest.raises(AttributeError, match=r"'Result' object has no attribute 'to_json': .*--format json"):
        result().to_json
    with pytest.raises(AttributeError, match=r"'Table' object has no attribute 'fetchall': scan\(\) gives a Result"):
        table.fetchall
    with pytest.raises(AttributeError, match=r"'Database' object has no attribute 'fetchall': sql\(\) gives a Result"):
        db.fetchall()
    with pytest.raises(AttributeError, match=r"'Database' object has no attribute 'register': a data frame in a variable"):
        db.register
    for thing in (db, table, result()):
        assert not hasattr(thing, "nothing")


def test_complex_numbers_name_their_column(db):
    for column in ([1 + 2j], numpy.array([1j])):
        with pytest.raises(thalweg.SchemaError, match='column "z": complex numbers cannot be stored'):
            db.create_table("complexes", pandas.DataFrame({"a": [1], "z": column}))
        with pytest.raises(thalweg.SchemaError, match='column "z": complex numbers cannot be stored'):
            db.create_table("complexes", {"a": [1], "z": column})


def test_a_cursor_is_closed_by_a_with_block():
    db = thalweg.connect(":memory:")
    with db.cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(thalweg.Error, match="has run no statement"):
        cursor.fetchone()
