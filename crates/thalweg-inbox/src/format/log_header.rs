//! The header of a log of the inbox.

use super::FIRST_FRAME;
use super::fields::{Fault, Fields, Reader, Seal};

/// Bytes of the header that are written; zeros follow up to the first frame.
pub const LOG_HEADER_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"THWINB01";
const VERSION: u32 = 1;
const CRC_AT: usize = 124;

/// The header of a log: the place that it goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The database.
    pub database: [u8; 16],
    /// The number of the log, which its name is as well.
    pub number: u64,
    /// The boot that it was made in.
    pub boot: [u8; 16],
    /// The log before; 0: none.
    pub before: u64,
    /// Where that log ends.
    pub before_end: u64,
    /// The number of the last frame before this log; 0: none.
    pub before_frame: u64,
    /// The checksum of the header of that frame; 0: none.
    pub before_link: u32,
    /// The process that made it, for messages.
    pub process: u32,
    /// The offset after the frames that were copied into it.
    pub copies_end: u64,
}

impl LogHeader {
    /// The bytes of the header, which begins at 0.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_sound(), "a log that nobody would believe: {self:?}");
        let mut fields = Fields::default();
        fields.bytes(&MAGIC).u32(VERSION).u32(0);
        fields
            .bytes(&self.database)
            .u64(self.number)
            .bytes(&self.boot);
        fields.u64(self.before).u64(self.before_end);
        fields.u64(self.before_frame).u32(self.before_link);
        fields.u32(self.process).u64(self.copies_end).zeros(28);
        assert_eq!(fields.0.len(), CRC_AT, "the fields of a log header");
        let crc = self.seal().crc(0, &fields.0);
        fields.u32(crc);
        fields.0
    }

    /// The header of the log of that number, from the first 4,096 bytes of the file.
    ///
    /// # Errors
    /// Bytes that are torn, of another log or database, or of another version.
    pub fn decode(bytes: &[u8], seal: &Seal) -> Result<LogHeader, Fault> {
        let mut fields = Reader::new(bytes);
        if bytes.len() as u64 != FIRST_FRAME || fields.array()? != MAGIC {
            return Err(Fault::Damaged("no header of a log"));
        }
        let stored = Reader::new(&bytes[CRC_AT..]).u32()?;
        if seal.crc(0, &bytes[..CRC_AT]) != stored {
            return Err(Fault::Damaged("a checksum does not match"));
        }
        if fields.u32()? != VERSION || fields.u32()? != 0 {
            return Err(Fault::Unsupported("a version or features of a log"));
        }
        let header = LogHeader {
            database: fields.array()?,
            number: fields.u64()?,
            boot: fields.array()?,
            before: fields.u64()?,
            before_end: fields.u64()?,
            before_frame: fields.u64()?,
            before_link: fields.u32()?,
            process: fields.u32()?,
            copies_end: fields.u64()?,
        };
        fields.reserved(28)?;
        fields.u32()?;
        fields.reserved(bytes.len() - LOG_HEADER_BYTES)?;
        match header.is_sound() && header.seal() == *seal {
            true => Ok(header),
            false => Err(Fault::Damaged("fields that contradict each other")),
        }
    }

    /// The checksum that the first frame of the log names.
    #[must_use]
    pub fn link(&self) -> u32 {
        let bytes = self.encode();
        Reader::new(&bytes[CRC_AT..]).u32().unwrap_or_default()
    }

    /// The seal of what is in the log.
    #[must_use]
    pub fn seal(&self) -> Seal {
        Seal {
            database: self.database,
            log: self.number,
        }
    }

    fn is_sound(&self) -> bool {
        let has_before = self.before > 0 && self.before_end >= FIRST_FRAME;
        let has_none = self.before == 0 && self.before_end == 0;
        self.boot != [0; 16]
            && self.before < self.number
            && (has_before || has_none)
            && self.copies_end >= FIRST_FRAME
            && (self.before_frame > 0 || self.before_link == 0)
    }
}
