//! The time by which a statement has to end.

use std::time::Duration;
use thalweg_env::Env;
use thalweg_table::{Error, ErrorKind, Result};

/// The end of the time that a statement has.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    env: Env,
    at_ns: u64,
    timeout: Duration,
}

impl Deadline {
    /// The time `timeout` from now.
    pub(crate) fn after(timeout: Duration, env: &Env) -> Self {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self {
            at_ns: env.clock().monotonic_ns().saturating_add(timeout_ns),
            env: env.clone(),
            timeout,
        }
    }

    /// The time that is left; zero once it is over.
    pub(crate) fn left(&self) -> Duration {
        let now_ns = self.env.clock().monotonic_ns();
        Duration::from_nanos(self.at_ns.saturating_sub(now_ns))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Fails once it is over.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_over() {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    /// The error of a statement that was not done in time.
    pub(crate) fn error(&self) -> Error {
        let message = format!(
            "the statement took longer than the timeout of its session, {:?}",
            self.timeout
        );
        Error::new(ErrorKind::Query, message)
    }
}
