//! The shell: statements that end with a semicolon, and commands that begin with a dot.
//!
//! Invariants: on a terminal an error is shown and the shell goes on; a script (anything else on standard input) ends with
//! its first error, so that nothing runs on the ruins of what came before.

use crate::arguments::ImportOptions;
use crate::counts::counted;
use crate::failure::Failure;
use crate::output::{Format, Limits, ShownRows};
use crate::schema::{create_statement, create_view_statement, quoted};
use crate::shell_words::{COMMANDS, Words};
use crate::sql::{close, execute};
use crate::{files, import, opening, statements};
use clap::{Parser, ValueEnum};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg::{Database, DatabaseView, Error, ErrorKind};
use thalweg_env::Env;

const PROMPT: &str = "thalweg> ";
const PROMPT_GOES_ON: &str = "    ...> ";

const HELP: &str = "\
Statements end with a semicolon. Tab completes a word, Ctrl-C stops a query, Ctrl-D ends the shell.
.tables                    names of all tables and views
.schema [NAME]             the statements that make them
.import FILE TABLE [...]   store the rows of a file; options as those of `thalweg import`
.mode table|csv|json       how rows are printed
.rows NUMBER|all|screen    how many rows of a result a terminal shows
.timer on|off              say how long statements take
\\dt, \\d TABLE              names of all tables and views; the columns of one
.help                      this
.quit                      end; so do quit and exit";

/// A shell on an open database.
struct Shell {
    db: Database,
    env: Env,
    format: Format,
    timer: bool,
    /// Rows of a result that a terminal shows.
    rows: ShownRows,
    /// Somebody watches.
    interactive: bool,
    /// Another process writes.
    only_reads: bool,
}

/// Whether the shell goes on after a line.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Quit,
}

/// Returns clap's message for a wrong line, without its heading.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// `.import FILE TABLE [...]`.
#[derive(Debug, Parser)]
#[command(name = ".import", no_binary_name = true, disable_help_flag = true)]
struct ImportLine {
    file: PathBuf,
    table: String,
    #[command(flatten)]
    options: ImportOptions,
}

/// `thalweg DATABASE`.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let interactive = io::stdin().is_terminal();
    let (db, only_reads) = open(path)?;
    let shell = Shell {
        db,
        only_reads,
        env: Env::os(),
        format: Format::or_default(None),
        timer: false,
        rows: ShownRows::default(),
        interactive,
    };
    if interactive {
        shell.converse(path)
    } else {
        shell.run_script()
    }
}

/// For writing if possible: another process may do that already.
fn open(path: &Path) -> Result<(Database, bool), Failure> {
    match Database::open(path) {
        Err(error) if error.kind() == ErrorKind::Locked => {
            let db = opening::for_reading(path)?;
            report!(
                "another process writes to {}: statements can only read",
                path.display()
            );
            Ok((db, true))
        }
        opened => Ok((opened?, false)),
    }
}

impl Shell {
    fn converse(mut self, path: &Path) -> Result<(), Failure> {
        let fail =
            |error: ReadlineError| Failure::Other(format!("reading from the terminal: {error}"));
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .build();
        let mut editor: Editor<Words, DefaultHistory> =
            Editor::with_config(config).map_err(fail)?;
        editor.set_helper(Some(Words::new(&self.db)));
        let history = files::history();
        if let Some(history) = &history {
            // There is none before the first time.
            let _ = editor.load_history(history);
        }
        report!(
            "Thalweg {} on {}; .help lists what else there is",
            env!("CARGO_PKG_VERSION"),
            path.display()
        );
        let mut text = String::new();
        // The lines of the statement in `text`: the history has statements, not lines.
        let mut typed = String::new();
        loop {
            let prompt = if statements::is_blank(&text) {
                PROMPT
            } else {
                PROMPT_GOES_ON
            };
            let line = match editor.readline(prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => {
                    text.clear();
                    remember(&mut editor, &mut typed);
                    continue;
                }
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(fail(error)),
            };
            typed.push_str(&line);
            typed.push('\n');
            let next = self.take_lines(&line, &mut text);
            if statements::is_blank(&text) {
                remember(&mut editor, &mut typed);
            }
            if next == Next::Quit {
                break;
            }
        }
        remember(&mut editor, &mut typed);
        if let Some(history) = &history {
            let _ = editor.save_history(history);
        }
        close(&self.db)
    }

