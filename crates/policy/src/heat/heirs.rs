//! What the outputs of a merge inherit: a parent is shared out among the children
//! in its key range, by their bytes there.
//!
//! A wide parent, such as a flush among the tables of a level below, has little in each
//! child, and not as much in each. It is shared out by how much of its interval lies in a
//! child, and by how much other tables are read there, those beside it and those below: its
//! reads are where the hot keys are. By the children's bytes all would become equally
//! hot, and cold ones hotter than tables that are read. What a child has of wide parents is
//! a guess all the same, and is said to be one.

use std::sync::Arc;

use thermocline_model::table::TableMeta;

use super::known::Known;
use crate::MIB;
use crate::place::reads::ReadsByKey;
use crate::place::span::{Span, wide};

pub(crate) fn size_mib(table: &TableMeta) -> f64 {
    table.size_bytes().max(1) as f64 / MIB
}

/// Who is there when something is inherited.
#[derive(Clone, Copy)]
pub(crate) struct Kin<'a> {
    pub(crate) parents: &'a [Arc<TableMeta>],
    pub(crate) children: &'a [Arc<TableMeta>],
    /// Tables of the levels below that overlap these.
    pub(crate) below: &'a [Arc<TableMeta>],
}

/// What a child has of a parent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Share {
    /// Above 0 and at most 1.
    pub(crate) of_parent: f64,
    /// Whether the parent is wide.
    pub(crate) is_guess: bool,
}

/// Adds to `known` the children that have a share of a parent in it: made by `born`
/// of the child and the first such parent, then given by `give` its share of each.
/// `reads` are those of one, in any unit.
pub(crate) fn inherit<T: Copy>(
    known: &mut Known<T>,
    kin: Kin<'_>,
    reads: impl Fn(&T) -> f64,
    born: impl Fn(&TableMeta, T) -> T,
    give: impl Fn(&mut T, T, Share),
) {
    let Kin {
        parents,
        children,
        below,
    } = kin;
    let Some(span) = Span::of(parents.iter().chain(children)) else {
        return;
    };
    let places: Vec<(f64, f64)> = parents
        .iter()
        .chain(children)
        .map(|t| span.place(&t.range))
        .collect();
    let wide = &wide(&places)[..parents.len()];
    let (places, child_places) = places.split_at(parents.len());
    let by_key = match wide.contains(&true) {
        true => {
            let narrow = parents.iter().zip(wide).filter(|(_, wide)| !**wide);
            let narrow = narrow.map(|(parent, _)| parent).chain(below);
            let read = |t: &Arc<TableMeta>| {
                let reads = reads(known.get(t.id)?);
                Some((span.place(&t.range), reads))
            };
            ReadsByKey::of(narrow.filter_map(read))
        }
        false => ReadsByKey::default(),
    };
    let mut heirs = vec![None; children.len()];
    for ((parent, &place), &is_guess) in parents.iter().zip(places).zip(wide) {
        let Some(&before) = known.get(parent.id) else {
            continue;
        };
        let shares: Vec<f64> = match is_guess {
            false => {
                let bytes = |child: &Arc<TableMeta>| {
                    span.shared(&child.range, &parent.range) * size_mib(child)
                };
                children.iter().map(bytes).collect()
            }
            true => by_key.shares(place, child_places),
        };
        let all: f64 = shares.iter().sum();
        for ((child, heir), share) in children.iter().zip(&mut heirs).zip(shares) {
            if share > 0.0 {
                let heir = heir.get_or_insert_with(|| born(child, before));
                let of_parent = share / all;
                give(
                    heir,
                    before,
                    Share {
                        of_parent,
                        is_guess,
                    },
                );
            }
        }
    }
    for (child, heir) in children.iter().zip(heirs) {
        if let Some(heir) = heir {
            known.insert(child.id, heir);
        }
    }
}
