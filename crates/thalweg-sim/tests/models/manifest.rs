//! The manifest of files: cleaning beside commits, checkpoints, kills, power cuts and lost slots (`manifest.md`, `log.md`
//! 11 and 12).
//!
//! Checked in every state: whichever slot counts, the files of all trees are there through which a replay of the log goes;
//! so are those of a reader's snapshot; no id is given twice; and at the end no file is left that nothing needs.

use crate::explore::{Model, holds, misses};
use std::collections::{BTreeMap, BTreeSet};

type Files = BTreeSet<u8>;

/// A rule of the manifest, as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A file goes only if in the manifests of both slots it has no use.
    BothSlots,
    /// Both slots are synced before a file goes.
    SlotsAreSynced,
    /// Every slot names a higher next file id than that of a file that goes.
    NextIds,
    /// A file goes once the garbage floor has reached its *free from*.
    FreeFrom,
    /// Uses change at checkpoints, by the difference of two trees, never with a commit.
    Difference,
    /// A fragment that came and went between two checkpoints gets a record.
    RecordsOfGone,
    /// Folders are listed at the opening alone.
    ListedOnce,
    /// Pages that a run took out unread are listed, and what is below them counted off later.
    CountedOff,
    /// A page that is listed keeps its file.
    ListedKeeps,
    /// A record stays until its file was removed.
    RecordStays,
    /// An opening lists what lies in the folder and no record names.
    OpeningLists,
}

/// What is in one slot of the root and in the checkpoint that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    sequence: u8,
    commit: u8,
    tree: Files,
    uses: Files,
    /// Records without a use: from which commit on they are free.
    free: BTreeMap<u8, u8>,
    /// Pages to be counted off.
    listed: Files,
    next_file: u8,
}

/// One commit of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Commit {
    came: Option<u8>,
    went: Files,
    /// By a run: nobody has read which files went.
    unread: bool,
}

/// What the writing process knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    tree: Files,
    /// The checkpoint from which the next difference is counted, and the commits since.
    base: Slot,
    since: Vec<Commit>,
    /// A fragment that no commit has named yet.
    made: Option<u8>,
    /// Fragments that no commit will name.
    given_up: Files,
    /// Fragments without a record that the opening has found, and the sequence of the slot that it has read.
    orphans: Files,
    opened_at: u8,
    /// Listed pages that were read.
    read: Files,
    removed: Files,
    next_file: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    files: Files,
    /// Removals that a power cut may undo.
    undoable: Files,
    slots: [Slot; 2],
    /// What an unsynced slot held before.
    unsynced: Option<(usize, Slot)>,
    /// All commits, from the first one on, and how many of them are on disk.
    log: Vec<Commit>,
    synced: usize,
    writer: Option<Writer>,
    reader: Option<(u8, Files)>,
    created: Files,
    created_twice: bool,
    left: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Makes a fragment.
    Make,
    /// Commits it, in the place of the oldest file where it replaces one.
    Add,
    Replace,
    /// Does not commit it after all.
    GiveUp,
    /// Takes page 1 and what is below it, file 2, out of the tree unread.
    Run,
    Sync,
    Checkpoint,
    SyncSlot,
    ReadListed,
    Clean,
    List,
    Pin,
    Unpin,
    Kill,
    /// A power cut that undoes removals, or not.
    PowerCut(bool),
    Open,
    /// An opening that cannot read the newer slot.
    OpenOlder,
}

/// Steps that are taken only so often.
const BUDGET: [Step; 8] = [
    Step::Make,
    Step::Replace,
    Step::Run,
    Step::Checkpoint,
    Step::Clean,
    Step::Pin,
    Step::Kill,
    Step::PowerCut(true),
];

#[derive(Clone, Debug)]
struct World {
    broken: Option<Rule>,
    budget: [u8; BUDGET.len()],
}

/// The page that a run takes out, and the file below it.
const PAGE: u8 = 1;
const BELOW: u8 = 2;

