//! Long runs of random processes in random order, with kills, power cuts and clocks that jump.
#![allow(clippy::panic, reason = "a step that fails is a test that fails")]

mod common;

use common::check::recover;
use common::machine;
use common::oracle::History;
use common::script::{Cells, Op, Script, limits};
use common::two_at_once;
use common::world::World;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_inbox::Limits;

const TABLES: u32 = 3;
const PHASES: usize = 5;

fn cells(random: &mut fastrand::Rng, newest: i64) -> Cells {
    let places = (0..random.usize(1..3))
        .map(|at| (random.u32(1..=TABLES), at as u64 * 4 + random.u64(0..3)));
    Cells {
        places: places.collect(),
        at: (random.u8(0..8) == 0).then(|| newest - random.i64(0..50)),
        is_staged: random.u8(0..5) == 0,
        depends: random.u8(0..5) == 0,
    }
}

fn array(random: &mut fastrand::Rng, now: i64) -> Script {
    let ops: Vec<Op> = (0..random.usize(2..5))
        .map(|_| match random.u8(0..6) {
            0 => Op::Snapshot,
            1 => Op::Batch(
                (0..random.usize(1..4))
                    .map(|_| cells(random, now))
                    .collect(),
            ),
            _ => Op::Commit(cells(random, now)),
        })
        .collect();
    let clock: Vec<i64> = (0..6).map(|_| now + random.i64(-500..500)).collect();
    Script::other(&ops).clock(&clock)
}

fn writer(random: &mut fastrand::Rng, now: i64, may_drop: bool) -> Script {
    let mut ops = vec![Op::Settle];
    for _ in 0..random.usize(2..7) {
        ops.push(match random.u8(0..12) {
            0..4 => Op::Adopt,
            4..6 => Op::Remove,
            6 => Op::Vacuum {
                table: random.u32(1..=TABLES),
                time: now - random.i64(0..200),
            },
            7 if may_drop => Op::Drop(TABLES),
            8 => Op::Snapshot,
            9 => Op::Settle,
            _ => Op::Commit(cells(random, now)),
        });
    }
    let clock: Vec<i64> = (0..6).map(|_| now + random.i64(-500..500)).collect();
    Script::writer(&ops).clock(&clock)
}

fn scripts(random: &mut fastrand::Rng, phase: usize) -> Vec<Script> {
    let now = 10_000 + i64::try_from(phase).unwrap_or_default() * 300;
    vec![
        array(random, now),
        array(random, now),
        writer(random, now, phase > 2),
        Script::other(&[Op::Snapshot, Op::Snapshot, Op::Snapshot]),
        writer(random, now, false).after(2),
        array(random, now).after(0),
    ]
}

/// Runs processes in random order until all have ended, or for so many steps.
fn run_phase(world: &mut World, scripts: &[Script], random: &mut fastrand::Rng, limits: Limits) {
    let most = random.usize(100..900);
    for _ in 0..most {
        let able: Vec<usize> = (0..scripts.len())
            .filter(|at| world.can_step(scripts, *at))
            .collect();
        if able.is_empty() {
            assert!(world.is_over(), "everybody waits for a lock");
            return;
        }
        let at = able[random.usize(0..able.len())];
        if random.u16(0..600) == 0 {
            world.kill(at);
            continue;
        }
        // Now and then one process gets far ahead of all others.
        let steps = if random.u8(0..12) == 0 {
            random.usize(1..60)
        } else {
            1
        };
        for _ in 0..steps {
            if world.can_step(scripts, at) {
                world.step(scripts, at, limits);
            }
        }
    }
}

fn next_machine(sim: &SimEnv, random: &mut fastrand::Rng) -> SimEnv {
    let choice = match random.u8(0..6) {
        0 | 1 => CrashChoice::Kill,
        2 => CrashChoice::DropAll,
        3 => CrashChoice::KeepAll,
        _ => CrashChoice::Random {
            seed: random.u64(..),
            unreadable: false,
        },
    };
    sim.crash_image(&choice)
}

fn run(seed: u64) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let limits = Limits {
        log_bytes: if random.bool() { 4096 + 600 } else { 8192 },
        ..limits()
    };
    let mut sim = machine(seed, TABLES);
    let mut history = History::default();
    let mut first = 0;
    for phase in 0..PHASES {
        let scripts = scripts(&mut random, phase);
        let mut world = World::new(sim.clone(), &scripts, 0).with_before(history, first);
        run_phase(&mut world, &scripts, &mut random, limits);
        history = world.history(&scripts);
        first += scripts.len();
        let found = history.violations();
        if !found.is_empty() {
            let mut path = world.path();
            path.truncate(300);
            path.reverse();
            return Err(format!(
                "seed {seed}, phase {phase}: {}\n{}",
                found.join("\n"),
                path.join("\n")
            ));
        }
        sim = next_machine(&world.sim, &mut random);
        if phase + 1 == PHASES {
            let found = recover(&sim, &history, TABLES - 1, limits);
            if !found.is_empty() {
                return Err(format!("seed {seed}, at the end: {}", found.join("\n")));
            }
        }
    }
    Ok(history.records.len())
}

#[test]
fn random_processes_lose_double_and_reveal_nothing() {
    let number = |name: &str, usual| {
        let given = std::env::var(name).ok();
        given.and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (seed, runs) = (number("SEED", 1), number("RUNS", 150));
    let found = Mutex::new((0, Vec::new()));
    let seeds: Vec<u64> = (seed..seed + runs).collect();
    two_at_once(&seeds, |seed| {
        let ran = run(*seed);
        let (ops, bad) = &mut *found.lock();
        match ran {
            Ok(count) => *ops += count,
            Err(violation) => bad.push(violation),
        }
    });
    let (ops, bad) = found.into_inner();
    eprintln!("{runs} runs, {ops} ops, {} violations", bad.len());
    if let Some(first) = bad.first() {
        panic!("{} violations, the first: {first}", bad.len());
    }
}
