//! Changed bytes of a closed database: found by `verify`, refused by the opening, or of no consequence; never a wrong
//! answer and never a panic.
#![cfg(not(feature = "sql"))] // The engine is the same below SQL, and its tests need not wait for it.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "files are damaged behind the back of the database"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg::arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use thalweg::arrow_schema::Schema;
use thalweg::{
    AggregateRequest, CreateOptions, Database, ErrorKind, KeyRange, Result, ScanRequest, Table,
    schema_of_names,
};

fn schema() -> Schema {
    schema_of_names([("ts", "bigint"), ("value", "double"), ("text", "varchar")]).unwrap()
}

/// `text_bytes` of random text in each row: more than a few bytes, and the encoded rows outgrow the log.
fn batch(rows: std::ops::Range<i64>, text_bytes: usize) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(rows.start.unsigned_abs());
    let texts = StringArray::from_iter_values(rows.clone().map(|_| {
        std::iter::repeat_with(|| random.alphanumeric())
            .take(text_bytes)
            .collect::<String>()
    }));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.clone())),
        Arc::new(Float64Array::from_iter_values(rows.map(|row| {
            f64::from(i32::try_from(row * 7_919 % 1_000).unwrap()) / 7.0
        }))),
        Arc::new(texts),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
}

/// Two tables: one with blocks in the log, late ones too, and open rows; one in files of its own.
fn make(path: &Path) {
    let db = Database::open(path).unwrap();
    let small = db
        .create_table("small", &schema(), &CreateOptions::stream("ts"))
        .unwrap();
    for start in [0, 20_000, 10_000, 15_000] {
        small
            .append([Ok(batch(start..start + 9_000, 12))], None)
            .unwrap();
    }
    small.append([Ok(batch(50_000..50_010, 12))], None).unwrap();
    let large = db
        .create_table("large", &schema(), &CreateOptions::stream("ts"))
        .unwrap();
    large
        .append(
            (0..6).map(|part| Ok(batch(part * 10_000..(part + 1) * 10_000, 150))),
            None,
        )
        .unwrap();
    db.close().unwrap();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// Everything that can be asked of a table.
fn answers(table: &Table) -> Result<(Vec<RecordBatch>, u64, Vec<u64>)> {
    let view = table.view()?;
    let rows = view
        .scan(&ScanRequest {
            batch_rows: 1 << 20,
            ..ScanRequest::default()
        })?
        .collect::<Result<Vec<_>>>()?;
    let mut sums = Vec::new();
    for keys in [
        KeyRange::ALL,
        KeyRange {
            first: 5_000,
            last: 21_000,
        },
    ] {
        let answer = view.aggregate(&AggregateRequest {
            keys,
            columns: vec![1],
            ..Default::default()
        })?;
        sums.push(
            answer.groups[0].columns[0]
                .float_sum()
                .unwrap_or_default()
                .to_bits(),
        );
    }
    Ok((rows, view.row_count(), sums))
}

#[derive(Debug, Default)]
struct Outcomes {
    refused: u64,
    found: u64,
    unaffected: u64,
}

#[test]
fn damage_is_found_or_of_no_consequence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    make(&path);
    let open = || Database::builder().read_only(true).open(&path);
    let db = open().unwrap();
    let truth: BTreeMap<&str, _> = ["small", "large"]
        .map(|name| (name, answers(&db.table(name).unwrap()).unwrap()))
        .into();
    let whole = db.verify(&mut |_| {}).unwrap();
    assert!(whole.damage.is_empty(), "{:?}", whole.damage);
    assert_eq!((whole.tables, whole.rows), (2, 36_010 + 60_000));
    assert!(
        whole.fragments > 0 && whole.segments > 0 && whole.pages > 1,
        "{whole:?}"
    );
    drop(db);

    let mut random = fastrand::Rng::with_seed(7);
    let mut outcomes: BTreeMap<PathBuf, Outcomes> = BTreeMap::new();
    for file in files(&path) {
        let bytes = std::fs::read(&file).unwrap();
        let name = file.strip_prefix(&path).unwrap().to_owned();
        let end = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        for case in 0..28 {
            // The beginning and the end of what is used in the file, and places between.
            let at = match case {
                _ if end == 0 => break,
                0..8 => case.min(end - 1),
                8..16 => end.saturating_sub(case - 7),
                _ => random.usize(..end),
            };
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.u8(..8);
            std::fs::write(&file, &changed).unwrap();
            let outcome = outcomes.entry(name.clone()).or_default();
            match open() {
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
                        "{error:?}"
                    );
                    outcome.refused += 1;
                }
                Ok(db) => {
                    let damage = db.verify(&mut |_| {}).unwrap().damage;
                    for (table, truth) in &truth {
                        let got = db.table(table).and_then(|table| answers(&table));
                        let lost = damage
                            .iter()
                            .any(|damage| damage.table.as_deref() == Some(table));
                        match got {
                            Ok(got) => assert_eq!(
                                got,
                                *truth,
                                "byte {at} of {}: a wrong answer",
                                name.display()
                            ),
                            Err(error) => {
                                assert!(lost, "byte {at} of {}: not found: {error}", name.display())
                            }
                        }
                    }
                    assert!(
                        damage.iter().all(|damage| name.ends_with(&damage.file)),
                        "{damage:?}"
                    );
                    match damage.is_empty() {
                        true => outcome.unaffected += 1,
                        false => outcome.found += 1,
                    }
                }
            }
        }
        std::fs::write(&file, &bytes).unwrap();
    }
    println!("{outcomes:#?}");
    let fragments = outcomes.iter().filter(|(name, _)| name.starts_with("data"));
    let (found, unaffected) = fragments.fold((0, 0), |sum, (_, of)| {
        (sum.0 + of.found, sum.1 + of.unaffected)
    });
    assert!(
        found > 0 && unaffected == 0,
        "every byte of a fragment is used: {found} found, {unaffected} not"
    );
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    make(&path);
    let fragment = files(&path.join("data")).remove(0);
    std::fs::remove_file(&fragment).unwrap();
    let db = Database::builder().read_only(true).open(&path).unwrap();
    let damage = db.verify(&mut |_| {}).unwrap().damage;
    assert!(!damage.is_empty());
    for damage in damage {
        assert_eq!(damage.table.as_deref(), Some("large"));
        assert!(fragment.ends_with(&damage.file), "{damage}");
        assert!(damage.what.contains("missing"), "{damage}");
    }
    // The other table is as it was.
    assert_eq!(answers(&db.table("small").unwrap()).unwrap().1, 36_010);
}

