//! Entry lists and pages as bytes: golden ones, round trips, damage.

use super::*;
use crate::block::MAX_POSITIONS;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_entries(entries, &mut bytes).unwrap();
    bytes
}

/// Two blocks next to each other, and a fragment of other columns.
fn sample() -> Vec<Entry> {
    let place = |entry: Entry, offset| Entry {
        address: Address {
            offset,
            ..entry.address
        },
        ..entry
    };
    let first = place(block(1_000, 9, 4, 3), 64).committed(CommitNo(5), CommitNo(5), 0);
    let second = place(block(1_010, 3, 7, 3), 141).committed(CommitNo(5), CommitNo(6), 1);
    let address = Address {
        file: FileId(11),
        offset: 4_096,
        bytes: 300,
        head_bytes: 300,
        head_crc: 0xDEAD_BEEF,
    };
    let fragment = Entry {
        level: 2,
        sorted: false,
        fragment: true,
        rows: 1_000_000,
        blocks: 400,
        block_bytes: 5_000_000,
        first_commit: CommitNo(3),
        address,
        columns: [ColumnSummary::of_counts(2, 999_990, 7)]
            .into_iter()
            .collect(),
        ..block(-4, 100_000, 2, 0).committed(CommitNo(2), CommitNo(9), 3)
    };
    let fragment = Entry {
        commit_min: CommitNo(2),
        ..fragment
    };
    vec![first, second, fragment]
}

#[test]
fn a_list_has_these_bytes() {
    let bytes = list(&sample());
    let expected = concat!(
        // Three entries, two column sets: 1 int, 4 float, 5 count; 2 count.
        "0302",
        "03",
        "0102",
        "0204",
        "0001",
        "01",
        "0201",
        // First block: sorted, 3 rows, key 1000 to +9, commit 5, ordinal 0, file 2 at 64, 77 bytes, head 70, CRC 5.
        "01",
        "03",
        "d00f",
        "09",
        "0a",
        "00",
        "00",
        "04",
        "8001",
        "4d",
        "46",
        "05000000",
        // 4, 5, 9: least 4, span 5, sum 12 + 6, squared distances 14.
        "20",
        "08",
        "05",
        "06",
        "0000000000002c40",
        // 0.5, 0.625, 1.125.
        "20",
        "000000000000e03f",
        "000000000000f23f",
        "0000000000000240",
        "000000000000cc3f",
        // One null.
        "01",
        "01",
        // Second block: key +10, span 3, same commit and one more, next ordinal, same file, right after the first.
        "00",
        "03",
        "14",
        "03",
        "00",
        "01",
        "02",
        "00",
        "00",
        "4d",
        "46",
        "05000000",
        "20",
        "0e",
        "05",
        "06",
        "0000000000002c40",
        "20",
        "000000000000ec3f",
        "000000000000f83f",
        "0000000000000b40",
        "000000000000cc3f",
        "01",
        "01",
        // The root of a fragment of level 2, 400 blocks of 5,000,000 bytes, leftmost commit 2 + 1, no fragments; column set 1.
        "0e",
        "02",
        "9003",
        "c096b102",
        "01",
        "00",
        "01",
        "c0843d",
        "eb0f",
        "a08d06",
        "05",
        "07",
        "04",
        "12",
        "8040",
        "ac02",
        "ac02",
        "efbeadde",
        // 7 nulls, 10 rows below are not summarised.
        "05",
        "07",
        "0a",
    );
    assert_eq!(hex(&bytes), expected);
    assert_eq!(decode_entries(&bytes).unwrap(), sample());
}

