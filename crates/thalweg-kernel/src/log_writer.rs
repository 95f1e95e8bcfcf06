//! The end of the log, where frames are appended.
//!
//! Invariants: bytes go to disk in the order of the log; `synced` is only ever moved by a sync that succeeded; a segment is
//! left only after its last byte was synced, so survivors of a crash are a prefix. After an error the writer must not be
//! used again: its owner poisons itself.

use crate::error::{Error, Result};
use crate::fields::PutFields;
use crate::frame::{
    FRAME_ALIGN, FrameBuilder, FrameHead, FrameId, MIN_PAD_FRAME_BYTES, NEXT_FRAME_BYTES,
    SECTOR_BYTES, SectionKind, restamp, seal,
};
use crate::ids::{CommitNo, DatabaseId, Epoch, LogPosition};
use crate::rules::Rule;
use crate::segment::{Prepared, SEGMENT_HEADER_BYTES, SegmentHeader};
use std::io::IoSlice;
use std::sync::Arc;
use thalweg_env::{Env, File};

pub(crate) struct LogWriter {
    env: Env,
    database: DatabaseId,
    epoch: Epoch,
    file: Arc<dyn File>,
    capacity_bytes: u64,
    is_reserve: bool,
    /// Where the next frame goes.
    end: LogPosition,
    previous_crc: u32,
    /// Known to be on stable storage.
    synced: LogPosition,
    /// Bytes handed to the operating system.
    written: u64,
    /// A sync failed: what it was for is not known to be anywhere, even if the next one succeeds.
    sync_failed: bool,
    pending: Pending,
}

/// Frames that are built and not written.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// Blocks, and frames that are written again; how many of `bytes` come before each.
    blocks: Vec<(usize, Vec<u8>)>,
}

const ZEROS: [u8; FRAME_ALIGN] = [0; FRAME_ALIGN];

impl LogWriter {
    /// Goes on in a prepared segment; `previous` is where the log ended and the last header's CRC.
    pub(crate) fn begin(
        env: &Env,
        database: DatabaseId,
        epoch: Epoch,
        prepared: Prepared,
        previous: Option<(LogPosition, u32)>,
    ) -> Self {
        let header = SegmentHeader {
            database,
            file: prepared.id,
            epoch,
            previous: previous.map(|(at, _)| at),
            previous_crc: previous.map_or(0, |(_, crc)| crc),
        };
        let start = LogPosition {
            segment: prepared.id,
            offset: 0,
        };
        Self {
            env: env.clone(),
            database,
            epoch,
            file: prepared.file,
            capacity_bytes: prepared.capacity_bytes,
            is_reserve: prepared.is_reserve,
            end: LogPosition {
                offset: SEGMENT_HEADER_BYTES as u64,
                ..start
            },
            previous_crc: header.previous_crc,
            synced: previous.map_or(start, |(at, _)| at),
            written: 0,
            sync_failed: false,
            pending: Pending {
                bytes: header.encode().to_vec(),
                blocks: Vec::new(),
            },
        }
    }

    /// Leaves the segment for a prepared one, which the last frame names: a segment that is missing later is noticed.
    pub(crate) fn roll(&mut self, prepared: Prepared, commit: CommitNo) -> Result<()> {
        let mut next = FrameBuilder::default();
        next.section(SectionKind::Next, |out| {
            out.put_u64(prepared.id.0);
            Ok(())
        })?;
        self.push(commit, &next, Vec::new(), false);
        self.write()?;
        if Rule::SyncBeforeNext.is_kept() {
            self.sync()?;
        }
        *self = Self::begin(
            &self.env,
            self.database,
            self.epoch,
            prepared,
            Some((self.end, self.previous_crc)),
        );
        Ok(())
    }

    pub(crate) fn end(&self) -> LogPosition {
        self.end
    }

    /// The first place at the end or after it in whose sector no frame before it lies.
    pub(crate) fn next_sector(&self) -> LogPosition {
        let end = self.end.offset;
        let is_first = end == SEGMENT_HEADER_BYTES as u64;
        let offset = match is_first || end.is_multiple_of(SECTOR_BYTES) {
            true => end,
            false => (end + MIN_PAD_FRAME_BYTES).next_multiple_of(SECTOR_BYTES),
        };
        LogPosition { offset, ..self.end }
    }

    /// Appends zeros, so that the next frame begins there: at the end or at [`LogWriter::next_sector`].
    pub(crate) fn pad_to(&mut self, at: LogPosition, commit: CommitNo) -> Result<()> {
        if at == self.end {
            return Ok(());
        }
        assert!(at == self.next_sector(), "frames are not moved elsewhere");
        let zeros = at.offset - self.end.offset - MIN_PAD_FRAME_BYTES;
        let mut padding = FrameBuilder::default();
        padding.section(SectionKind::Pad, |out| {
            out.resize(usize::try_from(zeros).unwrap_or_default(), 0);
            Ok(())
        })?;
        self.push(commit, &padding, Vec::new(), false);
        assert!(at == self.end, "padding ends where it is to end");
        Ok(())
    }

