//! Keys sampled of memtables, weighed so that they stand for all writes ([`super::ranges`]).
//!
//! Memory has of a part what was written since its last flush. Parts that get many writes are
//! flushed or folded the most often, so of all that is in memory little is theirs, and of the older
//! half of it nothing may be. Within a part what is there does tell what its writes are like, and
//! how many the part gets its counters say. So each key counts for as many writes as the part has
//! counted for each of its keys, and what is older and what is newer is told part by part. Of a
//! part that was just flushed memory has too little; there the counters of its tiny ranges do,
//! unless one of these gets more than an even share.

use thermocline_model::key::SeqNo;
use thermocline_model::triggers::RecutTriggers;
use thermocline_model::version::Tiny;

/// A key, and the writes that it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Weighed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How many writes.
    pub writes: f64,
    /// Whether it is not one key but where a tiny range begins, all of whose keys it stands for.
    pub is_range: bool,
}

/// What is sampled of the writes to a part.
#[derive(Clone, Debug, Default)]
pub struct PartSample {
    /// Keys ascending, each with the number of its entry.
    pub entries: Vec<(Box<[u8]>, SeqNo)>,
    /// The writes that the part has counted.
    pub tiny: Vec<Tiny>,
}

impl PartSample {
    /// Its entries as far as they are wanted, weighed; its tiny ranges where these are so few that
    /// one would stand for more writes than `most`.
    fn weighed(&self, most: f64, wanted: impl Fn(SeqNo) -> bool) -> Vec<Weighed<'_>> {
        let tiny = self.tiny.iter().filter(|tiny| tiny.writes > 0);
        if self.is_short(most) {
            let weighed = tiny.map(|tiny| Weighed {
                key: &tiny.start,
                writes: tiny.writes as f64,
                is_range: true,
            });
            return weighed.collect();
        }
        let entries = self.entries.iter().filter(|(_, seq)| wanted(*seq));
        let keys: Vec<&[u8]> = entries.map(|(key, _)| &**key).collect();
        let writes = self.counted() / keys.len().max(1) as f64;
        let weighed = keys.into_iter().map(|key| Weighed {
            key,
            writes,
            is_range: false,
        });
        weighed.collect()
    }

    /// Whether an entry of a half of it would stand for more writes than `most`.
    fn is_short(&self, most: f64) -> bool {
        self.counted() / (self.entries.len() / 2).max(1) as f64 > most
    }

    /// What counts no writes has at least those that were sampled.
    fn counted(&self) -> f64 {
        let writes: u64 = self.tiny.iter().map(|tiny| tiny.writes).sum();
        match self.entries.is_empty() {
            true => writes as f64,
            false => writes.max(1) as f64,
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

    fn counted(&self) -> f64 {
        self.parts.iter().map(PartSample::counted).sum()
    }

    /// The writes that a key may stand for at most where there are so many memtables, so that
    /// chance makes none a hot one.
    fn most(&self, slots: usize, triggers: &RecutTriggers) -> f64 {
        let keys = slots.max(1).saturating_mul(triggers.part_keys_min.max(1));
        self.counted() / keys as f64
    }

    /// All of it, keys ascending. Here and below `slots` is how many memtables take writes now.
    #[must_use]
    pub fn all(&self, slots: usize, triggers: &RecutTriggers) -> Vec<Weighed<'_>> {
        let most = self.most(slots, triggers);
        let parts = self.parts.iter();
        parts
            .flat_map(|part| part.weighed(most, |_| true))
            .collect()
    }

    /// What was written before the middle of each part's entries, and what after. Either stands for
    /// all writes.
    #[must_use]
    pub fn halves(
        &self,
        slots: usize,
        triggers: &RecutTriggers,
    ) -> (Vec<Weighed<'_>>, Vec<Weighed<'_>>) {
        let most = self.most(slots, triggers);
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        for part in &self.parts {
            let middle = part.middle();
            older.extend(part.weighed(most, |seq| seq < middle));
            newer.extend(part.weighed(most, |seq| seq >= middle));
        }
        (older, newer)
    }

    /// Whether its halves can tell how evenly writes come to the memtables: no tiny range with more
    /// than an even share lacks keys by which it could be divided.
    #[must_use]
    pub fn is_enough(&self, slots: usize, triggers: &RecutTriggers) -> bool {
        let even = self.counted() / slots.max(1) as f64;
        let most = self.most(slots, triggers);
        let mut parts = self.parts.iter();
        let is_coarse = |part: &PartSample| part.tiny.iter().any(|t| t.writes as f64 > even);
        self.keys() / 2 >= triggers.half_keys_min
            && !parts.any(|p| p.is_short(most) && is_coarse(p))
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
            tiny: vec![Tiny {
                start: start.to_string().into_bytes().into(),
                writes,
            }],
        }
    }

    fn writes_of(keys: &[Weighed<'_>], start: u8) -> f64 {
        let keys = keys.iter().filter(|k| k.key[0] == start);
        keys.map(|k| k.writes).sum()
    }

    #[test]
    fn each_part_has_the_writes_that_it_counted_in_all_of_the_sample_and_in_each_half() {
        let sample = Sample {
            parts: vec![part('a', 100, 9000), part('b', 1000, 1000)],
        };
        let usual = RecutTriggers::default();
        let (older, newer) = sample.halves(2, &usual);
        assert_eq!((older.len(), newer.len()), (550, 550));
        for keys in [&older, &newer, &sample.all(2, &usual)] {
            assert!((writes_of(keys, b'a') - 9000.0).abs() < 1e-6);
            assert!((writes_of(keys, b'b') - 1000.0).abs() < 1e-6);
            assert!(keys.is_sorted_by_key(|k| k.key));
        }
        assert!(
            older
                .iter()
                .all(|k| k.key < &b"a0050"[..] || k.key[0] == b'b')
        );
    }

    #[test]
    fn a_sample_that_lacks_the_keys_of_a_hot_part_tells_nothing() {
        let usual = &RecutTriggers::default();
        let enough = |hot_keys, slots| {
            let parts = vec![part('a', hot_keys, 500), part('b', 1000, 500)];
            Sample { parts }.is_enough(slots, usual)
        };
        assert!(enough(1000, 8) && enough(32, 8));
        assert!(!enough(31, 8) && !enough(0, 8));
        assert!(enough(1000, 60) && !enough(100, 60));
        // A part that gets no more than an even share may lack keys, and counts as it has counted.
        let parts = vec![part('a', 0, 100), part('b', 1000, 900), part('c', 0, 0)];
        let sample = Sample { parts };
        assert!(sample.is_enough(8, usual));
        let (older, newer) = sample.halves(8, usual);
        for keys in [older, newer, sample.all(8, usual)] {
            assert!((writes_of(&keys, b'a') - 100.0).abs() < 1e-6);
        }
        assert!(!Sample::default().is_enough(1, usual));
        let one = |keys, writes| Sample {
            parts: vec![part('a', keys, writes)],
        };
        assert!(!one(62, 0).is_enough(1, usual) && one(64, 0).is_enough(1, usual));
        let counted = one(64, 0)
            .all(1, usual)
            .iter()
            .map(|k| k.writes)
            .sum::<f64>();
        assert!(
            (counted - 1.0).abs() < 1e-9,
            "what counts nothing counts once"
        );
    }

    #[test]
    fn how_many_keys_are_enough_is_a_trigger() {
        let enough = |keys, half_keys_min| {
            let triggers = RecutTriggers {
                half_keys_min,
                ..RecutTriggers::default()
            };
            let parts = vec![part('a', keys, 500)];
            Sample { parts }.is_enough(1, &triggers)
        };
        assert!(enough(200, 100) && !enough(199, 100));
        assert!(enough(8, 4) && !enough(7, 4));
        // A hot part must have as many for each memtable as cuts need, in either half.
        let enough = |hot_keys, part_keys_min| {
            let triggers = RecutTriggers {
                part_keys_min,
                ..RecutTriggers::default()
            };
            let parts = vec![part('a', hot_keys, 500), part('b', 1000, 500)];
            Sample { parts }.is_enough(8, &triggers)
        };
        assert!(enough(80, 10) && !enough(78, 10));
        assert!(enough(8, 1) && !enough(6, 1));
    }
}
