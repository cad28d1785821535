//! What a run has used: processor time and memory of this process, bytes on
//! disk of a directory. Linux only, as is the comparison.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
    status_bytes("VmHWM:")
}

/// The anonymous memory of this process, in bytes: what it has allocated and
/// written to, without pages of files. Zero where it is not known.
pub(crate) fn anonymous_bytes() -> u64 {
    status_bytes("RssAnon:")
}

/// The resident memory of this process, in bytes. Zero where it is not known.
fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// How often [`Watch`] looks, at most: nobody keeps the numbers that it is for.
const WATCH_STEP: Duration = Duration::from_millis(50);

/// Looks again and again at a number of bytes, for its peak and its mean.
pub(crate) struct Watch {
    done: Arc<AtomicBool>,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    peak_bytes: AtomicU64,
    /// Of all looks together, and how many there were.
    bytes: AtomicU64,
    looks: AtomicU64,
}

/// What all looks up to a moment have seen together.
#[derive(Clone, Copy)]
pub(crate) struct Looks {
    bytes: u64,
    looks: u64,
}

impl Looks {
    /// The mean of those that came after `before`; none if there were none.
    pub(crate) fn mean_since(self, before: Looks) -> Option<f64> {
        let looks = self.looks.saturating_sub(before.looks);
        (looks > 0).then(|| self.bytes.saturating_sub(before.bytes) as f64 / looks as f64)
    }
}

impl Watch {
    /// Watches the anonymous memory of this process.
    pub(crate) fn of_memory() -> Watch {
        Watch::start(anonymous_bytes)
    }

    /// Watches all of the resident memory of this process.
    pub(crate) fn of_resident_memory() -> Watch {
        Watch::start(resident_bytes)
    }

    /// Watches what lies below `directory`.
    pub(crate) fn of_directory(directory: &Path) -> Watch {
        let directory = directory.to_path_buf();
        // A directory that goes away while it is read counts with the next look.
        Watch::start(move || disk_bytes(&directory).unwrap_or(0))
    }

    fn start(look: impl Fn() -> u64 + Send + 'static) -> Watch {
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Seen::default());
        let (stop, by_thread) = (Arc::clone(&done), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            loop {
                let bytes = look();
                by_thread.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
                by_thread.bytes.fetch_add(bytes, Ordering::Relaxed);
                by_thread.looks.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                thread::park_timeout(WATCH_STEP);
            }
        });
        Watch {
            done,
            seen,
            thread: Some(thread),
        }
    }

    /// What was seen up to now.
    pub(crate) fn looks(&self) -> Looks {
        Looks {
            bytes: self.seen.bytes.load(Ordering::Relaxed),
            looks: self.seen.looks.load(Ordering::Relaxed),
        }
    }

    /// Ends the watch; the most that was seen, in bytes.
    pub(crate) fn peak_bytes(mut self) -> u64 {
        self.stop();
        self.seen.peak_bytes.load(Ordering::Relaxed)
    }

    fn stop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot panic; if it did, what it saw until then is the answer.
            drop(thread.join());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A number of bytes of this process's status; zero where it is not known.
fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").ok();
    status
        .and_then(|status| parse_line(&status, name))
        .unwrap_or(0)
}

/// The line `name   1234 kB` of a process's status, in bytes.
fn parse_line(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
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
        assert_eq!(parse_line(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(parse_line("Name:\tx\n", "VmHWM:"), None);
    }

    #[test]
    fn memory_that_is_written_to_is_seen_by_the_watch() {
        let watch = Watch::of_memory();
        let before = anonymous_bytes();
        let expected = before + (60 << 20);
        // Until it was seen: on a busy machine the watch gets its turn late, and tests that run
        // beside this one let go of memory.
        let mut held = Vec::new();
        for look in 0..400 {
            if watch.seen.peak_bytes.load(Ordering::Relaxed) >= expected {
                break;
            }
            if look % 40 == 0 {
                held.push(std::hint::black_box(vec![1_u8; 64 << 20]));
            }
            thread::sleep(WATCH_STEP);
        }
        drop(held);
        assert!(watch.peak_bytes() >= expected);
    }

    #[test]
    fn a_mean_is_of_the_looks_between_two_moments() {
        let level = Arc::new(AtomicU64::new(100));
        let shown = Arc::clone(&level);
        let watch = Watch::start(move || shown.load(Ordering::Relaxed));
        let after = |looks: u64| {
            while watch.looks().looks < looks {
                watch.thread.as_ref().unwrap().thread().unpark();
                thread::yield_now();
            }
            watch.looks()
        };
        let first = after(3);
        assert_eq!(first.mean_since(Looks { bytes: 0, looks: 0 }), Some(100.0));
        assert_eq!(first.mean_since(first), None);
        level.store(40, Ordering::Relaxed);
        // One look may have begun before.
        let second = after(watch.looks().looks + 1);
        let third = after(second.looks + 5);
        assert_eq!(third.mean_since(second), Some(40.0));
        assert_eq!(watch.peak_bytes(), 100);
    }

    #[test]
    fn a_file_that_has_gone_counts_in_the_peak() {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch::of_directory(directory.path());
        let file = directory.path().join("file");
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        while watch.seen.peak_bytes.load(Ordering::Relaxed) < 1 << 20 {
            thread::yield_now();
        }
        fs::remove_file(file).unwrap();
        assert!(watch.peak_bytes() >= 1 << 20);
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
