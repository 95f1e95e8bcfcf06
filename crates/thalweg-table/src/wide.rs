//! Numbers in a wider type, so that adding up as many of them as there can be does not overflow.
//!
//! Invariants: integers, durations and decimals of at most 64 bits become decimals of 128 bits, decimals of 128 bits
//! become decimals of 256; values, scale and nulls stay.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Int64Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Decimal128Array, Decimal256Array, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;

/// The type that values of `data_type` are summed in; `None` unless it is an integer of 64 bits, a duration or a decimal of at
/// most 128 bits.
pub fn wide_type(data_type: &DataType) -> Option<DataType> {
    use DataType as T;
    match data_type {
        T::Int64 | T::UInt64 | T::Duration(_) => Some(T::Decimal128(38, 0)),
        T::Decimal32(_, scale) | T::Decimal64(_, scale) => Some(T::Decimal128(38, *scale)),
        T::Decimal128(_, scale) => Some(T::Decimal256(76, *scale)),
        _ => None,
    }
}

/// The same values in their [`wide_type`].
pub fn widened(array: &dyn Array) -> Option<ArrayRef> {
    by_type(array, &Each)
}

/// Returns the sum of all values as an array with one value, null if there are none; `None` as for [`wide_type`].
///
/// ```
/// # use thalweg_table::wide::widened_sum;
/// use arrow_array::{Array, Decimal128Array, Int64Array};
///
/// let energy = Int64Array::from(vec![i64::MAX, i64::MAX]);
/// let sum = widened_sum(&energy).unwrap();
/// let sum = sum.as_any().downcast_ref::<Decimal128Array>().unwrap();
/// assert_eq!(sum.value(0), 2 * i128::from(i64::MAX));
/// ```
pub fn widened_sum(array: &dyn Array) -> Option<ArrayRef> {
    by_type(array, &Sum)
}

/// An operation on the values of an array.
trait Work {
    fn narrow<T: ArrowPrimitiveType>(&self, array: &PrimitiveArray<T>) -> Decimal128Array
    where
        T::Native: Into<i128>;
    fn decimals(&self, array: &Decimal128Array) -> Decimal256Array;
}

fn by_type(array: &dyn Array, work: &impl Work) -> Option<ArrayRef> {
    use DataType as T;
    let to = wide_type(array.data_type())?;
    let wide = match array.data_type() {
        T::Int64 => work.narrow(array.as_primitive::<Int64Type>()),
        T::UInt64 => work.narrow(array.as_primitive::<UInt64Type>()),
        T::Duration(unit) => match unit {
            TimeUnit::Second => work.narrow(array.as_primitive::<DurationSecondType>()),
            TimeUnit::Millisecond => work.narrow(array.as_primitive::<DurationMillisecondType>()),
            TimeUnit::Microsecond => work.narrow(array.as_primitive::<DurationMicrosecondType>()),
            TimeUnit::Nanosecond => work.narrow(array.as_primitive::<DurationNanosecondType>()),
        },
        T::Decimal32(..) => work.narrow(array.as_primitive::<Decimal32Type>()),
        T::Decimal64(..) => work.narrow(array.as_primitive::<Decimal64Type>()),
        T::Decimal128(..) => {
            let wide = work.decimals(array.as_primitive::<Decimal128Type>());
            return Some(Arc::new(wide.with_data_type(to)));
        }
        _ => return None,
    };
    Some(Arc::new(wide.with_data_type(to)))
}

struct Each;

impl Work for Each {
    fn narrow<T: ArrowPrimitiveType>(&self, array: &PrimitiveArray<T>) -> Decimal128Array
    where
        T::Native: Into<i128>,
    {
        array.unary(Into::into)
    }

    fn decimals(&self, array: &Decimal128Array) -> Decimal256Array {
        array.unary::<_, Decimal256Type>(i256::from_i128)
    }
}

struct Sum;

impl Work for Sum {
    fn narrow<T: ArrowPrimitiveType>(&self, array: &PrimitiveArray<T>) -> Decimal128Array
    where
        T::Native: Into<i128>,
    {
        let sum = match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            // As many values as fit in memory stay far below 128 bits.
            None => array.values().iter().map(|value| (*value).into()).sum(),
            Some(_) => array.iter().flatten().map(Into::into).sum(),
        };
        Decimal128Array::from_iter([has_values(array).then_some(sum)])
    }

    fn decimals(&self, array: &Decimal128Array) -> Decimal256Array {
        let add = |sum: i256, value| sum.wrapping_add(i256::from_i128(value));
        let sum = array.iter().flatten().fold(i256::ZERO, add);
        Decimal256Array::from_iter([has_values(array).then_some(sum)])
    }
}

fn has_values(array: &dyn Array) -> bool {
    array.null_count() < array.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{DurationNanosecondArray, Float64Array, Int64Array, UInt64Array};

    #[test]
    fn sums_go_beyond_the_type() {
        let sum = |array: &dyn Array| {
            let sum = widened_sum(array).unwrap();
            assert_eq!(Some(sum.data_type()), wide_type(array.data_type()).as_ref());
            let sum = sum.as_primitive::<Decimal128Type>();
            sum.iter().collect::<Vec<_>>()
        };
        let largest = i128::from(i64::MAX);
        let signed = Int64Array::from(vec![Some(i64::MAX), None, Some(i64::MAX)]);
        assert_eq!(sum(&signed), [Some(largest * 2)]);
        let unsigned = UInt64Array::from(vec![u64::MAX; 3]);
        assert_eq!(sum(&unsigned), [Some(i128::from(u64::MAX) * 3)]);
        let spans = DurationNanosecondArray::from(vec![i64::MIN, i64::MIN]);
        assert_eq!(sum(&spans), [Some(i128::from(i64::MIN) * 2)]);
        assert_eq!(sum(&Int64Array::from(vec![None, None])), [None]);
        assert_eq!(sum(&Int64Array::from(Vec::<i64>::new())), [None]);
        assert_eq!(sum(&signed.slice(1, 1)), [None]);
        assert!(widened_sum(&Float64Array::from(vec![1.0])).is_none());
    }

    #[test]
    fn decimals_keep_their_scale() {
        let largest = 10_i128.pow(38) - 1;
        let decimals = Decimal128Array::from(vec![Some(largest), None, Some(largest)])
            .with_precision_and_scale(38, 3)
            .unwrap();
        let sum = widened_sum(&decimals).unwrap();
        assert_eq!(sum.data_type(), &DataType::Decimal256(76, 3));
        let double = i256::from_i128(largest).wrapping_add(i256::from_i128(largest));
        assert_eq!(sum.as_primitive::<Decimal256Type>().value(0), double);
        let each = widened(&decimals).unwrap();
        let each: Vec<_> = each.as_primitive::<Decimal256Type>().iter().collect();
        let one = Some(i256::from_i128(largest));
        assert_eq!(each, [one, None, one]);
    }
}
