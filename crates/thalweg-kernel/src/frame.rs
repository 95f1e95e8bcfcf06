//! Frames: the bytes of one commit in the log (`docs/format/log.md`).
//!
//! Invariants: a frame is sealed with its database, segment and offset, and chained to the frame before it; its sections
//! other than BLOCKS and PAGES are covered by its section table; everything is a multiple of 8 bytes long. BLOCKS come
//! last, so that what recovery needs is one range at the front; PAGES come first, because what follows names their places.

use crate::error::{Error, ErrorKind, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition};
use crate::wire::{is_sound, sealing_crc};

pub(crate) const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TFRM");
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
/// Magic and CRC of the header: no other frame of a segment has the same ones.
pub(crate) const FRAME_FRONT_BYTES: usize = 8;
pub(crate) const SECTION_ENTRY_BYTES: usize = 16;
/// Frames begin and end on this.
pub(crate) const FRAME_ALIGN: usize = 8;
/// Where the flags lie in the field of the number of sections.
const FLAGS_SHIFT: u32 = 16;
/// Readers show the frame once it is written.
const FLAG_SHOWN_ON_WRITE: u8 = 1;
/// The frame that ends a segment and names the next one.
pub(crate) const NEXT_FRAME_BYTES: u64 = (FRAME_HEADER_BYTES + SECTION_ENTRY_BYTES + 8) as u64;
/// A frame that holds nothing but zeros, without them.
pub(crate) const MIN_PAD_FRAME_BYTES: u64 = (FRAME_HEADER_BYTES + SECTION_ENTRY_BYTES) as u64;
/// As large as the sectors of any disk: what lies in one can be lost together.
pub(crate) const SECTOR_BYTES: u64 = 4096;
/// Most sections of one frame: far above what a commit is allowed to hold.
pub(crate) const FRAME_MAX_SECTIONS: usize = 4096;

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SectionKind {
    Rows = 1,
    Group = 2,
    Blocks = 3,
    Edit = 4,
    Producer = 5,
    Index = 6,
    Pages = 7,
    Next = 8,
    Pad = 9,
}

impl SectionKind {
    fn from_u8(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Rows,
            2 => Self::Group,
            3 => Self::Blocks,
            4 => Self::Edit,
            5 => Self::Producer,
            6 => Self::Index,
            7 => Self::Pages,
            8 => Self::Next,
            9 => Self::Pad,
            _ => return None,
        })
    }

    /// Whether its content carries its own checksums, so that recovery need not read it where it is proven.
    pub(crate) fn checks_itself(self) -> bool {
        matches!(self, Self::Blocks | Self::Pages)
    }
}

/// The seed that ties a frame's checksum to its place.
pub(crate) fn seal(database: DatabaseId, at: LogPosition) -> u32 {
    sealing_crc(database, at.segment, at.offset, &[])
}

/// The fields of the header besides lengths and sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameId {
    pub(crate) commit: CommitNo,
    pub(crate) epoch: Epoch,
    /// CRC of the header before it.
    pub(crate) previous_crc: u32,
    pub(crate) synced_to: LogPosition,
    /// Readers may show it as soon as it verifies, whatever `live` announces.
    pub(crate) shown_on_write: bool,
    /// When it was built, in nanoseconds since 1970-01-01 UTC on the writer's clock. Shown, and decides nothing.
    pub(crate) time_ns: i64,
}

/// One section as the table lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionEntry {
    pub(crate) kind: SectionKind,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// A header and section table that verified.
#[derive(Clone, Debug)]
pub(crate) struct FrameHead {
    pub(crate) id: FrameId,
    pub(crate) crc: u32,
    pub(crate) frame_bytes: u32,
    pub(crate) sections: Vec<SectionEntry>,
}

/// Builds a frame: small sections first, self-checking ones last.
///
/// The bulk of BLOCKS is not copied: the caller writes its pieces after [`FrameBuilder::finish`]'s bytes.
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    entries: Vec<SectionEntry>,
    small: Vec<u8>,
    bulk_bytes: usize,
}

