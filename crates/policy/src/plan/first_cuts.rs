//! The cuts of a keyspace that is cut once, by its first keys (OHDB's L0 partition, section
//! III-A).
//!
//! A keyspace made without cuts has one part. When its first memtable is full it is divided evenly
//! by the keys that are in memory, and never again: that is only done while its newest level is
//! empty, as tables of the newest level lie in one part each. The levels below know nothing of
//! parts.
//!
//! This is no [`crate::Planner`] in that it answers no job: the cuts are made by the writer whose
//! memtable is full, as it holds the write path, and a job could only ask for that. What it
//! decides, it decides as they do: from the view, and from the keys, which no view has.

use thermocline_model::cuts::Cuts;
use thermocline_model::job::Reason;
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::View;

/// Where a keyspace is to be cut, and why.
#[derive(Clone, Debug)]
pub struct FirstCuts {
    /// The cuts, one or more.
    pub cuts: Cuts,
    /// The numbers they were made by.
    pub reason: Reason,
}

/// The cuts that `keyspace` is to get now, where it is to get some. `keys` are those that memory
/// has of it, ascending, one for each entry; they are asked for, twice, only where the view allows
/// cuts.
#[must_use]
pub fn first_cuts<K: AsRef<[u8]>, I: Iterator<Item = K>>(
    view: &View<'_>,
    keyspace: KeyspaceId,
    keys: impl Fn() -> I,
) -> Option<FirstCuts> {
    let ranges = &view.shape.ranges;
    if !ranges.once || ranges.slots < 2 {
        return None;
    }
    let [part] = &view.version.keyspaces.get(&keyspace)?.parts[..] else {
        return None;
    };
    // A flush that is under way is about to name the part.
    let load = view.memtables.get(&(keyspace, 0))?;
    if load.flushing || !part.newest.runs.is_empty() {
        return None;
    }
    let least = ranges.triggers.part_keys_min;
    let cuts = Cuts::derive(keys, ranges.prefix_bytes, ranges.slots, least);
    (cuts.parts() > 1).then(|| FirstCuts {
        reason: Reason::new("first-memtable")
            .with("parts", cuts.parts() as f64)
            .with("bytes", load.active_bytes as f64),
        cuts,
    })
}
