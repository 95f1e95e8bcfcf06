"""Programs that run in an interpreter of their own, because they fork, are killed, or end in the middle of something."""

import os
import pathlib
import subprocess
import sys

import thalweg

COMMON = """
import atexit, gc, hashlib, multiprocessing, os, pathlib, signal, sys, threading, time, traceback
import numpy, pandas, polars, pyarrow, thalweg

# A shell has its background jobs ignore it, and what these start.
signal.signal(signal.SIGINT, signal.default_int_handler)

path = sys.argv[1]
COLUMNS = {"ts": "int64", "v": "double"}


def create(db, name="t"):
    return db.create_table(name, COLUMNS, time="ts")


def batch(first, rows):
    return {"ts": numpy.arange(first, first + rows), "v": numpy.random.default_rng(first).random(rows)}


def in_child(function):
    '''Runs it in a child of a fork, which must end well and soon.'''
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends whatever hangs, by default without asking the interpreter
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"a child ended with {status}"


def refused(function):
    '''The message of a Thalweg error.'''
    try:
        function()
    except thalweg.Error as error:
        return str(error)
    return "not refused"
"""


def run(source, path, *arguments, before="", status=0, says="", timeout=120):
    """Runs a program, which must end with that status and say that on the way, and returns what it printed.

    before: what it runs before it imports Thalweg.
    """
    # A file, not -c: multiprocessing imports it again.
    file = pathlib.Path(path).parent / "program.py"
    file.write_text(before + COMMON + source)
    command = [sys.executable, "-X", "faulthandler", str(file), str(path), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == status, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    assert says in ended.stderr, ended.stderr
    assert "Fatal" not in ended.stderr and "panicked" not in ended.stderr, ended.stderr
    return ended.stdout


def start(source, path, *arguments):
    """Starts a program and waits until it has printed a line."""
    file = pathlib.Path(path).parent / "program.py"
    file.write_text(COMMON + source)
    command = [sys.executable, "-X", "faulthandler", str(file), str(path), *map(str, arguments)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return program, program.stdout.readline().strip()


def check(path, name="t"):
    """The rows of a table in a database that is whole and that nobody has locked."""
    with thalweg.connect(path) as db:
        rows = len(db.table(name))
        assert db.sql(f"SELECT count(*), count(v) FROM {name}").fetchone() == (rows, rows)
    default = pathlib.Path(__file__).parents[3] / "bin" / "thalweg"
    command = [os.environ.get("THALWEG_BIN", default), "verify", path]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return rows