#[test]
fn a_page_in_order_has_these_bytes() {
    let page = Entry {
        level: 1,
        sorted: true,
        last: Arrival {
            commit: CommitNo(8),
            ordinal: 1,
        },
        fragments: 300,
        first_commit: CommitNo(3),
        blocks: 400,
        rows: 1_000,
        block_bytes: 5,
        ..block(0, 0, 2, 0).committed(CommitNo(2), CommitNo(9), 3)
    };
    let page = Entry {
        commit_min: CommitNo(2),
        ..page
    };
    let bytes = list(std::slice::from_ref(&page));
    let expected = concat!(
        // One entry, one empty set of columns.
        "010100",
        // In order, a page; level 1, 400 blocks of 5 bytes, leftmost commit 2 + 1, 300 fragments, last block 2 + 6 and 3 - 2.
        "03", "01", "9003", "05", "01", "ac02", "06", "03",
        // 1,000 rows with key 0, commits 2 to 9, ordinal 3, file 2 at 154, 77 bytes, head 70, CRC 5.
        "e807", "00", "00", "04", "07", "06", "04", "b402", "4d", "46", "05000000",
    );
    assert_eq!(hex(&bytes), expected);
    assert_eq!(decode_entries(&bytes).unwrap(), [page]);
}

fn seal(tree: &Tree, offset: u64) -> (Vec<u8>, Entry) {
    let mut bytes = Vec::new();
    let written = tree
        .write_dirty(&mut |page| Ok(page.seal_into(DATABASE, FILE, offset, &mut bytes)))
        .unwrap();
    let root = written.root().unwrap().clone();
    (bytes, root)
}

fn sample_page() -> (Vec<u8>, Entry) {
    let tree = Tree::empty(TABLE)
        .insert_many(sample(), &Disk::default(), &mut Vec::new())
        .unwrap();
    seal(&tree, 8_192)
}

#[test]
fn a_page_has_these_bytes() {
    let (bytes, root) = sample_page();
    let (header, body) = bytes.split_at(32);
    // Magic, version 2, level 1, table 3, three entries, length of the body, order 0, zeros, checksum.
    assert_eq!(
        hex(header),
        format!(
            "54495047 0200 01 00 03000000 03000000 {:02x}000000 0000000000000000 37f148e5",
            body.len()
        )
        .replace(' ', "")
    );
    let mut in_order = sample();
    in_order.rotate_right(1);
    assert_eq!(body, list(&in_order));
    let page = Page::decode(DATABASE, TABLE, &root, &bytes).unwrap();
    assert!(page.entries().eq(&in_order));
    assert_eq!(page.total(), root);
}

/// An entry with a summary of decimals alone, and the bytes of that summary in its list.
fn decimals_as_bytes(values: &[i128]) -> (Entry, Vec<u8>) {
    let rows = values.len() as u64;
    let with = |columns: Vec<ColumnSummary>| Entry {
        rows,
        columns: columns.into(),
        ..block(0, 0, 1, 0)
    };
    let entry = with(vec![ColumnSummary::of_values(9, values, None)]);
    let bytes = list(std::slice::from_ref(&entry));
    let before = list(&[with(vec![ColumnSummary::of_counts(9, rows, 0)])]).len() - 1;
    (entry, bytes[before..].to_vec())
}

#[test]
fn summaries_of_decimals_have_these_bytes() {
    let golden = [
        // Shift 0, least 4, span 5, sum 12 + 6, squared distances 14.
        (
            vec![4, 9, 5],
            "20".to_owned() + "00" + "08" + "05" + "06" + "0000000000002c40",
        ),
        // Smallest = largest.
        (vec![-3, -3], "08".to_owned() + "00" + "05" + "00"),
        // Units of 2: 2^62 to 2^62 + 2, and no sum.
        (
            vec![(1 << 63) + 1, (1 << 63) + 3],
            "c0".to_owned() + "01" + "80808080808080808001" + "02",
        ),
    ];
    for (values, expected) in golden {
        let (entry, bytes) = decimals_as_bytes(&values);
        assert_eq!(hex(&bytes), expected, "{values:?}");
        assert_eq!(
            decode_entries(&list(std::slice::from_ref(&entry))).unwrap(),
            [entry]
        );
    }
}

