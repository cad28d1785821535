//! How many parts a keyspace may be cut into where the user names no number, and how
//! large memtables are: both by memory, threads and load.
//!
//! *Memory.* The write buffer is shared by the parts, and the fullest is flushed when half
//! of it is taken, so a flush is about twice the write buffer over their number. It costs
//! a sync of its table and one of the manifest, whatever it holds. So each part has at least
//! [`PART_BYTES_MIN`] of the write buffer; a small one has one part.
//!
//! *Threads.* Merges of different parts run side by side: a few parts for each thread of the
//! background, so that there is one to merge while others are busy.
//!
//! *Tiers.* Where levels lie on a slower device a part that has most of the keys, though no more of
//! the writes than others, is merged for seconds, and writers wait for that while others wait for
//! its thread. The more parts the less is rewritten at a time. So once writers wait for that there
//! are more of them, smaller ones ([`parts_on_tiers`], [`super::waits`]).
//!
//! *Load.* This is only how many parts there may be. There is one until more pay
//! ([`super::waits`]). And cuts are only made if keys written earlier share out those written later
//! ([`super::ranges`]). Keys in order and a single hot key do not pass that, and stay in one part,
//! whose memtables are as large as those of a store that may not be cut.

use thermocline_model::version::Keyspace;

/// Least bytes of the write buffer for each part.
pub const PART_BYTES_MIN: u64 = 1536 << 10;

/// Parts for each thread of the background,
const PARTS_PER_THREAD: usize = 4;

/// and with few threads.
const PARTS_FEW: usize = 10;

/// Least bytes of the write buffer for each part of a store on several tiers. A memtable of the
/// least size may take more than that, but with what memtables are lent while hardly anybody reads,
/// which is when parts pay most, there is room for one of each.
const TIERS_PART_BYTES_MIN: u64 = 192 << 10;

/// The most parts there that are not asked for: those of the paper of Nova-LSM (section 8).
const TIERS_PARTS_MAX: u64 = 64;

/// Least and most bytes of a memtable whose size the user does not give.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

/// Memtables in the write buffer, where these are few enough parts.
const MEMTABLES: u64 = 8;

/// What a memtable may take beyond its capacity: an eighth, and this.
const BEYOND_BYTES: u64 = 256 << 10;

/// What there is to share out.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Memory of all memtables, in bytes.
    pub write_buffer_bytes: u64,
    /// The size of a memtable that the user gave, in bytes.
    pub memtable_bytes: Option<u64>,
    /// Threads of the background.
    pub threads: usize,
}

/// Parts that all keyspaces may have together, at least one.
#[must_use]
pub fn parts_max(means: &Means) -> usize {
    let by_memory = means.write_buffer_bytes / PART_BYTES_MIN;
    let by_threads = PARTS_FEW.max(PARTS_PER_THREAD.saturating_mul(means.threads));
    let fewest = by_memory.min(by_memtables(means)).min(by_threads as u64);
    (fewest as usize).max(1)
}

/// Parts of all keyspaces together that make merges on slower tiers small, at least one.
#[must_use]
pub fn parts_on_tiers(means: &Means) -> usize {
    let by_memory = means.write_buffer_bytes / TIERS_PART_BYTES_MIN;
    let fewest = by_memory.min(by_memtables(means)).min(TIERS_PARTS_MAX);
    (fewest as usize).max(1)
}

/// As many parts as leave half of the memory to sealed memtables.
fn by_memtables(means: &Means) -> u64 {
    let half = means.write_buffer_bytes / 2;
    let bytes = means.memtable_bytes;
    bytes.map_or(u64::MAX, |bytes| half / whole_bytes(bytes))
}

/// What a memtable of this capacity may take.
fn whole_bytes(capacity: u64) -> u64 {
    capacity.saturating_add(capacity / 8 + BEYOND_BYTES)
}

