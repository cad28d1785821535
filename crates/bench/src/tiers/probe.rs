//! Real I/O on a tier, to see what it gives: direct reads and writes, random and
//! sequential, and buffered writes with syncs.
//!
//! Rates are what was done divided by the time until the last of it was done, so
//! that requests which wait for a slice of their cap count in full.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::cgroup::at;
use super::state::Rates;
use crate::engine::Result;

/// A request that a device counts by the piece.
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// A request that streams.
pub(super) const LARGE_BYTES: usize = 1 << 20;

/// What direct I/O wants of a buffer's address.
const ALIGNMENT: usize = 4096;

/// The file to work on is at most that large, and at most a quarter of the tier.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads that are kept one by one.
const READS_MAX: usize = 1 << 20;

/// Requests under way at a time: enough to reach a cap.
const RANDOM_THREADS: usize = 16;
const SEQUENTIAL_THREADS: usize = 4;

/// A file on a tier, deleted with its owner.
pub(super) struct Probe {
    path: PathBuf,
    bytes: u64,
}

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Read,
    Write,
}

impl Probe {
    /// Makes a file below `directory`, whose file system holds `tier_bytes`. It
    /// is written around the page cache, so that no process has it there.
    pub(super) fn make(directory: &Path, tier_bytes: u64) -> Result<Probe> {
        let bytes = (tier_bytes / 4).min(FILE_BYTES_MAX);
        Probe::with_bytes(directory, bytes)
    }

