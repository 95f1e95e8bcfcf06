//! Processes that are killed on a disk that gets full: a table can be dropped after that, and rows can be appended again.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{Durability, Error, ErrorKind, Options, TableId};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::toy::{Row, Toy, random_rows};

/// Kills per run.
const KILLS: usize = 2000;
const BLOCK_ROWS: usize = 512;

fn open(sim: &SimEnv, segment_bytes: u64) -> Toy {
    let options = Options {
        segment_bytes,
        background: false,
        ..Options::default()
    };
    Toy::open(
        &sim.env(),
        "/db",
        &options,
        u32::try_from(BLOCK_ROWS).unwrap(),
    )
    .unwrap()
}

/// Drops a table. An attempt may be the one that finds out what the disk is like: four must do.
fn drop_in_the_end(toy: &Toy, table: TableId, what: &str) {
    let mut errors: Vec<Error> = Vec::new();
    loop {
        assert!(
            errors.len() < 4,
            "{what}: no table can be dropped: {errors:?}"
        );
        match toy.drop_table(table) {
            Ok(_) => return,
            // An attempt before it has dropped it, and could not say so.
            Err(e) if e.kind() == ErrorKind::NotFound && !errors.is_empty() => return,
            Err(e) => errors.push(e),
        }
    }
}

/// A database that is used up to the last byte, by steps that are drawn.
struct Filling {
    sim: SimEnv,
    toy: Toy,
    segment_bytes: u64,
    tables: [TableId; 2],
    next_key: i64,
}

impl Filling {
    fn start(number: u64, dice: &mut Dice) -> Self {
        let segment_bytes = dice.pick(&[128_u64 << 10, 512 << 10, 2 << 20]);
        let sim = SimEnv::new(number);
        let toy = open(&sim, segment_bytes);
        let tables = ["big", "other"].map(|name| toy.create(name).unwrap());
        for more in 0..dice.below(20) {
            toy.create(&format!("small {more}")).unwrap();
        }
        let mut filling = Self {
            sim,
            toy,
            segment_bytes,
            tables,
            next_key: 0,
        };
        while filling.sim.used_bytes() < 5 * segment_bytes {
            let rows = filling.rows(4000);
            let stored = filling
                .toy
                .append_group(tables[0], &rows, BLOCK_ROWS, Durability::Disk);
            stored.unwrap();
        }
        let more_bytes = segment_bytes / 4 + dice.below(3 * segment_bytes);
        let quota_bytes = filling.sim.used_bytes() + more_bytes;
        filling.sim.set_quota(Some(quota_bytes));
        filling
    }

    fn rows(&mut self, count: i64) -> Vec<Row> {
        let first = self.next_key;
        self.next_key += count;
        random_rows(first, count)
    }

    /// One step; `Err`: there was no room for it.
    fn step(&mut self, dice: &mut Dice) -> Result<(), Error> {
        let most = self.segment_bytes.cast_signed() / 4;
        let count = dice.pick(&[20, 300, 2000, 9000, 40_000]).min(most);
        let rows = self.rows(count);
        let table = dice.pick(&self.tables);
        let (toy, level) = (&self.toy, Durability::Process);
        match dice.below(12) {
            0..=3 => toy
                .append(table, &rows[..rows.len().min(3000)], level)
                .map(drop),
            4..=8 => toy.append_group(table, &rows, BLOCK_ROWS, level).map(drop),
            9 => toy.append_fragment(table, &rows, BLOCK_ROWS).map(drop),
            10 => toy.kernel.checkpoint(),
            _ => toy.kernel.flush(),
        }
    }
}

/// The disk as a kill has left it, with no room for more.
fn killed(sim: &SimEnv) -> SimEnv {
    let image = sim.crash_image(&CrashChoice::Kill);
    image.set_quota(Some(image.used_bytes()));
    image
}

#[test]
fn a_kill_anywhere_on_a_full_disk_leaves_room_to_drop() {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let (mut runs, mut kills) = (0, 0);
    while kills < KILLS * effort() {
        runs += 1;
        let mut filling = Filling::start(runs, &mut dice);
        let (mut refused, mut steps) = (0, 0);
        while refused < 3 && steps < 120 {
            steps += 1;
            let before = filling.sim.calls();
            filling.sim.record_states(true);
            refused += u32::from(filling.step(&mut dice).is_err());
            let calls = filling.sim.calls();
            // Those behind the writes of a frame oftener.
            let is_drawn = |call: &u64| dice.below(if call + 3 > calls { 3 } else { 12 }) == 0;
            let calls: Vec<u64> = (before + 1..=calls).filter(is_drawn).collect();
            let sim = &filling.sim;
            let states: Vec<_> = calls
                .iter()
                .filter_map(|call| sim.state_at(*call))
                .collect();
            filling.sim.record_states(false);
            for state in states {
                kills += 1;
                let disk = killed(&state);
                let what = format!("seed {seed}, run {runs}, step {steps}");
                let toy = open(&disk, filling.segment_bytes);
                drop_in_the_end(&toy, filling.tables[0], &what);
            }
        }
        // Also where there is no room for a checkpoint.
        filling.toy.kernel.close().unwrap();
    }
    say(format_args!("full disk: {runs} runs, {kills} kills"));
    assert!(runs > 5, "{runs} runs");
}

/// The log is in the reserve when some space comes back. A large append gets a segment and another reserve then, which has room
/// for all of it that a recovery writes.
#[test]
fn a_kill_in_a_large_append_behind_the_reserve_leaves_room_to_drop() {
    const APPEND: i64 = 100_000;
    let segment_bytes = Options::default().segment_bytes;
    for more_bytes in [10 << 20, 12 << 20] {
        let sim = SimEnv::new(5);
        let toy = open(&sim, segment_bytes);
        let (big, small) = (toy.create("big").unwrap(), toy.create("small").unwrap());
        let append = |at: i64, count: i64, block_rows, level| {
            toy.append_group(big, &random_rows(at * APPEND, count), block_rows, level)
        };
        toy.append(small, &[(1, 1)], Durability::Disk).unwrap();
        for at in 0..10 {
            append(at, APPEND, 8192, Durability::Disk).unwrap();
            toy.kernel.run_due_work().unwrap();
        }
        sim.set_quota(Some(sim.used_bytes() + (1 << 20)));
        let full = (10..5000).find(|at| append(*at, 500, 512, Durability::Disk).is_err());
        assert!(full.is_some());
        // What it drops is kept.
        let _snapshot = toy.kernel.snapshot().unwrap();
        toy.drop_table(small).unwrap();
        sim.set_quota(Some(sim.used_bytes() + more_bytes));
        let before = sim.calls();
        sim.record_states(true);
        append(1 << 20, 6 * APPEND, 8192, Durability::Process).unwrap();
        let calls = (before + 1..=sim.calls()).rev().take(20);
        let states: Vec<_> = calls.filter_map(|call| sim.state_at(call)).collect();
        assert!(states.len() > 10);
        for state in states {
            let toy = open(&killed(&state), segment_bytes);
            drop_in_the_end(&toy, big, "behind the reserve");
        }
    }
}
