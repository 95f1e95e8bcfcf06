"""Several threads, long calls, Ctrl-C, memory."""

import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
from programs import run

import thalweg


def run_all(*functions):
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert failures == []


def test_writers_and_readers_side_by_side(path):
    with thalweg.connect(path, durability="process") as db:
        table = db.create_table("t", {"ts": "int64", "writer": "int64"}, time="ts")
        done = threading.Event()

        def put(writer):
            for i in range(300):
                table.put(i, writer)

        def append(writer):
            for i in range(30):
                table.append({"ts": numpy.arange(10 * i, 10 * i + 10), "writer": numpy.full(10, writer)})

        def read():
            rows = 0
            while not done.is_set():
                count, seen = db.sql("SELECT count(*), count(writer) FROM t").fetchone()
                assert rows <= count == seen <= 1_200
                rows = count

        reader = threading.Thread(target=read)
        reader.start()
        run_all(*(lambda w=w: put(w) for w in (0, 1)), *(lambda w=w: append(w) for w in (2, 3)))
        done.set()
        reader.join(10)
        counts = db.sql("SELECT writer, count(*) FROM t GROUP BY writer ORDER BY writer").fetchall()
        assert counts == [(0, 300), (1, 300), (2, 300), (3, 300)]


NESTED = """
db = thalweg.connect(path, threads=int(sys.argv[2]))
table = create(db)
table.append(batch(0, 10_000))
SCHEMA = pyarrow.schema([("ts", pyarrow.int64()), ("v", pyarrow.float64())])


def count():
    counts.append(db.sql("SELECT count(*), max(v) FROM t").fetchone()[0])


def in_a_thread():
    thread = threading.Thread(target=count)
    thread.start()
    thread.join()


def batches(asks):
    for first in (20_000, 30_000):
        asks()
        yield pyarrow.record_batch(batch(first, 10_000), schema=SCHEMA)


for asks in (count, in_a_thread):
    for statement in ("INSERT INTO t SELECT * FROM rows", "SELECT v, count(*) FROM rows GROUP BY v ORDER BY v"):
        counts = []
        rows = pyarrow.RecordBatchReader.from_batches(SCHEMA, batches(asks))
        db.sql(statement).fetchall()
        assert len(counts) == 2 and counts[0] >= 10_000, counts
assert len(table) == 50_000, len(table)
db.close()
print("done")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_statement_may_read_from_an_iterator_that_runs_statements(path, threads):
    # Its thread of queries once waited for tasks that only it could run.
    assert run(NESTED, path, threads, timeout=60) == "done\n"


def test_long_calls_let_others_run(db):
    table = db.create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    table.append({"ts": numpy.arange(2_000_000), "v": numpy.random.default_rng(1).random(2_000_000)})
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.monotonic()
    db.sql("SELECT v, row_number() OVER (ORDER BY v) AS n FROM t ORDER BY sin(v) LIMIT 1").fetchall()
    seconds = time.monotonic() - start
    done.set()
    ticker.join()
    assert len(ticks) > 5 * seconds, f"{len(ticks)} ticks in {seconds} s"


ENDLESS = """
import sys, numpy, thalweg
db = thalweg.connect(":memory:")
t = db.create_table("t", {"n": "int64"})
t.append({"n": numpy.arange(300_000)})
text = "SELECT count(*) FROM t a JOIN t b ON a.n * b.n < 0"  # compares for minutes and keeps nothing
print("ready", flush=True)
try:
    %s
except KeyboardInterrupt:
    assert db.sql("SELECT count(*) FROM t").fetchone() == (300_000,)
    sys.exit(42)
"""


CALLS = [
    "db.sql(text).fetchall()",
    "db.sql(text).arrow()",
    "next(iter(db.sql(text)))",
    "db.sql(text).reader().read_all()",
    "db.sql('SELECT sum(a.n * b.n + c.n) FROM t a CROSS JOIN t b CROSS JOIN t c').fetchone()",
    "db.sql('INSERT INTO t SELECT a.n FROM t a CROSS JOIN t b')",
    "db.sql('INSERT INTO t ' + text)",
    "db.prepare('INSERT INTO t SELECT a.n + ? FROM t a CROSS JOIN t b').execute([1])",
]


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_stops_a_statement_within_a_second(call):
    assert ended_by_ctrl_c(call) == 42


def test_ctrl_c_stops_whoever_reads_the_stream_within_a_second():
    # Arrow's stream interface carries texts, no exceptions: pyarrow raises its own.
    assert ended_by_ctrl_c("import pyarrow; pyarrow.table(db.sql(text))") != 0


def ended_by_ctrl_c(call):
    """The exit status of a program that gets a signal while it is in the call."""
    program = subprocess.Popen([sys.executable, "-c", ENDLESS % call], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.4)
    start = time.monotonic()
    program.send_signal(signal.SIGINT)
    try:
        status = program.wait(10)
        assert time.monotonic() - start < 3, "a second, and time for a loaded machine"
        return status
    finally:
        program.kill()


BOUNDED = """
import resource, sys, numpy, thalweg
path = sys.argv[1]
db = thalweg.connect(path, durability="memory")
t = db.create_table("t", {"n": "int64", **{f"v{i}": "double" for i in range(8)}}, time="n")
rng = numpy.random.default_rng(1)
for start in range(0, 1_000_000, 250_000):
    t.append({"n": numpy.arange(start, start + 250_000), **{f"v{i}": rng.random(250_000) for i in range(8)}})
    t.flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read = t.scan().reader() if sys.argv[2] == "scan" else db.sql("SELECT * FROM t WHERE v0 >= 0").reader()
assert sum(batch.num_rows for batch in read) == 1_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("way", ["scan", "sql"])
def test_reading_a_large_result_takes_bounded_memory(path, way):
    program = [sys.executable, "-c", BOUNDED, str(path), way]
    grown_kib = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    # The rows are 72 MB.
    assert grown_kib < 30_000, f"{grown_kib} KiB more"


NO_THREADS = """
import resource
import thalweg._data, thalweg._frames, thalweg._paths, thalweg._schema, thalweg._statements  # now: the checkout may lie where only root can read
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
db = thalweg.connect(":memory:")
table = create(db)
table.append(batch(0, 100))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
said = refused(lambda: db.sql("SELECT v, count(*) FROM t GROUP BY v ORDER BY v").fetchall())
assert "starting the threads of queries" in said, said
print("told")
os._exit(0)
"""


def test_where_no_thread_can_be_started_the_statement_says_so(path):
    assert run(NO_THREADS, path) == "told\n"


def test_other_threads_run_while_the_last_reference_closes_a_database(tmp_path):
    db = thalweg.connect(tmp_path / "d.thal", durability="memory")
    table = db.create_table("t", {"n": "int64"}, time="n")
    for start in range(0, 4_000_000, 100_000):
        table.append({"n": numpy.arange(start, start + 100_000)})
    ticks, ends = [0], threading.Event()

    def tick():
        while not ends.is_set():
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = ticks[0]
    del table, db
    after = ticks[0]
    ends.set()
    ticker.join()
    assert after > before
