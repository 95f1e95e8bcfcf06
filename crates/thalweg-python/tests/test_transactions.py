"""Transactions: what is stored, what is seen, and how they end."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import thalweg


@pytest.fixture
def db():
    with thalweg.connect(":memory:") as db:
        db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
        yield db


def rows(db, table="t"):
    return db.sql(f"SELECT * FROM {table} ORDER BY ts, v").fetchall()


def test_all_statements_are_one_commit(db):
    db.create_table("u", {"ts": "int64", "v": "int64"}, time="ts")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    frame = pd.DataFrame({"ts": [10, 11], "v": [10, 11]})
    with db.transaction() as tx:
        assert tx.append("t", frame) == 2
        assert tx.sql("INSERT INTO u SELECT * FROM t WHERE ts >= ?", [2]).fetchone() == (4,)
        assert tx.sql("DELETE FROM t WHERE ts < 3").fetchone() == (2,)
        assert tx.sql("UPDATE t SET v = v + 100 WHERE ts >= 10").fetchone() == (2,)
        assert tx.sql("MERGE INTO t USING u ON t.ts = u.ts WHEN MATCHED AND u.v = 3 THEN DELETE").fetchone() == (1,)
        assert tx.sql("INSERT INTO t SELECT * FROM frame").fetchone() == (2,)
        assert rows(tx) == [(10, 10), (10, 110), (11, 11), (11, 111)]
        assert rows(db) == [(1, 1), (2, 2), (3, 3)]
        assert rows(db, "u") == []
    assert rows(db) == [(10, 10), (10, 110), (11, 11), (11, 111)]
    assert rows(db, "u") == [(2, 2), (3, 3), (10, 10), (11, 11)]


def test_a_statement_that_fails_changes_nothing_and_the_transaction_goes_on(db):
    with db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(thalweg.Error):
            tx.sql("INSERT INTO t SELECT ts + 1, CAST('x' AS BIGINT) FROM t")
        with pytest.raises(thalweg.QueryError):
            tx.sql("UPDATE t SET v = 1 / (ts - 1)").fetchone()
        with pytest.raises(thalweg.SchemaError):
            tx.append("t", {"ts": [1, None], "v": [1, 2]})
        assert rows(tx) == [(1, 1)]
        tx.sql("INSERT INTO t VALUES (2, 2)")
    assert rows(db) == [(1, 1), (2, 2)]


def test_sql_on_a_connection(tmp_path):
    path = tmp_path / "db"
    with thalweg.connect(path) as db, thalweg.connect(path) as other:
        t = db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
        assert db.sql("BEGIN").fetchone() == (0,)
        db.sql("INSERT INTO t VALUES (1, 1)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(2, 2), (3, 3)])
        db.table("t").append({"ts": [4], "v": [4]})
        db.table("t").put(5, 5)
        db.prepare("INSERT INTO t VALUES ($x, $x)").execute({"x": 6})
        assert len(rows(db)) == 6 and len(db.table("t")) == 6
        assert rows(other) == []
        # A table that was opened before would store at once.
        with pytest.raises(thalweg.QueryError, match="db.table"):
            t.append({"ts": [7], "v": [7]})
        with pytest.raises(thalweg.QueryError, match="db.table"):
            t.put(7, 7)
        with pytest.raises(thalweg.QueryError, match="open already"):
            db.sql("BEGIN TRANSACTION")
        other.sql("INSERT INTO t VALUES (0, 0)")
        assert len(rows(db)) == 6
        db.sql("COMMIT")
        assert [row[0] for row in rows(other)] == [0, 1, 2, 3, 4, 5, 6]
        t.append({"ts": [7], "v": [7]})
        for end in ("COMMIT", "ROLLBACK", "END"):
            with pytest.raises(thalweg.QueryError, match="no transaction is open"):
                db.sql(end)
        db.sql("START TRANSACTION; DELETE FROM t; ROLLBACK")
        assert len(t) == 8


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE u (v BIGINT)",
        "CREATE TABLE u AS SELECT * FROM t",
        "ALTER TABLE t ADD COLUMN w BIGINT",
        "ALTER TABLE t RENAME TO u",
        "DROP TABLE t",
        "SAVEPOINT a",
        "ROLLBACK TO SAVEPOINT a",
        "COMMIT AND CHAIN",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "BEGIN IMMEDIATE",
    ],
)
def test_what_a_transaction_cannot_hold_is_refused(db, text):
    with db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(thalweg.UnsupportedError):
            tx.sql(text)
    assert rows(db) == [(1, 1)]


def test_what_a_table_of_a_transaction_refuses(db):
    with db.transaction() as tx:
        t = tx.table("t")
        assert t.append({"ts": [1], "v": [1]}) == 1
        with pytest.raises(thalweg.QueryError, match="no part of a transaction"):
            t.append({"ts": [1], "v": [1]}, producer="a", sequence=1)
        with pytest.raises(thalweg.QueryError, match="no part of a transaction"):
            t.maintain()
    for call in (lambda: t.append({"ts": [1], "v": [1]}), lambda: len(t), lambda: tx.sql("SELECT 1"), tx.commit):
        with pytest.raises(thalweg.QueryError, match="is over"):
            call()
    assert rows(db) == [(1, 1)]


def test_an_exception_rolls_back_and_so_does_nobody(db):
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (1, 1)")
        raise KeyError("x")
    tx = db.transaction()
    tx.sql("INSERT INTO t VALUES (2, 2)")
    del tx
    gc.collect()
    with db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (3, 3)")
        tx.rollback()
    with db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (4, 4)")
        tx.commit()
    assert rows(db) == [(4, 4)]


def test_the_first_one_to_commit_wins(db):
    db.sql("INSERT INTO t SELECT i, i FROM generate_series(0, 9999) AS g(i)")
    one, two, three = (db.transaction() for _ in range(3))
    assert one.sql("DELETE FROM t WHERE v % 10 = 3").fetchone() == (1000,)
    assert two.sql("DELETE FROM t WHERE v % 10 = 4").fetchone() == (1000,)
    assert three.sql("DELETE FROM t WHERE v IN (13, 25)").fetchone() == (2,)
    one.commit()
    db.table("t").maintain()
    two.commit()
    with pytest.raises(thalweg.QueryError, match="run it again"):
        three.commit()
    with pytest.raises(thalweg.QueryError, match="is over"):
        three.commit()
    assert len(db.table("t")) == 8000
    # A statement by itself wins as well.
    one = db.transaction()
    one.sql("UPDATE t SET v = 0 WHERE ts = 25")
    db.sql("DELETE FROM t WHERE ts = 25")
    with pytest.raises(thalweg.QueryError, match="run it again"):
        one.commit()


def test_rows_that_moved_are_found_again(db):
    t = db.table("t")
    for i in range(200):
        t.put(i % 50, i)
    tx = db.transaction()
    assert tx.sql("UPDATE t SET v = v + 1000 WHERE v % 2 = 0").fetchone() == (100,)
    # From open rows to a block, and to another one.
    t.append({"ts": np.arange(50), "v": np.arange(50) - 50})
    t.maintain()
    db.sql("DELETE FROM t WHERE v = 151")
    t.maintain()
    tx.commit()
    wanted = sorted([v if v % 2 else v + 1000 for v in range(200) if v != 151] + list(range(-50, 0)))
    assert [v for (v,) in db.sql("SELECT v FROM t ORDER BY v").fetchall()] == wanted


def test_a_changed_table_makes_it_fail(db):
    tx = db.transaction()
    tx.sql("INSERT INTO t VALUES (1, 1)")
    db.sql("ALTER TABLE t ADD COLUMN w BIGINT")
    with pytest.raises(thalweg.QueryError, match="columns or options were changed"):
        tx.commit()
    tx = db.transaction()
    tx.sql("INSERT INTO t (ts, v) VALUES (1, 1)")
    db.sql("DROP TABLE t")
    with pytest.raises(thalweg.NotFoundError, match='"t" was dropped'):
        tx.commit()


def files(path):
    """Bytes of all files below a folder."""
    below = ((folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for folder, name in below)


def test_large_ones_go_to_files_which_a_rollback_gives_back(tmp_path):
    path = tmp_path / "db"
    count = 2_000_000
    frame = pa.table({"ts": np.arange(count), "v": np.random.default_rng(1).integers(0, 2**62, count)})
    with thalweg.connect(path, maintenance="manual") as db:
        db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
        db.sql("INSERT INTO t VALUES (-1, -1)")
        before = files(path)
        tx = db.transaction()
        tx.append("t", frame)
        assert tx.sql("DELETE FROM t WHERE ts % 2 = 0 OR ts < 1000").fetchone() == (count // 2 + 501,)
        assert tx.sql("SELECT count(*), min(ts), max(ts) FROM t").fetchone() == (count // 2 - 500, 1001, count - 1)
        assert files(path) > before + 6 * count
        tx.rollback()
        assert files(path) < before + 4 * count
        assert rows(db) == [(-1, -1)]
        with db.transaction() as tx:
            tx.append("t", frame)
            tx.sql("DELETE FROM t WHERE ts % 2 = 0")
            tx.sql("UPDATE t SET v = -v WHERE ts % 1000 = 1")
            tx.append("t", {"ts": [5], "v": [5]})
            tx.sql("DELETE FROM t WHERE v = 5 OR ts = 7")
    with thalweg.connect(path, maintenance="manual") as db:
        assert db.sql("SELECT count(*), count(*) FILTER (WHERE v < 0) FROM t").fetchone() == (count // 2, 2001)
        filled = files(path)
        assert filled < before + 3 * 8 * count
        # Files of which nothing is left are given back by a commit as well.
        with db.transaction() as tx:
            tx.append("t", frame)
            tx.sql("DELETE FROM t WHERE v IS NOT NULL")
            tx.append("t", frame.slice(count // 2))
        assert len(db.table("t")) == count // 2
        assert files(path) < filled + 10 * count


def test_many_small_statements_stay_quick(db):
    """Each costs about the same, whatever came before it."""
    with db.transaction() as tx:
        t = tx.table("t")
        for i in range(5000):
            t.put(i, i)
        assert tx.sql("SELECT count(*), sum(v) FROM t").fetchone() == (5000, 12497500)
    assert len(db.table("t")) == 5000


def test_read_only(tmp_path):
    path = tmp_path / "db"
    thalweg.connect(path).close()
    with thalweg.connect(path, read_only=True) as db:
        with pytest.raises(thalweg.Error, match="read-only"):
            db.transaction()
        with pytest.raises(thalweg.Error, match="read-only"):
            db.sql("BEGIN")


def test_one_that_is_open_for_too_long_is_rolled_back(tmp_path):
    with thalweg.connect(tmp_path / "db", max_snapshot_age=0.2) as db:
        db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
        tx = db.transaction()
        tx.sql("INSERT INTO t VALUES (1, 1)")
        time.sleep(0.3)
        with pytest.raises(thalweg.QueryError, match="max_snapshot_age"):
            tx.sql("INSERT INTO t VALUES (2, 2)")
        with pytest.raises(thalweg.QueryError, match="is over|max_snapshot_age"):
            tx.commit()
        assert rows(db) == []
        t = db.transaction().table("t")
        time.sleep(0.3)
        for call in (lambda: len(t), lambda: t.append({"ts": [1], "v": [1]})):
            with pytest.raises(thalweg.QueryError, match="is over|max_snapshot_age"):
                call()
        with db.transaction() as tx:
            tx.sql("INSERT INTO t VALUES (3, 3)")
        assert rows(db) == [(3, 3)]


def test_closing_the_database_ends_it(tmp_path):
    path = tmp_path / "db"
    db = thalweg.connect(path)
    db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
    tx = db.transaction()
    tx.sql("INSERT INTO t VALUES (1, 1)")
    db.close()
    with pytest.raises(thalweg.Error, match="closed"):
        tx.commit()
    with thalweg.connect(path) as db:
        assert rows(db) == []
        # Another connection keeps the database open, and not the transaction.
        with thalweg.connect(path) as other:
            tx = other.transaction()
            tx.sql("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(thalweg.Error, match="closed|over"):
            tx.commit()
        assert rows(db) == []
        db.sql("BEGIN; INSERT INTO t VALUES (1, 1)")
    with thalweg.connect(path) as db:
        assert rows(db) == []


KILLED = """
import sys, thalweg
db = thalweg.connect(sys.argv[1])
db.sql("BEGIN")
db.sql("DELETE FROM t WHERE ts < 50")
db.table("t").append({"ts": list(range(1000, 400_000)), "v": list(range(399_000))})
print(db.sql("SELECT count(*) FROM t").fetchone()[0], flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing(tmp_path):
    path = tmp_path / "db"
    with thalweg.connect(path) as db:
        db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts")
        db.sql("INSERT INTO t SELECT i, i FROM generate_series(0, 99) AS g(i)")
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "399050"
        process.send_signal(signal.SIGKILL)
    with thalweg.connect(path) as db:
        assert len(db.table("t")) == 100


def test_threads_share_one(db):
    with db.transaction() as tx:
        errors = []

        def work(first):
            try:
                for i in range(50):
                    tx.append("t", {"ts": [first + i], "v": [0]})
                    tx.sql(f"UPDATE t SET v = v + 1 WHERE ts = {first + i}")
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert tx.sql("SELECT count(*), sum(v) FROM t").fetchone() == (200, 200)
    assert len(db.table("t")) == 200


def test_nobody_loses_a_change(db):
    """Threads that each add to one row, and run a transaction again that has lost, count to the end."""
    db.sql("INSERT INTO t VALUES (0, 0)")
    lost = []

    def work():
        for _ in range(25):
            while True:
                try:
                    with db.transaction() as tx:
                        (v,) = tx.sql("SELECT v FROM t").fetchone()
                        tx.sql("UPDATE t SET v = ?", [v + 1])
                    break
                except thalweg.QueryError as error:
                    assert "run it again" in str(error)
                    lost.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(db) == [(0, 100)]


def test_a_statement_beside_a_begin_of_another_thread_is_inside_or_outside(tmp_path):
    """One thread begins and rolls back all the time, others run statements on the same connection: what another connection has stored
    stays, and nothing of what was rolled back is found in a table."""
    path = tmp_path / "db"
    with thalweg.connect(path) as db, thalweg.connect(path) as other:
        for name in ("t", "src", "dst"):
            db.create_table(name, {"id": "int64", "v": "int64"})
        stored, errors, is_done = [], [], threading.Event()

        def run(work):
            while not is_done.is_set():
                try:
                    work()
                except thalweg.QueryError:
                    # The transaction of the connection ended meanwhile.
                    pass
                except BaseException as error:
                    errors.append(error)
                    return

        def roll_back():
            db.sql("BEGIN")
            db.sql("INSERT INTO t VALUES (0, -1), (0, -1)")
            db.sql("INSERT INTO src VALUES (0, -1)")
            db.sql("ROLLBACK")

        def store():
            other.sql("INSERT INTO t VALUES (?, 7)", [len(stored)])
            stored.append(1)

        works = [
            roll_back,
            store,
            lambda: db.sql("DELETE FROM t WHERE v = -1"),
            lambda: db.sql("UPDATE t SET v = 8 WHERE v = -1"),
            lambda: db.sql("INSERT INTO dst SELECT * FROM src"),
        ]
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(3)
        is_done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        if db.sql("SELECT count(*) FROM t").fetchone() == (0,):
            raise AssertionError("nothing was stored")
        assert other.sql("SELECT count(*) FROM t WHERE v = 7").fetchone() == (len(stored),)
        assert other.sql("SELECT count(*) FROM t WHERE v <> 7").fetchone() == (0,)
        assert len(other.table("dst")) == 0


def test_order_of_arrival_stays(db):
    log = db.create_table("log", {"n": "int64"})
    counts = [5, 600_000, 7, 1, 400_000, 3]
    with db.transaction() as tx:
        first = 0
        for count in counts:
            tx.append("log", {"n": np.arange(first, first + count)})
            first += count
            assert tx.sql("SELECT n FROM log LIMIT 3").fetchall() == [(0,), (1,), (2,)]
        assert (tx.table("log").arrow()["n"].to_numpy() == np.arange(first)).all()
    assert (log.arrow()["n"].to_numpy() == np.arange(first)).all()


def test_what_is_opened_before_begin_stays_outside_and_says_so(db):
    appender = db.table("t").appender()
    appender.put(1, 1)
    appender.flush()
    db.sql("BEGIN")
    for call in (lambda: appender.put(2, 2), appender.flush):
        with pytest.raises(thalweg.QueryError, match="stored at once"):
            call()
    for call in (lambda: db.drop_table("t"), lambda: db.create_table("u", {"v": "int64"}), lambda: db.create_table("u", {"v": [1]})):
        with pytest.raises(thalweg.UnsupportedError, match="within a transaction"):
            call()
    db.sql("ROLLBACK")
    appender.put(2, 2)
    appender.close()
    assert db.tables() == ["t"]
    assert rows(db) == [(1, 1), (2, 2)]


def test_maintenance_passes_beside_transactions(tmp_path):
    with thalweg.connect(tmp_path / "db", maintenance="manual", durability="process") as db:
        t = db.create_table("t", {"ts": "int64", "v": "int64"}, time="ts", block_rows=256)
        for first in range(8):
            t.append({"ts": np.arange(first, 40_000, 8), "v": np.zeros(len(range(first, 40_000, 8)))})
        is_done, errors = threading.Event(), []

        def work(seed):
            random = np.random.default_rng(seed)
            while not is_done.is_set():
                try:
                    with db.transaction() as tx:
                        tx.sql("UPDATE t SET v = v + 1 WHERE ts = ?", [int(random.integers(40_000))])
                except thalweg.QueryError as error:
                    if "run it again" not in str(error):
                        errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            t.maintain()
        is_done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(t) == 40_000


def test_statements_of_one_transaction_do_not_starve(db):
    db.create_table("o", {"ts": "int64", "v": "int64"}, time="ts")
    db.sql("INSERT INTO t SELECT i, 0 FROM generate_series(0, 49999) AS g(i)")
    with db.transaction() as tx:
        is_done, errors = threading.Event(), []

        def append(name):
            try:
                while not is_done.is_set():
                    tx.append(name, {"ts": [100_000], "v": [1]})
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=append, args=(name,)) for name in ("t", "o")]
        for thread in threads:
            thread.start()
        for number in range(20):
            assert tx.sql("UPDATE t SET v = v + 1 WHERE ts % 20 = ? AND ts < 50000", [number]).fetchone() == (2500,)
        is_done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert tx.sql("SELECT sum(v) FROM t WHERE ts < 50000").fetchone() == (50_000,)


def test_what_one_commit_cannot_name_is_refused_at_the_statement(db):
    frame = {"ts": np.arange(10_000_000), "v": np.zeros(10_000_000, "i8")}
    db.table("t").append(frame)
    with db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (-1, -1)")
        with pytest.raises(thalweg.LimitError, match="several transactions"):
            for number in range(16):
                tx.sql(f"DELETE FROM t WHERE ts % 17 = {number}")
        tx.rollback()
    assert len(db.table("t")) == 10_000_000


def test_results_outlive_it(db):
    db.sql("INSERT INTO t SELECT i, i FROM generate_series(0, 99999) AS g(i)")
    with db.transaction() as tx:
        tx.sql("DELETE FROM t WHERE ts < 50000")
        result = tx.sql("SELECT ts FROM t")
        assert result.fetchone() == (50000,)
        tx.sql("DELETE FROM t")
        tx.sql("INSERT INTO t VALUES (-1, -1)")
    assert len(result.fetchall()) == 49999
    assert rows(db) == [(-1, -1)]


def test_shown(db):
    tx = db.transaction()
    assert repr(tx) == "<thalweg.Transaction, open>"
    tx.rollback()
    assert repr(tx) == "<thalweg.Transaction, over>"
