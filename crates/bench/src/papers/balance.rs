//! Nova-LSM's section 8.2.1: how evenly writes are shared out among parts whose cuts move, by the
//! store's own statistics and events.
//!
//! A share is that of a memtable that takes writes: a part that is duplicated counts as often as
//! it has them, as in the paper. Shares are of the writes that the store has counted lately, some
//! thousands for each part, so that chance alone makes them differ: what uniform keys give is
//! that chance, here and in the paper the value to be wished for.

use std::thread;
use std::time::{Duration, Instant};

use thermocline::{Db, PartStats};

use super::figure::{Balance, Figure, Line, Paper, Row};
use super::{Means, Outcome, stalled, watched};
use crate::engine::Result;
use crate::failure::Failure;

/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Events asked for at each look: all that a store has in memory.
const EVENTS: usize = 4096;

/// What one run gave.
#[derive(Default)]
struct Seen {
    /// The mean, over the looks of the measured time, of the standard deviation of the shares.
    imbalance: f64,
    /// Memtables beside the first of their part, at the end.
    duplicates: u64,
    /// Reorganisations since the store was loaded: those that gave tiny ranges to neighbours, ...
    minor: usize,
    /// ... and those that made all cuts anew.
    major: usize,
    /// The share of the measured time that a writer waited.
    stalled: Option<f64>,
}

/// Runs the store with each number of parts, with uniform keys and with skewed ones.
pub(super) fn run(
    figure: &'static Figure,
    plan: &Balance,
    means: &Means<'_>,
) -> Result<Outcome, Failure> {
    let (mut rows, mut waits) = (Vec::new(), Vec::new());
    for &parts in plan.parts {
        let uniform = one(&plan.uniform, parts, means)?;
        let zipfian = one(&plan.zipfian, parts, means)?;
        rows.extend(rows_of(parts, &uniform, &zipfian));
        for (keys, seen) in [("uniform", uniform), ("Zipfian", zipfian)] {
            waits.push(stalled::row(
                &format!("{parts} parts, {keys}"),
                seen.stalled,
            ));
        }
    }
    rows.extend(waits);
    Outcome::new(figure, &plan.uniform, means, rows)
}

fn one(line: &Line, parts: u32, means: &Means<'_>) -> Result<Seen, Failure> {
    let more = format!("partitions = {parts}\n");
    let seconds = line.seconds * means.longer(line);
    let watched = watched::run(line, &more, seconds, means, |store, order| {
        Ok(watch(store.db(), [order.warmup_seconds, order.seconds]))
    })?;
    eprintln!(
        "{}, {parts} parts: {} operations, {} duplicates",
        line.workloads[0], watched.outcome.operations, watched.seen.duplicates
    );
    Ok(Seen {
        stalled: watched.stalled,
        ..watched.seen
    })
}

/// Looks at the store until warm-up and measured time are over.
fn watch(db: &Db, [warmup, measured]: [f64; 2]) -> Seen {
    let began = Instant::now();
    let mut seen = Seen::default();
    let last = |db: &Db| db.events(1).last().map_or(0, |event| event.number);
    let mut known = last(db);
    let (mut looks, mut sum) = (0_u32, 0.0);
    loop {
        let left = Duration::from_secs_f64(warmup + measured).saturating_sub(began.elapsed());
        thread::sleep(LOOK.min(left));
        let events = db.events(EVENTS);
        let new = events.iter().filter(|event| event.number > known);
        // A look that found nothing to gain is an event, too.
        for event in new.filter(|e| e.job == "recut" && e.what.starts_with("cut")) {
            match event.reason.rule == "minor" {
                true => seen.minor += 1,
                // `major`, and those that make the first parts or more of them.
                false => seen.major += 1,
            }
        }
        known = events.last().map_or(known, |event| event.number);
        let over = left <= LOOK;
        if began.elapsed().as_secs_f64() >= warmup || over {
            let stats = db.stats();
            let parts = stats.keyspaces.first();
            let parts = parts.map_or(&[][..], |space| &space.part_list[..]);
            looks += 1;
            sum += PartStats::imbalance(parts).unwrap_or(0.0);
            seen.duplicates = parts.iter().map(|part| part.duplicates).sum();
        }
        if over {
            break;
        }
    }
    seen.imbalance = sum / f64::from(looks);
    seen
}

/// Beside the paper's numbers, which are those of 64 parts; of fewer it says that they are similar.
fn rows_of(parts: u32, uniform: &Seen, zipfian: &Seen) -> Vec<Row> {
    let paper = |number: f64| match parts {
        64 => Paper::Number(number),
        _ => Paper::Similar,
    };
    let row = |what: &str, ours: f64, paper: Paper, place: &'static str| Row {
        what: format!("{parts} parts, {what}"),
        ours: Some(ours).filter(|number| number.is_finite()),
        lacking: None,
        paper,
        place,
    };
    vec![
        row(
            "imbalance, uniform",
            uniform.imbalance,
            paper(2.86e-4),
            "8.2.1",
        ),
        row(
            "imbalance, Zipfian",
            zipfian.imbalance,
            paper(1.65e-3),
            "8.2.1",
        ),
        row(
            "imbalance, Zipfian over uniform",
            zipfian.imbalance / uniform.imbalance,
            Paper::AtMost(6.0),
            "8.2.1: less than 6 times, from 2 to 64",
        ),
        row(
            "major reorganisations, uniform",
            uniform.major as f64,
            paper(1.0),
            "8.2.1",
        ),
        row(
            "minor reorganisations, uniform",
            uniform.minor as f64,
            paper(0.0),
            "8.2.1",
        ),
        row(
            "major reorganisations, Zipfian",
            zipfian.major as f64,
            paper(1.0),
            "8.2.1",
        ),
        row(
            "minor reorganisations, Zipfian",
            zipfian.minor as f64,
            paper(14.2),
            "8.2.1: 14.2, deviation 14.1",
        ),
        row(
            "duplicates, Zipfian",
            zipfian.duplicates as f64,
            paper(11.0),
            "8.2.1: 11 duplicated Dranges",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_stand_beside_64_parts_alone() {
        let seen = Seen {
            imbalance: 1e-3,
            ..Seen::default()
        };
        assert_eq!(rows_of(64, &seen, &seen)[0].paper, Paper::Number(2.86e-4));
        assert_eq!(rows_of(8, &seen, &seen)[0].paper, Paper::Similar);
        assert_eq!(rows_of(8, &seen, &seen)[2].ours, Some(1.0));
    }
}
