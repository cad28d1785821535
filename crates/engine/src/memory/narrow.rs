//! 32 bits that sort as 64 do.
//!
//! A link of the list has room for 32 bits of the number that a `Prefix` makes
//! of a key. The upper half will do for bytes that take any value. Decimal
//! digits take ten of 256, and four of them tell only ten thousand keys apart;
//! so when the list starts with a key of digits, each of its eight bytes gives
//! its low half instead, and eight digits count.
//!
//! Invariant: in either mode `split` is monotone for every key, whether it is of
//! digits or not: a lower pair implies a lower number, and so a lower key.

/// Not yet known, as the list is empty.
pub(super) const UNKNOWN: u8 = 0;
/// The upper half, then the lower.
const HALVES: u8 = 1;
/// The low half of each byte, then nothing.
const DIGITS: u8 = 2;

/// Eight digits `0`.
const ZEROS: u64 = 0x3030_3030_3030_3030;
/// The upper half of each byte.
const UPPER: u64 = 0xf0f0_f0f0_f0f0_f0f0;

/// The mode for keys like one whose number is `prefix`, made of `bytes` bytes.
pub(super) fn choose(prefix: u64, bytes: usize) -> u8 {
    // Up to four bytes lose nothing in the upper half.
    if bytes <= 4 {
        return HALVES;
    }
    let present = u64::MAX << (64 - 8 * bytes.min(8));
    if (prefix ^ ZEROS) & UPPER & present == 0 {
        DIGITS
    } else {
        HALVES
    }
}

/// What a link holds of `prefix`, and what breaks a tie of that.
#[inline(always)]
pub(super) fn split(mode: u8, prefix: u64) -> (u32, u32) {
    if mode == DIGITS {
        (digits(prefix), 0)
    } else {
        ((prefix >> 32) as u32, prefix as u32)
    }
}

/// The low half of each byte, while bytes are `0x30..=0x3f`; at the first that
/// is not, all that follows becomes zeros or ones, whichever side it lies on.
#[inline]
fn digits(prefix: u64) -> u32 {
    let zeroed = prefix ^ ZEROS;
    let mut x = zeroed & !UPPER;
    x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
    x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    let mut x = (x | x >> 16) as u32;
    let odd = zeroed & UPPER;
    if odd != 0 {
        let byte = odd.leading_zeros() / 8;
        let rest = u32::MAX >> (4 * byte);
        let above = prefix << (8 * byte) >> 56 > 0x3f;
        x = (x & !rest) | if above { rest } else { 0 };
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_modes_are_monotone_for_digits_and_for_bytes_around_them() {
        let bytes = [0, 0x2f, 0x30, 0x35, 0x39, 0x3f, 0x40, 0xff];
        let mut numbers: Vec<u64> = vec![0, u64::MAX];
        for i in 0..8u64.pow(4) {
            let pick = |at: u32| u64::from(bytes[(i / 8u64.pow(at) % 8) as usize] as u8);
            for shift in [0, 16, 32] {
                let four = pick(0) << 24 | pick(1) << 16 | pick(2) << 8 | pick(3);
                numbers.push(ZEROS & !(0xffff_ffff << shift) | four << shift);
            }
        }
        numbers.sort_unstable();
        for mode in [HALVES, DIGITS] {
            assert!(numbers.is_sorted_by_key(|&number| split(mode, number)));
        }
    }

    #[test]
    fn eight_digits_are_told_apart_when_the_first_key_is_of_digits() {
        let number = |text: &[u8; 8]| u64::from_be_bytes(*text);
        let mode = choose(number(b"12345678"), 20);
        assert!(split(mode, number(b"12345678")).0 < split(mode, number(b"12345679")).0);
        assert_eq!(choose(number(b"1234567x"), 8), HALVES);
        assert_eq!(choose(number(b"12345\0\0\0"), 5), DIGITS);
        assert_eq!(choose(number(b"1234\0\0\0\0"), 4), HALVES);
    }
}
