"""Unique keys from Python: options, appends of all kinds, transactions, threads, and what is left after a kill."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pyarrow as pa
import pytest

import thalweg


def rows(db, table="t"):
    return db.sql(f"SELECT * FROM {table} ORDER BY ALL").fetchall()


@pytest.fixture
def db():
    with thalweg.connect(":memory:") as db:
        yield db


def test_the_rule_of_the_table_decides(db):
    columns = {"ts": "bigint", "dev": str, "v": float}
    data = {"ts": [1, 2, 2], "dev": ["a", "a", "a"], "v": [1.0, 2.0, 3.0]}
    last = db.create_table("last", columns, time="ts", unique=["dev", "ts"], on_duplicate="last")
    first = db.create_table("first", columns, time="ts", unique=("dev", "ts"), on_duplicate="first")
    error = db.create_table("error", columns, time="ts", unique="dev, ts")
    assert (last.append(data), first.append(data)) == (2, 2)
    assert rows(db, "last") == [(1, "a", 1.0), (2, "a", 3.0)]
    assert rows(db, "first") == [(1, "a", 1.0), (2, "a", 2.0)]
    with pytest.raises(thalweg.AlreadyExistsError, match='two of the rows to be stored have the unique key dev = "a", ts = "2"'):
        error.append(data)
    assert len(error) == 0
    assert last.append(pa.table({"ts": [2], "dev": ["a"], "v": [9.0]})) == 1
    assert rows(db, "last") == [(1, "a", 1.0), (2, "a", 9.0)]


def test_names_with_commas_and_wrong_options(db):
    table = db.create_table("t", {"ts": "bigint", "a, b": int}, time="ts", unique=["a, b"])
    table.append({"ts": [1], "a, b": [1]})
    with pytest.raises(thalweg.AlreadyExistsError):
        table.append({"ts": [2], "a, b": [1]})
    with pytest.raises(thalweg.NotFoundError, match="nope"):
        db.create_table("u", {"ts": "bigint"}, unique=["nope"])
    with pytest.raises(thalweg.Error, match="on_duplicate needs a unique key"):
        db.create_table("u", {"ts": "bigint"}, on_duplicate="last")
    with pytest.raises(thalweg.Error, match='on_duplicate is "newest"'):
        db.create_table("u", {"ts": "bigint"}, unique=["ts"], on_duplicate="newest")


def test_a_resent_append_is_stored_once_and_another_is_a_duplicate(db):
    table = db.create_table("t", {"ts": "bigint", "id": int}, time="ts", unique=["id"])
    for _ in range(3):
        assert table.append({"ts": [1, 2], "id": [1, 2]}, producer="gateway", sequence=1) == 2
    with pytest.raises(thalweg.AlreadyExistsError):
        table.append({"ts": [1, 2], "id": [1, 2]}, producer="gateway", sequence=2)
    assert len(table) == 2


def test_upserts_of_data_frames_and_parameters(db):
    db.sql("CREATE TABLE t (ts BIGINT, id INT PRIMARY KEY, v DOUBLE) WITH (time = 'ts')")
    new = pa.table({"ts": [1, 2, 3], "id": [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    assert db.sql("INSERT INTO t SELECT * FROM new").fetchone() == (3,)
    new = pa.table({"ts": [4, 5], "id": [2, 4], "v": [20.0, 40.0]})
    assert db.sql("INSERT INTO t SELECT * FROM new ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v").fetchone() == (2,)
    assert db.sql("INSERT INTO t VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET v = excluded.v + ?", [9, 1, 5.0, 0.5]).fetchone() == (1,)
    assert rows(db) == [(1, 1, 5.5), (2, 2, 22.0), (3, 3, 3.0), (5, 4, 40.0)]
    db.executemany("INSERT OR REPLACE INTO t VALUES (?, ?, ?)", [(6, 1, 1.0), (7, 1, 2.0)])
    assert rows(db)[-1] == (7, 1, 2.0)
    table = db.table("t")
    table.put(8, 9, 1.0)
    with pytest.raises(thalweg.AlreadyExistsError):
        table.append({"ts": [9], "id": [9], "v": [1.0]})


def test_transactions_look_again_at_their_commit(db):
    table = db.create_table("t", {"ts": "bigint", "id": int}, time="ts", unique=["id"])
    with pytest.raises(thalweg.QueryError, match="another commit has stored a row with a unique key"):
        with db.transaction() as tx:
            tx.append("t", {"ts": [1], "id": [7]})
            table.append({"ts": [2], "id": [7]})
    assert rows(db) == [(2, 7)]
    with db.transaction() as tx:
        tx.sql("DELETE FROM t WHERE id = 7")
        tx.append("t", {"ts": [3], "id": [7]})
    assert rows(db) == [(3, 7)]


def test_threads_store_each_key_once(tmp_path):
    with thalweg.connect(tmp_path / "db", durability="process") as db:
        table = db.create_table("t", {"ts": "bigint", "id": int, "who": int}, time="ts", unique=["id"], on_duplicate="first")
        counts = []

        def work(who):
            stored = 0
            for part in range(0, 3_000, 100):
                ids = list(range(part, part + 100))
                stored += table.append({"ts": ids, "id": ids, "who": [who] * 100})
            counts.append(stored)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sum(counts) == len(table) == 3_000
        assert db.sql("SELECT count(DISTINCT id) FROM t").fetchone() == (3_000,)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_kills_lose_and_double_nothing(tmp_path):
    program = textwrap.dedent(
        """
        import random, sys, thalweg
        path, seed = sys.argv[1], int(sys.argv[2])
        random.seed(seed)
        db = thalweg.connect(path)
        t = db.table("t")
        while True:
            n = random.choice([1, 5, 200, 20_000])
            ids = [random.randrange(40_000) for _ in range(n)]
            ids = list(dict.fromkeys(ids))
            t.append({"ts": ids, "id": ids, "seed": [seed] * len(ids), "n": [n] * len(ids)})
            if random.random() < 0.2:
                first = random.randrange(40_000)
                db.sql("DELETE FROM t WHERE id BETWEEN ? AND ?", [first, first + 50])
            print(n, flush=True)
        """
    )
    path = tmp_path / "db"
    with thalweg.connect(path) as db:
        columns = {"ts": "bigint", "id": int, "seed": int, "n": int}
        db.create_table("t", columns, time="ts", unique=["id"], on_duplicate="last")
    for seed in range(int(os.environ.get("THALWEG_KILLS", 4))):
        process = subprocess.Popen([sys.executable, "-c", program, str(path), str(seed)], stdout=subprocess.PIPE, text=True)
        for _ in range(5 + seed % 7):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with thalweg.connect(path) as db:
            total, distinct, newest = db.sql("SELECT count(*), count(DISTINCT id), max(seed) FROM t").fetchone()
            assert total == distinct > 0
            assert newest == seed
