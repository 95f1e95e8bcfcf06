//! The payload of raw rows.

use crate::random::any_table;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_kernel::ErrorKind;
use thalweg_table::{
    CreateOptions, Layouts, RowWriter, RowsDecoder, TableDefinition, Value, decode_rows,
    encode_rows,
};

fn define(fields: Vec<Field>, options: &CreateOptions) -> TableDefinition {
    TableDefinition::create(&Layouts::default(), &Schema::new(fields), options).unwrap()
}

fn encode(definition: &TableDefinition, batch: &RecordBatch) -> Vec<u8> {
    let mut out = Vec::new();
    encode_rows(definition, batch, &mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn rows_come_back(tables in any_table(300), cut in 0..300_usize) {
        let (definition, batch) = tables;
        let cut = cut.min(batch.num_rows());
        let pieces = [batch.slice(0, cut), batch.slice(cut, batch.num_rows() - cut)];
        let payloads = pieces.iter().map(|piece| encode(&definition, piece)).collect::<Vec<_>>();
        let decoded = decode_rows(&definition, payloads.iter().map(Vec::as_slice)).unwrap();
        prop_assert_eq!(&decoded, &batch);
        // Floats are compared by their bits: Arrow's equality of arrays is that of their memory.
        for (decoded, given) in decoded.columns().iter().zip(batch.columns()) {
            prop_assert_eq!(decoded.to_data(), given.to_data());
        }
        let ids = definition.columns().iter().rev().step_by(2).map(|column| column.id).collect::<Vec<_>>();
        let mut some = RowsDecoder::new(&definition, Some(&ids)).unwrap();
        payloads.iter().for_each(|payload| some.push(payload).unwrap());
        let positions = ids.iter().map(|id| definition.position(*id).unwrap()).collect::<Vec<_>>();
        prop_assert_eq!(some.finish().unwrap(), batch.project(&positions).unwrap());
    }

    #[test]
    fn equal_rows_are_equal_bytes(table in any_table(100)) {
        let (definition, batch) = table;
        let decoded = decode_rows(&definition, [encode(&definition, &batch).as_slice()]).unwrap();
        prop_assert_eq!(encode(&definition, &decoded), encode(&definition, &batch));
    }

    #[test]
    fn damaged_payloads_are_errors_or_rows(table in any_table(40), at: prop::sample::Index, value: u8, length: prop::sample::Index) {
        let (definition, batch) = table;
        let good = encode(&definition, &batch);
        let mut changed = good.clone();
        *at.get_mut(&mut changed) = value;
        let _ = decode_rows(&definition, [changed.as_slice()]);
        let cut = length.index(good.len());
        let error = decode_rows(&definition, [&good[..cut]]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Corruption);
        let longer = [good.as_slice(), &[0]].concat();
        prop_assert_eq!(decode_rows(&definition, [longer.as_slice()]).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn any_bytes_are_errors_or_rows(table in any_table(2), mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (definition, _) = table;
        if bytes.len() > 8 {
            bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
            bytes[6..8].copy_from_slice(&[0, 0]);
        }
        let _ = decode_rows(&definition, [bytes.as_slice()]);
    }
}

fn sensor() -> TableDefinition {
    let fields = vec![
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Millisecond, None),
            false,
        ),
        Field::new("v", DataType::Float64, true),
        Field::new("on", DataType::Boolean, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("n", DataType::Int16, true),
    ];
    define(fields, &CreateOptions::stream("ts"))
}

#[test]
fn the_bytes_are_fixed() {
    let definition = sensor();
    let batch = RecordBatch::try_new(
        Arc::clone(definition.schema()),
        vec![
            Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3])),
            Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.0)])),
            Arc::new(BooleanArray::from(vec![true, false, true])),
            Arc::new(StringArray::from(vec![Some("ab"), None, Some("ü")])),
            Arc::new(Int16Array::from(vec![None, None, None])),
        ],
    );
    let golden: Vec<u8> = [
        &[1, 0, 0, 0][..],
        &[3, 0, 0, 0],
        &[5, 0, 0, 0],
        &[0x04, 0x1b, 0x0d, 0x1c, 0x22],
        &[
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ],
        &[0b101],
        &[
            0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80,
        ],
        &[0b101],
        &[0b101],
        &[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        "abü".as_bytes(),
    ]
    .concat();
    let batch = batch.unwrap();
    assert_eq!(encode(&definition, &batch), golden);
    assert_eq!(
        decode_rows(&definition, [golden.as_slice()]).unwrap(),
        batch
    );

    let mut row = Vec::new();
    let values = [
        Value::Int(9),
        Value::Null,
        Value::Bool(true),
        Value::Text("x"),
        Value::Int(-1),
    ];
    let key = RowWriter::new(&definition)
        .unwrap()
        .write(&values, &mut row)
        .unwrap();
    let golden_row: Vec<u8> = [
        &[1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0][..],
        &[0x04, 0x2b, 0x0d, 0x0c, 0x02],
        &[9, 0, 0, 0, 0, 0, 0, 0],
        &[1],
        &[1, 0, 0, 0, b'x'],
        &[0xff, 0xff],
    ]
    .concat();
    assert_eq!((key, row), (9, golden_row));
}

