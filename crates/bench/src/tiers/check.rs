//! `tiers check`: proves each cap of the rig that is up by real I/O, and the cap
//! on memory by a process that wants more.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clap::Args;

use super::cgroup;
use super::picture::{self, Drawn};
use super::probe::{LARGE_BYTES, Probe, SMALL_BYTES};
use super::profile::Profile;
use super::state::Rates;
use super::{Rig, RigTier};
use crate::device::Counters;
use crate::engine::Result;

/// How far from its cap a measured rate may lie.
const TOLERANCE: f64 = 0.15;

/// A device that gave less than this times the cap when it had none is the
/// limit itself. More than one, since the machine has other work at times.
const MACHINE_FACTOR: f64 = 1.5;

/// A request of [`LARGE_BYTES`] counts as one I/O or as two, by how scattered its
/// memory is; the kernel joins buffered writes to requests of at most this.
const COUNTED_BYTES_LEAST: u64 = 512 << 10;
const COUNTED_BYTES_MOST: u64 = 1280 << 10;

/// How long the reads are recorded that are drawn one by one.
const DRAWN_TIME: Duration = Duration::from_secs(1);

/// The hidden subcommand that the memory check starts.
pub(super) const OCCUPY: &str = "occupy";

/// What a cap turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Measured within the tolerance.
    Held,
    /// The device gives more than it should.
    Above,
    /// The device gives less than it should, though it could.
    Below,
    /// The device gives less than it should, as it did before it had a cap.
    Machine,
}

impl Verdict {
    fn fails(self) -> bool {
        matches!(self, Verdict::Above | Verdict::Below)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Verdict::Held => "held",
            Verdict::Above => "NOT HELD: above its cap",
            Verdict::Below => "NOT HELD: below what the cap allows",
            Verdict::Machine => "not reached: this machine gives no more",
        })
    }
}

/// One measured rate beside what the caps allow.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    what: &'static str,
    /// What a caps-bound device gives, at least and at most.
    least: f64,
    most: f64,
    measured: f64,
    uncapped: f64,
}

impl Line {
    fn verdict(&self) -> Verdict {
        if self.measured > self.most * (1.0 + TOLERANCE) {
            Verdict::Above
        } else if self.measured >= self.least * (1.0 - TOLERANCE) {
            Verdict::Held
        } else if self.uncapped < self.least * MACHINE_FACTOR {
            Verdict::Machine
        } else {
            Verdict::Below
        }
    }

    /// The line of the table; rates in bytes are shown by the million.
    fn cells(&self, tier: &str) -> [String; 6] {
        let range = match self.least == self.most {
            true => number(self.most),
            false => format!("{}-{}", number(self.least), number(self.most)),
        };
        [
            tier.to_string(),
            self.what.to_string(),
            range,
            number(self.measured),
            number(self.uncapped),
            self.verdict().to_string(),
        ]
    }
}

fn number(value: f64) -> String {
    match value < 100.0 {
        true => format!("{value:.1}"),
        false => format!("{value:.0}"),
    }
}

/// The measured rates beside those that `profile` allows.
fn lines(profile: &Profile, measured: &Rates, uncapped: &Rates) -> [Line; 5] {
    let reads = (profile.random_read_iops, profile.read_bytes_per_second());
    let writes = (profile.write_iops, profile.write_bytes_per_second());
    // Whichever of the two caps of a direction is reached first.
    let small = |(iops, bytes): (u64, u64)| {
        let rate = iops.min(bytes / SMALL_BYTES as u64) as f64;
        (rate, rate)
    };
    let large = |(iops, bytes): (u64, u64), counted_most: u64| {
        let at_most = |counted: u64| bytes.min(iops * counted) as f64 / 1e6;
        (at_most(COUNTED_BYTES_LEAST), at_most(counted_most))
    };
    let request = LARGE_BYTES as u64;
    // First the page cache is filled, then it is written back: the times add.
    let (written_back, buffered_most) = large(writes, COUNTED_BYTES_MOST);
    let without_cap = uncapped.buffered_bytes / 1e6;
    let buffered_least = written_back * without_cap / (written_back + without_cap);
    let line = |what, (least, most), measured, uncapped| Line {
        what,
        least,
        most,
        measured,
        uncapped,
    };
    [
        line(
            "random reads of 4 KiB, a second",
            small(reads),
            measured.reads,
            uncapped.reads,
        ),
        line(
            "random writes of 4 KiB, a second",
            small(writes),
            measured.writes,
            uncapped.writes,
        ),
        line(
            "reads of 1 MiB in order, MB/s",
            large(reads, request),
            measured.read_bytes / 1e6,
            uncapped.read_bytes / 1e6,
        ),
        line(
            "writes of 1 MiB in order, MB/s",
            large(writes, request),
            measured.written_bytes / 1e6,
            uncapped.written_bytes / 1e6,
        ),
        line(
            "buffered writes with syncs, MB/s",
            (buffered_least, buffered_most),
            measured.buffered_bytes / 1e6,
            uncapped.buffered_bytes / 1e6,
        ),
    ]
}

