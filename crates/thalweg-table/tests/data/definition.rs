//! What tables may be, and the bytes that say so.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use thalweg_kernel::ErrorKind;
use thalweg_table::{CreateOptions, Layouts, SummaryOption, TableDefinition};

fn sensor_schema() -> Schema {
    Schema::new(vec![
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            true,
        ),
        Field::new("Sys", DataType::Float64, true),
        Field::new("user", DataType::LargeUtf8, false),
    ])
}

fn sensor_definition() -> TableDefinition {
    let options = CreateOptions {
        summaries: SummaryOption::Columns(vec!["SYS".into(), "ts".into()]),
        ..CreateOptions::stream("TS").with("split", "1 day")
    };
    TableDefinition::create(&Layouts::default(), &sensor_schema(), &options).unwrap()
}

#[test]
fn a_definition_has_what_was_asked_for() {
    let definition = sensor_definition();
    assert_eq!(definition.layout().name(), "stream");
    assert_eq!(definition.order_position(), Some(0));
    let split = definition.arrangement().split().unwrap();
    assert_eq!(split.every(), 86_400_000);
    let options = definition.layout_options();
    let expected = [("time", "ts"), ("split", "1 day")];
    assert_eq!(
        options,
        expected.map(|(name, value)| (name, value.to_owned()))
    );
    assert_eq!(definition.block_rows(), 4096);
    assert_eq!(definition.next_column_id(), 4);
    let ids = definition
        .columns()
        .iter()
        .map(|column| column.id)
        .collect::<Vec<_>>();
    assert_eq!(ids, [1, 2, 3]);
    assert!(
        !definition.schema().field(0).is_nullable(),
        "a time is never null"
    );
    assert_eq!(definition.schema().field(2).data_type(), &DataType::Utf8);
    assert_eq!(definition.position_named("sYS").unwrap(), 1);
    assert_eq!(
        [0, 1, 2, 3].map(|position| definition.is_summarised(position)),
        [true, true, false, false]
    );
    assert_eq!(
        definition.position_named("nope").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn the_stored_form_is_fixed() {
    let golden = concat!(
        r#"{"version":1,"layout":{"kind":"stream","time":1,"split":{"every":86400000,"origin":0},"block_rows":4096},"#,
        r#""summaries":{"columns":[1,2]},"unique":null,"indexes":[],"filters":[],"retention":null,"#,
        r#""next_column_id":4,"columns":["#,
        r#"{"id":1,"name":"ts","type":"timestamp(ms, UTC)","nullable":false,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":2,"name":"Sys","type":"float64","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":3,"name":"user","type":"string","nullable":false,"default":null,"fill":null,"codec":"auto"}]}"#,
    );
    let definition = sensor_definition();
    assert_eq!(String::from_utf8(definition.encode()).unwrap(), golden);
    assert_eq!(
        TableDefinition::decode(&Layouts::default(), golden.as_bytes()).unwrap(),
        definition
    );
}

#[test]
fn a_retention_is_stored_in_the_unit_of_the_time() {
    let options = CreateOptions::stream("ts").with("retention", "12 weeks");
    let definition =
        TableDefinition::create(&Layouts::default(), &sensor_schema(), &options).unwrap();
    let stored = String::from_utf8(definition.encode()).unwrap();
    let expected = r#""retention":{"column":1,"age":7257600000}"#;
    assert!(stored.contains(expected), "{stored}");
    let again = TableDefinition::decode(&Layouts::default(), stored.as_bytes()).unwrap();
    assert_eq!(again, definition);
    let shown = again.options();
    assert_eq!(shown.last(), Some(&("retention", "84 days".to_owned())));
    let options = CreateOptions::from_pairs(shown).unwrap();
    let same = TableDefinition::create(&Layouts::default(), &sensor_schema(), &options).unwrap();
    assert_eq!(same, definition);
}

#[test]
fn a_stored_form_that_nobody_wrote_is_refused() {
    let good = String::from_utf8(sensor_definition().encode()).unwrap();
    let kind = |text: &str| {
        TableDefinition::decode(&Layouts::default(), text.as_bytes())
            .unwrap_err()
            .kind()
    };
    let edits = [
        (r#""time":1"#, r#""time":9"#),
        (r#""time":1"#, r#""time":3"#),
        (r#""time":1"#, r#""time":null"#),
        (r#""every":86400000"#, r#""every":0"#),
        (r#""block_rows":4096"#, r#""block_rows":0"#),
        (r#"[1,2]"#, r#"[2,1]"#),
        (r#"[1,2]"#, r#"[1,7]"#),
        (r#""next_column_id":4"#, r#""next_column_id":3"#),
        (r#""next_column_id":4"#, r#""next_column_id":16776961"#),
        (r#""id":2"#, r#""id":3"#),
        (r#""id":1"#, r#""id":0"#),
        (r#""name":"Sys""#, r#""name":"TS""#),
        (r#""name":"Sys""#, r#""name":"""#),
        (r#""nullable":false"#, r#""nullable":true"#),
        (r#""nullable":false"#, r#""nullable":null"#),
        (r#""kind":"stream","#, ""),
        (
            r#"{"kind":"stream","time":1,"split":{"every":86400000,"origin":0},"block_rows":4096}"#,
            r#""stream""#,
        ),
        (r#""block_rows":4096}"#, r#""block_rows":"many"}"#),
        (r#""indexes":[],"#, ""),
        (r#""retention":null"#, r#""retention":{"column":1,"age":0}"#),
        (r#""retention":null"#, r#""retention":{"column":9,"age":7}"#),
        (r#""retention":null"#, r#""retention":{"column":1}"#),
        (r#""retention":null"#, r#""retention":7"#),
        (r#","codec":"auto""#, ""),
        (r#""default":null"#, r#""default":"soon""#),
        (r#""fill":null"#, r#""fill":"1.5""#),
        ("]}", "]} x"),
    ];
    for (from, to) in edits {
        assert!(good.contains(from), "{from}");
        assert_eq!(
            kind(&good.replacen(from, to, 1)),
            ErrorKind::Corruption,
            "{from} -> {to}"
        );
    }
    for cut in 0..good.len() {
        assert_eq!(kind(&good[..cut]), ErrorKind::Corruption);
    }
}

#[test]
fn defaults_are_stored_as_texts() {
    let good = String::from_utf8(sensor_definition().encode()).unwrap();
    let changed = good.replacen(
        r#""default":null,"fill":null"#,
        r#""default":"-5","fill":"0""#,
        1,
    );
    let definition = TableDefinition::decode(&Layouts::default(), changed.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(definition.encode()).unwrap(), changed);
}

#[test]
fn what_a_newer_version_has_written_is_unsupported() {
    let good = String::from_utf8(sensor_definition().encode()).unwrap();
    let edits = [
        (r#""version":1"#, r#""version":2"#),
        // Fields, kinds and words that no page lists.
        (r#""layout""#, r#""new":1,"layout""#),
        (r#""kind":"stream""#, r#""kind":"pond""#),
        (r#""every""#, r#""slack":3,"every""#),
        (
            r#""every":86400000,"origin":0"#,
            r#""calendar":"month","count":1"#,
        ),
        (r#"{"columns":[1,2]}"#, r#""some""#),
        (r#""fill":null"#, r#""fill":null,"unit":"K""#),
        (r#""type":"float64""#, r#""type":"float65""#),
        // What a page lists and this version does not offer.
        (r#""kind":"stream""#, r#""kind":"points""#),
        (r#""unique":null"#, r#""unique":{"order":2}"#),
        (
            r#""indexes":[]"#,
            r#""indexes":[{"order":2,"kind":"values","columns":[3]}]"#,
        ),
        (r#""filters":[]"#, r#""filters":[3]"#),
        (
            r#""retention":null"#,
            r#""retention":{"column":1,"age":7,"by":"rows"}"#,
        ),
        // By another column, or one without a unit.
        (r#""retention":null"#, r#""retention":{"column":2,"age":7}"#),
        (r#""codec":"auto""#, r#""codec":"dense""#),
        (r#""codec":"auto""#, r#""codec":{"kind":1,"stage":0}"#),
    ];
    for (from, to) in edits {
        assert!(good.contains(from), "{from}");
        let changed = good.replacen(from, to, 1);
        let error = TableDefinition::decode(&Layouts::default(), changed.as_bytes()).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Unsupported,
            "{from} -> {to}: {error}"
        );
    }
}

proptest! {
    #[test]
    fn a_changed_stored_form_is_refused_or_sound(at: prop::sample::Index, byte: u8) {
        let mut bytes = sensor_definition().encode();
        *at.get_mut(&mut bytes) = byte;
        if let Ok(changed) = TableDefinition::decode(&Layouts::default(), &bytes) {
            prop_assert_eq!(TableDefinition::decode(&Layouts::default(), &changed.encode()).unwrap(), changed);
        }
    }
}

#[test]
fn schemas_that_cannot_be_stored_are_refused_by_name() {
    let refuse = |fields: Vec<Field>, options: &CreateOptions, kind: ErrorKind, part: &str| {
        let error = TableDefinition::create(&Layouts::default(), &Schema::new(fields), options)
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(part), "{error}");
    };
    let int = |name: &str| Field::new(name, DataType::Int64, true);
    let arrival = CreateOptions::default();
    let list = DataType::new_list(DataType::Int8, true);
    refuse(vec![], &arrival, ErrorKind::Schema, "at least one column");
    refuse(
        vec![int("a"), Field::new("tags", list, true)],
        &arrival,
        ErrorKind::Schema,
        "\"tags\"",
    );
    refuse(
        vec![int("Temp"), int("temp")],
        &arrival,
        ErrorKind::Schema,
        "\"Temp\" and \"temp\"",
    );
    refuse(
        vec![int("GRÖSSE"), int("grösse")],
        &arrival,
        ErrorKind::Schema,
        "same name",
    );
    refuse(vec![int("a\0")], &arrival, ErrorKind::Schema, "NUL");
    refuse(
        vec![int("a")],
        &CreateOptions::stream("b"),
        ErrorKind::NotFound,
        "the columns are a",
    );
    let text = Field::new("t", DataType::Utf8, true);
    refuse(
        vec![text],
        &CreateOptions::stream("t"),
        ErrorKind::Schema,
        "\"t\" is of type varchar",
    );
    let split = CreateOptions::default().with("split", "1 day");
    refuse(vec![int("a")], &split, ErrorKind::Invalid, "time");
    let rows = CreateOptions::default().with("block_rows", 1);
    refuse(vec![int("a")], &rows, ErrorKind::Invalid, "block_rows");
    let points = CreateOptions {
        layout: Some("points".to_owned()),
        ..CreateOptions::default()
    };
    refuse(vec![int("a")], &points, ErrorKind::Unsupported, "points");
    let many = (0..65_537).map(|index| int(&index.to_string())).collect();
    refuse(many, &arrival, ErrorKind::Limit, "65536");
}

#[test]
fn wide_tables_are_summarised_on_request_only() {
    let fields = (0..65)
        .map(|index| Field::new(format!("c{index}"), DataType::Int64, true))
        .collect::<Vec<_>>();
    let definition = TableDefinition::create(
        &Layouts::default(),
        &Schema::new(fields.clone()),
        &CreateOptions::stream("c7"),
    )
    .unwrap();
    assert!(definition.is_summarised(7));
    assert!(!definition.is_summarised(0));
    let all = CreateOptions {
        summaries: SummaryOption::All,
        ..CreateOptions::default()
    };
    assert!(
        TableDefinition::create(&Layouts::default(), &Schema::new(fields), &all)
            .unwrap()
            .is_summarised(64)
    );
}

#[test]
fn summaries_have_a_limit() {
    let fields = (0..4_097).map(|index| Field::new(format!("c{index}"), DataType::Int64, true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let all = CreateOptions {
        summaries: SummaryOption::All,
        ..CreateOptions::default()
    };
    assert_eq!(
        TableDefinition::create(&Layouts::default(), &schema, &all)
            .unwrap_err()
            .kind(),
        ErrorKind::Limit
    );
    TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::default()).unwrap();
}

#[test]
fn options_come_as_text() {
    let pairs = [
        ("LAYOUT", "Stream"),
        ("time", " ts "),
        ("split", "1 hour"),
        ("block_rows", "10_000"),
        ("summaries", "a, b"),
    ];
    let options = CreateOptions::from_pairs(pairs).unwrap();
    let expected = CreateOptions {
        layout: Some("Stream".to_owned()),
        summaries: SummaryOption::Columns(vec!["a".into(), "b".into()]),
        ..CreateOptions::stream("ts")
            .with("split", "1 hour")
            .with("block_rows", "10_000")
    };
    assert_eq!(options, expected);
    let refuse = |name, value, kind, part: &str| {
        let options = CreateOptions::from_pairs([(name, value)]).unwrap();
        let created = TableDefinition::create(&Layouts::default(), &sensor_schema(), &options);
        let error = created.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(part), "{error}");
    };
    refuse(
        "colour",
        "red",
        ErrorKind::Invalid,
        "layout, time, split, block_rows, summaries, retention",
    );
    refuse("layout", "lake", ErrorKind::Invalid, "\"stream\" alone");
    refuse("index", "user", ErrorKind::Unsupported, "index");
    refuse("block_rows", "many", ErrorKind::Invalid, "many");
    let twice = CreateOptions::from_pairs([("time", "a"), ("Time", "b")]).unwrap_err();
    assert!(twice.message().contains("twice"), "{twice}");
}
