//! Names of types.

use crate::random::all_types;
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;
use thalweg_kernel::ErrorKind;
use thalweg_table::schema::{
    check_name, parse_type, schema_of_names, sql_type_name, stored_type, type_name,
};

#[test]
fn every_stored_type_has_a_name_that_reads_back() {
    for data_type in all_types() {
        assert_eq!(parse_type(&type_name(&data_type)).unwrap(), data_type);
        assert_eq!(stored_type(&data_type), Some(data_type));
    }
}

#[test]
fn names_in_sql_read_back_but_for_the_zone() {
    for data_type in all_types() {
        let named = parse_type(&sql_type_name(&data_type)).unwrap();
        match (&data_type, &named) {
            (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(named, Some(_))) => {
                assert_eq!(unit, named);
            }
            _ => assert_eq!(data_type, named),
        }
    }
    let list = DataType::new_list(DataType::Int64, true);
    assert_eq!(sql_type_name(&list), "BIGINT[]");
}

#[test]
fn names_of_sql_arrow_and_numpy_are_known() {
    let ms = TimeUnit::Millisecond;
    let utc = |unit| DataType::Timestamp(unit, Some(Arc::from("UTC")));
    let cases = [
        ("double", DataType::Float64),
        ("DOUBLE PRECISION", DataType::Float64),
        ("REAL", DataType::Float32),
        ("float", DataType::Float32),
        ("Integer", DataType::Int32),
        ("bigint", DataType::Int64),
        ("BIGINT UNSIGNED", DataType::UInt64),
        ("VARCHAR(20)", DataType::Utf8),
        ("varchar", DataType::Utf8),
        ("large_string", DataType::Utf8),
        ("date32[day]", DataType::Date32),
        ("timestamp", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ("TIMESTAMP(3)", DataType::Timestamp(ms, None)),
        ("timestamp(ms)", DataType::Timestamp(ms, None)),
        ("timestamp[ms]", DataType::Timestamp(ms, None)),
        ("timestamp[us, tz=UTC]", utc(TimeUnit::Microsecond)),
        ("datetime64[ns, UTC]", utc(TimeUnit::Nanosecond)),
        ("timestamp(3) with time zone", utc(ms)),
        ("TIMESTAMP WITH TIME ZONE", utc(TimeUnit::Nanosecond)),
        (
            "timestamp without time zone",
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        ),
        (
            "timestamp[s, tz=America/New_York]",
            DataType::Timestamp(TimeUnit::Second, Some("America/New_York".into())),
        ),
        ("duration[us]", DataType::Duration(TimeUnit::Microsecond)),
        ("decimal", DataType::Decimal128(38, 10)),
        ("decimal(10, 2)", DataType::Decimal128(10, 2)),
        ("NUMERIC(12)", DataType::Decimal128(12, 0)),
    ];
    for (text, data_type) in cases {
        assert_eq!(parse_type(text).unwrap(), data_type, "{text}");
    }
}

#[test]
fn other_names_are_refused_with_the_list() {
    let wrong = [
        "",
        "intt",
        "int(4",
        "double(3)",
        "decimal(39, 2)",
        "decimal(4, 5)",
        "decimal(3, 2) with time zone",
        "timestamp(4)",
        "timestamp(ms, )",
        "timestamp(ms, a, b)",
        "timestamp(ms, Zone (x))",
        "list<int32>",
        "varchar(x)",
        "int32 with time zone",
        "timestamp(ms] ",
    ];
    for text in wrong {
        let error = parse_type(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{text}");
        assert!(error.message().contains("float64 (double)"), "{error}");
    }
    let error = schema_of_names([("ok", "int32"), ("price", "dollars")]).unwrap_err();
    assert!(
        error.message().contains("column \"price\": \"dollars\""),
        "{error}"
    );
}

#[test]
fn what_only_says_how_values_lie_in_memory_becomes_the_plain_type() {
    let text = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::LargeUtf8));
    assert_eq!(stored_type(&text), Some(DataType::Utf8));
    assert_eq!(stored_type(&DataType::BinaryView), Some(DataType::Binary));
    assert_eq!(
        stored_type(&DataType::FixedSizeBinary(16)),
        Some(DataType::Binary)
    );
    assert_eq!(stored_type(&DataType::Float16), Some(DataType::Float32));
    assert_eq!(stored_type(&DataType::Date64), Some(DataType::Date32));
    assert_eq!(
        stored_type(&DataType::Decimal32(9, 2)),
        Some(DataType::Decimal128(9, 2))
    );
    for other in [
        DataType::Null,
        DataType::Decimal256(60, 2),
        DataType::Time32(TimeUnit::Second),
    ] {
        assert_eq!(stored_type(&other), None);
    }
    assert_eq!(
        stored_type(&DataType::Timestamp(TimeUnit::Second, Some("a)b".into()))),
        None
    );
}

#[test]
fn names_of_columns_are_checked() {
    for name in ["x", "Größe", "a b", "select", &"n".repeat(255)] {
        check_name("column", name).unwrap();
    }
    for name in ["", "a\0b", &"n".repeat(256)] {
        assert_eq!(
            check_name("column", name).unwrap_err().kind(),
            ErrorKind::Schema
        );
    }
}
