//! Rows on standard output, in the format that was asked for.
//!
//! Invariants: rows are printed as they come, so that a result may be larger than memory; a result without rows still
//! prints its header.

use crate::counts::counted;
use crate::failure::Failure;
use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::JsonFormat;
use arrow_schema::{ArrowError, SchemaRef};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use console::{Term, measure_text_width, truncate_str};
use std::io::{IsTerminal, Write};
use thalweg::{csv, texts};

/// Rows that a terminal shows of a result.
const TERMINAL_ROWS: usize = 200;
/// Lines of a screen beside the rows of a table: its frame, its header, the lines below it and the prompt.
const FRAME_ROWS: usize = 7;
/// Rows that even the smallest screen shows.
const FEWEST_ROWS: usize = 10;
/// Characters that a terminal shows of a value where not all fit.
const TERMINAL_CELL: usize = 40;
const DOTS: &str = "…";
/// Rows whose widths decide the columns of a table; later ones get a table of their own.
const TABLE_ROWS: usize = 10_000;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines and columns for people
    Table,
    /// A header line, then one line per row
    Csv,
    /// A list of objects, one per line
    Json,
    /// An Arrow IPC stream, for pyarrow.ipc.open_stream or polars.read_ipc_stream
    Arrow,
    /// Not offered by this version
    #[value(hide = true)]
    Parquet,
}

impl Format {
    /// The format that is used by default: tables for people, CSV for programs.
    pub(crate) fn or_default(given: Option<Self>) -> Self {
        given.unwrap_or(if std::io::stdout().is_terminal() {
            Self::Table
        } else {
            Self::Csv
        })
    }

    /// Refuses what cannot be printed, before anything is run.
    ///
    /// # Errors
    /// `Unsupported` for formats of other versions.
    pub(crate) fn check(self) -> Result<Self, Failure> {
        match self {
            Self::Parquet => Err(Failure::unsupported("the format parquet")),
            Self::Arrow if std::io::stdout().is_terminal() => Err(Failure::usage(
                "the format arrow is not for a terminal: redirect the output to a file",
            )),
            offered => Ok(offered),
        }
    }
}

/// The space that a table of output has. Other formats are never cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    rows: Option<usize>,
    /// Characters of a line.
    width: Option<usize>,
    /// Whether rows beyond the limit are counted.
    counts_others: bool,
}

/// How many rows of a result the shell shows on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ShownRows {
    /// A screenful.
    #[default]
    Screen,
    Most(usize),
    All,
}

impl Limits {
    /// The limits of the terminal; none if standard output is no terminal.
    pub(crate) fn of_terminal() -> Self {
        let term = Term::stdout();
        if !term.is_term() {
            return Self::default();
        }
        // A terminal that does not know its width reports 0.
        let width = term.size_checked().map(|(_, columns)| usize::from(columns));
        Self {
            rows: Some(TERMINAL_ROWS),
            width: width.filter(|width| *width > 0),
            ..Self::default()
        }
    }

    /// The limits of the shell: `rows` of a result, or as many as fit the terminal; the others are counted.
    pub(crate) fn of_shell(rows: ShownRows) -> Self {
        let term = Term::stdout();
        let limits = Self::of_terminal();
        if limits.rows.is_none() {
            return limits;
        }
        let screen = term.size_checked().map_or(0, |(rows, _)| usize::from(rows));
        let rows = match rows {
            ShownRows::Screen => Some(screen.saturating_sub(FRAME_ROWS).max(FEWEST_ROWS)),
            ShownRows::Most(most) => Some(most),
            ShownRows::All => None,
        };
        Self {
            rows,
            counts_others: true,
            ..limits
        }
    }

    /// Whether rows that are not printed are counted.
    pub(crate) fn counts_others(self) -> bool {
        self.counts_others
    }
}

/// Prints the batches of one result.
pub(crate) struct Printer<W: Write> {
    schema: SchemaRef,
    writer: Writer<W>,
    rows: u64,
    limits: Limits,
    is_cut: bool,
    /// Rows that were not printed, so far.
    others: u64,
    /// Whether there may be further rows, which were not counted.
    has_uncounted: bool,
}

enum Writer<W: Write> {
    Table {
        out: W,
        waiting: Vec<RecordBatch>,
        waiting_rows: usize,
        printed: bool,
    },
    Csv {
        out: W,
        /// Holds the header until the first rows are there: a statement may fail before.
        header: Option<String>,
    },
    Json(arrow_json::Writer<W, ListOfLines>),
    Arrow(arrow_ipc::writer::StreamWriter<W>),
}

