//! Casts of whole numbers, decimals, dates and times to types that do not hold all of them.
//!
//! Invariant: what they are compared with stays what it is. DataFusion moves a cast from a column to the constant beside it, and
//! takes `d::INT = 113` for `d = 113.00`, which leaves out 113.97, and `TRY_CAST(i AS INTEGER) > 0` for `i > 0`, which takes in
//! numbers that have no such value. Casts between times that are no TRY_CAST are left to it: `time_unit` compares in the unit of the
//! column before, so that a time beyond nanoseconds gives an answer there in the place of an error.

use crate::functions::unchanged::opaque;
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};

/// The cast that `expr` is, out of sight of rules for casts.
pub(super) fn unseen(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let inner = match &expr {
        Expr::Cast(Cast { expr: inner, .. }) | Expr::TryCast(TryCast { expr: inner, .. }) => {
            Some(&**inner)
        }
        // Casts that are written as calls, which become casts later.
        Expr::ScalarFunction(call)
            if matches!(call.func.name(), "arrow_cast" | "arrow_try_cast") =>
        {
            call.args.first()
        }
        _ => None,
    };
    // What has no type here, as a placeholder, gets one before this rule is asked again.
    let (Some(inner), Some(Ok(from)), Ok(to)) = (
        inner,
        inner.map(|inner| inner.get_type(schema)),
        expr.get_type(schema),
    ) else {
        return Transformed::no(expr);
    };
    // Constants are folded before anything is concluded, but for numbers beside dates.
    let is_constant = matches!(inner, Expr::Literal(..)) && !is_time(&to);
    let tries = match &expr {
        Expr::TryCast(_) => true,
        Expr::ScalarFunction(call) => call.func.name() == "arrow_try_cast",
        _ => false,
    };
    let is_unseen = match is_time(&from) && is_time(&to) {
        true => tries && from != to,
        false => is_narrower(&from, &to),
    };
    match is_unseen && !is_constant {
        true => Transformed::yes(opaque(expr)),
        false => Transformed::no(expr),
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
    )
}

/// Whether a cast changes or refuses some values, of types between which DataFusion moves casts.
fn is_narrower(from: &DataType, to: &DataType) -> bool {
    match (Numbers::of(from), Numbers::of(to)) {
        (Some(from), Some(to)) => !to.hold(&from),
        _ => false,
    }
}

/// The numbers of a type, or those that its dates and times are stored as.
struct Numbers {
    /// Most digits in front of the point.
    digits: i16,
    /// Digits in front of the point of which every number is one of them.
    whole_digits: i16,
    /// Digits after the point.
    scale: i16,
    is_signed: bool,
    /// Bits, of an integer.
    bits: Option<u8>,
}

impl Numbers {
    fn of(data_type: &DataType) -> Option<Self> {
        let integer = |is_signed, bits, digits| {
            Some(Self {
                digits,
                whole_digits: digits - 1,
                scale: 0,
                is_signed,
                bits: Some(bits),
            })
        };
        match data_type {
            DataType::Int8 => integer(true, 8, 3),
            DataType::Int16 => integer(true, 16, 5),
            DataType::Int32 | DataType::Date32 => integer(true, 32, 10),
            DataType::Int64 | DataType::Date64 | DataType::Timestamp(..) => integer(true, 64, 19),
            DataType::UInt8 => integer(false, 8, 3),
            DataType::UInt16 => integer(false, 16, 5),
            DataType::UInt32 => integer(false, 32, 10),
            DataType::UInt64 => integer(false, 64, 20),
            DataType::Decimal32(digits, scale)
            | DataType::Decimal64(digits, scale)
            | DataType::Decimal128(digits, scale)
            | DataType::Decimal256(digits, scale) => {
                let digits = i16::from(*digits) - i16::from(*scale);
                Some(Self {
                    digits,
                    whole_digits: digits,
                    scale: i16::from(*scale),
                    is_signed: true,
                    bits: None,
                })
            }
            _ => None,
        }
    }

    /// Whether each of the others is one of these.
    fn hold(&self, others: &Self) -> bool {
        let signs = self.is_signed || !others.is_signed;
        match (self.bits, others.bits) {
            (Some(bits), Some(of_others)) => {
                let bits = bits - u8::from(self.is_signed && !others.is_signed);
                signs && bits >= of_others
            }
            _ => signs && self.scale >= others.scale && self.whole_digits >= others.digits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::{Decimal128, Float64, Int8, Int16, Int32, Int64, UInt8, UInt32, UInt64};

    #[test]
    fn types_that_hold_all_values_are_not_narrower() {
        for (from, to) in [
            (Int8, Int16),
            (UInt8, Int16),
            (UInt32, Int64),
            (Int64, Int64),
            (Int64, Decimal128(19, 0)),
            (UInt64, Decimal128(20, 0)),
            (Decimal128(12, 2), Decimal128(14, 3)),
            (Decimal128(18, 0), Int64),
            (Int32, Float64),
        ] {
            assert!(!is_narrower(&from, &to), "{from} {to}");
        }
        for (from, to) in [
            (Int64, Int32),
            (Int8, UInt64),
            (UInt64, Int64),
            (Int64, Decimal128(18, 0)),
            (Int16, Decimal128(6, 2)),
            (Decimal128(12, 2), Decimal128(12, 1)),
            (Decimal128(12, 2), Decimal128(12, 3)),
            (Decimal128(12, 2), Int64),
            (Decimal128(19, 0), Int64),
            (Decimal128(3, 0), UInt64),
        ] {
            assert!(is_narrower(&from, &to), "{from} {to}");
        }
    }
}
