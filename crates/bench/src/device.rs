//! What the kernel counts of a block device: requests and bytes, both ways.
//!
//! The numbers are those of the device below a file system, so they hold what
//! the page cache did not absorb, the file system's own journal included.

use std::io;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The unit of sectors in the kernel's statistics, whatever the device's own.
const SECTOR_BYTES: u64 = 512;

/// Counters of a device since it was made. The difference of two readings is
/// what happened between them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Counters {
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Read requests that were completed.
    pub reads: u64,
    /// Write requests that were completed.
    pub writes: u64,
}

impl Counters {
    /// The counters of the device that holds `path`.
    ///
    /// Errors: `path` cannot be looked up, or no block device holds it, as with
    /// a file system in memory.
    pub(crate) fn of(path: &Path) -> io::Result<Counters> {
        let (major, minor) = number(path)?;
        let statistics = format!("/sys/dev/block/{major}:{minor}/stat");
        let text = std::fs::read_to_string(&statistics).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{} lies on no block device that counts", path.display()),
            ),
            _ => io::Error::new(error.kind(), format!("{statistics}: {error}")),
        })?;
        parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{statistics}: not the statistics of a device: {text:?}"),
            )
        })
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, before: Counters) -> Counters {
        Counters {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
        }
    }
}

/// The major and minor number of the device that holds `path`.
pub(crate) fn number(path: &Path) -> io::Result<(u32, u32)> {
    let device = std::fs::metadata(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?
        .dev();
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The page `stat` of a device: reads, merged reads, sectors read, time; the
/// same of writes; more that is not used here.
fn parse(text: &str) -> Option<Counters> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (reads, _, sectors_read, _) = (next()?, next()?, next()?, next()?);
    let (writes, _, sectors_written) = (next()?, next()?, next()?);
    Some(Counters {
        read_bytes: sectors_read.checked_mul(SECTOR_BYTES)?,
        written_bytes: sectors_written.checked_mul(SECTOR_BYTES)?,
        reads,
        writes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_statistics_is_read_by_its_columns() {
        let page = "  10  1  80  5  20  2  4000  7  0  9  12  1 0 8 0 3 1\n";
        let expected = Counters {
            read_bytes: 80 * 512,
            written_bytes: 4000 * 512,
            reads: 10,
            writes: 20,
        };
        assert_eq!(parse(page), Some(expected));
        assert_eq!(parse("10 1 80 5 20 2"), None);
        assert_eq!(parse("10 1 x 5 20 2 3"), None);
    }

    #[test]
    fn a_difference_is_what_happened_between_two_readings() {
        let before = parse("1 0 8 0 2 0 16").unwrap();
        let after = parse("4 0 32 0 2 0 16").unwrap();
        let expected = Counters {
            read_bytes: 24 * 512,
            written_bytes: 0,
            reads: 3,
            writes: 0,
        };
        assert_eq!(after - before, expected);
    }

    #[test]
    fn a_file_system_without_a_device_is_refused_in_words() {
        let error = Counters::of(Path::new("/proc/self")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("/proc/self"), "{error}");
    }
}
