//! A store without data: versions, tiers and jobs, moved by hand.

// Each test file uses a part of this, and helpers of tests may panic.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermocline_model::job::{Job, Merge, NewTable};
use thermocline_model::join::{Join, join, stretches};
use thermocline_model::key::SeqNo;
use thermocline_model::moves::Moves;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{Extent, ObjectId, TableId, TableMeta};
use thermocline_model::tier::{DeviceProfile, TIERS_MAX, TierId, TierState};
use thermocline_model::version::{Keyspace, KeyspaceId, RunId, Slot, Version};
use thermocline_model::view::{
    CostOptions, KeyspaceWrites, PartLoad, RangeOptions, ShapeOptions, Spent, StagingOptions,
    TableHeat, TierPins, View, Waits,
};
use thermocline_model::{Change, Cuts, Edit, Predicted, check_edit, check_version, picture};
use thermocline_policy::cost::estimate::{Places, priced};
use thermocline_policy::heat::HeatOptions;
use thermocline_policy::place::{ByHeat, ByLevel, ByShape};
use thermocline_policy::{Placer, Preset, Seen, by_name};

pub const M: u64 = 1 << 20;
pub const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }
}

/// No target, and no bound on moves.
pub fn cost() -> CostOptions {
    CostOptions {
        target_usd_gb_month: None,
        migration_resistance: 0.05,
        migration_bytes_per_second_max: 1 << 40,
        migration_cool_down_us: 0,
        migration_payback_us: 0,
    }
}

pub fn shape() -> ShapeOptions {
    ShapeOptions {
        table_bytes: 4 * M,
        newest_runs_merge: 4,
        newest_runs_stop: 24,
        first_level_bytes: 16 * M,
        level_ratio: 10,
        flush_bytes: 4 * M,
        usual_flush_bytes: 4 * M,
        log_bytes_max: 64 * M,
        flush_together_bytes_min: Some(0),
        fold_keys_max: 100,
        sealed_max: usize::MAX,
        sealed_total_max: usize::MAX,
        part_memory_bytes_max: u64::MAX,
        reads_back: false,
        tier_fill_share: 0.9,
        staging: StagingOptions::default(),
        pins: TierPins::default(),
        ranges: RangeOptions::default(),
    }
}

/// Everything a view borrows.
pub struct World {
    pub version: Version,
    pub tiers: Vec<TierState>,
    pub heat: BTreeMap<TableId, TableHeat>,
    pub memtables: BTreeMap<(KeyspaceId, u32), PartLoad>,
    pub writes: BTreeMap<KeyspaceId, KeyspaceWrites>,
    pub spent: Spent,
    pub waits: Waits,
    pub busy: BTreeSet<TableId>,
    pub busy_outputs: Vec<(KeyspaceId, Slot, KeyRange)>,
    pub flushed_bytes_per_s: f64,
    pub freed_bytes_per_s: Option<f64>,
    pub log_wait_share: Option<f64>,
    pub stalled_share: f64,
    pub block_reads_per_s: f64,
    pub log_bytes: u64,
    pub log_segments: (u64, u64),
    pub oldest_snapshot: SeqNo,
    pub idle: bool,
    pub shape: ShapeOptions,
    pub cost: CostOptions,
    pub moves: Moves,
    /// Whether tables are placed as `mutant` does, or as `logstore` does.
    pub by_heat: bool,
    pub by_shape: bool,
    pub now_us: u64,
    pub flushed_bytes: u64,
    pub merged_bytes: u64,
    pub relocated_bytes: u64,
}

impl World {
    /// A world of the picture, with tiers of these capacities.
    pub fn of(text: &str, capacities: &[u64]) -> World {
        let version = picture::parse(text).unwrap();
        check_version(&version).unwrap();
        World::new(version, capacities)
    }

    pub fn new(version: Version, capacities: &[u64]) -> World {
        let tiers = capacities
            .iter()
            .zip(0..)
            .map(|(&capacity_bytes, id)| TierState {
                id: TierId(id),
                name: format!("tier{id}"),
                used_bytes: 0,
                capacity_bytes,
                device_free_bytes: capacity_bytes,
                reserve_bytes: 0,
                price_usd_gb_month: 0.1,
                profile: None,
            });
        let mut world = World {
            tiers: tiers.collect(),
            oldest_snapshot: version.last_seq,
            idle: false,
            version,
            heat: BTreeMap::new(),
            memtables: BTreeMap::new(),
            writes: BTreeMap::new(),
            spent: Spent::default(),
            waits: Waits::default(),
            busy: BTreeSet::new(),
            busy_outputs: Vec::new(),
            flushed_bytes_per_s: f64::INFINITY,
            freed_bytes_per_s: None,
            log_wait_share: None,
            stalled_share: 0.0,
            block_reads_per_s: f64::INFINITY,
            log_bytes: 0,
            log_segments: (1, 1),
            shape: shape(),
            cost: cost(),
            moves: Moves::default(),
            by_heat: false,
            by_shape: false,
            now_us: 1 << 40,
            flushed_bytes: 0,
            merged_bytes: 0,
            relocated_bytes: 0,
        };
        world.count_tiers();
        world
    }

