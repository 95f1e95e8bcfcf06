//! What checkpoints say of the uses of files: cleaning goes by it, and reads no index for it.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::BTreeSet;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::index::{Entry, MAX_PAGE_ENTRIES, Step};
use thalweg_kernel::repair::repair;
use thalweg_kernel::{Options, Rule, TableId, break_rule, limit_page_entries};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::toy::{Row, Toy};
use thalweg_sim::uses::leaves_in_old_segments;

fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        background: false,
        cache_bytes: 0,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env(), "/db", &options(), 16).unwrap()
}

/// Ten rows.
fn rows(number: i64) -> Vec<Row> {
    (0..10).map(|k| (10 * number + k, k)).collect()
}

/// The bytes of all index pages of a table.
fn index_bytes(toy: &Toy, table: TableId) -> u64 {
    let table = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let mut bytes = 0;
    let mut count = |entry: &Entry| {
        bytes += u64::from(entry.address.bytes) * u64::from(!entry.is_block());
        Step::Descend
    };
    let store = &**toy.kernel.store();
    table.tree.visit(None, store, &mut count).unwrap();
    bytes
}

/// Drops a table and removes its file; returns how many bytes that reads.
fn cleaning_reads(sim: &SimEnv, toy: &Toy) -> u64 {
    let fragments = || -> BTreeSet<_> {
        let files = sim.files().into_iter().map(|(path, _)| path);
        files
            .filter(|path| path.extension().is_some_and(|e| e == "frag"))
            .collect()
    };
    let (before, read_before) = (fragments(), sim.stats().bytes_read);
    let doomed = toy.create("doomed").unwrap();
    toy.append_fragment(doomed, &rows(0), 10).unwrap();
    assert!(!fragments().is_subset(&before));
    toy.drop_table(doomed).unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert!(fragments().is_subset(&before));
    sim.stats().bytes_read - read_before
}

