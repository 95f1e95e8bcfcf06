//! Single values, for rows that come one at a time.
//!
//! Invariant: a value is accepted exactly if a column of such values would be (see `cast`): if nothing is lost; rounding to a
//! narrower float does not count as a loss.

use crate::definition::Column;
use crate::error::schema;
use crate::schema::{element_type, shown_type};
use crate::time::{in_range, instant_to_text, key_to_text, parse_time, step_ns};
use crate::time_units::unit_ns;
use arrow_schema::{DataType, TimeUnit};
use std::fmt::{self, Display};
use std::str::FromStr;
use thalweg_codec::ElementType;
use thalweg_kernel::Result;

/// One value of a row.
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let columns = [("ts", "timestamp(us)"), ("meter", "varchar"), ("kwh", "decimal(12, 3)"), ("gap", "duration(s)")];
/// # let schema = schema_of_names(columns)?;
/// # let power = db.create_table("power", &schema, &CreateOptions::stream("ts"))?;
/// use arrow_schema::TimeUnit;
/// use thalweg::Value;
///
/// let started = Value::Instant { value: 1_772_366_400, unit: TimeUnit::Second };
/// let reading = Value::Decimal { unscaled: 12_345, scale: 3 }; // 12.345
/// let gap = Value::Span { value: 15_000, unit: TimeUnit::Millisecond };
/// power.put(&[started, Value::Text("north"), reading, gap], None)?;
/// power.put(&[Value::Text("2026-03-01T12:00:15Z"), Value::Text("north"), Value::Null, gap], None)?;
/// let half_a_second = Value::Span { value: 500, unit: TimeUnit::Millisecond };
/// assert!(power.put(&[started, Value::Text("north"), reading, half_a_second], None).is_err());
/// assert_eq!(power.view()?.row_count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer; for a time or duration it is in the unit of the column.
    Int(i64),
    /// An unsigned integer; as [`Self::Int`].
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// `unscaled` times ten to the power of minus `scale`.
    Decimal {
        /// The digits.
        unscaled: i128,
        /// How many of them are after the point.
        scale: i8,
    },
    /// A string; for a time it is ISO 8601.
    Text(&'a str),
    /// Binary.
    Bytes(&'a [u8]),
    /// A point in time, counted from 1970-01-01 UTC.
    Instant {
        /// The number of units since 1970-01-01 UTC.
        value: i64,
        /// The unit.
        unit: TimeUnit,
    },
    /// Days since 1970-01-01.
    Date(i32),
    /// A length of time.
    Span {
        /// The number of units.
        value: i64,
        /// The unit.
        unit: TimeUnit,
    },
}

/// Why a value does not go into a column.
enum Misfit {
    Type,
    Lossy,
    /// Outside of the range of the type.
    Beyond,
    /// The text is no time of the column, for this reason.
    NoTime(String),
}

impl Value<'_> {
    /// Appends the value in the fixed width of the column's type, little-endian; an integer comes back as `i64` for
    /// whoever needs the order key (`u64` with the same bits).
    pub(crate) fn put_fixed(&self, column: &Column, out: &mut Vec<u8>) -> Result<i64> {
        self.fixed(&column.data_type, out)
            .map_err(|misfit| self.refuse(column, &misfit))
    }

    fn fixed(&self, to: &DataType, out: &mut Vec<u8>) -> Result<i64, Misfit> {
        macro_rules! put {
            ($type:ty, $value:expr) => {{
                let exact = i128::from($value);
                let value = <$type>::try_from(exact).map_err(|_| Misfit::Lossy)?;
                out.extend_from_slice(&value.to_le_bytes());
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the conversion above proves 64 bits enough"
                )]
                Ok(exact as i64)
            }};
        }
        match element_type(to).ok_or(Misfit::Type)? {
            ElementType::I8 => put!(i8, self.integer()?),
            ElementType::I16 => put!(i16, self.integer()?),
            ElementType::I32 if *to == DataType::Date32 => put!(i32, self.time(to)?),
            ElementType::I32 => put!(i32, self.integer()?),
            ElementType::I64 => match to {
                DataType::Timestamp(..) => put!(i64, self.time(to)?),
                DataType::Duration(unit) => put!(i64, self.span(*unit)?),
                _ => put!(i64, self.integer()?),
            },
            ElementType::U8 => put!(u8, self.integer()?),
            ElementType::U16 => put!(u16, self.integer()?),
            ElementType::U32 => put!(u32, self.integer()?),
            ElementType::U64 => put!(u64, self.integer()?),
            ElementType::F32 => {
                if let Value::Decimal { unscaled, scale } = *self {
                    let near: f32 = float_of_decimal(&plain_decimal(unscaled, scale))?;
                    out.extend_from_slice(&near.to_le_bytes());
                    return Ok(0);
                }
                let exact = self.float()?;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the nearest one is wanted; what is beyond is looked for below"
                )]
                let narrow = exact as f32;
                // An integer is exact or refused, as in any other column.
                let is_exact = f64::from(narrow).to_bits() == exact.to_bits();
                if !is_exact && !matches!(self, Value::Float(_)) {
                    return Err(Misfit::Lossy);
                }
                if narrow.is_infinite() && exact.is_finite() {
                    return Err(Misfit::Beyond);
                }
                out.extend_from_slice(&narrow.to_le_bytes());
                Ok(0)
            }
            ElementType::F64 => {
                out.extend_from_slice(&self.float()?.to_le_bytes());
                Ok(0)
            }
            ElementType::I128 => {
                out.extend_from_slice(&self.decimal(to)?.to_le_bytes());
                Ok(0)
            }
            ElementType::Bytes | ElementType::Bits => Err(Misfit::Type),
        }
    }

    /// The boolean, for a boolean column.
    pub(crate) fn boolean(&self, column: &Column) -> Result<bool> {
        match self {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.refuse(column, &Misfit::Type)),
        }
    }

    /// The bytes, for a string or binary column.
    pub(crate) fn bytes(&self, column: &Column) -> Result<&[u8]> {
        match self {
            Value::Text(text) => Ok(text.as_bytes()),
            Value::Bytes(bytes) if column.data_type == DataType::Binary => Ok(bytes),
            Value::Bytes(bytes) if std::str::from_utf8(bytes).is_ok() => Ok(bytes),
            Value::Bytes(_) => Err(self.refuse(column, &Misfit::Lossy)),
            _ => Err(self.refuse(column, &Misfit::Type)),
        }
    }

    fn integer(&self) -> Result<i128, Misfit> {
        match *self {
            Value::Int(value) => Ok(value.into()),
            Value::UInt(value) => Ok(value.into()),
            Value::Decimal { unscaled, scale } => whole_decimal(unscaled, scale),
            Value::Float(value) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "compared with the exact value below"
                )]
                let whole = value as i128;
                #[expect(clippy::cast_precision_loss, reason = "this is the comparison")]
                let back = whole as f64;
                // All 64 bit integers lie far inside the saturating range of i128.
                if back.to_bits() == value.to_bits() {
                    Ok(whole)
                } else {
                    Err(Misfit::Lossy)
                }
            }
            _ => Err(Misfit::Type),
        }
    }

    fn float(&self) -> Result<f64, Misfit> {
        let whole = match *self {
            Value::Float(value) => return Ok(value),
            Value::Int(value) => i128::from(value),
            Value::UInt(value) => i128::from(value),
            Value::Decimal { unscaled, scale } => {
                return float_of_decimal(&plain_decimal(unscaled, scale));
            }
            _ => return Err(Misfit::Type),
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "compared with the exact value below"
        )]
        let near = whole as f64;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float made of a 65 bit integer fits"
        )]
        let back = near as i128;
        if back == whole {
            Ok(near)
        } else {
            Err(Misfit::Lossy)
        }
    }

    /// A timestamp or date in the steps of the type `to`.
    fn time(&self, to: &DataType) -> Result<i64, Misfit> {
        let per_step = step_ns(to).ok_or(Misfit::Type)?;
        let instant_ns = match *self {
            Value::Int(value) => return in_range(to, value.into()).ok_or(Misfit::Lossy),
            Value::UInt(value) => return in_range(to, value.into()).ok_or(Misfit::Lossy),
            Value::Text(text) => {
                return parse_time(text, to).map_err(|e| Misfit::NoTime(e.message().to_owned()));
            }
            Value::Instant { value, unit } => i128::from(value) * i128::from(unit_ns(unit)),
            Value::Date(days) => {
                i128::from(days) * step_ns(&DataType::Date32).ok_or(Misfit::Type)?
            }
            _ => return Err(Misfit::Type),
        };
        whole_steps(instant_ns, per_step)
            .and_then(|steps| in_range(to, steps))
            .ok_or(Misfit::Lossy)
    }

    fn span(&self, to: TimeUnit) -> Result<i128, Misfit> {
        match *self {
            Value::Int(value) => Ok(value.into()),
            Value::UInt(value) => Ok(value.into()),
            Value::Span { value, unit } => whole_steps(
                i128::from(value) * i128::from(unit_ns(unit)),
                unit_ns(to).into(),
            )
            .ok_or(Misfit::Lossy),
            _ => Err(Misfit::Type),
        }
    }

    fn decimal(&self, to: &DataType) -> Result<i128, Misfit> {
        let &DataType::Decimal128(precision, to_scale) = to else {
            return Err(Misfit::Type);
        };
        let (unscaled, scale) = match *self {
            Value::Int(value) => (value.into(), 0),
            Value::UInt(value) => (value.into(), 0),
            Value::Decimal { unscaled, scale } => (unscaled, scale),
            Value::Float(value) => {
                return float_to_decimal(value, precision, to_scale).ok_or(Misfit::Lossy);
            }
            _ => return Err(Misfit::Type),
        };
        let shift = i32::from(to_scale) - i32::from(scale);
        let factor = 10_i128.checked_pow(shift.unsigned_abs());
        let rescaled = match factor {
            _ if unscaled == 0 => Some(0),
            Some(factor) if shift >= 0 => unscaled.checked_mul(factor),
            Some(factor) => whole_steps(unscaled, factor),
            None => None,
        };
        let digits_limit = 10_u128.pow(u32::from(precision.min(38)));
        rescaled
            .filter(|value| value.unsigned_abs() < digits_limit)
            .ok_or(Misfit::Lossy)
    }

    #[cold]
    fn refuse(&self, column: &Column, misfit: &Misfit) -> thalweg_kernel::Error {
        let (name, wanted) = (&column.name, shown_type(&column.data_type));
        schema(match misfit {
            Misfit::Type => {
                let hint = match self {
                    Value::Float(x) if x.is_nan() => ": null stands for a missing value".to_owned(),
                    Value::Float(_) => no_fraction(&column.data_type),
                    _ => String::new(),
                };
                format!("column \"{name}\" is {wanted} and does not take {self}{hint}")
            }
            Misfit::Lossy => format!("column \"{name}\": {wanted} cannot hold {self} exactly"),
            Misfit::Beyond => {
                format!("column \"{name}\": {self} is outside the range of {wanted}")
            }
            Misfit::NoTime(reason) => format!("column \"{name}\": {reason}"),
        })
    }
}

