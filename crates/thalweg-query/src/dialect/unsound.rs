//! Refuses queries that DataFusion answers wrongly, and names what to write instead.
//!
//! Invariants: refused are outer joins with rows of the right alone where the columns of both sides are one (`USING`, `NATURAL`),
//! whose value it takes from the left side only; and `EXCEPT ALL` and `INTERSECT ALL`, which it counts no rows for.

use crate::error::unsupported;
use datafusion::sql::sqlparser::ast::{
    JoinConstraint, JoinOperator, SetExpr, SetOperator, SetQuantifier, TableWithJoins,
};
use thalweg_table::Result;

/// Refuses `EXCEPT ALL` and `INTERSECT ALL`.
pub(super) fn refuse_counted_sets(body: &SetExpr) -> Result<()> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return Ok(());
    };
    let counts_rows = matches!(
        op,
        SetOperator::Except | SetOperator::Intersect | SetOperator::Minus
    ) && matches!(
        set_quantifier,
        SetQuantifier::All | SetQuantifier::AllByName
    );
    if counts_rows {
        return Err(unsupported(format!(
            "{op} ALL is not offered: number equal rows by row_number() OVER (PARTITION BY ...) on both sides, and write {op}"
        )));
    }
    refuse_counted_sets(left)?;
    refuse_counted_sets(right)
}

/// Refuses `RIGHT` and `FULL JOIN` with `USING` and `NATURAL`.
pub(super) fn refuse_merged_columns(table: &TableWithJoins) -> Result<()> {
    for join in &table.joins {
        let (side, constraint) = match &join.join_operator {
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                ("RIGHT", constraint)
            }
            JoinOperator::FullOuter(constraint) => ("FULL", constraint),
            _ => continue,
        };
        if matches!(
            constraint,
            JoinConstraint::Using(_) | JoinConstraint::Natural
        ) {
            return Err(unsupported(format!(
                "{side} JOIN with USING or NATURAL is not offered: write {side} JOIN ... ON a.x = b.x, and coalesce(a.x, b.x) for the column"
            )));
        }
    }
    Ok(())
}