/// A closed database with a table of so many fragments; and how long its index is. No segment has anything else that is needed, so
/// none is emptied.
fn with_fragments(count: i64) -> (SimEnv, u64) {
    let sim = SimEnv::new(8);
    let toy = open(&sim);
    let large = toy.create("large").unwrap();
    for n in 0..count {
        toy.append_fragment(large, &rows(n), 10).unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    let bytes = index_bytes(&toy, large);
    toy.kernel.close().unwrap();
    (sim, bytes)
}

/// Nothing of tables that it does not touch, however large they are.
#[test]
fn the_first_cleaning_of_an_opening_reads_no_index() {
    let read_of = |count| {
        let (sim, index_bytes) = with_fragments(count);
        (cleaning_reads(&sim, &open(&sim)), index_bytes)
    };
    let ((small, short), (large, long)) = (read_of(40), read_of(800));
    assert!(long > 10 * short && long > 64 << 10, "{short} and {long}");
    assert!(large <= small + 512, "{large} bytes, and {small}");
}

/// Of what was replayed, the pages that it changed.
#[test]
fn the_first_cleaning_after_a_kill_reads_what_was_replayed() {
    limit_page_entries(8);
    let read_of = |count| {
        let (sim, _) = with_fragments(count);
        let toy = open(&sim);
        let large = toy.kernel.snapshot().unwrap().table_named("large").unwrap();
        toy.append_fragment(large.id, &rows(2_000), 10).unwrap();
        let killed = sim.crash_image(&CrashChoice::Kill);
        let toy = open(&killed);
        let before = killed.stats().reads;
        cleaning_reads(&killed, &toy);
        let reads = killed.stats().reads - before;
        assert!(toy.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        reads
    };
    let (small, large) = (read_of(40), read_of(800));
    // It has a hundred pages more. Replays read the log in large pieces, some more of the longer one.
    assert!(large < small + 20, "{small} and {large} reads");
    limit_page_entries(MAX_PAGE_ENTRIES);
}

/// A repair makes none, the next round finds them by a walk, and the checkpoint behind that stores them.
#[test]
fn uses_come_back_after_a_repair() {
    limit_page_entries(8);
    let (sim, _) = with_fragments(800);
    let mut files = sim.files().into_iter().map(|(path, _)| path);
    let fragment = files.find(|path| path.extension().is_some_and(|e| e == "frag"));
    let lost = fragment.unwrap();
    sim.overwrite_file(&lost, 8, &[0x55; 8]).unwrap();
    let report = repair(&sim.env(), "/db".as_ref(), &options(), &mut |_| {}).unwrap();
    assert!(!report.is_clean());
    let toy = open(&sim);
    let reads = |toy: &Toy| {
        let before = sim.stats().reads;
        cleaning_reads(&sim, toy);
        sim.stats().reads - before
    };
    let first = reads(&toy);
    assert!(first > 100, "{first} reads");
    let second = reads(&toy);
    assert!(second < 20, "{second} reads");
    toy.kernel.close().unwrap();
    drop(toy);
    let third = reads(&open(&sim));
    assert!(third < 20, "{third} reads");
    limit_page_entries(MAX_PAGE_ENTRIES);
}

/// Uses that are not those of the tree are damage by which no row is lost, and mended.
#[test]
fn verify_compares_uses_with_walks() {
    limit_page_entries(4);
    let sim = SimEnv::new(5);
    break_rule(Some(Rule::CountedPages));
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    for n in 0..20 {
        toy.append_fragment(table, &rows(n), 10).unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    break_rule(None);
    let toy = open(&sim);
    let damage = toy.kernel.verify(&mut |_| {}).unwrap().damage;
    toy.kernel.close().unwrap();
    drop(toy);
    let what: Vec<&str> = damage.iter().map(|damage| damage.what.as_str()).collect();
    assert!(
        matches!(what[..], [what] if what.contains("other bytes are used")),
        "{what:?}"
    );
    let report = repair(&sim.env(), "/db".as_ref(), &options(), &mut |_| {}).unwrap();
    assert!(
        report.given_up.is_empty() && report.mended.len() == 1,
        "{report:?}"
    );
    let again = repair(&sim.env(), "/db".as_ref(), &options(), &mut |_| {}).unwrap();
    assert!(again.is_clean(), "{again:?}");
    limit_page_entries(MAX_PAGE_ENTRIES);
}

/// A list that does not fit its root keeps nobody from opening. It says nothing: cleaning finds the uses by a walk, and the next
/// checkpoint stores these.
#[test]
fn a_list_that_cannot_be_right_is_not_used() {
    let sim = SimEnv::new(6);
    let toy = open(&sim);
    // Of an index of one page the page does not count.
    break_rule(Some(Rule::CountedPages));
    let table = toy.create("t").unwrap();
    toy.append_fragment(table, &rows(0), 10).unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    break_rule(None);
    let toy = open(&sim);
    let wrong = toy.kernel.verify(&mut |_| {}).unwrap().damage;
    let what: Vec<&str> = wrong.iter().map(|damage| damage.what.as_str()).collect();
    assert!(
        matches!(what[..], [what] if what.contains("other bytes are used")),
        "{what:?}"
    );
    cleaning_reads(&sim, &toy);
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = open(&sim);
    let verified = toy.kernel.verify(&mut |_| {}).unwrap();
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    let (_, contents) = contents_of(&toy).unwrap();
    assert_eq!(contents["t"].len(), 10);
}

#[test]
fn leaves_in_old_segments_keep_these() {
    limit_page_entries(4);
    assert_eq!(leaves_in_old_segments(), Vec::<String>::new());
    break_rule(Some(Rule::CountedPages));
    let lost = leaves_in_old_segments();
    break_rule(None);
    assert!(!lost.is_empty(), "a page that does not count is lost");
    limit_page_entries(MAX_PAGE_ENTRIES);
}
