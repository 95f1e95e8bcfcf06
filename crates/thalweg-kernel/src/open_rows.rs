//! The rows of a table that lie raw in their frames, not yet in a block: an append-only list that readers walk without
//! a lock.
//!
//! Invariants
//! - One writer (the leader of the commit queue) appends; an item is complete before it can be seen, because its slot is
//!   a `OnceLock`; items rise by commit. A reader sees a prefix: it stops at the end of the last chunk it knows or at the
//!   first commit above its snapshot's.
//! - A list knows its chunks, and none of them leads to another one: rows that do not fit the last chunk go into a new
//!   one, which only *newer* table states know. So whoever holds an old state keeps alive what it shows and the rest of
//!   one chunk, at most [`CHUNK_SLOTS`] items or [`CHUNK_BYTES`] and one item, whatever is appended later. Covering rows
//!   drops chunks from newer states alone.
//! - A table without open rows has no chunk. Chunks grow with the list: a table with few rows takes little, and one with
//!   many gets a new state for every [`CHUNK_SLOTS`] commits, not for each.
//!
//! Rejected: a `Vec` behind a lock (a slow reader would hold up the writer); a fresh `Arc<[_]>` per commit (copying the
//! list for each of a million rows a second); chunks that point to the next one (a snapshot that is held for an hour
//! would keep all rows of that hour).

use crate::ids::CommitNo;
use crate::rows_part::RowsPart;
use std::sync::{Arc, OnceLock};

/// Slots of the first chunk of a list. Later ones have as many as the list has items.
const MIN_SLOTS: usize = 2;
/// Most slots of a chunk.
pub(crate) const CHUNK_SLOTS: usize = 512;
/// A chunk whose rows have so many bytes takes no more.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// The rows of one commit of one table.
#[derive(Clone, Debug)]
pub struct OpenRows {
    /// Their commit.
    pub commit: CommitNo,
    /// Blocks were committed to the table after the open rows before these and before these: an encoder begins a new
    /// block here, because the order of arrival across blocks is that of their commits.
    pub begins_section: bool,
    /// Which ROWS section of the table in its commit, from 0 on: by it masks name the rows.
    pub number: u32,
    /// The rows.
    pub part: RowsPart,
}

type Chunk = Arc<[OnceLock<OpenRows>]>;

/// The open rows of a table state.
#[derive(Clone, Default)]
pub(crate) struct OpenList {
    chunks: Arc<[Chunk]>,
    /// Slots of the first chunk whose rows are open no longer.
    covered: usize,
}

impl std::fmt::Debug for OpenList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(
                self.iter(CommitNo(u64::MAX))
                    .map(|r| (r.commit, r.part.rows)),
            )
            .finish()
    }
}

impl OpenList {
    /// A list of these rows alone, in commit order.
    pub(crate) fn of(rows: impl Iterator<Item = OpenRows>) -> Self {
        let chunk: Chunk = rows.map(OnceLock::from).collect();
        let chunks = if chunk.is_empty() {
            Arc::default()
        } else {
            [chunk].into()
        };
        Self { chunks, covered: 0 }
    }

    /// The rows of commits up to `visible`, in commit order.
    pub(crate) fn iter(&self, visible: CommitNo) -> impl Iterator<Item = &OpenRows> {
        self.slots()
            .flat_map(|slots| slots.iter().map_while(OnceLock::get))
            .take_while(move |rows| rows.commit <= visible)
    }

    /// The slots of each chunk.
    fn slots(&self) -> impl Iterator<Item = &[OnceLock<OpenRows>]> {
        let covered = std::iter::once(self.covered).chain(std::iter::repeat(0));
        let chunks = self.chunks.iter().zip(covered);
        chunks.map(|(chunk, covered)| &chunk[covered..])
    }

    /// The list without the rows of commits up to `covered`.
    pub(crate) fn after(&self, covered: CommitNo) -> Self {
        let is_open = |slot: &OnceLock<OpenRows>| slot.get().is_some_and(|r| r.commit > covered);
        let positions = self.slots().map(|slots| slots.iter().position(is_open));
        let mut found = positions
            .enumerate()
            .filter_map(|(index, at)| Some((index, at?)));
        let Some((first, at)) = found.next() else {
            return Self::default();
        };
        let before = if first == 0 { self.covered } else { 0 };
        Self {
            chunks: self.chunks[first..].into(),
            covered: before + at,
        }
    }
}

/// The writer's end of an [`OpenList`].
pub(crate) struct OpenTail {
    chunk: Chunk,
    slot: usize,
    /// Of the rows in the chunk.
    bytes: usize,
}