/// Returns the hint for a time that was given as a number with a fraction: how to give it instead.
pub(crate) fn no_fraction(wanted: &DataType) -> String {
    let DataType::Timestamp(unit, _) = wanted else {
        return String::new();
    };
    let unit = match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    };
    format!(": give a time, a text, or {unit} since 1970 as a whole number")
}

/// A decimal without a fraction.
fn whole_decimal(unscaled: i128, scale: i8) -> Result<i128, Misfit> {
    let factor = 10_i128.checked_pow(scale.unsigned_abs().into());
    let whole = match factor {
        _ if unscaled == 0 => Some(0),
        Some(factor) if scale > 0 => whole_steps(unscaled, factor),
        Some(factor) => unscaled.checked_mul(factor),
        None => None,
    };
    whole.ok_or(Misfit::Lossy)
}

/// The float that stands for a decimal.
fn float_of_decimal<T: FromStr + Display>(decimal: &str) -> Result<T, Misfit> {
    decimal_to_float(decimal).ok_or(Misfit::Lossy)
}

/// The float nearest to a decimal, if it is written with the same digits: 0.1 is, and no number of more digits than a float
/// has.
pub(crate) fn decimal_to_float<T: FromStr + Display>(decimal: &str) -> Option<T> {
    let near: T = decimal.parse().ok()?;
    // The shortest text that reads as the float again.
    (trimmed(&near.to_string()) == trimmed(decimal)).then_some(near)
}

