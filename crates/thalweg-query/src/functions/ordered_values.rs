//! Aggregates that take values by their order: the value at a share of them, `quantile_disc(v, 0.5)`, and the largest or smallest
//! ones, `max(v, 3)`.
//!
//! Invariants: null is no value; every NaN is larger than all numbers, and -0.0 comes before 0.0; intervals have the order of their
//! lengths. Values are kept as arrays and chosen by the kernels of Arrow: a list of them for each row of a window would take memory
//! that grows with the square of its rows. The share or number is the same for all rows of a group, or it is an error.

use super::lengths::nanoseconds;
use super::plain_floats::{one_nan_values, plain_values};
use crate::error::{query, to_datafusion};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, ListArray, MutableArrayData, Scalar,
    UInt32Array, make_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{
    SortColumn, SortOptions, concat, filter, lexsort_to_indices, partition, sort_to_indices, take,
};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNanoType, IntervalUnit};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use thalweg_table::Error;

/// Arrays are put together up to this size.
const MERGED_BYTES: usize = 64 << 20;
/// Values of which [`Wanted::Several`] keeps the wanted ones, at least.
const PRUNED_VALUES: usize = 16 * 1024;

/// `value_at_share(value, share)` and `smallest_values(value, number)`, and the same from the largest value on.
pub(crate) fn functions() -> [Arc<AggregateUDF>; 4] {
    [
        ("value_at_share", Wanted::AtShare, false),
        ("value_at_share_from_largest", Wanted::AtShare, true),
        ("smallest_values", Wanted::Several, false),
        ("largest_values", Wanted::Several, true),
    ]
    .map(|(name, wanted, is_descending)| {
        Arc::new(AggregateUDF::new_from_impl(OrderedValues {
            name,
            wanted,
            is_descending,
            signature: Signature::any(2, Volatility::Immutable),
        }))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    /// One value.
    AtShare,
    /// A list of the first ones.
    Several,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedValues {
    name: &'static str,
    wanted: Wanted,
    is_descending: bool,
    signature: Signature,
}

impl OrderedValues {
    fn values(&self, args: &AccumulatorArgs<'_>, keeps_all: bool) -> Result<Box<dyn Accumulator>> {
        let [value, limit] = args.expr_fields else {
            return internal_err!("{} takes two arguments", self.name);
        };
        Ok(Box::new(Values {
            wanted: self.wanted,
            is_descending: self.is_descending,
            is_distinct: args.is_distinct,
            prunes: self.wanted == Wanted::Several && !keeps_all,
            data_type: value.data_type().clone(),
            limit: ScalarValue::try_new_null(limit.data_type())?,
            arrays: VecDeque::new(),
            pruned: 0,
        }))
    }
}

/// The error of `max(x, n)` and `min(x, n)` where `n` is no number of values.
pub(crate) fn no_number_of_values(name: &str, given: impl Display) -> Error {
    query(format!(
        "{name}(x, n) gives a list of n values, and n is a whole number from 1 on, not {given}"
    ))
}

fn list_of(data_type: &DataType) -> FieldRef {
    Arc::new(Field::new_list_field(data_type.clone(), true))
}

impl AggregateUDFImpl for OrderedValues {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match (self.wanted, arg_types) {
            (Wanted::AtShare, [value, _]) => Ok(value.clone()),
            (Wanted::Several, [value, _]) => Ok(DataType::List(list_of(value))),
            _ => internal_err!("{} takes two arguments", self.name),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let [value, limit] = args.input_fields else {
            return internal_err!("{} takes two arguments", self.name);
        };
        let values = Field::new_list(
            format!("{}[values]", args.name),
            list_of(value.data_type()),
            true,
        );
        let limit = Field::new(
            format!("{}[limit]", args.name),
            limit.data_type().clone(),
            true,
        );
        Ok(vec![Arc::new(values), Arc::new(limit)])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.values(&args, false)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.values(&args, true)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_null_handling_clause(&self) -> bool {
        true
    }
}

/// The values of a group, in the order in which they came.
#[derive(Debug)]
struct Values {
    wanted: Wanted,
    is_descending: bool,
    is_distinct: bool,
    /// Whether values that are not wanted are forgotten.
    prunes: bool,
    data_type: DataType,
    /// The share, or the number of values; null before the first row.
    limit: ScalarValue,
    arrays: VecDeque<ArrayRef>,
    /// How many values were left when those that are not wanted were last forgotten.
    pruned: usize,
}

impl Values {
    fn len(&self) -> usize {
        self.arrays.iter().map(|array| array.len()).sum()
    }

    fn set_limit(&mut self, limits: &ArrayRef) -> Result<()> {
        if limits.is_empty() {
            return Ok(());
        }
        let first = ScalarValue::try_from_array(limits, 0)?;
        let differs = distinct(limits, &Scalar::new(limits.slice(0, 1)))?.true_count() > 0;
        if differs || !self.limit.is_null() && self.limit != first {
            let what = match self.wanted {
                Wanted::AtShare => "quantile_disc(x, share) takes one share",
                Wanted::Several => "max(x, n) and min(x, n) take one number",
            };
            return Err(to_datafusion(query(format!(
                "{what} for all rows of a group: write a constant, or what the rows are grouped by"
            ))));
        }
        // A constant was refused before; this one is a parameter, or what rows are grouped by.
        if let ScalarValue::Int64(Some(count)) = first
            && count < 1
        {
            let name = if self.is_descending { "max" } else { "min" };
            return Err(to_datafusion(no_number_of_values(name, count)));
        }
        self.limit = first;
        Ok(())
    }

    /// Adds values; arrays are put together such that there are few, and each value is copied few times.
    fn push(&mut self, values: &ArrayRef) -> Result<()> {
        let values = present(values)?;
        if values.is_empty() {
            return Ok(());
        }
        self.arrays.push_back(owned(values)?);
        while let [.., before, last] = &*self.arrays.make_contiguous()
            && before.len() <= last.len() * 2
            && bytes_of(before) + bytes_of(last) <= MERGED_BYTES
        {
            let both = concat(&[before.as_ref(), last.as_ref()])?;
            self.arrays.truncate(self.arrays.len() - 2);
            self.arrays.push_back(both);
        }
        self.prune()
    }

    fn prune(&mut self) -> Result<()> {
        if !self.prunes || self.len() < (self.pruned * 2).max(PRUNED_VALUES) {
            return Ok(());
        }
        let values = self.first_ones()?;
        self.pruned = values.len();
        self.arrays = VecDeque::from([values]);
        Ok(())
    }

    /// All values in one array.
    fn all(&mut self) -> Result<ArrayRef> {
        let all = match &*self.arrays.make_contiguous() {
            [] => return Ok(arrow::array::new_empty_array(&self.data_type)),
            [all] => return Ok(Arc::clone(all)),
            several => {
                let several: Vec<&dyn Array> = several.iter().map(|array| &**array).collect();
                concat(&several)?
            }
        };
        self.arrays = VecDeque::from([Arc::clone(&all)]);
        Ok(all)
    }

    /// The first values by their order, as many as are wanted.
    fn first_ones(&mut self) -> Result<ArrayRef> {
        let ScalarValue::Int64(Some(count)) = self.limit else {
            return internal_err!("a number of values is no integer");
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let values = self.all()?;
        let places = places(&values, self.is_descending, self.is_distinct, count)?;
        Ok(take(
            &values,
            &places.slice(0, count.min(places.len())),
            None,
        )?)
    }

    fn at_share(&mut self) -> Result<ScalarValue> {
        let null = ScalarValue::try_new_null(&self.data_type)?;
        let ScalarValue::Float64(Some(share)) = self.limit else {
            return Ok(null);
        };
        let values = self.all()?;
        if self.is_distinct {
            let places = places(&values, self.is_descending, true, values.len())?;
            return match place_at(share, places.len()) {
                Some(place) => ScalarValue::try_from_array(&take(&values, &places, None)?, place),
                None => Ok(null),
            };
        }
        let Some(place) = place_at(share, values.len()) else {
            return Ok(null);
        };
        // From the nearer end.
        let from_end = values.len() - 1 - place;
        let (place, is_descending) = match place <= from_end {
            true => (place, self.is_descending),
            false => (from_end, !self.is_descending),
        };
        let places = places(&values, is_descending, false, place + 1)?;
        ScalarValue::try_from_array(&values, places.value(place) as usize)
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [values, limits] = columns else {
            return internal_err!("{} arguments instead of two", columns.len());
        };
        self.set_limit(limits)?;
        self.push(values)
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(values) = columns.first() else {
            return internal_err!("no arguments instead of two");
        };
        let mut leave = values.len() - values.logical_null_count();
        while leave > 0 {
            let absent = || internal_datafusion_err!("a value leaves a window that it is not in");
            let first = self.arrays.front_mut().ok_or_else(absent)?;
            if first.len() > leave {
                *first = first.slice(leave, first.len() - leave);
                return Ok(());
            }
            leave -= first.len();
            self.arrays.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.wanted {
            Wanted::AtShare => self.at_share(),
            Wanted::Several if self.arrays.is_empty() || self.limit.is_null() => {
                ScalarValue::try_new_null(&DataType::List(list_of(&self.data_type)))
            }
            Wanted::Several => Ok(list(self.first_ones()?)),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = match self.prunes && !self.limit.is_null() && !self.arrays.is_empty() {
            true => self.first_ones()?,
            false => self.all()?,
        };
        self.arrays.clear();
        Ok(vec![list(values), self.limit.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists, limits] = states else {
            return internal_err!("{} states instead of two", states.len());
        };
        // Of no rows there is none.
        self.set_limit(&present(limits)?)?;
        for values in lists.as_list::<i32>().iter().flatten() {
            self.push(&values)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let bytes: usize = self.arrays.iter().map(bytes_of).sum();
        size_of_val(self) + self.arrays.capacity() * size_of::<ArrayRef>() + bytes
    }
}

fn list(values: ArrayRef) -> ScalarValue {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    let item = list_of(values.data_type());
    ScalarValue::List(Arc::new(ListArray::new(item, offsets, values, None)))
}

/// The values that are not null.
fn present(values: &ArrayRef) -> Result<ArrayRef> {
    match values.logical_nulls() {
        Some(nulls) if nulls.null_count() > 0 => {
            Ok(filter(values, &BooleanArray::from(nulls.into_inner()))?)
        }
        _ => Ok(Arc::clone(values)),
    }
}

fn bytes_of(values: &ArrayRef) -> usize {
    let data = values.to_data();
    let bytes = data.get_slice_memory_size();
    bytes.unwrap_or_else(|_| values.get_array_memory_size())
}

/// The same values without those beside them, which a slice would keep in memory.
fn owned(values: ArrayRef) -> Result<ArrayRef> {
    if values.get_buffer_memory_size() <= bytes_of(&values) * 2 {
        return Ok(values);
    }
    let data = values.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, values.len());
    copy.try_extend(0, 0, values.len())?;
    Ok(make_array(copy.freeze()))
}

/// The place of a share among `count` values: that of DuckDB, which is counted from the end.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of values are below 2^53, and a place beyond them is none"
)]
fn place_at(share: f64, count: usize) -> Option<usize> {
    let all = count as f64;
    let from_end = (all - share * all).floor() as i64;
    let number = i64::try_from(count).ok()?.saturating_sub(from_end).max(1);
    let place = usize::try_from(number - 1).ok()?;
    (place < count).then_some(place)
}

/// The keys that values are sorted by.
fn keys(values: &ArrayRef) -> Result<Vec<ArrayRef>> {
    Ok(match values.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            let lengths = intervals.values().iter().copied().map(nanoseconds);
            // Among equal lengths fields decide, so that the order of rows does not.
            let lengths: ArrayRef = Arc::new(Decimal128Array::from_iter_values(lengths));
            vec![lengths, Arc::clone(values)]
        }
        nested if nested.is_nested() => {
            let options = SortOptions::default().asc().nulls_last();
            let field = SortField::new_with_options(nested.clone(), options);
            let converter = RowConverter::new(vec![field])?;
            let rows = converter.convert_columns(&[Arc::clone(values)])?;
            let rows: ArrayRef = Arc::new(rows.try_into_binary()?);
            vec![rows]
        }
        _ => vec![one_nan_values(values)],
    })
}

/// The places of the first `count` values by their order; with `is_distinct` one place for all values that are equal.
fn places(
    values: &ArrayRef,
    is_descending: bool,
    is_distinct: bool,
    count: usize,
) -> Result<UInt32Array> {
    let keys = keys(values)?;
    let options = SortOptions {
        descending: is_descending,
        nulls_first: false,
    };
    let limit = (!is_distinct).then_some(count);
    let places = match &*keys {
        [key] => sort_to_indices(key, Some(options), limit)?,
        keys => {
            let column = |key: &ArrayRef| SortColumn {
                values: Arc::clone(key),
                options: Some(options),
            };
            let columns: Vec<SortColumn> = keys.iter().map(column).collect();
            lexsort_to_indices(&columns, limit)?
        }
    };
    if !is_distinct || places.is_empty() {
        return Ok(places);
    }
    let sorted = take(&plain_values(&keys[0]), &places, None)?;
    let firsts = partition(&[sorted])?.ranges().into_iter();
    Ok(firsts.map(|range| places.value(range.start)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array};

    fn values_of(wanted: Wanted, limit: ScalarValue) -> Values {
        Values {
            wanted,
            is_descending: wanted == Wanted::Several,
            is_distinct: false,
            prunes: wanted == Wanted::Several,
            data_type: DataType::Int64,
            limit,
            arrays: VecDeque::new(),
            pruned: 0,
        }
    }

    #[test]
    fn places_are_those_of_duckdb() {
        for (share, count, wanted) in [
            (0.5, 4, Some(1)),
            (0.5, 5, Some(2)),
            (0.0, 3, Some(0)),
            (1.0, 3, Some(2)),
            (0.34, 3, Some(1)),
            (1.5, 3, None),
            (0.5, 0, None),
        ] {
            assert_eq!(place_at(share, count), wanted, "{share} of {count}");
        }
    }

    #[test]
    fn only_wanted_values_are_kept() {
        let mut values = values_of(Wanted::Several, ScalarValue::Int64(Some(3)));
        for start in 0..100 {
            let batch: ArrayRef = Arc::new(Int64Array::from_iter_values(
                (0..1_000).map(|at| at * 7919 % 1_000 * 100 + start),
            ));
            values.push(&batch).unwrap();
            assert!(values.len() < PRUNED_VALUES);
        }
        let largest = values.first_ones().unwrap();
        let wanted: ArrayRef = Arc::new(Int64Array::from(vec![99_999, 99_998, 99_997]));
        assert_eq!(&largest, &wanted);
    }

    #[test]
    fn values_leave_in_the_order_in_which_they_came() {
        let mut values = values_of(Wanted::AtShare, ScalarValue::Float64(Some(1.0)));
        let limit: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        for at in 0..1_000_i64 {
            let row: ArrayRef = Arc::new(Int64Array::from(vec![(at % 5 > 0).then_some(-at)]));
            values
                .update_batch(&[Arc::clone(&row), Arc::clone(&limit)])
                .unwrap();
            if at >= 10 {
                let old = at - 10;
                let row: ArrayRef = Arc::new(Int64Array::from(vec![(old % 5 > 0).then_some(-old)]));
                values.retract_batch(&[row, Arc::clone(&limit)]).unwrap();
                let first = old + if old % 5 == 4 { 2 } else { 1 };
                let largest = values.evaluate().unwrap();
                assert_eq!(largest, ScalarValue::Int64(Some(-first)), "{at}");
            }
        }
    }
}
