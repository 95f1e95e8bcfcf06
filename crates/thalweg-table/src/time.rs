//! Order keys: the time column as `i64`, the bounds users give for it, and the regular cuts of `split`.
//!
//! Invariants: a key orders exactly as the value it stands for; keys of one type and its values are one to one. All
//! arithmetic on bounds and cuts is done in `i128`, so that no unit or extreme overflows; what lies outside a type is
//! clamped for bounds (a range may well reach beyond the data) and refused for values.

use crate::error::{invalid, schema};
use crate::schema::{parse_unit, shown_type};
use crate::time_units::{DAY_NS, SECOND_NS, unit_ns};
use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::{Array, ArrayRef, make_array, types};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::parse::string_to_datetime;
use arrow_data::ArrayData;
use arrow_schema::{DataType, TimeUnit};
use chrono::NaiveDate;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Turns an unsigned 64 bit value into a signed one of the same order, and back.
const SIGN_BIT: u64 = 1 << 63;

/// Nanoseconds of a step of a time type; `None` for plain integers.
pub(crate) fn step_ns(data_type: &DataType) -> Option<i128> {
    match data_type {
        DataType::Timestamp(unit, _) => Some(unit_ns(*unit).into()),
        DataType::Date32 => Some(DAY_NS.into()),
        _ => None,
    }
}

/// Whether a column of this type can order a table: any integer, date or timestamp.
pub fn orders_rows(data_type: &DataType) -> bool {
    value_range(data_type).is_some()
}

/// The values a type of order key can take; `None` for all other types.
fn value_range(data_type: &DataType) -> Option<RangeInclusive<i128>> {
    use DataType as T;
    Some(match data_type {
        T::Int8 => i8::MIN.into()..=i8::MAX.into(),
        T::Int16 => i16::MIN.into()..=i16::MAX.into(),
        T::Int32 | T::Date32 => i32::MIN.into()..=i32::MAX.into(),
        T::Int64 | T::Timestamp(..) => i64::MIN.into()..=i64::MAX.into(),
        T::UInt8 => 0..=u8::MAX.into(),
        T::UInt16 => 0..=u16::MAX.into(),
        T::UInt32 => 0..=u32::MAX.into(),
        T::UInt64 => 0..=u64::MAX.into(),
        _ => return None,
    })
}

/// The key of a value within the range of `data_type`.
fn key_of_value(data_type: &DataType, value: i128) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "values of every key type fit in 64 bits, signed or not"
    )]
    let bits = value as i64;
    if *data_type == DataType::UInt64 {
        key_of_u64(bits.cast_unsigned())
    } else {
        bits
    }
}

/// The value that a key stands for.
pub(crate) fn value_of_key(data_type: &DataType, key: i64) -> i128 {
    if *data_type == DataType::UInt64 {
        i128::from(key.cast_unsigned() ^ SIGN_BIT)
    } else {
        i128::from(key)
    }
}

/// The order key of an unsigned value.
pub(crate) const fn key_of_u64(value: u64) -> i64 {
    (value ^ SIGN_BIT).cast_signed()
}

/// The order keys of a column: the column's own memory for 64 bit signed types, converted otherwise. Nulls are not
/// looked at: `conform` refuses them in a time column.
///
/// ```
/// # use thalweg_table::order_keys;
/// use arrow_array::{Date32Array, UInt64Array};
///
/// assert_eq!(order_keys(&Date32Array::from(vec![-1, 20_513])).unwrap()[..], [-1, 20_513]);
/// let unsigned = order_keys(&UInt64Array::from(vec![0, u64::MAX])).unwrap();
/// assert_eq!(unsigned[..], [i64::MIN, i64::MAX]); // keys order as the values do
/// ```
///
/// # Errors
/// When the type cannot order rows.
pub fn order_keys(array: &dyn Array) -> Result<ScalarBuffer<i64>> {
    use DataType as T;
    macro_rules! widened {
        ($type:ty) => {
            array
                .as_primitive::<$type>()
                .values()
                .iter()
                .map(|&value| i64::from(value))
                .collect()
        };
    }
    Ok(match array.data_type() {
        T::Int64 => array.as_primitive::<types::Int64Type>().values().clone(),
        T::Timestamp(TimeUnit::Second, _) => array
            .as_primitive::<types::TimestampSecondType>()
            .values()
            .clone(),
        T::Timestamp(TimeUnit::Millisecond, _) => array
            .as_primitive::<types::TimestampMillisecondType>()
            .values()
            .clone(),
        T::Timestamp(TimeUnit::Microsecond, _) => array
            .as_primitive::<types::TimestampMicrosecondType>()
            .values()
            .clone(),
        T::Timestamp(TimeUnit::Nanosecond, _) => array
            .as_primitive::<types::TimestampNanosecondType>()
            .values()
            .clone(),
        T::Int8 => widened!(types::Int8Type),
        T::Int16 => widened!(types::Int16Type),
        T::Int32 => widened!(types::Int32Type),
        T::Date32 => widened!(types::Date32Type),
        T::UInt8 => widened!(types::UInt8Type),
        T::UInt16 => widened!(types::UInt16Type),
        T::UInt32 => widened!(types::UInt32Type),
        T::UInt64 => array
            .as_primitive::<types::UInt64Type>()
            .values()
            .iter()
            .map(|&value| key_of_u64(value))
            .collect(),
        other => {
            return Err(schema(format!(
                "a column of type {} cannot order rows",
                shown_type(other)
            )));
        }
    })
}

