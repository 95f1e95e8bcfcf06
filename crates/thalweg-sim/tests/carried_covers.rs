//! Rows that are deleted while they are encoded: the cover is not refused for it, and they stay deleted.
//!
//! Faults that these tests look for: a row is back, or another one is gone, because it lies elsewhere in its block, in its part or
//! in its section; a cover that is refused as long as rows are deleted; a block without rows that stays.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::{
    Kernel, OpenRows, Options, Result, RowEncoder, TableId, TableSnapshot, TableState,
    limit_changed_bytes, limit_page_entries,
};
use thalweg_sim::driver::deletes::rows_to_delete;
use thalweg_sim::masks::hide;
use thalweg_sim::oracle::rows_of;
use thalweg_sim::toy::{Row, Toy, ToyEncoder};

/// Deletes rows each time after it has encoded some.
struct Deleting {
    encoder: ToyEncoder,
    /// The values that are deleted after each encoding.
    deletes: Mutex<Vec<BTreeSet<i64>>>,
    toy: Mutex<Option<(Arc<Toy>, TableId)>>,
}

impl Deleting {
    fn delete(&self) {
        let values = self.deletes.lock().pop();
        let toy = self.toy.lock().clone();
        if let Some((values, (toy, table))) = values.zip(toy) {
            delete(&toy, table, &values);
        }
    }
}

impl RowEncoder for Deleting {
    fn block_rows(&self, _table: &TableState) -> Result<u32> {
        // None is encoded before the test calls for it.
        Ok(1_000_000)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        let encoded = self.encoder.encode(table, rows);
        self.delete();
        encoded
    }

    fn encode_with_sources(
        &self,
        table: &TableSnapshot,
        rows: &[OpenRows],
    ) -> Result<(Vec<EncodedBlock>, Option<Vec<u32>>)> {
        let encoded = self.encoder.encode_with_sources(table, rows);
        self.delete();
        encoded
    }
}

fn state(toy: &Toy, table: TableId) -> TableSnapshot {
    toy.kernel.snapshot().unwrap().table(table).unwrap()
}

fn delete(toy: &Toy, table: TableId, values: &BTreeSet<i64>) {
    if values.is_empty() {
        return;
    }
    let found = rows_to_delete(toy, &state(toy, table), |row| values.contains(&row.1)).unwrap();
    assert_eq!(&found.values, values, "all of them are there");
    hide(toy, found.edit).unwrap();
}

fn options() -> Options {
    Options {
        // A commit of the encoder has nothing to do behind it.
        background: true,
        ..Options::default()
    }
}

/// Values of rows that are deleted before they are encoded, and after each attempt to do so.
struct Deletions<'a> {
    before: &'a [i64],
    during: &'a [&'a [i64]],
    block_rows: u32,
}

