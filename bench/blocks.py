"""How many rows make a block: bytes, encoding, one row and whole columns, for several sizes, on shipped and generated data.

python bench/blocks.py [--rows N] [--folder DIR]
"""

import argparse
import os
import random
import shutil
import statistics
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import thalweg
from data import stream

SIZES = [512, 1024, 2048, 4096, 8192, 16_384, 65_536]
SAMPLE = os.path.join(os.path.dirname(__file__), "..", "samples", "beijing-air-2016.csv.gz")


def size_bytes(folder):
    return sum(
        os.path.getsize(os.path.join(place, name))
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".seg", ".frag"))
    )


def measure(name, table, column, folder):
    keys = table["ts"].to_pylist()
    print(f"{name}: {table.num_rows:,} rows, {table.num_columns} columns")
    print("| rows a block | bytes a row | load, M rows/s | one row, us | a column, M rows/s |")
    print("|---|---|---|---|---|")
    for block_rows in SIZES:
        shutil.rmtree(folder, ignore_errors=True)
        db = thalweg.connect(folder)
        stored = db.create_table("t", table.schema, time="ts", block_rows=block_rows)
        start = time.perf_counter()
        stored.append(table)
        load = table.num_rows / (time.perf_counter() - start) / 1e6
        draw, one, whole = random.Random(1), [], []
        for _ in range(400):
            key = draw.choice(keys)
            start = time.perf_counter()
            found = stored.scan(start=key, limit=1).arrow()
            one.append((time.perf_counter() - start) * 1e6)
            assert found.num_rows == 1 and found["ts"][0].as_py() == key
        for _ in range(5):
            start = time.perf_counter()
            found = stored.scan(columns=[column]).arrow()
            whole.append(table.num_rows / (time.perf_counter() - start) / 1e6)
            assert found.num_rows == table.num_rows
        db.close()
        bytes_a_row = size_bytes(folder) / table.num_rows
        print(f"| {block_rows:,} | {bytes_a_row:.2f} | {load:.2f} | {statistics.median(one):.0f} | {statistics.median(whole):.0f} |")
    shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--folder", default="bench-data/blocks.thal")
    arguments = arguments.parse_args()
    air = pyarrow.csv.read_csv(SAMPLE)
    air = air.set_column(0, "ts", pc.cast(air["ts"], pa.timestamp("us")))
    measure("Air quality, 12 stations", air, "pm25", arguments.folder)
    measure("Events", stream(arguments.rows), "a0", arguments.folder)


if __name__ == "__main__":
    main()
