//! The rows of a table that lie raw in their frames, not yet in a block: an append-only list that readers walk without
//! a lock.
//!
//! Invariants: one writer (the leader of the commit queue) appends; an item is complete before it can be seen, because
//! its slot is a `OnceLock`; items rise by commit. A reader sees a prefix: it stops at the first empty slot or at the
//! first commit above its snapshot's. Covering rows moves the head of *newer* table states forward; older snapshots
//! keep the chunks they started from alive.
//!
//! Rejected: a `Vec` behind a lock (a slow reader would hold up the writer) and a fresh `Arc<[_]>` per commit
//! (copying the list for each of a million rows a second).

use crate::commit::RowsPart;
use crate::ids::CommitNo;
use std::sync::{Arc, OnceLock};

/// Slots in a chunk: large enough that the chain stays short, small enough that an idle table costs little.
const CHUNK_SLOTS: usize = 128;

/// The rows of one commit of one table.
#[derive(Clone, Debug)]
pub struct OpenRows {
    /// Their commit.
    pub commit: CommitNo,
    /// The rows.
    pub part: RowsPart,
}

struct Chunk {
    slots: [OnceLock<OpenRows>; CHUNK_SLOTS],
    next: OnceLock<Arc<Chunk>>,
}

impl Chunk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: [const { OnceLock::new() }; CHUNK_SLOTS],
            next: OnceLock::new(),
        })
    }
}

impl Drop for Chunk {
    // A long chain must not be dropped by recursion.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(chunk) = next {
            next = match Arc::try_unwrap(chunk) {
                Ok(mut last_owner) => last_owner.next.take(),
                Err(_) => None,
            };
        }
    }
}

/// Where a table state's open rows begin.
#[derive(Clone)]
pub(crate) struct OpenList {
    chunk: Arc<Chunk>,
    slot: usize,
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
    /// An empty list and the end that its writer appends to.
    pub(crate) fn new() -> (Self, OpenTail) {
        let chunk = Chunk::new();
        (
            Self {
                chunk: Arc::clone(&chunk),
                slot: 0,
            },
            OpenTail { chunk, slot: 0 },
        )
    }

    /// The rows of commits up to `visible`, in commit order.
    pub(crate) fn iter(&self, visible: CommitNo) -> impl Iterator<Item = &OpenRows> {
        let mut at: Option<(&Chunk, usize)> = Some((&self.chunk, self.slot));
        std::iter::from_fn(move || {
            let (mut chunk, mut slot) = at?;
            if slot == CHUNK_SLOTS {
                (chunk, slot) = (chunk.next.get()?, 0);
            }
            let rows = chunk.slots[slot]
                .get()
                .filter(|rows| rows.commit <= visible)?;
            at = Some((chunk, slot + 1));
            Some(rows)
        })
    }

    /// The list behind the rows of commits up to `covered`.
    pub(crate) fn after(&self, covered: CommitNo) -> Self {
        let mut at = self.clone();
        loop {
            if at.slot == CHUNK_SLOTS {
                let Some(next) = at.chunk.next.get() else {
                    return at;
                };
                at = Self {
                    chunk: Arc::clone(next),
                    slot: 0,
                };
            }
            match at.chunk.slots[at.slot].get() {
                Some(rows) if rows.commit <= covered => at.slot += 1,
                _ => return at,
            }
        }
    }
}

/// The writer's end of an [`OpenList`].
pub(crate) struct OpenTail {
    chunk: Arc<Chunk>,
    slot: usize,
}

impl OpenTail {
    /// Appends; readers see it once their `visible` reaches the commit.
    pub(crate) fn push(&mut self, rows: OpenRows) {
        if self.slot == CHUNK_SLOTS {
            let next = Chunk::new();
            let fresh = self.chunk.next.set(Arc::clone(&next)).is_ok();
            assert!(fresh, "an open list has one writer");
            *self = Self {
                chunk: next,
                slot: 0,
            };
        }
        let fresh = self.chunk.slots[self.slot].set(rows).is_ok();
        assert!(fresh, "an open list has one writer");
        self.slot += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;

    fn rows(commit: u64) -> OpenRows {
        let part = RowsPart {
            table: TableId(1),
            definition_version: 1,
            rows: 1,
            key_min: 0,
            key_max: 0,
            payload: bytes::Bytes::new(),
        };
        OpenRows {
            commit: CommitNo(commit),
            part,
        }
    }

    fn seen(list: &OpenList, visible: u64) -> Vec<u64> {
        list.iter(CommitNo(visible)).map(|r| r.commit.0).collect()
    }

    #[test]
    fn readers_see_a_prefix_and_keep_what_was_covered() {
        let (old, mut tail) = OpenList::new();
        (1..=1000).for_each(|c| tail.push(rows(c)));
        assert_eq!(seen(&old, 700), (1..=700).collect::<Vec<_>>());
        let newer = old.after(CommitNo(512));
        assert_eq!(seen(&newer, 1000), (513..=1000).collect::<Vec<_>>());
        let empty = newer.after(CommitNo(1000));
        assert_eq!(seen(&empty, u64::MAX), Vec::<u64>::new());
        tail.push(rows(1001));
        assert_eq!(seen(&empty, u64::MAX), [1001]);
        assert_eq!(seen(&old, u64::MAX).len(), 1001);
    }

    #[test]
    fn a_long_chain_is_dropped_without_recursion() {
        let (list, mut tail) = OpenList::new();
        (1..=400_000).for_each(|c| tail.push(rows(c)));
        drop(list);
    }
}