    /// The same with a file of `bytes`, rounded down to requests, at least one.
    pub(super) fn with_bytes(directory: &Path, bytes: u64) -> Result<Probe> {
        let requests = (bytes / LARGE_BYTES as u64).max(1);
        let probe = Probe {
            path: directory.join("probe"),
            bytes: requests * LARGE_BYTES as u64,
        };
        let file = probe.open(true, true)?;
        let mut buffer = Buffer::new(LARGE_BYTES);
        buffer.get().fill(0x5a);
        for request in 0..requests {
            file.write_all_at(buffer.get(), request * LARGE_BYTES as u64)
                .map_err(at(&probe.path))?;
        }
        file.sync_all().map_err(at(&probe.path))?;
        Ok(probe)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All measurements, each for about `time`.
    pub(super) fn rates(&self, time: Duration) -> Result<Rates> {
        Ok(Rates {
            reads: self.random(Access::Read, time)?,
            writes: self.random(Access::Write, time)?,
            read_bytes: self.sequential(Access::Read, time)?,
            written_bytes: self.sequential(Access::Write, time)?,
            buffered_bytes: self.buffered(time)?,
        })
    }

    /// Random direct requests of [`SMALL_BYTES`] a second.
    fn random(&self, access: Access, time: Duration) -> Result<f64> {
        let file = self.open(access == Access::Write, true)?;
        let blocks = self.bytes / SMALL_BYTES as u64;
        let outcome = drive(RANDOM_THREADS, SMALL_BYTES, time, |buffer, request| {
            let offset = scatter(request) % blocks * SMALL_BYTES as u64;
            transfer(&file, access, buffer, offset)
        });
        Ok(outcome.map_err(at(&self.path))?)
    }

    /// Random direct reads of [`SMALL_BYTES`] one by one: when each was finished,
    /// in seconds since the first began, and how long it took, in microseconds.
    pub(super) fn reads(&self, time: Duration) -> Result<Vec<(f64, f64)>> {
        let file = self.open(false, true)?;
        let blocks = self.bytes / SMALL_BYTES as u64;
        let seen = Mutex::new(Vec::new());
        let begin = Instant::now();
        let outcome = drive(RANDOM_THREADS, SMALL_BYTES, time, |buffer, request| {
            let offset = scatter(request) % blocks * SMALL_BYTES as u64;
            let asked = begin.elapsed();
            transfer(&file, Access::Read, buffer, offset)?;
            let answered = begin.elapsed();
            let took = answered - asked;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.len() < READS_MAX {
                seen.push((answered.as_secs_f64(), took.as_secs_f64() * 1e6));
            }
            Ok(())
        });
        outcome.map_err(at(&self.path))?;
        Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes a second of direct requests of [`LARGE_BYTES`], one after the other.
    fn sequential(&self, access: Access, time: Duration) -> Result<f64> {
        let file = self.open(access == Access::Write, true)?;
        let blocks = self.bytes / LARGE_BYTES as u64;
        let outcome = drive(SEQUENTIAL_THREADS, LARGE_BYTES, time, |buffer, request| {
            transfer(&file, access, buffer, request % blocks * LARGE_BYTES as u64)
        });
        Ok(outcome.map_err(at(&self.path))? * LARGE_BYTES as f64)
    }

    /// Bytes a second of buffered writes over the whole file, synced at its end
    /// each time.
    fn buffered(&self, time: Duration) -> Result<f64> {
        let file = self.open(true, false)?;
        let buffer = vec![0xa5; LARGE_BYTES];
        let begin = Instant::now();
        let mut written = 0;
        while written == 0 || begin.elapsed() < time {
            for offset in (0..self.bytes).step_by(LARGE_BYTES) {
                file.write_all_at(&buffer, offset).map_err(at(&self.path))?;
            }
            file.sync_data().map_err(at(&self.path))?;
            written += self.bytes;
        }
        Ok(written as f64 / begin.elapsed().as_secs_f64())
    }

    fn open(&self, write: bool, direct: bool) -> Result<File> {
        let flags = match direct {
            true => OFlags::DIRECT.bits() as i32,
            false => 0,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            .create(write)
            .custom_flags(flags)
            .open(&self.path)
            .map_err(at(&self.path))?;
        Ok(file)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // `down` deletes the whole image anyway.
        drop(fs::remove_file(&self.path));
    }
}

fn transfer(file: &File, access: Access, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    match access {
        Access::Read => file.read_exact_at(buffer, offset),
        Access::Write => file.write_all_at(buffer, offset),
    }
}

/// Has `threads` do numbered requests until `time` is over; requests a second.
fn drive(
    threads: usize,
    buffer_bytes: usize,
    time: Duration,
    request: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
) -> io::Result<f64> {
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    let work = || -> io::Result<()> {
        let mut buffer = Buffer::new(buffer_bytes);
        // At least once, however late a busy machine lets this thread begin.
        loop {
            request(buffer.get(), next.fetch_add(1, Ordering::Relaxed))?;
            if begin.elapsed() >= time {
                return Ok(());
            }
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in running {
            thread
                .join()
                .map_err(|_| io::Error::other("a thread of the measurement panicked"))??;
        }
        io::Result::Ok(())
    })?;
    let done = next.load(Ordering::Relaxed);
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// Spreads consecutive numbers over all numbers (the finaliser of SplitMix64).
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Memory at an address that direct I/O takes.
struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        let memory = vec![0; bytes + ALIGNMENT];
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer {
            memory,
            begin,
            bytes,
        }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_where_direct_requests_want_them() {
        for bytes in [SMALL_BYTES, LARGE_BYTES] {
            let mut buffer = Buffer::new(bytes);
            assert_eq!(buffer.get().len(), bytes);
            assert!(buffer.get().as_ptr().addr().is_multiple_of(ALIGNMENT));
        }
    }

    #[test]
    fn every_request_is_numbered_once() {
        let seen: Vec<AtomicU64> = (0..1 << 20).map(|_| AtomicU64::new(0)).collect();
        drive(4, 64, Duration::from_millis(5), |_, request| {
            if let Some(count) = seen.get(request as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::yield_now();
            Ok(())
        })
        .unwrap();
        let counts: Vec<u64> = seen.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        let done = counts.iter().take_while(|count| **count == 1).count();
        assert!(done > 0);
        assert!(counts[done..].iter().all(|count| *count == 0));
    }

    #[test]
    fn an_error_of_a_request_is_the_error_of_the_measurement() {
        let failing = |_: &mut [u8], request| match request {
            3 => Err(io::Error::other("broken")),
            _ => Ok(()),
        };
        let error = drive(2, 64, Duration::from_millis(50), failing).unwrap_err();
        assert_eq!(error.to_string(), "broken");
    }
}