/// The value of a key, as an array of one row of the column's type.
///
/// # Errors
/// When the key is outside the type.
pub fn key_to_scalar(data_type: &DataType, key: i64) -> Result<ArrayRef> {
    let value = value_of_key(data_type, key);
    if !value_range(data_type).is_some_and(|range| range.contains(&value)) {
        return Err(out_of_domain(data_type, value));
    }
    // The value fits the type, so the low bytes of its two's complement are the value in that type.
    let width_bytes = data_type.primitive_width().unwrap_or(size_of::<i64>());
    let data = ArrayData::builder(data_type.clone())
        .len(1)
        .add_buffer(Buffer::from(&value.to_le_bytes()[..width_bytes]));
    let data = data.align_buffers(true).build();
    Ok(make_array(data.map_err(|e| {
        Error::with_source(ErrorKind::Invalid, e.to_string(), e)
    })?))
}

/// The value of a key as text: ISO 8601 for times, with `Z` when the column has a zone.
///
/// ```
/// # use thalweg_table::time::key_to_text;
/// use arrow_schema::{DataType, TimeUnit};
///
/// let local = DataType::Timestamp(TimeUnit::Millisecond, None);
/// assert_eq!(key_to_text(&local, 1_772_366_400_250), "2026-03-01T12:00:00.250");
/// let zoned = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
/// assert_eq!(key_to_text(&zoned, 1_772_366_400), "2026-03-01T12:00:00Z");
/// assert_eq!(key_to_text(&DataType::Int32, 7), "7");
/// ```
pub fn key_to_text(data_type: &DataType, key: i64) -> String {
    let (shown, suffix) = match data_type {
        DataType::Timestamp(unit, Some(_)) => (DataType::Timestamp(*unit, None), "Z"),
        other => (other.clone(), ""),
    };
    key_to_scalar(&shown, key)
        .ok()
        .and_then(|array| {
            // Not `array_value_to_string`: beyond the calendar that gives the error as if it were the text.
            let formatter = ArrayFormatter::try_new(&array, &FormatOptions::default()).ok()?;
            formatter.value(0).try_to_string().ok()
        })
        .map_or_else(
            || value_of_key(data_type, key).to_string(),
            |text| text + suffix,
        )
}

/// A time as a user gives it.
///
/// ```
/// # use thalweg_table::{TimeBound, key_range};
/// use arrow_schema::{DataType, TimeUnit};
///
/// let seconds = DataType::Timestamp(TimeUnit::Second, None);
/// for noon in [
///     TimeBound::Text("2026-03-01T14:00:00+02:00"),
///     TimeBound::Text("2026-03-01T12:00:00"),
///     TimeBound::Int(1_772_366_400),
///     TimeBound::Instant { value: 1_772_366_400_000, unit: TimeUnit::Millisecond },
/// ] {
///     assert_eq!(key_range(&seconds, Some(noon), None).unwrap(), Some(1_772_366_400..=i64::MAX));
/// }
/// assert!(key_range(&seconds, Some(TimeBound::Text("noon")), None).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBound<'a> {
    /// In the unit of the column.
    Int(i128),
    /// ISO 8601; without an offset it means UTC.
    Text(&'a str),
    /// Units since 1970-01-01 UTC.
    Instant {
        /// How many.
        value: i64,
        /// Of these.
        unit: TimeUnit,
    },
    /// Days since 1970-01-01.
    Date(i32),
}

