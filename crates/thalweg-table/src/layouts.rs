//! What callers do with a table, handed to its layout.
//!
//! Invariant: only this file and the opening of a database name a layout.

use crate::range::KeyRange;
use crate::region::RegionReader;
use crate::row_reader::RowReader;
use crate::rows::decode_rows;
use crate::scan::{Scan, ScanRequest};
use crate::stream;
use crate::table::{Maintained, Table, TableStats, TableView};
use crate::value::Value;
use arrow_array::RecordBatch;
use thalweg_kernel::{Commit, Durability, Error, ErrorKind, Result, RowsPart};

impl Table {
    /// Appends all batches in one commit, whole or not at all, however many there are, and says how many rows they had.
    /// Columns are matched by name; rows may be in any order. `None` takes the durability of the engine.
    ///
    /// # Errors
    /// The first error of `batches`; `Schema`, `OutOfDomain` and `Limit` when rows do not fit the table. Nothing was
    /// stored then.
    pub fn append(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
    ) -> Result<u64> {
        self.append_while(batches, durability, &|| true)
    }

    /// The same, cancelled when `go_on` returns false. It is called once for every 32 MiB of rows or so, before the commit; the
    /// commit itself is not cancelled.
    ///
    /// # Errors
    /// As [`Self::append`]; `Query` when it was cancelled, and nothing was stored then.
    pub fn append_while(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<u64> {
        self.engine().closed().check()?;
        let durability = durability.unwrap_or(self.engine().options().durability);
        stream::append(self, &mut batches.into_iter(), durability, go_on)
    }

    /// Appends one row, its values in the order of the schema.
    ///
    /// # Errors
    /// `Schema`, `OutOfDomain` and `Limit` when it does not fit the table.
    pub fn put(&self, row: &[Value<'_>], durability: Option<Durability>) -> Result<()> {
        let durability = durability.unwrap_or(self.engine().options().durability);
        self.with_newest_shape(|shape| {
            let mut payload = Vec::with_capacity(shape.writer.usual_bytes());
            let key = shape
                .writer
                .write(row, &mut payload)
                .map_err(|e| self.name_error(e))?;
            if payload.len() >= self.engine().options().append_limits.raw_bytes {
                let batch = decode_rows(&shape.definition, [&payload[..]])?;
                return self.append([Ok(batch)], Some(durability)).map(|_| ());
            }
            let part = RowsPart {
                table: self.id(),
                definition_version: shape.version,
                rows: 1,
                key_min: key,
                key_max: key,
                payload: payload.into(),
            };
            let commit = Commit {
                rows: vec![part],
                ..Commit::default()
            };
            self.engine()
                .kernel()
                .commit(commit, durability)
                .map(|_| ())
        })
    }

    /// Deletes all rows with order keys of a range, in one commit, and says how many there were. It costs what lies at the borders
    /// of the range, however many rows are deleted: none of those between is read. Rows that are appended during the call stay.
    ///
    /// # Errors
    /// `Limit` where too many blocks reach out of the range, because rows came late: `maintain` puts them in order; `Conflict`
    /// where other commits came in between again and again. Nothing was deleted then.
    pub fn delete_range(&self, keys: KeyRange, durability: Option<Durability>) -> Result<u64> {
        self.engine().closed().check()?;
        let durability = durability.unwrap_or(self.engine().options().durability);
        stream::delete_range(self, keys, durability)
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn stats(&self) -> Result<TableStats> {
        self.view()?.stats()
    }

    /// Puts late rows in order and short blocks together, as far as they were committed before the call, so that scans
    /// need not merge them; rows that are in no block yet become blocks. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only; whatever reading and writing leads to. Each step is stored
    /// whole or not at all.
    pub fn maintain(&self) -> Result<Maintained> {
        self.maintain_while(&|| true)
    }

    /// The same, until `go_on` returns false. It is called before each step, and while another thread maintains a table of this
    /// database, which is waited for; it must not call `maintain` itself, which would wait for this call.
    ///
    /// # Errors
    /// As [`Self::maintain`]; `Query` when it was ended, and what was put in order before stays so.
    pub fn maintain_while(&self, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
        self.engine().closed().check()?;
        stream::maintain(self, go_on)
    }
}

impl TableView {
    /// What is known of it.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn stats(&self) -> Result<TableStats> {
        self.engine().closed().check()?;
        stream::stats(self)
    }

    /// Starts a scan. Nothing is read before the first batch is asked for.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn scan(&self, request: &ScanRequest) -> Result<Scan> {
        stream::scan(self, request).map_err(|error| self.named().in_words(error))
    }

    /// Up to `count` scans that together return what one scan would: each a range of keys behind the one before, with
    /// about as many rows. A limit holds for each of them.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_partitions(&self, request: &ScanRequest, count: usize) -> Result<Vec<Scan>> {
        let ranges = stream::partitions(self, request.keys, count)?;
        ranges
            .into_iter()
            .map(|keys| {
                self.scan(&ScanRequest {
                    keys,
                    ..request.clone()
                })
            })
            .collect()
    }

    /// A reader of single rows by their addresses, of the columns at these places of the schema or of all.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn row_reader(&self, projection: Option<&[usize]>) -> Result<RowReader> {
        self.engine().closed().check()?;
        RowReader::new(self.clone(), projection)
    }

    /// A reader of regions of its blocks that have a grid.
    ///
    /// # Errors
    /// `Unavailable` once the database was closed; `Unsupported` for a table with deleted rows.
    pub fn region_reader(&self) -> Result<RegionReader> {
        self.engine().closed().check()?;
        if self.snapshot().masks().is_some() {
            let message = format!(
                "table \"{}\" has deleted rows: regions of such tables cannot be read yet",
                self.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(RegionReader::of_view(self.clone()))
    }
}
