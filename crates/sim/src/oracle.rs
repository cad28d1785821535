//! What a store must hold: a model outside it that keeps every version of
//! every key, numbered by the step that wrote it.
//!
//! A step is one change that is whole or absent: a batch, a bulk load, the
//! making or dropping of a keyspace. A snapshot is a step number, so it costs
//! nothing to hold many; what a crash left is found by the digest of every
//! state since the last recovery, and then compared entry by entry.
//!
//! The digest of a state is the sum of the digests of its entries, so a step
//! costs what it changes and not what the store holds.
//!
//! After a crash the survivors must be a prefix of what was tried, in commit
//! order and without a gap, and hold everything acknowledged at a durability
//! that outlives that crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use thermocline::{DEFAULT_KEYSPACE, Db};

use crate::disk::Down;

/// Keys and values are shared by the operations of many runs.
pub type Bytes = Arc<[u8]>;

/// One change of the store, whole or absent.
#[derive(Clone, Debug)]
pub enum Step {
    /// A write batch.
    Batch(Vec<Effect>),
    /// A keyspace is made.
    Create(String),
    /// A keyspace is dropped.
    Drop(String),
    /// A bulk load into a keyspace, keys ascending.
    Load(String, Vec<(Bytes, Bytes)>),
}

/// One operation of a batch; first the keyspace.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Key and value.
    Put(String, Bytes, Bytes),
    /// Key.
    Delete(String, Bytes),
    /// First key, and the first one behind.
    DeleteRange(String, Bytes, Bytes),
}

/// What was found in a store: keyspaces by name, entries ascending.
#[derive(Debug, Default)]
pub struct Found(Vec<(String, Vec<Entry>)>);

/// Key and value.
type Entry = (Vec<u8>, Vec<u8>);

/// A keyspace from its making to its drop. The same name made again is another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceId(usize);

#[derive(Debug)]
struct Space {
    name: String,
    name_digest: u64,
    created: u64,
    dropped: Option<u64>,
    entries: BTreeMap<Bytes, Vec<Version>>,
    /// Of the entries that are there now.
    digest: u64,
}

#[derive(Debug)]
struct Version {
    step: u64,
    value: Option<Bytes>,
}

fn mix(digest: u64, word: u64) -> u64 {
    let mut z = (digest ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= z >> 29;
    z.wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 32)
}

