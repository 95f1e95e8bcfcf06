//! Reading the log forward: the frames of one epoch after a checkpoint.
//!
//! Invariants: only frames that verify, continue the chain and follow the last commit are yielded; the end of the chain is
//! an end, and whether it is a torn one or damage is decided by [`Replay::judge_end`] alone. Only a repair goes on after
//! damage ([`Replay::skip_damage`]).

mod checkpoints;
mod search;

use crate::bases::Place;
use crate::change::{Change, changes_of};
use crate::checkpoint::{base_of, bases_of, get_checkpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::fields::Fields;
use crate::frame::{
    FRAME_ALIGN, FRAME_FRONT_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHead, NotAFrame,
    SectionKind, frame_front, seal,
};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition};
use crate::paths::{list_segments, segment_path};
use crate::root::Root;
use crate::rules::Rule;
use crate::segment::{self, SEGMENT_HEADER_BYTES, open_segment};
use crate::working::Working;
use bytes::Bytes;
use checkpoints::{check_header, place_of, read_base, read_checkpoint};
pub(crate) use search::find_frame;
use search::{Proof, ProofSearch};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::{Env, File, is_unreadable};

/// How much is read ahead at most.
const WINDOW_BYTES: usize = 256 << 10;
/// How much is read first, and where the bulk of the frame before was passed over.
const MIN_WINDOW_BYTES: usize = 8 << 10;

/// Larger than the sectors of any disk, and a page of the cache that reads go through: so much cannot be read at once.
const UNREADABLE_BYTES: usize = 4096;

/// Walks frames.
pub(crate) struct Replay {
    env: Env,
    dir: PathBuf,
    database: DatabaseId,
    epoch: Epoch,
    file: Arc<dyn File>,
    /// Where the next frame is expected.
    at: LogPosition,
    /// Where the last frame that was read begins, if it is in this segment.
    last_offset: Option<u64>,
    previous_crc: u32,
    commit: CommitNo,
    /// The segment that the last frame named.
    named: Option<FileId>,
    window: Bytes,
    window_start: u64,
    /// How much was read ahead last.
    ahead_bytes: usize,
    /// A power cut may have been in the way of what was written last.
    may_be_torn: bool,
    /// Why the frame at the end of the chain cannot be read, if that is how it ends.
    torn: Option<Error>,
    /// Checkpoints that the root or other checkpoints name. A repair skips those of them that are damaged.
    named_checkpoints: Vec<NamedCheckpoint>,
}

/// A checkpoint by what else names it: a slot of the root, or a checkpoint that builds on it.
#[derive(Clone, Copy)]
pub(crate) struct NamedCheckpoint {
    pub(crate) place: Place,
    /// Its epoch, and the last commit before it, if a slot of the root names them.
    pub(crate) follows: Option<(Epoch, CommitNo)>,
}

/// Where a log is read from, and what the frame there must continue.
pub(crate) struct ReadFrom {
    pub(crate) at: LogPosition,
    pub(crate) epoch: Epoch,
    pub(crate) previous_crc: u32,
    /// The last commit before it.
    pub(crate) commit: CommitNo,
}

impl ReadFrom {
    /// Before a frame.
    pub(crate) fn frame(at: LogPosition, head: &FrameHead) -> Self {
        Self {
            at,
            epoch: head.id.epoch,
            previous_crc: head.id.previous_crc,
            commit: head.commit_before(),
        }
    }

    /// Before the checkpoint that a slot of the root names, which may be damaged: it is not known what it continues.
    pub(crate) fn checkpoint(named: &Root) -> Self {
        Self {
            at: named.checkpoint,
            epoch: named.epoch,
            previous_crc: 0,
            commit: named.commit,
        }
    }
}

/// A frame of the chain.
pub(crate) struct Frame {
    pub(crate) at: LogPosition,
    pub(crate) head: FrameHead,
    pub(crate) changes: Vec<Change>,
}

impl Frame {
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition {
            offset: self.at.offset + u64::from(self.head.frame_bytes),
            ..self.at
        }
    }
}

