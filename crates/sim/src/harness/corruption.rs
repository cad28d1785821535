//! Damage of every kind to every file of small stores.
//!
//! A store whose files were damaged gives the right answer or an error that
//! names the place, never a panic, a hang, or a wrong answer; [`truth`] says
//! exactly what is right. `verify` changes nothing, and where it finds nothing
//! the store opens and every answer is right. A store that is refused is none
//! the worse: with the damage undone it opens. What `repair` says is true: what
//! it does not call lost is there, and nothing is invented; and what stops it
//! half-way makes nothing worse ([`interrupt`]). A damaged record of events costs events
//! and nothing else ([`record`]).

pub mod damage;
pub mod examine;
pub mod interrupt;
pub mod record;
pub mod store;
pub mod truth;

use damage::Damage;
use examine::{Outcome, examine};
use store::Small;
use truth::Fit;

use crate::{Dice, Tally};

/// How often what happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Damaged stores.
    pub cases: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Of these, found by `verify`.
    pub noticed: u64,
    /// Of these, opened as they were at an earlier time: as after a crash, or
    /// with an earlier manifest.
    pub shortened: u64,
    /// Of these, opened with different parts as they were at different times.
    pub holed: u64,
    /// Of these, repaired with something lost.
    pub lost: u64,
}

impl Count {
    fn add(&mut self, outcome: Outcome) {
        self.cases += 1;
        self.refused += u64::from(outcome.refused);
        self.noticed += u64::from(outcome.noticed);
        self.shortened += u64::from(matches!(outcome.fit, Fit::Prefix | Fit::Earlier));
        self.holed += u64::from(outcome.fit == Fit::Hole);
        self.lost += u64::from(outcome.lost);
    }
}

/// Does each damage to the store, and calls `after` with each in words, so that
/// a test can look at what it cost.
///
/// # Panics
/// When the store breaks a promise, after all damages were tried; the message
/// names them.
pub fn sweep(
    store: &Small,
    damages: impl IntoIterator<Item = Damage>,
    tally: &mut Tally,
    after: &mut dyn FnMut(&str),
) -> Count {
    let mut count = Count::default();
    let mut broken = Vec::new();
    for damage in damages {
        match examine(store, &damage, tally) {
            Ok(outcome) => count.add(outcome),
            Err(what) => broken.push(format!("{}: {}: {what}", store.name, damage.what)),
        }
        after(&damage.what);
    }
    assert!(
        broken.is_empty(),
        "{} broken promises, the first:\n{}",
        broken.len(),
        broken[..broken.len().min(12)].join("\n")
    );
    count
}

/// A store of a drawn workload, and several drawn damages of it.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn run(seed: u64, tally: &mut Tally) {
    const DAMAGES: u32 = 24;
    let mut dice = Dice(seed);
    let store = store::drawn(&mut dice);
    // Dice of their own: what damage a seed draws does not depend on repairs.
    let mut interrupts = Dice(!seed);
    for _ in 0..DAMAGES {
        let damage = damage::drawn(&store.image, &store.earlier, &mut dice);
        let examined = examine(&store, &damage, tally).map(|outcome| outcome.noticed);
        let survived = examined.and_then(|noticed| match noticed {
            true => interrupt::drawn(&store, &damage, &mut interrupts, tally),
            false => Ok(()),
        });
        if let Err(what) = survived {
            panic!("seed {seed}: {}: {what}", damage.what);
        }
    }
}

/// A store of a drawn workload, and several drawn damages of its manifest and of other
/// files together: what one file says of another is gone with it.
///
/// # Panics
/// When the store breaks a promise; the message begins with the seed.
pub fn run_with_manifest(seed: u64, tally: &mut Tally) {
    const DAMAGES: u64 = 60;
    const INTERRUPTED: u64 = 2;
    let mut dice = Dice(seed);
    let store = store::drawn(&mut dice);
    for n in 0..DAMAGES {
        let damage = loop {
            let drawn = damage::drawn(&store.image, &store.earlier, &mut dice);
            if drawn.changes.len() > 1 && drawn.what.contains("MANIFEST") {
                break drawn;
            }
        };
        let examined = examine(&store, &damage, tally);
        let survived = examined.and_then(|outcome| match outcome.noticed && n < INTERRUPTED {
            true => interrupt::drawn(&store, &damage, &mut Dice(seed ^ n), tally),
            false => Ok(()),
        });
        if let Err(what) = survived {
            panic!("seed {seed}: {}: {what}", damage.what);
        }
    }
}
