//! Keys and values, cheap enough to vanish beside an engine.
//!
//! Entry `i` of a store has the key of number `2 i`; the odd numbers are the
//! absent keys, one between every two neighbours.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;

/// The length of every key.
pub(crate) const KEY_BYTES: usize = 16;

/// Values are slices of a random buffer of this size. It is small, so that the
/// engine and not the driver has the processor's caches.
const VALUE_POOL_BYTES: usize = 64 << 10;

/// A key.
pub(crate) type Key = [u8; KEY_BYTES];

/// How a number is written as a key.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyKind {
    /// Sixteen decimal digits.
    Decimal,
    /// Eight bytes, most significant first, then eight zero bytes.
    Binary,
}

impl KeyKind {
    /// The key of `number`. Order of keys is order of numbers. Requires:
    /// `number` has at most sixteen decimal digits.
    #[inline]
    pub(crate) fn key(self, number: u64) -> Key {
        match self {
            KeyKind::Decimal => decimal(number),
            KeyKind::Binary => {
                let mut key = [0; KEY_BYTES];
                key[..8].copy_from_slice(&number.to_be_bytes());
                key
            }
        }
    }

    /// The key of the entry `index`.
    #[inline]
    pub(crate) fn present(self, index: u64) -> Key {
        self.key(2 * index)
    }

    /// An absent key, just after that of the entry `index`.
    #[inline]
    pub(crate) fn absent(self, index: u64) -> Key {
        self.key(2 * index + 1)
    }
}

/// Sixteen decimal digits: two halves of eight, each split by multiplication
/// inside one word, so that the divisions do not wait for one another.
#[inline]
fn decimal(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&eight_digits(number / 100_000_000).to_le_bytes());
    key[8..].copy_from_slice(&eight_digits(number % 100_000_000).to_le_bytes());
    key
}

/// The eight digits of `number`, the first in the lowest byte.
#[inline]
fn eight_digits(number: u64) -> u64 {
    // Lanes of 32, 16, then 8 bits; x / 100 = x * 10486 >> 20 below 10^4, and
    // x / 10 = x * 103 >> 10 below 100.
    let high = number / 10_000;
    let four = high | ((number - high * 10_000) << 32);
    let hundreds = ((four * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let two = hundreds | ((four - hundreds * 100) << 16);
    let tens = ((two * 103) >> 10) & 0x000f_000f_000f_000f;
    let one = tens | ((two - tens * 10) << 8);
    one | 0x3030_3030_3030_3030
}

/// Values: slices of a random buffer, each a little after the last.
pub(crate) struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
    offset: usize,
}

impl Values {
    /// Values of `value_bytes` each.
    pub(crate) fn new(value_bytes: usize, seed: u64) -> Values {
        let mut dice = Dice::new(seed);
        let length = VALUE_POOL_BYTES + value_bytes;
        let pool = (0..length).map(|_| dice.next() as u8).collect();
        Values {
            pool,
            value_bytes,
            offset: 0,
        }
    }

    /// The next value.
    #[inline]
    pub(crate) fn take(&mut self) -> &[u8] {
        // An odd step visits every offset before it repeats.
        self.offset = (self.offset + (self.value_bytes | 1)) % VALUE_POOL_BYTES;
        &self.pool[self.offset..self.offset + self.value_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_keys_are_sixteen_padded_digits() {
        let mut dice = Dice::new(1);
        let random = (0..100_000).map(|_| dice.below(10_000_000_000_000_000));
        for number in [0, 1, 9, 10, 99, 100, 9_999, 10_000, 99_999_999, 100_000_000]
            .into_iter()
            .chain([9_999_999_999_999_999])
            .chain(random)
        {
            assert_eq!(decimal(number), format!("{number:016}").as_bytes());
        }
    }

    #[test]
    fn binary_keys_are_ordered_as_their_numbers() {
        assert!(KeyKind::Binary.key(255) < KeyKind::Binary.key(256));
        assert_eq!(KeyKind::Binary.key(1)[7], 1);
    }

    #[test]
    fn values_have_the_length_asked_for() {
        let mut values = Values::new(100, 1);
        for _ in 0..10_000 {
            assert_eq!(values.take().len(), 100);
        }
    }
}
