//! Files, time and chance, handed in and never ambient, so that a run of the
//! engine is a function of its inputs.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::{FileSystem, RealFileSystem};

/// Time.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since the Unix epoch. Never runs backwards within one
    /// process.
    fn now_micros(&self) -> u64;
    /// Waits for `duration`.
    fn sleep(&self, duration: Duration);
    /// Microseconds that the calling thread has run, or waited for a processor, since it began:
    /// what is not in it was spent waiting for devices and for other threads. 0, always, where
    /// that is not known.
    fn running_micros(&self) -> u64 {
        0
    }
    /// Asks that the calling thread gets a processor soon whenever it has something to do, for a
    /// short turn each time; in all it gets no more than without. Does nothing where there is no
    /// such thing.
    fn take_short_turns(&self) {}
    /// Lets threads that wait for a processor have that of the calling one first, if there are any.
    /// Does nothing where there is no such thing.
    fn give_way(&self) {}
}

/// Chance. Good for spreading things, not for secrets.
pub trait Dice: Send + Sync + Debug {
    /// A number, each as likely as any other.
    fn next_u64(&self) -> u64;
}

/// Everything the engine needs from outside.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Files and directories.
    pub file_system: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub dice: Arc<dyn Dice>,
}

impl Environment {
    /// The machine this process runs on.
    #[must_use]
    pub fn real() -> Environment {
        Environment {
            file_system: Arc::new(RealFileSystem),
            clock: Arc::new(RealClock::new()),
            dice: Arc::new(RealDice::new()),
        }
    }
}

/// Wall time taken once, then the monotonic clock: a wall clock set back while
/// the store is open must not turn ages negative.
#[derive(Debug)]
struct RealClock {
    epoch_micros: u64,
    start: Instant,
}

impl RealClock {
    fn new() -> RealClock {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        RealClock {
            epoch_micros: since_epoch.as_micros() as u64,
            start: Instant::now(),
        }
    }
}

impl Clock for RealClock {
    fn now_micros(&self) -> u64 {
        self.epoch_micros + self.start.elapsed().as_micros() as u64
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Linux: the first two numbers of `/proc/thread-self/schedstat`, nanoseconds on a processor
    /// and in its queue.
    fn running_micros(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds = text
            .split_whitespace()
            .take(2)
            .filter_map(|n| n.parse().ok());
        nanoseconds.fold(0, u64::saturating_add) / 1000
    }

    /// Linux from 6.12 on: the slice of a thread, which its deadline goes by (`sched_setattr(2)`,
    /// `sched_runtime` of a policy without real time).
    fn take_short_turns(&self) {
        #[cfg(target_os = "linux")]
        super::turns::shorten();
    }

    fn give_way(&self) {
        std::thread::yield_now();
    }
}

/// Time that passes only by sleeping.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Sleeper(pub(crate) AtomicU64);

#[cfg(test)]
impl Clock for Sleeper {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.0
            .fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }
}

/// SplitMix64 over a counter, begun from the operating system's randomness
/// (which is where the standard library seeds `RandomState`).
#[derive(Debug)]
struct RealDice {
    state: AtomicU64,
}

impl RealDice {
    fn new() -> RealDice {
        RealDice {
            state: AtomicU64::new(RandomState::new().hash_one(std::process::id())),
        }
    }
}

impl Dice for RealDice {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_clock_does_not_run_backwards() {
        let environment = Environment::real();
        let before = environment.clock.now_micros();
        environment.clock.sleep(Duration::from_millis(2));
        assert!(environment.clock.now_micros() >= before + 2000);
    }

    #[test]
    fn dice_of_two_environments_differ() {
        let (a, b) = (Environment::real(), Environment::real());
        assert_ne!(a.dice.next_u64(), b.dice.next_u64());
        assert_ne!(a.dice.next_u64(), a.dice.next_u64());
    }
}
