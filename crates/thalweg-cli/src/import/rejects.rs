//! Bad rows, set apart in a CSV file: the line, what is wrong, the row as it is in the file, byte by byte (but for the blanks
//! that `spaced_quotes` leaves out).

use super::advice::shown;
use super::advice::word;
use super::chunk::BadRow;
use super::convert::Misfit;
use crate::counts::counted;
use crate::failure::Failure;
use crate::files;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub(super) struct Rejects {
    /// `None` where bad rows are only counted.
    file: Option<(csv::Writer<File>, PathBuf)>,
    count: u64,
}

impl Rejects {
    /// Makes the file: it is there, with its header, even if no row is bad.
    pub(super) fn create(path: Option<&Path>) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let writer = csv::Writer::from_writer(files::create(path)?);
            Ok::<_, Failure>((writer, path.to_owned()))
        };
        let mut rejects = Self {
            file: path.map(open).transpose()?,
            count: 0,
        };
        rejects.write_record([b"line", b"reason", b"row"])?;
        Ok(rejects)
    }

    pub(super) fn write(&mut self, row: &BadRow) -> Result<(), Failure> {
        self.count += 1;
        self.write_record([
            row.line.to_string().as_bytes(),
            row.reason.as_bytes(),
            &row.raw,
        ])
    }

    fn write_record(&mut self, record: [&[u8]; 3]) -> Result<(), Failure> {
        let Some((writer, path)) = &mut self.file else {
            return Ok(());
        };
        writer
            .write_record(record)
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    }

    /// Returns when everything is written: before the other rows are stored.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        let Some((writer, path)) = &mut self.file else {
            return Ok(());
        };
        writer
            .flush()
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// Most columns with bad values that are printed.
const MAX_COLUMNS: usize = 3;
/// If more than one in this many rows has a bad value in a column, the column likely has another type.
const MANY: u64 = 20;

/// Counts the values that bad rows were rejected for, by column; each row counts once.
#[derive(Default)]
pub(super) struct RejectedValues {
    columns: BTreeMap<usize, (u64, Misfit)>,
}

impl RejectedValues {
    pub(super) fn look(&mut self, misfits: &[Misfit]) {
        for misfit in misfits.iter().filter(|misfit| misfit.is_reason) {
            let new = || (0, misfit.clone());
            self.columns.entry(misfit.column).or_insert_with(new).0 += 1;
        }
    }

    /// A line for each column with bad values, those with most first. `can_be_text`: whether `--type` makes text of a column.
    pub(super) fn lines(
        &self,
        names: &[String],
        rows: u64,
        can_be_text: impl Fn(usize) -> bool,
    ) -> Vec<String> {
        let mut columns: Vec<_> = self.columns.values().collect();
        columns.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let line = |(count, first): &&(u64, Misfit)| {
            let name = &names[first.column];
            let advice = if count * MANY > rows && can_be_text(first.column) {
                format!(": --type {}=varchar stores them", word(name))
            } else {
                String::new()
            };
            format!(
                "  {} because of column \"{name}\", as {} in line {}{advice}",
                counted(*count, "row"),
                shown(&first.text),
                first.line
            )
        };
        columns.iter().take(MAX_COLUMNS).map(line).collect()
    }
}
