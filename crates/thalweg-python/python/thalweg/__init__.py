"""Thalweg: an embedded database for sensor data. One directory is one database.

>>> import thalweg
>>> with thalweg.connect(":memory:") as db:
...     cpu = db.create_table("cpu", {"ts": "timestamp", "sys": "double"}, time="ts")
...     cpu.put("2026-01-01T00:00:00", 3.5)
...     db.sql("SELECT max(sys) FROM cpu").fetchone()
(3.5,)
"""

from thalweg._thalweg import (
    AlreadyExistsError,
    Appender,
    CorruptionError,
    Database,
    DiskFullError,
    Error,
    LimitError,
    LockedError,
    NotFoundError,
    OutOfDomainError,
    Prepared,
    QueryError,
    Result,
    SchemaError,
    SnapshotExpiredError,
    Table,
    Transaction,
    UnsupportedError,
    __version__,
    connect,
)

__all__ = [
    "AlreadyExistsError",
    "Appender",
    "CorruptionError",
    "Database",
    "DiskFullError",
    "Error",
    "LimitError",
    "LockedError",
    "NotFoundError",
    "OutOfDomainError",
    "Prepared",
    "QueryError",
    "Result",
    "SchemaError",
    "SnapshotExpiredError",
    "Table",
    "Transaction",
    "UnsupportedError",
    "__version__",
    "connect",
]
