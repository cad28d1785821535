//! YCSB's `hotspot`: some records get some of the operations.

use crate::dice::Dice;

/// A hot set at the front of the records.
#[derive(Clone, Debug)]
pub(crate) struct Hotspot {
    records: u64,
    hot: u64,
    share: f64,
}

impl Hotspot {
    /// `operations_share` of the draws go to `records_share` of the records. At
    /// least one record is hot, and where there are two, one is not.
    pub(crate) fn new(records: u64, operations_share: f64, records_share: f64) -> Hotspot {
        let hot = (records as f64 * records_share) as u64;
        Hotspot {
            records,
            hot: hot.clamp(1, records.saturating_sub(1).max(1)),
            share: operations_share,
        }
    }

    /// The next record.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        if dice.unit() < self.share || self.hot == self.records {
            dice.below(self.hot)
        } else {
            self.hot + dice.below(self.records - self.hot)
        }
    }

    /// The probability of the record `record`.
    pub(super) fn weight(&self, record: u64) -> f64 {
        match (self.hot == self.records, record < self.hot) {
            (true, _) => 1.0 / self.records as f64,
            (_, true) => self.share / self.hot as f64,
            (_, false) => (1.0 - self.share) / (self.records - self.hot) as f64,
        }
    }
}
