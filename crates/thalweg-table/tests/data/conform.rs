//! Which batches a table takes, and as what.

use arrow_array::types::{Int8Type, UInt8Type};
use arrow_array::*;
use arrow_buffer::i256;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use half::f16;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind};
use thalweg_table::{CreateOptions, Layouts, TableDefinition, conform};

fn table(fields: Vec<Field>) -> TableDefinition {
    TableDefinition::create(
        &Layouts::default(),
        &Schema::new(fields),
        &CreateOptions::default(),
    )
    .unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

/// One column `x` of type `to` that is given `array`.
fn store(to: DataType, array: ArrayRef) -> Result<ArrayRef, Error> {
    let stored = conform(
        &table(vec![Field::new("x", to, true)]),
        &batch(vec![("x", array)]),
    )?;
    Ok(Arc::clone(stored.column(0)))
}

fn int64(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

fn naive(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

fn zoned(unit: TimeUnit, zone: &str) -> DataType {
    DataType::Timestamp(unit, Some(zone.into()))
}

#[test]
fn a_column_without_values_fits_every_type() {
    let nulls: ArrayRef = Arc::new(Float64Array::from(vec![None, None]));
    for to in [
        DataType::Utf8,
        DataType::Boolean,
        DataType::Date32,
        naive(TimeUnit::Nanosecond),
    ] {
        let stored = store(to.clone(), Arc::clone(&nulls)).unwrap();
        assert_eq!((stored.data_type(), stored.null_count()), (&to, 2));
        let nans = Float64Array::from(vec![Some(f64::NAN), None]);
        assert_eq!(store(to, Arc::new(nans)).unwrap().null_count(), 2);
    }
    // Nor is it one where some have a value, or where the type alone is given.
    let some: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(1.0)]));
    store(DataType::Utf8, some).unwrap_err();
    store(DataType::Utf8, nulls.slice(0, 0)).unwrap_err();
}

#[test]
fn a_batch_that_fits_is_passed_on() {
    let definition = table(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let columns: Vec<ArrayRef> = vec![int64([Some(1)]), Arc::new(StringArray::from(vec!["x"]))];
    let same = RecordBatch::try_new(Arc::clone(definition.schema()), columns.clone()).unwrap();
    let stored = conform(&definition, &same).unwrap();
    assert!(
        stored
            .columns()
            .iter()
            .zip(&columns)
            .all(|(stored, given)| Arc::ptr_eq(stored, given))
    );
    // Equal by value: metadata and nullability of fields do not matter.
    let fields = vec![
        Field::new("a", DataType::Int64, false)
            .with_metadata([("k".to_owned(), "v".to_owned())].into()),
        Field::new("b", DataType::Utf8, true),
    ];
    let equal = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.clone()).unwrap();
    let stored = conform(&definition, &equal).unwrap();
    assert!(Arc::ptr_eq(&stored.schema(), definition.schema()));
    assert!(Arc::ptr_eq(stored.column(0), &columns[0]));
}

#[test]
fn columns_are_matched_by_name_in_any_order_and_case() {
    let definition = table(vec![
        Field::new("Temp", DataType::Float64, true),
        Field::new("site", DataType::Utf8, true),
        Field::new("n", DataType::Int32, true),
    ]);
    let given = batch(vec![
        ("N", int64([Some(5)])),
        ("temp", Arc::new(Float64Array::from(vec![2.5]))),
    ]);
    let stored = conform(&definition, &given).unwrap();
    let expected: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![2.5])),
        Arc::new(StringArray::from(vec![None::<&str>])),
        Arc::new(Int32Array::from(vec![5])),
    ];
    assert_eq!(stored.columns(), expected);
    assert!(Arc::ptr_eq(&stored.schema(), definition.schema()));
}

#[test]
fn columns_that_do_not_match_are_refused() {
    let definition = table(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("b", DataType::Int64, true),
    ]);
    let one = || int64([Some(1)]);
    let refuse = |columns: Vec<(&str, ArrayRef)>, part: &str| {
        let error = conform(&definition, &batch(columns)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.message().contains(part), "{error}");
    };
    refuse(
        vec![("a", one()), ("c", one())],
        "no column \"c\"; its columns are a, b",
    );
    refuse(vec![("b", one())], "\"a\" is missing");
    refuse(vec![("a", one()), ("A", one())], "given twice");
    refuse(
        vec![("a", int64([Some(1), None])), ("b", int64([None, None]))],
        "column \"a\": row 1 is null",
    );
    let times = TableDefinition::create(
        &Layouts::default(),
        &Schema::new(vec![Field::new("ts", DataType::Int64, true)]),
        &CreateOptions::stream("ts"),
    );
    let error = conform(&times.unwrap(), &batch(vec![("ts", int64([None]))])).unwrap_err();
    assert!(
        error
            .message()
            .contains("row 0 is null, and the time column"),
        "{error}"
    );
}

