//! The bytes of the inbox: fixed by golden files, refused when damaged, never a panic.
//!
//! To accept a change of the format, run the test with `GOLDEN_WRITE=1`.
#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "a test reads its own fixtures")]

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use thalweg_inbox::format::{
    AddHead, Adopt, Draft, Edit, FIRST_FRAME, Fault, Floor, Frame, FrameHead, GroupBody, Half,
    HeldGroup, InboxState, LOG_HEADER_BYTES, LogCommit, LogHeader, Position, Seal, Stamp,
};

const DATABASE: [u8; 16] = *b"golden database!";
const BOOT: [u8; 16] = *b"one certain boot";
const OFFSET: u64 = 4608;

fn seal(log: u64) -> Seal {
    Seal {
        database: DATABASE,
        log,
    }
}

fn half() -> Half {
    Half {
        boot: BOOT,
        change: 0x0102,
        log: 7,
        visible: 8192,
        last_frame: 99,
        bound: Stamp {
            time: -5,
            sequence: 1234,
        },
        seen: LogCommit {
            epoch: 3,
            commit: 44,
        },
        link: 0xAABB_CCDD,
        prepared: 65_536,
        required: LogCommit {
            epoch: 2,
            commit: 41,
        },
        is_ended: false,
        is_appending: true,
        process: 4321,
    }
}

fn header() -> LogHeader {
    LogHeader {
        database: DATABASE,
        number: 7,
        boot: BOOT,
        before: 5,
        before_end: 12_288,
        before_frame: 90,
        before_link: 0x0BAD_F00D,
        process: 4321,
        copies_end: 5000 / 8 * 8,
    }
}

fn draft() -> Draft {
    let group = |table, list: &[u8], blocks: Option<&[u8]>| GroupBody {
        head: AddHead {
            table,
            definition: 2,
        },
        list: list.to_vec(),
        blocks: blocks.map(<[u8]>::to_vec),
    };
    Draft {
        bodies: vec![
            group(3, b"entries", Some(b"blocks of table 3")),
            group(4, b"a root page", None),
            group(5, b"", Some(b"12345678")),
        ],
    }
}

fn frame_head() -> FrameHead {
    FrameHead {
        number: 100,
        stamp: Stamp {
            time: 1_735_689_600_000_000_000,
            sequence: 1235,
        },
        seen: LogCommit {
            epoch: 3,
            commit: 44,
        },
        before: 0xAABB_CCDD,
        synced_to: OFFSET,
    }
}

fn position() -> Position {
    Position {
        frame: 100,
        log: 7,
        offset: 8500 / 8 * 8,
        link: 17,
    }
}

fn held(frame: u64, table: u32, is_released: bool) -> HeldGroup {
    HeldGroup {
        frame,
        table,
        log: 7,
        offset: 4096,
        is_released,
    }
}

fn adopt() -> Edit {
    Edit::Adopt(Adopt {
        before: 98,
        position: position(),
        sequence: 1235,
        newest_time: 77,
        groups: vec![held(90, 1, true), held(99, 3, false), held(99, 4, false)],
    })
}

fn state() -> InboxState {
    InboxState {
        newest: Stamp {
            time: 77,
            sequence: 1235,
        },
        position: position(),
        floors: [(3, -9), (8, 70)].into(),
        held: [held(99, 3, false), held(99, 4, false)]
            .map(|group| ((group.frame, group.table), group))
            .into(),
    }
}

fn log_page() -> Vec<u8> {
    let mut bytes = header().encode();
    assert_eq!(bytes.len(), LOG_HEADER_BYTES);
    bytes.resize(usize::try_from(FIRST_FRAME).unwrap(), 0);
    bytes
}

/// Each structure by name.
fn structures() -> Vec<(&'static str, Vec<u8>)> {
    let floor = Edit::Floor(Floor { table: 3, time: 70 });
    let stamp = Edit::Stamp(frame_head().stamp);
    vec![
        ("half", half().encode(&seal(0), 4096)),
        ("log_header", log_page()),
        ("frame", draft().encode(&frame_head(), &seal(7), OFFSET)),
        ("adopt", adopt().encode()),
        ("stamp", stamp.encode()),
        ("floor", floor.encode()),
        ("part", state().encode()),
    ]
}

