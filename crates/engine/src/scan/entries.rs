//! An iterator of the store as an ordinary one.

use super::Iter;
use crate::error::Result;

/// See [`Iter::forward`] and [`Iter::backward`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"22")?;
/// let mut bytes = 0;
/// for entry in db.iter()?.forward() {
///     let (key, value) = entry?; // A read may fail in the middle.
///     bytes += key.len() + value.len();
/// }
/// assert_eq!(bytes, 5);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Debug)]
pub struct Entries {
    pub(super) iter: Iter,
    pub(super) forward: bool,
    pub(super) begun: bool,
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = match (self.begun, self.forward) {
            (false, _) if self.iter.valid() => Ok(()),
            (false, true) => self.iter.seek_to_first(),
            (false, false) => self.iter.seek_to_last(),
            (true, true) => self.iter.next(),
            (true, false) => self.iter.prev(),
        };
        self.begun = true;
        match moved {
            Err(e) => Some(Err(e)),
            Ok(()) => self
                .iter
                .valid()
                .then(|| Ok((self.iter.key().to_vec(), self.iter.value().to_vec()))),
        }
    }
}
