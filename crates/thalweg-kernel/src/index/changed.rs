//! The bytes of index pages that a change makes anew, which bound one commit (docs/format/index.md, "How much a commit changes").

use super::EntryKey;
use super::changes::{Changes, Part, Run};
use super::page::{Child, PageLoader, page_of};
use crate::error::Result;
use crate::ids::TableId;
use std::sync::Arc;

/// The bytes of all pages to which something of a change belongs; for those from which something goes also twice the longest
/// page below the same one, for they may be joined with pages before and after them.
pub(super) fn changed_bytes(
    table: TableId,
    root: Option<&Arc<Child>>,
    (removed, runs): (&[EntryKey], &[Run]),
    added: impl IntoIterator<Item = EntryKey>,
    loader: &dyn PageLoader,
) -> Result<u64> {
    let changes = Changes::of_keys(removed, runs, added)?;
    match root {
        Some(root) if !changes.is_empty() => below(table, root, &changes.whole(), loader),
        _ => Ok(0),
    }
}

fn below(table: TableId, child: &Child, part: &Part<'_>, loader: &dyn PageLoader) -> Result<u64> {
    let mut bytes = child.page_bytes();
    if child.entry.level <= 1 {
        return Ok(bytes);
    }
    let page = page_of(table, child, loader)?;
    let children = page.children();
    let mut longest = None;
    for (at, mine) in part.among(children) {
        if mine.run_over(&children[at].entry).is_some() {
            continue;
        }
        bytes += below(table, &children[at], &mine, loader)?;
        if mine.removes() {
            let lengths = || children.iter().map(|child| child.page_bytes()).max();
            bytes += 2 * *longest.get_or_insert_with(|| lengths().unwrap_or(0));
        }
    }
    Ok(bytes)
}
