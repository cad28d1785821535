//! A limit on the bytes a second that background work may move.
//!
//! A token bucket that may go into debt: whoever finds it above zero takes all
//! it wants at once, and the next ones wait until the debt is paid. So a take
//! larger than the bucket needs no special case, and the mean rate is exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Clock;

/// Longest single sleep, so that a changed rate is noticed soon.
const SLEEP_MICROS_MAX: u64 = 50_000;

/// What may be saved up while idle: this share of a second.
const BURST_SECONDS: f64 = 0.1;

/// Bytes a second, shared by everything that holds it.
#[derive(Debug)]
pub struct IoBudget {
    clock: Arc<dyn Clock>,
    /// 0 means unlimited.
    bytes_per_second: AtomicU64,
    bucket: Mutex<Bucket>,
    taken_bytes: AtomicU64,
    waited_micros: AtomicU64,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes that may be taken; negative is debt.
    available: f64,
    filled_micros: u64,
}

impl IoBudget {
    /// A budget without a limit.
    #[must_use]
    pub fn unlimited(clock: Arc<dyn Clock>) -> IoBudget {
        let filled_micros = clock.now_micros();
        IoBudget {
            clock,
            bytes_per_second: AtomicU64::new(0),
            bucket: Mutex::new(Bucket {
                available: 0.0,
                filled_micros,
            }),
            taken_bytes: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
        }
    }

    /// Changes the limit, also for those who are waiting; `None` lifts it.
    pub fn set_bytes_per_second(&self, limit: Option<u64>) {
        // A limit of zero would be a stop, which is not what a budget is for.
        let rate = limit.map_or(0, |limit| limit.max(1));
        self.bytes_per_second.store(rate, Ordering::Relaxed);
    }

    /// The limit, if there is one.
    pub fn bytes_per_second(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::Relaxed)).filter(|&rate| rate != 0)
    }

    /// Takes `bytes`, after waiting for the debt of earlier takes.
    pub fn take(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        while let Some(rate) = self.bytes_per_second() {
            let sleep_micros = {
                let mut bucket = self.bucket.lock();
                let now = self.clock.now_micros();
                bucket.fill(rate as f64, now);
                if bucket.available >= 0.0 {
                    bucket.available -= bytes as f64;
                    return;
                }
                let micros = (-bucket.available / rate as f64 * 1e6).ceil();
                (micros as u64).clamp(1, SLEEP_MICROS_MAX)
            };
            self.clock.sleep(Duration::from_micros(sleep_micros));
            self.waited_micros
                .fetch_add(sleep_micros, Ordering::Relaxed);
        }
    }

    /// Bytes taken so far.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Microseconds spent waiting so far, over all takers.
    pub fn waited_micros(&self) -> u64 {
        self.waited_micros.load(Ordering::Relaxed)
    }
}

impl Bucket {
    fn fill(&mut self, rate: f64, now_micros: u64) {
        let elapsed_micros = now_micros.saturating_sub(self.filled_micros);
        self.filled_micros = now_micros;
        let filled = self.available + rate * (elapsed_micros as f64 / 1e6);
        self.available = filled.min(rate * BURST_SECONDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Sleeper;

    #[test]
    fn the_mean_rate_is_the_limit() {
        let clock = Arc::new(Sleeper::default());
        let budget = IoBudget::unlimited(clock.clone());
        budget.set_bytes_per_second(Some(1 << 20));
        for _ in 0..41 {
            budget.take(256 << 10);
        }
        // The last take's debt is not waited for: 40 quarters of a second.
        let seconds = clock.now_micros() as f64 / 1e6;
        assert!((9.9..10.1).contains(&seconds), "{seconds}");
        assert_eq!(budget.taken_bytes(), 41 * (256 << 10));
        assert_eq!(budget.waited_micros(), clock.now_micros());
    }

    #[test]
    fn without_a_limit_nothing_waits_and_everything_is_counted() {
        let clock = Arc::new(Sleeper::default());
        let budget = IoBudget::unlimited(clock.clone());
        budget.take(u64::from(u32::MAX));
        assert_eq!(clock.now_micros(), 0);
        assert_eq!(budget.taken_bytes(), u64::from(u32::MAX));
    }

    #[test]
    fn lifting_the_limit_frees_who_waits() {
        #[derive(Debug)]
        struct Lifter(Sleeper, Mutex<Option<std::sync::Weak<IoBudget>>>);
        impl Clock for Lifter {
            fn now_micros(&self) -> u64 {
                self.0.now_micros()
            }
            fn sleep(&self, duration: Duration) {
                self.0.sleep(duration);
                let budget = self.1.lock().clone().unwrap().upgrade().unwrap();
                budget.set_bytes_per_second(None);
            }
        }
        let clock = Arc::new(Lifter(Sleeper::default(), Mutex::new(None)));
        let budget = Arc::new(IoBudget::unlimited(clock.clone()));
        *clock.1.lock() = Some(Arc::downgrade(&budget));
        budget.set_bytes_per_second(Some(1));
        budget.take(1 << 30);
        budget.take(1);
        assert_eq!(clock.now_micros(), SLEEP_MICROS_MAX);
    }
}
