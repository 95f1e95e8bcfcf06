"""UPDATE, MERGE and ALTER TABLE: what others see of a change, what runs at the same time, and where values come from."""

import subprocess
import sys
import threading

import numpy
import pandas
import pyarrow
import pytest
import thalweg


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "plant.thal")


def filled(db, rows=50_000):
    table = db.create_table("t", {"ts": "bigint", "dev": "varchar", "v": "double"}, time="ts")
    times = numpy.arange(rows)
    table.append({"ts": times, "dev": [f"d{n % 10}" for n in range(rows)], "v": times * 0.5})
    return table


def test_a_change_is_seen_by_all_that_begins_after_it_and_by_nothing_that_began_before(path):
    with thalweg.connect(path) as db:
        table = filled(db)
        before = db.sql("SELECT sum(v) FROM t WHERE v >= 0")
        rows = table.scan()
        assert db.sql("UPDATE t SET v = v + 1 WHERE dev = 'd3'").fetchall() == [(5000,)]
        assert db.sql("SELECT sum(v) FROM t").fetchone() == (25_000 * 24_999.5 + 5000,)
        assert before.fetchone() == (25_000 * 24_999.5,)
        assert rows.arrow()["v"].to_numpy().sum() == 25_000 * 24_999.5
        code = f"import thalweg; print(thalweg.connect({path!r}, read_only=True).sql('SELECT sum(v) FROM t').fetchone()[0])"
        read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert float(read.stdout) == 25_000 * 24_999.5 + 5000
        table.maintain()
    with thalweg.connect(path) as db:
        assert db.sql("SELECT count(*), sum(v) FROM t").fetchone() == (50_000, 25_000 * 24_999.5 + 5000)


def test_values_come_from_parameters_and_data_frames():
    with thalweg.connect(":memory:") as db:
        table = filled(db, 1000)
        assert db.sql("UPDATE t SET v = ?, dev = ? WHERE ts = ?", [1.5, "it's", 7]).fetchone() == (1,)
        assert db.sql("UPDATE t SET v = $v WHERE ts = $ts", {"v": None, "ts": 8}).fetchone() == (1,)
        frame = pandas.DataFrame({"ts": [1, 2, 5000], "new": [10.0, 20.0, 30.0]})
        assert db.sql("UPDATE t SET v = frame.new FROM frame WHERE frame.ts = t.ts").fetchone() == (2,)
        batches = pyarrow.table({"ts": [3, 6000], "v": [33.0, 66.0]}).to_reader()
        merge = """MERGE INTO t USING batches AS b ON b.ts = t.ts WHEN MATCHED THEN UPDATE SET v = b.v
                   WHEN NOT MATCHED THEN INSERT (ts, v) VALUES (b.ts, b.v)"""
        assert db.sql(merge).fetchone() == (2,)
        prepared = db.prepare("UPDATE t SET v = ? WHERE ts = ?")
        for ts in range(100, 200):
            assert prepared.execute([ts * 1.0, ts]).fetchone() == (1,)
        got = db.sql("SELECT ts, v FROM t WHERE ts < 9 OR ts > 5000 OR ts BETWEEN 150 AND 151 ORDER BY ts").fetchall()
        assert got == [
            (0, 0.0), (1, 10.0), (2, 20.0), (3, 33.0), (4, 2.0), (5, 2.5), (6, 3.0), (7, 1.5), (8, None), (150, 150.0), (151, 151.0),
            (6000, 66.0),
        ]  # fmt: skip
        assert len(table) == 1001


def test_texts_that_differ_in_numbers_change_the_rows_that_each_names():
    with thalweg.connect(":memory:") as db:
        filled(db, 3000)
        for ts in range(0, 3000, 7):
            assert db.sql(f"UPDATE t SET v = -1 WHERE ts = {ts}").fetchone() == (1,)
            assert db.sql(f"DELETE FROM t WHERE ts = {ts + 1} AND v > 100").fetchone() == (int((ts + 1) * 0.5 > 100),)
        db.sql("ALTER TABLE t RENAME COLUMN v TO w")
        with pytest.raises(thalweg.Error, match="no column"):
            db.sql("UPDATE t SET v = -1 WHERE ts = 14")
        assert db.sql("UPDATE t SET w = -1 WHERE ts = 15").fetchone() in [(0,), (1,)]
        expected = {ts: -1.0 if ts % 7 == 0 else ts * 0.5 for ts in range(3000) if ts % 7 != 1 or ts * 0.5 <= 100}
        expected |= {15: -1.0} if 15 in expected else {}
        assert dict(db.sql("SELECT ts, w FROM t").fetchall()) == expected


