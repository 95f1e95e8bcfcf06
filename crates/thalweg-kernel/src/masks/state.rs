//! All masks of a table, as the state of a database holds them.
//!
//! Invariants: there is no mask without an item or an open part (its owner takes it away with these); hidden rows and bytes
//! are those of the masks that are there, added up as they come and go; what is refused changes nothing.

use super::chunks::ChunkMap;
use super::edit::{ItemMask, PartMask};
use super::list::MaskList;
use super::positions::Positions;
use crate::error::{Error, ErrorKind, Result};
use crate::fields::{PutFields, len_u32};
use crate::ids::CommitNo;
use crate::index::{Entry, EntryKey, ItemName, ItemRun, Place};
use crate::wire::{Fault, Reader};
use std::ops::Range;
use std::sync::Arc;

/// A mask takes so much in memory, however short it is stored.
const MIN_MASK_BYTES: usize = 64;
/// Bytes of a masked item in a checkpoint without its list, and of a part without its positions.
const ITEM_BYTES: usize = 36;
const PART_BYTES: usize = 20;

/// The masks of the rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMasks {
    items: ChunkMap<ItemName, Arc<MaskList>>,
    open: ChunkMap<(CommitNo, u32), OpenMask>,
    rows: u64,
    bytes: u64,
}

/// Rows that are hidden in one ROWS section whose rows are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMask {
    /// All rows of the section.
    pub rows: u32,
    /// The hidden ones.
    pub positions: Positions,
}

/// The outcome for an item in which rows were hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// It has rows left.
    Stays,
    /// All of its rows are hidden: it leaves the table, and its masks have gone.
    Leaves,
}

fn item_bytes(list: &MaskList) -> u64 {
    (ITEM_BYTES + list.len_bytes()).max(MIN_MASK_BYTES * list.count()) as u64
}

fn part_bytes(mask: &OpenMask) -> u64 {
    (PART_BYTES + mask.positions.len_bytes()).max(MIN_MASK_BYTES) as u64
}

fn conflict(what: &str) -> Error {
    let message = format!("{what}: another commit came in between; run the statement again");
    Error::new(ErrorKind::Conflict, message)
}

