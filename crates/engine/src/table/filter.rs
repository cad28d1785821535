//! Bloom filters, one a block.
//!
//! A filter per block rather than per table, so that a block copied undecoded
//! into another table takes its filter along and a block appended to a table
//! leaves the other filters alone. A filter of up to 512 bits is one Bloom
//! filter; a larger one is split into lines of 512 bits, and a key lives in one
//! of them, so that a probe touches one cache line.
//!
//! The probe positions are digits of the key's 64-bit hash in a number system
//! whose base is the number of bits: multiplying the hash by the base yields
//! the next digit above and the rest below. Seven digits of base 512 take 63
//! bits, so the usual seven probes are independent of one another.

use xxhash_rust::xxh3::xxh3_64;

/// Words in a line of a large filter.
const LINE_WORDS: usize = 8;

/// Probes after which the hash is used up and is mixed anew.
const PROBES_A_HASH: u32 = 7;

/// Odd, with evenly spread bits: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a user key that filters go by.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Probes a key for a filter of `bits_per_key`: the number that makes false
/// positives rarest, `bits_per_key * ln 2`.
pub(crate) fn probes_for(bits_per_key: u32) -> u32 {
    ((bits_per_key * 69 + 50) / 100).clamp(1, 21)
}

/// Words of a filter of `keys` keys.
pub(crate) fn words_for(keys: usize, bits_per_key: u32) -> usize {
    let words = (keys * bits_per_key as usize).div_ceil(64);
    if words > LINE_WORDS {
        words.next_multiple_of(LINE_WORDS)
    } else {
        words
    }
}

/// Whether a filter may have so many words.
pub(crate) fn is_lawful_length(words: usize) -> bool {
    words <= LINE_WORDS || words.is_multiple_of(LINE_WORDS)
}

/// The next digit of `rest` in base `base`.
#[inline(always)]
fn digit(rest: &mut u64, base: usize) -> usize {
    let product = u128::from(*rest) * base as u128;
    *rest = product as u64;
    (product >> 64) as usize
}

/// The line of the filter in which a key lives, as a word index.
#[inline(always)]
fn line_of(words: usize, hash: u64) -> usize {
    if words <= LINE_WORDS {
        return 0;
    }
    let mut rest = hash.wrapping_mul(MIX);
    digit(&mut rest, words / LINE_WORDS) * LINE_WORDS
}

/// Appends the filter of the keys with these hashes.
pub(crate) fn build(hashes: &[u64], bits_per_key: u32, filters: &mut Vec<u64>) {
    let words = words_for(hashes.len(), bits_per_key);
    let start = filters.len();
    filters.resize(start + words, 0);
    if words == 0 {
        return;
    }
    let probes = probes_for(bits_per_key);
    let bits = words.min(LINE_WORDS) * 64;
    let filter = &mut filters[start..];
    for &hash in hashes {
        let line = &mut filter[line_of(words, hash)..];
        let mut seed = hash;
        let mut rest = hash;
        for probe in 1..=probes {
            let bit = digit(&mut rest, bits);
            line[bit / 64] |= 1 << (bit % 64);
            if probe % PROBES_A_HASH == 0 {
                seed = seed.wrapping_mul(MIX).rotate_left(29);
                rest = seed;
            }
        }
    }
}

/// Whether a key with this hash may be among those of the filter. A filter
/// without words excludes nothing.
#[inline]
pub(crate) fn may_contain(filter: &[u64], probes: u32, hash: u64) -> bool {
    if filter.is_empty() {
        return true;
    }
    let start = line_of(filter.len(), hash);
    let line = &filter[start..filter.len().min(start + LINE_WORDS)];
    let bits = line.len() * 64;
    let mut seed = hash;
    let mut rest = hash;
    for probe in 1..=probes {
        let bit = digit(&mut rest, bits);
        if line[bit / 64] >> (bit % 64) & 1 == 0 {
            return false;
        }
        if probe % PROBES_A_HASH == 0 {
            seed = seed.wrapping_mul(MIX).rotate_left(29);
            rest = seed;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn false_positives(keys: usize, bits_per_key: u32) -> f64 {
        let mut wrong = 0;
        let mut tried = 0;
        for round in 0..200u64 {
            let hash = |i: u64| key_hash(&(round << 32 | i).to_le_bytes());
            let hashes: Vec<u64> = (0..keys as u64).map(hash).collect();
            let mut filter = Vec::new();
            build(&hashes, bits_per_key, &mut filter);
            let probes = probes_for(bits_per_key);
            assert!(hashes.iter().all(|&h| may_contain(&filter, probes, h)));
            for i in 0..500 {
                tried += 1;
                wrong += u32::from(may_contain(&filter, probes, hash(1 << 20 | i)));
            }
        }
        f64::from(wrong) / f64::from(tried)
    }

    #[test]
    fn ten_bits_a_key_pass_about_one_absent_key_in_a_hundred() {
        for keys in [1, 7, 34, 51, 400, 3000] {
            let share = false_positives(keys, 10);
            assert!(share < 0.016, "{keys} keys: {share}");
        }
    }

    #[test]
    fn many_bits_a_key_need_more_probes_than_one_hash_has() {
        assert!(false_positives(34, 20) < 0.001);
        assert!(false_positives(400, 20) < 0.003);
    }
}
