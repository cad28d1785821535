//! How fast something comes, such as bytes that flushes write in a second, and how much of what is
//! written to the store they write, both smoothed.

/// How long the rate remembers: some flushes where there are many. After a load it is still taken
/// to go on for about as long, and what is kept free for it serves no reads.
const MEMORY_S: f64 = 10.0;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    per_s: f64,
    /// When it was last asked for, and what had come by then.
    last: Option<(u64, u64)>,
}

impl Rate {
    /// The rate at `now_us`, if so much has come since the store was opened. A
    /// clock that was set back begins anew.
    pub(super) fn per_second(&mut self, now_us: u64, total: u64) -> f64 {
        let (last_us, last) = self.last.unwrap_or((now_us, total));
        self.last = Some((now_us, total));
        let passed_s = now_us.saturating_sub(last_us) as f64 / 1e6;
        let kept = (-passed_s / MEMORY_S).exp();
        // In no time at all: as if it were spread over what is remembered.
        let came = total.saturating_sub(last) as f64;
        let taken = match passed_s > 0.0 {
            true => (1.0 - kept) / passed_s,
            false => 1.0 / MEMORY_S,
        };
        self.per_s = self.per_s * kept + came * taken;
        self.per_s
    }
}

/// What the latest flush leaves of the weight of those before it: some ten count.
const KEPT: f64 = 0.9;

/// The least share that is believed.
const SHARE_MIN: f64 = 1.0 / 16.0;

/// Of the bytes that are written to a store, the share that flushes write: what is overwritten
/// while it is in memory never leaves it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlushedShare {
    left: f64,
    flushed: f64,
    /// What had left memory and been flushed at the last flush.
    last: (u64, u64),
}

impl FlushedShare {
    /// A flush has ended. Since the store was opened `left_bytes` were written that memtables do
    /// not hold any more, and `flushed_bytes` flushed. What they hold is a little more than what
    /// was written of it, so that fewer bytes may have left than had before: then none has.
    pub(super) fn note(&mut self, left_bytes: u64, flushed_bytes: u64) {
        let left_bytes = left_bytes.max(self.last.0);
        let (left, flushed) = std::mem::replace(&mut self.last, (left_bytes, flushed_bytes));
        self.left = self.left * KEPT + left_bytes.saturating_sub(left) as f64;
        self.flushed = self.flushed * KEPT + flushed_bytes.saturating_sub(flushed) as f64;
    }

    /// The share, to 1: all before anything is known.
    pub(super) fn share(&self) -> f64 {
        match self.left > 0.0 {
            true => (self.flushed / self.left).clamp(SHARE_MIN, 1.0),
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overwritten_in_memory_is_not_flushed() {
        let mut share = FlushedShare::default();
        assert_eq!(share.share(), 1.0);
        // A recovery's flush, of what nobody has written since.
        share.note(0, 1 << 20);
        assert_eq!(share.share(), 1.0);
        for n in 1..=100 {
            share.note(n * 3000, (1 << 20) + n * 1000);
        }
        assert!((share.share() - 1.0 / 3.0).abs() < 0.02, "{share:?}");
        for n in 1..=100 {
            share.note((100 + n) * 3000, (1 << 20) + 100_000 + n * 3300);
        }
        assert!(share.share() > 0.99, "{share:?}");
    }

    /// Memtables hold three bytes for one that was written, and all is flushed now and then: what
    /// filled memory anew counted as what had left it.
    #[test]
    fn what_memory_adds_to_entries_is_not_overwritten() {
        let mut share = FlushedShare::default();
        let (mut written, mut flushed) = (0u64, 0u64);
        for _ in 0..100 {
            written += 100 << 20;
            flushed += 10 << 20;
            share.note(written.saturating_sub(3 * (90 << 20)), flushed);
            flushed += 90 << 20;
            share.note(written, flushed);
            assert!(share.share() > 0.9, "{share:?}");
        }
    }

    #[test]
    fn a_steady_rate_is_found_however_often_it_is_asked_for() {
        for step_us in [10_000, 500_000, 7_000_000] {
            let mut rate = Rate::default();
            let mut last = rate.per_second(0, 0);
            for at in 1..=200_000_000 / step_us {
                last = rate.per_second(at * step_us, at * step_us * 5);
            }
            assert!((last - 5e6).abs() < 0.01 * 5e6, "{last} by {step_us} us");
        }
    }

    #[test]
    fn what_came_long_ago_is_forgotten_and_a_clock_set_back_does_no_harm() {
        let mut rate = Rate::default();
        rate.per_second(1 << 40, 0);
        let now = rate.per_second(1 << 40, 300 << 20);
        assert_eq!(now, f64::from(30 << 20));
        assert_eq!(rate.per_second(5, 300 << 20), now);
        assert!(rate.per_second(300_000_000, 300 << 20) < 1e3);
    }
}
