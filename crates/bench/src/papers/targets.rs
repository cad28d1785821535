//! Mutant's figures 10, 13, 16 and 17: one store whose cost target changes while
//! clients read what was written last. The store is this process's own, since
//! targets are set and statistics read beside the clients.

use std::thread;
use std::time::{Duration, Instant};

use thermocline::{Db, ErrorKind};

use super::figure::{Figure, Paper, Row, Shown, Targets};
use super::mutant::TARGETS;
use super::{Means, Outcome, stalled, watched};
use crate::engine::Result;
use crate::engine::thermocline::Thermocline;
use crate::failure::Failure;

/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A price this near to its target has reached it.
const REACHED: f64 = 0.05;

/// What a look at the store sees.
#[derive(Clone, Copy)]
struct Sample {
    /// Seconds since the target was set.
    seconds: f64,
    price: f64,
    /// Bytes relocated since the store was opened.
    moved_bytes: u64,
    /// Bytes that merges have put on another tier than their inputs', since then.
    merged_bytes: u64,
    /// Bytes of the whole store.
    stored_bytes: u64,
}

impl Sample {
    fn of(db: &Db, began: Instant) -> Sample {
        let stats = db.stats();
        Sample {
            seconds: began.elapsed().as_secs_f64(),
            price: stats.cost.price_usd_gb_month,
            moved_bytes: stats.cost.migrated_bytes,
            merged_bytes: stats.cost.migrations_saved_bytes,
            stored_bytes: stats.tiers.iter().map(|tier| tier.used_bytes).sum(),
        }
    }
}

/// One target and what came of it.
struct Phase {
    target: f64,
    /// The first is taken as the target is set.
    samples: Vec<Sample>,
    /// What a GB costs more on the fast tier than on the cheapest, in USD a month.
    dearer: f64,
}

/// One run.
struct Run {
    resistance: f64,
    phases: Vec<Phase>,
    /// Operations a second in each phase.
    rates: Vec<f64>,
    /// What the clients' time has seen of moves and merges.
    migrations: u64,
    saved: u64,
    merges: u64,
    levels: usize,
    /// The share of the time that a writer waited.
    stalled: Option<f64>,
}

impl Phase {
    fn moved_bytes(&self) -> f64 {
        let ends = (self.samples.first(), self.samples.last());
        let (Some(first), Some(last)) = ends else {
            return 0.0;
        };
        (last.moved_bytes - first.moved_bytes) as f64
    }

    /// Bytes a second while they were being moved.
    fn speed(&self) -> Option<f64> {
        let last = self.samples.last()?;
        let until = |s: &&Sample| s.moved_bytes == last.moved_bytes;
        let moved = self.samples.iter().find(until)?.seconds;
        (moved > 0.0).then(|| self.moved_bytes() / moved)
    }

    /// The price at the end over the target.
    fn price_of_target(&self) -> Option<f64> {
        Some(self.samples.last()?.price / self.target)
    }

    /// By how much of the target the price was off it in the last quarter, on average.
    fn off_at_rest(&self) -> Option<f64> {
        let rest = &self.samples[self.samples.len() * 3 / 4..];
        let off = rest.iter().map(|s| (s.price / self.target - 1.0).abs());
        (!rest.is_empty()).then(|| off.sum::<f64>() / rest.len() as f64)
    }

    /// Bytes that changed tier, by moves and by merges, over the least that had to: a byte that
    /// does changes what the store costs by as much as its tiers' prices differ (equations 1 and 2
    /// of the paper).
    fn moved_of_least(&self) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let merged = last.merged_bytes - first.merged_bytes;
        let share = (last.price - first.price).abs() / self.dearer;
        Some((self.moved_bytes() + merged as f64) / (share * last.stored_bytes as f64))
    }

    /// Seconds until the price was near the target for good.
    fn reached_seconds(&self) -> Option<f64> {
        let far = |s: &Sample| (s.price / self.target - 1.0).abs() > REACHED;
        match self.samples.iter().rposition(far) {
            None => Some(0.0),
            Some(at) => Some(self.samples.get(at + 1)?.seconds),
        }
    }
}

/// Runs the store once for each resistance.
pub(super) fn run(
    figure: &'static Figure,
    plan: &Targets,
    means: &Means<'_>,
) -> Result<Outcome, Failure> {
    let mut runs = Vec::with_capacity(plan.resistances.len());
    for &resistance in plan.resistances {
        runs.push(one(plan, resistance, means)?);
    }
    let mut rows = rows(plan.shown, &runs);
    rows.extend(runs.iter().map(|run| {
        let of = format!("resistance {}", run.resistance);
        stalled::row(&of, run.stalled)
    }));
    Outcome::new(figure, &TARGETS, means, rows)
}

