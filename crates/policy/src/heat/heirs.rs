//! What the outputs of a merge inherit: a parent is shared out among the children
//! in its key range, by their bytes there.
//!
//! A wide parent, such as a flush among the tables of a level below, has little in each
//! child, and not as much in each. It is shared out by how much of its interval lies in a
//! child, and by how much the narrow parents were read there: its reads are where the hot
//! keys are. By the children's bytes all would become equally hot, and cold ones
//! hotter than tables that are read.

use std::sync::Arc;

use thermocline_model::table::TableMeta;

use super::known::Known;
use crate::place::span::{Span, wide};

const MIB: f64 = (1 << 20) as f64;

pub(super) fn size_mib(table: &TableMeta) -> f64 {
    table.size_bytes().max(1) as f64 / MIB
}

/// Adds to `known` the children that have a share of a parent in it: made by `born`
/// of the child and the first such parent, then given by `give` its share, above 0
/// and at most 1, of each. `reads` are those of one, in any unit.
pub(super) fn inherit<T: Copy>(
    known: &mut Known<T>,
    parents: &[Arc<TableMeta>],
    children: &[Arc<TableMeta>],
    reads: impl Fn(&T) -> f64,
    born: impl Fn(&TableMeta, T) -> T,
    give: impl Fn(&mut T, T, f64),
) {
    let Some(span) = Span::of(parents.iter().chain(children)) else {
        return;
    };
    let bytes = |parent: &TableMeta| -> Vec<f64> {
        let shared = |child: &Arc<TableMeta>| span.shared(&child.range, &parent.range);
        let each = children.iter().map(|c| shared(c) * size_mib(c));
        each.collect()
    };
    let places: Vec<(f64, f64)> = parents.iter().map(|p| span.place(&p.range)).collect();
    let wide = wide(&places);
    let mut density = Density::new(children.len());
    for (parent, _) in parents.iter().zip(&wide).filter(|(_, wide)| !**wide) {
        if let Some(before) = known.get(parent.id) {
            density.add(&bytes(parent), reads(before));
        }
    }
    let mut heirs = vec![None; children.len()];
    for (parent, wide) in parents.iter().zip(wide) {
        let Some(&before) = known.get(parent.id) else {
            continue;
        };
        let shares = match wide {
            false => bytes(parent),
            true => {
                let within = |child: &Arc<TableMeta>| span.shared(&parent.range, &child.range);
                density.weigh(children.iter().map(within).collect())
            }
        };
        let all: f64 = shares.iter().sum();
        for ((child, heir), share) in children.iter().zip(&mut heirs).zip(shares) {
            if share > 0.0 {
                let heir = heir.get_or_insert_with(|| born(child, before));
                give(heir, before, share / all);
            }
        }
    }
    for (child, heir) in children.iter().zip(heirs) {
        if let Some(heir) = heir {
            known.insert(child.id, heir);
        }
    }
}

/// By child what narrow parents have there.
struct Density {
    mib: Vec<f64>,
    reads: Vec<f64>,
}

impl Density {
    fn new(children: usize) -> Density {
        Density {
            mib: vec![0.0; children],
            reads: vec![0.0; children],
        }
    }

    /// A parent that has so many `mib` in each child.
    fn add(&mut self, mib: &[f64], reads: f64) {
        let all: f64 = mib.iter().sum();
        let sums = self.mib.iter_mut().zip(&mut self.reads);
        for ((sum, sum_reads), mib) in sums.zip(mib) {
            *sum += mib;
            *sum_reads += if all > 0.0 { reads * mib / all } else { 0.0 };
        }
    }

    /// The shares times the reads for each MiB; where no narrow parent is, times their
    /// mean. Without any reads they stay as they are.
    fn weigh(&self, shares: Vec<f64>) -> Vec<f64> {
        let mean = self.reads.iter().sum::<f64>() / self.mib.iter().sum::<f64>();
        let of = |(&mib, &reads): (&f64, &f64)| if mib > 0.0 { reads / mib } else { mean };
        let weights = self.mib.iter().zip(&self.reads).map(of);
        let weighed: Vec<f64> = shares.iter().zip(weights).map(|(s, w)| s * w).collect();
        match weighed.iter().sum::<f64>() > 0.0 {
            true => weighed,
            false => shares,
        }
    }
}
