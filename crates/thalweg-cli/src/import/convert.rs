//! From text to the types of a table, row by row where something does not fit.
//!
//! Invariants: a value is stored exactly or its row is bad; rows keep their order.

use super::advice::{null_option, shown};
use super::chunk::{BadRow, Chunk};
use super::findings::type_words;
use super::infer::Reading;
use super::lengths::length;
use super::numbers::{
    epoch_ns, has_no_leading_zero, is_beyond_floats, is_float, is_integer, loses_digits,
    whole_number, with_decimal_point, without_thousands,
};
use super::times::{ORDERS, TimeText, unread_time, zone_name};
use crate::failure::Failure;
use crate::pattern::digits_pattern;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, TimestampMicrosecondType, TimestampMillisecondType};
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow_cast::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter_record_batch;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg::time_units::{DAY_NS, unit_ns};
use thalweg::{Error, ErrorKind, TableDefinition};

/// Length of `2026-01-31T09:30:00.123456789`. A longer text may have more digits than Arrow reads.
const FULL_TIME_CHARACTERS: usize = 29;

/// The end of the message for a time column with a number that is not whole.
pub(super) const CANNOT_ORDER: &str = "; a table is ordered by times, dates or whole numbers, not by doubles: name another column by --time, or, where they count from 1970, their unit by --time-unit s, ms, us or ns";

/// Makes batches for one table out of chunks of one file.
#[derive(Debug)]
pub(super) struct Converter {
    /// The columns of the file with the names and types of the table.
    schema: SchemaRef,
    readings: Vec<Reading>,
}

/// A value that its column does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) column: usize,
    pub(super) line: u64,
    pub(super) text: String,
    /// Whether this value is the one that its bad row is counted for: the value of a required column, else the first misfit.
    pub(super) is_reason: bool,
}

/// The result of converting a chunk.
pub(super) struct Converted {
    pub(super) batch: RecordBatch,
    pub(super) bad: Vec<BadRow>,
    /// Column by column, in the order of rows.
    pub(super) misfits: Vec<Misfit>,
}

/// Finds the columns of a file in a table, by name and in any order.
pub(super) fn fields_of(
    definition: &TableDefinition,
    names: &[String],
    table: &str,
) -> Result<Vec<Field>, Failure> {
    let refuse = |message: String| Failure::Engine(Error::new(ErrorKind::Schema, message));
    let with_time = definition.order_column().map_or_else(String::new, |time| {
        format!(" WITH (time = '{}')", time.name)
    });
    let has_none = names
        .iter()
        .all(|name| definition.position_named(name).is_err());
    let mut fields = Vec::with_capacity(names.len());
    for name in names {
        let place = definition.position_named(name);
        let place = place.map_err(|error| match joined_from(definition, names, name) {
            Some([date, clock]) => refuse(format!(
                "column \"{date}_{clock}\" is joined of two columns: --time {date},{clock}"
            )),
            None if has_none => Failure::Engine(Error::new(
                error.kind(),
                format!(
                    "{}; the first line names the columns: --no-header where it is a row",
                    error.message()
                ),
            )),
            None if error.message().contains("did you mean") => error.into(),
            None => Failure::Engine(Error::new(
                error.kind(),
                format!(
                    "{}; CREATE TABLE other{with_time} AS SELECT *, CAST(NULL AS DOUBLE) AS \"{name}\" FROM \"{table}\" makes a table that has it too",
                    error.message()
                ),
            )),
        })?;
        let column = &definition.columns()[place];
        check_reads(name, &column.data_type)?;
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
        .find(|column| !column.nullable && column.default.is_none() && missing(&column.name))
    {
        return Err(refuse(format!(
            "the file has no column \"{}\", which must not be null",
            column.name
        )));
    }
    Ok(fields)
}

/// An error if values of a type cannot be read from text.
pub(super) fn check_reads(name: &str, data_type: &DataType) -> Result<(), Failure> {
    let is_length = matches!(data_type, DataType::Duration(_));
    if is_time(data_type) || is_length || can_cast_types(&DataType::Utf8, data_type) {
        return Ok(());
    }
    let type_name = type_words(data_type);
    let message = format!("column \"{name}\" is {type_name}, which cannot be read from text");
    Err(Failure::Engine(Error::new(ErrorKind::Schema, message)))
}

/// The column `name` and another one of a file, if a column of the table is joined of them.
fn joined_from<'a>(
    definition: &TableDefinition,
    names: &'a [String],
    name: &'a str,
) -> Option<[&'a str; 2]> {
    let pairs = names
        .iter()
        .flat_map(|other| [[name, other], [other, name]]);
    let is_joined = |[date, clock]: &[&str; 2]| {
        definition
            .position_named(&format!("{date}_{clock}"))
            .is_ok()
    };
    pairs.into_iter().find(is_joined)
}

