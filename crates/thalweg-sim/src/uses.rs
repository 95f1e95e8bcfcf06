//! Index pages that alone keep old segments: lost where the uses of files do not count them.

use crate::oracle::{Violation, contents_of};
use crate::toy::{Row, Toy};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{Durability, Options};

/// A table of 20 fragments, of whose index the first leaf alone is left in the segment of the first checkpoint. To be called with
/// short index pages.
fn with_a_leaf_in_an_old_segment(sim: &SimEnv) -> Toy {
    let options = Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).expect("a new database");
    let table = toy.create("t").expect("room");
    let add = |first: i64| {
        let rows: Vec<Row> = (0..100).map(|k| (first + k, -k)).collect();
        toy.append_fragment(table, &rows, 100).expect("room");
    };
    let roll = || {
        let filler = toy.create("filler").expect("room");
        for first in (0..4).map(|n| 2_000 * n) {
            let rows: Vec<Row> = (0..2_000).map(|k| (first + k, k * k)).collect();
            let done = toy.append_group(filler, &rows, 64, Durability::Disk);
            done.expect("room");
        }
        toy.drop_table(filler).expect("it is there");
        toy.kernel.checkpoint().expect("room");
    };
    (0..20).for_each(|n| add(1_000 * n));
    toy.kernel.checkpoint().expect("room");
    roll();
    (4..20).for_each(|n| add(1_000 * n + 500));
    toy.kernel.checkpoint().expect("room");
    roll();
    roll();
    toy
}

/// Whether such a table can be read when cleaning has removed what it may, and in an opening after that. To be called with short
/// index pages.
pub fn leaves_in_old_segments() -> Vec<Violation> {
    let sim = SimEnv::new(17);
    let toy = with_a_leaf_in_an_old_segment(&sim);
    let mut violations = Vec::new();
    let mut check = |toy: &Toy| {
        toy.kernel.collect_garbage().expect("nothing fails");
        let verified = toy.kernel.verify(&mut |_| {}).expect("nothing fails");
        violations.extend(verified.damage.iter().map(ToString::to_string));
        violations.extend(contents_of(toy).err());
    };
    check(&toy);
    let closed = toy.kernel.close();
    drop(toy);
    let options = Options {
        background: false,
        ..Options::default()
    };
    match closed.and_then(|()| Toy::open(&sim.env(), "/db", &options, 64)) {
        Ok(toy) => check(&toy),
        Err(error) => violations.push(error.to_string()),
    }
    violations
}
