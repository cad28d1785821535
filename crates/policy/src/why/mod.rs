//! Why a table lies where it lies, and what would move it next: one file for
//! each way of placing.

use thermocline_model::tier::TierId;
use thermocline_model::version::Slot;

pub mod by_heat;
pub mod by_level;
pub mod by_shape;

/// What there is to say about the place of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The rule that keeps the table where it is.
    pub rule: String,
    /// Its slot.
    pub slot: Slot,
    /// The tier of its data.
    pub tier: TierId,
    /// What the rules compare, each with name and unit.
    pub numbers: Vec<(String, f64)>,
    /// What would move it next; `None` when nothing in sight would.
    pub next: Option<String>,
}
