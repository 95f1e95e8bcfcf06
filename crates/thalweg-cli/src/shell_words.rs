//! Completes words of the shell: keywords, functions, tables, columns, commands that begin with a dot.
//!
//! Invariant: names are those of the moment; a database that cannot be read offers keywords only.

use crate::schema::quoted;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use thalweg::Database;

pub(crate) const COMMANDS: [&str; 9] = [
    ".exit", ".help", ".import", ".mode", ".quit", ".rows", ".schema", ".tables", ".timer",
];
const KEYWORDS: &[&str] = &[
    "ALTER TABLE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "CREATE TABLE",
    "CREATE VIEW",
    "DELETE FROM",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP TABLE",
    "DROP VIEW",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "FALSE",
    "FROM",
    "GROUP BY",
    "HAVING",
    "IN",
    "INNER JOIN",
    "INSERT INTO",
    "INTERVAL",
    "IS NOT NULL",
    "IS NULL",
    "JOIN",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER BY",
    "OVER",
    "PARTITION BY",
    "SELECT",
    "SET",
    "SHOW TABLES",
    "THEN",
    "TIMESTAMP",
    "TRUE",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
];
const FUNCTIONS: &[&str] = &[
    "approx_percentile_cont(",
    "avg(",
    "coalesce(",
    "count(",
    "date_bin(",
    "date_part(",
    "date_trunc(",
    "first_value(",
    "lag(",
    "last_value(",
    "lead(",
    "max(",
    "median(",
    "min(",
    "now()",
    "round(",
    "row_number()",
    "stddev(",
    "sum(",
    "to_char(",
];

/// The source of the line editor's completions.
pub(crate) struct Words {
    db: Database,
}

impl Words {
    pub(crate) fn new(db: &Database) -> Self {
        Self { db: db.clone() }
    }

    /// Names of tables and columns, quoted where SQL needs that.
    fn names(&self) -> Vec<String> {
        let Ok(view) = self.db.snapshot() else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for table in view.table_names() {
            if let Ok(view) = view.table(&table) {
                let columns = view.definition().columns().iter();
                names.extend(columns.map(|column| quoted(&column.name)));
            }
            names.push(quoted(&table));
        }
        names.extend(view.view_names().iter().map(|name| quoted(name)));
        names.sort();
        names.dedup();
        names
    }

    /// Where the word before the cursor starts, and what it may become.
    fn completions(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = &line[..cursor];
        if before.starts_with('.') && !before.contains(' ') {
            let commands = COMMANDS.iter().map(|command| (*command).to_owned());
            return (0, starting_with(before, commands));
        }
        let is_command = before.starts_with('.');
        let start = before
            .rfind(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '"'))
            .map_or(0, |place| {
                place + before[place..].chars().next().map_or(1, char::len_utf8)
            });
        let word = &before[start..];
        if word.is_empty() {
            return (start, Vec::new());
        }
        let mut found = starting_with(word, self.names().into_iter());
        if !is_command {
            let is_lower = word.chars().all(|c| !c.is_uppercase());
            let in_case = |keyword: &&str| {
                if is_lower {
                    keyword.to_lowercase()
                } else {
                    (*keyword).to_owned()
                }
            };
            found.extend(starting_with(word, KEYWORDS.iter().map(in_case)));
            let functions = FUNCTIONS.iter().map(|name| (*name).to_owned());
            found.extend(starting_with(word, functions));
        }
        (start, found)
    }
}

/// The words that start like this, whatever their case.
fn starting_with(start: &str, words: impl Iterator<Item = String>) -> Vec<String> {
    let start = start.to_lowercase();
    words
        .filter(|word| word.to_lowercase().starts_with(&start))
        .collect()
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.completions(line, cursor))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}

impl Validator for Words {}

impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let db = Database::open(":memory:").unwrap();
        db.sql("CREATE TABLE air (ts TIMESTAMP, temperature DOUBLE, \"Wind Speed\" DOUBLE)")
            .unwrap();
        let words = Words::new(&db);
        let of = |line: &str| words.completions(line, line.len());
        assert_eq!(of("SELECT temp"), (7, vec!["temperature".to_owned()]));
        assert_eq!(of("SELECT avg(te"), (11, vec!["temperature".to_owned()]));
        assert_eq!(of("select \"W"), (7, vec!["\"Wind Speed\"".to_owned()]));
        assert_eq!(of("sel"), (0, vec!["select".to_owned()]));
        let found = of("SELECT 1 FROM a").1;
        assert_eq!(found[0], "air");
        assert!(found.contains(&"and".to_owned()) && found.contains(&"avg(".to_owned()));
        assert_eq!(of(".sch"), (0, vec![".schema".to_owned()]));
        assert_eq!(of(".schema a"), (8, vec!["air".to_owned()]));
        assert_eq!(of("SELECT "), (7, Vec::new()));
        db.sql("CREATE VIEW \"Hot ones\" AS SELECT 1 AS a").unwrap();
        assert_eq!(of("SELECT * FROM \"H").1, ["\"Hot ones\""]);
    }
}