#[test]
fn a_lost_folder_costs_what_was_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    make(&path);
    std::fs::remove_dir_all(path.join("data")).unwrap();
    let report = Database::repair(&path, &mut |_| {}).unwrap();
    assert!(!report.given_up.is_empty());
    for lost in &report.given_up {
        assert_eq!(lost.table.as_deref(), Some("large"), "{lost}");
        assert!(lost.what.contains("missing"), "{lost}");
    }
    let db = Database::open(&path).unwrap();
    assert_eq!(answers(&db.table("small").unwrap()).unwrap().1, 36_010);
    assert_eq!(answers(&db.table("large").unwrap()).unwrap().1, 0);
    let large = db.table("large").unwrap();
    large.append([Ok(batch(0..20_000, 150))], None).unwrap();
    assert_eq!(answers(&large).unwrap().1, 20_000);
}

#[test]
fn a_repaired_database_has_all_but_what_was_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, path) = (
        folder.path().join("whole.thal"),
        folder.path().join("a.thal"),
    );
    make(&whole);
    let mut random = fastrand::Rng::with_seed(8);
    let (mut gave_up, mut mended) = (0, 0);
    for case in 0..40 {
        let _ = std::fs::remove_dir_all(&path);
        for file in files(&whole) {
            let copy = path.join(file.strip_prefix(&whole).unwrap());
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(&file, copy).unwrap();
        }
        let files = files(&path);
        let file = &files[case % files.len()];
        let mut bytes = std::fs::read(file).unwrap();
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        let at = if case < files.len() {
            last
        } else {
            random.usize(..=last)
        };
        bytes[at] ^= 4;
        std::fs::write(file, bytes).unwrap();
        let report = Database::repair(&path, &mut |_| {}).unwrap();
        gave_up += u64::from(!report.given_up.is_empty());
        mended += u64::from(report.given_up.is_empty() && !report.mended.is_empty());
        let db = Database::open(&path).unwrap();
        assert!(db.verify(&mut |_| {}).unwrap().damage.is_empty());
        for (table, rows) in [("small", 36_010), ("large", 60_000)] {
            let of_table = report
                .given_up
                .iter()
                .filter(|lost| lost.table.as_deref() == Some(table));
            let lost: u64 = of_table.map(|lost| lost.rows.unwrap()).sum();
            let (batches, counted, _) = answers(&db.table(table).unwrap()).unwrap();
            let scanned: usize = batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(
                (counted, scanned as u64),
                (rows - lost, rows - lost),
                "byte {at} of {}: {report:?}",
                file.display()
            );
        }
        assert!(
            Database::repair(&path, &mut |_| {}).is_err(),
            "a writer has it open"
        );
        db.close().unwrap();
        assert!(Database::repair(&path, &mut |_| {}).unwrap().is_clean());
    }
    assert!(
        gave_up > 5 && mended > 0,
        "{gave_up} gave something up, {mended} lost nothing"
    );
}
