//! Planning: statements to operators, on a snapshot.
//!
//! Invariants: what is expensive (functions, rules, options) is made once per connection; a statement adds its
//! snapshot and its clock. No object store is registered and no table but stored, system and handed-in ones is
//! ever resolved, so that no statement reaches a file.

use crate::catalog::Resolver;
use crate::dialect::operators::Operators;
use crate::error::{query, to_datafusion};
use crate::functions::{
    bucket_origin, coalesced, described, epoch, floats, fractions, guarded, list_sum, mode, octets,
    ordered_values, quantile, signed, simplified, time_patterns, time_zones, total, try_times,
    whole_units,
};
use crate::meaning::correlated::nesting;
use crate::meaning::with_both_zeros;
use crate::memory::OperatorPool;
use crate::options::QueryOptions;
use crate::parse::written;
use crate::pushdown::aggregate_exec::AggregatePlanner;
use crate::rules::{
    Rules, Shape, compares_floats, keeps_order, shape_of, with_limits_above_windows,
};
use crate::spill::UnnamedFiles;
use crate::stack::with_room;
use crate::subquery_orders::kept_where_they_count;
use crate::table::{ScannedRows, StatementTables};
use async_trait::async_trait;
use chrono::{DateTime, SubsecRound, Utc};
use datafusion::catalog::{CatalogProviderList, Session};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::config::{ConfigOptions, TableOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{
    DFSchema, DataFusionError, Result, SchemaError, config_err, plan_datafusion_err, plan_err,
};
use datafusion::execution::config::SessionConfig;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SessionStateDefaults, TaskContext};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::registry::{ExtensionTypeRegistryRef, FunctionRegistry};
use datafusion::logical_expr::{
    AggregateUDF, Analyze, Explain, Expr, HigherOrderUDF, LogicalPlan, PlanType, ScalarUDF,
    ToStringifiedPlan, WindowUDF,
};
use datafusion::optimizer::OptimizerConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion_sql::planner::{ParserOptions, PlannerContext};
use datafusion_sql::sqlparser::ast::{
    Expr as SqlExpr, SelectItem, SetExpr, Statement as SqlStatement,
};
use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_planner::SqlPlanner;
use thalweg_table::schema::fold_name;
use thalweg_table::{DatabaseView, Error, ErrorKind};

/// The parts that all statements of a connection share.
#[derive(Debug)]
pub(crate) struct Planner {
    base: SessionState,
    rules: Rules,
    /// One pass of the short list finds all it can.
    short_config: SessionConfig,
    full_config: SessionConfig,
    /// Rows of a table stay in its order: it is read in one part.
    ordered_config: SessionConfig,
    task: Arc<TaskContext>,
    options: QueryOptions,
}

