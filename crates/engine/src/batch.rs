//! Write batches: what the log records and what reaches the memtables.
//!
//! A batch is kept in its log encoding from the start, so committing it copies
//! bytes once. Each operation is: kind byte (0 delete, 1 put, 2 range delete),
//! keyspace number if bit 7 of the kind byte is set (LEB128; otherwise the
//! default keyspace), key (length, bytes), and for puts the value, for range
//! deletes the end key (length, bytes). Described in `docs/formats/log.md`.
//!
//! A fold logs entries anew, under numbers of their own: such an operation has bit 6
//! of the kind byte set and says, before its key, which number it has had since it
//! was first written. No user's batch has any.

use thermocline_model::key::{KEY_BYTES_MAX, Kind, SeqNo, VALUE_BYTES_MAX};
use thermocline_model::version::KeyspaceId;

use crate::error::{Error, Result};
use crate::keyspace::Keyspace;

/// Most bytes one batch may take in the log.
///
/// ```
/// # use thermocline::{BATCH_BYTES_MAX, WriteBatch};
/// let mut batch = WriteBatch::new();
/// batch.put(b"key", b"value")?;
/// // Write what has been gathered while there is room for more.
/// assert!(batch.size_bytes() < BATCH_BYTES_MAX / 2);
/// # Ok::<(), thermocline::Error>(())
/// ```
pub const BATCH_BYTES_MAX: usize = 1 << 30;

const HAS_KEYSPACE: u8 = 0x80;
const RESTATED: u8 = 0x40;

/// Writes that take effect together or not at all.
///
/// ```
/// use thermocline::WriteBatch;
/// let mut batch = WriteBatch::new();
/// batch.put(b"left", b"90")?;
/// batch.put(b"right", b"110")?;
/// batch.delete(b"pending")?;
/// assert_eq!(batch.len(), 3);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// The store whose keyspaces it names. They are encoded as numbers, which
    /// another store gave to keyspaces of its own.
    store: Option<u128>,
}

