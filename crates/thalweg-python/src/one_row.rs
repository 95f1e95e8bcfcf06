//! A table of one row that comes through Arrow's C interface, read as the values of a row.
//!
//! Such rows are what a sensor sends. Importing ten columns as arrays takes 8 us where it was done just before, and 25 us in
//! an append that has waited for the disk, a fifth of the whole append; reading the values takes less than 1 us.
//!
//! Invariants: only a row is read that has the names and types of the table, in its order, and nothing to refuse: all others
//! are imported, so that there is one way to match columns, to cast, and to report what does not fit. The memory of whoever exports
//! is read while it is owned here, and given back before the call returns.
#![expect(
    unsafe_code,
    reason = "Arrow's C interface hands over pointers, and arrow-rs reads them only into arrays"
)]

use crate::foreign::give_back;
use arrow_array::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use thalweg::Value;

/// Wider rows are imported.
const MAX_COLUMNS: usize = 64;
/// Longer values are imported, and checked against the limits there.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// How the bytes of a value lie.
#[derive(Clone, Copy)]
enum Form {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// With offsets of four bytes.
    Text,
    /// With offsets of eight bytes.
    LargeText,
    Bytes,
    LargeBytes,
}

/// Calls `put` with the values of the row that these capsules hold, in the order of `columns`; `None` if it is to be imported.
///
/// `put` may release the interpreter: the row is taken out of its capsule before, so that no other thread can free the row.
pub(crate) fn with_row<T>(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
    columns: &Schema,
    put: impl FnOnce(&[Value<'_>]) -> T,
) -> Option<T> {
    let place = array.pointer_checked(Some(c"arrow_array")).ok()?.cast();
    let array = content_of(array)?;
    let schema = schema.pointer_checked(Some(c"arrow_schema")).ok()?;
    // SAFETY: a capsule of this name points to this struct, which lives as long as the capsule, and nobody writes to it while it
    // is borrowed.
    let schema = unsafe { schema.cast::<FFI_ArrowSchema>().as_ref() };
    let mut values = [Value::Null; MAX_COLUMNS];
    let values = values.get_mut(..columns.fields().len())?;
    let is_row = !array.is_released()
        && array.len() == 1
        && array.null_count_opt() == Some(0)
        && array.num_children() == values.len()
        && schema.format() == "+s"
        && schema.children().count() == values.len();
    if !is_row {
        return None;
    }
    for (place, (value, column)) in values.iter_mut().zip(columns.fields()).enumerate() {
        let form = form_of(schema.child(place), column)?;
        *value = read(array.child(place), form, array.offset(), column)?;
    }
    // SAFETY: `place` is that of `array`, which is not released. What its pointers lead to stays where it is.
    let taken = unsafe { FFI_ArrowArray::from_raw(place.as_ptr()) };
    let result = put(values);
    give_back(taken);
    Some(result)
}

/// Whether what a capsule holds was handed to somebody before: it can be read once.
pub(crate) fn was_read(array: &Bound<'_, PyCapsule>) -> bool {
    content_of(array).is_some_and(FFI_ArrowArray::is_released)
}

fn content_of<'a>(array: &'a Bound<'_, PyCapsule>) -> Option<&'a FFI_ArrowArray> {
    let array = array.pointer_checked(Some(c"arrow_array")).ok()?;
    // SAFETY: as for schemas, and whoever takes it out of the capsule holds the interpreter, as the caller does here.
    Some(unsafe { array.cast::<FFI_ArrowArray>().as_ref() })
}

/// The form of a column that has the name and the type of one of the table.
fn form_of(given: &FFI_ArrowSchema, column: &Field) -> Option<Form> {
    if given.name() != Some(column.name().as_str()) || given.dictionary().is_some() {
        return None;
    }
    let is_text = column.data_type().is_string();
    let is_binary = column.data_type().is_binary();
    let form = match (given.format(), column.data_type()) {
        ("b", DataType::Boolean) => Form::Bool,
        ("c", DataType::Int8) => Form::I8,
        ("s", DataType::Int16) => Form::I16,
        ("i", DataType::Int32) | ("tdD", DataType::Date32) => Form::I32,
        ("l", DataType::Int64) => Form::I64,
        ("C", DataType::UInt8) => Form::U8,
        ("S", DataType::UInt16) => Form::U16,
        ("I", DataType::UInt32) => Form::U32,
        ("L", DataType::UInt64) => Form::U64,
        ("f", DataType::Float32) => Form::F32,
        ("g", DataType::Float64) => Form::F64,
        ("u", _) if is_text => Form::Text,
        ("U", _) if is_text => Form::LargeText,
        ("z", _) if is_binary => Form::Bytes,
        ("Z", _) if is_binary => Form::LargeBytes,
        (format, DataType::Timestamp(unit, zone)) => {
            let (given_unit, given_zone) = format.strip_prefix("ts")?.split_once(':')?;
            let zone = zone.as_deref().unwrap_or_default();
            (given_unit == letter_of(*unit) && given_zone == zone).then_some(Form::I64)?
        }
        (format, DataType::Duration(unit)) => {
            (format.strip_prefix("tD")? == letter_of(*unit)).then_some(Form::I64)?
        }
        _ => return None,
    };
    Some(form)
}

fn letter_of(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "m",
        TimeUnit::Microsecond => "u",
        TimeUnit::Nanosecond => "n",
    }
}

/// The value of the only row of a column. `offset`: that of the table, which is beside the column's own.
fn read<'a>(
    array: &'a FFI_ArrowArray,
    form: Form,
    offset: usize,
    column: &Field,
) -> Option<Value<'a>> {
    let at = array.offset().checked_add(offset)?;
    let buffers = match form {
        Form::Text | Form::LargeText | Form::Bytes | Form::LargeBytes => 3,
        _ => 2,
    };
    if offset >= array.len() || array.num_buffers() != buffers || array.is_released() {
        return None;
    }
    let validity = array.buffer(0);
    // SAFETY: a bitmap that is there has a bit for each row up to the end of the column, and `at` is not past it.
    if !validity.is_null() && !unsafe { bit(validity, at) } {
        return column.is_nullable().then_some(Value::Null);
    }
    let values = array.buffer(1);
    if values.is_null() {
        return None;
    }
    macro_rules! number {
        ($type:ty) => {
            // SAFETY: there are as many values as rows, and `at` is one of them. They need not be aligned.
            unsafe { values.cast::<$type>().add(at).read_unaligned() }
        };
    }
    Some(match form {
        // SAFETY: as for the other bitmap.
        Form::Bool => Value::Bool(unsafe { bit(values, at) }),
        Form::I8 => Value::Int(number!(i8).into()),
        Form::I16 => Value::Int(number!(i16).into()),
        Form::I32 => Value::Int(number!(i32).into()),
        Form::I64 => Value::Int(number!(i64)),
        Form::U8 => Value::UInt(number!(u8).into()),
        Form::U16 => Value::UInt(number!(u16).into()),
        Form::U32 => Value::UInt(number!(u32).into()),
        Form::U64 => Value::UInt(number!(u64)),
        Form::F32 => {
            let value = number!(f32);
            // The bits of a NaN are kept, which the way through the wider type does not promise.
            (!value.is_nan()).then_some(Value::Float(value.into()))?
        }
        Form::F64 => Value::Float(number!(f64)),
        Form::Text | Form::Bytes | Form::LargeText | Form::LargeBytes => {
            // SAFETY: there is one offset more than there are rows.
            let (start, end) = unsafe {
                match form {
                    Form::Text | Form::Bytes => {
                        let offsets = values.cast::<i32>().add(at);
                        let (start, end) =
                            (offsets.read_unaligned(), offsets.add(1).read_unaligned());
                        (i64::from(start), i64::from(end))
                    }
                    _ => {
                        let offsets = values.cast::<i64>().add(at);
                        (offsets.read_unaligned(), offsets.add(1).read_unaligned())
                    }
                }
            };
            let start = usize::try_from(start).ok()?;
            let len = usize::try_from(end).ok()?.checked_sub(start)?;
            if len > MAX_VALUE_BYTES {
                return None;
            }
            let data = array.buffer(2);
            let bytes: &[u8] = if len == 0 {
                &[]
            } else if data.is_null() {
                return None;
            } else {
                // SAFETY: the bytes between two offsets are in the buffer.
                unsafe { std::slice::from_raw_parts(data.add(start), len) }
            };
            match form {
                Form::Text | Form::LargeText => Value::Text(std::str::from_utf8(bytes).ok()?),
                _ => Value::Bytes(bytes),
            }
        }
    })
}

/// # Safety
/// The bitmap must have that bit.
unsafe fn bit(bitmap: *const u8, at: usize) -> bool {
    // SAFETY: the caller's promise.
    let byte = unsafe { bitmap.add(at / 8).read() };
    byte >> (at % 8) & 1 == 1
}