impl TimeBound<'_> {
    /// The bound as messages show it.
    fn shown(&self) -> String {
        match *self {
            TimeBound::Int(value) => value.to_string(),
            TimeBound::Text(text) => format!("\"{text}\""),
            TimeBound::Instant { value, unit } => instant_to_text(value, unit),
            TimeBound::Date(days) => key_to_text(&DataType::Date32, days.into()),
        }
    }
}

/// Units since 1970-01-01 UTC as ISO 8601.
pub(crate) fn instant_to_text(value: i64, unit: TimeUnit) -> String {
    key_to_text(&DataType::Timestamp(unit, None), value)
}

/// The keys that lie in `start..end` (the end is not included; a side not given is open). `None` when there are none.
///
/// ```
/// # use thalweg_table::{TimeBound, key_range};
/// use arrow_schema::DataType;
///
/// let (start, end) = (TimeBound::Text("2026-03-01"), TimeBound::Text("2026-03-08"));
/// assert_eq!(key_range(&DataType::Date32, Some(start), Some(end)).unwrap(), Some(20_513..=20_519));
/// assert_eq!(key_range(&DataType::Date32, Some(end), Some(start)).unwrap(), None);
/// assert_eq!(key_range(&DataType::UInt8, None, Some(TimeBound::Int(1_000))).unwrap(), Some(0..=255));
/// ```
///
/// # Errors
/// When a bound is not a time of such a column.
pub fn key_range(
    data_type: &DataType,
    start: Option<TimeBound<'_>>,
    end: Option<TimeBound<'_>>,
) -> Result<Option<RangeInclusive<i64>>> {
    let values = value_range(data_type)
        .ok_or_else(|| schema(format!("{} cannot order rows", shown_type(data_type))))?;
    // Between two steps of the column's unit both `>= bound` and `< bound` turn at the next step.
    let first = match start {
        Some(bound) => bound_steps(data_type, bound)?.ceil().max(*values.start()),
        None => *values.start(),
    };
    let last = match end {
        Some(bound) => (bound_steps(data_type, bound)?.ceil() - 1).min(*values.end()),
        None => *values.end(),
    };
    Ok((first <= last).then(|| key_of_value(data_type, first)..=key_of_value(data_type, last)))
}

/// The keys that lie in `first..=last`, both included.
///
/// ```
/// # use thalweg_table::{TimeBound, time::key_box};
/// use arrow_schema::DataType;
///
/// let (first, last) = (TimeBound::Text("2026-03-01"), TimeBound::Text("2026-03-08"));
/// assert_eq!(key_box(&DataType::Date32, first, last).unwrap(), Some(20_513..=20_520));
/// ```
///
/// # Errors
/// When a bound is not a time of such a column.
pub fn key_box(
    data_type: &DataType,
    first: TimeBound<'_>,
    last: TimeBound<'_>,
) -> Result<Option<RangeInclusive<i64>>> {
    let values = value_range(data_type)
        .ok_or_else(|| schema(format!("{} cannot order rows", shown_type(data_type))))?;
    let first = bound_steps(data_type, first)?.ceil().max(*values.start());
    let last = bound_steps(data_type, last)?.floor().min(*values.end());
    Ok((first <= last).then(|| key_of_value(data_type, first)..=key_of_value(data_type, last)))
}

/// A point in time as a fraction of a column's steps.
struct Steps {
    amount: i128,
    per_step: i128,
}

impl Steps {
    fn floor(&self) -> i128 {
        self.amount.div_euclid(self.per_step)
    }

    fn ceil(&self) -> i128 {
        -(-self.amount).div_euclid(self.per_step)
    }

    fn exact(&self) -> Option<i128> {
        (self.amount.rem_euclid(self.per_step) == 0).then(|| self.floor())
    }
}

