//! `mode`: the value that is there most often.
//!
//! Invariants: of values that are there equally often it is the smallest, so that the order of rows and the number of
//! threads change nothing; null is no value; 0.0 and -0.0 are one value, and so is every NaN.

use super::plain_floats::plain_values;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use arrow::row::{RowConverter, RowParser, SortField};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use std::collections::HashMap;
use std::sync::Arc;

/// `mode(value)`.
pub(crate) fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Mode {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &'static str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let missing = || internal_datafusion_err!("mode has no argument");
        arg_types.first().cloned().ok_or_else(missing)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |name: &str, data_type: &DataType| {
            let item = Field::new_list_field(data_type.clone(), true);
            Arc::new(Field::new_list(
                format!("{}[{name}]", args.name),
                item,
                true,
            ))
        };
        Ok(vec![
            list("values", args.return_field.data_type()),
            list("counts", &DataType::UInt64),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type().clone();
        let rows = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        Ok(Box::new(Counts {
            parser: rows.parser(),
            rows,
            data_type,
            counts: HashMap::new(),
            values_bytes: 0,
        }))
    }
}

/// How often each value is there.
#[derive(Debug)]
struct Counts {
    data_type: DataType,
    rows: RowConverter,
    parser: RowParser,
    /// By the bytes of a row, which are in the order of the values.
    counts: HashMap<Box<[u8]>, u64>,
    values_bytes: usize,
}

impl Counts {
    fn add(&mut self, values: &ArrayRef, count: impl Fn(usize) -> u64) -> Result<()> {
        let rows = self.rows.convert_columns(&[plain_values(values)])?;
        for (place, row) in rows.iter().enumerate() {
            if values.is_null(place) {
                continue;
            }
            let bytes = row.as_ref();
            match self.counts.get_mut(bytes) {
                Some(known) => *known += count(place),
                None => {
                    self.counts.insert(bytes.into(), count(place));
                    self.values_bytes += bytes.len();
                }
            }
        }
        Ok(())
    }

    fn take_away(&mut self, values: &ArrayRef) -> Result<()> {
        let rows = self.rows.convert_columns(&[plain_values(values)])?;
        for (place, row) in rows.iter().enumerate() {
            if values.is_null(place) {
                continue;
            }
            let bytes = row.as_ref();
            let absent = || internal_datafusion_err!("a value leaves a window that it was not in");
            let count = self.counts.get_mut(bytes).ok_or_else(absent)?;
            *count -= 1;
            if *count == 0 {
                self.counts.remove(bytes);
                self.values_bytes -= bytes.len();
            }
        }
        Ok(())
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values] => self.add(values, |_| 1),
            _ => Err(internal_datafusion_err!("mode takes one argument")),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values] => self.take_away(values),
            _ => Err(internal_datafusion_err!("mode takes one argument")),
        }
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else {
            return Err(internal_datafusion_err!("mode has two states"));
        };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        for (values, counts) in values.iter().zip(counts.iter()) {
            if let (Some(values), Some(counts)) = (values, counts) {
                let counts = counts.as_primitive::<UInt64Type>();
                self.add(&values, |place| counts.value(place))?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |values: ArrayRef| {
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths([values.len()]);
            ScalarValue::List(Arc::new(ListArray::new(item, offsets, values, None)))
        };
        let rows = self.counts.keys().map(|bytes| self.parser.parse(bytes));
        let values = self.rows.convert_rows(rows)?;
        let [values] = &*values else {
            return Err(internal_datafusion_err!("mode counts one column"));
        };
        let counts: UInt64Array = self.counts.values().copied().collect();
        Ok(vec![list(Arc::clone(values)), list(Arc::new(counts))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let most = self.counts.iter().max_by(|(a, often), (b, as_often)| {
            let by_count = often.cmp(as_often);
            by_count.then_with(|| b.cmp(a))
        });
        let Some((most, _)) = most else {
            return ScalarValue::try_new_null(&self.data_type);
        };
        let values = self.rows.convert_rows([self.parser.parse(most)])?;
        ScalarValue::try_from_array(&values[0], 0)
    }

    fn size(&self) -> usize {
        let entry = size_of::<(Box<[u8]>, u64)>();
        size_of_val(self) + self.values_bytes + self.counts.capacity() * entry
    }
}
