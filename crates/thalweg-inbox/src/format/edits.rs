//! Edit 15 of the log of the database: moves the position of the inbox, stamps a commit, or raises a floor.

use super::fields::{Fault, Fields, Reader};
use super::part::{MAX_HELD, Position};

const EDIT_INBOX: u8 = 15;
const ADOPT: u8 = 1;
const STAMP: u8 = 2;
const FLOOR: u8 = 3;
const RELEASED: u32 = 1;
const HELD_BYTES: usize = 32;

/// All sections that one frame has of one table, passed by the position and not in the log yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldGroup {
    /// The number of the frame.
    pub frame: u64,
    /// The table.
    pub table: u32,
    /// The log that the frame is in.
    pub log: u64,
    /// The offset of the frame in it.
    pub offset: u64,
    /// Whether an *adopt* releases it; in a state no group is.
    pub is_released: bool,
}

impl HeldGroup {
    pub(super) fn encode(&self, fields: &mut Fields) {
        fields.u64(self.frame).u64(self.log).u64(self.offset);
        fields.u32(self.table);
        fields.u32(u32::from(self.is_released) * RELEASED);
    }

    pub(super) fn decode(fields: &mut Reader<'_>) -> Result<HeldGroup, Fault> {
        let (frame, log, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (table, flags) = (fields.u32()?, fields.u32()?);
        match flags & !RELEASED {
            0 => Ok(HeldGroup {
                frame,
                table,
                log,
                offset,
                is_released: flags & RELEASED != 0,
            }),
            _ => Err(Fault::Unsupported("flags of a held group")),
        }
    }
}

/// Groups, their number first, ascending by frame and table.
pub(super) fn decode_groups(fields: &mut Reader<'_>, count: u32) -> Result<Vec<HeldGroup>, Fault> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > MAX_HELD || fields.left_bytes() < count * HELD_BYTES {
        return Err(Fault::Damaged("more held groups than there may be"));
    }
    let mut groups: Vec<HeldGroup> = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(HeldGroup::decode(fields)?);
    }
    let ascends =
        |pair: &[HeldGroup]| (pair[0].frame, pair[0].table) < (pair[1].frame, pair[1].table);
    match groups.windows(2).all(ascends) {
        true => Ok(groups),
        false => Err(Fault::Damaged("held groups that do not ascend")),
    }
}

/// Moves the position past frames, whose cells are in the same commit or are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// The number of the last frame adopted before.
    pub before: u64,
    /// The position after it.
    pub position: Position,
    /// The highest sequence among those adopted.
    pub sequence: u64,
    /// The newest time of a stamp among those adopted.
    pub newest_time: i64,
    /// Held by it, or released.
    pub groups: Vec<HeldGroup>,
}

/// Keeps later commits with a given time above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The array.
    pub table: u32,
    /// Reads and writes at or below it are refused.
    pub time: i64,
}

/// An edit of kind 15.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Action 1.
    Adopt(Adopt),
    /// Action 2: the stamp of the cells of the commit.
    Stamp(super::Stamp),
    /// Action 3.
    Floor(Floor),
}

impl Edit {
    /// The bytes of the section, its kind first.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Fields::default();
        fields.u8(EDIT_INBOX);
        match self {
            Edit::Adopt(adopt) => encode_adopt(adopt, &mut fields),
            Edit::Stamp(stamp) => {
                fields
                    .u8(STAMP)
                    .zeros(3)
                    .i64(stamp.time)
                    .u64(stamp.sequence);
            }
            Edit::Floor(floor) => {
                fields.u8(FLOOR).zeros(3).u32(floor.table).i64(floor.time);
            }
        }
        fields.0
    }

    /// The edit of a section.
    ///
    /// # Errors
    /// Bytes that are no such edit.
    pub fn decode(bytes: &[u8]) -> Result<Edit, Fault> {
        let mut fields = Reader::new(bytes);
        if fields.u8()? != EDIT_INBOX {
            return Err(Fault::Unsupported("an edit of another kind"));
        }
        let action = fields.u8()?;
        if !(ADOPT..=FLOOR).contains(&action) {
            return Err(Fault::Unsupported("an action of the inbox"));
        }
        fields.reserved(3)?;
        let edit = match action {
            ADOPT => Edit::Adopt(decode_adopt(&mut fields)?),
            STAMP => Edit::Stamp(super::Stamp {
                time: fields.i64()?,
                sequence: fields.u64()?,
            }),
            _ => Edit::Floor(Floor {
                table: fields.u32()?,
                time: fields.i64()?,
            }),
        };
        fields.end().map(|()| edit)
    }
}

fn encode_adopt(adopt: &Adopt, fields: &mut Fields) {
    assert!(
        adopt.groups.len() <= MAX_HELD,
        "more held groups than a state may have"
    );
    fields.u8(ADOPT).zeros(3).u64(adopt.before);
    fields.u64(adopt.position.frame).u64(adopt.position.log);
    fields.u64(adopt.position.offset).u64(adopt.sequence);
    fields.u32(adopt.position.link);
    fields.u32(u32::try_from(adopt.groups.len()).unwrap_or(u32::MAX));
    fields.i64(adopt.newest_time);
    adopt.groups.iter().for_each(|group| group.encode(fields));
}

fn decode_adopt(fields: &mut Reader<'_>) -> Result<Adopt, Fault> {
    let before = fields.u64()?;
    let (frame, log, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let sequence = fields.u64()?;
    let (link, count) = (fields.u32()?, fields.u32()?);
    let newest_time = fields.i64()?;
    let groups = decode_groups(fields, count)?;
    Ok(Adopt {
        before,
        position: Position {
            frame,
            log,
            offset,
            link,
        },
        sequence,
        newest_time,
        groups,
    })
}
