//! The tables of which rows expire, and when each of them is looked at.
//!
//! Invariants: a table without a retention costs nothing here. What is compared with the clock is the smallest key of a table, kept
//! since its last change, so that a look costs one comparison for each table. Between two deletions of one table lies at least its
//! slack, whatever rows are appended: else rows that come in one by one and are too old already would be deleted one by one.

use crate::retention::Retention;
use crate::table::key_range_of;
use std::collections::HashMap;
use thalweg_kernel::{Snapshot, TableId};

/// A table with a retention.
struct Expires {
    retention: Retention,
    /// The smallest key as of its last change; deleted rows count. `None` without rows.
    first_key: Option<i64>,
    /// On the clock that never goes back.
    not_before_ns: u64,
    failures: u32,
}

/// The tables with a retention.
#[derive(Default)]
pub(super) struct Expiries(HashMap<TableId, Expires>);

impl Expiries {
    /// Notes the retention that a table has from now on. One whose rows have not expired so far is not looked at before this time.
    pub(super) fn note_retention(
        &mut self,
        table: TableId,
        retention: Option<Retention>,
        not_before_ns: u64,
    ) {
        let Some(retention) = retention else {
            self.remove(table);
            return;
        };
        let expires = self.0.entry(table).or_insert(Expires {
            retention,
            first_key: None,
            not_before_ns,
            failures: 0,
        });
        expires.retention = retention;
    }

    /// Notes which rows there are now.
    pub(super) fn note_changes(&mut self, newest: &Snapshot) {
        self.0.retain(|id, expires| {
            let table = newest.table(*id);
            expires.first_key = { table.as_ref().and_then(key_range_of) }.map(|keys| keys.first);
            table.is_some()
        });
    }

    /// A table that may have expired rows, the one that has waited longest, by both clocks.
    pub(super) fn next_due(&self, now_ns: u64, now_unix_ns: i64) -> Option<TableId> {
        let is_due = |expires: &Expires| {
            let retention = expires.retention;
            expires.not_before_ns <= now_ns
                && retention.is_due(expires.first_key, now_unix_ns, retention.slack())
        };
        let due = self.0.iter().filter(|(_, expires)| is_due(expires));
        due.min_by_key(|(id, expires)| (expires.not_before_ns, **id))
            .map(|(id, _)| *id)
    }

    /// Notes that the expired rows of a table were deleted, or that there were none.
    pub(super) fn note_done(&mut self, table: TableId, now_ns: u64) {
        if let Some(expires) = self.0.get_mut(&table) {
            let slack_ns = u64::try_from(expires.retention.slack().as_nanos());
            expires.not_before_ns = now_ns.saturating_add(slack_ns.unwrap_or(u64::MAX));
            expires.failures = 0;
        }
    }

    /// Notes a failure. `wait_ns` has the time until the next attempt, by the failures before.
    pub(super) fn note_failure(
        &mut self,
        table: TableId,
        now_ns: u64,
        wait_ns: impl Fn(u32) -> u64,
    ) {
        if let Some(expires) = self.0.get_mut(&table) {
            expires.not_before_ns = now_ns.saturating_add(wait_ns(expires.failures));
            expires.failures = expires.failures.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, table: TableId) {
        self.0.remove(&table);
    }

    /// Looks at a table again after this time.
    pub(super) fn put_off(&mut self, table: TableId, not_before_ns: u64) {
        if let Some(expires) = self.0.get_mut(&table) {
            expires.not_before_ns = not_before_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions, Value};
    use arrow_schema::{DataType, Field, Schema, TimeUnit};

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_table_is_due_once_its_oldest_row_is_and_then_not_for_a_while() {
        let engine = Engine::in_memory(EngineOptions::default()).unwrap();
        let time = DataType::Timestamp(TimeUnit::Second, None);
        let schema = Schema::new(vec![Field::new("ts", time, false)]);
        let options = CreateOptions::stream("ts").with("retention", "1000 seconds");
        let table = engine.create_table("t", &schema, &options).unwrap();
        let retention = table.definition().retention().unwrap();
        let mut expiries = Expiries::default();
        expiries.note_retention(table.id(), Some(retention), 30 * SECOND_NS);
        let due = |expiries: &Expiries, now_s: u64, now_unix_s: i64| {
            expiries
                .next_due(now_s * SECOND_NS, now_unix_s * 1_000_000_000)
                .is_some()
        };
        assert!(!due(&expiries, 100, 10_000), "it has no rows");
        table.put(&[Value::Int(500)], None).unwrap();
        assert!(!due(&expiries, 100, 10_000), "none that it knows of");
        expiries.note_changes(&engine.newest().unwrap());
        assert!(!due(&expiries, 29, 10_000) && due(&expiries, 30, 10_000));
        // Slack of 10 seconds.
        assert!(!due(&expiries, 30, 1_510) && due(&expiries, 30, 1_511));
        expiries.note_done(table.id(), 100 * SECOND_NS);
        assert!(!due(&expiries, 109, 10_000) && due(&expiries, 110, 10_000));
        let wait_ns = |failures| u64::from(failures + 1) * 50 * SECOND_NS;
        for next in [150, 200] {
            expiries.note_failure(table.id(), 100 * SECOND_NS, wait_ns);
            assert!(!due(&expiries, next - 1, 10_000) && due(&expiries, next, 10_000));
        }
        expiries.put_off(table.id(), 7 * SECOND_NS);
        assert!(!due(&expiries, 6, 10_000) && due(&expiries, 7, 10_000));
        // Another period holds at once, and is looked at when the table would have been.
        let longer = Retention::parse("2000 seconds", table.schema().field(0).data_type()).unwrap();
        expiries.note_retention(table.id(), Some(longer), 0);
        assert!(!due(&expiries, 7, 2_500) && due(&expiries, 7, 10_000));
        expiries.note_retention(table.id(), None, 0);
        assert!(!due(&expiries, 7, 10_000));
        expiries.note_retention(table.id(), Some(retention), 0);
        table.drop_table().unwrap();
        expiries.note_changes(&engine.newest().unwrap());
        assert!(!due(&expiries, 1_000, 10_000));
    }
}
