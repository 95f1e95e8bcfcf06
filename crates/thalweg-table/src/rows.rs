//! Raw rows: the payload of a ROWS section, which is opaque to the kernel.
//!
//! Invariants: a payload names its columns by id and describes how their values lie, so that it can be read under any later
//! definition of its table; decoding checks every length against what is left before it takes memory for it, apart
//! from columns that are null throughout. The bytes are described in `docs/format/rows.md`.

use crate::assemble::{BatchBuilder, BatchColumn, fixed_values};
use crate::conform::value_too_long;
use crate::definition::{Column, TableDefinition};
use crate::error::{damaged, invalid, limit, schema};
use crate::schema::{MAX_VALUE_BYTES, element_type, widens, width_bytes};
use crate::system_columns::check_raw;
use crate::time::key_of_u64;
use crate::value::Value;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType;
use thalweg_codec::ElementType;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The version of the format, its first byte.
const VERSION: u8 = 1;
/// Version, three reserved bytes, rows, columns.
const HEAD_BYTES: usize = 12;
/// Rows of one payload.
pub const MAX_PAYLOAD_ROWS: usize = 1 << 24;

/// A column's tag: the element type in the low four bits, then how nulls are stored, then whether an id follows.
const TAG_ELEMENT: u8 = 0x0f;
const TAG_NULLS_BITMAP: u8 = 0x10;
const TAG_NULLS_ALL: u8 = 0x20;
const TAG_ID_FOLLOWS: u8 = 0x40;

/// How the nulls of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nulls {
    None,
    Bitmap,
    All,
}

fn put_head(rows: usize, columns: usize, out: &mut Vec<u8>) -> Result<()> {
    if rows > MAX_PAYLOAD_ROWS {
        return Err(limit(format!(
            "{rows} rows are more than the {MAX_PAYLOAD_ROWS} of one payload"
        )));
    }
    let too_many = || limit("too many columns");
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    out.extend_from_slice(&u32::try_from(rows).map_err(|_| too_many())?.to_le_bytes());
    out.extend_from_slice(
        &u32::try_from(columns)
            .map_err(|_| too_many())?
            .to_le_bytes(),
    );
    Ok(())
}

/// Appends a column's tag; `previous_id` is that of the column before it, 0 for the first.
fn put_tag(element: ElementType, nulls: Nulls, id: u32, previous_id: u32, out: &mut Vec<u8>) {
    let nulls_bits = match nulls {
        Nulls::None => 0,
        Nulls::Bitmap => TAG_NULLS_BITMAP,
        Nulls::All => TAG_NULLS_ALL,
    };
    let follows = id != previous_id + 1;
    out.push(element.to_byte() | nulls_bits | if follows { TAG_ID_FOLLOWS } else { 0 });
    if follows {
        out.extend_from_slice(&id.to_le_bytes());
    }
}

/// Appends the rows of a batch that has the table's schema.
///
/// # Errors
/// `Limit` for more than [`MAX_PAYLOAD_ROWS`] rows; `Invalid` for a batch of another schema.
pub fn encode_rows(
    definition: &TableDefinition,
    batch: &RecordBatch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let rows = batch.num_rows();
    put_head(rows, batch.num_columns(), out)?;
    let mut previous_id = 0;
    let elements = elements_of(definition, batch)?;
    for (index, (column, element)) in definition.columns().iter().zip(&elements).enumerate() {
        let nulls = nulls_of(batch, index);
        put_tag(*element, nulls, column.id, previous_id, out);
        previous_id = column.id;
    }
    for (index, element) in elements.into_iter().enumerate() {
        let array = batch.column(index);
        match nulls_of(batch, index) {
            Nulls::All => continue,
            Nulls::Bitmap => put_bits(
                array
                    .nulls()
                    .map_or(&BooleanBuffer::new_set(rows), NullBuffer::inner),
                out,
            ),
            Nulls::None => {}
        }
        put_values(array.as_ref(), element, out);
    }
    Ok(())
}

fn elements_of(definition: &TableDefinition, batch: &RecordBatch) -> Result<Vec<ElementType>> {
    let columns = definition.columns();
    let matching = columns.len() == batch.num_columns()
        && columns
            .iter()
            .zip(batch.columns())
            .all(|(column, array)| column.data_type == *array.data_type());
    if !matching {
        return Err(invalid("the batch does not have the schema of the table"));
    }
    columns
        .iter()
        .map(|column| element_type(&column.data_type).ok_or_else(|| schema("not a stored type")))
        .collect()
}