#[test]
fn single_rows_are_the_rows_of_a_batch() {
    let definition = sensor();
    let writer = RowWriter::new(&definition).unwrap();
    let rows = [
        [
            Value::Text("1970-01-01T00:00:00.005"),
            Value::Int(3),
            Value::Bool(false),
            Value::Text(""),
            Value::Null,
        ],
        [
            Value::Instant {
                value: 6,
                unit: TimeUnit::Second,
            },
            Value::Float(f64::NAN),
            Value::Null,
            Value::Bytes(b"q"),
            Value::Float(2.0),
        ],
        [
            Value::Date(-1),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::UInt(7),
        ],
    ];
    let mut payloads = Vec::new();
    let mut keys = Vec::new();
    for row in &rows {
        let mut payload = Vec::new();
        keys.push(writer.write(row, &mut payload).unwrap());
        payloads.push(payload);
    }
    assert_eq!(keys, [5, 6_000, -86_400_000]);
    let decoded = decode_rows(&definition, payloads.iter().map(Vec::as_slice)).unwrap();
    let expected: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(keys)),
        Arc::new(Float64Array::from(vec![Some(3.0), Some(f64::NAN), None])),
        Arc::new(BooleanArray::from(vec![Some(false), None, None])),
        Arc::new(StringArray::from(vec![Some(""), Some("q"), None])),
        Arc::new(Int16Array::from(vec![None, Some(2), Some(7)])),
    ];
    assert_eq!(decoded.columns(), expected);
    // A row that was written one by one has the bytes of a batch of one row.
    assert_eq!(payloads[1], encode(&definition, &decoded.slice(1, 1)));
}

