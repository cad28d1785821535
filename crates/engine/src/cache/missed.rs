//! Which blocks were asked for in vain of late.
//!
//! As many marks as there are places in a table, each the fingerprint of the block that was missed
//! last of all that share the place: what is not missed again soon is forgotten by itself.

use std::sync::atomic::{AtomicU16, Ordering};

/// See the module.
#[derive(Debug)]
pub(super) struct Missed(Box<[AtomicU16]>);

impl Missed {
    /// Of so many places.
    pub(super) fn new(places: usize) -> Missed {
        Missed((0..places).map(|_| AtomicU16::new(0)).collect())
    }

    /// Bytes that it takes.
    pub(super) fn bytes(places: u64) -> u64 {
        places * size_of::<AtomicU16>() as u64
    }

    /// Notes that the block with this hash is missed. Whether it was of late, or, one time in
    /// 65,535, another was.
    pub(super) fn again(&self, hash: u64) -> bool {
        let place = ((hash >> 32) * self.0.len() as u64) >> 32;
        let Some(mark) = self.0.get(place as usize) else {
            return true;
        };
        // Zero: none yet.
        let print = (hash as u16).max(1);
        // Blocks of one moment may take each other's place: then one is missed once more.
        mark.load(Ordering::Relaxed) == print || {
            mark.store(print, Ordering::Relaxed);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_remembered_until_another_takes_its_place() {
        let missed = Missed::new(8);
        let at = |place: u64, print: u64| (place << 61) | print;
        assert!(!missed.again(at(3, 7)) && missed.again(at(3, 7)));
        assert!(!missed.again(at(4, 7)) && !missed.again(at(3, 8)));
        assert!(!missed.again(at(3, 7)) && missed.again(at(4, 7)));
        // None is taken for one that never was.
        assert!(!missed.again(at(0, 0)) && missed.again(at(0, 0)));
        assert!(!missed.again(at(7, 1)));
    }

    #[test]
    fn where_there_is_no_place_all_were_missed() {
        assert!(Missed::new(0).again(5));
        assert_eq!(Missed::bytes(100), 200);
    }
}
