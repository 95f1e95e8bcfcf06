#!/usr/bin/env python3
"""Cut the shipped sample from the published files and print the facts that samples/README.md states.

    scripts/make_sample.py PRSA_Data_*.csv --out samples/beijing-air-2016.csv.gz
    scripts/make_sample.py --facts samples/beijing-air-2016.csv.gz

The first form takes the station files of the "Beijing Multi-Site Air Quality" data set as they come from
the UCI Machine Learning Repository (one per station, or all of them joined under one header). Only the
standard library is used, and the gzip header carries no time, so the same input gives the same bytes.
"""

import argparse
import csv
import gzip
import io
import sys
from decimal import Decimal

FIRST_HOUR = "2016-03-01T00:00:00"
END_HOUR = "2017-03-01T00:00:00"
NUMBERS = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM"]
RENAMED = {"PM2.5": "pm25", "TEMP": "temp", "PRES": "pres", "DEWP": "dewp", "RAIN": "rain", "WSPM": "wspm"}
HEADER = ["ts", "station"] + [RENAMED.get(name, name.lower()) for name in NUMBERS] + ["wd"]


def sample_rows(paths):
    """The rows of one year of all stations, ordered by time, then station."""
    rows = []
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                year, month, day, hour = (int(row[part]) for part in ("year", "month", "day", "hour"))
                ts = f"{year:04}-{month:02}-{day:02}T{hour:02}:00:00"
                if FIRST_HOUR <= ts < END_HOUR:
                    values = [row[name] for name in NUMBERS] + [row["wd"]]
                    rows.append([ts, row["station"]] + ["" if value == "NA" else value for value in values])
    rows.sort(key=lambda row: (row[0], row[1]))
    return rows


def write_sample(rows, out):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows)
    with open(out, "wb") as file:
        file.write(gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0))


def print_facts(path):
    """Counts and exact decimal sums of every column, as the Markdown table of samples/README.md."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print(f"{len(rows)} rows, {rows[0]['ts']} to {rows[-1]['ts']}, {len({row['station'] for row in rows})} stations\n")
    print("| column | missing | min | max | sum | mean |\n| --- | --- | --- | --- | --- | --- |")
    for name in HEADER[2:-1]:
        values = [Decimal(row[name]) for row in rows if row[name]]
        total = sum(values)
        print(
            f"| `{name}` | {len(rows) - len(values):,} | {min(values)} | {max(values)} "
            f"| {total} | {total / len(values):.6f} |"
        )
    print(f"| `wd` | {sum(not row['wd'] for row in rows):,} | | | | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", help="CSV files as published")
    parser.add_argument("--out", help="the sample to write")
    parser.add_argument("--facts", metavar="SAMPLE", help="print the facts of a sample instead")
    arguments = parser.parse_args()
    if arguments.facts:
        print_facts(arguments.facts)
    elif arguments.sources and arguments.out:
        rows = sample_rows(arguments.sources)
        if not rows:
            sys.exit(f"no rows between {FIRST_HOUR} and {END_HOUR} in {len(arguments.sources)} files")
        write_sample(rows, arguments.out)
    else:
        parser.error("give the published files and --out, or --facts")


if __name__ == "__main__":
    main()