impl Converter {
    /// `fields` and `readings` are those of the columns of the file.
    pub(super) fn new(fields: Vec<Field>, readings: Vec<Reading>) -> Self {
        Self {
            schema: Arc::new(Schema::new(fields)),
            readings,
        }
    }

    pub(super) fn convert(&self, chunk: &Chunk) -> Result<Converted, Failure> {
        let mut reasons: Vec<Option<Reason>> = vec![None; chunk.rows()];
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(chunk.columns.len());
        let (mut misfits, mut misfit_rows) = (Vec::new(), Vec::new());
        let fields = self.schema.fields().iter().zip(&self.readings);
        for (place, (text, (field, reading))) in chunk.columns.iter().zip(fields).enumerate() {
            let mut refusals = Refusals {
                place,
                field,
                reasons: &mut reasons,
                misfits: Vec::new(),
            };
            columns.push(convert_column(text, field, reading, &mut refusals)?);
            misfits.extend(refusals.misfits.iter().map(|&row| Misfit {
                column: place,
                line: chunk.lines[row],
                text: text.value(row).trim().to_owned(),
                is_reason: false,
            }));
            misfit_rows.extend(refusals.misfits);
        }
        for (misfit, row) in misfits.iter_mut().zip(misfit_rows) {
            let reason = reasons[row].as_ref();
            misfit.is_reason = reason.is_some_and(|reason| reason.column == misfit.column);
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
                reason: reason.text,
                raw: chunk.raw_of(row),
            }));
            bad.sort_by_key(|row| row.line);
        }
        Ok(Converted {
            batch,
            bad,
            misfits,
        })
    }
}

/// Why a row is bad.
#[derive(Clone)]
struct Reason {
    column: usize,
    text: String,
    /// Whether the column is not nullable, as the time column.
    is_required: bool,
}

/// Why rows of a chunk are bad.
struct Refusals<'a> {
    /// The place of the column.
    place: usize,
    field: &'a Field,
    /// The reason of each row: the first of a column that is not nullable, else the first of any column.
    reasons: &'a mut [Option<Reason>],
    /// The rows whose value does not fit the column, in order.
    misfits: Vec<usize>,
}

impl Refusals<'_> {
    fn refuse(&mut self, row: usize, why: &str) {
        let is_required = !self.field.is_nullable();
        let reason = &mut self.reasons[row];
        if reason
            .as_ref()
            .is_none_or(|reason| is_required && !reason.is_required)
        {
            *reason = Some(Reason {
                column: self.place,
                text: format!("column \"{}\": {why}", self.field.name()),
                is_required,
            });
        }
    }

    fn misfit(&mut self, row: usize, why: &str) {
        // A time that was refused on its own comes here again with all values that became null, at the end of its column.
        if let Err(place) = self.misfits.binary_search(&row) {
            self.misfits.insert(place, row);
        }
        self.refuse(row, why);
    }
}

/// Whether values of the type are times.
pub(super) fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date32)
}

