//! Commits of the writer of the database: cells, floors, drops and definitions of arrays.
//!
//! Invariants
//! - A state of the log holds exactly the commits of cells up to its highest sequence, held groups among them.
//! - A process that commits cells after a drop, a definition or a floor has seen it.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_env::{Env, OpenMode};

use crate::chain::Located;
use crate::commit::{check_tables, check_unchanged, stamp};
use crate::database::{Change, Log, State, TableState};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{
    Adopt, FIRST_FRAME, Floor, HALF_BYTES, Half, HeldGroup, InboxState, LogCommit, Seal, Stamp,
};
use crate::inbox::{Commit, Inbox};
use crate::registry::Seen;
use crate::rules::Rule;
use crate::settle::highest;

/// The work that a tenure of the writer commits.
enum Work<'a> {
    Cells(&'a Commit),
    Floor(Floor),
}

impl<D: Log> Inbox<D> {
    /// Commits cells through the log of the database.
    ///
    /// # Errors
    /// A refusal, after which nothing was written; else the outcome is what the next recovery finds.
    pub fn write(&mut self, commit: &Commit) -> Result<Stamp> {
        self.tenure(&Work::Cells(commit))
    }

    /// Raises the floor of an array to a time, or to the newest one. Returns it.
    ///
    /// # Errors
    /// As those of [`Inbox::write`].
    pub fn raise_floor(&mut self, table: u32, time: i64) -> Result<i64> {
        self.tenure(&Work::Floor(Floor { table, time }))
            .map(|floor| floor.time)
    }

    fn tenure(&mut self, work: &Work<'_>) -> Result<Stamp> {
        let lock = self.disk.lock_or_fail()?;
        let done = self.in_tenure(work);
        if Rule::ShowBeforeUnlock.is_broken() {
            self.disk.release(lock);
            self.database.show()?;
            return done;
        }
        let shown = done.and_then(|done| self.database.show().map(|()| done));
        self.disk.release(lock);
        shown
    }

    fn in_tenure(&mut self, work: &Work<'_>) -> Result<Stamp> {
        let (mut seen, half) = self.disk.settle(&mut self.database)?;
        let mut stamped = Stamp::default();
        let disk = &mut self.disk;
        let passed_over = &mut self.passed_over;
        self.database.commit_unshown(&mut |number, state| {
            let mut changes = Vec::new();
            let shown = disk.shown(&half, state.inbox())?;
            check(disk, state, &shown, work)?;
            let frames = match Rule::HoldBeforeCells.is_kept() {
                true => &shown[..],
                false => &[],
            };
            changes.extend(hold(disk, state, frames, passed_over)?.map(Change::Adopt));
            let of_frames = frames.iter().map(|located| located.frame.head.stamp);
            let bound = of_frames.fold(half.bound, highest);
            stamped = match work {
                Work::Cells(commit) => {
                    let stamp = stamp(disk, state, bound, commit)?;
                    changes.push(Change::Stamp(stamp));
                    let bodies = commit.draft.bodies.iter().cloned();
                    changes.extend(bodies.map(|body| Change::Cells(stamp, body)));
                    stamp
                }
                Work::Floor(floor) => {
                    let newest = highest(bound, state.inbox().newest);
                    let time = floor.time.min(newest.time);
                    changes.push(Change::Floor(Floor { time, ..*floor }));
                    Stamp { time, sequence: 0 }
                }
            };
            let bound = match work {
                Work::Cells(_) => highest(bound, stamped),
                Work::Floor(_) => bound,
            };
            announce(disk, &mut seen, &half, work, bound, number)?;
            Ok(changes)
        })?;
        Ok(stamped)
    }

    /// Drops an array, or gives it another definition.
    ///
    /// # Errors
    /// Those of the commit lock and of the log.
    pub fn change_table(&mut self, change: &Change) -> Result<()> {
        assert!(
            matches!(change, Change::Drop(_) | Change::Define(..)),
            "a change that needs no tenure"
        );
        let lock = self.disk.lock_or_fail()?;
        let changed = self.change_locked(change);
        self.disk.release(lock);
        changed
    }

    fn change_locked(&mut self, change: &Change) -> Result<()> {
        let mut seen = self.disk.read()?;
        let current = seen.current(self.disk.boot);
        if current.is_some_and(|half| half.change < self.disk.highest_change) {
            (seen, _) = self.disk.settle(&mut self.database)?;
        }
        let disk = &mut self.disk;
        self.database.commit(&mut |number, _| {
            let current = seen.current(disk.boot);
            if let Some(half) = current.filter(|_| Rule::DropRequires.is_kept()) {
                let half = Half {
                    seen: half.seen.max(number),
                    required: half.required.max(number),
                    ..half
                };
                disk.write(&mut seen, half, false)?;
            }
            Ok(vec![change.clone()])
        })
    }

    /// Rewrites blocks of an array without the versions that nobody can see any more: `merge` does so for a state, up to a
    /// floor.
    ///
    /// # Errors
    /// Those of the commit lock and of the log.
    pub fn vacuum(
        &mut self,
        table: u32,
        time: i64,
        merge: impl Fn(&D::State, i64) -> Option<Vec<u8>>,
    ) -> Result<()> {
        let floor = match Rule::FloorBeforeVacuum.is_kept() {
            true => self.raise_floor(table, time)?,
            false => time,
        };
        self.adopt()?;
        let state = self.new_state()?;
        let Some(merged) = merge(&state, floor) else {
            return Ok(());
        };
        self.database
            .commit(&mut |_, _| Ok(vec![Change::Other(merged.clone())]))
    }

