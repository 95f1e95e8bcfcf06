//! Checkpoints: the state at one commit, in one INDEX frame (`docs/format/log.md`).
//!
//! Invariants: with blocks and pages by address, a checkpoint needs nothing that lies before it: uncovered rows are copied
//! into it. So recovery reads a checkpoint and what follows, whatever the size of the database, and no quiet table pins an
//! old segment.
//!
//! Rejected: references to the frames of uncovered rows, appended again when a segment is left (engine sketch). It saves
//! the copy, at most 8 MiB for each 8 MiB of raw rows, and costs a second way to find rows and a rule that must never
//! be forgotten.

use crate::change::{get_rows, put_rows};
use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::frame::{FRAME_HEADER_BYTES, FrameHead, SECTION_ENTRY_BYTES, SectionKind};
use crate::ids::{CommitNo, TableId};
use crate::index::{self, Entry, Tree, WrittenPages};
use crate::open_rows::{OpenList, OpenRows};
use crate::state::TableState;
use crate::working::Working;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

const CHECKPOINT_VERSION: u32 = 1;

/// Sections of an INDEX frame: PAGES, INDEX.
pub(crate) const CHECKPOINT_SECTIONS: usize = 2;

/// The pages that were written of the trees that have changed since the checkpoint before.
pub(crate) type WrittenTrees = BTreeMap<TableId, WrittenPages>;

/// Writes the INDEX section. Trees that are not in `written` have all of their pages on disk.
pub(crate) fn put_checkpoint(
    working: &Working,
    written: &WrittenTrees,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u32(CHECKPOINT_VERSION);
    out.put_u64(working.commit.0);
    out.put_u32(working.next_table);
    let definitions = put_definitions(working, out);
    out.put_u32(len_u32(working.tables.len()));
    for (table, definition) in working.tables.iter().zip(definitions) {
        let root = match written.get(&table.id) {
            Some(pages) => pages.root().cloned(),
            None => table.tree.root_entry(),
        };
        put_table(table, definition, root, out)?;
        let open = working.open.get(table.id);
        out.put_u8(u8::from(open.is_some_and(|open| open.has_later_blocks)));
    }
    out.put_u32(len_u32(working.producers.len()));
    for (id, (sequence, commit)) in &working.producers {
        out.extend_from_slice(id);
        out.put_u64(*sequence);
        out.put_u64(commit.0);
    }
    Ok(())
}

/// Writes the definitions, each once; returns the number of each table's one.
fn put_definitions(working: &Working, out: &mut Vec<u8>) -> Vec<u32> {
    let count_at = out.len();
    out.put_u32(0);
    // By where they lie in memory: equal ones are shared there. One that is not is written twice, which harms nothing.
    let mut numbers: HashMap<(*const u8, usize), u32> = HashMap::new();
    let mut number_of = |definition: &Bytes| {
        let next = len_u32(numbers.len());
        *numbers
            .entry((definition.as_ptr(), definition.len()))
            .or_insert_with(|| {
                out.put_bytes(definition);
                next
            })
    };
    let tables = working.tables.iter();
    let of_tables = tables.map(|table| number_of(&table.definition)).collect();
    let count = len_u32(numbers.len());
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    of_tables
}