/// Equal bytes have equal digests, others as good as never.
#[must_use]
pub fn digest(begin: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut digest = mix(begin, bytes.len() as u64 + 1);
    for word in words {
        digest = mix(digest, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(digest, u64::from_le_bytes(last))
}

fn entry_digest(space: u64, key: &[u8], value: &[u8]) -> u64 {
    digest(digest(space, key), value)
}

impl Space {
    fn new(name: &str, created: u64) -> Space {
        Space {
            name: name.to_string(),
            name_digest: digest(1, name.as_bytes()),
            created,
            dropped: None,
            entries: BTreeMap::new(),
            digest: 0,
        }
    }

    fn set(&mut self, key: &Bytes, step: u64, value: Option<&Bytes>) {
        let versions = match self.entries.get_mut(key) {
            Some(versions) => versions,
            // A delete of what never was leaves nothing.
            None if value.is_none() => return,
            None => self.entries.entry(key.clone()).or_default(),
        };
        if let Some(Version { value: Some(v), .. }) = versions.last() {
            let old = entry_digest(self.name_digest, key, v);
            self.digest = self.digest.wrapping_sub(old);
        }
        if let Some(value) = value {
            let new = entry_digest(self.name_digest, key, value);
            self.digest = self.digest.wrapping_add(new);
        }
        if versions.last().is_some_and(|v| v.step == step) {
            versions.pop();
        }
        versions.push(Version {
            step,
            value: value.cloned(),
        });
    }

    fn presence(&self) -> u64 {
        self.digest.wrapping_add(mix(self.name_digest, 7))
    }

    fn is_there(&self, at: u64) -> bool {
        self.created <= at && self.dropped.is_none_or(|d| d > at)
    }
}

fn value_at(versions: &[Version], at: u64) -> Option<&Bytes> {
    let newest = versions.iter().rev().find(|v| v.step <= at)?;
    newest.value.as_ref()
}

/// What was done since the last recovery, and what was there before.
#[derive(Debug)]
pub struct Oracle {
    spaces: Vec<Space>,
    /// The digests of the states after the steps `first`, `first + 1`, ...
    states: Vec<u64>,
    first: u64,
    /// Of the state now.
    digest: u64,
    /// Up to this step everything must survive a power failure.
    durable: u64,
    /// Up to this step everything was acknowledged.
    acknowledged: u64,
}

impl Default for Oracle {
    /// A store just made.
    fn default() -> Oracle {
        let space = Space::new(DEFAULT_KEYSPACE, 0);
        let digest = space.presence();
        Oracle {
            spaces: vec![space],
            states: vec![digest],
            first: 0,
            digest,
            durable: 0,
            acknowledged: 0,
        }
    }
}

impl Oracle {
    /// The number of the last step tried: a snapshot of everything so far.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    /// Of everything that is there now.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The names of the keyspaces that are there now.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let now = self.now();
        let there = self.spaces.iter().filter(|s| s.is_there(now));
        there.map(|s| s.name.clone()).collect()
    }

    /// The keyspace that is called `name` now.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn space(&self, name: &str) -> SpaceId {
        let now = self.now();
        let mut all = self.spaces.iter();
        let at = all.position(|s| s.name == name && s.is_there(now));
        SpaceId(at.unwrap_or_else(|| panic!("the oracle knows no keyspace {name}")))
    }

    /// The value of `key` after step `at`.
    #[must_use]
    pub fn get(&self, space: SpaceId, key: &[u8], at: u64) -> Option<&Bytes> {
        value_at(self.spaces[space.0].entries.get(key)?, at)
    }

    /// The entries between two bounds after step `at`; nothing when the bounds
    /// are the wrong way round.
    pub fn range(
        &self,
        space: SpaceId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at: u64,
    ) -> impl DoubleEndedIterator<Item = (&Bytes, &Bytes)> {
        let entries = &self.spaces[space.0].entries;
        let range = is_range(bounds).then(|| entries.range::<[u8], _>(bounds));
        let versions = range.into_iter().flatten();
        versions.filter_map(move |(k, v)| Some((k, value_at(v, at)?)))
    }

    /// A step is about to be tried.
    pub fn add(&mut self, step: &Step) {
        let number = self.now() + 1;
        match step {
            Step::Batch(effects) => {
                for effect in effects {
                    self.effect(effect, number);
                }
            }
            Step::Create(name) => {
                let space = Space::new(name, number);
                self.digest = self.digest.wrapping_add(space.presence());
                self.spaces.push(space);
            }
            Step::Drop(name) => {
                let at = self.space(name);
                let space = &mut self.spaces[at.0];
                space.dropped = Some(number);
                self.digest = self.digest.wrapping_sub(space.presence());
            }
            Step::Load(name, entries) => {
                for (key, value) in entries {
                    self.change(name, |space| space.set(key, number, Some(value)));
                }
            }
        }
        self.states.push(self.digest);
    }

    fn effect(&mut self, effect: &Effect, step: u64) {
        match effect {
            Effect::Put(name, key, value) => {
                self.change(name, |space| space.set(key, step, Some(value)));
            }
            Effect::Delete(name, key) => self.change(name, |space| space.set(key, step, None)),
            Effect::DeleteRange(name, start, end) => self.change(name, |space| {
                let bounds = (Bound::Included(&**start), Bound::Excluded(&**end));
                let inside = space.entries.range::<[u8], _>(bounds);
                let there = inside.filter(|(_, v)| v.last().is_some_and(|v| v.value.is_some()));
                let keys: Vec<_> = there.map(|(k, _)| k.clone()).collect();
                keys.iter().for_each(|key| space.set(key, step, None));
            }),
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Space)) {
        let at = self.space(name);
        let space = &mut self.spaces[at.0];
        let before = space.digest;
        change(space);
        let difference = space.digest.wrapping_sub(before);
        self.digest = self.digest.wrapping_add(difference);
    }

    /// Everything tried so far was acknowledged; `durable` says at which level.
    pub fn acknowledge(&mut self, durable: bool) {
        self.acknowledged = self.now();
        if durable {
            self.durable = self.acknowledged;
        }
    }

    /// The machine lost power: only what is durable is still promised, even if
    /// the next recovery is cut short.
    pub fn lose_power(&mut self) {
        self.acknowledged = self.durable;
    }

    /// Forgets versions that no snapshot from step `oldest` on can see, but
    /// keeps every state that a crash may lead back to.
    pub fn forget_before(&mut self, oldest: u64) {
        let oldest = oldest.min(self.durable);
        for space in &mut self.spaces {
            space.entries.retain(|_, versions| {
                let seen = versions.iter().rposition(|v| v.step <= oldest);
                versions.drain(..seen.unwrap_or(0));
                let gone = versions.len() == 1 && versions[0].value.is_none();
                !(gone && versions[0].step <= oldest)
            });
        }
    }

    /// Finds the prefix that `found` is, and forgets everything behind it. Says
    /// how many entries were compared.
    ///
    /// # Errors
    /// It is none that the promises allow; says the nearest one.
    pub fn settle(&mut self, found: &Found, down: Down) -> Result<u64, String> {
        let least = if down == Down::Kill {
            self.acknowledged
        } else {
            self.durable
        };
        let wanted = found.digest();
        let mut allowed = (least..=self.now()).rev();
        let at = allowed.find(|at| self.states[(at - self.first) as usize] == wanted);
        let Some(at) = at else {
            return Err(self.explain(found, least));
        };
        self.roll_back(at);
        self.compare(found)
    }

    /// Whether `found` is what is there now, entry by entry. Says how many were
    /// compared.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(&self, found: &Found) -> Result<u64, String> {
        let (compared, differences) = self.differences(found, self.now());
        if differences.is_empty() {
            return Ok(compared);
        }
        let few = &differences[..differences.len().min(8)];
        Err(format!("after step {}: {few:#?}", self.now()))
    }

    /// To the state after step `at`, which is durable now.
    fn roll_back(&mut self, at: u64) {
        self.spaces.retain(|s| s.created <= at);
        for space in &mut self.spaces {
            space.dropped = space.dropped.filter(|d| *d <= at);
            space.entries.retain(|_, versions| {
                versions.retain(|v| v.step <= at);
                let last = versions.pop();
                versions.clear();
                versions.extend(last.filter(|v| v.value.is_some()));
                !versions.is_empty()
            });
            let name = space.name_digest;
            let entries = space.entries.iter();
            space.digest = entries
                .filter_map(|(k, v)| Some(entry_digest(name, k, v[0].value.as_ref()?)))
                .fold(0, u64::wrapping_add);
        }
        // Nobody is left who could read what was dropped.
        self.spaces.retain(|s| s.dropped.is_none());
        self.digest = self.states[(at - self.first) as usize];
        self.first = at;
        self.states = vec![self.digest];
        self.durable = at;
        self.acknowledged = at;
    }

    /// Entries compared, and what differs from the state after step `at`.
    fn differences(&self, found: &Found, at: u64) -> (u64, Vec<String>) {
        let there = self.spaces.iter().filter(|s| s.is_there(at));
        let wanted: BTreeMap<&str, &Space> = there.map(|s| (&*s.name, s)).collect();
        let have: BTreeMap<&str, &Vec<_>> = found.0.iter().map(|(n, e)| (&**n, e)).collect();
        let names: BTreeSet<&str> = wanted.keys().chain(have.keys()).copied().collect();
        let mut compared = 0;
        let mut differences = Vec::new();
        for name in names {
            let (Some(space), Some(entries)) = (wanted.get(name), have.get(name)) else {
                differences.push(format!("keyspace {name} differs in being there"));
                continue;
            };
            let visible = space.entries.iter();
            let visible = visible.filter_map(|(k, v)| Some((&**k, &**value_at(v, at)?)));
            let read = entries.iter().map(|(k, v)| (&**k, &**v));
            compared += entries.len() as u64;
            if visible.clone().eq(read.clone()) {
                continue;
            }
            let visible: BTreeMap<&[u8], &[u8]> = visible.collect();
            let read: BTreeMap<&[u8], &[u8]> = read.collect();
            let keys: BTreeSet<&[u8]> = visible.keys().chain(read.keys()).copied().collect();
            for key in keys {
                let (wanted, found) = (visible.get(key), read.get(key));
                if wanted != found {
                    let (wanted, found) = (show(wanted.copied()), show(found.copied()));
                    let key = show(Some(key));
                    differences.push(format!("{name}/{key}: expected {wanted}, found {found}"));
                }
            }
        }
        (compared, differences)
    }

    fn explain(&self, found: &Found, least: u64) -> String {
        /// States compared one by one.
        const STATES_MAX: u64 = 3000;
        let wanted = found.digest();
        let earlier = self.states.iter().rposition(|&d| d == wanted);
        let from = self.now().saturating_sub(STATES_MAX).max(self.first);
        let compared = (from..=self.now()).map(|at| (at, self.differences(found, at).1));
        let (at, differences) = compared
            .min_by_key(|(_, differences)| differences.len())
            .unwrap_or_default();
        format!(
            "no allowed state: steps {} to {} were tried, up to {} acknowledged, {least} must be \
             there; an earlier state that matches: {:?}; nearest is {at} with {} differences: {:#?}",
            self.first,
            self.now(),
            self.acknowledged,
            earlier.map(|i| self.first + i as u64),
            differences.len(),
            &differences[..differences.len().min(8)]
        )
    }
}

