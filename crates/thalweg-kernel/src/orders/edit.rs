//! Edit 7: orders of a table are made, dropped, switched off and on.

use crate::error::Result;
use crate::fields::{PutFields, len_u32};
use crate::ids::TableId;
use crate::wire::{Fault, Reader};

/// The one kind of order beside the rows that this version knows.
pub(crate) const KIND_INDEX: u8 = 3;
const CHANGE_BYTES: usize = 24;
/// Orders from here on are given to what is derived from the rows.
pub(crate) const FIRST_ORDER: u32 = 2;

/// How an order is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderAction {
    /// It is made.
    Make,
    /// It is dropped, with its coverage.
    Drop,
    /// Nobody need bring its entries; these keys are covered no longer.
    SwitchOff {
        /// The smallest key.
        key_min: i64,
        /// The largest key.
        key_max: i64,
    },
    /// Whoever brings rows brings their entries.
    SwitchOn,
}

/// A change of one order, which is an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderChange {
    /// The order.
    pub order: u32,
    /// The change.
    pub action: OrderAction,
}

/// Changes of the orders of a table, ascending by order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrdersEdit {
    /// The table.
    pub table: TableId,
    /// One change of an order at most.
    pub changes: Vec<OrderChange>,
}

impl OrdersEdit {
    /// Appends the edit after its kind.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u32(len_u32(self.changes.len()));
        for change in &self.changes {
            let (action, key_min, key_max) = match change.action {
                OrderAction::Make => (1, 0, 0),
                OrderAction::Drop => (2, 0, 0),
                OrderAction::SwitchOff { key_min, key_max } => (3, key_min, key_max),
                OrderAction::SwitchOn => (4, 0, 0),
            };
            out.put_u32(change.order);
            out.extend_from_slice(&[action, KIND_INDEX, 0, 0]);
            out.put_i64(key_min);
            out.put_i64(key_max);
        }
    }

    /// Reads an edit after its kind.
    ///
    /// # Errors
    /// `Corruption`, or `Unsupported` where a newer version has written it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).map_err(|fault| fault.at("EDIT section", "a change of orders"))
    }

    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(bytes);
        let table = TableId(reader.u32()?);
        let count = reader.u32()? as usize;
        if count == 0 || count.saturating_mul(CHANGE_BYTES) != reader.left_bytes() {
            return Err("changes of orders do not fill their edit".into());
        }
        let changes = (0..count).map(|_| OrderChange::read(&mut reader));
        let changes = changes.collect::<Result<Vec<_>, Fault>>()?;
        let edit = Self { table, changes };
        edit.check()?;
        Ok(edit)
    }

    /// Checks the edit on its own: called before it is written, and after it was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.changes.is_empty() {
            return Err("an edit that changes no order");
        }
        if !self.changes.is_sorted_by(|a, b| a.order < b.order) {
            return Err("changes of orders do not ascend");
        }
        self.changes.iter().try_for_each(OrderChange::check)
    }

    /// Whether it does nothing but free space.
    pub(crate) fn frees_space(&self) -> bool {
        let frees = |change: &OrderChange| {
            matches!(
                change.action,
                OrderAction::Drop | OrderAction::SwitchOff { .. }
            )
        };
        self.changes.iter().all(frees)
    }
}

impl OrderChange {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let order = reader.u32()?;
        let (action, kind) = (reader.u8()?, reader.u8()?);
        if kind != KIND_INDEX {
            return Err(Fault::OtherVersion(format!("an order of kind {kind}")));
        }
        reader.reserved(2)?;
        let (key_min, key_max) = (reader.i64()?, reader.i64()?);
        let action = match action {
            1 => OrderAction::Make,
            2 => OrderAction::Drop,
            3 => OrderAction::SwitchOff { key_min, key_max },
            4 => OrderAction::SwitchOn,
            _ => return Err(Fault::OtherVersion(format!("action {action} on an order"))),
        };
        let has_keys = matches!(action, OrderAction::SwitchOff { .. });
        if !has_keys && (key_min, key_max) != (0, 0) {
            return Err("keys of a change that has none".into());
        }
        let change = Self { order, action };
        change.check()?;
        Ok(change)
    }

    fn check(&self) -> Result<(), &'static str> {
        if let OrderAction::SwitchOff { key_min, key_max } = self.action
            && key_min > key_max
        {
            return Err("keys the wrong way round");
        }
        if self.order < FIRST_ORDER {
            return Err("an order that is never made");
        }
        Ok(())
    }
}