fn bound_steps(data_type: &DataType, bound: TimeBound<'_>) -> Result<Steps> {
    let Some(per_step) = step_ns(data_type) else {
        let amount = match bound {
            TimeBound::Int(value) => Some(value),
            TimeBound::Text(text) => text.trim().parse().ok(),
            TimeBound::Instant { .. } | TimeBound::Date(_) => None,
        };
        let clear = || {
            invalid(format!(
                "the time column is {}: give an integer, not {}",
                shown_type(data_type),
                bound.shown()
            ))
        };
        // Two bits of room, so that rounding cannot overflow.
        let amount = amount
            .ok_or_else(clear)?
            .clamp(i128::MIN / 4, i128::MAX / 4);
        return Ok(Steps {
            amount,
            per_step: 1,
        });
    };
    Ok(match bound {
        TimeBound::Int(value) => Steps {
            amount: value.clamp(i128::MIN / 4, i128::MAX / 4),
            per_step: 1,
        },
        TimeBound::Text(text) => Steps {
            amount: parse_instant_ns(text)?,
            per_step,
        },
        TimeBound::Instant { value, unit } => Steps {
            amount: i128::from(value) * i128::from(unit_ns(unit)),
            per_step,
        },
        TimeBound::Date(days) => Steps {
            amount: i128::from(days) * i128::from(DAY_NS),
            per_step,
        },
    })
}

/// The value in `data_type` (a timestamp or date) of a text, if it is a whole number of its steps and in its range.
///
/// # Errors
/// When it is not.
pub(crate) fn parse_time(text: &str, data_type: &DataType) -> Result<i64> {
    let steps = bound_steps(data_type, TimeBound::Text(text))?;
    let value = steps.exact().ok_or_else(|| {
        schema(format!(
            "\"{text}\" is more precise than {}",
            shown_type(data_type)
        ))
    })?;
    in_range(data_type, value).ok_or_else(|| out_of_domain(data_type, value))
}

/// `value` if a timestamp or date of this type can hold it.
pub(crate) fn in_range(data_type: &DataType, value: i128) -> Option<i64> {
    let range = value_range(data_type)?;
    range
        .contains(&value)
        .then(|| i64::try_from(value).ok())
        .flatten()
}

/// Nanoseconds since 1970-01-01 UTC of an ISO 8601 text; years 0 to 9999.
fn parse_instant_ns(text: &str) -> Result<i128> {
    let text = text.trim();
    let not_a_time = || {
        invalid(format!(
            "\"{text}\" is not a time; write for example 2026-01-31, 2026-01-31T09:30:00.25 or 2026-01-31T09:30:00+02:00"
        ))
    };
    // The parser below wants two digits of the hour, and seconds.
    let full = full_time_text(text).map_or(Cow::Borrowed(text), Cow::Owned);
    // Digits after the ninth would be dropped silently.
    let fraction = full.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    if digits.skip(9).any(|digit| digit != b'0') {
        return Err(invalid(format!(
            "\"{text}\" is more precise than a nanosecond"
        )));
    }
    let utc: Tz = "+00:00".parse().map_err(|_| not_a_time())?;
    let instant = string_to_datetime(&utc, &full).map_err(|_| not_a_time())?;
    Ok(i128::from(instant.timestamp()) * i128::from(SECOND_NS)
        + i128::from(instant.timestamp_subsec_nanos()))
}

/// `2024-1-1 6:05` or `2024/01/01` and what may follow it, with two digits of month, day and hour, and with seconds; 24:00 as the
/// midnight that it is. `None` where nothing of that is to be changed, or the text is no such time.
///
/// ```
/// # use thalweg_table::full_time_text;
/// assert_eq!(full_time_text("2024/5/6 7:08").as_deref(), Some("2024-05-06 07:08:00"));
/// assert_eq!(full_time_text("2024-02-28 24:00").as_deref(), Some("2024-02-29 00:00:00"));
/// assert_eq!(full_time_text("2024-05-06 07:08:00"), None); // nothing is to be changed
/// ```
pub fn full_time_text(text: &str) -> Option<String> {
    let text = text.trim();
    let steps = [with_whole_day, with_clock, with_next_midnight];
    steps.into_iter().fold(None, |whole, step| {
        let changed = step(whole.as_deref().unwrap_or(text));
        changed.or(whole)
    })
}

