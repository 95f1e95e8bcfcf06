//! Rates of deletions on this machine: many scattered rows at once, single rows by several threads, ranges of keys.
//!
//! `cargo run --release -p thalweg-table --example deletes -- [rows] [directory] [parts]`
//!
//! The table has a timestamp and one value for each row. `parts` is any of `scattered`, which hides one row of a hundred by one
//! commit, `single`, which hides rows one by one in 8 threads, and `range`, which deletes four fifths of all rows
//! by their times; with `packed` all blocks lie in the log, else in files.

mod common;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use common::remove;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_kernel::Commit;
use thalweg_kernel::index::{Entry, ItemName, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, Positions};
use thalweg_table::{
    CreateOptions, Durability, Engine, EngineOptions, KeyRange, Result, Table, Value,
};

const THREADS: usize = 8;
/// Rows that each of them hides.
const SINGLE_ROWS: usize = 4_000;
const BATCH_ROWS: usize = 1_000_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().and_then(|text| text.parse().ok());
    let directory = arguments.next().map_or_else(
        || std::env::temp_dir().join("thalweg-deletes"),
        PathBuf::from,
    );
    let parts = arguments
        .next()
        .unwrap_or_else(|| "scattered,single,range".to_owned());
    let bench = Bench {
        env: Env::os(),
        directory,
        rows: rows.unwrap_or(10_000_000),
        is_packed: parts.contains("packed"),
    };
    if parts.contains("scattered") {
        bench.scattered()?;
    }
    if parts.contains("single") {
        bench.single()?;
    }
    if parts.contains("range") {
        bench.range()?;
    }
    remove(&bench.env, &bench.directory);
    Ok(())
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("a", DataType::Float64, false),
    ]))
}

/// Rows with the times from `first` on.
fn batch(first: usize, rows: usize, is_packed: bool) -> RecordBatch {
    let times = (first..first + rows).map(|row| i64::try_from(row).unwrap_or(i64::MAX));
    // No codec makes them small, so that the rows go into files; or one does, and each block is an item of the log.
    let mixed = |row: usize| {
        (row as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    let mixed = move |row| mixed(row).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    #[expect(clippy::cast_precision_loss, reason = "values for a measurement")]
    let values = (first..first + rows).map(|row| match is_packed {
        true => (row % 977) as f64,
        false => (mixed(row) >> 11) as f64,
    });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(times)),
        Arc::new(Float64Array::from_iter_values(values)),
    ];
    #[expect(clippy::expect_used, reason = "the columns were made for the schema")]
    RecordBatch::try_new(schema(), columns).expect("columns fit the schema")
}

/// A block of the table, and where it lies.
struct Found {
    item: ItemName,
    item_rows: u64,
    rank: u32,
    rows: u32,
}

struct Bench {
    env: Env,
    directory: PathBuf,
    rows: usize,
    is_packed: bool,
}

