//! Walks through an index of a million boxes: the nearest ten of a point, and the difference of two trees.

use crate::files;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_kernel::error::Result;
use thalweg_kernel::ids::{CommitNo, DatabaseId, FileId, TableId};
use thalweg_kernel::index::{Address, Entry, ItemChange, Page, PageLoader, SummaryList, Tree};
use thalweg_kernel::summary::ColumnSummary;

/// Boxes in each direction.
const SIDE: u32 = 1_000;
const DATABASE: DatabaseId = DatabaseId([7; 16]);
const FILE: FileId = FileId(9);
const X: u32 = 1;
const Y: u32 = 2;
const NEAREST: usize = 10;
const CHANGED: u32 = 10;
const QUERIES: u32 = 1_000;

/// Pages as they are read from a file, all in memory.
#[derive(Default)]
struct Pages {
    bytes: Vec<u8>,
    read: RefCell<HashMap<u64, Arc<Page>>>,
}

impl PageLoader for Pages {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        let place = entry.address.offset;
        if let Some(page) = self.read.borrow().get(&place) {
            return Ok(Arc::clone(page));
        }
        let start = usize::try_from(place).expect("in memory");
        let bytes = &self.bytes[start..][..entry.address.bytes as usize];
        let page = Arc::new(Page::decode(DATABASE, table, entry, bytes)?);
        self.read.borrow_mut().insert(place, Arc::clone(&page));
        Ok(page)
    }
}

impl Pages {
    /// The tree as one that is opened: its pages come through the loader. All are read once.
    fn reopened(&mut self, tree: &Tree) -> Tree {
        let bytes = &mut self.bytes;
        let written = tree.write_dirty(&mut |page| {
            let offset = bytes.len() as u64;
            Ok(page.seal_into(DATABASE, FILE, offset, bytes))
        });
        let written = written.expect("pages");
        let tree = Tree::from_root(tree.table(), written.root().cloned());
        written.publish(&*self);
        let blocks = tree
            .iter(None, &*self)
            .map(|block| block.expect("a page").rows);
        assert_eq!(
            blocks.sum::<u64>(),
            tree.total().expect("rows").rows,
            "all pages"
        );
        tree
    }
}

/// The place of a box along the Z-order curve, which is the order of the blocks.
fn z_order(x: u32, y: u32) -> i64 {
    let spread = |value: u32| {
        (0..16).fold(0_i64, |all, bit| {
            all | i64::from(value >> bit & 1) << (2 * bit)
        })
    };
    spread(x) | spread(y) << 1
}

/// A block whose rows lie in a box that reaches over its neighbours.
fn block(x: u32, y: u32, commit: u64) -> Entry {
    let column = |id, low: u32| {
        (
            ColumnSummary::of_values(id, &[f64::from(low), f64::from(low) + 1.5], None),
            None,
        )
    };
    let columns: SummaryList = [column(X, x), column(Y, y)].into_iter().collect();
    let (key, commit) = (z_order(x, y), CommitNo(commit));
    Entry {
        rows: 2,
        blocks: 1,
        key_min: key,
        key_max: key,
        block_bytes: 4_096,
        address: Address {
            offset: (commit.0 << 40) + key.unsigned_abs() * 4_096,
            bytes: 4_096,
            head_bytes: 256,
            ..Address::default()
        },
        columns: columns.into(),
        ..Entry::unknown()
    }
    .committed(commit, commit, 0)
}

/// The squared distance of a box from a point, none where it is not known.
fn distance(entry: &Entry, point: [f64; 2]) -> f64 {
    [X, Y]
        .iter()
        .zip(point)
        .map(|(column, at)| {
            let range = entry
                .covering_summary(*column)
                .and_then(ColumnSummary::float_range);
            let apart = range.map_or(0.0, |(low, high)| (low - at).max(at - high).max(0.0));
            apart * apart
        })
        .sum()
}

pub(crate) fn run() {
    let env = Env::os();
    let blocks = (0..SIDE)
        .flat_map(|x| (0..SIDE).map(move |y| block(x, y, 1)))
        .collect();
    let mut pages = Pages::default();
    let tree = Tree::empty(TableId(1)).insert_many(blocks, &pages, &mut Vec::new());
    let tree = pages.reopened(&tree.expect("a tree"));
    nearest(&env, &tree, &pages);
    difference(&env, &tree, &mut pages);
}

/// Numbers that are the same in every run.
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(2_654_435_769) % (SIDE * SIDE)
}

fn nearest(env: &Env, tree: &Tree, loader: &Pages) {
    let (mut times_us, mut pages) = (Vec::new(), 0);
    for query in 0..QUERIES {
        let place = scattered(query);
        let point = [
            f64::from(place / SIDE) + 0.25,
            f64::from(place % SIDE) + 0.75,
        ];
        let start = files::now_us(env);
        let mut walk = tree.nearest(loader);
        let mut found = Vec::with_capacity(NEAREST);
        while found.len() < NEAREST {
            let next = walk
                .next(|entry| Some(distance(entry, point)))
                .expect("in memory");
            found.push(next.expect("many blocks").0);
        }
        times_us.push(files::now_us(env) - start);
        pages += walk.pages();
        if query % 100 == 0 {
            let all = tree.iter(None, loader);
            let mut all: Vec<f64> = all
                .map(|block| distance(&block.expect("in memory"), point))
                .collect();
            all.sort_by(f64::total_cmp);
            assert_eq!(all[..NEAREST], found[..], "the nearest boxes");
        }
    }
    let [middle, worst] = middle_and_worst(times_us);
    figure!(
        "nearest {NEAREST} of {} boxes: {middle:.1} us, 99th percentile {worst:.1} us, {:.1} pages",
        SIDE * SIDE,
        pages as f64 / f64::from(QUERIES)
    );
}

fn difference(env: &Env, tree: &Tree, loader: &mut Pages) {
    // The first time the pages come from main memory: all others were looked at in between.
    let mut times_us = [Vec::new(), Vec::new()];
    let mut pages = 0;
    for round in 0..100 {
        let places = (0..CHANGED)
            .map(|n| scattered(round * CHANGED + n))
            .map(|place| (place / SIDE, place % SIDE));
        let removed: Vec<_> = places.clone().map(|(x, y)| block(x, y, 1).key()).collect();
        let added = places.map(|(x, y)| block(x, y, 2)).collect();
        let newer = tree.replace(&removed, added, &*loader, &mut Vec::new());
        let newer = loader.reopened(&newer.expect("a tree"));
        for times_us in &mut times_us {
            let start = files::now_us(env);
            let mut changes = tree.difference(&newer, &*loader);
            let mut counts = [0, 0];
            for change in changes.by_ref() {
                match black_box(change.expect("in memory")) {
                    ItemChange::Removed(_) => counts[0] += 1,
                    ItemChange::Added(_) => counts[1] += 1,
                }
            }
            times_us.push(files::now_us(env) - start);
            pages += changes.pages();
            assert_eq!(counts, [CHANGED, CHANGED], "the changed blocks");
        }
    }
    for (times_us, when) in times_us.into_iter().zip(["first", "again"]) {
        let [middle, worst] = middle_and_worst(times_us);
        figure!(
            "difference in {CHANGED} of {} blocks, {when}: {middle:.1} us, 99th percentile {worst:.1} us, {:.1} pages",
            SIDE * SIDE,
            pages as f64 / 200.0
        );
    }
}

fn middle_and_worst(mut times_us: Vec<f64>) -> [f64; 2] {
    times_us.sort_by(f64::total_cmp);
    [
        times_us[times_us.len() / 2],
        times_us[times_us.len() * 99 / 100],
    ]
}
