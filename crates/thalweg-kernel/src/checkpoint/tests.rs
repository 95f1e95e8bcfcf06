//! The bytes of the INDEX section, what is read back of it, and which lies are refused.

use super::*;
use crate::change::Change;
use crate::commit::{Edit, RowsPart};
use crate::error::ErrorKind;
use crate::index::{Page, PageLoader};

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
    let applied = working.apply(commit, changes, LogPosition::default(), &NoPages);
    applied.unwrap();
}

fn create(working: &mut Working, name: &str, definition: Bytes) {
    let name = name.to_owned();
    let create = Edit::CreateTable {
        table: TableId(working.next_table),
        name,
        definition,
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
    for (at, byte) in [(0, 3), (4, 1), (what_else, 1), (what_else, 4), (parts, 1)] {
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
