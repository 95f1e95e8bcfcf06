"""Runs files of SQLite's public corpus of sqllogictest with the Python package, and counts what differs.

The files are in the public domain, by SQLite's author. They come from the repository
https://www.sqlite.org/sqllogictest (its folder test), or from Maven Central as net.hydromatic:sql-logic-test:0.3,
https://repo1.maven.org/maven2/net/hydromatic/sql-logic-test/0.3/sql-logic-test-0.3.jar: a jar is a zip, whose folder
test is FOLDER.

    scripts/sqlite_corpus.py FOLDER --files 'select[1-3].test' 'index/delete/*' 'random/*/slt_good_[0-9].test'
    scripts/sqlite_corpus.py FOLDER --files 'evidence/*' --engine sqlite

Records that are for other engines alone are left out. --engine sqlite runs those that are for SQLite alone too, and
leaves out those that SQLite skips.

Of each folder it prints how many statements and queries ran, how many of these were right, different (another answer,
or none of the expected errors) and refused (an error where none was expected), and how many statements of indexes were
refused, which are counted apart. After that come the kinds of differences with examples, and the time that kinds of
statements took.
"""

import argparse
import collections
import contextlib
import decimal
import fnmatch
import hashlib
import math
import multiprocessing
import pathlib
import re
import shutil
import signal
import sys
import time

import thalweg

INDEX = re.compile(r"\s*(CREATE\s+(UNIQUE\s+)?INDEX|DROP\s+INDEX|REINDEX)\b", re.IGNORECASE)
NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
Record = collections.namedtuple("Record", "line kind detail sort label sql expected")
# Of a kind of difference: how many, and the first examples.
Kind = collections.namedtuple("Kind", "count examples")


class TooLong(Exception):
    """A statement took longer than --seconds."""


def records(path, engine):
    """The records of a file that the engine runs, one at a time: a file may have millions of lines."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        runs = True
        numbered = enumerate((line.rstrip("\n") for line in lines), 1)
        for number, line in numbered:
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] in ("onlyif", "skipif"):
                runs = runs and (words[1] == engine) == (words[0] == "onlyif")
                continue
            if words[0] == "halt" and runs:
                return
            if words[0] in ("statement", "query"):
                record = read_record(number, words, numbered)
                if runs:
                    yield record
            runs = True


def read_record(number, words, numbered):
    sql, expected = [], []
    part = sql
    for _, line in numbered:
        if not line.strip():
            break
        if line == "----" and words[0] == "query":
            part = expected
        else:
            part.append(line)
    words += [""] * (4 - len(words))
    return Record(number, words[0], words[1], words[2], words[3], "\n".join(sql), expected)


def number_of(value):
    """A value as a number, as SQLite converts it: a text by the number that it begins with."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        found = NUMBER.match(value)
        return float(found[0]) if found else 0
    return value