impl Bench {
    fn milliseconds<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let clock = self.env.clock();
        let start = clock.monotonic_ns();
        let done = work()?;
        #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
        let took = clock.monotonic_ns().saturating_sub(start) as f64 / 1e6;
        Ok((took, done))
    }

    /// A new table with all rows, in the order of their times.
    fn table(&self) -> Result<Table> {
        remove(&self.env, &self.directory);
        let engine = Engine::open(self.env.clone(), &self.directory, EngineOptions::default())?;
        let options = CreateOptions::stream("ts");
        let table = engine.create_table("t", &schema(), &options)?;
        let starts = (0..self.rows).step_by(BATCH_ROWS);
        let batches = starts.map(|first| {
            Ok(batch(
                first,
                BATCH_ROWS.min(self.rows - first),
                self.is_packed,
            ))
        });
        let (took, ()) = self.milliseconds(|| match self.is_packed {
            true => { batches }.try_for_each(|batch| table.append([batch], None).map(|_| ())),
            false => table.append(batches, None).map(|_| ()),
        })?;
        let stats = table.stats()?;
        println!(
            "{} rows in {} blocks of {} files, loaded in {took:.0} ms",
            stats.rows, stats.blocks, stats.fragments
        );
        Ok(table)
    }

    fn blocks(table: &Table) -> Result<Vec<Found>> {
        let view = table.view()?;
        let (snapshot, store) = (view.snapshot(), table.engine().kernel().store());
        let mut walk = snapshot.tree.walk(None, Arc::clone(store));
        let (mut found, mut items) = (Vec::new(), std::collections::HashMap::new());
        while let Some(block) = walk.next_at(|entry: &Entry, place| {
            let item = place.filter(|place| place.item == ItemName::of(entry));
            items.extend(item.map(|place| (place.item, entry.rows)));
            Step::Descend
        })? {
            let Some(place) = walk.place() else { continue };
            found.push(Found {
                item: place.item,
                item_rows: items.get(&place.item).copied().unwrap_or(0),
                rank: u32::try_from(place.rank).unwrap_or(u32::MAX),
                rows: u32::try_from(block.rows).unwrap_or(u32::MAX),
            });
        }
        Ok(found)
    }

    fn scattered(&self) -> Result<()> {
        let table = self.table()?;
        let id = table.view()?.snapshot().id;
        let mut random = 1_u64;
        let (took, edit) = self.milliseconds(|| {
            let mut items: Vec<(&Found, Vec<(u32, BlockMask)>)> = Vec::new();
            let blocks = Self::blocks(&table)?;
            for block in &blocks {
                let hit = |_: &u32| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (random >> 33).is_multiple_of(100)
                };
                let hits = Positions::of_rows((0..block.rows).filter(hit));
                if hits.rows() == 0 {
                    continue;
                }
                let mask = (block.rank, BlockMask::Rows(hits));
                match items.last_mut() {
                    Some((item, masks)) if item.item == block.item => masks.push(mask),
                    _ => items.push((block, vec![mask])),
                }
            }
            let items = items.into_iter().map(|(item, masks)| mask_of(item, masks));
            Ok(edit_of(id, items.collect::<Result<_>>()?))
        })?;
        println!("scattered: planned in {took:.1} ms, no row read");
        let newly: u64 = edit.items.iter().map(|item| item.newly).sum();
        let (took, _) = self.milliseconds(|| hide(&table, edit))?;
        let (counted_in, left) = self.milliseconds(|| Ok(table.view()?.row_count()))?;
        println!(
            "scattered: {newly} rows in {took:.1} ms; {left} are left, counted in {counted_in:.3} ms"
        );
        table.engine().close()
    }

    fn single(&self) -> Result<()> {
        let table = self.table()?;
        let id = table.view()?.snapshot().id;
        let blocks = Self::blocks(&table)?;
        let all = blocks.len();
        self.by_threads("hides a row", &|number| {
            // All threads in all blocks, each row once.
            let block = &blocks[number * 7_919 % all];
            let row = u32::try_from(number / all).unwrap_or(u32::MAX);
            let mask = (block.rank, BlockMask::Rows(Positions::of_rows([row])));
            hide(&table, edit_of(id, vec![mask_of(block, vec![mask])?]))
        })?;
        // What the disk lets through.
        self.by_threads("appends a row", &|number| {
            let time = i64::try_from(self.rows + number).unwrap_or(i64::MAX);
            table.put(
                &[Value::Int(time), Value::Float(0.5)],
                Some(Durability::Disk),
            )
        })?;
        table.engine().close()
    }

    /// Commits by several threads, each of which waits for its own.
    fn by_threads(&self, what: &str, commit: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
        let one = |thread: usize| (0..SINGLE_ROWS).try_for_each(|n| commit(n * THREADS + thread));
        let (took, done) = self.milliseconds(|| {
            Ok(std::thread::scope(|scope| {
                let threads = (0..THREADS).map(|thread| scope.spawn(move || one(thread)));
                let threads: Vec<_> = threads.collect();
                let done = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
                done.filter_map(std::result::Result::ok)
                    .collect::<Result<Vec<()>>>()
            }))
        })?;
        let commits = done?.len() * SINGLE_ROWS;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = commits as f64 * 1e3 / took;
        println!(
            "single: {THREADS} threads, each commit {what}: {commits} in {took:.0} ms, {rate:.0} a second"
        );
        Ok(())
    }

    fn range(&self) -> Result<()> {
        let table = self.table()?;
        let part = |tenths: usize| i64::try_from(self.rows / 20 * tenths).unwrap_or(i64::MAX);
        // Borders within blocks.
        for (first, last) in [(1, 2), (3, 3), (3, 19)] {
            let keys = KeyRange {
                first: part(first) + 12_345,
                last: part(last) + 54_321,
            };
            let (took, deleted) = self.milliseconds(|| table.delete_range(keys, None))?;
            let (counted_in, left) = self.milliseconds(|| Ok(table.view()?.row_count()))?;
            println!(
                "range: {deleted} rows in {took:.2} ms; {left} are left, counted in {counted_in:.3} ms"
            );
        }
        table.engine().close()
    }
}

fn mask_of(block: &Found, masks: Vec<(u32, BlockMask)>) -> Result<ItemMask> {
    let invalid = |what| thalweg_table::Error::new(thalweg_table::ErrorKind::Invalid, what);
    let masks = MaskList::of(masks).map_err(invalid)?;
    Ok(ItemMask {
        name: block.item,
        rows: block.item_rows,
        newly: masks.rows(),
        masks,
    })
}

fn edit_of(table: thalweg_kernel::TableId, mut items: Vec<ItemMask>) -> MaskEdit {
    items.sort_by_key(|item| item.name);
    MaskEdit {
        table,
        items,
        parts: Vec::new(),
    }
}

fn hide(table: &Table, edit: MaskEdit) -> Result<()> {
    let commit = Commit {
        masks: vec![edit],
        ..Commit::default()
    };
    let kernel = table.engine().kernel();
    kernel.commit(commit, Durability::Disk).map(|_| ())
}
