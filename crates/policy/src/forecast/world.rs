//! The copy of the store's picture that is planned on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::forecast::ForecastState;
use thermocline_model::job::{Merge, NewTable, Relocate};
use thermocline_model::join::{Join, join};
use thermocline_model::key::SeqNo;
use thermocline_model::moves::Moves;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{Extent, ObjectId, TableId, TableMeta};
use thermocline_model::tier::{TIERS_MAX, TierId, TierState};
use thermocline_model::version::{Keyspace, RunId, Version};
use thermocline_model::view::{TableHeat, View};

use super::pieces::{Piece, Pieces};
use crate::cost::{Budget, Devices, Transfers, money};
use crate::heat::heirs::{self, Kin};
use crate::heat::known::Known;
use crate::place::fill::{Fill, depth};
use crate::{MIB, Placer};

/// See the module.
pub(super) struct World {
    pub(super) version: Arc<Version>,
    pub(super) heat: BTreeMap<TableId, TableHeat>,
    tiers: Vec<TierState>,
    moves: Moves,
    nothing: BTreeSet<TableId>,
    /// The next number for what is made.
    next_id: u64,
}

/// What a job was in the copy.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Done {
    /// Bytes read to be written anew.
    pub(super) bytes: u64,
    /// Seconds of devices that this takes.
    pub(super) device_seconds: f64,
    /// The tables that are no more.
    pub(super) gone: Vec<TableId>,
}

impl World {
    pub(super) fn of(view: &View<'_>) -> World {
        World {
            version: Arc::new(view.version.clone()),
            tiers: view.tiers.to_vec(),
            heat: understood(view),
            moves: Moves::default(),
            nothing: BTreeSet::new(),
            next_id: view.version.next_id,
        }
    }

    pub(super) fn view<'a>(&'a self, view: &View<'a>) -> View<'a> {
        View {
            version: &self.version,
            tiers: &self.tiers,
            heat: &self.heat,
            busy: &self.nothing,
            busy_outputs: &[],
            moves: &self.moves,
            idle: true,
            forecast: true,
            ..view.clone()
        }
    }

    /// Moves the data of a table; `None` if that cannot be.
    pub(super) fn relocate(&mut self, view: &View<'_>, relocate: &Relocate) -> Option<Done> {
        let keyspace = self.version.keyspaces.get(&relocate.keyspace)?;
        let (_, _, table) = keyspace.find(relocate.table)?;
        let to = self.tiers.get(relocate.to.0 as usize)?.id;
        let from = table.tier();
        let before = Arc::clone(table);
        let mut after = TableMeta::clone(table);
        let elsewhere = after.data.iter_mut().filter(|e| e.tier != to);
        let bytes = elsewhere.map(|extent| {
            extent.tier = to;
            extent.length
        });
        let bytes: u64 = bytes.sum();
        if bytes == 0 {
            return None;
        }
        let after = Arc::new(after);
        self.commit(vec![Change::ReplaceTable {
            keyspace: relocate.keyspace,
            table: Arc::clone(&after),
        }])?;
        self.frees(&before);
        self.takes(&after);
        Some(Done {
            bytes,
            device_seconds: Devices::of(view).move_seconds(from.0 as usize, to.0 as usize, bytes),
            gone: Vec::new(),
        })
    }

    /// Merges tables into what [`Pieces`] says, which `placer` puts on tiers; `None` if that cannot
    /// be.
    pub(super) fn merge(
        &mut self,
        view: &View<'_>,
        placer: &dyn Placer,
        merge: &Merge,
    ) -> Option<Done> {
        let keyspace = Arc::clone(self.version.keyspaces.get(&merge.keyspace)?);
        let named: BTreeSet<_> = merge.inputs.iter().collect();
        let inputs = keyspace.tables().filter(|(_, _, t)| named.contains(&t.id));
        let inputs: Vec<_> = inputs.map(|(_, _, table)| Arc::clone(table)).collect();
        if inputs.len() != named.len() {
            return None;
        }
        let pieces = Pieces::of(&keyspace, merge, &inputs);
        let leaving = pieces.leaving();
        if leaving.is_empty() {
            return None;
        }
        let made = self.placed(view, placer, merge, &pieces);
        let leave = leaving.iter().map(|&table| Change::RemoveTable {
            keyspace: merge.keyspace,
            table,
        });
        let mut changes: Vec<_> = leave.collect();
        for slot in merge.slots() {
            let passed = pieces.passed.iter().filter(|_| slot == merge.output);
            let new = pieces.made.iter().zip(&made);
            let new = new.filter(|(piece, _)| piece.slot == slot).map(|(_, t)| t);
            let added: Vec<_> = passed.chain(new).collect();
            let ranges: Vec<KeyRange> = added.iter().map(|t| t.range.clone()).collect();
            let (run, behind) = match join(&keyspace, slot, &leaving, &ranges) {
                Join::Run(run) => (run, None),
                Join::New { behind } => (RunId(self.take_id()), behind),
            };
            changes.extend(added.into_iter().map(|table| Change::AddTable {
                keyspace: merge.keyspace,
                slot,
                run,
                behind,
                table: Arc::clone(table),
            }));
        }
        self.commit(changes)?;
        let mut done = Done::default();
        let mut transfers = Transfers::default();
        for table in &pieces.merged {
            self.frees(table);
            done.gone.push(table.id);
            done.bytes += table.size_bytes();
            transfers.read(table.tier().0 as usize, table.size_bytes());
        }
        for table in &made {
            self.takes(table);
            transfers.write(table.tier().0 as usize, table.size_bytes());
        }
        done.device_seconds = transfers.total_seconds(&Devices::of(view));
        self.inherit(&keyspace, merge, &pieces.merged, &made);
        Some(done)
    }

