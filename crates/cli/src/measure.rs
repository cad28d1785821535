//! Measures a device through a file: random reads, sequential transfer, and
//! how long it takes to make a small write durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise, fstatfs};
use serde::Serialize;

use crate::exit::Failure;
use crate::latency::{Latencies, Percentiles};
use crate::progress;
use crate::temporary::Temporary;
use crate::workload::Dice;

/// Smallest file that is measured with.
pub(crate) const FILE_BYTES_MIN: u64 = STREAM_BYTES as u64;

/// What a random read reads, and what a small durable write writes.
const BLOCK_BYTES: usize = 4096;
/// What a sequential call transfers.
const STREAM_BYTES: usize = 1 << 20;
/// Alignment in memory and in the file that O_DIRECT wants everywhere.
const ALIGNMENT: usize = 4096;
/// Threads of the second random-read measurement.
const THREADS: u64 = 8;
/// Small durable writes at most, and for how long at most.
const PERSISTS_MAX: u32 = 200;
const PERSISTS_LONGEST: Duration = Duration::from_secs(5);
/// Names of the file systems that live in memory (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// Why the page cache answered instead of the device, if it did.
    pub(crate) cached_because: Option<&'static str>,
    /// Random 4 KiB reads a second, one at a time.
    pub(crate) random_read_iops_1: f64,
    /// Random 4 KiB reads a second of eight threads.
    pub(crate) random_read_iops_8: f64,
    /// In 10^6 bytes a second.
    pub(crate) sequential_write_mb_s: f64,
    /// In 10^6 bytes a second.
    pub(crate) sequential_read_mb_s: f64,
    /// Time to append 4 KiB and have it on the device.
    pub(crate) persist: Percentiles,
}

impl Measured {
    /// The slower direction: moves between tiers both read and write.
    pub(crate) fn sequential_mb_s(&self) -> f64 {
        self.sequential_read_mb_s.min(self.sequential_write_mb_s)
    }
}

/// Measures the device of `directory` with a file of `file_bytes` bytes.
/// Random reads go on for `time`, twice.
pub(crate) fn device(
    directory: &Path,
    file_bytes: u64,
    time: Duration,
) -> Result<Measured, Failure> {
    let path = directory.join(format!("thermocline-calibrate-{}", std::process::id()));
    let failed = |doing: &'static str| {
        let path = path.clone();
        move |error| Failure::io(doing, &path, error)
    };
    // `create_new`, and before it is registered for removal: a file of someone
    // else is neither overwritten nor removed.
    drop(
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(failed("creating"))?,
    );
    let file = Temporary::existing(path.clone());
    let opened = open(file.path()).map_err(failed("opening"))?;
    let blocks = file_bytes / STREAM_BYTES as u64 * (STREAM_BYTES / BLOCK_BYTES) as u64;

    let bar = progress::of_unknown_length("writing");
    let sequential_write_mb_s = write_all(&opened.file, blocks).map_err(failed("writing"))?;
    bar.set_message("reading at random, one at a time");
    let random_read_iops_1 = random_reads(&opened, blocks, 1, time).map_err(failed("reading"))?;
    bar.set_message("reading at random, eight at a time");
    let random_read_iops_8 =
        random_reads(&opened, blocks, THREADS, time).map_err(failed("reading"))?;
    bar.set_message("reading from end to end");
    let sequential_read_mb_s = read_all(&opened, blocks).map_err(failed("reading"))?;
    bar.set_message("making small writes durable");
    let persist = persists(&opened.file, blocks).map_err(failed("writing"))?;
    bar.finish_and_clear();
    Ok(Measured {
        cached_because: opened.cached_because,
        random_read_iops_1,
        random_read_iops_8,
        sequential_write_mb_s,
        sequential_read_mb_s,
        persist,
    })
}

/// The file, and whether its reads pass the page cache by.
struct Opened {
    file: File,
    cached_because: Option<&'static str>,
}