/// Decodes a structure and encodes it again.
fn again(name: &str, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    match name {
        "half" => Half::decode(bytes, &seal(0), 4096).map(|half| half.encode(&seal(0), 4096)),
        "log_header" => LogHeader::decode(bytes, &seal(7)).map(|header| {
            let mut bytes = header.encode();
            bytes.resize(usize::try_from(FIRST_FRAME).unwrap(), 0);
            bytes
        }),
        "frame" => Frame::decode(bytes, &seal(7), OFFSET)
            .map(|frame| frame.draft.encode(&frame.head, &seal(7), OFFSET)),
        "part" => InboxState::decode(bytes).map(|state| state.encode()),
        _ => Edit::decode(bytes).map(|edit| edit.encode()),
    }
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    let end = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1);
    writeln!(text, "bytes {}", bytes.len()).unwrap();
    for line in bytes[..end].chunks(32) {
        line.iter()
            .for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

#[test]
fn bytes_are_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, bytes) in structures() {
        let path = folder.join(format!("{name}.hex"));
        if std::env::var_os("GOLDEN_WRITE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, to_text(&bytes)).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert_eq!(to_text(&bytes), golden, "{name}");
    }
}

#[test]
fn what_is_written_is_read() {
    for (name, bytes) in structures() {
        assert_eq!(again(name, &bytes).unwrap(), bytes, "{name}");
    }
    let decoded = Half::decode(&half().encode(&seal(0), 0), &seal(0), 0);
    assert_eq!(decoded, Ok(half()));
    assert_eq!(LogHeader::decode(&log_page(), &seal(7)), Ok(header()));
    let bytes = draft().encode(&frame_head(), &seal(7), OFFSET);
    let longer = [&bytes[..], &[0; 100]].concat();
    let frame = Frame::decode(&longer, &seal(7), OFFSET).unwrap();
    assert_eq!((frame.head, frame.draft), (frame_head(), draft()));
    assert_eq!(frame.len_bytes, bytes.len());
    assert_eq!(bytes.len(), draft().frame_bytes());
}

/// Of the blocks the frame has no checksum: they carry their own.
fn is_of_blocks(name: &str, bytes: &[u8], at: usize) -> bool {
    let blocks = "blocks of table 3".len().next_multiple_of(8) + 8;
    name == "frame" && (bytes.len() - blocks..bytes.len()).contains(&at)
}

#[test]
fn every_flipped_bit_under_a_checksum_is_noticed() {
    for (name, bytes) in structures() {
        if !matches!(name, "half" | "log_header" | "frame") {
            continue;
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if !is_of_blocks(name, &bytes, bit / 8) {
                assert!(again(name, &damaged).is_err(), "{name}, bit {bit}");
            }
        }
    }
}

#[test]
fn what_is_cut_is_noticed() {
    for (name, bytes) in structures() {
        for length in 0..bytes.len() {
            assert!(
                again(name, &bytes[..length]).is_err(),
                "{name}, {length} bytes"
            );
        }
    }
}

#[test]
fn structures_of_other_places_are_refused() {
    let bytes = half().encode(&seal(0), 0);
    assert!(Half::decode(&bytes, &seal(0), 4096).is_err());
    assert!(LogHeader::decode(&log_page(), &seal(8)).is_err());
    let frame = draft().encode(&frame_head(), &seal(7), OFFSET);
    assert!(Frame::decode(&frame, &seal(7), OFFSET + 8).is_err());
    assert!(Frame::decode(&frame, &seal(8), OFFSET).is_err());
    let other = Seal {
        database: [9; 16],
        log: 7,
    };
    assert!(Frame::decode(&frame, &other, OFFSET).is_err());
}

/// Changes bytes and makes the checksum right again, as a newer or hostile program would.
fn resealed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = structures()
        .into_iter()
        .find(|(of, _)| *of == name)
        .unwrap()
        .1;
    change(&mut bytes);
    reseal(name, &mut bytes);
    bytes
}

