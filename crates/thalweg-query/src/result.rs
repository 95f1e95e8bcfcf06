//! The rows of a statement, pulled by the caller.
//!
//! Invariants: nothing runs before the first pull; batches without rows are never returned; after the end, an error or
//! a cancellation nothing more comes; dropping a result stops its work.

use crate::deadline::Deadline;
use crate::dialect::output_names::visible;
use crate::error::{cancelled, from_arrow, from_datafusion, of_table, query, to_datafusion};
use crate::session::Session;
use crate::stack::with_room;
use crate::stop::Stop;
use crate::stream::QueryStream;
use crate::threads::{Running, Threads, wait_for};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::{BoxFuture, Either, select};
use futures::{FutureExt, StreamExt};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thalweg_env::Owner;
use thalweg_table::{Error, ErrorKind, Result, Scan};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// The result of a pull.
#[derive(Debug)]
pub enum Fetched {
    /// At least one row.
    Batch(RecordBatch),
    /// Nothing yet.
    Pending,
    /// There is no more.
    End,
}

/// The rows of a statement. They can be read once.
pub struct QueryResult {
    schema: SchemaRef,
    /// The operators call some columns otherwise, to tell them apart.
    is_renamed: bool,
    rows: Rows,
    cancel: CancelHandle,
    is_count: bool,
    /// The process in which there are threads for it; `None`: it needs none.
    owner: Option<Owner>,
    deadline: Option<Deadline>,
    /// For streams: completes once it was cancelled.
    stopped: Option<BoxFuture<'static, ()>>,
    /// More rows than so many are an error.
    max_rows: Option<u64>,
    returned_rows: u64,
    /// The error that has ended the statement; each further call returns it again.
    failed: Option<Error>,
}

enum Rows {
    /// In memory.
    Ready(std::vec::IntoIter<RecordBatch>),
    /// Straight from the table of that name.
    Scan(Box<Scan>, String, Session),
    /// Not started.
    Planned(Box<Planned>),
    Running(Source, Running),
    /// For an async program: a thread of queries runs the operators.
    Streaming(Spawned),
    Done,
}

/// Operators that were not started.
pub(crate) struct Planned {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) task: Arc<TaskContext>,
    pub(crate) threads: Arc<Threads>,
    /// Cancels their work, if they do not run in the thread that pulls.
    pub(crate) stop: Option<Stop>,
}

/// Where batches come from.
enum Source {
    /// Operators that run in the thread that pulls: no other has to wake up.
    Inline(SendableRecordBatchStream),
    /// Operators that may work for long between two checks for cancellation, on a thread of queries: the caller can leave.
    Spawned(Spawned),
}

/// Operators that run on a thread of queries.
struct Spawned {
    rows: Receiver<Result<RecordBatch>>,
    driver: Driver,
}

/// The task of [`Source::Spawned`]; stops when it is dropped.
struct Driver(JoinHandle<()>, Stop);

impl Drop for Driver {
    fn drop(&mut self) {
        self.1.set();
        self.0.abort();
    }
}

impl Source {
    fn start(planned: &Planned, deadline: Option<&Deadline>) -> Result<Self> {
        // Operators may start tasks at once.
        let _inside = planned.threads.enter();
        let (plan, task) = (Arc::clone(&planned.plan), Arc::clone(&planned.task));
        let stream = execute_stream(plan, task).map_err(from_datafusion)?;
        let Some(stop) = &planned.stop else {
            return Ok(Self::Inline(stream));
        };
        let spawned = Spawned::start(&planned.threads, stop.clone(), |rows| {
            drive(stream, rows, deadline.cloned())
        });
        Ok(Self::Spawned(spawned))
    }

    /// Moves the operators to a thread of queries, unless they are there already.
    fn on_threads(self, threads: &Threads, deadline: Option<&Deadline>) -> Self {
        match self {
            Self::Inline(stream) => {
                let drive = |rows| drive(stream, rows, deadline.cloned());
                Self::Spawned(Spawned::start(threads, Stop::default(), drive))
            }
            spawned => spawned,
        }
    }