/// How the nulls of a column are stored. A payload of which every column is null throughout keeps the bitmap of its first column:
/// the bytes of a payload bound its rows, so that a few damaged bytes cannot ask for any number of them.
fn nulls_of(batch: &RecordBatch, index: usize) -> Nulls {
    let (rows, nulls) = (batch.num_rows(), batch.column(index).null_count());
    match nulls {
        0 => Nulls::None,
        nulls
            if nulls == rows
                && (rows == 1
                    || index > 0
                    || batch.columns().iter().any(|c| c.null_count() < rows)) =>
        {
            Nulls::All
        }
        _ => Nulls::Bitmap,
    }
}

/// Appends bits; those past the last one are zero.
fn put_bits(bits: &BooleanBuffer, out: &mut Vec<u8>) {
    let bytes = bits.len().div_ceil(8);
    out.extend_from_slice(&bits.sliced().as_slice()[..bytes]);
    if let (Some(last), used @ 1..) = (out.last_mut(), bits.len() % 8) {
        *last &= (1 << used) - 1;
    }
}

/// Appends the values; those of null rows as zeros, so that equal rows are equal bytes.
fn put_values(array: &dyn Array, element: ElementType, out: &mut Vec<u8>) {
    match element {
        ElementType::Bits => match (array.as_boolean().values(), array.nulls()) {
            (values, Some(nulls)) => put_bits(&(values & nulls.inner()), out),
            (values, None) => put_bits(values, out),
        },
        ElementType::Bytes if *array.data_type() == DataType::Utf8 => {
            let text = array.as_string::<i32>();
            put_strings(text.offsets(), text.value_data(), array.nulls(), out);
        }
        ElementType::Bytes => {
            let binary = array.as_binary::<i32>();
            put_strings(binary.offsets(), binary.value_data(), array.nulls(), out);
        }
        fixed => put_fixed(array, width_bytes(fixed).unwrap_or(0), out),
    }
}

fn put_fixed(array: &dyn Array, width_bytes: usize, out: &mut Vec<u8>) {
    let values = fixed_values(array).as_slice();
    let start = out.len();
    out.extend_from_slice(values);
    if let Some(nulls) = array.nulls() {
        for row in (0..array.len()).filter(|&row| nulls.is_null(row)) {
            out[start + row * width_bytes..][..width_bytes].fill(0);
        }
    }
}

/// Appends lengths and data, nothing for null rows.
fn put_strings(offsets: &[i32], data: &[u8], nulls: Option<&NullBuffer>, out: &mut Vec<u8>) {
    // Offsets of an Arrow array rise from zero or above.
    let at = |row: usize| offsets[row].unsigned_abs() as usize;
    let rows = offsets.len() - 1;
    let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
    for (row, pair) in offsets.windows(2).enumerate() {
        let bytes = if is_null(row) {
            0
        } else {
            pair[1].abs_diff(pair[0])
        };
        out.extend_from_slice(&bytes.to_le_bytes());
    }
    if nulls.is_none_or(|nulls| nulls.null_count() == 0) {
        out.extend_from_slice(&data[at(0)..at(rows)]);
        return;
    }
    for row in (0..rows).filter(|&row| !is_null(row)) {
        out.extend_from_slice(&data[at(row)..at(row + 1)]);
    }
}

/// Writes single rows. Nothing is allocated but the output.
#[derive(Clone, Debug)]
pub struct RowWriter {
    columns: Vec<(Column, ElementType)>,
    order: Option<usize>,
    /// The head and the tags of a row without nulls, as nearly all are.
    front: Vec<u8>,
}

impl RowWriter {
    /// A writer of rows of this table.
    ///
    /// # Errors
    /// Never for a definition that was checked.
    pub fn new(definition: &TableDefinition) -> Result<Self> {
        let element = |column: &Column| {
            element_type(&column.data_type).ok_or_else(|| schema("not a stored type"))
        };
        let columns = definition
            .columns()
            .iter()
            .map(|column| Ok((column.clone(), element(column)?)));
        let mut writer = Self {
            columns: columns.collect::<Result<_>>()?,
            order: definition.order_position(),
            front: Vec::new(),
        };
        let mut front = Vec::new();
        writer.put_front(|_| false, &mut front)?;
        writer.front = front;
        Ok(writer)
    }

