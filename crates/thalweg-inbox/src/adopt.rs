//! Adoption: the writer copies the frames of the inbox into its log, and moves the position in the same commit.
//!
//! Invariants
//! - Adoption changes no answer: a cell is in one place for every snapshot.
//! - It takes no commit lock, and adopts only what a current registry shows.

use crate::chain::{Located, Place};
use crate::database::{Change, Log, State, TableState};
use crate::error::{Error, Result};
use crate::format::{Adopt, HeldGroup, Position};
use crate::inbox::Inbox;
use crate::rules::Rule;
use crate::writer::{group_of, named, passing};

/// A commit that adopts, before it is made.
struct Plan {
    before: Position,
    cells: Vec<Change>,
    adopt: Adopt,
    passed_over: Vec<u64>,
}

impl<D: Log> Inbox<D> {
    /// Adopts everything that is held and can be released, and all frames that are shown. Returns how many groups.
    ///
    /// # Errors
    /// Damage, and those of the log.
    pub fn adopt(&mut self) -> Result<usize> {
        let seen = self.disk.read()?;
        let state = self.new_state()?;
        let inbox = state.inbox();
        // Frames that are not decided wait for whoever settles; what is held is of this log already.
        let frames = match seen.current(self.disk.boot) {
            Some(half) if Rule::AdoptVisibleOnly.is_kept() => self.disk.shown(&half, inbox)?,
            Some(half) => self.all_frames(half.log, inbox.position)?,
            None => Vec::new(),
        };
        let plan = self.plan(&state, &frames)?;
        let adopted = plan.cells.len();
        if plan.cells.is_empty() && frames.is_empty() {
            return Ok(0);
        }
        if Rule::PositionWithCells.is_broken() {
            let cells = plan.cells.clone();
            self.database.commit(&mut |_, _| Ok(cells.clone()))?;
        }
        self.database.commit(&mut |_, state| {
            if state.inbox().position != plan.before {
                return Err(Error::Conflict);
            }
            let mut changes = match Rule::PositionWithCells.is_kept() {
                true => plan.cells.clone(),
                false => Vec::new(),
            };
            changes.push(Change::Adopt(plan.adopt.clone()));
            Ok(changes)
        })?;
        self.passed_over.extend(plan.passed_over);
        Ok(adopted)
    }

    fn all_frames(&self, log: u64, position: Position) -> Result<Vec<Located>> {
        let chain = self.disk.chain(log, &position)?;
        let start = Place::of_position(&position);
        let found = self.disk.frames(&chain, start, None, &[])?;
        let frames = found.frames.into_iter();
        Ok(frames
            .filter(|located| located.frame.head.number > position.frame)
            .collect())
    }

    fn plan(&self, state: &D::State, frames: &[Located]) -> Result<Plan> {
        let inbox = state.inbox();
        let mut groups: Vec<HeldGroup> = Vec::new();
        let (mut cells, mut passed_over) = (Vec::new(), Vec::new());
        for group in inbox.held.values() {
            let located = self.disk.held(group)?;
            if !is_sound(state, &located, group.table) {
                continue;
            }
            cells.extend(cells_of(&located, group.table));
            if Rule::ReleaseHeld.is_kept() {
                groups.push(HeldGroup {
                    is_released: true,
                    ..*group
                });
            }
        }
        for located in frames {
            for table in located.frame.tables() {
                match state.table(table) {
                    TableState::There(_) if is_sound(state, located, table) => {
                        cells.extend(cells_of(located, table));
                    }
                    TableState::There(_) => groups.push(group_of(located, table)),
                    TableState::Dropped if Rule::PassDropped.is_broken() => {
                        cells.extend(cells_of(located, table));
                    }
                    TableState::Dropped => passed_over.extend(named(state, located, table)),
                    TableState::Unknown => {
                        let what = "cells of a table that was never made";
                        return Err(self.disk.damaged(located.log, what));
                    }
                }
            }
        }
        Ok(Plan {
            before: inbox.position,
            cells,
            adopt: passing(inbox, frames, groups),
            passed_over,
        })
    }
}

fn is_sound<S: State>(state: &S, located: &Located, table: u32) -> bool {
    let mut bodies = located.frame.group(table);
    bodies.all(|body| state.verify(body).is_ok())
}

fn cells_of(located: &Located, table: u32) -> impl Iterator<Item = Change> {
    let mut stamp = located.frame.head.stamp;
    if Rule::KeepStamps.is_broken() {
        stamp.time += 1 << 40;
    }
    let bodies = located.frame.group(table);
    bodies.map(move |body| Change::Cells(stamp, body.clone()))
}
