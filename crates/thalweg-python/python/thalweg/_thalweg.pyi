"""The compiled part of the package."""

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy
import pandas
import polars
import pyarrow

__version__: str

_Time = int | str | datetime.date | datetime.datetime | numpy.datetime64
_Params = Sequence[Any] | Mapping[str, Any]
_Length = float | str | datetime.timedelta

class Error(Exception):
    """Base class of all Thalweg exceptions."""

class NotFoundError(Error):
    """A table, column or database that does not exist."""

class AlreadyExistsError(Error):
    """A name that is already taken."""

class SchemaError(Error):
    """Data or a definition that does not fit the columns of a table."""

class OutOfDomainError(Error):
    """A value outside the range of its type."""

class CorruptionError(Error):
    """Stored bytes that fail their checks."""

class LockedError(Error):
    """The database is open for writing in another process, or in this one with other options."""

class QueryError(Error):
    """A statement that cannot be parsed, planned or run."""

class LimitError(Error):
    """A documented limit was exceeded."""

class DiskFullError(Error):
    """No space is left; writing works again once there is some."""

class SnapshotExpiredError(Error):
    """The snapshot is older than max_snapshot_age; run the statement again."""

class UnsupportedError(Error):
    """Not offered by this version."""

def connect(
    path: str | os.PathLike[str] = ":memory:",
    read_only: bool = False,
    durability: Literal["disk", "process", "memory"] = "disk",
    cache_bytes: int | None = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    sync_interval: _Length | None = None,
    max_snapshot_age: _Length | None = None,
    maintenance: Literal["auto", "manual"] = "auto",
    writer: str | None = None,
) -> Database:
    """Opens the database in the directory `path`, making it if it is missing; ":memory:", or no path, is a new one in memory.

    The same path with the same options again, in one process, shares the open database; the last close() closes it.
    A path that begins with ~ lies in the home folder.

    read_only: never write; the database must exist. Works beside a process that writes.
    durability: what an append survives when it returns: "disk", "process" or "memory".
    cache_bytes: memory for cached parts of the index.
    threads: how many work on one call; all cores by default.
    memory_limit: bytes that sorts, joins and groups may take together; rows on their way between threads may take as much
        again, 64 MiB at least.
    sync_interval: seconds within which "process" appends reach stable storage; 0.2 by default.
    max_snapshot_age: seconds for which files are kept for readers in other processes; 10 minutes by default. To be given
        where it is written and where it is read. Lengths of time may be text too, as "10 minutes", or a timedelta.
    maintenance: "auto": late rows are put in order, short blocks joined and the room of deleted rows given back without being
        asked; "manual": by Table.maintain() alone.
    writer: the name of a process that writes arrays beside others; not offered by this version.

    >>> import thalweg
    >>> with thalweg.connect(":memory:") as db:
    ...     db.sql("SELECT 1 + 1").fetchone()
    (2,)
    """

