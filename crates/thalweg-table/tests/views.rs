//! Views as the catalog has them: durable under names among those of tables, and no table in any other way.
#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_table::{
    Alteration, CreateOptions, Engine, EngineOptions, ErrorKind, Value, ViewDefinition,
};

fn options() -> EngineOptions {
    EngineOptions {
        background: false,
        threads: 1,
        ..EngineOptions::default()
    }
}

fn open(sim: &SimEnv) -> Engine {
    Engine::open(sim.env(), Path::new("/db"), options()).unwrap()
}

fn of_query(query: &str) -> ViewDefinition {
    ViewDefinition {
        query: query.to_owned(),
        columns: vec!["a".to_owned()],
    }
}

fn query_of(engine: &Engine, name: &str) -> Option<String> {
    let view = engine.snapshot().unwrap().stored_view(name)?;
    Some(view.definition().unwrap().query)
}

fn with_table(sim: &SimEnv) -> Engine {
    let engine = open(sim);
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let table = engine.create_table("t", &schema, &CreateOptions::stream("ts"));
    table.unwrap().put(&[Value::Int(1)], None).unwrap();
    engine
}

#[test]
fn views_have_names_among_those_of_tables() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    engine
        .create_view("Hot Ones", &of_query("SELECT 1"))
        .unwrap();
    let view = engine.snapshot().unwrap().stored_view("HOT ones").unwrap();
    assert_eq!(view.name(), "Hot Ones");
    assert_eq!(view.definition().unwrap(), of_query("SELECT 1"));
    assert_eq!(engine.table_names().unwrap(), ["t"]);
    let view = engine.snapshot().unwrap();
    assert_eq!(view.view_names(), ["Hot Ones"]);
    assert_eq!(view.table_and_view_names(), ["Hot Ones", "t"]);
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let stream = CreateOptions::stream("ts");
    let taken = [
        engine
            .create_view("hot ones", &of_query("SELECT 2"))
            .unwrap_err(),
        engine
            .create_table("HOT ONES", &schema, &stream)
            .unwrap_err(),
        engine
            .begin_table("hot ones", &schema, &stream)
            .unwrap_err(),
        engine.table("t").unwrap().rename("hot ones").unwrap_err(),
    ];
    for error in taken {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(
            error.message().contains("view \"Hot Ones\" exists"),
            "{error}"
        );
    }
    let filled = engine.begin_table("w", &schema, &stream).unwrap();
    engine.create_view("W", &of_query("SELECT 1")).unwrap();
    let error = filled.publish().unwrap_err();
    assert!(error.message().contains("view \"W\" exists"), "{error}");
    for error in [
        engine.create_view("T", &of_query("SELECT 2")).unwrap_err(),
        engine.replace_view("T", &of_query("SELECT 2")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.message().contains("table \"t\" exists"), "{error}");
    }
    for name in ["", "a\0b", "thalweg_tables"] {
        assert!(
            engine.create_view(name, &of_query("SELECT 1")).is_err(),
            "{name:?}"
        );
        assert!(
            engine.replace_view(name, &of_query("SELECT 1")).is_err(),
            "{name:?}"
        );
    }
}

#[test]
fn no_handle_is_one_of_a_view() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    engine.create_view("v", &of_query("SELECT 1")).unwrap();
    let view = engine.snapshot().unwrap();
    let tx = engine.transaction().unwrap();
    for error in [
        engine.table("V").unwrap_err(),
        view.table("v").unwrap_err(),
        engine.drop_table("v").unwrap_err(),
        engine.drop_tables(&["t", "v"]).unwrap_err(),
        tx.table("v").unwrap_err(),
        tx.snapshot().unwrap().table("v").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("\"v\" is a view"), "{error}");
    }
    tx.rollback();
    let error = engine.drop_views(&["v", "t"]).unwrap_err();
    assert!(error.message().contains("DROP TABLE"), "{error}");
    let error = engine.drop_views(&["v", "w"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("no view \"w\""), "{error}");
    assert_eq!(query_of(&engine, "v").unwrap(), "SELECT 1");
    engine.drop_views(&["V"]).unwrap();
    assert_eq!(query_of(&engine, "v"), None);
    // Views that were taken before go on seeing it.
    assert!(view.stored_view("v").is_some());
}

#[test]
fn work_on_all_tables_leaves_views_alone() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    for n in 0..20 {
        engine
            .create_view(&format!("v{n}"), &of_query("SELECT 1"))
            .unwrap();
    }
    engine.maintain().unwrap();
    engine.run_jobs().unwrap();
    assert!(engine.jobs().unwrap().iter().all(|job| &*job.table == "t"));
    let report = engine.kernel().verify(&mut |_| ()).unwrap();
    assert!(report.damage.is_empty());
    engine.checkpoint().unwrap();
    engine.maintain().unwrap();
    engine.close().unwrap();
    let engine = open(&sim);
    assert_eq!(engine.snapshot().unwrap().view_names().len(), 20);
    assert_eq!(engine.table("t").unwrap().view().unwrap().row_count(), 1);
}

