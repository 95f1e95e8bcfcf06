//! `date_bin`, `date_trunc` and `date_part` for all times of a column.
//!
//! DataFusion's go through nanoseconds, which hold the years 1677 to 2262 only: `date_bin` gives NULL for any other time,
//! and rows of far years end up in one group silently; `date_trunc` wraps at the ends; `date_part` gives NULL for times beyond its
//! calendar. Invariant: what comes out is
//! what summaries would answer, or an error.

use crate::error::{query, to_datafusion};
use crate::pushdown::bucket::{buckets, instant_ns, interval_ns};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use std::sync::Arc;
use thalweg_table::{Bucket, Error, ErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TimeGrouping {
    /// `date_bin`.
    Bin,
    /// `date_trunc`.
    Truncate,
    /// `date_part`.
    Part,
}

impl TimeGrouping {
    /// Of the function with this name, if it is one of those.
    pub(crate) fn of(function: &str) -> Option<Self> {
        match function {
            "date_bin" => Some(Self::Bin),
            "date_trunc" => Some(Self::Truncate),
            "date_part" => Some(Self::Part),
            _ => None,
        }
    }

    /// The beginnings of the groups.
    pub(crate) fn invoke(
        self,
        base: &ScalarUDF,
        args: ScalarFunctionArgs,
    ) -> Result<ColumnarValue> {
        let name = base.name().to_owned();
        let Some(times) = args.args.get(1).cloned() else {
            return base.invoke_with_args(args);
        };
        if self == Self::Bin
            && let Some(ColumnarValue::Scalar(width)) = args.args.first()
            && interval_ns(width).is_some_and(|width_ns| width_ns < 0)
        {
            return Err(to_datafusion(query(
                "the width of a bucket must not be negative",
            )));
        }
        if self == Self::Bin
            && let Some(bucket) = bucket_of(&args.args, &times.data_type())
        {
            return binned(&name, bucket, &times);
        }
        let groups = base.invoke_with_args(args)?;
        let fit = match self {
            Self::Bin | Self::Part => nulls(&groups)? <= nulls(&times)?,
            Self::Truncate => are_before(&groups, &times)?,
        };
        match (fit, self) {
            (true, _) => Ok(groups),
            (false, Self::Part) => Err(beyond_calendar(&name)),
            (false, Self::Bin | Self::Truncate) => Err(outside(&name)),
        }
    }
}

fn outside(function: &str) -> datafusion::error::DataFusionError {
    let message = format!(
        "{function}: a group begins outside of what its type holds, or of the years 1677 to 2262"
    );
    to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
}

fn beyond_calendar(function: &str) -> datafusion::error::DataFusionError {
    let message = format!("{function}: a time is beyond the years -262143 to 262142");
    to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
}

/// Of a constant width and origin, in steps of the column.
fn bucket_of(args: &[ColumnarValue], times: &DataType) -> Option<Bucket> {
    let constant = |arg: &ColumnarValue| match arg {
        ColumnarValue::Scalar(value) => Some(value.clone()),
        ColumnarValue::Array(_) => None,
    };
    let width_ns = interval_ns(&constant(args.first()?)?)?;
    let origin_ns = match args.get(2) {
        None => 0,
        Some(origin) => instant_ns(&constant(origin)?)?,
    };
    buckets(1, times, width_ns, origin_ns)
}

fn binned(function: &str, bucket: Bucket, times: &ColumnarValue) -> Result<ColumnarValue> {
    let (array, is_scalar) = match times {
        ColumnarValue::Array(array) => (Arc::clone(array), false),
        ColumnarValue::Scalar(value) => (value.to_array()?, true),
    };
    let keys = numbers(&array)?;
    let starts = keys.try_unary::<_, Int64Type, _>(|key| bucket.start_of(key).ok_or(()));
    let starts = starts.map_err(|()| outside(function))?;
    let starts: ArrayRef = cast(&starts, array.data_type())?;
    if is_scalar {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
            &starts, 0,
        )?));
    }
    Ok(ColumnarValue::Array(starts))
}

fn numbers(times: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(times, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

fn nulls(values: &ColumnarValue) -> Result<usize> {
    Ok(match values {
        ColumnarValue::Array(array) => array.null_count(),
        ColumnarValue::Scalar(value) => usize::from(value.is_null()),
    })
}

/// Whether no group begins after one of its times.
fn are_before(groups: &ColumnarValue, times: &ColumnarValue) -> Result<bool> {
    if groups.data_type() != times.data_type()
        || !matches!(groups.data_type(), DataType::Timestamp(..))
    {
        return Ok(true);
    }
    let (groups, times) = match (groups, times) {
        (ColumnarValue::Array(groups), ColumnarValue::Array(times)) => {
            (Arc::clone(groups), Arc::clone(times))
        }
        (ColumnarValue::Scalar(group), ColumnarValue::Scalar(time)) => {
            (group.to_array()?, time.to_array()?)
        }
        _ => return Ok(true),
    };
    let (groups, times) = (numbers(&groups)?, numbers(&times)?);
    let mut pairs = groups.iter().zip(times.iter());
    Ok(pairs.all(|(group, time)| group <= time))
}
