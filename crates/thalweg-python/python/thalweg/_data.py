"""Frames and columns on their way in, as pyarrow tables.

What pyarrow cannot read is a SchemaError that names the column.
"""

import dataclasses
import datetime
import decimal
import re
import reprlib
from collections.abc import Mapping

import numpy
import pyarrow

from thalweg._thalweg import SchemaError, _type_words

# Units of datetime64 that Arrow has, those that become whole seconds, and those too fine to be stored.
_ARROW_UNITS = {"s", "ms", "us", "ns"}
_FINER_UNITS = {"ps", "fs", "as"}


# Kinds of values that pyarrow may find in one column. It takes some others together as well, and stores other values for them: the
# day of a time that follows dates, 0001-01-01 for NaT, 1 for True. The first that fits counts.
_FAMILIES = (
    ("booleans", (bool, numpy.bool_)),
    ("times of NumPy", (numpy.datetime64,)),
    ("lengths of NumPy", (numpy.timedelta64,)),
    ("numbers", (int, float, decimal.Decimal, numpy.integer, numpy.floating)),
    ("dates and times", (datetime.date,)),
    ("lengths of time", (datetime.timedelta,)),
    ("times of the day", (datetime.time,)),
    ("texts", (str,)),
    ("binary values", (bytes, bytearray, memoryview)),
)

_NO_COMPLEX = "complex numbers cannot be stored: give their real and imaginary parts as two columns"

# Rows that come one by one are put together to batches of so many.
_GATHERED_ROWS = 65_536


def is_pandas(data):
    """Whether it is a pandas.DataFrame, without importing pandas."""
    return type(data).__name__ == "DataFrame" and type(data).__module__.split(".")[0] == "pandas"


def is_times(index):
    """Whether the index of a frame holds times."""
    return index.nlevels == 1 and getattr(index.dtype, "kind", "") == "M"


def from_pandas(frame, names, time):
    """A DataFrame without its index, except levels that are named like a column of the table, or have any name where there is none.

    An index of times without a name is the time column, if the frame has no other.
    """
    wanted = {name.lower() for name in names}
    columns = {str(column).lower() for column in frame.columns}
    levels = [
        level
        for level in frame.index.names
        if isinstance(level, str) and (not names or level.lower() in wanted) and level.lower() not in columns
    ]
    if levels:
        frame = frame.reset_index(level=levels)
    elif time is not None and time.lower() not in columns and is_times(frame.index):
        name = frame.index.name
        if name is not None:
            raise SchemaError(f'the time column "{time}" is missing; if it is the index {name!r}: df.rename_axis("{time}")')
        frame = frame.rename_axis(time).reset_index()
    frame = _with_starts_of_periods(frame)
    for name, dtype in zip(frame.columns, frame.dtypes):
        if getattr(dtype, "kind", "") == "c":
            raise SchemaError(f'column "{name}": {_NO_COMPLEX}')
    try:
        # No rows: the names as pyarrow has them, and an error if two are the same.
        names = pyarrow.Table.from_pandas(frame.iloc[:0], preserve_index=False).column_names
        is_plain = [dtype != object for dtype in frame.dtypes]
        plain = iter(pyarrow.Table.from_pandas(frame.loc[:, is_plain], preserve_index=False).columns)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the DataFrame cannot be read: {_text(error)}") from None
    arrays = []
    for place, name in enumerate(names):
        try:
            arrays.append(next(plain) if is_plain[place] else _from_objects(frame.iloc[:, place]))
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(f'the DataFrame cannot be read: column "{name}": {_text(error)}') from None
    return pyarrow.Table.from_arrays(arrays, names=names)


def _is_of_periods(dtype):
    return type(dtype).__name__ == "PeriodDtype"


def _with_starts_of_periods(frame):
    """The frame with the times that its periods begin at, which pyarrow would turn into plain numbers."""
    places = [place for place, dtype in enumerate(frame.dtypes) if _is_of_periods(dtype)]
    if places:
        frame = frame.copy(deep=False)
        for place in places:
            frame.isetitem(place, frame.iloc[:, place].dt.to_timestamp())
    return frame


def collected(frame):
    """A lazy frame of polars as a table."""
    return frame.collect().to_arrow()


