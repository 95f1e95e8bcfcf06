//! The work that commits call for: blocks of open rows, checkpoints, files to remove.
//!
//! Invariants: one thread encodes open rows at a time, so every open row is claimed once; rows are encoded only when they
//! are visible; an append waits while the open rows of all tables that can be encoded exceed their limit, and fails when encoding
//! fails meanwhile for a reason that concerns all tables. One that concerns a table leaves that one aside (`due`).

use crate::block::EncodedBlock;
use crate::commit::{Commit, Durability, Edit, GroupPart};
use crate::compact::compact_segments;
use crate::due::not_stored;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::refusal;
use crate::garbage::Cleaner;
use crate::ids::{CommitNo, TableId};
use crate::index::Entry;
use crate::job::{CoverJob, Job};
use crate::limits::{FRAME_LIMIT_BYTES, are_few_pages, fit_one_group};
use crate::masks::{CoveredPart, CoveredRows};
use crate::open_rows::OpenRows;
use crate::options::{IndexBlocks, Options, RowEncoder};
use crate::orders::AddHead;
use crate::rules::Chosen;
use crate::space_estimates::CLEANING_CHECKPOINTS;
use crate::state::TableSnapshot;
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::JoinHandle;
use thalweg_env::sync::{Mutex, MutexGuard};

/// The work that errors name after a panic in it.
const ENCODING: &str = "encoding open rows";
const CLEANING: &str = "removing and rewriting files";
/// About so many rows become blocks at once, where there are more: bounds what is encoded and not yet committed.
const MAX_COVER_ROWS: u64 = 1 << 16;

/// Does it, on threads of its own or at the end of commits.
pub(crate) struct Upkeep {
    writer: Arc<Writer>,
    cleaner: Cleaner,
    encoder: Arc<dyn RowEncoder>,
    encoding: Mutex<()>,
    cleaning: Mutex<()>,
    background: bool,
}

impl Upkeep {
    pub(crate) fn new(
        writer: Arc<Writer>,
        encoder: Arc<dyn RowEncoder>,
        options: &Options,
    ) -> Self {
        Self {
            cleaner: Cleaner::new(Arc::clone(&writer), options.max_snapshot_age),
            writer,
            encoder,
            encoding: Mutex::new(()),
            cleaning: Mutex::new(()),
            background: options.background,
        }
    }

    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Starts a thread of the database. If it panics, writing ends: nobody would do its work any more.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<JoinHandle> {
        let upkeep = Arc::clone(self);
        let doing = format!("thread {name}");
        let chosen = Chosen::here();
        let watched = move || {
            chosen.choose();
            upkeep.writer.watched(&doing, || work(&upkeep));
        };
        let thread = self.writer.env.spawner().spawn(name, Box::new(watched));
        thread.map_err(|e| Error::io(format_args!("starting thread {name}"), e))
    }

    /// Whether threads of the database do its work, and not whoever commits.
    pub(crate) fn has_threads(&self) -> bool {
        self.background
    }

    /// Stores a commit of a caller, who waits where rows come faster than they are encoded.
    pub(crate) fn commit(&self, commit: Commit, durability: Durability) -> Result<CommitNo> {
        self.admit(&commit)?;
        let number = self.writer.submit(Job::Commit(commit), durability);
        if !self.background {
            // The commit's outcome is final. A later failure is met again by the appends that wait for room, or
            // poisons.
            let _ = self.run_due_work();
        }
        number
    }

    /// Stores several commits, in order, where threads of the database do its work. `answer` gets the results in this
    /// order, each as soon as no commit before it waits. Those between which nobody waits for room are synced together.
    pub(crate) fn commit_all(
        &self,
        commits: Vec<(Commit, Durability)>,
        answer: &mut dyn FnMut(Result<CommitNo>),
    ) {
        debug_assert!(self.background, "nobody does the work that they call for");
        let mut admitted = Vec::with_capacity(commits.len());
        // Where there is none for one of them there is none for the next: each would wait as long again.
        let mut no_room: Option<Error> = None;
        for (commit, durability) in commits {
            let mut room = self.check_open(&commit);
            if room.is_ok() && !commit.rows.is_empty() && self.writer.due.is_full() {
                room = match &no_room {
                    Some(error) => Err(error.clone()),
                    None => {
                        let before = std::mem::take(&mut admitted);
                        self.writer
                            .submit_all(before)
                            .into_iter()
                            .for_each(&mut *answer);
                        self.wait_for_room()
                    }
                };
                no_room = room.as_ref().err().cloned();
            }
            let room = room.inspect_err(|_| self.refuse(&commit));
            admitted.push(room.map(|()| (Job::CommitLater(commit), durability)));
        }
        self.writer
            .submit_all(admitted)
            .into_iter()
            .for_each(answer);
    }

