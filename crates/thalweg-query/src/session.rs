//! SQL on a database: from a text to its rows.
//!
//! Invariants: statements that change something are done when the call returns; a query sees the snapshot of its call;
//! sessions of one database share threads and plans, and each has its own settings, which hold for all of its statements.

mod alter;
mod edits;
mod inserts;
mod transactions;
mod views;

use crate::catalog::{Resolver, plain_name};
use crate::deadline::Deadline;
use crate::dialect::output_names::Named;
use crate::edits::delete::Deleting;
use crate::edits::{Editing, Merging, Updating};
use crate::error::{cancelled, from_datafusion, query};
use crate::extra::ExtraTable;
use crate::memory;
use crate::options::QueryOptions;
use crate::params::{BoundParams, Params};
use crate::parse::Request;
use crate::placed_table::STORED;
use crate::planner::StatementSession;
use crate::plans::Plans;
use crate::result::{Fetched, Planned, QueryResult};
use crate::rules::runs_inline;
use crate::scan::TableScan;
use crate::settings::SessionSettings;
use crate::stack::with_room;
use crate::statement::Statement;
use crate::stop::{Stop, stoppable};
use crate::stream::QueryStream;
use crate::table::ScannedRows;
use crate::threads::{Threads, call_program, wait_for};
use crate::wording::columns::with_text_as_written;
use crate::{ddl, insert, summarize, system};
use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::resolve::resolve_table_references;
use datafusion_sql::sqlparser::ast::{Query, Statement as SqlStatement};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_env::Owner;
use thalweg_env::sync::Mutex;
use thalweg_table::{DatabaseView, Engine, Error, ErrorKind, Result, Table, Transaction};
use tokio::sync::{Semaphore, oneshot};
use transactions::Scope;
pub use transactions::not_in_transaction;

/// How long a statement that reads a query waits for its rows between two calls of `go_on`.
const LOOK: Duration = Duration::from_millis(50);

/// Statements of async programs that keep a thread each at the same time: the runtime has 512 threads for them at most, and with all
/// of these waiting none would be left for the operators that they wait for.
const MAX_WAITING: usize = 32;

/// SQL on a database, for one connection. Clones are the same session; those of one database share plans and threads, so that
/// another one costs next to nothing. All calls but [`Self::run`] block, also inside an async task: make them where blocking is fine.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    settings: Arc<SessionSettings>,
    /// The task context of operators, with the memory that they may use.
    task: Arc<TaskContext>,
    /// The transaction that is open.
    transaction: Arc<Mutex<Option<Arc<Transaction>>>>,
}

/// The parts that all sessions of a database share.
struct Shared {
    engine: Engine,
    plans: Plans,
    threads: usize,
    /// The process that may use it.
    owner: Owner,
    /// Started by the first query.
    workers: Mutex<Option<Arc<Threads>>>,
    /// Turns of statements of async programs that keep a thread while they wait.
    waiting: Semaphore,
}

impl Drop for Shared {
    fn drop(&mut self) {
        with_room(|| self.plans.clear());
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("threads", &self.shared.threads)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A statement that was parsed and, if it has no parameters, planned.
#[derive(Clone)]
pub struct Prepared {
    session: Session,
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
    /// When the parameters do not fit, or as [`Session::sql`].
    pub fn execute(&self, params: &Params) -> Result<QueryResult> {
        self.execute_while(params, &|| true)
    }

    /// Runs it as [`Self::execute`] does, for a caller that may cancel it; see [`Session::sql_while`].
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn execute_while(&self, params: &Params, go_on: &dyn Fn() -> bool) -> Result<QueryResult> {
        let call = Call {
            extra: &[],
            go_on,
            deadline: self.session.deadline(),
            scope: self.session.scope(),
        };
        let rows = with_room(|| self.session.execute(&self.statement, params, &call))?;
        Ok(rows.of_at_most(self.session.settings.max_result_rows))
    }

    /// The parameters in the order of their places: names without `$`, or numbers.
    pub fn parameter_names(&self) -> &[String] {
        &self.statement.parsed.placeholders.names
    }
}

impl Session {
    /// SQL on `engine`, without limits of its own.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn new(engine: Engine, options: QueryOptions) -> Result<Self> {
        let options = options.resolve(&engine);
        let threads = options.threads;
        let plans = Plans::new(options)?;
        let owner = engine.env().owner();
        let task = Arc::clone(plans.planner().task());
        Ok(Self {
            shared: Arc::new(Shared {
                engine,
                plans,
                threads,
                owner,
                workers: Mutex::default(),
                waiting: Semaphore::new(MAX_WAITING),
            }),
            settings: Arc::default(),
            task,
            transaction: Arc::default(),
        })
    }

    /// A session of the same database with other settings.
    ///
    /// # Errors
    /// `Invalid` for settings that make no sense.
    pub fn with(&self, settings: SessionSettings) -> Result<Self> {
        settings.check()?;
        let common = self.shared.plans.planner().task();
        let task = match settings.memory_limit_bytes {
            None => Arc::clone(common),
            Some(limit_bytes) => memory::limited(common, limit_bytes)?,
        };
        Ok(Self {
            shared: Arc::clone(&self.shared),
            settings: Arc::new(settings),
            task,
            transaction: Arc::default(),
        })
    }

    /// Its settings.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// The database.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
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

    /// Runs a statement as [`Self::sql`] does, for a caller that may cancel it. INSERT, DELETE, UPDATE, MERGE, CREATE TABLE AS and SUMMARIZE call
    /// `go_on` every now and then while they read a query; if that returns false, they store nothing and fail. Other statements are done
    /// soon.
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
        let call = Call {
            extra,
            go_on,
            deadline: self.deadline(),
            scope: self.scope(),
        };
        let rows = with_room(|| self.sql_here(text, params, &call))?;
        Ok(rows.of_at_most(self.settings.max_result_rows))
    }