    /// The tables that `pieces` become.
    fn placed(
        &mut self,
        view: &View<'_>,
        placer: &dyn Placer,
        merge: &Merge,
        pieces: &Pieces,
    ) -> Vec<Arc<TableMeta>> {
        let mut written_bytes = [0; TIERS_MAX];
        let mut made = Vec::with_capacity(pieces.made.len());
        for piece in &pieces.made {
            let layout = placer.place(
                &self.view(view),
                &NewTable {
                    keyspace: merge.keyspace,
                    slot: piece.slot,
                    range: None,
                    start: Some(piece.range.start.clone()),
                    size_bytes: piece.data_bytes + piece.meta_bytes,
                    parents: pieces.merged.iter().map(|t| t.id).collect(),
                    written_bytes,
                },
            );
            let mut extent = |tier, length| {
                let written = written_bytes.get_mut(tier as usize);
                written.into_iter().for_each(|bytes| *bytes += length);
                Extent {
                    tier: TierId(tier),
                    object: ObjectId(self.take_id()),
                    offset: 0,
                    length,
                    checksum: 0,
                }
            };
            let meta = extent(layout.meta.0, piece.meta_bytes);
            let data = extent(layout.data.0, piece.data_bytes);
            let id = TableId(self.take_id());
            let mut table = table_of(piece, pieces, id, meta, data);
            if merge.rewrite {
                // What deletes hide falls away; a table of nothing else is young, or would be
                // rewritten again.
                table.deletes = 0;
                if table.entries == 0 {
                    table.created_us = view.now_us;
                }
            }
            made.push(Arc::new(table));
        }
        made
    }

    /// As the trackers do it ([`heirs`]), for what every one of them says.
    fn inherit(
        &mut self,
        keyspace: &Keyspace,
        merge: &Merge,
        parents: &[Arc<TableMeta>],
        children: &[Arc<TableMeta>],
    ) {
        let deepest = merge.slots().map(depth).max().unwrap_or(0);
        let below = keyspace.tables().filter(|(slot, _, table)| {
            let meets = || parents.iter().any(|p| p.range.overlaps(&table.range));
            depth(*slot) > deepest && meets()
        });
        let below: Vec<_> = below.map(|(_, _, table)| Arc::clone(table)).collect();
        let mut known = Known::default();
        for table in parents.iter().chain(&below) {
            if let Some(&heat) = self.heat.get(&table.id) {
                known.insert(table.id, Heir::of(table, heat));
            }
        }
        let kin = Kin {
            parents,
            children,
            below: &below,
        };
        let reads = |heir: &Heir| match heir.heat.temperature {
            Some(temperature) => temperature * heir.mib,
            None => heir.heat.block_reads as f64,
        };
        let born = |table: &TableMeta, _| Heir::of(table, TableHeat::default());
        heirs::inherit(&mut known, kin, reads, born, |heir, parent, share| {
            heir.add(&parent, share.of_parent);
        });
        for table in parents {
            self.heat.remove(&table.id);
        }
        for table in children {
            if let Some(heir) = known.get(table.id) {
                self.heat.insert(table.id, heir.heat);
            }
        }
    }

