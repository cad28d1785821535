//! What a store must hold: a model outside it, and every state that it went
//! through since it was last known for sure.
//!
//! After a crash the survivors must be a prefix of what was tried, in commit
//! order and without a gap, and hold everything acknowledged at a durability
//! that outlives that crash.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use thermocline::Db;

use crate::disk::Down;

/// Keyspaces by name, with what they hold.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// One change of the store, whole or absent.
#[derive(Clone, Debug)]
pub enum Step {
    /// A write batch.
    Batch(Vec<Effect>),
    /// A keyspace is made.
    Create(String),
    /// A keyspace is dropped.
    Drop(String),
    /// A bulk load into a keyspace.
    Load(String, Vec<(Vec<u8>, Vec<u8>)>),
}

/// One operation of a batch; first the keyspace.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Key and value.
    Put(String, Vec<u8>, Vec<u8>),
    /// Key.
    Delete(String, Vec<u8>),
    /// First key, and the first one behind.
    DeleteRange(String, Vec<u8>, Vec<u8>),
}

/// Does `step` to `contents`.
pub fn take(contents: &mut Contents, step: &Step) {
    match step {
        Step::Batch(effects) => {
            for effect in effects {
                match effect {
                    Effect::Put(space, key, value) => {
                        contents
                            .get_mut(space)
                            .unwrap()
                            .insert(key.clone(), value.clone());
                    }
                    Effect::Delete(space, key) => {
                        contents.get_mut(space).unwrap().remove(key);
                    }
                    Effect::DeleteRange(space, start, end) => {
                        contents
                            .get_mut(space)
                            .unwrap()
                            .retain(|k, _| !(k >= start && k < end));
                    }
                }
            }
        }
        Step::Create(name) => {
            contents.insert(name.clone(), BTreeMap::new());
        }
        Step::Drop(name) => {
            contents.remove(name);
        }
        Step::Load(space, entries) => contents
            .get_mut(space)
            .unwrap()
            .extend(entries.iter().cloned()),
    }
}

/// Equal contents have equal hashes, others as good as never.
#[must_use]
pub fn hash(contents: &Contents) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

/// What was done since the last recovery.
#[derive(Debug)]
pub struct Oracle {
    pub(crate) base: Contents,
    /// What the store holds if everything tried so far has happened.
    pub now: Contents,
    pub(crate) steps: Vec<Step>,
    /// After how many steps which state stood.
    hashes: Vec<u64>,
    /// Steps that must survive a power failure.
    pub(crate) durable: usize,
    /// Steps that were acknowledged.
    pub(crate) acknowledged: usize,
}

impl Oracle {
    /// A store that is known to hold `base`.
    #[must_use]
    pub fn new(base: Contents) -> Oracle {
        Oracle {
            now: base.clone(),
            hashes: vec![hash(&base)],
            base,
            steps: Vec::new(),
            durable: 0,
            acknowledged: 0,
        }
    }

    /// A step is about to be tried.
    pub fn add(&mut self, step: Step) {
        take(&mut self.now, &step);
        self.steps.push(step);
        self.hashes.push(hash(&self.now));
    }

    /// Everything tried so far was acknowledged; `durable` says at which level.
    pub fn acknowledge(&mut self, durable: bool) {
        self.acknowledged = self.steps.len();
        if durable {
            self.durable = self.acknowledged;
        }
    }

    /// Which prefix `found` is; everything behind it is forgotten.
    ///
    /// # Errors
    /// It is none that the promises allow; says the nearest one.
    pub fn settle(&mut self, found: &Contents, down: Down) -> Result<(), String> {
        let least = if down == Down::Kill {
            self.acknowledged
        } else {
            self.durable
        };
        let wanted = hash(found);
        let Some(at) = (least..self.hashes.len())
            .rev()
            .find(|&i| self.hashes[i] == wanted)
        else {
            return Err(self.explain(found, least));
        };
        let mut base = std::mem::take(&mut self.base);
        self.steps[..at].iter().for_each(|s| take(&mut base, s));
        *self = Oracle::new(base);
        Ok(())
    }

    fn explain(&self, found: &Contents, least: usize) -> String {
        let wanted = hash(found);
        let earlier = self.hashes[..least].iter().rposition(|&h| h == wanted);
        let mut best = (usize::MAX, 0);
        let mut state = self.base.clone();
        let mut differences = Vec::new();
        for i in 0..=self.steps.len() {
            if i > 0 {
                take(&mut state, &self.steps[i - 1]);
            }
            let mut here = Vec::new();
            for name in state.keys().chain(found.keys()) {
                let (Some(a), Some(b)) = (state.get(name), found.get(name)) else {
                    here.push(format!("keyspace {name} differs in being there"));
                    continue;
                };
                for key in a.keys().chain(b.keys()) {
                    if a.get(key) != b.get(key) {
                        let show = |v: Option<&Vec<u8>>| {
                            v.map(|v| format!("{} bytes of {:?}", v.len(), v.first()))
                        };
                        here.push(format!(
                            "{name}/{}: expected {:?}, found {:?}",
                            key.escape_ascii(),
                            show(a.get(key)),
                            show(b.get(key))
                        ));
                    }
                }
            }
            if here.len() < best.0 {
                best = (here.len(), i);
                differences = here;
            }
        }
        format!(
            "no allowed state: {} steps, {} acknowledged, {least} must be there; an earlier state that matches: {earlier:?}; \
             nearest is after {} with {} differences: {:#?}",
            self.steps.len(),
            self.acknowledged,
            best.1,
            best.0,
            &differences[..differences.len().min(8)]
        )
    }
}

/// Everything in the store, forward; and backward it must be the same.
///
/// # Errors
/// Those of the store.
pub fn contents(db: &Db) -> thermocline::Result<Contents> {
    let mut all = Contents::new();
    for name in db.keyspaces() {
        let space = db.keyspace(&name)?;
        let forward = space
            .iter()?
            .forward()
            .collect::<thermocline::Result<Vec<_>>>()?;
        let mut backward = space
            .iter()?
            .backward()
            .collect::<thermocline::Result<Vec<_>>>()?;
        backward.reverse();
        assert_eq!(forward, backward);
        all.insert(name, forward.into_iter().collect());
    }
    Ok(all)
}

/// A store just made.
#[must_use]
pub fn fresh() -> Contents {
    Contents::from([("default".to_string(), BTreeMap::new())])
}
