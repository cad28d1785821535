//! A trace in place of dice: its keys, and for each client its share of the
//! accesses.
//!
//! A client gets the accesses to its share of the keys, in the order of the
//! trace, so that accesses to one key keep their order whatever the number of
//! clients. At the end it begins again.

use std::path::Path;
use std::sync::Arc;

use thermocline_cli::accesses::{Access, Accesses, Operation as Traced};

use super::Operation;

/// A trace in memory.
#[derive(Debug)]
pub(crate) struct Trace {
    accesses: Accesses,
}

impl Trace {
    /// Reads the trace in `path`; a value whose size it does not record has
    /// `value_bytes`.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn read(path: &Path, value_bytes: u32) -> Result<Trace, String> {
        let accesses = Accesses::read(path, value_bytes)?;
        Ok(Trace { accesses })
    }

    /// The keys, which are the records.
    pub(crate) fn keys(&self) -> &[Arc<[u8]>] {
        &self.accesses.keys
    }

    /// The size of each record's value at the beginning.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.accesses.sizes
    }

    /// Bytes of all keys and their first values.
    pub(crate) fn data_bytes(&self) -> u64 {
        let keys = self.accesses.keys.iter().map(|key| key.len() as u64);
        let values = self.accesses.sizes.iter().map(|&size| u64::from(size));
        keys.sum::<u64>() + values.sum::<u64>()
    }

    /// The next access of client `number` of `clients` from the place `at` in the
    /// trace on, with the place behind it; begins again at the end. `None` if
    /// the client has none at all.
    #[inline]
    pub(crate) fn next(&self, at: usize, [number, clients]: [u32; 2]) -> Option<(Access, usize)> {
        let list = &self.accesses.list;
        let places = (at..list.len()).chain(0..at);
        let mine = |&place: &usize| list[place].key % clients == number;
        let place = places.into_iter().find(mine)?;
        Some((list[place], place + 1))
    }

    /// The share of the accesses that each record gets.
    pub(crate) fn weights(&self) -> Vec<f64> {
        let mut weights = vec![0.0; self.accesses.keys.len()];
        let one = 1.0 / self.accesses.list.len() as f64;
        for access in &self.accesses.list {
            weights[access.key as usize] += one;
        }
        weights
    }

    /// The share of the accesses that read, and that write.
    pub(crate) fn shares(&self) -> [f64; 2] {
        let mut counts = [0.0; 2];
        for access in &self.accesses.list {
            match access.operation {
                Traced::Read => counts[0] += 1.0,
                Traced::Write | Traced::Delete => counts[1] += 1.0,
                Traced::Update => counts.iter_mut().for_each(|count| *count += 1.0),
            }
        }
        counts.map(|count| count / self.accesses.list.len() as f64)
    }
}

/// What a client does for an access of a trace.
pub(crate) fn operation(access: &Access) -> Operation {
    match access.operation {
        Traced::Read => Operation::Read,
        Traced::Write => Operation::Update,
        Traced::Update => Operation::ReadModifyWrite,
        Traced::Delete => Operation::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        let lines = "0,a,1,10,1,get,0\n1,b,1,20,1,set,0\n2,c,1,5,1,incr,0\n2,a,1,1,1,get,0\n";
        std::fs::write(&path, lines).unwrap();
        Trace::read(&path, 100).unwrap()
    }

    #[test]
    fn clients_share_the_accesses_by_key_and_in_order() {
        let trace = trace();
        let keys = |number| -> Vec<u32> {
            let mut at = 0;
            let mut next = || {
                let (access, behind) = trace.next(at, [number, 2]).unwrap();
                at = behind;
                access.key
            };
            (0..4).map(|_| next()).collect()
        };
        assert_eq!((keys(0), keys(1)), (vec![0, 2, 0, 0], vec![1, 1, 1, 1]));
        assert!(trace.next(0, [7, 9]).is_none());
    }

    #[test]
    fn weights_and_shares_are_counted() {
        let trace = trace();
        assert_eq!(trace.weights(), [0.5, 0.25, 0.25]);
        assert_eq!(trace.shares(), [0.75, 0.5]);
        assert_eq!(trace.data_bytes(), 3 + 35);
    }
}
