//! Settling: whoever has the commit lock first makes sure that nothing is undecided, and begins a log if need be.
//!
//! Invariants
//! - A frame of somebody who was killed, or whose sync failed, is shown or is not, and stays so: a new log records which, synced,
//!   before anybody commits or sees it.
//! - A log is written to in one boot only, and never again after a failure.

use std::sync::Arc;

use thalweg_env::{File, OpenMode};

use crate::chain::{Chain, Frames, Located, Place};
use crate::database::{Database, State};
use crate::disk::{Disk, Listing};
use crate::error::{Error, Result};
use crate::format::{
    FIRST_FRAME, Frame, FrameHead, Half, InboxState, LOG_HEADER_BYTES, LogCommit, LogHeader, Stamp,
};
use crate::registry::Seen;
use crate::rules::Rule;

/// The place that a new log goes on from, and what is known beside it.
#[derive(Debug)]
pub(crate) struct Basis<'a> {
    pub(crate) base: Option<Place>,
    pub(crate) tail: &'a [Located],
    /// The highest of all that was read.
    pub(crate) bound: Stamp,
    /// The state that settling took.
    pub(crate) settled: Option<LogCommit>,
    pub(crate) highest_log: u64,
}

/// The larger of each part.
pub(crate) fn highest(a: Stamp, b: Stamp) -> Stamp {
    Stamp {
        time: a.time.max(b.time),
        sequence: a.sequence.max(b.sequence),
    }
}

impl Disk {
    /// The registry, with nothing undecided. The commit lock is held.
    pub(crate) fn settle<D: Database>(&mut self, database: &mut D) -> Result<(Seen, Half)> {
        let mut seen = self.read()?;
        let listing = self.list()?;
        if let Some(half) = seen.current(self.boot)
            && !self.is_undecided(&half, &listing)?
        {
            self.note(&seen);
            return Ok((seen, half));
        }
        let half = self.decide(&mut seen, &listing, database)?;
        Ok((seen, half))
    }

    fn is_undecided(&self, half: &Half, listing: &Listing) -> Result<bool> {
        let above = listing.logs.range(half.log + 1..).next();
        let has_higher = above.is_some() && Rule::LookForHigherLogs.is_kept();
        if half.is_appending || half.change < self.highest_change || has_higher {
            return Ok(true);
        }
        if half.is_ended || half.log == 0 || Rule::LookAtVisible.is_broken() {
            return Ok(false);
        }
        let Some(file) = self.open_log(half.log)? else {
            return Ok(true);
        };
        let mut bytes = [0; crate::format::FRAME_HEADER_BYTES];
        let read = file.read_at(&mut bytes, half.visible);
        read.map_err(Error::io(self.log_path(half.log).display()))?;
        Ok(bytes.iter().any(|&byte| byte != 0))
    }

    fn decide<D: Database>(
        &mut self,
        seen: &mut Seen,
        listing: &Listing,
        database: &mut D,
    ) -> Result<Half> {
        let state = database.state()?;
        let inbox = state.inbox();
        let halves: Vec<Half> = seen.halves().copied().collect();
        let known = halves.iter().map(|half| half.log).max().unwrap_or_default();
        let last = self.highest(listing, known, &inbox.position)?;
        let chain = self.chain(last, &inbox.position)?;
        let start = furthest_known(&chain, &halves, inbox);
        let found = self.frames(&chain, start, None, &halves)?;
        let read = found.frames.iter().map(|located| located.frame.head.stamp);
        let of_halves = halves.iter().map(|half| half.bound);
        let bound = read.chain(of_halves).fold(inbox.newest, highest);
        let is_of_this_boot = chain
            .logs
            .last()
            .is_some_and(|log| log.header.boot == self.boot);
        if seen.current(self.boot).is_none() && (!is_of_this_boot || Rule::EndedIsEnded.is_broken())
        {
            let half = self.ended(found.end, inbox, bound, state.at());
            return self.write(seen, half, true);
        }
        let base = self.base(&chain, start, &found);
        let after =
            |located: &&Located| base.is_none_or(|base| located.after().rank() > base.rank());
        let mut tail: Vec<Located> = found.frames.iter().filter(after).cloned().collect();
        if Rule::CopyTail.is_broken() {
            tail.clear();
        }
        let highest_log = listing.logs.last().copied().unwrap_or_default();
        let basis = Basis {
            base,
            tail: &tail,
            bound,
            settled: Some(state.at()),
            highest_log: highest_log.max(last).max(known),
        };
        self.begin_log(seen, inbox, &basis).map(|(half, _)| half)
    }