    /// Bytes of a row without nulls, if its strings are short: room that is worth taking at once.
    #[must_use]
    pub fn usual_bytes(&self) -> usize {
        self.front.len() + 8 * self.columns.len()
    }

    fn put_front(&self, is_null: impl Fn(usize) -> bool, out: &mut Vec<u8>) -> Result<()> {
        put_head(1, self.columns.len(), out)?;
        let mut previous_id = 0;
        for (position, (column, element)) in self.columns.iter().enumerate() {
            let nulls = if is_null(position) {
                Nulls::All
            } else {
                Nulls::None
            };
            if nulls == Nulls::All && !column.nullable {
                return Err(schema(format!(
                    "column \"{}\" may not be null",
                    column.name
                )));
            }
            put_tag(*element, nulls, column.id, previous_id, out);
            previous_id = column.id;
        }
        Ok(())
    }

    /// Appends a payload of one row, its values in the order of the schema, and returns the value of the column that
    /// orders the rows as their key (0 where none does). On error `out` is as before.
    ///
    /// # Errors
    /// `Schema` when there are too few or too many values or one does not fit its column; `Limit` for a string above
    /// 16 MiB.
    pub fn write(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<i64> {
        let start = out.len();
        let result = self.try_write(values, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn try_write(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<i64> {
        if values.len() != self.columns.len() {
            let (given, wanted) = (values.len(), self.columns.len());
            return Err(schema(format!(
                "{given} values were given for {wanted} columns"
            )));
        }
        let is_null = |value: &Value<'_>| matches!(value, Value::Null);
        if values.iter().any(is_null) {
            self.put_front(|position| is_null(&values[position]), out)?;
        } else {
            out.extend_from_slice(&self.front);
        }
        let mut key = 0;
        for (position, ((column, element), value)) in self.columns.iter().zip(values).enumerate() {
            if is_null(value) {
                continue;
            }
            let bits = put_value(column, *element, value, out)?;
            if self.order == Some(position) {
                key = if column.data_type == DataType::UInt64 {
                    key_of_u64(bits.cast_unsigned())
                } else {
                    bits
                };
            }
        }
        Ok(key)
    }
}

/// Appends one value and returns it if it is an integer of up to 64 bits.
fn put_value(
    column: &Column,
    element: ElementType,
    value: &Value<'_>,
    out: &mut Vec<u8>,
) -> Result<i64> {
    match element {
        // Most values are of these types, and are what they seem to be.
        ElementType::F64 if let Value::Float(number) = value => {
            out.extend_from_slice(&number.to_le_bytes());
        }
        ElementType::I64
            if let Value::Int(number) = value
                && column.data_type == DataType::Int64 =>
        {
            out.extend_from_slice(&number.to_le_bytes());
            return Ok(*number);
        }
        ElementType::Bits => out.push(value.boolean(column)?.into()),
        ElementType::Bytes => {
            let bytes = value.bytes(column)?;
            let length = u32::try_from(bytes.len())
                .ok()
                .filter(|_| bytes.len() <= MAX_VALUE_BYTES);
            let length = length.ok_or_else(|| value_too_long(&column.name, 0, bytes.len()))?;
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        _ => return value.put_fixed(column, out),
    }
    Ok(0)
}

/// All rows of `payloads`, in their order, as one batch with the table's schema.
///
/// ```
/// # fn main() -> thalweg_table::Result<()> {
/// # use thalweg_table::{CreateOptions, Layouts, TableDefinition, decode_rows, encode_rows, schema::schema_of_names};
/// use arrow_array::{Int64Array, RecordBatch};
/// use std::sync::Arc;
///
/// let schema = schema_of_names([("ts", "bigint")])?;
/// let definition = TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))?;
/// let batch = RecordBatch::try_new(definition.schema().clone(), vec![Arc::new(Int64Array::from(vec![1, 2]))]).unwrap();
/// let mut payload = Vec::new();
/// encode_rows(&definition, &batch, &mut payload)?;
/// assert_eq!(decode_rows(&definition, [&payload[..]])?, batch);
/// assert!(decode_rows(&definition, [&payload[..5]]).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Corruption` for bytes that no writer of this table made; `Limit` when one column holds more than 2 GiB of strings.
pub fn decode_rows<'a>(
    definition: &TableDefinition,
    payloads: impl IntoIterator<Item = &'a [u8]>,
) -> Result<RecordBatch> {
    let mut decoder = RowsDecoder::new(definition, None)?;
    payloads
        .into_iter()
        .try_for_each(|payload| decoder.push(payload))?;
    decoder.finish()
}

/// Collects the rows of many payloads into one batch.
#[derive(Debug)]
pub struct RowsDecoder {
    batch: BatchBuilder,
    /// Nearly every payload has the tags of the one before.
    plan: Plan,
}

/// How to read a payload.
#[derive(Debug, Default)]
struct Plan {
    /// The bytes it was made from: the number of columns and their tags.
    tags: Vec<u8>,
    steps: Vec<Step>,
    /// Columns of the result that the payload has, and those that it does not.
    found: Vec<bool>,
    missing: Vec<usize>,
}

/// One column of a payload.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Where it goes in the result; `None` if nobody asked for it.
    target: Option<usize>,
    element: ElementType,
    nulls: Nulls,
}

impl RowsDecoder {
    /// A decoder for rows of this table, of all columns or of those with the ids in `projection`, in that order.
    ///
    /// # Errors
    /// When a projected column does not exist.
    pub fn new(definition: &TableDefinition, projection: Option<&[u32]>) -> Result<Self> {
        Ok(Self {
            batch: BatchBuilder::new(definition, projection)?,
            plan: Plan::default(),
        })
    }

    /// Rows collected so far.
    pub fn rows(&self) -> usize {
        self.batch.rows
    }

    /// Adds the rows of a payload. After an error the decoder must not be used again.
    ///
    /// # Errors
    /// As [`decode_rows`]; `Unsupported` for rows that a newer version wrote.
    pub fn push(&mut self, payload: &[u8]) -> Result<()> {
        let bad = |reason: &str| damaged("raw rows", reason);
        let Some((head, behind)) = payload.split_at_checked(HEAD_BYTES - 4) else {
            return Err(bad("the payload ends within its head"));
        };
        if head[..4] != [VERSION, 0, 0, 0] {
            return Err(match head[0] {
                0 | VERSION => bad("unknown version or reserved bytes"),
                newer => newer_rows(newer),
            });
        }
        let rows = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if rows > MAX_PAYLOAD_ROWS || rows > payload.len() * 8 {
            return Err(bad("more rows than its bytes can hold"));
        }
        if self.plan.tags.is_empty() || !behind.starts_with(&self.plan.tags) {
            self.read_tags(behind)?;
        }
        let mut cursor = Cursor(&behind[self.plan.tags.len()..]);
        for step in &self.plan.steps {
            let target = step.target.map(|at| &mut self.batch.columns[at]);
            read_column(*step, rows, &mut cursor, target)?;
        }
        if !cursor.0.is_empty() {
            return Err(bad("bytes behind the last column"));
        }
        for &at in &self.plan.missing {
            let column = &mut self.batch.columns[at];
            match column.may_be_missing() {
                true if column.append_missing(rows) => {}
                true => return Err(bad("the default of a column is too long for so many rows")),
                false => append_nulls(column, rows)?,
            }
        }
        self.batch.rows += rows;
        Ok(())
    }

    /// Makes the plan for payloads that begin with the number of columns and the tags in `bytes`.
    fn read_tags(&mut self, bytes: &[u8]) -> Result<()> {
        let mut plan = std::mem::take(&mut self.plan);
        plan.clear(self.batch.columns.len());
        let mut cursor = Cursor(bytes);
        let columns = u32::from_le_bytes(cursor.array()?);
        let mut previous_id = 0_u32;
        for _ in 0..columns {
            let [tag] = cursor.array()?;
            let (step, id) = self.read_tag(tag, previous_id, &mut cursor)?;
            if let Some(at) = step.target {
                plan.found[at] = true;
            }
            previous_id = id;
            plan.steps.push(step);
        }
        plan.missing
            .extend((0..plan.found.len()).filter(|&at| !plan.found[at]));
        plan.tags
            .extend_from_slice(&bytes[..bytes.len() - cursor.0.len()]);
        self.plan = plan;
        Ok(())
    }

    fn read_tag(&self, tag: u8, previous_id: u32, cursor: &mut Cursor<'_>) -> Result<(Step, u32)> {
        let bad = |reason: &str| damaged("raw rows", reason);
        let next_id = previous_id
            .checked_add(1)
            .ok_or_else(|| bad("column ids overflow"))?;
        let id = if tag & TAG_ID_FOLLOWS == 0 {
            next_id
        } else {
            u32::from_le_bytes(cursor.array()?)
        };
        if id < next_id {
            return Err(bad("column ids do not rise"));
        }
        check_raw(id)?;
        let element =
            ElementType::from_byte(tag & TAG_ELEMENT).map_err(|e| damaged("raw rows", e))?;
        let nulls = match tag & !(TAG_ELEMENT | TAG_ID_FOLLOWS) {
            0 => Nulls::None,
            TAG_NULLS_BITMAP => Nulls::Bitmap,
            TAG_NULLS_ALL => Nulls::All,
            _ => return Err(bad("unknown bits in a column's tag")),
        };
        let target = self.batch.position(id);
        if target.is_some_and(|at| !widens(element, self.batch.columns[at].element)) {
            return Err(bad("a column of another type than the table's"));
        }
        Ok((
            Step {
                target,
                element,
                nulls,
            },
            id,
        ))
    }

    /// The batch. The decoder begins anew.
    ///
    /// # Errors
    /// `Corruption` when strings are not UTF-8.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.batch.finish("raw rows")
    }
}

fn newer_rows(version: u8) -> Error {
    let message = format!(
        "raw rows of format version {version}: this program reads version {VERSION}; a newer one wrote them"
    );
    Error::new(ErrorKind::Unsupported, message)
}

impl Plan {
    fn clear(&mut self, columns: usize) {
        self.tags.clear();
        self.steps.clear();
        self.missing.clear();
        self.found.clear();
        self.found.resize(columns, false);
    }
}

fn append_nulls(column: &mut BatchColumn, rows: usize) -> Result<()> {
    if !column.field.is_nullable() && rows > 0 {
        let name = column.field.name();
        return Err(damaged(
            "raw rows",
            format_args!("column \"{name}\" is null and may not be"),
        ));
    }
    column.builder.append_nulls(rows);
    Ok(())
}

/// Reads one column of a payload, into `target` if anybody wants it.
fn read_column(
    step: Step,
    rows: usize,
    cursor: &mut Cursor<'_>,
    target: Option<&mut BatchColumn>,
) -> Result<()> {
    let validity = match step.nulls {
        Nulls::All => return target.map_or(Ok(()), |target| append_nulls(target, rows)),
        Nulls::Bitmap => Some(cursor.bits(rows)?),
        Nulls::None => None,
    };
    let values = match (step.element, width_bytes(step.element)) {
        (_, Some(width_bytes)) => Values::Fixed(cursor.take(rows * width_bytes)?),
        (ElementType::Bits, None) => Values::Bits(cursor.bits(rows)?),
        (_, None) => {
            let lengths = cursor.take(rows * 4)?;
            let length =
                |four: &[u8]| u64::from(u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            let total: u64 = lengths.chunks_exact(4).map(length).sum();
            let total = usize::try_from(total).map_err(|e| damaged("raw rows", e))?;
            Values::Strings {
                lengths,
                data: cursor.take(total)?,
            }
        }
    };
    let Some(BatchColumn { builder, field, .. }) = target else {
        return Ok(());
    };
    match validity {
        None => builder.append_valid(rows),
        Some(_) if !field.is_nullable() => {
            return Err(damaged(
                "raw rows",
                format_args!("column \"{}\" has nulls and may not", field.name()),
            ));
        }
        Some(bits) => builder.append_validity(bits, 0..rows),
    }
    match values {
        Values::Fixed(bytes) => builder.append_fixed(step.element, bytes),
        Values::Bits(bits) => builder.append_bits(bits, 0..rows),
        Values::Strings { lengths, data } => {
            if !builder.append_strings(lengths, data) {
                return Err(limit(format!(
                    "column \"{}\" holds more than 2 GiB of open rows",
                    field.name()
                )));
            }
        }
    }
    Ok(())
}

/// The values of one column of a payload.
enum Values<'a> {
    Fixed(&'a [u8]),
    Bits(&'a [u8]),
    Strings { lengths: &'a [u8], data: &'a [u8] },
}

/// The rest of a payload, which is still to be read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(bytes) else {
            return Err(damaged("raw rows", "the payload ends within a column"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A bitmap, whose unused bits must be zero.
    fn bits(&mut self, rows: usize) -> Result<&'a [u8]> {
        let bytes = self.take(rows.div_ceil(8))?;
        if let (Some(last), used @ 1..) = (bytes.last(), rows % 8)
            && last >> used != 0
        {
            return Err(damaged("raw rows", "bits behind the last row"));
        }
        Ok(bytes)
    }
}
