//! LIMIT and OFFSET of more rows than there can be, or of none.
//!
//! DataFusion adds both up where it moves a limit below a union or a join, and takes a sum beyond `i64` for a negative one. Invariant: an
//! OFFSET has at most [`MAX_ROWS`], a LIMIT of more is none, and what leaves out no rows is gone.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{FetchType, Limit, LogicalPlan, SkipType, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// More than a query can return. The sum of hundreds is still within `i64`.
const MAX_ROWS: usize = 1 << 53;

/// Whether a limit leaves out no rows, as far as is known.
pub(crate) fn takes_all(limit: &Limit) -> bool {
    matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
        && match limit.get_fetch_type() {
            Ok(FetchType::Literal(fetch)) => fetch.is_none_or(|rows| rows > MAX_ROWS),
            _ => false,
        }
}

/// The rule that enforces the invariant. It runs before limits are moved.
#[derive(Debug)]
pub(crate) struct LimitsOfRows;

impl OptimizerRule for LimitsOfRows {
    fn name(&self) -> &'static str {
        "thalweg_limits_of_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let (mut plan, mut is_changed) = (plan, false);
        while let LogicalPlan::Limit(limit) = &plan
            && takes_all(limit)
        {
            plan = LogicalPlan::clone(&limit.input);
            is_changed = true;
        }
        let LogicalPlan::Limit(limit) = plan else {
            return Ok(Transformed::new_transformed(plan, is_changed));
        };
        let skips = matches!(limit.get_skip_type(), Ok(SkipType::Literal(rows)) if rows > MAX_ROWS);
        let fetches =
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(rows))) if rows > MAX_ROWS);
        if !skips && !fetches {
            return Ok(Transformed::new_transformed(
                LogicalPlan::Limit(limit),
                is_changed,
            ));
        }
        let Limit { skip, fetch, input } = limit;
        let most = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
        Ok(Transformed::yes(LogicalPlan::Limit(Limit {
            skip: match skips {
                true => Some(Box::new(lit(most))),
                false => skip,
            },
            fetch: fetch.filter(|_| !fetches),
            input,
        })))
    }
}
