//! Rows of all types with nulls, NaN, duplicates and late ones, stored and copied.

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMillisecondArray,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, sort, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use fastrand::Rng;
use std::sync::Arc;
use thalweg_query::{ExtraTable, Params, QueryOptions, Session};
use thalweg_table::{CreateOptions, Engine, EngineOptions, with_one_nan};

/// 2026-01-01.
const START_S: i64 = 1_767_225_600;
/// Of the largest values of 64 bits; as many rows as a test has add up to less than an error.
pub(crate) const LARGE: i64 = i64::MAX >> 24;
pub(crate) const START_MS: i64 = START_S * 1_000;

fn schema() -> SchemaRef {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, name != "ts");
    Arc::new(Schema::new(vec![
        field("ts", DataType::Timestamp(TimeUnit::Millisecond, None)),
        field("i8", DataType::Int8),
        field("i16", DataType::Int16),
        field("i32", DataType::Int32),
        field("i64", DataType::Int64),
        field("u8", DataType::UInt8),
        field("u16", DataType::UInt16),
        field("u32", DataType::UInt32),
        field("u64", DataType::UInt64),
        field("f32", DataType::Float32),
        field("f64", DataType::Float64),
        field("nan", DataType::Float64),
        field("inf", DataType::Float64),
        field("none", DataType::Float64),
        field("edge", DataType::Float64),
        field("edge32", DataType::Float32),
        field("flag", DataType::Boolean),
        field("text", DataType::Utf8),
        field("day", DataType::Date32),
        field("cash", DataType::Decimal128(12, 2)),
        field("bytes", DataType::Binary),
        field("at_s", DataType::Timestamp(TimeUnit::Second, None)),
        field(
            "at_us",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        field(
            "at_ns",
            DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
        ),
        field("took", DataType::Duration(TimeUnit::Millisecond)),
    ]))
}

/// Values, a tenth of them null.
fn some<T>(rng: &mut Rng, rows: usize, mut value: impl FnMut(&mut Rng) -> T) -> Vec<Option<T>> {
    (0..rows)
        .map(|_| (rng.u8(0..10) > 0).then(|| value(rng)))
        .collect()
}

fn batch(rng: &mut Rng, first_ms: i64, rows: usize, late: bool) -> RecordBatch {
    let times: Vec<i64> = (first_ms..)
        .step_by(1_000)
        .take(rows)
        .map(|ms| {
            let ms = if late {
                ms - rng.i64(0..5_000_000)
            } else {
                ms + rng.i64(0..2_000)
            };
            // Some times come more than once.
            if rng.bool() { ms } else { ms / 1_000 * 1_000 }
        })
        .collect();
    let nan = |rng: &mut Rng| {
        if rng.u8(0..20) == 0 {
            f64::NAN
        } else {
            rng.f64()
        }
    };
    let inf = |rng: &mut Rng| {
        if rng.u16(..) == 0 {
            f64::INFINITY
        } else {
            rng.f64() * 10.0
        }
    };
    let edge = |rng: &mut Rng| match rng.u8(0..40) {
        0 => f64::NAN,
        1 => -f64::NAN,
        2 => f64::INFINITY,
        3 => f64::NEG_INFINITY,
        4..12 => 0.0,
        12..20 => -0.0,
        _ => f64::from(rng.i8(-8..8)) / 2.0,
    };
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(times)),
        Arc::new(Int8Array::from(some(rng, rows, |rng| rng.i8(..)))),
        Arc::new(Int16Array::from(some(rng, rows, |rng| rng.i16(..)))),
        Arc::new(Int32Array::from(some(rng, rows, |rng| rng.i32(..)))),
        Arc::new(Int64Array::from(some(rng, rows, |rng| {
            rng.i64(LARGE / 4..LARGE)
        }))),
        Arc::new(UInt8Array::from(some(rng, rows, |rng| rng.u8(..)))),
        Arc::new(UInt16Array::from(some(rng, rows, |rng| rng.u16(..)))),
        Arc::new(UInt32Array::from(some(rng, rows, |rng| rng.u32(..)))),
        Arc::new(UInt64Array::from(some(rng, rows, |rng| {
            rng.u64(..LARGE.unsigned_abs())
        }))),
        Arc::new(Float32Array::from(some(rng, rows, |rng| {
            rng.f32() * 100.0 - 50.0
        }))),
        Arc::new(Float64Array::from(some(rng, rows, |rng| {
            (rng.f64() * 1e4).round() / 100.0 - 30.0
        }))),
        Arc::new(Float64Array::from(some(rng, rows, nan))),
        Arc::new(Float64Array::from(some(rng, rows, inf))),
        Arc::new(Float64Array::from(vec![None; rows])),
        Arc::new(Float64Array::from(some(rng, rows, edge))),
        Arc::new(Float32Array::from(some(rng, rows, |rng| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "exact, NaN but for its bits"
            )]
            let value = edge(rng) as f32;
            value
        }))),
        Arc::new(BooleanArray::from(some(rng, rows, |rng| rng.bool()))),
        Arc::new(StringArray::from(some(rng, rows, |rng| {
            format!("host{}", rng.u8(0..5))
        }))),
        Arc::new(Date32Array::from(some(rng, rows, |rng| {
            rng.i32(-20_000..20_000)
        }))),
        Arc::new(
            Decimal128Array::from(some(rng, rows, |rng| i128::from(rng.i32(..))))
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(BinaryArray::from_iter(some(rng, rows, |rng| {
            vec![rng.u8(..); rng.usize(0..3)]
        }))),
        Arc::new(TimestampSecondArray::from(some(rng, rows, |rng| {
            START_S + rng.i64(-500..500)
        }))),
        Arc::new(
            TimestampMicrosecondArray::from(some(rng, rows, |rng| {
                START_S * 1_000_000 + rng.i64(-500..500) * 1_000_000
            }))
            .with_timezone("UTC"),
        ),
        Arc::new(
            TimestampNanosecondArray::from(some(rng, rows, |rng| {
                START_S * 1_000_000_000 + rng.i64(-500..500) * 1_000_000_000
            }))
            .with_timezone("Europe/Berlin"),
        ),
        Arc::new(DurationMillisecondArray::from(some(rng, rows, |rng| {
            rng.i64(-100..100)
        }))),
    ];
    // Blocks of columns in order have narrow ranges, or nothing but nulls: such that can be left out.
    for array in &mut arrays[1..] {
        if rng.bool() {
            *array = sort(array, None).unwrap();
        }
    }
    RecordBatch::try_new(schema(), arrays).unwrap()
}

