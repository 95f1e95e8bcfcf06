//! Rows as CSV.
//!
//! Invariant: NULL is an empty field and an empty text is `""`, as DuckDB and PostgreSQL write them; only a NULL that is the whole
//! line is `""` too, as a line without anything is no row to most readers.

use crate::failure::Failure;
use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::SchemaRef;
use std::io::Write;

/// Refuses columns that CSV cannot hold.
///
/// # Errors
/// When there is one.
pub(crate) fn check(schema: &SchemaRef) -> Result<(), Failure> {
    let mut fields = schema.fields().iter();
    match fields.find(|field| field.data_type().is_nested()) {
        Some(list) => Err(Failure::Other(format!(
            "CSV cannot hold the column \"{}\", which has lists or structs: use --format json",
            list.name()
        ))),
        None => Ok(()),
    }
}

/// Writes the names of the columns.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn write_header(out: &mut impl Write, schema: &SchemaRef) -> Result<(), Failure> {
    let mut text = String::new();
    for (place, field) in schema.fields().iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        push_field(&mut text, field.name());
    }
    text.push('\n');
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// Writes a line for each row.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn write_rows(out: &mut impl Write, batch: &RecordBatch) -> Result<(), Failure> {
    let options = FormatOptions::default();
    // Also those of columns of nothing else, and of dictionaries.
    let column = |array| {
        let shown = ArrayFormatter::try_new(array, &options)?;
        Ok::<_, Failure>((array.logical_nulls(), shown))
    };
    let columns = batch.columns().iter().map(|array| column(&**array));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (place, (nulls, shown)) in columns.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                push_field(&mut text, &shown.value(row).try_to_string()?);
            } else if columns.len() == 1 {
                text.push_str("\"\"");
            }
        }
        text.push('\n');
    }
    out.write_all(text.as_bytes())?;
    Ok(())
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
    use arrow_array::{ArrayRef, Int64Array, StringArray};
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
        let mut out = Vec::new();
        write_header(&mut out, &batch.schema()).unwrap();
        write_rows(&mut out, &batch).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"s,t\",n\n\"\",1\n,-2\n\"a \"\"b\"\", c\",\nä,\n"
        );
        let alone = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut out = Vec::new();
        write_rows(&mut out, &alone).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1\n-2\n\"\"\n\"\"\n");
    }
}
