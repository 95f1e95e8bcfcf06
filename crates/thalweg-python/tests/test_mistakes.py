"""Mistakes that people make, and the messages that they get: pairs of both are in the files of mistakes/.

A message is in the words of users, without types, plans or crates of the libraries below and without debug output. It
holds something that helps, which is the part in the files.
"""

import datetime
import decimal
import gzip
import os
import pathlib
import re
import shlex
import subprocess

import numpy
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thalweg

FOLDER = pathlib.Path(__file__).parent / "mistakes"
BIN = os.environ.get("THALWEG_BIN")

# Words that belong to libraries, to Rust or to nobody.
PRIVATE = re.compile(
    r"""DataFusion | [Aa]rrow-rs | ArrowError | (Large)?Utf8(View)?\b | \bU?Int(8|16|32|64)\b | \bFloat(16|32|64)\b
      | \bDate(32|64)\b | \bTime(32|64)\b | Timestamp\( | Interval\( | Decimal(128|256) | MonthDayNano | RecordBatch\b
      | LogicalPlan | [Pp]hysical\ plan | logical\ expression | Exact\( | Signature | [Cc]oerc | \bUDF\b
      | Candidate\ functions | sql\ ?parser | ParserError | TokenizerError | sqltorel | \bast\b
      | No\ field\ named | Valid\ fields | While\ expanding
      | (Cast|Execution|External|Internal|Csv|Schema|Parser)\ error | \[return_type\] | \ at\ Line: | infix
      | Some\( | \bOk\( | \bErr\( | \{\ \w+: | Span\( | Ident\b | Literal\( | panicked | unwrap | \bdyn\b | \w::\w
      | os\ error
      | bug\ report | issue\ tracker | github | fault\ of\ Thalweg
      | PyDict | PyString | Bound< | cannot\ be\ converted\ to | cannot\ be\ cast\ as | is\ not\ an\ instance
      | C\ unsigned
    """,
    re.VERBOSE,
)


def mistakes(name):
    """Pairs of a mistake and its answer, from every two lines of a file; answers are indented."""
    lines = (FOLDER / name).read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("# ")]
    assert len(lines) % 2 == 0, name
    for done, answer in zip(lines[::2], lines[1::2]):
        assert not done.startswith(" ") and answer.startswith("  "), (done, answer)
        yield pytest.param(done, answer.strip(), id=done.replace("\\", "")[:60])


def check(text):
    """The message is in the words of users."""
    found = PRIVATE.search(text)
    assert not found, f"{found.group()!r} in: {text}"
    assert "\n" not in text, text
    assert 10 < len(text) < 500, text
    # Columns are listed by the names that statements use.
    assert not re.search(r"\bw\.\w+, w\.\w+", text), text


def check_raised(raised, answer):
    kind, part = answer.split(": ", 1)
    assert type(raised).__name__ == kind, f"{type(raised).__name__}: {raised}"
    assert isinstance(raised, (thalweg.Error, TypeError, ValueError))
    assert part in str(raised)
    check(str(raised))


def fill(db):
    w = {"ts": "timestamp", "station": "varchar", "temp": "double", "n": "int64", "ok": "bool", "d": "date"}
    db.create_table("w", w, time="ts").append(
        {
            "ts": ["2024-01-01", "2024-01-02", "2024-02-01"],
            "station": ["EWR", "JFK", "EWR"],
            "temp": [1.5, 2.5, None],
            "n": [1, 2, 2**63 - 1],
            "ok": [True, False, None],
            "d": ["2024-01-01", "2024-01-02", "2024-02-01"],
        }
    )
    stations = {"station": ["EWR", "JFK"], "name": ["Newark", "Kennedy"], "n": [1, 2], "Lat": [40.7, 40.6]}
    db.create_table("stations", stations)
    zoned = db.create_table("zoned", {"ts": "timestamp(ms, UTC)", "v": "float"}, time="ts")
    zoned.append({"ts": ["2024-01-01"], "v": [1]})
    db.create_table("numbers", {"t": "int64", "v": "double"}, time="t")
    db.create_table("notime", {"v": [1.0]})


@pytest.fixture(scope="module")
def full():
    """A database that no mistake changes."""
    with thalweg.connect(":memory:") as db:
        fill(db)
        before = {name: db.table(name).arrow() for name in db.tables()}
        yield db
        assert {name: db.table(name).arrow() for name in db.tables()} == before


SQL = sorted(file.name for file in FOLDER.glob("sql_*.txt"))


@pytest.mark.parametrize(("statement", "answer"), [one for name in SQL for one in mistakes(name)])
def test_sql(full, statement, answer):
    with pytest.raises(Exception) as raised:
        full.sql(statement).fetchall()
    check_raised(raised.value, answer)


def failing():
    yield {"ts": "2024-01-01"}
    raise ValueError("my own")