    pub fn view(&self) -> View<'_> {
        View {
            version: &self.version,
            tiers: &self.tiers,
            heat: &self.heat,
            memtables: &self.memtables,
            sealed: self.memtables.values().map(|load| load.sealed).sum(),
            writes: &self.writes,
            spent: self.spent,
            waits: self.waits,
            busy: &self.busy,
            busy_outputs: &self.busy_outputs,
            flushed_bytes_per_s: self.flushed_bytes_per_s,
            freed_bytes_per_s: self.freed_bytes_per_s,
            log_wait_share: self.log_wait_share,
            stalled_share: self.stalled_share,
            block_reads_per_s: self.block_reads_per_s,
            log_bytes: self.log_bytes,
            log_segments: self.log_segments,
            oldest_snapshot: self.oldest_snapshot,
            idle: self.idle,
            forecast: false,
            shape: &self.shape,
            cost: &self.cost,
            moves: &self.moves,
            now_us: self.now_us,
        }
    }

    pub fn plan(&self, preset: &mut Preset) -> Option<Job> {
        let view = self.view();
        let flush = preset.flush.plan(&view);
        let room = || preset.room.as_mut().and_then(|room| room.plan(&view));
        flush
            .or_else(room)
            .or_else(|| preset.planners.iter_mut().find_map(|p| p.plan(&view)))
    }

    /// The placer whose tables are placed here.
    pub fn placer(&self) -> &'static dyn Placer {
        match (self.by_heat, self.by_shape) {
            (true, _) => &ByHeat,
            (_, true) => &ByShape { optimised: true },
            _ => &ByLevel,
        }
    }

    /// `job` as the engine runs it: with what it is predicted to cost and to gain.
    pub fn priced(&self, job: Job) -> Job {
        let view = self.view();
        let places = Places {
            placer: self.placer(),
            seen: &Seen::of(&view),
        };
        priced(&view, places, job)
    }

    /// That prediction.
    pub fn predicted(&self, job: &Job) -> Predicted {
        let job = self.priced(job.clone());
        job.reason().predicted.clone().unwrap()
    }

    fn count_tiers(&mut self) {
        for tier in &mut self.tiers {
            let extents = self.version.tables().flat_map(|t| t.extents());
            tier.used_bytes = extents
                .filter(|e| e.tier == tier.id)
                .map(|e| e.length)
                .sum();
            tier.device_free_bytes = tier.capacity_bytes.saturating_sub(tier.used_bytes);
        }
    }

    pub fn commit(&mut self, mut changes: Vec<Change>) {
        changes.push(Change::SetCounters {
            next_id: self.version.next_id,
            next_keyspace: self.version.next_keyspace,
            last_seq: self.version.last_seq,
        });
        let edit = Edit { changes };
        let after = edit.apply(&self.version).unwrap();
        if let Err(broken) = check_edit(&self.version, &edit, &after) {
            panic!(
                "{broken}\nin {}",
                picture::print(&self.version.keyspaces[&KEYSPACE])
            );
        }
        self.version = after;
        self.now_us += 1_000_000;
        self.oldest_snapshot = self.version.last_seq;
        self.count_tiers();
    }

    fn take(&mut self) -> u64 {
        self.version.next_id += 1;
        self.version.next_id - 1
    }

    fn new_table(
        &mut self,
        slot: Slot,
        range: KeyRange,
        bytes: u64,
        parents: &[TableId],
    ) -> TableMeta {
        let new = NewTable {
            keyspace: KEYSPACE,
            slot,
            range: Some(range.clone()),
            start: Some(range.start.clone()),
            size_bytes: bytes,
            parents: parents.to_vec(),
            written_bytes: [0; TIERS_MAX],
        };
        let layout = self.placer().place(&self.view(), &new);
        let id = TableId(self.take());
        let mut extent = |tier, length| Extent {
            tier,
            object: ObjectId(self.take()),
            offset: 0,
            length,
            checksum: 0,
        };
        let meta = extent(layout.meta, bytes / 100 + 1);
        let data = vec![extent(layout.data, bytes)];
        TableMeta {
            id,
            range,
            seq_min: SeqNo(1),
            seq_max: SeqNo(1),
            entries: (bytes / 1024).max(1),
            deletes: 0,
            range_deletes: 0,
            raw_bytes: bytes,
            dead_bytes: 0,
            created_us: self.now_us,
            meta,
            data,
        }
    }

    /// A flush of `bytes` that cover `range` of the part.
    pub fn flush(&mut self, part: u32, range: KeyRange, bytes: u64, deletes_share: f64) {
        let mut table = self.new_table(Slot::Newest(part), range, bytes, &[]);
        table.seq_min = self.version.last_seq.next();
        table.seq_max = SeqNo(table.seq_min.0 + table.entries - 1);
        table.deletes = (table.entries as f64 * deletes_share) as u64;
        self.version.last_seq = table.seq_max;
        self.flushed_bytes += bytes;
        let flushed = table.seq_max;
        let run = RunId(self.take());
        self.commit(vec![
            Change::AddTable {
                keyspace: KEYSPACE,
                slot: Slot::Newest(part),
                run,
                behind: None,
                table: Arc::new(table),
            },
            Change::SetFlushed {
                keyspace: KEYSPACE,
                part,
                flushed,
            },
        ]);
    }

    /// Marks what the job uses as busy.
    pub fn start(&mut self, job: &Job) {
        match job {
            Job::Flush(_) | Job::Fold(_) | Job::Recut(_) => {
                panic!("flushes and cuts are made by hand")
            }
            Job::Relocate(job) => {
                assert!(self.busy.insert(job.table), "{job:?} names a busy table")
            }
            Job::Merge(job) => {
                let range = self.hull(job);
                // What is only moved finds its place when it is committed.
                let moves = !job.rewrite && is_apart(&self.inputs(job));
                for (id, slot, other) in &self.busy_outputs {
                    let clash = !moves
                        && *id == job.keyspace
                        && *slot == job.output
                        && other.overlaps(&range);
                    assert!(!clash, "{job:?} writes where another job does");
                }
                for table in &job.inputs {
                    assert!(self.busy.insert(*table), "{job:?} names a busy table");
                }
                self.busy_outputs.extend(Self::outputs(job, range));
            }
        }
    }

    /// What a job that covers `hull` makes busy.
    fn outputs(
        job: &Merge,
        hull: KeyRange,
    ) -> impl Iterator<Item = (KeyspaceId, Slot, KeyRange)> + '_ {
        let deeper = job.deeper.iter().map(|deeper| {
            let hull = deeper.ranges.iter().cloned().reduce(|a, b| a.hull(&b));
            (
                job.keyspace,
                deeper.slot,
                hull.expect("something goes deeper"),
            )
        });
        [(job.keyspace, job.output, hull)].into_iter().chain(deeper)
    }

    fn inputs(&self, job: &Merge) -> Vec<Arc<TableMeta>> {
        let keyspace = &self.version.keyspaces[&job.keyspace];
        let find = |t: &TableId| Arc::clone(keyspace.find(*t).expect("an input is there").2);
        job.inputs.iter().map(find).collect()
    }

    fn hull(&self, job: &Merge) -> KeyRange {
        let ranges = self.inputs(job).into_iter().map(|t| t.range.clone());
        ranges
            .reduce(|a, b| a.hull(&b))
            .expect("a merge has inputs")
    }

    /// Does the job, started before or not.
    pub fn finish(&mut self, job: &Job) {
        match job {
            Job::Flush(_) | Job::Fold(_) | Job::Recut(_) => {
                panic!("flushes and cuts are made by hand")
            }
            Job::Relocate(job) => {
                let keyspace = &self.version.keyspaces[&KEYSPACE];
                let mut table = TableMeta::clone(keyspace.find(job.table).unwrap().2);
                assert_ne!(table.tier(), job.to, "{job:?} moves nothing");
                self.relocated_bytes += table.data_bytes();
                for extent in &mut table.data {
                    extent.tier = job.to;
                    extent.object = ObjectId(self.take());
                }
                self.commit(vec![Change::ReplaceTable {
                    keyspace: KEYSPACE,
                    table: Arc::new(table),
                }]);
                self.busy.remove(&job.table);
            }
            Job::Merge(job) => {
                let range = self.hull(job);
                self.merge(job);
                for table in &job.inputs {
                    self.busy.remove(table);
                }
                let outputs: Vec<_> = Self::outputs(job, range).collect();
                self.busy_outputs.retain(|o| !outputs.contains(o));
            }
        }
    }

    /// Each stretch of inputs that overlap becomes new tables; what overlaps nothing is
    /// moved, or stays in the run it lies in.
    fn merge(&mut self, job: &Merge) {
        let inputs = self.inputs(job);
        let keyspace = Arc::clone(&self.version.keyspaces[&KEYSPACE]);
        let first = keyspace.level(job.output).and_then(|l| l.runs.first());
        let mut leaving = Vec::new();
        let mut new = Vec::new();
        for stretch in stretches(inputs) {
            if let ([table], false) = (&stretch[..], job.rewrite) {
                if !first.is_some_and(|r| r.tables.contains(table)) {
                    leaving.push(table.id);
                    new.push((job.output, Arc::clone(table)));
                }
                continue;
            }
            leaving.extend(stretch.iter().map(|t| t.id));
            self.merge_stretch(job, &keyspace, &stretch, &mut new);
        }
        let mut changes: Vec<Change> = leaving
            .iter()
            .map(|&table| Change::RemoveTable {
                keyspace: KEYSPACE,
                table,
            })
            .collect();
        for slot in job.slots() {
            let new: Vec<_> = new.iter().filter(|(to, _)| *to == slot).collect();
            let ranges: Vec<KeyRange> = new.iter().map(|(_, t)| t.range.clone()).collect();
            let (run, behind) = match join(&keyspace, slot, &leaving, &ranges) {
                Join::Run(run) => (run, None),
                Join::New { behind } => (RunId(self.take()), behind),
            };
            changes.extend(new.into_iter().map(|(_, table)| Change::AddTable {
                keyspace: KEYSPACE,
                slot,
                run,
                behind,
                table: Arc::clone(table),
            }));
        }
        self.commit(changes);
    }

    fn merge_stretch(
        &mut self,
        job: &Merge,
        keyspace: &Keyspace,
        inputs: &[Arc<TableMeta>],
        new: &mut Vec<(Slot, Arc<TableMeta>)>,
    ) {
        let ranges = inputs.iter().map(|t| t.range.clone());
        let whole = ranges.reduce(|a, b| a.hull(&b)).unwrap();
        let (first, end) = (number(&whole.start), number(&whole.end));
        // The first keys of what goes deeper, and those behind it.
        let deeper = job.deeper.iter().flat_map(|d| &d.ranges);
        let ends = deeper.flat_map(|r| {
            [
                number(&r.start),
                number(&r.end) + u64::from(r.end_inclusive),
            ]
        });
        let mut cuts: Vec<u64> = ends.filter(|&at| at > first && at <= end).collect();
        cuts.extend([first, end + 1]);
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            let (start, end, whole) = (cut[0], cut[1] - 1, end + 1 - first);
            let share = (end + 1 - start) as f64 / whole as f64;
            let slot = job.slot_of(Some(&key(start)), Some(&key(end + 1)));
            self.merge_piece(job, keyspace, inputs, slot, (start, end, share), new);
        }
    }

    /// Of a stretch the keys from `start` to `end`, which are such a share of it.
    fn merge_piece(
        &mut self,
        job: &Merge,
        keyspace: &Keyspace,
        inputs: &[Arc<TableMeta>],
        slot: Slot,
        (start, end, share): (u64, u64, f64),
        new: &mut Vec<(Slot, Arc<TableMeta>)>,
    ) {
        let Slot::Level(level) = slot else {
            panic!("merges go below");
        };
        let range = KeyRange::inclusive(&key(start), &key(end));
        let last = (level as usize..keyspace.levels.len()).all(|l| {
            let mut runs = keyspace.levels[l].runs.iter();
            runs.all(|r| {
                let mut met = r.overlapping(&range).iter();
                met.all(|t| job.inputs.contains(&t.id))
            })
        });
        let part = |sum: u64| (sum as f64 * share) as u64;
        let live = part(inputs.iter().map(|t| t.data_bytes() - t.dead_bytes).sum());
        let deletes = part(inputs.iter().map(|t| t.deletes).sum());
        let entries = part(inputs.iter().map(|t| t.entries).sum());
        if entries == 0 {
            return;
        }
        let kept = if last { entries - deletes } else { entries };
        let bytes = (live as f64 * kept as f64 / entries as f64) as u64;
        let count = bytes.div_ceil(job.table_bytes.max(1)).min(kept);
        let count = count.min((end - start) / 2).max(u64::from(kept > 0));
        let at = |i: u64| start + ((end - start) as u128 * i as u128 / count as u128) as u64;
        for i in 0..count {
            let stop = if i + 1 == count { end } else { at(i + 1) - 1 };
            let range = KeyRange::inclusive(&key(at(i)), &key(stop));
            let mut table = self.new_table(slot, range, bytes / count, &job.inputs);
            table.entries = kept / count;
            table.deletes = if last { 0 } else { deletes / count };
            table.seq_min = inputs.iter().map(|t| t.seq_min).min().unwrap();
            table.seq_max = inputs.iter().map(|t| t.seq_max).max().unwrap();
            self.merged_bytes += bytes / count;
            new.push((slot, Arc::new(table)));
        }
    }
}

