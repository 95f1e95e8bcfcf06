//! Mutation testing of the kernel and of tables: breaks one place at a time and reports which test notices.
//!
//! Invariants
//! - `xtask/mutations.toml` names each place by its text, which must occur exactly once in its file: `cargo xtask tidy`
//!   fails when the code has moved on and the list has not.
//! - The checkout is never changed. A copy of it gets all mutations at once, each behind a switch that an environment variable
//!   turns on, so that one build serves them all.
//! - A mutation that no test notices is a survivor and a failure, unless the list says why it changes no behaviour; one that is
//!   said to change none and is noticed is a failure as well.
//!
//! Rejected: building once per mutation, as `cargo mutants` does (`make mutants` runs it over the whole kernel). It generates
//! mutations by itself, but takes a day, and knows nothing of protocols: which line holds a promise.

mod copy;
mod list;
mod runner;

use crate::tidy::{Finding, SourceFile, read_tree};
use list::Mutation;
use std::path::Path;

/// Checks that every mutation of the list can be applied.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let Some(text) = list::text_in(files) else {
        return Vec::new();
    };
    match list::parse(text) {
        Ok(mutations) => list::check(&mutations, files),
        Err(error) => vec![Finding::new(list::PATH, None, error)],
    }
}

/// Tries the mutations whose name contains `only`, and reports the survivors.
pub(crate) fn run(root: &Path, only: &str) -> Result<Vec<Finding>, String> {
    let files = read_tree(root)?;
    let text = list::text_in(&files).ok_or_else(|| format!("there is no {}", list::PATH))?;
    let mutations = list::parse(text)?;
    let unusable = list::check(&mutations, &files);
    if !unusable.is_empty() {
        return Ok(unusable);
    }
    let target = copy::target_folder(root)?;
    let checkout = target.join("checkout");
    copy::write(&files, &mutations, &checkout)?;
    let suite = runner::build(&checkout, &target.join("build"))?;
    let chosen: Vec<(usize, &Mutation)> = (1..)
        .zip(&mutations)
        .filter(|(_, mutation)| mutation.name.contains(only))
        .collect();
    runner::run(&suite, &chosen)
}
