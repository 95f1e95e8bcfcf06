//! `octet_length` of texts and of blobs.
//!
//! Invariant: it counts bytes; DataFusion's own takes texts only.

use super::{applied, replaced};
use crate::error::{query, to_datafusion};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;

/// `functions` with `octet_length` replaced.
pub(crate) fn of_blobs(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    replaced(functions, "octet_length", |_| OctetLength {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OctetLength {
    signature: Signature,
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &'static str {
        "octet_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        use DataType as T;
        match types {
            [T::Utf8 | T::LargeUtf8 | T::Binary | T::LargeBinary] => Ok(types.to_vec()),
            [T::BinaryView] => Ok(vec![T::Binary]),
            [T::Utf8View | T::Null] => Ok(vec![T::Utf8]),
            [other] => Err(to_datafusion(query(format!(
                "octet_length takes a text or a blob, not {}: CAST(x AS VARCHAR) makes a text",
                sql_type_name(other).to_lowercase()
            )))),
            _ => Err(to_datafusion(query("octet_length takes one text or blob"))),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [values] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            Ok(cast(&length(values)?, &DataType::Int64)?)
        })
    }
}
