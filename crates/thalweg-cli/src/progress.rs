//! A bar on standard error while something takes long; nothing where that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// How often it is drawn while nothing moves.
const TICK: Duration = Duration::from_millis(100);

/// A bar over bytes; without a length it only counts them.
pub(crate) fn bytes(doing: &'static str, length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ),
        None => (
            ProgressBar::no_length(),
            "{msg} {spinner} {bytes} {bytes_per_sec}",
        ),
    };
    let bar = bar.with_message(doing);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
