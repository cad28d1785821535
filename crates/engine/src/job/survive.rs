//! Which entries survive a flush or merge.
//!
//! The snapshots that readers hold divide the sequence numbers into stripes. A
//! reader sees at most the newest entry of a stripe, so of each key's versions
//! in one stripe the newest survives. A version covered by a newer range
//! delete of its own stripe goes too. A delete in the oldest stripe goes if no
//! table below can hold an older version of its key.
//!
//! `Requires:` the snapshots were read when every entry of the input was
//! already visible: a snapshot taken later sees the newest version of each key,
//! which always survives.

use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::key::{Kind, SeqNo};

use super::below::Below;

pub(crate) struct Survivors<'a> {
    /// Ascending.
    snapshots: Vec<SeqNo>,
    cover: &'a Cover,
    /// Tables that may hold older entries; none means "everywhere".
    below: Option<Below>,
    key: Vec<u8>,
    has_key: bool,
    is_new_key: bool,
    /// The stripe of the last version of `key`.
    stripe: usize,
}

impl<'a> Survivors<'a> {
    pub(crate) fn new(
        snapshots: Vec<SeqNo>,
        cover: &'a Cover,
        below: Option<Below>,
    ) -> Survivors<'a> {
        Survivors {
            snapshots,
            cover,
            below,
            key: Vec::new(),
            has_key: false,
            is_new_key: false,
            stripe: 0,
        }
    }

    #[inline]
    fn stripe_of(&self, seq: SeqNo) -> usize {
        if self.snapshots.is_empty() {
            0
        } else {
            self.snapshots.partition_point(|&s| s < seq)
        }
    }

    /// Whether the entry survives. Requires: entries come in order.
    #[inline]
    pub(crate) fn keeps(&mut self, key: &[u8], seq: SeqNo, kind: Kind) -> bool {
        let stripe = self.stripe_of(seq);
        if self.has_key && self.key == key {
            self.is_new_key = false;
            if stripe == self.stripe {
                return false;
            }
        } else {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.has_key = true;
            self.is_new_key = true;
        }
        self.stripe = stripe;
        if !self.cover.is_empty() && self.is_covered(key, seq, stripe) {
            return false;
        }
        !(kind == Kind::Delete
            && stripe == 0
            && self
                .below
                .as_mut()
                .is_some_and(|below| !below.may_hold(key)))
    }

    /// Whether the last entry asked about was the first of its key.
    #[inline]
    pub(crate) fn is_new_key(&self) -> bool {
        self.is_new_key
    }

    /// Whether a whole block with these keys, each once and none deleted, can
    /// pass unseen.
    pub(crate) fn passes_block(&self, first: &[u8], last: &[u8]) -> bool {
        let fresh = !self.has_key || &*self.key < first;
        fresh
            && (self.cover.is_empty()
                || self.cover.clip(Some(first), Some(last)).is_empty()
                    && self.cover.newest(last, SeqNo::MAX).is_none())
    }

    /// Notes that a block that ends with `last` passed unseen.
    pub(crate) fn passed_block(&mut self, last: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(last);
        self.has_key = true;
    }

    /// Whether a range delete of the entry's own stripe is newer than it.
    fn is_covered(&self, key: &[u8], seq: SeqNo, stripe: usize) -> bool {
        // The newest one that the stripe's readers see.
        let limit = self.snapshots.get(stripe).copied().unwrap_or(SeqNo::MAX);
        self.cover.newest(key, limit).is_some_and(|c| c > seq)
    }

    /// The range deletes that survive: the newest of each stripe, and none in
    /// the oldest stripe where nothing older lies below.
    pub(crate) fn cover_to_write(&self, cover: &Cover) -> Cover {
        let mut kept = Vec::new();
        for (start, end, seqs) in cover.fragments() {
            let mut last_stripe = None;
            for &seq in seqs {
                let stripe = self.stripe_of(seq);
                if last_stripe == Some(stripe) {
                    continue;
                }
                last_stripe = Some(stripe);
                let useless = stripe == 0
                    && self
                        .below
                        .as_ref()
                        .is_some_and(|b| !b.may_overlap(start, end));
                if !useless {
                    kept.push(RangeDelete {
                        start: start.into(),
                        end: end.into(),
                        seq,
                    });
                }
            }
        }
        Cover::new(&kept)
    }
}
