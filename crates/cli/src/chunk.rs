//! A bounded stretch of the input, sorted and loaded as one run.
//!
//! Records lie one behind another in one block of memory; what is sorted is a
//! list of small entries. Of records with the same key the last one wins.

use crate::engine::{Keyspace, Result};

/// Bytes before every record: the lengths of its key and its value.
const HEAD_BYTES: usize = 8;

/// A record's place, and the first bytes of its key, which decide most
/// comparisons without a look at the record.
#[derive(Clone, Copy)]
struct Entry {
    prefix: u64,
    offset: usize,
}

/// Records to be loaded together.
pub(crate) struct Chunk {
    records: Vec<u8>,
    entries: Vec<Entry>,
    limit_bytes: usize,
}

/// What [`Chunk::load`] did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Loaded {
    /// Entries written.
    pub(crate) written: u64,
    /// Records left out because a later one had the same key.
    pub(crate) replaced: u64,
}

impl Chunk {
    /// An empty chunk that is full at `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Chunk {
        Chunk {
            records: Vec::new(),
            entries: Vec::new(),
            limit_bytes,
        }
    }

    /// Adds a record. Key and value are shorter than 4 GiB.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let offset = self.records.len();
        self.records
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.records
            .extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.records.extend_from_slice(key);
        self.records.extend_from_slice(value);
        let mut prefix = [0; 8];
        let n = key.len().min(8);
        prefix[..n].copy_from_slice(&key[..n]);
        self.entries.push(Entry {
            prefix: u64::from_be_bytes(prefix),
            offset,
        });
    }

    /// Whether the chunk has its size. A chunk may pass its limit by one record.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() + self.entries.len() * size_of::<Entry>() >= self.limit_bytes
    }

    /// Whether it has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sorts the records, loads them into `space` as a run and empties the
    /// chunk. Ensures: on success the records are durable.
    pub(crate) fn load(&mut self, space: &Keyspace) -> Result<Loaded> {
        let records = std::mem::take(&mut self.records);
        let mut entries = std::mem::take(&mut self.entries);
        sort(&records, &mut entries);
        let mut loaded = Loaded::default();
        let mut run = space.bulk_load()?;
        for (i, entry) in entries.iter().enumerate() {
            let (key, value) = record(&records, entry.offset);
            if let Some(next) = entries.get(i + 1)
                && next.prefix == entry.prefix
                && record(&records, next.offset).0 == key
            {
                loaded.replaced += 1;
                continue;
            }
            run.add(key, value)?;
            loaded.written += 1;
        }
        run.finish()?;
        // The memory is kept for the next chunk.
        self.records = records;
        self.entries = entries;
        self.records.clear();
        self.entries.clear();
        Ok(loaded)
    }
}

/// Sorts by key, and records of one key by their place in the input.
fn sort(records: &[u8], entries: &mut [Entry]) {
    entries.sort_unstable_by(|a, b| {
        a.prefix
            .cmp(&b.prefix)
            .then_with(|| record(records, a.offset).0.cmp(record(records, b.offset).0))
            .then(a.offset.cmp(&b.offset))
    });
}

fn record(records: &[u8], offset: usize) -> (&[u8], &[u8]) {
    let length = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&records[at..at + 4]);
        u32::from_le_bytes(bytes) as usize
    };
    let key_end = offset + HEAD_BYTES + length(offset);
    let value_end = key_end + length(offset + 4);
    (
        &records[offset + HEAD_BYTES..key_end],
        &records[key_end..value_end],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Dice;
    use std::collections::BTreeMap;

    #[test]
    fn sorting_keeps_the_order_of_equal_keys() {
        let seed = 21;
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        for _ in 0..200 {
            let mut chunk = Chunk::new(usize::MAX);
            let mut model: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
            for i in 0..dice.below(200) {
                // Zeros tell a short key from a padded prefix.
                let key: Vec<u8> = (0..1 + dice.below(10))
                    .map(|_| [0, 0, 1][dice.below(3) as usize])
                    .collect();
                let value = i.to_le_bytes().to_vec();
                chunk.push(&key, &value);
                model.entry(key).or_default().push(value);
            }
            sort(&chunk.records, &mut chunk.entries);
            let found: Vec<_> = chunk
                .entries
                .iter()
                .map(|e| record(&chunk.records, e.offset))
                .collect();
            let expected: Vec<_> = model
                .iter()
                .flat_map(|(k, vs)| vs.iter().map(move |v| (&k[..], &v[..])))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
