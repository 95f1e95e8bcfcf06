//! Options of calls from Python: numbers and lengths of time.
//!
//! Invariant: an option that makes no sense is an exception of Thalweg that names the option and shows what was given.

use crate::error::raise;
use crate::once::name;
use pyo3::prelude::*;
use pyo3::types::PyDelta;
use std::fmt::Display;
use std::time::Duration;
use thalweg::ErrorKind;

/// What was given, as Python shows it.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    let text = given.repr();
    text.map_or_else(|_| "a value".to_owned(), |text| text.to_string())
}

fn senseless(name: &str, given: &Bound<'_, PyAny>, wanted: impl Display) -> PyErr {
    raise(
        ErrorKind::Invalid,
        format!("{name} is {}; it is {wanted}", shown(given)),
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
    let wanted = "a whole number, not negative and not too large";
    number
        .map(Some)
        .ok_or_else(|| senseless(name, given, wanted))
}

/// Seconds as a number, or a timedelta; `None` where none is given.
pub(crate) fn duration(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let seconds: Option<f64> = if given.is_instance_of::<PyDelta>() {
        let seconds = given.call_method0(name!(given.py(), "total_seconds"))?;
        Some(seconds.extract()?)
    } else {
        given.extract().ok()
    };
    let wanted = "a number of seconds or a timedelta, not negative";
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(Some)
        .ok_or_else(|| senseless(name, given, wanted))
}
