//! Why a table lies where it lies, and what would move it next: one file for
//! each way of placing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, KeyspaceId, Slot};
use thermocline_model::view::View;

use crate::plan::targets::Targets;

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

/// A table and where the version has it.
#[derive(Clone, Copy)]
struct Located<'a> {
    keyspace: &'a Keyspace,
    slot: Slot,
    table: &'a Arc<TableMeta>,
}

/// Explains each of `tables` that a keyspace has, in their order.
fn each<'a>(
    view: &View<'a>,
    tables: &[TableId],
    mut explain: impl FnMut(Located<'a>) -> Explanation,
) -> Vec<Option<Explanation>> {
    let wanted: BTreeSet<TableId> = tables.iter().copied().collect();
    let mut located = BTreeMap::new();
    for keyspace in view.version.keyspaces.values() {
        let met = keyspace.tables().filter(|(_, _, t)| wanted.contains(&t.id));
        located.extend(met.map(|(slot, _, table)| {
            let place = Located {
                keyspace,
                slot,
                table,
            };
            (table.id, place)
        }));
    }
    let tables = tables.iter();
    tables
        .map(|table| located.get(table).map(|&place| explain(place)))
        .collect()
}

/// Targets of keyspaces, each made when it is first asked for.
type TargetsBy = BTreeMap<KeyspaceId, Targets>;
