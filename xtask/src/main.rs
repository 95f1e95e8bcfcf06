//! Development tasks, run as `cargo xtask <task>`.
//!
//! - `tidy` checks what no compiler checks: direction of dependencies, links, lengths, banned constructs.
//! - `features <package>...` checks that building and testing these packages selects the same features.
//! - `mutations [part of a name]` breaks the kernel in one place at a time and reports which test notices.
#![forbid(unsafe_code)]

mod features;
mod mutations;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask features <package>... | cargo xtask mutations [<part of a name>]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let outcome = match arguments.split_first() {
        Some((task, [])) if task == "tidy" => tidy::run(&root),
        Some((task, packages)) if task == "features" && !packages.is_empty() => {
            features::run(&root, packages)
        }
        Some((task, [])) if task == "mutations" => mutations::run(&root, ""),
        Some((task, [only])) if task == "mutations" => mutations::run(&root, only),
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
