//! The first rows of a result as text and as HTML.

use crate::error::raise;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::pretty::pretty_format_batches;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::PyResult;
use std::fmt::Write;
use std::sync::Arc;
use thalweg::ErrorKind;

/// Rows that are shown.
pub(crate) const MAX_ROWS: usize = 10;
const MAX_COLUMNS: usize = 12;
const MAX_CHARS: usize = 40;
/// The column that EXPLAIN gives a plan in, which nobody wants cut.
const PLAN: &str = "plan";

/// A table of the first rows and columns, long values cut.
pub(crate) fn first_rows(batch: &RecordBatch) -> PyResult<String> {
    render(batch).map_err(unshown)
}

/// The same in HTML, below a title.
pub(crate) fn html(batch: &RecordBatch, title: Option<&str>) -> PyResult<String> {
    render_html(batch, title).map_err(unshown)
}

fn unshown(error: ArrowError) -> pyo3::PyErr {
    raise(ErrorKind::Query, error.to_string())
}

/// Names and texts of the first rows and columns.
struct Shown {
    names: Vec<String>,
    columns: Vec<Vec<String>>,
    /// Lines about the rows and columns that are left out.
    more: Vec<String>,
}

impl Shown {
    fn new(batch: &RecordBatch) -> Result<Self, ArrowError> {
        let rows = batch.num_rows().min(MAX_ROWS);
        let columns = batch.num_columns().min(MAX_COLUMNS);
        let options = FormatOptions::new()
            .with_null("null")
            .with_display_error(true);
        let mut shown = Self {
            names: Vec::with_capacity(columns),
            columns: Vec::with_capacity(columns),
            more: Vec::new(),
        };
        let schema = batch.schema();
        for (field, array) in schema.fields().iter().zip(batch.columns()).take(columns) {
            let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
            let text = |row| {
                let text = formatter.value(row).to_string();
                if field.name() == PLAN {
                    text
                } else {
                    cut(&text)
                }
            };
            shown.columns.push((0..rows).map(text).collect());
            shown.names.push(cut(field.name()));
        }
        if batch.num_columns() > columns {
            let more = format!("({} more columns)", batch.num_columns() - columns);
            shown.more.push(more);
        }
        if batch.num_rows() > rows {
            shown.more.push("(more rows)".to_owned());
        }
        Ok(shown)
    }
}

fn render(batch: &RecordBatch) -> Result<String, ArrowError> {
    let shown = Shown::new(batch)?;
    let field = |name: &String| Field::new(name, DataType::Utf8, true);
    let schema = Schema::new(shown.names.iter().map(field).collect::<Vec<_>>());
    let array = |texts: &Vec<String>| Arc::new(StringArray::from_iter_values(texts)) as ArrayRef;
    let columns = shown.columns.iter().map(array).collect();
    let table = RecordBatch::try_new(Arc::new(schema), columns)?;
    let mut text = pretty_format_batches(&[table])?.to_string();
    for more in shown.more {
        text += "\n";
        text += &more;
    }
    Ok(text)
}

fn render_html(batch: &RecordBatch, title: Option<&str>) -> Result<String, ArrowError> {
    let shown = Shown::new(batch)?;
    let mut html = String::from("<div>");
    let paragraph = |text: &str| format!("<p>{}</p>", escaped(text));
    html += &title.map(paragraph).unwrap_or_default();
    let row = |tag: &str, texts: &mut dyn Iterator<Item = &String>| {
        let mut row = String::from("<tr>");
        for text in texts {
            // Writing to a String does not fail.
            let _ = write!(row, "<{tag}>{}</{tag}>", escaped(text));
        }
        row + "</tr>"
    };
    html += "<table><thead>";
    html += &row("th", &mut shown.names.iter());
    html += "</thead><tbody>";
    for at in 0..batch.num_rows().min(MAX_ROWS) {
        html += &row("td", &mut shown.columns.iter().map(|texts| &texts[at]));
    }
    html += "</tbody></table>";
    for more in &shown.more {
        html += &paragraph(more);
    }
    Ok(html + "</div>")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
