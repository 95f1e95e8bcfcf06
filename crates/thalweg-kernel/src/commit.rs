//! Commits as callers hand them in: rows, groups of encoded blocks and edits, stored in one frame, whole or not at all.

use crate::block::EncodedBlock;
use crate::ids::{CommitNo, TableId};
use crate::index::Entry;
use crate::masks::{MaskEdit, PartMask};
use crate::orders::{AddHead, OrderReplace, OrdersEdit, ReplaceEdit};
use crate::rows_part::RowsPart;
use crate::state::TableSnapshot;
use bytes::Bytes;

/// When a commit returns, named by what it survives then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Visible in this process; lost at a kill up to the last `flush`. This version writes such commits at once, like
    /// `Process`, and leaves out the timed sync: a promise kept early costs one write call of 0.4 us.
    Memory,
    /// The operating system has it: survives a kill. Synced within `sync_interval`.
    Process,
    /// On stable storage: survives a power cut.
    #[default]
    Disk,
}

/// Everything that is stored together.
///
/// Each part fits the state before the commit, whatever the others do, and no two contradict each other: a commit that drops a
/// table does nothing else to it; a table gets one name, one definition, one cover of its open rows and new rows in one
/// form at most; new names differ; a replacement and a cover of one table do not go together; and a fragment is added once.
/// Anything else is refused (`docs/format/log.md`, invariant 17).
#[derive(Debug, Default)]
pub struct Commit {
    /// Rows as they came, opaque to the kernel.
    pub rows: Vec<RowsPart>,
    /// Encoded blocks.
    pub groups: Vec<GroupPart>,
    /// Changes of tables and their definitions.
    pub edits: Vec<Edit>,
    /// Rows that are hidden, after all else: of items and open rows that there are, or of items that this commit brings.
    pub masks: Vec<MaskEdit>,
    /// The last commit of the snapshot that replacements by name and the ranges of a coverage were prepared from. Replacements are
    /// refused if other ones replaced blocks of their table since, ranges if rows came into them since without their entries.
    pub prepared_at: Option<CommitNo>,
    /// The tables of the snapshot that removed runs were found in: what came into a run since is left where it is, and where
    /// something went the commit is refused.
    pub runs_of: Vec<TableSnapshot>,
    /// Makes a resend of the same commit harmless.
    pub producer: Option<Producer>,
    /// Where it is refused, its fragments stay staged for another attempt, and its caller lets go of them in the end.
    pub keeps_fragments: bool,
}

/// Blocks of one order of a table.
#[derive(Debug)]
pub struct GroupPart {
    /// Which order they are added to, and how open rows and coverage change with them.
    pub head: AddHead,
    /// The blocks, in the order that their ordinals get.
    pub blocks: Vec<EncodedBlock>,
}

/// A producer's own numbering of its commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Drawn by the producer once.
    pub id: [u8; 16],
    /// Rises with every commit of the producer.
    pub sequence: u64,
}

/// In place of the number of a table that is yet to get one.
pub const NEW_TABLE: TableId = TableId(0);

/// A change that is not an append.
#[derive(Clone, Debug)]
pub enum Edit {
    /// A new table; its name is unique without regard to case.
    CreateTable {
        /// [`NEW_TABLE`]: it gets its number with the commit, the next one that no table ever had.
        table: TableId,
        /// As the user wrote it.
        name: String,
        /// Opaque to the kernel; version 1.
        definition: Bytes,
        /// How many indexes it has, orders 2 and on. They cover all keys, for there are no rows yet.
        indexes: u32,
    },
    /// The table and all its rows are gone.
    DropTable {
        /// The table.
        table: TableId,
    },
    /// A new name.
    RenameTable {
        /// The table.
        table: TableId,
        /// As the user wrote it.
        name: String,
    },
    /// A new definition, if the table still has `expected_version`; the version rises by one.
    SetDefinition {
        /// The table.
        table: TableId,
        /// The version that the new definition was made from.
        expected_version: u32,
        /// Opaque to the kernel.
        definition: Bytes,
    },
    /// Staged and synced fragments become part of an order of a table. Those that cover open rows have blocks with the commits
    /// of these; rows of others are new.
    AddFragments {
        /// Which order they are added to, and how open rows and coverage change with them.
        head: AddHead,
        /// Their root pages.
        roots: Vec<Entry>,
    },
    /// Blocks (or whole fragments) of orders of a table are replaced by staged fragments, those of the rows by as many rows in a
    /// better order.
    Replace(ReplaceEdit),
    /// Orders of a table are made, dropped, switched off and on. Making and dropping take a new definition in the same commit.
    Orders(OrdersEdit),
}

