//! What is seen of calls that are under way, and of sectors that a crash left unreadable.
#![cfg(not(feature = "shuttle"))]
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};

use common::{F, after, open, paths, read, with_file};
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ItemFate, Kept, PAGE_BYTES,
    PendingItem, RACE_BYTES, SECTOR_BYTES, SimEnv,
};
use thalweg_env::{Env, File, OpenMode};

fn watched(kind: CallKind) -> FaultPlan {
    FaultPlan::none().rule(FaultRule::new(Fault::Watched).on(&[kind]))
}

/// Runs `look` while `act` is under way; what it returned, each time.
fn seen<T: Send + 'static>(
    sim: &SimEnv,
    kind: CallKind,
    mut look: impl FnMut() -> T + Send + 'static,
    act: impl FnOnce(),
) -> Vec<T> {
    let (found, all) = mpsc::channel();
    sim.set_watcher(Some(Box::new(move || {
        for _ in 0..200 {
            found.send(look()).unwrap();
        }
    })));
    sim.set_plan(watched(kind));
    act();
    sim.set_plan(FaultPlan::none());
    sim.set_watcher(None);
    all.try_iter().collect()
}

fn whole(file: &Arc<dyn File>) -> Vec<u8> {
    let mut bytes = vec![b'?'; 4096];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

fn names(env: &Env) -> BTreeSet<String> {
    let listed = env.storage().list_dir(Path::new("/")).unwrap();
    listed
        .into_iter()
        .map(|e| e.name.into_string().unwrap())
        .collect()
}

#[test]
fn a_write_under_way_is_seen_in_any_part() {
    let (sim, _env, file) = with_file(&[b'.'; 256]);
    let other = open(&sim.env_of_process(2), F, OpenMode::Read);
    let found = seen(
        &sim,
        CallKind::Write,
        move || whole(&other),
        || file.write_all_at(&[b'x'; 128], 32).unwrap(),
    );
    // Three units, the first and the last of them in part.
    let unit = usize::try_from(RACE_BYTES).unwrap();
    let different: BTreeSet<Vec<u8>> = found.into_iter().collect();
    assert_eq!(different.len(), 8);
    for bytes in different {
        assert_eq!(
            (&bytes[..32], &bytes[160..]),
            (&[b'.'; 32][..], &[b'.'; 96][..])
        );
        for part in [
            &bytes[32..unit],
            &bytes[unit..2 * unit],
            &bytes[2 * unit..160],
        ] {
            assert!(part.iter().all(|byte| *byte == part[0]), "a unit is torn");
        }
    }
    assert_eq!(read(&sim, F)[32..160], [b'x'; 128]);
    assert_eq!(whole(&file), read(&sim, F), "nothing is torn behind it");
}

#[test]
fn a_growing_file_shows_no_byte_before_it_was_written() {
    let (sim, _env, file) = with_file(&[b'.'; 100]);
    let other = open(&sim.env_of_process(2), F, OpenMode::Read);
    let found = seen(
        &sim,
        CallKind::Write,
        move || whole(&other),
        || file.write_all_at(&[b'x'; 200], 100).unwrap(),
    );
    let lengths: BTreeSet<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([100, 128, 192, 256, 300]));
    for bytes in found {
        assert_eq!(bytes[..100], [b'.'; 100]);
        assert!(bytes[100..].iter().all(|byte| *byte == b'x'));
    }
}

#[test]
fn a_read_under_way_mixes_what_is_written_meanwhile() {
    let (sim, _env, file) = with_file(&[b'.'; 192]);
    let mut different = BTreeSet::new();
    for seed in 0..64 {
        let (sim, file) = match seed {
            0 => (sim.clone(), Arc::clone(&file)),
            _ => {
                let sim = SimEnv::new(seed);
                sim.write_file(Path::new(F), &[b'.'; 192]).unwrap();
                let file = open(&sim.env(), F, OpenMode::ReadWrite);
                (sim, file)
            }
        };
        let other = open(&sim.env_of_process(2), F, OpenMode::ReadWrite);
        sim.set_watcher(Some(Box::new(move || {
            other.write_all_at(&[b'x'; 64], 0).unwrap();
            other.write_all_at(&[b'y'; 64], 128).unwrap();
        })));
        sim.set_plan(watched(CallKind::Read));
        let bytes = whole(&file);
        different.insert([bytes[0], bytes[64], bytes[128]]);
    }
    // The later write may be seen without the earlier one.
    assert_eq!(
        different,
        BTreeSet::from([*b"...", *b"x..", *b"..y", *b"x.y"])
    );
}