fn replay(slot: &Slot, log: &[Commit], end: usize) -> Files {
    let mut tree = slot.tree.clone();
    for commit in log.get(usize::from(slot.commit)..end).unwrap_or_default() {
        tree.retain(|file| !commit.went.contains(file));
        tree.extend(commit.came);
    }
    tree
}

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn may(&self, state: &State, step: Step) -> bool {
        let of =
            |budgeted: &Step| std::mem::discriminant(budgeted) == std::mem::discriminant(&step);
        BUDGET
            .iter()
            .position(of)
            .is_none_or(|at| state.left[at] > 0)
    }

    fn spend(state: &mut State, step: Step) {
        let of =
            |budgeted: &Step| std::mem::discriminant(budgeted) == std::mem::discriminant(&step);
        if let Some(at) = BUDGET.iter().position(of) {
            state.left[at] -= 1;
        }
    }

    fn commit(state: &mut State, commit: Commit, keeps_difference: bool) {
        let Some(writer) = &mut state.writer else {
            return;
        };
        writer.tree.retain(|file| !commit.went.contains(file));
        writer.tree.extend(commit.came);
        if !keeps_difference {
            // The counts change with the commit, in a place of their own.
            for slot in &mut state.slots {
                slot.uses.retain(|file| !commit.went.contains(file));
                slot.free.extend(commit.went.iter().map(|&file| (file, 0)));
                slot.uses.extend(commit.came);
            }
        }
        writer.since.push(commit.clone());
        state.log.push(commit);
    }

    /// The next checkpoint: its manifest is that of the one before, changed by the difference.
    fn checkpoint(&self, state: &mut State) {
        let newest = usize::from(state.slots[1].sequence > state.slots[0].sequence);
        let Some(writer) = &mut state.writer else {
            return;
        };
        let commit = u8::try_from(state.log.len()).expect("few commits");
        let unread: Files = writer
            .since
            .iter()
            .filter(|c| c.unread)
            .flat_map(|c| c.went.clone())
            .collect();
        let base = &writer.base;
        let mut next = Slot {
            sequence: state.slots[newest].sequence + 1,
            commit,
            tree: writer.tree.clone(),
            ..base.clone()
        };
        next.next_file = writer.next_file;
        next.listed.retain(|page| !writer.read.contains(page));
        if unread.contains(&PAGE) && self.keeps(Rule::CountedOff) {
            next.listed.insert(PAGE);
        }
        let is_below_listed = |file: &u8| {
            unread.contains(file) || (base.listed.contains(&PAGE) && [PAGE, BELOW].contains(file))
        };
        let mut off: Files = base.tree.difference(&writer.tree).copied().collect();
        off.retain(|file| !is_below_listed(file));
        if !self.keeps(Rule::ListedKeeps) && unread.contains(&PAGE) {
            off.insert(PAGE);
        }
        if writer.read.contains(&PAGE) {
            off.extend([PAGE, BELOW]);
        }
        next.uses.extend(writer.tree.iter().copied());
        if self.keeps(Rule::RecordsOfGone) {
            let came = writer.since.iter().filter_map(|commit| commit.came);
            let gone = came.filter(|file| !writer.tree.contains(file));
            next.free.extend(gone.map(|file| (file, commit)));
        }
        for file in off {
            if next.uses.remove(&file) {
                next.free.entry(file).or_insert(commit);
            }
        }
        if self.keeps(Rule::RecordStays) {
            next.free.retain(|file, _| !writer.removed.contains(file));
        } else {
            next.free.clear();
        }
        writer.base = next.clone();
        writer.since.clear();
        writer.read.clear();
        let at = 1 - newest;
        state.unsynced = Some((at, state.slots[at].clone()));
        state.slots[at] = next;
        state.synced = state.log.len();
    }

    fn goes(&self, state: &State, writer: &Writer, file: u8) -> bool {
        let floor = state.reader.as_ref().map_or(u8::MAX, |(commit, _)| *commit);
        let newest = usize::from(state.slots[1].sequence > state.slots[0].sequence);
        let is_used = |slot: &Slot| slot.uses.contains(&file);
        let slots = &state.slots;
        let is_free = |slot: &Slot| {
            !is_used(slot)
                && slot
                    .free
                    .get(&file)
                    .is_some_and(|from| *from <= floor || !self.keeps(Rule::FreeFrom))
        };
        let by_record = if self.keeps(Rule::BothSlots) {
            slots.iter().all(is_free)
        } else {
            is_free(&slots[newest])
        };
        // Not a rule of its own here: an id that both slots name a higher one than says the same.
        let is_late = slots.iter().all(|slot| slot.sequence > writer.opened_at);
        // A reader that was there before may show what the recovery has not found.
        let by_orphan = writer.orphans.contains(&file) && is_late && floor >= slots[newest].commit;
        let ids = slots.iter().all(|slot| slot.next_file > file) || !self.keeps(Rule::NextIds);
        let synced = state.unsynced.is_none() || !self.keeps(Rule::SlotsAreSynced);
        let by_maker = writer.given_up.contains(&file);
        (by_record || by_orphan || by_maker) && ids && synced
    }

    fn clean(&self, state: &mut State) {
        let Some(writer) = state.writer.clone() else {
            return;
        };
        let gone: Files = state
            .files
            .iter()
            .copied()
            .filter(|&file| self.goes(state, &writer, file))
            .collect();
        state.files.retain(|file| !gone.contains(file));
        state.undoable.extend(gone.iter().copied());
        if let Some(writer) = &mut state.writer {
            writer.orphans.retain(|file| !gone.contains(file));
            writer.given_up.retain(|file| !gone.contains(file));
            writer.removed.extend(gone);
        }
    }

    /// Files that nothing names: found by a listing.
    fn unnamed(&self, state: &State, slot: &Slot, tree: &Files) -> Files {
        let named = |file: &u8| {
            let in_log = state
                .log
                .iter()
                .skip(usize::from(slot.commit))
                .any(|commit| commit.came == Some(*file));
            tree.contains(file)
                || slot.uses.contains(file)
                || slot.free.contains_key(file)
                || in_log
        };
        state
            .files
            .iter()
            .copied()
            .filter(|file| !named(file))
            .collect()
    }

    fn open(&self, state: &mut State, older: bool) {
        let newest = usize::from(state.slots[1].sequence > state.slots[0].sequence);
        let at = if older { 1 - newest } else { newest };
        let slot = state.slots[at].clone();
        let tree = replay(&slot, &state.log, state.log.len());
        let named = state.files.iter().max().map_or(0, |file| file + 1);
        let next_file = slot.next_file.max(named).max(
            state
                .log
                .iter()
                .skip(usize::from(slot.commit))
                .filter_map(|c| c.came)
                .max()
                .map_or(0, |file| file + 1),
        );
        let orphans = self.unnamed(state, &slot, &tree);
        let since = state.log[usize::from(slot.commit)..].to_vec();
        state.writer = Some(Writer {
            orphans: if self.keeps(Rule::OpeningLists) {
                orphans
            } else {
                Files::new()
            },
            opened_at: slot.sequence,
            tree,
            base: slot.clone(),
            since,
            made: None,
            given_up: Files::new(),
            read: Files::new(),
            removed: Files::new(),
            next_file,
        });
        if older {
            // The recovery begins an epoch, and writes both slots; the lost one must not count again.
            state.slots[1 - at] = Slot {
                sequence: slot.sequence,
                ..slot
            };
        }
        state.unsynced = None;
        if !state.log.is_empty() {
            self.checkpoint(state);
            state.unsynced = None;
        }
    }

    fn power_cut(state: &mut State, undoes: bool) {
        if undoes {
            state.files.extend(std::mem::take(&mut state.undoable));
        }
        state.undoable.clear();
        state.log.truncate(state.synced);
        if let Some((at, before)) = state.unsynced.take() {
            state.slots[at] = before;
        }
        state.writer = None;
        state.reader = None;
    }

    /// What is left after enough checkpoints and rounds of cleaning, where nobody does anything else.
    fn settled(&self, state: &State) -> State {
        let mut state = state.clone();
        state.reader = None;
        if state.writer.is_none() {
            self.open(&mut state, false);
        }
        for _ in 0..4 {
            self.checkpoint(&mut state);
            state.unsynced = None;
            self.read_listed(&mut state);
            self.clean(&mut state);
        }
        state
    }

    fn read_listed(&self, state: &mut State) {
        let files = state.files.clone();
        if let Some(writer) = &mut state.writer {
            let listed = writer
                .base
                .listed
                .iter()
                .filter(|page| files.contains(page));
            writer.read.extend(listed.copied());
        }
    }

    fn make(state: &mut State) {
        let Some(writer) = &mut state.writer else {
            return;
        };
        let file = writer.next_file;
        writer.next_file += 1;
        writer.made = Some(file);
        state.files.insert(file);
        state.created_twice |= !state.created.insert(file);
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let tree = Files::from([PAGE, BELOW]);
        let slot = |sequence| Slot {
            sequence,
            tree: tree.clone(),
            uses: tree.clone(),
            next_file: 3,
            ..Slot::default()
        };
        let slots = [slot(1), slot(2)];
        let mut state = State {
            files: tree.clone(),
            undoable: Files::new(),
            slots,
            unsynced: None,
            log: vec![],
            synced: 0,
            writer: None,
            reader: None,
            created: tree,
            created_twice: false,
            left: self.budget.to_vec(),
        };
        self.open(&mut state, false);
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Some(writer) = &state.writer {
            let made = writer.made.is_some();
            steps.extend((!made).then_some(Step::Make));
            steps.extend(made.then_some(Step::Add));
            steps.extend(made.then_some(Step::GiveUp));
            steps.extend((made && !writer.tree.is_empty()).then_some(Step::Replace));
            steps.extend(writer.tree.contains(&PAGE).then_some(Step::Run));
            steps.extend((state.synced < state.log.len()).then_some(Step::Sync));
            steps.push(Step::Checkpoint);
            steps.extend(state.unsynced.is_some().then_some(Step::SyncSlot));
            steps.extend((!writer.base.listed.is_subset(&writer.read)).then_some(Step::ReadListed));
            steps.push(Step::Clean);
            steps.extend((made && !self.keeps(Rule::ListedOnce)).then_some(Step::List));
            steps.extend(state.reader.is_none().then_some(Step::Pin));
            steps.push(Step::Kill);
        } else {
            steps.push(Step::Open);
            // One slot may be lost, and not both.
            steps.extend(state.unsynced.is_none().then_some(Step::OpenOlder));
        }
        steps.extend([Step::PowerCut(true), Step::PowerCut(false)]);
        steps.extend(state.reader.is_some().then_some(Step::Unpin));
        steps.retain(|&step| self.may(state, step));
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        Self::spend(&mut next, *step);
        let took = next.writer.as_mut().and_then(|writer| match step {
            Step::Add | Step::Replace => writer.made.take(),
            _ => None,
        });
        let keeps_difference = self.keeps(Rule::Difference);
        match step {
            Step::Make => Self::make(&mut next),
            Step::Add => {
                Self::commit(
                    &mut next,
                    Commit {
                        came: took,
                        went: Files::new(),
                        unread: false,
                    },
                    keeps_difference,
                );
            }
            Step::Replace => {
                let oldest = next
                    .writer
                    .as_ref()
                    .and_then(|writer| writer.tree.last().copied());
                let went = oldest.into_iter().filter(|file| *file > BELOW).collect();
                Self::commit(
                    &mut next,
                    Commit {
                        came: took,
                        went,
                        unread: false,
                    },
                    keeps_difference,
                );
            }
            Step::Run => {
                let went = Files::from([PAGE, BELOW]);
                Self::commit(
                    &mut next,
                    Commit {
                        came: None,
                        went,
                        unread: true,
                    },
                    keeps_difference,
                );
            }
            Step::GiveUp => {
                if let Some(writer) = &mut next.writer {
                    writer.given_up.extend(writer.made.take());
                }
            }
            Step::Sync => next.synced = next.log.len(),
            Step::Checkpoint => self.checkpoint(&mut next),
            Step::SyncSlot => next.unsynced = None,
            Step::ReadListed => self.read_listed(&mut next),
            Step::Clean => self.clean(&mut next),
            Step::List => {
                if let Some(writer) = next.writer.clone() {
                    let found = self.unnamed(&next, &writer.base, &writer.tree);
                    next.writer = Some(Writer {
                        orphans: found,
                        opened_at: 0,
                        ..writer
                    });
                }
            }
            Step::Pin => {
                let commit = u8::try_from(next.log.len()).expect("few commits");
                next.reader = next
                    .writer
                    .as_ref()
                    .map(|writer| (commit, writer.tree.clone()));
            }
            Step::Unpin => next.reader = None,
            Step::Kill => next.writer = None,
            Step::PowerCut(undoes) => Self::power_cut(&mut next, *undoes),
            Step::Open => self.open(&mut next, false),
            Step::OpenOlder => self.open(&mut next, true),
        }
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        if state.created_twice {
            return Err("an id is given twice".to_owned());
        }
        let before = state.unsynced.iter().map(|(_, slot)| slot);
        for slot in state.slots.iter().chain(before) {
            // A replay reads pages of each tree on its way.
            for end in usize::from(slot.commit)..=state.log.len() {
                let tree = replay(slot, &state.log, end);
                if !tree.is_subset(&state.files) {
                    return Err(format!(
                        "files {tree:?} are needed, {:?} are there",
                        state.files
                    ));
                }
            }
        }
        if let Some((_, tree)) = &state.reader
            && !tree.is_subset(&state.files)
        {
            return Err(format!(
                "a reader needs {tree:?}, {:?} are there",
                state.files
            ));
        }
        let settled = self.settled(state);
        let tree = settled.writer.map(|writer| (writer.tree, writer.made));
        let (tree, made) = tree.unwrap_or_default();
        let left: Files = settled
            .files
            .iter()
            .copied()
            .filter(|file| !tree.contains(file) && made != Some(*file))
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("files {left:?} stay for ever"))
        }
    }

    fn is_end(&self, _: &State) -> bool {
        true
    }
}

