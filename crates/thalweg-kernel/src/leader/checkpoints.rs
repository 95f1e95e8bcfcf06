//! Writing checkpoints: what one builds on, where it goes, and the switch of the root to it.
//!
//! Invariants: the log before a checkpoint is on disk before the checkpoint is written: a power cut leaves no checkpoint of
//! commits that it takes. A checkpoint is on disk before the root names it, and the index pages in it become readable, and what
//! it builds on changes, only after that. Where building one is refused, nothing was written and the state is as it was.

use super::{Leader, no_epoch};
use crate::bases::BuildsOn;
use crate::bases::Place;
use crate::checkpoint::{CHECKPOINT_SECTIONS, WrittenTree, WrittenTrees, put_checkpoint};
use crate::error::{ErrorKind, Result};
use crate::failure::{Failure, Outcome, fatal};
use crate::fields::len_u32;
use crate::file_uses::{Changes, may_be_of};
use crate::frame::{FRAME_ALIGN, FrameBuilder, SECTOR_BYTES, SectionKind};
use crate::ids::{CommitNo, FileId, LogPosition};
use crate::log_writer::LogWriter;
use crate::purpose::Purpose;
use crate::root::Root;
use crate::rules::Rule;
use crate::segment::{self, LogFolder};
use crate::segment_supply::SegmentSupply;
use crate::working::OfTrees;
use std::path::Path;

/// Checkpoints are padded where there is space for so many more segments.
const AMPLE_SEGMENTS: u64 = 4;
/// In shorter segments, which only a full disk has, the zeros would be no small part.
const MIN_PADDED_BYTES: u64 = 16 * SECTOR_BYTES;

/// A checkpoint that is synced and that no root names yet.
pub(crate) struct Stored {
    root: Root,
    builds_on: BuildsOn,
    written: WrittenTrees,
    /// Of its INDEX section.
    index_bytes: u64,
}

impl Leader {
    /// Writes a checkpoint, if there is anything after the last one. With `always` it writes one in any case, and one
    /// that needs no segment but the one that is written to.
    pub(crate) fn checkpoint(&mut self, always: bool, purpose: Purpose) -> Outcome<CommitNo> {
        if always && purpose == Purpose::Checkpoint {
            self.ensure_epoch_beside_reserve()?;
        }
        if self.log.is_some() && (always || self.working.since_checkpoint.frames > 0) {
            // A base in an older segment would keep that.
            let base = self.working.bases.base(BuildsOn::Next);
            let base_segment = base.map(|base| base.place.at.segment);
            let must_be_full = always && base_segment != Some(self.written_segment());
            let stored = self.store_checkpoint(None, must_be_full, purpose)?;
            self.switch_root(stored, false)?;
            self.publish().map_err(fatal)?;
        }
        Ok(self.working.commit)
    }

    /// Writes one of the two checkpoints before files are removed. Where space is short there is one, named in both
    /// slots, as at the beginning of an epoch: two take twice the room. Elsewhere there are two: a repair needs the other
    /// one if one is damaged.
    pub(super) fn checkpoint_to_free(&mut self) -> Outcome<CommitNo> {
        self.make_room_to_clean()?;
        self.ensure_epoch_to_drop()?;
        if self.supply.is_short() && self.both_slots_name_the_state() {
            return Ok(self.working.commit);
        }
        self.checkpoint(true, Purpose::CheckpointToFree)
    }

    /// Whether a recovery from either slot would read one checkpoint of what there is now, and no segment but the one that is
    /// written to.
    pub(crate) fn both_slots_name_the_state(&self) -> bool {
        let current = &self.root.current;
        let other = self.root.other.as_ref();
        other.is_some_and(|other| {
            other.epoch == current.epoch && other.checkpoint == current.checkpoint
        }) && self.log.is_some()
            && current.commit == self.working.commit
            && self.working.since_checkpoint.frames == 0
            && self.oldest_needed_segment() == self.written_segment()
    }