impl Planner {
    pub(crate) fn new(options: QueryOptions) -> Result<Self> {
        let full_config = config(&options)?;
        let mut short_config = full_config.clone();
        short_config.options_mut().optimizer.max_passes = 1;
        let mut ordered_config = full_config.clone();
        ordered_config
            .options_mut()
            .optimizer
            .repartition_file_scans = false;
        let runtime = runtime(&options)?;
        let base = SessionStateBuilder::new()
            .with_config(full_config.clone())
            .with_runtime_env(Arc::clone(&runtime))
            .with_scalar_functions(scalar_functions())
            .with_aggregate_functions(aggregate_functions())
            .with_window_functions(SessionStateDefaults::default_window_functions())
            .with_expr_planners(expr_planners())
            .with_table_function_list(SessionStateDefaults::default_table_functions())
            .build();
        // Operators find their functions in the plan: the task needs none.
        let task = TaskContext::new(
            None,
            base.session_id().to_owned(),
            full_config.clone(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            runtime,
        );
        Ok(Self {
            base,
            rules: Rules::new(),
            short_config,
            full_config,
            ordered_config,
            task: Arc::new(task),
            options,
        })
    }

    fn config_of(&self, shape: Shape, keeps_order: bool) -> &SessionConfig {
        match shape {
            _ if keeps_order => &self.ordered_config,
            Shape::Any => &self.full_config,
            Shape::Plain | Shape::Chain => &self.short_config,
        }
    }

    pub(crate) fn task(&self) -> &Arc<TaskContext> {
        &self.task
    }

    /// The functions and settings that SQL is planned with.
    pub(crate) fn base(&self) -> &SessionState {
        &self.base
    }

    /// SQL to an unoptimised plan.
    pub(crate) fn logical(
        &self,
        statement: DfStatement,
        resolver: &Resolver<'_>,
        context: &mut PlannerContext,
    ) -> Result<LogicalPlan> {
        let planner = SqlPlanner::new(resolver, self.parser_options());
        match statement {
            DfStatement::Statement(inner) => {
                let given = given_names(&inner);
                let planned = planner.plan(*inner, context);
                let plan = planned.map_err(|error| explain_given_name(error, &given))?;
                kept_where_they_count(plan)
            }
            DfStatement::Explain(explain) => {
                let frame = DfStatement::Explain(ExplainStatement {
                    options: explain.options,
                    statement: Box::new(written("SELECT 1").map_err(to_datafusion)?),
                });
                let frame = planner.plan_any(frame)?;
                explaining(frame, self.logical(*explain.statement, resolver, context)?)
            }
            other => planner.plan_any(other),
        }
    }

    /// A condition of SQL on the columns of a table.
    pub(crate) fn condition(
        &self,
        condition: SqlExpr,
        schema: &DFSchema,
        resolver: &Resolver<'_>,
    ) -> Result<Expr> {
        SqlPlanner::new(resolver, self.parser_options()).expression(condition, schema)
    }

    fn parser_options(&self) -> ParserOptions {
        ParserOptions::new().with_map_string_types_to_utf8view(false)
    }
}

/// EXPLAIN of another plan. DataFusion plans what is explained without the types of its parameters.
fn explaining(frame: LogicalPlan, plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = Arc::new(plan);
    match frame {
        LogicalPlan::Explain(explain) => Ok(LogicalPlan::Explain(Explain {
            stringified_plans: vec![plan.to_stringified(PlanType::InitialLogicalPlan)],
            plan,
            ..explain
        })),
        LogicalPlan::Analyze(analyze) => Ok(LogicalPlan::Analyze(Analyze {
            input: plan,
            ..analyze
        })),
        _ => plan_err!("EXPLAIN is planned as something else"),
    }
}

/// The names that a query gives to its columns.
fn given_names(statement: &SqlStatement) -> Vec<String> {
    let SqlStatement::Query(query) = statement else {
        return Vec::new();
    };
    let SetExpr::Select(select) = &*query.body else {
        return Vec::new();
    };
    let name = |item: &SelectItem| match item {
        // A column that is named as it is called gives no name of its own.
        SelectItem::ExprWithAlias { expr, alias } if expr.to_string() != alias.value => {
            Some(alias.value.clone())
        }
        _ => None,
    };
    select.projection.iter().filter_map(name).collect()
}

/// Explains a missing column whose name is an alias of the same SELECT; other errors stay as they are.
fn explain_given_name(error: DataFusionError, given: &[String]) -> DataFusionError {
    let name = match error.find_root() {
        DataFusionError::SchemaError(inner, _) => match &**inner {
            SchemaError::FieldNotFound { field, .. } if field.relation.is_none() => &field.name,
            _ => return error,
        },
        _ => return error,
    };
    if !given
        .iter()
        .any(|given| fold_name(given) == fold_name(name))
    {
        return error;
    }
    to_datafusion(query(format!(
        "\"{name}\" is a name that this SELECT gives: its WHERE and its other columns do not know it; repeat the expression, or write \
         SELECT * FROM (SELECT ... AS {name} FROM ...) WHERE {name} ..."
    )))
}

/// The planners of expressions; ours come first.
fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(Operators)];
    planners.extend(SessionStateDefaults::default_expr_planners());
    planners
}

fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let functions = list_sum::exact(SessionStateDefaults::default_scalar_functions());
    let functions = epoch::nearest(octets::of_blobs(coalesced::of_times(functions)));
    let functions = signed::counts(simplified::with_same_answers(functions));
    let mut functions = guarded::guarded(functions);
    functions.extend(time_zones::functions());
    functions.push(bucket_origin::function());
    functions.push(time_patterns::function());
    functions.push(whole_units::function());
    functions.push(fractions::function());
    functions.extend(described::functions());
    functions.push(try_times::function());
    functions
}

fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let functions = SessionStateDefaults::default_aggregate_functions();
    let mut functions = quantile::exact(floats::settled(total::exact(functions)));
    functions.extend(mode::functions());
    functions.extend(ordered_values::functions());
    functions
}

fn config(options: &QueryOptions) -> Result<SessionConfig> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads)
        .with_batch_size(options.batch_rows)
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false);
    let settings = config.options_mut();
    settings.sql_parser.map_string_types_to_utf8view = false;
    // It would drop sorts that decide what a LIMIT takes; `subquery_orders` drops the others.
    settings.sql_parser.enable_subquery_sort_elimination = false;
    // Scans read ahead themselves; a gigabyte more would only fill the memory.
    settings.execution.sort_pushdown_buffer_capacity = 16 << 20;
    // Scans cut themselves where it helps; handing batches around in turn only adds threads to wait for.
    settings.optimizer.enable_round_robin_repartition = false;
    // A union has NULL where one of its sides may have it, which the plan of operators knows better than that of the statement.
    settings.execution.skip_physical_aggregate_schema_check = true;
    Ok(config)
}