impl OpenTail {
    /// The end of a list that got another chunk: `items` is how many the list has.
    pub(crate) fn extend(list: &mut OpenList, items: usize) -> Self {
        let slots = items.clamp(MIN_SLOTS, CHUNK_SLOTS);
        let chunk: Chunk = (0..slots).map(|_| OnceLock::new()).collect();
        list.chunks = list
            .chunks
            .iter()
            .cloned()
            .chain([Arc::clone(&chunk)])
            .collect();
        Self {
            chunk,
            slot: 0,
            bytes: 0,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.slot < self.chunk.len() && self.bytes < CHUNK_BYTES
    }

    /// Appends; readers see it once their `visible` reaches the commit.
    pub(crate) fn push(&mut self, rows: OpenRows) {
        self.bytes += rows.part.payload.len();
        let fresh = self.chunk[self.slot].set(rows).is_ok();
        assert!(fresh, "an open list has one writer");
        self.slot += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use bytes::Bytes;
    use std::sync::Weak;

    /// As `Working` does it.
    #[derive(Default)]
    struct Writer {
        list: OpenList,
        tail: Option<OpenTail>,
        items: usize,
        /// How many states there were.
        states: usize,
    }

    impl Writer {
        fn push(&mut self, commit: u64, payload: Bytes) {
            let tail = match self.tail.take().filter(OpenTail::has_room) {
                Some(tail) => tail,
                None => {
                    self.states += 1;
                    OpenTail::extend(&mut self.list, self.items)
                }
            };
            let tail = self.tail.insert(tail);
            self.items += 1;
            let part = RowsPart {
                table: TableId(1),
                definition_version: 1,
                rows: 1,
                key_min: 0,
                key_max: 0,
                payload,
            };
            tail.push(OpenRows {
                commit: CommitNo(commit),
                begins_section: false,
                number: 0,
                part,
            });
        }

        fn cover(&mut self, covered: u64) {
            self.list = self.list.after(CommitNo(covered));
            self.items = self.list.iter(CommitNo(u64::MAX)).count();
            if self.items == 0 {
                self.tail = None;
            }
        }
    }

    fn seen(list: &OpenList, visible: u64) -> Vec<u64> {
        list.iter(CommitNo(visible)).map(|r| r.commit.0).collect()
    }

    #[test]
    fn readers_see_a_prefix_and_keep_what_was_covered() {
        let mut writer = Writer::default();
        (1..=1000).for_each(|c| writer.push(c, Bytes::new()));
        let old = writer.list.clone();
        assert_eq!(seen(&old, 700), (1..=700).collect::<Vec<_>>());
        writer.cover(512);
        assert_eq!(seen(&writer.list, 1000), (513..=1000).collect::<Vec<_>>());
        writer.push(1001, Bytes::new());
        assert_eq!(
            seen(&writer.list, u64::MAX),
            (513..=1001).collect::<Vec<_>>()
        );
        writer.cover(1001);
        assert_eq!(seen(&writer.list, u64::MAX), Vec::<u64>::new());
        assert!(writer.list.chunks.is_empty(), "an idle table has no chunk");
        writer.push(1002, Bytes::new());
        assert_eq!(seen(&writer.list, u64::MAX), [1002]);
        assert_eq!(seen(&old, 1000), (1..=1000).collect::<Vec<_>>());
    }

    #[test]
    fn chunks_that_closed_before_their_last_slot_are_read_to_the_next() {
        let mut writer = Writer::default();
        (1..=100).for_each(|c| writer.push(c, Bytes::from(vec![0; CHUNK_BYTES / 3])));
        assert_eq!(seen(&writer.list, u64::MAX), (1..=100).collect::<Vec<_>>());
        writer.cover(50);
        assert_eq!(seen(&writer.list, 90), (51..=90).collect::<Vec<_>>());
    }

    #[test]
    fn an_old_state_keeps_one_chunk_of_what_came_later() {
        struct Counted(Arc<()>, Vec<u8>);
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                let _ = &self.0;
                &self.1
            }
        }
        for bytes in [8, 40_000] {
            let mut writer = Writer::default();
            let mut payloads: Vec<Weak<()>> = Vec::new();
            let mut old = OpenList::default();
            for commit in 1..=20_000 {
                let token = Arc::new(());
                payloads.push(Arc::downgrade(&token));
                writer.push(commit, Bytes::from_owner(Counted(token, vec![0; bytes])));
                if commit == 10 {
                    old = writer.list.clone();
                }
                if commit % 4_096 == 0 {
                    writer.cover(commit);
                }
            }
            writer.cover(20_000);
            let alive = payloads.iter().filter(|p| p.strong_count() > 0).count();
            assert!(
                alive >= 10 && alive <= 10 + CHUNK_SLOTS.min(CHUNK_BYTES / bytes + 1),
                "{alive}"
            );
            assert_eq!(seen(&old, 10).len(), 10);
        }
    }

    #[test]
    fn states_are_few_and_small_lists_are_small() {
        let mut writer = Writer::default();
        writer.push(1, Bytes::new());
        assert_eq!(writer.list.chunks[0].len(), MIN_SLOTS);
        (2..=100_000).for_each(|c| writer.push(c, Bytes::new()));
        assert!(
            writer.states <= 10 + 100_000 / CHUNK_SLOTS,
            "{}",
            writer.states
        );
    }
}
