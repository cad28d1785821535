//! What flushes wait for the log: how much of the time that they take is spent on making it durable
//! for what stays in memory.

/// In so long half of it is forgotten, in seconds. Where parts are flushed together nothing is
/// noted, so that after a minute or two they are flushed one by one again, a few times, to see
/// whether they still wait.
const HALF_S: f64 = 30.0;
/// Flushes that took less say nothing, in microseconds: it is what some five of them take a disk.
const TOOK_US_MIN: f64 = 250_000.0;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogWaits {
    took_us: f64,
    waited_us: f64,
    /// When that was noted.
    at_us: u64,
}

impl LogWaits {
    /// A flush of what is not all that is older has ended. It took so long, and waited for the log
    /// for so much of that.
    pub(crate) fn note(&mut self, now_us: u64, took_us: u64, waited_us: u64) {
        let kept = self.kept(now_us);
        self.took_us = self.took_us * kept + took_us as f64;
        self.waited_us = self.waited_us * kept + waited_us.min(took_us) as f64;
        self.at_us = now_us;
    }

    /// The share of their time in which they waited, from 0 to 1, if enough of it is remembered.
    pub(super) fn share(&self, now_us: u64) -> Option<f64> {
        let is_known = self.took_us * self.kept(now_us) >= TOOK_US_MIN;
        is_known.then(|| self.waited_us / self.took_us)
    }

    /// How much is remembered of what was noted last. A clock that was set back forgets nothing.
    fn kept(&self, now_us: u64) -> f64 {
        let passed_s = now_us.saturating_sub(self.at_us) as f64 / 1e6;
        0.5f64.powf(passed_s / HALF_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_last_minutes_and_forgotten_after_them() {
        let mut waits = LogWaits::default();
        assert_eq!(waits.share(5), None);
        waits.note(1_000_000, 200_000, 100_000);
        assert_eq!(waits.share(1_000_000), None);
        waits.note(1_000_000, 200_000, 100_000);
        assert_eq!(waits.share(1_000_000), Some(0.5));
        // Of 400 ms half is less than is believed.
        assert_eq!(waits.share(16_000_000), Some(0.5));
        assert_eq!(waits.share(31_000_000), None);
        // What comes then weighs more than what was.
        waits.note(31_000_000, 200_000, 0);
        assert_eq!(waits.share(31_000_000), Some(0.25));
        // The clock was set back, and a wait is never longer than the flush.
        waits.note(0, 400_000, 1 << 40);
        assert_eq!(waits.share(0), Some(0.625));
    }
}
