//! Statements that are kept: parsed once, planned once per set of parameter types.
//!
//! Invariants: a kept plan holds no rows and no snapshot; it is used again only while the definitions of all tables and views in
//! it are the very same, and never if its meaning depends on when it runs (`now()`) or on tables that are not
//! stored. Placeholders stay placeholders in it, with the types of the values that it was planned for.

use crate::catalog::Used;
use crate::dialect::output_names::Named;
use crate::functions::bucket_origin;
use crate::parse::{Parsed, parse};
use crate::system;
use arrow::datatypes::DataType;
use chrono::{DateTime, Utc};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use quick_cache::sync::Cache;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use thalweg_env::sync::Mutex;
use thalweg_table::{DatabaseView, Result};

/// Statements that are kept.
const KEPT_STATEMENTS: usize = 256;
/// Longer texts are not kept.
const KEPT_TEXT_BYTES: usize = 16 * 1024;
/// Plans of one statement, for parameters of different types.
const KEPT_PLANS: usize = 4;

/// A statement and its plans.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) parsed: Parsed,
    /// The value of `now()`, if not the moment of planning.
    pub(crate) now: Option<DateTime<Utc>>,
    plans: Mutex<Vec<Arc<KeptPlan>>>,
    /// The query for the places of the rows that it changes, which has plans of its own.
    places: OnceLock<Box<Statement>>,
    /// Its text was made by lifting numbers out of others, and it turned out that they matter to the plan.
    wants_numbers: AtomicBool,
}

/// A plan of a query that can run again.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    pub(crate) plan: Named,
    pub(crate) param_types: Vec<DataType>,
    pub(crate) used: Used,
    /// Values are only compared with columns of their own type.
    pub(crate) is_plain: bool,
}

impl Statement {
    fn new(text: &str) -> Result<Self> {
        Ok(Self {
            parsed: parse(text)?,
            now: None,
            plans: Mutex::default(),
            places: OnceLock::new(),
            wants_numbers: AtomicBool::new(false),
        })
    }

    /// A statement with the same parameters as another, whose plans are its own and kept for one run.
    pub(crate) fn of(other: &Self) -> Self {
        Self {
            parsed: other.parsed.clone(),
            now: None,
            plans: Mutex::default(),
            places: OnceLock::new(),
            wants_numbers: AtomicBool::new(true),
        }
    }

    /// The statement of the query for the places of the rows that it changes.
    pub(crate) fn of_places(&self) -> &Self {
        self.places.get_or_init(|| Box::new(Self::of(self)))
    }

    /// Sets the moment that `now()` is.
    pub(crate) fn with_now(mut self, now: DateTime<Utc>) -> Self {
        self.now = Some(now);
        self
    }

    /// Whether [`Self::keep_numbers`] was called.
    pub(crate) fn wants_numbers(&self) -> bool {
        self.wants_numbers.load(Ordering::Relaxed)
    }

    /// Remembers that texts of this shape are to be planned with their numbers.
    pub(crate) fn keep_numbers(&self) {
        self.wants_numbers.store(true, Ordering::Relaxed);
    }

    /// A plan for parameters of these types on this snapshot.
    pub(crate) fn plan(
        &self,
        param_types: &[DataType],
        view: &DatabaseView,
    ) -> Option<Arc<KeptPlan>> {
        let mut plans = self.plans.lock();
        plans.retain(|kept| kept.is_current(view));
        plans
            .iter()
            .find(|kept| kept.param_types == param_types)
            .cloned()
    }

    /// Keeps a plan; the oldest goes when there are many.
    pub(crate) fn keep(&self, plan: KeptPlan) {
        let mut plans = self.plans.lock();
        if plans.len() >= KEPT_PLANS {
            plans.remove(0);
        }
        plans.push(Arc::new(plan));
    }
}

/// The plan of a text whose numbers were lifted out, with its numbers.
#[derive(Debug)]
pub(crate) struct FilledPlan {
    pub(crate) kept: Arc<KeptPlan>,
    pub(crate) plan: Named,
}

impl KeptPlan {
    pub(crate) fn is_current(&self, view: &DatabaseView) -> bool {
        self.used.is_current(view)
    }
}

/// The statements of a connection that were run last.
#[derive(Debug)]
pub(crate) struct Statements {
    parsed: Cache<Arc<str>, Arc<Statement>>,
    /// Texts that are not in `parsed`, because they run the plan of another: a program that repeats one pays nothing for that.
    filled: Cache<Arc<str>, Arc<FilledPlan>>,
}

impl Statements {
    pub(crate) fn new() -> Self {
        Self {
            parsed: Cache::new(KEPT_STATEMENTS),
            filled: Cache::new(KEPT_STATEMENTS),
        }
    }

    pub(crate) fn clear(&self) {
        self.parsed.clear();
        self.filled.clear();
    }

    /// The plan that [`Self::keep_filled`] has kept for a text.
    pub(crate) fn filled(&self, text: &str) -> Option<Arc<FilledPlan>> {
        // A long one is not kept: its bytes need not be hashed.
        (text.len() <= KEPT_TEXT_BYTES)
            .then(|| self.filled.get(text))
            .flatten()
    }

    pub(crate) fn keep_filled(&self, text: &str, plan: Arc<FilledPlan>) {
        self.filled.insert(text.into(), plan);
    }

    /// The statement of a text.
    pub(crate) fn get(&self, text: &str) -> Result<Arc<Statement>> {
        if let Some(known) = self.parsed.get(text) {
            return Ok(known);
        }
        let statement = Arc::new(Statement::new(text)?);
        if text.len() <= KEPT_TEXT_BYTES {
            self.parsed.insert(text.into(), Arc::clone(&statement));
        }
        Ok(statement)
    }
}

/// Whether a plan means the same whenever it runs.
pub(crate) fn is_timeless(plan: &LogicalPlan) -> bool {
    let changes = |expr: &Expr| {
        Ok(match expr {
            Expr::ScalarFunction(function) => {
                function.func.signature().volatility == Volatility::Stable
            }
            Expr::ScalarVariable(..) => true,
            _ => false,
        })
    };
    let mut timeless = true;
    // The closures cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            timeless &= !expr.exists(changes)?;
            Ok(if timeless {
                TreeNodeRecursion::Continue
            } else {
                TreeNodeRecursion::Stop
            })
        })?;
        Ok(if timeless {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    timeless
}

/// Whether a plan can be optimised before the values of its placeholders are known: everywhere but in limits and widths of buckets.
pub(crate) fn is_optimizable(plan: &LogicalPlan) -> bool {
    let is_placeholder = |expr: &Expr| Ok(matches!(expr, Expr::Placeholder(_)));
    let mut optimizable = true;
    // The closures cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            optimizable &= !system::is_in(scan);
        }
        if let LogicalPlan::Limit(limit) = node {
            for expr in limit.skip.iter().chain(&limit.fetch) {
                optimizable &= !expr.exists(is_placeholder)?;
            }
        }
        node.apply_expressions(|expr| {
            optimizable &= !expr.exists(|expr| Ok(bucket_origin::is_call(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    optimizable
}