    fn sql_here(&self, text: &str, params: &Params, call: &Call<'_>) -> Result<QueryResult> {
        if let Some(rows) = self.lifted(text, params, call) {
            return Ok(rows);
        }
        if let Some(done) = self.lifted_edit(text, params, call) {
            return done.map_err(|error| with_text_as_written(error, text));
        }
        let statement = self.shared.plans.statement(text)?;
        let done = self.execute(&statement, params, call);
        done.map_err(|error| with_text_as_written(error, text))
    }

    /// Runs the plan of all texts that differ from this one in numbers only, if there is one.
    fn lifted(&self, text: &str, params: &Params, call: &Call<'_>) -> Option<QueryResult> {
        if *params != Params::None || !call.extra.is_empty() {
            return None;
        }
        let (filled, view) = self.shared.plans.lifted(&|| call.scope.snapshot(), text)?;
        self.start(&filled.plan, view, call.deadline.clone()).ok()
    }

    /// The deadline of a statement that begins now.
    fn deadline(&self) -> Option<Deadline> {
        let timeout = self.settings.timeout?;
        Some(Deadline::after(timeout, self.shared.engine.env()))
    }

    /// Runs one statement for an async program. Planning and operators run on the threads of queries, and no thread waits for the
    /// commit of an INSERT that lists its values; those of many sessions that wait share a sync. Dropping the future cancels the
    /// statement; an INSERT of values that was handed in to be stored is stored all the same, and is not bound to the timeout from then on.
    ///
    /// # Errors
    /// As [`Self::sql`]; `Limit` while 64 MiB of such inserts wait to be stored.
    pub fn run(
        &self,
        text: &str,
        params: Params,
    ) -> impl Future<Output = Result<QueryStream>> + Send + use<> {
        let (session, text) = (self.clone(), text.to_owned());
        let deadline = self.deadline();
        async move {
            let caller = Caller::default();
            let is_there = Arc::clone(&caller.0);
            // In a child of a fork there are no threads, and nothing would wake the caller up.
            session.owner().check().map_err(Error::not_owner)?;
            let threads = session.workers()?;
            let begun = threads.spawn(async move {
                let begun = session
                    .begin_async(&text, &params, deadline, &is_there)
                    .await;
                begun.map_err(|error| with_text_as_written(error, &text))
            });
            let broke_off = |error| query(format!("the statement broke off: {error}"));
            let rows = match begun.await.map_err(broke_off)?? {
                Begun::Rows(rows) => *rows,
                Begun::Insert(stored) => {
                    QueryResult::count(stored.await.map_err(|_| cancelled())??)
                }
            };
            // From here on it is the stream that cancels it.
            Ok(rows.into_stream())
        }
    }

