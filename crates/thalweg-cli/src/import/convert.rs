//! From text to the types of a table, row by row where something does not fit.
//!
//! Invariants: a value is stored exactly or its row is bad; rows keep their order.

use super::chunk::{BadRow, Chunk};
use crate::failure::Failure;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, TimestampMicrosecondType, TimestampMillisecondType};
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter_record_batch;
use std::sync::Arc;
use thalweg::{Error, ErrorKind, TableDefinition, TimeBound, key_box, type_name};

/// Text that a message shows of a value, at most.
const SHOWN_CHARACTERS: usize = 80;
/// `2026-01-31T09:30:00.123456789`: a longer text may have more digits than Arrow looks at.
const FULL_TIME_CHARACTERS: usize = 29;

/// Makes batches for one table out of chunks of one file.
#[derive(Debug)]
pub(super) struct Converter {
    /// The columns of the file with the names and types of the table.
    schema: SchemaRef,
}

impl Converter {
    /// Finds the columns of a file in a table, by name and in any order.
    pub(super) fn new(definition: &TableDefinition, names: &[String]) -> Result<Self, Failure> {
        let refuse = |message: String| Failure::Engine(Error::new(ErrorKind::Schema, message));
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            let column = &definition.columns()[definition.position_named(name)?];
            if !is_time(&column.data_type) && !can_cast_types(&DataType::Utf8, &column.data_type) {
                let type_name = type_name(&column.data_type);
                return Err(refuse(format!(
                    "column \"{name}\" is {type_name}, which cannot be read from text"
                )));
            }
            fields.push(Field::new(
                &column.name,
                column.data_type.clone(),
                column.nullable,
            ));
        }
        let missing = |name: &str| !fields.iter().any(|field| field.name() == name);
        if let Some(column) = definition
            .columns()
            .iter()
            .find(|column| !column.nullable && missing(&column.name))
        {
            return Err(refuse(format!(
                "the file has no column \"{}\", which must not be null",
                column.name
            )));
        }
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// The good rows of a chunk, and the bad ones.
    pub(super) fn convert(&self, chunk: &Chunk) -> Result<(RecordBatch, Vec<BadRow>), Failure> {
        let mut reasons: Vec<Option<String>> = vec![None; chunk.rows()];
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(chunk.columns.len());
        for (text, field) in chunk.columns.iter().zip(self.schema.fields()) {
            columns.push(convert_column(text, field, &mut reasons)?);
        }
        let nullable = self
            .schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.rows()));
        let mut batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let mut bad = chunk.bad.clone();
        if reasons.iter().any(Option::is_some) {
            let good: BooleanArray = reasons
                .iter()
                .map(|reason| Some(reason.is_none()))
                .collect();
            batch = filter_record_batch(&batch, &good)?;
            let rows = reasons
                .into_iter()
                .enumerate()
                .filter_map(|(row, reason)| Some((row, reason?)));
            bad.extend(rows.map(|(row, reason)| BadRow {
                line: chunk.lines[row],
                reason,
                raw: chunk.raw_of(row),
            }));
            bad.sort_by_key(|row| row.line);
        }
        Ok((batch, bad))
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date32)
}

/// One column; rows that do not fit get a reason, unless they have one already.
fn convert_column(
    text: &StringArray,
    field: &Field,
    reasons: &mut [Option<String>],
) -> Result<ArrayRef, Failure> {
    let data_type = field.data_type();
    let trimmed = if *data_type == DataType::Utf8 {
        text.clone()
    } else {
        trim(text)
    };
    let column: ArrayRef = if is_time(data_type) {
        convert_times(&trimmed, field, reasons)?
    } else {
        // What does not fit comes back as null.
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        cast_with_options(&trimmed, data_type, &options)?
    };
    let mut refuse = |row: usize, why: String| {
        reasons[row].get_or_insert_with(|| format!("column \"{}\": {why}", field.name()));
    };
    if column.null_count() > trimmed.null_count() {
        for row in (0..column.len()).filter(|&row| column.is_null(row) && trimmed.is_valid(row)) {
            refuse(
                row,
                format!("{} is no {}", shown(text.value(row)), type_name(data_type)),
            );
        }
    }
    if !field.is_nullable() && column.null_count() > 0 {
        for row in (0..column.len()).filter(|&row| trimmed.is_null(row)) {
            refuse(row, "empty, which it must not be".to_owned());
        }
    }
    Ok(column)
}

