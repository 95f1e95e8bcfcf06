//! `min` and `max` of floats by one order: NaN is larger than every number, all NaNs are alike, -0.0 comes before 0.0; and
//! of intervals by their lengths.
//!
//! DataFusion's own are right without GROUP BY as long as no NaN has its sign set; with GROUP BY whatever follows a NaN
//! replaces it, so that the order of rows decides. Invariants: a value is compared as an integer of its width whose order
//! is the order above, [`Keyed::key`]; a group without values is null.

use super::lengths::nanoseconds;
use super::sliding::Aggregate;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{max, min};
use arrow::datatypes::{
    ArrowNumericType, Float16Type, Float32Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::NullState;
use half::f16;
use std::fmt::Debug;
use std::sync::Arc;

/// A type of floats or intervals with an order.
pub(super) trait Keyed: ArrowNumericType + Debug + Send + Sync {
    type Key: Copy + Debug + Ord + Send + Sync + 'static;
    /// Whether Arrow has the same order, but for NaNs.
    const AS_ARROW: bool;
    const LEAST: Self::Native;
    const GREATEST: Self::Native;

    fn key(value: Self::Native) -> Self::Key;

    fn value(key: Self::Key) -> Self::Native;

    fn is_nan(value: Self::Native) -> bool;

    /// By the comparison of floats: false for NaN, and for zeros.
    fn is_less(a: Self::Native, b: Self::Native) -> bool;
}

macro_rules! keyed {
    ($arrow:ty, $float:ty, $key:ty) => {
        impl Keyed for $arrow {
            type Key = $key;
            const AS_ARROW: bool = true;
            const LEAST: $float = <$float>::NEG_INFINITY;
            const GREATEST: $float = <$float>::NAN;

            #[inline]
            fn key(value: $float) -> $key {
                let value = if value.is_nan() { <$float>::NAN } else { value };
                let bits = value.to_bits().cast_signed();
                // Among negative numbers larger bits mean smaller numbers.
                bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX)
            }

            #[inline]
            fn value(key: $key) -> $float {
                let bits = key ^ ((key >> (<$key>::BITS - 1)) & <$key>::MAX);
                <$float>::from_bits(bits.cast_unsigned())
            }

            fn is_nan(value: $float) -> bool {
                value.is_nan()
            }

            #[inline]
            fn is_less(a: $float, b: $float) -> bool {
                a < b
            }
        }
    };
}

keyed!(Float16Type, f16, i16);
keyed!(Float32Type, f32, i32);
keyed!(Float64Type, f64, i64);

impl Keyed for IntervalMonthDayNanoType {
    /// Among equal lengths fields decide, so that the order of rows does not.
    type Key = (i128, IntervalMonthDayNano);
    const AS_ARROW: bool = false;
    const LEAST: IntervalMonthDayNano = IntervalMonthDayNano::MIN;
    const GREATEST: IntervalMonthDayNano = IntervalMonthDayNano::MAX;

    fn key(value: IntervalMonthDayNano) -> Self::Key {
        (nanoseconds(value), value)
    }

    fn value((_, value): Self::Key) -> IntervalMonthDayNano {
        value
    }

    fn is_nan(_: IntervalMonthDayNano) -> bool {
        false
    }

    fn is_less(a: IntervalMonthDayNano, b: IntervalMonthDayNano) -> bool {
        Self::key(a) < Self::key(b)
    }
}

#[inline]
fn chosen<K: Ord, const MAX: bool>(a: K, b: K) -> K {
    if MAX { a.max(b) } else { a.min(b) }
}

/// The extreme of all rows.
#[derive(Debug)]
pub(super) struct Extreme<T: Keyed, const MAX: bool> {
    key: Option<T::Key>,
}

impl<T: Keyed, const MAX: bool> Extreme<T, MAX> {
    pub(super) fn new() -> Self {
        Self { key: None }
    }
}

/// The extreme of a batch.
fn of_batch<T: Keyed, const MAX: bool>(array: &PrimitiveArray<T>) -> Option<T::Key> {
    // Arrow goes over many values at once, and sorts NaNs of one sign below, of the other above all numbers.
    let extreme = if MAX { max(array)? } else { min(array)? };
    let may_differ = if !T::AS_ARROW {
        true
    } else if MAX {
        !T::is_nan(extreme) && array.values().iter().any(|value| T::is_nan(*value))
    } else {
        T::is_nan(extreme)
    };
    if may_differ {
        let keys = array.iter().flatten().map(T::key);
        return keys.reduce(chosen::<_, MAX>);
    }
    Some(T::key(extreme))
}

