//! The rules of the inbox, which tests break one at a time: a rule that no test misses is none.
//!
//! Invariant: without the feature `broken-rules`, which only tests select, every rule is kept and asking costs nothing.

thalweg_env::rules! {
    /// A rule of the inbox (docs/design/next-format/inbox.md).
    Rule {
        /// Cells are committed with the commit lock in hand.
        CommitLock,
        /// A frame is synced before the registry shows it.
        SyncFrames,
        /// A sequence is above the bound of the registry as well.
        BoundOfRegistry,
        /// A sequence is above that of the state of the log as well.
        BoundOfState,
        /// A time is above the newest one.
        TimesRise,
        /// The registry is set to *appending* before bytes are appended.
        SayAppending,
        /// Bytes at *visible* that are not zeros are undecided.
        LookAtVisible,
        /// A log with a higher number than that of the registry makes it undecided.
        LookForHigherLogs,
        /// Undecided frames are copied into a new log.
        CopyTail,
        /// Copied frames are synced before the header of their log is written.
        SyncTail,
        /// The name of a log is synced before its header is written.
        SyncLogName,
        /// The header of a log is synced before the registry names it.
        SyncHeader,
        /// The registry is set to *appending* before a new log gets its name.
        AppendingBeforeName,
        /// A new log has a number above all names in the folder.
        NumberAboveNames,
        /// A log that the registry may name is not cut.
        KeepWhatMayBeNamed,
        /// Frames of another boot are never followed by frames of this one in the same log.
        EndedIsEnded,
        /// Space of a log is synced zeros before frames are written into it.
        PrepareBeforeAppend,
        /// A fragment and its name are synced before a frame names it.
        SyncFragments,
        /// A process takes a new state if the registry requires it.
        RequiredState,
        /// A process takes a new state if `live` names a later epoch.
        EpochOfLive,
        /// A drop leaves in the registry what it requires.
        DropRequires,
        /// *Seen* of a frame is not below what its process has seen.
        SeenOfProcess,
        /// The writer puts its bounds into the registry before it commits.
        WriterBounds,
        /// The writer puts its commit into *seen* before it commits.
        WriterSeen,
        /// A commit of the writer with cells holds what is in the inbox.
        HoldBeforeCells,
        /// The writer keeps the commit lock until `live` shows its commit.
        ShowBeforeUnlock,
        /// The registry is read before the state is taken, too.
        ReadBeforeState,
        /// The registry is read after the state was taken, too.
        ReadAfterState,
        /// Of the second reading, frames after the first one that saw a later state are left out.
        CutBySeen,
        /// A reader that finds the registry current after it was not starts again.
        StartAgainWhenCurrent,
        /// Only frames that are shown are adopted.
        AdoptVisibleOnly,
        /// The position moves in the commit that has the cells.
        PositionWithCells,
        /// A held group is released by the commit that has its cells.
        ReleaseHeld,
        /// The stamp of a frame goes with its cells.
        KeepStamps,
        /// Frames of dropped tables add nothing.
        PassDropped,
        /// A log that snapshots may read is removed only after the floor has passed these snapshots.
        FloorBeforeRemoval,
        /// The log of the position and those above it in the chain stay.
        KeepChain,
        /// Logs of held groups stay.
        KeepHeldLogs,
        /// Fragments of living processes stay.
        KeepOfLiving,
        /// Fragments of dead processes that a frame or state names stay.
        KeepNamed,
        /// The data folder is listed before the locks of its owners are checked.
        ListBeforeLocks,
        /// Which logs are removed is decided while the commit lock is held, by a settled state.
        DecideSettled,
        /// The registry and its folders are synced before the first array is there.
        SyncRegistryName,
        /// A vacuum leaves out only versions up to a floor that was committed.
        FloorBeforeVacuum,
        /// A time that is given is above the floor.
        AboveFloor,
        /// Cells that a commit depends on are compared with the commit lock in hand.
        CompareUnderLock,
        /// A log that ends before a place that is proven is damaged.
        Proof,
        /// A frame continues the one before it.
        Chain,
    }
}

impl Rule {
    /// Whether the rule is broken.
    pub(crate) fn is_broken(self) -> bool {
        !self.is_kept()
    }
}
