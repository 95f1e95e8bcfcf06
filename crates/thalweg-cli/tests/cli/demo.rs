//! `thalweg demo`.

use crate::Place;

#[test]
fn the_demonstration_holds() {
    let report = Place::new().run(["demo"]).ok();
    assert!(
        report.contains("All ") && report.contains(" checks held."),
        "{report}"
    );
    assert!(!report.contains("FAIL"), "{report}");
    assert!(report.matches("\nok  ").count() >= 15, "{report}");
    let next: Vec<&str> = report.lines().rev().take(3).collect();
    let commands = [" my.thal", " sql my.thal ", " import my.thal "];
    for (line, command) in next.iter().zip(commands) {
        assert!(line.contains(command), "{report}");
    }
}
