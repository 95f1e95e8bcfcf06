//! The chain of logs, and the frames in it.
//!
//! Invariants
//! - The chain is found from its end; a log that a header names as the one before must be there and count.
//! - Frames are numbered without a gap along the chain, and each names the one before it.
//! - A log that ends before a place that is proven to be synced is damaged, never shorter.

use std::sync::Arc;

use thalweg_env::File;

use crate::disk::{Disk, Listing};
use crate::error::{Error, Result};
use crate::format::{
    Draft, FIRST_FRAME, FRAME_HEADER_BYTES, FRAME_MAGIC, Fault, Frame, FrameHead, Half, LogHeader,
    MAX_FRAME_BYTES, Position, Seal,
};
use crate::rules::Rule;

/// Numbers of logs further above registry and position are of foreign files.
const MAX_NUMBER_STEP: u64 = 1 << 32;

/// A place after a frame, or at the beginning of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) log: u64,
    pub(crate) offset: u64,
    /// The number of the last frame before it.
    pub(crate) frame: u64,
    /// The checksum of the header of that frame, or of the log.
    pub(crate) link: u32,
}

impl Place {
    /// Along the chain.
    pub(crate) fn rank(&self) -> (u64, u64) {
        (self.log, self.offset)
    }

    /// Where the first frame of a log begins.
    pub(crate) fn first_of(header: &LogHeader) -> Place {
        Place {
            log: header.number,
            offset: FIRST_FRAME,
            frame: header.before_frame,
            link: header.link(),
        }
    }

    pub(crate) fn of_position(position: &Position) -> Option<Place> {
        (position.log > 0).then_some(Place {
            log: position.log,
            offset: position.offset,
            frame: position.frame,
            link: position.link,
        })
    }

    pub(crate) fn of_half(half: &Half) -> Option<Place> {
        (half.log > 0).then_some(Place {
            log: half.log,
            offset: half.visible,
            frame: half.last_frame,
            link: half.link,
        })
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            frame: self.frame,
            log: self.log,
            offset: self.offset,
            link: self.link,
        }
    }

    /// The bytes of the next frame, which begins here; the place moves after it. `head` has all but number and chain.
    pub(crate) fn append(&mut self, draft: &Draft, head: FrameHead, seal: &Seal) -> Vec<u8> {
        let head = FrameHead {
            number: self.frame + 1,
            before: self.link,
            ..head
        };
        let bytes = draft.encode(&head, seal, self.offset);
        self.offset += bytes.len() as u64;
        self.frame = head.number;
        self.link = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        bytes
    }
}

/// A log of the chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainLog {
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: LogHeader,
    /// Where it ends, if another log follows.
    pub(crate) end: Option<u64>,
}

impl ChainLog {
    pub(crate) fn first(&self) -> Place {
        Place::first_of(&self.header)
    }
}

/// A frame and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) log: u64,
    pub(crate) offset: u64,
    pub(crate) frame: Frame,
}

impl Located {
    pub(crate) fn after(&self) -> Place {
        Place {
            log: self.log,
            offset: self.offset + self.frame.len_bytes as u64,
            frame: self.frame.head.number,
            link: self.frame.link,
        }
    }
}

/// Logs that go on from each other, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) logs: Vec<ChainLog>,
}

impl Chain {
    pub(crate) fn has(&self, number: u64) -> bool {
        self.logs.iter().any(|log| log.header.number == number)
    }
}

/// Frames in their order, and where they end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    pub(crate) frames: Vec<Located>,
    pub(crate) end: Option<Place>,
}

impl Disk {
    /// The chain that ends with the log `last`; 0: there is none.
    pub(crate) fn chain(&self, last: u64, position: &Position) -> Result<Chain> {
        let mut logs = Vec::new();
        let (mut number, mut end) = (last, None);
        while number > 0 {
            let (file, header) = self.needed_log(number)?;
            logs.push(ChainLog { file, header, end });
            if header.before_frame <= position.frame {
                break;
            }
            (number, end) = (header.before, Some(header.before_end));
        }
        let reaches = logs
            .last()
            .map_or(position.frame, |log: &ChainLog| log.header.before_frame);
        if reaches > position.frame {
            return Err(self.damaged(last, "a log does not go on from one that is there"));
        }
        logs.reverse();
        Ok(Chain { logs })
    }

