//! Casts that lose nothing.
//!
//! Invariants: a cast succeeds only if every value survives the way there and back bit for bit, or if the types prove
//! that all values do. Integers given for a time are in its unit; naive times are UTC; text for a time is ISO 8601. A
//! decimal goes into a float that is written with the same digits, as 0.1 is, though no float equals it, and the other way. A
//! wider float becomes the nearest narrower one: whoever wants such a column wants these digits. None becomes an infinity.

use crate::schema::element_type;
use crate::time::parse_time;
use crate::value::{decimal_to_float, float_to_decimal};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, make_array, new_null_array};
use arrow_buffer::OffsetBuffer;
use arrow_cast::CastOptions;
use arrow_schema::{ArrowError, DataType};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// Why an array was not cast.
pub(crate) enum Refused {
    /// Values of these types are never exchanged.
    Types,
    /// The value in this row does not survive.
    Value(usize),
    /// Over 2 GiB of strings, the reach of 32 bit offsets.
    TooLarge,
    /// Arrow could not do it.
    Arrow(ArrowError),
}

impl From<ArrowError> for Refused {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::OffsetOverflowError(_) => Self::TooLarge,
            other => Self::Arrow(other),
        }
    }
}

/// Types between which values can be exchanged at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Bool,
    Int,
    Float,
    Decimal,
    Text,
    Bytes,
    Time,
    Duration,
}

impl Family {
    fn of(data_type: &DataType) -> Option<Self> {
        use DataType as T;
        Some(match data_type {
            T::Boolean => Self::Bool,
            other if other.is_integer() => Self::Int,
            other if other.is_floating() => Self::Float,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
                Self::Decimal
            }
            T::Utf8 | T::LargeUtf8 | T::Utf8View => Self::Text,
            T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => Self::Bytes,
            T::Timestamp(..) | T::Date32 | T::Date64 => Self::Time,
            T::Duration(_) => Self::Duration,
            _ => return None,
        })
    }

    fn exchanges_with(self, to: Self) -> bool {
        use Family as F;
        self == to
            || matches!(
                (self, to),
                (F::Int, F::Float | F::Decimal | F::Time | F::Duration)
                    | (F::Float, F::Int | F::Decimal)
                    | (F::Decimal, F::Int | F::Float)
                    | (F::Text, F::Bytes | F::Time)
                    | (F::Bytes, F::Text)
            )
    }
}

/// `array` as the stored type `to`.
pub(crate) fn lossless(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused> {
    debug_assert!(element_type(to).is_some(), "{to} is not a stored type");
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        DataType::Null => return Ok(new_null_array(to, array.len())),
        DataType::Dictionary(..) => return from_dictionary(array, to),
        DataType::RunEndEncoded(_, values) => {
            let plain = arrow_cast::cast(array, values.data_type())?;
            return lossless(&plain, to);
        }
        _ => {}
    }
    let (Some(from_family), Some(to_family)) = (Family::of(array.data_type()), Family::of(to))
    else {
        return Err(Refused::Types);
    };
    if !from_family.exchanges_with(to_family) {
        return Err(Refused::Types);
    }
    match (from_family, to_family) {
        (Family::Text, Family::Time) => parse_times(array, to),
        (Family::Decimal, Family::Float) if *to == DataType::Float32 => {
            decimals_to_floats::<Float32Type>(array)
        }
        (Family::Decimal, Family::Float) => decimals_to_floats::<Float64Type>(array),
        (Family::Int, Family::Time | Family::Duration) => {
            let raw = if *to == DataType::Date32 {
                DataType::Int32
            } else {
                DataType::Int64
            };
            Ok(relabel(&checked(array, &raw)?, to)?)
        }
        (Family::Float, Family::Decimal) => match array.data_type() {
            DataType::Float16 => lossless(&arrow_cast::cast(array, &DataType::Float32)?, to),
            DataType::Float32 => floats_to_decimals::<Float32Type>(array, to),
            _ => floats_to_decimals::<Float64Type>(array, to),
        },
        (Family::Float, Family::Float) => nearest(array, to),
        (Family::Bytes, Family::Text)
            if matches!(array.data_type(), DataType::FixedSizeBinary(_)) =>
        {
            // Arrow has no cast of these to text.
            lossless(&arrow_cast::cast(array, &DataType::LargeBinary)?, to)
        }
        (Family::Text | Family::Bytes, _) => {
            if bytes_of(array) > i32::MAX as u64 {
                return Err(Refused::TooLarge);
            }
            checked(array, to)
        }
        (Family::Time, Family::Time) => {
            // Arrow reads a naive time as local when it is given a zone; here naive means UTC. So zones are taken
            // off before the units are changed and put on after.
            let naive = relabel(array, &without_zone(array.data_type()))?;
            Ok(relabel(&checked(&naive, &without_zone(to))?, to)?)
        }
        _ => checked(array, to),
    }
}