pub(crate) struct Pair {
    engine: Session,
    copy: Vec<(String, ExtraTable)>,
}

impl Pair {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let engine = Engine::in_memory(EngineOptions::default()).unwrap();
        let options = CreateOptions::stream("ts").with("block_rows", 256);
        let table = engine.create_table("t", &schema(), &options).unwrap();
        let mut all = Vec::new();
        let mut next_ms = START_MS;
        for (rows, late) in [
            (5_000, false),
            (3_000, false),
            (700, true),
            (40, false),
            (4_000, false),
            (90, true),
            (7, false),
        ] {
            let batch = batch(rng, next_ms, rows, late);
            table.append([Ok(batch.clone())], None).unwrap();
            all.push(batch);
            if !late {
                next_ms += i64::try_from(rows).unwrap() * 1_000;
            }
        }
        let all = concat_batches(&schema(), &all).unwrap();
        let copy = ExtraTable::batches(schema(), vec![all]);
        let engine = Session::new(
            engine,
            QueryOptions {
                threads: 2,
                ..QueryOptions::default()
            },
        )
        .unwrap();
        Self {
            engine,
            copy: vec![("m".to_owned(), copy)],
        }
    }

    pub(crate) fn rows(&self, sql: &str, params: &Params) -> RecordBatch {
        let mut result = self
            .engine
            .sql(sql, params, &self.copy)
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        let mut batches = Vec::new();
        while let Some(batch) = result.next_batch().unwrap_or_else(|e| panic!("{sql}: {e}")) {
            assert_eq!(batch.schema(), *result.schema(), "{sql}");
            batches.push(batch);
        }
        concat_batches(result.schema(), &batches).unwrap()
    }

    /// `{}` in the question stands for the table.
    pub(crate) fn ask(&self, question: &str, params: &Params) {
        let stored = self.rows(&question.replace("{}", "t"), params);
        let copied = self.rows(&question.replace("{}", "m"), params);
        let types = |batch: &RecordBatch| {
            batch
                .schema()
                .fields()
                .iter()
                .map(|f| f.data_type().clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(types(&stored), types(&copied), "{question}");
        let ordered = question.contains("ORDER BY");
        // A NaN that nothing compares comes back as it was stored, and the test's own order would tell its bits.
        let (stored, copied) = if ordered {
            (stored, copied)
        } else {
            (sorted(with_one_nan(stored)), sorted(with_one_nan(copied)))
        };
        assert_same(question, &stored, &copied);
    }
}

fn sorted(batch: RecordBatch) -> RecordBatch {
    if batch.num_columns() == 0 {
        return batch;
    }
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|values| SortColumn {
            values: Arc::clone(values),
            options: None,
        })
        .collect();
    take_record_batch(&batch, &lexsort_to_indices(&columns, None).unwrap()).unwrap()
}

pub(crate) fn assert_same(question: &str, stored: &RecordBatch, copied: &RecordBatch) {
    assert_eq!(stored.num_rows(), copied.num_rows(), "{question}");
    let options = FormatOptions::default().with_null("NULL");
    for (column, (left, right)) in stored.columns().iter().zip(copied.columns()).enumerate() {
        let same = if left.data_type().is_floating() {
            close
        } else {
            |left: &str, right: &str| left == right
        };
        let (left, right) = (
            ArrayFormatter::try_new(left, &options).unwrap(),
            ArrayFormatter::try_new(right, &options).unwrap(),
        );
        for row in 0..stored.num_rows() {
            let (left, right) = (left.value(row).to_string(), right.value(row).to_string());
            assert!(
                same(&left, &right),
                "{question}: row {row}, column {column}: {left} is not {right}"
            );
        }
    }
}

/// Whether two floats differ by no more than sums do that were added in another order.
fn close(left: &str, right: &str) -> bool {
    match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(left), Ok(right)) if left.is_finite() && right.is_finite() => {
            (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
        }
        _ => left == right,
    }
}
