"""Thalweg and its peers behind one interface: each with its best honest settings, said in `settings`."""

import os
import shutil
import struct

import numpy as np
import pyarrow as pa

from data import ATTRIBUTES, COLUMNS

AGGREGATES = "avg(a0), min(a1), max(a2), count(*)"


def remove(path):
    for name in (path, path + "-wal", path + "-shm", path + ".wal"):
        if os.path.isdir(name):
            shutil.rmtree(name)
        elif os.path.exists(name):
            os.remove(name)


def bytes_on_disk(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


def tuples(table):
    return list(zip(*(column.to_pylist() for column in table.columns)))


class System:
    """`level` is what an append survives: "disk" or "process"."""

    def __init__(self, folder, level="disk"):
        self.path, self.level = os.path.join(folder, self.name), level
        remove(self.path)
        self.create()

    def prepare(self, batches):
        """Batches in the form that `append` takes, made before the clock runs."""
        return batches

    def load(self, table):
        """Everything in batches of a million, durable at the end."""
        for start in range(0, table.num_rows, 1_000_000):
            self.append(table.slice(start, 1_000_000))

    def bytes(self):
        return bytes_on_disk(self.path)


class Thalweg(System):
    name = "thalweg"
    settings = "disk: durable per append; process: written per append, synced every 200 ms"

    def create(self):
        import thalweg

        self.db = thalweg.connect(self.path, durability=self.level)
        schema = pa.schema([("ts", pa.int64())] + [(a, pa.float64()) for a in ATTRIBUTES])
        self.table = self.db.create_table("t", schema, layout="stream", time="ts")
        self.append = self.table.append

    def prepare(self, batches):
        # One Arrow record batch each, as it comes from a stream; `table.slice` makes tables of chunks.
        return [batch.combine_chunks().to_batches()[0] for batch in batches]

    def put(self, row):
        self.table.put(*row)

    def range(self, first, last):
        return self.db.sql(f"SELECT * FROM t WHERE ts >= {first} AND ts <= {last}").arrow()

    def scan_range(self, first, last):
        return self.table.scan(start=first, end=last + 1).arrow()

    def aggregate(self, first, last):
        return self.db.sql(f"SELECT {AGGREGATES} FROM t WHERE ts >= {first} AND ts <= {last}").fetchall()[0]

    def replay(self):
        return sum(batch.num_rows for batch in self.db.sql("SELECT * FROM t").reader())

    def close(self):
        self.db.close()


class DuckDB(System):
    name = "duckdb"
    settings = "disk: commit = log write + fsync; process: one open transaction"

    def create(self):
        import duckdb

        self.db = duckdb.connect(self.path)
        self.db.execute("CREATE TABLE t(ts BIGINT, " + ", ".join(f"{a} DOUBLE" for a in ATTRIBUTES) + ")")
        if self.level != "disk":
            self.db.execute("BEGIN")

    def append(self, batch):
        self.db.execute("INSERT INTO t SELECT * FROM batch")

    def put(self, row):
        self.db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def load(self, table):
        super().load(table)
        self.db.execute("CHECKPOINT")

    def range(self, first, last):
        return self.db.sql(f"SELECT * FROM t WHERE ts BETWEEN {first} AND {last}").to_arrow_table()

    def aggregate(self, first, last):
        return self.db.execute(f"SELECT {AGGREGATES} FROM t WHERE ts BETWEEN {first} AND {last}").fetchall()[0]

    def replay(self):
        return sum(batch.num_rows for batch in self.db.sql("SELECT * FROM t").to_arrow_reader(100_000))

    def close(self):
        self.db.close()


class SQLite(System):
    name = "sqlite"
    settings = "write-ahead log, synchronous FULL (disk) or OFF (process)"

    def create(self):
        import apsw

        self.db = apsw.Connection(self.path)
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if self.level == 'disk' else 'OFF'}", "cache_size=-1000000"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.execute("CREATE TABLE t(ts INTEGER PRIMARY KEY, " + ", ".join(f"{a} REAL" for a in ATTRIBUTES) + ")")

    def prepare(self, batches):
        return [tuples(batch) for batch in batches]

    def append(self, rows):
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT INTO t VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.db.execute("COMMIT")

    def put(self, row):
        self.append([row])

    def close(self):
        self.db.close()


class RocksDB(System):
    name = "rocksdb"
    settings = "write-ahead log, synced (disk) or not (process), LZ4; 64-byte values without columns"

    def create(self):
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_write_buffer_size(256 << 20)
        options.set_max_background_jobs(2)
        self.db = rocksdict.Rdict(self.path, options)
        self.write_options = rocksdict.WriteOptions()
        self.write_options.sync = self.level == "disk"
        self.batch_type = rocksdict.WriteBatch

    def prepare(self, batches):
        prepared = []
        for batch in batches:
            keys = batch.column(0).to_numpy().astype(">i8").tobytes()
            values = np.column_stack([batch.column(1 + k).to_numpy() for k in range(8)]).tobytes()
            prepared.append([(keys[i * 8 : i * 8 + 8], values[i * 64 : i * 64 + 64]) for i in range(batch.num_rows)])
        return prepared

    def append(self, pairs):
        batch = self.batch_type(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.db.write(batch, self.write_options)

    def put(self, row):
        self.append([(struct.pack(">q", row[0]), struct.pack("8d", *row[1:]))])

    def close(self):
        self.db.close()


class RawFile(System):
    """The limit: rows of 72 bytes and fdatasync, over blocks written before."""

    name = "raw file"
    settings = "overwrite of zero-filled space + fdatasync per batch; no sync (process)"
    FILLED = 512 << 20

    def create(self):
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT)
        zeros = bytes(1 << 20)
        for _ in range(self.FILLED >> 20):
            os.write(self.file, zeros)
        os.fsync(self.file)
        os.lseek(self.file, 0, 0)

    def prepare(self, batches):
        return [
            np.column_stack([batch.column(k).to_numpy().view(np.float64) for k in range(9)]).tobytes()
            for batch in batches
        ]

    def append(self, data):
        os.write(self.file, data)
        if self.level == "disk":
            os.fdatasync(self.file)

    def close(self):
        os.close(self.file)


class Parquet(System):
    """A file without an index: what plain columns cost. Readable only once it is closed."""

    name = "parquet"
    settings = "one file, row groups of the batch, zstd 1, through pyarrow"

    def create(self):
        import pyarrow.parquet as pq

        schema = pa.schema([("ts", pa.int64())] + [(a, pa.float64()) for a in ATTRIBUTES])
        self.pq = pq
        self.writer = pq.ParquetWriter(self.path, schema, compression="zstd", compression_level=1)

    def append(self, batch):
        self.writer.write_table(batch)

    def load(self, table):
        super().load(table)
        self.writer.close()

    def range(self, first, last):
        return self.pq.read_table(self.path, filters=[("ts", ">=", first), ("ts", "<=", last)])

    def replay(self):
        return sum(b.num_rows for b in self.pq.ParquetFile(self.path).iter_batches(100_000))

    def close(self):
        pass


assert COLUMNS[0] == "ts"
