//! The rows of a statement, pulled by the caller.
//!
//! Invariants: nothing runs before the first pull; batches without rows are never returned; after the end, an error or
//! a cancellation nothing more comes; dropping a result stops its work.

use crate::error::{from_datafusion, query};
use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_table::{Error, Result};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// What a pull brought.
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
    rows: Rows,
    cancel: CancelHandle,
    is_count: bool,
}

enum Rows {
    /// In memory.
    Ready(std::vec::IntoIter<RecordBatch>),
    /// Not started.
    Planned {
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
        runtime: Arc<Runtime>,
    },
    Running {
        stream: SendableRecordBatchStream,
        runtime: Arc<Runtime>,
    },
    Done,
}

/// Stops a statement from another thread.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<Cancel>);

#[derive(Debug, Default)]
struct Cancel {
    cancelled: AtomicBool,
    notify: Notify,
}

impl CancelHandle {
    /// Stops the statement: its next pull, or the one that is waiting, fails.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
        // For a pull that looked before and waits after this line.
        self.0.notify.notify_one();
    }

    /// Whether it was stopped.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }
}

fn cancelled() -> Error {
    query("the statement was cancelled")
}

impl QueryResult {
    pub(crate) fn planned(
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
        runtime: Arc<Runtime>,
    ) -> Self {
        let schema = plan.schema();
        Self::new(
            schema,
            Rows::Planned {
                plan,
                task,
                runtime,
            },
        )
    }

    pub(crate) fn ready(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self::new(schema, Rows::Ready(batches.into_iter()))
    }

    /// The one row of a statement that changes something.
    pub(crate) fn count(rows: u64) -> Self {
        let schema = Arc::new(Schema::new(vec![Field::new(
            "count",
            DataType::UInt64,
            false,
        )]));
        let count: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![count]);
        Self {
            is_count: true,
            ..Self::ready(schema, batch.into_iter().collect())
        }
    }

    fn new(schema: SchemaRef, rows: Rows) -> Self {
        Self {
            schema,
            rows,
            cancel: CancelHandle::default(),
            is_count: false,
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

    /// Stops this statement from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The next rows; `None` at the end. Blocks; not to be called from inside an async task.
    ///
    /// # Errors
    /// What went wrong while the statement ran.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.pull(None)? {
            Fetched::Batch(batch) => Ok(Some(batch)),
            Fetched::End | Fetched::Pending => Ok(None),
        }
    }

    /// The same, but gives up for now after about `wait`: for callers that must look up at times.
    ///
    /// # Errors
    /// What went wrong while the statement ran.
    pub fn poll_batch(&mut self, wait: Duration) -> Result<Fetched> {
        self.pull(Some(wait))
    }

    /// All rows.
    ///
    /// # Errors
    /// What went wrong while the statement ran.
    pub fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    fn pull(&mut self, wait: Option<Duration>) -> Result<Fetched> {
        let fetched = self.pull_any(wait);
        if matches!(fetched, Ok(Fetched::End) | Err(_)) {
            self.rows = Rows::Done;
        }
        fetched
    }

    fn pull_any(&mut self, wait: Option<Duration>) -> Result<Fetched> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        if let Rows::Planned {
            plan,
            task,
            runtime,
        } = &self.rows
        {
            let runtime = Arc::clone(runtime);
            // Operators may start tasks at once.
            let guard = runtime.enter();
            let stream =
                execute_stream(Arc::clone(plan), Arc::clone(task)).map_err(from_datafusion)?;
            drop(guard);
            self.rows = Rows::Running { stream, runtime };
        }
        match &mut self.rows {
            Rows::Ready(batches) => Ok(batches.next().map_or(Fetched::End, Fetched::Batch)),
            Rows::Running { stream, runtime } => {
                runtime.block_on(next_of(stream, &self.cancel, wait))
            }
            Rows::Planned { .. } | Rows::Done => Ok(Fetched::End),
        }
    }
}

async fn next_of(
    stream: &mut SendableRecordBatchStream,
    cancel: &CancelHandle,
    wait: Option<Duration>,
) -> Result<Fetched> {
    let next = async {
        loop {
            match stream.next().await {
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return Ok(Fetched::Batch(batch)),
                Some(Err(error)) => return Err(from_datafusion(error)),
                None => return Ok(Fetched::End),
            }
            if cancel.is_cancelled() {
                return Err(cancelled());
            }
        }
    };
    let stopped = async {
        loop {
            cancel.0.notify.notified().await;
            if cancel.is_cancelled() {
                return Err(cancelled());
            }
        }
    };
    let timeout = async {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
        Ok(Fetched::Pending)
    };
    // Rows first: what is ready is returned, however short the wait.
    futures::pin_mut!(next, stopped, timeout);
    let either = futures::future::select(next, futures::future::select(stopped, timeout));
    match either.await {
        futures::future::Either::Left((next, _)) => next,
        futures::future::Either::Right((other, _)) => other.factor_first().0,
    }
}

impl fmt::Debug for QueryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryResult")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