    /// Writes and syncs a checkpoint; returns what the root is to name. `first`: the folder of the log, the segment that the
    /// epoch of this checkpoint begins with, and its path if it has no name yet. Unless it `must_be_full` it is a difference,
    /// if the base is not used up.
    pub(super) fn store_checkpoint(
        &mut self,
        first: Option<(&LogFolder, FileId, Option<&Path>)>,
        must_be_full: bool,
        purpose: Purpose,
    ) -> Outcome<Stored> {
        // Files may have been restored since.
        self.working.settle_pending(&*self.store);
        let builds_on = match purpose {
            Purpose::CheckpointToFree if first.is_none() && self.supply.is_short() => {
                BuildsOn::Alone
            }
            _ if must_be_full => BuildsOn::Nothing,
            _ => self.working.choose_base(first.is_some()),
        };
        if first.is_none() {
            // Before its padding is written, so that this costs nothing where all commits were synced.
            let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
            write_and_sync(log, &self.supply)?;
        }
        let (at, written, index_bytes) = self.place_checkpoint(builds_on, purpose)?;
        self.push_frame(self.working.commit, Vec::new(), false)?;
        let frame_bytes = len_u32(self.builder.frame_bytes());
        self.supply.sizes.note_checkpoint(match builds_on {
            // Pages that are written once are in no other checkpoint, and no base with its pages is
            // kept.
            BuildsOn::Alone => index_bytes,
            BuildsOn::Nothing => u64::from(frame_bytes),
            _ => u64::from(self.working.bases.frame_bytes().max(frame_bytes)),
        });
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        write_and_sync(log, &self.supply)?;
        if let Some((folder, id, unnamed)) = first {
            segment::name_first(&self.env, &self.dir, folder, id, unnamed).map_err(fatal)?;
        }
        let root = Root {
            database: self.database,
            sequence: 0,
            epoch: log.epoch(),
            checkpoint: at,
            checkpoint_bytes: frame_bytes,
            checkpoint_crc: log.previous_crc(),
            commit: self.working.commit,
            proven: log.synced(),
            next_file: self.supply.file_id_bound(),
            features: self.working.features_written(),
        };
        Ok(Stored {
            root,
            builds_on,
            written,
            index_bytes,
        })
    }

    /// Makes a checkpoint the one that counts.
    pub(super) fn switch_root(&mut self, stored: Stored, begins_epoch: bool) -> Outcome<()> {
        let Stored {
            root,
            builds_on,
            written,
            index_bytes,
        } = stored;
        // A new epoch goes into both slots before anything of it is acknowledged (invariant 5 of the format page).
        let both_slots = begins_epoch && Rule::BothSlots.is_kept() || builds_on == BuildsOn::Alone;
        for _ in 0..if both_slots { 2 } else { 1 } {
            let switched = self.root.switch(root);
            switched
                .inspect_err(|e| self.supply.note_failed_write(e))
                .map_err(fatal)?;
        }
        let mut uses = OfTrees::new();
        for (place, written) in written {
            written.pages.publish(&*self.store);
            uses.insert(place, written.uses);
        }
        self.working.trim(uses);
        let own = Place {
            at: root.checkpoint,
            frame_bytes: root.checkpoint_bytes,
            crc: root.checkpoint_crc,
        };
        self.working.note_checkpoint(own, builds_on, index_bytes);
        self.dropped.is_settled();
        // The root names higher ids now, so their files can be removed.
        if self.store.take_given_up(1) > 0 {
            self.due.garbage_stays();
        }
        self.due.look_at_garbage_again();
        Ok(())
    }

