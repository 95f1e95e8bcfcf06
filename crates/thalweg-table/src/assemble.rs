//! Puts Arrow columns together from pieces: of raw rows or of pages.
//!
//! Invariants: memory that has been filled becomes an array's memory without another copy; an array that comes out of
//! [`ColumnBuilder::finish`] has passed Arrow's own checks of lengths, offsets and UTF-8.

use crate::buffers::{Buffers, MIN_BYTES, allocate};
use crate::constant::Constant;
use crate::definition::{Column, TableDefinition};
use crate::error::{damaged, invalid};
use crate::schema::{element_type, width_bytes};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray,
    downcast_primitive_array, make_array,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer,
    NullBufferBuilder,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::ElementType;
use thalweg_kernel::Result;

/// A batch that grows, of all columns of a table or some.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    schema: SchemaRef,
    pub(crate) columns: Vec<BatchColumn>,
    /// Ids with their positions, ascending.
    positions: Vec<(u32, usize)>,
    pub(crate) rows: usize,
}

/// A column of such a batch.
#[derive(Debug)]
pub(crate) struct BatchColumn {
    pub(crate) id: u32,
    pub(crate) field: FieldRef,
    pub(crate) element: ElementType,
    /// The bytes of the value of rows that do not have the column.
    fill: Option<Arc<[u8]>>,
    pub(crate) builder: ColumnBuilder,
}

impl BatchColumn {
    /// Whether rows that do not have the column may be read.
    pub(crate) fn may_be_missing(&self) -> bool {
        self.fill.is_some() || self.field.is_nullable()
    }

    /// Rows that were stored before the column was there. False when the column would outgrow its 32 bit offsets.
    #[must_use]
    pub(crate) fn append_missing(&mut self, rows: usize) -> bool {
        match &self.fill {
            Some(fill) => self.builder.append_constant(fill, rows),
            None => {
                self.builder.append_nulls(rows);
                true
            }
        }
    }
}

impl BatchBuilder {
    /// An empty batch of all columns, or of those with the ids in `projection`, in that order.
    pub(crate) fn new(definition: &TableDefinition, projection: Option<&[u32]>) -> Result<Self> {
        let column = |position: usize| {
            let field = Arc::clone(&definition.schema().fields()[position]);
            let element =
                element_type(field.data_type()).ok_or_else(|| invalid("not a stored type"))?;
            let builder = ColumnBuilder::new(element);
            let Column { id, fill, .. } = &definition.columns()[position];
            let fill = { fill.as_ref() }.and_then(|fill| fill.bytes(field.data_type()));
            Ok(BatchColumn {
                id: *id,
                fill: fill.map(Arc::from),
                field,
                element,
                builder,
            })
        };
        let place = |id: &u32| {
            definition
                .position(*id)
                .ok_or_else(|| invalid(format!("there is no column with id {id}")))
        };
        let (schema, columns) = match projection {
            None => {
                let columns = (0..definition.columns().len())
                    .map(column)
                    .collect::<Result<Vec<_>>>()?;
                (Arc::clone(definition.schema()), columns)
            }
            Some(ids) => {
                let columns = ids
                    .iter()
                    .map(|id| place(id).and_then(column))
                    .collect::<Result<Vec<_>>>()?;
                let fields = columns
                    .iter()
                    .map(|column| Arc::clone(&column.field))
                    .collect::<Vec<_>>();
                (Arc::new(Schema::new(fields)), columns)
            }
        };
        let mut positions = columns
            .iter()
            .enumerate()
            .map(|(at, column)| (column.id, at))
            .collect::<Vec<_>>();
        positions.sort_unstable();
        if let Some(twice) = positions.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = schema.field(twice[0].1).name();
            return Err(invalid(format!(
                "the columns that are asked for name \"{name}\" twice"
            )));
        }
        Ok(Self {
            schema,
            columns,
            positions,
            rows: 0,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Where the column with this id is.
    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        let found = self.positions.binary_search_by_key(&id, |(id, _)| *id);
        found.ok().map(|index| self.positions[index].1)
    }

    /// The batch, and an empty builder again. An error is damage in `what`.
    pub(crate) fn finish(&mut self, what: &str) -> Result<RecordBatch> {
        let finish = |column: &mut BatchColumn| {
            let array = column.builder.finish(column.field.data_type());
            array.map_err(|e| {
                damaged(
                    what,
                    format_args!("column \"{}\": {e}", column.field.name()),
                )
            })
        };
        let arrays = self
            .columns
            .iter_mut()
            .map(finish)
            .collect::<Result<Vec<_>>>()?;
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| damaged(what, e))
    }
}

