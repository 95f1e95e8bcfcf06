//! Development tasks, run as `cargo xtask <task>`.
//!
//! - `tidy` checks what no compiler checks: direction of dependencies, links, lengths, banned constructs.
//! - `features <package>...` checks that building and testing these packages selects the same features.
#![forbid(unsafe_code)]

mod features;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask features <package>...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let outcome = match arguments.split_first() {
        Some((task, [])) if task == "tidy" => tidy::run(&root),
        Some((task, packages)) if task == "features" && !packages.is_empty() => {
            features::run(&root, packages)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("{} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