#[test]
fn empty_batches_are_fine() {
    let definition = table(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Binary, true),
    ]);
    let stored = conform(
        &definition,
        &batch(vec![("a", Arc::new(StringArray::from(Vec::<&str>::new())))]),
    );
    assert!(stored.is_err(), "types are checked without rows, too");
    let stored = conform(&definition, &batch(vec![("a", int64([]))])).unwrap();
    assert_eq!((stored.num_rows(), stored.num_columns()), (0, 2));
}

#[test]
fn casts_that_lose_nothing_are_made() {
    let dictionary: DictionaryArray<Int8Type> = ["on", "off", "on"].into_iter().collect();
    let text = |values: &[&str]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let cases: Vec<(ArrayRef, ArrayRef)> = vec![
        (
            Arc::new(Int8Array::from(vec![-128, 127])),
            int64([Some(-128), Some(127)]),
        ),
        (
            int64([Some(-128), None, Some(127)]),
            Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])),
        ),
        (
            int64([Some(0), Some(i64::MAX)]),
            Arc::new(UInt64Array::from(vec![0, i64::MAX as u64])),
        ),
        (
            int64([Some(1 << 53)]),
            Arc::new(Float64Array::from(vec![9_007_199_254_740_992.0])),
        ),
        (
            Arc::new(Int16Array::from(vec![-3])),
            Arc::new(Float32Array::from(vec![-3.0])),
        ),
        (
            Arc::new(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY, -0.0])),
            Arc::new(Float32Array::from(vec![1.5, f32::NAN, f32::INFINITY, -0.0])),
        ),
        (
            Arc::new(Float64Array::from(vec![Some(0.1), None, Some(1e-60)])),
            Arc::new(Float32Array::from(vec![Some(0.1), None, Some(0.0)])),
        ),
        (
            Arc::new(Float64Array::from(vec![Some(0.1), None, Some(-12.5)])),
            Arc::new(
                Decimal128Array::from(vec![Some(10), None, Some(-1_250)])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
        ),
        (
            Arc::new(FixedSizeBinaryArray::try_from_iter([b"abc", b"def"].into_iter()).unwrap()),
            text(&["abc", "def"]),
        ),
        (
            Arc::new(Float32Array::from(vec![0.1])),
            Arc::new(Float64Array::from(vec![f64::from(0.1_f32)])),
        ),
        (
            Arc::new(Float16Array::from(vec![f16::from_f32(0.5)])),
            Arc::new(Float32Array::from(vec![0.5])),
        ),
        (
            Arc::new(Float64Array::from(vec![Some(3.0), None])),
            int64([Some(3), None]),
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![-1, 2])),
            Arc::new(TimestampNanosecondArray::from(vec![
                -1_000_000_000,
                2_000_000_000,
            ])),
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![-5_000, 7_000])),
            Arc::new(TimestampMicrosecondArray::from(vec![-5, 7])),
        ),
        (
            Arc::new(Date32Array::from(vec![1, -1])),
            Arc::new(TimestampMillisecondArray::from(vec![
                86_400_000,
                -86_400_000,
            ])),
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![-86_400])),
            Arc::new(Date32Array::from(vec![-1])),
        ),
        (
            Arc::new(Date64Array::from(vec![86_400_000])),
            Arc::new(Date32Array::from(vec![1])),
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![5])),
            Arc::new(TimestampMillisecondArray::from(vec![5]).with_timezone("Europe/Berlin")),
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![5]).with_timezone("Asia/Tokyo")),
            Arc::new(TimestampMillisecondArray::from(vec![5_000])),
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![5]).with_timezone("Asia/Tokyo")),
            Arc::new(TimestampSecondArray::from(vec![5]).with_timezone("UTC")),
        ),
        (
            int64([Some(5), None]),
            Arc::new(TimestampMillisecondArray::from(vec![Some(5), None]).with_timezone("UTC")),
        ),
        (
            Arc::new(UInt16Array::from(vec![5])),
            Arc::new(Date32Array::from(vec![5])),
        ),
        (
            int64([Some(-5)]),
            Arc::new(DurationSecondArray::from(vec![-5])),
        ),
        (
            Arc::new(DurationSecondArray::from(vec![5])),
            Arc::new(DurationMicrosecondArray::from(vec![5_000_000])),
        ),
        (
            Arc::new(LargeStringArray::from(vec![Some("a"), None])),
            Arc::new(StringArray::from(vec![Some("a"), None])),
        ),
        (
            Arc::new(StringViewArray::from(vec![
                "short",
                "a string longer than twelve bytes",
            ])),
            text(&["short", "a string longer than twelve bytes"]),
        ),
        (Arc::new(dictionary), text(&["on", "off", "on"])),
        (
            text(&["ä"]),
            Arc::new(BinaryArray::from(vec!["ä".as_bytes()])),
        ),
        (
            Arc::new(LargeBinaryArray::from(vec!["ä".as_bytes()])),
            text(&["ä"]),
        ),
        (
            Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab", b"cd"].iter()).unwrap()),
            Arc::new(BinaryArray::from(vec![&b"ab"[..], b"cd"])),
        ),
        (
            text(&["1970-01-01T00:00:01.5Z", "1970-01-01"]),
            Arc::new(TimestampMillisecondArray::from(vec![1_500, 0])),
        ),
        (
            Arc::new(LargeStringArray::from(vec!["1970-01-03"])),
            Arc::new(Date32Array::from(vec![2])),
        ),
        (
            int64([Some(7)]),
            Arc::new(
                Decimal128Array::from(vec![700])
                    .with_precision_and_scale(5, 2)
                    .unwrap(),
            ),
        ),
        (
            Arc::new(
                Decimal32Array::from(vec![150])
                    .with_precision_and_scale(5, 2)
                    .unwrap(),
            ),
            Arc::new(
                Decimal128Array::from(vec![15])
                    .with_precision_and_scale(9, 1)
                    .unwrap(),
            ),
        ),
        (
            Arc::new(
                Decimal256Array::from(vec![i256::from_i128(15)])
                    .with_precision_and_scale(60, 1)
                    .unwrap(),
            ),
            Arc::new(
                Decimal128Array::from(vec![150])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
        ),
        (
            decimal(vec![1, -150], 5, 2),
            Arc::new(Float64Array::from(vec![0.01, -1.5])),
        ),
        (
            decimal(vec![1, 0], 5, 1),
            Arc::new(Float32Array::from(vec![0.1, 0.0])),
        ),
        (
            decimal(vec![700, -500], 5, 2),
            Arc::new(Int8Array::from(vec![7, -5])),
        ),
        (
            Arc::new(NullArray::new(2)),
            Arc::new(BooleanArray::from(vec![None, None])),
        ),
    ];
    for (given, expected) in cases {
        let to = expected.data_type().clone();
        let stored = store(to.clone(), Arc::clone(&given))
            .unwrap_or_else(|e| panic!("{} -> {to}: {e}", given.data_type()));
        assert_eq!(
            stored.to_data(),
            expected.to_data(),
            "{} -> {to}",
            given.data_type()
        );
    }
}

