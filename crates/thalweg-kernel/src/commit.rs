//! What a caller hands in: a commit is rows, groups of encoded blocks and edits, stored in one frame, whole or not at all.

use crate::block::EncodedBlock;
use crate::ids::{CommitNo, TableId};
use crate::index::Entry;
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
/// form at most; new names differ; a replacement is the only change of its table's blocks; and a fragment is added once.
/// Anything else is refused (`docs/format/log.md`, invariant 17).
#[derive(Debug, Default)]
pub struct Commit {
    /// Rows as they came, opaque to the kernel.
    pub rows: Vec<RowsPart>,
    /// Encoded blocks.
    pub groups: Vec<GroupPart>,
    /// Changes of tables and their definitions.
    pub edits: Vec<Edit>,
    /// The last commit of the snapshot that replacements were prepared from. They are refused if blocks of their table
    /// were replaced since: a block that takes the key of another one would be taken for it.
    pub prepared_at: Option<CommitNo>,
    /// Makes a resend of the same commit harmless.
    pub producer: Option<Producer>,
}

/// A few rows of one table, raw.
#[derive(Clone, Debug)]
pub struct RowsPart {
    /// The table.
    pub table: TableId,
    /// The version of the definition that `payload` was written by.
    pub definition_version: u32,
    /// How many.
    pub rows: u32,
    /// Smallest and largest order key.
    pub key_min: i64,
    /// See `key_min`.
    pub key_max: i64,
    /// The rows; the layer above knows how to read them.
    pub payload: Bytes,
}

/// Blocks of one table.
#[derive(Debug)]
pub struct GroupPart {
    /// The table.
    pub table: TableId,
    /// The version of the definition that the blocks were encoded by.
    pub definition_version: u32,
    /// The blocks, in the order that their ordinals get.
    pub blocks: Vec<EncodedBlock>,
    /// These blocks hold all open rows of the table up to this commit, which are open no longer.
    pub covers: Option<CommitNo>,
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
    /// Staged and synced fragments become part of the table.
    AddFragments {
        /// The table.
        table: TableId,
        /// The version of the definition that their blocks were encoded by.
        definition_version: u32,
        /// Their blocks hold all open rows of the table up to this commit, which are open no longer; they have the commits
        /// of their rows. `None`: their rows are new.
        covers: Option<CommitNo>,
        /// Their root pages.
        roots: Vec<Entry>,
    },
    /// Blocks (or whole fragments) of the table are replaced by staged fragments with the same rows in a better order. Refused
    /// unless there are as many rows as before.
    Replace {
        /// The table.
        table: TableId,
        /// What goes: all must still be there.
        removed: Vec<crate::index::EntryKey>,
        /// What comes.
        added: Vec<Entry>,
    },
}

impl Commit {
    /// The roots of the fragments that it makes part of a table, with that table.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = (TableId, &Entry)> {
        let lists = self.edits.iter().filter_map(|edit| match edit {
            Edit::AddFragments { table, roots, .. } => Some((*table, roots)),
            Edit::Replace { table, added, .. } => Some((*table, added)),
            _ => None,
        });
        lists.flat_map(|(table, roots)| roots.iter().map(move |root| (table, root)))
    }

    /// Does nothing but free space.
    pub(crate) fn frees_space(&self) -> bool {
        let frees = |edit: &Edit| matches!(edit, Edit::DropTable { .. } | Edit::Replace { .. });
        self.rows.is_empty() && self.groups.is_empty() && self.edits.iter().all(frees)
    }

    /// Does nothing but drop tables.
    pub(crate) fn drops_tables(&self) -> bool {
        let drops = |edit: &Edit| matches!(edit, Edit::DropTable { .. });
        self.frees_space() && self.edits.iter().all(drops)
    }

    /// About what it takes in the log.
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
