"""Unique keys from Python: options, appends of all kinds, transactions, threads, and what is left after a kill."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

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


def test_a_source_of_rows_that_stores_rows_in_the_table_itself(db):
    db.sql("CREATE TABLE t (ts BIGINT, id BIGINT PRIMARY KEY, v DOUBLE) WITH (time = 'ts')")
    table = db.table("t")
    table.append({"ts": [1, 2], "id": [1, 2], "v": [1.0, 2.0]})
    schema = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("v", pa.float64())])

    def batches(id, first=10, rows=1, parts=1):
        for part in range(parts):
            if part == parts - 1:
                table.append({"ts": [id], "id": [id], "v": [0.5]})
            yield pa.record_batch({"ts": [3] * rows, "id": range(first + part * rows, first + (part + 1) * rows), "v": [9.0] * rows}, schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches(-1))
    merge = "MERGE INTO t USING reader AS r ON t.id = r.id WHEN MATCHED THEN UPDATE SET v = r.v WHEN NOT MATCHED THEN INSERT VALUES (r.ts, r.id, r.v)"
    assert db.sql(merge).fetchone() == (1,)
    reader = pa.RecordBatchReader.from_batches(schema, batches(-2))
    assert db.sql("UPDATE t SET id = t.id + 100 FROM reader AS r WHERE r.id = t.id + 8").fetchone() == (1,)
    assert [row[1] for row in rows(db)] == [-2, -1, 1, 102, 10]
    # So large that its later parts are read while it stores keys.
    large = pa.RecordBatchReader.from_batches(schema, batches(-3, 1_000, 300_000, 9))
    with pytest.raises(thalweg.QueryError, match="its source cannot store rows there as well"):
        table.append(large)
    assert len(table) == 5


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


STATEMENTS = textwrap.dedent(
    """
    import random

    IDS = 40_000

    def statements(seed):
        # The same ones each time: name and parameters.
        rng = random.Random(seed)
        while True:
            count = rng.choice([1, 5, 200, 10_000])
            ids = list(dict.fromkeys(rng.randrange(IDS) for _ in range(count)))
            rows = {"ts": [id * 3 + rng.randrange(3) for id in ids], "id": ids, "v": ids, "seed": [seed] * len(ids)}
            first, step = rng.randrange(IDS), rng.choice([7, 97, 1_009])
            kind = rng.choice(["append", "append", "resend", "upsert", "replace", "values", "keys", "times", "range", "some", "transaction"])
            yield kind, rows, first, step
    """
)


def after(table, statement):
    """The rows by their ids after a statement; the same rows where it is refused."""
    kind, rows, first, step = statement
    new = {id: (ts, v, seed) for ts, id, v, seed in zip(*rows.values())}
    some = [id for id in table if id % step == first % step]
    near = [id for id in table if first <= id <= first + 300]
    result = dict(table)
    if kind in ("append", "resend", "replace"):
        result.update(new)
    elif kind == "upsert":
        for id, (ts, v, seed) in new.items():
            old = table.get(id)
            result[id] = (old[0], old[1] + v, seed) if old else (ts, v, seed)
    elif kind == "values":
        result.update((id, (table[id][0], table[id][1] + 1, table[id][2])) for id in some)
    elif kind == "times":
        result.update((id, (table[id][0] + 1_000, *table[id][1:])) for id in some)
    elif kind == "keys":
        if any(id + 40_000 in table and id + 40_000 not in near for id in near):
            return table
        for id in near:
            del result[id]
        result.update((id + 40_000, table[id]) for id in near)
    elif kind == "range":
        for id in near:
            del result[id]
    elif kind == "some":
        for id in some:
            del result[id]
    else:
        for id in near:
            del result[id]
        result.update(new)
        result.update((id, (ts, v - 1, seed)) for id, (ts, v, seed) in list(result.items()) if id % step == first % step)
    return result


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_kills_lose_double_and_bring_back_nothing(tmp_path):
    program = STATEMENTS + textwrap.dedent(
        """
        import sys, pyarrow, thalweg
        path, seed = sys.argv[1], int(sys.argv[2])
        db = thalweg.connect(path)
        t = db.table("t")
        for number, (kind, rows, first, step) in enumerate(statements(seed)):
            new = pyarrow.table(rows)
            near = [first, first + 300]
            some = [step, first % step]
            if kind == "append":
                t.append(rows)
            elif kind == "resend":
                for _ in range(2):
                    t.append(rows, producer=f"gateway {seed}", sequence=number)
            elif kind == "upsert":
                db.sql("INSERT INTO t SELECT * FROM new ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v, seed = excluded.seed")
            elif kind == "replace":
                db.sql("INSERT OR REPLACE INTO t SELECT * FROM new")
            elif kind == "values":
                db.sql("UPDATE t SET v = v + 1 WHERE id % ? = ?", some)
            elif kind == "times":
                db.sql("UPDATE t SET ts = ts + 1000 WHERE id % ? = ?", some)
            elif kind == "keys":
                try:
                    db.sql("UPDATE t SET id = id + 40000 WHERE id BETWEEN ? AND ?", near)
                except thalweg.AlreadyExistsError:
                    pass
            elif kind == "range":
                db.sql("DELETE FROM t WHERE id BETWEEN ? AND ?", near)
            elif kind == "some":
                db.sql("DELETE FROM t WHERE id % ? = ?", some)
            else:
                with db.transaction() as tx:
                    tx.sql("DELETE FROM t WHERE id BETWEEN ? AND ?", near)
                    tx.append("t", rows)
                    tx.sql("UPDATE t SET v = v - 1 WHERE id % ? = ?", some)
            print(kind, flush=True)
        """
    )
    path = tmp_path / "db"
    with thalweg.connect(path) as db:
        columns = {"ts": "bigint", "id": "bigint", "v": "bigint", "seed": "bigint"}
        db.create_table("t", columns, time="ts", unique=["id"], on_duplicate="last")
    scope = {}
    exec(STATEMENTS, scope)
    table = {}
    whole = 0
    kills = int(os.environ.get("THALWEG_KILLS", 4))
    for seed in range(kills):
        process = subprocess.Popen([sys.executable, "-c", program, str(path), str(seed)], stdout=subprocess.PIPE, text=True)
        kinds = [process.stdout.readline() for _ in range(3 + seed % 9)]
        time.sleep(seed % 5 / 100)
        process.send_signal(signal.SIGKILL)
        kinds += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        statements = scope["statements"](seed)
        for kind in kinds:
            statement = next(statements)
            assert kind.strip() == statement[0]
            table = after(table, statement)
        in_flight = after(table, next(statements))
        with thalweg.connect(path) as db:
            found = db.sql("SELECT id, ts, v, seed FROM t").fetchall()
        rows = {id: tuple(row) for id, *row in found}
        assert len(rows) == len(found) > 0
        assert rows in (table, in_flight), f"seed {seed}: {len(rows)} rows, of {len(table)} or {len(in_flight)}"
        whole += rows == in_flight != table
        table = rows
    print(f"{kills} kills, {whole} of the statements in flight were stored")
