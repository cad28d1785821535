//! What a store of several tiers can do, from what its devices can do (LogStore,
//! section IV, equations 1 to 9).
//!
//! *Reads.* A tier that answers the share `R` of the reads, each of them by looking
//! into `probes` places at `TP` random reads a second, allows `TP / (probes R)` of
//! them (equation 2). The tier that allows least limits the store (equation 3).
//! Memory costs nothing. The shares are those of [`Access`] (equations 1, 4 to 6).
//!
//! *Writes.* A record is merged once into each level but the first; each time as
//! many bytes are read and written as `growth + 1` records have. A device that
//! transfers `W` bytes a second and has `n` such levels allows
//! `W / (2 (growth + 1) n bytes)` records (equation 7); again the least counts
//! (equation 8).
//!
//! *Both.* Operations follow one another: `1 / (r / reads + w / writes)` (equation 9).
//!
//! The paper has two tiers; here there may be any number, and one and two give the
//! paper's equations. What the model leaves out: the processor, waiting in line at
//! a device, several operations at once, reads that merges disturb. [`published`]
//! has the paper's own predictions and what the model makes of their inputs.

use std::fmt;

use thermocline_model::tier::{DeviceProfile, TIERS_MAX};

pub mod access;
pub mod published;

pub use access::{Access, Shares};

/// Levels and probes beyond which a number is a mistake.
const COUNT_MAX: u32 = 1000;

/// The largest skew. Beyond it one record has all accesses.
const SKEW_MAX: f64 = 10.0;

/// How far shares that must add up to 1 may miss it.
const SHARE_SLACK: f64 = 1e-6;

/// One tier as the model sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelTier {
    /// What its device can do. Rates above 0.
    pub profile: DeviceProfile,
    /// The share of the data that lies here, 0 to 1.
    pub data_share: f64,
    /// Levels that lie here. The first level of the first tier is written by
    /// flushes, which the model leaves out as the paper does.
    pub levels: u32,
    /// Places on this tier that a read looks into, each for one random read. The
    /// paper's equation has the number of levels, its predictions have 1, as filters make it.
    pub probes: u32,
}

/// A store and its use.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Its tiers, fast to cheap. Their data shares add up to 1.
    pub tiers: Vec<ModelTier>,
    /// The share of the data that has a copy in memory, 0 to 1.
    pub memory_share: f64,
    /// Records in the store, 1 or more.
    pub records: u64,
    /// Bytes of a record, 1 or more.
    pub record_bytes: f64,
    /// How much larger each level is than the one above it: the paper's M, above 0.
    pub growth: f64,
    /// How reads are spread.
    pub access: Access,
    /// The share of reads among the operations, 0 to 1. The rest are writes.
    pub reads: f64,
}

/// What one kind of operation can reach.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Operations a second that each tier allows; infinite where it is not asked.
    pub by_tier: Vec<f64>,
    /// The least of them.
    pub operations_per_second: f64,
    /// The tier that allows least; none if no tier is asked.
    pub tier: Option<usize>,
}

impl Bound {
    fn of(by_tier: Vec<f64>) -> Bound {
        let least = by_tier.iter().copied().fold(f64::INFINITY, f64::min);
        let tier = by_tier.iter().position(|n| n.is_finite() && *n == least);
        Bound {
            by_tier,
            operations_per_second: least,
            tier,
        }
    }
}

/// What the model says.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Where reads are answered.
    pub shares: Shares,
    /// Reads alone (equation 3).
    pub reads: Bound,
    /// Writes alone (equation 8); a lower bound, says the paper.
    pub writes: Bound,
    /// Both as they are mixed (equation 9); infinite if memory answers all.
    pub operations_per_second: f64,
    /// What takes the larger part of the time of the mix.
    pub limit: Limit,
}

/// What takes the larger part of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Random reads of this tier.
    Reads(usize),
    /// Sequential transfer of this tier.
    Writes(usize),
    /// No device is asked for anything.
    Nothing,
}