fn reseal(name: &str, bytes: &mut [u8]) {
    match name {
        "half" => {
            let crc = seal(0).crc(4096, &bytes[..124]);
            bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        }
        "log_header" => {
            let crc = seal(7).crc(0, &bytes[..124]);
            bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        }
        "frame" => {
            let count = usize::from(u16::from_le_bytes([bytes[52], bytes[53]]));
            let end = (80 + 16 * count).min(bytes.len());
            let crc = seal(7).crc(OFFSET, &bytes[8..end]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {}
    }
}

#[test]
fn what_is_not_known_is_unsupported() {
    let is_unsupported = |name, at: usize, value: u8| {
        let bytes = resealed(name, |bytes| bytes[at] = value);
        let fault = again(name, &bytes);
        assert!(
            matches!(fault, Err(Fault::Unsupported(_))),
            "{name} {at}: {fault:?}"
        );
    };
    // Flags, reserved bytes.
    is_unsupported("half", 108, 4);
    is_unsupported("half", 110, 1);
    is_unsupported("half", 118, 1);
    is_unsupported("half", 200, 1);
    // Version, features, reserved bytes.
    is_unsupported("log_header", 8, 2);
    is_unsupported("log_header", 12, 1);
    is_unsupported("log_header", 100, 1);
    // Flags, reserved bytes, the kind of a section.
    for flag in [1, 2, 4, 128] {
        is_unsupported("frame", 54, flag);
    }
    is_unsupported("frame", 70, 1);
    is_unsupported("frame", 80, 1);
    is_unsupported("frame", 80, 5);
    // Actions that are reserved; the flags of a held group.
    is_unsupported("adopt", 1, 4);
    is_unsupported("adopt", 1, 5);
    is_unsupported("adopt", 2, 1);
    is_unsupported("adopt", 62 + 28, 2);
}

#[test]
fn counts_take_no_memory_before_they_are_checked() {
    for at in [46 + 4, 47 + 4] {
        let bytes = resealed("adopt", |bytes| bytes[at] = 0xFF);
        assert!(matches!(again("adopt", &bytes), Err(Fault::Damaged(_))));
    }
    let bytes = resealed("part", |bytes| bytes[48..52].fill(0xFF));
    assert!(again("part", &bytes).is_err());
    let bytes = resealed("frame", |bytes| bytes[52..54].fill(0xFF));
    assert!(again("frame", &bytes).is_err());
    let bytes = resealed("frame", |bytes| bytes[48..52].fill(0xFF));
    assert!(again("frame", &bytes).is_err());
}

#[test]
fn edits_move_a_state_as_the_page_says() {
    let stamp = |time, sequence| Stamp { time, sequence };
    let mut state = InboxState::default();
    state.stamp(stamp(50, 1)).unwrap();
    assert!(state.stamp(stamp(60, 1)).is_err(), "sequences rise");
    let adopt = |before, frame, groups: &[HeldGroup]| Adopt {
        before,
        position: Position {
            frame,
            log: 1,
            offset: 5000,
            link: 1,
        },
        sequence: 9,
        newest_time: 20,
        groups: groups.to_vec(),
    };
    state
        .adopt(&adopt(0, 2, &[held(1, 1, false), held(2, 1, false)]))
        .unwrap();
    assert_eq!(state.newest, stamp(50, 9), "times and sequences never fall");
    assert!(state.adopt(&adopt(1, 3, &[])).is_err(), "a gap");
    assert!(
        state.adopt(&adopt(2, 2, &[held(2, 1, false)])).is_err(),
        "held twice"
    );
    assert!(
        state.adopt(&adopt(2, 2, &[held(2, 2, true)])).is_err(),
        "never held"
    );
    state.adopt(&adopt(2, 2, &[held(1, 1, true)])).unwrap();
    state.raise_floor(Floor { table: 1, time: 9 });
    state.raise_floor(Floor { table: 1, time: 7 });
    assert_eq!(state.floors, [(1, 9)].into());
    assert_eq!(InboxState::decode(&state.encode()), Ok(state.clone()));
    state.drop_table(1);
    assert!(state.floors.is_empty() && state.held.is_empty());
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for name in ["half", "log_header", "frame", "adopt", "part"] {
            let _ = again(name, &bytes);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_as_written(
        which in 0_usize..7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (name, mut bytes) = structures().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len().min(300));
            bytes[at] = value;
        }
        reseal(name, &mut bytes);
        if let Ok(written) = again(name, &bytes) {
            prop_assert_eq!(written, bytes);
        }
    }
}
