//! Rows that are older than the retention of their table leave.
//!
//! Invariants
//! - The wall clock is read once for each deletion, and decides nothing but the range of keys that it deletes. What was deleted does
//!   not come back when the clock is set back.
//! - Rows leave by a deletion of a range, one commit on disk: whole splits, files and blocks without being read. Where no row can have
//!   expired, nothing is read at all: the smallest key of the index and of the open rows tells it.
//! - This is called by maintenance that was asked for and by jobs, never by maintenance that makes room for masks: a deletion that
//!   needs this room would call itself.

use crate::jobs::board::JobKind;
use crate::jobs::pace::Pace;
use crate::table::{Maintained, Table};
use std::time::Duration;
use thalweg_kernel::Result;

/// Which expired rows are deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// All, for somebody who waits for it.
    All,
    /// All, once the oldest has been expired for some time.
    AfterSlack,
}

/// Deletes the expired rows of a table that is open for writing, as of now.
///
/// # Errors
/// As [`Table::delete_range`].
pub(crate) fn delete_expired(table: &Table, expiry: Expiry, pace: &dyn Pace) -> Result<Maintained> {
    // In a child of a fork nobody would let go of the lock.
    table.engine().closed().check()?;
    // Whoever changes the retention waits, so that no row leaves by the old one after that.
    let _turn = table.engine().expiry().lock();
    let view = table.view()?;
    let Some(retention) = view.definition().retention() else {
        return Ok(Maintained::default());
    };
    let slack = match expiry {
        Expiry::All => Duration::ZERO,
        Expiry::AfterSlack => retention.slack(),
    };
    let now_ns = table.engine().env().clock().wall_ns();
    let first_key = view.key_range().map(|keys| keys.first);
    if !retention.is_due(first_key, now_ns, slack) {
        return Ok(Maintained::default());
    }
    // It would keep the files that leave.
    drop(view);
    let rows = table.delete_on_disk(retention.expired(now_ns))?;
    if rows == 0 {
        // The smallest key is that of a deleted row.
        return Ok(Maintained::default());
    }
    pace.begins(JobKind::ExpiredRows);
    pace.stepped(rows);
    Ok(Maintained { steps: 1, rows: 0 })
}
