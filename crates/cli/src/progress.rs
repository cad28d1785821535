//! Progress bars on standard error. Nothing is drawn where standard error is
//! not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar without news is redrawn.
const TICK: Duration = Duration::from_millis(120);

/// A bar over `bytes` bytes; a counter where their number is unknown.
pub(crate) fn of_bytes(doing: &'static str, bytes: Option<u64>) -> ProgressBar {
    let template = match bytes {
        Some(_) => "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
        None => "{msg} {spinner} {bytes} {bytes_per_sec}",
    };
    bar(doing, template, bytes)
}

/// A bar over `count` operations.
pub(crate) fn of_operations(doing: &'static str, count: u64) -> ProgressBar {
    bar(
        doing,
        "{msg} [{bar:32}] {human_pos}/{human_len} {per_sec}, {eta} left",
        Some(count),
    )
}

/// A sign of life during work whose length is unknown.
pub(crate) fn of_unknown_length(doing: &'static str) -> ProgressBar {
    let bar = bar(doing, "{msg} {spinner} {elapsed}", None);
    bar.enable_steady_tick(TICK);
    bar
}

/// No bar: for output that a program reads.
pub(crate) fn none() -> ProgressBar {
    ProgressBar::hidden()
}

fn bar(doing: &'static str, template: &str, length: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template(template)
        .expect("the templates of this file are well formed")
        .progress_chars("=> ");
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::no_length(),
    };
    bar.with_style(style).with_message(doing)
}

/// Says something on standard error above the bar. A closed standard error is
/// no reason to stop.
pub(crate) fn note(bar: &ProgressBar, message: &str) {
    use std::io::Write as _;
    bar.suspend(|| {
        let _ = writeln!(std::io::stderr(), "{message}");
    });
}
