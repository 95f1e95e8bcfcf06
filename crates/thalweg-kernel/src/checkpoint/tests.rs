//! The bytes of the INDEX section, what is read back of it, and which lies are refused.

use super::*;
use crate::change::Change;
use crate::commit::Edit;
use crate::error::ErrorKind;
use crate::index::{Entry, Page, PageLoader};
use crate::orders::{OrderAction, OrderChange, OrdersEdit};
use crate::rows_part::RowsPart;

/// Where checkpoint `n` lies.
fn place(n: u64) -> Place {
    let at = LogPosition {
        segment: FileId(n),
        offset: 128 * n,
    };
    Place {
        at,
        frame_bytes: 1_000 + 8 * u32::try_from(n).unwrap(),
        crc: 0xC0C0_0000 + u32::try_from(n).unwrap(),
    }
}

/// No table has an index here.
struct NoPages;

impl PageLoader for NoPages {
    fn load_page(&self, _: TableId, entry: &Entry) -> Result<Arc<Page>> {
        Err(Error::corruption(entry.address, "there are no pages"))
    }
}

fn apply(working: &mut Working, changes: impl IntoIterator<Item = Change>) {
    let commit = working.commit.next().unwrap();
    let mut changes = changes.into_iter().collect();
    let applied = working.apply(commit, &mut changes, LogPosition::default(), &NoPages);
    applied.unwrap();
}

fn create(working: &mut Working, name: &str, definition: Bytes) {
    let name = name.to_owned();
    let create = Edit::CreateTable {
        table: TableId(working.next_table),
        name,
        definition,
        indexes: 0,
    };
    apply(working, [Change::Edit(create)]);
}

fn append(working: &mut Working, table: u32) {
    let part = RowsPart {
        table: TableId(table),
        definition_version: 1,
        rows: 1,
        key_min: 7,
        key_max: 7,
        payload: Bytes::from_static(b"a row"),
    };
    apply(working, [Change::Rows(part)]);
}

/// Writes the next checkpoint, the n-th one.
fn write(working: &mut Working, n: u64) -> Vec<u8> {
    let builds_on = working.bases.choose(false);
    let mut out = Vec::new();
    put_checkpoint(working, builds_on, &WrittenTrees::new(), &mut out).unwrap();
    working.note_checkpoint(place(n), builds_on, out.len() as u64);
    out
}

/// Two full checkpoints, and the first difference.
fn three() -> (Working, [Vec<u8>; 3]) {
    let mut working = Working::empty();
    let two_columns = Bytes::from_static(b"two columns");
    create(&mut working, "boiler", two_columns.clone());
    // So long that differences are worth their while.
    create(&mut working, "pump", Bytes::from(vec![7; 4 << 10]));
    let first = write(&mut working, 1);
    append(&mut working, 1);
    let second = write(&mut working, 2);
    create(&mut working, "valve", two_columns);
    apply(
        &mut working,
        [Change::Edit(Edit::DropTable { table: TableId(2) })],
    );
    let third = write(&mut working, 3);
    (working, [first, second, third])
}

fn tables(working: &Working) -> Vec<(u32, String, u64)> {
    let rows = |table: &TableState| table.open.iter(CommitNo(u64::MAX)).count() as u64;
    let tables = working.tables.iter();
    tables
        .map(|table| (table.id.0, table.name.to_string(), rows(table)))
        .collect()
}