    /// Runs what was typed or pasted: a paste may be many lines.
    fn take_lines(&mut self, lines: &str, text: &mut String) -> Next {
        for line in lines.lines() {
            match self.take_line(line, text) {
                Ok(Next::GoOn) => {}
                Ok(Next::Quit) => return Next::Quit,
                Err(failure) => {
                    text.clear();
                    failure.report();
                }
            }
        }
        Next::GoOn
    }

    fn run_script(mut self) -> Result<(), Failure> {
        let mut text = String::new();
        for line in io::stdin().lines() {
            let line =
                line.map_err(|error| Failure::Other(format!("reading standard input: {error}")))?;
            if self.take_line(&line, &mut text)? == Next::Quit {
                return close(&self.db);
            }
        }
        if !statements::is_blank(&text) {
            self.run_statement(text.trim())?;
        }
        close(&self.db)
    }

    /// Runs what a line completes; `text` is what was left of the lines before.
    fn take_line(&mut self, line: &str, text: &mut String) -> Result<Next, Failure> {
        if statements::is_blank(text) && line.trim_start().starts_with('.') {
            text.clear();
            return self.run_command(line.trim());
        }
        if is_command(line) && statements::could_end(text) {
            return Err(Failure::usage(format!(
                "the statement before {} has no semicolon at its end: it was not run",
                line.trim()
            )));
        }
        if statements::is_blank(text) && is_farewell(line) {
            return Ok(Next::Quit);
        }
        if statements::is_blank(text) && is_word(line, &["help", "?"]) {
            return self.run_command(".help");
        }
        if statements::is_blank(text) && line.trim_start().starts_with('\\') {
            text.clear();
            return self.run_backslash(line.trim());
        }
        text.push_str(line);
        text.push('\n');
        while let Some(statement) = statements::take_first(text) {
            self.run_statement(&statement)?;
        }
        Ok(Next::GoOn)
    }

    fn run_statement(&mut self, statement: &str) -> Result<(), Failure> {
        let start_ns = self.env.clock().monotonic_ns();
        let outcome = execute(
            &self.db,
            statement,
            self.format,
            Limits::of_shell(self.rows),
            &mut BufWriter::new(io::stdout().lock()),
        );
        let outcome = outcome.map_err(|failure| self.explained(failure))?;
        if self.interactive && self.format == Format::Table && !outcome.is_cut {
            report!("{}", counted(outcome.rows, "row"));
        }
        if self.timer {
            let took = Duration::from_nanos(self.env.clock().monotonic_ns() - start_ns);
            report!("{:.3} s", took.as_secs_f64());
        }
        Ok(())
    }

    /// Of a statement that writes, beside another process that does.
    fn explained(&self, failure: Failure) -> Failure {
        match &failure {
            Failure::Engine(error) if error.kind() == ErrorKind::Unavailable && self.only_reads => {
                let message = "another process writes to the database, so that this shell only reads: end the writer and \
                               open the shell again";
                Error::new(ErrorKind::Unavailable, message).into()
            }
            _ => failure,
        }
    }

