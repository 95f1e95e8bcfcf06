//! The command line of Thalweg: a shell, single statements, imports, checks and a demonstration.
//!
//! Invariants
//! - Data goes to standard output, all else to standard error.
//! - The exit status is 0, 1 when something failed, 2 for a wrong call, 130 after Ctrl-C; an error is printed once.
//! - What is interrupted or fails has stored nothing: every statement and every import is one commit.
#![forbid(unsafe_code)]

/// Writes a line to standard error. Where that is closed, as by `2>&1 | head`, the line is lost and the work goes on: `eprintln!`
/// would panic.
macro_rules! report {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod arguments;
mod counts;
mod damage_list;
mod demo;
mod failure;
mod files;
mod import;
mod interrupt;
mod maintain;
mod opening;
mod output;
mod pattern;
mod progress;
mod schema;
mod shell;
mod shell_words;
mod sql;
mod statements;
mod stats;
mod verify;

use arguments::{Arguments, Command, EXPORT, INSPECT, SERVE, with_plain_statements};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;
use thalweg::{Error, ErrorKind};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse_from(with_plain_statements(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => return opening::explain_arguments(&error).report(),
    };
    interrupt::listen();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let command = match (arguments.command, arguments.database) {
        (Some(command), _) => command,
        (None, Some(database)) => {
            opening::check_not_a_command(&database)?;
            return shell::run(&database);
        }
        (None, None) => return Err(Failure::usage("name a database or a command; see --help")),
    };
    match command {
        Command::Sql(call) => sql::run(&call),
        Command::Import(call) => import::run(&call),
        Command::Stats(call) => stats::run(&call),
        Command::Verify(call) => verify::run(&call),
        Command::Maintain(call) => maintain::run(&call),
        Command::Demo => demo::run(),
        Command::DemoWriter { database } => demo::write_until_killed(&database),
        Command::Export(_) => Err(not_offered(EXPORT)),
        Command::Inspect(_) => Err(not_offered(INSPECT)),
        Command::Serve(_) => Err(not_offered(SERVE)),
    }
}

fn not_offered(message: &str) -> Failure {
    Error::new(ErrorKind::Unsupported, message).into()
}