    fn commit(&mut self, changes: Vec<Change>) -> Option<()> {
        let next = Edit { changes }.apply(&self.version).ok()?;
        self.version = Arc::new(next);
        Some(())
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn frees(&mut self, table: &TableMeta) {
        for extent in table.extents() {
            if let Some(tier) = self.tiers.get_mut(extent.tier.0 as usize) {
                tier.used_bytes = tier.used_bytes.saturating_sub(extent.length);
                tier.device_free_bytes = tier.device_free_bytes.saturating_add(extent.length);
            }
        }
    }

    fn takes(&mut self, table: &TableMeta) {
        for extent in table.extents() {
            if let Some(tier) = self.tiers.get_mut(extent.tier.0 as usize) {
                tier.used_bytes = tier.used_bytes.saturating_add(extent.length);
                tier.device_free_bytes = tier.device_free_bytes.saturating_sub(extent.length);
            }
        }
    }

    pub(super) fn state(&self, view: &View<'_>) -> ForecastState {
        let view = self.view(view);
        let fill = Fill::of(&view);
        let prices: Vec<f64> = view.tiers.iter().map(|t| t.price_usd_gb_month).collect();
        let budget = Budget::of(&fill.used[..fill.tiers], &prices, None);
        let devices = Devices::of(&view);
        let mut reads = vec![0.0; fill.tiers];
        for table in self.version.tables() {
            let heat = self.heat.get(&table.id);
            let temperature = heat.and_then(|h| h.temperature).unwrap_or(0.0);
            reads[fill.index(table.tier())] += temperature * table.data_bytes() as f64 / MIB;
        }
        let all: f64 = reads.iter().sum();
        let shares: Vec<f64> = if all > 0.0 {
            reads.iter().map(|r| r / all).collect()
        } else {
            Vec::new()
        };
        let tiers = fill.used.iter().zip(&prices);
        ForecastState {
            tier_bytes: fill.used[..fill.tiers].to_vec(),
            cost_usd_month: tiers.map(|(&b, &p)| money::usd_month(b, p)).sum(),
            price_usd_gb_month: budget.price_usd_gb_month(),
            read_us: (all > 0.0).then(|| {
                let each = shares.iter().enumerate();
                each.map(|(tier, share)| share * devices.read_us(tier))
                    .sum()
            }),
            read_shares: shares,
        }
    }
}

/// What is known of use, said in the way of every preset: one that counts and one
/// that keeps temperatures each find what they go by. Only proportions are right.
fn understood(view: &View<'_>) -> BTreeMap<TableId, TableHeat> {
    let mut heat = view.heat.clone();
    for table in view.version.tables() {
        let Some(heat) = heat.get_mut(&table.id) else {
            continue;
        };
        let mib = table.size_bytes().max(1) as f64 / MIB;
        let counted = heat.probes | heat.scans | heat.block_reads | heat.hits;
        match heat.temperature {
            Some(temperature) if counted == 0 => {
                heat.block_reads = (temperature * mib * 1e3) as u64;
            }
            None if heat.block_reads > 0 => {
                heat.temperature = Some(heat.block_reads as f64 / mib);
                heat.temperature_of_one = 1.0 / mib;
            }
            _ => {}
        }
    }
    heat
}

/// `piece` as a table. What its entries are nobody knows; it has its bytes' share of them. Range
/// deletes go, as they do at the bottom, unless there is nothing else.
fn table_of(piece: &Piece, of: &Pieces, id: TableId, meta: Extent, data: Extent) -> TableMeta {
    let sum = |count: fn(&TableMeta) -> u64| of.merged.iter().map(|t| count(t)).sum::<u64>();
    let all = sum(TableMeta::size_bytes).max(1) as f64;
    let share = (piece.data_bytes + piece.meta_bytes) as f64 / all;
    let part = |sum: u64| (sum as f64 * share) as u64;
    let seqs = || of.merged.iter();
    let entries = match data.length {
        0 => 0,
        _ => part(sum(|t| t.entries)).max(1),
    };
    TableMeta {
        id,
        range: piece.range.clone(),
        seq_min: seqs().map(|t| t.seq_min).min().unwrap_or(SeqNo::ZERO),
        seq_max: seqs().map(|t| t.seq_max).max().unwrap_or(SeqNo::ZERO),
        entries,
        deletes: part(sum(|t| t.deletes)).min(entries),
        range_deletes: u64::from(entries == 0),
        raw_bytes: part(sum(|t| t.raw_bytes)),
        dead_bytes: 0,
        created_us: of.merged.iter().map(|t| t.created_us).max().unwrap_or(0),
        meta,
        data: (data.length > 0).then_some(data).into_iter().collect(),
    }
}

/// What is known of a table, and its size.
#[derive(Clone, Copy)]
struct Heir {
    heat: TableHeat,
    mib: f64,
}

impl Heir {
    fn of(table: &TableMeta, heat: TableHeat) -> Heir {
        Heir {
            heat,
            mib: table.size_bytes().max(1) as f64 / MIB,
        }
    }

    /// Adds a share of what `parent` had.
    fn add(&mut self, parent: &Heir, share: f64) {
        let part = |count: u64| (count as f64 * share) as u64;
        let (heat, of) = (&mut self.heat, &parent.heat);
        heat.probes += part(of.probes);
        heat.hits += part(of.hits);
        heat.rejects += part(of.rejects);
        heat.block_reads += part(of.block_reads);
        heat.scans += part(of.scans);
        let scale = parent.mib / self.mib;
        if let Some(temperature) = of.temperature {
            *heat.temperature.get_or_insert(0.0) += temperature * share * scale;
            heat.temperature_of_one = heat.temperature_of_one.max(of.temperature_of_one * scale);
        }
    }
}