impl FrameBuilder {
    /// Forgets the last frame, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.small.clear();
        self.bulk_bytes = 0;
    }

    /// Adds a section that `write` appends to the buffer.
    ///
    /// # Errors
    /// Those of `write`; the builder is of no use then.
    pub(crate) fn section(
        &mut self,
        kind: SectionKind,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        assert!(
            kind != SectionKind::Blocks && self.bulk_bytes == 0,
            "blocks come last"
        );
        let start = self.small.len();
        write(&mut self.small)?;
        let bytes = &self.small[start..];
        let crc = if kind.checks_itself() {
            0
        } else {
            crc32c::crc32c(bytes)
        };
        if u32::try_from(self.small.len()).is_err() {
            let message = format!("a frame of more than {} bytes", u32::MAX);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        self.entries.push(SectionEntry {
            kind,
            offset: len_u32(start),
            bytes: len_u32(bytes.len()),
            crc,
        });
        self.small
            .resize(self.small.len().next_multiple_of(FRAME_ALIGN), 0);
        Ok(())
    }

    /// Adds a section of `bytes` blocks that the caller writes after the frame's head, in this order, padded to 8.
    pub(crate) fn blocks(&mut self, bytes: usize) {
        let (kind, offset) = (SectionKind::Blocks, len_u32(self.bulk_bytes));
        self.entries.push(SectionEntry {
            kind,
            offset,
            bytes: len_u32(bytes),
            crc: 0,
        });
        self.bulk_bytes += bytes.next_multiple_of(FRAME_ALIGN);
    }

    /// Where the blocks sections begin in the frame, in their order, once all sections are added.
    pub(crate) fn blocks_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let start = (self.head_bytes() + self.small.len()) as u64;
        let blocks = self
            .entries
            .iter()
            .filter(|e| e.kind == SectionKind::Blocks);
        blocks.map(move |e| start + u64::from(e.offset))
    }

    /// Where the first section begins, from the start of a frame with `sections` of them.
    pub(crate) fn sections_offset(sections: usize) -> usize {
        FRAME_HEADER_BYTES + sections * SECTION_ENTRY_BYTES
    }

    /// Length of the frame as it stands.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.head_bytes() + self.small.len() + self.bulk_bytes
    }

    fn head_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.entries.len() * SECTION_ENTRY_BYTES
    }

    /// Appends header, section table and small sections to `out`; returns the header's CRC.
    pub(crate) fn finish(&self, id: &FrameId, seal: u32, out: &mut Vec<u8>) -> u32 {
        assert!(
            self.entries.len() <= FRAME_MAX_SECTIONS,
            "a commit has too many parts"
        );
        let (start, head_bytes) = (out.len(), self.head_bytes());
        out.reserve(head_bytes + self.small.len());
        let bulk_start = head_bytes + self.small.len();
        out.put_u32(FRAME_MAGIC);
        out.put_u32(0);
        out.put_u64(id.commit.0);
        out.put_u32(id.epoch.0);
        out.put_u32(id.previous_crc);
        out.put_u32(len_u32(self.frame_bytes()));
        out.put_u32(0);
        out.put_u32(len_u32(self.entries.len()) | u32::from(id.shown_on_write) << FLAGS_SHIFT);
        out.put_u32(0);
        out.put_u64(id.synced_to.segment.0);
        out.put_u64(id.synced_to.offset);
        out.put_i64(id.time_ns);
        for entry in &self.entries {
            let base = if entry.kind == SectionKind::Blocks {
                bulk_start
            } else {
                head_bytes
            };
            out.put_u32(entry.kind as u32);
            out.put_u32(len_u32(base) + entry.offset);
            out.put_u32(entry.bytes);
            out.put_u32(entry.crc);
        }
        let crc = crc32c::crc32c_append(seal, &out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&self.small);
        crc
    }
}

