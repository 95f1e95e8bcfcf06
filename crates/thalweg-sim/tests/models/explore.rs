//! Visits every state that a model can reach, nearest first, so that what is found is a shortest sequence of steps.
//!
//! Invariant: a state is visited once, whatever led to it; so a model keeps nothing that it never looks at again.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// States, the steps between them, and what must hold in each.
pub(crate) trait Model {
    type State: Clone + Eq + Hash;
    type Step: Clone + Debug;

    fn start(&self) -> Self::State;

    /// The steps that can be taken, in any order.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;

    /// The state after a step.
    ///
    /// # Errors
    /// What the step itself does that must not be done.
    fn take(&self, state: &Self::State, step: &Self::Step) -> Result<Self::State, String>;

    /// Checks a state.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, state: &Self::State) -> Result<(), String>;

    /// Whether everybody is done: a state without steps that is not the end is a deadlock.
    fn is_end(&self, state: &Self::State) -> bool;
}

/// A violation and the shortest way to it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) steps: Vec<String>,
}

/// More states than any model here has: one that grows without end is a mistake.
const MAX_STATES: usize = 2_000_000;

/// Visits all states; returns how many there are.
///
/// # Errors
/// The first violation.
pub(crate) fn explore<M: Model>(model: &M) -> Result<usize, Violation> {
    let mut trail = Trail::default();
    let first = model.start();
    let mut seen = HashSet::from([first.clone()]);
    let mut level = vec![(first, None)];
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for (state, at) in level {
            model
                .check(&state)
                .map_err(|what| trail.violation(what, at))?;
            let steps = model.steps(&state);
            if steps.is_empty() && !model.is_end(&state) {
                return Err(trail.violation("nothing can go on".to_owned(), at));
            }
            for step in steps {
                let taken = model.take(&state, &step);
                let at = Some(trail.push(at, &step));
                let next = taken.map_err(|what| trail.violation(what, at))?;
                if seen.insert(next.clone()) {
                    next_level.push((next, at));
                }
            }
        }
        assert!(seen.len() < MAX_STATES, "a model without an end");
        level = next_level;
    }
    Ok(seen.len())
}

/// How each state was reached: the step, and the place of the step before it.
#[derive(Default)]
struct Trail(Vec<(Option<usize>, String)>);

impl Trail {
    fn push(&mut self, before: Option<usize>, step: &impl Debug) -> usize {
        self.0.push((before, format!("{step:?}")));
        self.0.len() - 1
    }

    fn violation(&self, what: String, last: Option<usize>) -> Violation {
        let way = std::iter::successors(last, |&at| self.0[at].0);
        let mut steps: Vec<_> = way.map(|at| self.0[at].1.clone()).collect();
        steps.reverse();
        Violation { what, steps }
    }
}

/// Asserts that a model holds, and that it is not an empty one.
///
/// # Panics
/// On a violation.
pub(crate) fn holds<M: Model>(name: &str, model: &M) {
    match explore(model) {
        Ok(states) => {
            println!("{name}: {states} states");
            assert!(states > 1, "{name}: nothing happens");
        }
        Err(Violation { what, steps }) => panic!("{name}: {what}, after {steps:#?}"),
    }
}

/// Asserts that a model with a rule left out is violated.
///
/// # Panics
/// Where no violation is found.
pub(crate) fn misses<M: Model>(rule: impl Debug, model: &M) {
    let found = explore(model);
    let states = found.as_ref().ok().copied();
    assert!(
        states.is_none(),
        "nothing misses {rule:?} in {states:?} states"
    );
    if let Err(Violation { what, steps }) = found {
        println!(
            "without {rule:?}: {what}, after {} steps: {}",
            steps.len(),
            steps.join("; ")
        );
    }
}
