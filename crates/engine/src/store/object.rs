//! What a table needs of an object: append and persist while it is written,
//! positioned reads afterwards.

use std::fmt::Debug;
use std::path::Path;

use crate::error::Result;

/// How a range of an object will be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Soon.
    WillNeed,
    /// Not again.
    DontNeed,
    /// In order.
    Sequential,
    /// In no order.
    Random,
}

/// An object being written.
pub trait ObjectWriter: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// When the device refuses them.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Bytes appended so far.
    fn size_bytes(&self) -> u64;
    /// Makes everything appended durable, its name included.
    ///
    /// # Errors
    /// When the device does; the object is then lost.
    fn persist(&mut self) -> Result<()>;
    /// Deletes the object.
    fn abandon(self: Box<Self>);
}

/// An object being read.
pub trait ObjectReader: Send + Sync + Debug {
    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// When the device fails or the object ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// The object's length.
    fn size_bytes(&self) -> u64;
    /// Tells how a range will be read.
    fn advise(&self, offset: u64, length: u64, advice: Advice);
    /// The file, for messages.
    fn path(&self) -> &Path;
}