impl Replay {
    /// Reads the checkpoint that the root names, and stands after it.
    pub(crate) fn start(env: &Env, dir: &Path, root: &Root) -> Result<(Self, Working)> {
        Self::check_header(env, dir, root)?;
        Self::behind_checkpoint(env, dir, root)
    }

    /// Stands in the middle of a log, whatever lies before that.
    pub(crate) fn from_middle(
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        from: ReadFrom,
    ) -> Result<Self> {
        Ok(Self {
            env: env.clone(),
            dir: dir.to_owned(),
            database,
            epoch: from.epoch,
            file: open_segment(env, &segment_path(dir, from.at.segment))?,
            at: from.at,
            last_offset: None,
            previous_crc: from.previous_crc,
            commit: from.commit,
            named: None,
            window: Bytes::new(),
            window_start: 0,
            ahead_bytes: 0,
            may_be_torn: false,
            torn: None,
            named_checkpoints: Vec::new(),
        })
    }

    /// Names checkpoints after which the log goes on even where one of them is damaged.
    pub(crate) fn expect_checkpoints(&mut self, named: &[NamedCheckpoint]) {
        let is_of_epoch =
            |named: &&NamedCheckpoint| named.follows.is_none_or(|(epoch, _)| epoch == self.epoch);
        self.named_checkpoints = named.iter().filter(is_of_epoch).copied().collect();
    }

    /// Goes past the frame here, if something else names it as a checkpoint: that gives its length and what the next frame
    /// continues, and a checkpoint changes nothing. Returns where it lies.
    pub(crate) fn pass_checkpoint(&mut self) -> Option<LogPosition> {
        let is_here = |named: &&NamedCheckpoint| {
            let commit = named.follows.map(|(_, commit)| commit);
            named.place.at == self.at && commit.is_none_or(|commit| commit == self.commit)
        };
        let place = self.named_checkpoints.iter().find(is_here)?.place;
        self.at.offset += u64::from(place.frame_bytes);
        self.previous_crc = place.crc;
        self.refresh();
        Some(place.at)
    }

    /// Whether nothing was written after the checkpoint that [`Replay::pass_checkpoint`] has gone past, nor its end
    /// damaged: else damage of both may hide commits, none of which is known.
    pub(crate) fn ends_behind_checkpoint(&self) -> Result<bool> {
        let mut around = [0; 2 * FRAME_HEADER_BYTES];
        let start = self.at.offset.saturating_sub(FRAME_HEADER_BYTES as u64);
        read_up_to(&*self.file, &mut around, start)
            .map_err(|e| Error::io(format_args!("reading {}", self.place()), e))?;
        let (end, behind) = around.split_at(FRAME_HEADER_BYTES);
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        Ok(!is_blank(end) && is_blank(behind))
    }

