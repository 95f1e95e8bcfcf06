"""Thalweg beside its peers on 20 million events: python bench/stream.py [--rows N] [--folder DIR]

Every figure is measured for all systems in turns within one run, because the speed of a machine drifts; what counts
is the ratio. Answers of all systems are compared before anything is timed. Queries use all threads, appends one.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa

sys.path.insert(0, os.path.dirname(__file__))
from data import stream  # noqa: E402
from results import at_least, emit, finish, judge, median  # noqa: E402
from systems import DuckDB, Parquet, RawFile, RocksDB, SQLite, Thalweg  # noqa: E402

# Longer than a job waits before it begins.
LONG_SECONDS = 8


def append_rate(table, kinds, batch_rows, level, seconds, rounds):
    """Rows per second of each system, in turns."""
    metric = f"append_{level}_{batch_rows}"
    rates = {kind.name: [] for kind in kinds}
    wanted = max(30, min(table.num_rows // batch_rows, {1: 6_000, 100: 4_000}.get(batch_rows, 300)))
    if level == "process" and batch_rows == 1:
        wanted = 300_000
    batches = [table.slice(i * batch_rows, batch_rows) for i in range(wanted)]
    for _ in range(rounds):
        for kind in kinds:
            system = kind(ARGS.folder, level)
            prepared = system.prepare(batches)
            done, start = 0, time.perf_counter()
            for batch in prepared:
                system.append(batch)
                done += batch_rows
                if time.perf_counter() - start > seconds:
                    break
            rates[kind.name].append(done / (time.perf_counter() - start))
            system.close()
    for kind in kinds:
        emit(metric, kind.name, rates[kind.name], "rows/s", kind.settings)
    return metric


def put_rate(table, kinds, rounds):
    """Single rows that survive a kill, handed over one by one from Python."""
    rows = list(zip(*(column.to_pylist() for column in table.slice(0, 300_000).columns)))
    rates = {kind.name: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            system = kind(ARGS.folder, "process")
            start = time.perf_counter()
            for row in rows:
                system.put(row)
            rates[kind.name].append(len(rows) / (time.perf_counter() - start))
            system.close()
    for kind in kinds:
        emit("put_process", kind.name, rates[kind.name], "rows/s", kind.settings)
    rates = []
    for _ in range(rounds):
        system = Thalweg(ARGS.folder, "process")
        start = time.perf_counter()
        with system.table.appender() as appender:
            for row in rows:
                appender.put(*row)
        rates.append(len(rows) / (time.perf_counter() - start))
        system.close()
    emit("appender_process", "thalweg", rates, "rows/s")


def appends(table):
    seconds, rounds = ARGS.seconds, ARGS.rounds
    single = append_rate(table, [RawFile, Thalweg, SQLite, RocksDB, DuckDB], 1, "disk", seconds, rounds)
    at_least(single, "raw file", 0.9)
    at_least(single, "sqlite", 1.0)
    hundred = append_rate(table, [Thalweg, RocksDB, SQLite, DuckDB], 100, "disk", seconds, rounds)
    best = max(("rocksdb", "sqlite", "duckdb"), key=lambda s: median(hundred, s))
    at_least(hundred, best, 1.2)
    thousands = append_rate(table, [Thalweg, RocksDB, DuckDB, SQLite, Parquet], 10_000, "disk", seconds, rounds)
    best = max(("rocksdb", "sqlite", "duckdb"), key=lambda s: median(thousands, s))
    at_least(thousands, best, 4)
    put_rate(table, [Thalweg, RocksDB], rounds)
    at_least("put_process", "rocksdb", 1.0)
    judge("appender_process", "700,000 rows/s", median("appender_process", "thalweg") >= 7e5, f"{median('appender_process', 'thalweg'):,.0f} rows/s")


def bulk(table):
    loaded = {}
    rates = {kind.name: [] for kind in (Thalweg, DuckDB, Parquet)}
    for round in range(ARGS.rounds):
        for kind in (Thalweg, DuckDB, Parquet):
            system = kind(ARGS.folder)
            start = time.perf_counter()
            system.load(table)
            rates[kind.name].append(table.num_rows / (time.perf_counter() - start))
            if round == ARGS.rounds - 1:
                loaded[kind.name] = system
            else:
                system.close()
    for name, values in rates.items():
        emit("bulk_load", name, values, "rows/s", "batches of 1 million, durable at the end")
    at_least("bulk_load", "duckdb", 3)
    for name, system in loaded.items():
        emit("bytes_on_disk", name, [system.bytes()], "bytes")
    share = median("bytes_on_disk", "thalweg") / median("bytes_on_disk", "duckdb")
    judge("bytes_on_disk", "at most 0.8 of duckdb", share <= 0.8, f"{share:.2f}")
    return loaded


def ranges(times, rows, count=9, seed=1):
    random = np.random.default_rng(seed)
    starts = random.integers(0, len(times) - rows + 1, count)
    return [(int(times[s]), int(times[s + rows - 1])) for s in starts]


def in_turns(metric, systems, call, arguments, note=""):
    """Milliseconds per call of each system: the first range warms up, all systems take each range in turn."""
    for name, system in systems:
        call(system, *arguments[0])
    taken = {name: [] for name, _ in systems}
    for _ in range(2):
        for argument in arguments:
            for name, system in systems:
                start = time.perf_counter()
                call(system, *argument)
                taken[name].append((time.perf_counter() - start) * 1e3)
    for name, _ in systems:
        emit(metric, name, taken[name], "ms", note)


def equal(got, want):
    """Rows and values; a system may know that a column has no nulls."""
    return got.column_names == want.column_names and all(
        a.combine_chunks().equals(b.combine_chunks()) for a, b in zip(got.columns, want.columns)
    )


def same_answers(table, loaded, times):
    for rows in (200, 200_000):
        rows = min(rows, table.num_rows)
        first, last = ranges(times, rows, 1, seed=7)[0]
        want = table.slice(int(np.searchsorted(times, first)), rows).combine_chunks()
        for name, system in loaded.items():
            assert equal(system.range(first, last), want), (name, "range", rows)
        assert equal(loaded["thalweg"].scan_range(first, last), want)
        columns = [want.column(f"a{k}").to_numpy() for k in range(3)]
        answer = (columns[0].mean(), columns[1].min(), columns[2].max(), rows)
        for name in ("thalweg", "duckdb"):
            got = loaded[name].aggregate(first, last)
            assert all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(got, answer)), (name, got, answer)
    for name, system in loaded.items():
        assert system.replay() == table.num_rows, (name, "replay")
    print("all systems give the same answers", flush=True)


def queries(table, loaded):
    times = table.column("ts").to_numpy()
    same_answers(table, loaded, times)
    pair = [("thalweg", loaded["thalweg"]), ("duckdb", loaded["duckdb"])]
    n = table.num_rows
    for rows, limit in ((200, 0.1), (2_000, 0.2)):
        in_turns(f"scan_{rows}", pair[:1], lambda s, a, b: s.scan_range(a, b), ranges(times, rows), "scan(start, end).arrow()")
        ours = median(f"scan_{rows}", "thalweg")
        judge(f"scan_{rows}", f"{limit} ms", ours < limit, f"{ours:.3f} ms")
    for rows, limit in ((200, 0.6), (2_000, 0.8), (20_000, None), (200_000, None), (2_000_000, None)):
        if rows > n:
            continue
        in_turns(f"range_{rows}", pair, lambda s, a, b: s.range(a, b), ranges(times, rows), "SQL to an Arrow table")
        ours = median(f"range_{rows}", "thalweg")
        if limit:
            judge(f"range_{rows}", f"{limit} ms", ours < limit, f"{ours:.3f} ms")
        else:
            at_least(f"range_{rows}", "duckdb", 2, smaller_is_better=True)
    for share, factor in ((0.001, None), (0.01, 1.5), (0.1, 5), (1.0, 20)):
        metric = f"aggregate_{share * 100:g}%"
        in_turns(metric, pair, lambda s, a, b: s.aggregate(a, b), ranges(times, int(n * share)), "avg, min, max, count")
        if factor:
            at_least(metric, "duckdb", factor, smaller_is_better=True)
    in_turns("replay", list(loaded.items()), lambda s: s.replay(), [()] * 2, "all columns to the client")
    at_least("replay", "duckdb", 1.2, smaller_is_better=True)


RECOVERY_CHILD = """
import sys, os, signal, time
sys.path.insert(0, sys.argv[1])
from data import stream
import thalweg
db = thalweg.connect(sys.argv[2]); rows = int(sys.argv[3])
events = stream(min(rows, 1_000_000))
table = db.create_table("t", events.schema, layout="stream", time="ts")
done = 0
while done < rows:
    part = events.slice(0, min(rows - done, 1_000_000)); table.append(part); done += part.num_rows