@pytest.fixture(scope="module")
def names(full, tmp_path_factory):
    """The names that the lines of python.txt use."""
    tmp = tmp_path_factory.mktemp("paths")
    (tmp / "file.txt").write_text("x")
    (tmp / "full").mkdir()
    (tmp / "full" / "x.txt").write_text("x")
    with thalweg.connect(tmp / "stored") as stored:
        stored.create_table("r", {"a": [1]})
    closed = thalweg.connect(":memory:")
    closed.close()
    gone = full.create_table("gone", {"a": "int64"})
    full.drop_table("gone")
    closed_appender = full.table("w").appender()
    closed_appender.close()
    tight = thalweg.connect(":memory:", memory_limit=100_000)
    with tight, thalweg.connect(tmp / "open") as _, thalweg.connect(tmp / "stored", read_only=True) as read_only:
        yield {
            "thalweg": thalweg, "db": full, "w": full.table("w"), "numbers": full.table("numbers"),
            "notime": full.table("notime"), "tmp": tmp, "closed": closed, "gone": gone, "read_only": read_only,
            "closed_appender": closed_appender, "failing": failing, "tight": tight, "pa": pa, "pd": pd, "pl": pl,
            "numpy": numpy, "datetime": datetime, "decimal": decimal,
        }


@pytest.mark.parametrize(("call", "answer"), list(mistakes("python.txt")))
def test_python(names, call, answer):
    mixed = pd.DataFrame({"a": [1, "x"]})  # noqa: F841 (a variable that SQL finds)
    number = 5  # noqa: F841
    with pytest.raises(Exception) as raised:
        eval(call, {**names, "mixed": mixed, "number": number})
    check_raised(raised.value, answer)


FILES = {
    "good.csv": "ts,station,temp,n,ok,d\n2024-01-01,EWR,1.5,1,true,2024-01-01\n",
    "other.csv": "ts,foo\n2024-01-01,1\n",
    "badtime.csv": "ts,temp\n2024-01-01,1\n2024-13-45,2\n",
    "badnum.csv": "ts,temp\n2024-01-01,1\n2024-01-02,warm\n",
    "short.csv": "ts,temp\n2024-01-01,1\n2024-01-02\n",
    "long.csv": "ts,temp\n2024-01-01,1\n2024-01-02,2,3\n",
    "unknown.csv": "ts,tmp\n2024-01-01,1\n",
    "notime.csv": "temp\n1\n",
    "emptytime.csv": "ts,temp\n,1\n",
    "twice.csv": "1,2,2\n2024-01-01,1,2\n",
    "empty.csv": "",
    "quote.csv": 'ts,station\n2024-01-01,"open\n2024-01-02,x\n',
    "bool.csv": "ts,ok\n2024-01-01,maybe\n",
    "big.csv": "ts,n\n2024-01-01,99999999999999999999\n",
    "far.csv": "ts,n\n9999-01-01,1\n",
    "both.csv": "ts,v\n01/02/2024,1\n03/04/2024,2\n",
    "noheader.csv": "2024-01-01,EWR,1.5\n2024-01-02,EWR,1.5\n",
    "good.json": '{"ts":"2024-01-01","temp":1.5}\n',
    "bad.json": '{"ts":"2024-01-01","temp":1.5}\n{"ts":"2024-01-01","temp":\n',
    "comma.json": '{"ts":"2024-01-01","temp":1.5},\n',
    "array.json": '[{"ts":"2024-01-01","temp":1.5}\n',
    "number.json": "5\n",
    "nested.json": '{"ts":"2024-01-01","temp":{"a":1}}\n',
    "badtime.json": '{"ts":"2024-13-01","temp":1.5}\n',
    "badnum.json": '{"ts":"2024-01-01","temp":"warm"}\n',
    "unknown.json": '{"ts":"2024-01-01","tmp":1}\n',
    "empty.json": "",
    "good.parquet": "PAR1",
    "good.arrow": "ARROW1",
    "good.xlsx": "PK\x03\x04",
    "file.txt": "x",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files and databases that the lines of command_line.txt speak of."""
    folder = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (folder / "latin.csv").write_bytes("ts,station\n2024-01-01,Zürich\n".encode("latin-1"))
    packed = gzip.compress(b"ts,temp\n" + b"".join(b"2024-01-01,%d\n" % (n * n) for n in range(5000)))
    (folder / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "folder").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "x").write_text("x")
    with thalweg.connect(folder / "my.thal") as db:
        fill(db)
        before = {name: db.table(name).arrow() for name in db.tables()}
    yield folder
    with thalweg.connect(folder / "my.thal") as db:
        assert {name: db.table(name).arrow() for name in db.tables()} == before


@pytest.mark.skipif(BIN is None, reason="THALWEG_BIN names the command line")
@pytest.mark.parametrize(("line", "answer"), list(mistakes("command_line.txt")))
def test_command_line(folder, line, answer):
    """`thalweg ... < FILE` is given a file; a line that does not begin so is typed into the shell."""
    if line.startswith("thalweg"):
        call, _, given = line.partition(" < ")
        words, text = shlex.split(call)[1:], FILES.get(given, "")
    else:
        words, text = ["my.thal"], f"{line}\n"
    done = subprocess.run([BIN, *words], cwd=folder, input=text, capture_output=True, text=True, timeout=60)
    status, part = answer.split(": ", 1)
    error = done.stderr
    assert done.returncode == int(status), error
    assert part in error
    message = error[error.index(part[:20]) :].split("\n\nUsage")[0].split("\n\n  tip")[0].split("\n  [")[0]
    check(" ".join(message.split()))


def test_there_are_many():
    counts = {file.name: len(list(mistakes(file.name))) for file in FOLDER.glob("*.txt")}
    assert set(counts) == {*SQL, "python.txt", "command_line.txt"}
    assert len(SQL) == 6 and min(counts.values()) >= 60 and sum(counts.values()) >= 1000, counts