/// Values of all kinds for one column, and what they become.
#[test]
fn single_values_are_cast_like_columns() {
    let put = |data_type: &DataType, value: Value<'_>| {
        let definition = define(
            vec![Field::new("x", data_type.clone(), true)],
            &CreateOptions::default(),
        );
        let mut payload = Vec::new();
        RowWriter::new(&definition)
            .unwrap()
            .write(&[value], &mut payload)?;
        decode_rows(&definition, [payload.as_slice()])
            .map(|batch| arrow_cast::display::array_value_to_string(batch.column(0), 0).unwrap())
    };
    let span = |value, unit| Value::Span { value, unit };
    let decimal = |unscaled, scale| Value::Decimal { unscaled, scale };
    let good = [
        (
            DataType::UInt64,
            Value::UInt(u64::MAX),
            "18446744073709551615",
        ),
        (DataType::Int8, Value::Float(-128.0), "-128"),
        (DataType::Float32, Value::Float(f64::NAN), "NaN"),
        (DataType::Float32, Value::Int(16_777_216), "16777216.0"),
        (DataType::Float32, Value::Float(0.1), "0.1"),
        (DataType::Float32, Value::Float(f64::INFINITY), "inf"),
        (DataType::Decimal128(5, 2), Value::Float(-0.1), "-0.10"),
        (
            DataType::Decimal128(38, 0),
            Value::Float(1e22),
            "10000000000000000000000",
        ),
        (
            DataType::Float64,
            Value::Int(i64::MIN),
            "-9.223372036854776e18",
        ),
        (
            DataType::Decimal128(5, 2),
            Value::Decimal {
                unscaled: 15,
                scale: 1,
            },
            "1.50",
        ),
        (
            DataType::Decimal128(5, 2),
            Value::Decimal {
                unscaled: 15_000,
                scale: 4,
            },
            "1.50",
        ),
        (DataType::Decimal128(3, 0), Value::Int(-999), "-999"),
        (DataType::Float64, decimal(1, 1), "0.1"),
        (DataType::Float64, decimal(-150, 2), "-1.5"),
        (DataType::Float64, decimal(1, -3), "1000.0"),
        (DataType::Float64, decimal(0, 5), "0.0"),
        (DataType::Float32, decimal(1, 1), "0.1"),
        (DataType::Int8, decimal(-500, 2), "-5"),
        (DataType::UInt64, decimal(2, -1), "20"),
        (DataType::Date32, Value::Text("1970-01-03"), "1970-01-03"),
        (
            DataType::Date32,
            Value::Instant {
                value: 86_400,
                unit: TimeUnit::Second,
            },
            "1970-01-02",
        ),
        (
            DataType::Duration(TimeUnit::Second),
            span(5_000, TimeUnit::Millisecond),
            "PT5S",
        ),
        (DataType::Utf8, Value::Bytes("ü".as_bytes()), "ü"),
        (DataType::Binary, Value::Text("a"), "61"),
    ];
    for (data_type, value, shown) in good {
        assert_eq!(
            put(&data_type, value).unwrap(),
            shown,
            "{data_type} {value}"
        );
    }
    let bad = [
        (DataType::Int8, Value::Int(128)),
        (DataType::UInt8, Value::Int(-1)),
        (DataType::Int64, Value::UInt(1 << 63)),
        (DataType::Int64, Value::Float(0.5)),
        (DataType::Int64, Value::Float(f64::NAN)),
        (DataType::Int64, Value::Float(-0.0)),
        (DataType::Int64, Value::Float(1e300)),
        (DataType::Int64, Value::Text("1")),
        (DataType::Int64, Value::Bool(true)),
        (DataType::Float64, Value::Int((1 << 53) + 1)),
        (DataType::Float64, Value::UInt(u64::MAX)),
        (DataType::Float32, Value::Float(1e40)),
        (DataType::Decimal128(5, 1), Value::Float(0.25)),
        (DataType::Decimal128(5, 1), Value::Float(1e5)),
        (DataType::Decimal128(38, 10), Value::Float(f64::INFINITY)),
        (DataType::Float64, decimal(9_007_199_254_740_993, 0)),
        (DataType::Float64, decimal(10_000_000_000_000_001, 17)),
        (DataType::Float32, decimal(16_777_217, 0)),
        (DataType::Int64, decimal(55, 1)),
        (DataType::Int8, decimal(128, 0)),
        (DataType::Int64, decimal(1, 127)),
        (DataType::Int64, decimal(1, -128)),
        (DataType::Decimal128(3, 0), Value::Int(1_000)),
        (
            DataType::Decimal128(5, 1),
            Value::Decimal {
                unscaled: 155,
                scale: 2,
            },
        ),
        (DataType::Decimal128(38, 30), Value::Int(i64::MAX)),
        (
            DataType::Decimal128(38, 0),
            Value::Decimal {
                unscaled: 1,
                scale: 127,
            },
        ),
        (DataType::Date32, Value::Int(1 << 40)),
        (
            DataType::Date32,
            Value::Instant {
                value: 1,
                unit: TimeUnit::Second,
            },
        ),
        (
            DataType::Timestamp(TimeUnit::Second, None),
            Value::Text("1970-01-01T00:00:00.1"),
        ),
        (
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            Value::Text("9999-01-01"),
        ),
        (
            DataType::Timestamp(TimeUnit::Second, None),
            Value::Float(1.0),
        ),
        (
            DataType::Duration(TimeUnit::Second),
            span(1, TimeUnit::Millisecond),
        ),
        (DataType::Utf8, Value::Bytes(b"\xff")),
        (DataType::Utf8, Value::Int(1)),
        (DataType::Boolean, Value::Int(1)),
    ];
    for (data_type, value) in bad {
        let error = put(&data_type, value).expect_err(&format!("{data_type} {value}"));
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.message().contains("column \"x\""), "{error}");
    }
}