fn one(plan: &Targets, resistance: f64, means: &Means<'_>) -> Result<Run, Failure> {
    let first = plan.phases.first().map_or(0.0, |(target, _)| *target);
    let more = format!(
        "migration_resistance = {resistance:?}\ncost_target_usd_per_gb_month = {first:?}\n"
    );
    // Every phase as much shorter as the warm-up is.
    let longer = means.longer(&TARGETS);
    let phases: Vec<(f64, f64)> = plan
        .phases
        .iter()
        .map(|(target, seconds)| (*target, seconds * longer))
        .collect();
    let seconds = phases.iter().map(|(_, seconds)| seconds).sum();
    let watched = watched::run(&TARGETS, &more, seconds, means, |store, order| {
        let mut run = watch(store, order.warmup_seconds, &phases)?;
        run.resistance = resistance;
        Ok(run)
    })?;
    let (outcome, mut run) = (watched.outcome, watched.seen);
    run.stalled = watched.stalled;
    let mut from = 0.0;
    for (_, seconds) in &phases {
        let to = from + seconds;
        let within = outcome.per_second.iter().enumerate();
        let within = within.filter(|(at, _)| (*at as f64) >= from && (*at as f64) < to);
        let counts: Vec<u64> = within.map(|(_, count)| *count).collect();
        let sum = counts.iter().sum::<u64>() as f64;
        run.rates.push(sum / counts.len().max(1) as f64);
        from = to;
    }
    eprintln!(
        "resistance {resistance}: {} operations, {} tables relocated, {} saved by merges",
        outcome.operations, run.migrations, run.saved
    );
    Ok(run)
}

/// Sets one target after the other, and looks at the store meanwhile.
fn watch(store: &Thermocline, warmup: f64, phases: &[(f64, f64)]) -> Result<Run> {
    let db = store.db();
    thread::sleep(Duration::from_secs_f64(warmup));
    let before = db.stats();
    let prices = before.tiers.iter().map(|tier| tier.price_usd_gb_month);
    let dearest = prices.clone().fold(0.0, f64::max);
    let dearer = dearest - prices.fold(f64::INFINITY, f64::min);
    let mut seen = Vec::with_capacity(phases.len());
    for &(target, seconds) in phases {
        // One that the store, grown as it is, cannot cost is refused: then the phase shows what it
        // does cost.
        match db.set_cost_target(Some(target)) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => eprintln!("{error}"),
            set => set?,
        }
        let began = Instant::now();
        let mut samples = Vec::new();
        loop {
            samples.push(Sample::of(db, began));
            let left = Duration::from_secs_f64(seconds).saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            thread::sleep(LOOK.min(left));
        }
        seen.push(Phase {
            target,
            samples,
            dearer,
        });
    }
    let after = db.stats();
    Ok(Run {
        resistance: 0.0,
        phases: seen,
        rates: Vec::new(),
        migrations: after.cost.migrations - before.cost.migrations,
        saved: after.cost.migrations_saved - before.cost.migrations_saved,
        merges: after.merges - before.merges,
        levels: after.keyspaces.iter().map(|space| space.levels.len()).sum(),
        stalled: None,
    })
}

