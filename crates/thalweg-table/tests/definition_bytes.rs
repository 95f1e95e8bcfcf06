//! Definitions with changed bytes: an error, or a definition that is the same when it is read again. What random bytes hardly ever have
//! is in the definitions that are changed: defaults, a retention, a unique key, splits; and views.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use thalweg_table::{
    Alteration, CreateOptions, ErrorKind, Layouts, TableDefinition, ViewDefinition, constant_of,
};

fn definitions() -> Vec<Vec<u8>> {
    let layouts = Layouts::default();
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Vienna".into()));
    let schema = Schema::new(vec![
        Field::new("ts", time, false),
        Field::new("device", DataType::Utf8, false),
        Field::new("value \"x\"", DataType::Decimal128(20, 3), true),
    ]);
    let plain = TableDefinition::create(&layouts, &schema, &CreateOptions::default()).unwrap();
    let options = CreateOptions::stream("ts")
        .with("split", "1 day")
        .with("retention", "90 days")
        .with("unique", "device, ts")
        .with("on_duplicate", "first");
    let full = TableDefinition::create(&layouts, &schema, &options).unwrap();
    let number: ArrayRef = Arc::new(Int64Array::from(vec![-7]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a \"b\" \u{fc}"]));
    let add = |name: &str, value: &ArrayRef| {
        let data_type = value.data_type();
        Alteration::AddColumn {
            field: Field::new(name, data_type.clone(), false),
            default: constant_of(name, value, data_type).unwrap(),
            if_not_exists: false,
        }
    };
    let drop_it = Alteration::DropColumn {
        name: "extra".to_owned(),
        if_exists: false,
    };
    let altered = full.altered(&[add("extra", &number), drop_it, add("note", &text)]);
    vec![
        plain.encode(),
        full.encode(),
        altered.unwrap().unwrap().encode(),
    ]
}

fn views() -> Vec<Vec<u8>> {
    let view = ViewDefinition {
        query: "SELECT \"a\"\n FROM t -- \u{fc}".to_owned(),
        columns: vec!["A \"b\"".to_owned(), "c".to_owned()],
    };
    vec![view.encode().unwrap()]
}

/// Changes some bytes, or puts a part of some definition in the place of another.
fn changed(all: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = all[rng.usize(..all.len())].clone();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..=bytes.len());
        let end = (at + [0, 0, 1, 1, 5, 30][rng.usize(..6)]).min(bytes.len());
        let with: Vec<u8> = match rng.u8(..5) {
            0 => Vec::new(),
            1 => vec![b"\"\\{}[]:,0179-eu\n\0\x7f\xff"[rng.usize(..19)]],
            2 => rng.u64(..).to_string().into_bytes(),
            3 => (0..rng.usize(1..4)).map(|_| rng.u8(..)).collect(),
            _ => {
                let other = &all[rng.usize(..all.len())];
                let from = rng.usize(..other.len());
                other[from..(from + rng.usize(1..60)).min(other.len())].to_vec()
            }
        };
        bytes.splice(at..end, with);
    }
    bytes
}

fn is_named(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}

/// Each of a number of changed definitions; `THALWEG_SEQUENCES` says how many. True: it was read.
fn check_each(all: &[Vec<u8>], is_read: impl Fn(&[u8]) -> bool) {
    let of_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = of_env("THALWEG_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    let (rounds, mut read) = (of_env("THALWEG_SEQUENCES").unwrap_or(20_000), 0);
    for round in 0..rounds {
        let bytes = changed(all, &mut rng);
        let done = catch_unwind(AssertUnwindSafe(|| is_read(&bytes)));
        let done = done.unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&bytes);
            panic!("THALWEG_SEED={seed}, round {round}: {text}")
        });
        read += u64::from(done);
    }
    assert!(0 < read && read < rounds, "{read} of {rounds} were read");
}

#[test]
fn changed_definitions_of_tables_are_errors_or_are_read_again() {
    let layouts = Layouts::default();
    check_each(&definitions(), |bytes| {
        match TableDefinition::decode(&layouts, bytes) {
            Ok(definition) => {
                let again = definition.encode();
                assert!(TableDefinition::decode(&layouts, again.as_ref()).unwrap() == definition);
                true
            }
            Err(error) => {
                assert!(is_named(error.kind()), "{:?}: {error}", error.kind());
                false
            }
        }
    });
}

#[test]
fn changed_definitions_of_views_are_errors_or_are_read_again() {
    check_each(&views(), |bytes| match ViewDefinition::decode(bytes) {
        Ok(view) => {
            assert_eq!(
                ViewDefinition::decode(&view.encode().unwrap()).unwrap(),
                view
            );
            true
        }
        Err(error) => {
            assert!(is_named(error.kind()), "{:?}: {error}", error.kind());
            false
        }
    });
}
