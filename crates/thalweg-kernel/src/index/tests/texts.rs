//! Summaries of strings: their bytes, and how they prune.

use super::*;
use crate::summary::SummaryKind;

fn list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_entries(entries, &mut bytes).unwrap();
    bytes
}

fn entry_of(values: &[&str], null_rows: u64) -> Entry {
    let rows = values.len() as u64 + null_rows;
    let bytes = values.iter().map(|value| value.len() as u64).sum();
    let bounds = ByteBounds::of_values(values.iter().map(|value| value.as_bytes()));
    let summary = ColumnSummary::of_byte_counts(9, rows, null_rows, bytes);
    let columns: SummaryList = [(summary, bounds)].into_iter().collect();
    Entry {
        rows,
        columns: columns.into(),
        ..block(0, 0, 1, 0)
    }
}

/// The bytes of the summary alone, which end the list.
fn bytes_of(entry: &Entry) -> Vec<u8> {
    let counted = Entry {
        columns: [ColumnSummary::of_counts(9, entry.rows, 0)]
            .into_iter()
            .collect(),
        ..entry.clone()
    };
    let before = list(&[counted]).len() - 1;
    list(std::slice::from_ref(entry))[before..].to_vec()
}

#[test]
fn summaries_of_strings_have_these_bytes() {
    let golden: [(Entry, &[u8]); 5] = [
        // Both begin with "room "; then "1" and "22"; 13 bytes in all.
        (
            entry_of(&["room 1", "room 22"], 0),
            b"\0\x05room \x011\x0222\x0d",
        ),
        // One null; smallest = largest.
        (entry_of(&["on", "on"], 1), b"\x09\x01\x02on\0\x04"),
        (entry_of(&[""], 0), b"\x08\0\0\0"),
        // Cut on both sides.
        (
            entry_of(&["a0123456789abcdefg", "b0123456789abcdefg"], 0),
            b"\xc0\0\x10a0123456789abcde\x10b0123456789abcdf\x24",
        ),
        // Nulls alone.
        (entry_of(&[], 2), b"\x01\x02"),
    ];
    for (entry, expected) in golden {
        assert_eq!(
            bytes_of(&entry).escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
        assert_eq!(
            decode_entries(&list(std::slice::from_ref(&entry))).unwrap(),
            [entry]
        );
    }
    let unknown = Entry {
        rows: 1,
        columns: [ColumnSummary::of_byte_counts(9, 1, 0, 300)]
            .into_iter()
            .collect(),
        ..block(0, 0, 1, 0)
    };
    assert_eq!(bytes_of(&unknown), [0xc0, 0, 0, 255, 0xac, 2]);
    assert_eq!(
        decode_entries(&list(std::slice::from_ref(&unknown))).unwrap(),
        [unknown]
    );
}

#[test]
fn other_spellings_of_strings_are_refused() {
    let whole = list(&[entry_of(&["room 1", "room 22"], 0)]);
    let summary = bytes_of(&entry_of(&["room 1", "room 22"], 0));
    let start = whole.len() - summary.len();
    let refused = |summary: &[u8], what: &str| {
        let bytes = [&whole[..start], summary].concat();
        let error = decode_entries(&bytes).unwrap_err();
        assert!(error.message().contains(what), "{error}");
    };
    refused(
        b"\0\x04room\x02 1\x03 22\x0d",
        "begin with more than they say",
    );
    refused(b"\0\x05room \x0222\x011\x0d", "no value lies between");
    refused(b"\0\x05room \x011\x011\x0d", "a constant twice");
    refused(b"\x40\x05room \x011\x011\x0d", "no value lies between");
    refused(b"\x80\x05room \x011\x011\x0d", "no value lies between");
    refused(
        b"\x08\x05room \x011\x0d",
        "a bound that is cut counts as a value",
    );
    refused(
        b"\x48\x06room 1\0\x0d",
        "a bound that is cut counts as a value",
    );
    refused(
        b"\0\x05room \x011\xff\x0d",
        "there is a largest value and no bound",
    );
    refused(b"\0\x41", "too long");
    refused(&[&[0, 1, b'r', 64][..], &[b'x'; 64]].concat(), "too long");
    refused(
        b"\x10\0\0\0",
        "flags 0x10, which this program does not know",
    );
    refused(
        b"\x20\0\0\0",
        "flags 0x20, which this program does not know",
    );
    // Without a bound above nothing is common.
    refused(
        b"\x80\x04room\x02 1\xff\x0d",
        "begin with more than they say",
    );
}

#[test]
fn bounds_of_pages_are_those_of_their_blocks() {
    let blocks = [
        entry_of(&["b", "c"], 1),
        entry_of(&["a", "b"], 0),
        entry_of(&[], 3),
        entry_of(&["d"], 0),
    ];
    let page = Entry::of_page(1, &blocks).unwrap();
    let bounds = page.covering_bounds(9).unwrap();
    assert_eq!(format!("{bounds:?}"), "a..=d");
    assert_eq!(page.columns[0].value_bytes(), Some(5));
    assert_eq!(page.columns[0].null_rows, 4);
    // From nulls on, and into nulls.
    let nulls_first = Entry::of_page(1, [&blocks[2], &blocks[3]]).unwrap();
    assert_eq!(nulls_first.covering_bounds(9), blocks[3].covering_bounds(9));
    let mut grown = blocks[2].clone();
    blocks[3].merge_into(&mut grown);
    assert_eq!(grown.columns, nulls_first.columns);
    // A block without the column: the bounds neither answer nor prune.
    let gap = Entry::of_page(1, [&blocks[0], &block(0, 0, 1, 2)]).unwrap();
    assert_eq!(gap.covering_bounds(9), None);
    assert!(gap.columns.of_column(9).is_some());
    // Another kind: counts remain.
    let other = Entry {
        columns: [ColumnSummary::of_values(9, &[1_i64, 2, 3], None)]
            .into_iter()
            .collect(),
        ..block(0, 0, 1, 0)
    };
    let mixed = Entry::of_page(1, [&blocks[0], &other, &blocks[1]]).unwrap();
    assert_eq!(mixed.columns[0].kind, SummaryKind::Count);
    assert_eq!(mixed.covering_bounds(9), None);
}

#[test]
fn strings_prune_blocks() {
    let entry = entry_of(&["room 1", "room 22"], 1);
    let range = |first: Option<&str>, last: Option<&str>, is_open| ValueRange::Bytes {
        first: first.map(|first| first.as_bytes().into()),
        last: last.map(|last| last.as_bytes().into()),
        is_open,
    };
    assert!(entry.prunes(9, &range(Some("room 3"), None, false)));
    assert!(!entry.prunes(9, &range(Some("room 22"), None, false)));
    assert!(entry.prunes(9, &range(None, Some("room"), false)));
    assert!(entry.prunes(9, &range(None, Some("room 1"), true)));
    assert!(!entry.prunes(9, &range(None, Some("room 1"), false)));
    assert!(!entry.prunes(9, &ValueRange::Int(Some(1), None)));
    assert!(entry_of(&[], 2).prunes(9, &range(None, None, false)));
    let unknown: Summaries = [ColumnSummary::of_byte_counts(9, 3, 0, 5)]
        .into_iter()
        .collect();
    let unknown = Entry {
        columns: unknown,
        ..block(0, 0, 1, 0)
    };
    assert!(!unknown.prunes(9, &range(Some("room 3"), None, false)));
}
