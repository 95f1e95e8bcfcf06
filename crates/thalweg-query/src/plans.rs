//! The plans of statements: made once, and run again for as long as they mean the same.
//!
//! Invariants: a plan that is kept is one for any snapshot with the same definitions ([`crate::statement`]); texts that differ in
//! numbers only share one, unless a number turned out to matter to it.

use crate::catalog::{Resolver, plain_name};
use crate::dialect::output_names::{self, Named};
use crate::error::from_datafusion;
use crate::extra::ExtraTable;
use crate::meaning::group_keys::have_casts_beside;
use crate::meaning::time_texts;
use crate::names::{Names, keep_letters};
use crate::options::QueryOptions;
use crate::params::{BoundParams, Params};
use crate::parse::{Parsed, Request};
use crate::planner::{Planner, StatementSession};
use crate::statement::{FilledPlan, KeptPlan, Statement, Statements, is_optimizable, is_timeless};
use crate::{constant_params, lists, literals};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::LogicalPlan;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::planner::PlannerContext;
use datafusion_sql::resolve::resolve_table_references;
use datafusion_sql::sqlparser::ast::Statement as SqlStatement;
use std::sync::Arc;
use thalweg_table::schema::fold_name;
use thalweg_table::{DatabaseView, ErrorKind, Result};

/// Plans statements, and keeps what it has planned.
#[derive(Debug)]
pub(crate) struct Plans {
    planner: Arc<Planner>,
    statements: Statements,
}

impl Plans {
    pub(crate) fn new(options: QueryOptions) -> Result<Self> {
        Ok(Self {
            planner: Arc::new(Planner::new(options).map_err(from_datafusion)?),
            statements: Statements::new(),
        })
    }

    pub(crate) fn planner(&self) -> &Arc<Planner> {
        &self.planner
    }

    /// Drops all that is kept.
    pub(crate) fn clear(&self) {
        self.statements.clear();
    }

    /// The statement of a text.
    pub(crate) fn statement(&self, text: &str) -> Result<Arc<Statement>> {
        self.statements.get(text)
    }

    /// The plan of all texts that differ from this one in numbers only, if there can be one, and a snapshot to run it on. `None` also
    /// where something fails: planning the text itself then reports it.
    pub(crate) fn lifted(
        &self,
        snapshot: &dyn Fn() -> Result<DatabaseView>,
        text: &str,
    ) -> Option<(Arc<FilledPlan>, DatabaseView)> {
        if let Some(filled) = self.statements.filled(text) {
            let view = snapshot().ok()?;
            if filled.kept.is_current(&view) {
                return Some((filled, view));
            }
        }
        let (statement, params) = self.without_numbers(text)?;
        let Request::Query(query) = &statement.parsed.request else {
            return None;
        };
        let view = snapshot().ok()?;
        let kept = self.kept_plain(&statement, query, &params, &view)?;
        let plan = fill_kept(&kept, &params).ok()?;
        let filled = Arc::new(FilledPlan { kept, plan });
        self.statements.keep_filled(text, Arc::clone(&filled));
        Some((filled, view))
    }

    /// The statement of all texts that differ from this one in numbers only, and the numbers of this one; `None`: there is none, or its
    /// numbers matter to its plan.
    pub(crate) fn without_numbers(&self, text: &str) -> Option<(Arc<Statement>, BoundParams)> {
        let lifted = literals::lift(text)?;
        let statement = self.statements.get(&lifted.text).ok()?;
        if statement.wants_numbers() {
            return None;
        }
        let params = Params::Positional(lifted.values);
        let params = statement.parsed.placeholders.bind(&params).ok()?;
        Some((statement, params))
    }

    /// The plan that is kept of a query whose numbers were lifted out; `None` where they matter to it, from then on.
    pub(crate) fn kept_plain(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        view: &DatabaseView,
    ) -> Option<Arc<KeptPlan>> {
        let types = params.types();
        let kept = statement.plan(&types, view).or_else(|| {
            self.planned(statement, query, params, view, &[]).ok()?;
            statement.plan(&types, view)
        });
        if kept.as_ref().is_none_or(|kept| !kept.is_plain) {
            statement.keep_numbers();
            return None;
        }
        kept
    }

    /// The plan of a query in a statement, with its values in the place of placeholders: only its operators are still to be made.
    pub(crate) fn of(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        view: &DatabaseView,
        extra: &[(String, ExtraTable)],
    ) -> Result<Named> {
        let spread = lists::spread(query, params)?;
        let (query, params) = match &spread {
            Some((query, params)) => (query, params),
            None => (query, params),
        };
        if statement.parsed.wants_constants {
            let query = constant_params::written(query, params);
            return self.planned(&Statement::of(statement), &query, params, view, extra);
        }
        self.planned(statement, query, params, view, extra)
    }

