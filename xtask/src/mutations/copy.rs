//! The copy of the checkout that holds all mutations.

use super::list::Mutation;
use crate::tidy::SourceFile;
use std::fs;
use std::path::{Path, PathBuf};

/// The environment variable that turns a mutation on, by its number from 1 on.
pub(super) const VARIABLE: &str = "THALWEG_MUTATION";

/// The roots of the crates with mutations: each gets the switches.
const ROOTS: [&str; 2] = [
    "crates/thalweg-kernel/src/lib.rs",
    "crates/thalweg-table/src/lib.rs",
];

/// The module of the switches.
const SWITCH: &str = r#"
mod mutation {
    pub(crate) fn is(number: u32) -> bool {
        static ON: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
        *ON.get_or_init(|| std::env::var("THALWEG_MUTATION").ok()?.parse().ok()) == Some(number)
    }
}
"#;

/// Where copy and build go: beside what cargo builds, so that cleaning removes them.
pub(super) fn target_folder(root: &Path) -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("mutations");
    fs::create_dir_all(&folder)
        .map_err(|error| format!("creating {}: {error}", folder.display()))?;
    Ok(folder)
}

/// Writes the copy; files that are as they should be keep their times, so that little is built again.
pub(super) fn write(files: &[SourceFile], mutations: &[Mutation], to: &Path) -> Result<(), String> {
    for file in files {
        let Some(text) = &file.text else { continue };
        let path = to.join(&file.path);
        let text = mutated(&file.path, text, mutations);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        written
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    remove_others(files, to)
}

/// Sources that the checkout no longer has would still be built.
fn remove_others(files: &[SourceFile], to: &Path) -> Result<(), String> {
    let known: std::collections::BTreeSet<&str> =
        files.iter().map(|file| file.path.as_str()).collect();
    for file in crate::tidy::read_tree(to)? {
        if !known.contains(file.path.as_str()) {
            fs::remove_file(to.join(&file.path))
                .map_err(|error| format!("removing {}: {error}", file.path))?;
        }
    }
    Ok(())
}

fn mutated(path: &str, text: &str, mutations: &[Mutation]) -> String {
    let mut text = text.to_owned();
    for (number, mutation) in (1..).zip(mutations) {
        if mutation.file == path {
            text = text.replacen(&mutation.original, &switched(number, mutation), 1);
        }
    }
    if ROOTS.contains(&path) {
        // Parentheses that are not needed, values that one branch does not use: warnings about the switches are no news.
        text = format!("#![allow(warnings)]\n{text}{SWITCH}");
    }
    text
}

/// Both texts, and the switch between them. Parenthesised: an `if` at the start of an operand would be a statement.
fn switched(number: u32, mutation: &Mutation) -> String {
    let (original, broken) = (&mutation.original, &mutation.broken);
    let is_statement =
        original.trim_end().ends_with([';', '}']) || broken.trim_end().ends_with(';');
    let choice = format!("if crate::mutation::is({number}) {{ {broken} }} else {{ {original} }}");
    if is_statement {
        choice
    } else {
        format!("({choice})")
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOTS, VARIABLE, mutated};
    use crate::mutations::list::parse;

    fn mutate(original: &str, broken: &str, text: &str) -> String {
        let file = "crates/thalweg-kernel/src/a.rs";
        let list = format!(
            "[[mutation]]\nname = 'n'\nfile = '{file}'\noriginal = '{original}'\nbroken = '{broken}'\n"
        );
        mutated(file, text, &parse(&list).expect("a list"))
    }

    #[test]
    fn statements_and_expressions_are_switched() {
        assert_eq!(
            mutate("f()?;", "", "a(); f()?; b();"),
            "a(); if crate::mutation::is(1) {  } else { f()?; } b();"
        );
        assert_eq!(
            mutate("a < b", "a <= b", "let c = a < b;"),
            "let c = (if crate::mutation::is(1) { a <= b } else { a < b });"
        );
    }

    #[test]
    fn each_crate_with_mutations_gets_the_switch() {
        assert!(
            ROOTS
                .iter()
                .all(|root| mutated(root, "", &[]).contains(VARIABLE))
        );
        assert_eq!(
            mutated("crates/thalweg-env/src/lib.rs", "text", &[]),
            "text"
        );
    }
}