/// One column; rows that do not fit get a reason, unless they have one already.
fn convert_column(
    text: &StringArray,
    field: &Field,
    reading: &Reading,
    refusals: &mut Refusals<'_>,
) -> Result<ArrayRef, Failure> {
    let data_type = field.data_type();
    // An empty string is a value, and so is a binary without bytes.
    let trimmed = if matches!(data_type, DataType::Utf8 | DataType::Binary) {
        text.clone()
    } else {
        trim(text)
    };
    let column: ArrayRef = if is_time(data_type) {
        convert_times(&trimmed, data_type, reading, refusals)?
    } else if let DataType::Duration(unit) = data_type {
        let lengths = trimmed.iter().map(|text| length(text?, *unit));
        // Arrow claims to cast text to lengths of time, and does not.
        cast(&lengths.collect::<Int64Array>(), data_type)?
    } else if *data_type == DataType::Binary {
        Arc::new(from_hex(&trimmed))
    } else {
        // What does not fit comes back as null.
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let readable = readable(&trimmed, data_type, reading);
        cast_with_options(&readable, data_type, &options)?
    };
    if column.null_count() > trimmed.null_count() {
        for row in (0..column.len()).filter(|&row| column.is_null(row) && trimmed.is_valid(row)) {
            let value = text.value(row).trim();
            // Of a new table only the column that orders it must not be null.
            let hint = if data_type.is_integer() && !field.is_nullable() && is_float(value) {
                CANNOT_ORDER.to_owned()
            } else if field.is_nullable() && data_type.is_numeric() && stands_for_nothing(value) {
                format!("; {} makes NULL of it", null_option(value))
            } else {
                String::new()
            };
            let value = shown(text.value(row));
            refusals.misfit(
                row,
                &format!("{value} is no {}{hint}", type_words(data_type)),
            );
        }
    }
    if !field.is_nullable() && column.null_count() > 0 {
        for row in (0..column.len()).filter(|&row| trimmed.is_null(row)) {
            refusals.refuse(row, "empty, which it must not be");
        }
    }
    Ok(column)
}

/// Whether a value may be a marker of a missing one: a word or a sign, as `?` or `n/a`.
fn stands_for_nothing(value: &str) -> bool {
    const MAX_CHARACTERS: usize = 8;
    !value.chars().any(|c| c.is_numeric()) && value.chars().count() <= MAX_CHARACTERS
}

/// Parses hexadecimal digits, as the command line prints binary values; anything else becomes null.
fn from_hex(text: &StringArray) -> BinaryArray {
    let bytes = |value: &str| -> Option<Vec<u8>> {
        let digit = |at: &u8| {
            char::from(*at)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let (pairs, rest) = value.as_bytes().as_chunks::<2>();
        let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        pairs
            .iter()
            .map(byte)
            .collect::<Option<_>>()
            .filter(|_| rest.is_empty())
    };
    text.iter()
        .map(|value| value.map(str::trim).and_then(bytes))
        .collect()
}

/// Rewrites numbers and booleans so that Arrow reads them. A text that is neither becomes one that Arrow refuses.
fn readable(text: &StringArray, data_type: &DataType, reading: &Reading) -> StringArray {
    const NO_VALUE: &str = "?";
    if !data_type.is_numeric() && *data_type != DataType::Boolean {
        return text.clone();
    }
    let is_as_it_is = |value: &str| {
        let read = readable_value(value, data_type, reading);
        matches!(read, Some(Cow::Borrowed(same)) if same.len() == value.len())
    };
    if text.iter().flatten().all(is_as_it_is) {
        return text.clone();
    }
    let read = text.iter().map(|value| {
        value.map(|value| readable_value(value, data_type, reading).unwrap_or(NO_VALUE.into()))
    });
    read.collect()
}

/// Rewrites a number so that Arrow reads it: a float with a decimal point, an integer without one. Rows after the sample are judged
/// as strictly as the rows of the sample, from which the type was inferred.
fn readable_value<'a>(
    value: &'a str,
    data_type: &DataType,
    reading: &Reading,
) -> Option<Cow<'a, str>> {
    let Some(sign) = reading.thousands.filter(|_| data_type.is_numeric()) else {
        return plain_value(value, data_type, reading);
    };
    match without_thousands(value, sign, reading.decimal_comma || sign == '.')? {
        Cow::Borrowed(value) => plain_value(value, data_type, reading),
        Cow::Owned(plain) => {
            let value = plain_value(&plain, data_type, reading)?;
            Some(Cow::Owned(value.into_owned()))
        }
    }
}

