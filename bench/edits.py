"""Changes of stored rows beside DuckDB and SQLite: python bench/edits.py [--rows N] [--folder DIR] [--only PARTS]

Parts: changes (DELETE and UPDATE of many rows, aggregates and scans after them), single (one row by key), keys (unique keys and
upserts), large (DELETE of a range among ten times the rows, Thalweg alone). All systems take each step in turn within one run, each
durably, and the checksum of all rows is compared after every step: what counts is the ratio.
"""

import argparse
import math
import os
import sys
import time

import numpy as np
import pyarrow as pa

sys.path.insert(0, os.path.dirname(__file__))
from results import at_least, emit, finish, judge, median  # noqa: E402
from systems import remove, tuples  # noqa: E402

CHECKSUM = "SELECT count(*), sum(ts), sum(k), sum(a0), max(a1) FROM t"
PRODUCT = "SELECT sum(a0 * a2) FROM t"
BATCH = 10_000


class Thalweg:
    name = "thalweg"

    def __init__(self, path):
        import thalweg

        self.db = thalweg.connect(path)

    def run(self, sql):
        return self.db.sql(sql).fetchall()

    def upsert(self, rows, update):
        self.db.sql(f"INSERT INTO t SELECT * FROM rows {update}").fetchall()

    def create(self, columns, key=(), rule=None):
        unique = {"unique": list(key), **({"on_duplicate": rule} if rule else {})} if key else {}
        self.table = self.db.create_table("t", columns, time="ts", **unique)

    def append(self, table):
        self.table.append(table)

    def prepare(self, sql):
        statement = self.db.prepare(sql)
        return lambda values: statement.execute(values).fetchall()

    def replay(self):
        return sum(batch.num_rows for batch in self.db.sql("SELECT * FROM t").reader())

    def settle(self):
        self.table.maintain()


class DuckDB:
    name = "duckdb"

    def __init__(self, path):
        import duckdb

        self.db = duckdb.connect(path)

    def run(self, sql):
        return self.db.execute(sql).fetchall()

    def upsert(self, rows, update):
        self.db.execute(f"INSERT INTO t SELECT * FROM rows {update}")

    def create(self, columns, key=(), rule=None):
        parts = [f"{name} {kind}" for name, kind in columns.items()] + ([f"PRIMARY KEY ({', '.join(key)})"] if key else [])
        self.db.execute(f"CREATE TABLE t({', '.join(parts)})")

    def append(self, rows):
        self.db.execute("INSERT INTO t SELECT * FROM rows")

    def prepare(self, sql):
        return lambda values: self.db.execute(sql, values).fetchall()

    def replay(self):
        return sum(batch.num_rows for batch in self.db.sql("SELECT * FROM t").to_arrow_reader(100_000))

    def settle(self):
        self.db.execute("CHECKPOINT")


class SQLite:
    name = "sqlite"

    def __init__(self, path):
        import apsw

        self.db = apsw.Connection(path)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-1000000"):
            self.db.execute(f"PRAGMA {pragma}")

    def run(self, sql):
        found = list(self.db.execute(sql))
        return found or [(self.db.changes(),)]

    def upsert(self, rows, update):
        self.append(rows, update)

    def create(self, columns, key=(), rule=None):
        # Its fastest form: rows in the order of an integer key.
        kinds = {name: "INTEGER" if kind in ("bigint", "int") else "REAL" for name, kind in columns.items()}
        lone = key[0] if len(key) == 1 else ("ts" if not key else None)
        parts = [f"{name} {kind}{' PRIMARY KEY' if name == lone else ''}" for name, kind in kinds.items()]
        parts += [f"PRIMARY KEY ({', '.join(key)})"] if len(key) > 1 else []
        self.db.execute(f"CREATE TABLE t({', '.join(parts)}){' WITHOUT ROWID' if len(key) > 1 else ''}")
        self.places = ", ".join("?" for _ in columns)

    def append(self, rows, conflict=""):
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(f"INSERT INTO t VALUES({self.places}) {conflict}", tuples(rows) if isinstance(rows, pa.Table) else rows)
        self.db.execute("COMMIT")

    def prepare(self, sql):
        return lambda values: list(self.db.execute(sql, values))

    def settle(self):
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def opened(kinds, part):
    systems = []
    for kind in kinds:
        path = os.path.join(ARGS.folder, f"edits-{part}.{kind.name}")
        remove(path)
        systems.append(kind(path))
    return systems


