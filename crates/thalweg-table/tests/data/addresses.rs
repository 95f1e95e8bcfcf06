//! Rows by their addresses, in the log, in fragments and in no block yet.

use crate::blocks::assert_same_bits;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::index::{ItemName, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, Positions};
use thalweg_kernel::{Commit, CommitNo, Durability, ErrorKind};
use thalweg_table::{
    AppendLimits, BlockRegion, CreateOptions, Engine, EngineOptions, KeyRange, RowAddress,
    RowPlace, Strided, Table, TableView, decode_block, decode_rows,
};

fn engine(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            ..EngineOptions::default().append_limits
        },
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("value", DataType::Float64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("flag", DataType::Boolean, true),
    ]))
}

fn rows(first: i64, count: i64) -> RecordBatch {
    let times = first..first + count;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(times.clone())),
        Arc::new(
            times
                .clone()
                .map(|t| (t % 5 != 0).then_some(t as f64 / 8.0))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            times
                .clone()
                .map(|t| (t % 3 != 0).then(|| format!("row {t}")))
                .collect::<StringArray>(),
        ),
        Arc::new(times.map(|t| Some(t % 2 == 0)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn table(engine: &Engine) -> Table {
    let table = engine
        .create_table("t", &schema(), &CreateOptions::stream("ts"))
        .unwrap();
    // Large appends are blocks of the log, small ones stay open.
    for first in [0, 10_000, 20_000] {
        table.append([Ok(rows(first, 5_000))], None).unwrap();
    }
    for first in [30_000, 30_005, 30_010] {
        table.append([Ok(rows(first, 5))], None).unwrap();
    }
    table
}

/// All addresses of a view, and the rows at them.
fn all(view: &TableView) -> (Vec<RowAddress>, RecordBatch) {
    let store = view.engine().kernel().store();
    let (mut addresses, mut batches) = (Vec::new(), Vec::new());
    let mut walk = view.snapshot().tree.walk(None, Arc::clone(store));
    while let Some(block) = walk.next_at(|_, _| Step::Descend).unwrap() {
        let (place, address) = (walk.place().unwrap(), block.address);
        let batch = decode_block(view.definition(), store, &address, None, 0..usize::MAX).unwrap();
        let place = RowPlace::Block { place, address };
        addresses.extend((0..batch.num_rows()).map(|row| RowAddress {
            place,
            row: row as u32,
        }));
        batches.push(batch);
    }
    for open in view.snapshot().open_rows() {
        let batch = decode_rows(view.definition(), [&open.part.payload[..]]).unwrap();
        let place = RowPlace::Open {
            commit: open.commit,
            part: 0,
        };
        addresses.extend((0..batch.num_rows()).map(|row| RowAddress {
            place,
            row: row as u32,
        }));
        batches.push(batch);
    }
    let batch = concat_batches(&view.schema(), &batches).unwrap();
    (addresses, batch)
}

fn check(view: &TableView, seed: u64) {
    let (addresses, batch) = all(view);
    assert_eq!(addresses.len() as u64, view.row_count());
    let mut rng = fastrand::Rng::with_seed(seed);
    for projection in [None, Some(&[2, 0][..]), Some(&[])] {
        let mut reader = view.row_reader(projection).unwrap();
        for count in [0, 1, 1, 7, 500, 2_000] {
            let mut picks: Vec<u32> = (0..count)
                .map(|_| rng.u32(..addresses.len() as u32))
                .collect();
            if rng.bool() {
                picks.sort_unstable();
            }
            let wanted: Vec<RowAddress> = picks.iter().map(|at| addresses[*at as usize]).collect();
            let found = reader.read(&wanted).unwrap();
            let picks = UInt32Array::from(picks);
            let expected = match projection {
                None => batch.clone(),
                Some(places) => batch.project(places).unwrap(),
            };
            let columns = expected.columns().iter();
            let columns = columns
                .map(|column| take(column, &picks, None).unwrap())
                .collect();
            let options = RecordBatchOptions::new().with_row_count(Some(picks.len()));
            let expected =
                RecordBatch::try_new_with_options(expected.schema(), columns, &options).unwrap();
            assert_same_bits(&found, &expected);
        }
    }
}

#[test]
fn rows_are_found_wherever_they_lie() {
    let sim = SimEnv::new(1);
    let engine = engine(&sim);
    let table = table(&engine);
    let view = table.view().unwrap();
    assert!(view.snapshot().open_rows().count() > 2);
    check(&view, 1);
    // A reader goes on reading what its view shows.
    let mut reader = view.row_reader(None).unwrap();
    let (addresses, batch) = all(&view);
    // Fragments and blocks of rows that were open.
    table.append([Ok(rows(-50_000, 40_000))], None).unwrap();
    table.maintain().unwrap();
    check(&table.view().unwrap(), 2);
    assert_same_bits(&reader.read(&addresses).unwrap(), &batch);
    engine.checkpoint().unwrap();
    check(&table.view().unwrap(), 3);
}

/// What left the table is not shown again, nor what came after the view: the bytes are there in either case.
#[test]
fn rows_of_another_view_are_not_found() {
    let sim = SimEnv::new(1);
    let engine = engine(&sim);
    let table = table(&engine);
    let before = table.view().unwrap();
    table.append([Ok(rows(100_000, 5_000))], None).unwrap();
    let full = table.view().unwrap();
    let (addresses, _) = all(&full);
    let refuses = |view: &TableView, address: &RowAddress| {
        let refused = view.row_reader(None).unwrap().read(&[*address]).err();
        refused.is_some_and(|error| error.kind() == ErrorKind::Invalid)
    };
    let known: HashSet<RowAddress> = all(&before).0.into_iter().collect();
    assert!(known.len() < addresses.len());
    for address in addresses.iter().step_by(97) {
        assert_eq!(refuses(&before, address), !known.contains(address));
    }
    // Blocks that were merged, and rows that were deleted one block after the other, down to none.
    table.append([Ok(rows(-50_000, 40_000))], None).unwrap();
    table.maintain().unwrap();
    let mut last = full;
    for last_key in [5_000, 25_000, i64::MAX] {
        let keys = KeyRange {
            first: i64::MIN,
            last: last_key,
        };
        table.delete_range(keys, None).unwrap();
        let view = table.view().unwrap();
        let (addresses, _) = all(&last);
        let left: HashSet<RowAddress> = kept(&view);
        for address in addresses.iter().step_by(97) {
            assert_eq!(refuses(&view, address), !left.contains(address));
        }
        last = view;
    }
    assert_eq!(last.row_count(), 0);
}

/// A mask that hides a row which its block does not have is damage, whichever of its rows is asked for.
#[test]
fn a_mask_beyond_its_block_is_damage() {
    let engine = engine(&SimEnv::new(1));
    let table = table(&engine);
    table.maintain().unwrap();
    let view = table.view().unwrap();
    let snapshot = view.snapshot();
    let store = Arc::clone(engine.kernel().store());
    let mut walk = snapshot.tree.walk(None, store);
    let (mut items, mut found) = (HashMap::new(), None);
    while let Some(block) = walk
        .next_at(|entry, place| {
            if let Some(place) = place.filter(|place| place.item == ItemName::of(entry)) {
                items.insert(place.item, entry.rows);
            }
            Step::Descend
        })
        .unwrap()
    {
        found = walk.place().map(|place| (place, block));
    }
    let (place, block) = found.unwrap();
    let beyond = Positions::of_rows([u32::try_from(block.rows).unwrap() + 5]);
    let masks = [(u32::try_from(place.rank).unwrap(), BlockMask::Rows(beyond))];
    let masks = MaskList::of(masks).unwrap();
    let edit = MaskEdit {
        table: snapshot.id,
        items: vec![ItemMask {
            name: place.item,
            rows: items[&place.item],
            newly: masks.rows(),
            masks,
        }],
        parts: Vec::new(),
    };
    let commit = Commit {
        masks: vec![edit],
        ..Commit::default()
    };
    engine.kernel().commit(commit, Durability::Disk).unwrap();
    let address = RowAddress {
        place: RowPlace::Block {
            place,
            address: block.address,
        },
        row: 0,
    };
    let mut reader = table.view().unwrap().row_reader(None).unwrap();
    for _ in 0..2 {
        let error = reader.read(&[address]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

/// The addresses of the rows that are not deleted.
fn kept(view: &TableView) -> HashSet<RowAddress> {
    let snapshot = view.snapshot();
    let store = Arc::clone(view.engine().kernel().store());
    let mut walk = snapshot.tree.walk(None, store);
    let mut kept = HashSet::new();
    while let Some(block) = walk.next_at(|_, _| Step::Descend).unwrap() {
        let hidden = walk.place().and_then(|place| snapshot.hidden_at(&place));
        let is_kept = |row: &u32| match hidden {
            None => true,
            Some(BlockMask::Rows(rows)) => !rows.contains(*row),
            Some(BlockMask::Blocks { .. }) => false,
        };
        let place = RowPlace::Block {
            place: walk.place().unwrap(),
            address: block.address,
        };
        let rows = (0..u32::try_from(block.rows).unwrap()).filter(is_kept);
        kept.extend(rows.map(|row| RowAddress { place, row }));
    }
    for open in snapshot.open_rows() {
        let hidden = snapshot.hidden_in(open);
        let place = RowPlace::Open {
            commit: open.commit,
            part: 0,
        };
        let is_kept = |row: &u32| hidden.is_none_or(|rows| !rows.contains(*row));
        let rows = (0..open.part.rows).filter(is_kept);
        kept.extend(rows.map(|row| RowAddress { place, row }));
    }
    kept
}

#[test]
fn addresses_that_lead_to_no_row_are_refused() {
    let sim = SimEnv::new(1);
    let engine = engine(&sim);
    let view = table(&engine).view().unwrap();
    let other = engine
        .create_table("other", &schema(), &CreateOptions::stream("ts"))
        .unwrap();
    other.append([Ok(rows(0, 5_000))], None).unwrap();
    let other = other.view().unwrap();
    let (addresses, batch) = all(&view);
    let mut reader = view.row_reader(None).unwrap();
    let (in_block, open) = (addresses[0], addresses[addresses.len() - 1]);
    let RowPlace::Block { place, address } = in_block.place else {
        panic!("a block")
    };
    let mut changed = address;
    changed.head_crc ^= 1;
    let no_rows = [
        (
            RowAddress {
                row: 1 << 20,
                ..in_block
            },
            ErrorKind::Invalid,
        ),
        (RowAddress { row: 5, ..open }, ErrorKind::Invalid),
        (
            RowAddress {
                place: RowPlace::Open {
                    commit: CommitNo(999),
                    part: 0,
                },
                row: 0,
            },
            ErrorKind::Invalid,
        ),
        (all(&other).0[0], ErrorKind::Invalid),
        (
            RowAddress {
                place: RowPlace::Block {
                    place,
                    address: changed,
                },
                row: 0,
            },
            ErrorKind::Invalid,
        ),
    ];
    for (address, kind) in no_rows {
        let error = reader.read(&[in_block, address]).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        // It goes on.
        let found = reader.read(&[open, in_block]).unwrap();
        let expected = batch.column(0).as_primitive::<Int64Type>();
        assert_eq!(
            found.column(0).as_primitive::<Int64Type>().value(1),
            expected.value(0)
        );
    }
    assert!(view.row_reader(Some(&[4])).is_err());
    let region = BlockRegion {
        block: address,
        start: vec![0],
        extents: vec![1],
        at: vec![0],
    };
    let regions = view.region_reader().unwrap();
    let mut memory = [0_i64];
    let mut target = Strided::row_major(&mut memory, vec![1]).unwrap();
    let error = regions.values(1, &[region], &mut target).unwrap_err();
    assert!(error.message().contains("has no grid"), "{error}");
    engine.close().unwrap();
    assert!(reader.read(&[in_block]).is_err());
}

#[test]
fn the_second_time_nothing_is_read() {
    let sim = SimEnv::new(1);
    let engine = engine(&sim);
    let view = table(&engine).view().unwrap();
    let (addresses, _) = all(&view);
    let mut reader = view.row_reader(None).unwrap();
    let wanted = [addresses[17], addresses[12_000], addresses[18]];
    let store = view.engine().kernel().store();
    reader.read(&wanted).unwrap();
    let before = store.counts();
    reader.read(&wanted).unwrap();
    let after = store.counts();
    assert_eq!(
        (after.reads, after.data_pages_loaded),
        (before.reads, before.data_pages_loaded)
    );
    assert!(after.data_page_hits > before.data_page_hits);
}