    async fn begin_async(
        &self,
        text: &str,
        params: &Params,
        deadline: Option<Deadline>,
        is_there: &AtomicBool,
    ) -> Result<Begun> {
        let go_on = || is_there.load(Ordering::Relaxed);
        let begun = with_room(|| {
            let call = Call::of_async(&go_on, deadline.clone(), self.scope())?;
            self.begin_here(text, params, &call)
        })?;
        let begun = match begun {
            Some(begun) => begun,
            // Each of these keeps a thread, and operators need some as well.
            None => {
                let _turn = self.shared.waiting.acquire().await;
                let call = Call::of_async(&go_on, deadline, self.scope())?;
                let statement = self.shared.plans.statement(text)?;
                let execute = || with_room(|| self.execute(&statement, params, &call));
                let rows = call_program(execute)?;
                Begun::Rows(Box::new(rows))
            }
        };
        Ok(match begun {
            Begun::Rows(rows) => {
                let rows = rows.of_at_most(self.settings.max_result_rows);
                Begun::Rows(Box::new(rows))
            }
            stored => stored,
        })
    }

    /// Begins a statement that needs no thread while it waits; `None` is one that does.
    fn begin_here(&self, text: &str, params: &Params, call: &Call<'_>) -> Result<Option<Begun>> {
        if let Some(rows) = self.lifted(text, params, call) {
            return Ok(Some(Begun::Rows(Box::new(rows))));
        }
        let statement = self.shared.plans.statement(text)?;
        match &statement.parsed.request {
            Request::Query(_) => {
                let rows = self.execute(&statement, params, call)?;
                Ok(Some(Begun::Rows(Box::new(rows))))
            }
            Request::Insert(insert) if !self.settings.read_only => {
                let bound = statement.parsed.placeholders.bind(params)?;
                let target = call.target(insert)?;
                // Rows with unique keys are looked for.
                if target.definition.unique().is_some() {
                    return Ok(None);
                }
                let mut has_queries = false;
                let rows = target.values(insert, &bound, |_| {
                    has_queries = true;
                    Err(cancelled())
                });
                if has_queries {
                    return Ok(None);
                }
                let Some(rows) = rows? else { return Ok(None) };
                if !(call.go_on)() {
                    return Err(cancelled());
                }
                self.stored_later(&target.table, rows)
                    .map(|stored| Some(Begun::Insert(stored)))
            }
            _ => Ok(None),
        }
    }

    /// Rows of one table, in the order of time. What has a filter or `boxes` is planned like a query; everything else goes straight
    /// to the table.
    ///
    /// # Errors
    /// `NotFound` for columns that do not exist, `Query` for a filter that cannot be read.
    pub fn scan(&self, table: &Table, scan: &TableScan) -> Result<QueryResult> {
        let deadline = self.deadline();
        let rows = with_room(|| self.scan_here(table, scan, deadline)).map_err(|error| {
            with_text_as_written(error, scan.filter.as_deref().unwrap_or_default())
        })?;
        Ok(rows.of_at_most(self.settings.max_result_rows))
    }

    fn scan_here(
        &self,
        table: &Table,
        scan: &TableScan,
        deadline: Option<Deadline>,
    ) -> Result<QueryResult> {
        let view = table.view()?;
        let columns = scan.positions(view.definition())?;
        if scan.is_plain() {
            let rows = view.scan(&scan.request(columns))?;
            return Ok(QueryResult::scan(rows, view.name(), self.clone(), deadline));
        }
        let plans = &self.shared.plans;
        let database = self.snapshot()?;
        let no_params = BoundParams::default();
        let resolver = Resolver::new(plans.planner(), &database, &[], &no_params);
        let plan = scan.plan(view, columns, plans.planner(), &resolver)?;
        let session = StatementSession::new(plans.planner(), database.clone(), &plan);
        let plan = session.optimized(plan).map_err(from_datafusion)?;
        self.start(&Named::new(plan, None), database, deadline)
    }

