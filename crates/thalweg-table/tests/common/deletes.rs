//! Deletions by masks, as a layer above commits them.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_kernel::Commit;
use thalweg_kernel::index::{Entry, ItemName, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, PartMask, Positions};
use thalweg_table::{
    Durability, KeyRange, PickedRows, PlacedRows, Result, RowAddress, RowPlace, RowsToDelete,
    ScanRequest, TableView, decode_block, decode_rows,
};

/// A mask edit, with the places of the rows that it deletes and of all others.
pub(crate) struct Found {
    pub(crate) edit: MaskEdit,
    pub(crate) hidden: Vec<RowAddress>,
    pub(crate) kept: Vec<RowAddress>,
}

/// Rows of an item, those that are hidden newly, and how.
type OfItem = (u64, u64, Vec<(u32, BlockMask)>);

fn numbers(batch: &RecordBatch) -> Vec<u64> {
    let column = batch.column(1).as_primitive::<UInt64Type>();
    column.values().to_vec()
}

/// The edit that deletes the rows with these numbers in the second column, none of which is deleted yet. `whole`: blocks of
/// fragments all of whose rows go are hidden as a whole.
pub(crate) fn find(view: &TableView, victims: &BTreeSet<u64>, whole: bool) -> Found {
    let (table, store) = (view.snapshot(), view.engine().kernel().store());
    let mut items: BTreeMap<ItemName, OfItem> = BTreeMap::new();
    let mut rows_of: BTreeMap<ItemName, u64> = BTreeMap::new();
    let (mut hidden, mut kept) = (Vec::new(), Vec::new());
    let mut sort = |place: RowPlace, numbers: &[u64], is_hidden: &dyn Fn(u32) -> bool| {
        let mut positions = Vec::new();
        for (row, number) in (0_u32..).zip(numbers) {
            let address = RowAddress { place, row };
            if victims.contains(number) {
                assert!(!is_hidden(row), "row {number} is deleted twice");
                positions.push(row);
            }
            match victims.contains(number) || is_hidden(row) {
                true => hidden.push(address),
                false => kept.push(address),
            }
        }
        positions
    };
    let mut walk = table.tree.walk(None, Arc::clone(store));
    while let Some(block) = walk
        .next_at(|entry: &Entry, place| {
            let item = place.filter(|place| place.item == ItemName::of(entry));
            rows_of.extend(item.map(|place| (place.item, entry.rows)));
            Step::Descend
        })
        .unwrap()
    {
        let place = walk.place().unwrap();
        let rank = u32::try_from(place.rank).unwrap();
        let batch = decode_block(
            view.definition(),
            store,
            &block.address,
            None,
            0..usize::MAX,
        )
        .unwrap();
        let mask = table.hidden_at(&place).cloned();
        let is_hidden = |row| match &mask {
            None => false,
            Some(BlockMask::Rows(positions)) => positions.contains(row),
            Some(BlockMask::Blocks { .. }) => true,
        };
        let found = sort(
            RowPlace::Block {
                place,
                address: block.address,
            },
            &numbers(&batch),
            &is_hidden,
        );
        if found.is_empty() {
            continue;
        }
        let before = mask.as_ref().map_or(0, BlockMask::rows);
        let newly = found.len() as u64;
        let (rows, all, masks) = items.entry(place.item).or_default();
        *rows = rows_of[&place.item];
        *all += newly;
        if !(whole && before + newly == block.rows) {
            masks.push((rank, BlockMask::Rows(Positions::of_rows(found))));
            continue;
        }
        match masks.last_mut() {
            Some((first, BlockMask::Blocks { further, rows })) if *first + *further + 1 == rank => {
                *further += 1;
                *rows += block.rows;
            }
            _ => {
                let (further, rows) = (0, block.rows);
                masks.push((rank, BlockMask::Blocks { further, rows }));
            }
        }
    }
    let mut parts = Vec::new();
    for open in table.open_rows() {
        let batch = decode_rows(view.definition(), [&open.part.payload[..]]).unwrap();
        let place = RowPlace::Open {
            commit: open.commit,
            part: open.number,
        };
        let mask = table.hidden_in(open);
        let is_hidden = |row| mask.is_some_and(|positions| positions.contains(row));
        let found = sort(place, &numbers(&batch), &is_hidden);
        if !found.is_empty() {
            parts.push(PartMask {
                commit: open.commit,
                part: open.number,
                rows: open.part.rows,
                positions: Positions::of_rows(found),
            });
        }
    }
    let item = |(name, (rows, newly, masks))| ItemMask {
        name,
        rows,
        newly,
        masks: MaskList::of(masks).unwrap(),
    };
    let edit = MaskEdit {
        table: table.id,
        items: items.into_iter().map(item).collect(),
        parts,
    };
    Found { edit, hidden, kept }
}

/// Deletes the rows with these numbers.
pub(crate) fn delete(view: &TableView, victims: &BTreeSet<u64>, whole: bool) {
    let edit = find(view, victims, whole).edit;
    assert_eq!(
        edit.items.is_empty() && edit.parts.is_empty(),
        victims.is_empty()
    );
    if victims.is_empty() {
        return;
    }
    let commit = Commit {
        masks: vec![edit],
        ..Commit::default()
    };
    let kernel = view.engine().kernel();
    kernel.commit(commit, Durability::Process).unwrap();
}

/// The rows with keys of a range and these numbers, picked from all rows with their places.
pub(crate) fn picked(
    view: &TableView,
    keys: KeyRange,
    victims: &BTreeSet<u64>,
) -> Result<RowsToDelete> {
    let request = ScanRequest {
        projection: Some(vec![1]),
        keys,
        ..ScanRequest::default()
    };
    let rows = Arc::new(PlacedRows::new(view, &request)?);
    let reader = rows.reader()?;
    let mut picked = PickedRows::default();
    let mut seen = 0;
    for piece in 0..rows.pieces() {
        for (batch, places) in reader.read(piece)? {
            assert_eq!(batch.num_rows(), places.len());
            let numbers = batch.column(0).as_primitive::<UInt64Type>();
            for (number, place) in numbers.values().iter().zip(places.values()) {
                if victims.contains(number) {
                    // Twice, as a join may find it.
                    picked.add(&[*place, *place]);
                }
            }
            seen += places.len() as u64;
        }
    }
    assert!(seen <= view.row_count(), "deleted rows have places");
    drop(reader);
    Ok(RowsToDelete::Picked(rows, picked))
}

/// Rows are found by their addresses, and deleted ones are not.
pub(crate) fn check_addresses(view: &TableView) {
    let Found { hidden, kept, .. } = find(view, &BTreeSet::new(), false);
    let mut reader = view.row_reader(Some(&[1])).unwrap();
    assert_eq!(reader.read(&kept).unwrap().num_rows(), kept.len());
    for address in hidden {
        let error = reader.read(&[address]).unwrap_err();
        assert!(error.message().contains("is deleted"), "{error}");
    }
}
