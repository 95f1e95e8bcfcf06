//! The summaries of an entry, with the bounds of strings beside them.
//!
//! Invariants: columns ascend by id; a summary of strings with values has bounds, which are of a fixed size as well: entries of
//! a page share two arrays, and merging allocates nothing for a column that is known. Readers of numbers never touch bounds.

use super::MAX_SUMMARIES;
use crate::summary::{ByteBounds, ColumnSummary, SummaryKind};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The ids from here on are those of system columns (docs/format/rows.md).
const FIRST_SYSTEM_COLUMN: u32 = 0xFF_FF00;

/// Summaries that are being put together.
#[derive(Clone, Debug, Default)]
pub struct SummaryList {
    columns: Vec<ColumnSummary>,
    /// The bounds of strings with values, whose summaries have the place in this list in `min`.
    bounds: Vec<ByteBounds>,
}

impl SummaryList {
    /// An empty list with room for `columns`.
    pub(super) fn with_capacity(columns: usize) -> Self {
        Self {
            columns: Vec::with_capacity(columns),
            bounds: Vec::new(),
        }
    }

    /// How many columns there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is no column.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds a column after the others. Strings without `bounds` get unknown ones.
    pub fn push(&mut self, mut column: ColumnSummary, bounds: Option<ByteBounds>) {
        if has_bounds(&column) {
            column.min = self.add_bounds(bounds.unwrap_or(ByteBounds::UNKNOWN));
        }
        self.columns.push(column);
    }

    fn add_bounds(&mut self, bounds: ByteBounds) -> u64 {
        self.bounds.push(bounds);
        self.bounds.len() as u64 - 1
    }

    /// Merges the summaries of other rows into these. A column of one side only keeps its summary, which then covers fewer
    /// rows than the whole.
    pub(super) fn merge(&mut self, from: &Summaries) {
        let has_same_columns =
            self.columns.len() == from.len() && { self.columns.iter().zip(from.iter()) }
                .all(|(a, b)| a.column_id == b.column_id);
        if has_same_columns {
            for (at, other) in from.iter().enumerate() {
                self.merge_column(at, other, from);
            }
        } else {
            self.merge_other_columns(from);
        }
    }

    fn merge_column(&mut self, at: usize, other: &ColumnSummary, from: &Summaries) {
        let known = self.columns[at];
        let mut merged = known.merge(other);
        if has_bounds(&merged) {
            let bounds = from.bounds_of(other);
            merged.min = match (has_bounds(&known), bounds) {
                (true, Some(bounds)) => {
                    let place = &mut self.bounds[place(&known)];
                    *place = place.merge(bounds);
                    known.min
                }
                (true, None) => known.min,
                (false, bounds) => self.add_bounds(bounds.copied().unwrap_or(ByteBounds::UNKNOWN)),
            };
        }
        self.columns[at] = merged;
    }

    fn merge_other_columns(&mut self, from: &Summaries) {
        let known = std::mem::take(&mut self.columns);
        let mut left = known.iter().peekable();
        let mut right = from.iter().peekable();
        while let Some(id) = lowest_id(left.peek(), right.peek()) {
            let mine = left.next_if(|column| column.column_id == id);
            let other = right.next_if(|column| column.column_id == id);
            match (mine, other) {
                (Some(mine), other) => {
                    self.columns.push(*mine);
                    if let Some(other) = other {
                        self.merge_column(self.columns.len() - 1, other, from);
                    }
                }
                (None, Some(other)) => self.push(*other, from.bounds_of(other).copied()),
                (None, None) => break,
            }
        }
        self.leave_out_columns();
    }

    /// Keeps as many columns as may be summarised: those of the system, and those with the lowest ids.
    fn leave_out_columns(&mut self) {
        let excess = self.columns.len().saturating_sub(MAX_SUMMARIES);
        if excess > 0 {
            let of_system = { self.columns.iter().rev() }
                .take_while(|column| column.column_id >= FIRST_SYSTEM_COLUMN)
                .count();
            let first = MAX_SUMMARIES - of_system;
            self.columns.drain(first..first + excess);
        }
    }
}

impl From<&Summaries> for SummaryList {
    fn from(columns: &Summaries) -> Self {
        let mut list = Self::with_capacity(columns.len());
        if columns.has_no_bounds() {
            list.columns.extend_from_slice(columns);
        } else {
            { columns.iter() }
                .for_each(|column| list.push(*column, columns.bounds_of(column).copied()));
        }
        list
    }
}

impl FromIterator<(ColumnSummary, Option<ByteBounds>)> for SummaryList {
    fn from_iter<I: IntoIterator<Item = (ColumnSummary, Option<ByteBounds>)>>(columns: I) -> Self {
        let mut list = Self::default();
        { columns.into_iter() }.for_each(|(column, bounds)| list.push(column, bounds));
        list
    }
}

