//! The probability of every record, for the limits and the tests of fit.

use super::hotspot::Hotspot;
use super::scrambled::Scrambled;
use super::zipfian::{Zipfian, zeta};
use super::{Choice, YCSB_THETA};

/// The most records whose weights are computed: eight bytes each.
pub(crate) const RECORDS_MAX: u64 = 1 << 26;

/// The number of weights of `records` records.
pub(super) fn length(records: u64) -> usize {
    usize::try_from(records).expect("no more records than RECORDS_MAX, asked by every caller")
}

/// The probability of each record at the beginning of a run. Requires:
/// `records` is from 1 to [`RECORDS_MAX`].
pub(crate) fn weights(choice: Choice, records: u64) -> Vec<f64> {
    assert!((1..=RECORDS_MAX).contains(&records));
    match choice {
        Choice::Scrambled => Scrambled::new(records).weights(),
        Choice::Zipfian => ranks(records),
        Choice::Latest => {
            let mut weights = ranks(records);
            weights.reverse();
            weights
        }
        Choice::Uniform => vec![1.0 / records as f64; length(records)],
        Choice::Hotspot {
            operations,
            records: share,
        } => {
            let hotspot = Hotspot::new(records, operations, share);
            (0..records).map(|record| hotspot.weight(record)).collect()
        }
        Choice::Zipf { exponent } | Choice::Shifting { exponent, .. } => {
            let whole = zeta(0, records, exponent);
            let weight = |rank: u64| (rank as f64).powf(-exponent) / whole;
            (1..=records).map(weight).collect()
        }
    }
}

/// The weights of YCSB's Zipfian generator.
fn ranks(records: u64) -> Vec<f64> {
    let zipfian = Zipfian::new(records, YCSB_THETA);
    let weight = |rank| zipfian.below(rank + 1) - zipfian.below(rank);
    (0..records).map(weight).collect()
}
