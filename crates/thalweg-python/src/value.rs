//! Python values on their way in: values of rows, bounds of ranges, parameters of statements.
//!
//! Invariants: values are not rounded here: the engine gets what Python holds and decides; strings and bytes are
//! borrowed; each built-in type is recognised by one pointer comparison, all other types take the slow path.

use crate::error::raise;
use crate::finalize::{Callback, Ending, import};
use crate::once::{name, once};
use crate::options::shown;
use arrow_schema::{DataType, TimeUnit};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyFloat, PyFrozenSet, PyInt, PyList,
    PySet, PyString, PyTime, PyTuple, PyType,
};
use std::sync::OnceLock;
use thalweg::{ErrorKind, Params, ScalarValue, TimeBound, Value, shown_type};

/// `datetime.date.toordinal` of 1970-01-01.
const EPOCH_ORDINAL: i32 = 719_163;
const DAY_US: i64 = 86_400_000_000;

/// Why a Python object cannot be a value.
pub(crate) enum Unfit {
    /// A description of what is wrong with it.
    Because(String),
    /// The exception that Python raised.
    Raised(PyErr),
}

impl From<PyErr> for Unfit {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Ending> for Unfit {
    fn from(ending: Ending) -> Self {
        Self::Raised(ending.into())
    }
}

impl Unfit {
    /// Turns it into a Python exception; `place` is the place of the value in its message.
    pub(crate) fn into_exception(self, kind: ErrorKind, place: &str) -> PyErr {
        match self {
            Self::Because(reason) => raise(kind, format!("{place}: {reason}")),
            Self::Raised(error) => error,
        }
    }
}

/// Converts a Python object to a value of a row.
#[inline]
pub(crate) fn value<'a>(object: Borrowed<'a, '_, PyAny>) -> Result<Value<'a>, Unfit> {
    if let Ok(float) = object.cast_exact::<PyFloat>() {
        Ok(Value::Float(float.value()))
    } else if object.is_exact_instance_of::<PyInt>() {
        integer(&object)
    } else if object.is_exact_instance_of::<PyString>() {
        text(object)
    } else if object.is_none() {
        Ok(Value::Null)
    } else if let Ok(boolean) = object.cast_exact::<PyBool>() {
        Ok(Value::Bool(boolean.is_true()))
    } else if object.is_exact_instance_of::<PyBytes>() {
        Ok(Value::Bytes(object.extract().map_err(PyErr::from)?))
    } else {
        unusual(object)
    }
}

fn integer(object: &Bound<'_, PyAny>) -> Result<Value<'static>, Unfit> {
    if let Ok(value) = object.extract::<i64>() {
        return Ok(Value::Int(value));
    }
    if let Ok(value) = object.extract::<u64>() {
        return Ok(Value::UInt(value));
    }
    // Decimals have up to 38 digits, which fit.
    match object.extract::<i128>() {
        Ok(unscaled) => Ok(Value::Decimal { unscaled, scale: 0 }),
        Err(_) => Err(Unfit::Because(
            "an integer of more than 128 bits cannot be stored".to_owned(),
        )),
    }
}

fn text<'a>(object: Borrowed<'a, '_, PyAny>) -> Result<Value<'a>, Unfit> {
    match object.extract::<&str>() {
        Ok(text) => Ok(Value::Text(text)),
        Err(_) => Err(Unfit::Because(
            "the text has lone surrogates, which UTF-8 cannot hold".to_owned(),
        )),
    }
}

/// Converts all other objects: of subclasses of built-in types, times, decimals, and those of numpy and pandas.
#[cold]
fn unusual<'a>(object: Borrowed<'a, '_, PyAny>) -> Result<Value<'a>, Unfit> {
    if object.is_instance_of::<PyString>() {
        return text(object);
    }
    if let Ok(float) = object.cast::<PyFloat>() {
        return Ok(Value::Float(float.value()));
    }
    if object.is_instance_of::<PyInt>() {
        return integer(&object);
    }
    if object.is_instance_of::<PyBytes>() {
        return Ok(Value::Bytes(object.extract().map_err(PyErr::from)?));
    }
    // Other classes may run Python code, which must be refused while the interpreter ends. The classes of `datetime`
    // run none, and a thread may append such values until the very end.
    let is_builtin = object.is_exact_instance_of::<PyDateTime>()
        || object.is_exact_instance_of::<PyDate>()
        || object.is_exact_instance_of::<PyDelta>();
    let _running = match is_builtin {
        true => None,
        false => Some(Callback::begin()?),
    };
    let kind = object.get_type().name()?.to_string();
    // pandas has these for a missing value; NaT is an instance of datetime as well.
    if kind == "NaTType" || kind == "NAType" {
        return Ok(Value::Null);
    }
    if object.is_instance_of::<PyDateTime>() {
        return instant(&object);
    }
    if object.is_instance_of::<PyDate>() {
        let ordinal: i32 = object
            .call_method0(name!(object.py(), "toordinal"))?
            .extract()?;
        return Ok(Value::Date(ordinal - EPOCH_ORDINAL));
    }
    if object.is_instance_of::<PyDelta>() {
        return span(&object);
    }
    if object.is_instance(decimal_type(object.py())?)? {
        return decimal(&object);
    }
    match object.getattr_opt(name!(object.py(), "dtype"))? {
        Some(dtype) => numpy_scalar(&object, &dtype),
        None if kind == "UUID" => Err(Unfit::Because(
            "values of type UUID are not taken: give str(id) for a column of texts, id.bytes for one of bytes"
                .to_owned(),
        )),
        None => Err(Unfit::Because(format!(
            "values of type {kind} are not taken: give a text, a number, a time, a boolean or bytes"
        ))),
    }
}

pub(crate) fn decimal_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static DECIMAL: OnceLock<Py<PyType>> = OnceLock::new();
    let find = || {
        Ok(import(py, "decimal")?
            .getattr("Decimal")?
            .cast_into()?
            .unbind())
    };
    Ok(once(&DECIMAL, find)?.bind(py))
}

/// The beginning of 1970 as datetimes: naive, and aware.
fn epochs(py: Python<'_>) -> PyResult<&(Py<PyAny>, Py<PyAny>)> {
    static EPOCHS: OnceLock<(Py<PyAny>, Py<PyAny>)> = OnceLock::new();
    once(&EPOCHS, || {
        let datetime = import(py, "datetime")?;
        let naive = datetime.getattr("datetime")?.call1((1970, 1, 1))?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let aware = datetime
            .getattr("datetime")?
            .call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        Ok((naive.unbind(), aware.unbind()))
    })
}

/// The beginning of 1970 as a datetime, aware or naive.
pub(crate) fn epoch(py: Python<'_>, aware: bool) -> PyResult<&Bound<'_, PyAny>> {
    let (naive_epoch, aware_epoch) = epochs(py)?;
    Ok(if aware { aware_epoch } else { naive_epoch }.bind(py))
}

fn is_aware(datetime: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!datetime.getattr(name!(datetime.py(), "tzinfo"))?.is_none())
}

/// Converts a datetime to time since 1970 in UTC; a naive one is taken as UTC.
fn instant(datetime: &Bound<'_, PyAny>) -> Result<Value<'static>, Unfit> {
    let py = datetime.py();
    // pandas counts nanoseconds.
    if let Some(nanosecond) = datetime.getattr_opt(name!(py, "nanosecond"))?
        && nanosecond.extract::<i64>()? != 0
    {
        let value = datetime.getattr(name!(py, "value"))?.extract()?;
        return Ok(Value::Instant {
            value,
            unit: TimeUnit::Nanosecond,
        });
    }
    let epoch = epoch(py, is_aware(datetime)?)?;
    let value = microseconds(&datetime.sub(epoch)?)?;
    Ok(Value::Instant {
        value,
        unit: TimeUnit::Microsecond,
    })
}

/// The microseconds of a timedelta, without the nanoseconds of pandas. Python's own limits keep it within 64 bits.
fn microseconds(delta: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = delta.py();
    let days: i64 = delta.getattr(name!(py, "days"))?.extract()?;
    let seconds: i64 = delta.getattr(name!(py, "seconds"))?.extract()?;
    let microseconds: i64 = delta.getattr(name!(py, "microseconds"))?.extract()?;
    let below_day = seconds * 1_000_000 + microseconds;
    let all = days
        .checked_mul(DAY_US)
        .and_then(|days| days.checked_add(below_day));
    all.ok_or_else(|| {
        raise(
            ErrorKind::OutOfDomain,
            "a length of time is beyond 64 bits of microseconds",
        )
    })
}

fn span(delta: &Bound<'_, PyAny>) -> Result<Value<'static>, Unfit> {
    let py = delta.py();
    if let Some(nanoseconds) = delta.getattr_opt(name!(py, "nanoseconds"))?
        && nanoseconds.extract::<i64>()? != 0
    {
        let value = delta.getattr(name!(py, "value"))?.extract()?;
        return Ok(Value::Span {
            value,
            unit: TimeUnit::Nanosecond,
        });
    }
    Ok(Value::Span {
        value: microseconds(delta)?,
        unit: TimeUnit::Microsecond,
    })
}

fn decimal(decimal: &Bound<'_, PyAny>) -> Result<Value<'static>, Unfit> {
    let parts = decimal.call_method0(name!(decimal.py(), "as_tuple"))?;
    let (negative, digits, exponent): (u8, Vec<u8>, Bound<'_, PyAny>) = parts.extract()?;
    let Ok(exponent) = exponent.extract::<i32>() else {
        return Err(Unfit::Because(format!("{decimal} is no decimal number")));
    };
    let too_large = || Unfit::Because(format!("{decimal} has more digits than a decimal can hold"));
    let add = |sum: i128, digit: u8| sum.checked_mul(10)?.checked_add(digit.into());
    let magnitude = digits
        .into_iter()
        .try_fold(0_i128, add)
        .ok_or_else(too_large)?;
    // A positive exponent stands for zeros at the end, which are digits here.
    let zeros = u32::try_from(exponent).unwrap_or(0);
    let magnitude = match magnitude {
        0 => 0,
        _ => 10_i128
            .checked_pow(zeros)
            .and_then(|factor| magnitude.checked_mul(factor))
            .ok_or_else(too_large)?,
    };
    let scale = i8::try_from(exponent.min(0).unsigned_abs()).map_err(|_| too_large())?;
    Ok(Value::Decimal {
        unscaled: if negative == 1 { -magnitude } else { magnitude },
        scale,
    })
}

fn numpy_scalar(
    object: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
) -> Result<Value<'static>, Unfit> {
    let py = object.py();
    let refused = || Unfit::Because(format!("values of type {dtype} are not taken"));
    let kind: String = dtype
        .getattr(name!(py, "kind"))
        .and_then(|kind| kind.extract())
        .map_err(|_| refused())?;
    match kind.as_str() {
        "M" => Ok(match numpy_time(object, dtype, "datetime64")? {
            Some((value, unit)) => Value::Instant { value, unit },
            None => Value::Null,
        }),
        "m" => Ok(match numpy_time(object, dtype, "timedelta64")? {
            Some((value, unit)) => Value::Span { value, unit },
            None => Value::Null,
        }),
        "b" | "i" | "u" | "f" => {
            let item = object
                .call_method0(name!(py, "item"))
                .map_err(|_| refused())?;
            if let Ok(float) = item.cast_exact::<PyFloat>() {
                Ok(Value::Float(float.value()))
            } else if item.is_exact_instance_of::<PyInt>() {
                integer(&item)
            } else if let Ok(boolean) = item.cast_exact::<PyBool>() {
                Ok(Value::Bool(boolean.is_true()))
            } else {
                Err(refused())
            }
        }
        _ => Err(refused()),
    }
}

/// A datetime64 or timedelta64 with a unit in which it is exact; `None` for NaT.
fn numpy_time(
    object: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    kind: &str,
) -> Result<Option<(i64, TimeUnit)>, Unfit> {
    let py = object.py();
    let (given, count): (String, i64) = import(py, "numpy")?
        .call_method1("datetime_data", (dtype,))?
        .extract()?;
    let (unit, name) = match given.as_str() {
        "ns" => (TimeUnit::Nanosecond, "ns"),
        "us" => (TimeUnit::Microsecond, "us"),
        "ms" => (TimeUnit::Millisecond, "ms"),
        "Y" | "M" | "W" | "D" | "h" | "m" | "s" | "generic" => (TimeUnit::Second, "s"),
        _ => {
            return Err(Unfit::Because(format!(
                "a time of type {dtype} cannot be stored; use s, ms, us or ns"
            )));
        }
    };
    let number = |time: &Bound<'_, PyAny>| time.call_method1("astype", ("int64",))?.extract();
    // What numpy stores for NaT.
    let value: i64 = number(object)?;
    if value == i64::MIN {
        return Ok(None);
    }
    if count == 1 && given == name {
        return Ok(Some((value, unit)));
    }
    let converted = object.call_method1("astype", (format!("{kind}[{name}]"),))?;
    // numpy wraps around what is out of range.
    if number(&converted.call_method1("astype", (dtype,))?)? != value {
        return Err(Unfit::Because(format!(
            "a time of type {dtype} is beyond 64 bits of {name}"
        )));
    }
    Ok(Some((number(&converted)?, unit)))
}

/// A Python object as the bound of a range of times; `None` is no bound.
pub(crate) fn bound<'a>(
    what: &str,
    object: Borrowed<'a, '_, PyAny>,
) -> PyResult<Option<TimeBound<'a>>> {
    let shown = || shown(&object);
    let no_time = || {
        let message = format!(
            "{what} is {}, which is no time: give an int in the unit of the column, ISO 8601 text, a datetime or a datetime64",
            shown()
        );
        raise(ErrorKind::Invalid, message)
    };
    let given = match value(object) {
        Ok(given) => given,
        Err(Unfit::Because(_)) => return Err(no_time()),
        Err(Unfit::Raised(error)) => return Err(error),
    };
    Ok(Some(match given {
        Value::Null if object.is_none() => return Ok(None),
        Value::Int(value) => TimeBound::Int(value.into()),
        Value::UInt(value) => TimeBound::Int(value.into()),
        Value::Decimal { unscaled, scale: 0 } if object.is_instance_of::<PyInt>() => {
            TimeBound::Int(unscaled)
        }
        Value::Text(text) => TimeBound::Text(text),
        Value::Instant { value, unit } => TimeBound::Instant { value, unit },
        Value::Date(days) => TimeBound::Date(days),
        _ => return Err(no_time()),
    }))
}

/// The parameters of a statement: a list or tuple for `?` and `$1`, a dict for `$name`.
pub(crate) fn params(given: Option<&Bound<'_, PyAny>>) -> PyResult<Params> {
    let Some(given) = given.filter(|given| !given.is_none()) else {
        return Ok(Params::None);
    };
    if let Ok(named) = given.cast::<PyDict>() {
        let mut values = Vec::with_capacity(named.len());
        for (name, object) in named.iter() {
            let name: String = name
                .extract()
                .map_err(|_| raise(ErrorKind::Query, "names of parameters are texts"))?;
            let value = parameter(&format!("parameter \"{name}\""), &object)?;
            values.push((name, value));
        }
        return Ok(Params::Named(values));
    }
    if !given.is_instance_of::<PyList>() && !given.is_instance_of::<PyTuple>() {
        let message = format!(
            "params is a list for ? and $1 or a dict for $name, not {}",
            given.get_type().name()?
        );
        return Err(raise(ErrorKind::Query, message));
    }
    let mut values = Vec::with_capacity(given.len()?);
    for (place, object) in given.try_iter()?.enumerate() {
        values.push(parameter(&format!("parameter {}", place + 1), &object?)?);
    }
    Ok(Params::Positional(values))
}

/// A parameter: a value, or values for `x IN ?`.
fn parameter(place: &str, object: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let Some(items) = items(object)? else {
        return scalar(place, object.as_borrowed());
    };
    let mut values = Vec::new();
    for (at, item) in items.try_iter()?.enumerate() {
        let place = format!("{place}, value {}", at + 1);
        values.push(scalar(&place, item?.as_borrowed())?);
    }
    list(values).map_err(|message| raise(ErrorKind::Query, format!("{place}: {message}")))
}

/// The values that an object is a list of; `None` for a single value.
fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_list = object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.is_instance_of::<PySet>()
        || object.is_instance_of::<PyFrozenSet>();
    if is_list {
        return Ok(Some(object.clone()));
    }
    // Arrays of numpy and columns of data frames. Strings of numpy have a dtype and a length as well.
    let is_text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    if is_text || !object.hasattr("dtype")? || object.len().is_err() {
        return Ok(None);
    }
    Ok(Some(object.clone()))
}

/// A list of values of one type: if any is a float all numbers become floats; null fits every type.
fn list(values: Vec<ScalarValue>) -> Result<ScalarValue, String> {
    let mut common = DataType::Null;
    for value in &values {
        let data_type = value.data_type();
        common = match (&common, data_type) {
            (_, DataType::Null) => continue,
            (DataType::Null, data_type) => data_type,
            (common, data_type) if *common == data_type => continue,
            (common, data_type) if common.is_numeric() && data_type.is_numeric() => {
                common_number(common, &data_type)
            }
            (common, data_type) => {
                let (one, other) = (shown_type(common), shown_type(&data_type));
                return Err(format!(
                    "a list has values of one type, not {one} and {other}"
                ));
            }
        };
    }
    let cast = |value: ScalarValue| value.cast_to(&common).map_err(|error| error.to_string());
    let values = values
        .into_iter()
        .map(cast)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(
        &values, &common, true,
    )))
}