/// Why the model says nothing. It names what must be put right.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelError {
    /// Too few or too many tiers.
    Tiers {
        /// How many there are.
        count: usize,
    },
    /// A rate of a device is not a number above 0.
    Rate {
        /// Which tier, counted from 0.
        tier: usize,
        /// Which rate.
        what: &'static str,
        /// What was given.
        found: f64,
    },
    /// A share is not between 0 and 1.
    Share {
        /// Of what.
        what: &'static str,
        /// What was given.
        found: f64,
    },
    /// Shares do not add up to 1.
    Sum {
        /// Of what.
        what: &'static str,
        /// Their sum.
        found: f64,
    },
    /// There are not as many read shares as tiers.
    Given {
        /// Tiers.
        tiers: usize,
        /// Shares.
        found: usize,
    },
    /// A tier has data and no level or no probe, or too many of them.
    Levels {
        /// Which tier, counted from 0.
        tier: usize,
        /// Which number.
        what: &'static str,
        /// What was given.
        found: u32,
    },
    /// A number that must lie in a range.
    Range {
        /// Which number.
        what: &'static str,
        /// What must be.
        expected: &'static str,
        /// What was given.
        found: f64,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::Tiers { count } => {
                write!(f, "the model needs 1 to {TIERS_MAX} tiers, found {count}")
            }
            ModelError::Rate { tier, what, found } => {
                write!(f, "tier {tier}: {what} must be above 0, found {found}")
            }
            ModelError::Share { what, found } => {
                write!(f, "{what} must lie between 0 and 1, found {found}")
            }
            ModelError::Sum { what, found } => {
                write!(f, "{what} must add up to 1, found {found}")
            }
            ModelError::Given { tiers, found } => write!(
                f,
                "read shares are wanted for memory and {tiers} tiers, found {found} of tiers"
            ),
            ModelError::Levels { tier, what, found } => write!(
                f,
                "tier {tier} holds data, so its {what} must be 1 to {COUNT_MAX}, found {found}"
            ),
            ModelError::Range {
                what,
                expected,
                found,
            } => write!(f, "{what} must be {expected}, found {found}"),
        }
    }
}

impl std::error::Error for ModelError {}

impl Model {
    /// What the store can do.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn predict(&self) -> Result<Prediction, ModelError> {
        self.check()?;
        let data: Vec<f64> = self.tiers.iter().map(|tier| tier.data_share).collect();
        let shares = self.access.shares(self.memory_share, &data, self.records);
        let reads = Bound::of(self.reads_by_tier(&shares));
        let writes = Bound::of(self.writes_by_tier());

