//! Range deletes: which keys they cover, and since when.
//!
//! Range deletes overlap freely when written. A [`Cover`] cuts them at each
//! other's ends into fragments that do not overlap, each with the sequence
//! numbers of every range delete over it, so that a question about a key is one
//! binary search. A cover is immutable; [`Cover::with`] makes a new one that
//! shares the untouched fragments.
//!
//! Invariants: fragments are in key order, not empty, and do not overlap; their
//! numbers descend, without repeats; two fragments that touch differ in numbers,
//! so that each is as wide as its answer holds.
//!
//! Memory grows with the sum of range deletes over each fragment: the square of
//! their count when all are nested. [`Cover::bytes`] says how much it is, and
//! whoever keeps a cover bounds it.

use std::sync::Arc;

use crate::key::SeqNo;

/// Every key from `start` up to `end`, exclusive, has no value older than `seq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeDelete {
    /// The first key deleted.
    pub start: Box<[u8]>,
    /// The first key after it that is not.
    pub end: Box<[u8]>,
    /// When.
    pub seq: SeqNo,
}

#[derive(PartialEq, Eq, Debug)]
struct Fragment {
    start: Box<[u8]>,
    end: Box<[u8]>,
    /// Descending.
    seqs: Box<[SeqNo]>,
}

impl Fragment {
    fn new(start: &[u8], end: &[u8], seqs: &[SeqNo]) -> Arc<Fragment> {
        Arc::new(Fragment {
            start: start.into(),
            end: end.into(),
            seqs: seqs.into(),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Fragment>() + self.start.len() + self.end.len() + size_of_val(&*self.seqs)
    }
}

/// A set of range deletes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Cover {
    fragments: Vec<Arc<Fragment>>,
    bytes: usize,
}

/// The interval around a key in which a [`Cover`] gives one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constancy<'a> {
    /// Its first key; `None` is before every key.
    pub low: Option<&'a [u8]>,
    /// The first key after it; `None` is after every key.
    pub high: Option<&'a [u8]>,
    /// The numbers of the range deletes over it, descending.
    pub seqs: &'a [SeqNo],
}

impl Cover {
    /// The cover of `range_deletes`. One whose end is not after its start covers
    /// nothing.
    #[must_use]
    pub fn new(range_deletes: &[RangeDelete]) -> Cover {
        Cover::from_pieces(
            range_deletes
                .iter()
                .map(|one| (&*one.start, &*one.end, one.seq))
                .collect(),
        )
    }

    /// This cover with `added`.
    #[must_use]
    pub fn with(&self, added: &RangeDelete) -> Cover {
        let (start, end) = (&*added.start, &*added.end);
        if start >= end {
            return self.clone();
        }
        let first = self.fragments.partition_point(|f| *f.end <= *start);
        let after = self.fragments.partition_point(|f| *f.start < *end);
        let mut builder = Builder::default();
        builder.fragments.reserve(self.fragments.len() + 3);
        for fragment in &self.fragments[..first] {
            builder.push_shared(fragment);
        }
        let mut at = start;
        for fragment in &self.fragments[first..after] {
            if *fragment.start < *start {
                builder.push(&fragment.start, start, &fragment.seqs);
            } else if at < &*fragment.start {
                builder.push(at, &fragment.start, &[added.seq]);
            }
            let low = start.max(&fragment.start);
            let high = end.min(&fragment.end);
            builder.push(low, high, &insert_descending(&fragment.seqs, added.seq));
            if end < &*fragment.end {
                builder.push(end, &fragment.end, &fragment.seqs);
            }
            at = high;
        }
        if at < end {
            builder.push(at, end, &[added.seq]);
        }
        for fragment in &self.fragments[after..] {
            builder.push_shared(fragment);
        }
        builder.finish()
    }

    /// The part of this cover from `start` up to `end`, exclusive; `None` is
    /// without bound.
    #[must_use]
    pub fn clip(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Cover {
        let mut builder = Builder::default();
        for fragment in &self.fragments {
            let low = start.map_or(&*fragment.start, |start| start.max(&fragment.start));
            let high = end.map_or(&*fragment.end, |end| end.min(&fragment.end));
            if low == &*fragment.start && high == &*fragment.end {
                builder.push_shared(fragment);
            } else if low < high {
                builder.push(low, high, &fragment.seqs);
            }
        }
        builder.finish()
    }

    /// The range deletes of all `covers` together.
    #[must_use]
    pub fn merge<'a>(covers: impl IntoIterator<Item = &'a Cover>) -> Cover {
        let mut some = covers.into_iter().filter(|cover| !cover.is_empty());
        let Some(first) = some.next() else {
            return Cover::default();
        };
        let Some(second) = some.next() else {
            return first.clone();
        };
        Cover::from_pieces(
            [first, second]
                .into_iter()
                .chain(some)
                .flat_map(Cover::fragments)
                .flat_map(|(start, end, seqs)| seqs.iter().map(move |&seq| (start, end, seq)))
                .collect(),
        )
    }