    /// The full checkpoints that one builds on, or names as that of the next one; none where it cannot be read.
    pub(crate) fn bases_of(env: &Env, dir: &Path, root: &Root) -> Result<Vec<Place>> {
        let own = root.place();
        let section = match read_checkpoint(env, dir, root.database, own) {
            Ok((_, section, _)) => section,
            Err(error) if error.kind() == ErrorKind::Corruption => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(bases_of(&section, own).unwrap_or_default())
    }

    /// A power cut may have torn what was written last: sectors of it may be unreadable.
    pub(crate) fn expect_torn_end(&mut self) {
        self.may_be_torn = true;
    }

    /// Whether the segment of the checkpoint is the one that the root means.
    pub(crate) fn check_header(env: &Env, dir: &Path, root: &Root) -> Result<()> {
        let path = segment_path(dir, root.checkpoint.segment);
        check_header(&*open_segment(env, &path)?, &path, root)
    }

    /// Starts as [`Self::start`] does, whatever the header of the segment is: the frame is sealed itself.
    pub(crate) fn behind_checkpoint(env: &Env, dir: &Path, root: &Root) -> Result<(Self, Working)> {
        let at = root.checkpoint;
        let own = root.place();
        let (head, section, file) = read_checkpoint(env, dir, root.database, own)?;
        let place = place_of(dir, at);
        let damage = |what: &str| Error::corruption(&place, what);
        if head.id.epoch != root.epoch {
            return Err(damage("the checkpoint is not the one that the root names"));
        }
        let base = base_of(&section, own).map_err(|e| e.in_bytes_at(&place))?;
        let before = base.map(|base| read_base(env, dir, root.database, base));
        let before = before.transpose()?.unwrap_or_else(Working::empty);
        let working = get_checkpoint(&section, own, before).map_err(|e| e.in_bytes_at(&place))?;
        if working.commit != root.commit || head.id.commit != root.commit {
            return Err(damage(
                "the checkpoint is of another commit than the root says",
            ));
        }
        let replay = Self {
            env: env.clone(),
            dir: dir.to_owned(),
            database: root.database,
            epoch: root.epoch,
            file,
            at: LogPosition {
                offset: at.offset + u64::from(head.frame_bytes),
                ..at
            },
            last_offset: Some(at.offset),
            previous_crc: head.crc,
            commit: root.commit,
            named: None,
            window: Bytes::new(),
            window_start: 0,
            ahead_bytes: 0,
            may_be_torn: false,
            torn: None,
            named_checkpoints: Vec::new(),
        };
        Ok((replay, working))
    }

    /// Whether the full checkpoint at a place is whole.
    pub(crate) fn check_base(
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        base: Place,
    ) -> Result<()> {
        read_base(env, dir, database, base).map(|_| ())
    }

    pub(crate) fn at(&self) -> LogPosition {
        self.at
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn place(&self) -> String {
        format!(
            "{} at {}",
            segment_path(&self.dir, self.at.segment).display(),
            self.at.offset
        )
    }

    /// Whether a frame may begin at the current position: a cheap look before [`Self::refresh`].
    pub(crate) fn may_go_on(&self) -> Result<bool> {
        let magic = FRAME_MAGIC.to_le_bytes();
        Ok(self.named.is_some() || self.reads(&magic, self.at.offset)?)
    }

    /// Whether the frame that was read last still reads so: a failed sync may have lost it.
    pub(crate) fn keeps_last(&self) -> Result<bool> {
        let Some(offset) = self.last_offset else {
            return Ok(true);
        };
        self.reads(&frame_front(self.previous_crc), offset)
    }

    /// Whether these few bytes are at an offset of the segment.
    fn reads(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let mut found = [0; FRAME_FRONT_BYTES];
        let found = &mut found[..bytes.len()];
        let filled = read_up_to(&*self.file, found, offset)
            .map_err(|e| Error::io(format_args!("reading {}", self.place()), e))?;
        Ok(filled == bytes.len() && found == bytes)
    }

    /// Returns at least `bytes` from the current position, or what the file has.
    fn look(&mut self, bytes: usize) -> Result<Bytes> {
        let skip = self
            .at
            .offset
            .checked_sub(self.window_start)
            .and_then(|s| usize::try_from(s).ok());
        if let Some(skip) = skip.filter(|s| s.saturating_add(bytes) <= self.window.len()) {
            return Ok(self.window.slice(skip..));
        }
        self.ahead_bytes = self.next_ahead();
        let mut window = vec![0; bytes.max(self.ahead_bytes)];
        let mut filled = read_up_to(&*self.file, &mut window, self.at.offset);
        if filled.as_ref().is_err_and(is_unreadable) {
            // Bytes that cannot be read may lie past the end of the log, where a power cut has torn a write.
            window.truncate(bytes);
            filled = read_up_to(&*self.file, &mut window, self.at.offset);
        }
        let filled = filled.map_err(|e| self.unreadable(e))?;
        window.truncate(filled);
        (self.window, self.window_start) = (Bytes::from(window), self.at.offset);
        Ok(self.window.clone())
    }

    /// How much is worth reading ahead: more and more of frames that are read whole, little where each has a bulk of blocks that
    /// is passed over.
    fn next_ahead(&self) -> usize {
        let window_end = self.window_start + self.window.len() as u64;
        match self.at.offset > window_end {
            true => MIN_WINDOW_BYTES,
            false => (2 * self.ahead_bytes).clamp(MIN_WINDOW_BYTES, WINDOW_BYTES),
        }
    }

    /// Turns an error of reading into one for a place where the log may go on.
    fn unreadable(&self, error: std::io::Error) -> Error {
        may_be_commits(Error::io(format_args!("reading {}", self.place()), error))
    }

    /// Whether a frame that cannot be read for this error was torn by a power cut while it was written
    /// (`docs/decisions/crash-rules.md`, "Sectors that cannot be read").
    fn is_torn_inside(&self, at: LogPosition, head: &FrameHead, error: &Error) -> bool {
        self.may_be_torn
            && error.is_unreadable()
            && only_inside_is_unreadable(&*self.file, at.offset, u64::from(head.frame_bytes))
    }

    /// Forgets what was read ahead: the writer may have appended since.
    pub(crate) fn refresh(&mut self) {
        self.window = Bytes::new();
    }

    /// The next frame of the chain that is a commit up to `told`, or is shown once it is written, or carries no commit;
    /// `None` at the end of those.
    pub(crate) fn next(&mut self, told: CommitNo) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.next_here(told)? {
                return Ok(Some(frame));
            }
            if !self.next_segment()? {
                return Ok(None);
            }
        }
    }