fn runtime(options: &QueryOptions) -> Result<Arc<RuntimeEnv>> {
    let spill = DiskManagerMode::Custom(Arc::new(UnnamedFiles));
    let spill = DiskManagerBuilder::default().with_mode(spill);
    let mut builder = RuntimeEnvBuilder::new().with_disk_manager_builder(spill);
    if let Some(limit) = options.memory_limit_bytes {
        let Ok(limit) = usize::try_from(limit) else {
            return config_err!("a memory limit of {limit} bytes is beyond this machine");
        };
        builder = builder.with_memory_pool(Arc::new(OperatorPool::new(limit)));
    }
    let runtime = builder.build_arc()?;
    runtime.deregister_object_store(ObjectStoreUrl::local_filesystem().as_ref())?;
    Ok(runtime)
}

/// The session of one execution of one statement.
pub(crate) struct StatementSession {
    planner: Arc<Planner>,
    tables: StatementTables,
    shape: Shape,
    keeps_order: bool,
    props: ExecutionProps,
    config: Arc<ConfigOptions>,
    /// Made only when something wants to change it.
    table_options: Option<Box<TableOptions>>,
}

impl StatementSession {
    pub(crate) fn new(planner: &Arc<Planner>, view: DatabaseView, plan: &LogicalPlan) -> Self {
        let shape = shape_of(plan);
        let keeps_order = shape != Shape::Plain && keeps_order(plan);
        let config = Arc::clone(planner.config_of(shape, keeps_order).options());
        let mut props = ExecutionProps::new();
        props.mark_start_execution(Arc::clone(&config));
        let now = props.query_execution_start_time.unwrap_or_else(Utc::now);
        let tables = StatementTables {
            planner: Arc::clone(planner),
            snapshot: view,
            threads: planner.options.threads,
            compares_floats: compares_floats(plan),
            placed: ScannedRows::default(),
        };
        let mut session = Self {
            planner: Arc::clone(planner),
            tables,
            shape,
            keeps_order,
            props,
            config,
            table_options: None,
        };
        session.set_now(now);
        session
    }

    /// The session, which notes the rows of a scan with places there.
    pub(crate) fn noting(mut self, placed: &ScannedRows) -> Self {
        self.tables.placed = Arc::clone(placed);
        self
    }

    /// Sets the value of `now()`: microseconds, as in PostgreSQL and DuckDB, so that columns which count these take it.
    pub(crate) fn set_now(&mut self, now: DateTime<Utc>) {
        self.props.query_execution_start_time = Some(now.trunc_subsecs(6));
    }

    /// Checks and rewrites a plan.
    pub(crate) fn optimized(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if let LogicalPlan::Explain(explain) = plan {
            let inner = self.optimized(Arc::unwrap_or_clone(explain.plan))?;
            let explain = Explain {
                plan: Arc::new(inner),
                logical_optimization_succeeded: true,
                ..explain
            };
            return Ok(LogicalPlan::Explain(explain));
        }
        check_joins(&plan)?;
        if self.shape == Shape::Any {
            check_nesting(&plan)?;
        }
        self.keep_names_of(&plan);
        let analyzed = self.planner.rules.analyzer(self.shape).execute_and_check(
            plan,
            &self.config,
            |_, _| {},
        )?;
        self.planner
            .rules
            .optimizer(self.shape)
            .optimize(analyzed, self, |_, _| {})
            .map_err(|error| match error.find_root() {
                // All columns were found when the statement was planned: here one is lost by taking a subquery apart.
                DataFusionError::SchemaError(error, _)
                    if matches!(&**error, SchemaError::FieldNotFound { .. }) =>
                {
                    plan_datafusion_err!(
                        "a subquery that depends on the rows outside by more than =, or in a query in its FROM, is not offered: write FROM t LEFT JOIN u ON u.y < t.x GROUP BY t.x"
                    )
                }
                _ => error,
            })
    }

    /// Makes sure that columns which the plan has are not called like those that DataFusion adds for common parts of expressions.
    fn keep_names_of(&self, plan: &LogicalPlan) {
        let number = |name: &str| name.strip_prefix("__common_expr_")?.parse::<u32>().ok();
        // The closure cannot fail.
        let _ = plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(_) | LogicalPlan::Projection(_) = node {
                let names = node.schema().fields().iter().map(|field| field.name());
                if let Some(last) = names.filter_map(|name| number(name)).max() {
                    let last = usize::try_from(last).unwrap_or(usize::MAX - 1);
                    self.props.alias_generator.update_min_id(last);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }

    /// The operators of an optimised plan.
    pub(crate) async fn physical(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let planner =
            DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(AggregatePlanner)]);
        let plan = match self.shape {
            Shape::Any => with_limits_above_windows(plan)?,
            // Without windows.
            Shape::Plain | Shape::Chain => Cow::Borrowed(plan),
        };
        let plan = with_both_zeros(&plan)?;
        planner.create_physical_plan(&plan, self).await
    }
}

