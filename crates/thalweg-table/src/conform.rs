//! Makes a batch fit a table: columns by name, lossless casts, nulls where columns are missing.
//!
//! Invariants: what is returned has exactly the table's schema, no null in a column that may not have one and no value
//! above the limit; every value equals the one given, which is proven by casting back unless the types alone prove it.
//! Exception: floats that are all NaN or null are nulls in a column of no numbers, as pandas has missing texts.
//! A batch that fits already is passed on: nothing of it is copied or looked at row by row.

use crate::assemble::constant_array;
use crate::cast::{self, Refused};
use crate::constant::Constant;
use crate::definition::{Column, TableDefinition};
use crate::error::{limit, schema};
use crate::schema::{MAX_VALUE_BYTES, shown_type, stored_type};
use crate::time::parse_time;
use crate::value::no_fraction;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_buffer::OffsetBuffer;
use arrow_cast::CastOptions;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Schema, TimeUnit};
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Characters of an offending value that a message shows.
const SHOWN_CHARS: usize = 80;

/// `batch` with the schema of the table. Rows are counted from 0 in messages.
///
/// ```
/// # fn main() -> thalweg_table::Result<()> {
/// # use thalweg_table::{CreateOptions, Layouts, TableDefinition, conform, schema::schema_of_names};
/// use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
/// use std::sync::Arc;
///
/// let schema = schema_of_names([("ts", "bigint"), ("count", "bigint")])?;
/// let definition = TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))?;
/// let given = RecordBatch::try_from_iter([
///     ("COUNT", Arc::new(Int32Array::from(vec![7])) as ArrayRef),
///     ("ts", Arc::new(Int64Array::from(vec![1]))),
/// ]).unwrap();
/// let rows = conform(&definition, &given)?;
/// assert_eq!(rows.schema_ref(), definition.schema());
/// assert_eq!(rows.column(1).as_ref(), &Int64Array::from(vec![7]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Schema` when a column is unknown, missing or given twice, a value cannot be stored as it is, or is null where it
/// may not be; `Limit` for a string above 16 MiB.
pub fn conform(definition: &TableDefinition, batch: &RecordBatch) -> Result<RecordBatch> {
    conform_after(0, definition, batch)
}

/// Conforms a batch that comes after `before` rows, which messages count too.
pub(crate) fn conform_after(
    before: u64,
    definition: &TableDefinition,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let given = batch.schema_ref();
    if Arc::ptr_eq(given, definition.schema()) {
        check_columns(before, definition, batch.columns())?;
        return Ok(batch.clone());
    }
    let arrays = if fits(definition.schema(), given) {
        batch.columns().to_vec()
    } else {
        let places = match_columns(definition, given)?;
        let column_of = |(column, place): (&Column, &Option<usize>)| match place {
            Some(place) => conform_array(before, column, batch.column(*place)),
            None => defaults(column, batch.num_rows()),
        };
        definition
            .columns()
            .iter()
            .zip(&places)
            .map(column_of)
            .collect::<Result<_>>()?
    };
    check_columns(before, definition, &arrays)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(definition.schema()), arrays, &options)
        .map_err(|e| Error::with_source(ErrorKind::Schema, e.to_string(), e))
}

/// The only value of an array as a constant of a column, given by its name and type; `None` for null.
///
/// # Errors
/// `Schema` where the type does not take it without loss; `Limit` for a string above 16 MiB.
pub fn constant_of(
    column: &str,
    array: &ArrayRef,
    data_type: &DataType,
) -> Result<Option<Constant>> {
    let column = Column {
        id: 1,
        name: column.to_owned(),
        data_type: stored_type(data_type).unwrap_or_else(|| data_type.clone()),
        nullable: true,
        default: None,
        fill: None,
    };
    let value = conform_array(0, &column, array)?;
    check_sizes(0, &column, &value)?;
    Ok(Constant::of_array(&value))
}

/// The default of a column as SQL writes it: `DEFAULT` and this make the same one. `None`: there is none.
pub fn default_in_sql(column: &Column) -> Option<String> {
    let value = constant_array(column.default.as_ref()?, &column.data_type, 1)?;
    if let Some(bytes) = value.as_binary_opt::<i32>() {
        let digits: Vec<String> = bytes
            .value(0)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        return Some(format!("X'{}'", digits.concat()));
    }
    let formatter = ArrayFormatter::try_new(&value, &FormatOptions::new()).ok()?;
    let text = formatter.value(0).try_to_string().ok()?;
    Some(format!("'{}'", text.replace('\'', "''")))
}

