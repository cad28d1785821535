//! Which record an operation is about.
//!
//! Records are numbered from 0. A [`Choice`] names a distribution, a
//! [`Chooser`] draws from it, [`weights`] gives the probability of every record,
//! which is what the limits are computed from and what the choosers are tested
//! against. YCSB's generators are those of YCSB 0.17, constants included, so
//! that results compare with published ones.
//!
//! Whether frequent records lie side by side in the store is decided by the
//! text of their keys ([`text`]), not here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;

mod hotspot;
mod scrambled;
mod shifting;
pub(crate) mod text;
pub(crate) mod weights;
mod zipf;
mod zipfian;

use hotspot::Hotspot;
use scrambled::Scrambled;
use shifting::Shifting;
use zipf::Zipf;
use zipfian::Zipfian;

/// YCSB's skew: each record comes up in proportion to 1 / rank^0.99.
pub(crate) const YCSB_THETA: f64 = 0.99;

/// The largest exponent that is taken: beyond it one record is all.
const EXPONENT_MAX: f64 = 10.0;

/// A distribution over the records.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Choice {
    /// YCSB's `zipfian`: ranks of 10^10 items at skew 0.99, hashed to records.
    Scrambled,
    /// YCSB's Zipfian generator over the records, not hashed: record 0 is the
    /// most frequent.
    Zipfian,
    /// YCSB's `latest`: record n - 1 is the most frequent.
    Latest,
    /// Every record alike.
    Uniform,
    /// A share of the operations goes to a share of the records, uniform inside
    /// and outside. The hot records are the first ones.
    Hotspot {
        /// Share of the operations, above 0 and below 1.
        operations: f64,
        /// Share of the records, above 0 and below 1.
        records: f64,
    },
    /// Zipf's law over the records: record r in proportion to
    /// 1 / (r + 1)^exponent. Exact for every exponent above 0.
    Zipf {
        /// The exponent.
        exponent: f64,
    },
    /// Zipf's law whose ranks move to other records again and again.
    Shifting {
        /// The exponent.
        exponent: f64,
        /// Seconds between two moves, above 0.
        every_seconds: f64,
    },
}

impl FromStr for Choice {
    type Err = String;

    /// Reads `scrambled`, `zipfian`, `latest`, `uniform`, `hotspot=80/20`,
    /// `zipf=0.9`, `shift=30` or `shift=30/0.9`.
    fn from_str(text: &str) -> Result<Choice, String> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let number = |text: &str, most: f64| match text.parse::<f64>() {
            Ok(number) if number > 0.0 && number <= most => Ok(number),
            _ => Err(format!(
                "{text:?} is not a number above 0 and at most {most}"
            )),
        };
        let share = |text: &str| match number(text, 100.0)? {
            percent if percent < 100.0 => Ok(percent / 100.0),
            _ => Err("a share of 100 % leaves nothing to choose".to_string()),
        };
        match (name, rest) {
            ("scrambled", None) => Ok(Choice::Scrambled),
            ("zipfian", None) => Ok(Choice::Zipfian),
            ("latest", None) => Ok(Choice::Latest),
            ("uniform", None) => Ok(Choice::Uniform),
            ("zipf", Some(exponent)) => Ok(Choice::Zipf {
                exponent: number(exponent, EXPONENT_MAX)?,
            }),
            ("hotspot", Some(shares)) => {
                let (operations, records) = shares
                    .split_once('/')
                    .ok_or("hotspot needs two shares in percent: hotspot=80/20")?;
                Ok(Choice::Hotspot {
                    operations: share(operations)?,
                    records: share(records)?,
                })
            }
            ("shift", Some(rest)) => {
                let (seconds, exponent) = rest.split_once('/').unwrap_or((rest, "0.99"));
                Ok(Choice::Shifting {
                    exponent: number(exponent, EXPONENT_MAX)?,
                    every_seconds: number(seconds, 1e9)?,
                })
            }
            _ => Err(format!(
                "{text:?} is no distribution; there are scrambled, zipfian, latest, uniform, \
                 zipf=EXPONENT, hotspot=OPERATIONS/RECORDS in percent, shift=SECONDS[/EXPONENT]"
            )),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Scrambled => f.write_str("scrambled"),
            Choice::Zipfian => f.write_str("zipfian"),
            Choice::Latest => f.write_str("latest"),
            Choice::Uniform => f.write_str("uniform"),
            Choice::Hotspot {
                operations,
                records,
            } => write!(f, "hotspot={}/{}", operations * 100.0, records * 100.0),
            Choice::Zipf { exponent } => write!(f, "zipf={exponent}"),
            Choice::Shifting {
                exponent,
                every_seconds,
            } => write!(f, "shift={every_seconds}/{exponent}"),
        }
    }
}

/// What a draw depends on besides dice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Records that can be read now, at least 1. It never falls.
    pub records: u64,
    /// Seconds since the run began.
    pub seconds: f64,
}

/// Draws records. Each client has its own: a draw changes it.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Scrambled(Scrambled),
    Zipfian(Zipfian),
    Latest(Zipfian),
    Uniform(u64),
    Hotspot(Hotspot),
    Zipf(Zipf),
    Shifting(Shifting),
}

