//! Blocks below a damaged page of a table's index, found again by the frames that brought them.
//!
//! Invariants: a block is only taken for part of its table if all that are taken add up to what the entry that leads to the
//! damaged page has of them: counts, bytes, keys, commits and summaries. Items of a page follow each other in the order of
//! their keys, from the page's own key on; so there is one set to be tried.
//!
//! Blocks below damaged pages of fragments are found in the files of these: no frame of the log describes them.

use crate::change::{Change, changes_of};
use crate::commit::Edit;
use crate::error::{Error, Result};
use crate::frame::{FrameHead, SectionKind};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{Entry, EntryKey, ItemRun, unequal_totals};
use crate::paths::{list_segments, segment_path};
use crate::replay::find_frame;
use crate::segment::{SEGMENT_HEADER_BYTES, open_segment};
use crate::store::Store;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::HashMap;
use thalweg_env::File;

/// All that the frames of the log have ever made part of tables.
#[derive(Default)]
pub(crate) struct Catalogue {
    items: Vec<Item>,
    /// The last commit that took an item out of its order.
    removals: HashMap<(Order, EntryKey), CommitNo>,
    /// Runs of items that a commit took out.
    removed_runs: Vec<(Order, CommitNo, ItemRun)>,
}

/// An order of a table.
type Order = (TableId, u32);

struct Item {
    of: Order,
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
                    if brings_items(head) && head.id.commit <= last {
                        heads.push((at, head.clone()));
                    }
                    false
                },
            )?;
            for (at, head) in heads {
                catalogue.note(&*file, at, &head)?;
            }
        }
        Ok(catalogue)
    }

    fn note(&mut self, file: &dyn File, at: LogPosition, head: &FrameHead) -> Result<()> {
        let mut bytes = vec![0; head.needed_bytes()];
        match file.read_exact_at(&mut bytes, at.offset) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(Error::io(format_args!("reading the log at {at:?}"), e)),
        }
        // A frame that is damaged itself gives nothing.
        let Ok(Some(changes)) = changes_of(head, &Bytes::from(bytes)) else {
            return Ok(());
        };
        for change in changes {
            self.note_change(at, head.id.commit, change);
        }
        Ok(())
    }

    fn note_change(&mut self, at: LogPosition, commit: CommitNo, change: Change) {
        match change {
            Change::Group {
                head,
                mut entries,
                blocks_offset,
            } => {
                for entry in &mut entries {
                    entry.address.file = at.segment;
                    entry.address.offset += at.offset + blocks_offset;
                }
                self.note_items(at, commit, (head.table, head.order), entries);
            }
            Change::Edit(Edit::AddFragments { head, roots }) => {
                self.note_items(at, commit, (head.table, head.order), roots);
            }
            Change::Edit(Edit::Replace(edit)) => {
                for order in edit.orders {
                    let of = (edit.table, order.order);
                    for name in order.removed_items() {
                        let last = self.removals.entry((of, name.key)).or_default();
                        *last = commit.max(*last);
                    }
                    let runs = order.removed_runs().iter();
                    self.removed_runs.extend(runs.map(|run| (of, commit, *run)));
                    self.note_items(at, commit, of, order.added);
                }
            }
            _ => {}
        }
    }

    fn note_items(&mut self, at: LogPosition, commit: CommitNo, of: Order, entries: Vec<Entry>) {
        self.items.extend(entries.into_iter().map(|entry| Item {
            of,
            commit,
            segment: at.segment,
            entry,
        }));
    }

    /// The items below a page of an order of a table, if they can be found.
    pub(crate) fn items_below(&self, of: Order, page: &Entry) -> Option<Vec<Entry>> {
        let is_live = |item: &&Item| {
            let removed = self.removals.get(&(of, item.entry.key()));
            item.of == of
                && item.entry.key() >= page.key()
                && removed.is_none_or(|removed| *removed <= item.commit)
                && !self.is_in_removed_run(item)
        };
        let mut items: Vec<&Item> = self.items.iter().filter(is_live).collect();
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
            .map(|item| item.entry.clone())
            .collect();
        let total = Entry::of_page(1, &below)?;
        unequal_totals(page, &total).is_none().then_some(below)
    }
}

impl Catalogue {
    /// Whether a commit after that of an item took it out by a run. Within the same commit, items go before others come.
    fn is_in_removed_run(&self, item: &Item) -> bool {
        self.removed_runs.iter().any(|(of, commit, run)| {
            *of == item.of && *commit > item.commit && run.contains(item.entry.key())
        })
    }
}

fn brings_items(head: &FrameHead) -> bool {
    let brings = |kind| matches!(kind, SectionKind::Group | SectionKind::Edit);
    head.sections.iter().any(|section| brings(section.kind))
}
