//! How a record's number is written as a key.
//!
//! Hashed keys are the default, as in YCSB: frequent records lie anywhere in the
//! order of keys, so that no table or block is hot as a whole. Clustered keys
//! have the order of the numbers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The longest key: `user` and twenty digits.
pub(crate) const KEY_BYTES_MAX: usize = 24;

/// Digits of clustered keys of YCSB's form: those of the largest hash.
const DIGITS: usize = 19;

/// YCSB's `fnvhash64`: FNV-1a over the eight bytes, least first, without the
/// sign.
#[inline]
pub(crate) fn fnv(number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in number.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3);
    }
    (hash as i64).unsigned_abs()
}

/// The form of a key.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyForm {
    /// `user` and the decimal number: YCSB's, about 23 bytes.
    Ycsb,
    /// Sixteen hexadecimal digits.
    Hex16,
    /// Eight bytes, most significant first.
    Binary8,
}

/// The text of keys.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct KeyText {
    /// The form.
    pub form: KeyForm,
    /// Whether the order of keys is the order of records.
    pub clustered: bool,
}

/// Where a key is written.
pub(crate) type KeyBuffer = [u8; KEY_BYTES_MAX];

impl KeyText {
    /// Writes the key of `record`.
    #[inline]
    pub(crate) fn write(self, record: u64, buffer: &mut KeyBuffer) -> &[u8] {
        let number = match self.clustered {
            true => record,
            false => fnv(record),
        };
        match self.form {
            KeyForm::Ycsb => {
                let least = if self.clustered { DIGITS } else { 1 };
                let start = digits(number, least, buffer) - 4;
                buffer[start..start + 4].copy_from_slice(b"user");
                &buffer[start..]
            }
            KeyForm::Hex16 => {
                for (place, byte) in buffer[..16].iter_mut().enumerate() {
                    let nibble = number >> (60 - 4 * place) & 0xf;
                    *byte = b"0123456789abcdef"[nibble as usize];
                }
                &buffer[..16]
            }
            KeyForm::Binary8 => {
                buffer[..8].copy_from_slice(&number.to_be_bytes());
                &buffer[..8]
            }
        }
    }

    /// Bytes of a key on average.
    pub(crate) fn mean_bytes(self) -> f64 {
        const SAMPLE: u64 = 1000;
        let mut buffer = [0; KEY_BYTES_MAX];
        let bytes: usize = (0..SAMPLE).map(|r| self.write(r, &mut buffer).len()).sum();
        bytes as f64 / SAMPLE as f64
    }
}

/// Writes `number` at the end of `buffer`, with at least `least` digits; says
/// where it begins. At most twenty digits, so that four bytes are left.
#[inline]
fn digits(mut number: u64, least: usize, buffer: &mut KeyBuffer) -> usize {
    let mut start = KEY_BYTES_MAX;
    while number > 0 || KEY_BYTES_MAX - start < least {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(form: KeyForm, clustered: bool, record: u64) -> Vec<u8> {
        let text = KeyText { form, clustered };
        text.write(record, &mut [0; KEY_BYTES_MAX]).to_vec()
    }

    #[test]
    fn the_first_keys_are_those_of_ycsb() {
        let keys = [0, 1].map(|record| key(KeyForm::Ycsb, false, record));
        assert_eq!(keys[0], b"user6284781860667377211");
        assert_eq!(keys[1], b"user8517097267634966620");
    }

    #[test]
    fn clustered_keys_have_the_order_of_records() {
        for form in [KeyForm::Ycsb, KeyForm::Hex16, KeyForm::Binary8] {
            for record in [0, 1, 9, 10, 255, 256, 65_535, 999_999] {
                let (low, high) = (key(form, true, record), key(form, true, record + 1));
                assert!(low < high, "{form:?} {record}");
            }
        }
        assert_eq!(key(KeyForm::Ycsb, true, 7), b"user0000000000000000007");
    }

    #[test]
    fn keys_have_the_length_of_their_form() {
        assert_eq!(key(KeyForm::Hex16, false, 5).len(), 16);
        assert_eq!(key(KeyForm::Binary8, false, 5).len(), 8);
        assert_eq!(key(KeyForm::Ycsb, true, u64::MAX).len(), KEY_BYTES_MAX);
        let text = KeyText {
            form: KeyForm::Ycsb,
            clustered: false,
        };
        assert!((22.5..23.0).contains(&text.mean_bytes()));
    }
}