def from_polars(frame):
    """A frame of polars as something that exports Arrow as others read it: not columns without any value, nor objects as addresses."""
    kinds = [str(kind) for kind in frame.dtypes]
    if "Object" in kinds:
        name = frame.columns[kinds.index("Object")]
        raise SchemaError(f'column "{name}" is of Python objects, which cannot be stored: cast it to a type of polars')
    wide = next((place for place, kind in enumerate(kinds) if kind in ("Int128", "UInt128")), None)
    if wide is not None:
        raise SchemaError(f'column "{frame.columns[wide]}" is of {kinds[wide]}, which cannot be stored: cast it to Int64 or Decimal')
    return frame.to_arrow() if "Null" in kinds else frame


def row_of(series):
    """A row of a DataFrame, as `df.iloc[0]`, as a dict; None for a Series that is a column."""
    return _named(series)


def from_dict(data):
    """A table of a dict of columns, or of one row."""
    return from_rows([data]) if _is_row(data) else from_columns(data)


def from_columns(columns):
    """A table of a dict of columns: numpy arrays, lists, Series, Arrow arrays."""
    names, arrays = [], []
    single = next((name for name, values in columns.items() if not is_column(values)), None)
    if single is None:
        several = None
    else:
        several = next((name for name, values in columns.items() if is_column(values)), None)
    if several is not None:
        given, other = type(columns[several]).__name__, type(columns[single]).__name__
        raise SchemaError(
            f'column "{several}" is a {given} and "{single}" a {other}: the columns of a dict are all lists, '
            "or all single values of one row, in which no list can be stored"
        )
    for name, values in columns.items():
        if not isinstance(name, str):
            raise SchemaError(f"{name!r} is no name of a column: names are texts")
        names.append(name)
        arrays.append(_column(name, values))
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        given = ", ".join(f"{name}: {len(array)}" for name, array in zip(names, arrays))
        raise SchemaError(f"the columns have different numbers of rows ({given})")
    return pyarrow.Table.from_arrays(arrays, names=names)


def to_arrow(data):
    """Any form of rows as one object that exports Arrow; None if it is none."""
    if hasattr(data, "__arrow_c_stream__"):
        return data
    if hasattr(data, "__arrow_c_array__"):
        return pyarrow.record_batch(data)
    if isinstance(data, dict):
        return from_dict(data)
    chunks = Chunks.of(data, (), None)
    if chunks is None:
        return None
    parts = [(part, table) for part, table in chunks.tables if table.num_rows]
    if not parts:
        raise SchemaError("there are no rows, so there are no columns either: give the columns as a dict of names and types")
    try:
        return pyarrow.concat_tables([table for _, table in parts], promote_options="permissive")
    except (pyarrow.ArrowException, TypeError) as error:
        raise SchemaError(_of_two_types(parts) or f"the rows do not have the same columns: {_text(error)}") from None


def _of_two_types(parts):
    """The error message for a column that has types without a common one in two of the tables; None if there is no such column."""
    known = {}
    for part, table in parts:
        for field in table.schema:
            first_part, first = known.setdefault(field.name, (part, field))
            if pyarrow.types.is_null(first.type):
                known[field.name] = part, field
                continue
            try:
                pyarrow.unify_schemas([pyarrow.schema([first]), pyarrow.schema([field])], promote_options="permissive")
            except (pyarrow.ArrowException, TypeError):
                is_type, was_type = _type_words(field.type), _type_words(first.type)
                return (
                    f'column "{field.name}" is {was_type} in {first_part} and {is_type} in {part}: give it one type in all of them, as by '
                    "dtype= of read_csv, or create the table with names and types first, then append"
                )
    return None


