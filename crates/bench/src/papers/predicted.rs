//! LogStore's tables IV and V: what the cost model predicts of the rig's devices, beside
//! what one client measures on them. The ratio is measured over predicted, of ours
//! and of the paper's.
//!
//! The shares of the reads are those of equations 4 to 6, for the memory and the fast
//! share that the store has; levels are those of the paper's systems. Without emulated
//! tiers nobody knows what the devices can do (`thermocline model --measure` finds
//! out), and nothing runs.

use thermocline::DeviceProfile;
use thermocline::cost_model::published::system;
use thermocline::cost_model::{Access, Model};

use super::compared::{arguments, measure};
use super::figure::{Cell, Figure, LINE, Line, Paper, PredictedPlan, Row, missing};
use super::{Means, Outcome, stalled};
use crate::compare::Places;
use crate::failure::Failure;

/// LogStore's skew, section VI.
const SKEW: f64 = 0.9;

/// Runs what exists.
pub(super) fn run(
    figure: &'static Figure,
    plans: &'static [PredictedPlan],
    means: &Means<'_>,
) -> Result<Outcome, Failure> {
    let line = |plan: &'static PredictedPlan| Line {
        engines: std::slice::from_ref(&plan.engine),
        workloads: std::slice::from_ref(&plan.workload),
        warmup_seconds: if plan.engine.contains('/') { 5.0 } else { 30.0 },
        words: &["--clustered", "--fast-share=50", "--clients=1"],
        // LevelDB makes no parts.
        options: match plan.engine.starts_with("leveled") {
            true => "partitions = 1",
            false => "",
        },
        ..LINE
    };
    let first = plans.first().map(line).unwrap_or(LINE);
    let profiles = {
        let places = Places::new(&arguments(&first, means, None)?).map_err(Failure::Usage)?;
        places.profiles()
    };
    let known: Option<Vec<DeviceProfile>> = profiles
        .into_iter()
        .map(|profile| {
            profile.map(|[random_read_iops, sequential_mb_s]| DeviceProfile {
                random_read_iops,
                sequential_mb_s,
            })
        })
        .collect();
    let Some(devices) = known else {
        return Err(Failure::Run(format!(
            "{} needs devices that are known: `thermocline-bench tiers up` first, or \
             `thermocline model --measure` on directories",
            figure.name
        )));
    };
    let mut rows = Vec::with_capacity(plans.len());
    let mut waits = Vec::new();
    for plan in plans {
        let (mut ours, mut lacking) = (None, None);
        if let Some(what) = missing(plan.engine) {
            lacking = Some(format!("needs {what}"));
        } else {
            let line = line(plan);
            let runs = measure(&line, means)?;
            let memory_bytes = arguments(&line, means, None)?.memory_bytes();
            if let Some(run) = runs.first() {
                let reads = f64::from(run.order.workload.mix.read) / 100.0;
                let predicted = predict(plan, &devices, reads, memory_bytes, means)?;
                eprintln!("{}: {predicted:.0}/s predicted", plan.system);
                ours = Some(run.per_second() / predicted);
            }
            let of = format!("{}: {}", plan.workload, plan.system);
            waits.extend(stalled::of_cell(&of, &line, &runs, Cell(0, 0, 0)));
        }
        rows.push(Row {
            what: format!("{}, {}", plan.system, plan.workload),
            ours,
            lacking,
            paper: Paper::Number(plan.paper),
            place: plan.place,
        });
    }
    rows.extend(waits);
    Outcome::new(figure, &first, means, rows)
}

/// What the model says of the paper's system on our devices.
fn predict(
    plan: &PredictedPlan,
    devices: &[DeviceProfile],
    reads: f64,
    memory_bytes: u64,
    means: &Means<'_>,
) -> Result<f64, Failure> {
    let data_bytes = (means.records * means.record_bytes) as f64;
    let unknown = || format!("{} is no system of the paper", plan.system);
    let of_paper = system(plan.system, reads).ok_or_else(unknown)?;
    let [fast, slow] = [devices.first(), devices.last()];
    let on: Vec<_> = match (of_paper.tiers.len(), plan.engine.ends_with("/all-slow")) {
        (1, true) => slow.into_iter().collect(),
        (1, false) => fast.into_iter().collect(),
        _ => fast.into_iter().chain(slow).collect(),
    };
    let mut model = Model {
        // Half of the memory is the block cache's (three eighths) and the
        // memtables' (one).
        memory_share: (memory_bytes as f64 / 2.0 / data_bytes).min(1.0),
        records: means.records,
        access: Access::Zipfian { skew: SKEW },
        ..of_paper
    };
    for (tier, device) in model.tiers.iter_mut().zip(on) {
        tier.profile = *device;
    }
    let prediction = model.predict().map_err(|error| error.to_string())?;
    Ok(prediction.operations_per_second)
}
