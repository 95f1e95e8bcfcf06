//! The sections of a frame as values: what a commit changes, in the form that is written, replayed and applied.
//!
//! Invariant: what is applied after a write is what a replay of the written bytes would apply; there is one function that
//! applies ([`crate::working`]) and it sees only [`Change`]s. What a change must be by itself is checked by one function too
//! ([`Change::check`]), before it is written and after it was read.

use crate::commit::{Edit, Producer};
use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::frame::{FrameHead, SectionKind};
use crate::ids::{CommitNo, TableId};
use crate::index::{self, Entry, ItemName};
use crate::masks::MaskEdit;
use crate::orders::{AddHead, FIRST_ORDER, KIND_INDEX, MAX_ORDERS, OrdersEdit, ReplaceEdit};
use crate::rows_part::RowsPart;
use crate::wire::{Fault, Reader};
use bytes::Bytes;

/// One section of a commit.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Rows(RowsPart),
    /// The blocks' addresses are relative to their BLOCKS section and name no file.
    Group {
        head: AddHead,
        entries: Vec<Entry>,
        /// Where the BLOCKS section begins in the frame.
        blocks_offset: u64,
    },
    Edit(Edit),
    /// Comes after what brings the items that it names.
    Mask(MaskEdit),
    Producer(Producer),
}

impl Change {
    /// Whether it is of open rows or a producer, which concern neither trees nor masks: most commits have nothing else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Rows(_) | Self::Producer(_))
    }

    /// Checks a change on its own, without the state and the other changes of its commit: called before it is written and
    /// after it was read. `Err` names what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Rows(part) => check_rows(part),
            Self::Group { head, entries, .. } => {
                head.check()?;
                // One that is complete means that the rows of the commit have no entries in an index; one that covers may leave all
                // rows out.
                ensure(
                    !entries.is_empty() || head.is_complete || head.left_out > 0,
                    "a group without blocks",
                )?;
                ensure(
                    entries.iter().all(Entry::is_block),
                    "a group lists a page among its blocks",
                )?;
                entries.iter().try_for_each(check_item)
            }
            Self::Edit(Edit::AddFragments { head, roots }) => {
                head.check()?;
                ensure(!roots.is_empty(), "an edit adds no fragment")?;
                check_roots(roots)
            }
            Self::Edit(Edit::Replace(edit)) => {
                edit.check()?;
                let mut lists = edit.orders.iter().map(|order| &order.added);
                lists.try_for_each(|added| check_roots(added))
            }
            Self::Edit(Edit::Orders(edit)) => edit.check(),
            Self::Mask(edit) => edit.check(),
            Self::Edit(Edit::CreateTable { indexes, .. }) => ensure(
                (*indexes as usize) < MAX_ORDERS,
                "a table of more indexes than there can be",
            ),
            Self::Edit(
                Edit::DropTable { .. } | Edit::RenameTable { .. } | Edit::SetDefinition { .. },
            )
            | Self::Producer(_) => Ok(()),
        }
    }

    /// The table that it changes.
    pub(crate) fn table(&self) -> Option<TableId> {
        match self {
            Self::Rows(part) => Some(part.table),
            Self::Group { head, .. } => Some(head.table),
            Self::Edit(edit) => Some(edit.table()),
            Self::Mask(edit) => Some(edit.table),
            Self::Producer(_) => None,
        }
    }

    /// The items that it adds to an order by itself, and not in the place of others: those of a GROUP, or fragments.
    pub(crate) fn adds(&self) -> Option<(&AddHead, &[Entry])> {
        match self {
            Self::Group { head, entries, .. } => Some((head, entries)),
            Self::Edit(Edit::AddFragments { head, roots }) => Some((head, roots)),
            _ => None,
        }
    }
}

fn ensure(condition: bool, what: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(what) }
}

fn check_rows(part: &RowsPart) -> Result<(), &'static str> {
    let is_sound = part.rows > 0 && part.key_min <= part.key_max;
    ensure(is_sound, "no rows, or keys the wrong way round")
}

fn check_roots(roots: &[Entry]) -> Result<(), &'static str> {
    ensure(
        roots.iter().all(|root| root.fragment),
        "an edit adds a block, or a page that is no fragment, in the place of a fragment",
    )?;
    roots.iter().try_for_each(check_item)
}

fn check_item(item: &Entry) -> Result<(), &'static str> {
    // New rows have got theirs by now; those of open rows and of replaced blocks keep theirs.
    ensure(
        item.commit_min > CommitNo(0),
        "blocks without the commits of their rows",
    )?;
    item.check()
}