fn open(path: &Path) -> io::Result<Opened> {
    let mut plain = OpenOptions::new();
    plain.read(true).write(true);
    let mut direct = plain.clone();
    direct.custom_flags(OFlags::DIRECT.bits() as i32);
    let (file, mut cached_because) = match direct.open(path) {
        Ok(file) => (file, None),
        Err(_) => (plain.open(path)?, Some("the file system has no O_DIRECT")),
    };
    let kind = fstatfs(&file)?.f_type as u64 & u64::from(u32::MAX);
    if kind == TMPFS_MAGIC || kind == RAMFS_MAGIC {
        cached_because = Some("the directory lies in memory (tmpfs)");
    }
    Ok(Opened {
        file,
        cached_because,
    })
}

/// Asks the kernel to forget the file's pages, where reads go through them.
fn forget(opened: &Opened) {
    if opened.cached_because.is_some() {
        // Advice: where it is not followed, the output says so anyway.
        let _ = fadvise(&opened.file, 0, None, Advice::DontNeed);
    }
}

/// A buffer that begins where O_DIRECT wants it to.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Aligned {
            memory,
            start,
            length,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

fn mb_s(blocks: u64, took: Duration) -> f64 {
    (blocks * BLOCK_BYTES as u64) as f64 / 1e6 / took.as_secs_f64().max(1e-9)
}

fn write_all(file: &File, blocks: u64) -> io::Result<f64> {
    let mut buffer = Aligned::new(STREAM_BYTES);
    // Noise: a device that compresses would be measured too fast.
    let mut dice = Dice::new(1);
    for word in buffer.bytes().chunks_exact_mut(8) {
        word.copy_from_slice(&dice.roll().to_le_bytes());
    }
    let began = Instant::now();
    for offset in (0..blocks * BLOCK_BYTES as u64).step_by(STREAM_BYTES) {
        file.write_all_at(buffer.bytes(), offset)?;
    }
    file.sync_data()?;
    Ok(mb_s(blocks, began.elapsed()))
}

fn read_all(opened: &Opened, blocks: u64) -> io::Result<f64> {
    forget(opened);
    let mut buffer = Aligned::new(STREAM_BYTES);
    let began = Instant::now();
    for offset in (0..blocks * BLOCK_BYTES as u64).step_by(STREAM_BYTES) {
        opened.file.read_exact_at(buffer.bytes(), offset)?;
    }
    Ok(mb_s(blocks, began.elapsed()))
}

fn random_reads(opened: &Opened, blocks: u64, threads: u64, time: Duration) -> io::Result<f64> {
    forget(opened);
    let reads = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let began = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|seed| {
                let (reads, over) = (&reads, &over);
                scope.spawn(move || -> io::Result<()> {
                    let mut buffer = Aligned::new(BLOCK_BYTES);
                    let mut dice = Dice::new(seed);
                    while !over.load(Ordering::Relaxed) {
                        let offset = dice.below(blocks) * BLOCK_BYTES as u64;
                        opened.file.read_exact_at(buffer.bytes(), offset)?;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            match worker.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        io::Result::Ok(())
    })?;
    Ok(reads.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

fn persists(file: &File, blocks: u64) -> io::Result<Percentiles> {
    let mut buffer = Aligned::new(BLOCK_BYTES);
    let mut latencies = Latencies::new();
    let began = Instant::now();
    for i in 0..u64::from(PERSISTS_MAX) {
        let single = Instant::now();
        file.write_all_at(buffer.bytes(), (blocks + i) * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        latencies.record(single.elapsed());
        if began.elapsed() > PERSISTS_LONGEST {
            break;
        }
    }
    Ok(latencies.percentiles())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_leaves_nothing_behind_and_counts_something() {
        let dir = tempfile::tempdir().unwrap();
        let measured = device(dir.path(), 1 << 20, Duration::from_millis(20)).unwrap();
        assert!(measured.random_read_iops_1 > 0.0 && measured.random_read_iops_8 > 0.0);
        assert!(measured.sequential_mb_s() > 0.0);
        assert!(measured.persist.count > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Aligned::new(BLOCK_BYTES);
        assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(buffer.bytes().len(), BLOCK_BYTES);
    }
}
