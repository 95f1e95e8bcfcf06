//! What a newer version of Thalweg has written is reported as such: never as damage, never taken for the end of the log, and
//! nothing of the database is changed.
//!
//! The rule of checksums is broken here, so that a changed byte reads as one that was written so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a step that fails is a test that fails"
)]

use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::repair::repair;
use thalweg_kernel::{Durability, ErrorKind, Options, Rule, break_rule};
use thalweg_sim::files::{Files, files_of};
use thalweg_sim::toy::{Row, Toy};

const DIR: &str = "/db";
const READER: u32 = 7;
const SLOT_BYTES: u64 = 4096;
const SEGMENT_HEADER_BYTES: u64 = 128;
const FRAME_HEADER_BYTES: u64 = 64;
const EDIT: u8 = 4;
const INDEX: u8 = 6;

fn options(read_only: bool) -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        read_only,
        ..Options::default()
    }
}

/// A database that was killed, with edits and rows behind its checkpoint.
fn killed() -> SimEnv {
    let sim = SimEnv::new(1);
    let toy = Toy::open(&sim.env(), DIR, &options(false), 64).unwrap();
    let table = toy.create("t").unwrap();
    let rows: Vec<Row> = (0..100).map(|key| (key, -key)).collect();
    toy.append_fragment(table, &rows, 64).unwrap();
    toy.kernel.checkpoint().unwrap();
    toy.create("u").unwrap();
    toy.append(table, &[(100, 1)], Durability::Disk).unwrap();
    toy.append(table, &[(101, 1)], Durability::Disk).unwrap();
    sim.crash_image(&CrashChoice::Kill)
}

fn u32_at(bytes: &[u8], at: u64) -> u32 {
    let at = usize::try_from(at).unwrap();
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The sections of a frame: kind, place of the entry, place of the section in the file.
fn sections(bytes: &[u8], frame: u64) -> Vec<(u8, u64, u64)> {
    let count = u64::from(u32_at(bytes, frame + 32) & 0xffff);
    let entry = |n: u64| {
        let at = frame + FRAME_HEADER_BYTES + 16 * n;
        let kind = bytes[usize::try_from(at).unwrap()];
        (kind, at, frame + u64::from(u32_at(bytes, at + 4)))
    };
    (0..count).map(entry).collect()
}

/// Where the frames of a segment begin.
fn frames(bytes: &[u8]) -> Vec<u64> {
    let mut at = SEGMENT_HEADER_BYTES;
    let mut all = Vec::new();
    while bytes
        .get(usize::try_from(at).unwrap()..)
        .is_some_and(|rest| rest.starts_with(b"TFRM"))
    {
        all.push(at);
        at += u64::from(u32_at(bytes, at + 24));
    }
    all
}

/// A byte that a newer version would write.
struct Newer {
    path: PathBuf,
    at: u64,
    byte: u8,
    what: String,
    /// Whoever only reads need not know it.
    is_read: bool,
}

/// Where a newer version may write what this one does not know: in the frames from the last checkpoint on, and in the root.
fn newer(files: &Files) -> Vec<Newer> {
    let mut all = Vec::new();
    let is_segment =
        |(path, _): &(&PathBuf, &Vec<u8>)| path.extension().is_some_and(|kind| kind == "seg");
    let (path, bytes) = files.iter().rfind(is_segment).unwrap();
    let mut add = |path: &Path, at: u64, byte: u8, what: String| {
        all.push(Newer {
            path: path.to_owned(),
            at,
            byte,
            what,
            is_read: false,
        });
    };
    let frames = frames(bytes);
    let is_checkpoint = |frame: &u64| {
        sections(bytes, *frame)
            .iter()
            .any(|(kind, ..)| *kind == INDEX)
    };
    let first = frames.iter().rposition(is_checkpoint).unwrap();
    for &frame in &frames[first..] {
        for (at, byte) in [(28, 1), (34, 2), (34, 129), (35, 1), (39, 7)] {
            add(
                path,
                frame + at,
                byte,
                format!("byte {at} of the header of the frame at {frame}"),
            );
        }
        for (kind, entry, section) in sections(bytes, frame) {
            add(
                path,
                entry,
                10,
                format!("a section of kind 10 in the frame at {frame}"),
            );
            add(
                path,
                entry,
                255,
                format!("a section of kind 255 in the frame at {frame}"),
            );
            add(
                path,
                entry + 3,
                1,
                format!("a reserved byte of a section in the frame at {frame}"),
            );
            if kind == EDIT {
                for edit in [9, 14, 200] {
                    add(path, section, edit, format!("edit {edit}"));
                }
            }
            if kind == INDEX {
                add(path, section, 9, "version 9 of the checkpoint".to_owned());
            }
        }
    }
    let root = Path::new(DIR).join("root");
    for slot in 0..2 {
        for (at, byte) in [(8, 255), (12, 4), (104, 1), (4091, 1)] {
            add(
                &root,
                slot * SLOT_BYTES + at,
                byte,
                format!("byte {at} of slot {slot}"),
            );
        }
    }
    all.extend((0..2).map(|slot| Newer {
        path: root.clone(),
        at: slot * SLOT_BYTES + 44,
        byte: 128,
        what: format!("a feature of writers in slot {slot}"),
        is_read: true,
    }));
    all
}

fn refuses(opened: thalweg_kernel::Result<()>, how: &str, what: &str) {
    let error = opened.expect_err(&format!("{how} with {what}"));
    let kind = error.kind();
    assert_eq!(kind, ErrorKind::Unsupported, "{how} with {what}: {error}");
    let says = ["newer version", "unknown features", "format version"];
    let says_so = says.iter().any(|text| error.message().contains(text));
    assert!(says_so, "{how} with {what}: {error}");
}

#[test]
fn what_is_unknown_is_neither_damage_nor_the_end_of_the_log() {
    let killed = killed();
    let files: Files = files_of(&killed);
    let all = newer(&files);
    assert!(all.len() > 40, "{} places", all.len());
    break_rule(Some(Rule::Checksum));
    for Newer {
        path,
        at,
        byte,
        what,
        is_read,
    } in all
    {
        let image = killed.crash_image(&CrashChoice::Kill);
        image.overwrite_file(&path, at, &[byte]).unwrap();
        let before: Files = files_of(&image);
        let writer = Toy::open(&image.env(), DIR, &options(false), 64).map(|_| ());
        refuses(writer, "an opening", &what);
        let repaired =
            repair(&image.env(), Path::new(DIR), &options(false), &mut |_| {}).map(|_| ());
        refuses(repaired, "a repair", &what);
        let reader = Toy::open(&image.env_of_process(READER), DIR, &options(true), 64);
        match is_read {
            true => assert_eq!(
                reader.unwrap().kernel.snapshot().unwrap().tables().count(),
                2
            ),
            false => refuses(reader.map(|_| ()), "a reader", &what),
        }
        let without_pins = |files: Files| -> Files {
            files
                .into_iter()
                .filter(|(path, _)| !path.ends_with("readers") && !path.ends_with("lock"))
                .collect()
        };
        assert!(
            without_pins(before) == without_pins(files_of(&image)),
            "{what} changed the database"
        );
    }
    break_rule(None);
}
