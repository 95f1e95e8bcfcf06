//! The edit that replaces items of one or more orders by others (kind 6 in docs/format/log.md).

use super::coverage::{CoverageRange, check_ranges, put_ranges, read_ranges};
use super::state::MAX_ORDERS;
use crate::error::{Error, ErrorKind, Result};
use crate::fields::{PutFields, len_u32};
use crate::ids::{CommitNo, TableId};
pub use crate::index::ItemRun as Run;
use crate::index::{self, Entry, ItemName};
use crate::wire::{Fault, Reader};

const FLAG_RUNS: u32 = 1;
const MAX_NAMES: usize = 131_072;
/// Most runs that one commit may remove from an order.
pub(crate) const MAX_RUNS: usize = 32_768;

/// The items that an edit removes from an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// By name, ascending.
    Items(Vec<ItemName>),
    /// By runs of neighbouring items, ascending, without common keys.
    Runs(Vec<Run>),
}

/// The items removed from one order, and those added to it.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderReplace {
    /// The order.
    pub order: u32,
    /// The items to remove.
    pub removed: Removed,
    /// Ranges of keys that the order covers in full from this commit on.
    pub coverage: Vec<CoverageRange>,
    /// Root pages of the added fragments.
    pub added: Vec<Entry>,
}

/// Items of a table that are replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaceEdit {
    /// The table.
    pub table: TableId,
    /// Rows of order 0 that are left out, because masks hide them.
    pub left_out: u64,
    /// Rows of added items that masks of this commit hide.
    pub carried: u64,
    /// Further rows that this commit deletes.
    pub deleted: u64,
    /// The orders, ascending. Either all remove items by name, or all by runs.
    pub orders: Vec<OrderReplace>,
}

impl Removed {
    fn len(&self) -> usize {
        match self {
            Self::Items(items) => items.len(),
            Self::Runs(runs) => runs.len(),
        }
    }

    fn has_runs(&self) -> bool {
        matches!(self, Self::Runs(_))
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Items(items) => items.iter().for_each(|name| name.put(out)),
            Self::Runs(runs) => runs.iter().for_each(|run| run.put(out)),
        }
    }

    fn read(count: usize, has_runs: bool, reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (most, bytes) = if has_runs {
            (MAX_RUNS, Run::BYTES)
        } else {
            (MAX_NAMES, ItemName::BYTES)
        };
        if count > most || count * bytes > reader.left_bytes() {
            return Err("more items are replaced than there can be".into());
        }
        if has_runs {
            let runs = (0..count).map(|_| Run::read(reader));
            return Ok(Self::Runs(runs.collect::<Result<_, Fault>>()?));
        }
        let names = (0..count).map(|_| ItemName::read(reader));
        Ok(Self::Items(names.collect::<Result<_, Fault>>()?))
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_of_frame = |name: &ItemName| name.key.commit == CommitNo(0);
        match self {
            Self::Items(names) => {
                if names.iter().any(is_of_frame) {
                    return Err("a commit replaces an item of its own");
                }
                // Two items never have one key.
                if !names.is_sorted_by(|a, b| a.key < b.key) {
                    return Err("replaced items do not ascend");
                }
            }
            Self::Runs(runs) => {
                if runs
                    .iter()
                    .any(|run| is_of_frame(&run.first) || is_of_frame(&run.last))
                {
                    return Err("a commit replaces an item of its own");
                }
                if !runs.is_sorted_by(|a, b| a.last.key < b.first.key) {
                    return Err("replaced runs do not ascend");
                }
                if !runs.iter().all(Run::is_sound) {
                    return Err("a run without blocks, without rows, or the wrong way round");
                }
            }
        }
        Ok(())
    }
}

