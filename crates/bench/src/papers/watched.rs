//! A store of this process itself, looked at while clients work: for what `compare` does not
//! ask of an engine, since only this one has it.

use std::fs;

use super::Means;
use super::compared::{arguments, options};
use super::figure::Line;
use crate::compare::Stage;
use crate::drive::{EngineDriver, RunOrder, RunOutcome};
use crate::engine::thermocline::Thermocline;
use crate::engine::{Result, writer_stalled_seconds};
use crate::failure::Failure;
use crate::scratch::Scratch;

/// What a run gave.
pub(super) struct Watched<T> {
    pub outcome: RunOutcome,
    /// The share of the measured time that a writer waited.
    pub stalled: Option<f64>,
    /// What was seen beside it.
    pub seen: T,
}

/// Runs the first engine of `line` on its first workload for `seconds`, with the options `more`
/// beside those of the line; `beside` runs from the beginning of the warm-up on. Requires:
/// `beside` ends by itself.
pub(super) fn run<T: Send>(
    line: &Line,
    more: &str,
    seconds: f64,
    means: &Means<'_>,
    beside: impl FnOnce(&Thermocline, &RunOrder) -> Result<T> + Send,
) -> Result<Watched<T>, Failure> {
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let file = scratch.path().join("options.toml");
    let args = arguments(line, means, Some(&file))?;
    let text = format!("{}{more}", options(line, args.memory_bytes(), means));
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let stage = Stage::new(&args)?;
    let (setup, mut order) = stage.first(&args)?;
    order.seconds = seconds;
    if let Some(rig) = stage.places.rig() {
        rig.join(std::process::id())?;
    }
    let mut driver = EngineDriver::<Thermocline>::new(setup);
    let (outcome, seen) = driver.run_beside(&order, |store| beside(store, &order))?;
    let waited = writer_stalled_seconds(&outcome.counted_measured, order.clients);
    Ok(Watched {
        stalled: waited.map(|seconds| seconds / outcome.seconds),
        outcome,
        seen,
    })
}
