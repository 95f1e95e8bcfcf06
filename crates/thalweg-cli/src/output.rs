//! Rows on standard output, in the format that was asked for.
//!
//! Invariants: rows are printed as they come, so that a result may be larger than memory; a result without rows still
//! prints its header.

use crate::failure::Failure;
use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::JsonFormat;
use arrow_schema::{ArrowError, SchemaRef};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use std::io::{IsTerminal, Write};

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
    /// An Arrow IPC stream
    Arrow,
    /// Not offered by this version
    #[value(hide = true)]
    Parquet,
}

impl Format {
    /// What is printed if nobody says: tables for people, CSV for programs.
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

/// Prints the batches of one result.
pub(crate) struct Printer<W: Write> {
    schema: SchemaRef,
    writer: Writer<W>,
    rows: u64,
}

enum Writer<W: Write> {
    Table {
        out: W,
        waiting: Vec<RecordBatch>,
        waiting_rows: usize,
        printed: bool,
    },
    Csv(W),
    Json(arrow_json::Writer<W, ListOfLines>),
    Arrow(arrow_ipc::writer::StreamWriter<W>),
}

impl<W: Write> Printer<W> {
    /// A printer for rows with this schema.
    ///
    /// # Errors
    /// When nothing can be written.
    pub(crate) fn new(format: Format, schema: &SchemaRef, out: W) -> Result<Self, Failure> {
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
            Format::Csv | Format::Parquet => {
                let mut out = out;
                write_csv(&mut out, &RecordBatch::new_empty(schema.clone()), true)?;
                Writer::Csv(out)
            }
        };
        Ok(Self {
            schema: schema.clone(),
            writer,
            rows: 0,
        })
    }

    /// Prints some rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows() as u64;
        match &mut self.writer {
            Writer::Table {
                out,
                waiting,
                waiting_rows,
                printed,
            } => {
                waiting.push(batch.clone());
                *waiting_rows += batch.num_rows();
                if *waiting_rows >= TABLE_ROWS {
                    print_table(out, &self.schema, &std::mem::take(waiting))?;
                    (*waiting_rows, *printed) = (0, true);
                }
            }
            Writer::Csv(out) => write_csv(out, batch, false)?,
            Writer::Json(writer) => writer.write(batch)?,
            Writer::Arrow(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Prints what is left, and says how many rows there were.
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
                    print_table(&mut out, &self.schema, &waiting)?;
                }
                out.flush()?;
            }
            Writer::Csv(mut out) => out.flush()?,
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

/// By way of memory: Arrow's CSV errors do not tell a closed pipe from other failures.
fn write_csv(out: &mut impl Write, batch: &RecordBatch, header: bool) -> Result<(), Failure> {
    let mut text = Vec::new();
    let builder = arrow_csv::WriterBuilder::new().with_header(header);
    builder.build(&mut text).write(batch)?;
    out.write_all(&text)?;
    Ok(())
}

fn print_table(
    out: &mut impl Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(schema.fields().iter().map(|field| field.name()));
    let options = FormatOptions::default().with_null("NULL");
    for batch in batches {
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
            table.add_row(cells?);
        }
    }
    for (column, field) in table.column_iter_mut().zip(schema.fields()) {
        if field.data_type().is_numeric() {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{table}")?;
    Ok(())
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
    fn a_closed_pipe_is_told_from_other_failures_in_every_format() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        for format in [Format::Table, Format::Csv, Format::Json] {
            for bytes in [0, 1, 9_000] {
                let print = || {
                    let mut printer = Printer::new(format, &batch.schema(), Closing(bytes))?;
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
