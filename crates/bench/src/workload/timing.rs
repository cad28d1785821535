//! The clock: runs one piece of work on several threads at once and says how
//! long it took, how much processor time it used and, if asked, how long each
//! operation took.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::engine::Result;
use crate::usage::cpu_seconds;

/// The longest operation that a histogram tells apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 2;

/// What one thread has done.
pub(crate) struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Nanoseconds of each, if they were timed.
    latency: Option<Histogram<u64>>,
}

impl Tally {
    /// Nothing done yet; `latency` says whether operations are timed, which
    /// costs two readings of the clock for each.
    pub(crate) fn new(latency: bool) -> Result<Tally> {
        let latency = match latency {
            true => Some(Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS)?),
            false => None,
        };
        Ok(Tally {
            operations: 0,
            latency,
        })
    }

    /// Does `work`, which counts as `operations`.
    #[inline]
    pub(crate) fn step(
        &mut self,
        operations: u64,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match &mut self.latency {
            None => work()?,
            Some(histogram) => {
                let start = Instant::now();
                work()?;
                let nanoseconds = start.elapsed().as_nanos().min(u128::from(LATENCY_NS_MAX));
                histogram.saturating_record(nanoseconds as u64);
            }
        }
        self.operations += operations;
        Ok(())
    }

    fn merge(&mut self, other: &Tally) -> Result<()> {
        self.operations += other.operations;
        if let (Some(all), Some(more)) = (&mut self.latency, &other.latency) {
            all.add(more)?;
        }
        Ok(())
    }
}

/// What all threads have done together.
pub(crate) struct Timing {
    /// Operations of all threads.
    pub operations: u64,
    /// From the common start to the end of the last thread.
    pub seconds: f64,
    /// Processor time of the whole process in that time.
    pub cpu_seconds: f64,
    /// The median and the 99th percentile of an operation in nanoseconds, if
    /// operations were timed.
    pub latency_ns: Option<[u64; 2]>,
}

/// Runs `work` with the numbers `0..threads`, each on a thread of its own, all
/// starting together.
pub(crate) fn run_threads(
    threads: u32,
    work: impl Fn(u32) -> Result<Tally> + Sync,
) -> Result<Timing> {
    let barrier = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|number| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(number)
                })
            })
            .collect();
        let cpu = cpu_seconds();
        let start = Instant::now();
        barrier.wait();
        let mut all: Option<Tally> = None;
        let mut failed = None;
        for handle in handles {
            match handle.join() {
                Ok(Ok(tally)) => match &mut all {
                    Some(all) => all.merge(&tally)?,
                    None => all = Some(tally),
                },
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some("a thread of the driver panicked".into()),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        if let Some(error) = failed {
            return Err(error);
        }
        let all = all.ok_or("no thread was asked for")?;
        Ok(Timing {
            operations: all.operations,
            seconds,
            cpu_seconds: cpu_seconds() - cpu,
            latency_ns: all
                .latency
                .map(|histogram| [0.5, 0.99].map(|share| histogram.value_at_quantile(share))),
        })
    })
}

/// The part of `0..count` that falls to `number` of `threads`.
pub(crate) fn share(count: u64, number: u32, threads: u32) -> std::ops::Range<u64> {
    let cut = |number: u32| count * u64::from(number) / u64::from(threads);
    cut(number)..cut(number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for threads in 1..5 {
            let covered: Vec<u64> = (0..threads).flat_map(|t| share(11, t, threads)).collect();
            assert_eq!(covered, (0..11).collect::<Vec<_>>());
        }
    }

    #[test]
    fn operations_of_all_threads_are_counted_and_timed() {
        let timing = run_threads(3, |_| {
            let mut tally = Tally::new(true)?;
            tally.step(5, || Ok(()))?;
            Ok(tally)
        })
        .unwrap();
        assert_eq!(timing.operations, 15);
        assert!(timing.latency_ns.is_some());
    }

    #[test]
    fn an_error_of_one_thread_fails_the_run() {
        let run = run_threads(2, |number| match number {
            0 => Tally::new(false),
            _ => Err("no".into()),
        });
        assert!(run.is_err());
    }
}
