//! What lies below a damaged page of a table's index, found again by the frames that brought it or by itself.
//!
//! Invariants: a block is only taken for part of its table if all that are taken add up to what the entry that leads to the
//! damaged page says of them: counts, bytes, keys, commits and summaries. Items of a page follow each other in the order of
//! their keys, from the page's own key on; so there is one set to be tried.
//!
//! Fragments whose frames are gone are described by themselves. They are only tried where what the frames tell of does not add up,
//! together, each in the place of what it may have replaced: items of the same commits and keys.
//!
//! Absent: the blocks below damaged pages of fragments. Nothing but these pages describes them.

use crate::change::{Change, changes_of};
use crate::commit::Edit;
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::open_unnamed_fragment;
use crate::frame::{FrameHead, SectionKind};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{Entry, EntryKey, unequal_totals};
use crate::open::list_fragments;
use crate::replay::find_frame;
use crate::segment::{SEGMENT_HEADER_BYTES, list_segments, open_segment, segment_path};
use crate::store::Store;
use bytes::Bytes;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use thalweg_env::File;

/// All that the frames of the log have ever made part of tables.
#[derive(Default)]
pub(crate) struct Catalogue {
    items: Vec<Item>,
    /// The last commit that took an item out of its table.
    removals: HashMap<(TableId, EntryKey), CommitNo>,
    /// Files that later frames tell of.
    later_files: HashSet<FileId>,
    /// Fragments that no frame tells of, once they were looked for.
    unnamed: OnceCell<Vec<(TableId, Entry)>>,
}

#[derive(Clone)]
struct Item {
    table: TableId,
    commit: CommitNo,
    /// Where its frame lies: recovery may have written it twice, and the later one counts.
    segment: FileId,
    entry: Entry,
}

impl Catalogue {
    /// Reads all segments that are there, up to a commit.
    pub(crate) fn read(store: &Store, last: CommitNo) -> Result<Self> {
        let mut catalogue = Self::default();
        for id in list_segments(store.env(), store.dir())? {
            let file = open_segment(store.env(), &segment_path(store.dir(), id))?;
            let start = LogPosition {
                segment: id,
                offset: SEGMENT_HEADER_BYTES as u64,
            };
            let mut heads: Vec<(LogPosition, FrameHead)> = Vec::new();
            let mut unlimited = u64::MAX;
            find_frame(
                &*file,
                start,
                store.database(),
                &mut unlimited,
                |at, head| {
                    if brings_items(head) {
                        heads.push((at, head.clone()));
                    }
                    false
                },
            )?;
            for (at, head) in heads {
                catalogue.note(&*file, at, &head, last)?;
            }
        }
        Ok(catalogue)
    }

