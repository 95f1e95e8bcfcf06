"""Connections of one process to one path."""

import gc
import os
import shutil
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from programs import check, run

import thalweg

COLUMNS = {"ts": "int64", "v": "double"}
OTHER_PROCESS = "import sys, thalweg\ntry: thalweg.connect(sys.argv[1])\nexcept thalweg.LockedError: sys.exit(7)"


def is_locked(path):
    """Whether another process finds the database open for writing."""
    return subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(path)]).returncode == 7


def test_the_same_path_again_is_the_same_database(path, monkeypatch):
    first = thalweg.connect(path)
    first.create_table("t", COLUMNS, time="ts")
    link = path.parent / "link"
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    others = [thalweg.connect(way) for way in (str(path), path.name, link, f"{path}/../{path.name}/", os.fsencode(path))]
    for number, other in enumerate(others):
        other.table("t").put(number, 0.5)
        assert len(first.table("t")) == number + 1
    first.close()
    for other in others:
        assert len(other.table("t")) == 5
        assert is_locked(path)
        other.close()
    assert not is_locked(path)


def test_a_new_path_is_shared_from_the_start(path):
    with thalweg.connect(path.parent / "not" / "there") as one, thalweg.connect(path.parent / "not" / "there") as other:
        one.create_table("t", COLUMNS)
        assert other.tables() == ["t"]


def test_a_closed_connection_is_closed_and_another_goes_on(path):
    one, other = thalweg.connect(path), thalweg.connect(path)
    table = one.create_table("t", COLUMNS, time="ts")
    table.append({"ts": list(range(100_000)), "v": [0.5] * 100_000})
    kept, rows = other.table("t"), other.table("t").scan()
    one.close()
    one.close()
    for call in (one.tables, lambda: table.put(1, 0.5), lambda: len(table)):
        with pytest.raises(thalweg.Error, match="closed"):
            call()
    kept.put(100_000, 1.0)
    assert len(rows.fetchall()) == 100_000 and len(kept) == 100_001
    other.close()
    assert check(path) == 100_001


def test_what_is_left_of_a_connection_keeps_the_database_open(path):
    rows = thalweg.connect(path).create_table("t", COLUMNS, time="ts").scan()
    gc.collect()
    with thalweg.connect(path) as again:
        again.table("t").put(1, 0.5)
    assert rows.fetchall() == []
    del rows
    gc.collect()
    assert not is_locked(path)


def test_an_appender_outlives_its_connection(path):
    appender = thalweg.connect(path).create_table("t", COLUMNS, time="ts").appender()
    appender.put(1, 0.5)
    gc.collect()
    appender.close()
    del appender
    gc.collect()
    assert check(path) == 1


def test_running_a_cell_again(path):
    for _ in range(3):
        db = thalweg.connect(path)
        if "t" not in db.tables():
            table = db.create_table("t", COLUMNS, time="ts")
        table = db.table("t")
        table.put(1, 0.5)
    assert len(table) == 3
    db.close()
    assert not is_locked(path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 2}, "threads one per core, not 2"),
        ({"durability": "process"}, "durability disk, not process"),
        ({"cache_bytes": 1 << 20}, "cache_bytes .* not 1048576"),
        ({"memory_limit": 1 << 30}, "memory_limit none, not 1073741824"),
        ({"sync_interval": 1}, "sync_interval 200ms, not 1s"),
        ({"max_snapshot_age": "1 hour"}, "max_snapshot_age 600s, not 3600s"),
        ({"maintenance": "manual"}, "maintenance auto, not manual"),
    ],
)
def test_other_options_are_refused_by_name(path, options, says):
    with thalweg.connect(path) as db:
        with pytest.raises(thalweg.LockedError, match=f"plant.thal is open in this process with {says}: connect"):
            thalweg.connect(path, **options)
        assert db.tables() == []
    with thalweg.connect(path, **options), thalweg.connect(path, **options):
        pass


def test_defaults_are_options_too(path):
    defaults = {"durability": "disk", "threads": None, "sync_interval": timedelta(milliseconds=200), "max_snapshot_age": 600}
    with thalweg.connect(path) as one, thalweg.connect(path, read_only=False, **defaults) as other:
        one.create_table("t", COLUMNS)
        assert other.tables() == ["t"]