class Database:
    """An open database; made by thalweg.connect()."""
    path: str
    """The path it was opened by."""

    def create_table(
        self,
        name: str,
        schema: pyarrow.Schema | Mapping[str, Any] | Any,
        layout: str = "stream",
        time: str | None = None,
        split: str | int | datetime.timedelta | None = None,
        block_rows: int | None = None,
        summaries: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Table:
        """Makes a table and returns it.

        schema: a pyarrow or polars schema, or a dict of names and types: "double", float, numpy.float64, a pandas dtype. Or
            data, in any form that append() takes: the table gets its columns and its rows.
        time: the column that orders rows, whose texts in data become times; None orders them by arrival, or data by its only
            column of times; "" orders data by arrival too.
        split: regular cuts of time, as "1 day".
        block_rows: rows of a full block; 4,096 by default.
        summaries: "auto", "all", "none", or the columns that blocks are summarised by.
        unique: the columns whose values together belong to one row alone, as ["device", "ts"].
        on_duplicate: which of two rows of one unique key is kept: "last", "first", or "error", which stores neither.
        retention: rows older than this are deleted, by the clock of the machine: "90 days", or a timedelta.

        >>> import thalweg
        >>> db = thalweg.connect(":memory:")
        >>> cpu = db.create_table("cpu", {"ts": "timestamp", "host": str, "sys": float}, time="ts", split="1 day")
        >>> cpu.append({"ts": ["2026-01-01", "2026-01-02"], "host": ["a", "b"], "sys": [1.5, 2.5]})
        2
        >>> len(db.create_table("copy", db.sql("SELECT * FROM cpu")))
        2
        >>> db.create_table("log", [{"ts": "2026-01-01 06:00", "v": 1}], time="ts").schema.field("ts").type
        TimestampType(timestamp[ns])
        """

    def table(self, name: str) -> Table:
        """The table of that name, in any case."""

    def tables(self) -> list[str]:
        """The names of all tables, in order. Views are none of them: SHOW TABLES has both."""

    def drop_table(self, name: str) -> None:
        """Removes a table and its rows."""

    def sql(self, text: str, params: _Params | None = None) -> Result:
        """Runs a statement. What changes something is done when this returns, and its result is one row, count; a query
        takes its snapshot now and runs when its first row is asked for. Several statements without parameters run one after
        the other, each by itself, until one fails; the result is that of the last.

        params: a list for ? and $1, a dict for $name.
        A name that is no table may be a variable of the caller that holds a DataFrame or an Arrow table. What that holds is read
        when the query runs: change nothing in it before.

        >>> import thalweg, pyarrow
        >>> db = thalweg.connect(":memory:")
        >>> readings = pyarrow.table({"v": [1, 2, 3]})
        >>> db.sql("SELECT sum(v) FROM readings WHERE v > ?", params=[1]).fetchone()
        (5,)
        """

    def execute(self, text: str, params: _Params | None = None) -> Result:
        """The same as sql()."""

    def cursor(self) -> Any:
        """Returns a cursor of Python's database interface, for programs that ask for one: execute(), fetchall(), description. sql() does the
        same and more.

        >>> import thalweg
        >>> db = thalweg.connect(":memory:")
        >>> db.cursor().execute("SELECT 1 + ?", [1]).fetchall()
        [(2,)]
        """

    def executemany(self, text: str, rows: Iterable[_Params]) -> Result:
        """Runs one statement for each of `rows`, which are lists for ? and $1, or dicts for $name. Returns one row, count.

        An INSERT INTO ... VALUES of one row stores all of them in one commit, or none; every other statement is run by
        itself.

        >>> import thalweg
        >>> db = thalweg.connect(":memory:")
        >>> t = db.create_table("t", {"n": int, "v": float})
        >>> db.executemany("INSERT INTO t VALUES (?, ?)", [(1, 0.5), (2, 1.5)]).fetchone()
        (2,)
        """

    def prepare(self, text: str) -> Prepared:
        """Parses a statement to run it often.

        >>> import thalweg
        >>> db = thalweg.connect(":memory:")
        >>> double = db.prepare("SELECT 2 * $x")
        >>> double.execute({"x": 21}).fetchone()
        (42,)
        """

    def flush(self) -> None:
        """Returns when everything appended so far is durable."""

    def transaction(self) -> Transaction:
        """Begins a transaction: all that is done by its methods is stored in one commit, or not at all. Its statements see one snapshot, that
        of now, and their own changes. Leaving `with` commits it; an exception, or leaving it without that, rolls it back.

        Where somebody else has changed or deleted a row meanwhile that it changes or deletes, the commit fails with a QueryError: run
        it again.

        >>> import thalweg
        >>> db = thalweg.connect(":memory:")
        >>> t = db.create_table("t", {"n": int, "v": float})
        >>> with db.transaction() as tx:
        ...     tx.append("t", {"n": [1, 2], "v": [0.5, 1.5]})
        ...     tx.sql("UPDATE t SET v = 2.5 WHERE n = 2").fetchone()
        ...     (len(tx.table("t")), len(t))
        2
        (1,)
        (2, 0)
        >>> len(t)
        2
        """

    def close(self) -> None:
        """Flushes, and releases the files unless another connection of this process shares them. A second call does nothing,
        nor does one in a child of a fork.
        """

    def create_array(self, *arguments: Any, **options: Any) -> Any:
        """Not offered by this version."""

    def array(self, name: str) -> Any:
        """Not offered by this version."""

    def __enter__(self) -> Database: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Transaction:
    """A transaction; made by Database.transaction()."""
    def sql(self, text: str, params: _Params | None = None) -> Result:
        """Runs a statement as Database.sql() does, as part of the transaction. One that fails changes nothing, and the transaction goes on."""

    def execute(self, text: str, params: _Params | None = None) -> Result:
        """The same as sql()."""

    def executemany(self, text: str, rows: Iterable[_Params]) -> Result:
        """Runs one statement for each of `rows`, as Database.executemany() does, as part of the transaction."""

    def append(self, name: str, data: Any) -> int:
        """Appends rows to the table of that name, as Table.append() does; returns how many."""

    def table(self, name: str) -> Table:
        """The table of that name, in any case, as the transaction sees it: what is appended to it is part of the transaction."""

    def commit(self) -> None:
        """Stores all that was done in one commit. The transaction is over then, also where this fails."""

    def rollback(self) -> None:
        """Gives up all that was done. The transaction is over then."""

    def __enter__(self) -> Transaction: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Prepared:
    """A statement that was parsed; made by Database.prepare()."""
    parameters: list[str]
    """The names of its parameters in order; numbers for ? and $1."""

    def execute(self, params: _Params | None = None) -> Result:
        """Runs it, with a list for ? and $1, or a dict for $name."""

class Table:
    """A table; made by Database.create_table() and Database.table()."""
    name: str
    """The name."""
    schema: pyarrow.Schema
    """The columns as a pyarrow.Schema."""
    columns: list[str]
    """The names of the columns."""

    def append(self, data: Any, *, producer: str | None = None, sequence: int | None = None) -> int:
        """Appends all rows of `data`, or none, and returns how many there were. They are durable when this returns.

        data: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a dict of arrays, or
            anything with __arrow_c_stream__ or __arrow_c_array__; a list or an iterator of such; a dict of values as one row,
            or a list or an iterator of them; a list or an iterator of tuples with the values of all columns in their order.

        The rows are read while other threads run: they must not write to arrays of NumPy that they are in before this returns.

        Columns are matched by name, as are the values of dicts, dataclasses, named tuples and rows of sqlite3; values of other tuples by
        place. Missing columns get their default, or null; rows may be in any order. An index of times without a name is the time column of a DataFrame
        that has no other. In pandas, and in lists beside texts or times, NaN is a missing value and becomes null; elsewhere it stays NaN.
        Integers in a column of times count in its unit since 1970: nanoseconds in a "timestamp", seconds in a "timestamp(s)".

        producer, sequence: the name of the program or device that sends the rows, and a number that rises with each of its appends to
            the table. Whoever does not know whether an append was stored sends it again with its number: it is stored once. One that was
            sent with this number before, or before a higher one, is taken for stored. The 65,536 producers that appended last are
            remembered, for as long as the database lasts.

        >>> import thalweg, numpy
        >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
        >>> t.append({"ts": numpy.arange(3), "v": numpy.array([0.5, 1.5, numpy.nan])})
        3
        >>> for attempt in range(3):
        ...     _ = t.append({"ts": [3], "v": [2.5]}, producer="gateway 7", sequence=41)
        >>> len(t)
        4
        """

    def put(self, *row: Any) -> None:
        """Appends one row, its values in the order of the columns.

        An integer in a column of times counts in its unit since 1970, as in append().

        >>> import thalweg
        >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "timestamp", "v": "double"}, time="ts")
        >>> t.put("2026-01-01T00:00:00", 3.5)
        >>> len(t)
        1
        """

    def appender(self) -> Appender:
        """Collects rows that are put one by one and commits them in large batches, to load many fast; use it in a `with` block."""

    def flush(self) -> None:
        """Returns when everything appended so far is durable."""

    def scan(
        self,
        columns: Sequence[str] | str | None = None,
        where: str | None = None,
        start: _Time | None = None,
        end: _Time | None = None,
        limit: int | None = None,
        box: Mapping[str, tuple[Any, Any]] | None = None,
        reverse: bool = False,
        params: _Params | None = None,
    ) -> Result:
        """Rows in order of time, as a Result of a snapshot of now.

        columns: names of those wanted, all by default.
        where: a condition as SQL text.
        start, end: times from start on, before end; an int in the column's unit, ISO 8601 text, a datetime or datetime64.
        limit: at most so many rows.
        box: {"column": (smallest, largest)}, both included.
        reverse: the latest first.
        params: values for `where`, a list for ? and $1, a dict for $name.

        >>> import thalweg
        >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
        >>> t.append({"ts": [1, 2, 3], "v": [1.0, 2.0, 3.0]})
        3
        >>> t.scan(columns=["v"], start=2).fetchall()
        [(2.0,), (3.0,)]
        >>> t.scan(where="v < ?", params=[3], reverse=True, limit=1).fetchall()
        [(2, 2.0)]
        """

    def head(self, n: int = 5) -> Result:
        """The first rows in order of time, as a Result.

        >>> import thalweg
        >>> t = thalweg.connect(":memory:").create_table("t", {"ts": [3, 1, 2]}, time="ts")
        >>> t.head(2).fetchall()
        [(1,), (2,)]
        """

    def tail(self, n: int = 5) -> Result:
        """The last rows in order of time, as a Result.

        >>> import thalweg
        >>> t = thalweg.connect(":memory:").create_table("t", {"ts": [3, 1, 2]}, time="ts")
        >>> t.tail(2).fetchall()
        [(2,), (3,)]
        """

    def arrow(self) -> pyarrow.Table:
        """All rows as a pyarrow.Table, in order of time."""

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas.DataFrame, in order of time."""

    def pl(self) -> polars.DataFrame:
        """All rows as a polars.DataFrame, in order of time."""

    def numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """All rows as a dict of numpy arrays by column, in order of time; masked arrays where there are nulls."""

    def to_arrow(self) -> pyarrow.Table:
        """The same as arrow()."""

    def to_pandas(self) -> pandas.DataFrame:
        """The same as df()."""

    def to_polars(self) -> polars.DataFrame:
        """The same as pl()."""

    def to_numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """The same as numpy()."""

    def stats(self) -> dict[str, Any]:
        """Statistics of the table as a dict: rows, bytes, blocks, fragments, open_rows, late_rows, min_time, max_time."""

    def maintain(self) -> None:
        """Puts late rows in order and short blocks together, so that scans need not merge them. Readers and writers go on
        meanwhile; files that are of no use any more go in the background. Ctrl-C ends it; what is in order by then stays so.
        """

    def read(self, *arguments: Any, **options: Any) -> Any:
        """Not offered by this version."""

    def at(self, *arguments: Any, **options: Any) -> Any:
        """Not offered by this version."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...

class Appender:
    """Collects rows for a table and commits them in batches; made by Table.appender().

    It is for loading many rows fast: a batch is committed at 65,536 rows or 8 MiB, and before that nobody sees its rows and a kill
    loses them. Rows are durable after flush() or close(), which leaving a `with` block calls. Readings that come one by one
    are better put with Table.put() or append(), or flushed every second or so.

    >>> import thalweg
    >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    >>> with t.appender() as a:
    ...     for i in range(1000):
    ...         a.put(i, i / 10)
    >>> len(t)
    1000
    """

    def put(self, *row: Any) -> None:
        """Adds a row, its values in the order of the columns."""

    def flush(self) -> None:
        """Commits the rows so far; they are durable when this returns.

        If it raises, no row was stored and all are kept: call it again once there is space. Only where the error says that
        it is not known whether they were stored, every later call raises it again.
        """

    def close(self) -> None:
        """Commits the rows so far and ends the appender; if that raises, it stays open, as after flush(). A second call does
        nothing, nor does one in a child of a fork: the rows are its parent's.
        """

    def __enter__(self) -> Appender: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Result:
    """The rows of a statement. They stream, and can be read once.

    Take all of them as one object, `reader()` or an iteration as they come, or row by row with `fetchone()`.

    >>> import thalweg
    >>> db = thalweg.connect(":memory:")
    >>> r = db.sql("SELECT 1 AS one, 'a' AS letter")
    >>> r.columns
    ['one', 'letter']
    >>> r.fetchall()
    [(1, 'a')]
    """
    schema: pyarrow.Schema
    """The columns as a pyarrow.Schema."""
    columns: list[str]
    """The names of the columns."""
    description: list[tuple[str, str, None, None, None, None, None]]
    """The columns as the database interface of Python wants them: for each a tuple of its name, the name of its type, and
    five times None.

    >>> import thalweg
    >>> thalweg.connect(":memory:").sql("SELECT 1.5 AS a").description
    [('a', 'float64', None, None, None, None, None)]
    """

    def arrow(self) -> pyarrow.Table:
        """All rows as a pyarrow.Table; nothing is copied.

        >>> import thalweg
        >>> thalweg.connect(":memory:").sql("SELECT 1 AS a").arrow().to_pylist()
        [{'a': 1}]
        """

    def to_arrow(self) -> pyarrow.Table:
        """The same as arrow()."""

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas.DataFrame, with dates as datetime64. Names that appear again get a number: v, v_1. As usual with pandas, a column of integers with nulls becomes one of floats, which rounds
        integers beyond 2**53; arrow() and pl() keep them.
        """

    def fetch_arrow_table(self) -> pyarrow.Table:
        """The same as arrow(), by its name in DuckDB."""

    def to_pandas(self) -> pandas.DataFrame:
        """The same as df()."""

    def fetchdf(self) -> pandas.DataFrame:
        """The same as df(), by its name in DuckDB."""

    def pl(self) -> polars.DataFrame:
        """All rows as a polars.DataFrame. Names that appear again get a number: v, v_1."""

    def to_polars(self) -> polars.DataFrame:
        """The same as pl()."""

    def numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """All rows as a dict of numpy arrays by column, masked arrays where there are nulls. Names that appear again get a
        number: v, v_1.

        >>> import thalweg
        >>> thalweg.connect(":memory:").sql("SELECT 1.5 AS a").numpy()
        {'a': array([1.5])}
        """

    def to_numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """The same as numpy()."""

    def fetchnumpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """The same as numpy(), by its name in DuckDB."""

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes all rows to a Parquet file, batch by batch."""

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """The same as to_parquet()."""

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes all rows to a CSV file with a header, batch by batch, as the command line writes them; compressed where its name ends with
        .gz or .zst."""

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The same as write_csv()."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as a list of tuples of Python values. An interval without months is a timedelta. One with months has no one length: it is
        pyarrow's MonthDayNano, a tuple of months, days and nanoseconds, as in arrow().

        >>> import thalweg
        >>> thalweg.connect(":memory:").sql("SELECT INTERVAL '36 hours', INTERVAL '1 month 2 days'").fetchall()
        [(datetime.timedelta(days=1, seconds=43200), MonthDayNano(months=1, days=2, nanoseconds=0))]
        """

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row as a tuple of Python values; None when there is no more. A datetime has microseconds: df(), numpy() and arrow() keep
        nanoseconds."""

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """At most `size` of the next rows as a list of tuples of Python values; an empty one when there is no more.

        >>> import thalweg
        >>> r = thalweg.connect(":memory:").sql("SELECT * FROM (VALUES (1), (2), (3)) AS t (n) ORDER BY n")
        >>> r.fetchmany(2), r.fetchmany(2), r.fetchmany(2)
        ([(1,), (2,)], [(3,)], [])
        """

    def show(self) -> None:
        """Prints the first rows. They stay in the result.

        >>> import thalweg
        >>> thalweg.connect(":memory:").sql("SELECT 1 AS one").show()
        +-----+
        | one |
        +-----+
        | 1   |
        +-----+
        """

    def reader(self) -> pyarrow.RecordBatchReader:
        """The rows as a pyarrow.RecordBatchReader, which pulls them as it is read."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def __next__(self) -> tuple[Any, ...]: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