/// Rewrites a number without separators of thousands, as [`readable_value`] does.
fn plain_value<'a>(
    value: &'a str,
    data_type: &DataType,
    reading: &Reading,
) -> Option<Cow<'a, str>> {
    let is_fractional = data_type.is_floating() || matches!(data_type, DataType::Decimal128(..));
    let value = match () {
        () if data_type.is_integer() => whole_number(value).unwrap_or(value).into(),
        () if is_fractional && reading.decimal_comma => with_decimal_point(value)?,
        () => Cow::Borrowed(value),
    };
    if data_type.is_floating() && is_beyond_floats(&value, data_type) {
        return None;
    }
    // Arrow would round a value with more decimals than the column has.
    if let DataType::Decimal128(_, scale) = data_type
        && let Some((_, decimals)) = value.split_once('.')
        && decimals.trim_end_matches('0').len() > usize::try_from(*scale).unwrap_or(0)
    {
        return None;
    }
    let is_of_its_kind = || match data_type {
        DataType::Boolean => ["true", "false"]
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word)),
        floating if floating.is_floating() => has_no_leading_zero(&value) && !loses_digits(&value),
        number if number.is_numeric() => reading.is_padded || has_no_leading_zero(&value),
        _ => true,
    };
    (!reading.exact || is_of_its_kind()).then_some(value)
}

/// Removes space around values; a value that is empty then becomes null.
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

