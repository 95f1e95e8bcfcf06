//! Batches of every stored type: extremes, NaNs with payloads, nulls in every density, slices of larger batches.

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray, types,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_table::{CreateOptions, Layouts, TableDefinition};

/// Every stored type at least once.
pub(crate) fn all_types() -> Vec<DataType> {
    let zone = || Some(Arc::from("Europe/Berlin"));
    vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 10),
        DataType::Decimal128(5, -2),
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Millisecond, zone()),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Nanosecond, zone()),
        DataType::Duration(TimeUnit::Second),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Duration(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Nanosecond),
    ]
}

/// How the values of a column are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Any bits, extremes often.
    Wild,
    /// A slow walk.
    Walk,
    /// One value.
    Constant,
}

/// A column to draw.
#[derive(Clone, Debug)]
pub(crate) struct ColumnPlan {
    data_type: DataType,
    shape: Shape,
    /// Of 100 rows.
    null_percent: u8,
    seed: u64,
}

fn any_column() -> impl Strategy<Value = ColumnPlan> {
    let shape = prop_oneof![Just(Shape::Wild), Just(Shape::Walk), Just(Shape::Constant)];
    let nulls = prop_oneof![3 => Just(0_u8), 2 => 1..99_u8, 1 => Just(100_u8)];
    (
        prop::sample::select(all_types()),
        shape,
        nulls,
        any::<u64>(),
    )
        .prop_map(|(data_type, shape, null_percent, seed)| ColumnPlan {
            data_type,
            shape,
            null_percent,
            seed,
        })
}

/// A definition ordered by arrival, and rows for it that are a slice of more rows.
pub(crate) fn any_table(max_rows: usize) -> impl Strategy<Value = (TableDefinition, RecordBatch)> {
    (
        prop::collection::vec(any_column(), 1..7),
        0..max_rows,
        0..70_usize,
        0..5_usize,
    )
        .prop_map(|(plans, rows, before, after)| {
            let all_rows = before + rows + after;
            let arrays = plans
                .iter()
                .map(|plan| draw(plan, all_rows))
                .collect::<Vec<_>>();
            let names = (0..plans.len()).map(|index| format!("c{index}"));
            let fields = names
                .zip(&plans)
                .map(|(name, plan)| Field::new(name, plan.data_type.clone(), true));
            let schema = Schema::new(fields.collect::<Vec<_>>());
            let definition =
                TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::default())
                    .unwrap();
            let batch = RecordBatch::try_new(Arc::clone(definition.schema()), arrays).unwrap();
            (definition, batch.slice(before, rows))
        })
}

/// The rows of a plan.
pub(crate) fn draw(plan: &ColumnPlan, rows: usize) -> ArrayRef {
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut walk = rng.u64(..);
    let mut bits = |rng: &mut fastrand::Rng| match plan.shape {
        Shape::Constant => walk,
        Shape::Walk => {
            walk = walk.wrapping_add(rng.u64(..100));
            walk
        }
        Shape::Wild => match rng.u8(..6) {
            0 => 0,
            1 => u64::MAX,
            2 => i64::MIN.cast_unsigned(),
            3 => i64::MAX.cast_unsigned(),
            4 => f64::NAN.to_bits() | 7,
            _ => rng.u64(..),
        },
    };
    let drawn = (0..rows)
        .map(|_| (rng.u8(..100) >= plan.null_percent).then(|| bits(&mut rng)))
        .collect::<Vec<_>>();
    array(&plan.data_type, &drawn)
}

fn primitive<T: ArrowPrimitiveType>(
    data_type: &DataType,
    rows: &[Option<u64>],
    value: fn(u64) -> T::Native,
) -> ArrayRef {
    let array = rows
        .iter()
        .map(|bits| bits.map(value))
        .collect::<PrimitiveArray<T>>();
    Arc::new(array.with_data_type(data_type.clone()))
}

fn array(data_type: &DataType, rows: &[Option<u64>]) -> ArrayRef {
    use DataType as T;
    let text = |bits: &u64| {
        if bits.is_multiple_of(8) {
            String::new()
        } else {
            format!("Größe {}", bits >> (bits % 64))
        }
    };
    match data_type {
        T::Boolean => Arc::new(
            rows.iter()
                .map(|bits| bits.map(|b| b & 1 == 1))
                .collect::<BooleanArray>(),
        ),
        T::Int8 => primitive::<types::Int8Type>(data_type, rows, |b| b as i8),
        T::Int16 => primitive::<types::Int16Type>(data_type, rows, |b| b as i16),
        T::Int32 => primitive::<types::Int32Type>(data_type, rows, |b| b as i32),
        T::Int64 => primitive::<types::Int64Type>(data_type, rows, |b| b as i64),
        T::UInt8 => primitive::<types::UInt8Type>(data_type, rows, |b| b as u8),
        T::UInt16 => primitive::<types::UInt16Type>(data_type, rows, |b| b as u16),
        T::UInt32 => primitive::<types::UInt32Type>(data_type, rows, |b| b as u32),
        T::UInt64 => primitive::<types::UInt64Type>(data_type, rows, |b| b),
        T::Float32 => {
            primitive::<types::Float32Type>(data_type, rows, |b| f32::from_bits(b as u32))
        }
        T::Float64 => primitive::<types::Float64Type>(data_type, rows, f64::from_bits),
        T::Decimal128(38, _) => primitive::<types::Decimal128Type>(data_type, rows, |b| {
            i128::from(b as i64) * 1_000_000_007
        }),
        T::Decimal128(..) => {
            primitive::<types::Decimal128Type>(data_type, rows, |b| i128::from(b % 99_999))
        }
        T::Date32 => primitive::<types::Date32Type>(data_type, rows, |b| b as i32),
        T::Timestamp(TimeUnit::Second, _) => {
            primitive::<types::TimestampSecondType>(data_type, rows, |b| b as i64)
        }
        T::Timestamp(TimeUnit::Millisecond, _) => {
            primitive::<types::TimestampMillisecondType>(data_type, rows, |b| b as i64)
        }
        T::Timestamp(TimeUnit::Microsecond, _) => {
            primitive::<types::TimestampMicrosecondType>(data_type, rows, |b| b as i64)
        }
        T::Timestamp(TimeUnit::Nanosecond, _) => {
            primitive::<types::TimestampNanosecondType>(data_type, rows, |b| b as i64)
        }
        T::Duration(TimeUnit::Second) => {
            primitive::<types::DurationSecondType>(data_type, rows, |b| b as i64)
        }
        T::Duration(TimeUnit::Millisecond) => {
            primitive::<types::DurationMillisecondType>(data_type, rows, |b| b as i64)
        }
        T::Duration(TimeUnit::Microsecond) => {
            primitive::<types::DurationMicrosecondType>(data_type, rows, |b| b as i64)
        }
        T::Duration(TimeUnit::Nanosecond) => {
            primitive::<types::DurationNanosecondType>(data_type, rows, |b| b as i64)
        }
        T::Utf8 => Arc::new(
            rows.iter()
                .map(|bits| bits.as_ref().map(text))
                .collect::<StringArray>(),
        ),
        T::Binary => {
            let bytes = rows
                .iter()
                .map(|bits| bits.map(|b| b.to_le_bytes()[..(b % 9) as usize].to_vec()));
            Arc::new(bytes.collect::<BinaryArray>())
        }
        other => panic!("{other} is no stored type"),
    }
}
