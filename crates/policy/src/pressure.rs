//! How far merges lag behind writes: what the engine slows writers down by.

use thermocline_model::view::View;

use crate::plan::targets::Targets;

/// See [`pressure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Most runs in a part's newest level.
    pub newest_runs_max: usize,
    /// Most sealed memtables of a part.
    pub sealed: usize,
    /// Bytes that should lie further down: those of newest levels due for a
    /// merge, and what levels have above their targets.
    pub merge_debt_bytes: u64,
}

/// The pressure that `view` shows.
#[must_use]
pub fn pressure(view: &View<'_>) -> Pressure {
    let mut pressure = Pressure {
        sealed: view.memtables.values().map(|l| l.sealed).max().unwrap_or(0),
        ..Pressure::default()
    };
    for keyspace in view.version.keyspaces.values() {
        for part in &keyspace.parts {
            let runs = part.newest.runs.len();
            pressure.newest_runs_max = pressure.newest_runs_max.max(runs);
            if runs >= view.shape.newest_runs_merge {
                pressure.merge_debt_bytes += part.newest.size_bytes();
            }
        }
        let targets = Targets::of(keyspace, view.shape);
        let excess = (0..targets.bottom()).map(|l| targets.excess_bytes(l));
        pressure.merge_debt_bytes += excess.sum::<u64>();
    }
    pressure
}
