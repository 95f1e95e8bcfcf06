//! `sum` and `avg` that are exact or an error.
//!
//! DataFusion's own add integers and durations in 64 bits and decimals in 128, and wrap around on overflow. Invariants: these are
//! DataFusion's own, fed with values of a wider type, whose result is brought back to the type that the plan knows, or is an error where it
//! does not fit; the partial states that partitions exchange have the wider type too. Sums of decimals of 256 bits, and of intervals, are
//! DataFusion's alone.

use crate::error::{query, to_datafusion};
use crate::wording::in_sql;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, FieldRef,
    Int64Type, TimeUnit, UInt64Type,
};
use datafusion::common::types::{
    NativeType, logical_boolean, logical_date, logical_float64, logical_int64,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, TypeSignature, TypeSignatureClass,
};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;
use thalweg_table::wide::{wide_type, widened, widened_sum};

/// Digits that `avg` of DataFusion adds after the point.
const AVG_DIGITS: i8 = 4;
/// Decimal digits of a 64 bit integer.
const INT64_DIGITS: u8 = 19;

/// `functions` with `sum` and `avg` replaced.
pub(crate) fn exact(functions: Vec<Arc<AggregateUDF>>) -> Vec<Arc<AggregateUDF>> {
    let exact = |base: Arc<AggregateUDF>| match base.name() {
        "sum" => Arc::new(Exact::udf(base, Function::Sum)),
        "avg" => Arc::new(Exact::udf(base, Function::Avg)),
        _ => base,
    };
    functions.into_iter().map(exact).collect()
}

/// The error for a sum that its type cannot hold.
pub(crate) fn beyond(sum: &str, value: impl Display, data_type: &DataType) -> DataFusionError {
    let remedy = match data_type {
        DataType::Int64 | DataType::UInt64 => {
            ": the sum of CAST(... AS DOUBLE) or CAST(... AS DECIMAL(38, 0)) can hold it"
        }
        DataType::Decimal128(..) => ": the sum of CAST(... AS DOUBLE) can hold it",
        _ => "",
    };
    to_datafusion(query(format!(
        "{} is {value}, beyond {}{remedy}",
        in_sql(sum),
        sql_type_name(data_type).to_lowercase()
    )))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Function {
    Sum,
    Avg,
}

/// An aggregate function over wider values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    base: Arc<AggregateUDF>,
    function: Function,
    signature: Signature,
}

/// The signature with booleans, which count as 0 and 1: their sum is how many are true, their average the share of these; and
/// averages with times.
fn with_more_types(signature: &Signature, function: Function) -> Signature {
    let (class, native) = match function {
        Function::Sum => (logical_int64(), NativeType::Int64),
        Function::Avg => (logical_float64(), NativeType::Float64),
    };
    let booleans = TypeSignature::Coercible(vec![Coercion::new_implicit(
        TypeSignatureClass::Native(class),
        vec![TypeSignatureClass::Native(logical_boolean())],
        native,
    )]);
    let mut forms = match &signature.type_signature {
        TypeSignature::OneOf(forms) => forms.clone(),
        form => vec![form.clone()],
    };
    forms.push(booleans);
    if function == Function::Avg {
        forms.push(TypeSignature::Coercible(vec![Coercion::new_implicit(
            TypeSignatureClass::Timestamp,
            vec![TypeSignatureClass::Native(logical_date())],
            NativeType::Timestamp(TimeUnit::Nanosecond, None),
        )]));
    }
    Signature::one_of(forms, signature.volatility)
}

/// The types that the work is done in.
struct Wide {
    argument: DataType,
    result: DataType,
}

impl Exact {
    fn udf(base: Arc<AggregateUDF>, function: Function) -> AggregateUDF {
        let signature = with_more_types(base.signature(), function);
        AggregateUDF::new_from_impl(Self {
            base,
            function,
            signature,
        })
    }

    /// `None` where DataFusion's own is exact, or is all there is.
    fn wide(&self, argument: &DataType) -> Option<Wide> {
        if argument.is_null() {
            let result = self.type_of_nulls();
            return Some(Wide {
                argument: result.clone(),
                result,
            });
        }
        match self.function {
            Function::Sum => {
                let wide = wide_type(argument)?;
                Some(Wide {
                    argument: wide.clone(),
                    result: wide,
                })
            }
            // Everything else is averaged in a wider type already.
            Function::Avg => {
                (is_time(argument) || matches!(argument, DataType::Duration(_))).then(|| Wide {
                    argument: DataType::Decimal128(INT64_DIGITS, 0),
                    result: DataType::Decimal128(
                        INT64_DIGITS + AVG_DIGITS.unsigned_abs(),
                        AVG_DIGITS,
                    ),
                })
            }
        }
    }