class Chunks:
    """Rows and tables one after the other, read like a pyarrow.RecordBatchReader; each batch has its own columns."""

    schema = pyarrow.schema([])

    @classmethod
    def of(cls, data, names, time):
        """None for what is no sequence of rows or tables."""
        named = _named(data)
        if named is not None:
            data = [named]
        elif _is_lazy(data):
            data = [data]
        if isinstance(data, numpy.ndarray) and data.dtype.names:
            data = [{name: data[name] for name in data.dtype.names}]
        elif isinstance(data, (str, bytes, bytearray, numpy.ndarray)) or not hasattr(data, "__iter__"):
            return None
        if isinstance(data, (list, tuple)) and data and not (_is_item(data[0]) or names and isinstance(data[0], (list, tuple))):
            one_row = "; append([row]) and put(*row) take one row" if names and isinstance(data, tuple) else ""
            raise SchemaError(f"a {type(data).__name__} of {_no_item(data[0], names)}{one_row}")
        return cls(data, names, time)

    def __init__(self, data, names, time):
        # Each with a word on what it is. They are read once: as tables or as their batches.
        self.tables = self._read(iter(data), names, time)
        self.batches = (batch for _, table in self.tables for batch in table.to_batches())

    def __iter__(self):
        return self.batches

    def read_next_batch(self):
        return next(self.batches)

    def _read(self, items, names, time):
        rows = []
        for number, item in enumerate(items):
            named = None if isinstance(item, dict) else _named(item)
            if named is not None:
                item = named
            elif names and isinstance(item, (list, tuple)):
                item = _in_order(item, names)
            is_row = _is_row(item)
            if rows and (not is_row or len(rows) == _GATHERED_ROWS):
                yield f"the rows from {number - len(rows)} on", from_rows(rows)
                rows = []
            if is_row:
                rows.append(item)
            elif _is_item(item):
                yield f"frame {number + 1}" if number else "the first frame", _table(item, names, time)
            else:
                raise SchemaError(f"the rows came with {_no_item(item, names)}")
        if rows:
            yield f"the rows from {number + 1 - len(rows)} on", from_rows(rows)