/// A column that grows.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    element: ElementType,
    nulls: NullBufferBuilder,
    values: ValuesBuilder,
}

#[derive(Debug)]
enum ValuesBuilder {
    Fixed(FixedBuilder),
    Bits(BooleanBufferBuilder),
    Bytes { offsets: Vec<i32>, data: Vec<u8> },
}

impl ValuesBuilder {
    fn new(element: ElementType) -> Self {
        match element {
            ElementType::Bits => Self::Bits(BooleanBufferBuilder::new(0)),
            ElementType::Bytes => Self::Bytes {
                offsets: vec![0],
                data: Vec::new(),
            },
            _ => Self::Fixed(FixedBuilder::default()),
        }
    }
}

/// Values of fixed width.
#[derive(Debug)]
struct FixedBuilder {
    /// Bytes past `used` are left over from an earlier use: they are not cleared again to be overwritten.
    memory: MutableBuffer,
    used: usize,
    /// Where the memory goes back to.
    home: Option<Arc<Buffers>>,
}

impl Default for FixedBuilder {
    fn default() -> Self {
        Self {
            memory: allocate(0),
            used: 0,
            home: None,
        }
    }
}

impl FixedBuilder {
    /// Takes memory for so many bytes, from `buffers` if there is much to fill.
    fn reserve(&mut self, bytes: usize, buffers: Option<&Arc<Buffers>>) {
        match buffers {
            Some(buffers) if self.used == 0 && bytes >= MIN_BYTES => {
                self.memory = buffers.take(bytes);
                self.home = Some(Arc::clone(buffers));
            }
            _ => self.append(|memory| memory.reserve(bytes)),
        }
    }

    /// Lets `append` write after the bytes in use.
    fn append(&mut self, append: impl FnOnce(&mut MutableBuffer)) {
        self.memory.truncate(self.used);
        append(&mut self.memory);
        self.used = self.memory.len();
    }

    /// Returns room for so many values after the bytes in use, to be overwritten.
    fn grow<T: ArrowNativeType>(&mut self, values: usize) -> &mut [T] {
        let start = self.used / size_of::<T>();
        self.used += values * size_of::<T>();
        if self.used > self.memory.len() {
            self.memory.resize(self.used, 0);
        }
        &mut self.memory.typed_data_mut()[start..start + values]
    }

    fn finish(mut self) -> Buffer {
        self.memory.truncate(self.used);
        match &self.home {
            Some(home) => home.lend(self.memory),
            None => self.memory.into(),
        }
    }
}

impl ColumnBuilder {
    /// An empty column of values of `element`.
    pub(crate) fn new(element: ElementType) -> Self {
        Self {
            element,
            nulls: NullBufferBuilder::new(0),
            values: ValuesBuilder::new(element),
        }
    }

    /// Rows without a value.
    pub(crate) fn append_nulls(&mut self, rows: usize) {
        self.nulls.append_n_nulls(rows);
        match &mut self.values {
            ValuesBuilder::Fixed(values) => {
                let bytes = rows * width_bytes(self.element).unwrap_or(0);
                values.append(|memory| memory.extend_zeros(bytes));
            }
            ValuesBuilder::Bits(values) => values.append_n(rows, false),
            ValuesBuilder::Bytes { offsets, .. } => {
                let last = offsets[offsets.len() - 1];
                offsets.resize(offsets.len() + rows, last);
            }
        }
    }

    /// Rows that all have one value, given by its bytes. False when the column would outgrow its 32 bit offsets.
    #[must_use]
    pub(crate) fn append_constant(&mut self, value: &[u8], rows: usize) -> bool {
        match &mut self.values {
            ValuesBuilder::Fixed(values) => values.append(|memory| {
                (0..rows).for_each(|_| memory.extend_from_slice(value));
            }),
            ValuesBuilder::Bits(values) => {
                values.append_n(rows, value.first().is_some_and(|bit| *bit != 0))
            }
            ValuesBuilder::Bytes { offsets, data } => {
                let end = value
                    .len()
                    .checked_mul(rows)
                    .and_then(|added| data.len().checked_add(added));
                if end.is_none_or(|end| i32::try_from(end).is_err()) {
                    return false;
                }
                for _ in 0..rows {
                    data.extend_from_slice(value);
                    // The end was just seen to fit.
                    offsets.push(i32::try_from(data.len()).unwrap_or(i32::MAX));
                }
            }
        }
        self.nulls.append_n_non_nulls(rows);
        true
    }

