"""Tables on their way out, as numpy arrays and as files."""

import contextlib
import errno
import functools
import os

import numpy
import pyarrow
import pyarrow.compute

from thalweg._thalweg import Error, UnsupportedError, _csv_header, _csv_rows

# The compression of files by the ends of their names, which `thalweg import` reads.
_CODECS = {".gz": "gzip", ".zst": "zstd"}

# The values under the mask of a null, by the kind of the array.
_HIDDEN = {"b": False, "i": 0, "u": 0, "f": numpy.nan}


def with_own_names(table):
    """The table with a number after names that were there before: v, v_1, v_2."""
    names = table.column_names
    if len(set(names)) == len(names):
        return table
    known, given = set(names), {}
    for place, name in enumerate(names):
        number = given.get(name, -1) + 1
        given[name] = number
        while number > 0 and f"{name}_{number}" in known:
            number += 1
        if number > 0:
            names[place] = f"{name}_{number}"
            known.add(names[place])
    return table.rename_columns(names)


def to_numpy(table):
    """A dict of arrays by column, masked arrays where there are nulls."""
    table = with_own_names(table)
    return {name: _array(column) for name, column in zip(table.column_names, table.columns)}


def write_parquet(reader, path):
    """Writes the rows of a reader to a Parquet file."""
    import pyarrow.parquet

    for field in reader.schema:
        if _is_interval(field.type):
            raise UnsupportedError(
                f'Parquet cannot hold the column "{field.name}", which has intervals: epoch(x) makes seconds of them, CAST(x AS VARCHAR) text'
            )
    _write(reader, path, pyarrow.parquet.ParquetWriter)


def write_csv(reader, path):
    """Writes the rows of a reader to a CSV file, as the command line prints them; compressed if its name ends with .gz or .zst."""
    suffix = os.path.splitext(path)[1] if isinstance(path, (str, bytes, os.PathLike)) else ""
    codec = _CODECS.get(os.fsdecode(suffix).lower())
    _write(reader, path, functools.partial(_CsvWriter, codec=codec))


class _CsvWriter:
    def __init__(self, path, schema, codec):
        header = _csv_header(schema)
        with contextlib.ExitStack() as opened:
            self._file = opened.enter_context(open(path, "wb"))
            if codec is not None:
                self._file = opened.enter_context(pyarrow.CompressedOutputStream(self._file, codec))
            self._file.write(header)
            self._opened = opened.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._opened.close()

    def write_batch(self, batch):
        self._file.write(_csv_rows(batch))


def _is_interval(kind):
    return kind == pyarrow.month_day_nano_interval()


def _write(reader, path, writer):
    """Writes beside the file and renames in the end: a query that fails leaves what was there."""
    try:
        path = os.path.realpath(os.path.expanduser(os.fsdecode(os.fsencode(path))))
    except (TypeError, ValueError) as error:
        raise Error(f"{path!r} is no path of a file: {error}") from None
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    if os.path.exists(path) and not os.path.isfile(path):
        # A pipe or a device cannot be replaced.
        _write_all(reader, path, writer)
        return
    partial = f"{path}.{os.getpid()}.partial"
    try:
        _write_all(reader, partial, writer)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def _write_all(reader, path, writer):
    with writer(path, reader.schema) as out:
        for batch in reader:
            out.write_batch(batch)


def _array(column):
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count == 0:
        return column.to_numpy()
    mask = column.is_null().to_numpy()
    hidden = _HIDDEN.get(_kind(column.type))
    if hidden is not None:
        column = column.fill_null(hidden)
    return numpy.ma.MaskedArray(column.to_numpy(), mask=mask)


def _kind(arrow_type):
    try:
        return numpy.dtype(arrow_type.to_pandas_dtype()).kind
    except (NotImplementedError, TypeError):
        return "O"