#[test]
fn golden_bytes() {
    let (_, [_, _, third]) = three();
    let hex: String = third.iter().map(|b| format!("{b:02x}")).collect();
    let golden = include_str!("../../tests/golden/checkpoint.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
}

#[test]
fn a_difference_reads_back_with_both_bases() {
    let (written, [first, second, third]) = three();
    assert_eq!(base_of(&second, place(2)).unwrap(), None);
    assert_eq!(base_of(&third, place(3)).unwrap(), Some(place(1)));
    let base = get_checkpoint(&first, place(1), Working::empty()).unwrap();
    let read = get_checkpoint(&third, place(3), base).unwrap();
    assert_eq!(tables(&read), tables(&written));
    assert_eq!(
        tables(&read),
        [(1, "boiler".into(), 1), (3, "valve".into(), 0)]
    );
    let next = read.bases.base(BuildsOn::Next).unwrap();
    assert_eq!(Some(next), written.bases.base(BuildsOn::Next));
    assert_eq!(next.place, place(2));
    let changed: Vec<u32> = next.changed.iter().map(|table| table.0).collect();
    assert_eq!(changed, [2, 3], "what was open then is open still");
    // What is written of both from here on says the same.
    let (mut read, mut written) = (read, written);
    append(&mut read, 3);
    append(&mut written, 3);
    assert_eq!(write(&mut read, 4), write(&mut written, 4));
}

#[test]
fn many_changes_are_worth_a_full_one() {
    let mut working = Working::empty();
    let definition = Bytes::from(vec![7; 4 << 10]);
    for name in ["a", "b", "c", "d"] {
        create(&mut working, name, definition.clone());
    }
    write(&mut working, 1);
    write(&mut working, 2);
    for (table, expected) in [
        (1, BuildsOn::Next),
        (2, BuildsOn::Next),
        (3, BuildsOn::Nothing),
    ] {
        append(&mut working, table);
        assert_eq!(working.choose_base(false), expected, "table {table}");
    }
}

/// A table with an index that is on and one that is off, whose coverage has a gap.
fn with_indexes() -> Working {
    let mut working = Working::empty();
    let create = Edit::CreateTable {
        table: TableId(1),
        name: "boiler".to_owned(),
        definition: Bytes::from_static(b"two columns"),
        indexes: 2,
    };
    apply(&mut working, [Change::Edit(create)]);
    let switch_off = OrdersEdit {
        table: TableId(1),
        changes: vec![OrderChange {
            order: 3,
            action: OrderAction::SwitchOff {
                key_min: 10,
                key_max: 20,
            },
        }],
    };
    apply(&mut working, [Change::Edit(Edit::Orders(switch_off))]);
    working
}

#[test]
fn indexes_read_back_as_they_were_written() {
    let mut written = with_indexes();
    let section = write(&mut written, 1);
    let mut read = get_checkpoint(&section, place(1), Working::empty()).unwrap();
    let table = read.table(TableId(1)).unwrap();
    let orders: Vec<(u32, bool, usize)> = { table.orders().iter() }
        .map(|order| (order.id, order.is_on, order.coverage.ranges().len()))
        .collect();
    assert_eq!(orders, [(2, true, 1), (3, false, 2)]);
    assert_eq!(read.features_written().to_read & 1, 1);
    // An id is not given again, though its order is gone.
    let change = |order, action| OrdersEdit {
        table: TableId(1),
        changes: vec![OrderChange { order, action }],
    };
    let drop = Change::Edit(Edit::Orders(change(3, OrderAction::Drop)));
    for working in [&mut read, &mut written] {
        apply(working, [drop.clone()]);
        let state = working.table(TableId(1)).unwrap();
        let orders = state.orders.as_deref().unwrap();
        let make = |order| orders.check(&change(order, OrderAction::Make).changes);
        assert!(make(3).is_err() && make(4).is_ok());
    }
    assert_eq!(write(&mut read, 2), write(&mut written, 2));
}

#[test]
fn golden_bytes_of_indexes() {
    let section = write(&mut with_indexes(), 1);
    let name = { section.windows(6) }.position(|bytes| bytes == b"boiler");
    // What else there is, no root, nothing that waits, no uses; then the orders.
    let orders = &section[name.unwrap() + 22..];
    let hex: String = orders[..147].iter().map(|b| format!("{b:02x}")).collect();
    let ends = |min: i64, max: i64| {
        let hex = |bytes: [u8; 8]| bytes.map(|b| format!("{b:02x}")).concat();
        format!(
            "{}{}{}",
            hex(min.to_le_bytes()),
            hex(max.to_le_bytes()),
            "f".repeat(16)
        )
    };
    let no_tree = "0200000000000000000000000000";
    let golden = [
        "01",
        no_tree,
        "0400000002000000",
        "0200000003010000",
        no_tree,
        "01000000",
        &ends(i64::MIN, i64::MAX),
        "0300000003020000",
        no_tree,
        "02000000",
        &ends(i64::MIN, 9),
        &ends(21, i64::MAX),
    ];
    assert_eq!(hex, golden.concat());
}

#[test]
fn lies_about_bases_are_refused() {
    let (_, [first, _, third]) = three();
    let read = |section: &[u8]| {
        let base = get_checkpoint(&first, place(1), Working::empty()).unwrap();
        get_checkpoint(section, place(3), base).map(|_| ())
    };
    read(&third).unwrap();
    let mut same = third.clone();
    same.copy_within(12..36, 52);
    assert!(read(&same).unwrap_err().message().contains("same base"));
    let mut itself = third;
    itself[12..20].copy_from_slice(&3_u64.to_le_bytes());
    itself[20..28].copy_from_slice(&384_u64.to_le_bytes());
    assert!(read(&itself).unwrap_err().message().contains("behind it"));
}

#[test]
fn what_a_newer_version_keeps_of_a_table_is_unsupported() {
    let (_, [first, ..]) = three();
    let name = first
        .windows(6)
        .position(|bytes| bytes == b"boiler")
        .unwrap();
    let what_else = name + 6 + 16;
    let parts = first.len() - 4;
    for (at, byte) in [(0, 3), (4, 4), (what_else, 2), (what_else, 16), (parts, 1)] {
        let mut section = first.clone();
        section[at] = byte;
        if at == parts {
            section.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        }
        let read = get_checkpoint(&section, place(1), Working::empty()).map(|_| ());
        assert_eq!(
            read.unwrap_err().kind(),
            ErrorKind::Unsupported,
            "byte {at}"
        );
    }
}
