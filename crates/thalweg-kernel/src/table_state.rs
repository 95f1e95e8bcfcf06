//! One table in memory.

use crate::file_uses::{KnownUses, OrderUses};
use crate::ids::{CommitNo, TableId};
use crate::index::Tree;
use crate::masks::TableMasks;
use crate::open_rows::OpenList;
use crate::orders::{Order, Orders};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

/// One table as of one state.
#[derive(Clone, Debug)]
pub struct TableState {
    /// The table's id for life.
    pub id: TableId,
    /// Its name, as it was written.
    pub name: Arc<str>,
    /// The definition, which only the layer above can read.
    pub definition: Bytes,
    /// Rises with every new definition.
    pub definition_version: u32,
    /// The commit that made it.
    pub created: CommitNo,
    /// Its order 0: the blocks of its rows.
    pub tree: Tree,
    /// The uses of files of an earlier tree of its order 0.
    pub(crate) uses: OrderUses,
    /// Its other orders; `None`: it never had one.
    pub(crate) orders: Option<Arc<Orders>>,
    /// Which of its rows are hidden; `None`: none.
    pub(crate) masks: Option<Arc<TableMasks>>,
    /// Its rows that are in no block yet.
    pub(crate) open: OpenList,
}

impl TableState {
    /// Its orders beside the rows, ascending by id.
    #[must_use]
    pub fn orders(&self) -> &[Order] {
        self.orders.as_ref().map_or(&[], |orders| &orders.list)
    }

    /// One of its orders beside the rows.
    #[must_use]
    pub fn order(&self, id: u32) -> Option<&Order> {
        self.orders.as_ref()?.get(id)
    }

    /// The trees of all orders, that of the rows first.
    pub fn trees(&self) -> impl Iterator<Item = (u32, &Tree)> {
        let others = self.orders().iter().map(|order| (order.id, &order.tree));
        std::iter::once((0, &self.tree)).chain(others)
    }

    /// Which of its rows are hidden, if any are.
    #[must_use]
    pub fn masks(&self) -> Option<&TableMasks> {
        self.masks.as_deref()
    }

    /// Rows in blocks that are not hidden: from memory, whatever is hidden.
    #[must_use]
    pub fn rows_in_blocks(&self) -> u64 {
        let rows = self.tree.total().map_or(0, |total| total.rows);
        let hidden = self.masks.as_ref().map_or(0, |masks| masks.rows_of_items());
        rows.saturating_sub(hidden)
    }

    /// Open rows that are hidden.
    #[must_use]
    pub fn hidden_open_rows(&self) -> u64 {
        { self.masks.as_ref() }.map_or(0, |masks| masks.rows() - masks.rows_of_items())
    }

    /// The tree of an order.
    #[must_use]
    pub fn tree_of(&self, order: u32) -> Option<&Tree> {
        match order {
            0 => Some(&self.tree),
            id => self.order(id).map(|order| &order.tree),
        }
    }

    /// Gives an order another tree, if it is there.
    pub(crate) fn set_tree(&mut self, order: u32, tree: Tree) {
        if order == 0 {
            self.tree = tree;
        } else if let Some(order) = self.order_mut(order) {
            order.tree = tree;
        }
    }

    /// The uses of files of an earlier tree of an order, as far as they are known.
    pub(crate) fn uses_of(&self, order: u32) -> Option<&OrderUses> {
        match order {
            0 => Some(&self.uses),
            id => self.order(id).map(|order| &order.uses),
        }
    }

    /// The uses of files of an earlier tree of an order, if they are known. A wrong list of a checkpoint counts as
    /// unknown.
    pub(crate) fn known_uses(&self, order: u32) -> Option<Cow<'_, KnownUses>> {
        self.uses_of(order)?.known().ok()?
    }

    /// The uses of files of all orders.
    pub(crate) fn all_uses(&self) -> impl Iterator<Item = &OrderUses> {
        let others = self.orders().iter().map(|order| &order.uses);
        std::iter::once(&self.uses).chain(others)
    }

    /// Learns, or forgets, what a tree of an order takes of files, if that order is there.
    pub(crate) fn set_uses(&mut self, order: u32, uses: OrderUses) {
        if order == 0 {
            self.uses = uses;
        } else if let Some(order) = self.order_mut(order) {
            order.uses = uses;
        }
    }

    /// An order that is to be changed: a copy of its own, where other states share it.
    pub(crate) fn order_mut(&mut self, id: u32) -> Option<&mut Order> {
        Arc::make_mut(self.orders.as_mut()?).get_mut(id)
    }
}
