//! What goes first of that which may leave the fast levels of `logstore` while the store is written
//! to.
//!
//! What a merge to the last level costs is what it rewrites there, and what it is worth is the room
//! it makes, for as long as that lasts. Keys that are written often would be back soon. So those go
//! first whose bytes, times the age of what they overlap of the last level, are most for each byte
//! that is read or written there ([`Leaving::worth`]).
//!
//! Compared like that are those of the colder third of what is known of heat, or all, whichever
//! costs the slow device less for each byte of room: the merge, and reads of what has gone until as
//! much is to go again. Where half of the operations read, these reads weigh most; where one of ten
//! does, the merge.
//!
//! How much goes at once: all that is wanted, as merges should be few, but of what is *dear*, for
//! which several bytes are rewritten for each that goes, no more than the slow device does
//! meanwhile ([`at_once`]). What stays is less dear when more has come to it, and what is flushed
//! while the merge runs has to have room beside all that the merge reads: where keys are written
//! evenly above a large last level long merges hold back the very bytes that would make them worth
//! it.

use std::cmp::Reverse;
use std::sync::Arc;

use thermocline_model::table::TableMeta;
use thermocline_model::view::View;

use crate::MIB;
use crate::cost::compaction::{self, Device, SEEKS, Work};
use crate::plan::fast_levels::bytes_of;

/// Of the bytes whose temperature is known, the colder part that may be compared alone.
const COLDER_SHARE: f64 = 1.0 / 3.0;

/// Bytes rewritten for each that goes, beyond which it is dear.
const DEAR: u64 = 2;

/// Seconds of the slow device that a merge may take for what is dear, however soon the fast one
/// is done with its part: its edit, syncs and reopened tables cost some hundredths.
pub(super) const DEAR_S: f64 = 1.6;

/// Whether `bytes` are dear if so many are rewritten for them.
pub(super) fn is_dear(bytes: u64, rewritten: u64) -> bool {
    rewritten > bytes.saturating_mul(DEAR)
}

/// What may leave the fast levels.
pub(super) struct Leaving<'a> {
    pub bytes: u64,
    /// Of these, those that are old enough to have a temperature.
    pub known_bytes: u64,
    /// Theirs, in block reads per second and MiB.
    pub temperature: Option<f64>,
    /// What is rewritten for it.
    pub below: Vec<&'a Arc<TableMeta>>,
}

impl Leaving<'_> {
    /// What it is worth to make this room by rewriting what is below: the product of its bytes
    /// with the age of that, for each byte that is read or written there. What went down to
    /// these tables took as long to come together, and so long the room is likely to last. The
    /// rule by which log-structured file systems choose what to clean.
    fn worth(&self, view: &View<'_>) -> u64 {
        let rewritten = bytes_of(self.below.iter().copied());
        if rewritten == 0 {
            return u64::MAX;
        }
        let age_us = |t: &TableMeta| view.now_us.saturating_sub(t.created_us) as f64;
        let ages = self.below.iter().map(|t| age_us(t) * t.size_bytes() as f64);
        let age_us = ages.sum::<f64>() / rewritten as f64;
        let bytes = self.bytes as f64;
        let cost = 2.0 * rewritten as f64 + bytes;
        (bytes * age_us / cost) as u64
    }

    /// Adds to `merge` what the slow device does for it; the bytes that are rewritten.
    fn add_to(&self, merge: &mut Work) -> u64 {
        let below_bytes = bytes_of(self.below.iter().copied());
        merge.tables += self.below.len();
        merge.read_bytes += below_bytes;
        merge.written_bytes += below_bytes + self.bytes;
        below_bytes
    }
}

/// Which of `all`, in the order in which they go, if `going_bytes` are to leave. Requires: `all`
/// ascend by temperature, with what is not known last. They are the first of these.
pub(super) fn first(view: &View<'_>, all: &[Leaving<'_>], going_bytes: u64) -> Vec<usize> {
    let mut by_worth: Vec<usize> = (0..all.len()).collect();
    by_worth.sort_by_cached_key(|&at| Reverse(all[at].worth(view)));
    if all.iter().all(|l| l.temperature.unwrap_or(0.0) == 0.0) {
        return by_worth;
    }
    let of = |compared: usize| {
        let mut first = by_worth.clone();
        first.retain(|&at| at < compared);
        first
    };
    let known = all.partition_point(|l| l.temperature.is_some());
    let [some, known] = [colder(&all[..known]), known].map(of);
    let cost = |first: &[usize]| cost(view, first.iter().map(|&at| &all[at]), going_bytes);
    if cost(&known) < cost(&some) {
        known
    } else {
        some
    }
}

/// How many of `bytes` go at once, if `first` go in their order, and the fast device takes `fast_s`
/// seconds for its part of the merge. At least the first of them goes.
pub(super) fn at_once<'a>(
    view: &View<'_>,
    first: impl Iterator<Item = &'a Leaving<'a>>,
    bytes: u64,
    fast_s: f64,
) -> u64 {
    let devices = Device::of(view.tiers);
    let Some(slow) = devices.get(1).copied() else {
        return bytes;
    };
    let (mut going, mut merge) = (0, Work::default());
    for leaving in first {
        if going >= bytes {
            break;
        }
        let rewritten = leaving.add_to(&mut merge);
        let dear = is_dear(leaving.bytes, rewritten);
        if dear && going > 0 && merge.seconds(slow) > fast_s.max(DEAR_S) {
            return going;
        }
        going += leaving.bytes;
    }
    bytes
}

/// How many of `known` are the colder third of their bytes, or as cold as that. By number it would
/// not do: what is cold in every sense has few bytes here, and to go it has as much rewritten as
/// all else.
fn colder(known: &[Leaving<'_>]) -> usize {
    let all: u64 = known.iter().map(|l| l.known_bytes).sum();
    let mut before = 0.0;
    // Those whose middle lies in it, and the coldest.
    let within = known.iter().take_while(|l| {
        let bytes = l.known_bytes as f64;
        let is_first = before == 0.0;
        let middle = before + bytes / 2.0;
        before += bytes;
        is_first || middle <= all as f64 * COLDER_SHARE
    });
    let most = within.last().and_then(|l| l.temperature);
    known.partition_point(|l| l.temperature <= most)
}

/// Seconds of the slow device for each byte of room, if the first of these go until `going_bytes`
/// have: for the merge, and for reads until what is flushed has filled that room again.
fn cost<'a>(
    view: &View<'_>,
    first: impl Iterator<Item = &'a Leaving<'a>>,
    going_bytes: u64,
) -> f64 {
    let devices = Device::of(view.tiers);
    let Some(slow) = devices.get(1).copied() else {
        return 0.0;
    };
    let (mut bytes, mut reads) = (0, 0.0);
    let mut merge = Work::default();
    for leaving in first {
        if bytes >= going_bytes {
            break;
        }
        leaving.add_to(&mut merge);
        bytes += leaving.bytes;
        reads += leaving.bytes as f64 / MIB * leaving.temperature.unwrap_or(0.0);
    }
    let reads_s = compaction::reads_s(reads, SEEKS, slow);
    let refilled_s = match reads > 0.0 {
        true => bytes as f64 / view.flushed_bytes_per_s.max(0.0),
        false => 0.0,
    };
    (merge.seconds(slow) + reads_s * refilled_s) / bytes as f64
}
