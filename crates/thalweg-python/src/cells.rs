//! Values on their way out, as Python objects.
//!
//! Invariants: times are cut to microseconds, which is what Python's can hold, and have a zone exactly if the column has
//! one; what no datetime can hold is an error that names it, never a wrong one; types without a Python counterpart
//! here are left to pyarrow, a batch at a time.

use crate::error::raise;
use crate::finalize::{Callback, import};
use crate::once::{name, once};
use crate::value::{decimal_type, epoch};
use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DecimalType, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, FieldRef, IntervalUnit, Schema, TimeUnit};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyList, PyString, PyTuple, PyType, PyTzInfo};
use pyo3_arrow::PyArray;
use std::sync::{Arc, OnceLock};
use thalweg::ErrorKind;
use thalweg::time_units::is_utc;

/// `datetime.date.toordinal` of 1970-01-01.
const EPOCH_ORDINAL: i64 = 719_163;
const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// Turns the rows of batches of one schema into tuples.
pub(crate) struct Converter {
    columns: Vec<Column>,
}

/// How the values of a column are converted.
enum Column {
    /// Its type is enough.
    Plain,
    /// Times in this zone.
    Zoned(Py<PyAny>),
    /// Left to pyarrow.
    Foreign(FieldRef),
}

/// A batch with the values that pyarrow converted.
pub(crate) struct Page {
    batch: RecordBatch,
    foreign: Vec<Option<Py<PyList>>>,
    next: usize,
}

impl Page {
    /// The rows that were not read yet.
    pub(crate) fn rest(&self) -> RecordBatch {
        self.batch.slice(self.next, self.rows_left())
    }

    pub(crate) fn rows_left(&self) -> usize {
        self.batch.num_rows() - self.next
    }
}

impl Converter {
    pub(crate) fn new(py: Python<'_>, schema: &Schema) -> PyResult<Self> {
        let column = |field: &FieldRef| {
            Ok(match field.data_type() {
                DataType::Timestamp(_, Some(zone)) => Column::Zoned(zone_named(py, zone)?),
                other if is_plain(other) => Column::Plain,
                _ => Column::Foreign(FieldRef::clone(field)),
            })
        };
        Ok(Self {
            columns: schema
                .fields()
                .iter()
                .map(column)
                .collect::<PyResult<_>>()?,
        })
    }

    pub(crate) fn page(&self, py: Python<'_>, batch: RecordBatch) -> PyResult<Page> {
        let foreign = |(column, array): (&Column, &ArrayRef)| match column {
            Column::Foreign(field) => through_pyarrow(py, field, array).map(Some),
            _ => Ok(None),
        };
        let foreign = self
            .columns
            .iter()
            .zip(batch.columns())
            .map(foreign)
            .collect::<PyResult<_>>()?;
        Ok(Page {
            batch,
            foreign,
            next: 0,
        })
    }

    /// The next row of a page; `None` at its end.
    pub(crate) fn next_row<'py>(
        &self,
        py: Python<'py>,
        page: &mut Page,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if page.rows_left() == 0 {
            return Ok(None);
        }
        let row = page.next;
        let mut cells = Vec::with_capacity(self.columns.len());
        for (place, column) in self.columns.iter().enumerate() {
            let array = page.batch.column(place);
            cells.push(match (column, &page.foreign[place]) {
                _ if array.is_null(row) => py.None().into_bound(py),
                (_, Some(values)) => values.bind(py).get_item(row)?,
                (Column::Zoned(zone), _) => datetime(py, array, row, Some(zone.bind(py)))?,
                _ => plain(py, array, row)?,
            });
        }
        page.next += 1;
        PyTuple::new(py, cells).map(Some)
    }
}

/// A single value of a column.
pub(crate) fn cell<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    match array.data_type() {
        DataType::Timestamp(_, Some(zone)) => {
            datetime(py, array, row, Some(zone_named(py, zone)?.bind(py)))
        }
        _ => plain(py, array, row),
    }
}

