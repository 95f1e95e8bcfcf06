//! The sections of a frame as values: what a commit changes, in the form that is written, replayed and applied.
//!
//! Invariant: what is applied after a write is what a replay of the written bytes would apply; there is one function that
//! applies ([`crate::working`]) and it sees only [`Change`]s. What a change must be by itself is checked by one function too
//! ([`Change::check`]), before it is written and after it was read.

use crate::commit::{Edit, Producer, RowsPart};
use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::frame::{FrameHead, SectionKind};
use crate::ids::{CommitNo, TableId};
use crate::index::{self, Entry, EntryKey};
use crate::limits::REMOVED_BYTES;
use bytes::Bytes;

/// One section of a commit.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Rows(RowsPart),
    /// The blocks' addresses are relative to their BLOCKS section and name no file.
    Group {
        table: TableId,
        definition_version: u32,
        covers: Option<CommitNo>,
        entries: Vec<Entry>,
        /// Where the BLOCKS section begins in the frame.
        blocks_offset: u64,
    },
    Edit(Edit),
    Producer(Producer),
}

impl Change {
    /// The table whose index it changes, the keys of the items that go from it, and those that come.
    pub(crate) fn items(&self) -> Option<(TableId, &[EntryKey], &[Entry])> {
        match self {
            Self::Group { table, entries, .. } => Some((*table, &[], entries)),
            Self::Edit(Edit::AddFragments { table, roots, .. }) => Some((*table, &[], roots)),
            Self::Edit(Edit::Replace {
                table,
                removed,
                added,
            }) => Some((*table, removed, added)),
            _ => None,
        }
    }

    /// Checks a change on its own, without the state and the other changes of its commit: called before it is written and
    /// after it was read. `Err` says what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Rows(part) => check_rows(part),
            Self::Group {
                covers, entries, ..
            } => {
                ensure(!entries.is_empty(), "a group without blocks")?;
                ensure(
                    entries.iter().all(Entry::is_block),
                    "a group lists a page among its blocks",
                )?;
                check_covered(*covers)?;
                entries.iter().try_for_each(check_item)
            }
            Self::Edit(Edit::AddFragments { covers, roots, .. }) => {
                ensure(!roots.is_empty(), "an edit adds no fragment")?;
                check_covered(*covers)?;
                check_roots(roots)
            }
            Self::Edit(Edit::Replace { added, .. }) => check_roots(added),
            Self::Edit(
                Edit::CreateTable { .. }
                | Edit::DropTable { .. }
                | Edit::RenameTable { .. }
                | Edit::SetDefinition { .. },
            )
            | Self::Producer(_) => Ok(()),
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

/// Commit 0 would be read as no cover at all.
fn check_covered(covers: Option<CommitNo>) -> Result<(), &'static str> {
    ensure(
        covers != Some(CommitNo(0)),
        "rows are covered up to commit 0, before the first",
    )
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

pub(crate) fn put_group(
    table: TableId,
    definition_version: u32,
    covers: Option<CommitNo>,
    entries: &[Entry],
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u32(table.0);
    out.put_u32(definition_version);
    out.put_u64(covers.map_or(0, |c| c.0));
    index::encode_entries(entries, out)
}

fn get_group(section: &[u8], blocks_offset: u64) -> Result<Change> {
    let mut wire = Fields::new(section, "GROUP section");
    let table = TableId(wire.u32()?);
    let definition_version = wire.u32()?;
    let covers = wire.u64()?;
    let entries = index::decode_entries(wire.rest()?)?;
    let covers = (covers != 0).then_some(CommitNo(covers));
    Ok(Change::Group {
        table,
        definition_version,
        covers,
        entries,
        blocks_offset,
    })
}

const EDIT_CREATE: u8 = 1;
const EDIT_DROP: u8 = 2;
const EDIT_RENAME: u8 = 3;
const EDIT_DEFINITION: u8 = 4;
const EDIT_ADD_FRAGMENTS: u8 = 5;
const EDIT_REPLACE: u8 = 6;

pub(crate) fn put_edit(edit: &Edit, out: &mut Vec<u8>) -> Result<()> {
    match edit {
        Edit::CreateTable {
            table,
            name,
            definition,
        } => {
            out.put_u8(EDIT_CREATE);
            out.put_u32(table.0);
            out.put_bytes(name.as_bytes());
            out.put_bytes(definition);
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
        Edit::AddFragments {
            table,
            definition_version,
            covers,
            roots,
        } => {
            out.put_u8(EDIT_ADD_FRAGMENTS);
            out.put_u32(table.0);
            out.put_u32(*definition_version);
            out.put_u64(covers.map_or(0, |c| c.0));
            index::encode_entries(roots, out)?;
        }
        Edit::Replace {
            table,
            removed,
            added,
        } => {
            out.put_u8(EDIT_REPLACE);
            out.put_u32(table.0);
            put_keys(removed, out);
            index::encode_entries(added, out)?;
        }
    }
    Ok(())
}

pub(crate) fn get_edit(section: &[u8]) -> Result<Edit> {
    let mut wire = Fields::new(section, "EDIT section");
    let edit = match wire.u8()? {
        EDIT_CREATE => Edit::CreateTable {
            table: TableId(wire.u32()?),
            name: wire.string()?,
            definition: Bytes::copy_from_slice(wire.bytes()?),
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
            let (table, definition_version) = (TableId(wire.u32()?), wire.u32()?);
            let covers = wire.u64()?;
            let roots = index::decode_entries(wire.rest()?)?;
            Edit::AddFragments {
                table,
                definition_version,
                covers: (covers != 0).then_some(CommitNo(covers)),
                roots,
            }
        }
        EDIT_REPLACE => {
            let table = TableId(wire.u32()?);
            let removed = get_keys(&mut wire)?;
            Edit::Replace {
                table,
                removed,
                added: index::decode_entries(wire.rest()?)?,
            }
        }
        kind => return Err(wire.unknown(format_args!("an edit of kind {kind}"))),
    };
    wire.finish()?;
    Ok(edit)
}

/// Writes how many keys there are, and the keys.
pub(crate) fn put_keys(keys: &[EntryKey], out: &mut Vec<u8>) {
    out.put_u32(len_u32(keys.len()));
    for key in keys {
        out.put_i64(key.key_min);
        out.put_u64(key.commit.0);
        out.put_u32(key.ordinal);
    }
}

/// Reads what [`put_keys`] has written.
pub(crate) fn get_keys(wire: &mut Fields<'_>) -> Result<Vec<EntryKey>> {
    let count = wire.count(REMOVED_BYTES)?;
    let key = |_| {
        Ok(EntryKey {
            key_min: wire.i64()?,
            commit: CommitNo(wire.u64()?),
            ordinal: wire.u32()?,
        })
    };
    (0..count).map(key).collect()
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
