//! `thermocline model`: the tiers it is told of, the store it measures, and what
//! it prints. The equations are the library's (`thermocline::cost_model`).

pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod tier;
