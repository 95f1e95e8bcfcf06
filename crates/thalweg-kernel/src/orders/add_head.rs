//! The fields before the entries that a commit adds: of a GROUP, or of the fragments of an edit 5.

use super::coverage::{CoverageRange, check_ranges, put_ranges, read_ranges};
use crate::error::Result;
use crate::fields::{PutFields, len_u32};
use crate::ids::{CommitNo, TableId};
use crate::wire::{Fault, Reader};

const FLAG_COMPLETE: u32 = 1;

/// Names the order of a table to which entries are added, and how open rows and coverage change with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddHead {
    /// The table.
    pub table: TableId,
    /// The order; 0 for rows.
    pub order: u32,
    /// The version of the definition that they were encoded with.
    pub definition_version: u32,
    /// With this commit the order has the entries of all rows that the commit puts into blocks of order 0.
    pub is_complete: bool,
    /// Open rows of commits up to this one are open no longer.
    pub covers: Option<CommitNo>,
    /// Covered rows that were left out, because masks hide them.
    pub left_out: u64,
    /// Covered rows in the blocks that masks of this commit hide.
    pub carried: u64,
    /// Ranges that are complete with this commit.
    pub coverage: Vec<CoverageRange>,
}

impl AddHead {
    /// The head of new rows.
    #[must_use]
    pub fn of_rows(table: TableId, definition_version: u32) -> Self {
        Self {
            table,
            definition_version,
            ..Self::default()
        }
    }

    /// The head of entries of an index.
    #[must_use]
    pub fn of_index(table: TableId, order: u32, definition_version: u32) -> Self {
        Self {
            order,
            ..Self::of_rows(table, definition_version)
        }
    }

    /// Whether rows come with it that were not in the table before.
    pub(crate) fn is_of_new_rows(&self) -> bool {
        self.order == 0 && self.covers.is_none()
    }

    /// Appends the head.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u32(self.order);
        out.put_u32(self.definition_version);
        out.put_u32(if self.is_complete { FLAG_COMPLETE } else { 0 });
        out.put_u64(self.covers.map_or(0, |commit| commit.0));
        out.put_u64(self.left_out);
        out.put_u64(self.carried);
        out.put_u32(0);
        out.put_u32(len_u32(self.coverage.len()));
        put_ranges(&self.coverage, out);
    }

    /// Reads the head at the front of `bytes`; returns what follows it, too.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new(bytes);
        let head = Self::read(&mut reader);
        let head = head.map_err(|fault| fault.at("a commit", "the head of what it adds"))?;
        Ok((head, &bytes[bytes.len() - reader.left_bytes()..]))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (table, order) = (TableId(reader.u32()?), reader.u32()?);
        let definition_version = reader.u32()?;
        let flags = reader.u32()?;
        if flags & !FLAG_COMPLETE != 0 {
            return Err(Fault::OtherVersion(format!("flags {flags:#x}")));
        }
        let covers = reader.u64()?;
        let (left_out, carried) = (reader.u64()?, reader.u64()?);
        reader.reserved(4)?;
        let count = reader.u32()? as usize;
        let head = Self {
            table,
            order,
            definition_version,
            is_complete: flags & FLAG_COMPLETE != 0,
            covers: (covers != 0).then_some(CommitNo(covers)),
            left_out,
            carried,
            coverage: read_ranges(count, reader)?,
        };
        head.check()?;
        Ok(head)
    }

    /// Checks the head on its own: called before it is written, and after it was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.order == 1 {
            return Err("entries of order 1, which there never is");
        }
        if self.order == 0 && (self.is_complete || !self.coverage.is_empty()) {
            return Err("the rows of a table cover no rows");
        }
        if self.order != 0 && self.covers.is_some() {
            return Err("open rows are covered by an order that has none");
        }
        if self.covers.is_none() && (self.left_out, self.carried) != (0, 0) {
            return Err("rows are left out or carried where none are covered");
        }
        // Commit 0 would be read as no cover at all.
        if self.covers == Some(CommitNo(0)) {
            return Err("rows are covered up to commit 0, before the first");
        }
        check_ranges(&self.coverage)
    }
}
