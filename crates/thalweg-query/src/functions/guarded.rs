//! Functions of DataFusion that are called with care.
//!
//! Invariant: they are DataFusion's own in everything but the moment of the call: names, types and what is known of them
//! while planning. But `date_bin` and `date_trunc` of times are computed by [`super::time_groups`], the first in the type of the times;
//! and `to_char` takes times with a zone in their unit.

use super::applied;
use super::bounded::Size;
use super::time_groups::TimeGrouping;
use crate::error::{query, to_datafusion};
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature,
};
use std::sync::Arc;
use thalweg_table::{Error, ErrorKind};

/// `functions` with a guard before those that need it.
pub(crate) fn guarded(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    functions.into_iter().map(with_guard).collect()
}

/// The function with its guard, if it needs one.
pub(crate) fn with_guard(base: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match Guard::of(base.name()) {
        Some(guard) => Arc::new(ScalarUDF::new_from_impl(Guarded {
            signature: guard.signature(&base),
            base,
            guard,
        })),
        None => base,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Guard {
    /// Of what may be too large.
    Size(Size),
    /// Of what may lose times.
    Time(TimeGrouping),
    /// Of what computes in floats, and takes the last time for all that is beyond it.
    Seconds,
    /// Of what takes the first pattern for all rows where the time is one.
    Patterns,
}

impl Guard {
    fn of(function: &str) -> Option<Self> {
        Size::of(function)
            .map(Self::Size)
            .or_else(|| TimeGrouping::of(function).map(Self::Time))
            .or(match function {
                "to_timestamp" => Some(Self::Seconds),
                "to_char" => Some(Self::Patterns),
                _ => None,
            })
    }

    /// Returns the signature: types that may stay as they are, and otherwise those of DataFusion.
    fn signature(self, base: &ScalarUDF) -> Signature {
        let mut signature = base.signature().clone();
        if matches!(self, Self::Time(TimeGrouping::Bin) | Self::Patterns)
            && let TypeSignature::OneOf(forms) = &mut signature.type_signature
        {
            forms.insert(0, TypeSignature::UserDefined);
        }
        signature
    }
}

/// The types of a time with a zone and of its pattern: DataFusion has forms for every unit, but makes nanoseconds of all that have
/// a zone, which hold the years 1677 to 2262 only.
fn zoned_as_given(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [time @ DataType::Timestamp(_, Some(_)), pattern] if pattern.is_string() => {
            Some(vec![time.clone(), DataType::Utf8])
        }
        _ => None,
    }
}

/// The arguments, all as arrays if the second one is an array.
fn by_row(mut args: ScalarFunctionArgs) -> Result<ScalarFunctionArgs> {
    let is_array = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Array(_));
    if args.args.get(1).is_some_and(is_array) {
        for arg in &mut args.args {
            *arg = ColumnarValue::Array(arg.to_array(args.number_rows)?);
        }
    }
    Ok(args)
}

/// Seconds in floats as times in nanoseconds, of the digits that are shown of them: a product of floats has others.
///
/// # Errors
/// `OutOfDomain` for a float that is no second of the years that nanoseconds hold.
fn of_seconds(seconds: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let floats = cast(seconds, &DataType::Float64)?;
    let ns = |seconds: f64| {
        ns_of(seconds).ok_or_else(|| {
            let message = format!(
                "to_timestamp({seconds}) is beyond timestamps in nanoseconds, which reach from 1677-09-21 to 2262-04-11: it takes seconds"
            );
            to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
        })
    };
    let times = floats.as_primitive::<Float64Type>();
    let times: Int64Array = times.try_unary(ns)?;
    let times: ArrayRef = Arc::new(times);
    Ok(cast(&times, to)?)
}

fn ns_of(seconds: f64) -> Option<i64> {
    const DIGITS: usize = 9;
    if !seconds.is_finite() {
        return None;
    }
    // The shortest digits that are this float.
    let shown = seconds.abs().to_string();
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(DIGITS)
        .collect();
    let ns: i128 = format!("{whole}{digits}").parse().ok()?;
    i64::try_from(if seconds < 0.0 { -ns } else { ns }).ok()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    base: Arc<ScalarUDF>,
    guard: Guard,
    signature: Signature,
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn aliases(&self) -> &[String] {
        self.base.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.base.schema_name(args)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.base.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.base.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let as_given = match self.guard {
            Guard::Time(grouping) => grouping.types_as_given(arg_types),
            Guard::Patterns => zoned_as_given(arg_types),
            _ => None,
        };
        as_given.map_or_else(|| self.base.coerce_types(arg_types), Ok)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.base.simplify(args, info)
    }

    /// The times that a year has. A year beyond the type has none that could be compared with: DataFusion then compares with NULL.
    fn preimage(
        &self,
        args: &[Expr],
        value: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        Ok(match self.base.preimage(args, value, info)? {
            PreimageResult::Range { interval, .. }
                if interval.lower().is_null() || interval.upper().is_null() =>
            {
                PreimageResult::None
            }
            found => found,
        })
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.guard {
            Guard::Size(size) => {
                size.check(self.name(), &args.args, args.number_rows)?;
                size.without_negatives(&mut args.args)?;
                self.base.invoke_with_args(args)
            }
            Guard::Time(grouping) => grouping.invoke(&self.base, args),
            Guard::Patterns => {
                let length = args.args.first().map(ColumnarValue::data_type);
                if matches!(length, Some(DataType::Duration(_) | DataType::Interval(_))) {
                    return Err(to_datafusion(query(
                        "strftime and to_char take a time, not a length of time: CAST it to VARCHAR, or add it to a date",
                    )));
                }
                self.base.invoke_with_args(by_row(args)?)
            }
            Guard::Seconds => match &*args.args {
                [seconds] if seconds.data_type().is_floating() => applied(&args, |arrays| {
                    of_seconds(&arrays[0], args.return_field.data_type())
                }),
                _ => self.base.invoke_with_args(args),
            },
        }
    }
}