def closed(systems):
    for system in systems:
        system.db.close()
    for name in os.listdir(ARGS.folder):
        if name.startswith("edits-") and not name.endswith(".jsonl"):
            remove(os.path.join(ARGS.folder, name))


def timed(call):
    start = time.perf_counter()
    answer = call()
    return (time.perf_counter() - start) * 1e3, answer


def events(rows, seed=3):
    random = np.random.default_rng(seed)
    walk = lambda: np.round(np.cumsum(random.normal(0, 1, rows)), 2)  # noqa: E731
    columns = {"ts": np.arange(rows) * 10, "k": random.integers(0, 100, rows)}
    return pa.table(columns | {f"a{n}": walk() for n in range(4)})


COLUMNS = {"ts": "bigint", "k": "bigint", **{f"a{n}": "double" for n in range(4)}}


def compare(systems):
    answers = {system.name: system.run(CHECKSUM)[0] for system in systems}
    first = next(iter(answers.values()))
    for name, answer in answers.items():
        assert all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-3) for a, b in zip(first, answer)), (name, first, answer)


def step(metric, systems, statement, taken):
    """One statement by each system in turn, which must change as many rows."""
    counts = set()
    for system in systems:
        ms, answer = timed(lambda: system.run(statement))
        taken.setdefault(metric, {}).setdefault(system.name, []).append(ms)
        counts.add(answer[0][0])
    assert len(counts) == 1, (metric, counts)


def changes(rows):
    table = events(rows)
    systems = opened((Thalweg, DuckDB, SQLite), "changes")
    for system in systems:
        system.create(COLUMNS)
        for start in range(0, rows, 1_000_000):
            system.append(table.slice(start, 1_000_000))
        system.settle()
    compare(systems)
    ours, both, taken = systems[0], systems[:2], {}

    def note(metric, call, times=1, name="thalweg"):
        for _ in range(times):
            taken.setdefault(metric, {}).setdefault(name, []).append(timed(call)[0])

    for round in range(3):
        for metric, sql in (("aggregate_before", CHECKSUM), ("product_before", PRODUCT)):
            for system in both:
                note(metric, lambda: system.run(sql), name=system.name)
    note("replay_before", ours.replay, 3)
    for round in range(3):
        k = 7 + 10 * round
        for system in both:
            note("filtered_scan", lambda: system.run(f"SELECT count(*) FROM t WHERE k = {k}"), name=system.name)
        step("delete_scattered_1%", systems, f"DELETE FROM t WHERE k = {k}", taken)
        for metric in ("aggregate_after_delete", "aggregate_again"):
            for system in both:
                note(metric, lambda: system.run(CHECKSUM), name=system.name)
        compare(systems)
        if round == 0:
            note("product_masked", lambda: ours.run(PRODUCT), 5)
            note("replay_masked", ours.replay, 3)
        step("update_1%", systems, f"UPDATE t SET a1 = a1 + 1, a3 = 0 WHERE k = {k + 1}", taken)
        compare(systems)
        first = rows * (1 + 3 * round)
        step("delete_range_10%", systems, f"DELETE FROM t WHERE ts >= {first} AND ts < {first + rows}", taken)
        compare(systems)
    for metric, values in taken.items():
        for name, ms in values.items():
            emit(metric, name, ms, "ms")
    held = median("delete_range_10%", "thalweg")
    judge("delete_range_10%", "5 ms", held < 5, f"{held:.2f} ms")
    at_least("delete_range_10%", "duckdb", 5, smaller_is_better=True)
    scattered, scan = median("delete_scattered_1%", "thalweg"), median("filtered_scan", "thalweg")
    judge("delete_scattered_1%", "filtered scan + 50 ms", scattered <= scan + 50, f"{scattered:.1f} ms, scan {scan:.1f} ms")
    at_least("delete_scattered_1%", "duckdb", 5, smaller_is_better=True)
    at_least("update_1%", "duckdb", 2, smaller_is_better=True)
    for what in ("product", "replay"):
        ratio = median(f"{what}_masked", "thalweg") / median(f"{what}_before", "thalweg")
        judge(f"{what}_masked", "1.2 of before", ratio <= 1.2, f"{ratio:.2f}")
    for metric in ("aggregate_after_delete", "aggregate_again"):
        held = median(metric, "thalweg")
        judge(metric, "1 ms", held < 1, f"{held:.2f} ms")
    closed(systems)