    /// The next batch; with `wait`, `Pending` if operators yield or the time is over first.
    fn pull(
        &mut self,
        threads: &Threads,
        cancel: &CancelHandle,
        wait: Option<Duration>,
    ) -> Result<Fetched> {
        match self {
            Self::Inline(stream) => {
                let next = pin!(next_inline(stream, wait.is_some()));
                let stopped = pin!(cancel.cancelled());
                match threads.run_here(select(next, stopped)) {
                    Either::Left((fetched, _)) => fetched,
                    Either::Right(((), _)) => Err(cancelled()),
                }
            }
            Self::Spawned(spawned) => {
                let next = pin!(poll_fn(|context| spawned.poll_next(context)));
                let stopped = pin!(cancel.cancelled());
                match wait_for(select(next, stopped), wait) {
                    Some(Either::Left((fetched, _))) => fetched,
                    Some(Either::Right(((), _))) => Err(cancelled()),
                    None => Ok(Fetched::Pending),
                }
            }
        }
    }
}

/// The next batch. Operators yield after some batches of work, sooner than anybody gets impatient. If `tell` is set, this then
/// returns `Pending`, though not the first time.
async fn next_inline(stream: &mut SendableRecordBatchStream, tell: bool) -> Result<Fetched> {
    let mut looked_up = false;
    poll_fn(|context| {
        match stream.poll_next_unpin(context) {
            Poll::Ready(Some(Ok(batch))) if batch.num_rows() == 0 => {
                context.waker().wake_by_ref();
            }
            Poll::Ready(Some(Ok(batch))) => return Poll::Ready(Ok(Fetched::Batch(batch))),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(from_datafusion(error))),
            Poll::Ready(None) => return Poll::Ready(Ok(Fetched::End)),
            // The first time it goes on as soon as there is work.
            Poll::Pending if tell && looked_up => return Poll::Ready(Ok(Fetched::Pending)),
            Poll::Pending => looked_up = true,
        }
        Poll::Pending
    })
    .await
}

impl Spawned {
    /// Starts a task on a thread of queries that sends its rows.
    fn start<F>(
        threads: &Threads,
        stop: Stop,
        task: impl FnOnce(Sender<Result<RecordBatch>>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, rows) = channel(1);
        let driver = Driver(threads.spawn(task(sender)), stop);
        Self { rows, driver }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Fetched>> {
        if let Some(batch) = ready!(self.rows.poll_recv(context)) {
            return Poll::Ready(batch.map(Fetched::Batch));
        }
        Poll::Ready(match ready!(self.driver.0.poll_unpin(context)) {
            Ok(()) => Ok(Fetched::End),
            // Without this a panic would look like the end of the rows.
            Err(error) => Err(query(format!("the query broke off: {error}"))),
        })
    }
}

/// Pulls for a caller elsewhere, a batch ahead of it. Once the time is over nothing is held any more but the error.
async fn drive(
    mut stream: SendableRecordBatchStream,
    sender: Sender<Result<RecordBatch>>,
    deadline: Option<Deadline>,
) {
    loop {
        let next = match in_time(stream.next(), deadline.as_ref()).await {
            Ok(Some(batch)) => batch.map_err(from_datafusion),
            Ok(None) => return,
            Err(late) => Err(late),
        };
        if matches!(&next, Ok(batch) if batch.num_rows() == 0) {
            continue;
        }
        let is_last = next.is_err();
        match in_time(sender.send(next), deadline.as_ref()).await {
            Ok(Ok(())) if !is_last => {}
            Ok(_) => return,
            Err(late) => {
                drop(stream);
                // If nobody waits any more, nobody wants to know.
                let _ = sender.send(Err(late)).await;
                return;
            }
        }
    }
}

/// The output of a future, or the error of a statement that was late.
async fn in_time<F: Future>(future: F, deadline: Option<&Deadline>) -> Result<F::Output> {
    let Some(deadline) = deadline else {
        return Ok(future.await);
    };
    let in_time = tokio::time::timeout(deadline.left(), future).await;
    in_time.map_err(|_| deadline.error())
}

/// Runs a task for as long as the statement is not cancelled. Whoever waits for its rows then learns of it when it asks again.
async fn until_cancelled(task: impl Future<Output = ()>, cancel: &CancelHandle) {
    let (task, stopped) = (pin!(task), pin!(cancel.cancelled()));
    select(task, stopped).await;
}

/// The schema with the names that the user knows, where these differ.
fn with_names<'a>(
    schema: &Schema,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<SchemaRef> {
    let names = names.map(visible);
    let fields = schema.fields().iter().zip(names);
    if fields.clone().all(|(field, name)| field.name() == name) {
        return None;
    }
    let renamed = |(field, name): (&FieldRef, &str)| field.as_ref().clone().with_name(name);
    let fields: Vec<Field> = fields.map(renamed).collect();
    Some(Arc::new(Schema::new_with_metadata(
        fields,
        schema.metadata().clone(),
    )))
}

/// Cancels a statement from another thread.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<Cancel>);

#[derive(Debug, Default)]
struct Cancel {
    cancelled: AtomicBool,
    notify: Notify,
}

impl CancelHandle {
    /// Cancels the statement: its next pull, or the one that is waiting, fails.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Completes once it was cancelled.
    async fn cancelled(&self) {
        loop {
            // Made before the check, so that it notices a cancellation in between.
            let notified = self.0.notify.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }

    /// Fails once it was cancelled.
    fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(cancelled());
        }
        Ok(())
    }
}