def shown(value, kind):
    """A value as the corpus writes it in a column of this kind: I for integers, R for reals, T for texts."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        value = int(value)
    if kind in "IR":
        value = number_of(value)
        if isinstance(value, (float, decimal.Decimal)) and not math.isfinite(value):
            return str(value)
        return str(int(value)) if kind == "I" else f"{value:.3f}"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    elif isinstance(value, float):
        value = f"{value:.15g}"
        value += "" if re.search("[.en]", value) else ".0"
    text = "".join(letter if " " <= letter <= "~" else "@" for letter in str(value))
    return text or "(empty)"


def values(rows, record):
    shown_rows = [[shown(value, kind) for value, kind in zip(row, record.detail)] for row in rows]
    if record.sort == "rowsort":
        shown_rows.sort()
    all_values = [value for row in shown_rows for value in row]
    return sorted(all_values) if record.sort == "valuesort" else all_values


def hashed(all_values):
    digest = hashlib.md5("".join(value + "\n" for value in all_values).encode()).hexdigest()
    return f"{len(all_values)} values hashing to {digest}"


def difference(rows, record, labels):
    """The kind of error of an answer and what is shown of it; None if the answer is right.

    An expected hash says so itself, so hash-threshold need not be known.
    """
    if any(len(row) != len(record.detail) for row in rows):
        return "number of columns", str(rows[:1])
    all_values = values(rows, record)
    digest = hashed(all_values)
    if record.expected != (all_values if " values hashing to " not in "".join(record.expected[:1]) else [digest]):
        wanted = record.expected
        if len(wanted) == 1 and " values hashing to " in wanted[0]:
            same_number = wanted[0].split()[0] == digest.split()[0]
        else:
            same_number = len(wanted) == len(all_values)
        kind = "other values" if same_number else "another number of values"
        return kind, f"{' '.join(all_values[:12])} instead of {' '.join(wanted[:12])}"
    if record.label and labels.setdefault(record.label, digest) != digest:
        return "another answer than before by this label", record.label
    return None


def message_kind(error):
    """The message without the names and numbers of the statement."""
    text = str(error).split("\n")[0]
    text = re.sub(r'"[^"]*"', '"..."', text)
    text = re.sub(r"'[^']*'", "'...'", text)
    text = re.sub(r"\b\d+(\.\d+)?\b", "N", text)
    text = re.sub(r"found \w+$", "found ...", text)
    text = re.sub(r"(max|sum)\(\w+\)$", r"\1(...)", text)
    return f"{type(error).__name__}: {text[:160]}"


def statement_kind(sql):
    words = sql.split(None, 2)
    first = words[0].upper() if words else ""
    if first == "SELECT":
        tables = re.search(r"\bFROM\s+(.*?)(\bWHERE\b|\bORDER\b|$)", sql, re.IGNORECASE | re.DOTALL)
        if not tables:
            return "SELECT without FROM"
        return "SELECT, a join" if "," in tables[1] or "JOIN" in tables[1].upper() else "SELECT"
    if first in ("CREATE", "DROP", "ALTER"):
        return f"{first} {words[1].upper()}"
    return f"{first} ... SELECT" if first in ("INSERT", "REPLACE") and "SELECT" in sql.upper() else first


class Count:
    """Counts of the outcomes of the records of a folder."""

    def __init__(self):
        self.files = 0
        self.outcomes = collections.Counter()
        self.kinds = {}
        self.times = {}

    def add_kind(self, outcome, kind, example):
        count, examples = self.kinds.get((outcome, kind), Kind(0, []))
        self.kinds[outcome, kind] = Kind(count + 1, [*examples, example][:ARGS.examples])

    def add_time(self, kind, seconds, place):
        number, total, longest, longest_place = self.times.get(kind, (0, 0.0, 0.0, ""))
        if seconds > longest:
            longest, longest_place = seconds, place
        self.times[kind] = (number + 1, total + seconds, longest, longest_place)

    def join(self, other):
        self.files += other.files
        self.outcomes.update(other.outcomes)
        for (outcome, kind), (count, examples) in other.kinds.items():
            before = self.kinds.get((outcome, kind), Kind(0, []))
            self.kinds[outcome, kind] = Kind(before.count + count, (before.examples + examples)[:ARGS.examples])
        for kind, (number, total, longest, place) in other.times.items():
            before = self.times.get(kind, (0, 0.0, 0.0, ""))
            most = max((before[2], before[3]), (longest, place))
            self.times[kind] = (before[0] + number, before[1] + total, *most)


def run(database, sql):
    def too_long(signal_number, frame):
        raise TooLong(f"longer than {ARGS.seconds} seconds")

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, ARGS.seconds)
    try:
        return database.sql(sql).fetchall()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run_record(database, record, place, labels, count):
    began = time.perf_counter()
    try:
        rows, error = run(database, record.sql), None
    except (thalweg.Error, TooLong) as raised:
        rows, error = [], raised
    count.add_time(statement_kind(record.sql), time.perf_counter() - began, place)
    if INDEX.match(record.sql) and isinstance(error, thalweg.UnsupportedError):
        outcome, kind, told = "index", None, None
    elif record.kind == "statement" and record.detail == "error":
        outcome, kind, told = ("right", None, None) if error else ("different", "no error", "")
    elif error:
        outcome, kind, told = "refused", message_kind(error), str(error)
    elif record.kind == "query" and (wrong := difference(rows, record, labels)):
        outcome, (kind, told) = "different", wrong
    else:
        outcome, kind, told = "right", None, None
    count.outcomes[record.kind, outcome] += 1
    if kind:
        count.add_kind(outcome, kind, f"{place}: {' '.join(record.sql.split())[:300]}\n      {told[:300]}")


@contextlib.contextmanager
def opened(path):
    """A new database for a file of the corpus, removed after it."""
    if ARGS.database == "memory":
        with thalweg.connect(":memory:") as database:
            yield database
        return
    folder = pathlib.Path(ARGS.database) / re.sub(r"\W", "_", str(path))
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with thalweg.connect(folder, durability="memory") as database:
            yield database
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_file(path):
    count, labels = Count(), {}
    count.files = 1
    name = path.relative_to(ARGS.folder)
    with opened(name) as database:
        for record in records(path, ARGS.engine):
            run_record(database, record, f"{name}:{record.line}", labels, count)
    return "/".join(name.parts[:-1][:2]) or name.stem, count


def report(counts):
    print("| folder | files | statements right | different | refused | indexes | queries right | different | refused |")
    print("| --- |" + " ---: |" * 8)
    for folder, count in sorted(counts.items()):
        cells = [count.files]
        for kind, outcomes in (("statement", "right different refused index"), ("query", "right different refused")):
            cells += [count.outcomes[kind, outcome] for outcome in outcomes.split()]
        print(f"| {folder} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    whole = Count()
    for count in counts.values():
        whole.join(count)
    for (outcome, kind), (number, examples) in sorted(whole.kinds.items(), key=lambda item: -item[1].count):
        print(f"\n{outcome}, {number:,} times: {kind}")
        for example in examples:
            print(f"    {example}")
    print("\n| statements | number | mean ms | longest ms | where |")
    print("| --- | ---: | ---: | ---: | --- |")
    for kind, (number, total, longest, place) in sorted(whole.times.items(), key=lambda item: -item[1][1]):
        print(f"| {kind} | {number:,} | {total / number * 1e3:.2f} | {longest * 1e3:.1f} | {place} |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="the folder test of the corpus")
    parser.add_argument(
        "--files", nargs="+", default=["*"], metavar="PATTERN", help="files by their paths below FOLDER; * takes / too"
    )
    parser.add_argument("--engine", default="thalweg", help="the name that onlyif and skipif are compared with")
    parser.add_argument(
        "--database", default="memory", metavar="DIR|memory", help="where databases are made, and removed"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many files run at once")
    parser.add_argument("--examples", type=int, default=3, help="how many examples of each kind of difference")
    parser.add_argument("--seconds", type=float, default=60, help="for how long a statement may run")
    return parser.parse_args()


def main():
    files = sorted(ARGS.folder.rglob("*.test"))
    names = [str(path.relative_to(ARGS.folder)) for path in files]
    files = [path for path, name in zip(files, names) if any(fnmatch.fnmatch(name, one) for one in ARGS.files)]
    if not files:
        sys.exit(f"no files in {ARGS.folder}")
    counts = collections.defaultdict(Count)
    # Each file has a process of its own, which gives its memory back.
    with multiprocessing.get_context("fork").Pool(ARGS.jobs, maxtasksperchild=1) as pool:
        try:
            for folder, count in pool.imap_unordered(run_file, files):
                counts[folder].join(count)
                print(f"{folder}: {counts[folder].files} files", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("stopped: the files before count", file=sys.stderr)
    report(counts)


ARGS = arguments()
if __name__ == "__main__":
    main()