def single(rows):
    table = events(min(rows, 2_000_000))
    systems = opened((Thalweg, DuckDB, SQLite), "single")
    for system in systems:
        system.create(COLUMNS)
        system.append(table)
        system.settle()
    keys = [int(key) * 10 for key in np.random.default_rng(4).permutation(len(table))[:1_200]]
    places = ", ".join("?" for _ in COLUMNS)
    taken = {}
    for system in systems:
        append = system.prepare(f"INSERT INTO t VALUES ({places})")
        update = system.prepare("UPDATE t SET a2 = ? WHERE ts = ?")
        delete = system.prepare("DELETE FROM t WHERE ts = ?")
        for number in range(600):
            for metric, statement, values in (
                ("append_one", append, [10 * (len(table) + number), 1, 1.0, 1.0, 1.0, 1.0]),
                ("update_one", update, [1.5, keys[2 * number]]),
                ("delete_one", delete, [keys[2 * number + 1]]),
            ):
                ms, _ = timed(lambda: statement(values))
                taken.setdefault(metric, {}).setdefault(system.name, []).append(ms)
    compare(systems)
    for metric, values in taken.items():
        for name, ms in values.items():
            emit(metric, name, ms, "ms", "durable")
    for metric in ("update_one", "delete_one"):
        ratio = median("append_one", "thalweg") / median(metric, "thalweg")
        judge(metric, "the rate of append_one", ratio >= 1, f"{ratio:.2f}")
    closed(systems)