fn lowest_id(a: Option<&&ColumnSummary>, b: Option<&&ColumnSummary>) -> Option<u32> {
    let ids = a.into_iter().chain(b);
    ids.map(|column| column.column_id).min()
}

/// Whether bounds belong to a summary.
fn has_bounds(column: &ColumnSummary) -> bool {
    column.kind == SummaryKind::Bytes && column.value_rows > 0
}

/// Where the bounds of a summary lie that has some.
fn place(column: &ColumnSummary) -> usize {
    usize::try_from(column.min).unwrap_or(usize::MAX)
}

/// The summaries of one entry: a part of shared arrays, so that a page of 256 entries is two allocations.
#[derive(Clone, Default)]
pub struct Summaries {
    /// `None` for no summaries: an entry without them, or one that gets them later, allocates nothing.
    shared: Option<Arc<SummaryList>>,
    start: u32,
    len: u32,
}

impl Summaries {
    /// A part of a list that is not whole yet: without summaries until [`Self::share`].
    pub(super) fn part_to_come(range: std::ops::Range<usize>) -> Self {
        let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            shared: None,
            start: index(range.start),
            len: index(range.len()),
        }
    }

    /// Makes this a part of a list that other entries share.
    ///
    /// # Panics
    /// When the list has no such part.
    pub(super) fn share(&mut self, shared: &Arc<SummaryList>) {
        let end = (self.start as usize).saturating_add(self.len as usize);
        let has_part = end <= shared.len() && end < u32::MAX as usize;
        assert!(
            has_part,
            "part {}..{end} of {} summaries",
            self.start,
            shared.len()
        );
        self.shared = Some(Arc::clone(shared));
    }

    /// The summary of a column.
    #[must_use]
    pub fn of_column(&self, column_id: u32) -> Option<&ColumnSummary> {
        let columns: &[ColumnSummary] = self;
        let is_it = |summary: &&ColumnSummary| summary.column_id == column_id;
        // Columns are numbered from 1 on, and mostly all of them have one. A search would touch a cache line for each step.
        let expected = columns.get((column_id as usize).wrapping_sub(1));
        expected.filter(is_it).or_else(|| {
            let at = columns
                .binary_search_by_key(&column_id, |summary| summary.column_id)
                .ok()?;
            columns.get(at)
        })
    }

    /// The bounds that belong to one of these summaries: of strings and binaries with values.
    #[must_use]
    pub fn bounds_of(&self, column: &ColumnSummary) -> Option<&ByteBounds> {
        let shared = self.shared.as_ref().filter(|_| has_bounds(column))?;
        shared.bounds.get(place(column))
    }

    fn has_no_bounds(&self) -> bool {
        { self.shared.as_ref() }.is_none_or(|shared| shared.bounds.is_empty())
    }

    /// About what the summaries take in memory. (Bounds that a merge has left unused are not counted.)
    pub(super) fn memory_bytes(&self) -> usize {
        let bounds = if self.has_no_bounds() {
            0
        } else {
            self.iter().filter(|column| has_bounds(column)).count()
        };
        self.len() * size_of::<ColumnSummary>() + bounds * size_of::<ByteBounds>()
    }
}

impl Deref for Summaries {
    type Target = [ColumnSummary];

    fn deref(&self) -> &[ColumnSummary] {
        match &self.shared {
            Some(shared) => &shared.columns[self.start as usize..][..self.len as usize],
            None => &[],
        }
    }
}

impl From<SummaryList> for Summaries {
    fn from(columns: SummaryList) -> Self {
        let mut all = Self::part_to_come(0..columns.len());
        if !columns.is_empty() {
            all.share(&Arc::new(columns));
        }
        all
    }
}

impl FromIterator<ColumnSummary> for Summaries {
    fn from_iter<I: IntoIterator<Item = ColumnSummary>>(columns: I) -> Self {
        let list: SummaryList = columns.into_iter().map(|column| (column, None)).collect();
        list.into()
    }
}

impl From<Vec<ColumnSummary>> for Summaries {
    fn from(columns: Vec<ColumnSummary>) -> Self {
        if columns.iter().any(has_bounds) {
            return columns.into_iter().collect();
        }
        let bounds = Vec::new();
        SummaryList { columns, bounds }.into()
    }
}

impl PartialEq for Summaries {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
            && (self.has_no_bounds() && other.has_no_bounds() || { self.iter().zip(other.iter()) }
                .all(|(a, b)| self.bounds_of(a) == other.bounds_of(b)))
    }
}

impl fmt::Debug for Summaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounded = self.iter().map(|column| (column, self.bounds_of(column)));
        f.debug_list().entries(bounded).finish()
    }
}
