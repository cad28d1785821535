//! What the range index does and costs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What cuts save scans since the store was opened, and what they take, in keyspaces of several
/// parts: a scan has the memtables and newest runs of one part at a time. What is passed over and
/// the time are known by samples: of one in 64.
///
/// ```
/// # use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(Options::at(directory.path()).cuts(vec![b"m".to_vec()]))?;
/// db.put(b"a", b"")?;
/// db.put(b"z", b"")?;
/// assert_eq!(db.iter()?.forward().count(), 2);
/// let ranges = db.stats().range_index;
/// assert_eq!((ranges.scans, ranges.parts), (1, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RangeIndexStats {
    /// Scans of keyspaces of several parts.
    pub scans: u64,
    /// How often one went on from one part to another.
    pub parts: u64,
    /// Memtables and newest runs that these never touched, as they lie in parts that they did not
    /// come to, about.
    pub passed_over: u64,
    /// Microseconds of processors that finding parts and going from one to another took, about.
    pub cpu_us: u64,
}

impl fmt::Display for RangeIndexStats {
    /// A line, or nothing if it was never of use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scans == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "range index {} scans, {} times to another part, {} places passed over, {:.3} s of processors",
            self.scans,
            self.parts,
            self.passed_over,
            self.cpu_us as f64 / 1e6
        )
    }
}
