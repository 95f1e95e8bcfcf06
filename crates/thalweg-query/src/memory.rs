//! The memory that statements may take: all together, and those of one session.
//!
//! Invariants: what a session takes counts for the session and for all sessions together; a request that either refuses leaves both
//! as they were; no batch that goes from one thread to another is written to a file.
//!
//! Rejected: refusing memory to such batches as to all other operators. DataFusion 55 writes them to files then, and its threads
//! may wait for each other for ever (<https://github.com/apache/datafusion/issues/24883>).

use crate::error::from_datafusion;
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_table::{Error, ErrorKind, Result};

/// The name of the limit of a session in errors of DataFusion, by which `error` recognises them. Operators spill only at
/// DataFusion's own kind of error, so that error cannot be one of ours.
pub(crate) const OF_SESSION: &str = "the memory limit of the session";

/// Bytes that batches between threads may take beyond a limit, however low that is.
const MIN_BETWEEN_THREADS_BYTES: usize = 64 << 20;

/// A pool of `limit_bytes` for all operators together, and of as much again, [`MIN_BETWEEN_THREADS_BYTES`] at least, for batches
/// between threads.
#[derive(Debug)]
pub(crate) struct OperatorPool {
    operators: FairSpillPool,
    between_threads_bytes: AtomicUsize,
    max_between_threads_bytes: usize,
}

impl OperatorPool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            operators: FairSpillPool::new(limit_bytes),
            between_threads_bytes: AtomicUsize::new(0),
            max_between_threads_bytes: limit_bytes.max(MIN_BETWEEN_THREADS_BYTES),
        }
    }
}

/// Whether it holds batches that go from one thread to another.
fn is_between_threads(consumer: &MemoryConsumer) -> bool {
    consumer.can_spill() && consumer.name().starts_with("RepartitionExec")
}

impl fmt::Display for OperatorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operators.fmt(f)
    }
}

impl MemoryPool for OperatorPool {
    fn name(&self) -> &str {
        "thalweg_operators"
    }

    // Batches between threads have a share like others, though they take none of it: without it each sort would take more before it
    // writes to files, and leave less for merging those.
    fn register(&self, consumer: &MemoryConsumer) {
        self.operators.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.operators.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        match is_between_threads(reservation.consumer()) {
            true => _ = { &self.between_threads_bytes }.fetch_add(additional, Ordering::Relaxed),
            false => self.operators.grow(reservation, additional),
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        match is_between_threads(reservation.consumer()) {
            true => {
                _ = self
                    .between_threads_bytes
                    .fetch_sub(shrink, Ordering::Relaxed)
            }
            false => self.operators.shrink(reservation, shrink),
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        if !is_between_threads(reservation.consumer()) {
            return self.operators.try_grow(reservation, additional);
        }
        let max_bytes = self.max_between_threads_bytes;
        let grown = |bytes: usize| {
            bytes
                .checked_add(additional)
                .filter(|bytes| *bytes <= max_bytes)
        };
        let taken = { &self.between_threads_bytes }.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            grown,
        );
        taken.map(|_| ()).map_err(|_| {
            let message = format!("{additional} bytes more are beyond the memory between threads");
            DataFusionError::ResourcesExhausted(message)
        })
    }

    fn reserved(&self) -> usize {
        self.operators.reserved() + self.between_threads_bytes.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.operators.memory_limit()
    }
}

/// The task context of operators that may take `limit_bytes` together, within what `common` allows.
pub(crate) fn limited(common: &TaskContext, limit_bytes: u64) -> Result<Arc<TaskContext>> {
    let Ok(limit_bytes) = usize::try_from(limit_bytes) else {
        let message = format!("a memory limit of {limit_bytes} bytes is beyond this machine");
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    let pool = SessionPool {
        all: Arc::clone(common.memory_pool()),
        own: OperatorPool::new(limit_bytes),
    };
    let mut config = common.session_config().clone();
    let partitions = config.target_partitions();
    let execution = &mut config.options_mut().execution;
    // Each partition of a sort reserves so much for its spilling: all together no more than a quarter of the limit.
    let reserved_bytes = limit_bytes / partitions.saturating_mul(4).max(1);
    execution.sort_spill_reservation_bytes =
        execution.sort_spill_reservation_bytes.min(reserved_bytes);
    let runtime = RuntimeEnvBuilder::from_runtime_env(&common.runtime_env());
    let runtime = runtime.with_memory_pool(Arc::new(pool));
    let task = TaskContext::new(
        None,
        common.session_id(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        runtime.build_arc().map_err(from_datafusion)?,
    );
    Ok(Arc::new(task))
}

/// The pool of a session, and the one that all sessions share.
#[derive(Debug)]
struct SessionPool {
    own: OperatorPool,
    all: Arc<dyn MemoryPool>,
}

impl fmt::Display for SessionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} within {}", self.own, self.all)
    }
}

impl MemoryPool for SessionPool {
    fn name(&self) -> &str {
        "thalweg_session"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.own.register(consumer);
        self.all.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.own.unregister(consumer);
        self.all.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.own.grow(reservation, additional);
        self.all.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.own.shrink(reservation, shrink);
        self.all.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        let refused = |_| {
            let message = format!("{additional} bytes more are beyond {OF_SESSION}");
            DataFusionError::ResourcesExhausted(message)
        };
        { self.own.try_grow(reservation, additional) }.map_err(refused)?;
        let shared = self.all.try_grow(reservation, additional);
        shared.inspect_err(|_| self.own.shrink(reservation, additional))
    }

    fn reserved(&self) -> usize {
        self.own.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.own.memory_limit()
    }
}
