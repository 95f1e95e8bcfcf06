//! The orders of a table beside its rows, as one state of the database has them.
//!
//! Invariants: orders ascend by id, and an id is never given again, even if its order is dropped. A table that never had
//! one has nothing here.

use super::coverage::Coverage;
use super::edit::{FIRST_ORDER, OrderAction, OrderChange};
use crate::file_uses::OrderUses;
use crate::ids::TableId;
use crate::index::Tree;

/// Most orders of a table, the rows counted.
pub(crate) const MAX_ORDERS: usize = 1_024;

/// An order that is derived from the rows of its table: an index.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its id in the table.
    pub id: u32,
    /// Whether those who bring rows are to bring their entries.
    pub is_on: bool,
    /// Its blocks.
    pub tree: Tree,
    /// The uses of files of an earlier tree of it.
    pub(crate) uses: OrderUses,
    /// The rows that have their entries in it.
    pub coverage: Coverage,
}

/// The orders of a table beside its rows.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// The id of the next one.
    pub(crate) next: u32,
    /// Ascending by id.
    pub(crate) list: Vec<Order>,
}

impl Orders {
    /// The orders of a table that is made with so many of them: there are no rows yet, so they cover all.
    pub(crate) fn of_new_table(table: TableId, count: u32) -> Self {
        let mut orders = Self::none();
        for _ in 0..count {
            orders.make(table, Coverage::of_all());
        }
        orders
    }

    /// None, and none that there ever was.
    pub(crate) fn none() -> Self {
        Self {
            next: FIRST_ORDER,
            list: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Order> {
        let at = self.list.binary_search_by_key(&id, |order| order.id);
        at.ok().map(|at| &self.list[at])
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Order> {
        let at = self.list.binary_search_by_key(&id, |order| order.id);
        at.ok().map(|at| &mut self.list[at])
    }

    fn make(&mut self, table: TableId, coverage: Coverage) {
        self.list.push(Order {
            id: self.next,
            is_on: true,
            tree: Tree::empty(table),
            uses: OrderUses::of_nothing(table),
            coverage,
        });
        self.next += 1;
    }

    /// Makes a change that was checked ([`Self::check`]).
    pub(crate) fn change(&mut self, table: TableId, change: &OrderChange) {
        let id = change.order;
        match change.action {
            OrderAction::Make => self.make(table, Coverage::default()),
            OrderAction::Drop => self.list.retain(|order| order.id != id),
            OrderAction::SwitchOff { key_min, key_max } => {
                if let Some(order) = self.get_mut(id) {
                    order.is_on = false;
                    order.coverage.remove(key_min, key_max);
                    order.coverage.end_section();
                }
            }
            OrderAction::SwitchOn => {
                if let Some(order) = self.get_mut(id) {
                    order.is_on = true;
                }
            }
        }
    }

    /// Whether changes fit the orders that there are: new ones get the next ids, others are there. `Err` names what is wrong.
    pub(crate) fn check(&self, changes: &[OrderChange]) -> Result<(), &'static str> {
        let (mut next, mut count) = (self.next, 1 + self.list.len());
        for change in changes {
            if change.action != OrderAction::Make {
                self.get(change.order).ok_or("the index is not there")?;
                continue;
            }
            if change.order != next {
                return Err("a new index does not have the next number");
            }
            next = next
                .checked_add(1)
                .ok_or("the numbers of indexes are used up")?;
            count += 1;
        }
        if count > MAX_ORDERS {
            return Err("a table has no more than 1,023 indexes: drop some");
        }
        Ok(())
    }
}
