//! What several tests draw from.

use thermocline::Iter;

/// Numbers that look drawn, the same ones each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// The next one, below `below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// Some steps of `iter` to and fro, from `at` on; `within` is what it has.
#[allow(dead_code, reason = "not every test walks")]
pub(crate) fn walk(iter: &mut Iter, within: &[(&Vec<u8>, &Vec<u8>)], at: &[u8], dice: &mut Dice) {
    let mut place = if dice.below(2) == 0 {
        iter.seek(at).unwrap();
        within.iter().position(|(k, _)| k.as_slice() >= at)
    } else {
        iter.seek_for_prev(at).unwrap();
        within.iter().rposition(|(k, _)| k.as_slice() <= at)
    };
    for _ in 0..dice.below(12) {
        let found = iter.valid().then(|| (iter.key(), iter.value()));
        let expected = place.map(|p| (within[p].0.as_slice(), within[p].1.as_slice()));
        assert_eq!(found, expected);
        let Some(p) = place else { break };
        place = if dice.below(3) > 0 {
            iter.next().unwrap();
            Some(p + 1).filter(|&p| p < within.len())
        } else {
            iter.prev().unwrap();
            p.checked_sub(1)
        };
    }
}
