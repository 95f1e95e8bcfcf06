//! What must hold after a crash, and at the end: a recovery finds everything that was promised, nothing leaks, nobody blocks.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_env::sim::{CrashChoice, FaultPlan, SimEnv};
use thalweg_inbox::{Database, Limits, State};

use super::oracle::{History, sequential};
use super::plain::{FOLDER, Plain};
use super::script::{Cells, Event, Op, Run, Script, commit};

/// A reader before anybody has written, a writer that adopts and removes, an array process, and all of it once more.
fn recovery(table: u32) -> Vec<Script> {
    let writer = Script::writer(&[
        Op::Settle,
        Op::Snapshot,
        Op::Adopt,
        Op::Snapshot,
        Op::Remove,
        commit(table, 77),
        Op::Adopt,
        Op::Remove,
        Op::Snapshot,
    ]);
    let array = Script::other(&[
        Op::Snapshot,
        commit(table, 77),
        Op::Commit(Cells {
            is_staged: true,
            ..Cells::of(&[(table, 78)])
        }),
        Op::Snapshot,
    ]);
    vec![
        Script::other(&[Op::Snapshot]),
        writer.clone(),
        Script::other(&[Op::Snapshot]),
        array.clone(),
        writer,
        array,
        Script::writer(&[
            Op::Settle,
            Op::Adopt,
            Op::Remove,
            Op::Adopt,
            Op::Remove,
            Op::Snapshot,
        ]),
    ]
}

/// Runs scripts one after the other on a machine, each to its end.
pub fn run_in_order(
    sim: &SimEnv,
    scripts: &[Script],
    first: usize,
    limits: Limits,
) -> Vec<(usize, Script, Vec<Event>)> {
    let mut all = Vec::new();
    for (at, script) in scripts.iter().enumerate() {
        let process = first + at;
        let env = sim.env_of_process(super::world::process_id(process));
        let events = Rc::new(RefCell::new(Vec::new()));
        Run {
            process,
            env: &env,
            limits,
            calls: &|| 0,
            is_stopped: &|| false,
            events: Rc::clone(&events),
        }
        .run(script);
        all.push((process, script.clone(), events.take()));
    }
    all
}

/// Recovers a machine on which nobody runs, and checks what comes of it.
pub fn recover(sim: &SimEnv, history: &History, tables: u32, limits: Limits) -> Vec<String> {
    let mut history = history.clone();
    let dropped: BTreeSet<u32> = history
        .records
        .iter()
        .filter_map(|record| match record.op {
            Op::Drop(table) => Some(table),
            _ => None,
        })
        .chain(history.records.iter().filter_map(|record| match record.op {
            Op::Define(table, _) => Some(table),
            _ => None,
        }))
        .collect();
    let Some(table) = (1..=tables).find(|table| !dropped.contains(table)) else {
        return vec!["a test needs a table that stays".to_owned()];
    };
    let first = history.counts().len() + 1;
    history.faulty = history.faulty.min(first);
    let skipped = usize::from(history.is_registry_old);
    for run in run_in_order(sim, &recovery(table)[skipped..], first, limits) {
        let died = run.2.len() < run.1.ops.len();
        sequential(&mut history, &[run]);
        if died {
            break;
        }
    }
    let mut found = history.violations();
    if found.is_empty() {
        found.extend(leaks(sim));
    }
    found
}

/// Files that nobody will ever remove.
fn leaks(sim: &SimEnv) -> Vec<String> {
    let mut found = Vec::new();
    let files = sim.files();
    let below = |folder: &str| {
        let folder = Path::new(FOLDER).join(folder);
        let files = files
            .iter()
            .filter(move |(path, _)| path.starts_with(&folder));
        files.map(|(path, _)| path.clone()).collect::<Vec<_>>()
    };
    let logs: Vec<_> = below("inbox")
        .into_iter()
        .filter(|path| !path.ends_with("registry"))
        .collect();
    if logs.len() > 1 {
        found.push(format!("logs stay: {logs:?}"));
    }
    let env = sim.env_of_process(7);
    let state = Plain::open(&env)
        .and_then(|mut plain| plain.state())
        .unwrap();
    let is_named = |path: &PathBuf| {
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let id = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        id.is_some_and(|id| state.has_fragment(id))
    };
    let staying: Vec<PathBuf> = below("data")
        .into_iter()
        .filter(|path| !is_named(path))
        .collect();
    if !staying.is_empty() {
        found.push(format!("fragments stay: {staying:?}"));
    }
    found
}

/// How many ways of losing what is pending are tried.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    pub subsets: usize,
    pub tears: usize,
    pub fates: u64,
}

/// All processes are killed, or the power is cut; then everything is recovered. Returns how many crashes were tried.
pub fn crash(
    sim: &SimEnv,
    history: &History,
    tables: u32,
    limits: Limits,
    crashes: Crashes,
    seed: u64,
) -> (usize, Vec<String>) {
    let mut choices = sim.crash_choices(crashes.subsets, crashes.tears, seed);
    let fates = (0..crashes.fates).map(|at| CrashChoice::Random {
        seed: seed.wrapping_mul(31).wrapping_add(at),
        unreadable: false,
    });
    choices.extend(fates);
    choices.push(CrashChoice::Kill);
    let mut found = Vec::new();
    for choice in &choices {
        let image = sim.crash_image(choice);
        image.set_plan(FaultPlan::none());
        let problems = recover(&image, history, tables, limits);
        if !problems.is_empty() {
            found.push(format!("{choice:?}: {}", problems.join("\n")));
            break;
        }
    }
    (choices.len(), found)
}
