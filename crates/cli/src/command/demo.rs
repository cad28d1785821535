//! `thermocline demo`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Out;
use crate::clients::{Clients, Measured, SKEW, key};
use crate::engine::{self, Changes, Db, DeviceProfile, Options, Tier, WhatIf};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::latency::Percentiles;
use crate::progress;
use crate::report;
use crate::slow::{Slowness, environment};
use crate::story::{Phase, Sample, Story};
use crate::temporary::Temporary;
use crate::watch::Rows;
use crate::workload::{fill, fingerprint};

/// Prices of the paper's local SSD and remote magnetic disk, in USD per GB and month.
const PRICES: [f64; 2] = [0.528, 0.045];

/// The targets, one after the other, as in the paper's figure 10.
const TARGETS: [f64; 3] = [0.4, 0.2, 0.3];

/// What the phases take of the whole: the three targets, and the hot set moved.
const PARTS: [u32; 4] = [12, 14, 14, 25];

/// The cheap tier's reads are made slower by so much.
const SLOWNESS: Slowness = Slowness {
    read: Duration::from_millis(1),
    bytes_per_second: 200_000_000,
};

/// Share of the data that the block cache can hold. Small, so that tiers and not
/// memory answer.
const CACHE_SHARE: f64 = 0.02;

/// Bytes a second that relocations may move.
const MIGRATION_BYTES_PER_SECOND: u64 = 16 << 20;

/// Threads that read and write.
const CLIENTS: u32 = 4;

/// Records written at once while loading.
const RECORDS_PER_BATCH: usize = 256;

/// How often it is measured, and every how many samples a line is printed.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
const SAMPLES_PER_LINE: usize = 5;

/// See a store keep to a budget and follow what is hot
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline demo
  thermocline demo --records 1000000 --seconds 100
  thermocline demo --json --html demo.html

