//! The arguments of the command line.

use crate::files;
use crate::output::Format;
use crate::pattern::Pattern;
use arrow_schema::DataType;
use arrow_schema::TimeUnit;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use thalweg::time_units::unit_ns;
use thalweg::{fold_name, parse_type};

/// An embedded database for sensor data. With a database and no command: a shell for SQL.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// The folder of the database; made if it is missing
    #[arg(value_parser = database())]
    pub(crate) database: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run SQL statements and print what they return
    Sql(SqlCall),
    /// Store the rows of a file, all of them or none
    Import(Box<ImportCall>),
    /// Show what is known of the tables
    Stats(StatsCall),
    /// Check every byte of a database without changing it
    Verify(VerifyCall),
    /// Put late rows in order on the disk, and short blocks together
    Maintain(MaintainCall),
    /// Show what Thalweg does, on a year of air quality readings, and check every answer
    Demo,
    /// The process that `demo` kills
    #[command(hide = true)]
    DemoWriter { database: PathBuf },
    #[command(hide = true, override_help = format!("{EXPORT}\n"))]
    Export(Rest),
    #[command(hide = true, override_help = format!("{INSPECT}\n"))]
    Inspect(Rest),
    #[command(hide = true, override_help = format!("{SERVE}\n"))]
    Serve(Rest),
}

/// The answers to commands that this version does not offer, in their help too.
pub(crate) const EXPORT: &str = "export is not offered by this version: thalweg sql DATABASE \"SELECT * FROM t\" --format csv \
                                 (or json, arrow) > FILE writes rows";
pub(crate) const INSPECT: &str = "inspect is not offered by this version: thalweg stats DATABASE shows what is known of the tables";
pub(crate) const SERVE: &str = "serve is not offered by this version";

/// Arguments of a command that this version does not offer.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct SqlCall {
    /// The folder of the database
    #[arg(value_parser = database())]
    pub(crate) database: PathBuf,
    /// One or more statements, separated by semicolons [default: those on standard input]
    #[arg(conflicts_with = "file")]
    pub(crate) statements: Option<String>,
    /// Run the statements in this file; - is standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How rows are printed [default: table on a terminal, csv otherwise]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
}

#[derive(Args, Debug)]
pub(crate) struct ImportCall {
    /// The folder of the database; made if it is missing and --create is given
    #[arg(value_parser = database())]
    pub(crate) database: PathBuf,
    /// CSV or JSON, plain, .gz or .zst; - is standard input. Several files with the same columns are one import
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The table
    #[arg(long)]
    pub(crate) table: String,
    #[command(flatten)]
    pub(crate) options: ImportOptions,
}

/// How a file becomes rows, and rows a table: the same in the shell.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ImportOptions {
    /// Make the table if it is missing, with the types found in the file
    #[arg(long)]
    pub(crate) create: bool,
    /// Layout of the new table [default: stream]
    #[arg(long)]
    pub(crate) layout: Option<String>,
    /// The column that orders the new table, or two that are its date and its clock, as Date,Time; without one rows keep the order of the file
    #[arg(long, value_name = "COLUMN")]
    pub(crate) time: Option<String>,
    /// The column with the sensor, in a layout that has one
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<String>,
    /// The dimensions, in a layout that has them
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) dimensions: Option<String>,
    /// Regular cuts of the new table, as "1 day"
    #[arg(long, value_name = "SPAN")]
    pub(crate) split: Option<String>,
    /// The columns of the new table whose values together belong to one row alone, as device,ts
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) unique: Option<String>,
    /// Which of two such rows the new table keeps: "last", "first", or neither of them, "error" [default: error]
    #[arg(long, value_name = "ROW")]
    pub(crate) on_duplicate: Option<String>,
    /// How old rows of the new table get, as "90 days"
    #[arg(long, value_name = "SPAN")]
    pub(crate) retention: Option<String>,
    /// The type of a column of the new table, as "value=varchar"; may be repeated [default: found in the file]
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = ColumnType::parse)]
    pub(crate) types: Vec<ColumnType>,
    /// Separator of fields: one character, "tab", or "space" for any number of them [default: detected among , ; | tab and space]
    #[arg(long, value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// The character around fields that hold separators [default: "]
    #[arg(long, value_name = "SIGN", value_parser = parse_quote)]
    pub(crate) quote: Option<u8>,
    /// Fields, or texts and numbers of JSON, that mean null, as empty fields do; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) null: Vec<String>,
    /// Rows with fewer fields than there are columns have NULL in the last ones; without it they are bad rows
    #[arg(long)]
    pub(crate) null_padding: bool,
    /// Lines to leave out in front of the header
    #[arg(
        long,
        value_name = "LINES",
        default_value_t = 0,
        allow_hyphen_values = true,
        value_parser = parse_lines
    )]
    pub(crate) skip: u64,
    /// The first line is a row: columns are named column0, column1 ..., or as those of the table that is there
    #[arg(long)]
    pub(crate) no_header: bool,
    /// Separator of decimals, a comma or a point [default: detected where fields are not separated by commas]
    #[arg(long, value_name = "SIGN", value_parser = parse_decimal)]
    pub(crate) decimal: Option<char>,
    /// The sign between thousands of numbers, as the comma of 1,234.5; without it such values are text
    #[arg(long, value_name = "SIGN", value_parser = parse_thousands)]
    pub(crate) thousands: Option<char>,
    /// How times are written, in strftime's patterns, as "%d.%m.%Y %H:%M"; may be repeated where columns differ [default: detected]
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::parse)]
    pub(crate) time_format: Vec<Pattern>,
    /// Unit in which the numbers of the time column count since 1970
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) time_unit: Option<EpochUnit>,
    /// A column for the name of the file that each row is from, without folders and endings such as .csv.gz
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    pub(crate) filename: Option<String>,
    /// Show what is found in the file and store nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write bad rows to this file and store the others; without it the first bad row fails the import
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// What the file holds [default: by its name]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,
}

