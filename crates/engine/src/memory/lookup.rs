//! The lookup index: of a key, the newest memtable that has it (Nova-LSM, section 4.1.1).
//!
//! Memtables are numbered as they are made, and keep their number when they become
//! tables: the *stamp*. The index says of a key's hash up to which stamp there may be
//! entries of it. A read passes over whatever is newer, without touching it, and goes on
//! from there as it always does. So the index need not know where entries lie now, nor
//! be told when a memtable is flushed or a table is merged away: what the paper keeps a
//! second map for, and enumerates keys for, follows from the order.
//!
//! It is exact in one direction only, which is all that is needed: the answer is never
//! lower than the newest stamp with the key. Two keys with one fingerprint share the
//! higher of their stamps, which costs a look into a memtable or two.
//!
//! A bucket is one line of memory: seven slots, each a fingerprint and a stamp, and the
//! *horizon*, the highest stamp that was ever pushed out of the bucket. A key without a
//! slot may be anywhere up to the horizon. The slot with the lowest stamp is the one that
//! goes, so what goes is mostly the stamp of what has left the newest level long ago.
//! Hence the size is fixed, and nothing is ever removed.
//!
//! Invariants: once [`Lookup::insert`] has returned, every [`Lookup::bound`] of that hash is
//! at least that stamp. A slot is overwritten only after the horizon has reached its stamp;
//! slots are read before the horizon.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Slots of a bucket.
const SLOTS: usize = 7;

/// Bits of a stamp in a slot; the fingerprint stands above.
const STAMP_BITS: u32 = 36;

/// The highest stamp.
const STAMP_MAX: u64 = (1 << STAMP_BITS) - 1;

/// A slot that was never used. No stamp is 0.
const FREE: u64 = 0;

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    slots: [AtomicU64; SLOTS],
    horizon: AtomicU64,
}

/// See the module.
pub struct Lookup {
    buckets: Box<[Bucket]>,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup")
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// The part of a hash that a slot keeps, in its place.
#[inline]
fn fingerprint(hash: u64) -> u64 {
    // Buckets are chosen by the upper bits.
    hash << STAMP_BITS
}

#[inline]
fn stamp(slot: u64) -> u64 {
    slot & STAMP_MAX
}

#[inline]
fn is_of(slot: u64, fingerprint: u64) -> bool {
    slot != FREE && (slot ^ fingerprint) >> STAMP_BITS == 0
}

impl Lookup {
    /// Bytes for each key that it can tell apart.
    pub const BYTES_PER_KEY: usize = size_of::<Bucket>().div_ceil(SLOTS);

    /// An index of about `bytes` bytes: nine for each key that it can tell apart.
    #[must_use]
    pub fn new(bytes: usize) -> Lookup {
        let count = (bytes / size_of::<Bucket>()).max(1);
        Lookup {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
        }
    }

    /// Its memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        let count = self.buckets.len() as u128;
        &self.buckets[((u128::from(hash) * count) >> 64) as usize]
    }

    /// Notes that the memtable with `stamp` has, or is about to have, an entry of a key
    /// with this hash. Requires: a stamp from 1 to 2^36 - 1.
    pub fn insert(&self, hash: u64, with: u64) {
        debug_assert!((1..=STAMP_MAX).contains(&with));
        let bucket = self.bucket(hash);
        let fingerprint = fingerprint(hash);
        let new = fingerprint | with;
        let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
        'again: loop {
            let mut victim = (u64::MAX, 0, 0);
            for (at, slot) in bucket.slots.iter().enumerate() {
                let mut old = slot.load(acquire);
                while is_of(old, fingerprint) {
                    if stamp(old) >= with {
                        return;
                    }
                    match slot.compare_exchange(old, new, release, acquire) {
                        Ok(_) => return,
                        Err(now) => old = now,
                    }
                }
                // A free slot has the lowest stamp of all.
                if stamp(old) < victim.0 {
                    victim = (stamp(old), at, old);
                }
            }
            let (lowest, at, old) = victim;
            if lowest >= with {
                // Older than all that is here: the horizon alone knows of it.
                bucket.horizon.fetch_max(with, release);
                return;
            }
            bucket.horizon.fetch_max(lowest, release);
            let put = bucket.slots[at].compare_exchange(old, new, release, acquire);
            if put.is_err() {
                continue 'again;
            }
            return;
        }
    }

    /// No memtable with a higher stamp has an entry of a key with this hash, as far as
    /// they were noted.
    #[inline]
    #[must_use]
    pub fn bound(&self, hash: u64) -> u64 {
        let bucket = self.bucket(hash);
        let fingerprint = fingerprint(hash);
        let mut bound = 0;
        for slot in &bucket.slots {
            let slot = slot.load(Ordering::Acquire);
            if is_of(slot, fingerprint) {
                bound = bound.max(stamp(slot));
            }
        }
        bound.max(bucket.horizon.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[test]
    fn a_key_that_was_noted_is_never_bounded_below_its_stamp() {
        // From nearly empty to fifty times as many keys as there are slots.
        for keys in [10u64, 400, 20_000] {
            let index = Lookup::new(64 * 60);
            let mut newest = vec![0; keys as usize];
            for n in 0..3 * keys {
                let key = hash(n) % keys;
                let stamp = 1 + n / 10;
                index.insert(hash(key), stamp);
                newest[key as usize] = stamp;
                assert!(index.bound(hash(key)) >= stamp);
            }
            for (key, &stamp) in newest.iter().enumerate() {
                assert!(index.bound(hash(key as u64)) >= stamp, "{keys} keys");
            }
        }
    }

    #[test]
    fn with_room_the_bound_is_the_stamp_and_an_absent_key_has_none() {
        let index = Lookup::new(1 << 20);
        for n in 0..50_000 {
            index.insert(hash(n), 1 + n % 64);
        }
        let wrong = (0..50_000).filter(|&n| index.bound(hash(n)) != 1 + n % 64);
        assert!(wrong.count() < 1_000);
        let passed = (50_000..150_000).filter(|&n| index.bound(hash(n)) > 0);
        assert!(passed.count() < 2_000);
    }

    #[test]
    fn old_stamps_make_room_for_new_ones() {
        let index = Lookup::new(1 << 16);
        let slots = (1 << 16) / 64 * SLOTS as u64;
        // Each stamp has half of what there is room for; the last ones are exact.
        for n in 0..20 * slots {
            index.insert(hash(n), 1 + n / (slots / 2));
        }
        let last = 20 * slots - slots / 2;
        assert!((last..20 * slots).all(|n| index.bound(hash(n)) == 40));
        // A bucket of seven gets three and a half keys of each stamp: more than seven of the
        // last in 3 % of them, of the last two together in 40 %.
        let absent = |from: u64| {
            let absent = (20 * slots..21 * slots).filter(|&n| index.bound(hash(n)) >= from);
            absent.count() as f64 / slots as f64
        };
        assert!(absent(40) < 0.05, "{}", absent(40));
        assert!(absent(39) < 0.5, "{}", absent(39));
    }

    #[test]
    fn notes_of_several_threads_all_count() {
        let index = Lookup::new(64 * 16);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let index = &index;
                scope.spawn(move || {
                    for n in 0..20_000u64 {
                        let (key, stamp) = (hash(n % 331), 1 + n / 100 + thread);
                        index.insert(key, stamp);
                        assert!(index.bound(key) >= stamp);
                    }
                });
            }
        });
    }
}
