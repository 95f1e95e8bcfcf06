"""Tables on their way out, as numpy arrays."""

import numpy
import pyarrow
import pyarrow.compute

# What lies under the mask of a null, by the kind of the array.
_HIDDEN = {"b": False, "i": 0, "u": 0, "f": numpy.nan}


def to_numpy(table):
    """A dict of arrays by column, masked arrays where there are nulls."""
    return {name: _array(column) for name, column in zip(table.column_names, table.columns)}


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