impl OrderReplace {
    /// Replaces items of an order; `removed` may be in any sequence.
    #[must_use]
    pub fn of_items(order: u32, mut removed: Vec<ItemName>, added: Vec<Entry>) -> Self {
        removed.sort_unstable();
        Self {
            order,
            removed: Removed::Items(removed),
            coverage: Vec::new(),
            added,
        }
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        out.put_u32(self.order);
        out.put_u32(len_u32(self.removed.len()));
        out.put_u32(len_u32(self.coverage.len()));
        out.put_u32(0);
        self.removed.put(out);
        put_ranges(&self.coverage, out);
        let at = out.len();
        out.put_u32(0);
        index::encode_entries(&self.added, out)?;
        let bytes = len_u32(out.len() - at - 4);
        out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        Ok(())
    }

    /// Reads an order without its added items, and returns it with the bytes of their list.
    fn read<'a>(has_runs: bool, reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), Fault> {
        let order = reader.u32()?;
        let (removed, ranges) = (reader.u32()? as usize, reader.u32()? as usize);
        reader.reserved(4)?;
        let removed = Removed::read(removed, has_runs, reader)?;
        let coverage = read_ranges(ranges, reader)?;
        let bytes = reader.u32()? as usize;
        let list = reader.take(bytes)?;
        let added = Vec::new();
        Ok((
            Self {
                order,
                removed,
                coverage,
                added,
            },
            list,
        ))
    }

    fn check(&self) -> Result<(), &'static str> {
        self.removed.check()?;
        if self.order == 1 {
            return Err("items of order 1, which there never is");
        }
        if self.order == 0 && !self.coverage.is_empty() {
            return Err("the rows of a table cover no rows");
        }
        if !self.added.iter().all(|root| root.fragment) {
            return Err("a replacement adds what is not the root page of a fragment");
        }
        check_ranges(&self.coverage)
    }

    /// Refuses more items or runs than an order may lose in one commit.
    ///
    /// # Errors
    /// `Limit`, with what to do.
    pub fn check_count(&self) -> Result<()> {
        let (count, most, message) = match &self.removed {
            Removed::Items(items) => (
                items.len(),
                MAX_NAMES,
                "items are replaced: commit in several steps",
            ),
            Removed::Runs(runs) => (
                runs.len(),
                MAX_RUNS,
                "runs of blocks are to be deleted, between others that reach out of the range: run `maintain` on the table, \
                 which puts them in order, or delete a smaller range at a time",
            ),
        };
        if count <= most {
            return Ok(());
        }
        let message = format!("{count} {message} (one commit takes {most})");
        Err(Error::new(ErrorKind::Limit, message))
    }

    /// Removes runs of items, ascending, from an order and adds nothing.
    #[must_use]
    pub fn of_runs(order: u32, removed: Vec<Run>) -> Self {
        Self {
            order,
            removed: Removed::Runs(removed),
            coverage: Vec::new(),
            added: Vec::new(),
        }
    }

    /// The items that are removed by name; empty if items are removed by runs.
    pub(crate) fn removed_items(&self) -> &[ItemName] {
        match &self.removed {
            Removed::Items(items) => items,
            Removed::Runs(_) => &[],
        }
    }

    /// The runs of items that are removed; empty if items are removed by name.
    pub(crate) fn removed_runs(&self) -> &[Run] {
        match &self.removed {
            Removed::Items(_) => &[],
            Removed::Runs(runs) => runs,
        }
    }
}

impl ReplaceEdit {
    /// Replaces items of the rows of a table (order 0); `removed` may be in any sequence.
    #[must_use]
    pub fn of_rows(table: TableId, removed: Vec<ItemName>, added: Vec<Entry>) -> Self {
        let mut edit = Self::of_orders(table);
        edit.orders.push(OrderReplace::of_items(0, removed, added));
        edit
    }

    /// An edit of this table that replaces nothing yet.
    #[must_use]
    pub fn of_orders(table: TableId) -> Self {
        Self {
            table,
            left_out: 0,
            carried: 0,
            deleted: 0,
            orders: Vec::new(),
        }
    }

