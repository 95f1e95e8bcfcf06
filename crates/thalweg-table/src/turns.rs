//! A lock for long work that is waited for in turn, and that a thread can stop waiting for.
//!
//! Invariants: one thread at a time holds it, the others in the order in which they came; one that stops waiting leaves no gap; a
//! panic of the holder passes the turn on.
//! A thread keeps its place while its `go_on` runs, so that one that takes long there holds up those after it: it has to be quick.
//!
//! Rejected: a mutex, which cannot be left again by a thread that waits; trying it again and again, which a thread that takes it
//! again at once hardly ever lets succeed.

use std::collections::VecDeque;
use std::time::Duration;
use thalweg_env::sync::{Condvar, Mutex, MutexGuard};

/// How long a thread waits between two calls of its `go_on`.
const ASKED_EACH: Duration = Duration::from_millis(20);

/// A value, and the threads that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Turns<T> {
    queue: Mutex<Queue>,
    moved: Condvar,
    held: Mutex<T>,
}

/// The numbers of those who hold it or wait for it; the first holds it.
#[derive(Debug, Default)]
struct Queue {
    numbers: VecDeque<u64>,
    next: u64,
}

/// The turn of a thread.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    // Before its place in the queue: whoever is next finds it free.
    held: MutexGuard<'a, T>,
    _place: Place<'a, T>,
}

/// A place in the queue.
#[derive(Debug)]
struct Place<'a, T> {
    turns: &'a Turns<T>,
    number: u64,
}

impl<T> Turns<T> {
    pub(crate) fn new(held: T) -> Self {
        Self {
            queue: Mutex::default(),
            moved: Condvar::new(),
            held: Mutex::new(held),
        }
    }

    /// Whether somebody has it or waits for it.
    pub(crate) fn is_taken(&self) -> bool {
        !self.queue.lock().numbers.is_empty()
    }

    /// Whether somebody waits for whoever has it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.queue.lock().numbers.len() > 1
    }

    /// Waits for a turn; `None` if `go_on`, which is called while waiting, returns false.
    pub(crate) fn wait(&self, go_on: &dyn Fn() -> bool) -> Option<Turn<'_, T>> {
        let place = Place {
            turns: self,
            number: self.queue.lock().join(),
        };
        loop {
            let mut queue = self.queue.lock();
            if queue.numbers.front() != Some(&place.number) {
                drop(queue);
                // Not with the queue locked: it may take long.
                if !go_on() {
                    return None;
                }
                queue = self.queue.lock();
                if queue.numbers.front() != Some(&place.number) {
                    self.moved.wait_for(&mut queue, ASKED_EACH);
                    continue;
                }
            }
            drop(queue);
            return Some(Turn {
                held: self.held.lock(),
                _place: place,
            });
        }
    }
}

impl Queue {
    fn join(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.numbers.push_back(number);
        number
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let mut queue = self.turns.queue.lock();
        queue.numbers.retain(|number| *number != self.number);
        self.turns.moved.notify_all();
    }
}

impl<T> std::ops::Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> std::ops::DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn a_turn_that_is_not_waited_for_any_longer_is_passed_on() {
        let turns = Turns::new(1);
        let first = turns.wait(&|| true).unwrap();
        assert!(turns.wait(&|| false).is_none());
        let asked = std::cell::Cell::new(0);
        let twice = || {
            asked.set(asked.get() + 1);
            asked.get() <= 2
        };
        assert!(turns.wait(&twice).is_none());
        drop(first);
        let mut last = turns.wait(&|| true).unwrap();
        *last += 1;
        assert_eq!(*last, 2);
    }
}
