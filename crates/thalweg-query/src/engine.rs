//! SQL on a database: from a text to its rows.
//!
//! Invariants: statements that change something are done when the call returns; a query sees the snapshot of its call;
//! threads and plans are shared by all statements of a connection.

use crate::catalog::{Resolver, plain_name};
use crate::dialect::output_names::{self, Named};
use crate::dialect::plain_values;
use crate::error::{cancelled, from_datafusion, query};
use crate::extra::ExtraTable;
use crate::meaning::group_keys::have_casts_beside;
use crate::meaning::time_texts;
use crate::names::{Names, keep_letters};
use crate::options::QueryOptions;
use crate::params::{BoundParams, Params};
use crate::parse::Request;
use crate::result::{Fetched, Planned, QueryResult};
use crate::rules::runs_inline;
use crate::scan::TableScan;
use crate::session::{Planner, StatementSession};
use crate::stack::with_room;
use crate::statement::{FilledPlan, KeptPlan, Statement, Statements, is_optimizable, is_timeless};
use crate::stop::{Stop, stoppable};
use crate::threads::{Threads, wait_for};
use crate::wording::columns::with_text_as_written;
use crate::{constant_params, ddl, insert, lists, literals, summarize, system, unquoted_dates};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use chrono::Utc;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::planner::PlannerContext;
use datafusion_sql::resolve::resolve_table_references;
use datafusion_sql::sqlparser::ast::{CreateTable, Expr, Insert, Query, Statement as SqlStatement};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::Mutex;
use thalweg_table::schema::fold_name;
use thalweg_table::{DatabaseView, Engine, ErrorKind, Result, Table};

/// How long an INSERT waits for rows between two calls of `go_on`.
const LOOK: Duration = Duration::from_millis(50);

/// SQL on a database. Clones share plans and threads. All calls block, also inside an async
/// task: make them where blocking is fine.
#[derive(Clone)]
pub struct SqlEngine(Arc<Inner>);

struct Inner {
    engine: Engine,
    planner: Arc<Planner>,
    statements: Statements,
    threads: usize,
    /// Started by the first query.
    workers: Mutex<Option<Arc<Threads>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        with_room(|| self.statements.clear());
    }
}

impl fmt::Debug for SqlEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlEngine")
            .field("threads", &self.0.threads)
            .finish_non_exhaustive()
    }
}

/// A statement that was parsed and, if it has no parameters, planned.
#[derive(Clone)]
pub struct Prepared {
    engine: SqlEngine,
    statement: Arc<Statement>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("parameters", &self.parameter_names())
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// Runs it.
    ///
    /// # Errors
    /// When the parameters do not fit, or as [`SqlEngine::sql`].
    pub fn execute(&self, params: &Params) -> Result<QueryResult> {
        self.execute_while(params, &|| true)
    }

    /// Runs it as [`Self::execute`] does, for a caller that may cancel it; see [`SqlEngine::sql_while`].
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn execute_while(&self, params: &Params, go_on: &dyn Fn() -> bool) -> Result<QueryResult> {
        with_room(|| self.engine.run(&self.statement, params, &[], go_on))
    }

    /// The parameters in the order of their places: names without `$`, or numbers.
    pub fn parameter_names(&self) -> &[String] {
        &self.statement.parsed.placeholders.names
    }
}

