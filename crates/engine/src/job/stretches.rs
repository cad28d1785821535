//! Where a merge is cut: into stretches of the key space that run side by side, so that no output
//! reaches across a table that stays, a cut between parts, or from one level into a deeper one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::job::Merge;
use thermocline_model::join::{Join, join};
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::version::{Keyspace, Slot};

use crate::version::tree::OpenTable;

/// Bytes of input that make a sub-range worth a thread of its own.
const SUBRANGE_BYTES_MIN: u64 = 16 << 20;

/// The inputs by place, newest first.
pub(super) type Inputs = BTreeMap<(usize, usize), Vec<Arc<OpenTable>>>;

/// One stretch of the key space, `[low, high)`.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) low: Option<Box<[u8]>>,
    pub(super) high: Option<Box<[u8]>>,
    /// Where what is merged here goes.
    pub(super) slot: Slot,
    /// Of the sources, newest first, those that lie above it, if that is the deeper slot of
    /// the job.
    pub(super) above: usize,
}

/// Where to split a merge: at every wall, and so that threads can share it.
pub(super) fn stretches(
    threads: usize,
    job: &Merge,
    keyspace: &Keyspace,
    inputs: &Inputs,
    walls: &[Box<[u8]>],
) -> Vec<Stretch> {
    let total: u64 = inputs.values().flatten().map(|t| t.meta.data_bytes()).sum();
    let count = (threads as u64).min(total / SUBRANGE_BYTES_MIN).max(1);
    let mut starts: Vec<(&[u8], u64)> = inputs
        .values()
        .flatten()
        .map(|t| (&*t.meta.range.start, t.meta.data_bytes()))
        .collect();
    starts.sort_unstable();
    let mut cuts: Vec<Box<[u8]>> = walls.to_vec();
    let (mut passed, mut shares) = (0, 1);
    for (start, bytes) in starts {
        if shares < count && passed >= total * shares / count {
            cuts.push(start.into());
            shares += 1;
        }
        passed += bytes;
    }
    cuts.sort_unstable();
    cuts.dedup();
    let slots: Vec<_> = keyspace.slots().collect();
    let above = |slot: Slot| inputs.keys().filter(|(at, _)| slots[*at] != slot).count();
    let mut low: Option<Box<[u8]>> = None;
    let mut stretches = Vec::with_capacity(cuts.len() + 1);
    for high in cuts.into_iter().map(Some).chain([None]) {
        let slot = job.slot_of(low.as_deref(), high.as_deref());
        let low = std::mem::replace(&mut low, high.clone());
        let above = if slot == job.output { 0 } else { above(slot) };
        stretches.push(Stretch {
            low,
            high,
            slot,
            above,
        });
    }
    stretches
}

/// The tables that do not stay where they are.
pub(super) fn leaving(moved: &[Arc<OpenTable>], merged: &Inputs) -> Vec<TableId> {
    let all = moved.iter().chain(merged.values().flatten());
    all.map(|t| t.meta.id).collect()
}

/// The cuts that fall among the inputs: where outputs end at them, neighbouring parts share no
/// table, and can be merged side by side.
pub(super) fn cuts_within(keyspace: &Keyspace, merged: &Inputs) -> Vec<Box<[u8]>> {
    let ranges = || merged.values().flatten().map(|t| &t.meta.range);
    let bounds = keyspace.cuts.bounds().iter();
    let within = bounds.filter(|bound| {
        let before = ranges().any(|r| *r.start < ***bound);
        before && ranges().any(|r| !r.ends_before(bound))
    });
    within.cloned().collect()
}

/// The starts of tables that will lie in the output run without being merged:
/// no output may reach across one.
pub(super) fn walls(
    keyspace: &Keyspace,
    job: &Merge,
    moved: &[Arc<OpenTable>],
    merged: &Inputs,
) -> Vec<Box<[u8]>> {
    let hull = merged
        .values()
        .flatten()
        .map(|t| t.meta.range.clone())
        .reduce(|a, b| a.hull(&b));
    // What lies in the deeper slot stays there.
    let deeper = job.deeper.as_ref().map(|d| d.slot);
    let upper = merged
        .iter()
        .filter(|((at, _), _)| deeper.is_none() || keyspace.slots().nth(*at) != deeper);
    let ranges = upper
        .flat_map(|(_, tables)| tables)
        .map(|t| t.meta.range.clone());
    let ranges: Vec<KeyRange> = ranges.collect();
    let joined = match join(keyspace, job.output, &leaving(moved, merged), &ranges) {
        Join::Run(run) => Some(run),
        Join::New { .. } => None,
    };
    let merged: BTreeSet<TableId> = merged.values().flatten().map(|t| t.meta.id).collect();
    let staying = keyspace
        .level(job.output)
        .into_iter()
        .flat_map(|l| l.runs.iter().find(|r| Some(r.id) == joined))
        .flat_map(|r| &r.tables);
    let staying = staying.filter(|t| !merged.contains(&t.id));
    let all = staying
        .chain(moved.iter().map(|t| &t.meta))
        .map(|t| &t.range.start);
    all.filter(|start| hull.as_ref().is_some_and(|h| h.contains(start)))
        .cloned()
        .collect()
}

/// The first keys of the intervals whose entries go deeper, and the first ones behind them.
pub(super) fn ends_of_deeper(job: &Merge) -> impl Iterator<Item = Box<[u8]>> {
    let ranges = job.deeper.iter().flat_map(|deeper| &deeper.ranges);
    ranges.flat_map(|range| {
        let mut behind = range.end.to_vec();
        behind.extend(range.end_inclusive.then_some(0));
        [range.start.clone(), behind.into()]
    })
}