    /// Settles what a killed process has left, if nobody has the lock: called at opening, and once a second.
    ///
    /// # Errors
    /// Those of the commit lock, and damage.
    pub fn settle(&mut self) -> Result<()> {
        let Some(lock) = self.disk.lock(crate::lock::Patience::Once)? else {
            return Ok(());
        };
        let settled = self.disk.settle(&mut self.database);
        self.disk.release(lock);
        settled.map(drop)
    }
}

/// Whether the work may be committed. `shown`: the frames after the position.
fn check<S: State>(disk: &Disk, state: &S, shown: &[Located], work: &Work<'_>) -> Result<()> {
    let commit = match work {
        Work::Cells(commit) => commit,
        Work::Floor(floor) => {
            let table = floor.table;
            return match state.table(table) {
                TableState::There(_) => Ok(()),
                _ => Err(Error::NotFound { table }),
            };
        }
    };
    check_tables(state, &commit.draft)?;
    let Some(above) = commit
        .read_up_to
        .filter(|_| Rule::CompareUnderLock.is_kept())
    else {
        return Ok(());
    };
    let held = disk.of_held(state.inbox())?;
    let frames = shown.iter().chain(&held);
    check_unchanged(state, &commit.draft, above, frames, std::iter::empty())
}

/// Step 2 of the writer: writes the bounds that a later commit has to be above, should this process be killed.
fn announce(
    disk: &mut Disk,
    seen: &mut Seen,
    half: &Half,
    work: &Work<'_>,
    bound: Stamp,
    number: LogCommit,
) -> Result<()> {
    let required = match work {
        Work::Cells(_) => half.required,
        Work::Floor(_) => half.required.max(number),
    };
    let announced = Half {
        bound: match Rule::WriterBounds.is_kept() {
            true => highest(half.bound, bound),
            false => half.bound,
        },
        seen: match Rule::WriterSeen.is_kept() {
            true => half.seen.max(number),
            false => half.seen,
        },
        required,
        ..*half
    };
    disk.write(seen, announced, false).map(drop)
}

/// An *adopt* that passes frames without a copy: the log holds all of their groups.
pub(crate) fn hold<S: State>(
    disk: &Disk,
    state: &S,
    frames: &[Located],
    passed_over: &mut BTreeSet<u64>,
) -> Result<Option<Adopt>> {
    if frames.is_empty() {
        return Ok(None);
    }
    let mut groups = Vec::new();
    for located in frames {
        for table in located.frame.tables() {
            match state.table(table) {
                TableState::There(_) => groups.push(group_of(located, table)),
                TableState::Dropped => passed_over.extend(named(state, located, table)),
                TableState::Unknown => {
                    return Err(disk.damaged(located.log, "cells of a table that was never made"));
                }
            }
        }
    }
    Ok(Some(passing(state.inbox(), frames, groups)))
}

/// The fragments that a frame names for a table.
pub(crate) fn named<S: State>(state: &S, located: &Located, table: u32) -> Vec<u64> {
    let bodies = located.frame.group(table);
    let lists = bodies.filter(|body| body.blocks.is_none());
    lists
        .flat_map(|body| state.fragments(body).unwrap_or_default())
        .collect()
}

pub(crate) fn group_of(located: &Located, table: u32) -> HeldGroup {
    HeldGroup {
        frame: located.frame.head.number,
        table,
        log: located.log,
        offset: located.offset,
        is_released: false,
    }
}

/// An *adopt* that moves the position past frames, if there are any.
pub(crate) fn passing(inbox: &InboxState, frames: &[Located], groups: Vec<HeldGroup>) -> Adopt {
    let last = frames.last();
    let stamps = frames.iter().map(|located| located.frame.head.stamp);
    let newest = stamps.fold(Stamp::default(), highest);
    Adopt {
        before: inbox.position.frame,
        position: last.map_or(inbox.position, |last| last.after().position()),
        sequence: newest.sequence,
        newest_time: newest.time,
        groups,
    }
}

/// Makes the inbox of a database that gets its first array, before that is committed. A registry that is not zeros is kept.
///
/// # Errors
/// Those of the file system; what was made is removed then.
pub fn create_inbox(env: &Env, folder: &Path, id: [u8; 16], at: LogCommit) -> Result<()> {
    let storage = env.storage();
    let (inbox, path) = (folder.join("inbox"), folder.join("inbox/registry"));
    let place = || Error::io("inbox/registry");
    if let Ok(file) = storage.open(&path, OpenMode::Read) {
        let mut bytes = vec![0; 2 * HALF_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(place())?;
        if bytes[..read].iter().any(|&byte| byte != 0) {
            return Ok(());
        }
        storage.remove_file(&path).map_err(place())?;
    }
    if storage.metadata(&inbox).is_ok() {
        storage.remove_dir(&inbox).map_err(Error::io("inbox"))?;
    }
    let half = Half {
        boot: env.clock().boot_id(),
        change: 1,
        log: 0,
        visible: FIRST_FRAME,
        last_frame: 0,
        bound: Stamp::default(),
        seen: at,
        link: 0,
        prepared: FIRST_FRAME,
        required: at,
        is_ended: true,
        is_appending: false,
        process: 0,
    };
    let make = || {
        storage.create_dir(&inbox)?;
        let file = storage.open(&path, OpenMode::CreateNew)?;
        file.write_all_at(&vec![0; 2 * HALF_BYTES], 0)?;
        if Rule::SyncRegistryName.is_kept() {
            file.sync_data()?;
            storage.sync_dir(&inbox)?;
            storage.sync_dir(folder)?;
        }
        let seal = Seal {
            database: id,
            log: 0,
        };
        file.write_all_at(&half.encode(&seal, 0), 0)?;
        file.sync_data()
    };
    make().map_err(|source| {
        let _ = storage.remove_file(&path);
        let _ = storage.remove_dir(&inbox);
        place()(source)
    })
}
