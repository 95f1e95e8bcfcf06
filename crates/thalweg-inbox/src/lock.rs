//! The commit lock, its gate, and the bytes that show who is alive.
//!
//! Invariants
//! - Whoever unlocks has written everything before, or has left *appending* in the registry.
//! - Two bytes that are locked one by one are never neighbours.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_env::{Env, File, LockKind};

use crate::error::{Error, Result};
use crate::rules::Rule;

const GATE: Range<u64> = (1 << 40)..(1 << 40) + 1;
const COMMIT: Range<u64> = (1 << 40) + 2..(1 << 40) + 3;
const ALIVE: u64 = 1 << 41;
const RETRY: Duration = Duration::from_micros(50);
const GATE_RETRY: Duration = Duration::from_millis(2);
/// How much sooner the gate is tried again for each second of waiting.
const IMPATIENCE: u32 = 400;
const WITHOUT_GATE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);

/// The time that is waited for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One try.
    Once,
    /// Ten seconds.
    Usual,
}

/// The commit lock in the hand of this process.
#[derive(Debug)]
pub(crate) struct CommitLock {
    file: Arc<dyn File>,
    is_held: bool,
}

impl CommitLock {
    /// Takes the lock; `None`: somebody else has it.
    pub(crate) fn take(
        env: &Env,
        file: &Arc<dyn File>,
        patience: Patience,
    ) -> Result<Option<Self>> {
        if Rule::CommitLock.is_broken() {
            return Ok(Some(CommitLock {
                file: Arc::clone(file),
                is_held: false,
            }));
        }
        let mut waiting = Waiting::new(env);
        let lock = |range: Range<u64>| {
            file.try_lock(range, LockKind::Exclusive)
                .map_err(Error::io("inbox/registry"))
        };
        let mut has_gate = false;
        let is_held = loop {
            has_gate = has_gate || lock(GATE)?;
            if (has_gate || waiting.is_long()) && lock(COMMIT)? {
                break true;
            }
            if patience == Patience::Once || waiting.is_over() {
                break false;
            }
            waiting.wait(has_gate);
        };
        if has_gate {
            file.unlock(GATE).map_err(Error::io("inbox/registry"))?;
        }
        Ok(is_held.then(|| CommitLock {
            file: Arc::clone(file),
            is_held,
        }))
    }

    /// Lets others commit.
    pub(crate) fn release(mut self) -> Result<()> {
        let is_held = std::mem::take(&mut self.is_held);
        match is_held {
            true => self
                .file
                .unlock(COMMIT)
                .map_err(Error::io("inbox/registry")),
            false => Ok(()),
        }
    }
}

impl Drop for CommitLock {
    fn drop(&mut self) {
        if self.is_held {
            // It failed or is unwound: if this fails as well, the lock goes with the handle.
            let _ = self.file.unlock(COMMIT);
        }
    }
}

/// The time that somebody has waited.
struct Waiting<'a> {
    env: &'a Env,
    waited: Duration,
}

impl<'a> Waiting<'a> {
    fn new(env: &'a Env) -> Self {
        Waiting {
            env,
            waited: Duration::ZERO,
        }
    }

    fn is_long(&self) -> bool {
        self.waited >= WITHOUT_GATE
    }

    fn is_over(&self) -> bool {
        self.waited >= GIVE_UP
    }

    fn wait(&mut self, has_gate: bool) {
        let seconds = u32::try_from(self.waited.as_secs()).unwrap_or(u32::MAX);
        let sooner = Duration::from_micros(seconds.saturating_mul(IMPATIENCE).into());
        let pause = match has_gate {
            true => RETRY,
            false => GATE_RETRY.saturating_sub(sooner).max(RETRY),
        };
        self.env.clock().sleep(pause);
        self.waited += pause;
    }
}

/// The byte that shows that an array process is alive. The system frees it, however the process ends.
#[derive(Debug)]
pub(crate) struct Alive {
    number: u64,
}

impl Alive {
    /// Draws a number that nobody has.
    pub(crate) fn take(env: &Env, file: &Arc<dyn File>) -> Result<Alive> {
        loop {
            let drawn = env
                .entropy()
                .random_u64()
                .map_err(Error::io("the source of randomness"))?;
            let number = drawn % ((1 << 39) - 1) + 1;
            let range = Alive::range(number);
            if file
                .try_lock(range, LockKind::Exclusive)
                .map_err(Error::io("inbox/registry"))?
            {
                return Ok(Alive { number });
            }
        }
    }

    /// The number, which is in the ids of its fragments.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn range(number: u64) -> Range<u64> {
        ALIVE + number..ALIVE + number + 1
    }

    /// Whether the process of that number may be alive.
    pub(crate) fn is_alive(file: &Arc<dyn File>, number: u64) -> Result<bool> {
        file.is_locked(Alive::range(number))
            .map_err(Error::io("inbox/registry"))
    }
}