impl<W: Write> Printer<W> {
    /// A printer for rows with this schema.
    ///
    /// # Errors
    /// When nothing can be written.
    pub(crate) fn new(
        format: Format,
        schema: &SchemaRef,
        limits: Limits,
        out: W,
    ) -> Result<Self, Failure> {
        let writer = match format.check()? {
            Format::Table => Writer::Table {
                out,
                waiting: Vec::new(),
                waiting_rows: 0,
                printed: false,
            },
            Format::Json => {
                let builder = arrow_json::WriterBuilder::new().with_explicit_nulls(true);
                Writer::Json(builder.build(out))
            }
            Format::Arrow => Writer::Arrow(arrow_ipc::writer::StreamWriter::try_new(out, schema)?),
            Format::Csv | Format::Parquet => Writer::Csv {
                out,
                header: Some(csv::header(schema)),
            },
        };
        Ok(Self {
            schema: schema.clone(),
            writer,
            rows: 0,
            limits,
            is_cut: false,
            others: 0,
            has_uncounted: false,
        })
    }

    /// Prints some rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let rows_before = self.rows;
        self.rows += batch.num_rows() as u64;
        match &mut self.writer {
            Writer::Table {
                out,
                waiting,
                waiting_rows,
                printed,
            } => {
                let mut batch = batch.clone();
                if let Some(most) = self.limits.rows {
                    let room = most.saturating_sub(usize::try_from(rows_before).unwrap_or(most));
                    self.is_cut |= batch.num_rows() > room;
                    self.others += batch.num_rows().saturating_sub(room) as u64;
                    batch = batch.slice(0, room.min(batch.num_rows()));
                    self.rows = rows_before + batch.num_rows() as u64;
                }
                *waiting_rows += batch.num_rows();
                waiting.push(batch);
                if *waiting_rows >= TABLE_ROWS {
                    print_table(
                        out,
                        &self.schema,
                        &std::mem::take(waiting),
                        self.limits.width,
                    )?;
                    (*waiting_rows, *printed) = (0, true);
                }
            }
            Writer::Csv { out, header } => {
                out.write_all(header.take().unwrap_or_default().as_bytes())?;
                out.write_all(csv::rows(batch)?.as_bytes())?;
            }
            Writer::Json(writer) => {
                texts::check(batch)?;
                writer.write(batch)?;
            }
            Writer::Arrow(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Whether there are more rows than are printed.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Notes that there are further rows, which are not counted.
    pub(crate) fn leave_uncounted(&mut self) {
        self.has_uncounted = true;
    }

    /// Prints the rest, and returns how many rows there were.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn finish(self) -> Result<u64, Failure> {
        match self.writer {
            Writer::Table {
                mut out,
                waiting,
                waiting_rows,
                printed,
            } => {
                if waiting_rows > 0 || !printed {
                    print_table(&mut out, &self.schema, &waiting, self.limits.width)?;
                }
                if self.is_cut && self.limits.counts_others {
                    let more = if self.has_uncounted { "more than " } else { "" };
                    writeln!(
                        out,
                        "... {more}{} (.rows all prints all of them)",
                        counted(self.others, "more row")
                    )?;
                } else if self.is_cut {
                    writeln!(
                        out,
                        "the first {} rows, there are more: .mode csv or --format csv prints all of them",
                        self.rows
                    )?;
                }
                out.flush()?;
            }
            Writer::Csv { mut out, header } => {
                out.write_all(header.unwrap_or_default().as_bytes())?;
                out.flush()?;
            }
            Writer::Json(mut writer) => {
                writer.finish()?;
                writer.into_inner().flush()?;
            }
            Writer::Arrow(mut writer) => {
                writer.finish()?;
                writer.get_mut().flush()?;
            }
        }
        Ok(self.rows)
    }
}

fn print_table(
    out: &mut impl Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    width: Option<usize>,
) -> Result<(), Failure> {
    let header: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let options = FormatOptions::default().with_null("NULL");
    for batch in batches {
        texts::check(batch)?;
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|array| ArrayFormatter::try_new(array, &options))
            .collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let cells: Result<Vec<String>, _> = columns
                .iter()
                .map(|column| column.value(row).try_to_string())
                .collect();
            rows.push(cells?);
        }
    }
    // A plan is printed line by line: it is of no use if it is cut.
    let is_plan =
        matches!(header.as_slice(), [kind, plan] if kind == "plan_type" && plan == "plan");
    if is_plan {
        for row in &rows {
            writeln!(out, "{}", row.join("\n"))?;
        }
        return Ok(());
    }
    let widths = cell_widths(&header, &rows);
    let shown = width.map_or_else(
        || (0..header.len()).map(Shown::Whole).collect(),
        |width| fit(&widths, width),
    );
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(shown.iter().map(|column| column.of(&header)));
    for row in &rows {
        table.add_row(shown.iter().map(|column| column.of(row)));
    }
    for (column, shown) in table.column_iter_mut().zip(&shown) {
        let field = shown.place().map(|place| schema.field(place));
        if field.is_some_and(|field| field.data_type().is_numeric()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{table}")?;
    let columns = shown
        .iter()
        .filter(|column| column.place().is_some())
        .count();
    if columns < header.len() {
        writeln!(
            out,
            "{columns} of {} columns: SELECT fewer, or .mode csv or --format csv prints all of them",
            header.len()
        )?;
    }
    Ok(())
}

/// A column of a table on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Whole(usize),
    /// Its long values are cut.
    Cut(usize),
    /// Dots in the place of those that are left out.
    Dots,
}