    /// The newest range delete over `key` with a number up to `snapshot`.
    #[must_use]
    pub fn newest(&self, key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        let seqs = self.constancy_at(key).seqs;
        seqs.get(seqs.partition_point(|&seq| seq > snapshot))
            .copied()
    }

    /// The fragment, or the gap between fragments, that `key` lies in: a scan
    /// need not ask again until it leaves it.
    #[must_use]
    pub fn constancy_at(&self, key: &[u8]) -> Constancy<'_> {
        let after = self.fragments.partition_point(|f| *f.start <= *key);
        let before = after.checked_sub(1).map(|i| &*self.fragments[i]);
        if let Some(fragment) = before
            && *key < *fragment.end
        {
            return Constancy {
                low: Some(&fragment.start),
                high: Some(&fragment.end),
                seqs: &fragment.seqs,
            };
        }
        Constancy {
            low: before.map(|fragment| &*fragment.end),
            high: self.fragments.get(after).map(|fragment| &*fragment.start),
            seqs: &[],
        }
    }

    /// Start, end (exclusive) and numbers (descending) of each fragment in key
    /// order.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8], &[SeqNo])> {
        self.fragments
            .iter()
            .map(|f| (&*f.start, &*f.end, &*f.seqs))
    }

    /// Fragments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// True when nothing is covered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sweeps over the ends of all pieces, with the numbers open at each.
    fn from_pieces(mut pieces: Vec<(&[u8], &[u8], SeqNo)>) -> Cover {
        pieces.retain(|(start, end, _)| start < end);
        let mut bounds: Vec<&[u8]> = pieces.iter().flat_map(|p| [p.0, p.1]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut opening = pieces;
        opening.sort_unstable();
        let mut closing: Vec<(&[u8], SeqNo)> = opening.iter().map(|p| (p.1, p.2)).collect();
        closing.sort_unstable();
        let mut opening = opening.into_iter().peekable();
        let mut closing = closing.into_iter().peekable();
        // Descending, with repeats: pieces may share a number.
        let mut open: Vec<SeqNo> = Vec::new();
        let mut seqs: Vec<SeqNo> = Vec::new();
        let mut builder = Builder::default();
        for pair in bounds.windows(2) {
            while let Some((_, seq)) = closing.next_if(|p| p.0 <= pair[0]) {
                open.remove(open.partition_point(|&other| other > seq));
            }
            while let Some((_, _, seq)) = opening.next_if(|p| p.0 <= pair[0]) {
                open.insert(open.partition_point(|&other| other > seq), seq);
            }
            if !open.is_empty() {
                seqs.clone_from(&open);
                seqs.dedup();
                builder.push(pair[0], pair[1], &seqs);
            }
        }
        builder.finish()
    }
}

/// `seqs` with `added` in its place.
fn insert_descending(seqs: &[SeqNo], added: SeqNo) -> Vec<SeqNo> {
    let at = seqs.partition_point(|&seq| seq > added);
    let mut all = Vec::with_capacity(seqs.len() + 1);
    all.extend_from_slice(&seqs[..at]);
    if seqs.get(at) != Some(&added) {
        all.push(added);
    }
    all.extend_from_slice(&seqs[at..]);
    all
}

/// Puts fragments one after another, joining those that touch and are alike.
#[derive(Default)]
struct Builder {
    fragments: Vec<Arc<Fragment>>,
    bytes: usize,
}

impl Builder {
    fn push(&mut self, start: &[u8], end: &[u8], seqs: &[SeqNo]) {
        if !self.join(start, end, seqs) {
            self.append(Fragment::new(start, end, seqs));
        }
    }

    fn push_shared(&mut self, fragment: &Arc<Fragment>) {
        if !self.join(&fragment.start, &fragment.end, &fragment.seqs) {
            self.append(Arc::clone(fragment));
        }
    }

