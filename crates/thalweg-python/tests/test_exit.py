"""Interpreters that end while something is going on: soon, without damage, and without a lock left behind."""

import pytest
from programs import check, run

BUSY = """
db = thalweg.connect(path, durability="process")
table = create(db)
table.append(batch(0, 300_000))
started = threading.Barrier(10)

def put():
    started.wait()
    while True:
        table.put(1, 0.5)

def append():
    started.wait()
    while True:
        table.append(batch(0, 200_000))

def collect():
    appender = table.appender()
    started.wait()
    while True:
        appender.put(1, 0.5)

def query():
    started.wait()
    while True:
        db.sql("SELECT ts % 100, count(*) FROM t WHERE ts < 100000 GROUP BY 1 ORDER BY 2").fetchall()

def iterate():
    started.wait()
    while True:
        for row in table.scan():
            pass

schema = pyarrow.RecordBatch.from_pydict(batch(0, 1)).schema

def batches():
    while True:
        yield pyarrow.RecordBatch.from_pydict(batch(0, 50_000))

def feed():
    started.wait()
    table.append(pyarrow.RecordBatchReader.from_batches(schema, batches()))

def insert():
    started.wait()
    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    db.sql("INSERT INTO t SELECT * FROM reader")

def read_frames():
    started.wait()
    while True:
        reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
        db.sql("SELECT * FROM reader").fetchone()

def convert():
    started.wait()
    while True:
        table.scan().df(), table.scan().reader(), table.scan().numpy()

for work in (put, append, collect, query, iterate, feed, insert, read_frames, convert):
    threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.3)  # so that all are in the middle of something; correct without
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(5)", 5),
        ("raise KeyError('gone')", 1),
        ("atexit.register(db.close)", 0),
        ("atexit.register(lambda: (table.put(1, 0.5), db.sql('SELECT count(*) FROM t').fetchone()))", 0),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", -2),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -15),
        ("os._exit(4)", 4),
    ],
)
def test_daemon_threads_at_the_end_of_the_interpreter(path, end, status):
    run(BUSY + end, path, status=status)
    assert check(path) >= 300_000


CHILD = """
pid = os.fork()
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_daemon_threads_at_the_end_of_a_child(path):
    run(CHILD + BUSY + "sys.exit(5)", path, status=5)
    assert check(path) >= 300_000


UNCLOSED = """
db = thalweg.connect(path)
table = create(db)
table.append(batch(0, 100_000))
cycle = [db, table, db.sql("SELECT * FROM t"), table.appender()]
cycle[3].put(100_000, 0.5)
cycle.append(cycle)
iterator = iter(db.sql("SELECT * FROM t"))
next(iterator)
module_keeps = sys.modules["numpy"].kept = [db, table.scan(), table.appender()]
"""


def test_what_was_never_closed(path):
    run(UNCLOSED, path)
    assert check(path) >= 100_000


LATE = """
db = thalweg.connect(path)
table = create(db)
table.append(batch(0, 200_000))

class Late:
    '''Uses the database when the interpreter takes modules apart.'''
    def __init__(self, db, table):
        self.db, self.table = db, table
    def __del__(self):
        self.table.put(200_000, 0.5)
        self.db.sql("SELECT count(*) FROM t").fetchone()

late = Late(db, table)
main = threading.main_thread()

def read():
    main.join()  # the interpreter waits for this thread, which is no daemon
    for row in db.sql("SELECT * FROM t"):
        pass
    table.put(200_001, 0.5)

threading.Thread(target=read).start()
"""


def test_use_after_the_main_thread_has_ended(path):
    run(LATE, path)
    assert check(path) >= 200_001
