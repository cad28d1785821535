//! What was tried on a store and what came of it, and so what it may hold.

use std::collections::{BTreeMap, BTreeSet};

use thermocline::{Db, Error, ErrorKind};

use super::workload::Room;
use crate::contents::{Contents, Effect, Step, contents, hash, take};
use crate::disk::Down;

/// A step that was tried, and when: in calls of the disk.
#[derive(Clone, Debug)]
pub struct Tried {
    pub(super) step: Step,
    pub(super) from_call: u64,
    /// When it was acknowledged.
    pub(super) acknowledged: Option<u64>,
}

/// What was tried on a store, and what came of it.
pub struct History {
    pub(super) before: Contents,
    pub(super) earlier: Vec<Contents>,
    pub(super) tried: Vec<Tried>,
    /// Moments from which on everything acknowledged so far must survive a
    /// power failure, and how many steps had been tried.
    pub(super) durable: Vec<(u64, usize)>,
    /// Moments of opening.
    pub(super) opened: Vec<(u64, Room)>,
    /// How many steps had been tried when a poisoned store was opened anew:
    /// of these, what was not durable may be lost.
    pub(super) reopened: usize,
    /// Jobs that were done, and manifests that were begun while it was open.
    pub done: BTreeSet<String>,
    /// What the store said.
    pub errors: Vec<Error>,
}

/// Every state that one key may be in; `None` is absent.
type States = BTreeSet<Option<Vec<u8>>>;