impl ImportOptions {
    /// Where the column is that orders the table: the one that `--time` names, also with a comma in its name, or
    /// the one that is joined of two.
    pub(crate) fn time_place(&self, names: &[String]) -> Option<usize> {
        let place = |wanted: &str| {
            let is_wanted = |name: &String| fold_name(name) == fold_name(wanted);
            names.iter().position(is_wanted)
        };
        let given = place(self.time.as_deref()?);
        given.or_else(|| place(&self.joined_name()?))
    }

    /// The name in the table of the column that is joined of two: `Date_Time` of `Date,Time`.
    pub(crate) fn joined_name(&self) -> Option<String> {
        let [date, clock] = self.date_and_clock()?;
        Some(format!("{date}_{clock}"))
    }

    /// The columns of `--time Date,Time`.
    pub(crate) fn date_and_clock(&self) -> Option<[&str; 2]> {
        let (date, clock) = self.time.as_ref()?.split_once(',')?;
        let (date, clock) = (date.trim(), clock.trim());
        let are_two = !date.is_empty() && !clock.is_empty() && !clock.contains(',');
        are_two.then_some([date, clock])
    }
}

/// A column and the type that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(crate) column: String,
    pub(crate) data_type: DataType,
}

impl ColumnType {
    fn parse(text: &str) -> Result<Self, String> {
        let (column, data_type) = text
            .rsplit_once('=')
            .filter(|(column, _)| !column.is_empty())
            .ok_or_else(|| "a column and a type, as value=double".to_owned())?;
        if data_type.trim().eq_ignore_ascii_case("time") {
            return Err(
                "times of day are not stored: as varchar, CAST(x AS TIME) in SQL reads them, and --time Date,Time joins a \
                 date and a clock"
                    .to_owned(),
            );
        }
        let data_type = parse_type(data_type).map_err(|error| error.message().to_owned())?;
        Ok(Self {
            column: column.to_owned(),
            data_type,
        })
    }
}