/// Joins on top of one another, EXCEPT and INTERSECT among them. Planning takes 1 second for so many, and 8 times as long for
/// twice as many; meanwhile it cannot be stopped.
const MAX_JOINS: usize = 200;

fn check_joins(plan: &LogicalPlan) -> Result<()> {
    if joins_on_a_path(plan) <= MAX_JOINS {
        return Ok(());
    }
    let message =
        format!("a statement joins at most {MAX_JOINS} tables, EXCEPT and INTERSECT included");
    Err(to_datafusion(Error::new(ErrorKind::Limit, message)))
}

/// Queries in the conditions and values of one another. DataFusion checks each twice as often as the one that it stands in: half a
/// second goes by for so many.
const MAX_NESTING: usize = 16;

fn check_nesting(plan: &LogicalPlan) -> Result<()> {
    if nesting(plan)? <= MAX_NESTING {
        return Ok(());
    }
    let message = format!(
        "at most {MAX_NESTING} subqueries stand in the conditions and values of one another: name the inner ones in WITH, and join them"
    );
    Err(to_datafusion(Error::new(ErrorKind::Limit, message)))
}

fn joins_on_a_path(plan: &LogicalPlan) -> usize {
    let inputs = plan.inputs().into_iter();
    let below = inputs
        .map(|input| with_room(|| joins_on_a_path(input)))
        .max();
    usize::from(matches!(plan, LogicalPlan::Join(_))) + below.unwrap_or(0)
}

impl OptimizerConfig for StatementSession {
    fn query_execution_start_time(&self) -> Option<DateTime<Utc>> {
        self.props.query_execution_start_time
    }

    fn alias_generator(&self) -> &Arc<AliasGenerator> {
        &self.props.alias_generator
    }

    fn options(&self) -> Arc<ConfigOptions> {
        Arc::clone(&self.config)
    }

    fn function_registry(&self) -> Option<&dyn FunctionRegistry> {
        Some(&self.planner.base)
    }
}

#[async_trait]
impl Session for StatementSession {
    fn session_id(&self) -> &str {
        self.planner.base.session_id()
    }

    fn config(&self) -> &SessionConfig {
        self.planner.config_of(self.shape, self.keeps_order)
    }

    fn catalog_list(&self) -> Arc<dyn CatalogProviderList> {
        Arc::clone(self.planner.base.catalog_list())
    }

    fn optimize(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        self.optimized(plan.clone())
    }

    fn physical_optimizers(&self) -> &[Arc<dyn PhysicalOptimizerRule + Send + Sync>] {
        self.planner.rules.physical(self.shape)
    }

    async fn create_physical_plan(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        self.physical(&self.optimized(plan.clone())?).await
    }

    fn create_physical_expr(&self, expr: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.planner.base.create_physical_expr(expr, schema)
    }

    fn scalar_functions(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.planner.base.scalar_functions()
    }

    fn higher_order_functions(&self) -> &HashMap<String, Arc<HigherOrderUDF>> {
        self.planner.base.higher_order_functions()
    }

    fn aggregate_functions(&self) -> &HashMap<String, Arc<AggregateUDF>> {
        self.planner.base.aggregate_functions()
    }

    fn window_functions(&self) -> &HashMap<String, Arc<WindowUDF>> {
        self.planner.base.window_functions()
    }

    fn extension_type_registry(&self) -> &ExtensionTypeRegistryRef {
        self.planner.base.extension_type_registry()
    }

    fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.planner.base.runtime_env()
    }

    fn execution_props(&self) -> &ExecutionProps {
        &self.props
    }

    // For the stored tables, which know no session.
    fn as_any(&self) -> &dyn Any {
        &self.tables
    }

    fn table_options(&self) -> &TableOptions {
        self.table_options
            .as_deref()
            .unwrap_or_else(|| self.planner.base.table_options())
    }

    fn table_options_mut(&mut self) -> &mut TableOptions {
        let planner = &self.planner;
        self.table_options
            .get_or_insert_with(|| Box::new(planner.base.table_options().clone()))
    }

    fn task_ctx(&self) -> Arc<TaskContext> {
        Arc::clone(&self.planner.task)
    }
}
