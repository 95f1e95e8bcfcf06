//! The last value that is not null, kept from row to row.
//!
//! Invariant: it is DataFusion's aggregate in everything but that a window of it is not turned round, as DataFusion does where rows come
//! in the opposite order: the result is then called as the first value, and is not found by its name.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::first_last::last_value_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature};
use std::sync::{Arc, LazyLock};

/// `last_value` for windows.
pub(crate) fn last_value() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        let base = last_value_udaf();
        Arc::new(AggregateUDF::new_from_impl(Carried { base }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Carried {
    base: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Carried {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn signature(&self) -> &Signature {
        self.base.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.base.return_field(fields)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.base.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.base.accumulator(args)
    }
}