for k in range(300): table.append(events.slice(0, 1))
print(len(table), flush=True); time.sleep(60)
"""

REOPEN = """
import sys, time, thalweg
start = time.perf_counter()
db = thalweg.connect(sys.argv[1]); count = db.sql("SELECT count(*) FROM t").fetchone()[0]
print((time.perf_counter() - start) * 1e3, count)
"""


def arrivals(rows, share, far=None, seed=5):
    """Places of rows in the order of their arrival, by batches. After the rows of each 10,000 that are in time come the late ones of
    them, shuffled; with `far`, delays are even over so many rows instead."""
    random = np.random.default_rng(seed)
    late = random.random(rows) < share
    if far:
        order = np.argsort(np.arange(rows) + np.where(late, random.integers(0, far, rows), 0), kind="stable")
        return [order[start : start + 10_000] for start in range(0, rows, 10_000)]
    batches = []
    for start in range(0, rows, 10_000):
        places = np.arange(start, min(start + 10_000, rows))
        behind = places[late[places]]
        random.shuffle(behind)
        batches += [places[~late[places]], behind]
    return [batch for batch in batches if len(batch)]


# The share of late rows, and over how many rows their delays spread; without a number they come after their 10,000.
LATE = [(0.0, None), (0.01, None), (0.05, None), (0.10, None), (0.10, 1_000_000)]


def late(table):
    table = table.slice(0, min(table.num_rows, 2_000_000))
    first, last = table["ts"][0].as_py(), table["ts"][-1].as_py()
    for share, far in LATE:
        metric = f"late_{share * 100:g}%" + ("_far" if far else "")
        orders = arrivals(table.num_rows, share, far)
        batches = [table.take(order) for order in orders]
        rates = {kind.name: [] for kind in (Thalweg, DuckDB)}
        answers = []
        for _ in range(ARGS.rounds):
            for kind in (Thalweg, DuckDB):
                system = kind(ARGS.folder)
                prepared = system.prepare(batches)
                start = time.perf_counter()
                for batch in prepared:
                    system.append(batch)
                rates[kind.name].append(table.num_rows / (time.perf_counter() - start))
                answers.append(system.aggregate(first, last))
                system.close()
        assert all(math.isclose(a, b, rel_tol=1e-12) for answer in answers for a, b in zip(answer, answers[0])), answers
        for name, values in rates.items():
            emit(metric, name, values, "rows/s", "10,000 rows a batch, durable")
        at_least(metric, "duckdb", 5)
    late_for_long(table)


def late_for_long(table):
    """Appends for so long that the job which puts late rows in order runs beside them; then replay, against an ordered load.
    What this program does between two calls is not counted: it makes batches of new times, two where the others need one."""
    span = table["ts"][-1].as_py() - table["ts"][0].as_py() + 1
    rates, replays = {}, {}
    for share in (0.0, 0.01, 0.05):
        batches = Thalweg.prepare(None, [table.take(order) for order in arrivals(table.num_rows, share)])
        columns = [(batch.column(0).to_numpy(), batch.columns[1:]) for batch in batches]
        system = Thalweg(ARGS.folder)
        rows, round, taken, start = 0, 0, 0.0, time.perf_counter()
        while time.perf_counter() - start < LONG_SECONDS:
            for times, values in columns:
                batch = pa.RecordBatch.from_arrays([pa.array(times + round * span), *values], names=table.column_names)
                begun = time.perf_counter()
                system.append(batch)
                taken += time.perf_counter() - begun
            rows, round = rows + table.num_rows, round + 1
        rates[share] = rows / taken
        name = f"late_for_long_{share * 100:g}%"
        emit(name, "thalweg", [rates[share]], "rows/s", f"{rows:,} rows in {LONG_SECONDS} s, jobs running: {jobs(system)}")
        system.table.maintain()
        assert system.table.stats()["late_rows"] == 0
        taken = []
        for _ in range(3):
            begun = time.perf_counter()
            assert system.replay() == rows
            taken.append(rows / (time.perf_counter() - begun))
        replays[share] = statistics.median(taken)
        emit(f"replay_after_{share * 100:g}%", "thalweg", taken, "rows/s", "late rows were put in order")
        system.close()
        if share:
            judge(name, "0.8 of in order", rates[share] >= 0.8 * rates[0.0], f"{rates[share] / rates[0.0]:.2f}")
            ratio = replays[share] / replays[0.0]
            judge(f"replay_after_{share * 100:g}%", "within 10 % of in order", ratio >= 0.9, f"{ratio:.2f}")


def jobs(system):
    done = system.db.sql("SELECT job, steps, rows FROM thalweg_jobs").fetchall()
    return ", ".join(f"{job}: {rows:,} rows in {steps} steps" for job, steps, rows in done) or "none had anything to do"


def recovery():
    """Open and first count after kill -9, in a process of its own with its imports done."""
    here = os.path.dirname(os.path.abspath(__file__))
    for exponent in (5, 6, 7, 8) if ARGS.rows >= 20_000_000 else (5, 6):
        taken = []
        for _ in range(3):
            path = Thalweg(ARGS.folder).path
            import shutil

            shutil.rmtree(path)
            child = subprocess.Popen([sys.executable, "-c", RECOVERY_CHILD, here, path, str(10**exponent)], stdout=subprocess.PIPE, text=True)
            want = int(child.stdout.readline())
            child.kill()
            child.wait()
            ms, count = subprocess.run([sys.executable, "-c", REOPEN, path], capture_output=True, text=True, check=True).stdout.split()
            assert int(count) == want, (count, want)
            taken.append(float(ms))
        emit(f"recovery_1e{exponent}", "thalweg", taken, "ms", "open and count(*) after kill -9")
        judge(f"recovery_1e{exponent}", "20 ms", statistics.median(taken) < 20, f"{statistics.median(taken):.1f} ms")


def main():
    os.makedirs(ARGS.folder, exist_ok=True)
    table = stream(ARGS.rows)
    print(f"{table.num_rows:,} events, {table.nbytes / 1e6:.0f} MB; {os.cpu_count()} cores", flush=True)
    parts = ARGS.only.split(",")
    if "appends" in parts:
        appends(table)
    if "queries" in parts:
        loaded = bulk(table)
        queries(table, loaded)
        for system in loaded.values():
            system.close()
    if "late" in parts:
        late(table)
    if "recovery" in parts:
        recovery()
    finish(os.path.join(ARGS.folder, "stream.jsonl"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time of one append round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="appends,queries,late,recovery")
    ARGS = parser.parse_args()
    assert pa.__version__
    main()
