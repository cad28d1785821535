//! What the outputs of a merge inherit: a parent is shared out among the children
//! in its key range, by their bytes there.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::table::{TableId, TableMeta};

use crate::place::span::Span;

const MIB: f64 = (1 << 20) as f64;

pub(super) fn size_mib(table: &TableMeta) -> f64 {
    table.size_bytes().max(1) as f64 / MIB
}

/// Adds to `known` the children that have a share of a parent in it: made by `born`
/// of the child and the first such parent, then given by `give` its share, above 0
/// and at most 1, of each.
pub(super) fn inherit<T: Copy>(
    known: &mut BTreeMap<TableId, T>,
    parents: &[Arc<TableMeta>],
    children: &[Arc<TableMeta>],
    born: impl Fn(&TableMeta, T) -> T,
    give: impl Fn(&mut T, T, f64),
) {
    let Some(span) = Span::of(parents.iter().chain(children)) else {
        return;
    };
    let mut heirs = vec![None; children.len()];
    for parent in parents {
        let Some(&before) = known.get(&parent.id) else {
            continue;
        };
        let bytes: Vec<f64> = children
            .iter()
            .map(|c| span.shared(&c.range, &parent.range) * size_mib(c))
            .collect();
        let all: f64 = bytes.iter().sum();
        for ((child, heir), bytes) in children.iter().zip(&mut heirs).zip(bytes) {
            if bytes > 0.0 {
                let heir = heir.get_or_insert_with(|| born(child, before));
                give(heir, before, bytes / all);
            }
        }
    }
    let born = children.iter().zip(heirs);
    known.extend(born.filter_map(|(child, heir)| Some((child.id, heir?))));
}