        let reading = self.reads / reads.operations_per_second;
        let writing = (1.0 - self.reads) / writes.operations_per_second;
        let limit = match (reads.tier, writes.tier) {
            (Some(tier), _) if reading > 0.0 && reading >= writing => Limit::Reads(tier),
            (_, Some(tier)) if writing > 0.0 => Limit::Writes(tier),
            _ => Limit::Nothing,
        };
        Ok(Prediction {
            shares,
            reads,
            writes,
            operations_per_second: 1.0 / (reading + writing),
            limit,
        })
    }

    /// Equation 2, for each tier.
    fn reads_by_tier(&self, shares: &Shares) -> Vec<f64> {
        let rate = |(tier, share): (&ModelTier, &f64)| match *share > 0.0 {
            true => tier.profile.random_read_iops / (f64::from(tier.probes) * share),
            false => f64::INFINITY,
        };
        self.tiers.iter().zip(&shares.tiers).map(rate).collect()
    }

    /// Equation 7, for each tier: levels are counted from the fastest tier on, and the first of
    /// all is not merged into. What is merged into a tier without data is nothing.
    fn writes_by_tier(&self) -> Vec<f64> {
        let mut first = 1;
        let mut rates = Vec::with_capacity(self.tiers.len());
        for tier in &self.tiers {
            let merged = tier.levels.saturating_sub(first);
            first = first.saturating_sub(tier.levels);
            rates.push(match merged {
                0 => f64::INFINITY,
                _ if tier.data_share <= 0.0 => f64::INFINITY,
                n => {
                    let bytes = 2.0 * (self.growth + 1.0) * f64::from(n) * self.record_bytes;
                    tier.profile.sequential_mb_s * 1e6 / bytes
                }
            });
        }
        rates
    }

    fn check(&self) -> Result<(), ModelError> {
        if !(1..=TIERS_MAX).contains(&self.tiers.len()) {
            let count = self.tiers.len();
            return Err(ModelError::Tiers { count });
        }
        for (at, tier) in self.tiers.iter().enumerate() {
            tier.check(at)?;
        }
        let data = self.tiers.iter().map(|tier| tier.data_share).sum();
        sum("the data shares of the tiers", data)?;
        share("the share of the data in memory", self.memory_share)?;
        share("the share of reads among the operations", self.reads)?;
        range("the number of records", self.records as f64, 1.0)?;
        range("the size of a record in bytes", self.record_bytes, 1.0)?;
        // How a level grows may be a fraction, and must be something.
        range(
            "the growth from level to level",
            self.growth,
            f64::MIN_POSITIVE,
        )?;
        self.check_access()
    }

    fn check_access(&self) -> Result<(), ModelError> {
        match &self.access {
            Access::Uniform => Ok(()),
            Access::Zipfian { skew } => match (0.0..=SKEW_MAX).contains(skew) {
                true => Ok(()),
                false => Err(ModelError::Range {
                    what: "the skew",
                    expected: "0 to 10",
                    found: *skew,
                }),
            },
            Access::Hotspot {
                operations,
                records,
            } => {
                share("the hot spot's share of the operations", *operations)?;
                share("the hot spot's share of the records", *records)
            }
            Access::Given(shares) => {
                let (tiers, found) = (self.tiers.len(), shares.tiers.len());
                if tiers != found {
                    return Err(ModelError::Given { tiers, found });
                }
                share("the share of the reads that memory answers", shares.memory)?;
                for answered in &shares.tiers {
                    share("the share of the reads that a tier answers", *answered)?;
                }
                let all = shares.memory + shares.tiers.iter().sum::<f64>();
                sum("the read shares of memory and tiers", all)
            }
        }
    }
}

impl ModelTier {
    fn check(&self, tier: usize) -> Result<(), ModelError> {
        let rates = [
            ("random reads a second", self.profile.random_read_iops),
            ("sequential MB a second", self.profile.sequential_mb_s),
        ];
        for (what, found) in rates {
            if !(found.is_finite() && found > 0.0) {
                return Err(ModelError::Rate { tier, what, found });
            }
        }
        share("the share of the data on a tier", self.data_share)?;
        let least = u32::from(self.data_share > 0.0);
        for (what, found) in [("levels", self.levels), ("probes", self.probes)] {
            if !(least..=COUNT_MAX).contains(&found) {
                return Err(ModelError::Levels { tier, what, found });
            }
        }
        Ok(())
    }
}

/// Fails unless `found` lies between 0 and 1, which no number does not.
fn share(what: &'static str, found: f64) -> Result<(), ModelError> {
    match (0.0..=1.0).contains(&found) {
        true => Ok(()),
        false => Err(ModelError::Share { what, found }),
    }
}

/// Fails unless `found` is 1.
fn sum(what: &'static str, found: f64) -> Result<(), ModelError> {
    match (found - 1.0).abs() <= SHARE_SLACK {
        true => Ok(()),
        false => Err(ModelError::Sum { what, found }),
    }
}

/// Fails unless `found` is finite and at least `least`.
fn range(what: &'static str, found: f64, least: f64) -> Result<(), ModelError> {
    let expected = if least < 1.0 { "above 0" } else { "at least 1" };
    match found.is_finite() && found >= least {
        true => Ok(()),
        false => Err(ModelError::Range {
            what,
            expected,
            found,
        }),
    }
}
