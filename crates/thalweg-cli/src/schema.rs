//! The statement that makes a table like one that is there.

use arrow_schema::{DataType, TimeUnit};
use std::fmt::Write;
use thalweg::{DEFAULT_BLOCK_ROWS, TableDefinition, TableView, sql_type_name};

const DAY_NS: i128 = 86_400_000_000_000;
/// Lengths of time, longest first.
const UNITS: [(&str, i128); 5] = [
    ("day", DAY_NS),
    ("hour", DAY_NS / 24),
    ("minute", DAY_NS / 1_440),
    ("second", DAY_NS / 86_400),
    ("nanosecond", 1),
];

/// `CREATE TABLE ...` with all that SQL can say of a table.
pub(crate) fn create_statement(table: &TableView) -> String {
    let definition = table.definition();
    let mut columns = String::new();
    for (place, column) in definition.columns().iter().enumerate() {
        let separator = if place > 0 { ", " } else { "" };
        let not_null = if column.nullable { "" } else { " NOT NULL" };
        // Writing to a string cannot fail.
        let _ = write!(
            columns,
            "{separator}{} {}{not_null}",
            quoted(&column.name),
            sql_type_name(&column.data_type)
        );
    }
    let options: Vec<String> = options(definition)
        .iter()
        .map(|(name, value)| format!("{name} = '{}'", value.replace('\'', "''")))
        .collect();
    format!(
        "CREATE TABLE {} ({columns}) WITH ({});",
        quoted(table.name()),
        options.join(", ")
    )
}

fn options(definition: &TableDefinition) -> Vec<(&'static str, String)> {
    let mut options = vec![("layout", definition.layout().name().to_owned())];
    if let Some(time) = definition.time_column() {
        options.push(("time", time.name.clone()));
        options.extend(definition.split().map(|split| {
            (
                "split",
                split_text(split.every(), split.origin(), &time.data_type),
            )
        }));
    }
    if definition.block_rows() != DEFAULT_BLOCK_ROWS {
        options.push(("block_rows", definition.block_rows().to_string()));
    }
    options
}

/// A split as it is given: keys of plain integers, a length of time otherwise.
pub(crate) fn split_text(every: i64, origin: i64, data_type: &DataType) -> String {
    let step_ns = match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        DataType::Date32 => DAY_NS,
        _ => return every.to_string(),
    };
    let length_ns = i128::from(every) * step_ns;
    // Weeks begin on Monday, everything else at the epoch.
    if origin != 0 && length_ns % (7 * DAY_NS) == 0 {
        return counted(length_ns / (7 * DAY_NS), "week");
    }
    let fits = UNITS.iter().find(|(_, unit_ns)| length_ns % unit_ns == 0);
    fits.map_or_else(
        || every.to_string(),
        |(name, unit_ns)| counted(length_ns / unit_ns, name),
    )
}

fn counted(count: i128, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A name as SQL reads it back: quoted where it would not be otherwise.
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

    #[test]
    fn splits_are_written_as_they_are_given() {
        let (ns, date) = (
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Date32,
        );
        assert_eq!(split_text(86_400_000_000_000, 0, &ns), "1 day");
        assert_eq!(split_text(5_400_000_000_000, 0, &ns), "90 minutes");
        assert_eq!(split_text(7, -3, &date), "1 week");
        assert_eq!(split_text(1_000, 0, &DataType::Int64), "1000");
    }
}
