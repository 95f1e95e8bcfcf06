//! Small models: all orders in which array processes, the writer and a reader can make their calls, one system call a step,
//! with kills at any call and power cuts at any state of the disk.
#![allow(clippy::panic, reason = "a step that fails is a test that fails")]

mod common;

use common::scenarios::scenarios;
use common::two_at_once;
use thalweg_env::sync::Mutex;

#[test]
fn nothing_is_lost_doubled_or_shown_too_early_in_any_order() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let scenarios = { scenarios().into_iter() }.filter(|scenario| scenario.name.contains(&only));
    let scenarios: Vec<_> = scenarios.collect();
    let bad = Mutex::new(Vec::new());
    two_at_once(&scenarios, |scenario| {
        let found = scenario.run(true);
        if let Some(first) = found.violations.first() {
            bad.lock().push(format!("{}: {first}", scenario.name));
        }
    });
    let bad = bad.into_inner();
    if !bad.is_empty() {
        panic!("{}", bad.join("\n"));
    }
}
