//! What `model` prints: tables for people, objects for programs.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::run::Measured;
use crate::columns::table;
use crate::engine::cost_model::published::published;
use crate::engine::cost_model::{Bound, Limit, Model, Prediction};
use crate::human;

/// A model, what it says, and the names of its tiers.
pub(crate) struct Shown<'a> {
    pub(crate) model: &'a Model,
    pub(crate) prediction: &'a Prediction,
    pub(crate) names: &'a [String],
}

impl Shown<'_> {
    /// Prints the tiers and the three rates.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = [
            "tier", "iops", "MB/s", "data", "levels", "probes", "reads", "reads/s", "writes/s",
        ];
        let shares = &self.prediction.shares;
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let mut memory = vec![String::new(); header.len()];
        memory[0] = "memory".into();
        memory[3] = percent(self.model.memory_share);
        memory[6] = percent(shares.memory);
        rows.push(memory);
        for (at, tier) in self.model.tiers.iter().enumerate() {
            rows.push(vec![
                self.names[at].clone(),
                rate(tier.profile.random_read_iops),
                rate(tier.profile.sequential_mb_s),
                percent(tier.data_share),
                tier.levels.to_string(),
                tier.probes.to_string(),
                percent(shares.tiers[at]),
                rate(self.prediction.reads.by_tier[at]),
                rate(self.prediction.writes.by_tier[at]),
            ]);
        }
        table(out, &rows, |column| column == 0)?;
        let alone = |bound: &Bound, what| match bound.tier {
            Some(tier) => format!(
                "{} a second, limited by {what} of {}",
                rate(bound.operations_per_second),
                self.names[tier]
            ),
            None => "no device limits them".into(),
        };
        let Prediction { reads, writes, .. } = self.prediction;
        writeln!(out, "\nreads alone   {}", alone(reads, READS))?;
        writeln!(out, "writes alone  {}", alone(writes, WRITES))?;
        let mix = percent(self.model.reads);
        match self.limit() {
            Some((what, tier)) => writeln!(
                out,
                "{mix} reads   {} a second, limited by {what} of {tier}",
                rate(self.prediction.operations_per_second)
            ),
            None => writeln!(out, "{mix} reads   no device limits them"),
        }
    }

    /// What limits the mix, and on which tier.
    fn limit(&self) -> Option<(&'static str, &str)> {
        let (what, tier) = match self.prediction.limit {
            Limit::Reads(tier) => (READS, tier),
            Limit::Writes(tier) => (WRITES, tier),
            Limit::Nothing => return None,
        };
        Some((what, &self.names[tier]))
    }

    /// The same as an object. Rates that nothing limits are null.
    pub(crate) fn json(&self) -> Value {
        let Prediction { reads, writes, .. } = self.prediction;
        let shares = &self.prediction.shares;
        let tiers: Vec<Value> = (self.model.tiers.iter().enumerate())
            .map(|(at, tier)| {
                json!({
                    "name": self.names[at],
                    "random_read_iops": tier.profile.random_read_iops,
                    "sequential_mb_s": tier.profile.sequential_mb_s,
                    "data_share": tier.data_share,
                    "levels": tier.levels,
                    "probes": tier.probes,
                    "read_share": shares.tiers[at],
                    "reads_per_second": reads.by_tier[at],
                    "writes_per_second": writes.by_tier[at],
                })
            })
            .collect();
        let name = |tier: Option<usize>| tier.map(|tier| &self.names[tier]);
        json!({
            "tiers": tiers,
            "memory": {"data_share": self.model.memory_share, "read_share": shares.memory},
            "records": self.model.records,
            "record_bytes": self.model.record_bytes,
            "growth": self.model.growth,
            "reads": self.model.reads,
            "predicted": {
                "reads_per_second": reads.operations_per_second,
                "reads_limited_by": name(reads.tier),
                "writes_per_second": writes.operations_per_second,
                "writes_limited_by": name(writes.tier),
                "operations_per_second": self.prediction.operations_per_second,
                "limited_by": self.limit().map(|(what, tier)| json!({"tier": tier, "by": what})),
            },
        })
    }
}

const READS: &str = "random reads";
const WRITES: &str = "sequential transfer";

impl Measured {
    /// Operations a second while they were running.
    fn rate(&self) -> f64 {
        human::rate(self.operations, self.took)
    }

