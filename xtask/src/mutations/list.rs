//! The list of mutations: what is broken, where, and what is known of it.

use crate::tidy::{Finding, SourceFile};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Where the list lies.
pub(crate) const PATH: &str = "xtask/mutations.toml";
/// The crates whose files may be mutated: the switch is a module of each.
const SOURCES: [&str; 2] = ["crates/thalweg-kernel/src/", "crates/thalweg-table/src/"];

/// One place to break.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    /// Which promise is broken, in a few words; unique.
    pub(crate) name: String,
    /// The file, from the root of the workspace.
    pub(crate) file: String,
    /// An expression, or whole statements that bind no name: exactly once in the file.
    pub(crate) original: String,
    /// What takes its place; empty: nothing is done there.
    pub(crate) broken: String,
    /// The test binary that is tried first: package/binary.
    #[serde(default)]
    pub(crate) test: String,
    /// Why no test can notice, if so.
    #[serde(default)]
    pub(crate) equivalent: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutation: Vec<Mutation>,
}

pub(super) fn text_in(files: &[SourceFile]) -> Option<&str> {
    let list = files.iter().find(|file| file.path == PATH);
    list?.text.as_deref()
}

pub(super) fn parse(text: &str) -> Result<Vec<Mutation>, String> {
    let list: List = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok(list.mutation)
}

/// What keeps mutations from being applied.
pub(super) fn check(mutations: &[Mutation], files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names = BTreeSet::new();
    for mutation in mutations {
        let mut refuse = |why: String| {
            let message = format!("mutation \"{}\": {why}", mutation.name);
            findings.push(Finding::new(PATH, None, message));
        };
        if !names.insert(&mutation.name) {
            refuse("another one has this name".to_owned());
        }
        if !SOURCES
            .iter()
            .any(|sources| mutation.file.starts_with(sources))
        {
            refuse(format!(
                "{} is not in {}",
                mutation.file,
                SOURCES.join(" or ")
            ));
            continue;
        }
        let file = files.iter().find(|file| file.path == mutation.file);
        let Some(text) = file.and_then(|file| file.text.as_deref()) else {
            refuse(format!("there is no {}", mutation.file));
            continue;
        };
        match text.matches(&mutation.original).count() {
            1 if !mutation.original.trim().is_empty() => {}
            count => refuse(format!(
                "its original occurs {count} times in {}, not once",
                mutation.file
            )),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{check, parse};
    use crate::tidy::SourceFile;

    const ENTRY: &str = "[[mutation]]\nname = 'n'\nfile = 'crates/thalweg-kernel/src/a.rs'\noriginal = 'f()?;'\nbroken = ''\n";

    fn findings(list: &str, source: &str) -> usize {
        let files = [SourceFile::of("crates/thalweg-kernel/src/a.rs", source)];
        check(&parse(list).expect("a list"), &files).len()
    }

    #[test]
    fn a_place_that_is_not_there_exactly_once_is_a_finding() {
        assert_eq!(findings(ENTRY, "fn a() { f()?; }"), 0);
        assert_eq!(findings(ENTRY, "fn a() { f()?; f()?; }"), 1);
        assert_eq!(findings(ENTRY, "fn a() {}"), 1);
        assert_eq!(findings(&ENTRY.repeat(2), "f()?;"), 1);
        let elsewhere = ENTRY.replace("kernel", "codec");
        assert_eq!(findings(&elsewhere, "f()?;"), 1);
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(parse(&format!("{ENTRY}extra = 1\n")).is_err());
    }
}