impl WriteBatch {
    /// An empty batch.
    ///
    /// ```
    /// let batch = thermocline::WriteBatch::new();
    /// assert!(batch.is_empty());
    /// ```
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value` in the default keyspace.
    ///
    /// ```
    /// # use thermocline::WriteBatch;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"key", b"old")?;
    /// batch.put(b"key", b"new")?; // Of two, the later one counts.
    /// db.write(&batch)?;
    /// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"new"[..]));
    /// assert!(batch.put(&[0; 100_000], b"too long a key").is_err());
    /// assert_eq!(batch.len(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when the key is empty or longer
    /// than 64 KiB, the value longer than 512 MiB, or the batch would exceed
    /// 1 GiB. The batch is then unchanged.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(KeyspaceId::DEFAULT, Kind::Put, key, value)
    }

    /// Deletes `key` from the default keyspace.
    ///
    /// ```
    /// # use thermocline::WriteBatch;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"from", b"value")?;
    /// let mut rename = WriteBatch::new();
    /// rename.delete(b"from")?;
    /// rename.put(b"to", b"value")?;
    /// db.write(&rename)?;
    /// assert!(db.get(b"from")?.is_none() && db.get(b"to")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.push(KeyspaceId::DEFAULT, Kind::Delete, key, b"")
    }

    /// Deletes every key from `start` (inclusive) to `end` (exclusive) from the
    /// default keyspace.
    ///
    /// ```
    /// # use thermocline::WriteBatch;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"user:1", b"")?;
    /// let mut replace = WriteBatch::new();
    /// replace.delete_range(b"user:", b"user;")?;
    /// replace.put(b"user:2", b"")?; // Later than the delete, so it stays.
    /// db.write(&replace)?;
    /// assert!(db.get(b"user:1")?.is_none() && db.get(b"user:2")?.is_some());
    /// assert!(replace.delete_range(b"b", b"a").is_err());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put`], and when `start` is not before `end`.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.push(KeyspaceId::DEFAULT, Kind::RangeDelete, start, end)
    }

    /// Sets `key` to `value` in `keyspace`.
    ///
    /// ```
    /// # use thermocline::{KeyspaceOptions, WriteBatch};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_in(&users, b"ada", b"lovelace")?;
    /// batch.put(b"users", b"1")?; // The default keyspace, at the same moment.
    /// db.write(&batch)?;
    /// assert!(users.get(b"ada")?.is_some() && db.get(b"ada")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put`], and when the batch names a keyspace of another
    /// store already.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.push_in(keyspace, Kind::Put, key, value)
    }

    /// Deletes `key` from `keyspace`.
    ///
    /// ```
    /// # use thermocline::{KeyspaceOptions, WriteBatch};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// users.put(b"ada", b"lovelace")?;
    /// let mut batch = WriteBatch::new();
    /// batch.delete_in(&users, b"ada")?;
    /// db.write(&batch)?;
    /// assert!(users.get(b"ada")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put_in`].
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.push_in(keyspace, Kind::Delete, key, b"")
    }

    /// Deletes every key from `start` (inclusive) to `end` (exclusive) from
    /// `keyspace`.
    ///
    /// ```
    /// # use thermocline::{KeyspaceOptions, WriteBatch};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let users = db.create_keyspace("users", KeyspaceOptions::default())?;
    /// users.put(b"ada", b"")?;
    /// users.put(b"grace", b"")?;
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range_in(&users, b"a", b"b")?;
    /// db.write(&batch)?;
    /// assert!(users.get(b"ada")?.is_none() && users.get(b"grace")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put_in`], and when `start` is not before `end`.
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        self.push_in(keyspace, Kind::RangeDelete, start, end)
    }

    /// The number of operations.
    ///
    /// ```
    /// let mut batch = thermocline::WriteBatch::new();
    /// batch.put(b"key", b"value")?;
    /// batch.delete(b"key")?;
    /// assert_eq!(batch.len(), 2); // Operations, not keys.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    ///
    /// ```
    /// let mut batch = thermocline::WriteBatch::new();
    /// assert!(batch.is_empty());
    /// batch.delete(b"key")?;
    /// assert!(!batch.is_empty());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes it takes in the log.
    ///
    /// ```
    /// let mut batch = thermocline::WriteBatch::new();
    /// batch.put(b"key", b"value")?;
    /// assert_eq!(batch.size_bytes(), 1 + (1 + 3) + (1 + 5)); // Kind, key, value.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all operations, keeping the memory.
    ///
    /// ```
    /// # use thermocline::WriteBatch;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut batch = WriteBatch::new();
    /// for i in 0..1000u32 {
    ///     batch.put(&i.to_be_bytes(), b"value")?;
    ///     if batch.len() == 100 {
    ///         db.write(&batch)?;
    ///         batch.clear();
    ///     }
    /// }
    /// assert!(batch.is_empty());
    /// assert_eq!(db.stats().writes, 1000);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.store = None;
    }

    /// Refuses a batch that names a keyspace of another store than `store`.
    pub(crate) fn check_store(&self, store: u128) -> Result<()> {
        if self.store.is_some_and(|named| named != store) {
            return Err(Error::invalid(
                "the batch names a keyspace of another store",
            ));
        }
        Ok(())
    }

    fn push_in(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let store = keyspace.engine().store_id;
        self.check_store(store)?;
        self.push(keyspace.id(), kind, key, value)?;
        self.store = Some(store);
        Ok(())
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn push(
        &mut self,
        keyspace: KeyspaceId,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.push_as(None, keyspace, kind, key, value)
    }

    /// An entry that has the number `seq` already.
    pub(crate) fn restate(
        &mut self,
        seq: SeqNo,
        keyspace: KeyspaceId,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.push_as(Some(seq), keyspace, kind, key, value)
    }

    fn push_as(
        &mut self,
        restated: Option<SeqNo>,
        keyspace: KeyspaceId,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        check_key(key)?;
        match kind {
            Kind::Put => check_value(value)?,
            Kind::Delete => {}
            Kind::RangeDelete => {
                check_key(value)?;
                if key >= value {
                    return Err(
                        Error::invalid("range delete: start is not before end").expected(
                            "start < end",
                            format!("{} and {}", key.escape_ascii(), value.escape_ascii()),
                        ),
                    );
                }
            }
        }
        let total = self.bytes.len() + key.len() + value.len() + 32;
        if total > BATCH_BYTES_MAX {
            return Err(Error::invalid("batch size in bytes")
                .expected(format!("at most {BATCH_BYTES_MAX}"), total));
        }
        let first = kind as u8 | if restated.is_some() { RESTATED } else { 0 };
        if keyspace == KeyspaceId::DEFAULT {
            self.bytes.push(first);
        } else {
            self.bytes.push(first | HAS_KEYSPACE);
            put_length(&mut self.bytes, keyspace.0 as usize);
        }
        if let Some(seq) = restated {
            put_length(&mut self.bytes, seq.0 as usize);
        }
        put_length(&mut self.bytes, key.len());
        self.bytes.extend_from_slice(key);
        if kind != Kind::Delete {
            put_length(&mut self.bytes, value.len());
            self.bytes.extend_from_slice(value);
        }
        self.count += 1;
        Ok(())
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("key is empty"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid("key length in bytes")
            .expected(format!("at most {KEY_BYTES_MAX}"), key.len()));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid("value length in bytes")
            .expected(format!("at most {VALUE_BYTES_MAX}"), value.len()));
    }
    Ok(())
}