    /// Marks the rows whose values follow as valid.
    #[inline]
    pub(crate) fn append_valid(&mut self, rows: usize) {
        self.nulls.append_n_non_nulls(rows);
    }

    /// Notes whether the next row, whose value follows, is valid.
    #[inline]
    pub(crate) fn append_is_valid(&mut self, is_valid: bool) {
        self.nulls.append(is_valid);
    }

    /// Notes which of the rows whose values follow are valid: some bits of a bitmap, lowest bit first.
    pub(crate) fn append_validity(&mut self, bits: &[u8], range: Range<usize>) {
        let bits = BooleanBuffer::new(Buffer::from(bits), range.start, range.len());
        self.nulls.append_buffer(&NullBuffer::new(bits));
    }

    /// Values of `from`, which is the column's own type or one that widens to it.
    #[inline]
    pub(crate) fn append_fixed(&mut self, from: ElementType, bytes: &[u8]) {
        let ValuesBuilder::Fixed(values) = &mut self.values else {
            unreachable!("a bug: fixed values for a column of {:?}", self.element);
        };
        let to = self.element;
        values.append(|memory| {
            if from == to {
                append_copied(memory, bytes);
            } else {
                append_widened(from, to, bytes, memory);
            }
        });
    }

    /// Booleans: some bits of a bitmap, lowest bit first.
    pub(crate) fn append_bits(&mut self, bits: &[u8], range: Range<usize>) {
        let ValuesBuilder::Bits(values) = &mut self.values else {
            unreachable!("a bug: booleans for a column of {:?}", self.element);
        };
        values.append_packed_range(range, bits);
    }

    /// Room at the end for `rows` values of the column's own type, to be filled by the caller.
    pub(crate) fn grow<T: ArrowNativeType>(&mut self, rows: usize) -> &mut [T] {
        let ValuesBuilder::Fixed(values) = &mut self.values else {
            unreachable!("a bug: fixed values for a column of {:?}", self.element);
        };
        assert_eq!(
            width_bytes(self.element),
            Some(size_of::<T>()),
            "another width"
        );
        values.grow(rows)
    }

    /// Offsets and data, for a caller that appends to both so that the last offset stays the length of the data.
    pub(crate) fn strings_mut(&mut self) -> (&mut Vec<i32>, &mut Vec<u8>) {
        match &mut self.values {
            ValuesBuilder::Bytes { offsets, data } => (offsets, data),
            _ => unreachable!("a bug: strings for a column of {:?}", self.element),
        }
    }

    /// Bytes of all strings so far.
    pub(crate) fn string_bytes(&self) -> usize {
        match &self.values {
            ValuesBuilder::Bytes { data, .. } => data.len(),
            _ => 0,
        }
    }

    /// Makes room for as many rows, not counting the data of strings; large memory comes from `buffers`.
    pub(crate) fn reserve(&mut self, rows: usize, buffers: Option<&Arc<Buffers>>) {
        match &mut self.values {
            ValuesBuilder::Fixed(values) => {
                values.reserve(rows * width_bytes(self.element).unwrap_or(0), buffers)
            }
            ValuesBuilder::Bits(values) => values.reserve(rows),
            ValuesBuilder::Bytes { offsets, .. } => offsets.reserve(rows),
        }
    }

    /// Strings or binary values: lengths of four bytes each, and all their data. False when the column would outgrow
    /// its 32 bit offsets.
    #[must_use]
    pub(crate) fn append_strings(&mut self, lengths: &[u8], added: &[u8]) -> bool {
        let (offsets, data) = self.strings_mut();
        if i32::try_from(data.len() + added.len()).is_err() {
            return false;
        }
        let mut end = offsets[offsets.len() - 1];
        for length in lengths.chunks_exact(4) {
            // The lengths add up to `added`, whose end was just seen to fit.
            end += i32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            offsets.push(end);
        }
        data.extend_from_slice(added);
        true
    }

