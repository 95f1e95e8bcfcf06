//! Tables that are dropped by one call: behind a crash all of them are there, or none is.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use thalweg_env::sim::{CrashChoice, FaultPlan, SimEnv};
use thalweg_table::{CreateOptions, Engine, EngineOptions, ErrorKind};

const TABLES: [&str; 3] = ["a", "b", "c"];

fn open(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn with_tables(sim: &SimEnv) -> Engine {
    let engine = open(sim);
    let schema = Schema::new(vec![Field::new("v", DataType::Int64, true)]);
    for name in TABLES {
        let options = CreateOptions::default();
        engine.create_table(name, &schema, &options).unwrap();
    }
    engine
}

#[test]
fn a_crash_leaves_all_of_them_or_none() {
    let before = {
        let sim = SimEnv::new(1);
        let _engine = with_tables(&sim);
        sim.calls()
    };
    let mut seen = [false; 2];
    for call in before + 1.. {
        let sim = SimEnv::new(1);
        let engine = with_tables(&sim);
        sim.set_plan(FaultPlan::crash_at(call));
        let dropped = engine.drop_tables(&["a", "B"]);
        let is_done = !sim.is_crashed();
        drop(engine);
        for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
            let names = open(&sim.crash_image(&choice));
            let names = names.snapshot().unwrap().table_names();
            match names.len() {
                3 => assert!(dropped.is_err(), "call {call}"),
                count => assert_eq!((count, &*names[0]), (1, "c"), "call {call}"),
            }
            seen[usize::from(names.len() == 1)] = true;
        }
        if is_done {
            break;
        }
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn one_that_there_is_not_keeps_the_others() {
    let engine = with_tables(&SimEnv::new(1));
    let error = engine.drop_tables(&["a", "x", "b"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(engine.snapshot().unwrap().table_names(), TABLES);
    engine.drop_tables(&[]).unwrap();
}