/// The decimal of the shortest digits that are this float, unscaled, if they fit.
pub(crate) fn float_to_decimal(float: impl Display, precision: u8, scale: i8) -> Option<i128> {
    // Plain notation; of NaN and infinities a word, which is no number.
    let text = float.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction}");
    let zeros = i32::from(scale) - i32::try_from(fraction.len()).ok()?;
    let number: i128 = digits.parse().ok()?;
    let factor = 10_i128.checked_pow(zeros.unsigned_abs())?;
    let unscaled = match zeros {
        0.. => number.checked_mul(factor)?,
        _ => whole_steps(number, factor)?,
    };
    let limit = 10_u128.pow(u32::from(precision.min(38)));
    (unscaled.unsigned_abs() < limit).then_some(unscaled)
}

/// A number in plain notation without zeros that mean nothing.
fn trimmed(number: &str) -> &str {
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    // Zero has no sign as a decimal.
    if number == "-0" { "0" } else { number }
}

/// `unscaled` times ten to the power of minus `scale`, in plain notation.
fn plain_decimal(unscaled: i128, scale: i8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs().to_string();
    let Ok(fraction) = usize::try_from(scale) else {
        let zeros = usize::from(scale.unsigned_abs());
        return format!("{sign}{digits}{}", "0".repeat(zeros));
    };
    let padded = format!("{digits:0>width$}", width = fraction + 1);
    let (whole, fraction) = padded.split_at(padded.len() - fraction);
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

fn whole_steps(amount: i128, per_step: i128) -> Option<i128> {
    (amount % per_step == 0).then(|| amount / per_step)
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::UInt(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Decimal { unscaled, scale } => f.write_str(&plain_decimal(*unscaled, *scale)),
            Value::Text(text) => write!(
                f,
                "\"{}\"",
                text.chars().take(80).collect::<String>().escape_debug()
            ),
            Value::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Value::Instant { value, unit } => f.write_str(&instant_to_text(*value, *unit)),
            Value::Date(days) => f.write_str(&key_to_text(&DataType::Date32, (*days).into())),
            Value::Span { value, unit } => write!(f, "{value} {}", crate::schema::unit_name(*unit)),
        }
    }
}
