//! Where a process that may not recover the log starts reading, and how much of the log it shows.
//!
//! Invariant: nothing is shown that a power cut could take back, but commits that were stored to be shown once they are
//! written. Reading processes decide by this, and so does a writer that opens the database on a disk with no room to recover.
//! Why the rule is right stands in `docs/format/live.md`, "What readers show".

use crate::error::{Error, Result};
use crate::ids::{CommitNo, Epoch, LogPosition};
use crate::live::{Told, same_boot};
use crate::paths::ROOT_NAME;
use crate::recover::{Known, Recovered, recover};
use crate::root::{Root, RootFile};
use crate::store::Store;
use std::path::Path;
use thalweg_env::Env;

/// Where to start, and how far the log after that may be shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) from: Root,
    /// The last commit that may be shown, and with it what follows and was stored to be shown once it is written. `None`:
    /// all that a recovery would find.
    pub(crate) limit: Option<CommitNo>,
    /// Up to where the log is known to be on disk.
    proven: LogPosition,
    /// A power cut may have left the end of the log so that it cannot be read.
    may_be_torn: bool,
}

impl View {
    /// Decides by the slots of the root and by what `live` announces. `root` must have been read before `live`; `boot` is that of
    /// the machine now. A process that has shown epoch `shown` does not go back to an earlier one.
    pub(crate) fn of(
        dir: &Path,
        root: &RootFile,
        told: &Told,
        boot: [u8; 16],
        shown: Epoch,
    ) -> Result<Self> {
        let (from, limit) = Self::start(dir, root, told, shown)?;
        let of_epoch = told.live.filter(|live| live.epoch == from.epoch);
        Ok(Self {
            from,
            limit,
            proven: of_epoch.map_or_else(LogPosition::default, |live| live.synced),
            // Only a power cut tears a write so.
            may_be_torn: limit.is_none() && of_epoch.is_none_or(|live| !same_boot(live.boot, boot)),
        })
    }

    fn start(
        dir: &Path,
        root: &RootFile,
        told: &Told,
        shown: Epoch,
    ) -> Result<(Root, Option<CommitNo>)> {
        let newest = root.current;
        let Some(live) = told.live else {
            return Ok((newest, None));
        };
        if live.epoch > newest.epoch {
            let what = format!(
                "it is of epoch {}, but epoch {} has begun: an old copy?",
                newest.epoch.0, live.epoch.0
            );
            return Err(Error::corruption(dir.join(ROOT_NAME).display(), what));
        }
        if !told.is_current {
            return Ok((newest, None));
        }
        let slots = [Some(newest), root.other].into_iter().flatten();
        let of_epoch = |slot: &Root| slot.epoch == live.epoch && slot.epoch >= shown;
        Ok(match { slots }.find(of_epoch) {
            // Not the newer slot: it may be in the cache only.
            Some(from) => (from, Some(live.visible)),
            // No commit of a later epoch is acknowledged: its checkpoint has all of them.
            None => (newest, Some(newest.commit)),
        })
    }

    /// Reads the checkpoint and what may be shown of the log after it.
    pub(crate) fn recover(&self, env: &Env, dir: &Path, store: &Store) -> Result<Recovered> {
        let known = Known {
            proven: self.proven,
            told: self.limit,
            may_be_torn: self.may_be_torn,
            may_start_threads: false,
        };
        recover(env, dir, &self.from, &known, store)
    }
}
