//! The registry: two halves in one file, of which the one that counts is never overwritten.

use std::path::Path;
use std::sync::Arc;

use thalweg_env::{Env, File, OpenMode};

use crate::error::{Error, Result};
use crate::format::{Fault, HALF_BYTES, Half, Seal};

/// The bytes of both halves.
const REGISTRY_BYTES: usize = 2 * HALF_BYTES;

/// Both halves as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    halves: [Option<Half>; 2],
}

impl Seen {
    /// The halves that verify.
    pub(crate) fn halves(&self) -> impl Iterator<Item = &Half> {
        self.halves.iter().flatten()
    }

    fn counting(&self, boot: [u8; 16]) -> Option<usize> {
        let rank = |at: &usize| self.halves[*at].map(|half| (half.boot == boot, half.change));
        let found = (0..2).filter(|at| self.halves[*at].is_some());
        found.max_by_key(rank)
    }

    /// The half that counts, if it is of this boot.
    pub(crate) fn current(&self, boot: [u8; 16]) -> Option<Half> {
        let half = self.halves[self.counting(boot)?]?;
        (half.boot == boot).then_some(half)
    }

    /// The process that wrote last, as far as is known.
    pub(crate) fn process(&self, boot: [u8; 16]) -> u32 {
        let counting = self.counting(boot).and_then(|at| self.halves[at]);
        counting.map_or(0, |half| half.process)
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Nothing: it was closed.
    file: Option<Arc<dyn File>>,
    seal: Seal,
}

impl Registry {
    pub(crate) fn open(env: &Env, path: &Path, database: [u8; 16]) -> Result<Registry> {
        let opened = env.storage().open(path, OpenMode::ReadWrite);
        Ok(Registry {
            file: Some(opened.map_err(Error::io("inbox/registry"))?),
            seal: Seal { database, log: 0 },
        })
    }

    /// The handle that all locks are taken through.
    pub(crate) fn file(&self) -> Result<&Arc<dyn File>> {
        self.file.as_ref().ok_or(Error::Closed)
    }

    /// Lets go of all locks.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Both halves. Where one of them does not verify, they are read again until they are the same twice: somebody may be
    /// writing.
    pub(crate) fn read(&self) -> Result<Seen> {
        let mut before: Option<Vec<u8>> = None;
        loop {
            let bytes = self.read_bytes()?;
            let halves = [self.decode(&bytes, 0)?, self.decode(&bytes, 1)?];
            let is_blank = bytes.iter().all(|&byte| byte == 0);
            let seen = Seen { halves };
            if halves.iter().all(Option::is_some) || is_blank || before.as_ref() == Some(&bytes) {
                return Ok(seen);
            }
            // A registry that was never written twice has one half.
            let half = |at: usize| &bytes[at * HALF_BYTES..(at + 1) * HALF_BYTES];
            let is_zero = |at: usize| half(at).iter().all(|&byte| byte == 0);
            if (0..2).all(|at| halves[at].is_some() || is_zero(at)) {
                return Ok(seen);
            }
            before = Some(bytes);
        }
    }

    fn read_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; REGISTRY_BYTES];
        let read = self.file()?.read_exact_at(&mut bytes, 0);
        match read {
            Ok(()) => Ok(bytes),
            Err(error) if thalweg_env::is_unreadable(&error) => self.read_by_halves(),
            Err(error) => Err(Error::io("inbox/registry")(error)),
        }
    }

    /// A half that cannot be read is as one that does not verify.
    fn read_by_halves(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0xFF; REGISTRY_BYTES];
        for (at, half) in bytes.chunks_mut(HALF_BYTES).enumerate() {
            match self.file()?.read_exact_at(half, (at * HALF_BYTES) as u64) {
                Err(error) if thalweg_env::is_unreadable(&error) => half.fill(0xFF),
                read => read.map_err(Error::io("inbox/registry"))?,
            }
        }
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], at: usize) -> Result<Option<Half>> {
        let half = &bytes[at * HALF_BYTES..(at + 1) * HALF_BYTES];
        match Half::decode(half, &self.seal, (at * HALF_BYTES) as u64) {
            Ok(half) => Ok(Some(half)),
            Err(Fault::Damaged(_)) => Ok(None),
            Err(fault) => Err(Error::of(fault, "inbox/registry")),
        }
    }

    /// Writes the half that does not count. The commit lock is held.
    pub(crate) fn write(&self, seen: &mut Seen, half: Half) -> Result<()> {
        let at = match seen.counting(half.boot) {
            Some(counting) => 1 - counting,
            None => 0,
        };
        let offset = (at * HALF_BYTES) as u64;
        let bytes = half.encode(&self.seal, offset);
        // Torn or not, it is not what it was.
        seen.halves[at] = None;
        let written = self.file()?.write_all_at(&bytes, offset);
        written.map_err(Error::io("inbox/registry"))?;
        seen.halves[at] = Some(half);
        Ok(())
    }
}
