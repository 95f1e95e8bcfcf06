//! Bad rows, set apart in a CSV file: the line, what is wrong, the row as it is in the file, byte by byte.

use super::chunk::BadRow;
use crate::failure::Failure;
use crate::files;
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