    /// Refuses a commit whose caller does not wait.
    pub(crate) fn refuse(&self, commit: &Commit) {
        self.abandon(commit);
        if let Some(producer) = commit.producer.as_ref().filter(|_| !commit.is_empty()) {
            // Once the database is closed nothing is stored after it.
            let _ = self
                .writer
                .with_leader(|leader| leader.note_refused(producer));
        }
    }

    /// Waits until there is room for the rows of a commit. One that is refused keeps no fragments.
    fn admit(&self, commit: &Commit) -> Result<()> {
        let room = self.check_open(commit);
        let room = room.and_then(|()| match commit.rows.is_empty() {
            true => Ok(()),
            false => self.wait_for_room(),
        });
        room.inspect_err(|_| self.abandon(commit))
    }

    /// Refuses commits of a database that is about to be closed, and rows of tables whose open rows cannot be encoded.
    fn check_open(&self, commit: &Commit) -> Result<()> {
        if self.writer.is_closing() {
            return Err(Error::closed());
        }
        let tables = commit.rows.iter().map(|rows| rows.table);
        match commit.rows.is_empty() {
            true => Ok(()),
            false => self.writer.due.check_stuck(tables),
        }
    }

    /// The fragments of a commit that is not stored become part of no table.
    pub(crate) fn abandon(&self, commit: &Commit) {
        let files = commit.fragments().map(|(_, root)| root.address.file);
        self.writer.abandon_fragments(files);
    }

    fn wait_for_room(&self) -> Result<()> {
        if !self.writer.due.is_full() {
            return Ok(());
        }
        if !self.background {
            let worked = self.run_due_work();
            return match worked {
                Err(error) if self.writer.due.is_full() => Err(not_stored(&error)),
                _ => Ok(()),
            };
        }
        let mut rounds = self.writer.rounds.lock();
        let begun = rounds.ended;
        while self.writer.due.is_full() {
            // Only of a round that has ended since: what failed before may be long past.
            if let Some(error) = rounds.error.as_ref().filter(|_| rounds.ended > begun) {
                return Err(not_stored(error));
            }
            self.writer.due.work.call();
            self.writer
                .room
                .wait_for(&mut rounds, Duration::from_millis(50));
            if self.writer.is_closing() {
                return Err(Error::closed());
            }
            if let Some(poison) = self.writer.poison() {
                return Err(refusal(&poison));
            }
        }
        Ok(())
    }

    /// Does what commits have called for: blocks of open rows, a checkpoint, segments.
    pub(crate) fn run_due_work(&self) -> Result<()> {
        let encoded = self.encode_and_checkpoint();
        if self.background {
            return encoded;
        }
        if self.writer.supply.wants() {
            self.writer
                .watched("preparing segments", || self.writer.supply.refill());
        }
        // On a full disk this is what makes room for the rest.
        let cleaned = self.look_at_pins_for_drop().and_then(|()| self.clean());
        encoded.and(cleaned)
    }

    fn encode_and_checkpoint(&self) -> Result<()> {
        let encoded = self.encode_due_tables();
        if encoded.as_ref().is_err_and(stops_all) {
            return encoded;
        }
        // Tables that cannot be encoded keep their open rows; a checkpoint copies them.
        self.checkpoint_if_due().and(encoded)
    }

    fn checkpoint_if_due(&self) -> Result<()> {
        if self.writer.due.take_checkpoint() {
            self.writer
                .submit(Job::Checkpoint { always: false }, Durability::Disk)?;
        }
        Ok(())
    }