#[test]
fn other_spellings_of_decimals_are_refused() {
    let (entry, summary) = decimals_as_bytes(&[(1 << 63) + 1, (1 << 63) + 3]);
    let whole = list(&[entry]);
    let start = whole.len() - summary.len();
    let refused = |at: usize, byte: u8, what: &str| {
        let mut bytes = whole.clone();
        bytes[start + at] = byte;
        let error = decode_entries(&bytes).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    for flags in [0x40, 0x80] {
        refused(0, flags, "does not agree with the flags");
    }
    for flags in [0xc8, 0xe0] {
        refused(0, flags, "have flags of exact ones");
    }
    refused(0, 0xd0, "flags 0xd0, which this program does not know");
    refused(1, 0, "does not agree with the flags");
    refused(1, 65, "shifted too far");
}

#[test]
fn a_page_elsewhere_is_refused() {
    let (bytes, root) = sample_page();
    let refused = |database, table, entry: &Entry, what: &str| {
        let error = Page::decode(database, table, entry, &bytes).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Corruption);
        assert!(error.message().contains(what), "{error}");
    };
    let moved = |file, offset| Entry {
        address: Address {
            file,
            offset,
            ..root.address
        },
        ..root.clone()
    };
    refused(DatabaseId([8; 16]), TABLE, &root, "checksum");
    refused(
        DATABASE,
        TABLE,
        &moved(FileId(10), 8_192),
        "file 000000000000000a, offset 8192",
    );
    refused(DATABASE, TABLE, &moved(FILE, 8_200), "checksum");
    refused(DATABASE, TableId(4), &root, "another table");
    refused(
        DATABASE,
        TABLE,
        &Entry {
            level: 2,
            ..root.clone()
        },
        "another level",
    );
    let older = Entry {
        address: Address {
            head_crc: 1,
            ..root.address
        },
        ..root.clone()
    };
    refused(
        DATABASE,
        TABLE,
        &older,
        "not the page that was written here",
    );
}

#[test]
fn every_damaged_byte_of_a_page_is_noticed() {
    let (bytes, root) = sample_page();
    for at in 0..bytes.len() {
        for damaged in [bytes[at] ^ 1, bytes[at] ^ 0x80, 0xFF, 0]
            .into_iter()
            .filter(|&byte| byte != bytes[at])
        {
            let mut copy = bytes.clone();
            copy[at] = damaged;
            assert!(
                Page::decode(DATABASE, TABLE, &root, &copy).is_err(),
                "byte {at}"
            );
        }
        assert!(
            Page::decode(DATABASE, TABLE, &root, &bytes[..at]).is_err(),
            "cut at {at}"
        );
    }
    assert!(
        Page::decode(DATABASE, TABLE, &root, &vec![0; bytes.len()]).is_err(),
        "zeros"
    );
}

/// Readers take memory for the rows of an entry before they see the block.
#[test]
fn a_block_of_more_rows_than_positions_is_refused() {
    let full = Entry {
        rows: u64::from(MAX_POSITIONS),
        ..block(1_000, 9, 4, 0)
    };
    let mut bytes = list(&[full]);
    assert!(decode_entries(&bytes).is_ok());
    let rows = bytes
        .windows(4)
        .position(|rows| rows == [0x80, 0x80, 0x80, 0x08]);
    bytes[rows.unwrap()] += 1;
    assert!(decode_entries(&bytes).is_err());
}

#[test]
fn lists_have_limits() {
    let wide: Vec<ColumnSummary> = (0..MAX_SUMMARIES as u32)
        .map(|id| ColumnSummary::of_counts(id, 3, 0))
        .collect();
    let wide = Entry {
        columns: wide.into(),
        ..block(0, 0, 0, 0)
    };
    let error = encode_entries(&vec![wide.clone(); 33], &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Limit);
    let bytes = list(&vec![wide; 32]);
    assert_eq!(decode_entries(&bytes).unwrap().len(), 32);
    // A count that the bytes cannot hold costs no memory.
    assert!(decode_entries(&[0xFF, 0xFF, 0x03, 1, 0]).is_err());
    assert!(decode_entries(&[0x80, 0x80, 0x04, 0]).is_err());
}