impl<T: Keyed, const MAX: bool> Accumulator for Extreme<T, MAX> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let of_batch = of_batch::<T, MAX>(values[0].as_primitive());
        let keys = self.key.into_iter().chain(of_batch);
        self.key = keys.reduce(chosen::<_, MAX>);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>(self.key.map(T::value), &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The extremes of groups.
#[derive(Debug)]
pub(super) struct ExtremeGroups<T: Keyed, const MAX: bool> {
    extremes: Vec<T::Native>,
    /// Which groups have a value.
    seen: NullState,
}

impl<T: Keyed, const MAX: bool> ExtremeGroups<T, MAX> {
    pub(super) fn new() -> Self {
        Self {
            extremes: Vec::new(),
            seen: NullState::new(),
        }
    }
}

impl<T: Keyed, const MAX: bool> GroupsAccumulator for ExtremeGroups<T, MAX> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        let start = if MAX { T::LEAST } else { T::GREATEST };
        self.extremes.resize(groups, start);
        let extremes = self.extremes.as_mut_slice();
        let values = values[0].as_primitive::<T>();
        let choose = |group: usize, value: T::Native| {
            let extreme = &mut extremes[group];
            let (less, more) = if MAX {
                (value, *extreme)
            } else {
                (*extreme, value)
            };
            // Most values are decided by this alone.
            if !T::is_less(less, more) {
                let key = chosen::<_, MAX>(T::key(value), T::key(*extreme));
                *extreme = T::value(key);
            }
        };
        self.seen
            .accumulate(group_indices, values, filter, groups, choose);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let extremes = emit_to.take_needed(&mut self.extremes);
        let nulls = self.seen.build(emit_to);
        Ok(Arc::new(PrimitiveArray::<T>::new(extremes.into(), nulls)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> Result<()> {
        self.update_batch(states, group_indices, None, groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        // A condition that is null does not hold.
        let kept = filter.map(|filter| {
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => filter.values() & nulls.inner(),
                None => filter.values().clone(),
            })
        });
        let nulls = NullBuffer::union(values.nulls(), kept.as_ref());
        let state = PrimitiveArray::<T>::new(values.values().clone(), nulls);
        Ok(vec![Arc::new(state)])
    }

    fn size(&self) -> usize {
        self.extremes.capacity() * size_of::<T::Native>() + self.seen.size()
    }
}

/// The extreme of a window that moves.
#[derive(Debug)]
pub(super) struct Moving<T: Keyed, const MAX: bool> {
    key: T::Key,
}

// Not derived, which would want the same of types of Arrow.
impl<T: Keyed, const MAX: bool> Copy for Moving<T, MAX> {}

impl<T: Keyed, const MAX: bool> Clone for Moving<T, MAX> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Keyed, const MAX: bool> Moving<T, MAX> {
    pub(super) fn result(window: Option<(Self, usize)>) -> Result<ScalarValue> {
        let value = window.map(|(extreme, _)| T::value(extreme.key));
        ScalarValue::new_primitive::<T>(value, &T::DATA_TYPE)
    }
}

impl<T: Keyed, const MAX: bool> Aggregate for Moving<T, MAX> {
    type Value = T::Key;

    fn of(key: T::Key) -> Self {
        Self { key }
    }

    fn merge(self, later: Self) -> Self {
        Self {
            key: chosen::<_, MAX>(self.key, later.key),
        }
    }

    fn read(values: &[ArrayRef], each: impl FnMut(T::Key)) -> Result<()> {
        let [values] = values else {
            return internal_err!("an extreme of {} columns", values.len());
        };
        let values = values.as_primitive::<T>();
        values.iter().flatten().map(T::key).for_each(each);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;

    const ORDERED: [f64; 9] = [
        f64::NEG_INFINITY,
        f64::MIN,
        -1.0,
        -0.0,
        0.0,
        1.0,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];

    fn check_order<T: Keyed>(values: &[T::Native])
    where
        T::Native: PartialEq,
    {
        let keys: Vec<_> = values.iter().map(|value| T::key(*value)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{values:?}: {keys:?}");
        for (value, key) in values.iter().zip(keys) {
            let back = T::value(key);
            assert!(back == *value || T::is_nan(back) && T::is_nan(*value));
            assert!(key >= T::key(T::LEAST) && key <= T::key(T::GREATEST));
        }
    }

    #[test]
    fn keys_have_the_order_of_floats() {
        check_order::<Float64Type>(&ORDERED);
        #[expect(clippy::cast_possible_truncation, reason = "some become infinite")]
        let mut narrow = ORDERED.map(|value| value as f32);
        (narrow[1], narrow[6]) = (f32::MIN, f32::MAX);
        check_order::<Float32Type>(&narrow);
        let mut half = ORDERED.map(f16::from_f64);
        (half[1], half[6]) = (f16::MIN, f16::MAX);
        check_order::<Float16Type>(&half);
        assert_eq!(Float64Type::key(-f64::NAN), Float64Type::key(f64::NAN));
    }

    fn floats(values: &[Option<f64>]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    fn shown(array: &ArrayRef) -> String {
        let values = array.as_primitive::<Float64Type>();
        let shown: Vec<_> = values
            .iter()
            .map(|value| value.map_or("null".to_owned(), |value| format!("{value:?}")))
            .collect();
        shown.join(" ")
    }

    type Largest = ExtremeGroups<Float64Type, true>;
    type Smallest = ExtremeGroups<Float64Type, false>;

    #[test]
    fn groups_may_be_empty_filtered_and_emitted_in_parts() {
        let (mut largest, mut smallest) = (Largest::new(), Smallest::new());
        let values = floats(&[
            Some(2.0),
            Some(f64::NAN),
            Some(1.5),
            None,
            Some(-0.0),
            Some(0.0),
            Some(9.0),
        ]);
        let groups = [0, 0, 0, 1, 2, 2, 3];
        let filter = BooleanArray::from(vec![
            Some(true),
            Some(true),
            Some(true),
            Some(true),
            Some(true),
            Some(true),
            None,
        ]);
        let columns = [values];
        largest
            .update_batch(&columns, &groups, Some(&filter), 4)
            .unwrap();
        smallest
            .update_batch(&columns, &groups, Some(&filter), 4)
            .unwrap();
        assert_eq!(
            shown(&largest.evaluate(EmitTo::First(2)).unwrap()),
            "NaN null"
        );
        assert_eq!(
            shown(&smallest.evaluate(EmitTo::First(2)).unwrap()),
            "1.5 null"
        );
        // The third group is the first now.
        let more = [floats(&[Some(f64::INFINITY), Some(-3.0)])];
        largest.update_batch(&more, &[1, 2], None, 3).unwrap();
        smallest.update_batch(&more, &[1, 2], None, 3).unwrap();
        assert_eq!(
            shown(&largest.evaluate(EmitTo::All).unwrap()),
            "0.0 inf -3.0"
        );
        assert_eq!(
            shown(&smallest.evaluate(EmitTo::All).unwrap()),
            "-0.0 inf -3.0"
        );
        assert_eq!(shown(&largest.evaluate(EmitTo::All).unwrap()), "");
    }

    #[test]
    fn states_merge_whether_grouped_or_converted() {
        let values = [floats(&[Some(1.0), None, Some(-f64::NAN), Some(7.0)])];
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(false)]);
        let converted = Largest::new()
            .convert_to_state(&values, Some(&filter))
            .unwrap();
        assert_eq!(shown(&converted[0]), "1.0 null NaN null");
        let mut partial = Smallest::new();
        partial
            .update_batch(&values, &[0, 1, 0, 2], Some(&filter), 3)
            .unwrap();
        let state = partial.state(EmitTo::All).unwrap();
        let mut merged = Smallest::new();
        merged.merge_batch(&state, &[1, 0, 1], 2).unwrap();
        merged.merge_batch(&converted, &[1, 0, 1, 1], 2).unwrap();
        assert_eq!(shown(&merged.evaluate(EmitTo::All).unwrap()), "null 1.0");
        let mut merged = Largest::new();
        merged.merge_batch(&converted, &[0, 1, 1, 1], 2).unwrap();
        assert_eq!(shown(&merged.evaluate(EmitTo::All).unwrap()), "1.0 NaN");
    }

    #[test]
    fn all_rows_together_have_the_same_extremes() {
        for (values, least, greatest) in [
            (vec![Some(2.0), Some(f64::NAN), None], 2.0, f64::NAN),
            (vec![Some(-f64::NAN), Some(3.0)], 3.0, f64::NAN),
            (
                vec![Some(-f64::NAN), Some(f64::NAN), None],
                f64::NAN,
                f64::NAN,
            ),
            (vec![Some(0.0), Some(-0.0)], -0.0, 0.0),
        ] {
            let batch = floats(&values);
            for split in 0..=values.len() {
                let mut smallest = Extreme::<Float64Type, false>::new();
                let mut largest = Extreme::<Float64Type, true>::new();
                for (from, to) in [(0, split), (split, values.len())] {
                    let part = [batch.slice(from, to - from)];
                    smallest.update_batch(&part).unwrap();
                    largest.update_batch(&part).unwrap();
                }
                let shown = |value: ScalarValue| format!("{value:?}");
                let expected = |value: f64| format!("{:?}", ScalarValue::Float64(Some(value)));
                assert_eq!(shown(smallest.evaluate().unwrap()), expected(least));
                assert_eq!(shown(largest.evaluate().unwrap()), expected(greatest));
            }
        }
        let mut none = Extreme::<Float64Type, true>::new();
        none.update_batch(&[floats(&[None])]).unwrap();
        assert!(none.evaluate().unwrap().is_null());
    }
}
