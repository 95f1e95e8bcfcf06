//! Any bytes as a structure of the inbox, with a sound checksum where it has one: an error, never a panic, and what is read is
//! written the same way.
//!
//! Input: which structure, then its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_inbox::format::{Edit, FIRST_FRAME, Frame, Half, InboxState, LogHeader, Seal};

const SEAL: Seal = Seal { database: [1; 16], log: 7 };
const CRC_AT: usize = 124;

fn page(input: &[u8], seal: &Seal) -> Vec<u8> {
    let mut bytes = input.to_vec();
    bytes.resize(FIRST_FRAME as usize, 0);
    let crc = seal.crc(0, &bytes[..CRC_AT]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn registry(input: &[u8]) {
    let seal = Seal { log: 0, ..SEAL };
    let mut bytes = page(input, &seal);
    bytes[..8].copy_from_slice(b"THWINBR1");
    let crc = seal.crc(0, &bytes[..CRC_AT]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    if let Ok(half) = Half::decode(&bytes, &seal, 0) {
        assert_eq!(half.encode(&seal, 0), bytes);
    }
}

fn log(input: &[u8]) {
    let mut bytes = page(input, &SEAL);
    bytes[..8].copy_from_slice(b"THWINB01");
    bytes[16..32].copy_from_slice(&SEAL.database);
    bytes[32..40].copy_from_slice(&SEAL.log.to_le_bytes());
    let crc = SEAL.crc(0, &bytes[..CRC_AT]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    if let Ok(header) = LogHeader::decode(&bytes, &SEAL) {
        assert_eq!(header.encode(), bytes[..128]);
    }
}

fn frame(input: &[u8]) {
    let mut bytes = input.to_vec();
    bytes.resize(bytes.len().next_multiple_of(8).max(80), 0);
    bytes[..4].copy_from_slice(b"TIFR");
    let length = bytes.len() as u32;
    bytes[48..52].copy_from_slice(&length.to_le_bytes());
    let sections = usize::from(u16::from_le_bytes([bytes[52], bytes[53]]));
    let end = (80 + 16 * sections).min(bytes.len());
    // Section checksums as well, so that few inputs fail for them.
    for at in (80..end.saturating_sub(15)).step_by(16) {
        let field = |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap()) as usize;
        let (start, count) = (field(at + 4), field(at + 8));
        if let (2 | 4, Some(section)) = (bytes[at], bytes.get(start..start.saturating_add(count))) {
            let crc = crc32c::crc32c(section);
            bytes[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let crc = SEAL.crc(FIRST_FRAME, &bytes[8..end]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Ok(frame) = Frame::decode(&bytes, &SEAL, FIRST_FRAME) {
        assert_eq!(frame.draft.encode(&frame.head, &SEAL, FIRST_FRAME), bytes);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    match which % 5 {
        0 => registry(bytes),
        1 => log(bytes),
        2 => frame(bytes),
        3 => {
            if let Ok(edit) = Edit::decode(bytes) {
                assert_eq!(edit.encode(), bytes);
            }
        }
        _ => {
            if let Ok(state) = InboxState::decode(bytes) {
                assert_eq!(state.encode(), bytes);
            }
        }
    }
});