    /// Strings or binary values as Arrow has them: `offsets` into `source`. False as for [`Self::append_strings`].
    #[must_use]
    pub(crate) fn append_strings_of(&mut self, added: &[i32], source: &[u8]) -> bool {
        let (offsets, data) = self.strings_mut();
        let (first, last) = (added[0], added[added.len() - 1]);
        let base = offsets[offsets.len() - 1];
        if base.checked_add(last - first).is_none() {
            return false;
        }
        offsets.extend(added[1..].iter().map(|offset| base + (offset - first)));
        data.extend_from_slice(
            &source[first.unsigned_abs() as usize..last.unsigned_abs() as usize],
        );
        true
    }

    /// The array, and an empty builder again.
    pub(crate) fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let values = std::mem::replace(&mut self.values, ValuesBuilder::new(self.element));
        match values {
            ValuesBuilder::Fixed(values) => fixed_array(data_type, values.finish(), nulls),
            ValuesBuilder::Bits(mut values) => {
                Ok(Arc::new(BooleanArray::new(values.finish(), nulls)))
            }
            ValuesBuilder::Bytes { offsets, data } => bytes_array(data_type, offsets, data, nulls),
        }
    }
}

/// An array that repeats the value of a constant `rows` times; `None` where the type has no such value, or the array would be too long.
pub(crate) fn constant_array(
    constant: &Constant,
    data_type: &DataType,
    rows: usize,
) -> Option<ArrayRef> {
    let mut builder = ColumnBuilder::new(element_type(data_type)?);
    let fits = builder.append_constant(&constant.bytes(data_type)?, rows);
    fits.then(|| builder.finish(data_type).ok()).flatten()
}

/// The memory of the values of a fixed-width array, without those that a slice left out.
pub(crate) fn fixed_values(array: &dyn Array) -> &Buffer {
    downcast_primitive_array!(
        array => array.values().inner(),
        other => unreachable!("a bug: {other} has no fixed width"),
    )
}

/// An array of a fixed-width type over `values`.
fn fixed_array(
    data_type: &DataType,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let rows = values.len() / data_type.primitive_width().unwrap_or(1);
    let data = ArrayData::builder(data_type.clone())
        .len(rows)
        .nulls(nulls)
        .add_buffer(values)
        .build()?;
    Ok(make_array(data))
}

/// An array of strings or binary values.
fn bytes_array(
    data_type: &DataType,
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    // The offsets were made from lengths: they rise from zero, which is what this asserts.
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(match data_type {
        DataType::Utf8 => Arc::new(StringArray::try_new(offsets, Buffer::from(data), nulls)?),
        _ => Arc::new(BinaryArray::try_new(offsets, Buffer::from(data), nulls)?),
    })
}

/// Appends the bytes of values. Single values come by the million: a copy of constant size is a store, not a call.
#[inline]
fn append_copied(values: &mut MutableBuffer, bytes: &[u8]) {
    match bytes.len() {
        8 => values.push(u64::from_le_bytes(first(bytes))),
        4 => values.push(u32::from_le_bytes(first(bytes))),
        _ => values.extend_from_slice(bytes),
    }
}

/// The first bytes of a longer or equal slice.
#[inline]
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// Appends values of a narrower type. Not inlined: its many loops would make each append of one value save a dozen registers.
#[inline(never)]
pub(crate) fn append_widened(
    from: ElementType,
    to: ElementType,
    bytes: &[u8],
    out: &mut MutableBuffer,
) {
    use ElementType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    macro_rules! widen {
        ($from:ty, $to:ty) => {
            for value in bytes.chunks_exact(size_of::<$from>()) {
                out.push(<$to>::from(<$from>::from_le_bytes(first(value))));
            }
        };
    }
    match (from, to) {
        (I8, I16) => widen!(i8, i16),
        (I8, I32) => widen!(i8, i32),
        (I8, I64) => widen!(i8, i64),
        (I16, I32) => widen!(i16, i32),
        (I16, I64) => widen!(i16, i64),
        (I32, I64) => widen!(i32, i64),
        (U8, U16) => widen!(u8, u16),
        (U8, U32) => widen!(u8, u32),
        (U8, U64) => widen!(u8, u64),
        (U16, U32) => widen!(u16, u32),
        (U16, U64) => widen!(u16, u64),
        (U32, U64) => widen!(u32, u64),
        (F32, F64) => widen!(f32, f64),
        _ => unreachable!("a bug: {from:?} does not widen to {to:?}"),
    }
}
