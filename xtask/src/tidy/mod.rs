//! Rules that no compiler checks. Every rule names file and line, and says what to do instead.
//!
//! Invariants
//! - The tree is read once; a rule is a function from files to findings, so each is tested on a few lines of text.
//! - Files are found by walking, not by asking git: an unpacked archive is checked as a checkout is.

mod cycles;
mod docs;
mod files;
mod layers;
mod rust_text;
mod source;
mod words;

use std::fmt;
use std::path::Path;
use std::process::Command;

pub(crate) use files::{SourceFile, read_tree};

/// One broken rule.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Finding {
    /// A finding in `path`, which is relative to the root of the workspace; lines count from one.
    pub(crate) fn new(path: &str, line: Option<usize>, message: String) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            message,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

pub(crate) fn run(root: &Path) -> Result<Vec<Finding>, String> {
    let files = read_tree(root)?;
    let metadata = cargo_output(
        root,
        &["metadata", "--locked", "--no-deps", "--format-version", "1"],
    )?;
    let mut findings = layers::check(&metadata, &files)?;
    findings.extend(source::check(&files));
    findings.extend(cycles::check(&files));
    findings.extend(docs::check(&files));
    findings.extend(words::check(&files));
    findings.extend(crate::mutations::check(&files));
    Ok(findings)
}

/// Standard output of a cargo command that must succeed.
pub(crate) fn cargo_output(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo {arguments:?}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo {} failed: {complaint}", arguments.join(" ")));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo {arguments:?}: {error}"))
}