#[test]
fn a_listing_beside_a_rename_shows_either_name_both_or_none() {
    let (sim, env, _file) = with_file(b"");
    let other = sim.env_of_process(2);
    let rename = || env.storage().rename(Path::new(F), Path::new("/g")).unwrap();
    let look = {
        let other = other.clone();
        move || {
            (
                names(&other),
                other.storage().metadata(Path::new("/g")).is_ok(),
            )
        }
    };
    let found = seen(&sim, CallKind::Rename, look, rename);
    assert!(
        found.iter().all(|(_, is_named)| *is_named),
        "a lookup sees one state alone"
    );
    let different: BTreeSet<BTreeSet<String>> = found.into_iter().map(|(names, _)| names).collect();
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        different,
        BTreeSet::from([set(&[]), set(&["f"]), set(&["g"]), set(&["f", "g"])])
    );
    assert_eq!(names(&other), set(&["g"]));
}

#[test]
fn a_listing_beside_creations_and_removals_may_miss_either() {
    let (sim, env, _file) = with_file(b"");
    let other = sim.env_of_process(2);
    let look = || {
        let other = other.clone();
        move || names(&other).len()
    };
    let create = || drop(open(&env, "/g", OpenMode::CreateNew));
    let found = seen(&sim, CallKind::Open, look(), create);
    assert_eq!(
        found.into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([1, 2])
    );
    let remove = || env.storage().remove_file(Path::new("/g")).unwrap();
    let found = seen(&sim, CallKind::RemoveFile, look(), remove);
    assert_eq!(
        found.into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([1, 2])
    );
}

#[test]
fn a_listing_under_way_may_miss_a_file_under_both_of_its_names() {
    let mut different = BTreeSet::new();
    for seed in 0..64 {
        let sim = SimEnv::new(seed);
        sim.write_file(Path::new(F), b"").unwrap();
        let other = sim.env_of_process(2);
        sim.set_watcher(Some(Box::new(move || {
            other
                .storage()
                .rename(Path::new(F), Path::new("/g"))
                .unwrap();
        })));
        sim.set_plan(watched(CallKind::ListDir));
        different.insert(names(&sim.env()));
    }
    assert_eq!(different.len(), 4);
}

