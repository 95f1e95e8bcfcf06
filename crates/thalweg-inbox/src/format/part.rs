//! The inbox in a state of the log: part 3 of a checkpoint, and the effect of each edit on it.

use std::collections::BTreeMap;

use super::Stamp;
use super::edits::{Adopt, Floor};
use super::fields::{Fault, Fields, Reader};
use super::position::{HeldGroup, MAX_HELD, Position, decode_groups};

/// The inbox as one state of the log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InboxState {
    /// The highest sequence and the newest time of a stamp; they need not be of one stamp.
    pub newest: Stamp,
    /// Frames up to it are in the log, or held.
    pub position: Position,
    /// By array.
    pub floors: BTreeMap<u32, i64>,
    /// By frame and table.
    pub held: BTreeMap<(u64, u32), HeldGroup>,
}

impl InboxState {
    /// Part 3 of a checkpoint.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.held.len() <= MAX_HELD,
            "more held groups than a state may have"
        );
        let mut fields = Fields::default();
        fields.u64(self.newest.sequence).i64(self.newest.time);
        fields.u64(self.position.frame).u64(self.position.log);
        fields
            .u64(self.position.offset)
            .u32(self.position.link)
            .zeros(4);
        fields
            .u32(u32::try_from(self.floors.len()).unwrap_or(u32::MAX))
            .zeros(4);
        for (table, time) in &self.floors {
            fields.u32(*table).zeros(4).i64(*time);
        }
        fields
            .u32(u32::try_from(self.held.len()).unwrap_or(u32::MAX))
            .zeros(4);
        self.held
            .values()
            .for_each(|group| group.encode(&mut fields));
        fields.0
    }

    /// The state of part 3 of a checkpoint.
    ///
    /// # Errors
    /// Bytes that are no such part.
    pub fn decode(bytes: &[u8]) -> Result<InboxState, Fault> {
        let mut fields = Reader::new(bytes);
        let (sequence, time) = (fields.u64()?, fields.i64()?);
        let position = Position {
            frame: fields.u64()?,
            log: fields.u64()?,
            offset: fields.u64()?,
            link: fields.u32()?,
        };
        fields.reserved(4)?;
        let floors = decode_floors(&mut fields)?;
        let count = fields.u32()?;
        fields.reserved(4)?;
        let groups = decode_groups(&mut fields, count)?;
        fields.end()?;
        let is_held = |group: &HeldGroup| group.frame <= position.frame && !group.is_released;
        if !groups.iter().all(is_held) || (position.frame == 0 && position != Position::default()) {
            return Err(Fault::Damaged(
                "a position and held groups that contradict each other",
            ));
        }
        let keyed = |group: HeldGroup| ((group.frame, group.table), group);
        Ok(InboxState {
            newest: Stamp { time, sequence },
            position,
            floors,
            held: groups.into_iter().map(keyed).collect(),
        })
    }

    /// Takes frames over.
    ///
    /// # Errors
    /// An *adopt* that was built for another state.
    pub fn adopt(&mut self, adopt: &Adopt) -> Result<(), Fault> {
        if adopt.before != self.position.frame || adopt.position.frame < adopt.before {
            return Err(Fault::Damaged(
                "an adopt that does not continue the position",
            ));
        }
        for group in &adopt.groups {
            let key = (group.frame, group.table);
            let is_new = (adopt.before + 1..=adopt.position.frame).contains(&group.frame);
            let fits = match group.is_released {
                true => self.held.remove(&key).is_some(),
                false => is_new && self.held.insert(key, *group).is_none(),
            };
            if !fits {
                return Err(Fault::Damaged(
                    "a held group that is not there, or there twice",
                ));
            }
        }
        if self.held.len() > MAX_HELD {
            return Err(Fault::Damaged("more held groups than there may be"));
        }
        self.position = adopt.position;
        self.newest.sequence = self.newest.sequence.max(adopt.sequence);
        self.newest.time = self.newest.time.max(adopt.newest_time);
        Ok(())
    }

    /// Stamps the cells of a commit.
    ///
    /// # Errors
    /// A sequence that is not above all before.
    pub fn stamp(&mut self, stamp: Stamp) -> Result<(), Fault> {
        if stamp.sequence <= self.newest.sequence {
            return Err(Fault::Damaged("a stamp that does not rise"));
        }
        self.newest.sequence = stamp.sequence;
        self.newest.time = self.newest.time.max(stamp.time);
        Ok(())
    }

    /// Raises the floor of an array; it never falls.
    pub fn raise_floor(&mut self, floor: Floor) {
        let known = self.floors.entry(floor.table).or_insert(floor.time);
        *known = floor.time.max(*known);
    }

    /// Forgets a table that was dropped.
    pub fn drop_table(&mut self, table: u32) {
        self.floors.remove(&table);
        self.held.retain(|(_, of), _| *of != table);
    }
}

fn decode_floors(fields: &mut Reader<'_>) -> Result<BTreeMap<u32, i64>, Fault> {
    let count = fields.u32()?;
    fields.reserved(4)?;
    let mut floors = BTreeMap::new();
    for _ in 0..count {
        let table = fields.u32()?;
        fields.reserved(4)?;
        let time = fields.i64()?;
        if floors
            .last_key_value()
            .is_some_and(|(last, _)| *last >= table)
        {
            return Err(Fault::Damaged("floors that do not ascend"));
        }
        floors.insert(table, time);
    }
    Ok(floors)
}
