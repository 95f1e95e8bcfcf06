//! `percentile_cont`, interpolated between two values by the share.
//!
//! DataFusion's rounds the share between two values down to a millionth. Invariants: this is DataFusion's own but for the last
//! step, from its state, the values; NaN is the largest of them.

use super::named_as_base;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    Signature,
};
use datafusion::physical_expr::expressions::Literal;
use std::cmp::Ordering;
use std::sync::Arc;

/// `functions` with `percentile_cont` replaced.
pub(crate) fn exact(functions: Vec<Arc<AggregateUDF>>) -> Vec<Arc<AggregateUDF>> {
    let exact = |base: Arc<AggregateUDF>| match base.name() {
        "percentile_cont" => Arc::new(AggregateUDF::new_from_impl(Quantile { base })),
        _ => base,
    };
    functions.into_iter().map(exact).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantile {
    base: Arc<AggregateUDF>,
}

/// The share that is asked for, and the type of the result.
#[derive(Clone, Debug)]
struct Wanted {
    share: f64,
    data_type: DataType,
}

impl Wanted {
    /// `None` where DataFusion's own will do: of nothing but nulls, or where it has to report the error.
    fn of(args: &AccumulatorArgs<'_>) -> Option<Self> {
        let data_type = args.expr_fields.first()?.data_type().clone();
        if !data_type.is_floating() {
            return None;
        }
        let share = args.exprs.get(1)?.downcast_ref::<Literal>()?;
        let ScalarValue::Float64(Some(share)) = share.value().cast_to(&DataType::Float64).ok()?
        else {
            return None;
        };
        let is_descending = args
            .order_bys
            .first()
            .is_some_and(|by| by.options.descending);
        Some(Self {
            share: if is_descending { 1.0 - share } else { share },
            data_type,
        })
    }

    fn result(&self, quantiles: Float64Array) -> Result<ArrayRef> {
        let quantiles: ArrayRef = Arc::new(quantiles);
        Ok(cast(&quantiles, &self.data_type)?)
    }

    /// The quantile of the values of a list.
    fn quantile(&self, values: &ArrayRef) -> Result<Option<f64>> {
        let values = cast(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let mut values: Vec<f64> = values.iter().flatten().collect();
        Ok(quantile(&mut values, self.share))
    }
}

impl AggregateUDFImpl for Quantile {
    named_as_base!();

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.base.return_type(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.base.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let wanted = Wanted::of(&args);
        let inner = self.base.accumulator(args)?;
        Ok(match wanted {
            Some(wanted) => Box::new(OfAll { inner, wanted }),
            None => inner,
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.base.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let wanted = Wanted::of(&args);
        let inner = self.base.create_groups_accumulator(args)?;
        Ok(match wanted {
            Some(wanted) => Box::new(OfGroups { inner, wanted }),
            None => inner,
        })
    }

    fn supports_within_group_clause(&self) -> bool {
        self.base.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.base.documentation()
    }
}

/// The function over all rows, or over a window.
#[derive(Debug)]
struct OfAll {
    inner: Box<dyn Accumulator>,
    wanted: Wanted,
}

impl Accumulator for OfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.inner.state()?;
        let [ScalarValue::List(list)] = state.as_slice() else {
            return internal_err!("the state of a quantile is no list");
        };
        let values = list.value(0);
        // Taking the state has emptied it, and a window goes on.
        self.inner.update_batch(&[Arc::clone(&values)])?;
        let quantile = self.wanted.quantile(&values)?;
        let result = self.wanted.result(Float64Array::from(vec![quantile]))?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The function over the rows of each group.
struct OfGroups {
    inner: Box<dyn GroupsAccumulator>,
    wanted: Wanted,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.inner
            .update_batch(values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let state = self.inner.state(emit_to)?;
        let [lists] = state.as_slice() else {
            return internal_err!("the state of a quantile is no list");
        };
        let lists = lists.as_list::<i32>();
        let of_list = |list: Option<ArrayRef>| match list {
            Some(values) => self.wanted.quantile(&values),
            None => Ok(None),
        };
        let quantiles = lists.iter().map(of_list);
        self.wanted.result(quantiles.collect::<Result<_>>()?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(states, group_indices, groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

fn in_order(a: &f64, b: &f64) -> Ordering {
    a.partial_cmp(b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The value below which `share` of the values lie.
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "the place of a value among less than 2^53"
    )]
    let place = share * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the last place, as the share is from 0 to 1"
    )]
    let lower = (place.floor() as usize).min(last);
    let (_, &mut low, above) = values.select_nth_unstable_by(lower, in_order);
    let fraction = place - place.floor();
    if fraction == 0.0 {
        return Some(low);
    }
    let high = above.iter().copied().min_by(in_order).unwrap_or(low);
    Some(between(low, high, fraction))
}

/// Interpolates as `std::lerp` of C++ does: infinities stay what they are where one of them is far away.
fn between(low: f64, high: f64, fraction: f64) -> f64 {
    if low == high {
        low
    } else if low <= 0.0 && high >= 0.0 {
        fraction * high + (1.0 - fraction) * low
    } else {
        (low + fraction * (high - low)).min(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_exactly_between_two_values() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        for (values, share, wanted) in [
            (vec![1e9, 0.0], 0.123_456_789, Some(123_456_789.0)),
            (vec![3.0, 0.0, 1.0], 1.0 / 3.0, Some(2.0 / 3.0)),
            (vec![0.5123, 0.5123], 0.9, Some(0.5123)),
            (vec![-4.0, -2.0], 0.25, Some(-3.5)),
            (vec![7.0], 0.3, Some(7.0)),
            (vec![1.0, 2.0, 3.0], 1.0, Some(3.0)),
            (vec![infinity, -infinity, 1.0, nan], 0.3, Some(-infinity)),
            (vec![nan, 1.0, 2.0], 0.5, Some(2.0)),
            (vec![], 0.5, None),
        ] {
            let mut given = values.clone();
            assert_eq!(quantile(&mut given, share), wanted, "{values:?} {share}");
        }
    }
}