/// Encodes open rows of three commits, of which blocks of others came in between, while some are deleted.
fn encode_beside(deletions: &Deletions<'_>, attempts: usize, is_fragment: bool) {
    let sim = SimEnv::new(31);
    let deleting = Arc::new(Deleting {
        encoder: ToyEncoder {
            block_rows: deletions.block_rows,
        },
        deletes: Mutex::new(Vec::new()),
        toy: Mutex::new(None),
    });
    let encoder = Arc::clone(&deleting);
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &options(), encoder).unwrap();
    let toy = Arc::new(Toy { kernel });
    let table = toy.create("t").unwrap();
    let mut model: BTreeMap<i64, i64> = BTreeMap::new();
    let mut filled: BTreeMap<i64, i64> = BTreeMap::new();
    let mut next = 0;
    let mut append = |keys: &[i64], encoded: bool| {
        let rows: Vec<Row> = (next..)
            .zip(keys)
            .map(|(value, key)| (*key, value))
            .collect();
        next += rows.iter().map(|_| 1).sum::<i64>();
        model.extend(rows.iter().map(|(key, value)| (*value, *key)));
        match encoded {
            true => toy.append_group(table, &rows, 2, Disk).unwrap(),
            false => toy.append(table, &rows, Disk).unwrap(),
        };
    };
    // Not in the order of their keys, and some with equal ones.
    let keys: Vec<i64> = (0..120).map(|n| n * 37 % 50).collect();
    if is_fragment {
        // On so many pages of the index that blocks at all these keys are no group.
        let rows: Vec<Row> = (0..50).map(|key| (key, 1_000 + key)).collect();
        toy.append_group(table, &rows, 1, Disk).unwrap();
        filled.extend(rows.iter().map(|(key, value)| (*value, *key)));
    }
    append(&keys[..40], false);
    append(&keys[40..60], false);
    append(&[7, 8], true);
    append(&keys[60..], false);
    let set = |values: &&[i64]| -> BTreeSet<i64> { values.iter().copied().collect() };
    delete(&toy, table, &set(&deletions.before));
    *deleting.deletes.lock() = deletions.during.iter().rev().map(set).collect();
    *deleting.toy.lock() = Some((Arc::clone(&toy), table));
    toy.kernel.encode_open_rows(table).unwrap();
    *deleting.toy.lock() = None;
    let left = deleting.deletes.lock().len();
    assert_eq!(
        deletions.during.len() - left,
        attempts,
        "attempts to encode"
    );
    let now = state(&toy, table);
    assert_eq!(now.open_rows().count(), 0, "all are covered");
    for value in deletions
        .before
        .iter()
        .chain(deletions.during[..attempts].concat().iter())
    {
        model.remove(value);
    }
    model.extend(filled);
    let want: BTreeSet<Row> = model.iter().map(|(value, key)| (*key, *value)).collect();
    let check = |toy: &Toy, what: &str| {
        let rows = rows_of(toy, &state(toy, table)).unwrap();
        assert_eq!(rows.into_iter().collect::<BTreeSet<Row>>(), want, "{what}");
    };
    check(&toy, "now");
    let last = deletions.during[attempts - 1].len() as u64;
    let hidden = now.masks().map_or(0, |masks| masks.rows());
    assert!(hidden <= last, "what was deleted before is left out");
    let mut fragments = 0;
    let visited = now.tree.visit(None, &**toy.kernel.store(), &mut |entry| {
        fragments += usize::from(entry.fragment);
        thalweg_kernel::index::Step::Descend
    });
    visited.unwrap();
    assert_eq!(fragments > 0, is_fragment);
    for round in 0..2 {
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = Toy::open(&image.env(), "/db", &options(), 4).unwrap();
        check(&again, "opened");
        assert!(again.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        if round == 0 {
            toy.kernel.checkpoint().unwrap();
        }
    }
}

#[test]
fn rows_that_are_deleted_while_they_are_encoded_stay_deleted() {
    // The first and the last of a part, of a section and of a block; equal keys.
    let first: &[i64] = &[0, 39, 40, 59, 62, 121, 13];
    let second: &[i64] = &[1, 38, 41, 58, 63, 120, 50, 100];
    for block_rows in [1, 3, 7, 200] {
        let encode = |before: &[i64], during: &[&[i64]], attempts| {
            let deletions = Deletions {
                before,
                during,
                block_rows,
            };
            encode_beside(&deletions, attempts, false);
        };
        // Nobody expects it, and the first attempt is refused.
        encode(&[], &[first, second, &[2]], 2);
        // Rows were deleted before.
        encode(first, &[second, &[2]], 1);
        encode(&[5], &[&[6]], 1);
    }
}

#[test]
fn all_rows_of_blocks_are_deleted_while_they_are_encoded() {
    let all: Vec<i64> = (0..60).chain(62..122).collect();
    for (block_rows, rows) in [(1, 1), (4, 60), (4, 120), (200, 60), (200, 120)] {
        let during = [&all[1..rows], &[]];
        let deletions = Deletions {
            before: &all[..1],
            during: &during,
            block_rows,
        };
        encode_beside(&deletions, 1, false);
    }
}

#[test]
fn rows_in_fragments_are_hidden_by_their_ranks() {
    limit_page_entries(4);
    limit_changed_bytes(2_000);
    for block_rows in [1, 2] {
        let deletions = Deletions {
            before: &[3],
            during: &[&[0, 1, 2, 39, 40, 59, 62, 121, 100], &[4]],
            block_rows,
        };
        encode_beside(&deletions, 1, true);
    }
}
