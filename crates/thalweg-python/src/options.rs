//! Arguments of calls from Python: texts, names, numbers and lengths of time.
//!
//! Invariant: an argument that makes no sense is an exception of Thalweg that names it and shows what was given. PyO3's own
//! conversions raise a `TypeError` in words of Rust, so functions take objects and convert them here.

use crate::error::raise;
use crate::once::name;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyString};
use std::fmt::Display;
use std::time::Duration;
use thalweg::ErrorKind;
use thalweg_table::time::parse_length;

/// Characters of a value that a message shows.
const SHOWN_CHARS: usize = 100;

/// The value that was given, as Python shows it.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    let Ok(text) = given.repr() else {
        return "a value".to_owned();
    };
    let text = text.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn senseless(name: &str, given: &Bound<'_, PyAny>, wanted: impl Display) -> PyErr {
    raise(
        ErrorKind::Invalid,
        format!("{name} is {}; it must be {wanted}", shown(given)),
    )
}

/// A whole number, not negative; `None` where none is given.
pub(crate) fn whole_number<T>(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<T>>
where
    T: TryFrom<u64>,
{
    let Some(given) = given else {
        return Ok(None);
    };
    let number = given.extract::<u64>().ok();
    let number = number.and_then(|number| T::try_from(number).ok());
    let wanted = match name {
        "memory_limit" | "cache_bytes" => "a whole number of bytes, not negative and not too large",
        _ => "a whole number, not negative and not too large",
    };
    number
        .map(Some)
        .ok_or_else(|| senseless(name, given, wanted))
}

/// Text that is borrowed from the object.
pub(crate) fn text<'a>(name: &str, given: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if !given.is_instance_of::<PyString>() {
        return Err(senseless(name, given, "text"));
    }
    given
        .extract()
        .map_err(|_| senseless(name, given, "text that UTF-8 can hold"))
}

/// Text; `None` where none is given.
pub(crate) fn optional_text<'a>(
    name: &str,
    given: Option<&'a Bound<'_, PyAny>>,
) -> PyResult<Option<&'a str>> {
    given.map(|given| text(name, given)).transpose()
}

/// True or False.
pub(crate) fn flag(name: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = given.cast::<PyBool>();
    flag.map(|flag| flag.is_true())
        .map_err(|_| senseless(name, given, "True or False"))
}

/// Names of columns: a list of them, or a single one.
pub(crate) fn names(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let wanted = "a list of names, as [\"ts\", \"v\"]";
    if given.is_instance_of::<PyString>() {
        return Ok(vec![text(name, given)?.to_owned()]);
    }
    let is_list = !given.is_instance_of::<PyDict>();
    let items = given.try_iter().ok().filter(|_| is_list);
    let items = items.ok_or_else(|| senseless(name, given, wanted))?;
    let name_of = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        let one = item.extract::<String>().ok();
        one.ok_or_else(|| senseless(name, given, wanted))
    };
    items.map(name_of).collect()
}

/// A dict; `None` where none is given.
pub(crate) fn optional_dict<'a, 'py>(
    name: &str,
    given: Option<&'a Bound<'py, PyAny>>,
    wanted: &str,
) -> PyResult<Option<&'a Bound<'py, PyDict>>> {
    let Some(given) = given else { return Ok(None) };
    let dict = given.cast::<PyDict>();
    dict.map(Some).map_err(|_| senseless(name, given, wanted))
}

/// A length of time as text for `split`: text itself, a number for an integer column, or a timedelta.
pub(crate) fn split(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let Some(given) = given else { return Ok(None) };
    if given.is_instance_of::<PyDelta>() {
        let length = duration("split", Some(given))?.unwrap_or_default();
        return Ok(Some(format!("{} us", length.as_micros())));
    }
    if let Ok(number) = given.extract::<i64>()
        && !given.is_instance_of::<PyBool>()
    {
        return Ok(Some(number.to_string()));
    }
    if given.is_instance_of::<PyString>() {
        return text("split", given).map(|text| Some(text.to_owned()));
    }
    let wanted = "a length of time, as \"1 day\", or a whole number for a column of integers";
    Err(senseless("split", given, wanted))
}

/// Seconds as a number, a timedelta, or text like "10 minutes"; `None` where none is given.
pub(crate) fn duration(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let wanted = "a number of seconds, a timedelta or text like \"10 minutes\", not negative";
    if given.is_instance_of::<PyString>() {
        let length = parse_length(text(name, given)?);
        return length.map(Some).map_err(|_| senseless(name, given, wanted));
    }
    let seconds: Option<f64> = if given.is_instance_of::<PyDelta>() {
        let seconds = given.call_method0(name!(given.py(), "total_seconds"))?;
        Some(seconds.extract()?)
    } else {
        given.extract().ok()
    };
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(Some)
        .ok_or_else(|| senseless(name, given, wanted))
}
