//! Room on the fast tier with `logstore`: how much is made at once, when, and what is left of it.
//!
//! A flush for which the first tier has no room waits ([`super::flush`]), and a merge that makes
//! some takes seconds on a slow disk. Begun when there is none left, it kept writers standing for
//! all of them. So it begins while there is room for what is flushed meanwhile, if it rewrites no
//! more than it takes ([`wanted_bytes`]), and writers are slowed as that fills ([`flush_room`]).

use thermocline_model::view::View;

use crate::cost::compaction::{Device, Work};
use crate::place::fill::Fill;
use crate::plan::fast_levels::Share;
use crate::pressure::Room;

/// Of what the fast levels may hold, the share that is made free at once, at most.
const ROOM_SHARE: f64 = 0.4;

/// Seconds of writing that room is made for at once. What is free is not read from, so a store
/// that is mostly read keeps little free.
const ROOM_S: f64 = 15.0;

/// Flushes for which room is made at least.
const ROOM_MIN: u64 = 2;

/// Tables of full size that one merge takes from the fast levels, at most.
pub(super) const TABLES_MAX: u64 = 64;

/// Bytes that are made free at once in fast levels that may hold so many, while the store is
/// written to.
#[must_use]
pub fn room_bytes(view: &View<'_>, limit_bytes: u64) -> u64 {
    let table_bytes = view.shape.table_bytes;
    let coming = (view.flushed_bytes_per_s * ROOM_S) as u64;
    let most = (limit_bytes as f64 * ROOM_SHARE) as u64;
    let least = ROOM_MIN.saturating_mul(view.shape.flush_bytes);
    (coming.max(least)).min(most).min(TABLES_MAX * table_bytes)
}

/// Of these, what is kept for writes alone: nothing while the store rests.
#[must_use]
pub fn kept_bytes(view: &View<'_>, limit_bytes: u64) -> u64 {
    match view.idle {
        true => 0,
        false => room_bytes(view, limit_bytes),
    }
}

/// What is left of the first of several tiers for flushes that wait for it, where fast levels take
/// `share`: nothing when the next one has to wait. `None` where none ever does.
#[must_use]
pub fn flush_room(view: &View<'_>, share: &Share) -> Option<Room> {
    let [first, _, ..] = view.tiers else {
        return None;
    };
    let next = view.shape.flush_bytes;
    if first.capacity_bytes < next {
        return None;
    }
    let by_capacity = first.capacity_bytes.saturating_sub(Fill::of(view).used[0]);
    let by_device = first.device_free_bytes.saturating_sub(first.reserve_bytes);
    let free_bytes = by_capacity.min(by_device).saturating_sub(next);
    let room = room_bytes(view, share.limit_bytes);
    let with_room = free_bytes.saturating_add(share.fast_bytes.saturating_add(room));
    let bytes = with_room.saturating_sub(share.limit_bytes).max(free_bytes);
    (bytes > 0).then_some(Room { free_bytes, bytes })
}

/// Bytes that are to leave fast levels that take `share`, 0 for none. They leave when there are
/// more than there may be; and, with deferred compaction, so many at once that as much is free then
/// as a merge makes, once what is flushed while that merge runs would have to wait.
#[must_use]
pub fn wanted_bytes(view: &View<'_>, share: &Share, deferred: bool) -> u64 {
    let excess = share.excess_bytes();
    let is_written = deferred && !view.idle;
    let room = room_bytes(view, share.limit_bytes);
    match (excess, is_written) {
        (0, false) => 0,
        (0, true) => {
            let bytes = room.saturating_sub(share.free_bytes());
            // Half of it at least, or there would be many small merges.
            let pays = view.tiers.len() > 1 && bytes > room / 2;
            if pays && is_late(view, share, bytes) {
                bytes
            } else {
                0
            }
        }
        // Table by table.
        (_, false) if !deferred => 1,
        // Nothing is about to take the room.
        (_, false) => excess,
        (_, true) => excess.max(room),
    }
}

/// Whether flushes will have to wait before a merge that frees so many `bytes` has ended, if it
/// begins now. With keys spread evenly it rewrites the share of the last level that it takes of the
/// fast ones; but those that overlap least go first, which under a skew is about as much as goes
/// down.
fn is_late(view: &View<'_>, share: &Share, bytes: u64) -> bool {
    let taken = bytes as f64 / share.fast_bytes.max(bytes).max(1) as f64;
    let below = share.total_bytes.saturating_sub(share.fast_bytes);
    let rewritten = bytes.min((below as f64 * taken) as u64);
    let work = Work {
        tables: 1,
        read_bytes: rewritten,
        written_bytes: rewritten.saturating_add(bytes),
    };
    let slow = Device::of(view.tiers).get(1).copied();
    let seconds = slow.map_or(0.0, |device| work.seconds(device));
    let coming = view.flushed_bytes_per_s.max(0.0) * seconds;
    flush_room(view, share).is_some_and(|room| coming > room.free_bytes as f64)
}