/// A text that begins with a day as `2024/1/2`, which is `2024-01-02`.
fn with_whole_day(text: &str) -> Option<String> {
    let (year, rest) = text.split_at_checked(4)?;
    let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/'))?;
    let (month, rest) = rest[1..].split_once(separator)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (day, rest) = rest.split_at(digits);
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let are_numbers = are_digits(year) && are_digits(month);
    let is_day = matches!(month.len(), 1 | 2) && matches!(day.len(), 1 | 2) && are_numbers;
    let follows = rest.is_empty() || rest.starts_with([' ', 'T', 't']);
    let is_whole = separator == '-' && month.len() == 2 && day.len() == 2;
    (is_day && follows && !is_whole).then(|| format!("{year}-{month:0>2}-{day:0>2}{rest}"))
}

fn with_clock(text: &str) -> Option<String> {
    const DAY: &[u8; 10] = b"0000-00-00";
    let (day, rest) = text.split_at_checked(DAY.len())?;
    let is_day = day.bytes().zip(DAY).all(|(is, wanted)| match wanted {
        b'0' => is.is_ascii_digit(),
        wanted => is == *wanted,
    });
    let separator = rest.chars().next().filter(|c| matches!(c, ' ' | 'T' | 't'));
    let (hour, rest) = rest.get(1..)?.split_once(':')?;
    let (minute, rest) = rest.split_at_checked(2)?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = matches!(hour.len(), 1 | 2) && are_digits(hour) && are_digits(minute) && is_day;
    let has_seconds = rest.starts_with(':');
    let follows = has_seconds || rest.is_empty() || rest.starts_with(['Z', 'z', '+', '-', ' ']);
    if !is_time || !follows || has_seconds && hour.len() == 2 {
        return None;
    }
    let separator = separator?;
    let seconds = if has_seconds { "" } else { ":00" };
    Some(format!(
        "{day}{separator}{hour:0>2}:{minute}{seconds}{rest}"
    ))
}

/// A text with the clock `24:00:00`, the midnight that ends its day, as the first of the day after.
fn with_next_midnight(text: &str) -> Option<String> {
    const CLOCK: &str = "24:00:00";
    let (day, rest) = text.split_at_checked("0000-00-00".len())?;
    let (separator, rest) = rest.split_at_checked(1)?;
    let rest = rest.strip_prefix(CLOCK)?;
    let fraction = rest.strip_prefix('.').unwrap_or("");
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    if !matches!(separator, " " | "T" | "t") || digits.into_iter().any(|digit| digit != b'0') {
        return None;
    }
    let day = NaiveDate::parse_from_str(day, "%Y-%m-%d")
        .ok()?
        .succ_opt()?;
    Some(format!("{day}{separator}00:00:00{rest}"))
}

fn out_of_domain(data_type: &DataType, value: i128) -> Error {
    Error::new(
        ErrorKind::OutOfDomain,
        format!("{value} is outside the range of {}", shown_type(data_type)),
    )
}

/// Lengths of time that others are written in, longest first.
const LENGTHS: [(&str, i64); 5] = [
    ("day", DAY_NS),
    ("hour", DAY_NS / 24),
    ("minute", DAY_NS / 1_440),
    ("second", DAY_NS / 86_400),
    ("nanosecond", 1),
];

/// Regular cuts of the order key: blocks and fragments never reach across one.
///
/// Cut number `n` holds the keys from `origin + n * every` up to the next cut.
///
/// ```
/// # use thalweg_table::Split;
/// use arrow_schema::{DataType, TimeUnit};
///
/// let seconds = DataType::Timestamp(TimeUnit::Second, None);
/// let hours = Split::parse("1 hour", &seconds).unwrap();
/// assert_eq!(hours.range_of(4_000), 3_600..=7_199);
/// assert_eq!(hours.ends(&[0, 10, 3_600, 9_000]).collect::<Vec<_>>(), [2, 3, 4]);
/// assert_eq!(hours.to_text(&seconds), "1 hour");
/// assert!(Split::parse("250 ms", &seconds).is_err()); // no whole number of seconds
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    every: i64,
    origin: i64,
}

impl Split {
    /// Cuts `every` keys apart, one of them at `origin`.
    ///
    /// # Errors
    /// When `every` is not positive.
    pub fn new(every: i64, origin: i64) -> Result<Self> {
        if every <= 0 {
            return Err(invalid(format!("a split of {every} is not positive")));
        }
        Ok(Self { every, origin })
    }

