//! One table in memory.

use crate::ids::{CommitNo, TableId};
use crate::index::Tree;
use crate::open_rows::OpenList;
use bytes::Bytes;
use std::sync::Arc;

/// One table as of one state.
#[derive(Clone, Debug)]
pub struct TableState {
    /// The table's id for life.
    pub id: TableId,
    /// Its name, as it was written.
    pub name: Arc<str>,
    /// What the layer above knows of it.
    pub definition: Bytes,
    /// Rises with every new definition.
    pub definition_version: u32,
    /// The commit that made it.
    pub created: CommitNo,
    /// Its blocks.
    pub tree: Tree,
    /// Its rows that are in no block yet.
    pub(crate) open: OpenList,
}