    /// The registry of a boot in which nothing was written yet.
    fn ended(&self, end: Option<Place>, inbox: &InboxState, bound: Stamp, at: LogCommit) -> Half {
        let end = end.unwrap_or(Place {
            log: 0,
            offset: FIRST_FRAME,
            frame: 0,
            link: 0,
        });
        Half {
            boot: self.boot,
            change: 0,
            log: end.log,
            visible: end.offset,
            last_frame: end.frame.max(inbox.position.frame),
            bound,
            seen: at,
            link: end.link,
            prepared: end.offset,
            required: at,
            is_ended: Rule::EndedIsEnded.is_kept(),
            is_appending: false,
            process: 0,
        }
    }

    /// The furthest place of the chain that is known to be on disk.
    fn base(&self, chain: &Chain, start: Option<Place>, found: &Frames) -> Option<Place> {
        let first = chain.logs.first().map(|log| log.first());
        let mut base = start.or(first);
        let mut raise = |place: Place| {
            base = base
                .filter(|base| base.rank() >= place.rank())
                .or(Some(place));
        };
        chain.logs.iter().skip(1).for_each(|log| raise(log.first()));
        for (at, located) in found.frames.iter().enumerate() {
            let synced_to = located.frame.head.synced_to;
            let before = &found.frames[..at];
            let synced = before.iter().rev().map(Located::after);
            let is_synced = |place: &Place| place.log == located.log && place.offset <= synced_to;
            if let Some(place) = synced
                .take_while(|place| place.log == located.log)
                .find(is_synced)
            {
                raise(place);
            }
        }
        let last = chain.logs.last();
        if let (Some(end), true) = (
            found.end,
            last.is_some_and(|log| log.header.boot != self.boot),
        ) {
            raise(end);
        }
        base
    }

    /// A base before the first frame of a log is where the log before ends.
    fn before_first(&self, mut base: Option<Place>) -> Result<Option<Place>> {
        while let Some(place) = base.filter(|place| place.offset == FIRST_FRAME) {
            let (_, header) = self.needed_log(place.log)?;
            base = (header.before > 0).then_some(Place {
                log: header.before,
                offset: header.before_end,
                frame: header.before_frame,
                link: header.before_link,
            });
        }
        Ok(base)
    }

    /// Makes the log that cells are appended to from now on. The commit lock is held, and nothing is undecided but what the
    /// tail decides.
    pub(crate) fn begin_log(
        &mut self,
        seen: &mut Seen,
        inbox: &InboxState,
        basis: &Basis<'_>,
    ) -> Result<(Half, Arc<dyn File>)> {
        let is_settling = basis.settled.is_some();
        let base = self.before_first(basis.base)?;
        let known = seen.current(self.boot);
        let named = match Rule::NumberAboveNames.is_kept() {
            true => basis.highest_log,
            false => 0,
        };
        let of_registry = known.map_or(0, |half| half.log);
        let number = 1 + named.max(inbox.position.log).max(of_registry);
        let made = self.make_new(number, base, basis.tail)?;
        if let Some(half) = known
            && !half.is_appending
            && Rule::AppendingBeforeName.is_kept()
        {
            let half = Half {
                is_appending: true,
                ..half
            };
            self.write(seen, half, is_settling)
                .inspect_err(|_| self.give_up_new(number))?;
        }
        if let Err(error) = self.name_log(number, &made) {
            self.abandon(number, &made);
            return Err(error);
        }
        let half = self.of_new(known, inbox, basis, &made);
        let written = self.write(seen, half, is_settling);
        if written.is_err() && Rule::KeepWhatMayBeNamed.is_broken() {
            self.abandon(number, &made);
        }
        // If that fails, the registry may name the log all the same: it is left to whoever settles.
        Ok((written?, made.file))
    }

