"""Processes that fork: what a child may use, and what it can do to its parent's database, which is nothing."""

import os
import signal

import pytest
from programs import check, run, start

SURFACE = """
ARGUMENTS = {
    "append": [batch(0, 3)], "put": [7, 0.5], "create_table": ["new", COLUMNS], "table": ["t"], "drop_table": ["t"],
    "sql": ["SELECT 1"], "Database.execute": ["SELECT 1"], "executemany": ["INSERT INTO t VALUES (?, ?)", [(1, 0.5)]],
    "prepare": ["SELECT 1"], "array": ["a"], "__exit__": [None, None, None],
    "to_parquet": ["a.parquet"], "write_parquet": ["a.parquet"], "write_csv": ["a.csv"], "to_csv": ["a.csv"],
}
# Names and columns can be asked for, what this version lacks says so, and closing does nothing.
HARMLESS = {"path", "name", "columns", "description", "parameters", "close", "array", "create_array", "read", "at"}
HARMLESS |= {"__enter__", "__exit__", "__repr__", "__bool__", "__iter__"}
PROTOCOLS = ["__enter__", "__exit__", "__repr__", "__bool__", "__iter__", "__next__", "__len__", "__arrow_c_stream__"]

db = thalweg.connect(path)
table = create(db)
table.append(batch(0, 100_000))
reading = thalweg.connect(path, read_only=True)
appender = table.appender()
appender.put(200_000, 1.0)
half_read = db.sql("SELECT * FROM t")
half_read.fetchone()
objects = [
    db, table, db.prepare("SELECT ? + 1"), appender, half_read, db.sql("SELECT * FROM t"), table.scan(),
    reading, reading.table("t"), reading.table("t").scan(), reading.prepare("SELECT 1"),
]
readers = [half_read.reader(), table.scan().reader(), pyarrow.RecordBatchReader.from_stream(table.scan())]
half_read = objects[4] = db.sql("SELECT * FROM t")
half_read.fetchone()
"""

WALK = """
def walk():
    wrong, asked = [], 0
    for one in objects:
        names = [name for name in dir(type(one)) if not name.startswith("_")]
        for name in names + [name for name in PROTOCOLS if name in vars(type(one))]:
            asked += 1
            def use():
                member = getattr(one, name)
                if callable(member):
                    member(*ARGUMENTS.get(f"{type(one).__name__}.{name}", ARGUMENTS.get(name, [])))
            said = refused(use)
            is_harmless = name in HARMLESS or (name == "schema" and isinstance(one, thalweg.Result))
            if not is_harmless and "before a fork" not in said:
                wrong.append((type(one).__name__, name, said))
    for reader in readers:
        try:
            reader.read_all()
            wrong.append("a reader gave rows")
        except Exception as error:
            if "before a fork" not in str(error):
                wrong.append(repr(error))
    assert wrong == [], wrong
    assert asked > 80

in_child(walk)
# The parent has lost nothing.
appender.close()
assert len(half_read.fetchall()) == 99_999
assert [reader.read_all().num_rows for reader in readers] == [99_999, 100_000, 100_000]
assert len(table) == len(reading.table("t")) == 100_001
table.put(200_001, 1.0)
db.close()
"""


def test_whatever_a_child_inherits_says_that_it_is_of_no_use(path):
    run(SURFACE + WALK, path)
    assert check(path) == 100_002


COLLECTED = """
def fingerprint():
    files = sorted(file for file in pathlib.Path(path).rglob("*") if file.is_file())
    return [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]

def settled():
    '''What is in the files once the threads of the database have nothing to do.'''
    seen = []
    while len(seen) < 4 or any(one != seen[-1] for one in seen[-4:]):
        time.sleep(0.3)
        try:
            seen.append(fingerprint())
        except FileNotFoundError:
            seen.clear()  # a thread has renamed or removed a file between its listing and its reading
    return seen[-1]

db.flush()
before = settled()

def collect():
    global db, table, reading, appender, half_read, objects, readers
    db = table = reading = appender = half_read = objects = readers = None
    gc.collect()
    assert fingerprint() == before

in_child(collect)
assert fingerprint() == before
appender.close()
assert len(table) == 100_001
db.close()
"""


def test_collecting_what_was_inherited_changes_nothing(path):
    run(SURFACE + COLLECTED, path)
    assert check(path) == 100_001


ENDS = """
import contextlib

with thalweg.connect(path) as db, contextlib.ExitStack() as stack:
    table = create(db)
    appender = stack.enter_context(table.appender())
    appender.put(0, 0.5)
    rows = iter(db.sql("SELECT * FROM t"))
    atexit.register(db.close)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        %s
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == %d
    if pid:
        appender.put(1, 0.5)
        appender.flush()
        table.put(2, 0.5)
        assert len(table) == 3
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(3)", 3), ("os._exit(3)", 3), ("raise KeyError('gone')", 1), ("os.kill(os.getpid(), signal.SIGKILL)", -9)],
)
def test_however_a_child_ends_its_parent_goes_on(path, end, status):
    run(ENDS % (end, status), path)
    assert check(path) == 3


BUSY = """
db = thalweg.connect(path, durability="process")
table = create(db)
# One append before there are threads: pyarrow has a lock of its own at its first use, which a fork would leave taken.
stored, stop = [0, table.append(batch(0, 1)), 0, 0], threading.Event()

def put():
    while not stop.is_set():
        table.put(stored[0], 0.5)
        stored[0] += 1

