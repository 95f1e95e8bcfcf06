//! The rules of the log, which tests break one at a time: a rule that no test misses is none.
//!
//! Invariant: without the feature `broken-rules`, which only tests select, every rule is kept and asking costs nothing.

#[cfg(feature = "broken-rules")]
use crate::size_limits::{
    changed_limit_bytes, limit_changed_bytes, limit_page_entries, page_entries,
};

thalweg_env::rules! {
    /// A rule of the log (`docs/format/log.md`).
    Rule {
        /// Frames of another epoch do not count.
        Epoch,
        /// A frame continues the one whose header's checksum it names.
        Chain,
        /// A chain that ends before a place known to be synced is damaged.
        Proof,
        /// Open rows that a group covers are open no longer.
        CoverDrops,
        /// A cover holds just the rows that it covers, and they must still be open.
        CoverCounts,
        /// Commits that a power cut could take are written again before they are shown.
        RewriteTail,
        /// A new epoch is in both slots of the root before anything of it is acknowledged.
        BothSlots,
        /// The slot of the root that counts is on disk before the other one is written.
        ConfirmRoot,
        /// Checkpoints build on two bases in turn.
        TwoBases,
        /// A checkpoint shares no sector with what lies before it.
        OwnSectors,
        /// A segment is synced before the log goes on in the next one.
        SyncBeforeNext,
        /// The name of a segment is durable before anything goes into it.
        SyncNames,
        /// Reading processes show nothing that a power cut could take, unless it was stored so.
        HideUnsynced,
        /// An item is replaced under its name alone: its key may have been given to another one.
        NamedItems,
        /// Keys into which rows come without their entries are covered by an index no longer.
        LoweredCoverage,
        /// Ranges are complete only if no rows came into them meanwhile without their entries.
        CompleteRanges,
        /// A commit that rewrites rows states how many of them were hidden, and is refused if others are by then.
        HiddenRowsAddUp,
        /// A row is deleted once: who deletes it again is refused.
        NewPositions,
        /// An item leaves with its last row that is not hidden.
        LeavingItems,
        /// Rows that are carried are hidden again in the same commit.
        CarriedHidden,
        /// Masks go with the item or the open rows that they are of.
        MasksGo,
        /// All index pages that a checkpoint writes count as uses of its segment.
        CountedPages,
        /// Runs take out what their maker has found, and nothing that came since.
        RunsOfSnapshot,
        /// Runs that go refuse nobody who replaces other items.
        RunsRefuseNobody,
        /// Bytes that fail their checksum are refused. Without it every byte is taken as it is, as if a hostile
        /// writer had made the checksums right.
        Checksum,
    }
}

/// The broken rule and the page limits of a thread, handed on to the threads that it starts: with different limits, the threads
/// of a database would make different index pages of the same commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    #[cfg(feature = "broken-rules")]
    broken: Option<Rule>,
    #[cfg(feature = "broken-rules")]
    page_entries: usize,
    #[cfg(feature = "broken-rules")]
    changed_limit_bytes: u64,
}

impl Chosen {
    /// By the calling thread.
    pub(crate) fn here() -> Self {
        Self {
            #[cfg(feature = "broken-rules")]
            broken: BROKEN.get(),
            #[cfg(feature = "broken-rules")]
            page_entries: page_entries(),
            #[cfg(feature = "broken-rules")]
            changed_limit_bytes: changed_limit_bytes(),
        }
    }

    /// For the calling thread.
    #[cfg_attr(
        not(feature = "broken-rules"),
        expect(
            clippy::unused_self,
            reason = "there is a choice only where rules can be broken"
        )
    )]
    pub(crate) fn choose(self) {
        #[cfg(feature = "broken-rules")]
        {
            break_rule(self.broken);
            limit_page_entries(self.page_entries);
            limit_changed_bytes(self.changed_limit_bytes);
        }
    }
}