fn is_apart(tables: &[Arc<TableMeta>]) -> bool {
    stretches(tables.to_vec()).iter().all(|s| s.len() == 1)
}

pub fn key(n: u64) -> Vec<u8> {
    format!("{n:010}").into_bytes()
}

fn number(key: &[u8]) -> u64 {
    std::str::from_utf8(key).unwrap().parse().unwrap()
}

/// Keys are the numbers below this.
pub const KEYS: u64 = 1_000_000_000;

/// An empty world of `parts` parts.
pub fn empty(parts: u64, capacities: &[u64]) -> World {
    let bounds = (1..parts).map(|i| key(KEYS / parts * i).into()).collect();
    let edit = Edit::of(Change::AddKeyspace {
        keyspace: KEYSPACE,
        name: "default".to_string(),
        cuts: Cuts::new(bounds).unwrap(),
    });
    World::new(edit.apply(&Version::empty()).unwrap(), capacities)
}

pub fn leveled() -> Preset {
    by_name("leveled", &HeatOptions::default()).unwrap()
}

/// What `mutant` does next, in a line.
pub fn decide_by_heat(world: &World) -> String {
    match world.plan(&mut mutant()) {
        None => "rest".to_string(),
        Some(Job::Relocate(job)) => {
            format!("{}: move {} to {}", job.reason.rule, job.table.0, job.to)
        }
        Some(other) => format!("{}: {}", other.reason().rule, other.name()),
    }
}