    fn run_command(&mut self, line: &str) -> Result<Next, Failure> {
        let words = words(line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [".quit" | ".exit"] => return Ok(Next::Quit),
            [".help"] => report!("{HELP}"),
            [".tables"] => {
                let mut out = io::stdout().lock();
                for name in self.db.snapshot()?.table_and_view_names() {
                    writeln!(out, "{name}")?;
                }
            }
            [".schema"] => {
                let view = self.db.snapshot()?;
                // What views read comes before them.
                let names = [view.table_names(), view.view_names()].concat();
                print_schemas(&view, &names)?;
            }
            [".schema", name] => print_schemas(&self.db.snapshot()?, &[(*name).to_owned()])?,
            [".timer"] => return Err(Failure::usage("write .timer on or .timer off")),
            [".mode"] => {
                return Err(Failure::usage("write .mode table, .mode csv or .mode json"));
            }
            [".rows", "all"] => self.rows = ShownRows::All,
            [".rows", "screen"] => self.rows = ShownRows::Screen,
            [".rows", rest @ ..] => {
                let most = rest.first().and_then(|number| number.parse().ok());
                self.rows = ShownRows::Most(most.filter(|_| rest.len() == 1).ok_or_else(|| {
                    Failure::usage("write .rows and a number, .rows all or .rows screen")
                })?);
            }
            [".timer", "on"] => self.timer = true,
            [".timer", "off"] => self.timer = false,
            [".mode", format] => {
                let known = Format::from_str(format, true).map_err(|_| {
                    Failure::usage(format!(
                        "there is no mode \"{format}\"; the modes are table, csv and json"
                    ))
                })?;
                self.format = known.check()?;
            }
            [".import", rest @ ..] => {
                let call = ImportLine::try_parse_from(rest)
                    .map_err(|error| Failure::usage(in_one_line(&error)))?;
                if call.file == Path::new("-") && !self.interactive {
                    return Err(Failure::usage(
                        "standard input holds the statements: write the rows to a file, or run thalweg import DATABASE - --table TABLE",
                    ));
                }
                let file = files::with_home(call.file).map_err(Failure::Usage)?;
                let imported = import::import(&self.db, &file, &call.table, &call.options);
                imported.map_err(|failure| self.explained(failure))?.tell();
            }
            _ => {
                return Err(Failure::usage(format!(
                    "unknown command: {line}; .help lists them"
                )));
            }
        }
        Ok(Next::GoOn)
    }

    /// Runs a command in the notation of psql, which begins with a backslash.
    fn run_backslash(&mut self, line: &str) -> Result<Next, Failure> {
        let words = words(line.trim_end_matches(';'))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["\\dt" | "\\d" | "\\dt+" | "\\d+"] => self.run_command(".tables"),
            ["\\d" | "\\d+", table] => {
                self.run_statement(&format!("DESCRIBE {}", quoted(table)))?;
                Ok(Next::GoOn)
            }
            ["\\?" | "\\h"] => self.run_command(".help"),
            ["\\timing"] => {
                self.timer = !self.timer;
                Ok(Next::GoOn)
            }
            _ => Err(Failure::usage(format!(
                "unknown command: {line}; commands begin with a dot, .help lists them"
            ))),
        }
    }
}

fn print_schemas(view: &DatabaseView, names: &[String]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for name in names {
        let statement = match view.stored_view(name) {
            Some(stored) => create_view_statement(&stored)?,
            None => create_statement(&view.table(name)?),
        };
        writeln!(out, "{statement}")?;
    }
    Ok(())
}

/// Adds what was typed to the history.
fn remember(editor: &mut Editor<Words, DefaultHistory>, typed: &mut String) {
    let whole = std::mem::take(typed);
    if !whole.trim().is_empty() {
        // A history that cannot be kept is no reason to stop.
        let _ = editor.add_history_entry(whole.trim());
    }
}

/// Whether a line is one of the commands that begin with a dot.
fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next();
    word.is_some_and(|word| COMMANDS.contains(&word))
}

/// Whether a line is what people type to leave.
fn is_farewell(line: &str) -> bool {
    is_word(line, &["quit", "exit", "\\q"])
}

fn is_word(line: &str, words: &[&str]) -> bool {
    let line = line.trim().trim_end_matches(';').trim_end();
    words.iter().any(|word| line.eq_ignore_ascii_case(word))
}

/// The words of a command: separated by spaces, quoted where they hold some.
fn words(line: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Failure::usage("a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command() {
        let cut = |line: &str| words(line).unwrap();
        assert_eq!(
            cut(".import  'my file.csv' t --null \"\""),
            [".import", "my file.csv", "t", "--null", ""]
        );
        assert_eq!(cut("a\"b c\"d"), ["ab cd"]);
        assert!(words("'open").is_err());
    }
}