    fn next_here(&mut self, told: CommitNo) -> Result<Option<Frame>> {
        let Some(head) = self.head_here()? else {
            return Ok(None);
        };
        let is_shown = !head.is_commit()
            || head.id.commit <= told
            || head.id.shown_on_write
            || !Rule::HideUnsynced.is_kept();
        if !is_shown {
            return Ok(None);
        }
        let chained = self.is_of_this_epoch(head.id.epoch)
            && (head.id.previous_crc == self.previous_crc || !Rule::Chain.is_kept());
        let goes_on = if head.is_commit() {
            head.id.commit.follows(self.commit)
        } else {
            head.id.commit == self.commit
        };
        if !chained || !goes_on {
            return Ok(None);
        }
        let frame = match self.look(head.needed_bytes()) {
            Err(error) if self.is_torn_inside(self.at, &head, &error) => {
                self.torn = Some(error);
                return Ok(None);
            }
            frame => frame?,
        };
        if frame.len() < head.needed_bytes() {
            return Ok(None);
        }
        let changes = if head.is_commit() {
            self.changes(&head, &frame)?
        } else {
            Some(Vec::new())
        };
        let Some(changes) = changes else {
            return Ok(None);
        };
        let named = Self::named_segment(&head, &frame);
        let names_one = head.sections.iter().any(|s| s.kind == SectionKind::Next);
        if names_one && named.is_none() {
            // Half written: who went on after it would never learn where the log goes on.
            return Ok(None);
        }
        self.named = named;
        let at = self.at;
        self.last_offset = Some(at.offset);
        self.at.offset += u64::from(head.frame_bytes);
        self.previous_crc = head.crc;
        self.commit = head.id.commit;
        Ok(Some(Frame { at, head, changes }))
    }

    fn changes(&self, head: &FrameHead, frame: &Bytes) -> Result<Option<Vec<Change>>> {
        // The sections verified, so what does not parse was written so: damage of the program, not of the disk.
        let mut changes = changes_of(head, frame).map_err(|e| e.in_bytes_at(self.place()))?;
        for change in changes.iter_mut().flatten() {
            // Rows stay open for long: they must not keep a whole window in memory.
            if let Change::Rows(part) = change {
                part.payload = Bytes::copy_from_slice(&part.payload);
            }
        }
        Ok(changes)
    }

    fn head_here(&mut self) -> Result<Option<FrameHead>> {
        let mut wanted = FRAME_HEADER_BYTES;
        loop {
            let bytes = self.look(wanted)?;
            if bytes.len() < wanted {
                return Ok(None);
            }
            match FrameHead::parse(&bytes, seal(self.database, self.at)) {
                Ok(head) => return Ok(Some(head)),
                Err(NotAFrame::Short(bytes)) => wanted = bytes,
                Err(NotAFrame::Invalid(_)) => return Ok(None),
                Err(NotAFrame::Newer(what)) => return Err(Error::newer(self.place(), what)),
            }
        }
    }