impl TableMasks {
    /// Rows of the table that are hidden.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How much of the room for masks they take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.open.is_empty()
    }

    /// The masks of an item.
    #[must_use]
    pub fn of_item(&self, name: &ItemName) -> Option<&MaskList> {
        self.items.get(name).map(|list| &**list)
    }

    /// The masks of an item, which states of the table share until one of them changes.
    #[must_use]
    pub fn shared_of_item(&self, name: &ItemName) -> Option<&Arc<MaskList>> {
        self.items.get(name)
    }

    /// The masked items with keys from one up to, and without, another one.
    pub fn items(&self, keys: Range<EntryKey>) -> impl Iterator<Item = (&ItemName, &MaskList)> {
        let first = |key| ItemName::first_with(key);
        let end = if keys.start < keys.end {
            keys.end
        } else {
            keys.start
        };
        let items = self.items.range(first(keys.start)..first(end));
        items.map(|(name, list)| (name, &**list))
    }

    /// Whether rows below an entry are hidden. `place` is where the entry lies, as an item or in one; `None` for an
    /// entry above the items.
    #[must_use]
    pub fn meet(&self, entry: &Entry, place: Option<&Place>) -> bool {
        let Some(place) = place else {
            let end = EntryKey {
                key_min: entry.key_max,
                commit: CommitNo(u64::MAX),
                ordinal: u32::MAX,
            };
            return self.items(entry.key()..end).next().is_some();
        };
        let Some(list) = self.of_item(&place.item) else {
            return false;
        };
        let end = place.rank.saturating_add(entry.blocks);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        u32::try_from(place.rank).is_ok_and(|rank| list.meets(rank..end))
    }

    /// The mask of open rows.
    #[must_use]
    pub fn of_part(&self, commit: CommitNo, part: u32) -> Option<&OpenMask> {
        self.open.get(&(commit, part))
    }

    /// Hides rows of an item, which is there under its name and with these rows.
    ///
    /// # Errors
    /// `Conflict` if one of them is hidden already, or the number of those that are hidden newly is not the one it states.
    pub fn hide(&mut self, mask: &ItemMask) -> Result<Masked> {
        let none = MaskList::default();
        let before = self.of_item(&mask.name).unwrap_or(&none);
        let plan = before.plan(&mask.masks);
        let plan =
            plan.ok_or_else(|| conflict("a row that is to be deleted is deleted already"))?;
        if plan.newly != mask.newly {
            return Err(conflict(
                "rows of the blocks that are to be deleted are deleted already",
            ));
        }
        let hidden = before.rows().saturating_add(plan.newly);
        if hidden > mask.rows {
            return Err(conflict("more rows are to be deleted than there are"));
        }
        if hidden == mask.rows {
            self.take_item(&mask.name);
            return Ok(Masked::Leaves);
        }
        let rows = self.rows.checked_add(plan.newly);
        let rows = rows.ok_or_else(|| conflict("more rows are to be deleted than there can be"))?;
        let old_bytes = match before.is_empty() {
            true => 0,
            false => item_bytes(before),
        };
        let mut list = before.clone();
        list.carry_out(plan);
        self.rows = rows;
        self.bytes = self.bytes - old_bytes + item_bytes(&list);
        self.items.insert(mask.name, Arc::new(list));
        Ok(Masked::Stays)
    }

    /// Hides open rows, which are there.
    ///
    /// # Errors
    /// `Conflict` if one of them is hidden already, or the part has other rows.
    pub fn hide_open(&mut self, mask: &PartMask) -> Result<()> {
        let place = (mask.commit, mask.part);
        let united = match self.open.get(&place) {
            None => Some(mask.positions.clone()),
            Some(before) if before.rows != mask.rows => {
                return Err(conflict("the open rows that are to be deleted are others"));
            }
            Some(before) => before.positions.union_of_new(&mask.positions),
        };
        let positions =
            united.ok_or_else(|| conflict("a row that is to be deleted is deleted already"))?;
        let next = OpenMask {
            rows: mask.rows,
            positions,
        };
        self.rows += u64::from(mask.positions.rows());
        self.bytes += part_bytes(&next);
        if let Some(before) = self.open.insert(place, next) {
            self.bytes -= part_bytes(&before);
        }
        Ok(())
    }

    /// Takes away the masks of an item that goes; returns how many rows they hide.
    pub fn take_item(&mut self, name: &ItemName) -> u64 {
        let Some(list) = self.items.remove(name) else {
            return 0;
        };
        self.rows -= list.rows();
        self.bytes -= item_bytes(&list);
        list.rows()
    }

    /// The masked items of a run.
    fn of_run(&self, run: &ItemRun) -> impl Iterator<Item = (&ItemName, &MaskList)> {
        let last = run.last.key;
        let from = ItemName::first_with(run.first.key);
        let items = self.items.from(&from);
        let items = items.take_while(move |(name, _)| name.key <= last);
        items.map(|(name, list)| (name, &**list))
    }

    /// How many rows of the items of a run are hidden.
    #[must_use]
    pub fn rows_of_run(&self, run: &ItemRun) -> u64 {
        self.of_run(run).map(|(_, list)| list.rows()).sum()
    }

    /// Takes away the masks of all items of a run, which go; returns how many rows they hide.
    pub fn take_run(&mut self, run: &ItemRun) -> u64 {
        let names: Vec<ItemName> = self.of_run(run).map(|(name, _)| *name).collect();
        names.iter().map(|name| self.take_item(name)).sum()
    }

    /// Takes away the masks of open rows of commits up to one, which are covered; returns how many rows they hide.
    pub fn cover(&mut self, to: CommitNo) -> u64 {
        let mut hidden = 0;
        while let Some((place, _)) = self.open.first().filter(|(place, _)| place.0 <= to) {
            let place = *place;
            let Some(mask) = self.open.remove(&place) else {
                break;
            };
            hidden += u64::from(mask.positions.rows());
            self.bytes -= part_bytes(&mask);
        }
        self.rows -= hidden;
        hidden
    }

    /// Takes away the masks of open rows of commits after one.
    pub(crate) fn take_parts_after(&mut self, commit: CommitNo) {
        while let Some((place, _)) = self.open.last().filter(|(place, _)| place.0 > commit) {
            let place = *place;
            let Some(mask) = self.open.remove(&place) else {
                break;
            };
            self.rows -= u64::from(mask.positions.rows());
            self.bytes -= part_bytes(&mask);
        }
    }

    /// All masked items.
    pub(crate) fn all_items(&self) -> impl Iterator<Item = (&ItemName, &MaskList)> {
        self.items.iter().map(|(name, list)| (name, &**list))
    }

    /// All masks of open rows, by commit and number of the part.
    pub(crate) fn all_parts(&self) -> impl Iterator<Item = (&(CommitNo, u32), &OpenMask)> {
        self.open.iter()
    }

    /// Compares the masks of items with the root of their tree: each of them leaves at least one row of its item, or that would
    /// have gone.
    ///
    /// # Errors
    /// The fault, as a message.
    pub(crate) fn check_below(&self, root: Option<&Entry>) -> Result<(), &'static str> {
        if self.items.is_empty() {
            return Ok(());
        }
        let root = root.ok_or("rows are deleted of a table without blocks")?;
        let shown = self.rows_of_items().checked_add(self.items.len() as u64);
        if shown.is_none_or(|rows| rows > root.rows) {
            return Err("more rows are deleted than the blocks have");
        }
        for (name, list) in self.items.iter() {
            if !(root.key_min..=root.key_max).contains(&name.key.key_min) {
                return Err("rows are deleted of a block that is not there");
            }
            if list.end() > root.blocks {
                return Err("rows are deleted of more blocks than there are");
            }
        }
        Ok(())
    }

    /// Whether items are masked.
    pub(crate) fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    /// Whether open rows are masked.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Rows of items that are hidden.
    pub(crate) fn rows_of_items(&self) -> u64 {
        let open = self.open.iter().map(|(_, mask)| mask.positions.rows());
        self.rows - open.map(u64::from).sum::<u64>()
    }

    /// Reads the masks of open rows out of a checkpoint.
    pub(crate) fn read_parts(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        self.parts_of(reader)
    }

    /// Appends the masked items as a checkpoint has them.
    pub fn put_items(&self, out: &mut Vec<u8>) {
        out.put_u32(len_u32(self.items.len()));
        for (name, list) in self.items.iter() {
            name.put(out);
            out.put_u32(len_u32(list.len_bytes()));
            list.put(out);
        }
    }

    /// Appends the masks of open rows as a checkpoint has them.
    pub fn put_open(&self, out: &mut Vec<u8>) {
        out.put_u32(len_u32(self.open.len()));
        for ((commit, part), mask) in self.open.iter() {
            out.put_u64(commit.0);
            out.put_u32(*part);
            out.put_u32(mask.rows);
            out.put_u32(len_u32(mask.positions.len_bytes()));
            mask.positions.put(out);
        }
    }

    /// Reads masked items as a checkpoint has them.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written them.
    pub fn read_items(&mut self, bytes: &[u8]) -> Result<()> {
        let mut reader = Reader::new(bytes);
        let read = self.items_of(&mut reader);
        let read = read.and_then(|()| Ok(reader.end()?));
        read.map_err(|fault| fault.at("checkpoint", "a masked item"))
    }

    /// Reads masks of open rows as a checkpoint has them.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written them.
    pub fn read_open(&mut self, bytes: &[u8]) -> Result<()> {
        let mut reader = Reader::new(bytes);
        let read = self.parts_of(&mut reader);
        let read = read.and_then(|()| Ok(reader.end()?));
        read.map_err(|fault| fault.at("checkpoint", "a mask of open rows"))
    }

    fn items_of(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        for _ in 0..reader.u32()? {
            let name = ItemName::read(reader)?;
            let bytes = reader.u32()? as usize;
            let mut list = Reader::new(reader.take(bytes)?);
            let masks = MaskList::read(&mut list)?;
            list.end()?;
            if self.items.last().is_some_and(|(last, _)| *last >= name) {
                return Err("masked items do not ascend".into());
            }
            let rows = self.rows.checked_add(masks.rows());
            self.rows = rows.ok_or("more rows are hidden than there can be")?;
            self.bytes += item_bytes(&masks);
            self.items.insert(name, Arc::new(masks));
        }
        Ok(())
    }

    fn parts_of(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        for _ in 0..reader.u32()? {
            let mask = PartMask::read(reader)?;
            mask.check()?;
            let place = (mask.commit, mask.part);
            if self.open.last().is_some_and(|(last, _)| *last >= place) {
                return Err("masked parts do not ascend".into());
            }
            let rows = self.rows.checked_add(mask.positions.rows().into());
            self.rows = rows.ok_or("more rows are hidden than there can be")?;
            let mask = OpenMask {
                rows: mask.rows,
                positions: mask.positions,
            };
            self.bytes += part_bytes(&mask);
            self.open.insert(place, mask);
        }
        Ok(())
    }
}
