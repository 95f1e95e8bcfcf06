//! The sweep: rows in key order out of blocks that overlap, while they are decoded ahead.
//!
//! Invariants: sources come in ascending (key, arrival) of their first rows. Before the rows of a source are added, every
//! active row that precedes its first row has been handed out, so what is handed out is final. A source that is *alone*
//! precedes everything after it and follows everything before it: its rows pass through untouched, without their keys
//! being known. Memory is bounded by the rows of the sources that overlap at one key and those decoded ahead.

use crate::arrival::Arrival;
use crate::pool::{Pool, Ticket};
use crate::scan::BatchSource;
use crate::scan::merge::{Sorted, merge};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_kernel::{Error, Result};

/// So many overlapping sources are active before small merged batches are handed out to make room.
const MAX_ACTIVE: usize = 64;

/// Rows to come.
pub(crate) struct Source {
    /// The smallest key, and when the first row with it arrived.
    pub(crate) first: (i64, Arrival),
    /// About how many rows.
    pub(crate) rows: usize,
    pub(crate) content: Content,
}

/// The rows of a source, decoded or not.
pub(crate) enum Content {
    /// No other source has rows between the first and the last of these.
    Alone(Ticket<Result<Vec<RecordBatch>>>),
    /// Others may.
    Merge(Ticket<Result<Sorted>>),
}

/// Finds sources one after the other.
pub(crate) trait Plan: Send {
    /// The next source.
    fn next_source(&mut self) -> Result<Option<Source>>;
}

/// Batches in key order from sources that overlap.
pub(crate) struct Sweep<P> {
    plan: Option<P>,
    pool: Arc<Pool>,
    schema: SchemaRef,
    ahead: VecDeque<Source>,
    ahead_rows: usize,
    /// Rows to decode ahead; 0 decodes nothing before it is needed.
    max_ahead_rows: usize,
    active: Vec<Active>,
    /// Of a source that is alone: in order, next to be handed out.
    ready: VecDeque<RecordBatch>,
    /// Merged batches of fewer rows wait for more.
    fair_rows: usize,
}

struct Active {
    rows: Sorted,
    done: usize,
}

impl Active {
    /// How many rows come before a row with this key and arrival; all that are left for `None`.
    fn rows_before(&self, next: Option<(i64, Arrival)>) -> usize {
        match next {
            Some((key, arrival)) => self.rows.rows_before(self.done, key, arrival),
            None => self.rows.keys.len() - self.done,
        }
    }
}

impl<P: Plan> Sweep<P> {
    /// A sweep over the sources of `plan` that decodes up to `max_ahead_rows` ahead.
    pub(crate) fn new(
        plan: P,
        schema: SchemaRef,
        pool: Arc<Pool>,
        max_ahead_rows: usize,
        fair_rows: usize,
    ) -> Self {
        Self {
            plan: Some(plan),
            pool,
            schema,
            ahead: VecDeque::new(),
            ahead_rows: 0,
            max_ahead_rows,
            active: Vec::new(),
            ready: VecDeque::new(),
            fair_rows,
        }
    }

    /// Plans until there is a source, and enough work for the other threads.
    fn look_ahead(&mut self) -> Result<()> {
        while let Some(plan) = &mut self.plan
            && (self.ahead.is_empty() || self.ahead_rows < self.max_ahead_rows)
        {
            let Some(source) = plan.next_source()? else {
                self.plan = None;
                break;
            };
            self.ahead_rows += source.rows;
            // The first source is needed at once: waking a worker for it takes longer than most short scans.
            if self.max_ahead_rows > 0 && !self.ahead.is_empty() {
                match &source.content {
                    Content::Alone(ticket) => self.pool.submit(ticket),
                    Content::Merge(ticket) => self.pool.submit(ticket),
                }
            }
            self.ahead.push_back(source);
        }
        Ok(())
    }

    fn take_next(&mut self) -> Option<Source> {
        let source = self.ahead.pop_front()?;
        self.ahead_rows -= source.rows;
        Some(source)
    }