    fn note(
        &mut self,
        file: &dyn File,
        at: LogPosition,
        head: &FrameHead,
        last: CommitNo,
    ) -> Result<()> {
        let mut bytes = vec![0; head.needed_bytes()];
        match file.read_exact_at(&mut bytes, at.offset) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(Error::io(format_args!("reading the log at {at:?}"), e)),
        }
        // A frame that is damaged itself tells nothing.
        let Ok(Some(changes)) = changes_of(head, &Bytes::from(bytes)) else {
            return Ok(());
        };
        for change in changes {
            if head.id.commit <= last {
                self.note_change(at, head.id.commit, change);
            } else if let Change::Edit(
                Edit::AddFragments { roots: added, .. } | Edit::Replace { added, .. },
            ) = change
            {
                let files = added.iter().map(|root| root.address.file);
                self.later_files.extend(files);
            }
        }
        Ok(())
    }

    fn note_change(&mut self, at: LogPosition, commit: CommitNo, change: Change) {
        let (table, entries) = match change {
            Change::Group {
                table,
                mut entries,
                blocks_offset,
                ..
            } => {
                for entry in &mut entries {
                    entry.address.file = at.segment;
                    entry.address.offset += at.offset + blocks_offset;
                }
                (table, entries)
            }
            Change::Edit(Edit::AddFragments { table, roots, .. }) => (table, roots),
            Change::Edit(Edit::Replace {
                table,
                removed,
                added,
            }) => {
                for key in removed {
                    let last = self.removals.entry((table, key)).or_default();
                    *last = commit.max(*last);
                }
                (table, added)
            }
            _ => return,
        };
        self.items.extend(entries.into_iter().map(|entry| Item {
            table,
            commit,
            segment: at.segment,
            entry,
        }));
    }

    /// The items below a page of the index of a table, if they can be told.
    pub(crate) fn items_below(
        &self,
        table: TableId,
        page: &Entry,
        store: &Store,
    ) -> Result<Option<Vec<Entry>>> {
        let is_live = |item: &&Item| {
            let removed = self.removals.get(&(table, item.entry.key()));
            item.table == table
                && item.entry.key() >= page.key()
                && removed.is_none_or(|removed| *removed <= item.commit)
        };
        let items: Vec<Item> = self.items.iter().filter(is_live).cloned().collect();
        if let Some(below) = adding_up(items.clone(), page) {
            return Ok(Some(below));
        }
        let unnamed = self.unnamed(store)?.iter().map(|(table, root)| Item {
            table: *table,
            commit: root.commit_max,
            segment: root.address.file,
            entry: root.clone(),
        });
        let unnamed = unnamed.filter(|item| item.table == table).collect();
        let Some(mut unnamed) = with_commits(unnamed, page) else {
            return Ok(None);
        };
        unnamed.retain(|item| is_live(&item));
        if unnamed.is_empty() {
            return Ok(None);
        }
        let is_replaced = |item: &Item| unnamed.iter().any(|other| may_replace(other, item));
        let all = items.iter().chain(&unnamed);
        let left = all.filter(|item| !is_replaced(item)).cloned().collect();
        Ok(adding_up(left, page))
    }

    /// The fragments that no frame tells of. Those that are damaged tell nothing of themselves.
    fn unnamed(&self, store: &Store) -> Result<&[(TableId, Entry)]> {
        if let Some(unnamed) = self.unnamed.get() {
            return Ok(unnamed);
        }
        let mut named = self.later_files.clone();
        named.extend(self.items.iter().map(|item| item.entry.address.file));
        let mut unnamed = Vec::new();
        for id in list_fragments(store.env(), store.dir())? {
            if named.contains(&id) {
                continue;
            }
            match open_unnamed_fragment(store, id) {
                Ok(found) => unnamed.push(found),
                Err(error) if error.kind() == ErrorKind::Corruption => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.unnamed.get_or_init(|| unnamed))
    }
}

/// The fragments with the commits that have added them. A fragment of new rows was written before it had one, and only the page
/// tells of which first and which last commit its items are: `None` where that leaves some in doubt. Ids rise with the commits.
fn with_commits(mut fragments: Vec<Item>, page: &Entry) -> Option<Vec<Item>> {
    fragments.sort_by_key(|item| item.segment);
    let is_new = |item: &&mut Item| item.entry.commit_min == CommitNo(0);
    let new = fragments.iter_mut().filter(is_new);
    let mut new: Vec<&mut Item> = new.collect();
    let is_one_commit = page.commit_min == page.commit_max;
    if !is_one_commit && new.len() > 2 {
        return None;
    }
    let (last, mut ordinal) = (new.len().saturating_sub(1), 0);
    for (at, item) in new.iter_mut().enumerate() {
        let commit = match at == last {
            true => page.commit_max,
            false => page.commit_min,
        };
        item.entry = item.entry.clone().committed(commit, commit, ordinal);
        item.commit = commit;
        if is_one_commit {
            ordinal += u32::try_from(item.entry.blocks).ok()?;
        }
    }
    Some(fragments)
}

/// Whether a fragment that no frame tells of may have taken the place of an item.
fn may_replace(fragment: &Item, item: &Item) -> bool {
    let (by, of) = (&fragment.entry, &item.entry);
    fragment.segment > item.entry.address.file
        && (by.commit_min..=by.commit_max).contains(&of.commit_min)
        && of.commit_max <= by.commit_max
        && (by.key_min..=by.key_max).contains(&of.key_min)
        && of.key_max <= by.key_max
}

/// Those of the items that lie below a page, if they add up to what the page says.
fn adding_up(mut items: Vec<Item>, page: &Entry) -> Option<Vec<Entry>> {
    items.sort_by_key(|item| (item.entry.key(), Reverse((item.commit, item.segment))));
    items.dedup_by_key(|item| item.entry.key());
    let mut blocks = 0;
    let below: Vec<Entry> = items
        .into_iter()
        .take_while(|item| {
            let is_below = blocks < page.blocks;
            blocks += item.entry.blocks;
            is_below
        })
        .map(|item| item.entry)
        .collect();
    let total = Entry::of_page(1, &below)?;
    unequal_totals(page, &total).is_none().then_some(below)
}

fn brings_items(head: &FrameHead) -> bool {
    let brings = |kind| matches!(kind, SectionKind::Group | SectionKind::Edit);
    head.sections.iter().any(|section| brings(section.kind))
}