/// Converts texts to times. They are nearly always written in full: those come from Arrow's parser, a batch at a time. What it does
/// not take, or would cut, is left to [`parse_time`], and so is what it takes otherwise: names of zones, and second 60.
fn convert_times(
    text: &StringArray,
    data_type: &DataType,
    reading: &Reading,
    refusals: &mut Refusals<'_>,
) -> Result<ArrayRef, Failure> {
    let step_ns = step_ns(data_type);
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let is_given = reading.pattern.is_some() || reading.unit.is_some();
    let fast = if is_given {
        None
    } else {
        Some(cast_with_options(text, &nanoseconds, &options)?)
    };
    let fast = fast
        .as_ref()
        .map(|fast| fast.as_primitive::<TimestampNanosecondType>());
    let mut steps: Vec<Option<i64>> = Vec::with_capacity(text.len());
    for (row, value) in text.iter().enumerate() {
        let Some(value) = value else {
            steps.push(None);
            continue;
        };
        if reading.is_local && has_offset(value) {
            let why = format!(
                "{} has an offset, and the times before have none",
                shown(value)
            );
            refusals.misfit(row, &why);
            steps.push(None);
            continue;
        }
        let ns = fast
            .filter(|fast| fast.is_valid(row))
            .map(|fast| fast.value(row));
        let whole = ns.filter(|ns| ns % step_ns == 0 && is_written_in_full(value));
        let step = whole.map_or_else(
            || parse_time(value, data_type, reading),
            |ns| Ok(ns / step_ns),
        );
        steps.push(step.map_err(|why| refusals.misfit(row, &why)).ok());
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

/// Whether a text is a time with an offset.
fn has_offset(value: &str) -> bool {
    const DATE_BYTES: usize = 10;
    let clock = value.as_bytes().get(DATE_BYTES..).unwrap_or_default();
    // Cheap for those without: they have no such sign after the date.
    let may_have = clock
        .iter()
        .any(|byte| matches!(byte, b'+' | b'-') || byte.is_ascii_alphabetic() && *byte != b'T');
    may_have && TimeText::parse(value).is_some_and(|time| time.has_zone())
}

/// Whether a text that Arrow takes for a time is nothing but numbers, and no longer than nanoseconds are.
fn is_written_in_full(time: &str) -> bool {
    let is_plain = |byte: &u8| {
        byte.is_ascii_digit()
            || matches!(
                byte,
                b'-' | b':' | b'.' | b' ' | b'T' | b't' | b'+' | b'Z' | b'z'
            )
    };
    time.len() <= FULL_TIME_CHARACTERS
        && time.as_bytes().iter().all(is_plain)
        && !time.contains(":60")
}

/// Nanoseconds of a step of a time type.
fn step_ns(data_type: &DataType) -> i64 {
    match data_type {
        DataType::Timestamp(unit, _) => unit_ns(*unit),
        _ => DAY_NS,
    }
}

fn timestamps<T: arrow_array::types::ArrowTimestampType>(
    steps: Vec<Option<i64>>,
    zone: Option<Arc<str>>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter(steps).with_timezone_opt(zone))
}

/// A time in the steps of a column: exactly or not at all.
fn parse_time(text: &str, data_type: &DataType, reading: &Reading) -> Result<i64, String> {
    if let Some(pattern) = &reading.pattern {
        let ns = pattern.ns(text).ok_or_else(|| {
            format!(
                "{} does not match the pattern {}",
                shown(text),
                shown(pattern.text())
            )
        })?;
        return steps_of(ns, text, data_type);
    }
    if let Some(unit) = reading.unit
        && let Some(ns) = epoch_ns(text, unit.ns())
    {
        return steps_of(ns, text, data_type);
    }
    let time = TimeText::parse(text);
    // All values of a column together decide whether day or month comes first; no value of the sample needed it.
    let is_open = |time: &TimeText| {
        reading.order.is_none() && time.needs_order() && (reading.exact || time.is_ambiguous())
    };
    if time.as_ref().is_some_and(is_open) {
        return Err(format!(
            "nothing says whether day or month is first in {}",
            shown(text)
        ));
    }
    let orders = reading.order.as_slice();
    let orders = if orders.is_empty() { &ORDERS } else { orders };
    match time.and_then(|time| orders.iter().find_map(|order| time.ns(*order))) {
        Some(ns) => steps_of(ns, text, data_type),
        None => Err(no_time(text)),
    }
}

fn steps_of(ns: i128, text: &str, data_type: &DataType) -> Result<i64, String> {
    let step_ns = i128::from(step_ns(data_type));
    let step = (ns % step_ns == 0).then_some(ns / step_ns);
    let is_day = *data_type == DataType::Date32;
    step.and_then(|step| i64::try_from(step).ok())
        .filter(|step| !is_day || i32::try_from(*step).is_ok())
        .ok_or_else(|| cannot_hold(text, data_type))
}

fn cannot_hold(text: &str, data_type: &DataType) -> String {
    format!(
        "{} cannot hold {} exactly",
        type_words(data_type),
        shown(text)
    )
}

/// Names the option that would read such a text or number as a time, if there is one.
pub(super) fn time_hint(text: &str) -> Option<String> {
    if let Some(zone) = zone_name(text) {
        return Some(format!(
            "{zone} is the name of a zone: with --time-format, as '%Y-%m-%d %H:%M:%S {zone}', the clock is taken as it is, and \
             t AT TIME ZONE 'Europe/Berlin' in SQL makes instants of it"
        ));
    }
    if is_clock(text) {
        return Some(
            "a clock without a date orders no rows: --time DATE,CLOCK joins it with a column of dates".to_owned(),
        );
    }
    if let Some(unread) = unread_time(text) {
        return Some(unread);
    }
    if let Some((pattern, _)) = digits_pattern(text) {
        return Some(format!("--time-format {pattern} reads such numbers"));
    }
    (is_integer(text) || whole_number(text).is_some())
        .then(|| "--time-unit s, ms, us or ns reads numbers as times".to_owned())
}

/// Whether it is a time of day, as `14:00:00`.
pub(super) fn is_clock(text: &str) -> bool {
    let of_a_day = format!("2000-01-01 {text}");
    text.contains(':') && TimeText::parse(&of_a_day).is_some()
}

fn no_time(text: &str) -> String {
    let hint = time_hint(text).map_or_else(String::new, |hint| format!("; {hint}"));
    format!(
        "{} is no time, as 2026-01-31T09:30:00 would be{hint}",
        shown(text)
    )
}
