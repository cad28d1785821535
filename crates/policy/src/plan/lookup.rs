//! Whether the lookup index of memtables gives more than it costs (Nova-LSM, section
//! 4.1.1, where it is always there).
//!
//! An index costs one access to memory for each lookup and for each entry noted. It saves
//! one for each memtable or newest run that a lookup passes over, but those are near one
//! another in time, and the processor waits for several at once: so one access of the index
//! weighs as much as [`PLACES_PER_USE`] that it saves. Who only writes, and who finds
//! most keys in the first memtables, is better off without. Where memtables have no filters,
//! as in the paper, one that is not passed over is searched, and counts as that many places.
//!
//! What it would save cannot be measured while it is off. So it goes in *turns* of memtables: in
//! the first half of a turn memtables come to be known to the index, in the second half what it
//! does is measured. If that was not worth it, memtables stay unknown for a while, twice as long
//! each time, and then there is another turn.
//!
//! This goes by the index alone and not by a [`View`](thermocline_model::view::View): it is asked
//! with every new memtable, with the write path held, and there a whole view would cost writers
//! more than the index can give.

use thermocline_model::view::{LookupTurns, LookupUse, LookupView};

/// Places that must be passed over for each use of the index, reads and writes alike. Measured: a
/// get of an absent key breaks even with 8 that it passes over; one of a key that is there loses
/// with 8 and gains with 32 (docs/papers/nova.md).
pub const PLACES_PER_USE: u64 = 12;

/// Uses below which nothing is said.
pub const USES_MIN: u64 = 2048;

/// Memtables of a turn, of which the second half is measured.
pub const TURN_MEMTABLES: u64 = 24;

/// The longest time without the index, in memtables.
pub const PAUSE_MEMTABLES_MAX: u64 = 64 * TURN_MEMTABLES;

/// Whether an index that was used so gave at least what it cost; `None` where it was too little to
/// tell.
#[must_use]
pub fn is_worth(used: LookupUse) -> Option<bool> {
    let uses = used.answered + used.in_vain + used.notes;
    (uses >= USES_MIN).then(|| used.passed_over >= uses.saturating_mul(PLACES_PER_USE))
}

/// What there is to remember once a memtable is made: it is to be known to the index unless that
/// rests ([`LookupTurns::is_paused`]).
#[must_use]
pub fn turns(lookup: &LookupView) -> LookupTurns {
    let LookupView { used, mut turns } = *lookup;
    turns.memtables += 1;
    if turns.is_paused() {
        if turns.memtables > turns.pause {
            return LookupTurns {
                memtables: 1,
                in_vain: turns.in_vain,
                ..LookupTurns::default()
            };
        }
    } else if turns.memtables == TURN_MEMTABLES / 2 {
        turns.begun = used;
    } else if turns.memtables > TURN_MEMTABLES {
        turns.memtables = 1;
        match is_worth(used.since(turns.begun)) {
            Some(false) => {
                let longer = TURN_MEMTABLES << turns.in_vain.min(6);
                turns.pause = longer.min(PAUSE_MEMTABLES_MAX);
                turns.in_vain = turns.in_vain.saturating_add(1);
            }
            Some(true) => turns.in_vain = 0,
            None => {}
        }
    }
    turns
}
