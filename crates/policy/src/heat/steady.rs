//! A clock that never goes back, and never leaps.
//!
//! What is counted is judged by the time in which it was. Where the machine's clock is set, the
//! time that it shows to have passed did not pass: by it tables that are older than others would
//! seem to have been counted for next to nothing, or those that are younger for years.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steady {
    /// What the machine's clock and this one showed last; `None` before the first look.
    last_us: Option<(u64, u64)>,
}

impl Steady {
    /// What it shows when the machine's shows `now_us`, no more than `leap_us` later than at the
    /// look before. It begins with the machine's.
    pub(crate) fn show(&mut self, now_us: u64, leap_us: u64) -> u64 {
        let shown_us = match self.last_us {
            None => now_us,
            Some((last_us, shown_us)) => {
                let passed_us = now_us.saturating_sub(last_us).min(leap_us);
                shown_us.saturating_add(passed_us)
            }
        };
        self.last_us = Some((now_us, shown_us));
        shown_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_by_what_has_passed_and_by_no_leap() {
        let mut clock = Steady::default();
        let shown = [100, 105, 90, 95, 1_000_000, 1_000_001].map(|now| clock.show(now, 50));
        assert_eq!(shown, [100, 105, 105, 110, 160, 161]);
    }
}
