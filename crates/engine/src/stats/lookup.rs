//! What the lookup index does and costs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::human_bytes;

/// The lookup index since the store was opened. Uses are counted, and their time taken,
/// by samples: one in 64. See [`Options::lookup_index`](crate::Options::lookup_index).
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"key", b"value")?;
/// // With the default it is there when reads have many places to look in.
/// assert_eq!(db.stats().lookup, thermocline::LookupStats::default());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LookupStats {
    /// Bytes of memory that it has; 0 while it has never been of use.
    pub bytes: u64,
    /// Entries noted in it, about.
    pub notes: u64,
    /// Point reads that asked it, about.
    pub reads: u64,
    /// Of these, those that could pass over a memtable or a run; the others had to search all
    /// the same, about.
    pub answered: u64,
    /// Memtables and runs that reads passed over, all together, about.
    pub passed_over: u64,
    /// Whether it is switched off for a while because it cost more than it gave; only with
    /// [`LookupIndex::Auto`](crate::LookupIndex::Auto).
    pub is_paused: bool,
    /// Microseconds of processors that both took, about.
    pub cpu_us: u64,
}

impl fmt::Display for LookupStats {
    /// A line, or nothing if it was never of use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bytes == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "lookup index {}, {} entries noted, {} reads, {} of them answered, {} places passed over, \
             {:.3} s of processors{}",
            human_bytes(self.bytes),
            self.notes,
            self.reads,
            self.answered,
            self.passed_over,
            self.cpu_us as f64 / 1e6,
            match self.is_paused {
                true => "; off for a while, as it cost more than it gave",
                false => "",
            }
        )
    }
}
