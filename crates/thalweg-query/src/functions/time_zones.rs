//! Times on the clock of a zone: `at_time_zone` as PostgreSQL's AT TIME ZONE, `local_time`, and `first_instant`, `at_time_zone` for
//! the beginnings of buckets.
//!
//! Invariants: a time without a zone is what the clock of the zone shows, and becomes the instant of that; an instant becomes
//! what the clock shows. `local_time` takes times without a zone for instants of UTC. Of a clock that is put back, the later of two instants
//! counts, to `first_instant` the earlier; a time that a clock passes over is read as if it had not been put forward yet.

use crate::error::{query, to_datafusion};
use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{DateTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::str::FromStr;
use std::sync::Arc;
use thalweg_table::time_units::{SECOND_NS, unit_ns};

/// The functions.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 3] {
    ["at_time_zone", "first_instant", "local_time"].map(|name| {
        Arc::new(ScalarUDF::new_from_impl(OnClock {
            name,
            is_local: name == "local_time",
            is_first: name == "first_instant",
            signature: Signature::new(TypeSignature::UserDefined, Volatility::Immutable),
        }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnClock {
    name: &'static str,
    /// Whether the result is what the clock shows, whatever the argument is.
    is_local: bool,
    /// Whether the earlier of two instants at which the clock shows a time is meant.
    is_first: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OnClock {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [time, zone] = types else {
            return Err(takes(self.name, types));
        };
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Date32 => DataType::Timestamp(TimeUnit::Second, None),
            DataType::Date64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Null => DataType::Timestamp(TimeUnit::Nanosecond, None),
            _ => return Err(takes(self.name, types)),
        };
        match zone {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                Ok(vec![time, DataType::Utf8])
            }
            _ => Err(takes(self.name, types)),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(DataType::Timestamp(unit, None)) if !self.is_local => {
                Ok(DataType::Timestamp(*unit, Some("UTC".into())))
            }
            Some(DataType::Timestamp(unit, _)) => Ok(DataType::Timestamp(*unit, None)),
            _ => Err(takes(self.name, types)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [times, zones] = &*args.args else {
            return internal_err!("{} has two arguments", self.name);
        };
        let DataType::Timestamp(unit, zone) = times.data_type() else {
            return internal_err!("{} has a time as its first argument", self.name);
        };
        let to_instant = zone.is_none() && !self.is_local;
        let clock = Clock {
            unit,
            to_instant,
            is_first: self.is_first,
        };
        let is_scalar = matches!(
            (times, zones),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if is_scalar { 1 } else { rows };
        let values = cast(&times.to_array(rows)?, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let moved: Int64Array = match zones {
            ColumnarValue::Scalar(zone) => match zone.try_as_str().flatten() {
                Some(name) => {
                    let zone = zone_named(name)?;
                    values.try_unary(|value| clock.moved(value, zone))?
                }
                None => Int64Array::new_null(values.len()),
            },
            ColumnarValue::Array(names) => {
                let names = names.as_string::<i32>();
                let moved = values.iter().zip(names.iter()).map(|both| match both {
                    (Some(value), Some(name)) => clock.moved(value, zone_named(name)?).map(Some),
                    _ => Ok(None),
                });
                moved.collect::<Result<_>>()?
            }
        };
        let moved: ArrayRef = Arc::new(moved);
        let moved = cast(&moved, args.return_field.data_type())?;
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &moved, 0,
            )?));
        }
        Ok(ColumnarValue::Array(moved))
    }
}

fn takes(name: &str, types: &[DataType]) -> datafusion::error::DataFusionError {
    let types: Vec<String> = types
        .iter()
        .map(|data_type| thalweg_table::schema::sql_type_name(data_type).to_lowercase())
        .collect();
    let types = types.join(", ");
    let what = match name {
        "at_time_zone" | "first_instant" => "AT TIME ZONE",
        name => name,
    };
    to_datafusion(query(format!(
        "{what} takes a time and the name of a zone, as in ts AT TIME ZONE 'Europe/Berlin', not ({types})"
    )))
}

pub(super) fn zone_named(name: &str) -> Result<Tz> {
    let unknown = |_| {
        to_datafusion(query(format!(
            "there is no time zone \"{name}\": write a name such as 'Europe/Berlin' or an offset such as '+02:00'"
        )))
    };
    Tz::from_str(name)
        .or_else(|_| Tz::from_str(&name.to_uppercase()))
        .or_else(|_| Tz::from_str(&with_capitals(name)))
        .map_err(unknown)
}

/// `europe/berlin` as the list of zones has it, `Europe/Berlin`.
fn with_capitals(name: &str) -> String {
    let mut begins = true;
    let capitals = name.chars().map(|c| {
        let c = match begins {
            true => c.to_ascii_uppercase(),
            false => c.to_ascii_lowercase(),
        };
        begins = !c.is_ascii_alphabetic();
        c
    });
    capitals.collect()
}

#[derive(Clone, Copy)]
struct Clock {
    unit: TimeUnit,
    to_instant: bool,
    is_first: bool,
}

impl Clock {
    /// A time as the instant, or as the clock of the zone shows it.
    fn moved(self, value: i64, zone: Tz) -> Result<i64> {
        let steps = SECOND_NS / unit_ns(self.unit);
        let far = || {
            to_datafusion(query(
                "a time is too far away for the calendar of a time zone",
            ))
        };
        let time = DateTime::from_timestamp(value.div_euclid(steps), 0).ok_or_else(far)?;
        let time = time.naive_utc();
        let seconds = match self.to_instant {
            true => -i64::from(offset_of_clock(zone, time, self.is_first)),
            false => i64::from(zone.offset_from_utc_datetime(&time).fix().local_minus_utc()),
        };
        let moved = seconds
            .checked_mul(steps)
            .and_then(|by| value.checked_add(by));
        moved.ok_or_else(far)
    }
}

/// Seconds by which a clock that shows `time` is ahead of UTC.
pub(super) fn offset_of_clock(zone: Tz, time: NaiveDateTime, is_first: bool) -> i32 {
    let offsets = zone.offset_from_local_datetime(&time);
    let offset = if is_first {
        offsets.earliest()
    } else {
        offsets.latest()
    };
    if let Some(offset) = offset {
        return offset.fix().local_minus_utc();
    }
    // Passed over: the offset of some hours before, where a zone left out a day of the day before that.
    let before = [6, 30].into_iter().find_map(|hours| {
        let before = time - TimeDelta::hours(hours);
        zone.offset_from_local_datetime(&before).latest()
    });
    before.map_or(0, |offset| offset.fix().local_minus_utc())
}