/// Whether bounds are the right way round.
#[must_use]
pub fn is_range(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(a), Bound::Included(b)) => a <= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
        _ => true,
    }
}

/// Bytes for a message: the first few, and how many there are.
#[must_use]
pub fn show(bytes: Option<&[u8]>) -> String {
    const SHOWN_MAX: usize = 40;
    bytes.map_or("nothing".to_string(), |b| {
        let first = b[..b.len().min(SHOWN_MAX)].escape_ascii();
        format!("{first} ({} bytes)", b.len())
    })
}

impl Found {
    /// Reads everything in the store, forward; backward it must be the same.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Panics
    /// When the two directions differ.
    pub fn read(db: &Db) -> thermocline::Result<Found> {
        let mut all = Found::default();
        for name in db.keyspaces() {
            let space = db.keyspace(&name)?;
            let mut entries = Vec::new();
            let mut iter = space.iter()?;
            iter.seek_to_first()?;
            while iter.valid() {
                entries.push((iter.key().to_vec(), iter.value().to_vec()));
                iter.next()?;
            }
            iter.seek_to_last()?;
            for (key, value) in entries.iter().rev() {
                assert!(
                    iter.valid() && iter.key() == key && iter.value() == value,
                    "{name} backward has {} where forward has {}",
                    show(iter.valid().then(|| iter.key())),
                    show(Some(key))
                );
                iter.prev()?;
            }
            assert!(!iter.valid(), "{name} has more backward than forward");
            all.0.push((name, entries));
        }
        Ok(all)
    }