fn rows(shown: Shown, runs: &[Run]) -> Vec<Row> {
    let row = |what: String, ours: Option<f64>, paper, place| Row {
        what,
        ours: ours.filter(|number| number.is_finite()),
        lacking: None,
        paper,
        place,
    };
    let mut rows = Vec::new();
    match shown {
        Shown::Adaptation => {
            for run in runs {
                for phase in &run.phases {
                    let what = format!("price over target, target {}", phase.target);
                    rows.push(row(
                        what,
                        phase.price_of_target(),
                        Paper::Plot,
                        "figure 10 (b)",
                    ));
                }
                for phase in &run.phases {
                    let what = format!("seconds until within 5 % of {}", phase.target);
                    rows.push(row(
                        what,
                        phase.reached_seconds(),
                        Paper::Plot,
                        "figure 10 (b)",
                    ));
                }
                for phase in &run.phases {
                    let what = format!("off {} at rest, of it", phase.target);
                    let off = phase.off_at_rest();
                    rows.push(row(what, off, Paper::Plot, "figure 10 (b)"));
                }
                for phase in run.phases.iter().skip(1) {
                    let what = format!("bytes moved over the least, target {}", phase.target);
                    let moved = phase.moved_of_least();
                    rows.push(row(what, moved, Paper::Plot, "figure 10 (c)"));
                }
                let (Some(down), Some(up)) = (run.phases.get(1), run.phases.get(2)) else {
                    continue;
                };
                let moved = up.moved_bytes() / down.moved_bytes();
                let paper = Paper::Number(2.5 / 4.5);
                rows.push(row(
                    "bytes moved, up over down".into(),
                    Some(moved),
                    paper,
                    "5.2.1",
                ));
                let speed = down.speed().zip(up.speed()).map(|(down, up)| down / up);
                let paper = Paper::Number(55.7 / 34.1);
                rows.push(row(
                    "speed of moving, down over up".into(),
                    speed,
                    paper,
                    "5.2.1",
                ));
                for (at, names) in [(1, "0.2 over 0.4"), (2, "0.3 over 0.2")] {
                    let rates = (run.rates.get(at - 1), run.rates.get(at));
                    let ours = rates.0.zip(rates.1).map(|(before, after)| after / before);
                    let what = format!("operations a second, {names}");
                    rows.push(row(what, ours, Paper::Plot, "figure 10 (d)"));
                }
            }
        }
        Shown::Prices => {
            for run in runs {
                for phase in &run.phases {
                    let what = format!("price at a target of {}", phase.target);
                    let ours = phase.samples.last().map(|sample| sample.price);
                    rows.push(row(what, ours, Paper::Number(phase.target), "its target"));
                }
                let ways = Some(run.levels as f64 + 1.0);
                let what = format!("prices of {} levels, placed by level", run.levels);
                rows.push(row(
                    what,
                    ways,
                    Paper::Plot,
                    "5.2.3: n + 1 ways of n levels",
                ));
            }
        }
        Shown::Resistance => {
            let Some(none) = runs.first() else {
                return rows;
            };
            let moved = |run: &Run| run.phases.iter().map(Phase::moved_bytes).sum::<f64>();
            for run in &runs[1..] {
                let what = format!("bytes moved, resistance {} over 0", run.resistance);
                let ours = Some(moved(run) / moved(none));
                rows.push(row(what, ours, Paper::Plot, "figure 16 (a)"));
            }
            if let [.., before, last] = runs {
                let what = format!(
                    "bytes moved, {} over {}",
                    last.resistance, before.resistance
                );
                let ours = Some(moved(last) / moved(before));
                let place = "5.4.2: no further gain beyond 13 %";
                rows.push(row(what, ours, Paper::Number(1.0), place));
                let price = |run: &Run| Some(run.phases.last()?.samples.last()?.price);
                let risen = price(last)
                    .zip(price(none))
                    .map(|(with, without)| (with / without - 1.0) / last.resistance);
                let what = "price risen, of the resistance".to_string();
                rows.push(row(what, risen, Paper::Number(0.08), "5.4.2: about"));
            }
        }
        Shown::Saved => {
            for run in runs {
                let all = (run.saved + run.migrations) as f64;
                let what = format!(
                    "migrations that merges saved, resistance {}",
                    run.resistance
                );
                let paper = match run.resistance > 0.0 && run.resistance < 0.1 {
                    true => Paper::Number(0.2037),
                    false => Paper::Plot,
                };
                rows.push(row(what, Some(run.saved as f64 / all), paper, "5.4.3"));
            }
            if let [first, .., last] = runs {
                let ours = last.merges as f64 / first.merges as f64;
                let what = format!(
                    "merges, resistance {} over {}",
                    last.resistance, first.resistance
                );
                let place = "5.4.3: consistent";
                rows.push(row(what, Some(ours), Paper::Number(1.0), place));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(target: f64, samples: &[(f64, f64, u64)]) -> Phase {
        let sample = |&(seconds, price, moved_bytes): &(f64, f64, u64)| Sample {
            seconds,
            price,
            moved_bytes,
            merged_bytes: moved_bytes / 10,
            stored_bytes: 1000,
        };
        Phase {
            target,
            samples: samples.iter().map(sample).collect(),
            dearer: 0.5,
        }
    }

    #[test]
    fn a_target_is_reached_when_the_price_stays_near_it() {
        let near = phase(
            0.2,
            &[
                (0.0, 0.4, 0),
                (1.0, 0.2, 50),
                (2.0, 0.3, 60),
                (3.0, 0.201, 100),
            ],
        );
        assert_eq!(near.reached_seconds(), Some(3.0));
        assert_eq!(
            (near.moved_bytes(), near.speed()),
            (100.0, Some(100.0 / 3.0))
        );
        // The price fell by 0.199 of 0.5, so that 398 of 1000 bytes had to go.
        assert_eq!(
            near.moved_of_least().map(|r| (r * 398.0).round()),
            Some(110.0)
        );
        assert_eq!(near.off_at_rest().map(|r| (r * 1000.0).round()), Some(5.0));
        let never = phase(0.2, &[(0.0, 0.4, 0), (1.0, 0.4, 0)]);
        assert_eq!((never.reached_seconds(), never.speed()), (None, None));
        assert_eq!(phase(0.2, &[(0.0, 0.2, 0)]).reached_seconds(), Some(0.0));
    }
}
