//! Where the bytes of an import come from: a file, standard input or memory, packed or not.
//!
//! Packing is told by the first bytes, not by the name: standard input has none.

use crate::arguments::{FileFormat, ImportOptions};
use crate::failure::Failure;
use crate::{files, progress};
use indicatif::ProgressBar;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const PARQUET_MAGIC: &[u8] = b"PAR1";
const ARROW_MAGIC: &[u8] = b"ARROW1";
/// Windows of packed files may not take more memory than this: 128 MiB, the tool's own limit.
const ZSTD_WINDOW_LOG: u32 = 27;
const BUFFER_BYTES: usize = 1 << 20;

/// Unpacked bytes.
pub(super) struct Source {
    pub(super) reader: Box<dyn BufRead>,
    pub(super) format: FileFormat,
    /// For messages.
    pub(super) name: String,
    /// Fields are separated by tabs, as the name says.
    pub(super) is_tsv: bool,
    pub(super) bar: ProgressBar,
}

impl Source {
    /// A file, or standard input for `-`.
    pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let bar = progress::bytes("import", None);
            return Self::unpack(
                Box::new(bar.wrap_read(std::io::stdin())),
                "standard input".into(),
                bar,
                options,
            );
        }
        if options
            .rejects
            .as_deref()
            .is_some_and(|rejects| files::are_same(path, rejects))
        {
            return Err(Failure::usage(
                "--rejects names the file that is imported, which it would empty",
            ));
        }
        let file = files::open(path)?;
        // Of a pipe nobody knows the length.
        let length = file
            .metadata()
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map(|found| found.len());
        let bar = progress::bytes("import", length);
        Self::unpack(
            Box::new(bar.wrap_read(file)),
            path.display().to_string(),
            bar,
            options,
        )
    }

    /// Bytes in memory.
    pub(super) fn of_bytes(bytes: &'static [u8], options: &ImportOptions) -> Result<Self, Failure> {
        Self::unpack(
            Box::new(Cursor::new(bytes)),
            "the sample".into(),
            ProgressBar::hidden(),
            options,
        )
    }

    fn unpack(
        packed: Box<dyn Read>,
        name: String,
        bar: ProgressBar,
        options: &ImportOptions,
    ) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| Failure::Other(format!("reading {name}: {error}"));
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, packed);
        let magic = packed.fill_buf().map_err(fail)?;
        let mut reader: Box<dyn BufRead> = if magic.starts_with(GZIP_MAGIC) {
            let unpacked = flate2::bufread::MultiGzDecoder::new(packed);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else if magic.starts_with(ZSTD_MAGIC) {
            let mut unpacked = zstd::Decoder::with_buffer(packed).map_err(fail)?;
            unpacked.window_log_max(ZSTD_WINDOW_LOG).map_err(fail)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(packed)
        };
        let start = reader.fill_buf().map_err(fail)?;
        let by_name = Format::of_name(&name);
        let format = if start.starts_with(PARQUET_MAGIC) {
            FileFormat::Parquet
        } else if start.starts_with(ARROW_MAGIC) {
            FileFormat::Arrow
        } else {
            options.format.unwrap_or(by_name.format)
        };
        match format {
            FileFormat::Parquet => return Err(Failure::unsupported("the import of Parquet")),
            FileFormat::Arrow => return Err(Failure::unsupported("the import of Arrow IPC")),
            FileFormat::Csv | FileFormat::Json => {}
        }
        Ok(Self {
            reader,
            format,
            name,
            is_tsv: by_name.is_tsv,
            bar,
        })
    }
}

/// What the name of a file says of it.
struct Format {
    format: FileFormat,
    is_tsv: bool,
}

impl Format {
    fn of_name(name: &str) -> Self {
        let name = name.to_lowercase();
        let inner = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        let ends = |endings: &[&str]| endings.iter().any(|ending| inner.ends_with(ending));
        let format = match () {
            () if ends(&[".json", ".jsonl", ".ndjson"]) => FileFormat::Json,
            () if ends(&[".parquet"]) => FileFormat::Parquet,
            () if ends(&[".arrow", ".arrows", ".feather", ".ipc"]) => FileFormat::Arrow,
            () => FileFormat::Csv,
        };
        Self {
            format,
            is_tsv: ends(&[".tsv"]),
        }
    }
}
