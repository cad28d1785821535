//! Tells that something happens at least twice as often as it did before, or half as often at
//! most, and since when: Page's cumulative sums (*Continuous inspection schemes*, Biometrika
//! 41, 1954).
//!
//! Of events that come by chance, so many expected of so long and so many seen, the
//! logarithm of how much likelier that is at twice the rate than at the old one is
//! `seen * ln 2 - expected`, and at half the rate `expected / 2 - seen * ln 2`. Each is summed
//! up from where it was last below 0. A sum of [`ENOUGH`] says that the rate has changed,
//! most likely when the sum began; and if since then it was twice the old rate or half of it,
//! that is told.
//!
//! Reads do not come by chance alone. A scan, or a backup, reads a table a hundred times in
//! a second and never again; so no look adds more than [`LOOK_MAX`] to a sum. And it reads other
//! tables not at all; so what happens as often as before, while all else happens more often, has
//! not become rarer.
//!
//! What changes again and again is better known by its mean. So each change doubles the
//! evidence that is asked for the next, for a while.

use std::f64::consts::LN_2;

/// Evidence that is enough: a rate that has not changed gives as much at one in some twenty
/// thousand beginnings of a sum (e to this).
const ENOUGH: f64 = 10.0;

/// Of the evidence, what one look may give at most. So it takes four.
const LOOK_MAX: f64 = 2.5;

/// Epochs in which the evidence that is asked comes down by half.
const EPOCHS_TO_HALVE: f64 = 100.0;

/// The most that is asked.
const ENOUGH_MAX: f64 = 100.0 * ENOUGH;

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

/// How often something would be seen if nothing had changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Expected {
    /// By its share of all.
    pub(super) by_share: f64,
    /// By its rate.
    pub(super) by_rate: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    evidence: f64,
    expected: f64,
    since: Since,
}

impl Sum {
    fn add(&mut self, evidence: f64, expected: f64, now: &Since) {
        self.evidence += evidence.min(LOOK_MAX);
        if self.evidence <= 0.0 {
            *self = Sum::default();
            return;
        }
        self.expected += expected;
        self.since.seen += now.seen;
        self.since.all += now.all;
        self.since.epochs += now.epochs;
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shift {
    more: Sum,
    less: Sum,
    /// Evidence that is asked beyond [`ENOUGH`].
    asked: f64,
}

impl Shift {
    /// What takes the place of several has changed as often as any of them.
    pub(super) fn succeed(&mut self, other: &Shift) {
        self.asked = self.asked.max(other.asked);
    }

    /// What was seen since the rate changed, if it has. Then all begins anew.
    pub(super) fn observe(&mut self, expected: Expected, now: &Since) -> Option<Since> {
        let seen = now.seen * LN_2;
        let rarer = expected.by_share.min(expected.by_rate);
        self.more
            .add(seen - expected.by_share, expected.by_share, now);
        self.less.add(rarer / 2.0 - seen, rarer, now);
        self.asked *= (-now.epochs / EPOCHS_TO_HALVE).exp2();
        let enough = ENOUGH + self.asked;
        let is_more = |sum: &Sum| sum.since.seen >= 2.0 * sum.expected;
        let is_less = |sum: &Sum| sum.since.seen <= sum.expected / 2.0;
        let told = match (&self.more, &self.less) {
            (more, _) if more.evidence >= enough && is_more(more) => more.since,
            (_, less) if less.evidence >= enough && is_less(less) => less.since,
            _ => {
                // A change, but a smaller one: it must not hide what comes next.
                for sum in [&mut self.more, &mut self.less] {
                    if sum.evidence >= enough {
                        *sum = Sum::default();
                    }
                }
                return None;
            }
        };
        *self = Shift {
            asked: (2.0 * enough).min(ENOUGH_MAX) - ENOUGH,
            ..Shift::default()
        };
        Some(told)
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

    fn alike(expected: f64) -> Expected {
        Expected {
            by_share: expected,
            by_rate: expected,
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
            let since = shift.observe(alike(expected), &now)?;
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
    fn less_than_twice_and_more_than_half_is_no_change() {
        let mut dice = Dice(2);
        for rate in [0.6, 0.8, 1.2, 1.7] {
            assert_eq!(
                until(&mut dice, 100.0, 100.0 * rate, 1000),
                None,
                "at {rate}"
            );
        }
    }

    #[test]
    fn a_change_is_found_the_sooner_the_more_is_seen_and_with_its_rate() {
        let mut dice = Dice(3);
        for (before, after, within) in [
            (100.0, 0.0, 4),
            (100.0, 45.0, 12),
            (0.0, 100.0, 4),
            (100.0, 220.0, 12),
            (1.0, 10.0, 10),
            (10.0, 1.0, 10),
            (1.0, 0.1, 60),
            (0.1, 1.0, 60),
            (0.0, 0.1, 400),
        ] {
            let (epochs, rate) = until(&mut dice, before, after, 10_000).unwrap();
            assert!(
                (4..=within).contains(&epochs),
                "{before}, {after}: {epochs}"
            );
            assert!((rate - after).abs() < 0.6 * after + 0.1, "{after}: {rate}");
        }
    }

    #[test]
    fn what_happens_once_is_no_change() {
        let now = |seen: f64, epochs: f64| Since {
            seen,
            all: seen,
            epochs,
        };
        for epochs in [1.0, 60.0] {
            let mut shift = Shift::default();
            assert_eq!(shift.observe(alike(1.0), &now(1e6, epochs)), None);
            for _ in 0..1000 {
                assert_eq!(shift.observe(alike(1.0), &now(1.0, 1.0)), None);
            }
        }
    }

    #[test]
    fn what_is_read_as_before_while_others_are_scanned_has_not_become_rarer() {
        let mut shift = Shift::default();
        for _ in 0..100 {
            let expected = Expected {
                by_share: 5000.0,
                by_rate: 50.0,
            };
            let now = Since {
                seen: 50.0,
                all: 10_000.0,
                epochs: 1.0,
            };
            assert_eq!(shift.observe(expected, &now), None);
        }
    }

    #[test]
    fn a_smaller_change_does_not_hide_a_larger_one() {
        let mut shift = Shift::default();
        let now = |seen: f64| Since {
            seen,
            all: 100.0,
            epochs: 1.0,
        };
        for _ in 0..300 {
            assert_eq!(shift.observe(alike(10.0), &now(16.0)), None);
        }
        let found = (1..).find_map(|look| Some((look, shift.observe(alike(10.0), &now(50.0))?)));
        let (looks, since) = found.unwrap();
        assert!(
            looks < 10 && since.seen / since.epochs > 25.0,
            "{looks}: {since:?}"
        );
    }

    /// Two hot sets in turn, forty seconds each: moving them to and fro would serve neither.
    #[test]
    fn what_changes_again_and_again_is_told_ever_more_rarely() {
        let mut shift = Shift::default();
        let (mut told, mut rate) = (Vec::new(), 1.0);
        for epoch in 0..4000_u64 {
            let seen = [1.0, 100.0][(epoch / 40 % 2) as usize];
            let now = Since {
                seen,
                all: 101.0,
                epochs: 1.0,
            };
            if let Some(since) = shift.observe(alike(rate), &now) {
                rate = since.seen / since.epochs;
                told.push(epoch);
            }
        }
        let in_the_first = told.iter().filter(|&&epoch| epoch < 400).count();
        assert!((4..10).contains(&in_the_first), "{told:?}");
        assert!(told.len() < 40, "{} of 100 changes", told.len());
    }
}