    /// Operations a second, the time counted that their merges took after them.
    fn settled_rate(&self) -> f64 {
        human::rate(self.operations, self.took + self.settling)
    }

    fn reads(&self) -> u64 {
        self.delta.hits() + self.delta.misses
    }

    /// The share of the reads that memory answered, and that each tier did.
    fn shares(&self) -> (f64, Vec<f64>) {
        let reads = self.reads().max(1) as f64;
        let memory = self.delta.memtable_hits + self.delta.cached_hits;
        let tiers = self.delta.tiers.iter().map(|t| t.hits as f64 / reads);
        (memory as f64 / reads, tiers.collect())
    }

    /// Prints the measured rate beside the predicted one.
    pub(crate) fn print(&self, out: &mut dyn Write, predicted: &Prediction) -> io::Result<()> {
        let header = ["", "predicted", "measured", "measured/predicted"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let mut row = |name: String, predicted: f64, measured: f64, show: fn(f64) -> String| {
            let ratio = match predicted > 0.0 && predicted.is_finite() {
                true => format!("{:.2}", measured / predicted),
                false => "-".into(),
            };
            rows.push(vec![name, show(predicted), show(measured), ratio]);
        };
        let all = predicted.operations_per_second;
        row("operations/s".into(), all, self.rate(), rate);
        if !self.settling.is_zero() {
            row(
                "... with the merges left".into(),
                all,
                self.settled_rate(),
                rate,
            );
        }
        let (memory, tiers) = self.shares();
        if self.reads() > 0 {
            row(
                "reads from memory".into(),
                predicted.shares.memory,
                memory,
                percent,
            );
            for (at, tier) in self.delta.tiers.iter().enumerate() {
                let share = predicted.shares.tiers[at];
                row(
                    format!("reads from {}", tier.name),
                    share,
                    tiers[at],
                    percent,
                );
            }
        }
        writeln!(out)?;
        table(out, &rows, |column| column == 0)
    }

    /// The same as an object.
    pub(crate) fn json(&self) -> Value {
        let (memory, shares) = self.shares();
        let tiers = self.delta.tiers.iter().zip(shares);
        let shares: Vec<Value> = tiers
            .map(|(tier, share)| {
                json!({"name": tier.name, "read_share": share, "used_bytes": tier.used_bytes})
            })
            .collect();
        json!({
            "operations": self.operations,
            "seconds": self.took.as_secs_f64(),
            "settling_seconds": self.settling.as_secs_f64(),
            "operations_per_second": self.rate(),
            "operations_per_second_settled": self.settled_rate(),
            "memory_read_share": memory,
            "tiers": shares,
            "levels": self.levels,
        })
    }
}

/// Prints the paper's predictions beside those of the model.
pub(crate) fn papers(out: &mut dyn Write) -> io::Result<()> {
    let header = [
        "place",
        "system",
        "reads",
        "paper",
        "model",
        "rounded as there",
        "model/paper",
        "measured there",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for row in published() {
        rows.push(vec![
            row.place.into(),
            row.system.into(),
            percent(row.reads),
            rate(row.predicted),
            rate(row.ours()),
            rate(row.rounded_as_there()),
            format!("{:.2}", row.ours() / row.predicted),
            row.measured.map_or("-".into(), rate),
        ]);
    }
    table(out, &rows, |column| column < 2)?;
    writeln!(
        out,
        "\nRounded as there: the paper has LevelDB's writes of its 1,110, a whole number, times the \
         ratio\nof the devices' speeds. Of table V it does not state all inputs: the model has those \
         of table IV\nand VI-B1, which the paper says it used."
    )
}

/// The same as an array.
pub(crate) fn papers_json() -> Value {
    let row = published().into_iter().map(|row| {
        json!({
            "place": row.place,
            "system": row.system,
            "reads": row.reads,
            "paper": row.predicted,
            "model": row.ours(),
            "rounded_as_there": row.rounded_as_there(),
            "comes_out": row.comes_out(),
            "paper_measured": row.measured,
        })
    });
    row.collect()
}

/// A rate with as many digits as it deserves.
fn rate(rate: f64) -> String {
    match rate {
        r if r.is_infinite() => "-".into(),
        r if r < 10.0 => format!("{r:.2}"),
        r => human::count(r.round() as u64),
    }
}

fn percent(share: f64) -> String {
    // What is less than nothing by a rounding error is nothing.
    format!("{:.1}%", (share * 1000.0).round() / 10.0 + 0.0)
}