fn put_table(
    table: &TableState,
    definition: u32,
    root: Option<Entry>,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u32(table.id.0);
    out.put_bytes(table.name.as_bytes());
    out.put_u32(definition);
    out.put_u32(table.definition_version);
    out.put_u64(table.created.0);
    put_sized(out, |out| {
        index::encode_entries(root.as_slice(), out)
    })?;
    let count_at = out.len();
    out.put_u32(0);
    let mut count = 0_u32;
    for rows in table.open.iter(CommitNo(u64::MAX)) {
        count += 1;
        out.put_u64(rows.commit.0);
        out.put_u8(u8::from(rows.begins_section));
        put_sized(out, |out| {
            put_rows(&rows.part, out);
            Ok(())
        })?;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    Ok(())
}

fn put_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let at = out.len();
    out.put_u32(0);
    write(out)?;
    let bytes = len_u32(out.len() - at - 4);
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// The state that an INDEX section holds.
pub(crate) fn get_checkpoint(section: &Bytes) -> Result<Working> {
    let what = "checkpoint";
    let mut wire = Fields::new(section, what);
    let version = wire.u32()?;
    if version != CHECKPOINT_VERSION {
        return Err(Error::corruption(
            what,
            format_args!("unknown version {version}"),
        ));
    }
    let mut working = Working::empty();
    working.commit = CommitNo(wire.u64()?);
    working.next_table = wire.u32()?;
    let definitions = (0..wire.count(4)?)
        .map(|_| Ok(working.share_definition(wire.bytes()?)))
        .collect::<Result<Vec<_>>>()?;
    let mut last_id = TableId(0);
    for _ in 0..wire.count(29)? {
        let table = get_table(&mut wire, &definitions)?;
        let fits = table.id > last_id
            && table.id.0 < working.next_table
            && table.created <= working.commit;
        if !fits {
            return Err(Error::corruption(what, "table ids or commits out of order"));
        }
        if working.tables.named(&table.name).is_some() {
            return Err(Error::corruption(what, "two tables have one name"));
        }
        last_id = table.id;
        working.add_table(table);
        get_open_rows(&mut wire, section, last_id, &mut working)?;
    }
    for _ in 0..wire.count(32)? {
        let id = wire.id()?;
        working
            .producers
            .insert(id, (wire.u64()?, CommitNo(wire.u64()?)));
    }
    wire.finish()?;
    working.since_checkpoint = Default::default();
    Ok(working)
}

fn get_table(wire: &mut Fields<'_>, definitions: &[Bytes]) -> Result<TableState> {
    let wrong = |what: &str| Error::corruption("checkpoint", what);
    let id = TableId(wire.u32()?);
    let name = wire.str()?.into();
    let definition = definitions.get(wire.u32()? as usize);
    let definition = definition.ok_or_else(|| wrong("a table without a definition"))?;
    let definition_version = wire.u32()?;
    let created = CommitNo(wire.u64()?);
    let mut roots = index::decode_entries(wire.bytes()?)?.into_iter();
    let (root, None) = (roots.next(), roots.next()) else {
        return Err(wrong("a table has one root"));
    };
    if root.as_ref().is_some_and(Entry::is_block) {
        return Err(wrong("the root of an index is a block"));
    }
    Ok(TableState {
        id,
        name,
        definition: definition.clone(),
        definition_version,
        created,
        tree: Tree::from_root(id, root),
        open: OpenList::default(),
    })
}

/// Gives a table the open rows that the checkpoint holds of it.
fn get_open_rows(
    wire: &mut Fields<'_>,
    section: &Bytes,
    table: TableId,
    working: &mut Working,
) -> Result<()> {
    let mut last = CommitNo(0);
    for _ in 0..wire.count(45)? {
        let commit = CommitNo(wire.u64()?);
        let begins_section = get_flag(wire)?;
        let part = get_rows(&section.slice_ref(wire.bytes()?))?;
        if part.table != table || commit < last || commit > working.commit {
            return Err(Error::corruption("checkpoint", "open rows out of order"));
        }
        last = commit;
        working.push_open(OpenRows {
            commit,
            begins_section,
            part,
        });
    }
    if get_flag(wire)? {
        working.open.note_blocks(table);
    }
    Ok(())
}

fn get_flag(wire: &mut Fields<'_>) -> Result<bool> {
    match wire.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::corruption("checkpoint", "a flag is neither 0 nor 1")),
    }
}

/// Where the INDEX section of a checkpoint frame lies in it.
pub(crate) fn index_section(head: &FrameHead) -> Option<&crate::frame::SectionEntry> {
    let index = head.sections.iter().find(|s| s.kind == SectionKind::Index);
    index.filter(|_| head.sections.len() == CHECKPOINT_SECTIONS)
}

/// Bytes of header and section table of a checkpoint frame.
pub(crate) const CHECKPOINT_HEAD_BYTES: usize =
    FRAME_HEADER_BYTES + CHECKPOINT_SECTIONS * SECTION_ENTRY_BYTES;
