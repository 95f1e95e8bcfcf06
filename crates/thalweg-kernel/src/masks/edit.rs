//! Edit 8: rows that a commit hides, by item and by part of open rows.
//!
//! Invariants: items and parts ascend, and nothing is there twice; what an item hides newly lies between the rows of its
//! positions and those of its whole list. Whether it fits the table is checked where it is applied.

use super::list::{BlockMask, MaskList};
use super::positions::Positions;
use crate::error::Result;
use crate::fields::{PutFields, len_u32};
use crate::ids::{CommitNo, TableId};
use crate::index::ItemName;
use crate::wire::{Fault, Reader};

/// Bytes of an item or a part without what it hides.
const ITEM_BYTES: usize = 48;
const PART_BYTES: usize = 16;

/// Rows that are hidden newly in one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemMask {
    /// Which item.
    pub name: ItemName,
    /// All of its rows, hidden ones too.
    pub rows: u64,
    /// Rows that are hidden newly.
    pub newly: u64,
    /// Rows that are hidden newly, as masks by block.
    pub masks: MaskList,
}

/// Rows that are hidden newly in one ROWS section whose rows are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMask {
    /// The commit that brought the rows.
    pub commit: CommitNo,
    /// Which ROWS section of the table in that commit, from 0 on.
    pub part: u32,
    /// All rows of the section.
    pub rows: u32,
    /// Their positions.
    pub positions: Positions,
}

impl PartMask {
    /// Whether it hides all rows of the section.
    pub(crate) fn is_whole(&self) -> bool {
        u64::from(self.positions.rows()) == u64::from(self.rows)
    }
}

/// The rows that a commit hides of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskEdit {
    /// The table.
    pub table: TableId,
    /// Items, ascending by name.
    pub items: Vec<ItemMask>,
    /// Parts of open rows, ascending by commit and number.
    pub parts: Vec<PartMask>,
}

impl MaskEdit {
    /// Hides nothing.
    #[must_use]
    pub fn nothing(table: TableId) -> Self {
        Self {
            table,
            items: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Whether it hides nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.items.is_empty() && self.parts.is_empty()
    }

    /// The edit in the frame of `commit`: a commit of 0 in a name means that one.
    #[must_use]
    pub fn in_frame(mut self, commit: CommitNo) -> Self {
        for item in &mut self.items {
            item.name = item.name.in_frame(commit);
        }
        self.items.sort_unstable_by_key(|item| item.name);
        self
    }

    /// About what it takes in its frame.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let items = self
            .items
            .iter()
            .map(|item| ITEM_BYTES + item.masks.len_bytes());
        let parts = { self.parts.iter() }.map(|part| PART_BYTES + part.positions.len_bytes());
        items.chain(parts).sum()
    }

    /// Appends the edit after its kind.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u32(len_u32(self.items.len()));
        out.put_u32(len_u32(self.parts.len()));
        out.put_u32(0);
        for item in &self.items {
            item.name.put(out);
            out.put_u64(item.rows);
            out.put_u64(item.newly);
            out.put_u32(len_u32(item.masks.len_bytes()));
            item.masks.put(out);
        }
        for part in &self.parts {
            out.put_u64(part.commit.0);
            out.put_u32(part.part);
            out.put_u32(part.rows);
            out.put_u32(len_u32(part.positions.len_bytes()));
            part.positions.put(out);
        }
    }

    /// Reads an edit after its kind.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).map_err(|fault| fault.at("EDIT section", "a mask"))
    }

    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(bytes);
        let table = TableId(reader.u32()?);
        let (items, parts) = (reader.u32()? as usize, reader.u32()? as usize);
        reader.reserved(4)?;
        let min_bytes = items
            .saturating_mul(ITEM_BYTES)
            .saturating_add(parts.saturating_mul(PART_BYTES));
        if min_bytes > reader.left_bytes() {
            return Err("more items than there are bytes".into());
        }
        let items = (0..items).map(|_| ItemMask::read(&mut reader));
        let items = items.collect::<Result<Vec<_>, Fault>>()?;
        let parts = (0..parts).map(|_| PartMask::read(&mut reader));
        let parts = parts.collect::<Result<Vec<_>, Fault>>()?;
        reader.end()?;
        let edit = Self {
            table,
            items,
            parts,
        };
        edit.check()?;
        Ok(edit)
    }

    /// Checks the edit on its own: called before it is written, and after it was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.items.is_empty() && self.parts.is_empty() {
            return Err("an edit that hides nothing");
        }
        if !self.items.is_sorted_by(|a, b| a.name < b.name) {
            return Err("masked items do not ascend");
        }
        let place = |part: &PartMask| (part.commit, part.part);
        if !self.parts.is_sorted_by(|a, b| place(a) < place(b)) {
            return Err("masked parts do not ascend");
        }
        self.items.iter().try_for_each(ItemMask::check)?;
        self.parts.iter().try_for_each(PartMask::check)
    }
}

/// Reads a list that has its length in front.
fn sized<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, Fault> {
    let bytes = reader.u32()? as usize;
    Ok(Reader::new(reader.take(bytes)?))
}

impl ItemMask {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let name = ItemName::read(reader)?;
        let (rows, newly) = (reader.u64()?, reader.u64()?);
        let mut list = sized(reader)?;
        let masks = MaskList::read(&mut list)?;
        list.end()?;
        Ok(Self {
            name,
            rows,
            newly,
            masks,
        })
    }

    fn check(&self) -> Result<(), &'static str> {
        let all = self.masks.rows();
        let whole = self.masks.iter().map(|(_, mask)| match mask {
            BlockMask::Rows(_) => 0,
            BlockMask::Blocks { rows, .. } => *rows,
        });
        let whole = whole.fold(0, u64::saturating_add);
        if all > self.rows {
            return Err("more rows are hidden than the item has");
        }
        let is_possible = (all - whole..=all).contains(&self.newly) && self.newly > 0;
        if is_possible {
            Ok(())
        } else {
            Err("rows that are hidden newly do not add up")
        }
    }
}

impl PartMask {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let commit = CommitNo(reader.u64()?);
        let (part, rows) = (reader.u32()?, reader.u32()?);
        let mut list = sized(reader)?;
        let form = list.u8()?;
        let positions = Positions::read(form, &mut list)?;
        list.end()?;
        Ok(Self {
            commit,
            part,
            rows,
            positions,
        })
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.commit == CommitNo(0) {
            return Err("open rows of no commit are hidden");
        }
        if self.positions.end() > self.rows {
            return Err("more rows are hidden than the part has");
        }
        Ok(())
    }
}