    /// A split as users write it: "1 day", "12 hours", "week", or a plain number for integer columns. Days begin at
    /// midnight UTC, weeks on Monday.
    ///
    /// # Errors
    /// When it cannot be read or is not a whole number of the column's steps.
    pub fn parse(text: &str, data_type: &DataType) -> Result<Self> {
        let zero = key_of_value(data_type, 0);
        let Some(step_ns) = step_ns(data_type) else {
            let every = text.trim().parse().map_err(|_| {
                invalid(format!(
                    "a split of \"{text}\" is not a number, which a time column of type {} needs",
                    shown_type(data_type)
                ))
            })?;
            return Self::new(every, zero);
        };
        let (length_ns, in_weeks) = parse_length_ns(text)?;
        let every = (length_ns % step_ns == 0)
            .then(|| i64::try_from(length_ns / step_ns).ok())
            .flatten();
        let every = every.ok_or_else(|| {
            invalid(format!(
                "a split of \"{text}\" is not a whole number of steps of {}",
                shown_type(data_type)
            ))
        })?;
        // 1970-01-01 was a Thursday: the Monday before it is three days earlier.
        let three_days = i64::try_from(3 * i128::from(DAY_NS) / step_ns)
            .map_err(|_| invalid("a unit below nanoseconds"))?;
        Self::new(every, if in_weeks { zero - three_days } else { zero })
    }

    /// The split as users write it for a column of this type: [`Self::parse`] reads it back.
    pub fn to_text(&self, data_type: &DataType) -> String {
        let Some(step_ns) = step_ns(data_type) else {
            return self.every.to_string();
        };
        let week_ns = 7 * i128::from(DAY_NS);
        let length_ns = i128::from(self.every) * step_ns;
        // Weeks begin on Monday, everything else at the epoch.
        if self.origin != 0 && length_ns % week_ns == 0 {
            return counted(length_ns / week_ns, "week");
        }
        length_to_text(length_ns)
    }

    /// Keys from one cut to the next.
    pub fn every(&self) -> i64 {
        self.every
    }

    /// The key of one of the cuts.
    pub fn origin(&self) -> i64 {
        self.origin
    }

    /// The number of the cut that `key` lies in; rises with the key.
    pub fn split_of(&self, key: i64) -> i64 {
        // The distance of two keys may need 65 bits; only cuts of one key at the far end of time saturate.
        let number = (i128::from(key) - i128::from(self.origin)).div_euclid(i128::from(self.every));
        i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
    }

    /// The first and last key that lie in the same cut as `key`.
    pub fn range_of(&self, key: i64) -> RangeInclusive<i64> {
        let offset = (i128::from(key) - i128::from(self.origin)).rem_euclid(i128::from(self.every));
        let first = i128::from(key) - offset;
        let last = first + i128::from(self.every) - 1;
        let clamped = |value: i128| {
            i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
        };
        clamped(first)..=clamped(last)
    }

    /// Where sorted `keys` have to be cut: the ends of the runs of keys in one cut, the last being `keys.len()`.
    /// Nothing for no keys.
    pub fn ends<'a>(&self, keys: &'a [i64]) -> impl Iterator<Item = usize> + use<'a> {
        let split = *self;
        let mut start = 0;
        std::iter::from_fn(move || {
            let last = *split.range_of(*keys.get(start)?).end();
            start += keys[start..].partition_point(|&key| key <= last);
            Some(start)
        })
    }
}

/// A length of time in the largest unit that it is a whole number of: [`parse_length`] reads it back.
pub(crate) fn length_to_text(length_ns: i128) -> String {
    let mut lengths = LENGTHS.iter().copied();
    let fits = lengths.find(|(_, unit_ns)| length_ns % i128::from(*unit_ns) == 0);
    let (name, unit_ns) = fits.unwrap_or(("nanosecond", 1));
    counted(length_ns / i128::from(unit_ns), name)
}

