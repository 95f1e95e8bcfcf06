//! Aggregates of floats whose answer depends on the rows alone, not on their order or on what came before.
//!
//! Invariants: `min` and `max` are those of [`super::extreme`], of intervals too; over windows whose beginning moves, whatever DataFusion
//! would subtract floats for is done by [`super::sliding`]; one value is a population without spread. Everything else is the
//! function as it was: other types, and DISTINCT, for which DataFusion has no such windows. Simplifications are not handed on, as
//! they could put the function back that is replaced here.

use super::extreme::{Extreme, ExtremeGroups, Keyed, Moving};
use super::named_as_base;
use super::sliding::{Of, OfPairs, Pairs, Sliding, Spread, Sum};
use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::datatypes::{
    DataType, FieldRef, Float16Type, Float32Type, Float64Type, IntervalMonthDayNanoType,
    IntervalUnit, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use std::sync::Arc;

/// `functions` with those of floats replaced.
pub(crate) fn settled(functions: Vec<Arc<AggregateUDF>>) -> Vec<Arc<AggregateUDF>> {
    let settled = |base: Arc<AggregateUDF>| match Function::named(base.name()) {
        Some(function) => Arc::new(AggregateUDF::new_from_impl(OfFloats { base, function })),
        None => base,
    };
    functions.into_iter().map(settled).collect()
}

/// `make` for the floats and intervals that a call of `min` (`false`) or `max` (`true`) is about, `None` if it is about others.
macro_rules! extreme {
    ($args:expr, $make:ident, $max:literal) => {
        match $args.return_type() {
            DataType::Float16 => Some($make::<Float16Type, $max>()),
            DataType::Float32 => Some($make::<Float32Type, $max>()),
            DataType::Float64 => Some($make::<Float64Type, $max>()),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Some($make::<IntervalMonthDayNanoType, $max>())
            }
            _ => None,
        }
    };
}

fn of_all<T: Keyed, const MAX: bool>() -> Box<dyn Accumulator> {
    Box::new(Extreme::<T, MAX>::new())
}

fn of_groups<T: Keyed, const MAX: bool>() -> Box<dyn GroupsAccumulator> {
    Box::new(ExtremeGroups::<T, MAX>::new())
}

fn sliding<T: Keyed, const MAX: bool>() -> Box<dyn Accumulator> {
    Sliding::boxed(Moving::<T, MAX>::result)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Function {
    Min,
    Max,
    Sum,
    Avg,
    Variance(Of),
    Deviation(Of),
    Pairs(OfPairs),
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "max" => Self::Max,
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "var" => Self::Variance(Of::Sample),
            "var_pop" => Self::Variance(Of::Population),
            "stddev" => Self::Deviation(Of::Sample),
            "stddev_pop" => Self::Deviation(Of::Population),
            "covar_samp" => Self::Pairs(OfPairs::Covariance(Of::Sample)),
            "covar_pop" => Self::Pairs(OfPairs::Covariance(Of::Population)),
            "corr" => Self::Pairs(OfPairs::Correlation),
            "regr_count" => Self::Pairs(OfPairs::Count),
            "regr_avgx" => Self::Pairs(OfPairs::MeanX),
            "regr_avgy" => Self::Pairs(OfPairs::MeanY),
            "regr_sxx" => Self::Pairs(OfPairs::SquaresX),
            "regr_syy" => Self::Pairs(OfPairs::SquaresY),
            "regr_sxy" => Self::Pairs(OfPairs::Products),
            "regr_slope" => Self::Pairs(OfPairs::Slope),
            "regr_intercept" => Self::Pairs(OfPairs::Intercept),
            "regr_r2" => Self::Pairs(OfPairs::Determination),
            _ => return None,
        })
    }

    /// The function over a window whose beginning moves; `None` where DataFusion's own will do.
    fn sliding(self, args: &AccumulatorArgs<'_>) -> Option<Box<dyn Accumulator>> {
        let mut arguments = args.expr_fields.iter().map(|field| field.data_type());
        let function = match self {
            Self::Min => return extreme!(args, sliding, false),
            Self::Max => return extreme!(args, sliding, true),
            _ if args.is_distinct => return None,
            _ if !arguments.all(|argument| argument == &DataType::Float64) => return None,
            function => function,
        };
        Some(match function {
            Self::Min | Self::Max => return None,
            Self::Sum => Sliding::boxed(Sum::sum),
            Self::Avg => Sliding::boxed(Sum::avg),
            Self::Variance(of) => {
                Sliding::boxed(move |window| Ok(ScalarValue::Float64(Spread::variance(of, window))))
            }
            Self::Deviation(of) => Sliding::boxed(move |window| {
                let variance = Spread::variance(of, window);
                Ok(ScalarValue::Float64(variance.map(f64::sqrt)))
            }),
            Self::Pairs(wanted) => Sliding::boxed(move |window| Ok(Pairs::result(wanted, window))),
        })
    }
}