def append_much():
    while not stop.is_set():
        # Large ones first, which go to files of their own; bounded, so that a slow machine fills no disk.
        stored[1] += table.append(batch(stored[1], 400_000 if stored[1] < 10_000_000 else 100))

def collect():
    with table.appender() as appender:
        while not stop.is_set():
            appender.put(stored[2], 0.5)
            stored[2] += 1

def query():
    while not stop.is_set():
        db.sql("SELECT ts % 100, count(*) FROM t WHERE ts < 100000 GROUP BY 1 ORDER BY 2").fetchall()
        stored[3] += 1

def child():
    assert "before a fork" in refused(lambda: table.put(1, 1.0))
    assert "before a fork" in refused(lambda: db.sql("SELECT 1"))
    assert "open for writing" in refused(lambda: thalweg.connect(path))
    with thalweg.connect(path, read_only=True) as reading:
        count, seen = reading.sql("SELECT count(*), count(v) FROM t").fetchone()
        assert count == seen
    own = f"{path}.{os.getpid()}"
    with thalweg.connect(own) as mine:
        create(mine).append(batch(0, 20_000))
        assert mine.sql("SELECT count(*), max(v) < 2 FROM (SELECT v FROM t ORDER BY v)").fetchone() == (20_000, True)

threads = [threading.Thread(target=work) for work in (put, append_much, collect, query)]
for thread in threads:
    thread.start()
try:
    for _ in range(25):
        in_child(child)
finally:
    stop.set()
    for thread in threads:
        thread.join()
assert len(table) == sum(stored[:3]), (len(table), stored)
db.close()
print(sum(stored[:3]))
"""


def test_forks_while_other_threads_write_and_read(path):
    stored = int(run(BUSY, path, timeout=300))
    assert check(path) == stored


GENERATED = """
rows, batches = int(sys.argv[2]), int(sys.argv[3])
schema = pyarrow.schema({"ts": pyarrow.int64(), "v": pyarrow.float64()})
db = thalweg.connect(path)
table = create(db)
pid = None

def generate():
    global pid
    for number in range(batches):
        if number == batches // 2:
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
        yield pyarrow.RecordBatch.from_pydict(batch(number * rows, rows), schema)

reader = pyarrow.RecordBatchReader.from_batches(schema, generate())
said = refused(lambda: %s)
if pid == 0:
    if "before a fork" not in said:
        print(said, file=sys.stderr)
    os._exit(0 if "before a fork" in said else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == int(sys.argv[4])
assert said == "not refused", said
db.close()
"""


@pytest.mark.parametrize(("rows", "batches"), [(10, 4), (100_000, 4), (400_000, 8)])
def test_a_fork_within_what_feeds_an_append(path, rows, batches):
    run(GENERATED % "table.append(reader)", path, rows, batches, 0)
    assert check(path) == rows * batches


@pytest.mark.parametrize(("rows", "batches"), [(10, 4), (100_000, 4)])
def test_a_fork_within_what_feeds_a_statement(path, rows, batches):
    # A thread of the engine reads: in the child there is nothing that it could return to.
    call = "db.sql('INSERT INTO t SELECT * FROM reader')"
    run(GENERATED % call, path, rows, batches, 1, says="a fork within what feeds a statement")
    assert check(path) == rows * batches


WORKERS = """
def count(path):
    with thalweg.connect(path, read_only=True) as db:
        return db.sql("SELECT count(*) FROM t").fetchone()[0]

def fill(path):
    with thalweg.connect(path) as db:
        return create(db).append(batch(0, 50_000))

def use_inherited(_):
    return refused(lambda: len(table))

if __name__ == "__main__":
    method = sys.argv[2]
    db = thalweg.connect(path)
    table = create(db)
    table.append(batch(0, 50_000))
    with multiprocessing.get_context(method).Pool(3) as pool:
        assert pool.map(count, [path] * 6) == [50_000] * 6
        paths = [f"{path}.{number}" for number in range(3)]
        assert pool.map(fill, paths) == [50_000] * 3
        assert pool.map(count, paths) == [50_000] * 3
        if method == "fork":
            assert all("before a fork" in said for said in pool.map(use_inherited, range(3)))
        table.put(100_000, 1.0)
        assert pool.map(count, [path]) == [50_001]
    db.close()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_beside_their_parent_and_write_their_own(path, method):
    run(WORKERS, path, method)
    assert check(path) == 50_001


AFTERWARDS = """
db = thalweg.connect(path)
create(db).put(1, 0.5)
ready, done = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os.read(ready[0], 1)
    with thalweg.connect(path) as mine:
        mine.table("t").put(2, 0.5)
    os._exit(0)
db.close()
os.write(ready[1], b"x")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
with thalweg.connect(path) as again:
    assert len(again.table("t")) == 2
"""


def test_a_child_opens_what_its_parent_has_closed(path):
    run(AFTERWARDS, path)
    assert check(path) == 2


OUTLIVES = """
db = thalweg.connect(path)
create(db).append(batch(0, 10))
runs, tell = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os.close(1)
    os.write(tell, b"x")
    signal.pause()
os.read(runs, 1)  # a child that has never run still shares the locks
print(pid, flush=True)
signal.pause()
"""


def test_a_worker_that_outlives_its_killed_parent_keeps_no_lock(path):
    program, worker = start(OUTLIVES, path)
    try:
        program.kill()
        program.wait()
        assert check(path) == 10
        os.kill(int(worker), 0)  # it is still there
    finally:
        os.kill(int(worker), signal.SIGKILL)
