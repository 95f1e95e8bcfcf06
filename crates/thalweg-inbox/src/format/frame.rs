//! Frames of the inbox: a header, a table of sections, and the sections.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fields::{Fault, Fields, Reader, Seal};
use super::{LogCommit, Stamp};

/// Bytes of the header of a frame.
pub const FRAME_HEADER_BYTES: usize = 80;
/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"TIFR";
/// Most bytes of a frame.
pub const MAX_FRAME_BYTES: usize = 2 << 20;
/// Most sections of a frame.
pub const MAX_SECTIONS: usize = 2048;
/// Bytes of the head of a GROUP or of an edit that adds fragments.
pub const ADD_HEAD_BYTES: usize = 48;
const ENTRY_BYTES: usize = 16;
const EDIT_ADD: u8 = 5;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// One more than the frame before, across logs.
    pub number: u64,
    /// The stamp of its cells.
    pub stamp: Stamp,
    /// *Seen* of the registry when it was built.
    pub seen: LogCommit,
    /// The checksum of the header of the frame before, or of the log.
    pub before: u32,
    /// Where the write began that it was part of; 0: it was copied when the log was made.
    pub synced_to: u64,
}

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKind {
    /// Blocks of one table, which are in the BLOCKS section of the same rank.
    Group,
    /// The blocks of a GROUP.
    Blocks,
    /// An edit that adds fragments.
    Edit,
}

impl SectionKind {
    const fn number(self) -> u8 {
        match self {
            SectionKind::Group => 2,
            SectionKind::Blocks => 3,
            SectionKind::Edit => 4,
        }
    }

    fn of(number: u8) -> Result<Self, Fault> {
        match number {
            2 => Ok(SectionKind::Group),
            3 => Ok(SectionKind::Blocks),
            4 => Ok(SectionKind::Edit),
            _ => Err(Fault::Unsupported("a kind of section")),
        }
    }
}

/// A section and where it lies in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its kind.
    pub kind: SectionKind,
    /// Its bytes, without padding.
    pub range: Range<usize>,
}

/// The part of an add head that frames of the inbox make use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddHead {
    /// The array.
    pub table: u32,
    /// The version of the definition that the cells were encoded by.
    pub definition: u32,
}

impl AddHead {
    /// Its bytes: order 0, covers nothing, all counts 0.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut fields = Fields::default();
        fields.u32(self.table).u32(0).u32(self.definition);
        fields.zeros(ADD_HEAD_BYTES - 12);
        fields.0
    }

    fn decode(fields: &mut Reader<'_>) -> Result<AddHead, Fault> {
        let (table, order, definition) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.reserved(ADD_HEAD_BYTES - 12)?;
        match order {
            0 => Ok(AddHead { table, definition }),
            _ => Err(Fault::Unsupported("an order beside the rows")),
        }
    }
}

/// Cells of one table in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBody {
    /// Of which table.
    pub head: AddHead,
    /// The entries of the blocks or of the root pages.
    pub list: Vec<u8>,
    /// The blocks; `None`: they are in fragments, which the list names.
    pub blocks: Option<Vec<u8>>,
}

/// The cells of a commit, before it has a stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// In the order of their effect.
    pub bodies: Vec<GroupBody>,
}