/// The type that holds numbers of both types.
fn common_number(one: &DataType, other: &DataType) -> DataType {
    if one.is_floating() || other.is_floating() {
        return DataType::Float64;
    }
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    DataType::Decimal128(38, scale(one).max(scale(other)))
}

pub(crate) fn scalar(place: &str, object: Borrowed<'_, '_, PyAny>) -> PyResult<ScalarValue> {
    // A time of day, which SQL has and columns do not.
    if object.is_exact_instance_of::<PyTime>() {
        let part = |name: &str| object.getattr(name)?.extract::<i64>();
        let seconds = part("hour")? * 3600 + part("minute")? * 60 + part("second")?;
        let ns = (seconds * 1_000_000 + part("microsecond")?) * 1000;
        return Ok(ScalarValue::Time64Nanosecond(Some(ns)));
    }
    let given = value(object).map_err(|unfit| unfit.into_exception(ErrorKind::Query, place))?;
    Ok(match given {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(value)),
        Value::Int(value) => ScalarValue::Int64(Some(value)),
        Value::UInt(value) => ScalarValue::UInt64(Some(value)),
        Value::Float(value) => ScalarValue::Float64(Some(value)),
        Value::Decimal { unscaled, scale } => {
            let digits = unscaled
                .unsigned_abs()
                .checked_ilog10()
                .map_or(1, |log| log + 1);
            let precision = digits.max(u32::from(scale.unsigned_abs())).min(38);
            ScalarValue::Decimal128(Some(unscaled), u8::try_from(precision).unwrap_or(38), scale)
        }
        Value::Text(text) => ScalarValue::Utf8(Some(text.to_owned())),
        Value::Bytes(bytes) => ScalarValue::Binary(Some(bytes.to_owned())),
        Value::Instant { value, unit } => {
            let aware = object.is_instance_of::<PyDateTime>() && is_aware(&object)?;
            let zone = aware.then(|| "UTC".into());
            match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(Some(value), zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(value), zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(value), zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(value), zone),
            }
        }
        Value::Date(days) => ScalarValue::Date32(Some(days)),
        Value::Span { value, unit } => match unit {
            TimeUnit::Second => ScalarValue::DurationSecond(Some(value)),
            TimeUnit::Millisecond => ScalarValue::DurationMillisecond(Some(value)),
            TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(Some(value)),
            TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(Some(value)),
        },
    })
}
