"""Frames and columns on their way in, as pyarrow tables.

What pyarrow cannot read is a SchemaError that names the column.
"""

import numpy
import pyarrow

from thalweg._thalweg import SchemaError

# Units of datetime64 that Arrow has; coarser ones are whole seconds.
_ARROW_UNITS = {"s", "ms", "us", "ns"}


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
        return pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
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
        return pyarrow.array(values)
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
        unit, count = numpy.datetime_data(values.dtype)
        days = values.dtype.kind == "M" and unit == "D"
        if count != 1 or (unit not in _ARROW_UNITS and not days):
            values = values.astype(f"{values.dtype.kind}8[s]")
    return pyarrow.array(values, mask=mask, from_pandas=False)


def _text(error):
    return " ".join(str(argument) for argument in error.args) or type(error).__name__
