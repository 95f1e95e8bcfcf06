//! A replacement of blocks that was prepared before another one is refused, whatever became of a drop of the table in between.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SYNCS, SimEnv};
use thalweg_kernel::index::ItemName;
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{Commit, Durability, Edit, ErrorKind, Options};
use thalweg_sim::toy::{Row, Toy, block};

/// Two replacements are prepared from one snapshot, and one is committed. A drop of the table is lost to a full disk, so that
/// the recovery in place brings the table back.
fn check_refused_behind(lost_drop: FaultRule, recovery_fails_once: bool) {
    let sim = SimEnv::new(14);
    let options = Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let table = toy.create("t").unwrap();
    let rows = |first| (first..first + 64).map(|v| (v, v)).collect::<Vec<Row>>();
    let append = |first| toy.append_group(table, &rows(first), 64, Durability::Disk);
    let (first, second) = (append(1000).unwrap(), append(2000).unwrap());
    let prepared = toy.kernel.snapshot().unwrap();
    let keys: Vec<ItemName> = {
        let tree = &prepared.table(table).unwrap().tree;
        let entries = tree.iter(None, &**toy.kernel.store());
        entries.map(|entry| ItemName::of(&entry.unwrap())).collect()
    };
    let replacement = |removed: &[ItemName], rows: Vec<Row>, last| {
        let mut fragment = toy.kernel.stage_fragment(table).unwrap();
        let merged = block(table, rows, Some((first, last)));
        fragment.add_block(&merged).unwrap();
        Commit {
            edits: vec![Edit::Replace(ReplaceEdit::of_rows(
                table,
                removed.to_vec(),
                vec![fragment.finish().unwrap()],
            ))],
            prepared_at: Some(prepared.commit()),
            ..Commit::default()
        }
    };
    let stale = replacement(&keys[..1], rows(1000), first);
    let beside_failure = replacement(&keys[..1], rows(1000), first);
    let merged = replacement(&keys, [rows(1000), rows(2000)].concat(), second);
    toy.kernel.commit(merged, Durability::Disk).unwrap();
    // Recovery must not learn of the replacement from the log.
    toy.kernel.checkpoint().unwrap();
    let stored = toy.rows(table).unwrap();
    assert_eq!(stored.len(), 128);

    sim.set_plan(FaultPlan::none().rule(lost_drop.once()));
    toy.drop_table(table).unwrap_err();
    if recovery_fails_once {
        let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::Open]);
        sim.set_plan(FaultPlan::none().rule(fails.path_suffix("root").once()));
        let recovers = toy.kernel.commit(beside_failure, Durability::Disk);
        assert!(recovers.is_err());
    }
    sim.set_plan(FaultPlan::none());

    let error = toy.kernel.commit(stale, Durability::Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(toy.rows(table).unwrap(), stored);
}

fn full_at_write() -> FaultRule {
    FaultRule::new(Fault::Error(Errno::NOSPC)).on(&[CallKind::Write])
}

#[test]
fn a_stale_replacement_is_refused_behind_a_drop_lost_at_its_write() {
    check_refused_behind(full_at_write(), false);
}

#[test]
fn a_stale_replacement_is_refused_behind_a_drop_lost_at_its_sync() {
    let (errno, reads) = (Errno::NOSPC, ReadsAfter::Old);
    let full_at_sync = FaultRule::new(Fault::FlushError { errno, reads }).on(SYNCS);
    check_refused_behind(full_at_sync, false);
}

#[test]
fn a_stale_replacement_is_refused_behind_a_recovery_that_failed() {
    check_refused_behind(full_at_write(), true);
}