/// Fixed bytes of a ROWS section in front of the payload.
const ROWS_HEADER_BYTES: usize = 32;

pub(crate) fn put_rows(part: &RowsPart, out: &mut Vec<u8>) {
    out.put_u32(part.table.0);
    out.put_u32(part.definition_version);
    out.put_u32(part.rows);
    out.put_u32(0);
    out.put_i64(part.key_min);
    out.put_i64(part.key_max);
    out.extend_from_slice(&part.payload);
}

/// Reads a ROWS section; the payload shares `section`'s memory.
pub(crate) fn get_rows(section: &Bytes) -> Result<RowsPart> {
    let mut wire = Fields::new(section, "ROWS section");
    let table = TableId(wire.u32()?);
    let definition_version = wire.u32()?;
    let rows = wire.u32()?;
    wire.reserved(4)?;
    let (key_min, key_max) = (wire.i64()?, wire.i64()?);
    let part = RowsPart {
        table,
        definition_version,
        rows,
        key_min,
        key_max,
        payload: section.slice(ROWS_HEADER_BYTES..),
    };
    check_rows(&part).map_err(|what| Error::corruption("ROWS section", what))?;
    Ok(part)
}

pub(crate) fn put_group(head: &AddHead, entries: &[Entry], out: &mut Vec<u8>) -> Result<()> {
    head.put(out);
    index::encode_entries(entries, out)
}

fn get_group(section: &[u8], blocks_offset: u64) -> Result<Change> {
    let (head, list) = AddHead::decode(section)?;
    Ok(Change::Group {
        head,
        entries: index::decode_entries(list)?,
        blocks_offset,
    })
}

const EDIT_CREATE: u8 = 1;
const EDIT_DROP: u8 = 2;
const EDIT_RENAME: u8 = 3;
const EDIT_DEFINITION: u8 = 4;
const EDIT_ADD_FRAGMENTS: u8 = 5;
const EDIT_REPLACE: u8 = 6;
const EDIT_ORDERS: u8 = 7;
const EDIT_MASK: u8 = 8;
/// Bytes of an order of a new table.
const NEW_ORDER_BYTES: usize = 8;

pub(crate) fn put_edit(edit: &Edit, out: &mut Vec<u8>) -> Result<()> {
    match edit {
        Edit::CreateTable {
            table,
            name,
            definition,
            indexes,
        } => {
            out.put_u8(EDIT_CREATE);
            out.put_u32(table.0);
            out.put_bytes(name.as_bytes());
            out.put_bytes(definition);
            put_indexes(*indexes, out);
        }
        Edit::DropTable { table } => {
            out.put_u8(EDIT_DROP);
            out.put_u32(table.0);
        }
        Edit::RenameTable { table, name } => {
            out.put_u8(EDIT_RENAME);
            out.put_u32(table.0);
            out.put_bytes(name.as_bytes());
        }
        Edit::SetDefinition {
            table,
            expected_version,
            definition,
        } => {
            out.put_u8(EDIT_DEFINITION);
            out.put_u32(table.0);
            out.put_u32(*expected_version);
            out.put_bytes(definition);
        }
        Edit::AddFragments { head, roots } => {
            out.put_u8(EDIT_ADD_FRAGMENTS);
            head.put(out);
            index::encode_entries(roots, out)?;
        }
        Edit::Replace(edit) => {
            out.put_u8(EDIT_REPLACE);
            edit.put(out)?;
        }
        Edit::Orders(edit) => {
            out.put_u8(EDIT_ORDERS);
            edit.put(out);
        }
    }
    Ok(())
}

pub(crate) fn put_mask(edit: &MaskEdit, out: &mut Vec<u8>) {
    out.put_u8(EDIT_MASK);
    edit.put(out);
}

pub(crate) fn get_edit(section: &[u8]) -> Result<Edit> {
    let mut wire = Fields::new(section, "EDIT section");
    let edit = match wire.u8()? {
        EDIT_CREATE => Edit::CreateTable {
            table: TableId(wire.u32()?),
            name: wire.string()?,
            definition: Bytes::copy_from_slice(wire.bytes()?),
            indexes: get_indexes(&mut wire)?,
        },
        EDIT_DROP => Edit::DropTable {
            table: TableId(wire.u32()?),
        },
        EDIT_RENAME => Edit::RenameTable {
            table: TableId(wire.u32()?),
            name: wire.string()?,
        },
        EDIT_DEFINITION => Edit::SetDefinition {
            table: TableId(wire.u32()?),
            expected_version: wire.u32()?,
            definition: Bytes::copy_from_slice(wire.bytes()?),
        },
        EDIT_ADD_FRAGMENTS => {
            let (head, list) = AddHead::decode(wire.rest()?)?;
            let roots = index::decode_entries(list)?;
            Edit::AddFragments { head, roots }
        }
        EDIT_REPLACE => Edit::Replace(ReplaceEdit::decode(wire.rest()?)?),
        EDIT_ORDERS => Edit::Orders(OrdersEdit::decode(wire.rest()?)?),
        kind => return Err(wire.unknown(format_args!("an edit of kind {kind}"))),
    };
    wire.finish()?;
    Ok(edit)
}