fn through_pyarrow(py: Python<'_>, field: &FieldRef, array: &ArrayRef) -> PyResult<Py<PyList>> {
    // pyarrow makes objects of pandas out of nanoseconds.
    let data_type = in_microseconds(field.data_type());
    let (array, field) = if data_type == *field.data_type() {
        (ArrayRef::clone(array), FieldRef::clone(field))
    } else {
        let cut = arrow_cast::cast(array, &data_type);
        let cut = cut.map_err(|error| raise(ErrorKind::Query, error.to_string()))?;
        (
            cut,
            Arc::new(field.as_ref().clone().with_data_type(data_type)),
        )
    };
    let exported = PyArray::try_new(array, field);
    let exported = exported.map_err(|error| raise(ErrorKind::Query, error.to_string()))?;
    let _running = Callback::begin()?;
    let exported = exported.to_pyarrow(py)?;
    Ok(exported
        .call_method0(name!(py, "to_pylist"))?
        .cast_into::<PyList>()?
        .unbind())
}

/// The type with the times and lengths of time within it in microseconds, where they are in nanoseconds.
fn in_microseconds(data_type: &DataType) -> DataType {
    use DataType as T;
    let within = |field: &FieldRef| {
        let data_type = in_microseconds(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        T::Timestamp(TimeUnit::Nanosecond, zone) => {
            T::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        T::Duration(TimeUnit::Nanosecond) => T::Duration(TimeUnit::Microsecond),
        T::List(field) => T::List(within(field)),
        T::LargeList(field) => T::LargeList(within(field)),
        T::FixedSizeList(field, size) => T::FixedSizeList(within(field), *size),
        T::Struct(fields) => T::Struct(fields.iter().map(within).collect()),
        other => other.clone(),
    }
}

fn is_plain(data_type: &DataType) -> bool {
    use DataType as T;
    data_type.is_integer()
        || matches!(
            data_type,
            T::Boolean
                | T::Float32
                | T::Float64
                | T::Utf8
                | T::LargeUtf8
                | T::Utf8View
                | T::Binary
                | T::LargeBinary
                | T::BinaryView
                | T::FixedSizeBinary(_)
                | T::Date32
                | T::Time32(_)
                | T::Time64(_)
                | T::Timestamp(_, None)
                | T::Duration(_)
                | T::Interval(IntervalUnit::DayTime | IntervalUnit::MonthDayNano)
                | T::Decimal128(..)
        )
}

/// A value that is not null, of a type for which [`is_plain`] holds.
fn plain<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    use DataType as T;
    match array.data_type() {
        T::Boolean => array.as_boolean().value(row).into_bound_py_any(py),
        T::Int8 => number::<Int8Type>(py, array, row),
        T::Int16 => number::<Int16Type>(py, array, row),
        T::Int32 => number::<Int32Type>(py, array, row),
        T::Int64 => number::<Int64Type>(py, array, row),
        T::UInt8 => number::<UInt8Type>(py, array, row),
        T::UInt16 => number::<UInt16Type>(py, array, row),
        T::UInt32 => number::<UInt32Type>(py, array, row),
        T::UInt64 => number::<UInt64Type>(py, array, row),
        T::Float32 => number::<Float32Type>(py, array, row),
        T::Float64 => number::<Float64Type>(py, array, row),
        T::Utf8 => Ok(PyString::new(py, array.as_string::<i32>().value(row)).into_any()),
        T::LargeUtf8 => Ok(PyString::new(py, array.as_string::<i64>().value(row)).into_any()),
        T::Utf8View => Ok(PyString::new(py, array.as_string_view().value(row)).into_any()),
        T::Binary => Ok(PyBytes::new(py, array.as_binary::<i32>().value(row)).into_any()),
        T::LargeBinary => Ok(PyBytes::new(py, array.as_binary::<i64>().value(row)).into_any()),
        T::BinaryView => Ok(PyBytes::new(py, array.as_binary_view().value(row)).into_any()),
        T::FixedSizeBinary(_) => {
            Ok(PyBytes::new(py, array.as_fixed_size_binary().value(row)).into_any())
        }
        T::Date32 => date(py, array.as_primitive::<Date32Type>().value(row)),
        T::Time32(unit) | T::Time64(unit) => time_of_day(py, array, *unit, row),
        T::Timestamp(..) => datetime(py, array, row, None),
        T::Duration(unit) => timedelta(py, array, *unit, row),
        T::Interval(unit) => interval(py, array, *unit, row),
        T::Decimal128(precision, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            decimal_type(py)?.call1((Decimal128Type::format_decimal(value, *precision, *scale),))
        }
        other => Err(raise(
            ErrorKind::Unsupported,
            format!("a value of type {other} has no Python counterpart"),
        )),
    }
}

fn number<'py, T: ArrowPrimitiveType>(
    py: Python<'py>,
    array: &ArrayRef,
    row: usize,
) -> PyResult<Bound<'py, PyAny>>
where
    T::Native: IntoPyObject<'py>,
{
    array.as_primitive::<T>().value(row).into_bound_py_any(py)
}