/// An aggregate function with accumulators of its own for floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfFloats {
    base: Arc<AggregateUDF>,
    function: Function,
}

impl AggregateUDFImpl for OfFloats {
    named_as_base!();

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.base.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.base.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.base.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.base.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.base.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let own = match self.function {
            Function::Min => extreme!(args, of_all, false),
            Function::Max => extreme!(args, of_all, true),
            _ => None,
        };
        own.map_or_else(|| self.base.accumulator(args), Ok)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        // DataFusion's of groups subtracts sums of squares, in which little is left of values far from zero, such as times.
        let cancels = self.function == Function::Pairs(OfPairs::Correlation);
        !cancels && self.base.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let own = match self.function {
            Function::Min => extreme!(args, of_groups, false),
            Function::Max => extreme!(args, of_groups, true),
            _ => None,
        };
        if let Some(own) = own {
            return Ok(own);
        }
        let inner = self.base.create_groups_accumulator(args)?;
        Ok(match self.function {
            Function::Variance(Of::Population) => PopulationGroups::boxed(inner, |value| value),
            Function::Deviation(Of::Population) => PopulationGroups::boxed(inner, f64::sqrt),
            _ => inner,
        })
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let own = self.function.sliding(&args);
        own.map_or_else(|| self.base.create_sliding_accumulator(args), Ok)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.base.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.base.reverse_udf()
    }

    fn is_descending(&self) -> Option<bool> {
        self.base.is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.base.value_from_stats(statistics)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.base.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.base.supports_null_handling_clause()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.base.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.base.documentation()
    }
}

/// The variance, or `finish` of it, of groups as populations: one value has none, whatever it is, as without GROUP BY.
/// DataFusion's is NaN for one NaN or infinity.
struct PopulationGroups {
    /// Its state is numbers of values, means, and sums of squared distances from these.
    inner: Box<dyn GroupsAccumulator>,
    finish: fn(f64) -> f64,
}

impl PopulationGroups {
    fn boxed(
        inner: Box<dyn GroupsAccumulator>,
        finish: fn(f64) -> f64,
    ) -> Box<dyn GroupsAccumulator> {
        Box::new(Self { inner, finish })
    }
}

impl GroupsAccumulator for PopulationGroups {
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
        let [counts, _, squares] = state.as_slice() else {
            return internal_err!("a variance of {} parts", state.len());
        };
        let counts = counts.as_primitive::<UInt64Type>().values();
        let squares = squares.as_primitive::<Float64Type>().values();
        let results = counts
            .iter()
            .zip(squares)
            .map(|(&count, &squares)| match count {
                0 => None,
                1 => Some(0.0),
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a divisor needs no more digits than its quotient has"
                )]
                _ => Some((self.finish)(squares / count as f64)),
            });
        Ok(Arc::new(results.collect::<Float64Array>()))
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
