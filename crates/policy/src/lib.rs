//! Decisions of the Thermocline storage engine.
//!
//! A policy sees a [`View`], which is plain data, and answers with plain data:
//! a planner with at most one [`Job`], a placer with a [`Layout`]. It holds no
//! lock, no file and no clock, and the engine checks whatever it proposes, so
//! a policy may be foolish without losing data. A new policy is a new file.

use std::collections::BTreeMap;

use thermocline_model::job::{Job, Layout, NewTable};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::{TableHeat, View};

pub mod heat;
pub mod place;
pub mod plan;
pub mod preset;
pub mod pressure;
pub mod why;

pub use preset::{Preset, PresetEntry, by_name, presets};
pub use pressure::{Pressure, pressure};
pub use why::{Explanation, why};

/// How much each table is used; a table not listed was not.
pub type HeatMap = BTreeMap<TableId, TableHeat>;

/// Says what to do next.
pub trait Planner: Send {
    /// The next job, if there is one. Called often, so it must be quick.
    /// Ensures: a merge names no busy table, and its outputs overlap no busy
    /// output on their way.
    fn plan(&mut self, view: &View<'_>) -> Option<Job>;
}

/// Says where a new table lies.
pub trait Placer: Send + Sync {
    /// The tiers of `new`.
    fn place(&self, view: &View<'_>, new: &NewTable) -> Layout;
}

/// One use of a table, or several summed up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Access<'a> {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// The key looked up; empty when several uses are summed up.
    pub key: &'a [u8],
    /// The table.
    pub table: TableId,
    /// What to add to its counts.
    pub delta: TableHeat,
}

/// Knows how much tables and keys are used.
pub trait HeatTracker: Send + Sync {
    /// Takes note of a use. On the path of reads: never blocks.
    fn touch(&self, access: &Access<'_>);
    /// Gives a new table the heat of those it was made from.
    fn inherit(&self, parents: &[TableId], child: &TableMeta);
    /// Whether `key` is among the most used.
    fn is_hot(&self, key: &[u8]) -> bool;
    /// The heat of all tables at `now_us`, microseconds since the Unix epoch.
    fn sample(&self, now_us: u64) -> HeatMap;
}