/// The same without space around values; what is empty then is null.
fn trim(text: &StringArray) -> StringArray {
    let as_it_is = |value: &str| {
        !value.is_empty()
            && !value.starts_with(char::is_whitespace)
            && !value.ends_with(char::is_whitespace)
    };
    if text.iter().flatten().all(as_it_is) {
        return text.clone();
    }
    text.iter()
        .map(|value| value.map(str::trim).filter(|value| !value.is_empty()))
        .collect()
}

/// Times are nearly always written in full: those come from Arrow's parser, a batch at a time. What it does not take, or
/// would cut, is left to [`parse_time`].
fn convert_times(
    text: &StringArray,
    field: &Field,
    reasons: &mut [Option<String>],
) -> Result<ArrayRef, Failure> {
    let data_type = field.data_type();
    let step_ns = step_ns(data_type);
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let fast = cast_with_options(
        text,
        &DataType::Timestamp(TimeUnit::Nanosecond, None),
        &options,
    )?;
    let fast = fast.as_primitive::<TimestampNanosecondType>();
    let mut steps: Vec<Option<i64>> = Vec::with_capacity(text.len());
    for (row, value) in text.iter().enumerate() {
        let Some(value) = value else {
            steps.push(None);
            continue;
        };
        let ns = fast.is_valid(row).then(|| fast.value(row));
        let whole = ns.filter(|ns| ns % step_ns == 0 && value.len() <= FULL_TIME_CHARACTERS);
        let step = whole.map_or_else(|| parse_time(value, data_type), |ns| Ok(ns / step_ns));
        steps.push(
            step.map_err(|why| {
                reasons[row].get_or_insert_with(|| format!("column \"{}\": {why}", field.name()))
            })
            .ok(),
        );
    }
    let array: ArrayRef = match data_type {
        DataType::Timestamp(unit, zone) => {
            let zone = zone.clone();
            match unit {
                TimeUnit::Second => timestamps::<TimestampSecondType>(steps, zone),
                TimeUnit::Millisecond => timestamps::<TimestampMillisecondType>(steps, zone),
                TimeUnit::Microsecond => timestamps::<TimestampMicrosecondType>(steps, zone),
                TimeUnit::Nanosecond => timestamps::<TimestampNanosecondType>(steps, zone),
            }
        }
        _ => {
            // Days beyond the type were refused by `parse_time`.
            let days = steps
                .into_iter()
                .map(|step| step.and_then(|step| i32::try_from(step).ok()));
            Arc::new(days.collect::<PrimitiveArray<Date32Type>>())
        }
    };
    Ok(array)
}

/// Nanoseconds of a step of a time type.
fn step_ns(data_type: &DataType) -> i64 {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        _ => 86_400_000_000_000,
    }
}

fn timestamps<T: arrow_array::types::ArrowTimestampType>(
    steps: Vec<Option<i64>>,
    zone: Option<Arc<str>>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter(steps).with_timezone_opt(zone))
}

/// A time in the steps of a column, by the rules of the engine: exactly or not at all.
pub(super) fn parse_time(text: &str, data_type: &DataType) -> Result<i64, String> {
    let bound = TimeBound::Text(text);
    match key_box(data_type, bound, bound) {
        // One step and no other: the key of a time is the time.
        Ok(Some(keys)) => Ok(*keys.start()),
        Ok(None) => Err(format!(
            "{} cannot hold {} exactly",
            type_name(data_type),
            shown(text)
        )),
        Err(_) => Err(format!(
            "{} is no time, as 2026-01-31T09:30:00 would be",
            shown(text)
        )),
    }
}

/// Whether there are digits and a sign, nothing else.
pub(super) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A value in a message.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("\"{}{dots}\"", cut.escape_debug())
}