    fn planned(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        view: &DatabaseView,
        extra: &[(String, ExtraTable)],
    ) -> Result<Named> {
        // Only the value shows whether a comparison with a time beyond nanoseconds is true of all times: no plan is kept.
        let by_value = params.are_beyond_nanoseconds();
        let kept = if extra.is_empty() && !by_value {
            statement.plan(&params.types(), view)
        } else {
            None
        };
        if let Some(kept) = kept {
            return fill_kept(&kept, params);
        }
        let resolver = Resolver::new(&self.planner, view, extra, params);
        let plan = unoptimised(&statement.parsed, query, &resolver, params)?;
        resolver.size().check_inside(statement.parsed.depths)?;
        let Named { plan, names } = Named::new(plan, None);
        let mut session = StatementSession::new(&self.planner, view.clone(), &plan);
        if let Some(now) = statement.now {
            session.set_now(now);
        }
        let timeless = is_timeless(&plan);
        if !params.is_empty() && (by_value || !is_optimizable(&plan)) {
            let filled = fill(Named { plan, names }, params)?;
            let plan = session.optimized(filled.plan).map_err(from_datafusion)?;
            return Ok(Named::new(plan, filled.names));
        }
        let plan = session.optimized(plan).map_err(from_datafusion)?;
        let plan = Named::new(plan, names);
        let explains = matches!(plan.plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        if timeless
            && !explains
            && let Some(used) = resolver.used()
        {
            let param_types = params.types();
            statement.keep(KeptPlan {
                is_plain: literals::is_plain(&plan.plan),
                plan: plan.clone(),
                param_types,
                used,
            });
        }
        fill(plan, params)
    }
}

/// The plan of a query as it stands in a text, on the tables and views of `resolver`.
pub(crate) fn unoptimised(
    parsed: &Parsed,
    query: &DfStatement,
    resolver: &Resolver<'_>,
    params: &BoundParams,
) -> Result<LogicalPlan> {
    let planner = resolver.planner();
    let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields());
    let mut plan = planner.logical(corrected(parsed, query, resolver)?, resolver, &mut context);
    let has_equal_names = match &plan {
        Ok(plan) => have_casts_beside(plan).map_err(from_datafusion)?,
        Err(error) => output_names::are_equal(error),
    };
    if has_equal_names {
        let mut query = corrected(parsed, query, resolver)?;
        if let Some(inner) = innermost(&mut query) {
            output_names::tell_apart(inner);
        }
        let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields());
        resolver.begin_again();
        plan = planner.logical(query, resolver, &mut context);
    }
    plan.map_err(from_datafusion)
}

/// The statement with names as the tables have them.
fn corrected(parsed: &Parsed, query: &DfStatement, resolver: &Resolver<'_>) -> Result<DfStatement> {
    let mut query = query.clone();
    let (references, _) = resolve_table_references(&query, true).map_err(from_datafusion)?;
    let mut names = Names::default();
    let mut needed = parsed.wants_names;
    for name in references.iter().filter_map(plain_name) {
        let schema = match resolver.schema(name) {
            Ok(schema) => schema,
            // Perhaps the name of a WITH; if not, planning reports it.
            Err(error) if error.kind() == ErrorKind::NotFound || resolver.is_view(name) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        needed |= schema
            .fields()
            .iter()
            .any(|field| fold_name(field.name()) != *field.name());
        names.add_table(name, schema.fields().iter().map(|field| field.name()));
    }
    if let Some(inner) = innermost(&mut query) {
        needed |= keep_letters(inner);
        if needed {
            names.apply(inner)?;
        }
    }
    Ok(query)
}

/// Puts values in the place of placeholders.
fn fill_kept(kept: &KeptPlan, params: &BoundParams) -> Result<Named> {
    if !kept.is_plain {
        return fill(kept.plan.clone(), params);
    }
    let Named { plan, names } = kept.plan.clone();
    let plan = literals::filled(plan, &params.values()).map_err(from_datafusion)?;
    Ok(Named { plan, names })
}

fn fill(named: Named, params: &BoundParams) -> Result<Named> {
    if params.is_empty() {
        return Ok(named);
    }
    let Named { plan, names } = named;
    let plan = plan
        .replace_params_with_values(&params.values())
        .map_err(from_datafusion)?;
    if !params.values.iter().any(time_texts::lacks_seconds) {
        return Ok(Named { plan, names });
    }
    // Constants need no columns.
    let no_columns = DFSchema::empty();
    let read = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| Ok(time_texts::with_seconds(expr, &no_columns)))
        })
    });
    let plan = read.map_err(from_datafusion)?.data;
    Ok(Named { plan, names })
}

/// The SQL statement under EXPLAINs.
fn innermost(statement: &mut DfStatement) -> Option<&mut SqlStatement> {
    match statement {
        DfStatement::Statement(inner) => Some(inner),
        DfStatement::Explain(explain) => innermost(&mut explain.statement),
        _ => None,
    }
}