fn counted(count: i128, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A length of time as users write it: "10 minutes", "1 day", "250 ms".
///
/// ```
/// # use thalweg_table::time::parse_length;
/// use std::time::Duration;
///
/// assert_eq!(parse_length("15 minutes").unwrap(), Duration::from_secs(900));
/// assert_eq!(parse_length("250ms").unwrap(), Duration::from_millis(250));
/// assert!(parse_length("soon").is_err());
/// ```
///
/// # Errors
/// When it cannot be read.
pub fn parse_length(text: &str) -> Result<Duration> {
    let (length_ns, _) = parse_length_ns(text)?;
    // At most 64 bits, as checked there.
    Ok(Duration::from_nanos(
        u64::try_from(length_ns).unwrap_or(u64::MAX),
    ))
}

/// A length of time and whether it was given in weeks.
fn parse_length_ns(text: &str) -> Result<(i128, bool)> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let count: i128 = if digits == 0 {
        1
    } else {
        lower[..digits].parse().unwrap_or(0)
    };
    let unit = lower[digits..].trim();
    let hour_ns = 3_600 * SECOND_NS;
    let length_ns = match unit {
        "w" | "week" | "weeks" => 7 * DAY_NS,
        "d" | "day" | "days" => DAY_NS,
        "h" | "hour" | "hours" => hour_ns,
        "m" | "min" | "mins" | "minute" | "minutes" => hour_ns / 60,
        "sec" | "secs" => SECOND_NS,
        other => parse_unit(other).map_or(0, unit_ns),
    };
    // At most the reach of 64 bits of nanoseconds, about 292 years.
    let total_ns = count
        .checked_mul(length_ns.into())
        .filter(|&total| total > 0 && total <= i64::MAX.into());
    total_ns.map(|total| (total, length_ns == 7 * DAY_NS)).ok_or_else(|| {
        invalid(format!(
            "\"{text}\" is not a length of time; write for example \"1 day\", \"12 hours\", \"15 minutes\" or \"1 week\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_written_as_they_are_given() {
        let (ns, date) = (
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Date32,
        );
        let text = |every, origin, data_type| {
            let split = Split::new(every, origin).unwrap();
            let text = split.to_text(data_type);
            assert_eq!(Split::parse(&text, data_type).unwrap().every(), every);
            text
        };
        assert_eq!(text(86_400_000_000_000, 0, &ns), "1 day");
        assert_eq!(text(5_400_000_000_000, 0, &ns), "90 minutes");
        assert_eq!(text(7, -3, &date), "1 week");
        assert_eq!(text(1_000, 0, &DataType::Int64), "1000");
    }

    #[test]
    fn seconds_are_added_where_there_are_none() {
        for (text, with) in [
            ("2024-01-01 06:00", Some("2024-01-01 06:00:00")),
            ("2024-01-01T06:00Z", Some("2024-01-01T06:00:00Z")),
            (
                " 2024-01-01 06:00+02:00 ",
                Some("2024-01-01 06:00:00+02:00"),
            ),
            (
                "2024-01-01 06:00 Europe/Berlin",
                Some("2024-01-01 06:00:00 Europe/Berlin"),
            ),
            ("2024-01-01 06:00:00", None),
            ("2024-01-01", None),
            ("2024-01-01 06:0x", None),
            ("2024-01-01 06:00x", None),
            ("2024-01-01 6:05", Some("2024-01-01 06:05:00")),
            ("2024-01-01T6:05:07.5Z", Some("2024-01-01T06:05:07.5Z")),
            ("2024-1-2", Some("2024-01-02")),
            ("2024/05/06", Some("2024-05-06")),
            ("2024/5/6 7:08", Some("2024-05-06 07:08:00")),
            ("2024-1-2T10:00:00Z", Some("2024-01-02T10:00:00Z")),
            ("2024/1-2", None),
            ("24/1/2", None),
            ("2024-1-2x", None),
            ("2024-1-", None),
            ("2024-02-28 24:00", Some("2024-02-29 00:00:00")),
            ("2023-12-31T24:00:00.00Z", Some("2024-01-01T00:00:00.00Z")),
            ("2024/1/2 24:00:00+02:00", Some("2024-01-03 00:00:00+02:00")),
            ("2024-01-01 24:00:01", None),
            ("2024-01-01 24:00:00.5", None),
            ("2024-02-30 24:00:00", None),
            ("2024-01-01 106:05", None),
            ("2024-01-01 :05", None),
            ("2024-01-01_6:05", None),
            ("2024-01-01 6:5", None),
            ("ä024-01-01 6:05", None),
            ("", None),
        ] {
            assert_eq!(full_time_text(text).as_deref(), with, "{text}");
        }
    }
}