    /// As [`Oracle::digest`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        let spaces = self.0.iter().map(|(name, entries)| {
            let name = digest(1, name.as_bytes());
            let entries = entries.iter().map(|(k, v)| entry_digest(name, k, v));
            entries.fold(mix(name, 7), u64::wrapping_add)
        });
        spaces.fold(0, u64::wrapping_add)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(_, entries)| entries.len() as u64).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        text.as_bytes().into()
    }

    fn put(key: &str, value: &str) -> Effect {
        Effect::Put(DEFAULT_KEYSPACE.into(), bytes(key), bytes(value))
    }

    fn found(entries: &[(&str, &str)]) -> Found {
        let entries = entries
            .iter()
            .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
        Found(vec![(DEFAULT_KEYSPACE.into(), entries.collect())])
    }

    #[test]
    fn half_a_batch_and_a_gap_and_a_lost_durable_write_are_refused() {
        let oracle = || {
            let mut oracle = Oracle::default();
            oracle.add(&Step::Batch(vec![put("a", "1"), put("b", "1")]));
            oracle.acknowledge(true);
            oracle.add(&Step::Batch(vec![put("c", "2"), put("d", "2")]));
            oracle.acknowledge(false);
            oracle.add(&Step::Batch(vec![put("e", "3")]));
            oracle
        };
        let one = [("a", "1"), ("b", "1")];
        let two = [one[0], one[1], ("c", "2"), ("d", "2")];
        let all = [two[0], two[1], two[2], two[3], ("e", "3")];
        for (entries, kill, power) in [
            (&all[..], true, true),
            (&two, true, true),
            (&one, false, true),
            (&[], false, false),
            (&two[..3], false, false),
            (&[one[0], one[1], all[4]], false, false),
        ] {
            let kept = oracle().settle(&found(entries), Down::Kill).is_ok();
            assert_eq!(kept, kill, "{entries:?}");
            let kept = oracle().settle(&found(entries), Down::Power).is_ok();
            assert_eq!(kept, power, "{entries:?}");
        }
    }

    #[test]
    fn an_older_step_is_seen_as_it_was_until_it_is_forgotten() {
        let mut oracle = Oracle::default();
        oracle.add(&Step::Batch(vec![put("a", "1"), put("b", "1")]));
        let then = oracle.now();
        let (start, end) = (bytes("a"), bytes("b"));
        let delete = Effect::DeleteRange(DEFAULT_KEYSPACE.into(), start, end);
        oracle.add(&Step::Batch(vec![delete, put("c", "2")]));
        let space = oracle.space(DEFAULT_KEYSPACE);
        let keys = |oracle: &Oracle, at| {
            let all = oracle.range(space, (Bound::Unbounded, Bound::Unbounded), at);
            all.map(|(k, _)| k[0]).collect::<Vec<_>>()
        };
        assert_eq!(keys(&oracle, then), b"ab");
        assert_eq!(keys(&oracle, oracle.now()), b"bc");
        oracle.acknowledge(true);
        oracle.forget_before(oracle.now());
        assert_eq!(keys(&oracle, oracle.now()), b"bc");
        assert_eq!(oracle.spaces[0].entries.len(), 2);
    }
}
