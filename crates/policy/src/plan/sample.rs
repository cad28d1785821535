//! Keys sampled of memtables, weighed so that they stand for all writes ([`super::ranges`]).
//!
//! Memory has of a part what was written since its last flush. Parts that get many writes are flushed
//! or folded the most often, so of all that is in memory little is theirs, and of the older half of it
//! nothing may be. Within a part what is there does tell what its writes are like, and how many
//! the part gets its counters say. So each key counts for as many writes as the part has counted for each
//! of its keys, and what is older and what is newer is told part by part.

use thermocline_model::key::SeqNo;

/// Keys that each half of a sample must have at least for the one to judge what the other makes.
const HALF_KEYS_MIN: usize = 32;

/// Keys of the sample that each memtable must have at least where cuts are made.
pub(super) const SLOT_KEYS_MIN: usize = 4;

/// A key, and the writes that it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Weighed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How many writes.
    pub writes: f64,
}

/// What is sampled of the writes to a part.
#[derive(Clone, Debug, Default)]
pub struct PartSample {
    /// Keys ascending, each with the number of its entry.
    pub entries: Vec<(Box<[u8]>, SeqNo)>,
    /// The writes that the part has counted.
    pub writes: u64,
}

impl PartSample {
    /// Its entries as far as they are wanted, weighed.
    fn weighed(&self, wanted: impl Fn(SeqNo) -> bool) -> impl Iterator<Item = Weighed<'_>> {
        let entries = self.entries.iter().filter(move |(_, seq)| wanted(*seq));
        let keys: Vec<&[u8]> = entries.map(|(key, _)| &**key).collect();
        let writes = self.counted() / keys.len().max(1) as f64;
        keys.into_iter().map(move |key| Weighed { key, writes })
    }

    /// What counts no writes has at least those that were sampled.
    fn counted(&self) -> f64 {
        match self.entries.is_empty() {
            true => self.writes as f64,
            false => self.writes.max(1) as f64,
        }
    }

    /// The number of the entry in the middle, by age.
    fn middle(&self) -> SeqNo {
        let mut seqs: Vec<SeqNo> = self.entries.iter().map(|(_, seq)| *seq).collect();
        let middle = seqs.len() / 2;
        match seqs.is_empty() {
            true => SeqNo::ZERO,
            false => *seqs.select_nth_unstable(middle).1,
        }
    }
}

/// What is sampled of the writes to a keyspace, part by part.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// In order of keys.
    pub parts: Vec<PartSample>,
}

impl Sample {
    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.parts.iter().map(|part| part.entries.len()).sum()
    }

    /// All of it, keys ascending.
    #[must_use]
    pub fn all(&self) -> Vec<Weighed<'_>> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.weighed(|_| true)).collect()
    }

    /// What was written before the middle of each part's entries, and what after. Either stands for
    /// all writes.
    #[must_use]
    pub fn halves(&self) -> (Vec<Weighed<'_>>, Vec<Weighed<'_>>) {
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        for part in &self.parts {
            let middle = part.middle();
            older.extend(part.weighed(|seq| seq < middle));
            newer.extend(part.weighed(|seq| seq >= middle));
        }
        (older, newer)
    }

    /// Whether its halves can tell how evenly writes come to `slots` memtables: no key stands for so
    /// many writes that chance would make it a hot one, and of no part that gets as many all keys
    /// are missing.
    #[must_use]
    pub fn is_enough(&self, slots: usize) -> bool {
        let all: f64 = self.parts.iter().map(PartSample::counted).sum();
        let most = all / (SLOT_KEYS_MIN * slots.max(1)) as f64;
        let mut parts = self.parts.iter();
        self.keys() / 2 >= HALF_KEYS_MIN
            && parts.all(|part| part.counted() / (part.entries.len() / 2).max(1) as f64 <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `keys` keys that begin with `start`, written in their order.
    fn part(start: char, keys: u64, writes: u64) -> PartSample {
        let entry = |n: u64| (format!("{start}{n:04}").into_bytes().into(), SeqNo(n + 1));
        PartSample {
            entries: (0..keys).map(entry).collect(),
            writes,
        }
    }

    fn writes_of(keys: &[Weighed<'_>], start: u8) -> f64 {
        let keys = keys.iter().filter(|k| k.key[0] == start);
        keys.map(|k| k.writes).sum()
    }

    #[test]
    fn each_part_has_the_writes_that_it_counted_in_all_of_the_sample_and_in_each_half() {
        let sample = Sample {
            parts: vec![part('a', 10, 9000), part('b', 1000, 1000)],
        };
        let (older, newer) = sample.halves();
        assert_eq!((older.len(), newer.len()), (505, 505));
        for keys in [&older, &newer, &sample.all()] {
            assert!((writes_of(keys, b'a') - 9000.0).abs() < 1e-6);
            assert!((writes_of(keys, b'b') - 1000.0).abs() < 1e-6);
            assert!(keys.is_sorted_by_key(|k| k.key));
        }
        assert!(
            older
                .iter()
                .all(|k| k.key < &b"a0005"[..] || k.key[0] == b'b')
        );
    }

    #[test]
    fn a_sample_that_lacks_the_keys_of_a_hot_part_tells_nothing() {
        let enough = |hot_keys, slots| {
            let parts = vec![part('a', hot_keys, 500), part('b', 1000, 500)];
            Sample { parts }.is_enough(slots)
        };
        assert!(enough(1000, 8) && enough(32, 8));
        assert!(!enough(31, 8) && !enough(0, 8));
        assert!(enough(1000, 60) && !enough(100, 60));
        // A part that hardly gets any writes may lack keys.
        let parts = vec![part('a', 0, 10), part('b', 1000, 990), part('c', 0, 0)];
        assert!(Sample { parts }.is_enough(8));
        assert!(!Sample::default().is_enough(1));
        let one = |keys, writes| Sample {
            parts: vec![part('a', keys, writes)],
        };
        assert!(!one(62, 0).is_enough(1) && one(64, 0).is_enough(1));
        let counted = one(64, 0).all().iter().map(|k| k.writes).sum::<f64>();
        assert!(
            (counted - 1.0).abs() < 1e-9,
            "what counts nothing counts once"
        );
    }
}
