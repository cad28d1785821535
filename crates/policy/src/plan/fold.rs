//! When to fold memtables instead of flushing them (Nova-LSM, section 4.2).
//!
//! Where few keys are written often, a full memtable is mostly entries that nobody can
//! see any more. A flush would write what is left to a table, which the next flush's
//! would hide; a fold keeps it in memory, in one small memtable, and logs it anew, so
//! that the log can go on without what it was logged in.
//!
//! It is asked when a flush has been chosen, whatever for: it frees memory and log as
//! a flush does. It must gain something: there is a memtable that is no fold's work, so
//! that a fold is never followed by another without writes in between, and what survives
//! is at most half of what is there. And it must be small, as it stays in memory and is
//! logged in one piece.
//!
//! Where options bound the number of sealed memtables, or a part's memory, it must leave room for
//! the next ones: a fold leaves one.
//!
//! The paper folds what has fewer than 100 keys and flushes the rest of a part's
//! memtables. Here it is all of them or none: recency is position (I1), and a memtable
//! that stays must not be older than one that becomes a table above which it would lie.

use thermocline_model::job::{Flush, Fold, Reason};
use thermocline_model::view::{FewKeys, PartLoad, View};

use super::flush::is_crowded;

/// The most that may survive a fold, in bytes.
pub const LIVE_BYTES_MAX: u64 = 1 << 20;

/// The fold that does what `flush` is for; `None` where there is none.
#[must_use]
pub fn instead_of(view: &View<'_>, flush: &Flush) -> Option<Fold> {
    let load = view.memtables.get(&(flush.keyspace, flush.part))?;
    // See the flush job: without a sealed one it takes the active one.
    let with_active = load.active_bytes > 0 && (flush.active || load.sealed == 0);
    let few = keys_of(load, with_active)?;
    let mut bytes = load.sealed_bytes;
    if with_active {
        bytes += load.active_bytes;
    }
    let fresh = load.sealed - load.folded.min(load.sealed) + usize::from(with_active);
    // What is older than the cuts has entries of other parts.
    if load.older || fresh == 0 || few.live_bytes > (bytes / 2).min(LIVE_BYTES_MAX) {
        return None;
    }
    let others = view.sealed.saturating_sub(load.sealed);
    let folded = PartLoad {
        sealed: 1,
        sealed_memory_bytes: few.live_bytes,
        ..*load
    };
    if is_crowded(view, &folded, others.saturating_add(1)) {
        return None;
    }
    let mut reason = Reason::new("few-keys")
        .with("keys", few.keys as f64)
        .with("fold_keys_max", view.shape.fold_keys_max as f64)
        .with("bytes", bytes as f64)
        .with("live_bytes", few.live_bytes as f64);
    // What the flush would have been for.
    reason.numbers.extend(flush.reason.numbers.iter().cloned());
    Some(Fold {
        keyspace: flush.keyspace,
        part: flush.part,
        active: flush.active,
        reason,
    })
}

/// Whether all memtables of a part have few keys.
pub(crate) fn has_few_keys(load: &PartLoad) -> bool {
    keys_of(load, load.active_bytes > 0).is_some()
}

/// The keys of the memtables that would be folded, if each of these has few.
pub(crate) fn keys_of(load: &PartLoad, with_active: bool) -> Option<FewKeys> {
    let sealed = match load.sealed {
        0 => FewKeys::default(),
        _ => load.sealed_few?,
    };
    let active = match with_active {
        true => load.active_few?,
        false => FewKeys::default(),
    };
    Some(FewKeys {
        keys: sealed.keys + active.keys,
        live_bytes: sealed.live_bytes + active.live_bytes,
    })
}