/// Writes the orders of a new table beside its rows.
fn put_indexes(indexes: u32, out: &mut Vec<u8>) {
    out.put_u32(indexes);
    for order in (FIRST_ORDER..).take(indexes as usize) {
        out.put_u32(order);
        out.extend_from_slice(&[KIND_INDEX, 0, 0, 0]);
    }
}

fn get_indexes(wire: &mut Fields<'_>) -> Result<u32> {
    let count = wire.count(NEW_ORDER_BYTES)?;
    for expected in (FIRST_ORDER..).take(count) {
        let (order, kind) = (wire.u32()?, wire.u8()?);
        if kind != KIND_INDEX {
            return Err(wire.unknown(format_args!("an order of kind {kind}")));
        }
        wire.reserved(3)?;
        if order != expected {
            let what = "the orders of a new table are not numbered in turn";
            return Err(Error::corruption("EDIT section", what));
        }
    }
    Ok(len_u32(count))
}

/// Writes how many names of items there are, and the names.
pub(crate) fn put_names(names: &[ItemName], out: &mut Vec<u8>) {
    out.put_u32(len_u32(names.len()));
    names.iter().for_each(|name| name.put(out));
}

/// Reads what [`put_names`] has written.
pub(crate) fn get_names(wire: &mut Fields<'_>) -> Result<Vec<ItemName>> {
    let count = wire.count(ItemName::BYTES)?;
    let mut reader = Reader::new(wire.take(count * ItemName::BYTES)?);
    let names = (0..count).map(|_| ItemName::read(&mut reader));
    let names = names.collect::<Result<_, Fault>>();
    names.map_err(|fault| fault.at("checkpoint", "names of items"))
}

pub(crate) fn put_producer(producer: &Producer, out: &mut Vec<u8>) {
    out.extend_from_slice(&producer.id);
    out.put_u64(producer.sequence);
}

fn get_producer(section: &[u8]) -> Result<Producer> {
    let mut wire = Fields::new(section, "PRODUCER section");
    let producer = Producer {
        id: wire.id()?,
        sequence: wire.u64()?,
    };
    wire.finish()?;
    Ok(producer)
}

/// The changes of a frame whose head verified. `frame` holds all but the blocks; `Ok(None)`: a section does not
/// verify, so this is no frame.
pub(crate) fn changes_of(head: &FrameHead, frame: &Bytes) -> Result<Option<Vec<Change>>> {
    let mut changes = Vec::with_capacity(head.sections.len());
    let mut blocks = head
        .sections
        .iter()
        .filter(|s| s.kind == SectionKind::Blocks);
    for entry in &head.sections {
        if entry.kind == SectionKind::Blocks {
            continue;
        }
        let Some(section) = head.section(frame, entry) else {
            return Ok(None);
        };
        let change = match entry.kind {
            SectionKind::Rows => {
                let start = entry.offset as usize;
                Change::Rows(get_rows(&frame.slice(start..start + section.len()))?)
            }
            SectionKind::Group => {
                let blocks = blocks
                    .next()
                    .ok_or_else(|| Error::corruption("GROUP section", "it has no blocks"))?;
                get_group(section, u64::from(blocks.offset))?
            }
            SectionKind::Edit if section.first() == Some(&EDIT_MASK) => {
                let edit = MaskEdit::decode(&section[1..])?;
                Change::Mask(edit.in_frame(head.id.commit))
            }
            SectionKind::Edit => Change::Edit(get_edit(section)?),
            SectionKind::Producer => Change::Producer(get_producer(section)?),
            SectionKind::Index
            | SectionKind::Pages
            | SectionKind::Blocks
            | SectionKind::Next
            | SectionKind::Pad => continue,
        };
        let checked = change.check();
        checked.map_err(|what| Error::corruption("a section of a commit", what))?;
        changes.push(change);
    }
    Ok(Some(changes))
}