    fn append(&mut self, fragment: Arc<Fragment>) {
        self.bytes += fragment.bytes();
        self.fragments.push(fragment);
    }

    fn join(&mut self, start: &[u8], end: &[u8], seqs: &[SeqNo]) -> bool {
        let Some(last) = self
            .fragments
            .pop_if(|last| *last.end == *start && *last.seqs == *seqs)
        else {
            return false;
        };
        self.bytes -= last.bytes();
        self.append(Fragment::new(&last.start, end, seqs));
        true
    }

    fn finish(self) -> Cover {
        Cover {
            fragments: self.fragments,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    fn random(dice: &mut Dice, n: u64) -> Vec<RangeDelete> {
        (0..n)
            .map(|_| RangeDelete {
                start: Box::from([dice.below(40) as u8]),
                end: Box::from([dice.below(40) as u8]),
                seq: SeqNo(1 + dice.below(30)),
            })
            .collect()
    }

    fn brute(all: &[RangeDelete], key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        all.iter()
            .filter(|d| *d.start <= *key && *key < *d.end && d.seq <= snapshot)
            .map(|d| d.seq)
            .max()
    }

    fn check(cover: &Cover) {
        let all: Vec<_> = cover.fragments().collect();
        assert!(all.iter().all(|f| f.0 < f.1 && !f.2.is_empty()));
        assert!(all.iter().all(|f| f.2.windows(2).all(|w| w[0] > w[1])));
        for pair in all.windows(2) {
            assert!(pair[0].1 < pair[1].0 || (pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2));
        }
        let bytes: usize = cover.fragments.iter().map(|f| f.bytes()).sum();
        assert_eq!(bytes, cover.bytes());
    }

    #[test]
    fn a_cover_answers_as_looking_at_every_range_delete_does() {
        for seed in 1..200u64 {
            let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let count = dice.below(12);
            let all = random(&mut dice, count);
            let cover = Cover::new(&all);
            check(&cover);
            let one_by_one = all.iter().fold(Cover::default(), |c, d| c.with(d));
            check(&one_by_one);
            assert_eq!(cover, one_by_one, "seed {seed}: {all:?}");
            let half = all.len() / 2;
            let parts = [Cover::new(&all[..half]), Cover::new(&all[half..])];
            assert_eq!(cover, Cover::merge(&parts), "seed {seed}: {all:?}");
            let bounds = [dice.below(40) as u8, dice.below(40) as u8];
            let clipped = cover.clip(Some(&bounds[..1]), Some(&bounds[1..]));
            check(&clipped);
            assert_eq!(cover.clip(None, None), cover);
            for key in 0..41u8 {
                for snapshot in [0, 5, 17, 31].map(SeqNo) {
                    let expected = brute(&all, &[key], snapshot);
                    assert_eq!(
                        cover.newest(&[key], snapshot),
                        expected,
                        "seed {seed} key {key} snapshot {snapshot}: {all:?}"
                    );
                    let inside = (bounds[0]..bounds[1]).contains(&key);
                    assert_eq!(
                        clipped.newest(&[key], snapshot),
                        expected.filter(|_| inside),
                        "seed {seed} key {key} snapshot {snapshot} in {bounds:?}: {all:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn constancy_is_the_widest_interval_of_one_answer() {
        let delete = |start: &str, end: &str, seq| RangeDelete {
            start: start.as_bytes().into(),
            end: end.as_bytes().into(),
            seq: SeqNo(seq),
        };
        let cover = Cover::new(&[
            delete("c", "m", 5),
            delete("g", "p", 9),
            delete("t", "v", 2),
        ]);
        let at = |key: &str| {
            let found = cover.constancy_at(key.as_bytes());
            (found.low, found.high, found.seqs.to_vec())
        };
        assert_eq!(at("a"), (None, Some(&b"c"[..]), vec![]));
        assert_eq!(at("c"), (Some(&b"c"[..]), Some(&b"g"[..]), vec![SeqNo(5)]));
        assert_eq!(
            at("hh"),
            (Some(&b"g"[..]), Some(&b"m"[..]), vec![SeqNo(9), SeqNo(5)])
        );
        assert_eq!(at("p"), (Some(&b"p"[..]), Some(&b"t"[..]), vec![]));
        assert_eq!(at("z"), (Some(&b"v"[..]), None, vec![]));
        assert_eq!(
            Cover::default().constancy_at(b"x"),
            Constancy {
                low: None,
                high: None,
                seqs: &[]
            }
        );
    }
}
