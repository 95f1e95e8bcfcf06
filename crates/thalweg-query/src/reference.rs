//! The page of all functions, `docs/reference/sql-functions.md`, as the engine knows them.
//!
//! A test compares the page with the engine. To write it anew: run the test with `REFERENCE_WRITE=1`.

use crate::options::{DEFAULT_BATCH_ROWS, QueryOptions};
use crate::planner::Planner;
use crate::wording::in_sql;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::Documentation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "\
# SQL functions

All functions that SQL knows, by subject. Names and forms of other databases, which are translated to these, are in
[the guide to SQL](../guides/sql.md). A test compares this page with the engine; it is written anew by

```sh
REFERENCE_WRITE=1 cargo test --locked --release -p thalweg-query --lib reference
```
";

/// Functions for the engine's own use, that name its types, or that are for files.
const LEFT_OUT: [&str; 18] = [
    "arrow_field",
    "arrow_metadata",
    "at_time_zone",
    "count_of_rows",
    "file_row_index",
    "get_field",
    "input_file_name",
    "bucket_origin",
    "first_instant",
    "largest_values",
    "local_time",
    "smallest_values",
    "time_pattern",
    "value_at_share",
    "value_at_share_from_largest",
    "whole_fraction",
    "whole_units",
    "with_metadata",
];

/// Texts for functions that have none, or one that mentions the library.
const OWN_TEXTS: [(&str, &str); 13] = [
    (
        "arrow_cast",
        "Casts to the type that a text names, as 'Int32'.",
    ),
    (
        "arrow_try_cast",
        "The same, and NULL where it cannot be cast.",
    ),
    (
        "bool_or",
        "Returns true if any non-null input value is true, otherwise false.",
    ),
    (
        "covar_pop",
        "Returns the population covariance of a set of number pairs.",
    ),
    ("empty", "Returns true for an empty list, otherwise false."),
    ("arrow_typeof", "Returns the name of the type."),
    (
        "epoch_ms",
        "Returns a time as milliseconds since 1970, and an integer as the time that it counts.",
    ),
    (
        "epoch_us",
        "Returns a time as microseconds since 1970, and an integer as the time that it counts.",
    ),
    (
        "epoch_ns",
        "Returns a time as nanoseconds since 1970, and an integer as the time that it counts.",
    ),
    ("mode", "Returns the most frequent value."),
    (
        "try_strptime",
        "Reads a text as a time by a pattern; NULL where the text does not fit it.",
    ),
    ("typeof", "Returns the name of the type in SQL."),
    ("version", "Returns the version of Thalweg."),
];

/// Subjects that are called after what they are made of.
const SUBJECTS: [(&str, &str); 3] = [
    ("Struct Functions", "Structs"),
    ("Array Functions", "Lists"),
    ("Map Functions", "Maps"),
];

/// A function as the page shows it.
struct Entry {
    name: String,
    aliases: BTreeSet<String>,
}

/// The documentation of the library's functions, by name; ours that stand in their place have no text of their own.
struct Texts(HashMap<String, Documentation>);

impl Texts {
    fn new() -> Self {
        let mut texts = HashMap::new();
        let mut keep = |name: &str, text: Option<&Documentation>| {
            if let Some(text) = text {
                texts.insert(name.to_owned(), text.clone());
            }
        };
        for function in SessionStateDefaults::default_scalar_functions() {
            keep(function.name(), function.documentation());
        }
        for function in SessionStateDefaults::default_aggregate_functions() {
            keep(function.name(), function.documentation());
        }
        for function in SessionStateDefaults::default_window_functions() {
            keep(function.name(), function.documentation());
        }
        Self(texts)
    }

    fn subject(&self, name: &str) -> &str {
        let label = self
            .0
            .get(name)
            .map_or("Other Functions", |text| text.doc_section.label);
        let renamed = SUBJECTS.iter().find(|(known, _)| *known == label);
        renamed.map_or(label, |(_, shown)| shown)
    }

    fn syntax(&self, name: &str) -> String {
        match self.0.get(name) {
            // Some texts are those of another function.
            Some(text) => match one_line(&text.syntax_example).split_once('(') {
                Some((_, arguments)) => format!("{name}({arguments}"),
                None => format!("{name}()"),
            },
            None if name == "try_strptime" => format!("{name}(text, pattern)"),
            None => format!("{name}(expression)"),
        }
    }

