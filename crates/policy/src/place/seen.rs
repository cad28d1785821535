//! What a store looked like to a placer, so that a job that makes many tables looks once.

use std::sync::OnceLock;

use thermocline_model::view::View;

use crate::place::fill::Fill;
use crate::plan::organisation::Ranking;

/// What is the same for all tables that are placed under views which differ in what the tiers hold
/// alone.
///
/// To walk all tables for each that a merge makes took as many instructions as all planning.
#[derive(Clone, Debug)]
pub struct Seen {
    fill: Fill,
    /// Made when the first table asks for it.
    ranking: OnceLock<Ranking>,
}

impl Seen {
    /// Of what `view` shows.
    #[must_use]
    pub fn of(view: &View<'_>) -> Seen {
        Seen {
            fill: Fill::of(view),
            ranking: OnceLock::new(),
        }
    }

    /// The same, the order of temperatures to be found anew.
    #[must_use]
    pub fn unranked(&self) -> Seen {
        Seen {
            fill: self.fill.clone(),
            ranking: OnceLock::new(),
        }
    }

    /// What lies where, and what may under the tiers of `view`.
    pub(super) fn fill(&self, view: &View<'_>) -> Fill {
        self.fill.under(view)
    }

    /// All tables in the order of their temperatures, and where they belong.
    pub(super) fn ranking(&self, view: &View<'_>) -> &Ranking {
        self.ranking.get_or_init(|| Ranking::of(view))
    }
}
