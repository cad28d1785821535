//! What a run has used: processor time and memory of this process, bytes on
//! disk of a directory. Linux only, as is the comparison.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// The unit of `st_blocks`, whatever the file system's block size.
const STAT_BLOCK_BYTES: u64 = 512;

/// The processor time that this process has used, all threads, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Begins a new measurement of the peak of resident memory. Where the kernel
/// does not allow it, the peak is that since the process began.
pub(crate) fn reset_rss_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// The peak of resident memory since [`reset_rss_peak`], in bytes; zero where
/// it is not known.
pub(crate) fn rss_peak_bytes() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| parse_peak(&status))
        .unwrap_or(0)
}

/// The line `VmHWM:   1234 kB` of a process's status, in bytes.
fn parse_peak(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The bytes that the files below `directory` take on its device. Files that
/// vanish while they are counted do not count.
pub(crate) fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes += disk_bytes(&entry.path())?,
            Ok(metadata) => bytes += metadata.blocks() * STAT_BLOCK_BYTES,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The processor and its cores, in words.
pub(crate) fn machine() -> String {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_string())
    });
    let name = name.unwrap_or_else(|| "unknown processor".to_string());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{name}, {cores} cores")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_a_status_page() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 7 kB\n";
        assert_eq!(parse_peak(status), Some(2 << 20));
        assert_eq!(parse_peak("Name:\tx\n"), None);
    }

    #[test]
    fn files_in_subdirectories_count() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        fs::write(directory.path().join("inner/file"), vec![1; 100_000]).unwrap();
        assert!(disk_bytes(directory.path()).unwrap() >= 90_000);
    }

    #[test]
    fn work_uses_processor_time() {
        let before = cpu_seconds();
        let mut sum = 0_u64;
        while cpu_seconds() - before < 0.001 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
