//! Damaged index pages of fragments: a repair keeps every block that a whole page of level 1 leads to, whatever is damaged above.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::BTreeSet;
use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::fragment::FRAGMENT_FOOTER_BYTES;
use thalweg_kernel::index::{Entry, ItemName, Step};
use thalweg_kernel::limit_page_entries;
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_kernel::{Durability, Options};
use thalweg_sim::masks::{hide, mask};
use thalweg_sim::oracle::rows_of;
use thalweg_sim::toy::{Row, Toy};

/// An inner page, which leads to all pages of level 1 below it.
#[derive(Clone, Debug)]
struct Page {
    entry: Entry,
    /// The item that it lies in.
    item: ItemName,
    /// The keys of the blocks below it; each block has the rows of one key.
    keys: Vec<i64>,
}

struct Database {
    sim: SimEnv,
    options: Options,
    rows: BTreeSet<Row>,
    pages: Vec<Page>,
}

const BLOCK_ROWS: usize = 2;

/// Two fragments with the same keys: the second one lies between the blocks of the first one. `deleted`: keys of rows that
/// masks hide.
fn database(blocks: i64, deleted: &[i64]) -> Database {
    limit_page_entries(4);
    let sim = SimEnv::new(5);
    let options = Options {
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let table = toy.create("t").unwrap();
    let mut rows = BTreeSet::new();
    for fragment in 0..2_i64 {
        let of_block = |key: i64| [(key, 2 * fragment), (key, 2 * fragment + 1)];
        let of_fragment: Vec<Row> = (0..blocks)
            .map(|n| 2 * n + fragment)
            .flat_map(of_block)
            .collect();
        toy.append_fragment(table, &of_fragment, BLOCK_ROWS)
            .unwrap();
        rows.extend(of_fragment);
    }
    if !deleted.is_empty() {
        hide(&toy, mask(&toy, table, deleted)).unwrap();
        rows.retain(|row| !deleted.contains(&row.0));
    }
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let mut pages: Vec<Page> = Vec::new();
    let mut walk = state.tree.walk(None, toy.kernel.store());
    while let Some(block) = walk
        .next_at(|entry, place| {
            if let Some(place) = place.filter(|_| !entry.is_block()) {
                pages.push(Page {
                    entry: entry.clone(),
                    item: place.item,
                    keys: Vec::new(),
                });
            }
            Step::Descend
        })
        .unwrap()
    {
        let item = walk.place().unwrap().item;
        let is_above = |page: &&mut Page| {
            page.item == item && (page.entry.key_min..=page.entry.key_max).contains(&block.key_min)
        };
        for page in pages.iter_mut().filter(is_above) {
            page.keys.push(block.key_min);
        }
    }
    toy.kernel.close().unwrap();
    Database {
        sim,
        options,
        rows,
        pages,
    }
}

impl Database {
    /// The rows and the report of a repair after these pages were damaged.
    fn repaired(&self, damaged: &[&Page]) -> (Vec<Row>, RepairReport) {
        let sim = self.sim.crash_image(&CrashChoice::KeepAll);
        for Page { entry, .. } in damaged {
            let path = Path::new("/db").join(fragment_name(entry.address.file));
            let middle = entry.address.offset + u64::from(entry.address.bytes) / 2;
            sim.overwrite_file(&path, middle, &[0xA5; 3]).unwrap();
        }
        let env = sim.env();
        let report = repair(&env, Path::new("/db"), &self.options, &mut |_| {}).unwrap();
        let again = repair(&env, Path::new("/db"), &self.options, &mut |_| {}).unwrap();
        assert!(again.is_clean(), "{again:?}");
        let toy = Toy::open(&env, "/db", &self.options, 64).unwrap();
        assert!(toy.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        let state = toy.kernel.snapshot().unwrap();
        let rows = rows_of(&toy, &state.table_named("t").unwrap()).unwrap();
        (rows, report)
    }

    /// The rows without those of the pages of level 1 among these.
    fn without_lowest(&self, damaged: &[&Page]) -> Vec<Row> {
        let lowest = damaged.iter().filter(|page| page.entry.level == 1);
        let lost: BTreeSet<i64> = lowest.flat_map(|page| page.keys.clone()).collect();
        { self.rows.iter().copied() }
            .filter(|row| !lost.contains(&row.0))
            .collect()
    }
}

/// How many rows a report gives up.
fn given_up(report: &RepairReport) -> u64 {
    report
        .given_up
        .iter()
        .map(|damage| damage.rows.unwrap())
        .sum()
}

#[test]
fn a_page_above_the_lowest_costs_no_row() {
    let db = database(60, &[]);
    let upper = db.pages.iter().filter(|page| page.entry.level > 1);
    let levels: BTreeSet<u8> = upper.clone().map(|page| page.entry.level).collect();
    assert_eq!(levels, [2, 3].into());
    let all: Vec<Row> = db.rows.iter().copied().collect();
    for page in upper.clone() {
        let (rows, report) = db.repaired(&[page]);
        assert_eq!(rows, all, "{page:?}: {report:?}");
        assert!(
            report.given_up.is_empty() && !report.mended.is_empty(),
            "{report:?}"
        );
        assert!(report.moved_blocks >= 60, "{report:?}");
    }
    let (rows, report) = db.repaired(&upper.collect::<Vec<_>>());
    assert_eq!(rows, all, "{report:?}");
}

#[test]
fn of_two_damaged_pages_only_the_lowest_cost_rows() {
    let db = database(60, &[]);
    let (mut upper, mut lower) = (0, 0);
    for (n, one) in db.pages.iter().enumerate() {
        for two in &db.pages[n + 1..] {
            let (rows, report) = db.repaired(&[one, two]);
            let left = db.without_lowest(&[one, two]);
            assert_eq!(rows, left, "{one:?} {two:?}: {report:?}");
            assert_eq!(
                given_up(&report),
                (db.rows.len() - left.len()) as u64,
                "{report:?}"
            );
            upper += usize::from(left.len() == db.rows.len());
            lower += usize::from(left.len() < db.rows.len());
        }
    }
    assert!(upper > 20 && lower > 300, "{upper} {lower}");
}

/// Masks name blocks by their ranks, which are not known where a page of level 1 is missing below a damaged one.
#[test]
fn deleted_rows_stay_deleted() {
    let deleted: Vec<i64> = (0..120).filter(|key| key % 5 == 1).collect();
    let db = database(60, &deleted);
    let all: Vec<Row> = db.rows.iter().copied().collect();
    for one in &db.pages {
        let (rows, report) = db.repaired(&[one]);
        assert_eq!(rows, db.without_lowest(&[one]), "{one:?}: {report:?}");
        for two in &db.pages {
            let (rows, report) = db.repaired(&[one, two]);
            let is_known = |row: &Row| all.binary_search(row).is_ok();
            assert!(rows.iter().all(is_known), "{one:?} {two:?}: {report:?}");
            let missing = (all.len() - rows.len()) as u64;
            assert!(given_up(&report) >= missing, "{one:?} {two:?}: {report:?}");
        }
    }
}

/// Zeros and bytes of other pages, as a torn sector or a misplaced write leaves them, from the middle of one page on.
#[test]
fn a_damaged_stretch_of_a_file_costs_the_blocks_of_its_lowest_pages() {
    let db = database(60, &[]);
    let file = db.pages[0].entry.address.file;
    let of_file = db
        .pages
        .iter()
        .filter(|page| page.entry.address.file == file);
    let of_file: Vec<&Page> = of_file.collect();
    let path = Path::new("/db").join(fragment_name(file));
    let all = db.sim.read_file(&path).unwrap();
    let copied = of_file
        .iter()
        .find(|page| page.entry.level == 1)
        .unwrap()
        .entry
        .address;
    let copied = &all[usize::try_from(copied.offset).unwrap()..][..copied.bytes as usize];
    for first in &of_file {
        let from = first.entry.address.offset + u64::from(first.entry.address.bytes) / 2;
        for (what, bytes) in [("zeros", vec![0; 700]), ("a page", copied.repeat(2))] {
            let sim = db.sim.crash_image(&CrashChoice::KeepAll);
            let room = all.len() - usize::try_from(from).unwrap();
            let bytes = &bytes[..bytes.len().min(room)];
            sim.overwrite_file(&path, from, bytes).unwrap();
            let to = from + bytes.len() as u64;
            let is_hit = |page: &&&Page| {
                let address = page.entry.address;
                address.offset < to && address.offset + u64::from(address.bytes) > from
            };
            let hit: Vec<&Page> = of_file.iter().filter(is_hit).copied().collect();
            let hit_db = Database {
                sim,
                options: db.options.clone(),
                rows: db.rows.clone(),
                pages: Vec::new(),
            };
            let (rows, report) = hit_db.repaired(&[]);
            // Where nothing proves whose the file is that misses some of its blocks, it gives none.
            let root = of_file.iter().find(|page| page.entry.fragment).unwrap();
            let is_proven = !hit.iter().any(|page| page.entry.fragment)
                || to <= all.len() as u64 - FRAGMENT_FOOTER_BYTES as u64
                || hit.iter().all(|page| page.entry.level > 1);
            let left = match is_proven {
                true => db.without_lowest(&hit),
                false => { db.rows.iter().copied() }
                    .filter(|row| !root.keys.contains(&row.0))
                    .collect(),
            };
            assert_eq!(rows, left, "{what} from {from}: {report:?}");
        }
    }
}

/// Copies of a database that go on apart give one id to different files.
#[test]
fn the_file_of_another_copy_gives_no_rows() {
    limit_page_entries(4);
    let options = Options {
        background: false,
        ..Options::default()
    };
    let sim = SimEnv::new(6);
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(5_000, 1)], Durability::Disk).unwrap();
    toy.kernel.close().unwrap();
    let written = [0_i64, 1].map(|shift| {
        let copy = sim.crash_image(&CrashChoice::KeepAll);
        let toy = Toy::open(&copy.env(), "/db", &options, 64).unwrap();
        let rows: Vec<Row> = (0..120).map(|key| (key / 2 + shift, key)).collect();
        toy.append_fragment(table, &rows, BLOCK_ROWS).unwrap();
        let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
        let root = state.tree.total().unwrap().clone();
        let mut fragment = None;
        let mut walk = state.tree.walk(None, toy.kernel.store());
        while let Some(entry) = walk
            .next(|entry| match entry.fragment {
                true => Step::Take,
                false => Step::Descend,
            })
            .unwrap()
        {
            fragment = Some(entry).filter(|entry| entry.fragment).or(fragment);
        }
        toy.kernel.close().unwrap();
        assert_eq!(root.rows, 120);
        (copy, fragment.unwrap())
    });
    let [(own, root), (other, other_root)] = written;
    assert_eq!(root.address.file, other_root.address.file);
    let path = Path::new("/db").join(fragment_name(root.address.file));
    let foreign = other.read_file(&path).unwrap();
    let of_root = usize::try_from(other_root.address.offset).unwrap() + 40;
    for damaged in [vec![], vec![of_root], vec![of_root, foreign.len() - 20]] {
        let mut bytes = foreign.clone();
        for at in &damaged {
            bytes[*at] ^= 1;
        }
        let sim = own.crash_image(&CrashChoice::KeepAll);
        sim.write_file(&path, &bytes).unwrap();
        let report = repair(&sim.env(), Path::new("/db"), &options, &mut |_| {}).unwrap();
        assert_eq!(given_up(&report), 120, "{damaged:?}: {report:?}");
        let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
        assert_eq!(toy.rows(table).unwrap(), [(5_000, 1)], "{damaged:?}");
    }
    // With its own file, whose footer or root page is damaged, nothing is lost.
    let bytes = own.read_file(&path).unwrap();
    let of_root = usize::try_from(root.address.offset).unwrap() + 40;
    for damaged in [vec![of_root], vec![of_root, bytes.len() - 20]] {
        let mut bytes = bytes.clone();
        for at in &damaged {
            bytes[*at] ^= 1;
        }
        let sim = own.crash_image(&CrashChoice::KeepAll);
        sim.write_file(&path, &bytes).unwrap();
        let report = repair(&sim.env(), Path::new("/db"), &options, &mut |_| {}).unwrap();
        assert_eq!(given_up(&report), 0, "{damaged:?}: {report:?}");
        let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
        assert_eq!(toy.rows(table).unwrap().len(), 121, "{damaged:?}");
    }
}
