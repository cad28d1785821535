//! How far merges lag behind writes: what the engine slows writers down by.

use thermocline_model::tier::TierId;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::plan::leveled::urgent_runs;
use crate::plan::targets::Targets;

/// The share of the runs at which writes stop, in percent, from which on none wait any longer for
/// more of their kind.
pub const RUNS_DUE_PERCENT: u64 = 40;

/// The same, from which on writers begin to slow where a keyspace has several parts. Up to there a
/// merge has some time to take them away while writers go on: slowed from the beginning they bring
/// less for each merge, which then rewrites as much for fewer bytes.
const RUNS_SLOW_PERCENT: u64 = 75;

/// From which share of the runs at which writes stop, in percent, writers begin to slow, with so
/// many parts. With one of them a merge takes all runs there are at once, and until it ends more of
/// them come than there is room for between three quarters and the stop; so they are slowed from
/// where runs are due, unless parts may be the remedy
/// ([`Waits::parts_may_pay`](thermocline_model::view::Waits::parts_may_pay)).
#[must_use]
pub fn runs_slow_percent(parts: usize, parts_may_pay: bool) -> u64 {
    match parts {
        0 | 1 if !parts_may_pay => RUNS_DUE_PERCENT,
        _ => RUNS_SLOW_PERCENT,
    }
}

/// The most times as many runs that wait while hardly anybody reads.
pub const PATIENCE_MAX: f64 = 3.0;

/// Of what there is for newest levels, the share up to which they may take it for that.
const PATIENT_SHARE: f64 = 0.5;

/// How many times as many runs may wait before writers do: as many as memtables have times the
/// memory that options give them, as hardly anybody reads. Each run is one more place to look,
/// which is nobody's loss then, while a merge of more of them rewrites as much of what lies below
/// for more bytes, and where a slow device has to write that it is what bounds writers. The more
/// newest levels take of the tier on which they begin the less: there is no such room elsewhere.
#[must_use]
pub fn patience(view: &View<'_>) -> f64 {
    if view.idle {
        return 1.0;
    }
    let most = patience_max(view.shape.lent_times());
    let left = (1.0 - newest_share(view)) / (1.0 - PATIENT_SHARE);
    1.0 + (most - 1.0) * left.clamp(0.0, 1.0)
}

/// The same with all the room that there may be.
#[must_use]
pub fn patience_max(lent_times: f64) -> f64 {
    lent_times.clamp(1.0, PATIENCE_MAX)
}

/// Of what there is for newest levels on their tier, the share that all of them would take.
fn newest_share(view: &View<'_>) -> f64 {
    let TierId(tier) = view.shape.pins.newest.unwrap_or(TierId(0));
    let Some(tier) = view.tiers.get(tier as usize) else {
        return 0.0;
    };
    let keyspaces = view.version.keyspaces.values();
    let parts = keyspaces.flat_map(|keyspace| &keyspace.parts);
    let bytes: u64 = parts.map(|part| part.newest.size_bytes()).sum();
    let free = tier.device_free_bytes.saturating_sub(tier.reserve_bytes);
    let room = tier.capacity_bytes.min(bytes.saturating_add(free));
    bytes as f64 / room.max(1) as f64
}

/// As how many `runs` count for that which hold `bytes`, above a level of which the part's share is
/// `base_bytes` ([`base_shares`]). Half as many up to half of that, and all from as much on: a
/// merge rewrites the share, so that with little to merge it costs most for each byte written, and
/// writers that were stopped for it would only be stopped again sooner. And with [`patience`] one
/// for so many at most.
#[must_use]
pub fn counted_runs(runs: u64, bytes: u64, base_bytes: u64, patience: f64) -> u64 {
    let share = bytes as f64 / base_bytes.max(1) as f64;
    let counts = share.clamp(0.5, 1.0).min(1.0 / patience.max(1.0));
    (runs as f64 * counts).round() as u64
}

/// What a merge of a part's newest runs rewrites of `level`, in bytes, by part: what overlaps the
/// part, or what each part has on average if that is more. Of few keys that are written much there
/// is little to rewrite, but all the more is overwritten while they wait.
#[must_use]
pub fn base_shares(keyspace: &Keyspace, level: usize) -> Vec<u64> {
    let runs = keyspace.levels.get(level).map_or(&[][..], |l| &l.runs);
    let tables = runs.iter().flat_map(|run| &run.tables);
    let sized = tables.map(|t| (&t.range, t.size_bytes()));
    let bytes: u64 = sized.clone().map(|(_, bytes)| bytes).sum();
    let parts = keyspace.cuts.parts();
    if parts == 1 {
        return vec![bytes];
    }
    let shares = keyspace.cuts.shares(sized).into_iter();
    shares.map(|s| s.max(bytes / parts as u64)).collect()
}

/// What is left of the room that flushes wait for when there is none, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// What is free.
    pub free_bytes: u64,
    /// What is free once room was made; never 0.
    pub bytes: u64,
}

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
        let targets = Targets::by_parts(keyspace, view.shape);
        let excess = (0..targets.bottom()).map(|l| targets.excess_bytes(l));
        pressure.merge_debt_bytes += excess.sum::<u64>();
    }
    pressure
}

/// Whether newest runs are so many that their merges go first: a relocation, or a merge further
/// down, would keep tables from them. It passes, so that no forecast is put off by it.
#[must_use]
pub fn merges_are_urgent(view: &View<'_>) -> bool {
    !view.forecast && pressure(view).newest_runs_max >= urgent_runs(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_slowed_later_where_parts_take_turns() {
        assert_eq!([1, 2].map(|parts| runs_slow_percent(parts, true)), [75; 2]);
        assert_eq!(
            [0, 1, 2, 64].map(|parts| runs_slow_percent(parts, false)),
            [40, 40, 75, 75]
        );
    }

    #[test]
    fn runs_count_half_while_they_hold_less_than_half_of_what_they_are_merged_into() {
        let counted = |runs, bytes, base| counted_runs(runs, bytes, base, 1.0);
        assert_eq!(counted(0, 0, 0), 0);
        assert_eq!(counted(24, 1, 0), 24);
        assert_eq!(counted(24, 100, 100), 24);
        assert_eq!(counted(24, 1000, 100), 24);
        assert_eq!(counted(24, 75, 100), 18);
        assert_eq!(counted(24, 50, 100), 12);
        assert_eq!(counted(24, 0, 100), 12);
        assert_eq!(counted(48, 1, u64::MAX), 24);
    }

    #[test]
    fn as_many_times_the_runs_may_wait_as_memory_is_lent_up_to_three() {
        let times = [0.0, 1.0, 1.5, 3.0, 4.0, f64::INFINITY, f64::NAN].map(patience_max);
        assert_eq!(times[..6], [1.0, 1.0, 1.5, 3.0, 3.0, 3.0]);
        // However much they hold.
        let counted = |bytes, patience| counted_runs(24, bytes, 100, patience);
        assert_eq!([1.0, 1.5, 3.0].map(|p| counted(100, p)), [24, 16, 8]);
        assert_eq!([1.0, 1.5, 3.0].map(|p| counted(0, p)), [12, 12, 8]);
        assert_eq!([0.0, f64::NAN, times[6]].map(|p| counted(100, p)), [24; 3]);
    }
}