/// Gives the frame in `frame` a new place in the log: header fields that depend on it, and the CRC, which is returned. It
/// keeps its time.
pub(crate) fn restamp(frame: &mut [u8], head: &FrameHead, id: &FrameId, seal: u32) -> u32 {
    assert!(
        frame.len() == head.frame_bytes as usize && head.id.commit == id.commit,
        "the same frame elsewhere"
    );
    frame[16..20].copy_from_slice(&id.epoch.0.to_le_bytes());
    frame[20..24].copy_from_slice(&id.previous_crc.to_le_bytes());
    frame[40..48].copy_from_slice(&id.synced_to.segment.0.to_le_bytes());
    frame[48..56].copy_from_slice(&id.synced_to.offset.to_le_bytes());
    let head_bytes = FrameBuilder::sections_offset(head.sections.len());
    let crc = crc32c::crc32c_append(seal, &frame[8..head_bytes]);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAFrame {
    /// More bytes are needed to decide: so many in all.
    Short(usize),
    /// No frame begins here, or one that is torn, stale or damaged.
    Invalid(&'static str),
    /// It verifies, and has what this version does not know: no end of the log, and no damage.
    Newer(&'static str),
}

/// The first bytes of a frame whose header has this CRC.
pub(crate) fn frame_front(crc: u32) -> [u8; FRAME_FRONT_BYTES] {
    let mut front = [0; FRAME_FRONT_BYTES];
    front[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    front[4..].copy_from_slice(&crc.to_le_bytes());
    front
}

/// The fields of a frame header, before its checksum is known to be right.
struct Header {
    id: FrameId,
    crc: u32,
    frame_bytes: u32,
    sections: u16,
    /// There are flags, or bytes in reserved places, that only a newer version knows.
    has_unknown: bool,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut wire = Fields::new(&bytes[4..FRAME_HEADER_BYTES], "frame header");
        let crc = wire.u32()?;
        let commit = CommitNo(wire.u64()?);
        let epoch = Epoch(wire.u32()?);
        let previous_crc = wire.u32()?;
        let frame_bytes = wire.u32()?;
        let mut has_unknown = wire.reserved(4).is_err();
        let sections = wire.u16()?;
        let flags = wire.u8()?;
        has_unknown |= flags & !FLAG_SHOWN_ON_WRITE != 0;
        has_unknown |= wire.reserved(5).is_err();
        let synced_to = LogPosition {
            segment: FileId(wire.u64()?),
            offset: wire.u64()?,
        };
        let time_ns = wire.i64()?;
        let id = FrameId {
            commit,
            epoch,
            previous_crc,
            synced_to,
            shown_on_write: flags & FLAG_SHOWN_ON_WRITE != 0,
            time_ns,
        };
        Ok(Self {
            id,
            crc,
            frame_bytes,
            sections,
            has_unknown,
        })
    }
}

/// Whether an entry of the section table has a kind or a reserved byte that only a newer version knows.
fn is_unknown(entry: &[u8]) -> bool {
    SectionKind::from_u8(entry[0]).is_none() || entry[1..4] != [0; 3]
}

/// Whether the entries of a section table, or the first of them, may be those of a frame: sections follow each other, without
/// a gap but padding, and fill it.
fn sections_fit(table: &[u8], section_count: usize, frame_bytes: u32) -> bool {
    let align = FRAME_ALIGN as u64;
    let (entries, _) = table.as_chunks::<SECTION_ENTRY_BYTES>();
    let mut at = (FRAME_HEADER_BYTES + section_count * SECTION_ENTRY_BYTES) as u64;
    for entry in entries {
        let [.., o0, o1, o2, o3, b0, b1, b2, b3, _, _, _, _] = *entry;
        if u64::from(u32::from_le_bytes([o0, o1, o2, o3])) != at {
            return false;
        }
        let bytes = u64::from(u32::from_le_bytes([b0, b1, b2, b3]));
        at = (at + bytes).next_multiple_of(align);
    }
    let is_whole = entries.len() == section_count;
    at == u64::from(frame_bytes) || !is_whole && at < u64::from(frame_bytes)
}

impl FrameHead {
    /// Reads and verifies header and section table at the front of `bytes`.
    pub(crate) fn parse(bytes: &[u8], seal: u32) -> Result<Self, NotAFrame> {
        if bytes.len() < FRAME_HEADER_BYTES {
            return Err(NotAFrame::Short(FRAME_HEADER_BYTES));
        }
        if bytes[..4] != FRAME_MAGIC.to_le_bytes() {
            return Err(NotAFrame::Invalid("no frame magic"));
        }
        let header = Header::read(bytes).map_err(|_| NotAFrame::Invalid("header fields"))?;
        let section_count = usize::from(header.sections);
        // Before its checksum is worked out: a search past the end of the log meets bytes of rows that begin like a frame.
        if section_count > FRAME_MAX_SECTIONS {
            return Err(NotAFrame::Invalid("too many sections"));
        }
        let head_bytes = FRAME_HEADER_BYTES + section_count * SECTION_ENTRY_BYTES;
        if head_bytes as u64 > u64::from(header.frame_bytes) {
            return Err(NotAFrame::Invalid(
                "more sections than the frame has room for",
            ));
        }
        let table = &bytes[FRAME_HEADER_BYTES..head_bytes.min(bytes.len())];
        if !sections_fit(table, section_count, header.frame_bytes) {
            return Err(NotAFrame::Invalid("section table"));
        }
        if bytes.len() < head_bytes {
            return Err(NotAFrame::Short(head_bytes));
        }
        if !is_sound(
            crc32c::crc32c_append(seal, &bytes[8..head_bytes]),
            header.crc,
        ) {
            return Err(NotAFrame::Invalid("header checksum"));
        }
        if header.has_unknown {
            return Err(NotAFrame::Newer("a frame with unknown flags"));
        }
        if table.chunks_exact(SECTION_ENTRY_BYTES).any(is_unknown) {
            return Err(NotAFrame::Newer("a section of an unknown kind"));
        }
        let sections = Self::sections(table).map_err(|_| NotAFrame::Invalid("section table"))?;
        Ok(Self {
            id: header.id,
            crc: header.crc,
            frame_bytes: header.frame_bytes,
            sections,
        })
    }

    fn sections(table: &[u8]) -> Result<Vec<SectionEntry>> {
        let mut wire = Fields::new(table, "section table");
        let mut sections = Vec::with_capacity(table.len() / SECTION_ENTRY_BYTES);
        while sections.len() < table.len() / SECTION_ENTRY_BYTES {
            let kind = SectionKind::from_u8(wire.u8()?);
            let kind = kind.ok_or_else(|| wire.unknown("a section of an unknown kind"))?;
            wire.reserved(3)?;
            sections.push(SectionEntry {
                kind,
                offset: wire.u32()?,
                bytes: wire.u32()?,
                crc: wire.u32()?,
            });
        }
        Ok(sections)
    }

    /// Whether the frame carries a commit: INDEX, NEXT and PAD frames change nothing and take no number.
    pub(crate) fn is_commit(&self) -> bool {
        use SectionKind::{Index, Next, Pad};
        let is_other = |s: &SectionEntry| matches!(s.kind, Index | Next | Pad);
        !self.sections.iter().any(is_other)
    }

    /// Whether the frame only keeps what lies before it and what follows it apart.
    pub(crate) fn is_padding(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|s| s.kind == SectionKind::Pad)
    }

    /// The last commit before this frame.
    pub(crate) fn commit_before(&self) -> CommitNo {
        let own = u64::from(self.is_commit());
        CommitNo(self.id.commit.0.saturating_sub(own))
    }

    /// Bytes at the front that recovery needs where blocks are proven: all but the blocks.
    pub(crate) fn needed_bytes(&self) -> usize {
        let bulk = self.sections.iter().find(|s| s.kind == SectionKind::Blocks);
        bulk.map_or(self.frame_bytes, |s| s.offset) as usize
    }

    /// The bytes of a section, which the table's CRC covers, verified. `frame` holds at least that section.
    pub(crate) fn section<'a>(&self, frame: &'a [u8], entry: &SectionEntry) -> Option<&'a [u8]> {
        let start = entry.offset as usize;
        let bytes = frame.get(start..start + entry.bytes as usize)?;
        (entry.kind.checks_itself() || is_sound(crc32c::crc32c(bytes), entry.crc)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: FrameId = FrameId {
        commit: CommitNo(7),
        epoch: Epoch(3),
        previous_crc: 0xAABB_CCDD,
        synced_to: LogPosition {
            segment: FileId(2),
            offset: 4096,
        },
        shown_on_write: false,
        time_ns: 1_700_000_000_000_000_000,
    };

    fn frame() -> (Vec<u8>, u32) {
        let seal = seal(
            DatabaseId([9; 16]),
            LogPosition {
                segment: FileId(5),
                offset: 128,
            },
        );
        let mut builder = FrameBuilder::default();
        for (kind, text) in [
            (SectionKind::Rows, "some rows"),
            (SectionKind::Edit, "an edit"),
        ] {
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(text.as_bytes());
                Ok(())
            };
            builder.section(kind, write).unwrap();
        }
        builder.blocks(13);
        let mut out = Vec::new();
        builder.finish(&ID, seal, &mut out);
        assert_eq!(out.len(), FrameBuilder::sections_offset(3) + 24);
        out.extend_from_slice(&[0x55; 13]);
        out.resize(builder.frame_bytes(), 0);
        (out, seal)
    }

    #[test]
    fn a_frame_reads_back() {
        let (bytes, seal) = frame();
        let head = FrameHead::parse(&bytes, seal).unwrap();
        assert_eq!((head.id, head.frame_bytes as usize), (ID, bytes.len()));
        let sections: Vec<_> = head
            .sections
            .iter()
            .map(|s| (s.kind, head.section(&bytes, s).unwrap()))
            .collect();
        let want: [(SectionKind, &[u8]); 3] = [
            (SectionKind::Rows, b"some rows"),
            (SectionKind::Edit, b"an edit"),
            (SectionKind::Blocks, &[0x55; 13]),
        ];
        assert_eq!(sections, want);
        assert_eq!(head.needed_bytes() + 16, bytes.len());
    }

    #[test]
    fn golden_bytes() {
        let (bytes, _) = frame();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let golden = include_str!("../tests/golden/frame.hex");
        assert_eq!(hex, golden.split_whitespace().collect::<String>());
    }

    /// A frame with one byte changed and a right checksum.
    fn forged(at: usize, byte: u8) -> Result<FrameHead, NotAFrame> {
        let (mut bytes, seal) = frame();
        bytes[at] = byte;
        let head_bytes = FrameBuilder::sections_offset(3);
        let crc = crc32c::crc32c_append(seal, &bytes[8..head_bytes]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        FrameHead::parse(&bytes, seal)
    }

    #[test]
    fn flags_read_back() {
        for (flags, shown) in [(0, false), (1, true)] {
            assert_eq!(forged(34, flags).unwrap().id.shown_on_write, shown);
        }
    }

    #[test]
    fn what_is_unknown_is_of_a_newer_version() {
        let second = FRAME_HEADER_BYTES + SECTION_ENTRY_BYTES;
        let unknown = [(34, 2), (34, 129), (28, 1), (31, 9), (35, 1), (39, 1)];
        let kinds = [
            (second, 0),
            (second, 10),
            (second, 255),
            (second + 1, 1),
            (second + 3, 7),
        ];
        for (at, byte) in unknown.into_iter().chain(kinds) {
            let read = forged(at, byte);
            assert!(matches!(read, Err(NotAFrame::Newer(_))), "{at}: {read:?}");
            // With a wrong checksum it does not count.
            let (mut bytes, seal) = frame();
            bytes[at] = byte;
            let read = FrameHead::parse(&bytes, seal);
            assert_eq!(read.unwrap_err(), NotAFrame::Invalid("header checksum"));
        }
        // A known kind in a wrong place is damage.
        assert!(matches!(forged(second + 4, 9), Err(NotAFrame::Invalid(_))));
    }

    #[test]
    fn zeros_and_short_bytes_are_no_frame() {
        assert_eq!(
            FrameHead::parse(&[0; 64], 1).unwrap_err(),
            NotAFrame::Invalid("no frame magic")
        );
        let (bytes, seal) = frame();
        assert_eq!(
            FrameHead::parse(&bytes[..10], seal).unwrap_err(),
            NotAFrame::Short(64)
        );
        assert_eq!(
            FrameHead::parse(&bytes[..70], seal).unwrap_err(),
            NotAFrame::Short(64 + 3 * 16)
        );
    }

    /// Of rows whose bytes repeat the magic, each of 24 MiB / 8 places would call for a checksum of up to a megabyte.
    #[test]
    fn rows_that_begin_like_frames_cost_no_checksum() {
        let repeated = |word: [u8; 8]| word.repeat(8);
        let mut magic = [0xff; 8];
        magic[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        let parsed = FrameHead::parse(&repeated(magic), 0).unwrap_err();
        assert_eq!(parsed, NotAFrame::Invalid("too many sections"));
        // Few enough sections, and a frame that is shorter than their table.
        let (mut bytes, seal) = frame();
        bytes[24..28].copy_from_slice(&111_u32.to_le_bytes());
        let parsed = FrameHead::parse(&bytes[..FRAME_HEADER_BYTES], seal).unwrap_err();
        let what = "more sections than the frame has room for";
        assert_eq!(parsed, NotAFrame::Invalid(what));
        // Its first two sections show that it is none: both begin at the same place.
        let (mut bytes, seal) = frame();
        bytes.copy_within(64 + 4..64 + 8, 64 + 16 + 4);
        let parsed = FrameHead::parse(&bytes[..FRAME_HEADER_BYTES + 2 * 16], seal);
        assert_eq!(parsed.unwrap_err(), NotAFrame::Invalid("section table"));
    }

    #[test]
    fn another_place_does_not_verify() {
        let (bytes, _) = frame();
        let at = |segment, offset| LogPosition {
            segment: FileId(segment),
            offset,
        };
        for other in [
            seal(DatabaseId([8; 16]), at(5, 128)),
            seal(DatabaseId([9; 16]), at(6, 128)),
            seal(DatabaseId([9; 16]), at(5, 136)),
        ] {
            assert!(FrameHead::parse(&bytes, other).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(at in 0usize..200, flip in 1u8..) {
            let (mut bytes, seal) = frame();
            let at = at % (bytes.len() - 16); // Blocks and padding after them check themselves.
            bytes[at] ^= flip;
            let noticed = match FrameHead::parse(&bytes, seal) {
                Err(_) => true,
                Ok(head) => head.sections.iter().any(|s| head.section(&bytes, s).is_none())
                    // Padding between sections is not covered by anything and means nothing.
                    || !head.sections.iter().any(|s| (s.offset..s.offset + s.bytes).contains(&len_u32(at))),
            };
            prop_assert!(noticed);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), seal: u32) {
            let _ = FrameHead::parse(&bytes, seal);
        }
    }
}
