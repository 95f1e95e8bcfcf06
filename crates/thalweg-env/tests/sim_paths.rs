//! Paths of the simulated machine: working directories, links, and what a power cut leaves of new folders.
#![cfg(not(feature = "shuttle"))]

#[expect(dead_code, reason = "some helpers are of other files")]
mod common;

use std::path::Path;

use common::{open, paths};
use thalweg_env::OpenMode;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, PendingItem, SimEnv,
};

fn p(path: &str) -> &Path {
    Path::new(path)
}

#[test]
fn relative_paths_start_in_the_working_directory_of_their_process() {
    let sim = SimEnv::new(1);
    let (first, second) = (sim.env(), sim.env_of_process(2));
    first.storage().create_dir_all(p("a/b")).unwrap();
    open(&first, "x", OpenMode::CreateNew);
    sim.set_working_dir(sim.process_id(), p("a/b")).unwrap();
    sim.set_working_dir(2, p("/a")).unwrap();
    open(&first, "x", OpenMode::CreateNew);
    open(&second, "./x", OpenMode::CreateNew);
    open(&second, "b/../../y", OpenMode::CreateNew);
    assert_eq!(paths(&sim), ["/a/b/x", "/a/x", "/x", "/y"]);
    assert_eq!(first.storage().canonicalize(p(".")).unwrap(), p("/a/b"));
    assert_eq!(
        second.storage().canonicalize(p("b/x")).unwrap(),
        p("/a/b/x")
    );
    assert!(sim.set_working_dir(2, p("x")).is_err());
    first.storage().rename(p("/a"), p("/c")).unwrap();
    assert!(
        second.storage().metadata(p("x")).is_err(),
        "its directory has gone elsewhere"
    );
}

#[test]
fn the_first_process_of_an_image_starts_where_the_last_one_was() {
    let sim = SimEnv::new(1);
    sim.write_file(p("/base/f"), b"1").unwrap();
    sim.set_working_dir(sim.process_id(), p("/base")).unwrap();
    for choice in [CrashChoice::Kill, CrashChoice::DropAll] {
        let image = sim.crash_image(&choice);
        assert_eq!(
            open(&image.env(), "f", OpenMode::Read).len_bytes().unwrap(),
            1
        );
        assert_eq!(image.read_file(p("f")).unwrap(), b"1");
    }
}

#[test]
fn each_new_ancestor_is_lost_for_itself() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.storage().create_dir_all(p("a/b/c")).unwrap();
    let file = open(&env, "a/b/c/f", OpenMode::CreateNew);
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    let name = |name: &str| PendingItem::Names(vec![(name.into(), true)]);
    assert_eq!(
        sim.pending_items(),
        [name("a"), name("b"), name("c"), name("f")]
    );
    // All but one: nothing is left below the one that is missing.
    for missing in 0..4 {
        let kept = CrashChoice::Mask(0b1111 & !(1 << missing));
        let image = sim.crash_image(&kept);
        assert_eq!(paths(&image), Vec::<String>::new(), "without {missing}");
        let dirs = ["a", "a/b", "a/b/c"].map(|dir| image.env().storage().metadata(p(dir)).is_ok());
        assert_eq!(dirs, [missing > 0, missing > 1, missing > 2]);
    }
    for dir in ["", "a", "a/b", "a/b/c"] {
        assert_eq!(
            paths(&sim.crash_image(&CrashChoice::DropAll)),
            Vec::<String>::new()
        );
        env.storage().sync_dir(p(dir)).unwrap();
    }
    assert_eq!(paths(&sim.crash_image(&CrashChoice::DropAll)), ["/a/b/c/f"]);
}

#[test]
fn links_survive_and_files_are_known_by_their_own_path() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.storage().create_dir(p("/real")).unwrap();
    sim.symlink(p("real"), p("/link")).unwrap();
    sim.symlink(p("/real/made"), p("/dangling")).unwrap();
    let file = open(&env, "/dangling", OpenMode::OpenOrCreate);
    file.write_all_at(b"x", 0).unwrap();
    let [PendingItem::Names(_), PendingItem::Write { path, .. }] = &sim.pending_items()[..] else {
        panic!("{:?}", sim.pending_items());
    };
    assert_eq!(path, p("/real/made"));
    let image = sim.crash_image(&CrashChoice::KeepAll);
    assert_eq!(image.read_file(p("/link/made")).unwrap(), b"x");
    assert_eq!(paths(&image), ["/real/made"]);
    // A sync by way of a link is one of the folder that it leads to.
    env.storage().sync_dir(p("/link/")).unwrap();
    assert_eq!(
        paths(&sim.crash_image(&CrashChoice::DropAll)),
        ["/real/made"]
    );
}

#[test]
fn plans_name_calls_by_the_path_from_the_root() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.storage().create_dir_all(p("/base/db")).unwrap();
    sim.set_working_dir(sim.process_id(), p("/base")).unwrap();
    let rule = FaultRule::new(Fault::Error(Errno::IO))
        .on(&[CallKind::Open])
        .path_suffix("/base/db/f");
    sim.set_plan(FaultPlan::none().rule(rule));
    assert!(
        env.storage()
            .open(p("./db//f"), OpenMode::OpenOrCreate)
            .is_err()
    );
    open(&env, "./db/g", OpenMode::OpenOrCreate);
}
