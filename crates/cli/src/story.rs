//! What the demo measured, phase by phase, and how it is shown: in words, as plots on
//! a terminal, and as a page.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::clients::Measured;
use crate::engine::{Event, Forecast, Pulse};
use crate::html::{self, Plot, Rows, Section, Series, page};
use crate::human;
use crate::plot::{Line, plot};

/// Of a phase, the last part, as a share, that says where it has led. Clients still write then, so
/// that a spare is left for flushes, and the price lies somewhat below the target.
const END_SHARE: f64 = 0.25;

/// Moves listed on the page.
const EVENTS_MAX: usize = 60;

const MIB: f64 = (1 << 20) as f64;

/// What was measured in a moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Its end, in seconds since the beginning.
    pub(crate) seconds: f64,
    pub(crate) operations_per_second: f64,
    /// Of the reads that a tier answered, the share that the first one did; none
    /// where there were none.
    pub(crate) fast_hits_share: Option<f64>,
    pub(crate) read_mean_us: Option<f64>,
    pub(crate) read_p99_us: Option<f64>,
    pub(crate) price_usd_gb_month: f64,
    pub(crate) target_usd_gb_month: Option<f64>,
    pub(crate) moved_mib_per_second: f64,
    pub(crate) merged_mib_per_second: f64,
}

impl Sample {
    /// Of what was `measured` between two pulses.
    pub(crate) fn of(measured: &Measured, seconds: f64, last: &Pulse, now: &Pulse) -> Sample {
        let delta = now.since(last);
        let span = now.now_us.saturating_sub(last.now_us).max(1) as f64 / 1e6;
        let reads = measured.reads.percentiles();
        let some = |value: f64| (reads.count > 0).then_some(value);
        Sample {
            seconds,
            operations_per_second: (reads.count + measured.writes) as f64 / span,
            fast_hits_share: fast_hits_share(&delta),
            read_mean_us: some(measured.read_ns as f64 / reads.count.max(1) as f64 / 1e3),
            read_p99_us: some(reads.p99_ns as f64 / 1e3),
            price_usd_gb_month: now.price_usd_gb_month,
            target_usd_gb_month: now.target_usd_gb_month,
            moved_mib_per_second: delta.migrated_bytes as f64 / MIB / span,
            merged_mib_per_second: delta.merged_bytes as f64 / MIB / span,
        }
    }
}

fn fast_hits_share(delta: &Pulse) -> Option<f64> {
    let all: u64 = delta.tiers.iter().map(|t| t.hits).sum();
    let fast = delta.tiers.first()?.hits;
    (all > 0).then(|| fast as f64 / all as f64)
}

/// A phase, and what it came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) title: String,
    pub(crate) letter: char,
    /// When it began.
    pub(crate) seconds: f64,
    #[serde(skip)]
    pub(crate) samples: usize,
    #[serde(skip)]
    began: Pulse,
    /// What a dry run had said.
    pub(crate) forecast: Option<Forecast>,
    /// At its end.
    pub(crate) price_usd_gb_month: f64,
    /// Of its last part.
    pub(crate) fast_hits_share: Option<f64>,
    pub(crate) read_mean_us: Option<f64>,
    pub(crate) operations_per_second: f64,
    /// Of all of it.
    pub(crate) moved_bytes: u64,
    pub(crate) moves_saved_bytes: u64,
    pub(crate) merged_bytes: u64,
    /// By how much the fast tier has shrunk or grown: the least that had to move.
    pub(crate) least_bytes: u64,
}

impl Phase {
    pub(crate) fn begin(title: String, letter: char, seconds: f64, now: &Pulse) -> Phase {
        Phase {
            title,
            letter,
            seconds,
            samples: 0,
            began: now.clone(),
            forecast: None,
            price_usd_gb_month: 0.0,
            fast_hits_share: None,
            read_mean_us: None,
            operations_per_second: 0.0,
            moved_bytes: 0,
            moves_saved_bytes: 0,
            merged_bytes: 0,
            least_bytes: 0,
        }
    }

