//! Whether pages and the entries that lead to them agree.

use super::page::{Child, Page, PageLoader, check_children};
use super::{Entry, Summaries};
use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::summary::{ColumnSummary, SummaryKind};
use std::sync::Arc;

/// Checks that a verified page agrees with the entry that leads to it.
pub(crate) fn check_page(entry: &Entry, page: &Page) -> Result<()> {
    let wrong = |what: &str| Error::corruption(entry.address, what);
    for below in page.entries() {
        below.check().map_err(wrong)?;
    }
    unequal_totals(entry, &page.total()).map_or(Ok(()), |what| Err(wrong(what)))
}

pub(super) fn check_child(
    table: TableId,
    child: &Child,
    loader: &dyn PageLoader,
    pages: &mut u64,
) -> Result<()> {
    let entry = &child.entry;
    let wrong = |what: &str| {
        let place = child.addressed().unwrap_or_else(|| entry.clone()).address;
        Err(Error::corruption(
            place,
            format_args!("the index of table {} contradicts itself: {what}", table.0),
        ))
    };
    if let Err(what) = entry.check() {
        return wrong(what);
    }
    if entry.is_block() {
        return Ok(());
    }
    let page = match &child.page {
        Some(page) => Arc::clone(page),
        None => loader.load_page(table, entry)?,
    };
    *pages += 1;
    if page.table() != table || page.level() != entry.level {
        return wrong("a page has another table or level than its entry says");
    }
    if !page.is_within_limits() {
        return wrong("a page is too large");
    }
    if let Err(what) = check_children(page.level(), page.entries()) {
        return wrong(what);
    }
    if page.address().is_some()
        && page
            .children()
            .iter()
            .any(|below| below.addressed().is_none())
    {
        return wrong("a page was written before one below it");
    }
    if let Some(what) = unequal_totals(entry, &page.total()) {
        return wrong(what);
    }
    page.children()
        .iter()
        .try_for_each(|below| check_child(table, below, loader, pages))
}

/// Compares the entry of a page with what its entries add up to; returns the difference. Float sums may differ by their
/// rounding.
pub(crate) fn unequal_totals(entry: &Entry, sum: &Entry) -> Option<&'static str> {
    let inherits = entry.commit_max.0 > 0 && sum.commit_max.0 == 0;
    let commits = |entry: &Entry| {
        (
            entry.commit_min,
            entry.commit_max,
            entry.first_commit,
            entry.ordinal,
        )
    };
    if (entry.rows, entry.blocks, entry.block_bytes) != (sum.rows, sum.blocks, sum.block_bytes) {
        return Some("counts do not add up");
    }
    if (entry.key_min, entry.key_max) != (sum.key_min, sum.key_max) {
        return Some("key ranges do not add up");
    }
    if !inherits && commits(entry) != commits(sum) {
        return Some("commits do not add up");
    }
    let last = match inherits && sum.is_page_in_order() {
        true => {
            // The first of the numbers that the blocks of the fragment take. The entry of its root has it, whatever the number of
            // the first block is.
            let first = match entry.fragment {
                true => entry.ordinal,
                false => entry.ordinal.saturating_sub(sum.ordinal),
            };
            sum.last.after(entry.first_commit, first)
        }
        false => sum.last,
    };
    if (entry.sorted, entry.last, entry.fragments) != (sum.sorted, last, sum.fragments) {
        return Some("the order of blocks does not add up");
    }
    let flags = |entry: &Entry| (entry.versions, entry.rewritten, entry.block_keys);
    if flags(entry) != flags(sum) {
        return Some("the flags of blocks do not add up");
    }
    (!have_equal_totals(&entry.columns, &sum.columns)).then_some("summaries do not add up")
}

/// Whether two entries summarise the same rows. Float sums may differ by their rounding.
fn have_equal_totals(a: &Summaries, b: &Summaries) -> bool {
    let exact = |column: &ColumnSummary| {
        let is_float = column.kind == SummaryKind::Float;
        ColumnSummary {
            sum: if is_float { 0 } else { column.sum },
            m2: 0.0,
            ..*column
        }
    };
    a.len() == b.len() && { a.iter().zip(b.iter()) }
        .all(|(x, y)| exact(x) == exact(y) && a.bounds_of(x) == b.bounds_of(y))
}