    /// The highest log that counts, from the position on; 0: there is none.
    pub(crate) fn highest(
        &self,
        listing: &Listing,
        known: u64,
        position: &Position,
    ) -> Result<u64> {
        let limit = known.max(position.log).saturating_add(MAX_NUMBER_STEP);
        for &number in listing.logs.range(..=limit).rev() {
            if number < position.log {
                break;
            }
            let Some(file) = self.open_log(number)? else {
                continue;
            };
            match self.header(&file, number)? {
                Some(_) => return Ok(number),
                None => self.check_abandoned(&file, number)?,
            }
        }
        match position.log {
            0 => Ok(0),
            number => Err(Error::Missing { number }),
        }
    }

    /// A log without a header holds nothing that anybody was promised.
    fn check_abandoned(&self, file: &Arc<dyn File>, number: u64) -> Result<()> {
        let mut window = Window::new(self, file, number);
        let mut offset = FIRST_FRAME;
        while let Ok(frame) = window.frame(offset)? {
            if frame.head.synced_to != 0 {
                return Err(self.damaged(number, "the header of a log was synced, and is lost"));
            }
            offset += frame.len_bytes as u64;
        }
        Ok(())
    }

    /// The frames of the chain after `from`, or after the position where it begins, up to `until` or to its end.
    pub(crate) fn frames(
        &self,
        chain: &Chain,
        from: Option<Place>,
        until: Option<Place>,
        halves: &[Half],
    ) -> Result<Frames> {
        let mut found = Frames::default();
        let from = from.filter(|from| chain.has(from.log));
        let from_log = from.map_or(0, |from| from.log);
        for log in chain
            .logs
            .iter()
            .filter(|log| log.header.number >= from_log)
        {
            let is_first = log.header.number == from_log;
            let start = from.filter(|_| is_first).unwrap_or_else(|| log.first());
            self.check_link(log, &start, found.end.as_ref())?;
            let end = match until {
                Some(until) if until.log == log.header.number => Some(until.offset),
                Some(_) if log.end.is_none() => {
                    return Err(
                        self.damaged(log.header.number, "a log is shown that is not in the chain")
                    );
                }
                _ => log.end,
            };
            found.end = Some(self.read_log(log, start, end, halves, &mut found.frames)?);
        }
        Ok(found)
    }

    fn check_link(&self, log: &ChainLog, start: &Place, before: Option<&Place>) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let is_first = log.header.before == before.log && log.header.before_end == before.offset;
        let expected = match before.offset {
            FIRST_FRAME => None,
            _ => Some(before.link),
        };
        let follows = start.frame == before.frame
            && is_first
            && expected.is_none_or(|link| link == log.header.before_link);
        match follows || Rule::Chain.is_broken() {
            true => Ok(()),
            false => Err(self.damaged(log.header.number, "a log does not continue the one before")),
        }
    }

    fn read_log(
        &self,
        log: &ChainLog,
        start: Place,
        end: Option<u64>,
        halves: &[Half],
        frames: &mut Vec<Located>,
    ) -> Result<Place> {
        let number = log.header.number;
        let mut window = Window::new(self, &log.file, number);
        let mut place = start;
        while end.is_none_or(|end| place.offset < end) {
            let decoded = window.frame(place.offset)?;
            let follows = |frame: &Frame| {
                frame.head.number == place.frame + 1 && frame.head.before == place.link
            };
            let frame = match decoded {
                Ok(frame) if follows(&frame) || Rule::Chain.is_broken() => frame,
                Err(Fault::Unsupported(what)) => {
                    return Err(Error::of(
                        Fault::Unsupported(what),
                        self.log_path(number).display(),
                    ));
                }
                _ => break,
            };
            let located = Located {
                log: number,
                offset: place.offset,
                frame,
            };
            place = located.after();
            frames.push(located);
        }
        let is_proven = match end {
            Some(end) => place.offset != end,
            None => self.is_proven_beyond(log, place.offset, halves, &mut window)?,
        };
        match is_proven && Rule::Proof.is_kept() {
            true => Err(self.damaged(number, "a frame that was synced does not verify")),
            false => Ok(place),
        }
    }

    /// Whether something proves that the log was synced beyond an offset.
    fn is_proven_beyond(
        &self,
        log: &ChainLog,
        offset: u64,
        halves: &[Half],
        window: &mut Window<'_>,
    ) -> Result<bool> {
        let shown = halves.iter().filter(|half| half.log == log.header.number);
        let by_halves = shown.map(|half| half.visible).max().unwrap_or_default();
        if offset < by_halves.max(log.header.copies_end) {
            return Ok(true);
        }
        window.has_proof_beyond(offset, self.limits.batch_bytes)
    }

    pub(crate) fn damaged(&self, log: u64, what: &'static str) -> Error {
        Error::damaged(self.log_path(log).display(), what)
    }
}

