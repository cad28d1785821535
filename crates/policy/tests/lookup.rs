//! When the lookup index rests.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use thermocline_model::view::{LookupUse, LookupView};
use thermocline_policy::plan::lookup::{
    PAUSE_MEMTABLES_MAX, PLACES_PER_USE, TURN_MEMTABLES, USES_MIN, is_worth, turns,
};

/// So many of each, a thousand times.
fn used(answered: u64, in_vain: u64, notes: u64, passed_over: u64) -> LookupUse {
    LookupUse {
        answered: 1000 * answered,
        in_vain: 1000 * in_vain,
        notes: 1000 * notes,
        passed_over: 1000 * passed_over,
    }
}

#[test]
fn an_index_is_worth_it_where_each_use_saves_a_few_places() {
    // Only writes; only reads that find nothing to pass over.
    assert_eq!(is_worth(used(0, 0, 10, 0)), Some(false));
    assert_eq!(is_worth(used(0, 10, 0, 0)), Some(false));
    // Reads of absent keys with 64 memtables, and with as many writes.
    assert_eq!(is_worth(used(10, 0, 0, 640)), Some(true));
    assert_eq!(is_worth(used(10, 0, 10, 640)), Some(true));
    // A read among a hundred writes.
    assert_eq!(is_worth(used(1, 0, 100, 64)), Some(false));
    // The border itself, and what is too little to tell.
    let least = |passed_over| LookupUse {
        answered: USES_MIN,
        passed_over,
        ..LookupUse::default()
    };
    assert_eq!(is_worth(least(USES_MIN * PLACES_PER_USE)), Some(true));
    assert_eq!(is_worth(least(USES_MIN * PLACES_PER_USE - 1)), Some(false));
    let few = LookupUse {
        notes: USES_MIN - 1,
        ..LookupUse::default()
    };
    assert_eq!(is_worth(few), None);
}

/// Whether the memtable that is made now is to be known to the index.
fn is_known(index: &mut LookupView) -> bool {
    index.turns = turns(index);
    !index.turns.is_paused()
}

/// The lengths of turns and pauses, by turns, of `memtables`, with each of which comes `each`.
fn stretches(memtables: u64, each: LookupUse) -> Vec<(bool, u64)> {
    let mut index = LookupView::default();
    let mut stretches: Vec<(bool, u64)> = Vec::new();
    for _ in 0..memtables {
        let known = is_known(&mut index);
        let all = &mut index.used;
        if known {
            all.answered += each.answered;
            all.in_vain += each.in_vain;
            all.notes += each.notes;
            all.passed_over += each.passed_over;
        }
        match stretches.last_mut() {
            Some((last, length)) if *last == known => *length += 1,
            _ => stretches.push((known, 1)),
        }
    }
    stretches
}

#[test]
fn pauses_grow_up_to_a_bound_while_the_index_is_not_worth_it() {
    let found = stretches(20_000, used(0, 0, 1, 0));
    let turns = found.iter().filter(|(known, _)| *known);
    assert!(turns.into_iter().all(|(_, n)| *n == TURN_MEMTABLES));
    let pauses: Vec<u64> = found
        .iter()
        .filter(|(known, _)| !known)
        .map(|(_, n)| n / TURN_MEMTABLES)
        .collect();
    assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 64, 64]);
    assert!(
        pauses
            .iter()
            .all(|n| n * TURN_MEMTABLES <= PAUSE_MEMTABLES_MAX)
    );
}

#[test]
fn an_index_that_is_worth_it_or_hardly_used_never_rests() {
    assert_eq!(stretches(5_000, used(1, 0, 1, 24)), [(true, 5_000)]);
    let hardly = LookupUse {
        notes: 10,
        ..LookupUse::default()
    };
    assert_eq!(stretches(5_000, hardly), [(true, 5_000)]);
}

#[test]
fn a_turn_that_was_worth_it_makes_the_next_pause_short_again() {
    let mut index = LookupView::default();
    let mut pauses = Vec::new();
    for memtable in 0..2_000u64 {
        if !is_known(&mut index) {
            match pauses.last_mut() {
                Some((_, end)) if *end == memtable => *end += 1,
                _ => pauses.push((memtable, memtable + 1)),
            }
            continue;
        }
        let all = &mut index.used;
        all.notes += 1000;
        // Read for a while.
        if (300..700).contains(&memtable) {
            all.answered += 1000;
            all.passed_over += 60_000;
        }
    }
    let lengths: Vec<u64> = pauses.iter().map(|(from, to)| to - from).collect();
    let begins = |from: u64| !(300..690).contains(&from);
    assert!(pauses.iter().all(|(from, _)| begins(*from)), "{pauses:?}");
    let first_after = pauses.iter().position(|(from, _)| *from >= 690).unwrap();
    assert_eq!(lengths[0], TURN_MEMTABLES);
    assert!(lengths[first_after - 1] > TURN_MEMTABLES);
    assert_eq!(lengths[first_after], TURN_MEMTABLES);
}
