//! What a merge is predicted to cost and to gain.
//!
//! An input that overlaps no other is passed down by the edit alone: it costs nothing, and gains
//! what writing it anew would have cost. What the others become is reckoned to be as large as they
//! are, and to lie where the placer says now; of a large merge a few pieces are asked for, not
//! every table.

use std::collections::BTreeSet;

use thermocline_model::job::{Deeper, Merge, NewTable};
use thermocline_model::join::alone;
use thermocline_model::predicted::Predicted;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TIERS_MAX;
use thermocline_model::version::Slot;
use thermocline_model::view::View;

use crate::cost::estimate::{Places, reads_per_second, usd_month_saved, with_reads};
use crate::cost::{Devices, Transfers};

/// Of what a merge writes to a slot, about so many pieces are asked for where they will go: that is
/// done while jobs are planned, and takes time where tables are placed by heat.
const PIECES_MAX: u64 = 2;

/// What a merge reads and writes anew.
struct Rewritten<'a> {
    slot: Slot,
    /// Which of the runs that have inputs it lies in.
    run: usize,
    table: &'a TableMeta,
}

/// The inputs of a merge, by what becomes of them.
#[derive(Default)]
struct Inputs<'a> {
    rewritten: Vec<Rewritten<'a>>,
    /// Passed down by the edit alone.
    passed: Vec<&'a TableMeta>,
    /// Runs that any of them lies in.
    runs: usize,
}

