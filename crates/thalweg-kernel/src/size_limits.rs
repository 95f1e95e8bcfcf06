//! Limits that blocks, index pages and commits share.
//!
//! Invariant: without the feature `broken-rules`, which only tests select, these are constants. With it a test chooses small
//! index pages, so that few blocks make a high tree.

/// Most positions of a block.
pub const MAX_POSITIONS: u32 = 1 << 24;

/// Most entries of an index page. (Small in this crate's unit tests, so that few blocks make a high tree.)
pub const MAX_PAGE_ENTRIES: usize = if cfg!(test) { 8 } else { 256 };

/// The most entries of an index page that is written.
#[cfg(not(feature = "broken-rules"))]
pub(crate) const fn page_entries() -> usize {
    MAX_PAGE_ENTRIES
}

/// The most entries of an index page that is written.
#[cfg(feature = "broken-rules")]
pub(crate) fn page_entries() -> usize {
    PAGE_ENTRIES.get()
}

#[cfg(feature = "broken-rules")]
thread_local! {
    static PAGE_ENTRIES: std::cell::Cell<usize> =
        const { std::cell::Cell::new(MAX_PAGE_ENTRIES) };
}

/// Limits the entries of index pages in this thread and in those of the databases that it opens from now on. Whoever else commits,
/// or reads as another process, must have the same limit: files go that the trees of the writer do not need. Pages of up to
/// [`MAX_PAGE_ENTRIES`] are read all the same.
///
/// # Panics
/// Below 4: pages of fewer entries cannot be both split and joined.
#[cfg(feature = "broken-rules")]
pub fn limit_page_entries(entries: usize) {
    assert!(
        (4..=MAX_PAGE_ENTRIES).contains(&entries),
        "pages of {entries} entries"
    );
    PAGE_ENTRIES.set(entries);
}

/// Most bytes of index pages that one commit makes anew, as `Tree::changed_bytes` counts them: it bounds what a checkpoint
/// writes, and what a replay reads.
const CHANGED_LIMIT_BYTES: u64 = 256 << 20;

/// The most bytes of index pages that one commit makes anew.
#[cfg(not(feature = "broken-rules"))]
pub(crate) const fn changed_limit_bytes() -> u64 {
    CHANGED_LIMIT_BYTES
}

/// The most bytes of index pages that one commit makes anew.
#[cfg(feature = "broken-rules")]
pub(crate) fn changed_limit_bytes() -> u64 {
    CHANGED_BYTES.get()
}

#[cfg(feature = "broken-rules")]
thread_local! {
    static CHANGED_BYTES: std::cell::Cell<u64> =
        const { std::cell::Cell::new(CHANGED_LIMIT_BYTES) };
}

/// Limits the bytes of index pages that one commit makes anew, in this thread and in those of the databases that it opens from
/// now on. What is stored is the same as without.
#[cfg(feature = "broken-rules")]
pub fn limit_changed_bytes(bytes: u64) {
    CHANGED_BYTES.set(bytes);
}