//                         make replace run checkpoint clean pin kill power
const REMOVALS: World = World {
    broken: None,
    budget: [2, 0, 1, 1, 2, 0, 1, 1],
};
const REPLACED: World = World {
    broken: None,
    budget: [3, 1, 0, 2, 1, 1, 0, 0],
};
const SYNCED: World = World {
    broken: None,
    budget: [2, 1, 0, 3, 1, 0, 0, 1],
};

#[test]
fn files_are_there_while_they_are_needed_and_no_longer() {
    holds("removals", &REMOVALS);
    holds("replaced", &REPLACED);
    holds("synced", &SYNCED);
}

#[test]
fn a_rule_of_the_manifest_that_is_left_out_is_missed() {
    let cases = [
        (Rule::BothSlots, REPLACED),
        (Rule::SlotsAreSynced, SYNCED),
        (Rule::NextIds, REMOVALS),
        (Rule::FreeFrom, REPLACED),
        (Rule::Difference, REPLACED),
        (Rule::RecordsOfGone, REPLACED),
        (Rule::ListedOnce, REPLACED),
        (Rule::CountedOff, REMOVALS),
        (Rule::ListedKeeps, REMOVALS),
        (Rule::RecordStays, REPLACED),
        (Rule::OpeningLists, REMOVALS),
    ];
    for (rule, world) in cases {
        misses(
            rule,
            &World {
                broken: Some(rule),
                ..world
            },
        );
    }
}