    /// Encodes all tables that need it; those where it fails are left aside for a while. The last error.
    fn encode_due_tables(&self) -> Result<()> {
        let mut failed = Ok(());
        while !self.writer.is_closing() {
            match self.encode_one() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if stops_all(&error) => return Err(error),
                Err(error) => failed = Err(error),
            }
            // Appends may keep this up for as long as they like, and what an opening has to read would grow with it.
            if self
                .writer
                .with_leader(|leader| leader.checkpoint_is_overdue())?
            {
                self.checkpoint_if_due()?;
            }
        }
        failed
    }

    /// Rewrites what segments with little in them still hold, and removes files that nothing needs, if commits may have
    /// left any.
    pub(crate) fn clean(&self) -> Result<()> {
        let _one_at_a_time = self.cleaning.lock();
        if !self.writer.due.take_garbage() {
            return Ok(());
        }
        self.writer.work(CLEANING, || {
            let waited = self.cleaner.finish_waiting();
            if waited.is_err() {
                self.writer.due.garbage_stays();
            }
            waited.and(self.clean_now())
        })
    }

    fn clean_now(&self) -> Result<()> {
        let is_full = self.writer.due.take_out_of_space();
        if is_full {
            self.checkpoint_behind_drop()?;
        }
        let mut marked = self.cleaner.mark();
        let compacted = match &marked {
            Ok(marked) => compact_segments(&self.writer, marked, is_full),
            Err(error) => Err(error.clone()),
        };
        // What cannot be moved, because it cannot be read, keeps nothing else.
        if !matches!(compacted, Ok(false)) {
            drop(marked);
            marked = self.cleaner.mark();
        }
        let is_partial = marked
            .as_ref()
            .is_ok_and(|marked| !marked.needed.unreadable.is_empty());
        // Removing files takes full checkpoints: those that free less than these wait for others.
        let min_bytes = if is_full {
            0
        } else {
            let full_bytes = self
                .writer
                .with_leader(|leader| leader.working().bases.index_bytes())?;
            CLEANING_CHECKPOINTS * full_bytes
        };
        let collected = marked.and_then(|marked| self.cleaner.collect(marked, min_bytes));
        if compacted.is_err() || !matches!(collected, Ok(true)) || is_partial {
            self.writer.due.garbage_stays();
        }
        compacted.and(collected.map(|_| ()))
    }

    /// Writes a checkpoint where none has come since a drop: else a recovery may read each segment that the table shares with
    /// others, and none of them is emptied. It takes no room that a drop may need.
    fn checkpoint_behind_drop(&self) -> Result<()> {
        let is_due = (self.writer).with_leader(|leader| leader.dropped().is_since_checkpoint())?;
        if !is_due {
            return Ok(());
        }
        let job = Job::Checkpoint { always: false };
        match self.writer.submit(job, Durability::Disk) {
            Err(error) if error.kind() == ErrorKind::DiskFull => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// Nothing is moved or removed until the guard is dropped.
    pub(crate) fn pause_cleaning(&self) -> MutexGuard<'_, ()> {
        self.cleaning.lock()
    }

    /// Whether garbage waits for snapshots to go.
    pub(crate) fn waits_for_pins(&self) -> bool {
        self.cleaner.waits_for_pins()
    }

    /// Removes what waited for snapshots that are gone by now.
    pub(crate) fn look_at_pins(&self) -> Result<()> {
        if !self.waits_for_pins() {
            return Ok(());
        }
        let _one_at_a_time = self.cleaning.lock();
        let is_done = self.writer.work(CLEANING, || self.cleaner.finish_waiting());
        if !matches!(is_done, Ok(false)) {
            // There may be more by now.
            self.writer.due.expect_garbage();
        }
        is_done.map(|_| ())
    }

    /// Removes the same where a drop waits for it, and no thread does it from time to time.
    fn look_at_pins_for_drop(&self) -> Result<()> {
        // Nearly always nothing waits, and the leader need not be asked.
        if !self.waits_for_pins() {
            return Ok(());
        }
        let keeps_waiting = (self.writer).with_leader(|leader| leader.dropped().keeps_waiting())?;
        match keeps_waiting {
            true => self.look_at_pins(),
            false => Ok(()),
        }
    }

    /// Encodes open rows of a table that needs it; `false`: none does.
    fn encode_one(&self) -> Result<bool> {
        let _one_at_a_time = self.encoding.lock();
        let (next, is_broken) = self
            .writer
            .with_leader(|leader| (leader.next_to_encode(), leader.awaits_recovery()))?;
        let Some((table, block_rows)) = next else {
            return Ok(false);
        };
        let encoded = self.writer.work(ENCODING, || match is_broken {
            // Rows of the batch that broke count as open, and no snapshot has them: recovering the log counts them anew.
            true => self.writer.flush().map(|()| true).map_err(ends_round),
            false => self.encode_and_note(table, block_rows),
        });
        let mut rounds = self.writer.rounds.lock();
        rounds.ended += 1;
        rounds.error = encoded
            .as_ref()
            .err()
            .filter(|error| stops_all(error))
            .cloned();
        drop(rounds);
        self.writer.room.notify_all();
        encoded
    }

    /// Encodes all open rows of a table.
    pub(crate) fn encode_open_rows(&self, table: TableId) -> Result<()> {
        let _one_at_a_time = self.encoding.lock();
        let encoded = self
            .writer
            .work(ENCODING, || self.encode_and_note(table, None));
        encoded.map(|_| ())
    }

    fn encode_and_note(&self, table: TableId, block_rows: Option<u64>) -> Result<bool> {
        let encoded = self.encode_table(table, block_rows);
        let failed = encoded.as_ref().err().cloned();
        if !failed.as_ref().is_some_and(stops_all) {
            let now_ns = self.writer.env.clock().monotonic_ns();
            let was_stuck = self.writer.due.note_encoded(table, failed, now_ns);
            if was_stuck || encoded.is_err() {
                let failed_ns = encoded.is_err().then_some(now_ns);
                self.writer
                    .with_leader(|leader| leader.note_encoded(table, failed_ns))?;
            }
        }
        encoded
    }

    fn encode_table(&self, table: TableId, block_rows: Option<u64>) -> Result<bool> {
        match self.encode_table_once(table, block_rows, false) {
            // Rows of it were deleted meanwhile, or it was altered: the next attempt carries what is deleted while it encodes.
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            done => return done,
        }
        match self.encode_table_once(table, block_rows, true) {
            // Altered again: the next round tries it again.
            Err(e) if e.kind() == ErrorKind::Conflict => Ok(true),
            done => done,
        }
    }

    fn encode_table_once(
        &self,
        table: TableId,
        block_rows: Option<u64>,
        is_again: bool,
    ) -> Result<bool> {
        let Some(table) = self.writer.snapshot().table(table) else {
            return Ok(false);
        };
        let rows = rows_to_encode(&table, block_rows);
        if rows.is_empty() {
            return Ok(false);
        }
        // Where rows are deleted before they are encoded, others are while they are.
        let carries = is_again || rows.iter().any(|rows| table.hidden_in(rows).is_some());
        let mut cover = self.cover(&table, &rows, carries)?;
        let plain_blocks = cover.commit.groups.len() + cover.commit.edits.len();
        let entries = self.encoder.encode_entries(&table, &rows)?;
        cover.commit = with_entries(&table, cover.commit, entries);
        let has_entries = cover.commit.groups.len() + cover.commit.edits.len() > plain_blocks;
        let done = match self.submit_cover(cover) {
            // The rows become blocks without it: they are read where the index does not cover them. So also where entries that
            // lie all over their index change more pages than one commit may.
            Err(error)
                if has_entries
                    && (error.is_of_unreadable_bytes() || error.kind() == ErrorKind::Limit) =>
            {
                self.submit_cover(self.cover(&table, &rows, carries)?)
            }
            done => done,
        };
        match done {
            Ok(_) => Ok(true),
            // Dropped meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn submit_cover(&self, cover: Cover) -> Result<CommitNo> {
        let job = match cover.carries {
            Some((table, covered, blocks)) => Job::Cover(Box::new(CoverJob {
                commit: cover.commit,
                table,
                covered,
                blocks,
            })),
            None => Job::Commit(cover.commit),
        };
        self.writer.submit(job, Durability::Memory)
    }

    /// Whether a commit can put these blocks into the index of a table one by one. What cannot be read is met by the commit.
    fn lie_on_few_pages(&self, table: &TableSnapshot, blocks: &[EncodedBlock]) -> bool {
        let keys = blocks.iter().map(|block| block.entry.key());
        let changed = table
            .tree
            .changed_bytes(&[], &[], keys, &*self.writer.store);
        changed.map_or(true, are_few_pages)
    }

    /// The commit that puts blocks in the place of open rows, whole commits from the front; one that `carries` hides in them
    /// what is deleted until then. Blocks that do not fit one frame go to a fragment: rows between many barriers, or in many
    /// splits, make a block each, and rows once stored must become blocks however wide or scattered they are.
    fn cover(&self, table: &TableSnapshot, rows: &[OpenRows], carries: bool) -> Result<Cover> {
        let (mut blocks, sources) = match carries {
            true => self.encoder.encode_with_sources(table, rows)?,
            false => (self.encoder.encode(table, rows)?, None),
        };
        let encoded: u64 = blocks.iter().map(|b| b.entry.rows).sum();
        let given: u64 = rows.iter().map(|r| u64::from(r.part.rows)).sum();
        let hidden = rows.iter().filter_map(|rows| table.hidden_in(rows));
        let left_out: u64 = hidden.map(|hidden| u64::from(hidden.rows())).sum();
        // Nothing but the rows themselves shows whether their counts are true.
        if encoded + left_out != given {
            let place = format_args!("open rows of table \"{}\"", table.name);
            let kept = given.saturating_sub(left_out);
            let what = format_args!("they are said to be {kept}, and {encoded} are there");
            return Err(Error::corruption(place, what));
        }
        let head = AddHead {
            covers: rows.last().map(|last| last.commit),
            left_out,
            ..AddHead::of_rows(table.id, table.definition_version)
        };
        // As the commit numbers them.
        for (ordinal, block) in (0..).zip(&mut blocks) {
            block.entry.ordinal = ordinal;
        }
        let sources = sources.filter(|sources| sources.len() as u64 == encoded);
        let carries = sources.map(|sources| {
            let covered = CoveredRows::new(parts_of(table, rows), sources);
            let entries = blocks.iter().map(|block| block.entry.clone());
            (table.id, covered, entries.collect())
        });
        if fit_one_group(&blocks) && self.lie_on_few_pages(table, &blocks) {
            let commit = Commit {
                groups: vec![GroupPart { head, blocks }],
                ..Commit::default()
            };
            return Ok(Cover { commit, carries });
        }
        let mut fragment = self
            .writer
            .stage_fragment_anyway((head.table, head.order))?;
        for block in &blocks {
            fragment.add_block(block)?;
        }
        let add = Edit::AddFragments {
            head,
            roots: vec![fragment.finish()?],
        };
        let commit = Commit {
            edits: vec![add],
            ..Commit::default()
        };
        Ok(Cover { commit, carries })
    }

    pub(crate) fn collect_garbage(&self) -> Result<usize> {
        let _one_at_a_time = self.cleaning.lock();
        self.writer.work(CLEANING, || self.cleaner.collect_all())
    }
}

/// A commit that covers open rows.
struct Cover {
    commit: Commit,
    /// Where the rows of its blocks come from, for what is deleted of them until it is their turn.
    carries: Option<(TableId, CoveredRows, Vec<Entry>)>,
}

fn parts_of(table: &TableSnapshot, rows: &[OpenRows]) -> Vec<CoveredPart> {
    let part = |open: &OpenRows| CoveredPart {
        commit: open.commit,
        number: open.number,
        rows: open.part.rows,
        left_out: table.hidden_in(open).cloned(),
    };
    rows.iter().map(part).collect()
}

/// The commit with entries of its rows in indexes of the table, as far as there is room for them in its frame. An index with a
/// page that cannot be read takes none.
fn with_entries(table: &TableSnapshot, mut commit: Commit, entries: Vec<IndexBlocks>) -> Commit {
    let mut room_bytes = usize::try_from(FRAME_LIMIT_BYTES / 2).unwrap_or(usize::MAX);
    room_bytes = room_bytes.saturating_sub(commit.bytes());
    for IndexBlocks { order, blocks } in entries {
        let tree = table.tree_of(order);
        let bytes: usize = blocks.iter().map(|block| block.bytes.len()).sum();
        let takes_them = tree.is_some_and(|tree| tree.pending().is_none());
        if takes_them && bytes <= room_bytes && fit_one_group(&blocks) {
            room_bytes -= bytes;
            let head = AddHead {
                is_complete: true,
                ..AddHead::of_index(table.id, order, table.definition_version)
            };
            commit.groups.push(GroupPart { head, blocks });
        }
    }
    commit
}

/// The error that ends a round: without a log no table can be encoded, whatever kept the log from being recovered.
fn ends_round(error: Error) -> Error {
    if stops_all(&error) {
        return error;
    }
    Error::with_source(ErrorKind::Unavailable, error.message().to_owned(), error)
}

/// Whether an error of encoding a table meets every other one as well.
fn stops_all(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DiskFull | ErrorKind::Unavailable)
}

/// Whole commits from the front: all of them, or as many as fill whole blocks.
fn rows_to_encode(table: &TableSnapshot, block_rows: Option<u64>) -> Vec<OpenRows> {
    let total: u64 = table.open_rows().map(|r| u64::from(r.part.rows)).sum();
    let Some(block_rows) = block_rows else {
        return table.open_rows().cloned().collect();
    };
    let max_rows = MAX_COVER_ROWS.max(block_rows) / block_rows * block_rows;
    let wanted = (total / block_rows * block_rows).min(max_rows);
    let mut taken = 0;
    let mut rows: Vec<OpenRows> = Vec::new();
    for open in table.open_rows() {
        let next = taken + u64::from(open.part.rows);
        // Only between commits: a cover takes all of a commit, of which a table may have several parts.
        let begins_commit = rows.last().is_none_or(|last| last.commit != open.commit);
        if wanted == 0 || (begins_commit && next > wanted && taken > 0) {
            break;
        }
        taken = next;
        rows.push(open.clone());
    }
    rows
}
