//! The rows of a statement for an async program: no thread waits for them.
//!
//! Invariants: the operators run on the threads of queries, a batch ahead of the program, and rest while it does not ask; nothing
//! runs before it asks for the first time; after an error there is nothing more. Dropping a stream stops its work.

use crate::result::{Fetched, QueryResult};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use thalweg_table::Result;

/// The rows of a statement, batch by batch. It needs no runtime of the program's own: whatever polls it is woken up.
#[derive(Debug)]
pub struct QueryStream(QueryResult);

impl QueryStream {
    pub(crate) fn new(rows: QueryResult) -> Self {
        Self(rows)
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        self.0.schema()
    }

    /// Whether this is the row count of a statement that changed something, not rows that were asked for.
    pub fn is_count(&self) -> bool {
        self.0.is_count()
    }
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match ready!(self.0.poll_next(context)) {
            Ok(Fetched::Batch(batch)) => Some(Ok(batch)),
            Ok(Fetched::End | Fetched::Pending) => None,
            Err(error) => Some(Err(error)),
        })
    }
}