#[test]
fn rows_that_do_not_fit_leave_nothing_behind() {
    let definition = sensor();
    let writer = RowWriter::new(&definition).unwrap();
    let mut out = vec![7];
    let refuse = |values: &[Value<'_>], out: &mut Vec<u8>, kind: ErrorKind, part: &str| {
        let error = writer.write(values, out).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(part), "{error}");
    };
    refuse(
        &[Value::Int(1)],
        &mut out,
        ErrorKind::Schema,
        "1 values were given for 5 columns",
    );
    refuse(
        &[Value::Null; 5],
        &mut out,
        ErrorKind::Schema,
        "\"ts\" may not be null",
    );
    let mut row = [
        Value::Int(1),
        Value::Float(1.0),
        Value::Null,
        Value::Text("x"),
        Value::Int(70_000),
    ];
    refuse(
        &row,
        &mut out,
        ErrorKind::Schema,
        "column \"n\": smallint cannot hold 70000",
    );
    let long = "x".repeat((16 << 20) + 1);
    row[3] = Value::Text(&long);
    refuse(&row, &mut out, ErrorKind::Limit, "\"name\"");
    assert_eq!(out, [7]);
}

#[test]
fn keys_order_like_the_values() {
    let fields = vec![
        Field::new("x", DataType::Utf8, true),
        Field::new("u", DataType::UInt64, true),
    ];
    let definition = define(fields, &CreateOptions::stream("u"));
    let writer = RowWriter::new(&definition).unwrap();
    let key = |value| {
        writer
            .write(&[Value::Null, Value::UInt(value)], &mut Vec::new())
            .unwrap()
    };
    assert_eq!((key(0), key(u64::MAX)), (i64::MIN, i64::MAX));
}

