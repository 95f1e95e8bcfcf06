//! A small model: all orders in which array processes, the writer and a reader can make their calls, one system call a step.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod common;

use common::check::{Crashes, crash, recover};
use common::machine;
use common::script::{Cells, Op, Script, commit, limits};
use common::world::{Found, Plan, World, explore};

const TABLES: u32 = 2;

const USUAL: Crashes = Crashes {
    subsets: 4,
    tears: 2,
    fates: 1,
};

fn run(scripts: &[Script], kills: usize, crashes: Option<Crashes>) -> Found {
    let plan = Plan {
        kills,
        crashes: crashes.is_some(),
        states: 400_000,
        limits: limits(),
        stop_early: true,
    };
    let start = World::new(machine(1, TABLES), scripts, kills);
    explore(start, scripts, &plan, |world, history, is_over| {
        let mut count = 0;
        let mut found = Vec::new();
        if let Some(crashes) = crashes {
            let (tried, problems) = crash(&world.sim, history, TABLES, limits(), crashes, 7);
            count += tried;
            found.extend(problems);
        }
        if is_over {
            count += 1;
            found.extend(recover(&world.sim.branch(), history, TABLES, limits()));
        }
        (count, found)
    })
}

fn assert_sound(name: &str, found: &Found) {
    eprintln!(
        "{name}: {} states, {} ends, {} crashes{}",
        found.states,
        found.ends,
        found.crashes,
        if found.is_cut { ", cut" } else { "" }
    );
    assert!(found.violations.is_empty(), "{name}: {}", found.violations.first().unwrap());
}

#[test]
fn one_array_process() {
    let scripts = [Script::other(&[commit(1, 1), commit(1, 1), Op::Snapshot])];
    assert_sound("one", &run(&scripts, 1, Some(USUAL)));
}

#[test]
fn two_array_processes() {
    let scripts = [Script::other(&[commit(1, 1)]), Script::other(&[commit(1, 1)])];
    assert_sound("two", &run(&scripts, 0, None));
}

#[test]
fn reader_beside_an_array_process_and_the_writer() {
    let scripts = [
        Script::other(&[commit(1, 1)]),
        Script::writer(&[commit(1, 2)]),
        Script::other(&[Op::Snapshot]),
    ];
    assert_sound("reader", &run(&scripts, 0, None));
}

#[test]
fn staged_cells() {
    let staged = Op::Commit(Cells {
        is_staged: true,
        ..Cells::of(&[(1, 1)])
    });
    let scripts = [Script::other(&[staged])];
    assert_sound("staged", &run(&scripts, 1, Some(USUAL)));
}
