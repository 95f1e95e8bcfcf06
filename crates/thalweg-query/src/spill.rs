//! Temporary files of statements that need more memory than they may take.
//!
//! Invariant: the files have no name, so nothing of them is left however the process ends.
//!
//! Rejected: the files of DataFusion. They are removed when the last result that needs them is dropped, which an interpreter that
//! ends need not do.

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, stream};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::beyond_standard_streams;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 128 << 10;

/// Makes files without a name in the folder for temporary files. They never get the descriptor of a standard stream: nothing checks
/// their bytes, and a message that a library writes to the standard error must not get into them.
#[derive(Debug)]
pub(crate) struct UnnamedFiles;

/// A file without a name, and how much was written to it.
#[derive(Clone)]
struct UnnamedFile {
    file: Arc<File>,
    written_bytes: Arc<AtomicU64>,
}

impl TempFileFactory for UnnamedFiles {
    fn create_temp_file(&self, _for_what: &str) -> Result<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile().and_then(beyond_standard_streams);
        let file = file.map_err(|e| {
            DataFusionError::IoError(explained("no temporary file can be made", &e))
        })?;
        Ok(Arc::new(UnnamedFile {
            file: Arc::new(file),
            written_bytes: Arc::default(),
        }))
    }
}

impl SpillFile for UnnamedFile {
    fn size(&self) -> Option<u64> {
        Some(self.written_bytes.load(Ordering::Relaxed))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let file = Arc::clone(&self.file);
        let from_start = stream::try_unfold(0, move |offset| {
            let read = read_at(&file, offset);
            async move { Ok(read?.map(|bytes| (bytes.clone(), offset + bytes.len() as u64))) }
        });
        Ok(Box::pin(from_start))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(self.clone()))
    }
}

/// An error with what led to temporary files and where they are.
fn explained(what: &str, error: &io::Error) -> io::Error {
    let folder = std::env::temp_dir();
    let message = format!(
        "a statement needs more memory than `memory_limit` lets it take, and {what} in {}: {error}",
        folder.display()
    );
    io::Error::new(error.kind(), message)
}

/// Reads some bytes; `None` at the end.
fn read_at(file: &File, offset: u64) -> io::Result<Option<Bytes>> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match file.read_at(&mut bytes, offset) {
            Ok(0) => return Ok(None),
            Ok(read) => {
                bytes.truncate(read);
                return Ok(Some(bytes.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(explained("a temporary file cannot be read", &error)),
        }
    }
}

impl Write for UnnamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&*self.file)
            .write(bytes)
            .map_err(|error| match error.kind() {
                // The caller tries again.
                io::ErrorKind::Interrupted => error,
                _ => explained("a temporary file cannot be written", &error),
            })?;
        self.written_bytes
            .fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for UnnamedFile {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