/// Columns were added, dropped and widened since the rows were written.
#[test]
fn rows_are_read_under_a_later_definition() {
    let old = define(
        vec![
            Field::new("a", DataType::Int16, true),
            Field::new("gone", DataType::Utf8, true),
            Field::new("f", DataType::Float32, true),
            Field::new("u", DataType::UInt8, true),
        ],
        &CreateOptions::default(),
    );
    let later = concat!(
        r#"{"version":1,"layout":{"kind":"stream","time":null,"split":null,"block_rows":4096},"summaries":"auto","#,
        r#""unique":null,"indexes":[],"filters":[],"retention":null,"next_column_id":7,"columns":["#,
        r#"{"id":1,"name":"A","type":"int64","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":3,"name":"f","type":"float64","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":4,"name":"u","type":"uint32","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":6,"name":"new","type":"string","nullable":true,"default":null,"fill":null,"codec":"auto"}]}"#
    );
    let later = TableDefinition::decode(&Layouts::default(), later.as_bytes()).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int16Array::from(vec![Some(-5), None])),
        Arc::new(StringArray::from(vec!["x", "y"])),
        Arc::new(Float32Array::from(vec![1.5, f32::NAN])),
        Arc::new(UInt8Array::from(vec![255, 0])),
    ];
    let before = encode(
        &old,
        &RecordBatch::try_new(Arc::clone(old.schema()), columns).unwrap(),
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![i64::MAX])),
        Arc::new(Float64Array::from(vec![0.1])),
        Arc::new(UInt32Array::from(vec![7])),
        Arc::new(StringArray::from(vec!["z"])),
    ];
    let after = encode(
        &later,
        &RecordBatch::try_new(Arc::clone(later.schema()), columns).unwrap(),
    );
    let expected: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(-5), None, Some(i64::MAX)])),
        Arc::new(Float64Array::from(vec![1.5, f64::NAN, 0.1])),
        Arc::new(UInt32Array::from(vec![255, 0, 7])),
        Arc::new(StringArray::from(vec![None, None, Some("z")])),
    ];
    let decoded = decode_rows(&later, [before.as_slice(), after.as_slice()]).unwrap();
    assert_eq!(decoded.columns(), expected);
    // The other way round the types do not widen: that is damage.
    assert_eq!(
        decode_rows(&old, [after.as_slice()]).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn many_payloads_make_one_batch() {
    let definition = sensor();
    let writer = RowWriter::new(&definition).unwrap();
    let mut buffer = Vec::new();
    let mut ends = vec![0];
    for row in 0..5_000 {
        let name = format!("n{}", row % 7);
        let value = if row % 3 == 0 {
            Value::Null
        } else {
            Value::Float(row as f64)
        };
        writer
            .write(
                &[
                    Value::Int(row),
                    value,
                    Value::Bool(row % 2 == 0),
                    Value::Text(&name),
                    Value::Null,
                ],
                &mut buffer,
            )
            .unwrap();
        ends.push(buffer.len());
    }
    let payloads = ends.windows(2).map(|pair| &buffer[pair[0]..pair[1]]);
    let all = decode_rows(&definition, payloads.clone()).unwrap();
    let each = payloads
        .map(|payload| decode_rows(&definition, [payload]).unwrap())
        .collect::<Vec<_>>();
    assert_eq!(all, concat_batches(definition.schema(), &each).unwrap());
    assert_eq!(all.num_rows(), 5_000);
}

#[test]
fn rows_of_a_newer_version_are_no_damage() {
    let definition = define(
        vec![Field::new("x", DataType::Int8, true)],
        &CreateOptions::default(),
    );
    // A column of the table, and one of system columns behind it, if any.
    let payload = |version: u8, id: Option<u32>| {
        let columns = 1 + u8::from(id.is_some());
        let mut bytes = vec![version, 0, 0, 0, 1, 0, 0, 0, columns, 0, 0, 0, 1];
        if let Some(id) = id {
            bytes.push(0x41);
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes.extend_from_slice(&[7, 7][..usize::from(columns)]);
        bytes
    };
    let kind = |version: u8, id: Option<u32>| {
        let decoded = decode_rows(&definition, [payload(version, id).as_slice()]);
        decoded.err().map(|error| error.kind())
    };
    assert_eq!(kind(1, None), None);
    assert_eq!(kind(1, Some(0xFF_FEFF)), None, "a column that was dropped");
    assert_eq!(kind(2, None), Some(ErrorKind::Unsupported));
    for kept in [0xFF_FF00, 0xFF_FFFB, 0xFF_FFFE] {
        assert_eq!(
            kind(1, Some(kept)),
            Some(ErrorKind::Unsupported),
            "{kept:x}"
        );
    }
    // Those of arrays have no place in raw rows, and there are no ids of more than 24 bits.
    for damaged in [0xFF_FFFC, 0xFF_FFFD, 0xFF_FFFF, 0x0100_0000, u32::MAX] {
        assert_eq!(
            kind(1, Some(damaged)),
            Some(ErrorKind::Corruption),
            "{damaged:x}"
        );
    }
}

#[test]
fn payloads_with_false_claims_are_refused() {
    let definition = sensor();
    let good = encode(
        &definition,
        &RecordBatch::new_empty(Arc::clone(definition.schema())),
    );
    decode_rows(&definition, [good.as_slice()]).unwrap();
    let refuse = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let error = decode_rows(&definition, [bytes.as_slice()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{at} {value}");
    };
    refuse(0, 0);
    refuse(1, 1);
    refuse(3, 1);
    refuse(7, 1);
    refuse(8, 6);
    refuse(11, 1);
    // Tags: no element, another element, both kinds of nulls, an unknown bit, an id that follows but is not there.
    refuse(12, 0);
    refuse(12, 0x0e);
    refuse(12, 0x0b);
    refuse(12, 0x34);
    refuse(12, 0x84);
    refuse(16, 0x42);
    // Rows that no bytes stand for.
    refuse(4, 255);
    let payload = |tail: &[u8]| [&[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], tail].concat();
    let one = define(
        vec![Field::new("x", DataType::Utf8, true)],
        &CreateOptions::default(),
    );
    decode_rows(&one, [payload(&[0x0c, 1, 0, 0, 0, b'a']).as_slice()]).unwrap();
    for tail in [
        &[0x0c, 1, 0, 0, 0][..],
        &[0x0c, 255, 255, 255, 255, b'a'],
        &[0x0c, 1, 0, 0, 0, 0xff],
        &[0x1c, 2, 1, 0, 0, 0, b'a'],
        &[0x4c, 0, 0, 0, 0, 1, 0, 0, 0, b'a'],
    ] {
        let error = decode_rows(&one, [payload(tail).as_slice()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{tail:?}");
    }
    let required = define(
        vec![Field::new("x", DataType::Int8, false)],
        &CreateOptions::default(),
    );
    assert_eq!(
        decode_rows(&required, [payload(&[0x21]).as_slice()])
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
    assert_eq!(
        decode_rows(&required, [payload(&[0x41, 9, 0, 0, 0, 1]).as_slice()])
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
}