/// The default of a column for so many rows; null without one.
fn defaults(column: &Column, rows: usize) -> Result<ArrayRef> {
    let Some(default) = &column.default else {
        return Ok(new_null_array(&column.data_type, rows));
    };
    constant_array(default, &column.data_type, rows).ok_or_else(|| {
        let name = &column.name;
        limit(format!(
            "column \"{name}\": its default is too long for {rows} rows at once"
        ))
    })
}

/// `array` as a column of the table, without the checks for nulls and sizes that [`conform`] adds.
fn conform_array(before: u64, column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    if *array.data_type() == column.data_type {
        return Ok(Arc::clone(array));
    }
    // Without a value there is nothing to lose: pandas takes a column of which a part of a file has none for one of floats.
    if has_no_value(array, &column.data_type) {
        return Ok(new_null_array(&column.data_type, array.len()));
    }
    let (name, wanted) = (&column.name, shown_type(&column.data_type));
    let number = |row: usize| before + row as u64;
    cast::lossless(array, &column.data_type).map_err(|refused| match refused {
        Refused::Types => {
            let hint = match array.data_type().is_floating() {
                true => no_fraction(&column.data_type),
                false => String::new(),
            };
            let hint = match hint.is_empty() {
                true => "; cast it first".to_owned(),
                false => hint,
            };
            let given = shown_type(array.data_type());
            schema(format!(
                "column \"{name}\" is {wanted} and does not take {given}{hint}"
            ))
        }
        Refused::Value(row) if array.data_type().is_string() => schema(format!(
            "column \"{name}\": row {} holds {}, which {}",
            number(row),
            shown_value(array, row),
            no_time(array, row, &column.data_type)
        )),
        Refused::Value(row) if is_out_of_range(array, row, &column.data_type) => schema(format!(
            "column \"{name}\": row {} holds {}, which is outside the range of {wanted}{}",
            number(row),
            shown_value(array, row),
            wider(&column.data_type)
        )),
        Refused::Value(row) if array.data_type().is_binary() => schema(format!(
            "column \"{name}\": row {} holds the bytes {}, which are no text in UTF-8; of a UUID of Python str(...) is its text",
            number(row),
            shown_value(array, row)
        )),
        Refused::Value(row) => schema(format!(
            "column \"{name}\": row {} holds {}, which {wanted} cannot hold exactly; cast or round it first",
            number(row),
            shown_value(array, row)
        )),
        Refused::TooLarge => {
            limit(format!("column \"{name}\" holds more than 2 GiB in one batch; append smaller batches"))
        }
        Refused::Arrow(e) => Error::with_source(ErrorKind::Schema, format!("column \"{name}\": {e}"), e),
    })
}

/// Whether all of an array is missing: null, or NaN where numbers have no place, which is what pandas has for a missing text.
fn has_no_value(array: &ArrayRef, to: &DataType) -> bool {
    if array.is_empty() {
        return false;
    }
    if array.null_count() == array.len() {
        return true;
    }
    match array.data_type() {
        DataType::Float64 if !to.is_numeric() => {
            let mut floats = array.as_primitive::<Float64Type>().iter().flatten();
            floats.all(f64::is_nan)
        }
        _ => false,
    }
}

/// Whether names, their order and the types are the same: then there is nothing to match or cast.
fn fits(wanted: &Schema, given: &Schema) -> bool {
    let (wanted, given) = (wanted.fields(), given.fields());
    wanted.len() == given.len()
        && wanted.iter().zip(given).all(|(w, g)| {
            Arc::ptr_eq(w, g) || (w.name() == g.name() && w.data_type() == g.data_type())
        })
}

/// For each column of the table its place in the batch.
fn match_columns(definition: &TableDefinition, given: &Schema) -> Result<Vec<Option<usize>>> {
    let mut places = vec![None; definition.columns().len()];
    for (place, field) in given.fields().iter().enumerate() {
        let position = definition.find(field.name()).ok_or_else(|| {
            schema(format!(
                "the table has no column \"{}\"; {}its columns are {}",
                field.name(),
                definition.did_you_mean(field.name()),
                definition.column_list()
            ))
        })?;
        if places[position].replace(place).is_some() {
            return Err(schema(format!(
                "the column \"{}\" is given twice",
                field.name()
            )));
        }
    }
    for (column, place) in definition.columns().iter().zip(&places) {
        if place.is_none() && !column.nullable && column.default.is_none() {
            return Err(schema(format!(
                "the column \"{}\" is missing and may not be null",
                column.name
            )));
        }
    }
    Ok(places)
}

fn check_columns(before: u64, definition: &TableDefinition, arrays: &[ArrayRef]) -> Result<()> {
    for (column, array) in definition.columns().iter().zip(arrays) {
        if !column.nullable && array.null_count() > 0 {
            return Err(null_refused(before, definition, column, array));
        }
        check_sizes(before, column, array)?;
    }
    Ok(())
}

