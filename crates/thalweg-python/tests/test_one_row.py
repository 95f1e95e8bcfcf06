"""Single rows that come as Arrow: stored as rows of a larger table are, and refused with the same words."""

import math
import random
import struct
from datetime import date, timedelta

import pyarrow
import pytest

import thalweg

TYPES = {
    "b": pyarrow.bool_(),
    "i8": pyarrow.int8(),
    "i16": pyarrow.int16(),
    "i32": pyarrow.int32(),
    "i64": pyarrow.int64(),
    "u8": pyarrow.uint8(),
    "u16": pyarrow.uint16(),
    "u32": pyarrow.uint32(),
    "u64": pyarrow.uint64(),
    "f32": pyarrow.float32(),
    "f64": pyarrow.float64(),
    "s": pyarrow.string(),
    "bin": pyarrow.binary(),
    "d": pyarrow.date32(),
    "t_s": pyarrow.timestamp("s"),
    "t_ms": pyarrow.timestamp("ms"),
    "t_us": pyarrow.timestamp("us", "Europe/Berlin"),
    "t_ns": pyarrow.timestamp("ns"),
    "len": pyarrow.duration("ms"),
    "dec": pyarrow.decimal128(12, 2),
}
SCHEMA = pyarrow.schema([pyarrow.field("ts", pyarrow.int64(), nullable=False)] + [(n, t) for n, t in TYPES.items()])


def value_of(rng, kind):
    if rng.random() < 0.2:
        return None
    if pyarrow.types.is_boolean(kind):
        return rng.random() < 0.5
    if pyarrow.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (0, 2**bits - 1) if pyarrow.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([low, high, 0, rng.randint(low, high)])
    if pyarrow.types.is_floating(kind):
        edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, -1.25]
        return rng.choice(edges)
    if pyarrow.types.is_string(kind):
        return rng.choice(["", "a", "Ölstand", "x" * 300])
    if pyarrow.types.is_binary(kind):
        return rng.choice([b"", b"\x00\xff", rng.randbytes(40)])
    if pyarrow.types.is_date(kind):
        return date(2026, 1, 1) + timedelta(days=rng.randint(-40_000, 40_000))
    if pyarrow.types.is_decimal(kind):
        return pyarrow.scalar(rng.randint(-(10**9), 10**9), pyarrow.int64()).cast(pyarrow.decimal128(19, 0)).cast(kind).as_py()
    return rng.randint(-(10**9), 10**9)


def table_of(rng, rows):
    columns = [pyarrow.array([value_of(rng, kind) for _ in range(rows)], kind) for kind in TYPES.values()]
    return pyarrow.table([pyarrow.array(range(rows), pyarrow.int64()), *columns], schema=SCHEMA)


def test_rows_one_by_one_are_what_they_are_together():
    rng = random.Random(7)
    data = table_of(rng, 300)
    with thalweg.connect(":memory:") as db:
        together = db.create_table("together", SCHEMA, time="ts")
        single = db.create_table("single", SCHEMA, time="ts")
        assert together.append(data) == 300
        batch = data.combine_chunks().to_batches()[0]
        for at in range(300):
            assert single.append(batch.slice(at, 1)) == 1
        # NaN is not equal to itself, but its bytes are.
        def rows(table):
            return [repr(row) for row in table.scan().fetchall()]
        assert rows(single) == rows(together)
        assert together.scan().arrow().schema == single.scan().arrow().schema


def test_every_bit_of_a_float_is_kept():
    # A signalling NaN among them, which a way through the wider type would make quiet.
    bits = [0x7FA00001, 0x7FC00000, 0xFFC12345, 0x00000001, 0x80000000]
    values = pyarrow.Array.from_buffers(
        pyarrow.float32(), len(bits), [None, pyarrow.py_buffer(struct.pack(f"<{len(bits)}I", *bits))]
    )
    batch = pyarrow.record_batch([pyarrow.array(range(len(bits)), pyarrow.int64()), values], names=["ts", "v"])
    with thalweg.connect(":memory:") as db:
        t = db.create_table("t", {"ts": "int64", "v": "float"}, time="ts")
        for at in range(len(bits)):
            t.append(batch.slice(at, 1))
        stored = t.scan().arrow()["v"].combine_chunks()
        stored = stored.chunk(0) if isinstance(stored, pyarrow.ChunkedArray) else stored
        found = struct.unpack(f"<{len(bits)}I", stored.buffers()[1].to_pybytes()[: 4 * len(bits)])
        assert list(found) == bits


