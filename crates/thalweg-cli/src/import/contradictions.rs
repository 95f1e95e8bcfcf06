//! Refuses an import whose options contradict the types of an existing table: had the table been made with these options, a
//! column of text or numbers would have another type.
//!
//! Such an import is most likely the second one of the same file, with an option that the first import has suggested, and would
//! store all rows twice. Invariant: it is refused before anything is stored.

use super::advice::shown;
use super::chunk::{Chunk, ChunkBuilder};
use super::convert::is_time;
use super::findings::type_words;
use super::infer::Inference;
use super::kinds::Rules;
use super::nulls::Nulls;
use super::times::TimeText;
use crate::arguments::ImportOptions;
use crate::failure::Failure;
use crate::schema::quoted;
use arrow_array::cast::AsArray;
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use thalweg::{Database, Table};

/// Most texts of a column that are looked at.
const MAX_TEXTS: usize = 100_000;

/// Returns an error if a column of the table is text, or times stored as numbers, only because the table was made without the
/// options of this import. `found` has the columns of the file, with the types that the file and the options give them.
pub(super) fn check_types_of_table(
    db: &Database,
    table: &Table,
    found: &[(&Field, DataType)],
    options: &ImportOptions,
    delimiter: Option<u8>,
) -> Result<(), Failure> {
    let given = given_options(options);
    if given.is_empty() {
        return Ok(());
    }
    let without = ImportOptions {
        null: Vec::new(),
        thousands: None,
        decimal: None,
        time_format: Vec::new(),
        ..options.clone()
    };
    for (field, by_file) in found {
        let data_type = field.data_type();
        let is_text = *data_type == DataType::Utf8;
        // Other types of numbers are no contradiction: a later file may have other numbers.
        let may_differ = |by_file: &DataType| match is_text {
            true => *by_file != DataType::Utf8,
            false => data_type.is_integer() && is_time(by_file),
        };
        if !may_differ(by_file) {
            continue;
        }
        let texts = texts_of(db, table, field.name())?;
        let by = |options: &ImportOptions| {
            type_of(&texts, options, delimiter).filter(|by_file| may_differ(by_file))
        };
        let (Some(wanted), None) = (by(options), by(&without)) else {
            continue;
        };
        let otherwise = match is_text {
            true => "leave out --create to append the texts",
            false => "leave the option out to append numbers",
        };
        return Err(Failure::usage(format!(
            "table \"{}\" exists and its column \"{}\" is {}, not {} as {} makes it: drop the table first, or {otherwise}",
            table.name(),
            field.name(),
            type_words(data_type),
            type_words(&wanted),
            given.join(", ")
        )));
    }
    Ok(())
}

/// An error if a unit is given for times of a table that are texts in the file, by the first value of each column.
pub(super) fn check_unit(
    fields: &[Field],
    inference: &Inference,
    options: &ImportOptions,
) -> Result<(), Failure> {
    // With --rejects such rows are set apart.
    let Some(unit) = options.time_unit.filter(|_| options.rejects.is_none()) else {
        return Ok(());
    };
    let firsts: Vec<_> = { fields.iter().enumerate() }
        .filter(|(_, field)| is_time(field.data_type()))
        .filter_map(|(place, field)| Some((field, inference.first_value(place)?)))
        .collect();
    // Numbers are read by the unit, and a line of units below the header is no time.
    let is_time_text = |text: &str| text.parse::<f64>().is_err() && TimeText::parse(text).is_some();
    match firsts.first() {
        Some((field, first)) if firsts.iter().all(|(_, first)| is_time_text(&first.text)) => {
            Err(Failure::usage(format!(
                "line {}: column \"{}\": --time-unit: {} is no number of {}",
                first.line,
                field.name(),
                shown(&first.text),
                unit.name()
            )))
        }
        _ => Ok(()),
    }
}

/// The options that decide how texts are read.
fn given_options(options: &ImportOptions) -> Vec<&'static str> {
    let given = [
        ("--null", !options.null.is_empty()),
        ("--thousands", options.thousands.is_some()),
        ("--decimal", options.decimal.is_some()),
        ("--time-format", !options.time_format.is_empty()),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(name, _)| name).collect()
}

/// Some texts of a column.
fn texts_of(db: &Database, table: &Table, column: &str) -> Result<Vec<String>, Failure> {
    let [column, table] = [column, table.name()].map(quoted);
    let query =
        format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT {MAX_TEXTS}");
    let mut result = db.sql(&query)?;
    let mut texts = Vec::new();
    while let Some(batch) = result.next_batch()? {
        let column = cast(batch.column(0), &DataType::Utf8)?;
        let column = column.as_string::<i32>().iter().flatten();
        texts.extend(column.map(str::to_owned));
    }
    Ok(texts)
}

/// The type that an import of such texts alone would have found; `None` for text.
fn type_of(texts: &[String], options: &ImportOptions, delimiter: Option<u8>) -> Option<DataType> {
    let rules = Rules::new(options, delimiter, false);
    let nulls = Nulls::new(&options.null);
    let mut inference = Inference::new(rules, 1, None);
    let look = |inference: &mut Inference, chunk: ChunkBuilder| {
        let chunk: Option<Chunk> = chunk.finish();
        chunk.iter().for_each(|chunk| inference.look(chunk));
    };
    let mut chunk = ChunkBuilder::new(1, false);
    for (line, text) in (1..).zip(texts) {
        let value = (!nulls.has(text)).then_some(text.as_str());
        chunk.push(line, text.as_bytes(), std::iter::once(value));
        if chunk.is_full() {
            look(
                &mut inference,
                std::mem::replace(&mut chunk, ChunkBuilder::new(1, false)),
            );
        }
    }
    look(&mut inference, chunk);
    inference.first_value(0)?;
    let found = inference.found(0)?.data_type;
    (found != DataType::Utf8).then_some(found)
}
