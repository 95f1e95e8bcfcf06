//! The statement that creates a table like an existing one.

use std::fmt::Write;
use thalweg::{Result, StoredView, TableView, ViewDefinition, default_in_sql, sql_type_name};

/// `CREATE TABLE ...` with all that SQL can express of a table.
pub(crate) fn create_statement(table: &TableView) -> String {
    let definition = table.definition();
    let mut columns = String::new();
    for (place, column) in definition.columns().iter().enumerate() {
        let separator = if place > 0 { ", " } else { "" };
        let not_null = if column.nullable { "" } else { " NOT NULL" };
        let default = default_in_sql(column);
        let default = default.map_or_else(String::new, |default| format!(" DEFAULT {default}"));
        // Writing to a string cannot fail.
        let _ = write!(
            columns,
            "{separator}{} {}{not_null}{default}",
            quoted(&column.name),
            sql_type_name(&column.data_type)
        );
    }
    let options = definition.options();
    let options: Vec<String> = { options.iter() }
        .map(|(name, value)| format!("{name} = '{}'", value.replace('\'', "''")))
        .collect();
    format!(
        "CREATE TABLE {} ({columns}) WITH ({});",
        quoted(table.name()),
        options.join(", ")
    )
}

/// `CREATE VIEW ...` with the query as it was written.
pub(crate) fn create_view_statement(view: &StoredView) -> Result<String> {
    let ViewDefinition { query, columns } = view.definition()?;
    let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let columns = match columns.is_empty() {
        true => String::new(),
        false => format!(" ({})", columns.join(", ")),
    };
    Ok(format!(
        "CREATE VIEW {}{columns} AS {query};",
        quoted(view.name())
    ))
}

/// A name in the spelling that SQL reads back: quoted if it has to be.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        let found = [quoted("ts"), quoted("Temp"), quoted("a\"b"), quoted("1st")];
        assert_eq!(found, ["ts", "\"Temp\"", "\"a\"\"b\"", "\"1st\""]);
    }
}