/// Whole microseconds, cut downwards; `None` beyond 64 bits.
fn to_microseconds(value: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => value.checked_mul(SECOND_US),
        TimeUnit::Millisecond => value.checked_mul(1_000),
        TimeUnit::Microsecond => Some(value),
        TimeUnit::Nanosecond => Some(value.div_euclid(1_000)),
    }
}

fn beyond(py: Python<'_>, what: &str, value: impl std::fmt::Display) -> PyErr {
    // The message of Python has less information.
    let _ = PyErr::take(py);
    let message = format!(
        "{what} {value} is beyond what Python can hold; take the result by arrow() or numpy()"
    );
    raise(ErrorKind::OutOfDomain, message)
}

/// The error for a value that counts a unit.
fn beyond_in(py: Python<'_>, what: &str, value: i64, unit: TimeUnit) -> PyErr {
    beyond(py, what, format!("{value} {unit:?}s").to_lowercase())
}

fn delta(py: Python<'_>, microseconds: i64) -> PyResult<Bound<'_, PyDelta>> {
    let (days, rest_us) = (
        microseconds.div_euclid(DAY_US),
        microseconds.rem_euclid(DAY_US),
    );
    // 64 bits of microseconds are 107 million days; the rest is less than one.
    let part = |value: i64| {
        i32::try_from(value).map_err(|_| beyond(py, "the length of time", microseconds))
    };
    PyDelta::new(
        py,
        part(days)?,
        part(rest_us / SECOND_US)?,
        part(rest_us % SECOND_US)?,
        false,
    )
}

fn datetime<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    row: usize,
    zone: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (value, unit) = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => (
            array.as_primitive::<TimestampSecondType>().value(row),
            TimeUnit::Second,
        ),
        DataType::Timestamp(TimeUnit::Millisecond, _) => (
            array.as_primitive::<TimestampMillisecondType>().value(row),
            TimeUnit::Millisecond,
        ),
        DataType::Timestamp(TimeUnit::Microsecond, _) => (
            array.as_primitive::<TimestampMicrosecondType>().value(row),
            TimeUnit::Microsecond,
        ),
        _ => (
            array.as_primitive::<TimestampNanosecondType>().value(row),
            TimeUnit::Nanosecond,
        ),
    };
    let out_of_range = || {
        beyond(
            py,
            "the time",
            format!("{value} {unit:?}s since 1970").to_lowercase(),
        )
    };
    let microseconds = to_microseconds(value, unit).ok_or_else(out_of_range)?;
    let since = delta(py, microseconds)?;
    let instant = epoch(py, zone.is_some())?
        .add(since)
        .map_err(|_| out_of_range())?;
    match zone {
        Some(zone) if !zone.is(PyTzInfo::utc(py)?) => instant
            .call_method1(name!(py, "astimezone"), (zone,))
            .map_err(|_| out_of_range()),
        _ => Ok(instant),
    }
}