def test_readers_are_apart_from_the_writer(path):
    with thalweg.connect(path) as writer:
        writer.create_table("t", COLUMNS)
        with thalweg.connect(path, read_only=True) as one, thalweg.connect(path, read_only=True, threads=1) as other:
            for reader in (one, other):
                assert reader.tables() == ["t"]
                with pytest.raises(thalweg.Error, match="read"):
                    reader.drop_table("t")
        assert writer.tables() == ["t"]


def test_a_path_that_leads_elsewhere_by_now_is_another_database(path):
    old = thalweg.connect(path)
    old.create_table("t", COLUMNS)
    path.rename(path.parent / "moved")
    with thalweg.connect(path) as new:
        assert new.tables() == []
        assert old.tables() == ["t"]
        new.create_table("u", COLUMNS)
        shutil.rmtree(path)
        with thalweg.connect(path) as newest:
            assert newest.tables() == []
            assert len(thalweg.connect(path).tables()) == 0
    old.close()
    with thalweg.connect(path.parent / "moved") as moved:
        assert moved.tables() == ["t"]


def test_an_opening_that_fails_leaves_nothing_behind(path):
    path.write_text("x")
    for _ in range(2):
        with pytest.raises(thalweg.Error, match="is a file"):
            thalweg.connect(path)
    path.unlink()
    with thalweg.connect(path) as db:
        db.create_table("t", COLUMNS)
    assert check(path) == 0


def test_threads_that_connect_and_close(path):
    stored, failures = [], []

    def work(number):
        try:
            for i in range(30):
                with thalweg.connect(path, durability="memory") as db:
                    if "t" not in db.tables():
                        try:
                            db.create_table("t", COLUMNS, time="ts")
                        except thalweg.AlreadyExistsError:
                            pass
                    db.table("t").put(number * 100 + i, 0.5)
                    stored.append(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == [] and len(stored) == 180
    assert check(path) == 180


FORKED = """
db = thalweg.connect(path)
table = create(db)
table.put(1, 0.5)

def child():
    # The parent's is not this process's: it is not shared, and it is locked.
    assert "open for writing in another process" in refused(lambda: thalweg.connect(path))
    assert "before a fork" in refused(lambda: len(table))
    with thalweg.connect(path, read_only=True) as one, thalweg.connect(path, read_only=True) as other:
        assert len(one.table("t")) == len(other.table("t")) == 1
    own = f"{path}.{os.getpid()}"
    with thalweg.connect(own) as one, thalweg.connect(own) as other:
        create(one)
        assert other.tables() == ["t"]
    globals().update(db=None, table=None)
    gc.collect()

stop = threading.Event()

def busy():
    while not stop.is_set():
        thalweg.connect(path).close()
        thalweg.connect(path + ".busy").close()

threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    in_child(child)
stop.set()
for thread in threads:
    thread.join()
assert len(table) == 1
db.close()
with thalweg.connect(path) as again:
    assert len(again.table("t")) == 1
"""


def test_a_child_of_a_fork_shares_nothing_with_its_parent(path):
    run(FORKED, path)
    assert check(path) == 1


ENDS = """
db = thalweg.connect(path)
table = create(db)

def busy():
    while True:
        with thalweg.connect(path) as one:
            one.table("t").put(1, 0.5)
        thalweg.connect(path + ".other").close()

for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
time.sleep(0.3)
atexit.register(db.close)
"""


def test_threads_that_connect_while_the_interpreter_ends(path):
    run(ENDS, path)
    assert check(path) > 0


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with thalweg.connect("~/data.thal") as db, thalweg.connect(tmp_path / "data.thal") as same:
        db.create_table("t", COLUMNS)
        assert same.tables() == ["t"] and db.path == str(tmp_path / "data.thal")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data.thal"]
    with pytest.raises(thalweg.Error, match='home folder for ~nobody-of-that-name; write "./~nobody'):
        thalweg.connect("~nobody-of-that-name/x")
    with thalweg.connect("./~x"):
        assert (tmp_path / "~x").is_dir()


@pytest.mark.parametrize("path", [5, None, "a\0b", ["a"]])
def test_what_is_no_path(path):
    with pytest.raises(thalweg.Error, match="is no path of a database"):
        thalweg.connect(path)


@pytest.mark.parametrize("age", [600, 0.5, "10 minutes", timedelta(hours=1)])
def test_the_age_of_snapshots(path, age):
    with thalweg.connect(path, max_snapshot_age=age) as db:
        assert db.tables() == []
    for wrong in (-1, "soon", [1]):
        with pytest.raises(thalweg.Error, match="max_snapshot_age is"):
            thalweg.connect(path, max_snapshot_age=wrong)
