//! Reading and writing of fields, one after the other, and sealed checksums.

/// Why bytes cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They break a rule that all versions have.
    Damaged(&'static str),
    /// Another version of Thalweg wrote them, with something that this one does not know.
    Unsupported(&'static str),
}

/// Whose structure it is: part of each checksum, and stored nowhere beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The database.
    pub database: [u8; 16],
    /// The log; 0 for the registry.
    pub log: u64,
}

impl Seal {
    /// The checksum of `bytes` of a structure that begins at `offset` of the file.
    #[must_use]
    pub fn crc(&self, offset: u64, bytes: &[u8]) -> u32 {
        let mut identity = [0; 32];
        identity[..16].copy_from_slice(&self.database);
        identity[16..24].copy_from_slice(&self.log.to_le_bytes());
        identity[24..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&identity), bytes)
    }
}

/// A cursor over bytes from a file.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(super) fn left_bytes(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Fault::Damaged("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_le_bytes)
    }

    /// Bytes that are zero in this version, and may mean something in a newer one.
    pub(super) fn reserved(&mut self, bytes: usize) -> Result<(), Fault> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(Fault::Damaged("it ends too early"))?;
        self.rest = rest;
        match taken.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(Fault::Unsupported("reserved bytes that are not zero")),
        }
    }

    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(Fault::Damaged("bytes follow its end")),
        }
    }
}

/// Bytes that are written one field after the other.
#[derive(Debug, Default)]
pub(super) struct Fields(pub(super) Vec<u8>);

impl Fields {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn zeros(&mut self, bytes: usize) -> &mut Self {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }
}
