//! Dates in an INSERT whose quotes are missing: `2024-01-31` is 1992, a day of 1975 in a column of dates, and `2024/01/31` is one of 1970.
//!
//! Invariant: a date that is all of a value is refused, of slashes where a date or a time is stored. Inside of a value it is arithmetic.

use crate::error::unsupported;
use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, SelectItem, SetExpr, Value, Visitor,
};
use std::ops::ControlFlow;
use thalweg_planner::walk;
use thalweg_table::{Error, Result};

/// Refuses such dates among the values that go to columns of these types.
pub(crate) fn refuse(source: &Query, types: &[&DataType]) -> Result<()> {
    let is_time = |place: usize| {
        let data_type = types.get(place);
        data_type.is_some_and(|it| matches!(it, DataType::Date32 | DataType::Timestamp(..)))
    };
    let refused = |place: usize, expr: &Expr| match Date::of(expr) {
        Some(date) if !date.has_slashes || is_time(place) => Err(date.error()),
        _ => Ok(()),
    };
    values_of(&source.body, &refused)?;
    // Rows of VALUES may be many, and have no queries inside but as parts of values.
    if matches!(&*source.body, SetExpr::Values(_)) {
        return Ok(());
    }
    match walk(source, &mut Queries) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// All queries, also those in WITH and FROM, whose columns may go anywhere.
struct Queries;

impl Visitor for Queries {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let refused = |_: usize, expr: &Expr| match Date::of(expr) {
            Some(date) if !date.has_slashes => Err(date.error()),
            _ => Ok(()),
        };
        match values_of(&query.body, &refused) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Calls `check` with the values of a query and their places.
fn values_of(body: &SetExpr, check: &dyn Fn(usize, &Expr) -> Result<()>) -> Result<()> {
    match body {
        SetExpr::Select(select) => {
            let items = select.projection.iter().enumerate();
            items.into_iter().try_for_each(|(place, item)| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    check(place, expr)
                }
                _ => Ok(()),
            })
        }
        SetExpr::Values(values) => {
            let rows = values.rows.iter();
            let mut cells = rows.flat_map(|row| row.content.iter().enumerate());
            cells.try_for_each(|(place, cell)| check(place, cell))
        }
        SetExpr::SetOperation { left, right, .. } => {
            values_of(left, check)?;
            values_of(right, check)
        }
        SetExpr::Query(query) => values_of(&query.body, check),
        _ => Ok(()),
    }
}

/// A date without quotes.
struct Date {
    parts: [String; 3],
    has_slashes: bool,
}

impl Date {
    fn of(expr: &Expr) -> Option<Self> {
        let (left, has_slashes, day) = match expr {
            Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return Self::of(inner),
            Expr::BinaryOp {
                left,
                op: op @ (BinaryOperator::Minus | BinaryOperator::Divide),
                right,
            } => (&**left, *op == BinaryOperator::Divide, &**right),
            _ => return None,
        };
        let Expr::BinaryOp { left, op, right } = left else {
            return None;
        };
        let same = match has_slashes {
            true => BinaryOperator::Divide,
            false => BinaryOperator::Minus,
        };
        if *op != same {
            return None;
        }
        let (year, month, day) = (digits(left)?, digits(right)?, digits(day)?);
        let is_part = |text: &str, most: u8| {
            let part = text.parse::<u8>();
            text.len() == 2 && part.is_ok_and(|part| (1..=most).contains(&part))
        };
        let is_date = year.len() == 4
            && year.starts_with(['1', '2'])
            && year.bytes().all(|digit| digit.is_ascii_digit())
            && is_part(month, 12)
            && is_part(day, 31);
        is_date.then(|| Self {
            parts: [year, month, day].map(str::to_owned),
            has_slashes,
        })
    }

    fn error(&self) -> Error {
        let (sign, what) = match self.has_slashes {
            true => ("/", "quotient"),
            false => ("-", "difference"),
        };
        let (written, date) = (self.parts.join(sign), self.parts.join("-"));
        unsupported(format!(
            "{written} without quotes is a {what} of numbers: write '{date}'"
        ))
    }
}

fn digits(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(constant) => match &constant.value {
            Value::Number(digits, false) => Some(digits),
            _ => None,
        },
        _ => None,
    }
}
