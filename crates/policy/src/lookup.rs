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
//! the first half of a turn memtables come to be known to the index, in the second half what it does
//! is measured. If that was not worth it, memtables stay unknown for a while, twice as long each
//! time, and then there is another turn.

/// Places that must be passed over for each use of the index, reads and writes alike. Measured: a get of an
/// absent key breaks even with 8 that it passes over; one of a key that is there loses with 8 and gains
/// with 32 (docs/papers/nova.md).
pub const PLACES_PER_USE: u64 = 12;

/// Uses below which nothing is said.
pub const USES_MIN: u64 = 2048;

/// Memtables of a turn, of which the second half is measured.
pub const TURN_MEMTABLES: u64 = 24;

/// The longest time without the index, in memtables.
pub const PAUSE_MEMTABLES_MAX: u64 = 64 * TURN_MEMTABLES;

/// What an index did since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupUse {
    /// Lookups that passed over some place.
    pub answered: u64,
    /// Lookups that had to search all places anyway.
    pub in_vain: u64,
    /// Entries noted.
    pub notes: u64,
    /// Memtables and newest runs that were passed over, all lookups together; a memtable without
    /// filter counts as [`PLACES_PER_USE`] of them.
    pub passed_over: u64,
}

impl LookupUse {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: LookupUse) -> LookupUse {
        LookupUse {
            answered: self.answered.saturating_sub(earlier.answered),
            in_vain: self.in_vain.saturating_sub(earlier.in_vain),
            notes: self.notes.saturating_sub(earlier.notes),
            passed_over: self.passed_over.saturating_sub(earlier.passed_over),
        }
    }
}

/// Whether that gave at least what it cost; `None` where it was too little to tell.
#[must_use]
pub fn is_worth(used: LookupUse) -> Option<bool> {
    let uses = used.answered + used.in_vain + used.notes;
    (uses >= USES_MIN).then(|| used.passed_over >= uses.saturating_mul(PLACES_PER_USE))
}

/// Where an index is in its turns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupTurns {
    /// Memtables since the turn or the pause began.
    memtables: u64,
    /// The use when the second half of the turn began.
    begun: LookupUse,
    /// Memtables of the pause that this is; 0 in a turn.
    pause: u64,
    /// How many pauses in a row there were.
    in_vain: u32,
}

impl LookupTurns {
    /// Whether the index rests.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.pause > 0
    }

    /// Says whether the memtable that is made now is to be known to the index, which did `used` so
    /// far.
    pub fn next_is_known(&mut self, used: LookupUse) -> bool {
        self.memtables += 1;
        if self.is_paused() {
            if self.memtables > self.pause {
                *self = LookupTurns {
                    memtables: 1,
                    in_vain: self.in_vain,
                    ..LookupTurns::default()
                };
            }
        } else if self.memtables == TURN_MEMTABLES / 2 {
            self.begun = used;
        } else if self.memtables > TURN_MEMTABLES {
            let worth = is_worth(used.since(self.begun));
            self.memtables = 1;
            match worth {
                Some(false) => {
                    let longer = TURN_MEMTABLES << self.in_vain.min(6);
                    self.pause = longer.min(PAUSE_MEMTABLES_MAX);
                    self.in_vain = self.in_vain.saturating_add(1);
                }
                Some(true) => self.in_vain = 0,
                None => {}
            }
        }
        !self.is_paused()
    }
}