impl History {
    pub(super) fn new(before: Contents) -> History {
        History {
            before,
            earlier: Vec::new(),
            tried: Vec::new(),
            durable: Vec::new(),
            opened: Vec::new(),
            reopened: 0,
            done: BTreeSet::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn was_poisoned(&self) -> bool {
        self.errors.iter().any(|e| e.kind() == ErrorKind::Poisoned)
    }

    /// What the store holds if everything tried has happened.
    pub(super) fn now(&self) -> Contents {
        let mut now = self.before.clone();
        self.tried.iter().for_each(|t| take(&mut now, &t.step));
        now
    }

    /// Whether everything tried was acknowledged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.tried.iter().all(|t| t.acknowledged.is_some())
    }

    /// The room that the store had when the disk had done `calls` calls.
    #[must_use]
    pub fn room_at(&self, calls: u64) -> Room {
        let before = self.opened.iter().rev().find(|(at, _)| *at <= calls);
        before.map_or(Room::Little, |(_, room)| *room)
    }

    /// Every state that the store went through, oldest first.
    pub(super) fn all(&self) -> Vec<Contents> {
        let mut state = self.before.clone();
        let mut all = vec![state.clone()];
        for tried in &self.tried {
            take(&mut state, &tried.step);
            all.push(state.clone());
        }
        all
    }

    /// The hash of every state that the store went through, oldest first.
    #[must_use]
    pub fn hashes(&self) -> Vec<u64> {
        self.all().iter().map(hash).collect()
    }

    /// Whether the store may have come to this state, if it began with any
    /// state that it had before.
    #[must_use]
    pub fn ever_was(&self, found: &Contents) -> bool {
        let mut starts = self.earlier.clone();
        starts.push(self.before.clone());
        starts.into_iter().any(|mut state| {
            state == *found
                || self.tried.iter().any(|tried| {
                    take(&mut state, &tried.step);
                    state == *found
                })
        })
    }

    /// Whether this value was ever written to that key, or was there before.
    #[must_use]
    pub fn ever(&self, space: &str, key: &[u8], value: &[u8]) -> bool {
        let mut before = self.earlier.iter().chain([&self.before]);
        before.any(|state| {
            state
                .get(space)
                .and_then(|e| e.get(key))
                .is_some_and(|v| v == value)
        }) || self.tried.iter().any(|tried| match &tried.step {
            Step::Batch(effects) => effects.iter().any(|effect| {
                matches!(effect, Effect::Put(s, k, v)
                        if s == space && k == key && v == value)
            }),
            Step::Load(s, entries) => {
                s == space && entries.iter().any(|(k, v)| k == key && v == value)
            }
            Step::Create(_) | Step::Drop(_) => false,
        })
    }

    /// The first and the last of these states that a crash at this call may
    /// leave.
    #[must_use]
    pub fn allowed_at(&self, calls: u64, down: Down) -> (usize, usize) {
        let last = self.tried.iter().filter(|t| t.from_call <= calls).count();
        let first = match down {
            Down::Kill => self
                .tried
                .iter()
                .filter(|t| t.acknowledged.is_some_and(|at| at <= calls))
                .count(),
            Down::Power => {
                let durable = self.durable.iter().filter(|(at, _)| *at <= calls);
                durable.map(|(_, steps)| *steps).max().unwrap_or(0)
            }
        };
        (first, last)
    }

    /// What a workload with errors left, key by key: what must be there, and
    /// what may be because a write of it failed. `surely` says whether
    /// everything acknowledged must be there, or only what is durable. Returns
    /// how many entries were compared.
    ///
    /// # Panics
    /// When something else is there.
    pub fn check(&self, db: &Db, surely: bool, context: &str) -> u64 {
        let found = contents(db).unwrap_or_else(|e| panic!("{context}: reading: {e}"));
        let (mut keys, mut spaces) = self.states(surely);
        let mut compared = 0;
        for (space, entries) in &found {
            let there = spaces.remove(space).unwrap_or_default();
            assert!(there.contains(&true), "{context}: keyspace {space} is back");
            for (key, value) in entries {
                let states = keys.remove(&(space.clone(), key.clone()));
                assert!(
                    states.is_some_and(|s| s.contains(&Some(value.clone()))),
                    "{context}: {space}/{} has {} bytes; errors {:?}",
                    key.escape_ascii(),
                    value.len(),
                    self.errors
                );
                compared += 1;
            }
        }
        for ((space, key), states) in keys {
            if found.contains_key(&space) {
                assert!(
                    states.contains(&None),
                    "{context}: {space}/{} is gone; errors {:?}",
                    key.escape_ascii(),
                    self.errors
                );
                compared += 1;
            }
        }
        for (space, there) in spaces {
            assert!(
                there.contains(&false),
                "{context}: keyspace {space} is gone"
            );
        }
        compared
    }

    /// The states that every key and every keyspace may be in.
    #[expect(clippy::type_complexity, reason = "two maps, taken apart at once")]
    fn states(
        &self,
        surely: bool,
    ) -> (
        BTreeMap<(String, Vec<u8>), States>,
        BTreeMap<String, BTreeSet<bool>>,
    ) {
        let mut keys = BTreeMap::new();
        let mut spaces = BTreeMap::new();
        for (space, entries) in &self.before {
            spaces.insert(space.clone(), BTreeSet::from([true]));
            for (key, value) in entries {
                let states = BTreeSet::from([Some(value.clone())]);
                keys.insert((space.clone(), key.clone()), states);
            }
        }
        // From `sure` on, steps are sure although they are not durable.
        let sure = if surely {
            self.reopened
        } else {
            self.tried.len()
        };
        let durable = self.durable.iter().map(|(_, steps)| *steps);
        let last_durable = durable.filter(|&d| d <= sure).max().unwrap_or(0);
        let mut now = self.before.clone();
        for (at, tried) in self.tried.iter().enumerate() {
            let happened = tried.acknowledged.is_some() && (at >= sure || at < last_durable);
            let mut note = |space: &str, key: &[u8], value: Option<Vec<u8>>| {
                let place = (space.to_string(), key.to_vec());
                let states: &mut States =
                    keys.entry(place).or_insert_with(|| BTreeSet::from([None]));
                if happened {
                    states.clear();
                }
                states.insert(value);
            };
            match &tried.step {
                Step::Batch(effects) => {
                    for effect in effects {
                        match effect {
                            Effect::Put(space, key, value) => {
                                note(space, key, Some(value.clone()));
                            }
                            Effect::Delete(space, key) => note(space, key, None),
                            Effect::DeleteRange(space, start, end) => {
                                let all = now.get(space).into_iter().flatten();
                                for (key, _) in all.filter(|(k, _)| *k >= start && *k < end) {
                                    note(space, key, None);
                                }
                            }
                        }
                        // A range delete covers what its own batch has put.
                        take_if_possible(&mut now, &Step::Batch(vec![effect.clone()]));
                    }
                }
                Step::Load(space, entries) => {
                    for (key, value) in entries {
                        note(space, key, Some(value.clone()));
                    }
                }
                Step::Create(name) | Step::Drop(name) => {
                    let made = matches!(tried.step, Step::Create(_));
                    let there = spaces
                        .entry(name.clone())
                        .or_insert_with(|| BTreeSet::from([false]));
                    if happened {
                        there.clear();
                    }
                    there.insert(made);
                }
            }
            if !matches!(tried.step, Step::Batch(_)) {
                take_if_possible(&mut now, &tried.step);
            }
        }
        (keys, spaces)
    }
}

/// As [`take`], where a keyspace may be missing because making it failed.
fn take_if_possible(contents: &mut Contents, step: &Step) {
    let names: Vec<&String> = match step {
        Step::Batch(effects) => effects
            .iter()
            .map(|e| match e {
                Effect::Put(s, ..) | Effect::Delete(s, _) | Effect::DeleteRange(s, ..) => s,
            })
            .collect(),
        Step::Load(space, _) => vec![space],
        Step::Create(_) | Step::Drop(_) => Vec::new(),
    };
    if names.iter().all(|n| contents.contains_key(*n)) {
        take(contents, step);
    }
}