    pub(crate) fn synced(&self) -> LogPosition {
        self.synced
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    pub(crate) fn previous_crc(&self) -> u32 {
        self.previous_crc
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the segment is one that was kept for a full disk.
    pub(crate) fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    /// Keeps what is left of the segment for what frees space.
    pub(crate) fn keep_for_freeing(&mut self) {
        self.is_reserve = true;
    }

    /// Gives what is not written yet of the segment back to the file system. It can still be written to, if there is room then.
    pub(crate) fn cut_unwritten(&self) {
        // Where even this takes room the segment stays as it is.
        let _ = self.file.set_len(self.written);
    }

    pub(crate) fn fits(&self, frame_bytes: u64) -> bool {
        self.end.offset + frame_bytes + NEXT_FRAME_BYTES <= self.capacity_bytes
    }

    /// Bytes that a power cut could take.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        if self.synced.segment == self.end.segment {
            self.end.offset - self.synced.offset
        } else {
            self.end.offset
        }
    }

    fn frame_id(&self, commit: CommitNo, shown_on_write: bool) -> FrameId {
        FrameId {
            commit,
            epoch: self.epoch,
            previous_crc: self.previous_crc,
            synced_to: self.synced,
            shown_on_write,
            time_ns: self.env.clock().wall_ns(),
        }
    }

    /// Appends a built frame with its blocks, one inner list per BLOCKS section; returns where it begins.
    pub(crate) fn push(
        &mut self,
        commit: CommitNo,
        frame: &FrameBuilder,
        blocks: Vec<Vec<Vec<u8>>>,
        shown_on_write: bool,
    ) -> LogPosition {
        let (at, frame_bytes) = (self.end, frame.frame_bytes() as u64);
        assert!(
            at.offset + frame_bytes <= self.capacity_bytes,
            "the caller rolls first"
        );
        self.previous_crc = frame.finish(
            &self.frame_id(commit, shown_on_write),
            seal(self.database, at),
            &mut self.pending.bytes,
        );
        for block in blocks.into_iter().flatten() {
            let padding = block.len().next_multiple_of(FRAME_ALIGN) - block.len();
            self.pending.blocks.push((self.pending.bytes.len(), block));
            self.pending.bytes.extend_from_slice(&ZEROS[..padding]);
        }
        self.end.offset += frame_bytes;
        at
    }

    /// Appends a frame that stood elsewhere, with a new header; returns where it begins.
    pub(crate) fn push_again(&mut self, head: &FrameHead, mut frame: Vec<u8>) -> LogPosition {
        let at = self.end;
        assert!(self.fits(frame.len() as u64), "the caller makes room");
        self.previous_crc = restamp(
            &mut frame,
            head,
            &self.frame_id(head.id.commit, head.id.shown_on_write),
            seal(self.database, at),
        );
        self.end.offset += frame.len() as u64;
        // Not copied, like blocks.
        self.pending.blocks.push((self.pending.bytes.len(), frame));
        at
    }

    /// Hands all pending frames to the operating system.
    pub(crate) fn write(&mut self) -> Result<()> {
        let Pending { bytes, blocks } = &self.pending;
        if bytes.is_empty() {
            return Ok(());
        }
        let fail = |e| Error::io(format_args!("writing the log at {:?}", self.end), e);
        if blocks.is_empty() {
            self.file.write_all_at(bytes, self.written).map_err(fail)?;
        } else {
            let mut slices = Vec::with_capacity(2 * blocks.len() + 1);
            let mut done = 0;
            for (before, block) in blocks {
                slices.push(IoSlice::new(&bytes[done..*before]));
                slices.push(IoSlice::new(block));
                done = *before;
            }
            slices.push(IoSlice::new(&bytes[done..]));
            self.file
                .write_all_vectored_at(&mut slices, self.written)
                .map_err(fail)?;
        }
        self.written = self.end.offset;
        self.pending.bytes.clear();
        self.pending.blocks.clear();
        Ok(())
    }

    /// Makes everything written durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        assert!(
            self.pending.bytes.is_empty(),
            "what is not written cannot be synced"
        );
        if self.synced == self.end {
            return Ok(());
        }
        self.sync_file()?;
        self.synced = self.end;
        Ok(())
    }

    /// After a write that failed: makes durable what was written before it, and returns where that ends. Nothing where it
    /// cannot be made so.
    pub(crate) fn sync_written(&mut self) -> Option<LogPosition> {
        if self.sync_failed || self.written == 0 {
            return None;
        }
        self.sync_file().ok()?;
        Some(LogPosition {
            offset: self.written,
            ..self.end
        })
    }

    fn sync_file(&mut self) -> Result<()> {
        let synced = self.file.sync_data();
        self.sync_failed |= synced.is_err();
        synced.map_err(|e| Error::io(format_args!("syncing the log at {:?}", self.end), e))
    }
}
