//! What the lookup index of memtables did, as who says whether it rests sees it.

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
    /// filter counts as several of them.
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

/// Where an index is in its turns. Each memtable makes the next of these out of the last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupTurns {
    /// Memtables since the turn or the pause began.
    pub memtables: u64,
    /// The use when the second half of the turn began.
    pub begun: LookupUse,
    /// Memtables of the pause that this is; 0 in a turn.
    pub pause: u64,
    /// How many pauses in a row there were.
    pub in_vain: u32,
}

impl LookupTurns {
    /// Whether the index rests.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.pause > 0
    }
}

/// The lookup index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupView {
    /// What it did so far.
    pub used: LookupUse,
    /// What was made of that so far.
    pub turns: LookupTurns,
}