#[inline]
fn put_length(bytes: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        bytes.push((n as u8) | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

/// One operation of an encoded batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The number that the entry has, if that is not its own in the log.
    pub(crate) restated: Option<SeqNo>,
}

/// The operations of an encoded batch, in order. Ends early, with an error in
/// words, where the bytes make no sense.
pub(crate) struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Operations<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Operations<'a> {
        Operations { rest: bytes }
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number(35)?).ok()
    }

    /// A number of at most so many bits.
    fn number(&mut self, bits: u32) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..bits).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(bytes)
    }

    fn operation(&mut self) -> Option<Operation<'a>> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        let kind = Kind::from_byte(first & !(HAS_KEYSPACE | RESTATED))?;
        let keyspace = if first & HAS_KEYSPACE == 0 {
            KeyspaceId::DEFAULT
        } else {
            KeyspaceId(u32::try_from(self.length()?).ok()?)
        };
        let restated = if first & RESTATED == 0 {
            None
        } else {
            Some(SeqNo(self.number(56)?))
        };
        let key = self.bytes()?;
        let value = if kind == Kind::Delete {
            &[][..]
        } else {
            self.bytes()?
        };
        let lawful = !key.is_empty()
            && key.len() <= KEY_BYTES_MAX
            && value.len() <= VALUE_BYTES_MAX
            && (kind != Kind::RangeDelete || key < value)
            && restated.is_none_or(|seq| seq > SeqNo::ZERO);
        lawful.then_some(Operation {
            keyspace,
            kind,
            key,
            value,
            restated,
        })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let operation = self.operation();
        if operation.is_none() {
            self.rest = &[];
        }
        Some(operation.ok_or("the bytes are not a batch"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_back_in_order() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").unwrap();
        batch
            .push(KeyspaceId(300), Kind::Delete, b"gone", b"")
            .unwrap();
        batch.delete_range(b"a", b"b").unwrap();
        let read: Vec<_> = Operations::new(batch.encoded())
            .map(Result::unwrap)
            .collect();
        assert_eq!(read.len(), batch.len());
        assert_eq!(read[0].value, b"v");
        assert_eq!(
            read[1],
            Operation {
                keyspace: KeyspaceId(300),
                kind: Kind::Delete,
                key: b"gone",
                value: b"",
                restated: None,
            }
        );
        assert_eq!(
            (read[2].kind, read[2].key, read[2].value),
            (Kind::RangeDelete, &b"a"[..], &b"b"[..])
        );
    }

    #[test]
    fn an_entry_logged_anew_reads_back_with_its_own_number() {
        let mut batch = WriteBatch::new();
        let seq = SeqNo(SeqNo::MAX.0 - 1);
        batch
            .restate(seq, KeyspaceId(300), Kind::Put, b"k", b"v")
            .unwrap();
        batch.put(b"k", b"w").unwrap();
        let read: Vec<_> = Operations::new(batch.encoded())
            .map(Result::unwrap)
            .collect();
        assert_eq!(read[0].restated, Some(seq));
        assert_eq!(read[0].keyspace, KeyspaceId(300));
        assert_eq!((read[0].key, read[0].value), (&b"k"[..], &b"v"[..]));
        assert_eq!(read[1].restated, None);
        // No entry has the number 0, nor one of more than 56 bits.
        for number in [&[0][..], &[0xff; 9], &[0x80, 0x80]] {
            let bytes = [&[0x41][..], number, &[1, b'k', 0]].concat();
            assert!(Operations::new(&bytes).any(|o| o.is_err()), "{number:?}");
        }
    }

    #[test]
    fn what_is_refused_leaves_the_batch_unchanged() {
        let mut batch = WriteBatch::new();
        assert!(batch.put(b"", b"v").is_err());
        assert!(batch.put(&vec![0; KEY_BYTES_MAX + 1], b"v").is_err());
        assert!(batch.delete_range(b"b", b"b").is_err());
        assert!(batch.is_empty() && batch.size_bytes() == 0);
        assert!(batch.put(&vec![0; KEY_BYTES_MAX], b"").is_ok());
    }

    #[test]
    fn garbage_is_an_error_not_a_panic() {
        let mut seed = 7u64;
        for _ in 0..2000 {
            let mut bytes = Vec::new();
            for _ in 0..seed % 40 {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                bytes.push((seed >> 33) as u8);
            }
            seed = seed.wrapping_add(1);
            let _ = Operations::new(&bytes).count();
        }
    }
}