impl SqlEngine {
    /// SQL on `engine`.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn new(engine: Engine, options: QueryOptions) -> Result<Self> {
        let options = options.resolve(&engine);
        let threads = options.threads;
        let planner = Arc::new(Planner::new(options).map_err(from_datafusion)?);
        let statements = Statements::new();
        Ok(Self(Arc::new(Inner {
            engine,
            planner,
            statements,
            threads,
            workers: Mutex::default(),
        })))
    }

    /// The database.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Runs one statement. What changes something is done when this returns, and its result is one row `count`; a query
    /// takes its snapshot now and runs when its rows are pulled. Names of tables that the database does not have are
    /// looked up in `extra`.
    ///
    /// # Errors
    /// `Query` for what cannot be parsed or planned, `Unsupported` for what this version does not offer, and whatever
    /// tables report.
    pub fn sql(
        &self,
        text: &str,
        params: &Params,
        extra: &[(String, ExtraTable)],
    ) -> Result<QueryResult> {
        self.sql_while(text, params, extra, &|| true)
    }

    /// Runs a statement as [`Self::sql`] does, for a caller that may cancel it. An INSERT from a query calls `go_on` every now and
    /// then; if that returns false, it stores nothing and fails. Other statements are done soon.
    ///
    /// # Errors
    /// As [`Self::sql`].
    pub fn sql_while(
        &self,
        text: &str,
        params: &Params,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        with_room(|| {
            if *params == Params::None
                && extra.is_empty()
                && let Some(result) = self.run_lifted(text)
            {
                return Ok(result);
            }
            let statement = self.0.statements.get(text)?;
            let done = self.run(&statement, params, extra, go_on);
            done.map_err(|error| with_text_as_written(error, text))
        })
    }

    /// Runs the plan of all texts that differ from this one in numbers only, if there can be one. `None` also where something
    /// fails: planning the text itself then reports it.
    fn run_lifted(&self, text: &str) -> Option<QueryResult> {
        if let Some(filled) = self.0.statements.filled(text) {
            let view = self.0.engine.snapshot().ok()?;
            if filled.kept.is_current(&view) {
                return self.start(&filled.plan, view).ok();
            }
        }
        let lifted = literals::lift(text)?;
        let statement = self.0.statements.get(&lifted.text).ok()?;
        let Request::Query(query) = &statement.parsed.request else {
            return None;
        };
        if statement.wants_numbers() {
            return None;
        }
        let params = Params::Positional(lifted.values);
        let params = statement.parsed.placeholders.bind(&params).ok()?;
        let view = self.0.engine.snapshot().ok()?;
        let types = params.types();
        let kept = statement.plan(&types, &view).or_else(|| {
            self.plan(&statement, query, &params, &view, &[]).ok()?;
            statement.plan(&types, &view)
        });
        match kept {
            Some(kept) if kept.is_plain => {
                let plan = fill_kept(&kept, &params).ok()?;
                let filled = Arc::new(FilledPlan { kept, plan });
                self.0.statements.keep_filled(text, Arc::clone(&filled));
                self.start(&filled.plan, view).ok()
            }
            _ => {
                statement.keep_numbers();
                None
            }
        }
    }

    /// Rows of one table, in the order of time; what comes to a filter is planned like a query, everything else goes
    /// straight to the table.
    ///
    /// # Errors
    /// `NotFound` for columns that there are not, `Query` for a filter that cannot be read.
    pub fn scan(&self, table: &Table, scan: &TableScan) -> Result<QueryResult> {
        with_room(|| self.scan_here(table, scan)).map_err(|error| {
            with_text_as_written(error, scan.filter.as_deref().unwrap_or_default())
        })
    }

    fn scan_here(&self, table: &Table, scan: &TableScan) -> Result<QueryResult> {
        let view = table.view()?;
        let columns = scan.positions(view.definition())?;
        if scan.is_plain() {
            let rows = view.scan(&scan.request(columns));
            return rows.map(|rows| QueryResult::scan(rows, view.name()));
        }
        let database = self.0.engine.snapshot()?;
        let no_params = BoundParams::default();
        let resolver = Resolver::new(self.0.planner.base(), &database, &[], &no_params);
        let plan = scan.plan(view, columns, &self.0.planner, &resolver)?;
        let session = StatementSession::new(&self.0.planner, database.clone(), &plan);
        let plan = session.optimized(plan).map_err(from_datafusion)?;
        self.start(&Named::new(plan, None), database)
    }

    /// Parses a statement to run it often; plans it too if it has no parameters.
    ///
    /// # Errors
    /// As [`Self::sql`].
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        with_room(|| self.prepare_here(text))
    }

    fn prepare_here(&self, text: &str) -> Result<Prepared> {
        let statement = self.0.statements.get(text)?;
        if let Request::Query(query) = &statement.parsed.request
            && statement.parsed.placeholders.names.is_empty()
        {
            let view = self.0.engine.snapshot()?;
            self.plan(&statement, query, &BoundParams::default(), &view, &[])?;
        }
        Ok(Prepared {
            engine: self.clone(),
            statement,
        })
    }

    /// The names of tables that a statement reads and nobody has: what a caller may hand in as [`ExtraTable`]s.
    ///
    /// # Errors
    /// When the text cannot be parsed.
    pub fn unknown_tables(&self, text: &str) -> Result<Vec<String>> {
        with_room(|| self.unknown_tables_here(text))
    }

    fn unknown_tables_here(&self, text: &str) -> Result<Vec<String>> {
        let statement = self.0.statements.get(text)?;
        let view = self.0.engine.snapshot()?;
        let source = match &statement.parsed.request {
            Request::Describe(name) => {
                let known = view.table(name).is_ok();
                return Ok(if known {
                    Vec::new()
                } else {
                    vec![name.clone()]
                });
            }
            Request::Query(query) => (**query).clone(),
            Request::Insert(insert) => statement_of(insert::source(insert)?),
            Request::Summarize(query) | Request::DescribeQuery(query) => (**query).clone(),
            Request::CreateTable(create) => match &create.query {
                Some(query) => statement_of(query),
                None => return Ok(Vec::new()),
            },
            _ => return Ok(Vec::new()),
        };
        // Names as they are written: variables of the caller's language have capitals.
        let (references, _) = resolve_table_references(&source, false).map_err(from_datafusion)?;
        let mut unknown: Vec<String> = Vec::new();
        for name in references.iter().filter_map(plain_name) {
            let known = view.table(name).is_ok() || system::table(name, &view).is_some();
            if !known && !unknown.iter().any(|other| other == name) {
                unknown.push(name.to_owned());
            }
        }
        Ok(unknown)
    }

    fn run(
        &self,
        statement: &Statement,
        params: &Params,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        let params = statement.parsed.placeholders.bind(params)?;
        let engine = &self.0.engine;
        match &statement.parsed.request {
            Request::Query(query) => self.query(statement, query, &params, extra),
            Request::Insert(insert) => self.insert(statement, insert, &params, extra, go_on),
            Request::CreateTable(create) if create.query.is_some() => {
                self.create_table_as(statement, create, &params, extra, go_on)
            }
            Request::CreateTable(create) => ddl::create_table(engine, create),
            Request::Summarize(query) => self.summarize(statement, query, &params, extra, go_on),
            Request::DropTables { names, if_exists } => ddl::drop_tables(engine, names, *if_exists),
            Request::ShowTables => ddl::show_tables(&engine.snapshot()?),
            Request::Describe(name) => match extra.iter().find(|(given, _)| given == name) {
                Some((_, rows)) => ddl::describe_rows(rows.schema()),
                None => ddl::describe(&engine.snapshot()?, name),
            },
            Request::DescribeQuery(query) => {
                let rows = self.query(statement, query, &params, extra)?;
                ddl::describe_rows(rows.schema())
            }
        }
    }

    fn query(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
    ) -> Result<QueryResult> {
        let view = self.0.engine.snapshot()?;
        self.query_on(view, statement, query, params, extra)
    }

    fn query_on(
        &self,
        view: DatabaseView,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
    ) -> Result<QueryResult> {
        let spread = lists::spread(query, params)?;
        let (query, params) = match &spread {
            Some((query, params)) => (query, params),
            None => (query, params),
        };
        let plan = if statement.parsed.wants_constants {
            let query = constant_params::written(query, params);
            self.plan(&Statement::of(statement), &query, params, &view, extra)?
        } else {
            self.plan(statement, query, params, &view, extra)?
        };
        self.start(&plan, view)
    }

    /// CREATE TABLE AS: the table appears with all its rows, or not at all.
    fn create_table_as(
        &self,
        statement: &Statement,
        create: &CreateTable,
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        let Some(source) = &create.query else {
            return Err(query("CREATE TABLE AS needs a query"));
        };
        let source = statement_of(source);
        let mut rows = self.query(statement, &source, params, extra)?;
        let Some(new) = ddl::create_table_for(&self.0.engine, create, rows.schema())? else {
            return Ok(QueryResult::count(0));
        };
        let columns: Vec<usize> = (0..new.table().definition().columns().len()).collect();
        let batches = std::iter::from_fn(|| next_while(&mut rows, go_on).transpose());
        let count = insert::append(new.table(), &columns, batches, true)?;
        match new.publish() {
            Ok(_) => Ok(QueryResult::count(count)),
            Err(error) if create.if_not_exists && error.kind() == ErrorKind::AlreadyExists => {
                Ok(QueryResult::count(0))
            }
            Err(error) => Err(error),
        }
    }

    fn summarize(
        &self,
        statement: &Statement,
        source: &DfStatement,
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        let view = self.0.engine.snapshot()?;
        let all = self.query_on(view.clone(), statement, source, params, extra)?;
        let columns = Arc::clone(all.schema());
        let mut groups = Vec::new();
        // What a caller handed in may come once only.
        for aggregates in summarize::aggregates(source, &columns, extra.is_empty())? {
            // Its plan is not the one of the statement's own text.
            let aggregated = Statement::of(statement);
            let mut rows = self.query_on(view.clone(), &aggregated, &aggregates, params, extra)?;
            match next_while(&mut rows, go_on)? {
                Some(batch) => groups.push(batch),
                None => return Err(query("SUMMARIZE has found nothing to summarize")),
            }
        }
        summarize::rows(&columns, &groups)
    }

    /// A plan that only wants its operators, without placeholders.
    fn plan(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        view: &DatabaseView,
        extra: &[(String, ExtraTable)],
    ) -> Result<Named> {
        // Whether a comparison of times is true of all of them is known of the value only.
        let by_value = params.are_beyond_nanoseconds();
        let kept = if extra.is_empty() && !by_value {
            statement.plan(&params.types(), view)
        } else {
            None
        };
        if let Some(kept) = kept {
            return fill_kept(&kept, params);
        }
        let resolver = Resolver::new(self.0.planner.base(), view, extra, params);
        let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields());
        let planner = &self.0.planner;
        let corrected = self.corrected(statement, query, &resolver)?;
        let mut plan = planner.logical(corrected, &resolver, &mut context);
        let has_equal_names = match &plan {
            Ok(plan) => have_casts_beside(plan).map_err(from_datafusion)?,
            Err(error) => output_names::are_equal(error),
        };
        if has_equal_names {
            let mut query = self.corrected(statement, query, &resolver)?;
            if let Some(inner) = innermost(&mut query) {
                output_names::tell_apart(inner);
            }
            let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields());
            plan = planner.logical(query, &resolver, &mut context);
        }
        let Named { plan, names } = Named::new(plan.map_err(from_datafusion)?, None);
        let mut session = StatementSession::new(&self.0.planner, view.clone(), &plan);
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

    /// The statement with names as the tables have them.
    fn corrected(
        &self,
        statement: &Statement,
        query: &DfStatement,
        resolver: &Resolver<'_>,
    ) -> Result<DfStatement> {
        let mut query = query.clone();
        let (references, _) = resolve_table_references(&query, true).map_err(from_datafusion)?;
        let mut names = Names::default();
        let mut needed = statement.parsed.wants_names;
        for name in references.iter().filter_map(plain_name) {
            let table = match resolver.table(name) {
                Ok(table) => table,
                // Perhaps the name of a WITH; if not, planning reports it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let schema = table.schema();
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

    /// The operators of a plan, on a snapshot.
    fn start(&self, plan: &Named, view: DatabaseView) -> Result<QueryResult> {
        let threads = self.workers()?;
        let Named { plan, names } = plan;
        let session = StatementSession::new(&self.0.planner, view, plan);
        let planned = {
            let _inside = threads.enter();
            wait_for(session.physical(plan), None)
        };
        let Some(plan) = planned else {
            return Err(query("planning was given up"));
        };
        let plan = plan.map_err(from_datafusion)?;
        let (plan, stop) = if runs_inline(&plan) {
            (plan, None)
        } else {
            let stop = Stop::default();
            let plan = stoppable(plan, &stop).map_err(from_datafusion)?;
            (plan, Some(stop))
        };
        let planned = Planned {
            stop,
            plan,
            task: Arc::clone(self.0.planner.task()),
            threads,
        };
        Ok(QueryResult::planned(planned, names.as_deref()))
    }

    fn insert(
        &self,
        statement: &Statement,
        insert: &Insert,
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        let table = self.0.engine.table(&insert::target(insert)?)?;
        let source = insert::source(insert)?;
        let definition = table.definition();
        let columns = insert::columns(insert, &definition)?;
        let type_of = |position: &usize| &definition.columns()[*position].data_type;
        let types: Vec<_> = columns.iter().map(type_of).collect();
        unquoted_dates::refuse(source, &types)?;
        if let Some(values) = plain_values(source) {
            let computed =
                |cells: Vec<&Expr>| self.computed(statement, &cells, params, extra, go_on);
            let rows = insert::rows_of_values(values, params, &types, computed)?;
            let count = insert::append(&table, &columns, rows.into_iter().map(Ok), false)?;
            return Ok(QueryResult::count(count));
        }
        let source = statement_of(source);
        let mut rows = self.query(statement, &source, params, extra)?;
        if rows.schema().fields().len() != columns.len() {
            let (wanted, given) = (columns.len(), rows.schema().fields().len());
            return Err(query(format!(
                "{wanted} columns take values, the query has {given}"
            )));
        }
        let batches = std::iter::from_fn(|| next_while(&mut rows, go_on).transpose());
        // Values that a caller gives as a table come through a query that is not the caller's own.
        let of_query = extra.is_empty();
        let count = insert::append(&table, &columns, batches, of_query)?;
        Ok(QueryResult::count(count))
    }

    /// The values of expressions, all as of one snapshot.
    fn computed(
        &self,
        statement: &Statement,
        cells: &[&Expr],
        params: &BoundParams,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<ScalarValue>> {
        let view = self.0.engine.snapshot()?;
        let now = Utc::now();
        let mut values = vec![ScalarValue::Null; cells.len()];
        for computing in insert::queries_of(cells)? {
            let (places, is_numbered) = (computing.places, computing.is_numbered);
            let own = Statement::of(statement).with_now(now);
            let mut rows = self.query_on(view.clone(), &own, &computing.query, params, extra)?;
            while let Some(batch) = next_while(&mut rows, go_on)? {
                let value_of = |column: &ArrayRef, row| {
                    ScalarValue::try_from_array(column, row).map_err(from_datafusion)
                };
                match batch.columns() {
                    [numbers, column] if is_numbered => {
                        let numbers = numbers.as_primitive_opt::<Int64Type>();
                        let numbers =
                            numbers.ok_or_else(|| query("a row of VALUES has no number"))?;
                        for (row, number) in numbers.values().iter().enumerate() {
                            let place = usize::try_from(*number).ok().and_then(|n| places.get(n));
                            if let Some(place) = place {
                                values[*place] = value_of(column, row)?;
                            }
                        }
                    }
                    columns => {
                        for (column, place) in columns.iter().zip(&places) {
                            values[*place] = value_of(column, 0)?;
                        }
                    }
                }
            }
        }
        Ok(values)
    }

    fn workers(&self) -> Result<Arc<Threads>> {
        let mut workers = self.0.workers.lock();
        if let Some(workers) = &*workers {
            return Ok(Arc::clone(workers));
        }
        let started = Arc::new(Threads::start(self.0.threads)?);
        Ok(Arc::clone(workers.insert(started)))
    }
}

/// The next rows for an INSERT; an error if it was cancelled meanwhile.
fn next_while(rows: &mut QueryResult, go_on: &dyn Fn() -> bool) -> Result<Option<RecordBatch>> {
    loop {
        let fetched = rows.poll_batch(LOOK)?;
        if !go_on() {
            return Err(cancelled());
        }
        match fetched {
            Fetched::Batch(batch) => return Ok(Some(batch)),
            Fetched::End => return Ok(None),
            Fetched::Pending => {}
        }
    }
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

/// The statement that a query inside another statement is.
fn statement_of(query: &Query) -> DfStatement {
    DfStatement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))))
}

