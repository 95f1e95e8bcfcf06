//! Where the bytes of an import come from: a file, standard input or memory, compressed or not.
//!
//! Invariants
//! - Compression is detected by the first bytes, not by the name: standard input has none.
//! - Every input can be read again from its start: what is no file is copied to one first.

use super::advice::word;
use crate::arguments::{FileFormat, ImportOptions};
use crate::failure::Failure;
use crate::{files, progress};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;
use thalweg::{Error, ErrorKind};

const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// The byte order mark of UTF-8, which some programs put at the beginning of files.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";
/// Byte order marks of UTF-16.
const UTF_16_MARKS: [&[u8]; 2] = [b"\xFF\xFE", b"\xFE\xFF"];
/// Zip, which files of office programs are.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// Packings that are not read, and what begins with them.
const FOREIGN_MAGIC: [(&[u8], &str, &str); 5] = [
    (b"\xFD7zXZ\x00", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"7z\xBC\xAF\x27\x1C", "7z", "7z x -so"),
    (b"\x04\x22\x4D\x18", "lz4", "lz4 -dc"),
    (b"\x1F\x9D", "compress", "zcat"),
];
/// The mark in the head of a tar archive, after the name of its first file and more.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
const ARROW_MAGIC: &[u8] = b"ARROW1";
/// Windows of packed files may not take more memory than this: 128 MiB, the tool's own limit.
const ZSTD_WINDOW_LOG: u32 = 27;
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes that can be read from their start as often as needed.
pub(super) struct Input {
    bytes: Bytes,
    /// For messages.
    pub(super) name: String,
    /// The name of the file without folders and endings; `None` of what is no file.
    pub(super) stem: Option<String>,
}

enum Bytes {
    File(File),
    Memory(&'static [u8]),
}

impl Input {
    /// A file, or standard input for `-`.
    pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Self::copied(&mut io::stdin(), "standard input", None);
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
        let name = path.display().to_string();
        if files::is_folder(path) {
            let folder = word(name.trim_end_matches(std::path::MAIN_SEPARATOR));
            return Err(Failure::Other(format!(
                "{name} is a folder, not a file: thalweg import DATABASE {folder}/*.csv --table TABLE imports all files in it that end so"
            )));
        }
        let mut file = files::open(path)?;
        if file.metadata().is_ok_and(|found| !found.is_file()) {
            return Self::copied(&mut file, &name, stem_of(path));
        }
        Ok(Self {
            bytes: Bytes::File(file),
            name,
            stem: stem_of(path),
        })
    }

    /// Bytes in memory.
    pub(super) fn of_bytes(bytes: &'static [u8]) -> Self {
        Self {
            bytes: Bytes::Memory(bytes),
            name: "the sample".to_owned(),
            stem: None,
        }
    }

    /// A pipe, copied to a file without a name.
    fn copied(pipe: &mut dyn Read, name: &str, stem: Option<String>) -> Result<Self, Failure> {
        let fail = |error: io::Error| Failure::Other(format!("reading {name}: {error}"));
        let mut file = tempfile::tempfile().map_err(fail)?;
        let bar = progress::bytes("read", None);
        io::copy(&mut bar.wrap_read(pipe), &mut file).map_err(fail)?;
        bar.finish_and_clear();
        Ok(Self {
            bytes: Bytes::File(file),
            name: name.to_owned(),
            stem,
        })
    }

    /// Reads it from its start; `doing` is what a progress bar shows.
    pub(super) fn read(
        &mut self,
        doing: &'static str,
        options: &ImportOptions,
    ) -> Result<Source, Failure> {
        let name = &self.name;
        let fail = |error: io::Error| Failure::Other(format!("reading {name}: {error}"));
        let (packed, bar): (Box<dyn Read>, _) = match &mut self.bytes {
            Bytes::Memory(bytes) => (Box::new(Cursor::new(*bytes)), ProgressBar::hidden()),
            Bytes::File(file) => {
                file.rewind().map_err(fail)?;
                let length = file.metadata().map_err(fail)?.len();
                let bar = progress::bytes(doing, Some(length));
                (
                    Box::new(bar.wrap_read(file.try_clone().map_err(fail)?)),
                    bar,
                )
            }
        };
        Source::unpack(packed, self.name.clone(), bar, options)
    }
}

/// Unpacked bytes.
pub(super) struct Source {
    pub(super) reader: Box<dyn BufRead>,
    pub(super) format: FileFormat,
    /// For messages.
    pub(super) name: String,
    /// Fields are separated by tabs: the name ends with `.tsv`.
    pub(super) is_tsv: bool,
    pub(super) bar: ProgressBar,
}

