//! Edit 15 of the log of the database: moves the position of the inbox, stamps a commit, or raises a floor.

use super::fields::{Fault, Fields, Reader};
use super::position::{HeldGroup, MAX_HELD, Position, decode_groups};

const EDIT_INBOX: u8 = 15;
const ADOPT: u8 = 1;
const STAMP: u8 = 2;
const FLOOR: u8 = 3;

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