impl QueryResult {
    /// `names`: what the columns are called, if not as in the plan.
    pub(crate) fn planned(
        planned: Planned,
        names: Option<&[String]>,
        owner: Owner,
        deadline: Option<Deadline>,
    ) -> Self {
        let schema = planned.plan.schema();
        let shown = match names {
            Some(names) => with_names(&schema, names.iter().map(String::as_str)),
            None => with_names(
                &schema,
                schema.fields().iter().map(|field| field.name().as_str()),
            ),
        };
        let is_renamed = shown.is_some();
        let schema = shown.unwrap_or(schema);
        let mut result = Self::new(schema, Rows::Planned(Box::new(planned)));
        result.is_renamed = is_renamed;
        result.owner = Some(owner);
        result.deadline = deadline;
        result
    }

    pub(crate) fn scan(
        scan: Scan,
        table: &str,
        session: Session,
        deadline: Option<Deadline>,
    ) -> Self {
        let schema = Arc::clone(scan.schema());
        let owner = session.owner().clone();
        let rows = Rows::Scan(Box::new(scan), table.to_owned(), session);
        let mut result = Self::new(schema, rows);
        result.owner = Some(owner);
        result.deadline = deadline;
        result
    }

    /// The same rows, of which more than so many are an error.
    pub(crate) fn of_at_most(mut self, max_rows: Option<u64>) -> Self {
        self.max_rows = max_rows;
        self
    }

    pub(crate) fn ready(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self::new(schema, Rows::Ready(batches.into_iter()))
    }

