//! A store of forty keys on two simulated tiers, most of it on the slow one.

use thermocline::{
    Db, DeviceProfile, Durability, Options, TableInfo, Tier, WriteBatch, WriteOptions,
};
use thermocline_sim::disk::{Device, Disk};

/// More than the store has.
const PLENTY: u64 = 500_000;

/// What the fast tier takes before tables go to the slow one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Less than the store has.
    Little,
    /// All of it, or nearly all.
    #[allow(dead_code, reason = "not every user of this module moves tables by it")]
    Plenty,
}

/// What stands for the room is the fast tier's capacity, the cost target of `mutant` and the
/// fast share of `logstore`.
pub(crate) fn options(preset: &str, room: Room) -> Options {
    let tier = |name: &str, price, random_read_iops| {
        let tier = Tier::new(name, format!("/{name}/store")).block_bytes(512);
        tier.price_usd_gb_month(price).profile(DeviceProfile {
            random_read_iops,
            sequential_mb_s: 300.0,
        })
    };
    let (capacity_bytes, target, share) = match room {
        Room::Little => (12_000, 0.2, 0.4),
        Room::Plenty => (PLENTY, 0.45, 1.0),
    };
    let capacity_bytes = if preset == "leveled" {
        capacity_bytes
    } else {
        PLENTY
    };
    let options = Options::new()
        .tier(tier("fast", 0.5, 6000.0).capacity_bytes(capacity_bytes))
        .tier(tier("slow", 0.05, 60.0))
        .preset(preset)
        .fast_share(share);
    let options = match preset {
        "mutant" => options
            .cost_target_usd_per_gb_month(target)
            .migration_cool_down_s(0),
        _ => options,
    };
    options
        .write_buffer_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .table_bytes(4 << 10)
        .first_level_bytes(8 << 10)
        .level_ratio(2)
        .newest_runs_merge(2)
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .block_cache_bytes(0)
        .reserve_bytes(0)
        .background_threads(0)
}

pub(crate) fn machine(seed: u64) -> (Disk, Device, Device) {
    let disk = Disk::new(seed);
    let (fast, slow) = (disk.mount("/fast"), disk.mount("/slow"));
    (disk, fast, slow)
}

pub(crate) fn open(disk: &Disk, options: &Options) -> Db {
    Db::open_in(options.clone(), &disk.environment()).unwrap()
}

pub(crate) const KEYS: u8 = 40;

pub(crate) fn key(i: u8) -> Vec<u8> {
    format!("k{i:02}").into_bytes()
}

pub(crate) fn old(i: u8) -> Vec<u8> {
    vec![i; 800]
}

/// Forty keys, most of them on the slow tier, and each in one place.
pub(crate) fn store(disk: &Disk, preset: &str) -> Db {
    let db = open(disk, &options(preset, Room::Little));
    for i in 0..KEYS {
        db.put(&key(i), &old(i)).unwrap();
    }
    // A whole compaction of `logstore` leaves nothing in its fast levels.
    match preset {
        "logstore" => db.flush().unwrap(),
        _ => db.compact_range(None, None).unwrap(),
    }
    db.settle().unwrap();
    let tiers = db.stats().tiers;
    assert!(tiers.iter().all(|t| t.used_bytes > 4000), "{tiers:?}");
    db
}

/// Whether the table may have the key.
fn covers(table: &TableInfo, i: u8) -> bool {
    let bounds = table.range.trim_matches(['[', ']']).split_once(", ");
    let (first, last) = bounds.unwrap();
    let key = String::from_utf8(key(i)).unwrap();
    first <= &key[..] && &key[..] <= last
}

/// Whether a read of the key needs no other tier than the fast one.
pub(crate) fn is_fast(db: &Db, i: u8) -> bool {
    let tables = db.tables();
    let mut tables = tables.iter().filter(|t| covers(t, i));
    tables.all(|t| t.tier == "fast" && t.meta_tier == "fast")
}

/// The keys whose values lie on each tier.
pub(crate) fn by_tier(db: &Db) -> [Vec<u8>; 2] {
    let mut keys = [Vec::new(), Vec::new()];
    for i in 0..KEYS {
        keys[usize::from(!is_fast(db, i))].push(i);
    }
    assert!(keys.iter().all(|k| !k.is_empty()), "{keys:?}");
    keys
}

pub(crate) fn holds_old(db: &Db, context: &str) {
    for i in 0..KEYS {
        let found = db.get(&key(i)).unwrap();
        assert_eq!(found.as_deref(), Some(&old(i)[..]), "{context}: k{i:02}");
    }
}

pub(crate) fn durably(db: &Db, change: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    change(&mut batch);
    let durable = WriteOptions::default().durability(Durability::Device);
    db.write_with(&batch, durable).unwrap();
}