#[test]
fn a_reading_process_sees_views() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    let reader = EngineOptions {
        read_only: true,
        ..options()
    };
    let reader = Engine::open(sim.env_of_process(77), Path::new("/db"), reader).unwrap();
    engine.create_view("v", &of_query("SELECT 1")).unwrap();
    assert_eq!(query_of(&reader, "v").unwrap(), "SELECT 1");
    engine.replace_view("v", &of_query("SELECT 2")).unwrap();
    assert_eq!(query_of(&reader, "v").unwrap(), "SELECT 2");
    let error = reader.create_view("w", &of_query("SELECT 1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    engine.drop_views(&["v"]).unwrap();
    assert_eq!(query_of(&reader, "v"), None);
}

/// The queries of the views `v` and `w`, after each of the changes below.
const STATES: [[Option<&str>; 2]; 6] = [
    [None, None],
    [Some("SELECT 1"), None],
    [Some("SELECT 2"), None],
    [Some("SELECT 2"), Some("SELECT 3")],
    [Some("SELECT 2"), Some("SELECT 4")],
    [None, None],
];

#[test]
fn a_crash_keeps_what_was_acknowledged() {
    let sim = SimEnv::new(3);
    let engine = with_table(&sim);
    let mut acknowledged = vec![(sim.calls(), 0)];
    sim.record_states(true);
    let changes: [&dyn Fn(); 5] = [
        &|| engine.create_view("v", &of_query("SELECT 1")).unwrap(),
        &|| engine.replace_view("V", &of_query("SELECT 2")).unwrap(),
        &|| engine.replace_view("w", &of_query("SELECT 3")).unwrap(),
        &|| {
            engine.checkpoint().unwrap();
            engine.replace_view("w", &of_query("SELECT 4")).unwrap();
        },
        &|| engine.drop_views(&["v", "w"]).unwrap(),
    ];
    for (number, change) in (1..).zip(changes) {
        change();
        acknowledged.push((sim.calls(), number));
    }
    let mut seen = 0;
    for call in acknowledged[0].0 + 1..=sim.calls() {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
            let again = open(&state.crash_image(&choice));
            let found = ["v", "w"].map(|name| query_of(&again, name));
            let at_least = acknowledged.iter().rev().find(|(at, _)| *at < call);
            let at_least = at_least.map_or(0, |(_, number)| *number);
            let is_found = |state: &[Option<&str>; 2]| found == state.map(|q| q.map(str::to_owned));
            assert!(
                STATES[at_least..].iter().take(2).any(is_found),
                "call {call}, {choice:?}: {found:?} after change {at_least}"
            );
            assert_eq!(again.table("t").unwrap().view().unwrap().row_count(), 1);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} states");
}

#[test]
fn twenty_thousand_views_cost_little() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    for n in 0..20_000 {
        let query = format!("SELECT ts + {n} AS ts FROM t WHERE ts > {n}");
        engine
            .create_view(&format!("view {n}"), &of_query(&query))
            .unwrap();
    }
    engine.checkpoint().unwrap();
    engine.run_jobs().unwrap();
    engine.maintain().unwrap();
    engine.close().unwrap();
    let engine = open(&sim);
    let view = engine.snapshot().unwrap();
    assert_eq!(view.table_names(), ["t"]);
    assert_eq!(view.view_names().len(), 20_000);
    assert_eq!(
        query_of(&engine, "VIEW 12345").unwrap(),
        "SELECT ts + 12345 AS ts FROM t WHERE ts > 12345"
    );
    let message = engine.table("view20000").unwrap_err();
    assert!(
        message
            .message()
            .contains("some of the 20001 tables and views"),
        "{message}"
    );
    let names: Vec<String> = (0..20_000).map(|n| format!("view {n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // A commit has room for 4,096.
    for names in names.chunks(4_000) {
        engine.drop_views(names).unwrap();
    }
    assert!(engine.snapshot().unwrap().view_names().is_empty());
}

#[test]
fn a_table_that_changes_leaves_views_as_they_are() {
    let sim = SimEnv::new(1);
    let engine = with_table(&sim);
    engine
        .create_view("v", &of_query("SELECT ts FROM t"))
        .unwrap();
    let before = engine.snapshot().unwrap().stored_view("v").unwrap();
    let rename = Alteration::RenameColumn {
        name: "ts".to_owned(),
        to: "at".to_owned(),
    };
    engine.table("t").unwrap().alter(&[rename]).unwrap();
    engine.drop_table("t").unwrap();
    let now = engine.snapshot().unwrap().stored_view("v").unwrap();
    assert!(now.is_same(&before));
    engine
        .replace_view("v", &of_query("SELECT at FROM t"))
        .unwrap();
    let now = engine.snapshot().unwrap().stored_view("v").unwrap();
    assert!(!now.is_same(&before));
}
