//! Small models: all orders in which array processes, the writer and a reader can make their calls, one system call a step,
//! with kills at any call and power cuts at any state of the disk.
#![allow(clippy::panic, reason = "a step that fails is a test that fails")]

mod common;

use common::scenarios::scenarios;

#[test]
fn nothing_is_lost_doubled_or_shown_too_early_in_any_order() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut bad = Vec::new();
    for scenario in scenarios() {
        if !scenario.name.contains(&only) {
            continue;
        }
        let found = scenario.run(true);
        if let Some(first) = found.violations.first() {
            bad.push(format!("{}: {first}", scenario.name));
        }
    }
    if !bad.is_empty() {
        panic!("{}", bad.join("\n"));
    }
}
