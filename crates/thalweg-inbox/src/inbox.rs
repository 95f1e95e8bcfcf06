//! One opening of the inbox: an array process, a reader, or the writer.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_env::{Env, OpenMode};

use crate::database::{Database, State};
use crate::disk::{Disk, Limits};
use crate::error::{Error, Result};
use crate::format::{Draft, LogCommit};
use crate::lock::Alive;
use crate::rules::Rule;

/// Cells to commit.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The cells.
    pub draft: Draft,
    /// The time that they get instead of that of the clock.
    pub at: Option<i64>,
    /// The highest sequence of what they were computed from: `Conflict` if one of the cells was changed since.
    pub read_up_to: Option<u64>,
}

/// The inbox as one process has it open.
#[derive(Debug)]
pub struct Inbox<D: Database> {
    pub(crate) disk: Disk,
    pub(crate) database: D,
    /// The state that the last commit was checked against.
    pub(crate) state: Option<D::State>,
    /// The highest of all states that this process has used.
    pub(crate) seen: LogCommit,
    pub(crate) alive: Option<Alive>,
    next_fragment: u64,
    /// Fragments of frames that were passed over; none of them is named any more.
    pub(crate) passed_over: BTreeSet<u64>,
}

impl<D: Database> Inbox<D> {
    /// Opens the inbox of the database in `folder`, whose state has an array.
    ///
    /// # Errors
    /// No registry, or a system that does not distinguish its boots.
    pub fn open(
        env: &Env,
        folder: &Path,
        id: [u8; 16],
        database: D,
        limits: Limits,
    ) -> Result<Self> {
        Ok(Inbox {
            disk: Disk::open(env, folder, id, limits)?,
            database,
            state: None,
            seen: LogCommit::default(),
            alive: None,
            next_fragment: 0,
            passed_over: BTreeSet::new(),
        })
    }

    /// The database behind it, for commits that have nothing to do with arrays.
    pub fn database(&mut self) -> &mut D {
        &mut self.database
    }

    /// A new state, noted as used.
    pub(crate) fn new_state(&mut self) -> Result<D::State> {
        let state = self.database.state()?;
        self.seen = self.seen.max(state.at());
        self.state = Some(state.clone());
        Ok(state)
    }

    /// Writes a fragment that a later commit names. The process counts as alive from before it is created.
    ///
    /// # Errors
    /// A full disk, and those of writing.
    pub fn stage(&mut self, bytes: &[u8]) -> Result<u64> {
        self.disk.check_space(bytes.len() as u64)?;
        let owner = match &self.alive {
            Some(alive) => alive.number(),
            None => self.come_alive()?,
        };
        self.next_fragment = (self.next_fragment + 1) % (1 << 24);
        let id = 1 << 63 | owner << 24 | self.next_fragment;
        let path = self.disk.fragment_path(id);
        let storage = self.disk.env.storage();
        let write = || {
            let file = storage.open(&path, OpenMode::CreateNew)?;
            file.write_all_at(bytes, 0)?;
            if Rule::SyncFragments.is_kept() {
                file.sync_data()?;
                storage.sync_dir(&self.disk.data())?;
            }
            Ok(())
        };
        write().map_err(Error::io(path.display()))?;
        Ok(id)
    }

    fn come_alive(&mut self) -> Result<u64> {
        let alive = Alive::take(&self.disk.env, self.disk.registry.file()?)?;
        let number = alive.number();
        self.alive = Some(alive);
        Ok(number)
    }

    /// Removes the fragments of cells that were refused.
    pub(crate) fn unstage(&mut self, draft: &Draft) {
        let Some(state) = self.state.clone() else {
            return;
        };
        for body in draft.bodies.iter().filter(|body| body.blocks.is_none()) {
            for id in state.fragments(body).unwrap_or_default() {
                // What stays is an orphan once this process has ended.
                let _ = self.disk.remove(&self.disk.fragment_path(id));
            }
        }
    }
}