impl Source {
    fn unpack(
        packed: Box<dyn Read>,
        name: String,
        bar: ProgressBar,
        options: &ImportOptions,
    ) -> Result<Self, Failure> {
        let fail = |error: io::Error| Failure::Other(format!("reading {name}: {error}"));
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, packed);
        let magic = packed.fill_buf().map_err(fail)?;
        let mut foreign = FOREIGN_MAGIC.iter();
        if let Some((_, packing, tool)) =
            foreign.find(|(start, ..)| magic.starts_with(start) && !magic.is_ascii())
        {
            return Err(Failure::Other(format!(
                "{name} is packed by {packing}, which is not read; plain files, .gz and .zst are: {tool} {name} | thalweg import \
                 DATABASE - --table TABLE"
            )));
        }
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
        if start.starts_with(ZIP_MAGIC) {
            return Err(Failure::Other(format!(
                "{name} is a zip archive or a file of an office program: save it as CSV, or unpack it"
            )));
        }
        let (place, tar) = TAR_MAGIC;
        if start.get(place..place + tar.len()) == Some(tar) {
            return Err(Failure::Other(format!(
                "{name} is a tar archive, which is not read: unpack it, and import the files in it; plain files, .gz and .zst are read"
            )));
        }
        if UTF_16_MARKS.iter().any(|mark| start.starts_with(mark)) {
            return Err(Failure::Other(format!(
                "{name} is text in UTF-16: convert the file first, as with iconv -f utf-16 -t utf-8"
            )));
        }
        let is_known = start.starts_with(PARQUET_MAGIC) || start.starts_with(ARROW_MAGIC);
        let first_line = start
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        if !is_known && first_line.contains(&0) {
            return Err(Failure::Other(format!(
                "{name} is no text in UTF-8: save it as CSV or JSON lines in UTF-8"
            )));
        }
        if options.format.is_none() && is_line_protocol(start) {
            return Err(Failure::Engine(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{name} looks like InfluxDB's line protocol, whose import is not offered by this version: append a data frame of it in Python (--format csv, if it is CSV)"
                ),
            )));
        }
        let by_name = Format::of_name(&name);
        let format = if start.starts_with(PARQUET_MAGIC) {
            FileFormat::Parquet
        } else if start.starts_with(ARROW_MAGIC) {
            FileFormat::Arrow
        } else {
            let by_text = looks_like_json(start).then_some(FileFormat::Json);
            options.format.or(by_text).unwrap_or(by_name.format)
        };
        match format {
            FileFormat::Parquet => {
                return Err(Failure::Engine(Error::new(
                    ErrorKind::Unsupported,
                    "the import of Parquet is not offered by this version: read the file with pandas or polars, and give the frame to create_table or append in Python",
                )));
            }
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

/// Whether a text begins with an object of JSON or a list of them, as no line of names does.
fn looks_like_json(start: &[u8]) -> bool {
    let text = start.strip_prefix(BOM).unwrap_or(start);
    let text = text.trim_ascii_start();
    let object = match text.strip_prefix(b"[") {
        Some(items) => items.trim_ascii_start(),
        None => text,
    };
    let inside = object.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    inside.is_some_and(|inside| inside.starts_with(b"\"") || inside.starts_with(b"}"))
}

/// Whether a text begins with a point in InfluxDB's line protocol, `weather,city=Berlin temp=21.5,hum=40i 1759276800`, with a time.
fn is_line_protocol(start: &[u8]) -> bool {
    let text = start.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().map(str::from_utf8);
    let Some(Ok(line)) = line else {
        return false;
    };
    let line = line.trim_ascii_end().replace("\\ ", "_");
    let parts: Vec<&str> = line.split(' ').collect();
    let [series, fields, time] = *parts else {
        return false;
    };
    let is_pair = |pair: &str| {
        pair.split_once('=')
            .is_some_and(|(key, value)| !key.is_empty() && !value.is_empty())
    };
    let mut series = series.split(',');
    series
        .next()
        .is_some_and(|name| !name.is_empty() && !name.contains('='))
        && series.all(is_pair)
        && fields.split(',').all(is_pair)
        && !time.is_empty()
        && time.bytes().all(|byte| byte.is_ascii_digit())
}

/// Endings of names that show what a file holds.
const ENDINGS: [&str; 10] = [
    ".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".log", ".json", ".jsonl", ".ndjson",
];

/// The name of a file without its folders, and without endings that show how it is packed and what it holds.
fn stem_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let without = |name: &str, endings: &[&str]| {
        let lower = name.to_ascii_lowercase();
        let ending = endings.iter().find(|ending| lower.ends_with(*ending));
        // A name of nothing but an ending stays.
        let end = ending
            .map(|ending| name.len() - ending.len())
            .filter(|end| *end > 0);
        name[..end.unwrap_or(name.len())].to_owned()
    };
    let unpacked = without(&name, &[".gz", ".zst"]);
    Some(without(&unpacked, &ENDINGS))
}

/// The format that the name of a file suggests.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_have_no_folders_and_no_endings() {
        for (path, stem) in [
            ("data/s1.csv", "s1"),
            ("s1.CSV.gz", "s1"),
            ("a.b/room 1.5.csv", "room 1.5"),
            ("/x/log.2024-01-01", "log.2024-01-01"),
            ("s.jsonl.zst", "s"),
            (".csv", ".csv"),
            ("größe", "größe"),
        ] {
            assert_eq!(stem_of(Path::new(path)).as_deref(), Some(stem));
        }
    }
}