def from_rows(rows):
    """A table of dicts of single values; what a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return from_columns({name: [row.get(name) for row in rows] for name in names})


def _is_row(data):
    return isinstance(data, dict) and bool(data) and not any(is_column(value) for value in data.values())


def is_column(value):
    """Whether it is a column of values, not a single one."""
    if isinstance(value, (list, tuple, range)) or hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__"):
        return True
    return not isinstance(value, (str, bytes, dict)) and hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0


def _is_lazy(data):
    return type(data).__name__ == "LazyFrame" and type(data).__module__.split(".")[0] == "polars"


def _named(item):
    """A row that is an object with names, as a dict: named tuples, dataclasses, mappings, rows of databases, one of a DataFrame."""
    if isinstance(item, tuple):
        names = getattr(item, "_fields", None)
        return None if names is None else dict(zip(names, item))
    kind = type(item)
    if kind.__name__ == "Series" and kind.__module__.split(".")[0] == "pandas":
        # A column of a table has no names but numbers.
        if not all(isinstance(name, str) for name in item.index):
            return None
        # NaN is a missing value of pandas, as in frames.
        return item.astype(object).where(item.notna(), None).to_dict()
    if isinstance(item, numpy.void) and item.dtype.names:
        return {name: item[name] for name in item.dtype.names}
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(kind)}
    is_mapping = isinstance(item, Mapping) or (kind.__module__, kind.__name__) == ("sqlite3", "Row")
    return {name: item[name] for name in item.keys()} if is_mapping and not isinstance(item, dict) else None


def _is_item(item):
    if isinstance(item, dict) or is_pandas(item) or _is_lazy(item) or _named(item) is not None:
        return True
    return hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__")


def _in_order(row, names):
    """The row of values in the order of the columns as a dict."""
    if len(row) != len(names):
        raise SchemaError(f"a row has {len(row)} values, the table has {len(names)} columns ({', '.join(names)})")
    return dict(zip(names, row))


def _no_item(item, names):
    kind = type(item).__name__
    if isinstance(item, (list, tuple)):
        return f"{kind}, whose values have no names: give rows as dicts, or the columns as a dict"
    if names:
        return f"{kind}, which is neither a row, as a dict or a tuple, nor a table"
    return f"{kind}, which is neither a row, as a dict, nor a table"


def _table(item, names, time):
    if isinstance(item, dict):
        return from_columns(item)
    if is_pandas(item):
        return from_pandas(item, names, time)
    if _is_lazy(item):
        return collected(item)
    if hasattr(item, "__arrow_c_array__"):
        return pyarrow.Table.from_batches([pyarrow.record_batch(item)])
    return pyarrow.table(item)


def _column(name, values):
    if isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
        return values
    if _is_of_periods(getattr(values, "dtype", None)):
        # A Series has it under `dt`, an index and an array themselves.
        values = getattr(values, "dt", values).to_timestamp()
    try:
        if isinstance(values, numpy.ndarray):
            return _from_numpy(values)
        shape = getattr(values, "shape", None)
        if isinstance(shape, tuple) and len(shape) > 1:
            # A frame of pandas or polars: iterated, it would give the names of its columns.
            raise TypeError(f"a {type(values).__name__} has columns of its own; take one of them, as in frame['v']")
        if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "to_numpy"):
            return pyarrow.chunked_array(values)
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__"):
            raise TypeError(f"a {type(values).__name__} is no column of values")
        if type(values).__module__.startswith("polars"):
            return values.to_arrow()
        return _from_objects(values)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f'column "{name}": {_text(error)}') from None


def _from_numpy(values):
    if values.ndim != 1:
        raise ValueError(f"the array has {values.ndim} dimensions; a column has one")
    mask = None
    if isinstance(values, numpy.ma.MaskedArray):
        mask, values = numpy.ma.getmaskarray(values), values.data
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind in "mM":
        values = _in_arrow_unit(values)
    if values.dtype.kind == "O" and mask is None:
        return _from_objects(values)
    if values.dtype.kind == "c":
        raise ValueError(_NO_COMPLEX)
    if values.dtype.kind == "V" or values.dtype.kind == "f" and values.dtype.itemsize > 8:
        raise ValueError(f"values of type {values.dtype} cannot be stored")
    return pyarrow.array(values, mask=mask, from_pandas=False)


def _in_arrow_unit(times):
    """The same datetime64 or timedelta64 values in a unit that Arrow has."""
    unit, count = numpy.datetime_data(times.dtype)
    if count == 1 and unit in _ARROW_UNITS:
        return times
    if unit in _FINER_UNITS:
        raise ValueError(f"times of type {times.dtype} cannot be stored; use s, ms, us or ns")
    is_time = ~numpy.isnat(times)
    if count == 1 and unit == "D" and times.dtype.kind == "M":
        days = times.astype("int64")[is_time]
        if (days == days.astype("int32")).all():
            return times
    unit = unit if unit in _ARROW_UNITS else "s"
    converted = times.astype(f"{times.dtype.kind}8[{unit}]")
    # numpy lets what is out of range wrap round.
    if not (converted.astype(times.dtype) == times)[is_time].all():
        raise ValueError(f"a time of type {times.dtype} is beyond 64 bits of {unit}")
    return converted


def _from_objects(values):
    if getattr(values, "dtype", object) == object and not isinstance(values, range):
        values = _of_one_family(values)
        if isinstance(values, numpy.ndarray) and values.dtype != object:
            return _from_numpy(values)
    try:
        array = pyarrow.array(values)
    except OverflowError:
        # Integers beyond int64, which pyarrow guesses.
        return pyarrow.array(values, type=pyarrow.uint64())
    return _with_nanoseconds(values, array)


def _of_one_family(values):
    """The values with None for missing ones, times of NumPy as an array, dates among times as midnights, and numbers as Python's own."""
    if hasattr(values, "isna"):
        # Of a pandas Series NaN is a missing value too.
        values = [None if is_missing else value for value, is_missing in zip(values, values.isna())]
    kinds = set(map(type, values))
    # NaT of NumPy is of the type of its times: alone it has a unit, beside other values it is missing as that of pandas is.
    if any(_is_missing_kind(kind) for kind in kinds) or len(kinds) > 1 and kinds & {numpy.datetime64, numpy.timedelta64}:
        values = [None if _is_missing(value) else value for value in values]
        kinds = set(map(type, values))
    kinds.discard(type(None))
    families = set(map(_family, kinds))
    if len(families) == 2 and "numbers" in families:
        # pandas writes NaN for a missing value of any kind; no text, time or bool is NaN.
        others = [None if isinstance(value, float) and value != value else value for value in values]
        if "numbers" not in map(_family, map(type, others)):
            return _of_one_family(others)
    if len(families) > 1:
        first = next(value for value in values if value is not None)
        other = next(value for value in values if value is not None and _family(type(value)) != _family(type(first)))
        shown, kind, first = reprlib.repr(other), type(other).__name__, type(first).__name__
        raise TypeError(f"{shown} is of type {kind} among values of type {first}: give all rows values of one type")
    if kinds & {numpy.datetime64, numpy.timedelta64}:
        return _of_numpy_times(values, *kinds)
    if len(kinds) > 1 and families & {"numbers", "booleans"}:
        return [value.item() if isinstance(value, numpy.generic) else value for value in values]
    if len(kinds) > 1 and datetime.date in kinds:
        return [_midnight(value) if type(value) is datetime.date else value for value in values]
    return values


