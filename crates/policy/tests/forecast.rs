//! Forecasts of every preset from drawn worlds: what they plan on stays a lawful picture with all
//! of its bytes, and they end.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Dice, KEYS, KEYSPACE, M, World, empty, key};
use thermocline_model::job::Job;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::view::{TableHeat, View};
use thermocline_model::{Change, Edit, check_version};
use thermocline_policy::heat::HeatOptions;
use thermocline_policy::{Planner, Preset, by_name, forecast, presets};

/// Asked before all planners, it looks at the picture that they plan on and has no job.
struct Spy {
    bytes: Bytes,
    /// The tables that there were when it last looked.
    known: BTreeSet<TableId>,
}

/// Of all tables and of all tiers together, and by how much rounding may have changed them.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    tables: u64,
    tiers: u64,
    rounded: u64,
}

impl Bytes {
    fn of(view: &View<'_>) -> Bytes {
        Bytes {
            tables: view.version.tables().map(|t| t.size_bytes()).sum(),
            tiers: view.tiers.iter().map(|t| t.used_bytes).sum(),
            rounded: 0,
        }
    }
}

impl Spy {
    fn of(view: &View<'_>) -> Spy {
        Spy {
            bytes: Bytes::of(view),
            known: view.version.tables().map(|t| t.id).collect(),
        }
    }
}

impl Planner for Spy {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let mut version = view.version.clone();
        // A copy gives numbers that nobody writes down.
        version.next_id = u64::MAX;
        check_version(&version).unwrap();
        let now = Bytes::of(view);
        let ids: BTreeSet<TableId> = version.tables().map(|t| t.id).collect();
        // Data and metadata of each table that was made; pieces of less than a byte are none.
        self.bytes.rounded += 4 * ids.difference(&self.known).count() as u64 + 4;
        self.known = ids;
        let is = |now: u64, before: u64| now.abs_diff(before) <= self.bytes.rounded;
        let kept = is(now.tables, self.bytes.tables) && is(now.tiers, self.bytes.tiers);
        assert!(kept, "{now:?}, before {:?}", self.bytes);
        for tier in view.tiers {
            let extents = version.tables().flat_map(|t| t.extents());
            let here = extents.filter(|e| e.tier == tier.id);
            let bytes: u64 = here.map(|e| e.length).sum();
            assert_eq!(bytes, tier.used_bytes, "{}", tier.name);
        }
        None
    }
}

/// A world as `preset` keeps it, after some flushes, with reads here and there.
fn drawn(preset: &mut Preset, dice: &mut Dice) -> World {
    let parts = [1, 1, 3][dice.below(3) as usize];
    let tiers = dice.below(4) as usize + 1;
    let draw = |_| [20, 60, 1000][dice.below(3) as usize] * M;
    let mut capacities: Vec<u64> = (0..tiers).map(draw).collect();
    capacities[tiers - 1] = 1 << 40;
    let mut world = empty(parts, &capacities);
    world.by_heat = dice.below(2) == 0;
    world.by_shape = dice.below(2) == 0;
    world.shape.first_level_bytes = [0, 8 * M, 16 * M][dice.below(3) as usize];
    world.shape.staging.fast_share = [0.0, 0.2, 0.5, 1.0][dice.below(4) as usize];
    for (tier, price) in world.tiers.iter_mut().zip([0.5, 0.2, 0.1, 0.05]) {
        tier.price_usd_gb_month = price;
    }
    for _ in 0..dice.below(40) {
        let part = dice.below(parts);
        let width = KEYS / parts;
        let low = width * part + dice.below(width / 2);
        let high = low + [0, width / 50, width / 2 - 1][dice.below(3) as usize];
        let range = KeyRange::inclusive(&key(low), &key(high));
        world.flush(part as u32, range, M + dice.below(6 * M), 0.2);
        for _ in 0..dice.below(4) {
            let Some(job) = world.plan(preset) else { break };
            world.start(&job);
            world.finish(&job);
        }
    }
    world
}

/// What is read and what is not known; tables that have nothing but range deletes; a target.
fn spiced(world: &mut World, dice: &mut Dice) {
    let tables: Vec<_> = world.version.tables().cloned().collect();
    for table in tables {
        let mut heat = TableHeat::default();
        if dice.below(3) > 0 {
            heat.block_reads = dice.below(3000);
            (heat.probes, heat.hits) = (2 * heat.block_reads, heat.block_reads);
        }
        if dice.below(3) > 0 {
            heat.temperature = Some(dice.below(1000) as f64 / 7.0);
        }
        if dice.below(5) > 0 {
            world.heat.insert(table.id, heat);
        }
        let mut odd = TableMeta::clone(&table);
        if dice.below(8) == 0 {
            (odd.entries, odd.deletes, odd.range_deletes) = (0, 0, 1 + dice.below(9));
            (odd.dead_bytes, odd.data) = (0, Vec::new());
        }
        odd.range.end_inclusive = odd.range.start == odd.range.end || dice.below(3) > 0;
        let edit = Edit::of(Change::ReplaceTable {
            keyspace: KEYSPACE,
            table: Arc::new(odd),
        });
        world.version = edit.apply(&world.version).unwrap();
    }
    world.commit(Vec::new());
    world.idle = dice.below(2) == 0;
    world.cost.target_usd_gb_month = match dice.below(3) {
        0 => None,
        1 => Some(0.06),
        _ => Some(0.25),
    };
}

#[test]
fn forecasts_of_every_preset_keep_all_bytes_in_a_lawful_picture_and_end() {
    let mut merges = 0;
    for seed in 0..300 {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let any = |dice: &mut Dice| {
            let entries = presets();
            let entry = &entries[dice.below(entries.len() as u64) as usize];
            by_name(entry.name, &HeatOptions::default()).unwrap()
        };
        let mut world = drawn(&mut any(&mut dice), &mut dice);
        spiced(&mut world, &mut dice);
        for entry in presets() {
            let mut preset = by_name(entry.name, &HeatOptions::default()).unwrap();
            let view = world.view();
            preset.planners.insert(0, Box::new(Spy::of(&view)));
            let told = forecast(&view, &mut preset);
            assert!(told.rests, "{}: {} merges", entry.name, told.merges);
            merges += told.merges;
            assert!(told.device_seconds.is_finite());
        }
    }
    assert!(merges > 0);
}
