//! Merges that win back space, once nothing is due.
//!
//! A table full of deletes is merged
//! down towards what it deletes, or rewritten where nothing lies below; one
//! whose blocks are mostly dead is rewritten. Each such job leaves a table
//! that calls for no other, so this comes to an end: see [`is_droppable`].

use std::sync::Arc;

use thermocline_model::job::{Merge, Reason};
use thermocline_model::table::TableMeta;
use thermocline_model::version::Keyspace;
use thermocline_model::view::View;

use crate::plan::leveled::{hull, in_the_way, merge_of, overlapping, overlaps_level};

/// Share of deletes above which a table is worth a merge of its own.
pub const DELETES_SHARE_MAX: f64 = 0.25;

/// Share of dead bytes above which a table is worth a rewrite.
pub const DEAD_SHARE_MAX: f64 = 0.5;

/// A table is not rewritten for its deletes before this age, in microseconds:
/// whatever goes wrong, it is rewritten at most once in this time.
pub const REWRITE_AGE_US: u64 = 60_000_000;

/// Deletes of both kinds as a share of what the table holds.
#[must_use]
pub fn deletes_share(table: &TableMeta) -> f64 {
    let deletes = table.deletes.saturating_add(table.range_deletes);
    let all = table.entries.saturating_add(table.range_deletes);
    deletes as f64 / all.max(1) as f64
}

/// Dead bytes as a share of the table's data.
#[must_use]
pub fn dead_share(table: &TableMeta) -> f64 {
    table.dead_bytes as f64 / table.data_bytes().max(1) as f64
}

/// Whether rewriting the table where nothing lies below drops all its deletes:
/// no snapshot may need one of them. Then the new table has none, and is not
/// rewritten again. A young table waits, so that even a rewrite that dropped
/// nothing is not repeated without pause.
#[must_use]
pub fn is_droppable(view: &View<'_>, table: &TableMeta) -> bool {
    table.seq_max <= view.oldest_snapshot
        && view.now_us.saturating_sub(table.created_us) >= REWRITE_AGE_US
}

/// A merge that wins back space.
pub(super) fn reclaim(view: &View<'_>, keyspace: &Keyspace) -> Option<Merge> {
    for (level, runs) in keyspace.levels.iter().enumerate() {
        for table in runs.tables() {
            let deletes = deletes_share(table);
            let dead = dead_share(table);
            if deletes <= DELETES_SHARE_MAX && dead <= DEAD_SHARE_MAX {
                continue;
            }
            let merge = reclaim_table(view, keyspace, level, table, deletes, dead);
            if merge.is_some() {
                return merge;
            }
        }
    }
    None
}

pub(super) fn reclaim_table(
    view: &View<'_>,
    keyspace: &Keyspace,
    level: usize,
    table: &Arc<TableMeta>,
    deletes: f64,
    dead: f64,
) -> Option<Merge> {
    let count = keyspace.levels.len();
    let below = (level + 1..count).find(|&l| overlaps_level(keyspace, l, &table.range));
    let mut inputs = vec![table];
    if deletes > DELETES_SHARE_MAX
        && let Some(to) = below
    {
        inputs.extend(overlapping(keyspace, to, &table.range)?);
        if in_the_way(
            view,
            keyspace,
            level + 1,
            to,
            &hull(inputs.iter().copied())?,
        ) {
            return None;
        }
        let reason = Reason::new("many-deletes").with("deletes_share", deletes);
        return merge_of(view, keyspace, inputs, to, reason);
    }
    let reason = if dead > DEAD_SHARE_MAX {
        Reason::new("dead-blocks").with("dead_share", dead)
    } else if below.is_none() && is_droppable(view, table) {
        Reason::new("last-deletes").with("deletes_share", deletes)
    } else {
        return None;
    };
    if in_the_way(view, keyspace, level, level, &table.range) {
        return None;
    }
    let mut merge = merge_of(view, keyspace, inputs, level, reason)?;
    merge.rewrite = true;
    Some(merge)
}