    /// Parses a statement to run it often; plans it too if it has no parameters.
    ///
    /// # Errors
    /// As [`Self::sql`].
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        with_room(|| self.prepare_here(text))
    }

    fn prepare_here(&self, text: &str) -> Result<Prepared> {
        let statement = self.shared.plans.statement(text)?;
        if let Request::Query(query) = &statement.parsed.request
            && statement.parsed.placeholders.names.is_empty()
        {
            let view = self.snapshot()?;
            let no_params = BoundParams::default();
            let plans = &self.shared.plans;
            plans.of(&statement, query, &no_params, &view, &[])?;
        }
        Ok(Prepared {
            session: self.clone(),
            statement,
        })
    }

    /// The names that a statement reads as tables and the database does not have: a caller may hand these in as [`ExtraTable`]s.
    ///
    /// # Errors
    /// When the text cannot be parsed.
    pub fn unknown_tables(&self, text: &str) -> Result<Vec<String>> {
        with_room(|| self.unknown_tables_here(text))
    }

    fn unknown_tables_here(&self, text: &str) -> Result<Vec<String>> {
        let statement = self.shared.plans.statement(text)?;
        let view = self.snapshot()?;
        let source = match &statement.parsed.request {
            Request::Describe(name) => {
                return Ok(if is_known(&view, name) {
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
            Request::Delete(delete, with) => {
                match Deleting::of(delete, with.as_ref())?.queries()? {
                    Some((rows, _)) => rows,
                    None => return Ok(Vec::new()),
                }
            }
            Request::Update(update, with) => Updating::of(update, with.as_ref())?.read_tables()?,
            Request::Merge(merge, with) => Merging::of(merge, with.as_ref())?.read_tables()?,
            _ => return Ok(Vec::new()),
        };
        // Names as they are written: variables of the caller's language have capitals.
        let (references, _) = resolve_table_references(&source, false).map_err(from_datafusion)?;
        let mut unknown: Vec<String> = Vec::new();
        for name in references.iter().filter_map(plain_name) {
            // The table whose rows change is a stored one.
            let is_changed = name.starts_with(STORED);
            let known = is_changed || is_known(&view, name);
            if !known && !unknown.iter().any(|other| other == name) {
                unknown.push(name.to_owned());
            }
        }
        Ok(unknown)
    }

    fn check_writes(&self) -> Result<()> {
        if !self.settings.read_only {
            return Ok(());
        }
        let message = "this session only reads: it was opened with read_only";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn execute(
        &self,
        statement: &Statement,
        params: &Params,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let params = statement.parsed.placeholders.bind(params)?;
        let engine = &self.shared.engine;
        let request = &statement.parsed.request;
        if request.writes() {
            self.check_writes()?;
        }
        call.scope.check_fits(request)?;
        match request {
            Request::Transaction(step) => {
                self.step(*step)?;
                Ok(QueryResult::count(0))
            }
            Request::Query(query) => self.query(statement, query, &params, call),
            Request::Insert(insert) => self.insert(statement, insert, &params, call),
            Request::Delete(delete, with) => self.delete(
                statement,
                &Deleting::of(delete, with.as_ref())?,
                &params,
                call,
            ),
            Request::Truncate(truncate) => {
                self.delete(statement, &Deleting::of_truncate(truncate)?, &params, call)
            }
            Request::Update(update, with) => self.edit(
                statement,
                &Updating::of(update, with.as_ref())?,
                &params,
                call,
            ),
            Request::Merge(merge, with) => self.edit(
                statement,
                &Merging::of(merge, with.as_ref())?,
                &params,
                call,
            ),
            Request::CreateTable(create) if create.query.is_some() => {
                self.create_table_as(statement, create, &params, call)
            }
            Request::CreateTable(create) => {
                let defaults = self.defaults(statement, &create.columns, &params, call)?;
                ddl::create_table(engine, create, defaults)
            }
            Request::AlterTable(alter) => self.alter(statement, alter, &params, call),
            Request::Summarize(query) => self.summarize(statement, query, &params, call),
            Request::CreateView(new) => self.create_view(new),
            Request::Drop {
                views: true,
                names,
                if_exists,
            } => ddl::drop_views(engine, names, *if_exists),
            Request::Drop {
                names, if_exists, ..
            } => ddl::drop_tables(engine, names, *if_exists),
            Request::ShowTables => ddl::show_tables(&call.scope.snapshot()?),
            Request::Describe(name) => match call.extra.iter().find(|(given, _)| given == name) {
                Some((_, rows)) => ddl::describe_rows(rows.schema()),
                None => self.describe(&call.scope.snapshot()?, name),
            },
            Request::DescribeQuery(query) => {
                let rows = self.query(statement, query, &params, call)?;
                ddl::describe_rows(rows.schema())
            }
        }
    }

    fn query(
        &self,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let view = call.scope.snapshot()?;
        self.query_on(view, statement, query, params, call)
    }

    fn query_on(
        &self,
        view: DatabaseView,
        statement: &Statement,
        query: &DfStatement,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let plans = &self.shared.plans;
        let plan = plans.of(statement, query, params, &view, call.extra)?;
        self.start(&plan, view, call.deadline.clone())
    }

    fn summarize(
        &self,
        statement: &Statement,
        source: &DfStatement,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let view = call.scope.snapshot()?;
        let all = self.query_on(view.clone(), statement, source, params, call)?;
        let columns = Arc::clone(all.schema());
        let mut groups = Vec::new();
        // Tables that a caller handed in can perhaps be read only once.
        for aggregates in summarize::aggregates(source, &columns, call.extra.is_empty())? {
            // A statement of its own, so that its plan is not kept as the one of the statement's text.
            let aggregated = Statement::of(statement);
            let mut rows = self.query_on(view.clone(), &aggregated, &aggregates, params, call)?;
            match next_while(&mut rows, call.go_on)? {
                Some(batch) => groups.push(batch),
                None => return Err(query("SUMMARIZE has found nothing to summarize")),
            }
        }
        summarize::rows(&columns, &groups)
    }

    /// The operators of a plan, on a snapshot.
    fn start(
        &self,
        plan: &Named,
        view: DatabaseView,
        deadline: Option<Deadline>,
    ) -> Result<QueryResult> {
        self.start_with(plan, view, deadline, &ScannedRows::default())
    }

    /// The operators of a plan, on a snapshot. The rows of a scan with places are noted.
    fn start_with(
        &self,
        plan: &Named,
        view: DatabaseView,
        deadline: Option<Deadline>,
        placed: &ScannedRows,
    ) -> Result<QueryResult> {
        let threads = self.workers()?;
        let Named { plan, names } = plan;
        let session = StatementSession::new(self.shared.plans.planner(), view, plan);
        let session = session.noting(placed);
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
            let stop = Stop::at(deadline.clone());
            let plan = stoppable(plan, &stop).map_err(from_datafusion)?;
            (plan, Some(stop))
        };
        let planned = Planned {
            stop,
            plan,
            task: Arc::clone(&self.task),
            threads,
        };
        let owner = self.owner().clone();
        Ok(QueryResult::planned(
            planned,
            names.as_deref(),
            owner,
            deadline,
        ))
    }

    /// The process that may use it.
    pub(crate) fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    pub(crate) fn workers(&self) -> Result<Arc<Threads>> {
        let mut workers = self.shared.workers.lock();
        if let Some(workers) = &*workers {
            return Ok(Arc::clone(workers));
        }
        let started = Arc::new(Threads::start(self.shared.threads)?);
        Ok(Arc::clone(workers.insert(started)))
    }
}

/// The next rows of a query within a statement; an error if that was cancelled meanwhile.
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

/// A statement that was begun for an async program.
enum Begun {
    Rows(Box<QueryResult>),
    /// Its rows were handed in to be stored.
    Insert(oneshot::Receiver<Result<u64>>),
}

/// Whoever waits for a statement: the flag is true until this is dropped.
struct Caller(Arc<AtomicBool>);

impl Default for Caller {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// One call of a statement.
struct Call<'a> {
    /// Tables for this statement alone.
    extra: &'a [(String, ExtraTable)],
    /// Whether the caller still wants it.
    go_on: &'a dyn Fn() -> bool,
    deadline: Option<Deadline>,
    /// The transaction that it is part of, whatever other threads do to that of the session meanwhile.
    scope: Scope<'a>,
}

impl<'a> Call<'a> {
    /// A call of an async program, if that still wants it and there is time left.
    fn of_async(
        go_on: &'a dyn Fn() -> bool,
        deadline: Option<Deadline>,
        scope: Scope<'a>,
    ) -> Result<Self> {
        if !go_on() {
            return Err(cancelled());
        }
        deadline.as_ref().map_or(Ok(()), Deadline::check)?;
        Ok(Self {
            extra: &[],
            go_on,
            deadline,
            scope,
        })
    }
}

/// Whether a name is that of a table or a view of the database, and so none that a caller may hand in.
fn is_known(view: &DatabaseView, name: &str) -> bool {
    view.table(name).is_ok()
        || view.stored_view(name).is_some()
        || system::table(name, view).is_some()
}

/// A query inside another statement, as a statement of its own.
fn statement_of(query: &Query) -> DfStatement {
    DfStatement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_table::EngineOptions;

    /// Whether the plan of a text serves texts with other numbers too.
    fn is_shared(engine: &Session, text: &str) -> bool {
        let result = engine.sql(text, &Params::None, &[]).unwrap();
        result.collect().unwrap();
        let lifted = crate::literals::lift(text).unwrap();
        let statement = engine.shared.plans.statement(&lifted.text).unwrap();
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
            let engine = Session::new(engine, QueryOptions::default()).unwrap();
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
