//! `list_sum` of integers and decimals, exact or an error.
//!
//! DataFusion's adds doubles, which have 15 digits. Invariant: the sum of a list has the type that `sum` gives the same values, and
//! it is NULL where there is none to add.

use super::total::beyond;
use super::{applied, named_as_base, replaced};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;

/// `functions` with `list_sum` replaced.
pub(crate) fn exact(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    replaced(functions, "array_sum", |base| ListSum { base })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListSum {
    base: Arc<ScalarUDF>,
}

/// The type of the exact sum of a list, if it has one.
fn sum_type(list: &DataType) -> Option<DataType> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
        list
    else {
        return None;
    };
    match item.data_type() {
        integer if integer.is_signed_integer() => Some(DataType::Int64),
        integer if integer.is_unsigned_integer() => Some(DataType::UInt64),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => {
            Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale))
        }
        _ => None,
    }
}

impl ScalarUDFImpl for ListSum {
    named_as_base!();

    fn documentation(&self) -> Option<&Documentation> {
        self.base.documentation()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [list] if sum_type(list).is_some() => Ok(types.to_vec()),
            _ => self.base.coerce_types(types),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [list] => sum_type(list).map_or_else(|| self.base.return_type(types), Ok),
            _ => self.base.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args
            .args
            .first()
            .and_then(|list| sum_type(&list.data_type()))
        {
            Some(result) => applied(&args, |arrays| sums(&arrays[0], &result)),
            None => self.base.invoke_with_args(args),
        }
    }
}

fn sums(lists: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    // 38 digits hold the sum of more integers of 64 bits than a list can have.
    let wide = match result {
        DataType::Decimal128(..) => result.clone(),
        _ => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
    };
    let wide_lists = DataType::LargeList(Arc::new(Field::new_list_field(wide.clone(), true)));
    let lists = cast(lists, &wide_lists)?;
    let lists = lists.as_list::<i64>();
    let sum = |list: ArrayRef| {
        let items = list.as_primitive::<Decimal128Type>().iter().flatten();
        items.fold(None, |sum: Option<i128>, item| {
            // What is beyond 128 bits is beyond 38 digits.
            Some(sum.unwrap_or(0).saturating_add(item))
        })
    };
    let sums =
        (0..lists.len()).map(|row| lists.is_valid(row).then(|| sum(lists.value(row))).flatten());
    let sums = sums.collect::<Decimal128Array>().with_data_type(wide);
    let is_held = |sum: &i128| match result {
        DataType::Int64 => i64::try_from(*sum).is_ok(),
        DataType::UInt64 => u64::try_from(*sum).is_ok(),
        _ => sum.unsigned_abs() < 10_u128.pow(u32::from(DECIMAL128_MAX_PRECISION)),
    };
    if let Some(row) = (0..sums.len()).find(|&row| sums.is_valid(row) && !is_held(&sums.value(row)))
    {
        return Err(beyond("list_sum", sums.value_as_string(row), result));
    }
    Ok(cast(&sums, result)?)
}
