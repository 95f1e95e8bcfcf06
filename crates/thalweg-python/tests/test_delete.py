"""DELETE and TRUNCATE: what is gone, what others see of it, and what comes at the same time."""

import subprocess
import sys
import threading

import numpy
import pandas
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


def test_a_delete_returns_its_count_and_a_query_after_it_sees_none_of_the_rows(path):
    with thalweg.connect(path) as db:
        table = filled(db)
        before = db.sql("SELECT count(v) FROM t WHERE v >= 0")
        rows = table.scan()
        assert db.sql("DELETE FROM t WHERE ts >= 1000 AND ts < 2000").fetchall() == [(1000,)]
        assert db.sql("DELETE FROM t WHERE dev = 'd3' AND v > 1000").fetchall() == [(4800,)]
        assert len(table) == 50_000 - 1000 - 4800
        assert db.sql("SELECT count(*) FROM t WHERE dev = 'd3' AND v > 1000").fetchone() == (0,)
        # Both took their snapshot before.
        assert before.fetchone() == (50_000,)
        assert len(rows.arrow()) == 50_000
        assert table.stats()["rows"] == len(table)
        table.maintain()
        assert len(table.scan().arrow()) == len(table) == 44_200


def test_parameters_and_data_frames_say_which_rows_go(path):
    with thalweg.connect(path) as db:
        table = filled(db, 1000)
        assert db.sql("DELETE FROM t WHERE dev = ? AND ts < ?", ["d4", 100]).fetchone() == (10,)
        assert db.sql("DELETE FROM t WHERE ts = $ts", {"ts": 500}).fetchone() == (1,)
        wrong = pandas.DataFrame({"ts": [1, 2, 4, 2000]})
        assert db.sql("DELETE FROM t WHERE ts IN (SELECT ts FROM wrong)").fetchone() == (2,)
        assert len(table) == 1000 - 10 - 1 - 2


def test_what_was_deleted_stays_deleted_and_other_processes_see_none_of_it(path):
    with thalweg.connect(path) as db:
        filled(db)
        db.sql("DELETE FROM t WHERE v % 3 = 0")
        left = db.sql("SELECT count(*), sum(v) FROM t").fetchone()
        code = f"import thalweg; print(thalweg.connect({path!r}, read_only=True).sql('SELECT count(*), sum(v) FROM t').fetchone())"
        read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert read.stdout.strip() == str(left)
    with thalweg.connect(path) as db:
        assert db.sql("SELECT count(*), sum(v) FROM t").fetchone() == left
        assert db.sql("TRUNCATE t").fetchone() == (left[0],)
        assert db.sql("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_connection_that_only_reads_deletes_nothing(path):
    with thalweg.connect(path) as db:
        filled(db, 100)
    with thalweg.connect(path, read_only=True) as db:
        with pytest.raises(thalweg.Error, match="read"):
            db.sql("DELETE FROM t WHERE v > 3")
        assert len(db.table("t")) == 100


def test_rows_are_deleted_once_beside_appends_and_other_deletes(path):
    with thalweg.connect(path) as db:
        table = filled(db, 20_000)
        deleted = []

        def append():
            for n in range(60):
                times = numpy.arange(20_000 + n * 100, 20_100 + n * 100)
                table.append({"ts": times, "dev": ["new"] * 100, "v": times * 0.5})

        def delete(remainder):
            for n in range(15):
                condition = f"ts % 4 = {remainder} AND ts < {(n + 1) * 2000}"
                deleted.append(db.sql(f"DELETE FROM t WHERE {condition}").fetchone()[0])

        threads = [threading.Thread(target=append), *(threading.Thread(target=delete, args=(n,)) for n in range(2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(table) + sum(deleted) == 26_000
        kept = table.scan(columns=["ts"]).numpy()["ts"]
        assert numpy.array_equal(kept[kept < 20_000], [n for n in range(20_000) if n % 4 > 1])