/// Bytes of a memtable in a store of so many parts: an eighth of the write buffer, or less, so
/// that those that take writes fill no more than half of it.
#[must_use]
pub fn memtable_bytes(write_buffer_bytes: u64, parts: u64) -> u64 {
    let eighth = write_buffer_bytes / MEMTABLES;
    let bytes = match parts {
        0 | 1 => eighth,
        parts => {
            let each = write_buffer_bytes / 2 / parts;
            eighth.min(each.saturating_sub(BEYOND_BYTES) / 9 * 8)
        }
    };
    bytes.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
}

/// Whether the parts of `keyspace` were made by its writes, so that all get about as many, and
/// are merged each by itself; cuts that the user gave say nothing about that.
#[must_use]
pub fn are_by_writes(keyspace: &Keyspace) -> bool {
    keyspace.parts.len() > 1 && have_moved(keyspace)
}

/// Whether the cuts of `keyspace` are what its writes have made them, though it may be none.
#[must_use]
pub fn have_moved(keyspace: &Keyspace) -> bool {
    keyspace.parts.iter().any(|part| !part.tiny.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn parts(write_buffer_bytes: u64, threads: usize) -> usize {
        parts_max(&Means {
            write_buffer_bytes,
            memtable_bytes: None,
            threads,
        })
    }

    #[test]
    fn parts_grow_with_memory_up_to_a_few_for_each_thread() {
        assert_eq!(parts(64 << 10, 2), 1);
        assert_eq!(parts(2 * MIB, 2), 1);
        assert_eq!(parts(6 * MIB, 2), 4);
        assert_eq!(parts(64 * MIB, 2), 10);
        assert_eq!(parts(64 * MIB, 0), 10);
        assert_eq!(parts(64 * MIB, 8), 32);
        assert_eq!(parts(6 * MIB, 64), 4);
        let grow = (0..20).map(|doublings| parts(MIB << doublings, 64));
        assert!(grow.collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn on_several_tiers_there_are_more_and_smaller_ones_up_to_those_of_the_paper() {
        let on_tiers = |write_buffer_bytes, memtable_bytes| {
            parts_on_tiers(&Means {
                write_buffer_bytes,
                memtable_bytes,
                threads: 2,
            })
        };
        assert_eq!(
            [0, MIB, 2 * MIB].map(|bytes| on_tiers(bytes, None)),
            [1, 5, 10]
        );
        assert_eq!(on_tiers(6 * MIB, None), 32);
        assert_eq!(
            [11, 12, 14].map(|mib| on_tiers(mib * MIB, None)),
            [58, 64, 64]
        );
        assert_eq!(on_tiers(u64::MAX, None), 64);
        // Of a size that was given they fill no more than half.
        assert_eq!(on_tiers(64 * MIB, Some(MIB)), 23);
        assert_eq!(on_tiers(64 * MIB, Some(16 * MIB)), 1);
    }

    #[test]
    fn memtables_of_a_given_size_leave_half_of_the_memory() {
        let with = |bytes| {
            parts_max(&Means {
                write_buffer_bytes: 64 * MIB,
                memtable_bytes: Some(bytes),
                threads: 2,
            })
        };
        assert_eq!(with(MIB), 10);
        assert_eq!(with(8 * MIB), 3);
        assert_eq!(with(32 * MIB), 1);
        assert_eq!(with(64 * MIB), 1);
    }

    #[test]
    fn memtables_that_take_writes_fill_half_of_the_memory_at_most() {
        assert_eq!(memtable_bytes(64 * MIB, 1), 8 * MIB);
        for write_buffer_bytes in (0..12).map(|doublings| MIB << doublings) {
            let parts = parts(write_buffer_bytes, 16) as u64;
            for parts in 1..=parts {
                let bytes = memtable_bytes(write_buffer_bytes, parts);
                let taken = parts * (bytes + bytes / 8 + BEYOND_BYTES);
                let one = parts == 1 && taken <= write_buffer_bytes;
                assert!(one || taken <= write_buffer_bytes / 2, "{parts} parts");
            }
        }
    }
}
