//! Tells that something happens more often, or more rarely, than it did before, and since
//! when: Page's cumulative sums (*Continuous inspection schemes*, Biometrika 41, 1954).
//!
//! Of events that come by chance, so many expected of so long and so many seen, the
//! logarithm of how much likelier that is at twice the rate than at the old one is
//! `seen * ln 2 - expected`, and at half the rate `expected / 2 - seen * ln 2`. Each is summed
//! up from where it was last below 0; a sum above [`ENOUGH`] says that the rate has changed,
//! most likely when the sum began.
//!
//! Reads do not come by chance alone. A scan, or a backup, reads a table a hundred times in
//! a second and never again; so no epoch adds more than [`EPOCH_MAX`] to a sum.

use std::f64::consts::LN_2;

/// Evidence that is enough: a rate that has not changed gives as much once in some twenty
/// thousand such sums (e to this).
const ENOUGH: f64 = 10.0;

/// Of the evidence, what one epoch may give at most. So it takes five.
const EPOCH_MAX: f64 = 2.5;

/// What was seen of one thing since its rate changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Since {
    /// How often it was.
    pub(super) seen: f64,
    /// How often all things were.
    pub(super) all: f64,
    /// How long that was.
    pub(super) epochs: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    evidence: f64,
    since: Since,
}

impl Sum {
    fn add(&mut self, evidence: f64, now: &Since) -> Option<Since> {
        self.evidence += evidence.min(EPOCH_MAX * now.epochs);
        if self.evidence <= 0.0 {
            *self = Sum::default();
            return None;
        }
        self.since.seen += now.seen;
        self.since.all += now.all;
        self.since.epochs += now.epochs;
        (self.evidence > ENOUGH).then_some(self.since)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shift {
    more: Sum,
    less: Sum,
}

impl Shift {
    /// What was seen since the rate changed, if it has. Then all begins anew.
    pub(super) fn observe(&mut self, expected: f64, now: &Since) -> Option<Since> {
        let more = self.more.add(now.seen * LN_2 - expected, now);
        let less = self.less.add(expected / 2.0 - now.seen * LN_2, now);
        let since = more.or(less)?;
        *self = Shift::default();
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed stream of numbers below 1.
    struct Dice(u64);

    impl Dice {
        fn below_1(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Knuth's way to a number by Poisson's law.
        fn poisson(&mut self, mean: f64) -> f64 {
            let (mut product, mut seen) = (self.below_1(), 0.0);
            while product > (-mean).exp() {
                product *= self.below_1();
                seen += 1.0;
            }
            seen
        }
    }

    /// The epochs until a rate is said to have changed, and the rate that it then has.
    fn until(dice: &mut Dice, expected: f64, rate: f64, epochs_max: u64) -> Option<(u64, f64)> {
        let mut shift = Shift::default();
        (1..=epochs_max).find_map(|epoch| {
            let now = Since {
                seen: dice.poisson(rate),
                all: 100.0,
                epochs: 1.0,
            };
            let since = shift.observe(expected, &now)?;
            Some((epoch, since.seen / since.epochs))
        })
    }

    #[test]
    fn a_rate_that_stays_is_not_said_to_have_changed() {
        let mut dice = Dice(1);
        for rate in [0.01, 0.1, 1.0, 10.0, 100.0] {
            let said = (0..20).filter_map(|_| until(&mut dice, rate, rate, 1000));
            assert_eq!(said.collect::<Vec<_>>(), [], "at {rate}");
        }
    }

    #[test]
    fn a_tenth_more_or_less_is_no_change() {
        let mut dice = Dice(2);
        for rate in [0.9, 1.1] {
            assert_eq!(until(&mut dice, 10.0, 10.0 * rate, 1000), None, "at {rate}");
        }
    }

    #[test]
    fn a_change_is_found_the_sooner_the_more_is_seen_and_with_its_rate() {
        let mut dice = Dice(3);
        for (before, after, within) in [
            (100.0, 0.0, 5),
            (0.0, 100.0, 5),
            (1.0, 10.0, 10),
            (10.0, 1.0, 10),
            (1.0, 0.1, 60),
            (0.1, 1.0, 60),
            (0.0, 0.1, 400),
        ] {
            let (epochs, rate) = until(&mut dice, before, after, 10_000).unwrap();
            assert!(
                (5..=within).contains(&epochs),
                "{before}, {after}: {epochs}"
            );
            assert!((rate - after).abs() < 0.6 * after + 0.1, "{after}: {rate}");
        }
    }

    #[test]
    fn what_happens_once_is_no_change() {
        let mut shift = Shift::default();
        let now = |seen: f64| Since {
            seen,
            all: seen,
            epochs: 1.0,
        };
        assert_eq!(shift.observe(1.0, &now(1e6)), None);
        for _ in 0..1000 {
            assert_eq!(shift.observe(1.0, &now(1.0)), None);
        }
    }
}
