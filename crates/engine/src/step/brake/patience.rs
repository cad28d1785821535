//! How many times as many runs wait as when somebody reads.
//!
//! As many as planners say ([`patience`](thermocline_policy::pressure::patience)), while hardly
//! anybody does. That comes at once, and goes as merges take runs away: when those who read are
//! back, parts may have three times the runs at which writers stop, and merging them takes a while
//! for which nobody could write. So there are as many as that at first, up to where writers begin
//! to slow, and fewer as there are fewer.

use thermocline_policy::pressure::{PATIENCE_MAX, runs_slow_percent};

use super::{runs_of_part, slow_at};
use crate::version::tree::Tree;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Patience {
    times: f64,
}

impl Default for Patience {
    /// As much as there may be: who opens a store that has many runs left may write at once.
    fn default() -> Patience {
        Patience {
            times: PATIENCE_MAX,
        }
    }
}

impl Patience {
    pub(super) fn times(self) -> f64 {
        self.times
    }

    /// With `trees`, runs at which writers `stop`, and what planners say.
    pub(super) fn look<'a>(
        &mut self,
        trees: impl Iterator<Item = &'a Tree>,
        stop: u64,
        planned: f64,
    ) {
        let needed = trees.map(|tree| patience_needed(tree, stop));
        let needed = needed.fold(1.0, f64::max);
        self.times = planned.max(self.times.min(needed));
    }
}

/// With which patience no part of `tree` has more runs than there may be before writers are slowed.
fn patience_needed(tree: &Tree, stop: u64) -> f64 {
    let slow = slow_at(stop, runs_slow_percent(tree.parts.len(), false));
    let parts = tree.parts.iter().zip(&tree.base_shares);
    let many = parts.filter(|(runs, share)| runs_of_part(runs, **share, 1.0) > slow);
    let needed = many.map(|(runs, _)| runs.len() as f64 / slow.max(1) as f64);
    needed.fold(1.0, f64::max)
}