#[test]
fn one_seed_shows_the_same_parts() {
    let run = |seed| {
        let sim = SimEnv::new(seed);
        sim.write_file(Path::new(F), &[b'.'; 4096]).unwrap();
        let other = open(&sim.env_of_process(2), F, OpenMode::Read);
        let file = open(&sim.env(), F, OpenMode::ReadWrite);
        seen(
            &sim,
            CallKind::Write,
            move || whole(&other),
            || file.write_all_at(&[b'x'; 4096], 0).unwrap(),
        )
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_lingering_write_is_seen_by_other_threads_until_it_is_released() {
    let (sim, _env, file) = with_file(&[b'.'; 4096]);
    sim.set_plan(
        FaultPlan::none().rule(FaultRule::new(Fault::Linger).on(&[CallKind::Write]).once()),
    );
    let writing = Arc::clone(&file);
    let job = move || writing.write_all_at(&[b'x'; 4096], 0).unwrap();
    let writer = sim.env().spawner().spawn("writer", Box::new(job)).unwrap();
    while sim.hung_calls() == 0 {
        std::thread::yield_now();
    }
    let torn = whole(&file);
    assert!(torn.contains(&b'.') && torn.contains(&b'x'));
    sim.release_hung_calls();
    writer.join().unwrap();
    assert_eq!(whole(&file), [b'x'; 4096]);
}

fn errno(result: std::io::Result<()>) -> Option<i32> {
    result.err()?.raw_os_error()
}

const EIO: Option<i32> = Some(Errno::IO.raw_os_error());

fn unreadable(unit_bytes: u64, unreadable: Kept) -> CrashChoice {
    let kept = Kept::AllBut(u64::MAX);
    CrashChoice::Items(vec![ItemFate::Unreadable {
        unit_bytes,
        kept,
        unreadable,
    }])
}

#[test]
fn an_unreadable_sector_fails_what_touches_it_until_it_is_written() {
    let (sim, _env, file) = with_file(&[b'.'; 4096]);
    file.write_all_at(&[b'x'; 1536], 512).unwrap();
    let image = sim.crash_image(&unreadable(SECTOR_BYTES, Kept::Bits(0b010)));
    let file = open(&image.env(), F, OpenMode::ReadWrite);
    let read = |at: u64, count: usize| {
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, at).map(|()| bytes)
    };
    assert_eq!(read(0, 1024).unwrap(), [[b'.'; 512], [b'x'; 512]].concat());
    assert_eq!(read(1536, 512).unwrap(), [b'x'; 512]);
    for (at, count) in [(1024, 1), (1535, 1), (1023, 2), (0, 4096), (1200, 100)] {
        assert_eq!(errno(read(at, count).map(drop)), EIO, "{count} at {at}");
    }
    // Part of it cannot be written either: the rest would have to be read.
    assert_eq!(errno(file.write_all_at(b"y", 1100)), EIO);
    file.write_all_at(&[b'z'; 512], 1024).unwrap();
    assert_eq!(read(1024, 512).unwrap(), [b'z'; 512]);
    // That write is pending: a crash may bring the damage back.
    let lost = image.crash_image(&CrashChoice::DropAll);
    let again = open(&lost.env(), F, OpenMode::Read);
    assert_eq!(errno(again.read_exact_at(&mut [0], 1024)), EIO);
    file.sync_data().unwrap();
    let kept = image.crash_image(&CrashChoice::DropAll);
    let again = open(&kept.env(), F, OpenMode::Read);
    again.read_exact_at(&mut [0], 1024).unwrap();
}

#[test]
fn a_read_up_to_an_unreadable_sector_is_short_or_fails() {
    let mut counts = BTreeSet::new();
    for seed in 0..32 {
        let sim = SimEnv::new(seed);
        sim.write_file(Path::new(F), &[b'.'; 1024]).unwrap();
        let file = open(&sim.env(), F, OpenMode::ReadWrite);
        file.write_all_at(&[b'x'; 512], 512).unwrap();
        let image = sim.crash_image(&unreadable(SECTOR_BYTES, Kept::First(1)));
        let file = open(&image.env(), F, OpenMode::Read);
        counts.insert(file.read_at(&mut [0; 1024], 0).ok());
    }
    assert_eq!(counts, BTreeSet::from([None, Some(512)]));
}

#[test]
fn an_unreadable_page_takes_its_neighbours_along() {
    let (sim, _env, file) = with_file(&[b'.'; 8192]);
    file.write_all_at(b"x", 5000).unwrap();
    let image = sim.crash_image(&unreadable(PAGE_BYTES, Kept::First(1)));
    let file = open(&image.env(), F, OpenMode::ReadWrite);
    assert_eq!(errno(file.read_exact_at(&mut [0], 4096)), EIO);
    assert_eq!(errno(file.read_exact_at(&mut [0], 8191)), EIO);
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    assert_ne!(image.content_hash(), sim.content_hash());
    file.set_len(4096).unwrap();
    file.set_len(8192).unwrap();
    file.read_exact_at(&mut [0; 8192], 0).unwrap();
}

#[test]
fn sectors_are_chosen_among_those_that_hold_nothing_else() {
    let (sim, _env, file) = with_file(&[b'.'; 512]);
    file.write_all_at(&[b'x'; 2000], 300).unwrap();
    let choices = sim.unreadable_choices(8);
    // Sectors 1 to 3 one by one, then all: 0 and 4 are covered in part.
    assert_eq!(choices.len(), 4);
    for choice in &choices {
        let image = sim.crash_image(choice);
        let file = open(&image.env(), F, OpenMode::Read);
        file.read_exact_at(&mut [0; 512], 0).unwrap();
        file.read_exact_at(&mut [0; 252], 2048).unwrap();
        assert!(file.read_exact_at(&mut [0; 1536], 512).is_err());
    }
    assert_eq!(sim.unreadable_choices(1).len(), 2);
    assert_eq!(after(&sim, CrashChoice::KeepAll).len(), 2300);
    let [PendingItem::Write { .. }] = &sim.pending_items()[..] else {
        panic!("one write");
    };
    file.sync_data().unwrap();
    assert!(sim.unreadable_choices(8).is_empty());
    assert_eq!(paths(&sim), ["/f"]);
}
