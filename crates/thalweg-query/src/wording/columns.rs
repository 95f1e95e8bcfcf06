//! Columns that there are not, or that may be several.

use datafusion::common::{Column, Diagnostic, SchemaError, TableReference};
use datafusion_sql::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER,
};
use thalweg_table::Error;
use thalweg_table::suggest::{did_you_mean, nearest};

const HINT: &str = " (texts take single quotes: '";
/// Columns and tables that a message lists.
const MAX_LISTED: usize = 20;

/// The message for wrong names in a statement.
pub(crate) fn wrong_names(error: &SchemaError, diagnostic: Option<&Diagnostic>) -> String {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => unknown_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => ambiguous(&field.name, diagnostic),
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            let table = qualifier.table();
            format!(
                "two tables of the query are called \"{table}\": name one of them by AS, as in FROM {table} AS other"
            )
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            format!("two columns are called \"{name}\": name one of them by AS")
        }
    }
}

fn unknown_column(field: &Column, valid: &[Column]) -> String {
    let tables = Tables::of(valid);
    let name = &field.name;
    let Some(relation) = &field.relation else {
        let names = tables.columns();
        let meant = did_you_mean(name, names.iter().copied());
        let hint = match meant.is_empty() || is_odd(name) {
            true => format!("{HINT}{name}')"),
            false => String::new(),
        };
        let Some(listed) = tables.listed() else {
            return format!("there is no column \"{name}\" here, nor any other{hint}");
        };
        return format!("there is no column \"{name}\"{hint}; {meant}{listed}");
    };
    let table = relation.table();
    let Some(columns) = tables.columns_of(table) else {
        let named = tables.names().join(", ");
        if named.is_empty() {
            return format!("the query has no table \"{table}\" for {table}.{name} in this place");
        }
        return match tables.table_with(name) {
            Some(meant) => format!(
                "the query has no table \"{table}\" for {table}.{name}; did you mean {meant}.{name}? its tables are {named}"
            ),
            None => format!(
                "the query has no table \"{table}\" for {table}.{name}; its tables are {named}"
            ),
        };
    };
    let meant = did_you_mean(name, columns.iter().copied());
    let listed = list(columns);
    format!("\"{table}\" has no column \"{name}\"; {meant}its columns are {listed}")
}

/// The error with the text that a name was perhaps meant to be as the statement has it: names are in lower case.
pub(crate) fn with_text_as_written(error: Error, statement: &str) -> Error {
    match as_written(error.message(), statement) {
        Some(message) => Error::new(error.kind(), message),
        None => error,
    }
}

fn as_written(message: &str, statement: &str) -> Option<String> {
    let (before, rest) = message.split_once(HINT)?;
    let (name, after) = rest.split_once("')")?;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words = || statement.split(|c| !is_part(c));
    if words().any(|word| word == name) {
        return None;
    }
    let written = words().find(|word| word.to_lowercase() == name)?;
    Some(format!("{before}{HINT}{written}'){after}"))
}

/// A name that is written in double quotes only: perhaps it was meant to be a text.
fn is_odd(name: &str) -> bool {
    !name
        .chars()
        .all(|c| c == '_' || c.is_ascii_digit() || c.is_lowercase())
}

/// The message for a column of several tables. The tables that may be meant are in the notes of the diagnostic only.
fn ambiguous(name: &str, diagnostic: Option<&Diagnostic>) -> String {
    let notes = diagnostic.map_or(&[][..], |diagnostic| &diagnostic.notes);
    let possible: Vec<&str> = notes
        .iter()
        .filter_map(|note| note.message.strip_prefix("possible column "))
        .collect();
    match possible.is_empty() {
        true => format!(
            "the column \"{name}\" is in several tables of the query: write which one, as in t.{name}"
        ),
        false => format!(
            "the column \"{name}\" is in several tables of the query: write {}",
            possible.join(" or ")
        ),
    }
}

