//! The first rows of a result as text.

use crate::error::raise;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::pretty::pretty_format_batches;
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::PyResult;
use std::sync::Arc;
use thalweg::ErrorKind;

const MOST_ROWS: usize = 10;
const MOST_COLUMNS: usize = 12;
const MOST_CHARS: usize = 40;

/// A table of the first rows and columns, long values cut.
pub(crate) fn first_rows(batch: &RecordBatch) -> PyResult<String> {
    render(batch).map_err(|error| raise(ErrorKind::Query, error.to_string()))
}

fn render(batch: &RecordBatch) -> Result<String, ArrowError> {
    let rows = batch.num_rows().min(MOST_ROWS);
    let columns = batch.num_columns().min(MOST_COLUMNS);
    let options = FormatOptions::new()
        .with_null("null")
        .with_display_error(true);
    let mut fields = Vec::with_capacity(columns);
    let mut shown: Vec<ArrayRef> = Vec::with_capacity(columns);
    for (field, array) in batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .take(columns)
    {
        let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
        let texts = (0..rows).map(|row| Some(cut(&formatter.value(row).to_string())));
        shown.push(Arc::new(texts.collect::<StringArray>()));
        fields.push(Field::new(
            cut(field.name()),
            arrow_schema::DataType::Utf8,
            true,
        ));
    }
    let shown = RecordBatch::try_new(Arc::new(Schema::new(fields)), shown)?;
    let mut text = pretty_format_batches(&[shown])?.to_string();
    if batch.num_columns() > columns {
        text += &format!("\n({} more columns)", batch.num_columns() - columns);
    }
    if batch.num_rows() > rows {
        text += "\n(more rows)";
    }
    Ok(text)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
