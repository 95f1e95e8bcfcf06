//! The steps after the commits of a batch: the write, the sync, and the announcement to readers.
//!
//! Invariant: a commit is visible only after it was written, and synced where anyone of its batch asked for that.

use super::{Leader, UNSYNCED_LIMIT_BYTES};
use crate::announcer::Announcement;
use crate::error::Result;
use crate::ids::{Epoch, LogPosition, TableId};
use crate::options::RowEncoder;
use std::sync::Arc;
use thalweg_env::sync::atomic::Ordering;

impl Leader {
    /// Writes, syncs if asked, publishes, announces to the readers.
    pub(super) fn settle(&mut self, sync: bool) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        log.write()
            .inspect_err(|e| self.supply.note_failed_write(e))?;
        // Half of what the next commit may find unsynced: else that one would have to sync first.
        let unsynced_bytes = log.unsynced_bytes();
        let lacks_room = unsynced_bytes > self.supply.tail_room() / 2;
        if lacks_room {
            self.supply
                .expect_tail(2 * UNSYNCED_LIMIT_BYTES.min(log.capacity_bytes()));
        }
        if sync || lacks_room || unsynced_bytes > UNSYNCED_LIMIT_BYTES {
            log.sync()?;
            self.announcer.fall_behind();
        }
        self.publish()
    }

    /// Makes what was done visible, and notes what it calls for.
    pub(super) fn publish(&mut self) -> Result<()> {
        if self.working.changed {
            if let Some(encoder) = self.encoder.clone() {
                self.learn_block_rows(&encoder);
            }
            self.published
                .store(self.working.publish(self.root.current.epoch));
        } else {
            self.published
                .load()
                .visible
                .store(self.working.commit.0, Ordering::Release);
        }
        if self.announcer.is_behind() {
            self.write_live()?;
        }
        self.note_due();
        Ok(())
    }

    /// Asks the layer above how many rows make a block, for tables that have got their first open rows or another
    /// definition.
    pub(super) fn learn_block_rows(&mut self, encoder: &Arc<dyn RowEncoder>) {
        for table in self.working.open.take_unknown() {
            let Some(state) = self.working.table(table) else {
                continue;
            };
            // Whoever encodes the rows meets the same error, and leaves this table aside.
            let block_rows = encoder
                .block_rows(state)
                .map_or(1, |rows| u64::from(rows.max(1)));
            self.working.open.set_block_rows(table, block_rows);
        }
    }

    /// Calls for work in the background where there is some.
    pub(super) fn note_due(&mut self) {
        let repeated_bytes = self.working.repeated_bytes();
        let unsaved_bytes = self.working.unsaved_bytes();
        let longest_page_bytes = self.working.longest_page_bytes;
        self.supply.sizes.note_longest_page(longest_page_bytes);
        self.supply.expect_checkpoint(repeated_bytes, unsaved_bytes);
        self.due.note_unsynced(self.unsynced_bytes() > 0);
        let checkpoint = self.checkpoint_is_due()
            && !self
                .full_disk
                .refused_checkpoint_lately(self.env.clock().monotonic_ns());
        if checkpoint {
            self.due.expect_checkpoint();
        }
        let much_is_open = self.due.note_open(&mut self.working.open);
        if self.working.open.take_filled() || checkpoint || much_is_open {
            self.due.work.call();
        }
        self.due.call_for_garbage();
    }

    /// Open rows of a table were encoded, or could not be at this time; whether much is open still.
    pub(crate) fn note_encoded(&mut self, table: TableId, failed_ns: Option<u64>) -> bool {
        let open = &mut self.working.open;
        open.note_encoded(table, failed_ns);
        self.due.note_open(open)
    }

    /// The table whose open rows are to be encoded next, and how many make a block; `None`: all of them, as a short
    /// block, because open rows take too much room.
    pub(crate) fn next_to_encode(&mut self) -> Option<(TableId, Option<u64>)> {
        let open = &mut self.working.open;
        self.due.try_again(open, self.env.clock().monotonic_ns());
        if let Some((table, open)) = open.next_full() {
            return Some((table, Some(open.block_rows)));
        }
        let much_is_open = self.due.note_open(open);
        let largest = open.next_large();
        largest.filter(|_| much_is_open).map(|table| (table, None))
    }

    /// Announces to reading processes what they may show.
    pub(crate) fn write_live(&mut self) -> Result<()> {
        match &self.log {
            Some(log) => self.tell(log.epoch(), log.synced()),
            None => Ok(()),
        }
    }

    /// Announces an epoch that both slots of the root name, on disk, with how far it is synced.
    pub(super) fn tell(&mut self, epoch: Epoch, synced: LogPosition) -> Result<()> {
        let told = self.announcer.tell(&Announcement {
            epoch,
            synced,
            visible: self.working.commit,
            checkpoint: self.root.current.checkpoint,
        });
        told.inspect_err(|e| self.supply.note_failed_write(e))
    }
}