Makes a store of two temporary directories, a dear fast tier and a cheap slow one
(its reads are made slower, since both lie on one device), loads records, and reads
and writes them with skew. Meanwhile what the store may cost is lowered and raised
again, and at last other records become the hot ones. Every value read is checked.
Shows price, places, latency and what was moved, while it happens, as plots, and as
a file of HTML. Takes a minute and a quarter, and leaves nothing behind but that file.")]
pub(crate) struct Demo {
    /// Records to load
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(100..))]
    records: u32,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    value_bytes: u32,
    /// How long the workload goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 65, value_parser = clap::value_parser!(u32).range(1..=36_000))]
    seconds: u32,
    /// The file with the plots
    #[arg(long, value_name = "FILE", default_value = "thermocline-demo.html")]
    html: PathBuf,
    /// Write no such file
    #[arg(long, conflicts_with = "html")]
    no_html: bool,
    /// Directory in which the temporary directories are made
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        // Declared before the store: what is declared first is dropped last.
        let scratch = Temporary::directory(self.scratch.as_deref())?;
        let environment = environment(&scratch.path().join("cheap"), SLOWNESS);
        let db = Db::open_in(self.options(scratch.path()), &environment)?;
        self.say(out, |out| {
            writeln!(
                out,
                "A store over two tiers, in {}, preset mutant",
                scratch.path().display()
            )?;
            writeln!(
                out,
                "  fast   {} USD per GB and month\n  cheap  {} USD per GB and month; a read takes {} longer",
                PRICES[0],
                PRICES[1],
                human::nanos(SLOWNESS.read.as_nanos() as u64)
            )
        })?;
        let took = self.load(&db)?;
        let data_bytes = u64::from(self.records) * (u64::from(self.value_bytes) + 16);
        self.say(out, |out| {
            writeln!(
                out,
                "Loaded {} records ({}) in {}; {CLIENTS} clients read and write them, skew {SKEW}\n",
                human::count(u64::from(self.records)),
                human::bytes(data_bytes),
                human::duration(took)
            )
        })?;
        let clients = Clients::new(self.records, self.value_bytes);
        let story = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (db, clients) = (&db, &clients);
                    scope.spawn(move || clients.work(db, number, CLIENTS))
                })
                .collect();
            let story = self.tell(out, &db, &clients);
            clients.end();
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            story
        })?;
        self.print(out, &db, &story)?;
        db.close()?;
        match story.total.wrong {
            0 => Ok(Exit::Done),
            wrong => Err(Failure::new(
                Exit::Damaged,
                format!("{wrong} reads gave a wrong value"),
            )),
        }
    }

    fn say(
        &self,
        out: Out<'_>,
        words: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        if !self.json {
            words(out)?;
            out.flush()?;
        }
        Ok(())
    }

    /// Small tables and memtables, in proportion to the data, and heat that is reckoned
    /// and forgotten within seconds: a minute stands for a day here.
    fn options(&self, scratch: &Path) -> Options {
        let data_bytes = u64::from(self.records) * (u64::from(self.value_bytes) + 16);
        let table_bytes = (data_bytes / 128).clamp(64 << 10, 16 << 20);
        let memtable_bytes = table_bytes.max(256 << 10);
        let tier = |name: &str, price, random_read_iops, sequential_mb_s| {
            Tier::new(name, scratch.join(name))
                .price_usd_gb_month(price)
                .profile(DeviceProfile {
                    random_read_iops,
                    sequential_mb_s,
                })
        };
        let slow_iops = 1.0 / SLOWNESS.read.as_secs_f64();
        let slow_mb_s = SLOWNESS.bytes_per_second as f64 / 1e6;
        Options::new()
            .tier(tier("fast", PRICES[0], 100_000.0, 1000.0))
            .tier(tier("cheap", PRICES[1], slow_iops, slow_mb_s))
            .preset("mutant")
            .cost_target_usd_per_gb_month(TARGETS[0])
            .heat_epoch_ms(100)
            .cooling_coefficient(0.95)
            .migration_cool_down_s(3)
            .migration_bytes_per_second_max(MIGRATION_BYTES_PER_SECOND)
            .write_buffer_bytes(4 * memtable_bytes)
            .memtable_bytes(memtable_bytes)
            .log_segment_bytes(memtable_bytes)
            .table_bytes(table_bytes)
            .first_level_bytes(8 * table_bytes)
            .block_cache_bytes((data_bytes as f64 * CACHE_SHARE) as u64)
    }

    fn load(&self, db: &Db) -> Result<Duration, Failure> {
        let bar = progress::of_operations("loading", u64::from(self.records));
        let space = db.keyspace(engine::DEFAULT_KEYSPACE)?;
        let began = Instant::now();
        let mut changes = Changes::of(&space);
        let mut value = vec![0; self.value_bytes as usize];
        for record in 0..self.records {
            let key = key(record);
            fill(&mut value, fingerprint(&key), 0);
            changes.put(&key, &value)?;
            if changes.len() == RECORDS_PER_BATCH {
                std::mem::replace(&mut changes, Changes::of(&space)).write(db)?;
                bar.set_position(u64::from(record));
            }
        }
        changes.write(db)?;
        bar.set_message("settling");
        db.flush()?;
        db.settle()?;
        bar.finish_and_clear();
        Ok(began.elapsed())
    }

    /// The phases, one after the other, while the clients work.
    fn tell(&self, out: Out<'_>, db: &Db, clients: &Clients) -> Result<Story, Failure> {
        let titles = [("time", 7), ("ops/s", 7), ("p50", 7), ("p99", 7)];
        let first = db.pulse();
        let rows = Rows::new(&titles, &first);
        let mut story = Story::new(Instant::now(), first);
        let mut end = Duration::ZERO;
        for (at, part) in PARTS.into_iter().enumerate() {
            let title = match TARGETS.get(at) {
                Some(target) => format!("{}: what it may cost is {target}", letter(at)),
                None => format!("{}: other records are the hot ones", letter(at)),
            };
            let mut phase = Phase::begin(title, letter(at), story.seconds(), &db.pulse());
            if let Some(&target) = TARGETS.get(at) {
                if at > 0 {
                    let change = WhatIf::nothing_changes().cost_target(Some(target));
                    phase.forecast = Some(db.forecast(&change)?);
                    db.set_cost_target(Some(target))?;
                }
            } else {
                clients.move_hot_set(u64::from(self.records) * 3 / 5);
            }
            self.say(out, |out| {
                writeln!(out, "{}", phase.title)?;
                rows.header(out)
            })?;
            let whole: u32 = PARTS.iter().sum();
            end += Duration::from_secs(u64::from(self.seconds)) * part / whole;
            let mut line = Measured::new();
            let mut before = db.pulse();
            loop {
                std::thread::sleep(SAMPLE_EVERY.min(end.saturating_sub(story.elapsed())));
                let measured = clients.take();
                line.add(&measured);
                let sample = Sample::of(&measured, story.seconds(), &story.last, &db.pulse());
                story.add(sample, &measured, db.pulse());
                phase.samples += 1;
                let over = story.elapsed() >= end;
                if over || phase.samples.is_multiple_of(SAMPLES_PER_LINE) {
                    let now = db.pulse();
                    let latency = line.reads.percentiles();
                    let operations = latency.count + line.writes;
                    let span = now.now_us.saturating_sub(before.now_us).max(1);
                    let cells = vec![
                        format!("{:.1} s", story.seconds()),
                        human::count(operations * 1_000_000 / span),
                        human::nanos(latency.p50_ns),
                        human::nanos(latency.p99_ns),
                    ];
                    let delta = now.since(&before);
                    self.say(out, |out| rows.row(out, cells, &delta))?;
                    (before, line) = (now, Measured::new());
                }
                if over {
                    break;
                }
            }
            phase.end(&story, &db.pulse());
            self.say(out, |out| writeln!(out, "{}", phase.summary()))?;
            story.phases.push(phase);
        }
        Ok(story)
    }

    fn print(&self, out: Out<'_>, db: &Db, story: &Story) -> Result<(), Failure> {
        let pulse = db.pulse();
        let reads: Percentiles = story.total.reads.percentiles();
        let html = (!self.no_html).then(|| {
            let page = story.page(&db.events(usize::MAX));
            std::fs::write(&self.html, page)
        });
        if self.json {
            let object = json!({
                "records": self.records,
                "operations": reads.count + story.total.writes,
                "reads": reads,
                "wrong": story.total.wrong,
                "phases": story.phases,
                "samples": story.samples,
                "pulse": pulse,
                "html": html.is_some_and(|h| h.is_ok()).then_some(&self.html),
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        writeln!(out)?;
        story.plots(out)?;
        writeln!(out, "\nBytes and price at the end")?;
        report::tiers(out, &pulse)?;
        // Of all places of the hottest key the oldest, where all but its last writes
        // are.
        let hottest = u64::from(self.records) * 3 / 5;
        let [start, end] = [hottest, hottest + 1].map(|record| key(record as u32));
        let mut told = db.explain_range(Some(&start), Some(&end))?;
        told.memtable_bytes = 0;
        told.tables.drain(..told.tables.len().saturating_sub(1));
        writeln!(out, "\nWhy the hottest key is where it is\n{told}")?;
        writeln!(
            out,
            "\n{} values were read and compared; {} were wrong.",
            human::count(reads.count),
            human::count(story.total.wrong)
        )?;
        match html {
            Some(Ok(())) => writeln!(out, "Plots to look at closer: {}", self.html.display())?,
            Some(Err(error)) => {
                writeln!(out, "{} was not written: {error}", self.html.display())?;
            }
            None => {}
        }
        writeln!(
            out,
            "Next: thermocline put --db DIR KEY VALUE, or thermocline load --help"
        )?;
        Ok(())
    }
}

fn letter(phase: usize) -> char {
    char::from(b'A' + (phase % 26) as u8)
}