def test_no_change_is_lost_beside_others_and_appends(path):
    with thalweg.connect(path) as db:
        table = db.create_table("t", {"ts": "bigint", "n": "bigint"}, time="ts")
        table.append({"ts": range(100), "n": [0] * 100})

        def append():
            for n in range(40):
                times = numpy.arange(1000 + n * 100, 1100 + n * 100)
                table.append({"ts": times, "n": times * 0})

        def change(remainder):
            for _ in range(15):
                assert db.sql("UPDATE t SET n = n + 1 WHERE ts < 100").fetchone() == (100,)
                assert db.sql(f"UPDATE t SET n = n + 1 WHERE ts = {remainder}").fetchone() == (1,)

        threads = [threading.Thread(target=append), *(threading.Thread(target=change, args=(n,)) for n in range(3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(table) == 4100
        counts = db.sql("SELECT n, count(*) FROM t WHERE ts < 100 GROUP BY n ORDER BY n").fetchall()
        assert counts == [(45, 97), (60, 3)]


def test_what_fails_in_the_middle_changes_nothing():
    with thalweg.connect(":memory:") as db:
        table = filled(db, 200_000)
        with pytest.raises(thalweg.Error, match="199999"):
            db.sql("UPDATE t SET v = CASE WHEN ts < 199999 THEN 1 ELSE CAST('x' || ts AS DOUBLE) END")
        assert db.sql("SELECT sum(v) FROM t").fetchone() == (199_999 * 50_000,)
        assert len(table) == 200_000


def test_columns_change_while_handles_readers_and_appends_go_on(path):
    with thalweg.connect(path) as db:
        table = filled(db, 10_000)
        other = db.table("t")
        reader = thalweg.connect(path, read_only=True)
        appender = table.appender()
        appender.put(20_000, "a", 1.0)
        db.sql("ALTER TABLE t ADD COLUMN room VARCHAR DEFAULT 'hall', ADD COLUMN n INT")
        assert table.columns == ["ts", "dev", "v", "room", "n"]
        other.append({"ts": [10_000], "room": ["cellar"]})
        appender.put(20_001, "a", 1.0, "roof", 3)
        appender.flush()
        table.put(20_002, "b", 2.0, None, 4)
        rows = [(9999, "hall", None), (10_000, "cellar", None), (20_000, "hall", None), (20_001, "roof", 3), (20_002, None, 4)]
        query = "SELECT ts, room, n FROM t WHERE ts >= 9999 ORDER BY ts"
        assert db.sql(query).fetchall() == rows
        assert reader.sql(query).fetchall() == rows
        db.sql("ALTER TABLE t DROP COLUMN v, ALTER COLUMN n TYPE BIGINT")
        with pytest.raises(thalweg.Error, match="has no column"):
            other.append({"ts": [1], "v": [2.0]})
        db.sql("ALTER TABLE t RENAME TO readings")
        assert db.tables() == ["readings"]
        assert reader.sql("SELECT count(*), count(room), sum(n) FROM readings").fetchone() == (10_004, 10_003, 7)
        reader.close()
    with thalweg.connect(path) as db:
        assert db.table("readings").columns == ["ts", "dev", "room", "n"]


@pytest.mark.parametrize("statement", ["UPDATE t SET n = n + 1", "MERGE INTO t USING t AS o ON o.ts = t.ts WHEN MATCHED THEN UPDATE SET n = t.n + 1"])
@pytest.mark.parametrize("alter", ["DROP COLUMN b", "RENAME COLUMN b TO c", "ADD COLUMN c INT DEFAULT 5", "DROP COLUMN b, ADD COLUMN b VARCHAR DEFAULT 'x'"])
def test_a_change_of_rows_begins_anew_where_columns_change_beside_it(statement, alter):
    with thalweg.connect(":memory:") as db:
        rows = 300_000
        table = db.create_table("t", {"ts": "bigint", "n": "bigint", "b": "bigint"}, time="ts")
        table.append({"ts": numpy.arange(rows), "n": numpy.zeros(rows, int), "b": numpy.arange(rows)})
        results = []
        thread = threading.Thread(target=lambda: results.append(db.sql(statement).fetchone()))
        thread.start()
        db.sql(f"ALTER TABLE t {alter}")
        thread.join()
        assert results == [(rows,)]
        assert db.sql("SELECT count(*), sum(n) FROM t").fetchone() == (rows, rows)
        assert len(db.table("t").columns) == {"DROP COLUMN b": 2, "ADD COLUMN c INT DEFAULT 5": 4}.get(alter, 3)


def test_rows_of_an_appender_go_to_the_columns_that_they_were_put_into():
    with thalweg.connect(":memory:") as db:
        table = db.create_table("t", {"ts": "bigint", "a": "bigint", "b": "bigint"}, time="ts")
        appender = table.appender()
        appender.put(1, 10, 20)
        db.sql("ALTER TABLE t RENAME COLUMN a TO x, RENAME COLUMN b TO a, RENAME COLUMN x TO b")
        appender.put(2, 11, 21)
        appender.flush()
        appender.put(3, 12, 22)
        db.sql("ALTER TABLE t DROP COLUMN b")
        appender.flush()
        appender.put(4, 23)
        appender.close()
        assert db.sql("SELECT * FROM t ORDER BY ts").fetchall() == [(1, 20), (2, 21), (3, 22), (4, 23)]


def test_a_table_that_gets_the_name_of_another_does_not_get_its_changes():
    with thalweg.connect(":memory:") as db:
        for attempt in range(5):
            for name in ("t", "new"):
                table = db.create_table(name, {"ts": "bigint", "v": "bigint"}, time="ts")
                table.append({"ts": numpy.arange(200_000), "v": numpy.full(200_000, name == "t", int)})
            changed = []

            def change():
                try:
                    changed.append(db.sql("UPDATE t SET v = v + 10").fetchone())
                except thalweg.NotFoundError:
                    pass  # No table had the name just then.

            thread = threading.Thread(target=change)
            thread.start()
            db.sql("ALTER TABLE t RENAME TO old")
            db.sql("ALTER TABLE new RENAME TO t")
            thread.join()
            sums = [db.sql(f"SELECT count(*), min(v), max(v) FROM {name}").fetchone() for name in ("old", "t")]
            one = ([(200_000, 11, 11), (200_000, 0, 0)], [(200_000, 1, 1), (200_000, 10, 10)])
            assert sums in one if changed else sums == [(200_000, 1, 1), (200_000, 0, 0)]
            db.sql("DROP TABLE old")
            db.sql("DROP TABLE t")


def test_a_connection_that_only_reads_changes_nothing(path):
    with thalweg.connect(path) as db:
        filled(db, 100)
    with thalweg.connect(path, read_only=True) as db:
        for statement in ("UPDATE t SET v = 1", "ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE t RENAME TO u"):
            with pytest.raises(thalweg.Error, match="read"):
                db.sql(statement)
