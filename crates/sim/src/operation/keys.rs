//! The keys and values of a run: few enough that operations meet, and of the
//! kinds that engines have stumbled over.

use crate::Dice;
use crate::oracle::Bytes;

/// Longest key that a run draws now and then, in bytes.
const LONG_KEY_BYTES: usize = 64 << 10;

/// How the keys of a run look.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `k00042`.
    Plain,
    /// Numbers in eight bytes, mostly 0x00.
    Binary,
    /// A long prefix that all share, and a short rest that may be empty.
    Prefixed,
    /// Each the prefix of the next: `a`, `aa`, `aaa`.
    Nested,
    /// Only 0x00 and 0xff.
    Extreme,
    /// All of these.
    Mixed,
}

/// The keys of a run: key number `n` is always the same.
#[derive(Clone, Debug)]
pub struct Keys {
    kind: Kind,
    count: u64,
    /// Percent of the draws that go to a tenth of the keys.
    skew: u64,
    prefix: Vec<u8>,
    long_keys: bool,
    /// Bytes of an ordinary value, at most.
    value_bytes: u64,
}

impl Keys {
    /// Draws what the keys of a run look like.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Keys {
        let kinds = [
            Kind::Plain,
            Kind::Binary,
            Kind::Prefixed,
            Kind::Nested,
            Kind::Extreme,
            Kind::Mixed,
            Kind::Mixed,
        ];
        let prefix_bytes = dice.one_of(&[1, 7, 8, 30, 300]);
        let fill = dice.one_of(&[0, b'p', 0xff]);
        Keys {
            kind: dice.one_of(&kinds),
            count: dice.one_of(&[10, 40, 40, 200, 1000, 3000]),
            skew: dice.one_of(&[0, 50, 90]),
            prefix: vec![fill; prefix_bytes],
            long_keys: dice.percent(15),
            value_bytes: dice.one_of(&[10, 100, 400, 1500]),
        }
    }

    fn make(&self, kind: Kind, n: u64) -> Vec<u8> {
        match kind {
            Kind::Plain => format!("k{n:05}").into_bytes(),
            Kind::Binary => n.to_be_bytes().to_vec(),
            Kind::Prefixed => {
                let mut key = self.prefix.clone();
                let rest = format!("{n}");
                key.extend_from_slice(if n == 0 { b"" } else { rest.as_bytes() });
                key
            }
            Kind::Nested => vec![b'a'; n as usize % 300 + 1],
            Kind::Extreme => {
                let bits = (1..=n % 9 + 1).map(|bit| if n >> bit & 1 == 1 { 0xff } else { 0 });
                bits.collect()
            }
            Kind::Mixed => {
                let kinds = [
                    Kind::Plain,
                    Kind::Binary,
                    Kind::Prefixed,
                    Kind::Nested,
                    Kind::Extreme,
                ];
                self.make(kinds[(n % 5) as usize], n / 5)
            }
        }
    }

    /// A key.
    pub fn key(&self, dice: &mut Dice) -> Bytes {
        let few = dice.percent(self.skew);
        let n = dice.below(if few { self.count / 10 } else { self.count });
        if self.long_keys && dice.below(200) == 0 {
            let mut key = self.make(self.kind, n);
            key.resize(LONG_KEY_BYTES - (n % 2) as usize, b'l');
            return key.into();
        }
        self.make(self.kind, n).into()
    }

    /// The beginning of a key; empty now and then.
    pub fn prefix(&self, dice: &mut Dice) -> Bytes {
        let key = self.key(dice);
        let keep = dice.below(key.len().min(400) as u64 + 1) as usize;
        key[..keep].into()
    }

    /// How many there are, long ones not counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Two keys, the first before the second: mostly near each other, so that a
    /// range delete leaves something.
    pub fn pair(&self, dice: &mut Dice) -> (Bytes, Bytes) {
        let start = self.key(dice);
        let end = if dice.percent(90) {
            let mut near = start.to_vec();
            match dice.below(3) {
                0 => near.push(0),
                1 => near.push(0xff),
                _ => {
                    let last = near.pop().unwrap_or(0);
                    near.push(last.saturating_add(2));
                }
            }
            near.truncate(LONG_KEY_BYTES);
            near.into()
        } else {
            self.key(dice)
        };
        match start.cmp(&end) {
            std::cmp::Ordering::Less => (start, end),
            std::cmp::Ordering::Greater => (end, start),
            std::cmp::Ordering::Equal if start.len() > 1 => (start[..1].into(), end),
            std::cmp::Ordering::Equal => {
                let behind = [&start[..], &[0]].concat();
                (start, behind.into())
            }
        }
    }

    /// A value that no other write has, as far as its length allows.
    pub fn value(&self, dice: &mut Dice) -> Bytes {
        let length = match dice.below(200) {
            0..10 => 0,
            10..15 => 3000 + dice.below(9000),
            // Longer than a table.
            15 => 40_000,
            _ => dice.below(self.value_bytes) + 1,
        };
        let mut value = vec![0; length as usize];
        if dice.percent(50) {
            value.fill(dice.next() as u8);
        } else {
            for chunk in value.chunks_mut(8) {
                chunk.copy_from_slice(&dice.next().to_le_bytes()[..chunk.len()]);
            }
        }
        let mark = dice.next().to_le_bytes();
        let marked = value.len().min(8);
        value[..marked].copy_from_slice(&mark[..marked]);
        value.into()
    }

    /// At most `most` cuts, strictly ascending.
    pub fn cuts(&self, dice: &mut Dice, most: u64) -> Vec<Vec<u8>> {
        let count = dice.below(most + 1);
        let mut cuts: Vec<_> = (0..count).map(|_| self.key(dice).to_vec()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_ascend_and_keys_are_lawful() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let keys = Keys::draw(&mut dice);
            for _ in 0..200 {
                let (start, end) = keys.pair(&mut dice);
                assert!(start < end, "seed {seed}");
                for key in [start, end] {
                    assert!((1..=LONG_KEY_BYTES).contains(&key.len()), "seed {seed}");
                }
            }
        }
    }
}
