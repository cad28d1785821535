//! The capacities that the books of the cache go by, where it has lent some of its memory.
//!
//! The books remember the more of what was evicted the larger they are: by a count that they scale
//! with the capacity and round down each time. What is lost so never comes back, and after some
//! thousand times they would remember nothing. So capacities are rungs of a ladder on which the
//! count is whole, and it is gone up and down by steps that floating point makes without a loss;
//! nearly all are such, and a detour by a higher rung does for the others.

/// Rungs of the ladder.
pub(super) const RUNGS: u64 = 64;

/// Where the books of each shard are on it.
#[derive(Debug)]
pub(super) struct Ladder {
    rung: u64,
    /// Of a shard, by rung: weight, and how many evicted blocks it remembers.
    weight: u64,
    remembered: u64,
}

impl Ladder {
    /// On the last rung, for a shard of about so much weight that is to remember about so many
    /// evicted blocks.
    pub(super) fn new(weight: u64, remembered: u64) -> Ladder {
        Ladder {
            rung: RUNGS,
            weight: weight / RUNGS,
            remembered: (remembered / RUNGS).max(1),
        }
    }

    /// The weight of a shard on the last rung, and how many evicted blocks it remembers there.
    pub(super) fn whole(&self) -> (u64, u64) {
        (self.weight * RUNGS, self.remembered * RUNGS)
    }

    /// Goes to rung `wanted`, from 1 to [`RUNGS`]: the weights that a shard is to be given on the
    /// way, the last one to stay. None where it is there, or one below: that is not worth telling,
    /// but for the last rung.
    pub(super) fn go_to(&mut self, wanted: u64) -> impl Iterator<Item = u64> + use<> {
        let stays = wanted == self.rung || (wanted == self.rung + 1 && wanted < RUNGS);
        let detour = if stays { None } else { self.detour(wanted) };
        let last = (!stays).then_some(wanted);
        self.rung = last.unwrap_or(self.rung);
        let weight = self.weight;
        detour
            .into_iter()
            .chain(last)
            .map(move |rung| weight * rung)
    }

    /// Whether the books remember as many on rung `to` as they should, from rung `from`: as
    /// `quick_cache` reckons it.
    fn is_exact(&self, from: u64, to: u64) -> bool {
        let ratio = (self.weight * to) as f64 / (self.weight * from) as f64;
        ((self.remembered * from) as f64 * ratio) as u64 == self.remembered * to
    }

    /// By way of which higher rung, even one above the last, to get to `to`, if not at once.
    fn detour(&self, to: u64) -> Option<u64> {
        let exact = |by: &u64| self.is_exact(self.rung, *by) && self.is_exact(*by, to);
        let direct = self.is_exact(self.rung, to);
        (!direct).then(|| (to + 1..2 * RUNGS).find(exact)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a shard of the books does it.
    struct Shard {
        weight: u64,
        remembered: u64,
    }

    impl Shard {
        fn set_capacity(&mut self, weight: u64) {
            let ratio = weight as f64 / self.weight as f64;
            self.remembered = (self.remembered as f64 * ratio) as u64;
            self.weight = weight;
        }
    }

    #[test]
    fn from_every_rung_to_every_other_nothing_is_forgotten() {
        let mut detours = 0;
        for (weight, remembered) in [
            (4_000_000, 512),
            (123_456_789, 15_000),
            (70_000, 3),
            (1 << 40, 1 << 27),
        ] {
            let mut ladder = Ladder::new(weight, remembered);
            let (weight, remembered) = ladder.whole();
            let mut shard = Shard { weight, remembered };
            for from in 1..=RUNGS {
                for to in 1..=RUNGS {
                    for wanted in [from, to] {
                        let weights: Vec<u64> = ladder.go_to(wanted).collect();
                        detours += usize::from(weights.len() > 1);
                        weights
                            .iter()
                            .for_each(|&weight| shard.set_capacity(weight));
                        let rung = ladder.rung;
                        assert!(rung == wanted || rung + 1 == wanted);
                        assert_eq!(shard.weight, weight / RUNGS * rung);
                        assert_eq!(shard.remembered, remembered / RUNGS * rung);
                    }
                }
            }
            ladder
                .go_to(RUNGS)
                .for_each(|weight| shard.set_capacity(weight));
            assert_eq!((shard.weight, shard.remembered), (weight, remembered));
        }
        assert!(detours > 0);
    }

    #[test]
    fn a_cache_without_room_for_anything_has_a_ladder_too() {
        let mut ladder = Ladder::new(5, 0);
        assert_eq!(ladder.whole(), (0, 64));
        assert_eq!(ladder.go_to(1).last(), Some(0));
    }
}