fn decimal(unscaled: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(unscaled);
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn casts_that_lose_something_name_column_row_and_value() {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let unused_bad: ArrayRef = Arc::new(StringArray::from(vec!["bad", "1970-01-01", "worse"]));
    let keys = UInt8Array::from(vec![1, 1, 2]);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::<UInt8Type>::new(keys, unused_bad));
    let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec!["1970-01-01", value])) };
    let cases: Vec<(ArrayRef, DataType, usize, &str)> = vec![
        (int64([Some(1), Some(128)]), DataType::Int8, 1, "128"),
        (int64([Some(-1)]), DataType::UInt64, 0, "-1"),
        (
            Arc::new(UInt64Array::from(vec![1 << 63])),
            DataType::Int64,
            0,
            "9223372036854775808",
        ),
        (
            int64([None, Some((1 << 53) + 1)]),
            DataType::Float64,
            1,
            "9007199254740993",
        ),
        (
            int64([Some(i64::MAX)]),
            DataType::Float64,
            0,
            "9223372036854775807",
        ),
        (
            Arc::new(Int32Array::from(vec![16_777_217])),
            DataType::Float32,
            0,
            "16777217",
        ),
        (
            Arc::new(Float64Array::from(vec![1.0, 3.7])),
            DataType::Int32,
            1,
            "3.7",
        ),
        (
            Arc::new(Float64Array::from(vec![f64::NAN])),
            DataType::Int64,
            0,
            "NaN",
        ),
        (
            Arc::new(Float64Array::from(vec![-0.0])),
            DataType::Int64,
            0,
            "-0.0",
        ),
        (
            Arc::new(Float64Array::from(vec![0.25, 0.3])),
            DataType::Decimal128(9, 1),
            0,
            "0.25",
        ),
        (
            Arc::new(Float32Array::from(vec![0.5, f32::NAN])),
            DataType::Decimal128(9, 1),
            1,
            "NaN",
        ),
        (
            Arc::new(Float64Array::from(vec![1e300])),
            DataType::Float32,
            0,
            "1e300",
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![2_000, -1_500])),
            naive(Second),
            1,
            "1969-12-31T23:59:58.500",
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![1 << 60])),
            naive(Nanosecond),
            0,
            "",
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")),
            zoned(Millisecond, "UTC"),
            0,
            "",
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![1])),
            DataType::Date32,
            0,
            "00:00:01",
        ),
        (
            Arc::new(Date64Array::from(vec![1])),
            DataType::Date32,
            0,
            "",
        ),
        (
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            naive(Microsecond),
            0,
            "18446744073709551615",
        ),
        (int64([Some(1 << 40)]), DataType::Date32, 0, "1099511627776"),
        (
            Arc::new(DurationMillisecondArray::from(vec![1_500])),
            DataType::Duration(Second),
            0,
            "",
        ),
        (
            Arc::new(BinaryArray::from(vec![&b"\xff"[..]])),
            DataType::Utf8,
            0,
            "ff",
        ),
        (text("soon"), naive(Second), 1, "soon"),
        (
            text("1970-01-01T00:00:00.5"),
            naive(Second),
            1,
            "00:00:00.5",
        ),
        (text("1970-01-01T12:00:00"), DataType::Date32, 1, "12:00:00"),
        (dictionary, DataType::Date32, 2, "worse"),
        (int64([Some(1_000)]), DataType::Decimal128(3, 1), 0, "1000"),
        (
            Arc::new(
                Decimal128Array::from(vec![155])
                    .with_precision_and_scale(5, 2)
                    .unwrap(),
            ),
            DataType::Decimal128(9, 1),
            0,
            "1.55",
        ),
        (
            decimal(vec![1, 9_007_199_254_740_993], 20, 0),
            DataType::Float64,
            1,
            "9007199254740993",
        ),
        (
            decimal(vec![16_777_217], 20, 0),
            DataType::Float32,
            0,
            "16777217",
        ),
        (decimal(vec![10, 15], 5, 1), DataType::Int64, 1, "1.5"),
        (decimal(vec![300], 5, 0), DataType::UInt8, 0, "300"),
    ];
    let mut out_of_range = Vec::new();
    for (given, to, row, value) in cases {
        let error = store(to.clone(), Arc::clone(&given))
            .expect_err(&format!("{} -> {to}", given.data_type()));
        assert_eq!(error.kind(), ErrorKind::Schema);
        if error.message().contains("outside the range") {
            out_of_range.push((given.data_type().clone(), to));
        }
        assert!(
            error
                .message()
                .contains(&format!("column \"x\": row {row} holds ")),
            "{error}"
        );
        assert!(error.message().contains(value), "{value}: {error}");
    }
    let expected = [
        (DataType::Int64, DataType::Int8),
        (DataType::Int64, DataType::UInt64),
        (DataType::UInt64, DataType::Int64),
        (DataType::Float64, DataType::Float32),
        (naive(Second), naive(Nanosecond)),
        (DataType::UInt64, naive(Microsecond)),
        (DataType::Int64, DataType::Date32),
        (DataType::Int64, DataType::Decimal128(3, 1)),
        (DataType::Decimal128(5, 0), DataType::UInt8),
    ];
    assert_eq!(out_of_range, expected);
}

