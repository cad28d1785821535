//! What a store holds, as plain maps: for harnesses that keep whole states
//! instead of the versions of [`crate::oracle`].

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use thermocline::Db;

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
