//! What a block device has done, from the kernel's counters.

use std::fs;
use std::io;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The unit of the kernel's sector counts, whatever the device.
const SECTOR_BYTES: u64 = 512;

/// Counters of one block device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Counters {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl Counters {
    /// The counters of the device below `path`.
    ///
    /// # Errors
    /// Where there is no such path, or no block device below it, as in tmpfs.
    pub(crate) fn of(path: &Path) -> io::Result<Counters> {
        let device = fs::metadata(path)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
        Counters::parse(&text).ok_or_else(|| io::Error::other("counters of another form"))
    }

    fn parse(text: &str) -> Option<Counters> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let (reads, _, read) = (next()?, next()?, next()?);
        let (_, writes, _, written) = (next()?, next()?, next()?, next()?);
        Some(Counters {
            read_bytes: read * SECTOR_BYTES,
            written_bytes: written * SECTOR_BYTES,
            reads,
            writes,
        })
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, before: Counters) -> Counters {
        Counters {
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let text = "  10 1 20 5  30 2 40 6 0 7 8 0 0 0 0 0 0\n";
        let counters = Counters::parse(text).unwrap();
        assert_eq!((counters.reads, counters.writes), (10, 30));
        assert_eq!(
            (counters.read_bytes, counters.written_bytes),
            (10_240, 20_480)
        );
    }
}
