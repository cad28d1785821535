//! Room on the first tier for what is flushed, and for what urgent merges write.
//!
//! A flush that finds the first tier full goes to the next one. There it is written slowly, read
//! slowly when it is merged, and read by whoever looks for what is newest meanwhile, while
//! something older keeps the place. So before such a flush a table is moved down: of the deepest
//! level that has one there which makes enough room, the one that the preset chooses
//! ([`super::balance::gives_way`], [`super::migrate::gives_way`]); where no table is so large, the
//! largest. It is the flushes' own thread that moves it, or one beside it where there is one:
//! another may be in a merge for seconds, and of what that writes nothing makes room, as it takes
//! the place of what it reads. What is being moved, or merged down to a slower tier, has made its
//! room already ([`crate::place::fill::Fill::room_for_flush`]), so that flushes that hand it over
//! wait for none of it.
//!
//! One table after the other, as long as each really goes, for `GIVES_WAY_US_MAX` at most, and then
//! the flush: it goes to the next tier if that was not enough, as it does where none can move. So a
//! table that cannot be read, a slow tier that fails, or a reader who keeps what was moved, stop no
//! flush.
//!
//! A flush that waits for a table to move has writers wait behind it. So where tables lie by
//! temperature, which fill the first tier to its end, room is made ahead ([`ahead_bytes`]), in a
//! thread of its own ([`super::migrate::MakeRoomAhead`]), and merges leave it where it is
//! ([`crate::place::ByHeat`]). While merges are urgent, it makes room for what they write as well.
//!
//! The bound on moved bytes holds for them, but they borrow from it: a flush does not wait, so up
//! to `AHEAD_US` before it allows one it begins, and other moves wait for as much longer.

use thermocline_model::job::{Job, Relocate};
use thermocline_model::table::TableId;
use thermocline_model::tier::TierId;
use thermocline_model::view::View;

use crate::Planner;
use crate::cost::Devices;
use crate::plan::flush::{FlushSealed, short_bytes};

/// Chooses the table that gives way where so many bytes more of room are needed on the first tier.
pub type GivesWay = fn(&View<'_>, u64) -> Option<Relocate>;

/// As much is kept room for as flushes write in so many times the time that a table takes to move
/// down, of which other users of the devices may have as much.
const AHEAD_MOVES: f64 = 2.0;
/// Of the capacity of the first tier, one part in so many at most.
const AHEAD_SHARE: u64 = 16;

/// Bytes of room that flushes should find on the first tier while a table that makes more is moved;
/// none at rest, or where nothing is flushed.
#[must_use]
pub fn ahead_bytes(view: &View<'_>) -> u64 {
    let [first, _, ..] = view.tiers else {
        return 0;
    };
    if view.idle {
        return 0;
    }
    let move_s = Devices::of(view).move_seconds(0, 1, view.shape.table_bytes);
    let ahead = view.flushed_bytes_per_s * AHEAD_MOVES * move_s;
    (ahead as u64).min(first.capacity_bytes / AHEAD_SHARE)
}

/// See the module.
#[derive(Debug)]
pub struct MakeRoom {
    /// What is flushed.
    flush: FlushSealed,
    /// The table that makes room on the first tier.
    gives_way: GivesWay,
    /// Since when tables have been giving way to one flush.
    giving: Option<Giving>,
}

/// Tables that give way to one flush.
#[derive(Clone, Copy, Debug)]
struct Giving {
    /// When the first of them was moved, in microseconds.
    since_us: u64,
    /// The last of them.
    table: TableId,
}

/// How long tables give way to one flush, in microseconds: writers go on meanwhile, as half of the
/// memory is theirs.
const GIVES_WAY_US_MAX: u64 = 2_000_000;
/// How far ahead of the bound on moved bytes, in microseconds.
const AHEAD_US: u64 = 1_000_000;

impl MakeRoom {
    /// Flushes for which tables give way.
    #[must_use]
    pub fn new(gives_way: GivesWay) -> MakeRoom {
        MakeRoom {
            flush: FlushSealed::default(),
            gives_way,
            giving: None,
        }
    }

    /// The table that gives way to what `job` flushes, if one is to.
    fn giving_way(&self, view: &View<'_>, job: &Job) -> Option<Relocate> {
        let Job::Flush(flush) = job else {
            return None;
        };
        let to_first = view.shape.pins.newest.is_none_or(|tier| tier.0 == 0);
        let goes_on = self.giving.is_none_or(|giving| {
            let took_us = view.now_us.saturating_sub(giving.since_us);
            took_us < GIVES_WAY_US_MAX && !lies_first(view, giving.table)
        });
        let may = to_first && goes_on && view.moves.may_begin_ahead(view.now_us, AHEAD_US);
        let lacking = if may { short_bytes(view, flush) } else { 0 };
        (lacking > 0).then(|| (self.gives_way)(view, lacking))?
    }
}

/// Of `tables`, deepest level first and within it in the order in which they would rather go, the
/// first that has `bytes`; or the largest.
pub(super) fn covering<T>(
    tables: impl Iterator<Item = T>,
    bytes: u64,
    bytes_of: impl Fn(&T) -> u64,
) -> Option<T> {
    let mut largest: Option<T> = None;
    for table in tables {
        let found = bytes_of(&table);
        if found >= bytes {
            return Some(table);
        }
        if largest.as_ref().is_none_or(|l| bytes_of(l) < found) {
            largest = Some(table);
        }
    }
    largest
}

/// Whether `table` has data on the first tier.
fn lies_first(view: &View<'_>, table: TableId) -> bool {
    let mut keyspaces = view.version.keyspaces.values();
    keyspaces.any(|keyspace| {
        let mut tables = keyspace.tables();
        tables.any(|(_, _, t)| t.id == table && t.tier() == TierId(0))
    })
}

impl Planner for MakeRoom {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let job = self.flush.plan(view);
        let moved = job.as_ref().and_then(|job| self.giving_way(view, job));
        let Some(moved) = moved else {
            self.giving = None;
            return job;
        };
        let since_us = self.giving.map_or(view.now_us, |giving| giving.since_us);
        self.giving = Some(Giving {
            since_us,
            table: moved.table,
        });
        self.flush.forget();
        Some(Job::Relocate(moved))
    }
}