#[test]
fn types_of_different_kinds_are_never_exchanged() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let time: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1]));
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<types::Int64Type, _, _>([
        Some([Some(1)]),
    ]));
    let cases = [
        (&text, DataType::Int64),
        (&text, DataType::Boolean),
        (&time, DataType::Int64),
        (&time, DataType::Utf8),
        (&time, DataType::Duration(TimeUnit::Second)),
        (&list, DataType::Int64),
    ];
    for (given, to) in cases {
        let error = store(to, Arc::clone(given)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.message().contains("column \"x\" is "), "{error}");
    }
    assert!(store(DataType::Boolean, int64([Some(1)])).is_err());
    assert!(store(DataType::Int8, Arc::new(BooleanArray::from(vec![true]))).is_err());
}

#[test]
fn strings_above_the_limit_are_refused() {
    let limit = 16 << 20;
    let big = "x".repeat(limit);
    let at_limit: ArrayRef = Arc::new(StringArray::from(vec!["a", &big, "b"]));
    assert_eq!(store(DataType::Utf8, at_limit).unwrap().len(), 3);
    let longer = big + "x";
    for above in [
        Arc::new(StringArray::from(vec!["a", &longer])) as ArrayRef,
        Arc::new(LargeStringArray::from(vec!["a", &longer])),
    ] {
        let error = store(DataType::Utf8, above).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(
            error
                .message()
                .contains("column \"x\": row 1 holds 16777217 bytes"),
            "{error}"
        );
    }
}

#[test]
fn long_values_are_cut_in_messages() {
    let long: ArrayRef = Arc::new(StringArray::from(vec!["é".repeat(500)]));
    let error = store(naive(TimeUnit::Second), long).unwrap_err();
    assert!(
        error.message().len() < 300 && error.message().contains("...\""),
        "{error}"
    );
}
