//! Each rule of the inbox makes a test fail when it is broken.
#![expect(clippy::panic, reason = "a rule that nothing misses is a test that fails")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use common::scenarios::scenarios;
use thalweg_inbox::{Rule, break_rule};

/// The first violation that a small model finds, and its name.
fn violation(most_states: usize) -> Option<(&'static str, String)> {
    for scenario in scenarios() {
        let scenario = common::scenarios::Scenario {
            states: scenario.states.min(most_states),
            is_reported: false,
            ..scenario
        };
        let tried = catch_unwind(AssertUnwindSafe(|| scenario.run(true)));
        match tried {
            Ok(found) => {
                if let Some(first) = found.violations.into_iter().next() {
                    return Some((scenario.name, first));
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                return Some((scenario.name, format!("panic: {}", text.unwrap_or_default())));
            }
        }
    }
    None
}

#[test]
fn every_rule_is_missed_when_it_is_broken() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut silent = Vec::new();
    for rule in Rule::ALL {
        if !format!("{rule:?}").contains(&only) {
            continue;
        }
        // Panics are violations here, and expected: they need not be printed.
        let hook = take_hook();
        set_hook(Box::new(|_| {}));
        break_rule(Some(*rule));
        let found = [500, 5_000, 40_000].into_iter().find_map(violation);
        break_rule(None);
        set_hook(hook);
        match found {
            Some((name, text)) => {
                let first = text.lines().next().unwrap_or_default();
                eprintln!("without {rule:?}: {name}: {first}");
            }
            None => {
                eprintln!("without {rule:?}: NOTHING");
                silent.push(*rule);
            }
        }
    }
    if !silent.is_empty() {
        panic!("nothing misses {silent:?}");
    }
}