    /// The segment that a NEXT frame names, if that part of it verifies.
    fn named_segment(head: &FrameHead, frame: &Bytes) -> Option<FileId> {
        let entry = head.sections.iter().find(|s| s.kind == SectionKind::Next)?;
        let section = head.section(frame, entry)?;
        Fields::new(section, "NEXT section").u64().ok().map(FileId)
    }

    /// Goes on in the segment that the last frame named, if there is one and it was written to.
    fn next_segment(&mut self) -> Result<bool> {
        let Some(id) = self.named else {
            return Ok(false);
        };
        let path = segment_path(&self.dir, id);
        let file = open_segment(&self.env, &path)?;
        // A header that does not verify: its first write was torn, or it is damaged, which `judge_end` finds out.
        let header = segment::whole_header(&*file, &path).map_err(may_be_commits)?;
        let Some(header) = header else {
            return Ok(false);
        };
        if header.file != id {
            // What is named empty grows, and may show bytes that the disk held before, earlier versions of a segment among them.
            let other = segment_path(&self.dir, header.file);
            let is_copy = segment::is_copy(&self.env, &*file, &path, &other);
            let what = "a copy of another segment";
            return match is_copy.map_err(may_be_commits)? {
                true => Err(Error::corruption(path.display(), what)),
                false => Ok(false),
            };
        }
        let continues = (header.previous, header.previous_crc)
            == (Some(self.at), self.previous_crc)
            || !Rule::Chain.is_kept();
        let belongs = header.database == self.database && self.is_of_this_epoch(header.epoch);
        if !continues || !belongs {
            return Err(Error::corruption(
                path.display(),
                "not the segment that the log goes on in",
            ));
        }
        self.at = LogPosition {
            segment: id,
            offset: SEGMENT_HEADER_BYTES as u64,
        };
        (self.file, self.named, self.last_offset) = (file, None, None);
        self.refresh();
        Ok(true)
    }

    fn is_of_this_epoch(&self, epoch: Epoch) -> bool {
        epoch == self.epoch || !Rule::Epoch.is_kept()
    }

    /// The chain has ended here: an error if anything proves that it went on.
    pub(crate) fn judge_end(&self, proven: LogPosition) -> Result<()> {
        if !Rule::Proof.is_kept() {
            return Ok(());
        }
        self.check_proven(proven)?;
        self.check_proof(self.later_proof()?)
    }

    /// The part of it that is known: an error if the chain ends before a place that was synced.
    pub(crate) fn check_proven(&self, proven: LogPosition) -> Result<()> {
        if proven <= self.at {
            return Ok(());
        }
        Err(self.goes_on(format_args!(
            "frames up to {} of segment {:x} were synced (so looks the copy of a folder that a writer had open)",
            proven.offset, proven.segment.0
        )))
    }

    /// The part of it that is looked for: an error if there is a proof.
    pub(crate) fn check_proof(&self, proof: Option<Proof>) -> Result<()> {
        let Some((at, _)) = proof else {
            return Ok(());
        };
        Err(self.goes_on(format_args!(
            "the frame at {} of segment {:x} was written after this place was synced",
            at.offset, at.segment.0
        )))
    }

    fn goes_on(&self, why: std::fmt::Arguments<'_>) -> Error {
        // What cannot be read is not damage, but neither an end if something was there for certain.
        self.torn.clone().unwrap_or_else(|| {
            Error::corruption(self.place(), format_args!("the log is damaged: {why}"))
        })
    }

    /// Finds a valid frame past the end of the chain that was built when bytes past that end were synced; returns its
    /// place, and up to where these were.
    pub(crate) fn later_proof(&self) -> Result<Option<Proof>> {
        self.proof_search().find()
    }

    /// The search for one, which another thread can do.
    pub(crate) fn proof_search(&self) -> ProofSearch {
        ProofSearch {
            env: self.env.clone(),
            dir: self.dir.clone(),
            database: self.database,
            epoch: self.epoch,
            file: Arc::clone(&self.file),
            end: self.at,
        }
    }

