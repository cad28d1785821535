//! Pinned values.

use std::ops::Deref;

use crate::memory::MemValue;
use crate::table::BlockSlice;

/// A value pinned where it lies, in a block or a memtable: reading it copied
/// nothing. It dereferences to its bytes and keeps them alive.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// let value: thermocline::Slice = db.get(b"key")?.expect("was just put");
/// assert_eq!(&*value, b"value");
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone)]
pub struct Slice(Pin);

#[derive(Clone)]
enum Pin {
    Memory(MemValue),
    Block(BlockSlice),
}

impl Slice {
    #[inline]
    pub(crate) fn memory(value: MemValue) -> Slice {
        Slice(Pin::Memory(value))
    }

    #[inline]
    pub(crate) fn block(value: BlockSlice) -> Slice {
        Slice(Pin::Block(value))
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Pin::Memory(value) => value,
            Pin::Block(value) => value,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice(\"{}\")", self.escape_ascii())
    }
}
