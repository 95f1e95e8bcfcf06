"""The arguments of `create_table`: the columns of a table, or rows that have them."""

import datetime
import decimal

import numpy
import pyarrow

from thalweg import _data
from thalweg._thalweg import SchemaError

_PYTHON_TYPES = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "varchar",
    bytes: "binary",
    datetime.datetime: "timestamp",
    datetime.date: "date",
    datetime.timedelta: "duration(us)",
}
# Name of the time column of a frame whose index has none.
_TIME = "ts"


def read(given, time):
    """Columns as a pyarrow.Schema or a dict of names and types, rows as something that exports Arrow, and the time column.

    One of the first two is None; both are if it is neither.
    """
    if isinstance(given, pyarrow.Schema):
        return given, None, time
    if _is_dtypes(given):
        given = dict(given)
    if isinstance(given, dict) and not (given and all(map(_is_values, given.values()))):
        return {name: _type(name, value) for name, value in given.items()}, None, time
    if _data.is_pandas(given):
        frame, time = _with_index(given, time)
        return None, _data.from_pandas(frame, (), None), time
    if hasattr(given, "__arrow_c_schema__") and not _is_data(given):
        return pyarrow.schema(given), None, time
    if _is_dataset(given):
        return None, given, time
    return None, _data.to_arrow(given), time


def _is_dataset(given):
    """Whether it is a dataset of pyarrow, or a scanner of one, which are read batch by batch."""
    return type(given).__module__ == "pyarrow._dataset"


def _is_dtypes(given):
    """Whether it is what a DataFrame of pandas has as its dtypes."""
    if type(given).__name__ != "Series" or type(given).__module__.split(".")[0] != "pandas":
        return False
    return given.dtype == object and len(given) > 0 and all(hasattr(value, "itemsize") or hasattr(value, "na_value") for value in given)


def _is_data(given):
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


def _is_values(value):
    """Whether it is a column of values, not the type of one."""
    return not isinstance(value, (type, pyarrow.DataType, pyarrow.Field, numpy.dtype)) and _data.is_column(value)


def _type(name, value):
    """The type as its name or as one of pyarrow's; what it is not is left to the caller to refuse."""
    if isinstance(value, pyarrow.Field):
        return value.type
    if isinstance(value, (str, pyarrow.DataType)):
        return value
    if value is decimal.Decimal:
        raise SchemaError(f'column "{name}": a Decimal needs its digits, as "decimal(18, 3)"')
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    owner = value if isinstance(value, type) else type(value)
    if owner.__module__.startswith("polars"):
        return _from_polars(name, value)
    if isinstance(value, type) and issubclass(value, numpy.generic):
        value = numpy.dtype(value)
    if isinstance(value, numpy.dtype):
        # Objects of pandas and texts of any length.
        return {"O": "varchar", "U": "varchar", "S": "binary", "V": value}.get(value.kind, value.name)
    if owner.__module__.startswith("pandas"):
        return _from_pandas(value)
    return value


def _from_polars(name, value):
    import polars

    try:
        return polars.DataFrame(schema={name: value}).to_arrow().schema.field(0).type
    except Exception as error:
        raise SchemaError(f'column "{name}": {value!r} is no type: {error}') from None


def _from_pandas(dtype):
    if type(dtype).__name__ == "PeriodDtype":
        return "timestamp"
    if hasattr(dtype, "pyarrow_dtype"):
        return dtype.pyarrow_dtype
    if hasattr(dtype, "tz") and hasattr(dtype, "unit"):
        return pyarrow.timestamp(dtype.unit, str(dtype.tz))
    if hasattr(dtype, "categories"):
        return "varchar" if dtype.categories is None else _type("", dtype.categories.dtype)
    name = dtype.name.lower()
    return {"string": "varchar", "str": "varchar", "boolean": "bool"}.get(name, name)


def _with_index(frame, time):
    """The frame with the levels of its index that mean something as columns, and the time column."""
    names = [name for name in frame.index.names if name is not None]
    if names:
        return frame.reset_index(level=names), time
    if not _data.is_times(frame.index):
        return frame, time
    name = time or _TIME
    if name in frame.columns:
        return frame, time
    return frame.rename_axis(name).reset_index(), name