impl Shown {
    fn place(self) -> Option<usize> {
        match self {
            Self::Whole(place) | Self::Cut(place) => Some(place),
            Self::Dots => None,
        }
    }

    fn of(self, cells: &[String]) -> String {
        match self {
            Self::Whole(place) => cells[place].clone(),
            Self::Cut(place) => truncate_str(&cells[place], TERMINAL_CELL, DOTS).into_owned(),
            Self::Dots => DOTS.to_owned(),
        }
    }
}

fn cell_widths(header: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |place: usize| {
        let cells = rows.iter().map(|row| &row[place]);
        let lines = cells.chain([&header[place]]).flat_map(|cell| cell.lines());
        lines.map(measure_text_width).max().unwrap_or(0)
    };
    (0..header.len()).map(widest).collect()
}

/// The columns that fit a line: first long values are cut, then columns in the middle are left out.
fn fit(widths: &[usize], width: usize) -> Vec<Shown> {
    let all = || 0..widths.len();
    // Two spaces and a line for each column, and a line at the end.
    let line_width =
        |widths: &mut dyn Iterator<Item = usize>| widths.map(|width| width + 3).sum::<usize>() + 1;
    if line_width(&mut widths.iter().copied()) <= width {
        return all().map(Shown::Whole).collect();
    }
    let cut = |place: usize| widths[place].min(TERMINAL_CELL);
    let mut left: Vec<usize> = Vec::new();
    let mut right: Vec<usize> = Vec::new();
    let mut used = 1;
    let mut order = all().collect::<std::collections::VecDeque<usize>>();
    while let Some(place) = if left.len() <= right.len() {
        order.pop_front()
    } else {
        order.pop_back()
    } {
        // Room for the dots, unless this is the last one.
        let dots = if order.is_empty() { 0 } else { 1 + 3 };
        if used + cut(place) + 3 + dots > width && !(left.is_empty() && right.is_empty()) {
            order.push_back(place);
            break;
        }
        used += cut(place) + 3;
        if left.len() <= right.len() {
            left.push(place);
        } else {
            right.push(place);
        }
    }
    let dots = (!order.is_empty()).then_some(Shown::Dots);
    let left = left.into_iter().map(Shown::Cut);
    left.chain(dots)
        .chain(right.into_iter().rev().map(Shown::Cut))
        .collect()
}

/// One list with each object on a line of its own.
#[derive(Debug, Default)]
struct ListOfLines;

impl JsonFormat for ListOfLines {
    fn start_stream<W: Write>(&self, writer: &mut W) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"[")?)
    }

    fn start_row<W: Write>(&self, writer: &mut W, is_first_row: bool) -> Result<(), ArrowError> {
        if !is_first_row {
            writer.write_all(b",\n")?;
        }
        Ok(())
    }

    fn end_stream<W: Write>(&self, writer: &mut W) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"]\n")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use std::io;
    use std::sync::Arc;

    /// A pipe whose other end is closed after some bytes.
    struct Closing(usize);

    impl Write for Closing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let taken = self.0.min(bytes.len());
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn columns_fit_a_line() {
        use Shown::{Cut, Dots, Whole};
        assert_eq!(fit(&[5, 5], 20), [Whole(0), Whole(1)]);
        assert_eq!(fit(&[5, 100], 80), [Cut(0), Cut(1)]);
        assert_eq!(fit(&[10; 6], 60), [Cut(0), Cut(1), Dots, Cut(4), Cut(5)]);
        assert_eq!(fit(&[100], 20), [Cut(0)]);
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_failures_in_every_format() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        for format in [Format::Table, Format::Csv, Format::Json] {
            for bytes in [0, 1, 9_000] {
                let print = || {
                    let mut printer =
                        Printer::new(format, &batch.schema(), Limits::default(), Closing(bytes))?;
                    printer.write(&batch)?;
                    printer.finish()
                };
                let ended = print();
                assert!(
                    matches!(ended, Err(Failure::OutputClosed)),
                    "{format:?} {bytes}: {ended:?}"
                );
            }
        }
    }
}
