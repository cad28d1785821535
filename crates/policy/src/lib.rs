//! Decisions of the Thermocline storage engine.
//!
//! A policy sees a [`View`], which is plain data, and answers with plain data:
//! a planner with at most one [`Job`], a placer with a [`Layout`]. It holds no
//! lock, no file and no clock, and the engine checks whatever it proposes, so
//! a policy may be foolish without losing data. A new policy is a new file.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::job::{Job, Layout, NewTable};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::version::Version;
use thermocline_model::view::{TableHeat, View};

use crate::place::Lower;
use crate::pressure::Room;

pub mod cost;
pub mod forecast;
pub mod heat;
pub mod lending;
pub mod pace;
pub mod place;
pub mod plan;
pub mod preset;
pub mod pressure;
pub mod why;

pub use forecast::forecast;
pub use place::seen::Seen;
pub use preset::{Preset, PresetEntry, by_name, presets};
pub use pressure::{Pressure, pressure};
pub use why::Explanation;

/// What temperatures are given by, in bytes.
pub(crate) const MIB: f64 = (1 << 20) as f64;

/// How much each table is used; a table not listed was not.
pub type HeatMap = BTreeMap<TableId, TableHeat>;

/// Says what to do next.
pub trait Planner: Send {
    /// The next job, if there is one. Called often, so it must be quick.
    /// Ensures: a merge names no busy table, and its outputs overlap no busy
    /// output on their way.
    fn plan(&mut self, view: &View<'_>) -> Option<Job>;
    /// What is left of the room that its jobs wait for when there is none, if they do: writers
    /// are slowed as it fills.
    fn room(&self, _view: &View<'_>) -> Option<Room> {
        None
    }
}

/// Says where a new table lies.
pub trait Placer: Send + Sync {
    /// The tiers of `new`.
    fn place(&self, view: &View<'_>, new: &NewTable) -> Layout {
        self.place_as_seen(view, &Seen::of(view), new)
    }
    /// The same, by what was seen under `view` or one that differs from it in what the tiers hold
    /// alone.
    fn place_as_seen(&self, view: &View<'_>, seen: &Seen, new: &NewTable) -> Layout;
    /// Why `table` lies where it lies, and what would move it next; `None` when
    /// no keyspace has it.
    fn why(&self, view: &View<'_>, table: TableId) -> Option<Explanation> {
        self.why_each(view, &[table]).pop().flatten()
    }
    /// The same of each of `tables`, in their order. What all of them are compared with is looked
    /// at once, so this takes little more time for all tables than for one.
    fn why_each(&self, view: &View<'_>, tables: &[TableId]) -> Vec<Option<Explanation>>;
    /// What lies lower than it belongs because the tier it belongs on is full.
    /// Nothing where that depends on more than the room on the tiers.
    fn lower(&self, _view: &View<'_>) -> Lower {
        Lower::default()
    }
}

/// One use of a table, or several summed up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Access<'a> {
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
    /// Gives `children` the heat of the `parents` that they were made from. `below` are tables
    /// of the levels below that overlap them: they tell where a parent is read that has
    /// keys from everywhere. Called before a sample is taken of a version that has the one and
    /// not the other.
    fn inherit(
        &self,
        parents: &[Arc<TableMeta>],
        children: &[Arc<TableMeta>],
        below: &[Arc<TableMeta>],
    );
    /// Whether `key` is among the most used.
    fn is_hot(&self, key: &[u8]) -> bool;
    /// The heat of the tables of `version` at `now_us`, microseconds since the
    /// Unix epoch. What is not in the version may be forgotten.
    fn sample(&self, version: &Version, now_us: u64) -> HeatMap;
    /// Memory of what is known, in bytes.
    fn memory_bytes(&self) -> u64;
    /// The temperatures that are worth keeping over a restart.
    fn save(&self) -> Vec<(TableId, f64)> {
        Vec::new()
    }
    /// Takes over temperatures kept by [`HeatTracker::save`]; those of tables that
    /// are not there any more do no harm.
    fn restore(&self, _temperatures: &[(TableId, f64)]) {}
}
