//! The simulated disk against a plain model: vectors of bytes, a list of what is pending, replayed in full.
#![cfg(not(feature = "shuttle"))]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::{Env, OpenMode};

type FileId = usize;

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    SetLen(usize),
    Allocate { at: usize, len: usize },
}

#[derive(Clone, Debug)]
enum Step {
    Change(u8, Change),
    Create(u8),
    Remove(u8),
    Rename(u8, u8),
    Sync(u8),
    SyncDir,
    /// Crash and go on with what survived.
    Crash(u64),
}

#[derive(Clone, Debug)]
enum Pending {
    Bytes(FileId, Change),
    Names(Vec<(u8, Option<FileId>)>),
}

#[derive(Clone, Debug, Default)]
struct ModelFile {
    durable: Vec<u8>,
    visible: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    files: Vec<ModelFile>,
    durable_names: BTreeMap<u8, FileId>,
    names: BTreeMap<u8, FileId>,
    pending: Vec<Pending>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let grow = |bytes: &mut Vec<u8>, end| bytes.resize(bytes.len().max(end), 0);
    match change {
        Change::Write { at, bytes: new } => {
            grow(bytes, at + new.len());
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        Change::SetLen(len) => bytes.resize(*len, 0),
        Change::Allocate { at, len } => grow(bytes, at + len),
    }
}

fn rename(names: &mut BTreeMap<u8, FileId>, changes: &[(u8, Option<FileId>)]) {
    for (name, target) in changes {
        match target {
            Some(file) => names.insert(*name, *file),
            None => names.remove(name),
        };
    }
}

impl Model {
    fn change_names(&mut self, changes: Vec<(u8, Option<FileId>)>) {
        rename(&mut self.names, &changes);
        self.pending.push(Pending::Names(changes));
    }

    fn sync(&mut self, file: FileId) {
        for item in std::mem::take(&mut self.pending) {
            match item {
                Pending::Bytes(of, change) if of == file => {
                    apply(&mut self.files[file].durable, &change)
                }
                other => self.pending.push(other),
            }
        }
    }

    fn sync_dir(&mut self) {
        for item in std::mem::take(&mut self.pending) {
            match item {
                Pending::Names(changes) => rename(&mut self.durable_names, &changes),
                other => self.pending.push(other),
            }
        }
        // Files that no name leads to any more are gone, and with them what is pending of them.
        let live: BTreeSet<FileId> = self
            .names
            .values()
            .chain(self.durable_names.values())
            .copied()
            .collect();
        self.pending
            .retain(|item| matches!(item, Pending::Bytes(file, _) if live.contains(file)));
    }

    fn crash(&self, kept: impl Fn(usize) -> bool) -> Model {
        let mut after = self.clone();
        for (at, item) in std::mem::take(&mut after.pending).into_iter().enumerate() {
            match item {
                _ if !kept(at) => {}
                Pending::Bytes(file, change) => apply(&mut after.files[file].durable, &change),
                Pending::Names(changes) => rename(&mut after.durable_names, &changes),
            }
        }
        after.names = after.durable_names.clone();
        after
            .files
            .iter_mut()
            .for_each(|file| file.visible = file.durable.clone());
        after
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.names
            .iter()
            .map(|(name, file)| (path(*name), self.files[*file].visible.clone()))
            .collect()
    }