/// The unit of numbers that count since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EpochUnit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl EpochUnit {
    /// Nanoseconds of one.
    pub(crate) fn ns(self) -> i64 {
        unit_ns(match self {
            Self::S => TimeUnit::Second,
            Self::Ms => TimeUnit::Millisecond,
            Self::Us => TimeUnit::Microsecond,
            Self::Ns => TimeUnit::Nanosecond,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Ns => "ns",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// A header line, then one line per row
    Csv,
    /// One JSON object per line, or a list of objects
    Json,
    /// Not offered by this version
    #[value(hide = true)]
    Arrow,
    /// Not offered by this version
    #[value(hide = true)]
    Parquet,
}

#[derive(Args, Debug)]
pub(crate) struct StatsCall {
    /// The folder of the database
    #[arg(value_parser = database())]
    pub(crate) database: PathBuf,
    /// Only this table
    pub(crate) table: Option<String>,
    /// How it is printed [default: table on a terminal, csv otherwise]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyCall {
    /// The folder of the database
    #[arg(value_parser = database())]
    pub(crate) database: PathBuf,
    /// Make it whole again: keep what can be read, list what is given up, in ranges where that is much
    #[arg(long)]
    pub(crate) repair: bool,
    /// List every place that a repair gives up or mends, however many there are
    #[arg(long, requires = "repair")]
    pub(crate) details: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MaintainCall {
    /// The folder of the database
    #[arg(value_parser = database())]
    pub(crate) database: PathBuf,
    /// Only this table
    pub(crate) table: Option<String>,
}

/// The path of a database.
fn database() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(files::with_home)
}

/// The arguments of a call in which a statement of `thalweg sql` may begin with a comment, which looks like an option.
pub(crate) fn with_plain_statements(
    arguments: impl Iterator<Item = OsString>,
) -> impl Iterator<Item = OsString> {
    let mut is_sql = false;
    arguments.enumerate().map(move |(place, argument)| {
        is_sql |= place == 1 && argument == *"sql";
        match argument.to_str() {
            Some(text) if is_sql && begins_with_comment(text) => format!(" {text}").into(),
            _ => argument,
        }
    })
}

/// Whether it is a comment of SQL, which has blanks, and no option with a value.
fn begins_with_comment(text: &str) -> bool {
    let name = text
        .strip_prefix("--")
        .and_then(|text| text.split(['=', ' ', '\t', '\n', '\r']).next());
    name.is_some_and(|name| {
        let rest = &text[2 + name.len()..];
        !rest.is_empty() && !rest.starts_with('=')
    })
}

fn parse_lines(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "a number of lines from 0 on".to_owned())
}

fn parse_column(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the name of a column".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"space" | b"spaces" => Ok(b' '),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("one ASCII character other than a quote, \"tab\" or \"space\"".to_owned()),
    }
}

fn parse_quote(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() => Ok(*byte),
        _ => Err("one ASCII sign, as ' or \"".to_owned()),
    }
}

fn parse_thousands(text: &str) -> Result<char, String> {
    match text {
        "," | "comma" => Ok(','),
        "." | "point" => Ok('.'),
        " " | "space" => Ok(' '),
        "'" => Ok('\''),
        "_" => Ok('_'),
        _ => Err("a comma, a point, \"space\", ' or _".to_owned()),
    }
}

fn parse_decimal(text: &str) -> Result<char, String> {
    match text {
        "," | "comma" => Ok(','),
        "." | "point" => Ok('.'),
        _ => Err("a comma or a point".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn comments_are_no_options() {
        let plain = |words: &[&str]| {
            let words = words.iter().map(OsString::from);
            let seen = with_plain_statements(words).map(|word| word.into_string().unwrap());
            seen.collect::<Vec<_>>().join("|")
        };
        let sql = [
            "thalweg",
            "sql",
            "db",
            "-- all\nSELECT 1",
            "--format=csv",
            "--format",
        ];
        assert_eq!(
            plain(&sql),
            "thalweg|sql|db| -- all\nSELECT 1|--format=csv|--format"
        );
        assert!(begins_with_comment("--all\nSELECT 1") && begins_with_comment("-- a=b"));
        assert!(!begins_with_comment("--file=a b.sql") && !begins_with_comment("--help"));
        let import = ["thalweg", "import", "db", "-- x"];
        assert_eq!(plain(&import), "thalweg|import|db|-- x");
    }

    #[test]
    fn types_of_columns() {
        let parsed = ColumnType::parse("a=b=varchar").unwrap();
        assert_eq!((&*parsed.column, parsed.data_type), ("a=b", DataType::Utf8));
        for bad in ["a", "=double", "a=", "a=nothing"] {
            assert!(ColumnType::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn delimiters() {
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("tab"), Ok(b'\t'));
        assert_eq!(parse_delimiter("space"), Ok(b' '));
        for bad in ["", ";;", "\"", "ä", "\n"] {
            assert!(parse_delimiter(bad).is_err(), "{bad:?}");
        }
    }
}