pub fn mutant() -> Preset {
    by_name("mutant", &HeatOptions::default()).unwrap()
}

pub fn ohdb() -> Preset {
    by_name("ohdb", &HeatOptions::default()).unwrap()
}

pub fn nova() -> Preset {
    by_name("nova", &HeatOptions::default()).unwrap()
}

pub fn logstore() -> Preset {
    by_name("logstore", &HeatOptions::default()).unwrap()
}

/// The paper's NVMe and HDD, at rest, with tables placed as `logstore` does.
pub fn two_tiers(mut world: World) -> World {
    let profiles = [(6000.0, 480.0), (60.0, 150.0)];
    for (tier, (random_read_iops, sequential_mb_s)) in world.tiers.iter_mut().zip(profiles) {
        tier.profile = Some(DeviceProfile {
            random_read_iops,
            sequential_mb_s,
        });
    }
    world.by_shape = true;
    world.idle = true;
    world.shape.first_level_bytes = 0;
    world
}

/// A picture whose keys are numbers, as those of the world are.
pub fn numbered(text: &str) -> String {
    let mut wide = String::new();
    for piece in text.split_inclusive(['[', ']']) {
        match piece.strip_suffix(']').and_then(|p| p.split_once("..")) {
            Some((a, b)) => wide.push_str(&format!("{a:0>10}..{b:0>10}]")),
            None => wide.push_str(piece),
        }
    }
    wide
}

/// Gives each table block reads, as many a second and MiB.
pub fn read(world: &mut World, reads: &[(u64, u64)]) {
    for &(table, block_reads) in reads {
        let heat = TableHeat {
            probes: block_reads,
            hits: block_reads,
            block_reads,
            temperature: Some(block_reads as f64),
            ..TableHeat::default()
        };
        world.heat.insert(TableId(table), heat);
    }
}

/// A job in a few words.
pub fn line(job: Option<Job>) -> String {
    match job {
        None => "rest".to_string(),
        Some(Job::Merge(job)) => {
            let mut inputs: Vec<u64> = job.inputs.iter().map(|t| t.0).collect();
            inputs.sort_unstable_by(|a, b| b.cmp(a));
            let slots: Vec<_> = job.slots().map(|slot| slot.to_string()).collect();
            let slots = slots.join(" and ");
            format!("{}: {inputs:?} into {slots}", job.reason.rule)
        }
        Some(Job::Relocate(job)) => {
            format!("{}: move {} to {}", job.reason.rule, job.table.0, job.to)
        }
        Some(other) => format!("{}: {}", other.reason().rule, other.name()),
    }
}