/// Measures every tier and the memory group; prints what it found and draws it in
/// the file `html`, if one is named. The error says which caps are not held.
pub(super) fn check(rig: &Rig, time: Duration, html: Option<&Path>) -> Result<()> {
    // This process measures as a worker would, but for the cap on memory.
    rig.join_devices(std::process::id())?;
    let mut failures = Vec::new();
    let mut rows = vec![["tier", "what", "cap", "measured", "without cap", ""].map(str::to_string)];
    let mut traffic = Vec::new();
    let mut drawn = Vec::new();
    for tier in &rig.tiers {
        let before = Counters::of(&tier.path)?;
        let probe = Probe::make(&tier.path, tier.bytes)?;
        let measured = probe.rates(time)?;
        let device = Counters::of(&tier.path)? - before;
        if html.is_some() {
            drawn.push(Drawn {
                name: format!("{} ({})", tier.name, tier.profile.name),
                reads: probe.reads(DRAWN_TIME)?,
                device,
            });
        }
        drop(probe);
        for line in lines(&tier.profile, &measured, &tier.uncapped) {
            if line.verdict().fails() {
                failures.push(format!("{}, {}: {}", tier.name, line.what, line.verdict()));
            }
            rows.push(line.cells(&tier.name));
        }
        traffic.push(format!(
            "{} ({}, device {}:{}): {} reads of {:.1} MB, {} writes of {:.1} MB for this check",
            tier.name,
            tier.profile.name,
            tier.device.0,
            tier.device.1,
            device.reads,
            device.read_bytes as f64 / 1e6,
            device.writes,
            device.written_bytes as f64 / 1e6,
        ));
    }
    println!("{}", columns(&rows));
    println!("{}", traffic.join("\n"));
    let memory = check_memory(rig)?;
    let words = memory.as_ref().unwrap_or_else(|words| words);
    println!("{words}");
    if let Some(path) = html {
        let text = picture::draw(&rows, words, &drawn);
        std::fs::write(path, text).map_err(cgroup::at(path))?;
        println!("drawn in {}", path.display());
    }
    failures.extend(memory.err());
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("not held: {}", failures.join("; ")).into()),
    }
}

/// Rows whose columns line up.
fn columns(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let [tier, what, cap, measured, uncapped, verdict] = row;
        let [a, b, c, d, e, _] = widths;
        let text = format!("{tier:<a$}  {what:<b$}  {cap:>c$}  {measured:>d$}  {uncapped:>e$}  ");
        format!("{}\n", (text + verdict).trim_end())
    };
    rows.iter().map(line).collect()
}

/// Proves the cap on memory; the inner error is that of a cap not held.
fn check_memory(rig: &Rig) -> Result<Result<String, String>> {
    let Some(group) = &rig.memory_group else {
        return Ok(Ok("memory: no cap".to_string()));
    };
    let others = cgroup::members(group)?;
    if !others.is_empty() {
        let words = format!("processes {others:?} are in the memory group; check without them");
        return Err(words.into());
    }
    let cap = cgroup::number(group, "memory.limit_in_bytes")?;
    let mut words = Vec::new();

    let wanted = cap + cap / 2;
    // The fastest tier with room, as the file is written and read whole.
    let tier = rig.tiers.iter().find(|tier| tier.bytes / 10 * 9 > wanted);
    match tier {
        None => words.push(format!(
            "no tier has room for a file of {} MiB, so the page cache is not checked",
            wanted >> 20
        )),
        Some(tier) => match page_cache(rig, tier, group, wanted)? {
            used if used > cap => {
                return Ok(Err(format!(
                    "memory: {} MiB used of at most {} MiB",
                    used >> 20,
                    cap >> 20
                )));
            }
            used if used < cap / 2 => {
                return Ok(Err(format!(
                    "memory: the page cache of {} MiB read counts only {} MiB",
                    wanted >> 20,
                    used >> 20
                )));
            }
            used => words.push(format!(
                "of a file of {} MiB that a process read, its page cache kept {} MiB",
                wanted >> 20,
                used >> 20
            )),
        },
    }

    let mut hungry = Occupant::start(rig, &OccupyArgs::memory(wanted))?;
    Ok(match hungry.occupied() {
        Ok(()) => Err(format!(
            "memory: a process got {} MiB under a cap of {} MiB",
            wanted >> 20,
            cap >> 20
        )),
        Err(_) => {
            let status = hungry.end()?;
            // What the kernel does to a process whose group has no more memory.
            if status.signal() != Some(9) {
                return Err(format!("the process that takes memory ended with {status}").into());
            }
            words.push(format!(
                "a process that wanted {} MiB was ended by the kernel",
                wanted >> 20
            ));
            Ok(format!(
                "memory: cap {} MiB held; {}",
                cap >> 20,
                words.join("; ")
            ))
        }
    })
}