    /// Goes on with the next frame of the epoch after bytes that are damaged; reports what lies between. That frame is the
    /// next one if the rest of it verifies.
    pub(crate) fn skip_damage(&mut self) -> Result<Skipped> {
        let from = self.at;
        let lost_head = head_at(&*self.file, from, self.database)?
            .filter(|head| head.id.epoch == self.epoch && head.id.commit.follows(self.commit));
        let mut skipped = Skipped {
            from,
            to: None,
            last_lost: None,
            may_hold_edits: true,
        };
        let found = self.next_of_epoch()?;
        let found_at = found.as_ref().map(|(at, ..)| *at);
        if let Some((at, commit, file)) = self.next_named_checkpoint(found_at)? {
            // All commits before it were stored, whatever is left of them. It may be damaged as well.
            skipped.to = Some(at);
            skipped.last_lost = (commit > self.commit).then_some(commit);
            skipped.may_hold_edits = skipped.last_lost.is_some();
            (self.at, self.file, self.named) = (at, file, None);
            self.commit = commit;
            self.refresh();
            return Ok(skipped);
        }
        let Some((at, file, head)) = found else {
            return Ok(skipped);
        };
        skipped.to = Some(at);
        let before = head.commit_before();
        skipped.last_lost = (before > self.commit).then_some(before);
        // One commit is lost, and its section table, which verifies, lists no edit.
        let knows_all = before.follows(self.commit);
        let holds_edits =
            |lost: &FrameHead| lost.sections.iter().any(|s| s.kind == SectionKind::Edit);
        skipped.may_hold_edits = skipped.last_lost.is_some()
            && !(knows_all && lost_head.is_some_and(|lost| !holds_edits(&lost)));
        (self.at, self.file, self.named) = (at, file, None);
        (self.previous_crc, self.commit) = (head.id.previous_crc, before);
        self.refresh();
        Ok(skipped)
    }

    /// The first checkpoint after the current position that a slot of the root names, if it lies before `found`; the last
    /// commit before it; and its segment, if that is there.
    fn next_named_checkpoint(&self, found: Option<LogPosition>) -> Result<Option<FoundCheckpoint>> {
        let known = self.named_checkpoints.iter();
        let known = known.filter_map(|named| Some((named.place.at, named.follows?.1)));
        let is_between = |(at, commit): &(LogPosition, CommitNo)| {
            *at > self.at && *commit >= self.commit && found.is_none_or(|found| *at < found)
        };
        let Some((at, commit)) = known.filter(is_between).min() else {
            return Ok(None);
        };
        let file = segment::find_segment(&self.env, &segment_path(&self.dir, at.segment))?;
        Ok(file.map(|file| (at, commit, file)))
    }

    /// The first frame after the current position that the log could go on with.
    fn next_of_epoch(&self) -> Result<Option<FoundFrame>> {
        let goes_on = |_: LogPosition, head: &FrameHead| {
            head.id.epoch == self.epoch && head.commit_before() >= self.commit
        };
        let behind = LogPosition {
            offset: self.at.offset + FRAME_ALIGN as u64,
            ..self.at
        };
        let mut unlimited = u64::MAX;
        let here = find_frame(&*self.file, behind, self.database, &mut unlimited, goes_on)?;
        if let Some((at, head)) = here {
            return Ok(Some((at, Arc::clone(&self.file), head)));
        }
        for id in list_segments(&self.env, &self.dir)? {
            if id <= self.at.segment {
                continue;
            }
            let file = open_segment(&self.env, &segment_path(&self.dir, id))?;
            let start = LogPosition {
                segment: id,
                offset: SEGMENT_HEADER_BYTES as u64,
            };
            if let Some((at, head)) =
                find_frame(&*file, start, self.database, &mut unlimited, goes_on)?
            {
                return Ok(Some((at, file, head)));
            }
        }
        Ok(None)
    }