impl<'a> Inputs<'a> {
    fn of(view: &View<'a>, merge: &Merge) -> Inputs<'a> {
        let ids: BTreeSet<TableId> = merge.inputs.iter().copied().collect();
        let mut inputs = Inputs::default();
        let Some(keyspace) = view.version.keyspaces.get(&merge.keyspace) else {
            return inputs;
        };
        let mut all = Vec::new();
        for slot in keyspace.slots() {
            let runs = keyspace.level(slot).map_or(&[][..], |level| &level.runs);
            for (at, tables) in runs.iter().enumerate() {
                let here = tables.tables.iter().filter(|t| ids.contains(&t.id));
                let before = all.len();
                let run = inputs.runs;
                // What lies in the run that the others come to stays there if it is not rewritten.
                let stays = slot == merge.output && at == 0;
                all.extend(here.map(|table| (Rewritten { slot, run, table }, stays)));
                inputs.runs += usize::from(all.len() > before);
            }
        }
        let alone = match merge.rewrite {
            true => BTreeSet::new(),
            false => alone(all.iter().map(|(input, _)| input.table)),
        };
        for (input, stays) in all {
            match alone.contains(&input.table.id) {
                false => inputs.rewritten.push(input),
                true if stays => {}
                true => inputs.passed.push(input.table),
            }
        }
        inputs
    }

    /// Bytes that fall away if what lies in several runs is versions of the same keys: the most
    /// that there can be. How many there are nobody knows before they are merged.
    fn overwritten_bytes_max(&self) -> u64 {
        let mut by_run = vec![0u64; self.runs];
        for Rewritten { run, table, .. } in &self.rewritten {
            by_run[*run] += table.size_bytes();
        }
        let all: u64 = by_run.iter().sum();
        all - by_run.iter().max().copied().unwrap_or(0)
    }

    fn sum(&self, of: impl Fn(&TableMeta) -> u64) -> u64 {
        self.rewritten.iter().map(|r| of(r.table)).sum()
    }
}

/// A piece of what a merge writes.
struct Piece {
    slot: Slot,
    range: KeyRange,
    bytes: u64,
    /// Blocks of its inputs that are read in a second, as far as known.
    reads: f64,
    /// The tier that its inputs lie on, if they lie on one.
    from: Option<usize>,
}

/// `tables` as they will be in `slot`, in the order of their keys: a few pieces, of a table's size
/// at least, which together have `bytes`.
fn pieces(
    view: &View<'_>,
    slot: Slot,
    mut tables: Vec<&TableMeta>,
    bytes: u64,
    table_bytes: u64,
) -> Vec<Piece> {
    tables.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    let all: u64 = tables.iter().map(|t| t.size_bytes()).sum();
    let least = (all / PIECES_MAX).max(table_bytes);
    let mut pieces: Vec<Piece> = Vec::new();
    for table in tables {
        let tier = Some(table.tier().0 as usize);
        let reads = reads_per_second(view, table).unwrap_or(0.0);
        match pieces.last_mut().filter(|last| last.bytes < least) {
            Some(last) => {
                last.bytes += table.size_bytes();
                last.range = last.range.hull(&table.range);
                last.reads += reads;
                last.from = last.from.filter(|_| last.from == tier);
            }
            None => pieces.push(Piece {
                slot,
                range: table.range.clone(),
                bytes: table.size_bytes(),
                reads,
                from: tier,
            }),
        }
    }
    let scale = bytes as f64 / all.max(1) as f64;
    if bytes != all {
        let scaled = pieces.iter_mut();
        scaled.for_each(|p| p.bytes = (p.bytes as f64 * scale) as u64);
    }
    pieces
}

/// What `merge` writes of `inputs`.
fn outputs(view: &View<'_>, merge: &Merge, inputs: &Inputs<'_>) -> Vec<Piece> {
    let table_bytes = merge.table_bytes;
    let is_lower = |r: &&Rewritten<'_>| merge.deeper.as_ref().is_some_and(|d| d.slot == r.slot);
    let tables = |lower: bool| -> (Vec<&TableMeta>, u64) {
        let these = inputs.rewritten.iter().filter(|r| is_lower(r) == lower);
        let these: Vec<_> = these.map(|r| r.table).collect();
        let bytes = these.iter().map(|t| t.size_bytes()).sum();
        (these, bytes)
    };
    let (upper, upper_bytes) = tables(false);
    let Some(Deeper {
        slot,
        ranges,
        bytes,
    }) = &merge.deeper
    else {
        return pieces(view, merge.output, upper, upper_bytes, table_bytes);
    };
    let left = upper_bytes.saturating_sub(*bytes);
    let mut all = pieces(view, merge.output, upper, left, table_bytes);
    let (lower, lower_bytes) = tables(true);
    let hull = ranges.iter().cloned().reduce(|a, b| a.hull(&b));
    match (lower.is_empty(), hull) {
        // Nothing lies there yet.
        (true, Some(range)) => all.push(Piece {
            slot: *slot,
            range,
            bytes: *bytes,
            reads: 0.0,
            from: None,
        }),
        _ => all.extend(pieces(view, *slot, lower, lower_bytes + bytes, table_bytes)),
    }
    all
}

pub(super) fn of_merge(
    view: &View<'_>,
    places: Places<'_>,
    devices: &Devices,
    merge: &Merge,
) -> Predicted {
    let inputs = Inputs::of(view, merge);
    let mut transfers = Transfers::default();
    let (mut moves, mut saved_us) = (false, 0.0);
    for Rewritten { table, .. } in &inputs.rewritten {
        let tier = table.tier().0 as usize;
        transfers.read(tier, table.size_bytes());
        saved_us += reads_per_second(view, table).unwrap_or(0.0) * devices.read_us(tier);
    }
    let parents: Vec<TableId> = inputs.rewritten.iter().map(|r| r.table.id).collect();
    for piece in outputs(view, merge, &inputs) {
        let new = NewTable {
            keyspace: merge.keyspace,
            slot: piece.slot,
            start: Some(piece.range.start.clone()),
            range: Some(piece.range),
            size_bytes: piece.bytes,
            parents: parents.clone(),
            written_bytes: transfers.written(),
        };
        let layout = places.placer.place_as_seen(view, places.seen, &new);
        let tier = layout.data.0 as usize;
        transfers.write(tier, piece.bytes);
        saved_us -= piece.reads * devices.read_us(tier);
        moves |= piece.from != Some(tier);
    }
    if view.shape.reads_back {
        transfers.read_back();
    }
    let mut predicted = transfers.predicted(devices);
    if !inputs.rewritten.is_empty() {
        let runs_fewer = inputs.runs.saturating_sub(1);
        let won = inputs.overwritten_bytes_max();
        predicted = predicted
            .gaining("runs_fewer", runs_fewer as f64)
            .gaining("overwritten_bytes_max", won as f64);
    }
    for (name, number) in [
        (
            "deletes_gone_max",
            inputs.sum(|t| t.deletes + t.range_deletes),
        ),
        ("dead_bytes_gone", inputs.sum(|t| t.dead_bytes)),
    ] {
        if number > 0 {
            predicted = predicted.gaining(name, number as f64);
        }
    }
    if !inputs.passed.is_empty() {
        let (bytes, seconds) = rewriting(devices, &inputs.passed);
        predicted = predicted
            .gaining("rewritten_bytes_saved", bytes as f64)
            .gaining("merge_device_seconds_saved", seconds);
    }
    if moves {
        let mut tables = inputs.rewritten.iter();
        let known = tables.any(|r| reads_per_second(view, r.table).is_some());
        let usd = usd_month_saved(view, &transfers);
        predicted = predicted.gaining("usd_month_saved", usd);
        predicted = with_reads(predicted, known.then_some(saved_us));
    }
    predicted
}

/// Bytes of `tables`, and what reading them and writing them where they are would cost.
fn rewriting(devices: &Devices, tables: &[&TableMeta]) -> (u64, f64) {
    let (mut bytes, mut seconds) = (0, 0.0);
    for table in tables {
        let (tier, size) = (table.tier().0 as usize, table.size_bytes());
        bytes += size;
        let rewrite = Transfers::of_rewrite(tier.min(TIERS_MAX - 1), size);
        seconds += rewrite.total_seconds(devices);
    }
    (bytes, seconds)
}

/// How hot the inputs of a merge are: their mean temperature, or how often they were looked into
/// where none has one.
pub(super) fn heat_of(view: &View<'_>, merge: &Merge) -> (&'static str, f64) {
    let (mut reads, mut known_bytes, mut probes) = (0.0, 0u64, 0u64);
    let keyspace = view.version.keyspaces.get(&merge.keyspace);
    let inputs: BTreeSet<TableId> = merge.inputs.iter().copied().collect();
    for (.., table) in keyspace.into_iter().flat_map(|k| k.tables()) {
        let heat = view.heat.get(&table.id);
        let Some(heat) = heat.filter(|_| inputs.contains(&table.id)) else {
            continue;
        };
        probes += heat.probes;
        if let Some(temperature) = heat.temperature {
            known_bytes += table.size_bytes();
            reads += temperature * table.size_bytes() as f64;
        }
    }
    match known_bytes {
        0 => ("probes", probes as f64),
        bytes => ("temperature", reads / bytes as f64),
    }
}