    /// The one row of a statement that changes something.
    pub(crate) fn count(rows: u64) -> Self {
        let field = Field::new("count", DataType::UInt64, false);
        let schema = Arc::new(Schema::new(vec![field]));
        let count: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![count]);
        let mut result = Self::ready(schema, batch.into_iter().collect());
        result.is_count = true;
        result
    }

    fn new(schema: SchemaRef, rows: Rows) -> Self {
        Self {
            schema,
            is_renamed: false,
            rows,
            cancel: CancelHandle::default(),
            is_count: false,
            owner: None,
            stopped: None,
            deadline: None,
            max_rows: None,
            returned_rows: 0,
            failed: None,
        }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether this is the row count of a statement that changed something, not rows that were asked for.
    pub fn is_count(&self) -> bool {
        self.is_count
    }

    /// Returns a handle that cancels this statement from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The next rows; `None` at the end. Blocks, also inside an async task: call it where blocking is fine.
    ///
    /// # Errors
    /// Any error of the statement while it runs.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.pull(None)? {
            Fetched::Batch(batch) => Ok(Some(batch)),
            Fetched::End | Fetched::Pending => Ok(None),
        }
    }

    /// Pulls as [`Self::next_batch`] does, but returns after about `wait` or sooner, for callers that check for cancellation in
    /// between.
    ///
    /// # Errors
    /// Any error of the statement while it runs.
    pub fn poll_batch(&mut self, wait: Duration) -> Result<Fetched> {
        self.pull(Some(wait))
    }

    /// All rows.
    ///
    /// # Errors
    /// Any error of the statement while it runs.
    pub fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// The rows as a stream for an async program. What was pulled already does not come again.
    pub fn into_stream(self) -> QueryStream {
        QueryStream::new(self)
    }

    fn pull(&mut self, wait: Option<Duration>) -> Result<Fetched> {
        if let Some(error) = &self.failed {
            // After an error there may have been more rows: it is no end.
            return Err(error.clone());
        }
        let fetched = with_room(|| self.pull_any(wait));
        self.taken(fetched)
    }

    /// The next rows for a stream; after an error [`Fetched::End`].
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Fetched>> {
        if self.failed.is_some() {
            return Poll::Ready(Ok(Fetched::End));
        }
        let fetched = ready!(with_room(|| self.poll_any(context)));
        Poll::Ready(self.taken(fetched))
    }

    /// The rows as the caller gets them; after the end, or an error, the work is let go of.
    fn taken(&mut self, fetched: Result<Fetched>) -> Result<Fetched> {
        let fetched = fetched.and_then(|fetched| self.counted(self.renamed(fetched)?));
        if matches!(fetched, Ok(Fetched::End) | Err(_)) {
            self.stop();
        }
        self.failed = fetched.as_ref().err().cloned();
        fetched
    }

    /// Counts rows against the limit of the session.
    fn counted(&mut self, fetched: Fetched) -> Result<Fetched> {
        let (Fetched::Batch(batch), Some(max_rows), false) =
            (&fetched, self.max_rows, self.is_count)
        else {
            return Ok(fetched);
        };
        self.returned_rows += batch.num_rows() as u64;
        if self.returned_rows > max_rows {
            let message =
                format!("the query returns more than the {max_rows} rows that its session allows");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(fetched)
    }

    /// The rows under the names of the schema.
    fn renamed(&self, fetched: Fetched) -> Result<Fetched> {
        match fetched {
            Fetched::Batch(batch) if self.is_renamed => {
                let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let (schema, columns) = (Arc::clone(&self.schema), batch.columns().to_vec());
                let batch = RecordBatch::try_new_with_options(schema, columns, &rows);
                batch.map(Fetched::Batch).map_err(from_arrow)
            }
            fetched => Ok(fetched),
        }
    }

    fn pull_any(&mut self, wait: Option<Duration>) -> Result<Fetched> {
        loop {
            self.check_owner()?;
            self.cancel.check()?;
            if let Some(deadline) = &self.deadline {
                deadline.check()?;
            }
            // With a deadline each wait ends, so that it is noticed.
            let left = self.deadline.as_ref().map(Deadline::left);
            let until = wait.into_iter().chain(left).min();
            let fetched = self.pull_once(until)?;
            if wait.is_some() || !matches!(fetched, Fetched::Pending) {
                return Ok(fetched);
            }
        }
    }

    /// In a child of a fork there are no threads for it.
    fn check_owner(&self) -> Result<()> {
        let owner = self.owner.as_ref().map_or(Ok(()), Owner::check);
        owner.map_err(Error::not_owner)
    }

    fn pull_once(&mut self, wait: Option<Duration>) -> Result<Fetched> {
        let deadline = self.deadline.as_ref();
        if let Rows::Planned(planned) = &self.rows {
            let running = Running::begin(&planned.threads, &planned.task);
            self.rows = Rows::Running(Source::start(planned, deadline)?, running);
        }
        self.rows = match std::mem::replace(&mut self.rows, Rows::Done) {
            // A thread of some other runtime cannot run operators.
            Rows::Running(source, running) if !Threads::may_run_here() => {
                Rows::Running(source.on_threads(running.threads(), deadline), running)
            }
            rows => rows,
        };
        match &mut self.rows {
            Rows::Ready(batches) => Ok(batches.next().map_or(Fetched::End, Fetched::Batch)),
            Rows::Scan(scan, table, _) => match scan.next() {
                Some(batch) => Ok(Fetched::Batch(batch.map_err(|e| of_table(e, table))?)),
                None => Ok(Fetched::End),
            },
            Rows::Running(source, running) => source.pull(running.threads(), &self.cancel, wait),
            Rows::Planned(_) | Rows::Streaming(_) | Rows::Done => Ok(Fetched::End),
        }
    }

    fn poll_any(&mut self, context: &mut Context<'_>) -> Poll<Result<Fetched>> {
        self.check_owner()?;
        let cancel = self.cancel.clone();
        let stopped = self
            .stopped
            .get_or_insert_with(|| async move { cancel.cancelled().await }.boxed());
        // It wakes the caller up, whatever runs the operators.
        if stopped.poll_unpin(context).is_ready() {
            return Poll::Ready(Err(cancelled()));
        }
        let fetched = ready!(self.poll_rows(context))?;
        // Work that was cancelled ends like any other.
        self.cancel.check()?;
        Poll::Ready(Ok(fetched))
    }

    fn poll_rows(&mut self, context: &mut Context<'_>) -> Poll<Result<Fetched>> {
        self.rows = match std::mem::replace(&mut self.rows, Rows::Done) {
            Rows::Planned(planned) => Rows::Streaming(self.spawned(*planned)),
            Rows::Scan(scan, table, session) => {
                Rows::Streaming(self.spawned_scan(scan, table, &session)?)
            }
            // Begun by blocking calls, perhaps in the thread that made them.
            Rows::Running(source, running) => {
                let source = source.on_threads(running.threads(), self.deadline.as_ref());
                Rows::Running(source, running)
            }
            rows => rows,
        };
        match &mut self.rows {
            Rows::Ready(batches) => {
                Poll::Ready(Ok(batches.next().map_or(Fetched::End, Fetched::Batch)))
            }
            Rows::Streaming(spawned) | Rows::Running(Source::Spawned(spawned), _) => {
                spawned.poll_next(context)
            }
            _ => Poll::Ready(Ok(Fetched::End)),
        }
    }

    /// Starts operators on a thread of queries, which may wait for the memory of others there.
    fn spawned(&self, planned: Planned) -> Spawned {
        let Planned {
            plan,
            task,
            threads,
            stop,
        } = planned;
        let (cancel, deadline) = (self.cancel.clone(), self.deadline.clone());
        let of_task = Arc::clone(&threads);
        Spawned::start(&threads, stop.unwrap_or_default(), |rows| async move {
            let running = Running::begin_async(&of_task, &task).await;
            match execute_stream(plan, task) {
                Ok(stream) => until_cancelled(drive(stream, rows, deadline), &cancel).await,
                // If nobody waits any more, nobody wants to know.
                Err(error) => drop(rows.send(Err(from_datafusion(error))).await),
            }
            drop(running);
        })
    }

    fn spawned_scan(&self, scan: Box<Scan>, table: String, session: &Session) -> Result<Spawned> {
        let threads = session.workers()?;
        let (cancel, deadline) = (self.cancel.clone(), self.deadline.clone());
        let batches =
            scan.map(move |batch| batch.map_err(|error| to_datafusion(of_table(error, &table))));
        let schema = Arc::clone(&self.schema);
        let of_task = Arc::clone(&threads);
        Ok(Spawned::start(
            &threads,
            Stop::default(),
            |rows| async move {
                let stream = futures::stream::iter(batches);
                let stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream));
                until_cancelled(drive(stream, rows, deadline), &cancel).await;
                // The session may be gone: these are then the last.
                drop(of_task);
            },
        ))
    }

    /// Frees everything but the schema.
    fn stop(&mut self) {
        with_room(|| self.rows = Rows::Done);
    }
}

impl Drop for QueryResult {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for QueryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryResult")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
