//! Counters for hot paths.
//!
//! Each thread counts on one of a few cache lines, so that counting costs no
//! traffic between cores as long as threads are few.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Cache lines.
const LINES: usize = 8;

#[derive(Debug)]
#[repr(align(64))]
struct Line<const N: usize>([AtomicU64; N]);

/// `N` counters, at most eight.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize> {
    lines: [Line<N>; LINES],
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Counters<N> {
        Counters {
            lines: std::array::from_fn(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))),
        }
    }
}

thread_local! {
    static LINE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The line that this thread counts on.
#[inline(always)]
fn line() -> usize {
    let line = LINE.get();
    if line < LINES { line } else { choose_line() }
}

#[cold]
fn choose_line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let line = NEXT.fetch_add(1, Ordering::Relaxed) % LINES;
    LINE.set(line);
    line
}

impl<const N: usize> Counters<N> {
    /// Counts one on counter `which`; gives what this thread's line of it had before.
    #[inline(always)]
    pub(crate) fn add(&self, which: usize) -> u64 {
        self.lines[line()].0[which].fetch_add(1, Ordering::Relaxed)
    }

    /// The value of counter `which`.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        self.lines
            .iter()
            .map(|l| l.0[which].load(Ordering::Relaxed))
            .sum()
    }
}
