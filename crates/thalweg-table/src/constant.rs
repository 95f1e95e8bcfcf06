//! Constants in definitions: what a column has where no value was given.
//!
//! Invariants: a constant is a text that says a value exactly, as `docs/format/definition.md` spells it; its bytes are those that the
//! value has in raw rows.

use crate::schema::element_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use std::fmt::Write as _;
use thalweg_codec::ElementType;

/// The text of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant(String);

impl Constant {
    /// The constant with this text. Whether it is one of a type shows [`Self::bytes`].
    pub(crate) fn of_text(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The only value of an array, which has the type of its column; `None` for null.
    pub(crate) fn of_array(array: &ArrayRef) -> Option<Self> {
        if array.is_null(0) {
            return None;
        }
        Some(Self(match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().value(0).to_owned(),
            DataType::Binary => hexadecimal(array.as_binary::<i32>().value(0)),
            DataType::Boolean => array.as_boolean().value(0).to_string(),
            other => text_of_number(element_type(other)?, array)?,
        }))
    }

    /// The bytes of the value in a column of a type; `None`: it is no value of that type.
    pub(crate) fn bytes(&self, data_type: &DataType) -> Option<Vec<u8>> {
        use ElementType as E;
        macro_rules! number {
            ($type:ty) => {
                self.0.parse::<$type>().ok()?.to_le_bytes().to_vec()
            };
        }
        Some(match element_type(data_type)? {
            E::I8 => number!(i8),
            E::I16 => number!(i16),
            E::I32 => number!(i32),
            E::I64 => number!(i64),
            E::I128 => number!(i128),
            E::U8 => number!(u8),
            E::U16 => number!(u16),
            E::U32 => number!(u32),
            E::U64 => number!(u64),
            E::F32 => self.float32()?.to_le_bytes().to_vec(),
            // The digits of a column that was narrower when it got its constant.
            E::F64 => match self.float32() {
                Some(narrow) => f64::from(narrow).to_le_bytes().to_vec(),
                None if self.0.len() == 16 => u64::from_str_radix(&self.0, 16)
                    .ok()?
                    .to_le_bytes()
                    .to_vec(),
                None => return None,
            },
            E::Bits => vec![u8::from(self.0.parse::<bool>().ok()?)],
            E::Bytes if *data_type == DataType::Binary => bytes_of(&self.0)?,
            E::Bytes => self.0.clone().into_bytes(),
        })
    }

    fn float32(&self) -> Option<f32> {
        let bits = (self.0.len() == 8).then(|| u32::from_str_radix(&self.0, 16))?;
        bits.ok().map(f32::from_bits)
    }
}

fn text_of_number(element: ElementType, array: &ArrayRef) -> Option<String> {
    use ElementType as E;
    let data = array.to_data();
    let width = array.data_type().primitive_width()?;
    let values = data
        .buffers()
        .first()?
        .as_slice()
        .get(data.offset() * width..)?;
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_le_bytes(values.get(..size_of::<$type>())?.try_into().ok()?)
        };
    }
    Some(match element {
        E::I8 => number!(i8).to_string(),
        E::I16 => number!(i16).to_string(),
        E::I32 => number!(i32).to_string(),
        E::I64 => number!(i64).to_string(),
        E::I128 => number!(i128).to_string(),
        E::U8 => number!(u8).to_string(),
        E::U16 => number!(u16).to_string(),
        E::U32 => number!(u32).to_string(),
        E::U64 => number!(u64).to_string(),
        E::F32 => format!("{:08x}", number!(u32)),
        E::F64 => format!("{:016x}", number!(u64)),
        E::Bits | E::Bytes => return None,
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = digits.chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::constant_array;
    use arrow_array::{
        BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int8Array,
        StringArray, TimestampMillisecondArray, UInt64Array,
    };
    use std::sync::Arc;

    #[test]
    fn constants_are_the_values_that_they_were_made_of() {
        let arrays: [ArrayRef; 9] = [
            Arc::new(Int8Array::from(vec![-128])),
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            Arc::new(Float64Array::from(vec![-0.0])),
            Arc::new(Float32Array::from(vec![0.1])),
            Arc::new(
                Decimal128Array::from(vec![-12_345])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
            Arc::new(BooleanArray::from(vec![true])),
            Arc::new(StringArray::from(vec!["a \"text\""])),
            Arc::new(BinaryArray::from(vec![&[0_u8, 255][..]])),
            Arc::new(TimestampMillisecondArray::from(vec![-1])),
        ];
        for array in arrays {
            let constant = Constant::of_array(&array).unwrap();
            let made = constant_array(&constant, array.data_type(), 3).unwrap();
            assert_eq!(made.len(), 3);
            assert_eq!(made.slice(2, 1).as_ref(), array.as_ref(), "{constant:?}");
        }
        let null: ArrayRef = Arc::new(Int8Array::from(vec![None]));
        assert_eq!(Constant::of_array(&null), None);
    }

    #[test]
    fn what_is_no_value_of_a_type_is_none() {
        for (text, data_type) in [
            ("128", DataType::Int8),
            ("1.5", DataType::Int64),
            ("yes", DataType::Boolean),
            ("123", DataType::Binary),
            ("0g", DataType::Binary),
            ("3ff", DataType::Float64),
            ("+ff00000000000000", DataType::Float64),
        ] {
            assert_eq!(Constant(text.to_owned()).bytes(&data_type), None, "{text}");
        }
        // A float32 in a column that has become one of float64.
        let narrow = Constant(format!("{:08x}", 1.5_f32.to_bits()));
        assert_eq!(
            narrow.bytes(&DataType::Float64),
            Some(1.5_f64.to_le_bytes().to_vec())
        );
    }
}