    /// Hands out so many rows of each active source. Only these are cut out: to slice every active source at every
    /// step would cost more than the rows where many sources overlap.
    fn hand_out(&mut self, counts: &[usize]) -> Result<RecordBatch> {
        let mut pieces = Vec::new();
        let settled = self.active.iter_mut().zip(counts);
        for (active, rows) in settled.filter(|(_, rows)| **rows > 0) {
            pieces.push(active.rows.slice(active.done, *rows));
            active.done += rows;
        }
        self.active
            .retain(|active| active.done < active.rows.keys.len());
        merge(&self.schema, &pieces)
    }

    /// Waits for a source; its rows are then ready or active.
    fn enter(&mut self, source: Source) -> Result<()> {
        match source.content {
            Content::Alone(ticket) => {
                // By the index nothing overlaps it, so the index does not describe these rows.
                if !self.active.is_empty() {
                    let what = "the index names other keys than the blocks below it have";
                    return Err(Error::corruption("the index of the table", what));
                }
                let others = self.ahead.iter().filter_map(|other| match &other.content {
                    Content::Alone(ticket) => Some(ticket),
                    Content::Merge(_) => None,
                });
                self.ready.extend(ticket.wait_helping(others)?);
            }
            Content::Merge(ticket) => {
                let others = self.ahead.iter().filter_map(|other| match &other.content {
                    Content::Merge(ticket) => Some(ticket),
                    Content::Alone(_) => None,
                });
                let rows = ticket.wait_helping(others)?;
                if !rows.keys.is_empty() {
                    self.active.push(Active { rows, done: 0 });
                }
            }
        }
        Ok(())
    }
}

impl<P: Plan> BatchSource for Sweep<P> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            self.look_ahead()?;
            let next = self.ahead.front().map(|source| source.first);
            let counts = self.active.iter().map(|active| active.rows_before(next));
            let settled: Vec<usize> = counts.collect();
            let rows: usize = settled.iter().sum();
            let may_grow = self.active.len() < MAX_ACTIVE
                && matches!(
                    self.ahead.front(),
                    Some(Source {
                        content: Content::Merge(_),
                        ..
                    })
                );
            if rows > 0 && (rows >= self.fair_rows || !may_grow) {
                return self.hand_out(&settled).map(Some);
            }
            let Some(source) = self.take_next() else {
                return Ok(None);
            };
            self.enter(source)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::merge::test_rows::{pieces as blocks, schema};
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use proptest::prelude::*;
    use thalweg_env::Env;

    struct Given(VecDeque<Source>);

    impl Plan for Given {
        fn next_source(&mut self) -> Result<Option<Source>> {
            Ok(self.0.pop_front())
        }
    }

    fn numbers(batches: &[RecordBatch]) -> Vec<u32> {
        let column = |batch: &RecordBatch| {
            batch
                .column(0)
                .as_primitive::<UInt32Type>()
                .values()
                .to_vec()
        };
        batches.iter().flat_map(column).collect()
    }

    proptest! {
        #[test]
        fn a_sweep_is_a_stable_sort(
            keys in prop::collection::vec(prop::collection::vec(0_i64..60, 1..20), 0..12),
            spread in 0_i64..30,
            fair_rows in 1_usize..40,
            threads in 0_usize..3,
        ) {
            let spaced = keys.into_iter().zip(0..).map(|(keys, n)| keys.into_iter().map(|key| key / 4 + n * spread).collect());
            let blocks = blocks(spaced.collect());
            let mut expected: Vec<(i64, u32)> = Vec::new();
            for block in &blocks {
                expected.extend(block.keys.iter().copied().zip(numbers(std::slice::from_ref(&block.batch))));
            }
            expected.sort_by_key(|(key, _)| *key);
            let mut sorted = blocks;
            sorted.sort_by_key(|block| (block.keys[0], block.arrival));
            let pool = Arc::new(Pool::new(Env::os(), threads));
            let sources = sorted.into_iter().map(|block| Source {
                first: (block.keys[0], block.arrival),
                rows: block.keys.len(),
                content: Content::Merge(Ticket::new(move || Ok(block))),
            });
            let mut sweep = Sweep::new(Given(sources.collect()), schema(), pool, threads * 10, fair_rows);
            let mut batches = Vec::new();
            while let Some(batch) = sweep.next_batch().unwrap() {
                prop_assert!(batch.num_rows() > 0);
                batches.push(batch);
            }
            prop_assert_eq!(numbers(&batches), expected.iter().map(|(_, n)| *n).collect::<Vec<_>>());
        }
    }
}