/// The bytes that the group uses after a member has read a file of `bytes`.
fn page_cache(rig: &Rig, tier: &RigTier, group: &Path, bytes: u64) -> Result<u64> {
    let probe = Probe::with_bytes(&tier.path, bytes)?;
    let mut reader = Occupant::start(rig, &OccupyArgs::file(probe.path(), probe.bytes()))?;
    reader.occupied()?;
    let used = cgroup::number(group, "memory.usage_in_bytes")?;
    reader.end()?;
    Ok(used)
}

/// A process in the memory group that takes memory when told.
struct Occupant {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Occupant {
    fn start(rig: &Rig, args: &OccupyArgs) -> Result<Occupant> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["tiers", OCCUPY, "--bytes", &args.bytes.to_string()]);
        if let Some(file) = &args.file {
            command.arg("--file").arg(file);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().ok_or("the process has no output")?;
        let mut occupant = Occupant {
            child,
            orders,
            answers: BufReader::new(answers),
        };
        rig.join(occupant.child.id())?;
        if let Some(orders) = &mut occupant.orders {
            orders.write_all(b"go\n")?;
        }
        Ok(occupant)
    }

    /// Waits until it has what it wanted; an error if it ended before.
    fn occupied(&mut self) -> Result<()> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err("it ended before it had its memory".into()),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<std::process::ExitStatus> {
        self.orders = None;
        Ok(self.child.wait()?)
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// The options of the process that takes memory.
#[derive(Args, Debug)]
pub(super) struct OccupyArgs {
    /// How much.
    #[arg(long)]
    bytes: u64,
    /// Read this file instead of taking memory.
    #[arg(long)]
    file: Option<PathBuf>,
}

impl OccupyArgs {
    fn memory(bytes: u64) -> OccupyArgs {
        OccupyArgs { bytes, file: None }
    }

    fn file(path: &Path, bytes: u64) -> OccupyArgs {
        OccupyArgs {
            bytes,
            file: Some(path.to_path_buf()),
        }
    }
}

/// The side of the process: waits for a line, takes what it shall, says so, and
/// stays until its input ends.
pub(super) fn occupy(args: &OccupyArgs) -> Result<()> {
    let mut input = std::io::stdin().lock();
    input.read_line(&mut String::new())?;
    let mut taken = Vec::new();
    match &args.file {
        Some(path) => {
            let file = std::fs::File::open(path)?;
            std::io::copy(&mut file.take(args.bytes), &mut std::io::sink())?;
        }
        None => taken.resize(usize::try_from(args.bytes)?, 1_u8),
    }
    println!("{}", std::hint::black_box(&taken).len());
    input.read_line(&mut String::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(measured: f64, uncapped: f64) -> Line {
        Line {
            what: "reads",
            least: 100.0,
            most: 200.0,
            measured,
            uncapped,
        }
    }

    #[test]
    fn a_cap_is_held_within_the_tolerance_of_both_its_ends() {
        assert_eq!(line(231.0, 1e6).verdict(), Verdict::Above);
        assert_eq!(line(229.0, 1e6).verdict(), Verdict::Held);
        assert_eq!(line(86.0, 1e6).verdict(), Verdict::Held);
        assert_eq!(line(84.0, 1e6).verdict(), Verdict::Below);
    }

    #[test]
    fn a_slow_machine_is_no_broken_cap_but_is_said() {
        let slow = line(60.0, 70.0).verdict();
        assert_eq!(slow, Verdict::Machine);
        assert!(!slow.fails());
        assert!(slow.to_string().contains("this machine"));
        assert!(line(84.0, 1e6).verdict().fails());
    }

    #[test]
    fn the_cap_that_is_reached_first_is_the_one_expected() {
        let rates = Rates {
            buffered_bytes: 300e6,
            ..Rates::default()
        };
        let seek = Profile::named("hdd-seek").unwrap();
        let [reads, writes, read_order, write_order, buffered] = lines(&seek, &rates, &rates);
        assert_eq!((reads.least, reads.most), (60.0, 60.0));
        assert_eq!(writes.most, 150.0);
        // 60 requests of half a MiB and of a whole one.
        assert!(
            (read_order.least - 31.457_28).abs() < 1e-9,
            "{}",
            read_order.least
        );
        assert!(
            (read_order.most - 62.914_56).abs() < 1e-9,
            "{}",
            read_order.most
        );
        assert_eq!(write_order.most, 150.0);
        assert_eq!(buffered.most, 150.0);
        // 78.6 MB/s of writing back after 300 MB/s of filling.
        assert!((buffered.least - 62.3).abs() < 0.1, "{}", buffered.least);

        let narrow = Profile {
            read_mb_s: 4,
            random_read_iops: 100_000,
            ..seek
        };
        let [reads, ..] = lines(&narrow, &rates, &rates);
        assert_eq!(reads.most, f64::from(4_000_000 / 4096));
    }
}