    /// A whole frame, blocks and all; as far as it can be read, if a power cut has torn it.
    pub(crate) fn read_whole(&self, frame: &Frame) -> Result<Vec<u8>> {
        let path = segment_path(&self.dir, frame.at.segment);
        let mut bytes = vec![0; frame.head.frame_bytes as usize];
        let file = match frame.at.segment == self.at.segment {
            true => Arc::clone(&self.file),
            false => open_segment(&self.env, &path)?,
        };
        let filled = read_up_to(&*file, &mut bytes, frame.at.offset).map_err(|e| {
            Error::io(
                format_args!("reading {} at {}", path.display(), frame.at.offset),
                e,
            )
        });
        let filled = match filled {
            Err(error)
                if self.may_be_torn
                    && error.is_unreadable()
                    && only_inside_is_unreadable(
                        &*file,
                        frame.at.offset,
                        u64::from(frame.head.frame_bytes),
                    ) =>
            {
                0
            }
            filled => filled.map_err(may_be_commits)?,
        };
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// The part of the log that [`Replay::skip_damage`] went past.
pub(crate) struct Skipped {
    pub(crate) from: LogPosition,
    /// Where the log goes on; `None`: nowhere.
    pub(crate) to: Option<LogPosition>,
    /// The last commit that is lost; `None`: none, or it is not known which.
    pub(crate) last_lost: Option<CommitNo>,
    /// Tables may have been made, altered or dropped, or blocks replaced, by what is lost.
    pub(crate) may_hold_edits: bool,
}

/// Where a frame was found, in which file, and its head.
type FoundFrame = (LogPosition, Arc<dyn File>, FrameHead);
/// A checkpoint that a slot names: where it lies, the last commit before it, and its segment.
type FoundCheckpoint = (LogPosition, CommitNo, Arc<dyn File>);

/// Whether a frame has unreadable sectors, and each of them holds bytes of this frame and of no other.
fn only_inside_is_unreadable(file: &dyn File, start: u64, frame_bytes: u64) -> bool {
    const STEP_BYTES: u64 = UNREADABLE_BYTES as u64;
    let end = start + frame_bytes;
    let mut piece = [0; UNREADABLE_BYTES];
    let mut at = start / STEP_BYTES * STEP_BYTES;
    let mut is_torn = false;
    while at < end {
        match read_up_to(file, &mut piece, at) {
            Ok(_) => {}
            Err(error) => {
                let is_inside = at >= start && at + STEP_BYTES <= end;
                if !is_unreadable(&error) || !is_inside {
                    return false;
                }
                is_torn = true;
            }
        }
        at += STEP_BYTES;
    }
    is_torn
}

/// Header and section table of the frame at a place, if one is there.
pub(crate) fn head_at(
    file: &dyn File,
    at: LogPosition,
    database: DatabaseId,
) -> Result<Option<FrameHead>> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    loop {
        let filled = read_up_to(file, &mut bytes, at.offset).map_err(|e| {
            Error::io(
                format_args!("reading segment {:x} at {}", at.segment.0, at.offset),
                e,
            )
        })?;
        match FrameHead::parse(&bytes[..filled], seal(database, at)) {
            Ok(head) => return Ok(Some(head)),
            Err(NotAFrame::Short(_)) if filled < bytes.len() => return Ok(None),
            Err(NotAFrame::Short(needed)) => {
                // The first sections rule out most rows that look like heads.
                bytes.resize(needed.min(2 * bytes.len()), 0);
            }
            Err(NotAFrame::Invalid(_)) => return Ok(None),
            Err(NotAFrame::Newer(what)) => {
                let place = format_args!("segment {:x} at {}", at.segment.0, at.offset);
                return Err(Error::newer(place, what));
            }
        }
    }
}

/// Adds to the error for bytes of the log that cannot be read what that means, and what can be done.
fn may_be_commits(error: Error) -> Error {
    if !error.is_unreadable() {
        return error;
    }
    let message = format!(
        "{error}: commits that were acknowledged may lie there, so it does not pass for the end of the log; if it stays \
         so, copy the folder with a tool that fills in what cannot be read, and open the copy"
    );
    Error::with_source(error.kind(), message, error)
}

/// Fills `buf` as far as the file goes. A read that ends before the file does is an error: it must not pass for the end.
fn read_up_to(file: &dyn File, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) if file.len_bytes()? > offset + done as u64 => {
                return Err(std::io::Error::other("a read returned nothing"));
            }
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
