//! A half of the registry.

use super::fields::{Fault, Fields, Reader, Seal};
use super::{FIRST_FRAME, LogCommit, Stamp};

/// Bytes of a half.
pub const HALF_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"THWINBR1";
const CRC_AT: usize = 124;
const ENDED: u8 = 1;
const APPENDING: u8 = 2;

/// The state that processes share: which frames may be shown, and which bounds the next commit has to be above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// The boot that it was written in.
    pub boot: [u8; 16],
    /// Of two halves of one boot, the one with the higher change counts.
    pub change: u64,
    /// The log in use; 0: there is none.
    pub log: u64,
    /// The offset after the last frame that may be shown.
    pub visible: u64,
    /// The number of that frame, in whichever log.
    pub last_frame: u64,
    /// The highest sequence and the newest time of a stamp; they need not be of one stamp.
    pub bound: Stamp,
    /// A log commit not below any that a commit of cells may have seen.
    pub seen: LogCommit,
    /// The checksum of the header of the last frame of the log, or of the header of the log.
    pub link: u32,
    /// The offset up to which the log is filled with zeros and synced.
    pub prepared: u64,
    /// The log commit that whoever commits cells must know.
    pub required: LogCommit,
    /// The log was made in another boot: nothing is appended to it any more.
    pub is_ended: bool,
    /// There may be frames after `visible`.
    pub is_appending: bool,
    /// The process that wrote it, for messages.
    pub process: u32,
}

impl Half {
    /// The bytes of the half that begins at `offset` of the registry.
    #[must_use]
    pub fn encode(&self, seal: &Seal, offset: u64) -> Vec<u8> {
        assert!(
            self.is_sound(),
            "a registry that nobody would believe: {self:?}"
        );
        let flags = u8::from(self.is_ended) * ENDED + u8::from(self.is_appending) * APPENDING;
        let mut fields = Fields::default();
        fields.bytes(&MAGIC).bytes(&self.boot).u64(self.change);
        fields.u64(self.log).u64(self.visible).u64(self.last_frame);
        fields.u64(self.bound.sequence).i64(self.bound.time);
        fields.u64(self.seen.commit).u32(self.seen.epoch);
        fields.u32(self.link).u64(self.prepared);
        fields.u64(self.required.commit).u32(self.required.epoch);
        fields.u8(flags).zeros(3).u32(self.process).zeros(8);
        assert_eq!(fields.0.len(), CRC_AT, "the fields of a half");
        let crc = seal.crc(offset, &fields.0);
        fields.u32(crc).zeros(HALF_BYTES - CRC_AT - 4);
        fields.0
    }

    /// The half that begins at `offset` of the registry.
    ///
    /// # Errors
    /// Bytes that are torn, of another place, or of another version.
    pub fn decode(bytes: &[u8], seal: &Seal, offset: u64) -> Result<Half, Fault> {
        let mut fields = Reader::new(bytes);
        if bytes.len() != HALF_BYTES || fields.array()? != MAGIC {
            return Err(Fault::Damaged("no half of a registry"));
        }
        let stored = Reader::new(&bytes[CRC_AT..]).u32()?;
        if seal.crc(offset, &bytes[..CRC_AT]) != stored {
            return Err(Fault::Damaged("a checksum does not match"));
        }
        let half = decode_fields(&mut fields)?;
        fields.u32()?;
        fields.reserved(HALF_BYTES - CRC_AT - 4)?;
        match half.is_sound() {
            true => Ok(half),
            false => Err(Fault::Damaged("fields that contradict each other")),
        }
    }

    fn is_sound(&self) -> bool {
        let is_log = self.log > 0 && self.visible >= FIRST_FRAME && self.prepared >= self.visible;
        let is_none = self.log == 0 && self.visible == FIRST_FRAME && self.prepared == FIRST_FRAME;
        self.boot != [0; 16] && (is_log || is_none) && self.visible.is_multiple_of(8)
    }
}

fn decode_fields(fields: &mut Reader<'_>) -> Result<Half, Fault> {
    let boot = fields.array()?;
    let change = fields.u64()?;
    let (log, visible, last_frame) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (sequence, time) = (fields.u64()?, fields.i64()?);
    let (commit, epoch) = (fields.u64()?, fields.u32()?);
    let (link, prepared) = (fields.u32()?, fields.u64()?);
    let (required, required_epoch) = (fields.u64()?, fields.u32()?);
    let flags = fields.u8()?;
    fields.reserved(3)?;
    let process = fields.u32()?;
    fields.reserved(8)?;
    if flags & !(ENDED | APPENDING) != 0 {
        return Err(Fault::Unsupported("flags of a registry"));
    }
    Ok(Half {
        boot,
        change,
        log,
        visible,
        last_frame,
        bound: Stamp { time, sequence },
        seen: LogCommit { epoch, commit },
        link,
        prepared,
        required: LogCommit {
            epoch: required_epoch,
            commit: required,
        },
        is_ended: flags & ENDED != 0,
        is_appending: flags & APPENDING != 0,
        process,
    })
}