    /// Sums up what `story` has of it.
    pub(crate) fn end(&mut self, story: &Story, now: &Pulse) {
        let delta = now.since(&self.began);
        self.price_usd_gb_month = now.price_usd_gb_month;
        self.moved_bytes = delta.migrated_bytes;
        self.moves_saved_bytes = delta.migrations_saved_bytes;
        self.merged_bytes = delta.merged_bytes;
        let fast = |pulse: &Pulse| pulse.tiers.first().map_or(0, |t| t.used_bytes);
        self.least_bytes = fast(now).abs_diff(fast(&self.began));
        let count = ((self.samples as f64 * END_SHARE).ceil() as usize).max(1);
        let rest = &story.samples[story.samples.len().saturating_sub(count)..];
        let mean = |value: fn(&Sample) -> Option<f64>| {
            let known: Vec<f64> = rest.iter().filter_map(value).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        self.fast_hits_share = mean(|s| s.fast_hits_share);
        self.read_mean_us = mean(|s| s.read_mean_us);
        self.operations_per_second = mean(|s| Some(s.operations_per_second)).unwrap_or(0.0);
    }

    /// In a few lines.
    pub(crate) fn summary(&self) -> String {
        let percent =
            |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.1} %", 100.0 * s));
        let mut text = format!(
            "   at its end: price {:.4}, fast serves {} of what tiers serve, a read takes {} on average\n   \
             moved {} ({} more by merges); the fast tier changed by {}\n",
            self.price_usd_gb_month,
            percent(self.fast_hits_share),
            self.read_mean_us
                .map_or("-".into(), |us| human::nanos((us * 1e3) as u64)),
            human::bytes(self.moved_bytes),
            human::bytes(self.moves_saved_bytes),
            human::bytes(self.least_bytes),
        );
        if let Some(forecast) = &self.forecast {
            let then = forecast.fast_shares().map(|(_, then)| then);
            text += &format!(
                "   the dry run had said: price {:.4}, {} fast, {} to move\n",
                forecast.after.price_usd_gb_month,
                percent(then),
                human::bytes(forecast.moved_bytes)
            );
        }
        text
    }
}

/// All of it.
pub(crate) struct Story {
    began: Instant,
    pub(crate) last: Pulse,
    pub(crate) samples: Vec<Sample>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) total: Measured,
}

