//! Latencies of operations, counted by magnitude to three digits.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);

/// Counted latencies.
pub(crate) struct Latencies(Histogram<u64>);

/// The usual percentiles, in nanoseconds.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Latencies {
        let longest = LONGEST.as_nanos() as u64;
        Latencies(Histogram::new_with_max(longest, 3).expect("the bounds are constants in range"))
    }

    /// Counts one.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.max(1));
    }

    /// Adds those of `other`.
    pub(crate) fn add(&mut self, other: &Latencies) {
        self.0
            .add(&other.0)
            .expect("both have the same constant bounds");
    }

    /// The usual percentiles; zeros where nothing was counted.
    pub(crate) fn percentiles(&self) -> Percentiles {
        if self.0.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            count: self.0.len(),
            p50_ns: self.0.value_at_quantile(0.50),
            p90_ns: self.0.value_at_quantile(0.90),
            p99_ns: self.0.value_at_quantile(0.99),
            p999_ns: self.0.value_at_quantile(0.999),
            max_ns: self.0.max(),
        }
    }
}
