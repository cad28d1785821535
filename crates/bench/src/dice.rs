//! Dice and permutations: the same for the same seed, cheap enough to vanish
//! beside an engine.

/// A source of random numbers (xorshift64*); good enough to choose keys.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice that are the same for the same `seed`.
    pub(crate) fn new(seed: u64) -> Dice {
        // One round of splitmix64 spreads small seeds; zero is no state.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Dice((mixed ^ (mixed >> 31)) | 1)
    }

    /// A number below `limit`.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        (product >> 64) as u64
    }

    /// A number from 0 up to 1.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// A permutation of `0..count` that takes no memory: rounds of a multiplication
/// by an odd number and a shift, each a bijection of the next power of two,
/// repeated until the result is in range.
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    seed: u64,
}

impl Permutation {
    /// A permutation of `0..count`, the same for the same `seed`.
    pub(crate) fn new(count: u64, seed: u64) -> Permutation {
        let size = count.next_power_of_two().max(4);
        Permutation {
            count,
            mask: size - 1,
            shift: (size.trailing_zeros() / 2).max(1),
            seed: Dice::new(seed).next(),
        }
    }

    /// Where `index` goes. Requires: `index < count`.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut place = index;
        loop {
            place = (place ^ self.seed) & self.mask;
            for odd in [
                0x9e37_79b9_7f4a_7c15,
                0xbf58_476d_1ce4_e5b9,
                0x94d0_49bb_1331_11eb,
            ] {
                place = place.wrapping_mul(odd) & self.mask;
                place ^= place >> self.shift;
            }
            if place < self.count {
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_reaches_every_number_once() {
        for count in [1, 2, 3, 4, 5, 1_000, 4_096, 10_007] {
            for seed in 0..3 {
                let permutation = Permutation::new(count, seed);
                let mut seen: Vec<u64> = (0..count).map(|index| permutation.at(index)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{count} {seed}");
            }
        }
    }

    #[test]
    fn a_permutation_leaves_few_neighbours_together() {
        let permutation = Permutation::new(100_000, 7);
        let near = (1..100_000)
            .filter(|&index| permutation.at(index).abs_diff(permutation.at(index - 1)) < 1_000)
            .count();
        // Chance alone would leave about 2 %.
        assert!(near < 4_000, "{near}");
    }
}
