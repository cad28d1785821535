//! What sets off a reorganisation of a keyspace's parts, what one must gain, and when parts are
//! made and taken back at all: the numbers that planners compare, beside those that an operator is
//! likely to change ([`RangeOptions`](crate::view::RangeOptions)).
//!
//! Units are in the names; a *look* is [`RangeOptions::writes`](crate::view::RangeOptions::writes)
//! writes for each memtable that takes some, and an *even share* what each of these would get of
//! all writes. The options of a store are checked where it is opened.

use serde::{Deserialize, Serialize};

/// When cuts move, and what that must gain (Nova-LSM, section 4.1).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecutTriggers {
    /// Even shares from which on a key gets a part of its own, duplicated as often as it has
    /// more. From 1 to 1000; 1.5 by default.
    pub duplicate_shares: f64,
    /// By what share of it the largest share of a memtable must become smaller for all cuts to be
    /// made anew, and by what share of what it has too much for some to move. From 0 (it need only
    /// not grow) to 1 (never, and not unless nothing is too hot afterwards); 0.2 by default.
    pub gain_share_min: f64,
    /// Of the memtables that there may be, the share down to which a keyspace counts as having few,
    /// so that all its cuts are made anew though none of its parts is too hot. From 0 (never) to 1;
    /// 0.5 by default.
    pub few_parts_share: f64,
    /// Looks at all parts that there may be, after which a keyspace is cut though none of its
    /// memtables was ever full. From 1 to 10^6; 16 by default.
    pub uncut_looks: u64,
    /// How often the wait for another look at all cuts doubles, once for each that was in vain.
    /// From 0 to 32; 10 by default: a look takes two or three milliseconds and comes once in a
    /// million writes at the least, so that a long load in order is not followed by as many writes
    /// before what is skewed is cut.
    pub wait_doublings_max: u32,
    /// Looks' worth of writes at which all counters of a keyspace are halved: how long they
    /// remember. From 1 to 10^6; 4 by default.
    pub looks_kept: u64,
    /// Keys that each half of a sample must have for the one to judge what the other makes. From 1
    /// to a quarter of `sample_keys_max`; 32 by default.
    pub half_keys_min: usize,
    /// Keys of the sample that each part must have when cuts are made, and each of its duplicates.
    /// From 1 to 1024; 4 by default.
    pub part_keys_min: usize,
    /// Most keys of a sample. From 64 to 2^20; 65,536 by default.
    pub sample_keys_max: usize,
    /// Most bytes of these. From 4 KiB to 64 MiB; 4 MiB by default.
    pub sample_bytes_max: u64,
}

impl Default for RecutTriggers {
    fn default() -> RecutTriggers {
        RecutTriggers {
            duplicate_shares: 1.5,
            gain_share_min: 0.2,
            few_parts_share: 0.5,
            uncut_looks: 16,
            wait_doublings_max: 10,
            looks_kept: 4,
            half_keys_min: 32,
            part_keys_min: 4,
            sample_keys_max: 1 << 16,
            sample_bytes_max: 4 << 20,
        }
    }
}

/// When parts are made and taken back, where there are only as many as writers gain by.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartTriggers {
    /// How long writers must have waited of late for merges that wait for processors, or on several
    /// tiers for devices, before cuts are made, in milliseconds, or the one part must have had so
    /// many runs that they would have been slowed if it had to stay one: with less, merges keep up,
    /// and one part takes puts with fewer instructions. From 1 to an hour; 100 by default.
    pub processor_waits_ms: u64,
    /// The same for those that wait for devices, before parts are taken back, or on several tiers
    /// more are made. From 1 to an hour; 1000 by default.
    pub device_waits_ms: u64,
    /// After so many milliseconds what was waited counts half. From 100 to an hour; 10,000 by
    /// default.
    pub waits_fade_ms: u64,
    /// Milliseconds of merges, or of flushes, by threads, that say what these wait for. From 1 to
    /// an hour; 100 by default.
    pub merges_ms_min: u64,
    /// Of that time, the share from which on that they run, or could if a processor were free, they
    /// are held to wait for processors: on several tiers if it leaves half as much for devices.
    /// From 0 to 1; 0.5 by default.
    pub running_share: f64,
    /// Milliseconds from taking parts back until there may be some again; twice as many after each
    /// time. From 0 to a day; 30,000 by default.
    pub again_ms: u64,
    /// How often these double. From 0 to 16; 7 by default.
    pub again_doublings_max: u32,
    /// For so many milliseconds after a cut what writers wait for may be what it handed down, and
    /// counts for nothing. From 0 to an hour; 10,000 by default.
    pub moving_ms: u64,
    /// Looks' worth of writes at a part, from which on a keyspace shares the parts with others
    /// until the store is closed. From 1 to 10^6; 16 by default.
    pub sharer_looks: u64,
}

impl Default for PartTriggers {
    fn default() -> PartTriggers {
        PartTriggers {
            processor_waits_ms: 100,
            device_waits_ms: 1000,
            waits_fade_ms: 10_000,
            merges_ms_min: 100,
            running_share: 0.5,
            again_ms: 30_000,
            again_doublings_max: 7,
            moving_ms: 10_000,
            sharer_looks: 16,
        }
    }
}