#[test]
fn a_directory_takes_a_tenth_of_small_blocks() {
    // Nine float columns of 8 KiB blocks: the smallest there are.
    let noise: Vec<f64> = (0..128_u32)
        .map(|row| f64::from(row.wrapping_mul(2_654_435_761) >> 7) / 3.0)
        .collect();
    let entries: Vec<Entry> = (0..100_u64)
        .map(|number| {
            let columns = (0..9)
                .map(|id| ColumnSummary::of_values(id, &noise, None))
                .collect();
            let address = Address {
                file: FileId(4),
                offset: number * 8_192,
                bytes: 8_192,
                head_bytes: 900,
                head_crc: 7,
            };
            Entry {
                rows: 128,
                block_bytes: 8_192,
                address,
                columns,
                ..block(number as i64, 7, 0, 0)
            }
        })
        .collect();
    let bytes = list(&entries).len();
    assert!(bytes < 100 * 8_192 / 16, "{bytes} bytes");
    let guessed: usize = entries.iter().map(Entry::encoded_bytes).sum();
    assert!(
        guessed > bytes * 9 / 10 && guessed < bytes * 11 / 10,
        "{guessed} guessed, {bytes} taken"
    );
}

fn entry() -> impl Strategy<Value = Entry> {
    let keys = (any::<i64>(), 0_u64..u64::MAX)
        .prop_map(|(min, span)| (min, min.saturating_add_unsigned(span)));
    let commits = (any::<u32>(), any::<u32>(), any::<u32>());
    let address = (any::<u64>(), 0_u64..1 << 60, any::<u32>(), any::<u32>());
    (keys, commits, address, 0_u8..3, -100_i64..100, 0_usize..8).prop_map(
        |(keys, commits, address, level, value, columns)| {
            let first = u64::from(commits.0);
            let last = first + u64::from(commits.1);
            let (blocks, bytes) = if level == 0 {
                (1, address.2)
            } else {
                (3, address.2)
            };
            let entry = Entry {
                level,
                sorted: level == 0 && value > 0,
                blocks,
                block_bytes: u64::from(bytes),
                key_min: keys.0,
                key_max: keys.1,
                address: Address {
                    file: FileId(address.0),
                    offset: address.1,
                    bytes,
                    head_bytes: bytes / 2,
                    head_crc: address.3,
                },
                ..block(0, 0, value, columns).committed(CommitNo(first), CommitNo(last), commits.2)
            };
            if level == 0 {
                entry
            } else {
                Entry {
                    first_commit: CommitNo(last),
                    sorted: value > 0,
                    last: match value > 0 {
                        true => Arrival {
                            commit: CommitNo(first.midpoint(last)),
                            ordinal: address.3,
                        },
                        false => Arrival::default(),
                    },
                    fragments: 3 - u32::from(level),
                    ..entry
                }
            }
        },
    )
}

proptest! {
    #[test]
    fn lists_come_back(entries in prop::collection::vec(entry(), 0..20)) {
        let bytes = list(&entries);
        prop_assert_eq!(decode_entries(&bytes).unwrap(), entries);
    }

    /// Without a checksum in the way: bytes that are accepted are the only spelling of what they mean.
    #[test]
    fn damaged_lists_are_refused_or_mean_something_else(
        entries in prop::collection::vec(entry(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = list(&entries);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(entries) = decode_entries(&bytes) {
            prop_assert_eq!(list(&entries), bytes);
        }
    }

    #[test]
    fn arbitrary_lists_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(entries) = decode_entries(&bytes) {
            prop_assert_eq!(list(&entries), bytes);
        }
    }
}
