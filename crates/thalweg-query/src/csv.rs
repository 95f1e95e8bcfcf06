//! Rows as CSV.
//!
//! Invariant: NULL is an empty field and an empty text is `""`, as DuckDB and PostgreSQL write them; only a NULL that is the whole
//! line is `""` too, as a line without anything is no row to most readers. Lists and structs are texts, as a terminal shows them.

use crate::texts;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::fmt::Write;
use thalweg_table::{Error, ErrorKind, Result};

/// The line with the names of the columns.
pub fn header(schema: &Schema) -> String {
    let mut text = String::new();
    for (place, field) in schema.fields().iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        push_field(&mut text, field.name());
    }
    text.push('\n');
    text
}

/// A line for each row.
///
/// # Errors
/// [`ErrorKind::OutOfDomain`] when a column has values that have no text.
pub fn rows(batch: &RecordBatch) -> Result<String> {
    let no_text =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::OutOfDomain, error.to_string());
    texts::check(batch)?;
    // Of those inside lists: fields of their own are left empty.
    let options = FormatOptions::default().with_null("NULL");
    // Also the nulls of columns of nothing else, and of dictionaries.
    let column = |array| {
        let shown = ArrayFormatter::try_new(array, &options).map_err(|error| no_text(&error))?;
        Ok((array.logical_nulls(), shown))
    };
    let columns = batch.columns().iter().map(|array| column(&**array));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let (mut text, mut value) = (String::new(), String::new());
    for row in 0..batch.num_rows() {
        for (place, (nulls, shown)) in columns.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                value.clear();
                write!(value, "{}", shown.value(row)).map_err(|error| no_text(&error))?;
                push_field(&mut text, &value);
            } else if columns.len() == 1 {
                text.push_str("\"\"");
            }
        }
        text.push('\n');
    }
    Ok(text)
}

/// Adds a value, in quotes where it needs them.
fn push_field(text: &mut String, value: &str) {
    if !value.is_empty() && !value.contains([',', '"', '\n', '\r']) {
        text.push_str(value);
        return;
    }
    text.push('"');
    for c in value.chars() {
        if c == '"' {
            text.push('"');
        }
        text.push(c);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
    use arrow::datatypes::Float64Type;
    use std::sync::Arc;

    #[test]
    fn empty_texts_are_told_from_nulls() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some(""),
            None,
            Some("a \"b\", c"),
            Some("ä"),
        ]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(-2), None, None]));
        let batch = RecordBatch::try_from_iter([("s,t", texts), ("n", numbers.clone())]).unwrap();
        assert_eq!(
            header(&batch.schema()) + &rows(&batch).unwrap(),
            "\"s,t\",n\n\"\",1\n,-2\n\"a \"\"b\"\", c\",\nä,\n"
        );
        let alone = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        assert_eq!(rows(&alone).unwrap(), "1\n-2\n\"\"\n\"\"\n");
        let lists = [Some(vec![Some(16.0), None]), None, Some(vec![Some(2.5)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("l", lists), ("n", numbers)]).unwrap();
        assert_eq!(rows(&batch).unwrap(), "\"[16.0, NULL]\",1\n,2\n[2.5],3\n");
    }
}