    /// Appends the edit, without the byte of its kind.
    ///
    /// # Errors
    /// `Limit` where its list of added entries is too long.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        let has_runs = self.has_runs();
        out.put_u32(self.table.0);
        out.put_u32(if has_runs { FLAG_RUNS } else { 0 });
        out.put_u64(self.left_out);
        out.put_u64(self.carried);
        out.put_u64(self.deleted);
        out.put_u32(len_u32(self.orders.len()));
        out.put_u32(0);
        self.orders.iter().try_for_each(|order| order.put(out))
    }

    /// Reads an edit, without the byte of its kind.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let fault = |fault: Fault| fault.at("EDIT section", "a replacement");
        let mut reader = Reader::new(bytes);
        let (mut edit, orders, has_runs) = Self::read_head(&mut reader).map_err(fault)?;
        for _ in 0..orders {
            let (order, list) = OrderReplace::read(has_runs, &mut reader).map_err(fault)?;
            let added = index::decode_entries(list)?;
            edit.orders.push(OrderReplace { added, ..order });
        }
        reader.end().map_err(|what| fault(what.into()))?;
        edit.check().map_err(|what| fault(what.into()))?;
        Ok(edit)
    }

    /// Reads the edit up to its orders; returns it with the number of orders and whether these have runs.
    fn read_head(reader: &mut Reader<'_>) -> Result<(Self, usize, bool), Fault> {
        let table = TableId(reader.u32()?);
        let flags = reader.u32()?;
        if flags & !FLAG_RUNS != 0 {
            return Err(Fault::OtherVersion(format!("flags {flags:#x}")));
        }
        let (left_out, carried, deleted) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let orders = reader.u32()? as usize;
        reader.reserved(4)?;
        if !(1..=MAX_ORDERS).contains(&orders) {
            return Err("a replacement of no orders, or of more than a table has".into());
        }
        let edit = Self {
            table,
            left_out,
            carried,
            deleted,
            orders: Vec::new(),
        };
        Ok((edit, orders, flags & FLAG_RUNS != 0))
    }

    /// Whether it removes items by runs and not by name.
    pub(crate) fn has_runs(&self) -> bool {
        self.orders.iter().any(|order| order.removed.has_runs())
    }

    /// Whether it deletes runs of rows and does nothing else.
    pub(crate) fn removes_runs_alone(&self) -> bool {
        let is_run = |order: &OrderReplace| {
            order.order == 0 && order.removed.has_runs() && order.added.is_empty()
        };
        self.orders.iter().all(is_run)
    }

    /// Checks the edit on its own: called before it is written, and after it was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_ORDERS).contains(&self.orders.len()) {
            return Err("a replacement of no orders, or of more than a table has");
        }
        if !self.orders.is_sorted_by(|a, b| a.order < b.order) {
            return Err("orders of a replacement do not ascend");
        }
        let has_runs = |order: &OrderReplace| order.removed.has_runs();
        let with_runs = self.orders.iter().filter(|order| has_runs(order)).count();
        if with_runs != 0 && with_runs != self.orders.len() {
            return Err("some orders of a replacement have runs, and others names");
        }
        self.orders.iter().try_for_each(OrderReplace::check)?;
        self.check_rows()
    }

    /// Checks the rows of order 0 as far as the edit names them.
    fn check_rows(&self) -> Result<(), &'static str> {
        let named = [self.left_out, self.carried, self.deleted];
        let Some(rows) = self.orders.first().filter(|order| order.order == 0) else {
            let is_none = named == [0; 3];
            return if is_none {
                Ok(())
            } else {
                Err("rows of a replacement that has none")
            };
        };
        let added = sum(rows.added.iter().map(|root| root.rows));
        let Removed::Runs(runs) = &rows.removed else {
            return Ok(());
        };
        let removed = sum(runs.iter().map(|run| run.rows));
        let adds_up =
            removed == sum([added, self.left_out.into(), self.deleted.into()].into_iter());
        if adds_up {
            Ok(())
        } else {
            Err("rows of the replaced runs do not add up")
        }
    }
}

fn sum(rows: impl Iterator<Item = impl Into<u128>>) -> u128 {
    rows.map(Into::into).sum()
}