    /// The result type for an argument of type Null; the result is NULL.
    fn type_of_nulls(&self) -> DataType {
        match self.function {
            Function::Sum => DataType::Int64,
            Function::Avg => DataType::Float64,
        }
    }

    fn wide_of(&self, args: &AccumulatorArgs<'_>) -> Option<Wide> {
        self.wide(args.expr_fields.first()?.data_type())
    }
}

/// Calls `call` with the same arguments over wider values.
fn with_types<R>(
    args: AccumulatorArgs<'_>,
    wide: &Wide,
    call: impl FnOnce(AccumulatorArgs<'_>) -> R,
) -> R {
    let fields: Vec<FieldRef> = args
        .expr_fields
        .iter()
        .map(|field| retyped(field, &wide.argument))
        .collect();
    call(AccumulatorArgs {
        return_field: retyped(&args.return_field, &wide.result),
        expr_fields: &fields,
        ..args
    })
}

fn retyped(field: &FieldRef, to: &DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(to.clone()))
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn aliases(&self) -> &[String] {
        self.base.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [time] if is_time(time) => Ok(time.clone()),
            [DataType::Null] => Ok(self.type_of_nulls()),
            _ => self.base.return_type(arg_types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let wide = match args.input_fields.first() {
            Some(field) => self.wide(field.data_type()),
            None => None,
        };
        let Some(wide) = wide else {
            return self.base.state_fields(args);
        };
        let fields: Vec<FieldRef> = args
            .input_fields
            .iter()
            .map(|field| retyped(field, &wide.argument))
            .collect();
        self.base.state_fields(StateFieldsArgs {
            input_fields: &fields,
            return_field: retyped(&args.return_field, &wide.result),
            ..args
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let Some(wide) = self.wide_of(&args) else {
            return self.base.accumulator(args);
        };
        let back = Back::new(&args, &wide);
        // Where only the sum counts, a batch is added up on the way.
        let adds_up = self.function == Function::Sum && !args.is_distinct;
        let inner = with_types(args, &wide, |args| self.base.accumulator(args))?;
        Ok(Box::new(ExactAccumulator {
            inner,
            back,
            adds_up,
        }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.wide_of(&args) {
            Some(wide) => with_types(args, &wide, |args| {
                self.base.groups_accumulator_supported(args)
            }),
            None => self.base.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let Some(wide) = self.wide_of(&args) else {
            return self.base.create_groups_accumulator(args);
        };
        let back = Back::new(&args, &wide);
        let inner = with_types(args, &wide, |args| {
            self.base.create_groups_accumulator(args)
        })?;
        Ok(Box::new(ExactGroups { inner, back }))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let Some(wide) = self.wide_of(&args) else {
            return self.base.create_sliding_accumulator(args);
        };
        let back = Back::new(&args, &wide);
        let inner: Box<dyn Accumulator> = match wide.argument {
            DataType::Decimal128(_, scale)
                if args.is_distinct && self.function == Function::Sum =>
            {
                Box::new(SlidingDistinct::new(scale))
            }
            _ => with_types(args, &wide, |args| {
                self.base.create_sliding_accumulator(args)
            })?,
        };
        Ok(Box::new(ExactAccumulator {
            inner,
            back,
            adds_up: false,
        }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.base.reverse_udf()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.base.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.base.inner().set_monotonicity(data_type)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.base.default_value(data_type)
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..))
}

/// As [`widened`], times by the number that they count.
fn widened_times(array: &ArrayRef) -> Result<Option<ArrayRef>> {
    match is_time(array.data_type()) {
        true => Ok(widened(&cast(array, &DataType::Int64)?)),
        false => Ok(widened(array)),
    }
}

fn wide_values(values: &[ArrayRef], to: &Wide) -> Result<Vec<ArrayRef>> {
    let widen = |array: &ArrayRef| match widened_times(array)? {
        None if array.data_type().is_null() => Ok(cast(array, &to.argument)?),
        Some(wide) if wide.data_type() == &to.argument => Ok(wide),
        // `avg` adds up decimals of a lower precision than `widened` returns.
        Some(wide) => Ok(cast(&wide, &to.argument)?),
        None => internal_err!("{} is not added up in a wider type", array.data_type()),
    };
    values.iter().map(widen).collect()
}

/// The way back to the type of the plan.
struct Back {
    name: String,
    wide: Wide,
    to: DataType,
}

impl Back {
    fn new(args: &AccumulatorArgs<'_>, wide: &Wide) -> Self {
        Self {
            name: args.name.to_owned(),
            wide: Wide {
                argument: wide.argument.clone(),
                result: wide.result.clone(),
            },
            to: args.return_type().clone(),
        }
    }

    fn array(&self, wide: &ArrayRef) -> Result<ArrayRef> {
        use DataType as T;
        Ok(match (&self.to, wide.data_type()) {
            (T::Int64, T::Decimal128(..)) => self.integers::<Int64Type>(wide)?,
            (T::UInt64, T::Decimal128(..)) => self.integers::<UInt64Type>(wide)?,
            (T::Duration(_) | T::Timestamp(..), T::Decimal128(..)) => {
                cast(&self.integers::<Int64Type>(wide)?, &self.to)?
            }
            (T::Decimal32(..), T::Decimal128(..)) => self
                .decimals::<Decimal128Type, Decimal32Type>(wide, |value| {
                    i32::try_from(value).ok()
                })?,
            (T::Decimal64(..), T::Decimal128(..)) => self
                .decimals::<Decimal128Type, Decimal64Type>(wide, |value| {
                    i64::try_from(value).ok()
                })?,
            (T::Decimal128(..), T::Decimal256(..)) => {
                self.decimals::<Decimal256Type, Decimal128Type>(wide, |value| value.to_i128())?
            }
            (to, from) if to == from => Arc::clone(wide),
            (to, from) => return internal_err!("there is no way from {from} back to {to}"),
        })
    }

    fn integers<T: ArrowPrimitiveType>(&self, wide: &ArrayRef) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let scale = match self.wide.result {
            DataType::Decimal128(_, scale) => scale.unsigned_abs(),
            _ => 0,
        };
        let unit = 10_i128.pow(scale.into());
        let narrow = |value: i128| {
            let value = value / unit;
            T::Native::try_from(value).map_err(|_| beyond(&self.name, value, &self.to))
        };
        let wide = wide.as_primitive::<Decimal128Type>();
        let narrowed: PrimitiveArray<T> = wide.try_unary(narrow)?;
        Ok(Arc::new(narrowed))
    }

    fn decimals<From: DecimalType, To: DecimalType>(
        &self,
        wide: &ArrayRef,
        narrow: impl Fn(From::Native) -> Option<To::Native>,
    ) -> Result<ArrayRef> {
        let (DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)) = self.to
        else {
            return internal_err!("{} is no decimal", self.to);
        };
        let narrow = |value: From::Native| {
            narrow(value)
                .filter(|value| To::is_valid_decimal_precision(*value, precision))
                .ok_or_else(|| {
                    let digits = From::format_decimal(value, From::MAX_PRECISION, scale);
                    beyond(&self.name, digits, &self.to)
                })
        };
        let wide = wide.as_primitive::<From>();
        let narrowed: PrimitiveArray<To> = wide.try_unary(narrow)?;
        Ok(Arc::new(narrowed.with_data_type(self.to.clone())))
    }
}

struct ExactAccumulator {
    inner: Box<dyn Accumulator>,
    back: Back,
    adds_up: bool,
}

impl std::fmt::Debug for ExactAccumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExactAccumulator")
            .field(&self.inner)
            .finish()
    }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.adds_up
            && let [array] = values
            && let Some(sum) = widened_sum(array)
        {
            return self.inner.update_batch(&[sum]);
        }
        self.inner
            .update_batch(&wide_values(values, &self.back.wide)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner
            .retract_batch(&wide_values(values, &self.back.wide)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let wide = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.back.array(&wide)?, 0)
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

struct ExactGroups {
    inner: Box<dyn GroupsAccumulator>,
    back: Back,
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        let values = wide_values(values, &self.back.wide)?;
        self.inner
            .update_batch(&values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.back.array(&self.inner.evaluate(emit_to)?)
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
        let values = wide_values(values, &self.back.wide)?;
        self.inner.convert_to_state(&values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// `sum(DISTINCT ...)` over a window whose beginning moves, which DataFusion has for one type only.
#[derive(Debug)]
struct SlidingDistinct {
    /// How often each value is in the window.
    counts: HashMap<i128, u64>,
    sum: i128,
    scale: i8,
}

impl SlidingDistinct {
    fn new(scale: i8) -> Self {
        Self {
            counts: HashMap::new(),
            sum: 0,
            scale,
        }
    }
}

impl Accumulator for SlidingDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values
            .iter()
            .flat_map(|array| array.as_primitive::<Decimal128Type>())
            .flatten()
        {
            let count = self.counts.entry(value).or_default();
            if *count == 0 {
                self.sum += value;
            }
            *count += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values
            .iter()
            .flat_map(|array| array.as_primitive::<Decimal128Type>())
            .flatten()
        {
            let Some(count) = self.counts.get_mut(&value) else {
                return internal_err!("{value} leaves a window that it is not in");
            };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&value);
                self.sum -= value;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (!self.counts.is_empty()).then_some(self.sum);
        Ok(ScalarValue::Decimal128(sum, 38, self.scale))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window is not cut into parts")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a window is not cut into parts")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, u64)>()
    }
}