def devices(start, count):
    number = np.arange(start, start + count)
    return pa.table({"ts": number // 100 * 1_000, "dev": number % 100, "v": np.sqrt(number)})


def in_order(rows):
    """Key (device, time): rates with and without the key, and with 5 % of rows resent from the batch before."""
    columns = {"ts": "bigint", "dev": "bigint", "v": "double"}
    plain = [devices(start, BATCH) for start in range(0, rows, BATCH)]
    resent = [plain[0]] + [pa.concat_tables([plain[n - 1].slice(BATCH - 500), plain[n].slice(0, BATCH - 500)]) for n in range(1, len(plain))]
    rates = {}
    for _ in range(ARGS.rounds):
        for name, key, rule, batches in (
            ("append_plain", (), None, plain),
            ("append_unique", ("dev", "ts"), None, plain),
            ("append_unique_resent", ("dev", "ts"), "last", resent),
        ):
            (system,) = opened((Thalweg,), "order")
            system.create(columns, key, rule)
            start = time.perf_counter()
            for batch in batches:
                system.append(batch)
            rates.setdefault(name, []).append(sum(map(len, batches)) / (time.perf_counter() - start))
            closed([system])
    for name, values in rates.items():
        emit(name, "thalweg", values, "rows/s", "10,000 rows a batch, durable")
    for name, bar in (("append_unique", 0.7), ("append_unique_resent", 0.5)):
        ratio = median(name, "thalweg") / median("append_plain", "thalweg")
        judge(name, f"{bar} of append_plain", ratio >= bar, f"{ratio:.2f}")


def random_keys(rows):
    columns = {"ts": "bigint", "k": "bigint", "v": "double"}
    random = np.random.default_rng(1)
    keys = random.permutation(rows)
    batches = [pa.table({"ts": np.arange(s, s + BATCH), "k": keys[s : s + BATCH], "v": random.random(BATCH)}) for s in range(0, rows, BATCH)]
    upserts = [pa.table({"ts": np.arange(BATCH) + rows, "k": random.choice(rows, BATCH, replace=False), "v": random.random(BATCH)}) for _ in range(60)]
    update = "ON CONFLICT (k) DO UPDATE SET ts = excluded.ts, v = excluded.v"
    systems = opened((Thalweg, DuckDB, SQLite), "random")
    appends, changed = f"append_random_{rows:.0e}", f"upsert_{rows:.0e}"
    for system in systems:
        system.create(columns, ("k",))
        prepared = [tuples(batch) for batch in batches] if system.name == "sqlite" else batches
        start = time.perf_counter()
        for batch in prepared:
            system.append(batch)
        emit(appends, system.name, [rows / (time.perf_counter() - start)], "rows/s", "10,000 rows a batch, durable")
        del prepared
    compare_keys(systems)
    rates = {system.name: [] for system in systems}
    for round in range(3):
        part = upserts[20 * round : 20 * round + 20]
        for system in systems:
            prepared = [tuples(batch) for batch in part] if system.name == "sqlite" else part
            start = time.perf_counter()
            for batch in prepared:
                system.upsert(batch, update)
            rates[system.name].append(20 * BATCH / (time.perf_counter() - start))
        compare_keys(systems)
    for name, values in rates.items():
        emit(changed, name, values, "rows/s", "10,000 rows a batch, durable")
    at_least(appends, "duckdb", 5)
    at_least(appends, "sqlite", 10)
    at_least(changed, "sqlite", 5)
    at_least(changed, "duckdb", 1)
    closed(systems)


def compare_keys(systems):
    answers = [system.run("SELECT count(*), sum(ts), sum(k), sum(v) FROM t")[0] for system in systems]
    assert all(math.isclose(a, b, rel_tol=1e-9) for answer in answers for a, b in zip(answers[0], answer)), answers


def large(rows):
    (system,) = opened((Thalweg,), "large")
    system.create({"ts": "bigint", "k": "bigint", "v": "double"})
    random = np.random.default_rng(5)
    for start in range(0, rows, 1_000_000):
        number = np.arange(start, start + 1_000_000)
        system.append(pa.table({"ts": number, "k": number % 100, "v": random.random(1_000_000)}))
    taken, left = [], rows
    for part in range(5):
        first, length = rows // 10 * (2 * part) + 12_345, rows // 10
        ms, answer = timed(lambda: system.run(f"DELETE FROM t WHERE ts >= {first} AND ts < {first + length}"))
        left -= length
        assert answer == [(length,)] and system.run("SELECT count(*) FROM t") == [(left,)]
        taken.append(ms)
    emit("delete_range_of_many", "thalweg", taken, "ms", f"a tenth of {rows:,} rows at a time, durable")
    held = median("delete_range_of_many", "thalweg")
    judge("delete_range_of_many", "10 ms", held < 10, f"{held:.2f} ms")
    closed([system])


def main():
    os.makedirs(ARGS.folder, exist_ok=True)
    parts = ARGS.only.split(",")
    if "changes" in parts:
        changes(ARGS.rows)
    if "single" in parts:
        single(ARGS.rows)
    if "keys" in parts:
        in_order(2_000_000)
        for rows in (2_000_000, ARGS.rows):
            random_keys(rows)
    if "large" in parts:
        large(10 * ARGS.rows)
    finish(os.path.join(ARGS.folder, "edits.jsonl"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="changes,single,keys,large")
    ARGS = parser.parse_args()
    main()
