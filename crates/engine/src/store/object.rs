//! Objects: what a store holds. Written once from front to back, made durable,
//! then read and at last deleted.

use std::fmt;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use super::{Advice, IoBudget};
use crate::Result;

/// What an object holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// Blocks of entries.
    Data,
    /// What is needed to find a block: the small part, worth a fast tier.
    Meta,
}

impl ObjectKind {
    fn extension(self) -> &'static str {
        match self {
            ObjectKind::Data => "data",
            ObjectKind::Meta => "meta",
        }
    }
}

/// The name of an object in its store. As a file name: `000123.data`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectName {
    /// Unique in the store for good; never given twice.
    pub id: u64,
    /// What it holds.
    pub kind: ObjectKind,
}

impl ObjectName {
    /// The name that is written as `file_name`, if it is one.
    #[must_use]
    pub fn parse(file_name: &str) -> Option<ObjectName> {
        let (digits, extension) = file_name.split_once('.')?;
        let kind = [ObjectKind::Data, ObjectKind::Meta]
            .into_iter()
            .find(|kind| kind.extension() == extension)?;
        let name = ObjectName {
            id: parse_id(digits)?,
            kind,
        };
        Some(name)
    }
}

/// The largest number that a file name of a store can have: more files than can
/// be made one after another.
const ID_MAX: u64 = 1 << 56;

/// New numbers are given above those of the files there are, but for files
/// numbered above this, which no store has come to: somebody put them there.
/// There is always room for numbers above.
const GIVEN_ID_MAX: u64 = ID_MAX / 2;

/// The number that `digits` spell in the way file names of a store spell it:
/// at least six digits, zeros in front only to get there. A number that no store
/// can come to is part of somebody else's name.
pub(crate) fn parse_id(digits: &str) -> Option<u64> {
    let id: u64 = digits.parse().ok()?;
    (id <= ID_MAX && format!("{id:06}") == digits).then_some(id)
}

/// Whether new numbers have to be above `id`, which a file has.
pub(crate) fn is_given_id(id: u64) -> bool {
    id <= GIVEN_ID_MAX
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}.{}", self.id, self.kind.extension())
    }
}

/// How full a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreState {
    /// Bytes in objects of this store.
    pub used_bytes: u64,
    /// Bytes still free on its device.
    pub free_bytes: u64,
}

/// A namespace of objects on one device, directory, remote node or bucket.
pub trait Store: Send + Sync + Debug {
    /// Makes an object.
    ///
    /// # Errors
    /// `AlreadyExists`, `NoSpace`, `Io`.
    fn create(&self, name: ObjectName) -> Result<Box<dyn ObjectWriter>>;

    /// Opens an object for reading.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    fn open(&self, name: ObjectName) -> Result<Arc<dyn ObjectReader>>;

    /// Deletes an object. Those who have it open go on reading it.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    fn delete(&self, name: ObjectName) -> Result<()>;

    /// Every object and its size in bytes, in the order of their names.
    ///
    /// # Errors
    /// `Io`.
    fn list(&self) -> Result<Vec<(ObjectName, u64)>>;

    /// How full it is.
    ///
    /// # Errors
    /// `Io`.
    fn state(&self) -> Result<StoreState>;

    /// Whether reads really go past the operating system's cache: it was asked
    /// for, and the file system does it.
    fn is_direct(&self) -> bool;

    /// Where it is, to show to a person.
    fn directory(&self) -> &Path;

    /// The same store, whose readers and writers take their bytes from
    /// `budget`: for work in the background.
    fn with_budget(&self, budget: Arc<IoBudget>) -> Arc<dyn Store>;

    /// Puts the object into `directory` under the same file name, sharing its
    /// bytes where the file system can and as a durable copy where not. The
    /// caller makes the names in `directory` durable, once for all.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `NoSpace`, `Io`.
    fn link(&self, name: ObjectName, directory: &Path) -> Result<()>;
}

/// An object being written. Dropped before it was ever persisted, it is deleted.
pub trait ObjectWriter: Send {
    /// Adds `bytes` at the end.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; after any error, `Poisoned` for good.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Bytes appended so far.
    fn size_bytes(&self) -> u64;

    /// Starts what [`ObjectWriter::persist`] will wait for, and gives back the memory that
    /// appending takes: nothing more is about to be appended. Of several objects begun like
    /// this and then persisted one after the other, the file system records the sizes and
    /// places at once, where it else would for each.
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn begin_persist(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes durable what was appended: the content, then (the first time) the
    /// name. Only now may anything else name the object (I2).
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn persist(&mut self) -> Result<()>;

    /// Deletes the object.
    fn abandon(self: Box<Self>);
}

/// An object open for reading.
pub trait ObjectReader: Send + Sync + Debug {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corruption` if the object ends before, `Io`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The size of the object when it was opened.
    fn size_bytes(&self) -> u64;

    /// Whether reads go past the operating system's cache: then advice does
    /// nothing, and only asking early makes reads overlap.
    fn is_direct(&self) -> bool {
        false
    }

    /// A hint on how a range will be used.
    fn advise(&self, offset: u64, length: u64, advice: Advice);

    /// Another reader of the object, for who reads it from end to end: the operating system reads
    /// ahead for it, and what is read there does not change how it reads for others. `None` where
    /// there is no difference.
    fn reopened(&self) -> Option<Arc<dyn ObjectReader>> {
        None
    }

    /// Where it is, to show to a person.
    fn path(&self) -> &Path;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_round_trip_and_nothing_else_is_a_name() {
        for id in [0, 1, 123, 999_999, 1_000_000, ID_MAX] {
            for kind in [ObjectKind::Data, ObjectKind::Meta] {
                let name = ObjectName { id, kind };
                assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
            }
        }
        assert_eq!(
            ObjectName::parse("000123.data").unwrap().to_string(),
            "000123.data"
        );
        for other in [
            "",
            ".",
            "123.data",
            "0000123.data",
            "000123.log",
            "000123",
            "+00123.data",
            "000123.data.tmp",
            "00012x.meta",
            "TIER",
            "99999999999999999999999.data",
        ] {
            assert_eq!(ObjectName::parse(other), None, "{other}");
        }
    }
}
