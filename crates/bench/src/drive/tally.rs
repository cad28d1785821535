//! What clients have done: operations by class, with their times.

use hdrhistogram::Histogram;

use crate::engine::Result;

/// The longest operation that is told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 2;

/// A write that takes so long has waited for something, in nanoseconds: it is the least that the
/// stalls of Thermocline, RocksDB and LevelDB take.
const LONG_WRITE_NS: u64 = 1_000_000;

/// Classes of operations in reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Read = 0,
    Write = 1,
    Scan = 2,
}

/// The number of classes.
pub(crate) const CLASSES: usize = 3;

/// The points of a latency curve, as shares of the operations.
pub(crate) const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// What one client has done while it was measured.
pub(super) struct Tally {
    times: [Histogram<u64>; CLASSES],
    /// Reads that found nothing.
    pub missing: u64,
    /// Bytes of keys and values that were read.
    pub read_bytes: u64,
    /// Bytes of keys and values that were written, warm-up included.
    pub written_bytes: u64,
}

impl Tally {
    pub(super) fn new() -> Result<Tally> {
        let histogram = || Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS);
        Ok(Tally {
            times: [histogram()?, histogram()?, histogram()?],
            missing: 0,
            read_bytes: 0,
            written_bytes: 0,
        })
    }

    #[inline]
    pub(super) fn record(&mut self, class: Class, nanoseconds: u64) {
        self.times[class as usize].saturating_record(nanoseconds.min(LATENCY_NS_MAX));
    }

    pub(super) fn merge(&mut self, other: &Tally) -> Result<()> {
        for (all, more) in self.times.iter_mut().zip(&other.times) {
            all.add(more)?;
        }
        self.missing += other.missing;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        Ok(())
    }

    /// How many operations of each class there were.
    pub(super) fn counts(&self) -> [u64; CLASSES] {
        [0, 1, 2].map(|class| self.times[class].len())
    }

    /// The 50th, 99th and 99.9th percentile of each class, in nanoseconds.
    pub(super) fn percentiles(&self) -> [Option<[u64; 3]>; CLASSES] {
        [0, 1, 2].map(|class| percentiles(&self.times[class]))
    }

    /// The same of all operations together.
    pub(super) fn percentiles_of_all(&self) -> Result<Option<[u64; 3]>> {
        let [first, others @ ..] = &self.times;
        let mut all = first.clone();
        for more in others {
            all.add(more)?;
        }
        Ok(percentiles(&all))
    }

    /// Seconds that long writes took, those of 1 ms and more, all together; to the digits of the
    /// histogram.
    pub(super) fn long_write_seconds(&self) -> f64 {
        let writes = self.times[Class::Write as usize].iter_recorded();
        let long = writes.map(|at| (at.value_iterated_to(), at.count_at_value()));
        let long = long.filter(|(nanoseconds, _)| *nanoseconds >= LONG_WRITE_NS);
        long.map(|(nanoseconds, count)| nanoseconds as f64 * count as f64 / 1e9)
            .sum()
    }

    /// The times in nanoseconds that the shares [`QUANTILES`] of each class took
    /// at most; of a class without operations, none.
    pub(super) fn curves(&self) -> [Vec<u64>; CLASSES] {
        [0, 1, 2].map(|class| {
            let times = &self.times[class];
            let points = QUANTILES.iter().map(|&q| times.value_at_quantile(q));
            if times.is_empty() {
                Vec::new()
            } else {
                points.collect()
            }
        })
    }
}

fn percentiles(times: &Histogram<u64>) -> Option<[u64; 3]> {
    let some = !times.is_empty();
    some.then(|| [0.5, 0.99, 0.999].map(|share| times.value_at_quantile(share)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_all_operations_are_not_those_of_a_class() {
        let mut tally = Tally::new().unwrap();
        assert_eq!(tally.percentiles_of_all().unwrap(), None);
        (0..90).for_each(|_| tally.record(Class::Write, 10));
        (0..10).for_each(|_| tally.record(Class::Scan, 100));
        assert_eq!(tally.percentiles_of_all().unwrap(), Some([10, 100, 100]));
        assert_eq!(tally.percentiles()[Class::Write as usize], Some([10; 3]));
    }

    #[test]
    fn long_writes_are_added_up_and_nothing_else_is() {
        let mut tally = Tally::new().unwrap();
        assert_eq!(tally.long_write_seconds(), 0.0);
        (0..1000).for_each(|_| tally.record(Class::Write, 900_000));
        (0..10).for_each(|_| tally.record(Class::Scan, 50_000_000));
        assert_eq!(tally.long_write_seconds(), 0.0);
        (0..100).for_each(|_| tally.record(Class::Write, 2_000_000));
        tally.record(Class::Write, 1_000_000_000);
        let seconds = tally.long_write_seconds();
        assert!((1.19..1.21).contains(&seconds), "{seconds}");
    }
}
