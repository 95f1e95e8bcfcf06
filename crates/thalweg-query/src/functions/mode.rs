//! `mode`, the value that is there most often, and `count(DISTINCT (a, b))`, how many different rows there are.
//!
//! Invariants: of values that are there equally often it is the smallest, so that the order of rows and the number of
//! threads change nothing; to `mode` null is no value, in a row it is one; 0.0 and -0.0 are one value, and so is every NaN.

use super::plain_floats::plain_values;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use arrow::row::{RowConverter, RowParser, Rows, SortField};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use std::collections::HashMap;
use std::sync::Arc;

/// `mode(value)`, and `count_of_rows(value, ...)`.
pub(crate) fn functions() -> [Arc<AggregateUDF>; 2] {
    [
        (
            Wanted::MostFrequent,
            Signature::any(1, Volatility::Immutable),
        ),
        (
            Wanted::Number,
            Signature::variadic_any(Volatility::Immutable),
        ),
    ]
    .map(|(wanted, signature)| {
        Arc::new(AggregateUDF::new_from_impl(OfCounts { wanted, signature }))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    MostFrequent,
    /// The number of different rows.
    Number,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfCounts {
    wanted: Wanted,
    signature: Signature,
}

impl AggregateUDFImpl for OfCounts {
    fn name(&self) -> &str {
        match self.wanted {
            Wanted::MostFrequent => "mode",
            Wanted::Number => "count_of_rows",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let missing = || internal_datafusion_err!("{} has no argument", self.name());
        let first = arg_types.first().cloned().ok_or_else(missing)?;
        Ok(match self.wanted {
            Wanted::MostFrequent => first,
            Wanted::Number => DataType::Int64,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |name: String, data_type: &DataType| {
            let item = Field::new_list_field(data_type.clone(), true);
            Arc::new(Field::new_list(
                format!("{}[{name}]", args.name),
                item,
                true,
            ))
        };
        let columns = args.input_fields.iter().enumerate();
        let values =
            columns.map(|(place, field)| list(format!("values{place}"), field.data_type()));
        Ok(values
            .chain([list("counts".to_owned(), &DataType::UInt64)])
            .collect())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let fields = args.expr_fields.iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        let rows = RowConverter::new(fields.collect())?;
        Ok(Box::new(Counts {
            parser: rows.parser(),
            rows,
            wanted: self.wanted,
            data_type: args.return_field.data_type().clone(),
            counts: HashMap::new(),
            values_bytes: 0,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// How often each value or row is there.
#[derive(Debug)]
struct Counts {
    wanted: Wanted,
    data_type: DataType,
    rows: RowConverter,
    parser: RowParser,
    /// By the bytes of a row, which are in the order of the values.
    counts: HashMap<Box<[u8]>, u64>,
    values_bytes: usize,
}

impl Counts {
    fn rows_of(&mut self, columns: &[ArrayRef]) -> Result<Rows> {
        let columns: Vec<ArrayRef> = columns.iter().map(plain_values).collect();
        Ok(self.rows.convert_columns(&columns)?)
    }

    fn is_counted(&self, columns: &[ArrayRef], place: usize) -> bool {
        self.wanted == Wanted::Number || columns.iter().all(|values| values.is_valid(place))
    }

    fn add(&mut self, columns: &[ArrayRef], count: impl Fn(usize) -> u64) -> Result<()> {
        let rows = self.rows_of(columns)?;
        for (place, row) in rows.iter().enumerate() {
            if !self.is_counted(columns, place) {
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

    fn take_away(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = self.rows_of(columns)?;
        for (place, row) in rows.iter().enumerate() {
            if !self.is_counted(columns, place) {
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
        self.add(values, |_| 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take_away(values)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some((counts, columns)) = states.split_last() else {
            return Err(internal_datafusion_err!("counts have no state"));
        };
        for (place, counts) in counts.as_list::<i32>().iter().enumerate() {
            let Some(counts) = counts else { continue };
            let columns = columns
                .iter()
                .map(|lists| lists.as_list::<i32>().value(place));
            let counts = counts.as_primitive::<UInt64Type>();
            self.add(&columns.collect::<Vec<_>>(), |place| counts.value(place))?;
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
        let columns = self.rows.convert_rows(rows)?;
        let counts: UInt64Array = self.counts.values().copied().collect();
        Ok(columns
            .into_iter()
            .chain([Arc::new(counts) as ArrayRef])
            .map(list)
            .collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.wanted == Wanted::Number {
            let count = i64::try_from(self.counts.len()).ok();
            return Ok(ScalarValue::Int64(count));
        }
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
