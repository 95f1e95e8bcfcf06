//! Snapshots: a state of the log, and the frames of the inbox that belong before or beside it.
//!
//! Invariant: what is shown is a beginning of the sequence of all commits of cells, with everything in it that was
//! acknowledged before the snapshot began.

use crate::chain::{Frames, Located, Place};
use crate::database::{Database, State};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{GroupBody, Half, HeldGroup, InboxState, Stamp};
use crate::inbox::Inbox;
use crate::registry::Seen;
use crate::rules::Rule;

/// Cells of the inbox in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Their stamp.
    pub stamp: Stamp,
    /// The cells.
    pub body: GroupBody,
    /// Whether the log holds them: their frame is not after the position.
    pub is_held: bool,
}

/// The database and the inbox as of one moment.
#[derive(Clone, Debug)]
pub struct Snapshot<S> {
    /// The state of the log.
    pub state: S,
    /// Cells that the log does not have yet.
    pub shown: Vec<Shown>,
}

/// Attempts at a snapshot before it gives up.
const ATTEMPTS: usize = 64;

impl<D: Database> Inbox<D> {
    /// Takes a snapshot. It waits for nobody.
    ///
    /// # Errors
    /// Damage, and those of reading.
    pub fn snapshot(&mut self) -> Result<Snapshot<D::State>> {
        for _ in 0..ATTEMPTS {
            if let Some(snapshot) = self.try_snapshot()? {
                return Ok(snapshot);
            }
        }
        Err(Error::Unavailable)
    }

    fn try_snapshot(&mut self) -> Result<Option<Snapshot<D::State>>> {
        let first = match Rule::ReadBeforeState.is_kept() {
            true => Some(self.disk.read()?),
            false => None,
        };
        let state = self.new_state()?;
        let shown = match &first {
            Some(first) => self.shown_beside(&state, first),
            None => {
                let second = self.disk.read()?;
                self.shown_with(&state, None, &second)
            }
        };
        match shown {
            Err(Error::Missing { number }) => match self.database.is_expired(&state)? {
                true => Ok(None),
                false => Err(Error::Missing { number }),
            },
            Err(error) => Err(error),
            Ok(None) => Ok(None),
            Ok(Some(frames)) => {
                let shown = self.disk.cells(&state, &frames)?;
                Ok(Some(Snapshot { state, shown }))
            }
        }
    }

    /// The frames that a state is shown with; `None`: from the start again.
    fn shown_beside(&mut self, state: &D::State, first: &Seen) -> Result<Option<Vec<Located>>> {
        let boot = self.disk.boot;
        let Some(half) = first.current(boot) else {
            return self.shown_before_boot(state, first);
        };
        if half.change < self.disk.highest_change {
            return Ok(None);
        }
        let second = match Rule::ReadAfterState.is_kept() {
            true => self.disk.read()?,
            false => first.clone(),
        };
        self.shown_with(state, Some(half), &second)
    }

    fn shown_with(
        &mut self,
        state: &D::State,
        first: Option<Half>,
        second: &Seen,
    ) -> Result<Option<Vec<Located>>> {
        let Some(half) = second.current(self.disk.boot) else {
            return Ok(None);
        };
        self.disk.note(second);
        let frames = self.disk.shown(&half, state.inbox())?;
        let acknowledged = first.map_or(0, |first| first.last_frame);
        let is_shown = |located: &Located| {
            let head = &located.frame.head;
            head.number <= acknowledged || head.seen <= state.at() || Rule::CutBySeen.is_broken()
        };
        Ok(Some(frames.into_iter().take_while(is_shown).collect()))
    }

    /// Nothing was written in this boot yet: everything in the chain is decided, and on disk. What is found is believed only
    /// if that still holds when it was read: beside somebody who begins a log, a header may be read before it is written, and
    /// a frame after it.
    fn shown_before_boot(&mut self, state: &D::State, seen: &Seen) -> Result<Option<Vec<Located>>> {
        let found = self.disk.chain_before_boot(state.inbox(), seen);
        let after = self.disk.read()?;
        if after.current(self.disk.boot).is_some() && Rule::StartAgainWhenCurrent.is_kept() {
            return Ok(None);
        }
        found.map(Some)
    }
}

impl Disk {
    /// The frames after the position up to the end of the chain.
    fn chain_before_boot(&self, inbox: &InboxState, seen: &Seen) -> Result<Vec<Located>> {
        let halves: Vec<Half> = seen.halves().copied().collect();
        let listing = self.list()?;
        let known = halves.iter().map(|half| half.log).max().unwrap_or_default();
        let last = self.highest(&listing, known, &inbox.position)?;
        let chain = self.chain(last, &inbox.position)?;
        let start = Place::of_position(&inbox.position);
        let found = self.frames(&chain, start, None, &halves)?;
        Ok(after_position(found, inbox))
    }

    /// The frames after the position up to *visible*.
    pub(crate) fn shown(&self, half: &Half, inbox: &InboxState) -> Result<Vec<Located>> {
        if half.last_frame <= inbox.position.frame {
            return Ok(Vec::new());
        }
        let chain = self.chain(half.log, &inbox.position)?;
        let start = Place::of_position(&inbox.position);
        let until = Place::of_half(half);
        let found = self.frames(&chain, start, until, &[])?;
        let reached = found.end.map_or(0, |end| end.frame);
        if reached != half.last_frame && Rule::Chain.is_kept() {
            return Err(self.damaged(half.log, "frames that are shown are missing"));
        }
        Ok(after_position(found, inbox))
    }

    /// The frames that are shown and not in the log: those after the position, then those of held groups.
    pub(crate) fn not_in_log(&self, half: &Half, inbox: &InboxState) -> Result<Vec<Located>> {
        let mut frames = self.shown(half, inbox)?;
        frames.extend(self.of_held(inbox)?);
        Ok(frames)
    }

    /// The frames of held groups.
    pub(crate) fn of_held(&self, inbox: &InboxState) -> Result<Vec<Located>> {
        inbox.held.values().map(|group| self.held(group)).collect()
    }

    /// The frame of a held group.
    pub(crate) fn held(&self, group: &HeldGroup) -> Result<Located> {
        self.frame_at(group.log, group.offset, group.frame)
    }

    fn cells<S: State>(&self, state: &S, frames: &[Located]) -> Result<Vec<Shown>> {
        let mut shown = Vec::new();
        for group in state.inbox().held.values() {
            let located = self.held(group)?;
            let stamp = located.frame.head.stamp;
            let bodies = located.frame.group(group.table).cloned();
            shown.extend(bodies.map(|body| Shown {
                stamp,
                body,
                is_held: true,
            }));
        }
        for located in frames {
            let stamp = located.frame.head.stamp;
            let bodies = located.frame.draft.bodies.iter().cloned();
            shown.extend(bodies.map(|body| Shown {
                stamp,
                body,
                is_held: false,
            }));
        }
        Ok(shown)
    }
}

fn after_position(found: Frames, inbox: &InboxState) -> Vec<Located> {
    let is_after = |located: &Located| located.frame.head.number > inbox.position.frame;
    found.frames.into_iter().filter(is_after).collect()
}