    /// Values that a byte may have after any crash; nothing if any value is legal there.
    fn legal_bytes(&self, file: FileId, at: usize) -> Option<BTreeSet<u8>> {
        let durable = self.files[file].durable.get(at).copied();
        let mut legal = BTreeSet::from([durable?]);
        for item in &self.pending {
            match item {
                Pending::Bytes(of, change) if *of == file => match change {
                    Change::Write { at: start, bytes }
                        if (*start..start + bytes.len()).contains(&at) =>
                    {
                        legal.insert(bytes[at - start]);
                    }
                    Change::Write { .. } | Change::Allocate { .. } => {}
                    // A cut that survives opens the range for growth without data.
                    Change::SetLen(len) if *len <= at => return None,
                    Change::SetLen(_) => {}
                },
                _ => {}
            }
        }
        Some(legal)
    }
}

fn path(name: u8) -> PathBuf {
    PathBuf::from(format!("/{}", char::from(b'a' + name)))
}

fn contents(sim: &SimEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    sim.files()
        .into_iter()
        .map(|(path, _)| (path.clone(), sim.read_file(&path).unwrap_or_default()))
        .collect()
}

/// Takes a step on both sides; steps that fail must fail on both.
fn take(env: &Env, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let storage = env.storage();
    match step {
        Step::Change(name, change) => {
            let file = storage.open(&path(*name), OpenMode::ReadWrite);
            prop_assert_eq!(file.is_ok(), model.names.contains_key(name));
            let (Ok(file), Some(id)) = (file, model.names.get(name)) else {
                return Ok(());
            };
            let result = match change {
                Change::Write { at, bytes } => file.write_all_at(bytes, *at as u64),
                Change::SetLen(len) => file.set_len(*len as u64),
                Change::Allocate { at, len } => file.allocate(*at as u64, *len as u64),
            };
            prop_assert!(result.is_ok(), "{:?}", result);
            apply(&mut model.files[*id].visible, change);
            model.pending.push(Pending::Bytes(*id, change.clone()));
        }
        Step::Create(name) => {
            let created = storage.open(&path(*name), OpenMode::CreateNew).is_ok();
            prop_assert_eq!(created, !model.names.contains_key(name));
            if created {
                model.files.push(ModelFile::default());
                model.change_names(vec![(*name, Some(model.files.len() - 1))]);
            }
        }
        Step::Remove(name) => {
            let removed = storage.remove_file(&path(*name)).is_ok();
            prop_assert_eq!(removed, model.names.contains_key(name));
            if removed {
                model.change_names(vec![(*name, None)]);
            }
        }
        Step::Rename(from, to) => {
            let renamed = storage.rename(&path(*from), &path(*to)).is_ok();
            let target = |name| model.names.get(name).copied();
            prop_assert_eq!(renamed, target(from).is_some());
            // POSIX: two names of one file, which a crash may leave, both stay.
            if renamed && target(from) != target(to) {
                model.change_names(vec![(*from, None), (*to, target(from))]);
            }
        }
        Step::Sync(name) => {
            if let (Ok(file), Some(id)) = (
                storage.open(&path(*name), OpenMode::Read),
                model.names.get(name),
            ) {
                prop_assert!(file.sync_data().is_ok());
                model.sync(*id);
            }
        }
        Step::SyncDir => {
            prop_assert!(storage.sync_dir(Path::new("/")).is_ok());
            model.sync_dir();
        }
        Step::Crash(_) => {}
    }
    Ok(())
}

/// Every choice that says which items survive leaves exactly what the model replays.
fn check_images(sim: &SimEnv, model: &Model, seed: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(contents(sim), model.contents());
    prop_assert_eq!(sim.pending_items().len(), model.pending.len());
    let image = |choice: CrashChoice| contents(&sim.crash_image(&choice));
    prop_assert_eq!(
        image(CrashChoice::DropAll),
        model.crash(|_| false).contents()
    );
    prop_assert_eq!(
        image(CrashChoice::KeepAll),
        model.crash(|_| true).contents()
    );
    prop_assert_eq!(image(CrashChoice::Kill), model.contents());
    let first = model.pending.len() / 2;
    prop_assert_eq!(
        image(CrashChoice::Prefix(first)),
        model.crash(|at| at < first).contents()
    );
    let mask = |at: usize| at < 64 && seed >> at & 1 == 1;
    prop_assert_eq!(image(CrashChoice::Mask(seed)), model.crash(mask).contents());
    let random = CrashChoice::Random {
        seed,
        unreadable: false,
    };
    check_random_image(&image(random), model)
}

/// Whatever survives of torn and grown files: no durable byte is lost, none appears that nobody wrote.
fn check_random_image(
    image: &BTreeMap<PathBuf, Vec<u8>>,
    model: &Model,
) -> Result<(), TestCaseError> {
    for name in 0..3 {
        let mut targets = BTreeSet::from([model.durable_names.get(&name).copied()]);
        for item in &model.pending {
            if let Pending::Names(changes) = item {
                targets.extend(
                    changes
                        .iter()
                        .filter(|(of, _)| *of == name)
                        .map(|(_, target)| *target),
                );
            }
        }
        let Some(bytes) = image.get(&path(name)) else {
            prop_assert!(targets.contains(&None), "the durable name {} is gone", name);
            continue;
        };
        let legal_for = |file: FileId| {
            let legal = |at: usize| {
                model
                    .legal_bytes(file, at)
                    .is_none_or(|legal| legal.contains(&bytes[at]))
            };
            let cut = model.pending.iter().any(|item| {
                matches!(item, Pending::Bytes(of, Change::SetLen(len)) if *of == file && *len <= bytes.len())
            });
            (bytes.len() >= model.files[file].durable.len() || cut) && (0..bytes.len()).all(legal)
        };
        prop_assert!(
            targets.iter().flatten().any(|file| legal_for(*file)),
            "{} shows what nobody wrote",
            name
        );
    }
    Ok(())
}

/// Both sides behind some steps, compared after each.
fn after(steps: &[Step], seed: u64) -> Result<(SimEnv, Model), TestCaseError> {
    let (mut sim, mut model) = (SimEnv::new(seed), Model::default());
    let mut env = sim.env();
    for step in steps {
        take(&env, &mut model, step)?;
        check_images(&sim, &model, seed)?;
        if let Step::Crash(mask) = step {
            sim = sim.crash_image(&CrashChoice::Mask(*mask));
            model = model.crash(|at| at < 64 && mask >> at & 1 == 1);
            env = sim.env();
        }
    }
    Ok((sim, model))
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..3000_usize;
    let bytes = (1_u8..=255, 1..3000_usize).prop_map(|(byte, len)| vec![byte; len]);
    prop_oneof![
        6 => (at.clone(), bytes).prop_map(|(at, bytes)| Change::Write { at, bytes }),
        1 => at.clone().prop_map(Change::SetLen),
        1 => (at, 1..3000_usize).prop_map(|(at, len)| Change::Allocate { at, len }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..3_u8;
    prop_oneof![
        8 => (name(), change()).prop_map(|(name, change)| Step::Change(name, change)),
        4 => name().prop_map(Step::Create),
        1 => name().prop_map(Step::Remove),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name().prop_map(Step::Sync),
        2 => Just(Step::SyncDir),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn survivors_are_a_legal_subset(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        after(&steps, seed)?;
    }
}

/// A crash keeps one of two renames: the file has two names then, and a rename of one to the other does nothing.
#[test]
fn names_of_one_file_both_stay() {
    let steps = [
        Step::Create(0),
        Step::Rename(0, 1),
        Step::Rename(1, 2),
        Step::Crash(0b101),
        Step::Rename(2, 0),
    ];
    let (sim, model) = after(&steps, 0).unwrap();
    assert_eq!(model.names.keys().copied().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(contents(&sim), model.contents());
}

#[test]
fn images_of_a_database_have_all_its_files() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    for file in 0..20 {
        sim.write_file(Path::new(&format!("/db/{file}")), &[1; 5000])
            .unwrap();
    }
    for file in 0..20 {
        let file = env
            .storage()
            .open(Path::new(&format!("/db/{file}")), OpenMode::ReadWrite)
            .unwrap();
        file.write_all_at(&[2; 1000], 4500).unwrap();
        file.write_all_at(&[3; 1000], 0).unwrap();
    }
    for seed in 0..2000 {
        let image = sim.crash_image(&CrashChoice::Random {
            seed,
            unreadable: false,
        });
        assert_eq!(image.files().len(), 20);
    }
}