    /// Step 1: the file, filled and synced, under a name that does not count yet.
    fn make_new(&self, number: u64, base: Option<Place>, tail: &[Located]) -> Result<Made> {
        for unfinished in self.list()?.unfinished {
            self.remove(&unfinished)?;
        }
        let copied: usize = tail.iter().map(|located| located.frame.len_bytes).sum();
        let len_bytes = self.limits.first_bytes + copied as u64;
        self.check_space(len_bytes)?;
        let header = LogHeader {
            database: self.database,
            number,
            boot: self.boot,
            before: base.map_or(0, |base| base.log),
            before_end: base.map_or(0, |base| base.offset),
            before_frame: base.map_or(0, |base| base.frame),
            before_link: base
                .filter(|base| base.frame > 0)
                .map_or(0, |base| base.link),
            process: self.process(),
            copies_end: FIRST_FRAME + copied as u64,
        };
        let mut end = Place::first_of(&header);
        let mut bytes = vec![0; usize::try_from(len_bytes).unwrap_or(usize::MAX)];
        for located in tail {
            let Frame { head, draft, .. } = &located.frame;
            assert!(!draft.bodies.is_empty(), "a frame without cells");
            let copied = FrameHead {
                synced_to: 0,
                ..*head
            };
            let at = usize::try_from(end.offset).unwrap_or(usize::MAX);
            let encoded = end.append(draft, copied, &header.seal());
            bytes[at..at + encoded.len()].copy_from_slice(&encoded);
        }
        let path = self.new_path(number);
        let written = self.fill(number, &bytes);
        match written {
            Ok(file) => Ok(Made {
                file,
                header,
                end,
                prepared: len_bytes,
            }),
            Err(error) => {
                self.give_up_new(number);
                Err(Error::io(path.display())(error))
            }
        }
    }

    fn fill(&self, number: u64, bytes: &[u8]) -> std::io::Result<Arc<dyn File>> {
        let path = self.new_path(number);
        let file = self.env.storage().open(&path, OpenMode::CreateNew)?;
        file.write_all_at(bytes, 0)?;
        if Rule::SyncTail.is_kept() {
            file.sync_data()?;
        }
        Ok(file)
    }

    fn give_up_new(&self, number: u64) {
        // It is in nobody's way, and the next log that is begun removes it.
        let _ = self.remove(&self.new_path(number));
    }

    /// Steps 3 and 4: the name, then the header.
    fn name_log(&self, number: u64, made: &Made) -> Result<()> {
        let (from, to) = (self.new_path(number), self.log_path(number));
        let storage = self.env.storage();
        let renamed = storage.rename(&from, &to);
        renamed.map_err(Error::io(to.display()))?;
        if Rule::SyncLogName.is_kept() {
            let synced = storage.sync_dir(&self.inbox());
            synced.map_err(Error::io("inbox"))?;
        }
        let header = made.header.encode();
        assert_eq!(header.len(), LOG_HEADER_BYTES, "the header of a log");
        let written = made.file.write_all_at(&header, 0);
        written.map_err(Error::io(to.display()))?;
        if Rule::SyncHeader.is_kept() {
            made.file.sync_data().map_err(Error::io(to.display()))?;
        }
        Ok(())
    }

    /// Step 5: the registry's fields of a new log.
    fn of_new(
        &self,
        known: Option<Half>,
        inbox: &InboxState,
        basis: &Basis<'_>,
        made: &Made,
    ) -> Half {
        let of_known = known.map_or(Stamp::default(), |half| half.bound);
        let mut bound = highest(highest(of_known, basis.bound), inbox.newest);
        if known.is_none() {
            bound.sequence += 1 << 32;
        }
        let of_tail = basis.tail.iter().map(|located| located.frame.head.seen);
        let settled = basis.settled.unwrap_or_default();
        let seen = known.map_or(LogCommit::default(), |half| half.seen);
        let required = known.map_or(LogCommit::default(), |half| half.required);
        Half {
            boot: self.boot,
            change: 0,
            log: made.header.number,
            visible: made.end.offset,
            last_frame: made.end.frame,
            bound,
            seen: of_tail.fold(seen.max(settled), LogCommit::max),
            link: made.end.link,
            prepared: made.prepared,
            required: required.max(settled),
            is_ended: false,
            is_appending: false,
            process: 0,
        }
    }

    /// Cuts to nothing a log that was given a name and cannot be shown, so that one process leaves one name at most.
    fn abandon(&mut self, number: u64, made: &Made) {
        let path = self.log_path(number);
        let _ = made.file.set_len(0);
        if let Some(before) = self.given_up.replace(path) {
            let _ = self.remove(&before);
        }
        self.give_up_new(number);
    }
}

/// A log that is being made.
struct Made {
    file: Arc<dyn File>,
    header: LogHeader,
    end: Place,
    prepared: u64,
}

/// The furthest place that the halves and the position name in the chain.
fn furthest_known(chain: &Chain, halves: &[Half], inbox: &InboxState) -> Option<Place> {
    let of_halves = halves.iter().filter_map(Place::of_half);
    let places = of_halves.chain(Place::of_position(&inbox.position));
    places
        .filter(|place| chain.has(place.log))
        .max_by_key(Place::rank)
}
