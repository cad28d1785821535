//! Whether reads of late took longer than a place in the block cache is worth.
//!
//! Where the system has the files in memory a read takes a few microseconds, and to keep what was
//! read takes nearly as long: it is copied, and something else has to leave. So a block is let in
//! there the second time that it is missed of late, and what is read once leaves the cache alone.
//! Where most reads come from a device each block is let in.

use std::sync::Arc;

use thermocline_model::tier::TIERS_MAX;

use super::Table;
use super::counters::Counters;
use super::share::RecentShare;
use crate::error::Result;
use crate::store::Clock;

/// A read that takes longer came from a device, if a fast one: memory takes half as long and less.
const MICROS_MAX: u64 = 10;

/// One read in so many is timed.
const ONE_IN: u64 = 16;

/// Where reads cost little no more than one in so many may come from a device: the system reads in
/// stretches, and turns of other threads are counted too.
const LONG_ONE_IN: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct ReadCosts {
    /// None where nothing is timed, and all reads cost much.
    clock: Option<Arc<dyn Clock>>,
    reads: Counters<1>,
    /// By tier, the share of reads that took long.
    long: [RecentShare; TIERS_MAX],
}

impl ReadCosts {
    /// Times reads by `clock`.
    pub(super) fn by(clock: Option<Arc<dyn Clock>>) -> ReadCosts {
        ReadCosts {
            clock,
            reads: Counters::default(),
            long: std::array::from_fn(|_| RecentShare::all()),
        }
    }

    /// What `read` gives, a read of the tier.
    #[inline]
    fn timed<T>(&self, tier: usize, read: impl FnOnce() -> T) -> T {
        match &self.clock {
            Some(clock) if self.reads.add(0).is_multiple_of(ONE_IN) => {
                let began_us = clock.now_micros();
                let result = read();
                self.note(tier, clock.now_micros().saturating_sub(began_us));
                result
            }
            _ => read(),
        }
    }

    fn note(&self, tier: usize, took_us: u64) {
        if let Some(long) = self.long.get(tier) {
            long.begin();
            if took_us > MICROS_MAX {
                long.add();
            }
        }
    }

    /// Whether reads of the tier cost next to nothing.
    fn are_low(&self, tier: usize) -> bool {
        let long = self.long.get(tier);
        long.is_some_and(|long| !long.exceeds_one_in(LONG_ONE_IN))
    }
}

impl Table {
    /// Reads bytes of an extent.
    pub(crate) fn read_at(&self, extent: u16, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (reader, place) = &self.extents()[usize::from(extent)];
        let tier = place.tier.0 as usize;
        let costs = &self.context.read_costs;
        costs.timed(tier, || reader.read_at(place.offset + offset, buffer))
    }

    /// Whether block `block`, which the cache does not have, is worth a place there.
    pub(super) fn is_worth_a_place(&self, block: usize) -> bool {
        let tier = self.record.tier().0 as usize;
        !self.context.read_costs.are_low(tier)
            || self.context.cache.is_missed_again(self.id(), block as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Sleeper;

    #[test]
    fn reads_cost_little_once_most_take_no_longer_than_memory_does() {
        let hand = Arc::new(Sleeper::default());
        let costs = ReadCosts::by(Some(Arc::clone(&hand) as Arc<dyn Clock>));
        let read = |tier, us, times: u64| {
            for _ in 0..times * ONE_IN {
                costs.timed(tier, || hand.sleep(Duration::from_micros(us)));
            }
        };
        assert!(!costs.are_low(0), "nobody knows");
        read(0, MICROS_MAX, 50);
        assert!(!costs.are_low(0), "too few");
        read(0, MICROS_MAX, 100);
        assert!(costs.are_low(0) && !costs.are_low(1));
        // One that waits for its turn says nothing, and one of four that come from a device do.
        read(0, 10_000, 1);
        assert!(costs.are_low(0));
        for _ in 0..100 {
            read(0, MICROS_MAX + 1, 1);
            read(0, 1, 3);
        }
        assert!(!costs.are_low(0));
        // It gets to nothing, and out of it again.
        read(1, 0, 10_000);
        assert!(costs.are_low(1));
        read(1, 80, 20);
        assert!(!costs.are_low(1) && !costs.are_low(TIERS_MAX));
    }

    #[test]
    fn where_nothing_is_timed_all_reads_cost_much() {
        let costs = ReadCosts::by(None);
        for _ in 0..100_000 {
            costs.timed(0, || ());
        }
        assert!(!costs.are_low(0));
    }
}