impl Commit {
    /// The roots of the fragments that it makes part of a table, with that table and the order.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = ((TableId, u32), &Entry)> {
        self.edits.iter().flat_map(Edit::fragments)
    }

    /// Whether it stores nothing: it takes away, or moves what there is.
    fn stores_nothing(&self) -> bool {
        // A definition that takes the place of another one goes with the orders that it does not name any more.
        let drops_orders = |edit: &Edit| matches!(edit, Edit::Orders(edit) if edit.frees_space());
        let may_define = self.edits.iter().any(drops_orders);
        let frees = |edit: &Edit| match edit {
            Edit::DropTable { .. } | Edit::Replace(_) => true,
            Edit::SetDefinition { .. } => may_define,
            edit => drops_orders(edit),
        };
        // Open rows that are all deleted are covered by no blocks.
        let covers_alone =
            |group: &GroupPart| group.blocks.is_empty() && group.head.covers.is_some();
        self.rows.is_empty() && self.groups.iter().all(covers_alone) && self.edits.iter().all(frees)
    }

    /// Whether it does nothing but free space.
    pub(crate) fn frees_space(&self) -> bool {
        // Masks beside a replacement are those of what it moves, or of the borders of a range that it deletes.
        self.stores_nothing() && !(self.edits.is_empty() && self.groups.is_empty())
    }

    /// Whether a caller may ask for it to free space: tables are dropped, or rows deleted by runs of blocks or by whole parts of open
    /// rows.
    pub(crate) fn may_free_much(&self) -> bool {
        let has_runs = |order: &OrderReplace| !order.removed_runs().is_empty();
        let frees = |edit: &Edit| match edit {
            Edit::DropTable { .. } => true,
            Edit::Replace(edit) => edit.orders.iter().any(has_runs),
            _ => false,
        };
        let mut parts = self.masks.iter().flat_map(|edit| &edit.parts);
        self.stores_nothing() && (self.edits.iter().any(frees) || parts.any(PartMask::is_whole))
    }

    /// Whether it does nothing but drop tables.
    pub(crate) fn drops_tables(&self) -> bool {
        let drops = |edit: &Edit| matches!(edit, Edit::DropTable { .. });
        self.frees_space() && self.edits.iter().all(drops)
    }

    /// Whether it changes nothing. Such commits are refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.groups.is_empty()
            && self.edits.is_empty()
            && self.masks.is_empty()
    }

    /// About what its rows and blocks take in the log.
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(|r| r.payload.len()).sum();
        let blocks: usize = self
            .groups
            .iter()
            .flat_map(|g| &g.blocks)
            .map(|b| b.bytes.len())
            .sum();
        rows + blocks
    }
}

impl Edit {
    /// The roots of the fragments that it makes part of a table, with that table and the order.
    pub(crate) fn fragments(&self) -> Box<dyn Iterator<Item = ((TableId, u32), &Entry)> + '_> {
        match self {
            Self::AddFragments { head, roots } => {
                Box::new(roots.iter().map(|root| ((head.table, head.order), root)))
            }
            Self::Replace(edit) => Box::new(edit.orders.iter().flat_map(|order| {
                let place = (edit.table, order.order);
                order.added.iter().map(move |root| (place, root))
            })),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// The table that it changes or makes.
    pub(crate) fn table(&self) -> TableId {
        match self {
            Self::CreateTable { table, .. }
            | Self::DropTable { table }
            | Self::RenameTable { table, .. }
            | Self::SetDefinition { table, .. } => *table,
            Self::AddFragments { head, .. } => head.table,
            Self::Replace(edit) => edit.table,
            Self::Orders(edit) => edit.table,
        }
    }
}
