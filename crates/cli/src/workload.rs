//! Repeatable workloads: dice, skewed choice, and values that prove themselves.

/// A small generator of pseudo-random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, which is above zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The finaliser of SplitMix64: a bijection that spreads every bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Ranks drawn by Zipf's law: rank r comes up in proportion to 1 / (r+1)^theta.
///
/// The method is that of Gray et al., "Quickly Generating Billion-Record
/// Synthetic Databases" (SIGMOD 1994), which YCSB uses as well.
pub(crate) struct Zipf {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Ranks from 0 up to `count`, which is above zero. The skew `theta` lies
    /// between 0 and 1; 0.99 is the customary one.
    pub(crate) fn new(count: u64, theta: f64) -> Zipf {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(count);
        Zipf {
            count,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta,
            eta: (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta),
        }
    }

    /// The next rank; 0 is the most frequent.
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        let u = dice.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.count == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

/// The place in `0..count` of `rank`, so that frequent keys do not lie side by
/// side. Different ranks may share a place, as in YCSB.
pub(crate) fn scatter(rank: u64, count: u64) -> u64 {
    mix(rank.wrapping_add(0x5851_f42d_4c95_7f2d)) % count
}

/// A number that stands for `key` in [`fill`] and [`matches`].
pub(crate) fn fingerprint(key: &[u8]) -> u64 {
    key.chunks(8).fold(key.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash.rotate_left(5) ^ u64::from_le_bytes(word))
    })
}

/// Fills `value` with the content that version `version` of a key must have.
/// Half of every word is noise, so that values compress about as records do.
pub(crate) fn fill(value: &mut [u8], fingerprint: u64, version: u32) {
    let mut words = words(fingerprint, version);
    for chunk in value.chunks_mut(8) {
        let word = words();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Whether `value` is what [`fill`] wrote for this key and version.
pub(crate) fn matches(value: &[u8], fingerprint: u64, version: u32) -> bool {
    let mut words = words(fingerprint, version);
    value
        .chunks(8)
        .all(|chunk| words()[..chunk.len()] == *chunk)
}

fn words(fingerprint: u64, version: u32) -> impl FnMut() -> [u8; 8] {
    let mut dice = Dice::new(fingerprint ^ mix(u64::from(version)));
    move || {
        let mut word = dice.roll().to_le_bytes();
        word[4..].fill(b'.');
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_proves_its_key_version_and_place() {
        for length in [1, 7, 8, 9, 1024] {
            let mut value = vec![0; length];
            fill(&mut value, fingerprint(b"a"), 0);
            assert!(matches(&value, fingerprint(b"a"), 0));
            if length >= 7 {
                assert!(!matches(&value, fingerprint(b"b"), 0));
                assert!(!matches(&value, fingerprint(b"a"), 1));
            }
            value[length - 1] ^= 1;
            assert!(!matches(&value, fingerprint(b"a"), 0));
        }
        assert_ne!(fingerprint(b"a"), fingerprint(b"a\0"));
    }

    #[test]
    fn zipf_stays_in_range_and_prefers_the_first() {
        let seed = 7;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for count in [1, 2, 3, 1000] {
            let zipf = Zipf::new(count, 0.99);
            let mut seen = vec![0u32; count as usize];
            for _ in 0..20_000 {
                seen[zipf.draw(&mut dice) as usize] += 1;
            }
            let most = seen.iter().max().expect("not empty");
            assert_eq!(seen[0], *most, "count {count}");
        }
    }

    #[test]
    fn dice_stay_below_their_limit() {
        let mut dice = Dice::new(1);
        assert!((0..1000).all(|_| dice.below(3) < 3));
        assert!((0..1000).all(|_| dice.below(1) == 0));
    }
}