def _is_missing_kind(kind):
    return kind.__name__ in ("NAType", "NaTType")


def _is_missing(value):
    if isinstance(value, (numpy.datetime64, numpy.timedelta64)):
        return bool(numpy.isnat(value))
    return _is_missing_kind(type(value))


def _family(kind):
    return next((name for name, kinds in _FAMILIES if issubclass(kind, kinds)), kind)


def _midnight(date):
    return datetime.datetime(date.year, date.month, date.day)


def _of_numpy_times(values, kind):
    """An array of times of NumPy, which may have different units."""
    missing = kind("NaT")
    times = [missing if value is None else value for value in values]
    units = {value.dtype for value in times if not numpy.isnat(value)}
    if not units:
        return [None] * len(times)
    together = numpy.array(times, dtype=numpy.result_type(*units))
    # numpy lets what is out of range wrap round.
    if len(units) > 1 and any(value != again.astype(value.dtype) for value, again in zip(times, together) if not numpy.isnat(value)):
        raise ValueError(f"times of different units do not fit 64 bits of {numpy.datetime_data(together.dtype)[0]}: give all of them in one")
    return together


def _with_nanoseconds(values, array):
    """`array`, made of these objects, with the nanoseconds of pandas times: pyarrow guesses microseconds."""
    made = array.type
    if pyarrow.types.is_timestamp(made) and made.unit == "us":
        part, exact = "nanosecond", pyarrow.timestamp("ns", made.tz)
    elif pyarrow.types.is_duration(made) and made.unit == "us":
        part, exact = "nanoseconds", pyarrow.duration("ns")
    else:
        return array
    if any(getattr(value, part, 0) for value in values):
        return pyarrow.array(values, type=exact)
    return array


# Messages of pyarrow, as patterns, and the words that replace them.
_REWORDED = [
    (r"Could not convert (.*) with type (.*): tried to convert to (\w+)", r"\1 is of type \2 among values of type \3"),
    (r"object of type <class '(.*)'> cannot be converted to int", r"a value of type \1 stands among times or numbers: give all rows values of one type"),
    (r"Could not convert .* with type (.*): did not recognize .*", r"a value of type \1 cannot be stored"),
    (r"Expected dict key of type str or bytes, got .*", "a dict without names stands for a value; of a DataFrame to_dict('list') makes columns, to_dict('records') rows"),
    (r"Expected bytes, got a '(.*)' object", r"a value of type \1 stands among texts: give all rows values of one type"),
    (r"PyLong is too large to fit int64|can't convert negative value to unsigned int|Python int too large to convert to C .*|Value .* too large to fit in C integer type", "an integer is beyond 64 bits"),
    (r"(.*) Conversion failed for column (.*) with type .*", r'column "\2": \1'),
    (r"Could not convert .* with type \S*complex\d*: .*|Unsupported numpy type \d+", _NO_COMPLEX),
    (r"Duplicate column names found: (.*)", r"two columns have the same name among \1"),
]


def _text(error):
    # Some messages quote text that is no Unicode: nobody could print them.
    text = " ".join(str(argument) for argument in error.args) or type(error).__name__
    text = text.encode("utf-8", "backslashreplace").decode()
    for pattern, words in reversed(_REWORDED):
        text = re.sub(pattern, words, text, flags=re.DOTALL)
    return text