impl Story {
    pub(crate) fn new(began: Instant, first: Pulse) -> Story {
        Story {
            began,
            last: first,
            samples: Vec::new(),
            phases: Vec::new(),
            total: Measured::new(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    /// Takes a sample in, with the pulse at its end.
    pub(crate) fn add(&mut self, sample: Sample, measured: &Measured, now: Pulse) {
        self.samples.push(sample);
        self.total.add(measured);
        self.last = now;
    }

    fn points(&self, value: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
        let point = |s: &Sample| Some((s.seconds, value(s)?));
        self.samples.iter().filter_map(point).collect()
    }

    /// On a terminal.
    pub(crate) fn plots(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let moments: Vec<_> = self.phases.iter().map(|p| (p.seconds, p.letter)).collect();
        let line = |name, mark, points| Line { name, mark, points };
        let price = [
            line("price", '*', self.points(|s| Some(s.price_usd_gb_month))),
            line("target", '.', self.points(|s| s.target_usd_gb_month)),
        ];
        plot(out, "USD per GB and month", &price, &moments, |y| {
            format!("{y:.2}")
        })?;
        let hits = [line("", '*', self.points(|s| s.fast_hits_share))];
        plot(
            out,
            "Reads from tiers that the fast one served",
            &hits,
            &moments,
            |y| format!("{:.0} %", 100.0 * y),
        )?;
        let latency = [line("", '*', self.points(|s| s.read_mean_us))];
        plot(out, "Mean time of a read", &latency, &moments, |y| {
            human::nanos((y * 1e3) as u64)
        })?;
        let moved = [
            line(
                "from tier to tier",
                '*',
                self.points(|s| Some(s.moved_mib_per_second)),
            ),
            line(
                "by merges",
                '.',
                self.points(|s| Some(s.merged_mib_per_second)),
            ),
        ];
        plot(out, "MiB a second written", &moved, &moments, |y| {
            format!("{y:.1}")
        })
    }

    /// As a page that needs nothing else.
    pub(crate) fn page(&self, events: &[Event]) -> String {
        let series = |title: &str, unit: &str, lines: &[(&str, Vec<(f64, f64)>)]| {
            Plot::Series(Series {
                title: title.to_string(),
                unit: unit.to_string(),
                across: "s".to_string(),
                logarithmic: false,
                lines: lines
                    .iter()
                    .map(|(name, points)| html::Line {
                        name: (*name).to_string(),
                        points: points.clone(),
                    })
                    .collect(),
            })
        };
        let phases = Section {
            title: "What happened".to_string(),
            text: vec![
                "A skewed workload on two tiers. What the store may cost is lowered and raised; \
                 then other records become the hot ones."
                    .to_string(),
            ],
            plots: vec![Plot::Table(self.phase_rows())],
        };
        let over_time = Section {
            title: "Over time".to_string(),
            text: Vec::new(),
            plots: vec![
                series(
                    "Price and target",
                    "USD per GB and month",
                    &[
                        ("price", self.points(|s| Some(s.price_usd_gb_month))),
                        ("target", self.points(|s| s.target_usd_gb_month)),
                    ],
                ),
                series(
                    "Reads from tiers that the fast one served",
                    "%",
                    &[("fast", self.points(|s| Some(100.0 * s.fast_hits_share?)))],
                ),
                series(
                    "Time of a read",
                    "us",
                    &[
                        ("mean", self.points(|s| s.read_mean_us)),
                        ("99th percentile", self.points(|s| s.read_p99_us)),
                    ],
                ),
                series(
                    "Bytes moved",
                    "MiB a second",
                    &[
                        (
                            "from tier to tier",
                            self.points(|s| Some(s.moved_mib_per_second)),
                        ),
                        ("by merges", self.points(|s| Some(s.merged_mib_per_second))),
                    ],
                ),
                series(
                    "Operations",
                    "a second",
                    &[(
                        "reads and writes",
                        self.points(|s| Some(s.operations_per_second)),
                    )],
                ),
            ],
        };
        let moves = Section {
            title: "The last moves, and why".to_string(),
            text: Vec::new(),
            plots: vec![Plot::Table(event_rows(events))],
        };
        page("Thermocline: the demo", &[phases, over_time, moves])
    }

    fn phase_rows(&self) -> Rows {
        let titles = [
            "phase",
            "from",
            "price",
            "fast serves",
            "mean read",
            "operations/s",
            "moved",
            "saved by merges",
            "fast tier changed by",
            "dry run: price",
            "dry run: moved",
        ];
        let row = |p: &Phase| {
            let forecast =
                |say: fn(&Forecast) -> String| p.forecast.as_ref().map_or("-".into(), say);
            vec![
                p.title.clone(),
                format!("{:.0} s", p.seconds),
                format!("{:.4}", p.price_usd_gb_month),
                p.fast_hits_share
                    .map_or("-".into(), |s| format!("{:.1} %", 100.0 * s)),
                p.read_mean_us
                    .map_or("-".into(), |us| human::nanos((us * 1e3) as u64)),
                human::count(p.operations_per_second as u64),
                human::bytes(p.moved_bytes),
                human::bytes(p.moves_saved_bytes),
                human::bytes(p.least_bytes),
                forecast(|f| format!("{:.4}", f.after.price_usd_gb_month)),
                forecast(|f| human::bytes(f.moved_bytes)),
            ]
        };
        Rows {
            titles: titles.map(str::to_owned).to_vec(),
            rows: self.phases.iter().map(row).collect(),
        }
    }
}

fn event_rows(events: &[Event]) -> Rows {
    let moves = events.iter().filter(|e| e.job == "relocate");
    let moves: Vec<_> = moves.rev().take(EVENTS_MAX).collect();
    let row = |e: &&Event| {
        vec![
            human::moment(e.started_us),
            e.what.clone(),
            e.reason.to_string(),
        ]
    };
    Rows {
        titles: ["when", "what", "why"].map(str::to_owned).to_vec(),
        rows: moves.iter().map(row).collect(),
    }
}