impl Draft {
    /// Bytes of the frame that it becomes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        let sections = self.sections();
        let padded = sections
            .iter()
            .map(|(_, bytes)| bytes.len().next_multiple_of(8));
        FRAME_HEADER_BYTES + sections.len() * ENTRY_BYTES + padded.sum::<usize>()
    }

    fn sections(&self) -> Vec<(SectionKind, Vec<u8>)> {
        let named = self.bodies.iter().map(|body| match body.blocks {
            Some(_) => (
                SectionKind::Group,
                [&body.head.encode(), &body.list[..]].concat(),
            ),
            None => (
                SectionKind::Edit,
                [&[EDIT_ADD][..], &body.head.encode(), &body.list].concat(),
            ),
        });
        let blocks = self.bodies.iter().filter_map(|body| body.blocks.clone());
        named
            .chain(blocks.map(|blocks| (SectionKind::Blocks, blocks)))
            .collect()
    }

    /// The frame that lies at `offset` of its log.
    #[must_use]
    pub fn encode(&self, head: &FrameHead, seal: &Seal, offset: u64) -> Vec<u8> {
        let sections = self.sections();
        let length = self.frame_bytes();
        assert!(
            length <= MAX_FRAME_BYTES && sections.len() <= MAX_SECTIONS,
            "a frame too large"
        );
        assert!(
            head.number > 0 && offset.is_multiple_of(8),
            "a frame out of place"
        );
        let mut rest = Fields::default();
        rest.u64(head.number)
            .i64(head.stamp.time)
            .u64(head.stamp.sequence);
        rest.u64(head.seen.commit)
            .u32(head.seen.epoch)
            .u32(head.before);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both are below their limits"
        )]
        rest.u32(length as u32).u16(sections.len() as u16);
        rest.zeros(2).u64(head.synced_to).zeros(16);
        let mut bodies = Fields::default();
        let first = FRAME_HEADER_BYTES + sections.len() * ENTRY_BYTES;
        for (kind, bytes) in &sections {
            let crc = match kind {
                SectionKind::Blocks => 0,
                _ => crc32c::crc32c(bytes),
            };
            #[expect(clippy::cast_possible_truncation, reason = "a frame has 2 MiB")]
            rest.u8(kind.number())
                .zeros(3)
                .u32((first + bodies.0.len()) as u32)
                .u32(bytes.len() as u32)
                .u32(crc);
            bodies.bytes(bytes);
            bodies.zeros(bytes.len().next_multiple_of(8) - bytes.len());
        }
        let crc = seal.crc(offset, &rest.0);
        let mut frame = Fields::default();
        frame
            .bytes(&FRAME_MAGIC)
            .u32(crc)
            .bytes(&rest.0)
            .bytes(&bodies.0);
        assert_eq!(frame.0.len(), length, "the length of a frame");
        frame.0
    }
}

/// A frame whose header, table and sections verify. Blocks carry checksums of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its header.
    pub head: FrameHead,
    /// The checksum of its header, which the next frame names.
    pub link: u32,
    /// Its length.
    pub len_bytes: usize,
    /// Its cells.
    pub draft: Draft,
}

impl Frame {
    /// The frame that `bytes` begin with; they may go on beyond it.
    ///
    /// # Errors
    /// Anything but a frame of this place.
    pub fn decode(bytes: &[u8], seal: &Seal, offset: u64) -> Result<Frame, Fault> {
        let mut fields = Reader::new(bytes);
        if fields.array()? != FRAME_MAGIC {
            return Err(Fault::Damaged("no frame"));
        }
        let link = fields.u32()?;
        let (length, count) = checked_lengths(bytes)?;
        let table_end = FRAME_HEADER_BYTES + count * ENTRY_BYTES;
        if seal.crc(offset, &bytes[8..table_end]) != link {
            return Err(Fault::Damaged("a checksum does not match"));
        }
        let head = decode_head(&mut fields)?;
        let sections = decode_table(&mut fields, &bytes[..length], count)?;
        let draft = decode_sections(&bytes[..length], &sections)?;
        Ok(Frame {
            head,
            link,
            len_bytes: length,
            draft,
        })
    }

    /// The tables of its groups.
    #[must_use]
    pub fn tables(&self) -> BTreeSet<u32> {
        self.draft
            .bodies
            .iter()
            .map(|body| body.head.table)
            .collect()
    }

    /// Its cells of one table.
    pub fn group(&self, table: u32) -> impl Iterator<Item = &GroupBody> {
        self.draft
            .bodies
            .iter()
            .filter(move |body| body.head.table == table)
    }
}