fn null_refused(
    before: u64,
    definition: &TableDefinition,
    column: &Column,
    array: &ArrayRef,
) -> Error {
    let row = (0..array.len())
        .find(|&row| array.is_null(row))
        .unwrap_or(0);
    let row = before + row as u64;
    let role = { definition.position(column.id) }.and_then(|at| definition.arrangement().role(at));
    let why = role.unwrap_or("the column");
    schema(format!(
        "column \"{}\": row {row} is null, and {why} may not be null",
        column.name
    ))
}

/// Refuses strings above the limit. A column that holds less than that altogether, nearly every one, is not read.
fn check_sizes(before: u64, column: &Column, array: &ArrayRef) -> Result<()> {
    let offsets: &OffsetBuffer<i32> = match column.data_type {
        DataType::Utf8 => array.as_string::<i32>().offsets(),
        DataType::Binary => array.as_binary::<i32>().offsets(),
        _ => return Ok(()),
    };
    let too_long = |bytes: i32| usize::try_from(bytes).is_ok_and(|bytes| bytes > MAX_VALUE_BYTES);
    if !too_long(offsets[offsets.len() - 1] - offsets[0]) {
        return Ok(());
    }
    // The longest first: a loop without a way out is a vector loop.
    let lengths = || {
        offsets
            .iter()
            .zip(&offsets[1..])
            .map(|(start, end)| end - start)
    };
    if !lengths().max().is_some_and(too_long) {
        return Ok(());
    }
    let row = lengths().position(too_long).unwrap_or(0);
    let bytes = offsets[row + 1].abs_diff(offsets[row]) as usize;
    Err(value_too_long(&column.name, before + row as u64, bytes))
}

/// The error for a string or binary value above the limit.
pub(crate) fn value_too_long(column: &str, row: u64, bytes: usize) -> Error {
    limit(format!(
        "column \"{column}\": row {row} holds {bytes} bytes; a value has at most {MAX_VALUE_BYTES} (16 MiB)"
    ))
}

/// Whether a value has no place in a type even where it is rounded.
fn is_out_of_range(array: &ArrayRef, row: usize, wanted: &DataType) -> bool {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let given = array.data_type();
    if !given.is_numeric() && !given.is_temporal() {
        return false;
    }
    // Floats become the nearest narrower ones: what was refused has none.
    if given.is_floating() && wanted.is_floating() {
        return true;
    }
    let value = array.slice(row, 1);
    // NaN is no number, of whatever range.
    let is_nan = value.data_type().is_floating()
        && arrow_cast::cast(&value, &DataType::Float64)
            .is_ok_and(|number| number.as_primitive::<Float64Type>().value(0).is_nan());
    !is_nan && arrow_cast::cast_with_options(&value, wanted, &options).is_err()
}

/// The reason why a text is no value of a type of times, for a message. No other types are made of texts.
fn no_time(array: &ArrayRef, row: usize, wanted: &DataType) -> String {
    let name = shown_type(wanted);
    let text = arrow_cast::cast(&array.slice(row, 1), &DataType::LargeUtf8);
    let parsed = text.map(|text| parse_time(text.as_string::<i64>().value(0), wanted));
    match parsed {
        Ok(Err(error)) if error.kind() == ErrorKind::OutOfDomain => {
            format!("is outside the range of {name}{}", wider(wanted))
        }
        Ok(Err(error)) if error.kind() == ErrorKind::Schema => {
            format!("{name} cannot hold exactly; round it first")
        }
        // The text is quoted, and advice follows; a long text is not worth it.
        Ok(Err(error)) if shown_value(array, row).len() <= SHOWN_CHARS => {
            let advice = error.message().rsplit_once("\" ");
            advice
                .map_or(error.message(), |(_, advice)| advice)
                .to_owned()
        }
        _ => format!("is no value of type {name}"),
    }
}

/// Advice for a value outside the range of a type of times: the type that reaches further.
fn wider(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            "; a column of TIMESTAMP(6) reaches further"
        }
        DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => {
            "; a column of TIMESTAMP(6) WITH TIME ZONE reaches further"
        }
        _ => "",
    }
}

/// A value for a message, in quotes and cut to a readable length.
pub fn shown_value(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::new().with_display_error(false);
    let formatted = ArrayFormatter::try_new(array, &options);
    let text = formatted.and_then(|formatter| formatter.value(row).try_to_string());
    // A time out of the reach of the calendar, say.
    let text = text.unwrap_or_else(|_| "a value that cannot be shown".into());
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("\"{}...\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}