/// The columns that a statement may name, by table.
struct Tables<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Tables<'a> {
    /// Columns that were computed have names that nobody writes: they are left out where there are others.
    fn of(valid: &'a [Column]) -> Self {
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ' ' | '.' | '%');
        // Those of a query in FROM, which double quotes reach.
        let is_written =
            |column: &&Column| column.relation.is_some() || column.name.chars().all(is_of_name);
        let written: Vec<&Column> = valid.iter().filter(is_written).collect();
        let shown = match written.is_empty() {
            true => valid.iter().collect(),
            false => written,
        };
        let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
        for column in shown
            .iter()
            .filter(|column| !column.name.starts_with("__") && !column.name.contains('\0'))
        {
            let table = column.relation.as_ref().map_or("", TableReference::table);
            let columns = match tables.iter_mut().find(|(name, _)| *name == table) {
                Some((_, columns)) => columns,
                None => {
                    tables.push((table, Vec::new()));
                    let last = tables.len() - 1;
                    &mut tables[last].1
                }
            };
            if !columns.contains(&column.name.as_str()) {
                columns.push(&column.name);
            }
        }
        Self(tables)
    }

    fn columns(&self) -> Vec<&'a str> {
        let mut all: Vec<&str> = Vec::new();
        for name in self.0.iter().flat_map(|(_, columns)| columns) {
            if !all.contains(name) {
                all.push(name);
            }
        }
        all
    }

    fn columns_of(&self, table: &str) -> Option<&[&'a str]> {
        let found = self.0.iter().find(|(name, _)| *name == table);
        found.map(|(_, columns)| &columns[..])
    }

    /// The tables that a column can be qualified by.
    fn names(&self) -> Vec<&'a str> {
        let names = self.0.iter().map(|(name, _)| *name);
        names
            .filter(|name| !name.is_empty() && !name.contains('(') && !name.starts_with("__"))
            .collect()
    }

    fn table_with(&self, column: &str) -> Option<&'a str> {
        let has = |name: &&str| {
            self.columns_of(name).is_some_and(|columns| {
                columns.contains(&column) || nearest(column, columns.iter().copied()).is_some()
            })
        };
        self.names().into_iter().find(has)
    }

    fn listed(&self) -> Option<String> {
        let names = self.names();
        if names.len() < 2 {
            let all = self.columns();
            return (!all.is_empty()).then(|| format!("the columns are {}", list(&all)));
        }
        let of_each = names.iter().map(|name| {
            let columns = self.columns_of(name).unwrap_or_default();
            format!("{name} has {}", list(columns))
        });
        Some(of_each.collect::<Vec<_>>().join("; "))
    }
}

/// Whether a name is read without quotes.
fn is_plain(name: &str) -> bool {
    let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    let is_reserved = || {
        let keyword = ALL_KEYWORDS.binary_search(&&*name.to_uppercase());
        keyword.is_ok_and(|place| {
            let keyword = ALL_KEYWORDS_INDEX[place];
            RESERVED_FOR_IDENTIFIER.contains(&keyword)
                || RESERVED_FOR_COLUMN_ALIAS.contains(&keyword)
        })
    };
    name.chars().all(|c| c.is_alphanumeric() || c == '_') && !begins_with_digit && !is_reserved()
}

fn list(columns: &[&str]) -> String {
    let shown = columns.len().min(MAX_LISTED);
    let quoted = |name: &&str| match is_plain(name) {
        true => (*name).to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    let listed: Vec<String> = columns[..shown].iter().map(quoted).collect();
    let more = match columns.len() - shown {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let is_call = |name: &&&str| name.ends_with(')') && name.contains('(');
    let named = match columns[..shown].iter().find(is_call) {
        Some(call) => format!("; a result is named by AS, as in {call} AS x"),
        None => String::new(),
    };
    format!("{}{more}{named}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &[&str]) -> Vec<Column> {
        names
            .iter()
            .map(|name| match name.split_once('.') {
                Some((table, name)) => Column::new(Some(table), name),
                None => Column::new_unqualified(*name),
            })
            .collect()
    }

    fn unknown(name: &str, valid: &[&str]) -> String {
        unknown_column(&columns(&[name])[0], &columns(valid))
    }

    #[test]
    fn the_nearest_column_is_named_first() {
        for (name, valid, words) in [
            (
                "tmp",
                &["w.ts", "w.temp"][..],
                "there is no column \"tmp\"; did you mean \"temp\"? the columns are ts, temp",
            ),
            (
                "EWR",
                &["w.ts", "w.temp"],
                "there is no column \"EWR\" (texts take single quotes: 'EWR'); the columns are ts, temp",
            ),
            (
                "al",
                &["w.station", "count(*)", "w.ts", "w.station"],
                "there is no column \"al\" (texts take single quotes: 'al'); the columns are station, ts",
            ),
            (
                "x.temp",
                &["w.ts", "w.temp"],
                "the query has no table \"x\" for x.temp; did you mean w.temp? its tables are w",
            ),
            (
                "s.nam",
                &["w.ts", "s.name"],
                "\"s\" has no column \"nam\"; did you mean \"name\"? its columns are name",
            ),
            (
                "nme",
                &["w.ts", "s.name"],
                "there is no column \"nme\"; did you mean \"name\"? w has ts; s has name",
            ),
            (
                "count",
                &["count(*)"],
                "there is no column \"count\"; did you mean \"count(*)\"? the columns are \"count(*)\"; a result is named by AS, as in count(*) AS x",
            ),
            (
                "x",
                &[],
                "there is no column \"x\" here, nor any other (texts take single quotes: 'x')",
            ),
        ] {
            assert_eq!(unknown(name, valid), words, "{name}");
        }
    }
}
