"""Opening and closing."""

import subprocess
import sys
from datetime import timedelta

import numpy
import pytest

import thalweg

COLUMNS = {"ts": "int64", "v": "double"}


def test_a_database_keeps_what_was_stored(path):
    with thalweg.connect(str(path)) as db:
        db.create_table("t", COLUMNS, time="ts").append({"ts": [1], "v": [0.5]})
    with thalweg.connect(path) as db:
        assert db.tables() == ["t"]
        assert db.table("T").scan().fetchall() == [(1, 0.5)]


def test_close_may_be_called_again_and_ends_everything(path):
    db = thalweg.connect(path)
    table = db.create_table("t", COLUMNS, time="ts")
    prepared = db.prepare("SELECT 1")
    db.close()
    db.close()
    for call in (
        db.tables,
        lambda: db.table("t"),
        lambda: db.sql("SELECT 1"),
        lambda: db.drop_table("t"),
        lambda: db.create_table("u", COLUMNS),
        db.flush,
        prepared.execute,
        table.flush,
        table.stats,
        table.appender,
        table.scan,
        table.maintain,
        lambda: table.put(1, 1.0),
        lambda: table.append({"ts": [1]}),
        lambda: len(table),
    ):
        with pytest.raises(thalweg.Error, match="closed"):
            call()
    thalweg.connect(path).close()


def test_each_database_in_memory_is_its_own():
    with thalweg.connect(":memory:") as one, thalweg.connect(":memory:") as other:
        one.create_table("t", COLUMNS)
        assert one.tables() == ["t"]
        assert other.tables() == []
    with pytest.raises(thalweg.Error):
        thalweg.connect(":memory:", read_only=True)


def test_a_path_that_is_no_database(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(thalweg.Error, match="is a file"):
        thalweg.connect(file)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("x")
    with pytest.raises(thalweg.Error, match="letter.txt"):
        thalweg.connect(other)
    assert [entry.name for entry in other.iterdir()] == ["letter.txt"]


def test_a_second_process_that_writes_is_refused(path):
    with thalweg.connect(path):
        program = "import sys, thalweg\ntry: thalweg.connect(sys.argv[1])\nexcept thalweg.LockedError: sys.exit(7)"
        assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == 7


def test_readers_need_a_database_and_see_each_commit(path):
    with pytest.raises(thalweg.NotFoundError):
        thalweg.connect(path, read_only=True)
    with thalweg.connect(path) as writer:
        table = writer.create_table("t", COLUMNS, time="ts")
        with thalweg.connect(path, read_only=True) as reader:
            seen = reader.table("t")
            for rows in range(3):
                assert len(seen) == rows
                assert reader.sql("SELECT count(*) FROM t").fetchone() == (rows,)
                table.append({"ts": [rows], "v": [1.0]})
            for call in (lambda: seen.put(1, 1.0), lambda: seen.append({"ts": [1]}), lambda: reader.drop_table("t")):
                with pytest.raises(thalweg.Error, match="read"):
                    call()


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "none"},
        {"threads": -1},
        {"threads": 1_000_000},
        {"threads": "two"},
        {"threads": 2**70},
        {"threads": 1.5},
        {"cache_bytes": -1},
        {"cache_bytes": 2**64},
        {"memory_limit": -5},
        {"sync_interval": -1},
        {"sync_interval": "soon"},
        {"read_only": "no"},
        {"durability": 5},
        {"maintenance": "never"},
        {"maintenance": 7},
        {"sync_interval": float("nan")},
    ],
)
def test_options_that_make_no_sense(path, options):
    with pytest.raises(thalweg.Error, match=next(iter(options.values())).__str__()):
        thalweg.connect(path, **options)
    assert not path.exists()


@pytest.mark.parametrize("durability", ["disk", "process", "memory"])
def test_every_durability_stores(path, durability):
    options = {"cache_bytes": 1 << 20, "threads": 1, "memory_limit": 1 << 30, "sync_interval": timedelta(milliseconds=5)}
    with thalweg.connect(path, durability=durability, **options) as db:
        table = db.create_table("t", COLUMNS, time="ts")
        table.put(1, 1.0)
        table.flush()
    with thalweg.connect(path, sync_interval=0.5) as db:
        assert len(db.table("t")) == 1


def test_arrays_are_for_later(path):
    with pytest.raises(thalweg.UnsupportedError):
        thalweg.connect(path, writer="arrays")
    with thalweg.connect(path) as db:
        for call in (lambda: db.array("a"), lambda: db.create_array("a", dims={"x": (0, 9, 5)}, attrs={"v": "int32"})):
            with pytest.raises(thalweg.UnsupportedError):
                call()


def test_errors_are_all_of_one_kind():
    kinds = [getattr(thalweg, name) for name in thalweg.__all__ if name.endswith("Error")]
    assert len(kinds) == 12
    assert all(issubclass(kind, thalweg.Error) for kind in kinds)
    assert all(kind.__module__ == "thalweg" for kind in kinds)


def test_another_working_directory_leads_to_no_other_database(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    columns = {"ts": "int64", "v": "double"}
    with thalweg.connect(tmp_path / "there" / "db") as other:
        other.create_table("t", columns, time="ts").append({"ts": [1, 2], "v": [0.5, 1.5]})
    monkeypatch.chdir(tmp_path / "here")
    with thalweg.connect("db") as db:
        monkeypatch.chdir(tmp_path / "there")
        table = db.create_table("own", columns, time="ts")
        for first in range(0, 1_000_000, 100_000):
            values = numpy.random.default_rng(first).random(100_000)
            table.append({"ts": numpy.arange(first, first + 100_000), "v": values})
        db.create_table("gone", columns, time="ts").append({"ts": [1], "v": [1.0]})
        db.sql("DROP TABLE gone")
        table.maintain()
        assert len(db.table("own")) == 1_000_000
    with thalweg.connect(tmp_path / "there" / "db") as other:
        assert other.sql("SELECT count(*), sum(v) FROM t").fetchone() == (2, 2.0)
    with thalweg.connect(tmp_path / "here" / "db") as db:
        assert len(db.table("own")) == 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="others have names in Unicode only")
def test_a_path_that_is_no_text_is_given_as_python_has_it(tmp_path):
    path = f"{tmp_path}/d\udcff"
    with thalweg.connect(path) as db:
        assert db.path == path
    with thalweg.connect(path, read_only=True) as db:
        assert db.path == path