/// A part of a log that was read.
struct Window<'a> {
    disk: &'a Disk,
    file: &'a Arc<dyn File>,
    log: u64,
    seal: Seal,
    start: u64,
    bytes: Vec<u8>,
    /// Whether the file ends with it.
    is_last: bool,
}

impl<'a> Window<'a> {
    fn new(disk: &'a Disk, file: &'a Arc<dyn File>, log: u64) -> Self {
        Window {
            disk,
            file,
            log,
            seal: disk.seal(log),
            start: 0,
            bytes: Vec::new(),
            is_last: false,
        }
    }

    /// Returns at least so many bytes from an offset on, or all up to the end of the file.
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<&[u8]> {
        let known = offset
            .checked_sub(self.start)
            .map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let has = known.is_some_and(|at| {
            at <= self.bytes.len() && (self.is_last || self.bytes.len() - at >= len_bytes)
        });
        if !has {
            self.read(offset, len_bytes)?;
        }
        let at = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(&self.bytes[at.min(self.bytes.len())..])
    }

    fn read(&mut self, offset: u64, len_bytes: usize) -> Result<()> {
        let wanted = len_bytes.max(self.disk.limits.read_bytes);
        let mut bytes = vec![0; wanted];
        let mut done = 0;
        while done < wanted {
            let path = self.disk.log_path(self.log);
            let read = self.file.read_at(&mut bytes[done..], offset + done as u64);
            match read.map_err(Error::io(path.display()))? {
                0 => break,
                count => done += count,
            }
            if done >= len_bytes && done < wanted {
                // A short read is nearly always the end, and what is missing is read when it is needed.
                break;
            }
        }
        self.is_last = done < len_bytes;
        bytes.truncate(done);
        (self.start, self.bytes) = (offset, bytes);
        Ok(())
    }

    /// The frame at an offset.
    fn frame(&mut self, offset: u64) -> Result<std::result::Result<Frame, Fault>> {
        let head = self.at(offset, FRAME_HEADER_BYTES)?;
        if head.len() < FRAME_HEADER_BYTES || head[..4] != FRAME_MAGIC {
            return Ok(Err(Fault::Damaged("no frame")));
        }
        let mut length = [0; 4];
        length.copy_from_slice(&head[48..52]);
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        let seal = self.seal;
        let bytes = self.at(offset, length.min(MAX_FRAME_BYTES))?;
        Ok(Frame::decode(bytes, &seal, offset))
    }

    /// Whether a frame that begins within `limit` after the offset proves that more was synced.
    fn has_proof_beyond(&mut self, offset: u64, limit: u64) -> Result<bool> {
        let mut at = offset.next_multiple_of(8);
        while at < offset.saturating_add(limit) {
            let bytes = self.at(at, FRAME_HEADER_BYTES)?;
            let steps = bytes
                .chunks_exact(8)
                .take_while(|step| step[..4] != FRAME_MAGIC);
            let skipped = steps.count() * 8;
            if skipped + FRAME_HEADER_BYTES > bytes.len() && self.is_last {
                return Ok(false);
            }
            if skipped > 0 {
                at += skipped as u64;
                continue;
            }
            if let Ok(frame) = self.frame(at)?
                && frame.head.synced_to > offset
            {
                return Ok(true);
            }
            at += 8;
        }
        Ok(false)
    }
}

impl Disk {
    /// The frame that lies at an offset of a log.
    pub(crate) fn frame_at(&self, log: u64, offset: u64, number: u64) -> Result<Located> {
        let file = self.open_log(log)?.ok_or(Error::Missing { number: log })?;
        match Window::new(self, &file, log).frame(offset)? {
            Ok(frame) if frame.head.number == number => Ok(Located { log, offset, frame }),
            Err(fault @ Fault::Unsupported(_)) => {
                Err(Error::of(fault, self.log_path(log).display()))
            }
            _ => Err(self.damaged(log, "a frame that is held does not verify")),
        }
    }
}