/// The SQL statement under EXPLAINs.
fn innermost(statement: &mut DfStatement) -> Option<&mut SqlStatement> {
    match statement {
        DfStatement::Statement(inner) => Some(inner),
        DfStatement::Explain(explain) => innermost(&mut explain.statement),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_table::EngineOptions;

    /// Whether the plan of a text serves texts with other numbers too.
    fn is_shared(engine: &SqlEngine, text: &str) -> bool {
        let result = engine.sql(text, &Params::None, &[]).unwrap();
        result.collect().unwrap();
        let lifted = literals::lift(text).unwrap();
        let statement = engine.0.statements.get(&lifted.text).unwrap();
        !statement.wants_numbers()
    }

    #[test]
    fn ranges_of_time_share_a_plan() {
        for (of_time, of_value) in [
            ("BIGINT", "DOUBLE"),
            ("INT", "DOUBLE"),
            ("BIGINT", "DECIMAL(9, 2)"),
        ] {
            let engine = Engine::in_memory(EngineOptions::default()).unwrap();
            let engine = SqlEngine::new(engine, QueryOptions::default()).unwrap();
            let create = format!("CREATE TABLE t (ts {of_time}, v {of_value}) WITH (time = 'ts')");
            engine.sql(&create, &Params::None, &[]).unwrap();
            for (text, shared) in [
                ("SELECT * FROM t WHERE ts >= 3 AND ts < 9", true),
                (
                    "SELECT avg(v), count(*) FROM t WHERE ts >= 3 AND ts < 9",
                    true,
                ),
                ("SELECT max(v) FROM t WHERE ts BETWEEN 3 AND 9", true),
                // A number that is compared as another type than it has.
                ("SELECT count(*) FROM t WHERE v > 3", false),
            ] {
                // Whole numbers are 64 bits wide.
                let shared = shared && of_time == "BIGINT";
                assert_eq!(
                    is_shared(&engine, text),
                    shared,
                    "{of_time} {of_value}: {text}"
                );
            }
        }
    }
}
