//! Checks that `cargo build` of the command line, and `cargo build` and `cargo test` of all release packages, select the same
//! features of every dependency.
//!
//! A development dependency that turns on one more feature of a shared crate would make `make test` compile
//! DataFusion again after `make demo` had built it: a quarter of an hour that nobody notices in review.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tidy::{Finding, cargo_output};

/// Package with version, to the feature sets it is built with (one for the target, perhaps another for the host).
type Selected = BTreeMap<String, BTreeSet<String>>;

/// The package that `make demo` builds alone.
const COMMAND_LINE: &str = "thalweg-cli";

pub(crate) fn run(root: &Path, packages: &[String]) -> Result<Vec<Finding>, String> {
    let command_line = selected(root, &[COMMAND_LINE.to_owned()], "normal,build")?;
    let build = selected(root, packages, "normal,build")?;
    let test = selected(root, packages, "normal,build,dev")?;
    let mut findings = differences(("the demo", &command_line), ("the whole build", &build));
    findings.extend(differences(("the build", &build), ("the tests", &test)));
    Ok(findings)
}

fn selected(root: &Path, packages: &[String], edges: &str) -> Result<Selected, String> {
    let mut arguments = vec![
        "tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges,
    ];
    for package in packages {
        arguments.extend(["--package", package]);
    }
    Ok(parse_tree(&cargo_output(root, &arguments)?))
}

fn parse_tree(text: &str) -> Selected {
    let mut selected = Selected::new();
    for line in text.lines() {
        if let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') {
            selected
                .entry(package.to_owned())
                .or_default()
                .insert(features.trim().to_owned());
        }
    }
    selected
}

/// What `one` selects differently than `other`, which builds all of it and more.
fn differences(one: (&str, &Selected), other: (&str, &Selected)) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, features) in one.1 {
        let in_other = other.1.get(package);
        if in_other != Some(features) {
            findings.push(Finding::new(
                "Cargo.toml",
                None,
                format!(
                    "{package} is built twice: {} selects {features:?}, {} selects {in_other:?}; \
                     name the missing features in [workspace.dependencies]",
                    one.0, other.0
                ),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{differences, parse_tree};

    #[test]
    fn a_feature_that_only_tests_turn_on_is_found() {
        let build = parse_tree("a v1.0.0|std\nb v2.0.0|\nb v2.0.0| (*)\n");
        let same = parse_tree("b v2.0.0|\na v1.0.0|std\nc v1.0.0|default\n");
        assert!(differences(("build", &build), ("test", &same)).is_empty());

        let more = parse_tree("a v1.0.0|alloc,std\nb v2.0.0|\n");
        let findings = differences(("build", &build), ("test", &more));
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].to_string().contains("a v1.0.0 is built twice"),
            "{}",
            findings[0]
        );
    }
}