/// Casts the distinct values and spreads them over the rows.
fn from_dictionary(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused> {
    let dictionary = array.as_any_dictionary();
    // Taking fails with an offset overflow, not a panic, when the rows spell out to more than 2 GiB.
    let spread = |values: &ArrayRef| arrow_select::take::take(values, dictionary.keys(), None);
    match lossless(dictionary.values(), to) {
        Ok(values) => Ok(spread(&values)?),
        // The value may be in no row at all, and the message wants the row: look at the rows themselves.
        Err(Refused::Value(_)) => lossless(&spread(dictionary.values())?, to),
        Err(refused) => Err(refused),
    }
}

/// The nearest floats of another width.
fn nearest(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused> {
    let there = arrow_cast::cast(array, to)?;
    if array.data_type() != &DataType::Float64 || to == &DataType::Float64 {
        return Ok(there);
    }
    let (given, narrow) = (
        array.as_primitive::<Float64Type>(),
        there.as_primitive::<Float32Type>(),
    );
    let pairs = given.iter().zip(narrow);
    let is_beyond = |(given, narrow): (Option<f64>, Option<f32>)| {
        narrow.is_some_and(f32::is_infinite) && given.is_some_and(f64::is_finite)
    };
    match pairs.map(is_beyond).position(|is_beyond| is_beyond) {
        None => Ok(there),
        Some(row) => Err(Refused::Value(row)),
    }
}

/// The decimals of the shortest digits that are these floats.
fn floats_to_decimals<T>(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused>
where
    T: ArrowPrimitiveType,
    T::Native: Display,
{
    let &DataType::Decimal128(precision, scale) = to else {
        return Err(Refused::Types);
    };
    let mut values = Vec::with_capacity(array.len());
    for (row, float) in array.as_primitive::<T>().iter().enumerate() {
        let decimal =
            float.map(|float| float_to_decimal(float, precision, scale).ok_or(Refused::Value(row)));
        values.push(decimal.transpose()?);
    }
    let decimals = PrimitiveArray::<Decimal128Type>::from_iter(values);
    Ok(Arc::new(
        decimals.with_precision_and_scale(precision, scale)?,
    ))
}

/// Casts there and, unless the types make that pointless, back.
fn checked(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    // Safe casts turn what does not fit into nulls, which then differ from what was given.
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let there = arrow_cast::cast_with_options(array, to, &options)?;
    if always_exact(array.data_type(), to) {
        return Ok(there);
    }
    let back = arrow_cast::cast_with_options(&there, array.data_type(), &options)?;
    let differs = arrow_ord::cmp::distinct(array, &back)?;
    match differs.values().set_indices().next() {
        None => Ok(there),
        Some(row) => Err(Refused::Value(row)),
    }
}

/// Casts that keep every value whatever it is.
fn always_exact(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let text = |data_type: &T| matches!(data_type, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let bytes = |data_type: &T| {
        matches!(
            data_type,
            T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_)
        )
    };
    let bits = |data_type: &T| data_type.primitive_width().map_or(0, |bytes| bytes * 8);
    match (from, to) {
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => bits(from) <= bits(to),
        (from, to) if from.is_unsigned_integer() && to.is_unsigned_integer() => {
            bits(from) <= bits(to)
        }
        (from, to) if from.is_unsigned_integer() && to.is_signed_integer() => bits(from) < bits(to),
        (from, T::Float64) if from.is_integer() => bits(from) <= 32,
        (from, T::Float32) if from.is_integer() => bits(from) <= 16,
        (T::Float16, T::Float32 | T::Float64) | (T::Float32, T::Float64) => true,
        (from, to) => (text(from) && (text(to) || bytes(to))) || (bytes(from) && bytes(to)),
    }
}

/// The same memory under another type of the same width.
fn relabel(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    Ok(make_array(
        array
            .to_data()
            .into_builder()
            .data_type(to.clone())
            .build()?,
    ))
}

fn without_zone(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, None),
        other => other.clone(),
    }
}

/// Reads every text as ISO 8601.
fn parse_times(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refused> {
    let text = arrow_cast::cast(array, &DataType::LargeUtf8)?;
    let text = text.as_string::<i64>();
    let mut values = Vec::with_capacity(text.len());
    for (row, value) in text.iter().enumerate() {
        let parsed = value
            .map(|value| parse_time(value, to))
            .transpose()
            .map_err(|_| Refused::Value(row))?;
        values.push(parsed);
    }
    if *to == DataType::Date32 {
        // Parsed in the range of the type, so no value is lost here.
        let days = values
            .into_iter()
            .map(|value| value.and_then(|days| i32::try_from(days).ok()));
        return Ok(Arc::new(PrimitiveArray::<Date32Type>::from_iter(days)));
    }
    let ticks: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from_iter(values));
    Ok(relabel(&ticks, to)?)
}

/// Floats that are written with the same digits as the decimals.
fn decimals_to_floats<T>(array: &ArrayRef) -> Result<ArrayRef, Refused>
where
    T: ArrowPrimitiveType,
    T::Native: FromStr + Display,
{
    let text = arrow_cast::cast(array, &DataType::Utf8)?;
    let mut values = Vec::with_capacity(text.len());
    for (row, value) in text.as_string::<i32>().iter().enumerate() {
        let near = value.map(|value| decimal_to_float(value).ok_or(Refused::Value(row)));
        values.push(near.transpose()?);
    }
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values)))
}

/// Bytes of all strings or binary values of an array that is no dictionary.
fn bytes_of(array: &ArrayRef) -> u64 {
    use DataType as T;
    // Offsets have at least one element.
    let span = |offsets: &OffsetBuffer<i64>| offsets[offsets.len() - 1].abs_diff(offsets[0]);
    match array.data_type() {
        T::LargeUtf8 => span(array.as_string::<i64>().offsets()),
        T::LargeBinary => span(array.as_binary::<i64>().offsets()),
        T::Utf8View => array.as_string_view().lengths().map(u64::from).sum(),
        T::BinaryView => array.as_binary_view().lengths().map(u64::from).sum(),
        T::FixedSizeBinary(bytes) => u64::from(bytes.unsigned_abs()) * array.len() as u64,
        _ => 0,
    }
}