/// Length and number of sections, before their checksum is known to match.
fn checked_lengths(bytes: &[u8]) -> Result<(usize, usize), Fault> {
    let header = bytes
        .get(..FRAME_HEADER_BYTES)
        .ok_or(Fault::Damaged("it ends too early"))?;
    let mut fields = Reader::new(&header[48..]);
    let length = usize::try_from(fields.u32()?).unwrap_or(usize::MAX);
    let count = usize::from(fields.u16()?);
    let table_end = FRAME_HEADER_BYTES + count * ENTRY_BYTES;
    let is_sound = (table_end..=MAX_FRAME_BYTES.min(bytes.len())).contains(&length);
    match is_sound && length.is_multiple_of(8) && count <= MAX_SECTIONS {
        true => Ok((length, count)),
        false => Err(Fault::Damaged("a length that no frame has")),
    }
}

fn decode_head(fields: &mut Reader<'_>) -> Result<FrameHead, Fault> {
    let number = fields.u64()?;
    let (time, sequence) = (fields.i64()?, fields.u64()?);
    let (commit, epoch) = (fields.u64()?, fields.u32()?);
    let before = fields.u32()?;
    let (_, _) = (fields.u32()?, fields.u16()?);
    fields.reserved(2)?;
    let synced_to = fields.u64()?;
    fields.reserved(16)?;
    if number == 0 {
        return Err(Fault::Damaged("a frame without a number"));
    }
    Ok(FrameHead {
        number,
        stamp: Stamp { time, sequence },
        seen: LogCommit { epoch, commit },
        before,
        synced_to,
    })
}

fn decode_table(
    fields: &mut Reader<'_>,
    frame: &[u8],
    count: usize,
) -> Result<Vec<Section>, Fault> {
    let mut sections = Vec::with_capacity(count);
    let mut next = FRAME_HEADER_BYTES + count * ENTRY_BYTES;
    for _ in 0..count {
        let kind = SectionKind::of(fields.u8()?)?;
        fields.reserved(3)?;
        let (at, bytes, crc) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let end = next.saturating_add(bytes);
        let section = frame
            .get(next..end)
            .filter(|_| usize::try_from(at) == Ok(next))
            .ok_or(Fault::Damaged("a section out of place"))?;
        let is_sound = match kind {
            SectionKind::Blocks => crc == 0,
            _ => crc == crc32c::crc32c(section),
        };
        if !is_sound {
            return Err(Fault::Damaged("a checksum of a section does not match"));
        }
        sections.push(Section {
            kind,
            range: next..end,
        });
        next = end.next_multiple_of(8);
        let padding = frame
            .get(end..next)
            .ok_or(Fault::Damaged("a section out of place"))?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Fault::Damaged("padding that is not zero"));
        }
    }
    match next == frame.len() {
        true => Ok(sections),
        false => Err(Fault::Damaged("bytes that belong to no section")),
    }
}

fn decode_sections(frame: &[u8], sections: &[Section]) -> Result<Draft, Fault> {
    let is_blocks = |section: &&Section| section.kind == SectionKind::Blocks;
    let groups = sections.iter().filter(|s| s.kind == SectionKind::Group);
    let named = sections.iter().take_while(|section| !is_blocks(section));
    let mut blocks = sections.iter().skip_while(|section| !is_blocks(section));
    let count = groups.count();
    if count != sections.iter().filter(is_blocks).count() || named.count() + count != sections.len()
    {
        return Err(Fault::Damaged(
            "groups and blocks that do not belong together",
        ));
    }
    let mut draft = Draft::default();
    for section in sections.iter().take_while(|section| !is_blocks(section)) {
        let mut fields = Reader::new(&frame[section.range.clone()]);
        if section.kind == SectionKind::Edit && fields.u8()? != EDIT_ADD {
            return Err(Fault::Unsupported("an edit that no array process makes"));
        }
        let head = AddHead::decode(&mut fields)?;
        let list = frame[section.range.end - fields.left_bytes()..section.range.end].to_vec();
        let of_group = match section.kind {
            SectionKind::Group => blocks.next().map(|s| frame[s.range.clone()].to_vec()),
            _ => None,
        };
        draft.bodies.push(GroupBody {
            head,
            list,
            blocks: of_group,
        });
    }
    Ok(draft)
}