impl Chooser {
    /// Draws by `choice` from `records` records, at least 1.
    pub(crate) fn new(choice: Choice, records: u64) -> Chooser {
        match choice {
            Choice::Scrambled => Chooser::Scrambled(Scrambled::new(records)),
            Choice::Zipfian => Chooser::Zipfian(Zipfian::new(records, YCSB_THETA)),
            Choice::Latest => Chooser::Latest(Zipfian::new(records, YCSB_THETA)),
            Choice::Uniform => Chooser::Uniform(records),
            Choice::Hotspot {
                operations,
                records: share,
            } => Chooser::Hotspot(Hotspot::new(records, operations, share)),
            Choice::Zipf { exponent } => Chooser::Zipf(Zipf::new(records, exponent)),
            Choice::Shifting {
                exponent,
                every_seconds,
            } => Chooser::Shifting(Shifting::new(records, exponent, every_seconds)),
        }
    }

    /// The next record. `latest` follows the records that are inserted; the
    /// others stay with those of the beginning. (YCSB's own scrambled generator
    /// spans the inserts that it expects of a fixed number of operations; a run
    /// of fixed time expects none.)
    #[inline]
    pub(crate) fn draw(&mut self, dice: &mut Dice, moment: Moment) -> u64 {
        match self {
            Chooser::Scrambled(scrambled) => scrambled.draw(dice),
            Chooser::Zipfian(zipfian) => zipfian.draw(dice),
            Chooser::Latest(zipfian) => {
                zipfian.grow(moment.records);
                moment.records - 1 - zipfian.draw(dice).min(moment.records - 1)
            }
            Chooser::Uniform(records) => dice.below(*records),
            Chooser::Hotspot(hotspot) => hotspot.draw(dice),
            Chooser::Zipf(zipf) => zipf.draw(dice),
            Chooser::Shifting(shifting) => shifting.draw(dice, moment.seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::weights::weights;
    use super::*;

    /// The statistic of Pearson's test over bins of at least `LEAST` expected
    /// draws, in standard deviations above its mean.
    fn misfit(expected: &[f64], seen: &[u64], draws: u64) -> f64 {
        const LEAST: f64 = 20.0;
        let (mut statistic, mut bins) = (0.0, 0.0);
        let (mut wanted, mut found) = (0.0, 0.0);
        for (weight, &count) in expected.iter().zip(seen) {
            wanted += weight * draws as f64;
            found += count as f64;
            if wanted >= LEAST {
                statistic += (found - wanted).powi(2) / wanted;
                bins += 1.0;
                (wanted, found) = (0.0, 0.0);
            }
        }
        // A sum of b - 1 squares has the mean b - 1 and the variance 2 (b - 1).
        let freedom: f64 = bins - 1.0;
        (statistic - freedom) / (2.0 * freedom).sqrt()
    }

    fn draw_many(choice: Choice, records: u64, draws: u64, seed: u64) -> Vec<u64> {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let mut chooser = Chooser::new(choice, records);
        let moment = Moment {
            records,
            seconds: 0.0,
        };
        let mut seen = vec![0; records as usize];
        for _ in 0..draws {
            seen[chooser.draw(&mut dice, moment) as usize] += 1;
        }
        seen
    }

    const ALL: [&str; 12] = [
        "scrambled",
        "zipfian",
        "latest",
        "uniform",
        "hotspot=80/20",
        "hotspot=99/0.5",
        "zipf=0.3",
        "zipf=0.9",
        "zipf=1",
        "zipf=1.2",
        "zipf=3",
        "shift=30/0.9",
    ];

    #[test]
    fn every_chooser_draws_what_its_weights_say() {
        for text in ALL {
            let choice: Choice = text.parse().unwrap();
            for records in [1, 2, 3, 1000] {
                let weights = weights(choice, records);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{text}");
                if records < 1000 {
                    // Only that no draw is out of range.
                    draw_many(choice, records, 1000, 3);
                    continue;
                }
                let draws = 400_000;
                let misfit = misfit(&weights, &draw_many(choice, records, draws, 4), draws);
                assert!(misfit < 4.0, "{text}: {misfit:.1} deviations");
            }
        }
    }

    #[test]
    fn the_test_of_fit_rejects_a_slightly_different_skew() {
        let weights = weights(Choice::Zipf { exponent: 0.9 }, 1000);
        let seen = draw_many(Choice::Zipf { exponent: 0.92 }, 1000, 400_000, 5);
        assert!(misfit(&weights, &seen, 400_000) > 10.0);
    }

    #[test]
    fn choices_are_read_as_they_are_written() {
        for text in ALL {
            let choice: Choice = text.parse().unwrap();
            assert_eq!(choice.to_string().parse(), Ok(choice), "{text}");
        }
        for text in [
            "",
            "zipf",
            "zipf=0",
            "zipf=-1",
            "zipf=nan",
            "zipf=11",
            "hotspot=80",
            "hotspot=100/20",
            "hotspot=0/20",
            "shift=0",
            "uniform=3",
            "latest/2",
        ] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }

    #[test]
    fn latest_follows_the_newest_record() {
        let mut dice = Dice::new(9);
        let mut chooser = Chooser::new(Choice::Latest, 10);
        let mut newest = 0;
        for records in 10..5000 {
            let moment = Moment {
                records,
                seconds: 0.0,
            };
            let record = chooser.draw(&mut dice, moment);
            assert!(record < records);
            newest += u64::from(record == records - 1);
        }
        // The newest has the share 1 / zeta(n): about a ninth here.
        assert!((400..800).contains(&newest), "{newest}");
    }
}