fn date(py: Python<'_>, days: i32) -> PyResult<Bound<'_, PyAny>> {
    static DATE: OnceLock<Py<PyType>> = OnceLock::new();
    let find = || {
        Ok(import(py, "datetime")?
            .getattr("date")?
            .cast_into()?
            .unbind())
    };
    let ordinal = i64::from(days) + EPOCH_ORDINAL;
    let made = once(&DATE, find)?
        .bind(py)
        .call_method1(name!(py, "fromordinal"), (ordinal,));
    made.map_err(|_| beyond(py, "the date", format!("{days} days after 1970-01-01")))
}

fn time_of_day<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    unit: TimeUnit,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let value = match unit {
        TimeUnit::Second => array.as_primitive::<Time32SecondType>().value(row).into(),
        TimeUnit::Millisecond => { array.as_primitive::<Time32MillisecondType>() }
            .value(row)
            .into(),
        TimeUnit::Microsecond => array.as_primitive::<Time64MicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<Time64NanosecondType>().value(row),
    };
    let microseconds = to_microseconds(value, unit)
        .filter(|within| (0..DAY_US).contains(within))
        .ok_or_else(|| beyond_in(py, "the time of day", value, unit))?;
    let instant = epoch(py, false)?.add(delta(py, microseconds)?)?;
    instant.call_method0(name!(py, "time"))
}

fn timedelta<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    unit: TimeUnit,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let value = match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().value(row),
    };
    let microseconds = to_microseconds(value, unit)
        .ok_or_else(|| beyond_in(py, "the length of time", value, unit))?;
    Ok(delta(py, microseconds)?.into_any())
}

/// An interval without months has one length, of days of 24 hours, and is a timedelta; any other is left as it is.
fn interval<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    unit: IntervalUnit,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let (days, below_day_us) = if unit == IntervalUnit::DayTime {
        let value = array.as_primitive::<IntervalDayTimeType>().value(row);
        (value.days, i64::from(value.milliseconds) * 1_000)
    } else {
        let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
        if value.months != 0 {
            let _running = Callback::begin()?;
            return py
                .import(name!(py, "pyarrow"))?
                .getattr(name!(py, "MonthDayNano"))?
                .call1(((value.months, value.days, value.nanoseconds),));
        }
        (value.days, value.nanoseconds.div_euclid(1_000))
    };
    // 32 bits of days and 64 of nanoseconds are far from 64 bits of microseconds.
    let microseconds = i64::from(days) * DAY_US + below_day_us;
    let made = delta(py, microseconds);
    made.map(Bound::into_any).map_err(|_| {
        let shown = format!("{days} days and {below_day_us} microseconds");
        beyond(py, "the length of time", shown)
    })
}

/// The zone as Python has it: UTC, a fixed offset, or a zone of the IANA's list.
fn zone_named(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    if is_utc(name) {
        return Ok(PyTzInfo::utc(py)?.to_owned().into_any().unbind());
    }
    if let Some(minutes) = offset_minutes(name) {
        let offset = PyDelta::new(py, 0, minutes * 60, 0, true)?;
        return Ok(PyTzInfo::fixed_offset(py, offset)?.into_any().unbind());
    }
    let _running = Callback::begin()?;
    let zone = PyTzInfo::timezone(py, name).map_err(|_| {
        if name.parse::<Tz>().is_err() {
            return raise(ErrorKind::Query, format!("there is no time zone \"{name}\""));
        }
        let message = format!("Python does not know the time zone \"{name}\"; install the package tzdata, or take the result by arrow()");
        raise(ErrorKind::Unsupported, message)
    })?;
    Ok(zone.into_any().unbind())
}

/// `+hh:mm`, `+hhmm` and `+hh`.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest.replace(':', "")),
        ("-", rest) => (-1, rest.replace(':', "")),
        _ => return None,
    };
    let sound = matches!(digits.len(), 2 | 4) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let digits = sound.then_some(digits)?;
    let hours: i32 = digits[..2].parse().ok()?;
    let minutes: i32 = if digits.len() == 4 {
        digits[2..].parse().ok()?
    } else {
        0
    };
    (hours < 24 && minutes < 60).then_some(sign * (60 * hours + minutes))
}
