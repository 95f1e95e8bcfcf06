//! How far the log has taken frames over: a position, and the groups before it that are held back.
//!
//! Invariant: held groups ascend by frame and table, and there are at most [`MAX_HELD`].

use super::fields::{Fault, Fields, Reader};

const RELEASED: u32 = 1;
const HELD_BYTES: usize = 32;

/// Most held groups of a state.
pub const MAX_HELD: usize = 65_536;

/// The last frame that the log has taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Its number; 0: none.
    pub frame: u64,
    /// The log that it is in.
    pub log: u64,
    /// The offset after it.
    pub offset: u64,
    /// The checksum of its header.
    pub link: u32,
}

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
