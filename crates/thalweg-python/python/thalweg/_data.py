"""Frames and columns on their way in, as pyarrow tables.

What pyarrow cannot read is a SchemaError that names the column.
"""

import numpy
import pyarrow

from thalweg._thalweg import SchemaError

# Units of datetime64 that Arrow has, those that become whole seconds, and those too fine to be stored.
_ARROW_UNITS = {"s", "ms", "us", "ns"}
_FINER_UNITS = {"ps", "fs", "as"}


def from_pandas(frame, names):
    """A DataFrame without its index, except levels that are named like a column of the table."""
    wanted = {name.lower() for name in names}
    columns = {str(column).lower() for column in frame.columns}
    levels = [
        level
        for level in frame.index.names
        if isinstance(level, str) and level.lower() in wanted and level.lower() not in columns
    ]
    if levels:
        frame = frame.reset_index(level=levels)
    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        for place, dtype in enumerate(frame.dtypes):
            if dtype == object:
                exact = _with_nanoseconds(frame.iloc[:, place], table.column(place))
                table = table.set_column(place, table.field(place).name, exact)
        return table
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the DataFrame cannot be read: {_text(error)}") from None


def from_columns(columns):
    """A table of a dict of columns: numpy arrays, lists, Series, Arrow arrays."""
    names, arrays = [], []
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


def _column(name, values):
    if isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
        return values
    try:
        if isinstance(values, numpy.ndarray):
            return _from_numpy(values)
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
    try:
        array = pyarrow.array(values)
    except OverflowError:
        # Integers beyond int64, which pyarrow guesses.
        return pyarrow.array(values, type=pyarrow.uint64())
    return _with_nanoseconds(values, array)


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


def _text(error):
    # Some messages quote text that is no Unicode: nobody could print them.
    text = " ".join(str(argument) for argument in error.args) or type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()