class Struct:
    """A struct array with an offset of its own, which a record batch never has."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


def test_a_slice_of_a_struct_is_its_own_row():
    rows = [{"ts": at, "v": at / 2, "s": f"row {at}", "b": at % 2 == 0} for at in range(20)]
    kind = pyarrow.struct([("ts", pyarrow.int64()), ("v", pyarrow.float64()), ("s", pyarrow.string()), ("b", pyarrow.bool_())])
    array = pyarrow.array(rows, kind)
    with thalweg.connect(":memory:") as db:
        t = db.create_table("t", {"ts": "int64", "v": "double", "s": "string", "b": "bool"}, time="ts")
        for at in (17, 3, 9, 0):
            assert t.append(Struct(array.slice(at, 1))) == 1
        assert t.scan().fetchall() == [tuple(rows[at].values()) for at in (0, 3, 9, 17)]
        null = pyarrow.array([None], kind)
        with pytest.raises(thalweg.SchemaError, match="null as a whole"):
            t.append(Struct(null))


def one(**columns):
    return pyarrow.record_batch({name: [value] if not isinstance(value, pyarrow.Array) else value for name, value in columns.items()})


def test_what_does_not_match_is_matched_cast_or_refused_as_ever():
    with thalweg.connect(":memory:") as db:
        t = db.create_table("t", {"ts": "int64", "v": "double", "s": "string"}, time="ts")
        # Another order, another type, a missing column.
        t.append(one(s="b", v=2.5, ts=2))
        t.append(one(ts=pyarrow.array([3], pyarrow.int16()), v=pyarrow.array([1.5], pyarrow.float32()), s="c"))
        t.append(one(ts=4))
        t.append(one(ts=5, v=1.0, s=pyarrow.array(["d"], pyarrow.large_string())))
        t.append(one(ts=6, v=1.0, s=pyarrow.array(["e"]).dictionary_encode()))
        t.append(one(ts=7, v=1.0, s=pyarrow.array(["f"], pyarrow.string_view())))
        assert t.scan().fetchall() == [
            (2, 2.5, "b"), (3, 1.5, "c"), (4, None, None), (5, 1.0, "d"), (6, 1.0, "e"), (7, 1.0, "f"),
        ]  # fmt: skip
        wrong = pyarrow.Array.from_buffers(
            pyarrow.string(), 1, [None, pyarrow.py_buffer(struct.pack("<2i", 0, 2)), pyarrow.py_buffer(b"\xff\xfe")]
        )
        refused = [
            one(ts=pyarrow.array([None], pyarrow.int64()), v=1.0, s="x"),
            one(ts=8, v=1.0, s=wrong),
            one(ts=8, v=1.0, s="x", more=1),
            one(ts=8, v="half", s="x"),
        ]
        for row in refused:
            with pytest.raises(thalweg.SchemaError) as single:
                t.append(row)
            twice = pyarrow.Table.from_batches([row, row]).combine_chunks().to_batches()[0]
            with pytest.raises(thalweg.SchemaError) as together:
                t.append(twice)
            assert str(single.value) == str(together.value)
        with pytest.raises(thalweg.LimitError):
            t.append(one(ts=8, v=1.0, s="x" * (17 << 20)))
        assert t.append(one(ts=9, v=1.0, s="y" * (1 << 20))) == 1
        assert len(t) == 7


def test_an_export_is_read_once():
    batch = one(ts=1, v=0.5)

    class Again:
        def __init__(self):
            self.capsules = batch.__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    with thalweg.connect(":memory:") as db:
        same = db.create_table("same", {"ts": "int64", "v": "double"}, time="ts")
        other = db.create_table("other", {"v": "double", "ts": "int64"}, time="ts")
        for table in (same, other):
            rows = Again()
            assert table.append(rows) == 1
            for again in (same, other):
                with pytest.raises(thalweg.SchemaError, match="was read before"):
                    again.append(rows)
        # An append that is refused stores nothing.
        rows = Again()
        narrow = db.create_table("narrow", {"ts": "int64"}, time="ts")
        with pytest.raises(thalweg.SchemaError, match="v"):
            narrow.append(rows)
        assert (len(same), len(other), len(narrow)) == (1, 1, 0)


def test_a_changed_table_takes_rows_of_its_new_columns():
    with thalweg.connect(":memory:") as db:
        t = db.create_table("t", {"ts": "int64", "v": "double"}, time="ts")
        row = one(ts=1, v=0.5)
        t.append(row)
        db.drop_table("t")
        t = db.create_table("t", {"ts": "int64", "v": "double", "w": "int32"}, time="ts")
        t.append(row)
        assert t.scan().fetchall() == [(1, 0.5, None)]
