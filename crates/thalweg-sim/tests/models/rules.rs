//! The rules of the pages as switches: a model that holds with all of them must be violated without any one.

use std::collections::BTreeSet;

/// A rule of `docs/design/next-format/masks.md` or `log.md` beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// An item is what has its key and its fragment (log 18).
    NamesWhole,
    /// Masks go with their item, those of open rows with their cover (masks 5, log 19).
    MasksGo,
    /// Rows left out and carried are those that are hidden (masks 6).
    SumOfHidden,
    /// Edits 8 behind a replacement or cover hide at least the carried rows (masks 6).
    CarriedAreHidden,
    /// Rows that were hidden since a job read them are carried into its result.
    CarryInto,
    /// Masks of a statement are carried over what replaced its items.
    CarryOver,
    /// A carried row is hidden at its new rank and position, not at its old one.
    CarryByPlace,
    /// A position that an edit hides is not hidden yet (masks 1 and 2, log 22).
    PositionsAreNew,
    /// An item all of whose rows are hidden leaves (masks 4, log 23).
    EmptyItemsLeave,
    /// An edit names the rows of its item as they are (masks 1).
    RowsOfItem,
    /// Rows of blocks and rows left out are those that a cover covers (log 21).
    CoverAddsUp,
    /// A run is cut around what appends and covers have brought into it.
    RunsAreCut,
    /// Blocks and rows of a run are those that it names.
    RunAddsUp,
    /// A run into which replacements have come is compared with the tree of its snapshot.
    MixedIsCompared,
    /// A statement that deletes by a replacement deletes rows that nobody has hidden since.
    DeletedIsNotHidden,
    /// What was prepared goes where a recovery gives numbers of commits again (log 9).
    PreparedGoes,
    /// Statements of a transaction see what those before them have done (log 17 and 26).
    FoldTransaction,
    /// No commit speaks of how masks are stored (log 24).
    NoStoredForm,
    /// Runs that went refuse no job whose items are there.
    RunsRefuseNobody,
    /// What a commit removes goes before what it adds comes (log 17).
    WhatGoesFirst,
}

/// Which rules are broken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules(BTreeSet<Rule>);

impl Rules {
    pub(crate) const fn all() -> Self {
        Self(BTreeSet::new())
    }

    pub(crate) fn without(broken: &[Rule]) -> Self {
        Self(broken.iter().copied().collect())
    }

    pub(crate) fn keep(&self, rule: Rule) -> bool {
        !self.0.contains(&rule)
    }
}