    /// The first sentence, unless it mentions the library.
    fn meaning(&self, name: &str) -> String {
        if let Some((_, own)) = OWN_TEXTS.iter().find(|(known, _)| *known == name) {
            return (*own).to_owned();
        }
        let text = self
            .0
            .get(name)
            .map_or("", |text| text.description.as_str());
        let text = one_line(text.split("\n\n").next().unwrap_or_default());
        let end = text.find(". ").map_or(text.len(), |end| end + 1);
        let sentence = in_sql(&without_links(&text[..end]));
        match ["Arrow", "DataFusion", "Postgres", "SEPARATOR"]
            .iter()
            .any(|word| sentence.contains(word))
        {
            true => String::new(),
            false => sentence,
        }
    }
}

/// The text with the words of links only: most lead to pages of other programs.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link.split_once("](") {
            Some((words, target)) if !words.contains(']') => {
                plain.push_str(words);
                rest = target.split_once(')').map_or("", |(_, after)| after);
            }
            _ => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain + rest
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// A part of the page: a heading, and a table for every subject.
fn part(page: &mut String, heading: &str, entries: Vec<Entry>, texts: &Texts) {
    let mut subjects: BTreeMap<&str, BTreeMap<String, Entry>> = BTreeMap::new();
    for entry in entries {
        if !LEFT_OUT.contains(&entry.name.as_str()) {
            let subject = texts.subject(&entry.name);
            subjects
                .entry(subject)
                .or_default()
                .insert(entry.name.clone(), entry);
        }
    }
    let _ = writeln!(page, "\n## {heading}");
    for (subject, entries) in subjects {
        let subject = subject.trim_end_matches(" Functions");
        let _ = writeln!(
            page,
            "\n### {subject}\n\n| written | also | meaning |\n| --- | --- | --- |"
        );
        for (name, entry) in entries {
            let also: Vec<String> = entry
                .aliases
                .iter()
                .map(|alias| format!("`{alias}`"))
                .collect();
            let cells = [
                format!("`{}`", texts.syntax(&name)),
                also.join(", "),
                texts.meaning(&name),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(page, "| {} |", cells.join(" | ").replace("  ", " "));
        }
    }
}

fn entries<'a>(functions: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<Entry> {
    functions
        .map(|(name, aliases)| Entry {
            name: name.to_owned(),
            aliases: aliases
                .iter()
                .filter(|alias| *alias != name)
                .cloned()
                .collect(),
        })
        .collect()
}

fn page() -> String {
    let options = QueryOptions {
        threads: 1,
        memory_limit_bytes: None,
        batch_rows: DEFAULT_BATCH_ROWS,
    };
    let planner = Planner::new(options).unwrap();
    let (engine, texts) = (planner.base(), Texts::new());
    let mut page = HEAD.to_owned();
    let scalars = engine.scalar_functions().values();
    let scalars = entries(scalars.map(|function| (function.name(), function.aliases())));
    part(&mut page, "Functions of values", scalars, &texts);
    let aggregates = engine.aggregate_functions().values();
    let aggregates = entries(aggregates.map(|function| (function.name(), function.aliases())));
    part(&mut page, "Aggregates", aggregates, &texts);
    let windows = engine.window_functions().values();
    let windows = entries(windows.map(|function| (function.name(), function.aliases())));
    page.push_str(
        "\nAggregates work on windows too: `sum(x) OVER (ORDER BY ts ROWS 5 PRECEDING)`.\n",
    );
    part(&mut page, "Window functions", windows, &texts);
    let tables: BTreeSet<&String> = engine.table_functions().keys().collect();
    let tables: Vec<String> = tables
        .iter()
        .map(|name| format!("`{name}(begin, end, step)`"))
        .collect();
    let _ = writeln!(page, "\n## Functions in FROM\n\n{}", tables.join(", "));
    page
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its own page")]
fn the_page_of_functions_is_what_the_engine_knows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/sql-functions.md");
    if std::env::var_os("REFERENCE_WRITE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text == page(),
        "docs/reference/sql-functions.md is out of date: run this test with REFERENCE_WRITE=1"
    );
}
