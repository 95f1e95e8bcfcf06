//! Conditions of joins with values that are drawn anew, as `t LEFT JOIN u ON t.k = u.k AND random() < 0.5`.
//!
//! DataFusion takes a condition that names the columns of one side alone to the rows of that side, where it is drawn before they meet
//! others. Invariants: of a join of rows that match, such conditions stand above it, as those of WHERE; of other joins they name a column
//! of each side.

use super::nodes::is_subquery;
use crate::conditions::with_drawn_above;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::sync::{Arc, LazyLock};

/// The join with its drawn conditions above it, or named after both of its sides. A join that gets a filter above it goes through
/// `rewrite` before.
pub(super) fn of_rows_that_meet(
    plan: LogicalPlan,
    rewrite: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = plan else {
        return Ok(Transformed::no(plan));
    };
    if !join.filter.as_ref().is_some_and(Expr::is_volatile) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    if join.join_type == JoinType::Inner {
        return match with_drawn_above(join)? {
            LogicalPlan::Filter(mut filter) => {
                let join = rewrite(Arc::unwrap_or_clone(filter.input))?;
                filter.input = Arc::new(join);
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            plan => Ok(Transformed::yes(plan)),
        };
    }
    let of_each = [&join.left, &join.right].map(|side| side.schema().columns().into_iter().next());
    let of_pair = |condition: Expr| {
        // Subqueries become joins only as parts of plain conditions. The closure cannot fail.
        let has_subquery = condition
            .exists(|part| Ok(is_subquery(part)))
            .unwrap_or(true);
        if !condition.is_volatile() || has_subquery {
            return condition;
        }
        let columns = of_each.iter().flatten().cloned().map(Expr::Column);
        let args = std::iter::once(condition).chain(columns).collect();
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&OF_PAIR), args))
    };
    let conditions = join.filter.take().map(split_conjunction_owned);
    join.filter = conjunction(conditions.into_iter().flatten().map(of_pair));
    Ok(Transformed::yes(LogicalPlan::Join(join)))
}

static OF_PAIR: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(OfPair {
        signature: Signature::variadic_any(Volatility::Immutable),
    }))
});

/// Returns its first argument; the others say of which rows it is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPair {
    signature: Signature,
}

impl ScalarUDFImpl for OfPair {
    fn name(&self) -> &'static str {
        "of_pair"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.is_empty() {
            return internal_err!("{} of no values", self.name());
        }
        Ok(args.args.swap_remove(0))
    }
}
