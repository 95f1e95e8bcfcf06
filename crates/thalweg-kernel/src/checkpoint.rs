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
use crate::commit::RowsPart;
use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::frame::{FRAME_HEADER_BYTES, FrameHead, SECTION_ENTRY_BYTES, SectionKind};
use crate::ids::{CommitNo, TableId};
use crate::index::{self, Entry, Tree};
use crate::open_rows::OpenList;
use crate::producers::Producers;
use crate::state::TableState;
use crate::working::Working;
use bytes::Bytes;

const CHECKPOINT_VERSION: u32 = 1;

/// Sections of an INDEX frame: PAGES, INDEX.
pub(crate) const CHECKPOINT_SECTIONS: usize = 2;

/// Writes the INDEX section; `roots` are the entries of the tables' root pages.
pub(crate) fn put_checkpoint(
    working: &Working,
    roots: &[Option<&Entry>],
    out: &mut Vec<u8>,
) -> Result<()> {
    assert!(roots.len() == working.tables.len(), "one root per table");
    out.put_u32(CHECKPOINT_VERSION);
    out.put_u64(working.commit.0);
    out.put_u32(working.next_table);
    out.put_u32(len_u32(working.tables.len()));
    for (table, root) in working.tables.iter().zip(roots) {
        put_table(table, *root, out)?;
    }
    working.producers.put(out);
    Ok(())
}

fn put_table(table: &TableState, root: Option<&Entry>, out: &mut Vec<u8>) -> Result<()> {
    out.put_u32(table.id.0);
    out.put_bytes(table.name.as_bytes());
    out.put_bytes(&table.definition);
    out.put_u32(table.definition_version);
    out.put_u64(table.created.0);
    out.put_u32(len_u32(table.barriers.len()));
    table.barriers.iter().for_each(|b| out.put_u64(b.0));
    put_sized(out, |out| {
        index::encode_entries(root.cloned().as_slice(), out)
    })?;
    let open: Vec<_> = table.open.iter(CommitNo(u64::MAX)).collect();
    out.put_u32(len_u32(open.len()));
    for rows in open {
        out.put_u64(rows.commit.0);
        put_sized(out, |out| {
            put_rows(&rows.part, out);
            Ok(())
        })?;
    }
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
    if working.next_table == 0 {
        return Err(Error::corruption(what, "table ids begin with 1"));
    }
    let mut last_id = TableId(0);
    for _ in 0..wire.count(32)? {
        let (table, open) = get_table(&mut wire, section)?;
        let fits = table.id > last_id
            && table.id.0 < working.next_table
            && table.created <= working.commit;
        if !fits {
            return Err(Error::corruption(what, "table ids or commits out of order"));
        }
        last_id = table.id;
        working.add_table(table);
        let mut last = CommitNo(0);
        for (commit, part) in open {
            if part.table != last_id || commit < last || commit > working.commit {
                return Err(Error::corruption(what, "open rows out of order"));
            }
            last = commit;
            working.apply_rows(commit, part);
        }
    }
    working.producers = Producers::get(&mut wire, working.commit)?;
    wire.finish()?;
    working.since_checkpoint = Default::default();
    Ok(working)
}

type OpenParts = Vec<(CommitNo, RowsPart)>;

fn get_table(wire: &mut Fields<'_>, section: &Bytes) -> Result<(TableState, OpenParts)> {
    let id = TableId(wire.u32()?);
    let name = wire.string()?;
    let definition = Bytes::copy_from_slice(wire.bytes()?);
    let definition_version = wire.u32()?;
    let created = CommitNo(wire.u64()?);
    let barriers = (0..wire.count(8)?)
        .map(|_| Ok(CommitNo(wire.u64()?)))
        .collect::<Result<_>>()?;
    let mut roots = index::decode_entries(wire.bytes()?)?.into_iter();
    let (root, None) = (roots.next(), roots.next()) else {
        return Err(Error::corruption("checkpoint", "a table has one root"));
    };
    if root.as_ref().is_some_and(Entry::is_block) {
        return Err(Error::corruption(
            "checkpoint",
            "the root of an index is a block",
        ));
    }
    let tree = Tree::from_root(id, root);
    let open = (0..wire.count(44)?)
        .map(|_| {
            let commit = CommitNo(wire.u64()?);
            Ok((commit, get_rows(&section.slice_ref(wire.bytes()?))?))
        })
        .collect::<Result<_>>()?;
    let open_list = OpenList::new().0;
    Ok((
        TableState {
            id,
            name,
            definition,
            definition_version,
            created,
            tree,
            open: open_list,
            barriers,
        },
        open,
    ))
}

/// Where the INDEX section of a checkpoint frame lies in it.
pub(crate) fn index_section(head: &FrameHead) -> Option<&crate::frame::SectionEntry> {
    let index = head.sections.iter().find(|s| s.kind == SectionKind::Index);
    index.filter(|_| head.sections.len() == CHECKPOINT_SECTIONS)
}

/// Bytes of header and section table of a checkpoint frame.
pub(crate) const CHECKPOINT_HEAD_BYTES: usize =
    FRAME_HEADER_BYTES + CHECKPOINT_SECTIONS * SECTION_ENTRY_BYTES;