    /// Builds the frame of a checkpoint for the place where it will go, which is the end of the log from then on. Sealed pages
    /// name their places, so it is built again if it turns out not to fit this segment.
    ///
    /// It begins in a sector of its own: so a sector that cannot be read any more does not take two checkpoints, nor a
    /// checkpoint together with commits before it, which the checkpoint of the other slot would need. Not where the disk is
    /// nearly full: what room there is serves commits that free some.
    fn place_checkpoint(
        &mut self,
        builds_on: BuildsOn,
        purpose: Purpose,
    ) -> Outcome<(LogPosition, WrittenTrees, u64)> {
        let (mut needed_bytes, mut attempts) = (0, 0);
        let is_apart = Rule::OwnSectors.is_kept() && self.has_ample_space();
        let uses = self.working.changed_uses(&*self.store);
        loop {
            attempts += 1;
            assert!(attempts < 5, "a segment has room for what it is taken for");
            let log = self.room(needed_bytes, 0, purpose)?;
            let (end, at) = match is_apart {
                true => (log.end(), log.next_sector()),
                false => (log.end(), log.end()),
            };
            let padding_bytes = at.offset - end.offset;
            let (written, index_bytes) =
                self.build_checkpoint(at, builds_on, &uses)
                    .map_err(|e| match e.kind() {
                        // Nothing was written of it, and the state is as it was.
                        ErrorKind::Limit => Failure::Refused(e),
                        _ => fatal(e),
                    })?;
            let frame_bytes = padding_bytes + self.builder.frame_bytes() as u64;
            if self.fits(frame_bytes, 0, purpose) {
                let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
                log.pad_to(at, self.working.commit).map_err(fatal)?;
                return Ok((at, written, index_bytes));
            }
            // Addresses are numbers of variable length: elsewhere the frame may be a little longer.
            needed_bytes = frame_bytes + frame_bytes / 8 + 4096;
        }
    }

    /// Whether up to a sector of zeros is little in the segment that is written to, and there is space for some more segments,
    /// as far as is known.
    fn has_ample_space(&self) -> bool {
        let segment_bytes = self.log.as_ref().map_or(0, LogWriter::capacity_bytes);
        segment_bytes >= MIN_PADDED_BYTES && self.supply.free.has(AMPLE_SEGMENTS * segment_bytes)
    }

    fn build_checkpoint(
        &mut self,
        at: LogPosition,
        builds_on: BuildsOn,
        changed_uses: &OfTrees<Changes>,
    ) -> Result<(WrittenTrees, u64)> {
        let (builder, working, database) = (&mut self.builder, &self.working, self.database);
        let first_page = at.offset + FrameBuilder::sections_offset(CHECKPOINT_SECTIONS) as u64;
        let mut written = WrittenTrees::new();
        builder.clear();
        builder.section(SectionKind::Pages, |out| {
            for (id, order) in &working.changed_trees {
                let table = working.table(*id);
                let Some((table, tree)) = table.and_then(|t| Some((t, t.tree_of(*order)?))) else {
                    continue;
                };
                let (mut page_bytes, mut is_first) = (0, true);
                let pages = tree.write_dirty(&mut |page| {
                    let address =
                        page.seal_into(database, at.segment, first_page + out.len() as u64, out);
                    out.resize(out.len().next_multiple_of(FRAME_ALIGN), 0);
                    if Rule::CountedPages.is_kept() || !is_first {
                        page_bytes += u64::from(address.bytes);
                    }
                    is_first = false;
                    Ok(address)
                })?;
                let place = (*id, *order);
                let uses = changed_uses.get(&place).and_then(|changes| {
                    let mut changes = changes.clone();
                    changes.add_pages(at.segment, page_bytes);
                    let uses = changes.added_to(table.known_uses(*order)?.uses())?;
                    // Else whoever reads them takes them for damage.
                    let is_kept = Rule::CountedPages.is_kept();
                    (!is_kept || may_be_of(&uses, pages.root())).then_some(uses)
                });
                written.insert(place, WrittenTree { pages, uses });
            }
            Ok(())
        })?;
        let mut index_bytes = 0;
        builder.section(SectionKind::Index, |out| {
            let start = out.len();
            put_checkpoint(working, builds_on, &written, out)?;
            index_bytes = (out.len() - start) as u64;
            Ok(())
        })?;
        Ok((written, index_bytes))
    }
}

fn write_and_sync(log: &mut LogWriter, supply: &SegmentSupply) -> Outcome<()> {
    let written = log.write().inspect_err(|e| supply.note_failed_write(e));
    written.and_then(|()| log.sync()).map_err(fatal)
}
