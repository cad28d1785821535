//! How many parts pay: by what writers wait for.
//!
//! A keyspace has one part until writers have had to wait for merges, or would have had to if they
//! had been slowed as writers of one part are
//! ([`PartTriggers`](thermocline_model::triggers::PartTriggers)).
//!
//! - Where merges wait for *processors* a few parts pay: merges of a part rewrite its share of the
//!   next level and no more, side by side.
//! - Where they wait for *devices*, and levels lie on a slower one than newest runs do, many parts
//!   pay: the fewer there are the more a merge rewrites at a time, and writers of all of them wait
//!   for it. So there flushes count, too, which writers wait for while they have filled the memory
//!   and merges keep devices busy.
//! - Where they wait for the device of the only tier there is one part again: flushes of parts are
//!   smaller, so that each byte is merged more often.
//!
//! Where there is one part it takes little to make a few, and many are only made of these. It takes
//! more to make them, and to take parts back; and where these were taken back it takes a while
//! until there are some again. Many parts stay until what was waited for is as good as forgotten,
//! in some two minutes: their jobs are small and take more of the processors, so that what they
//! wait for does not say what a few would.
//!
//! A look makes the next [`Waits`] out of the last, which the view has, and of what was spent
//! since. While what earlier cuts have handed down to L1 is not merged yet, writers may wait for
//! that, and for a while it counts for nothing.

use thermocline_model::view::{Division, JobTime, View, Waits};

use crate::plan::parts::are_by_writes;

/// What there is to remember after a look, and how many parts there should be
/// ([`Waits::division`]).
#[must_use]
pub fn waits(view: &View<'_>) -> Waits {
    let (spent, now_us, triggers) = (view.spent, view.now_us, &view.shape.ranges.part_triggers);
    let mut waits = view.waits;
    let passed_us = now_us.saturating_sub(waits.looked_us);
    let fade_us = triggers.waits_fade_ms.max(1).saturating_mul(1000);
    let fades = 0.5f64.powf(passed_us as f64 / fade_us as f64);
    for waited_us in [
        &mut waits.waited_us,
        &mut waits.waited_for_memory_us,
        &mut waits.for_processors_us,
        &mut waits.for_devices_us,
    ] {
        *waited_us *= fades;
    }
    waits.looked_us = now_us;
    let counted = &mut waits.counted;
    let stalled_us = spent.stalled_us.saturating_sub(counted.stalled_us);
    let pressed_us = spent.pressed_us.saturating_sub(counted.pressed_us);
    // Whoever waits does so while runs are that many.
    let waited_us = stalled_us.max(pressed_us);
    counted.stalled_us = spent.stalled_us;
    counted.pressed_us = spent.pressed_us;
    let has_tiers = view.tiers.len() > 1;
    let memory_us = match has_tiers {
        true => spent.memory_us.saturating_sub(counted.memory_us),
        false => 0,
    };
    counted.memory_us = spent.memory_us;
    if passed_us > 0 {
        let waited_us = spent.writers_us.saturating_sub(counted.writers_us);
        let writers = waited_us as f64 / passed_us as f64;
        waits.writers += (writers - waits.writers) * (1.0 - fades);
        counted.writers_us = spent.writers_us;
    }
    let moving = are_moving(view);
    waits.moving_us = match moving {
        true => waits.moving_us.saturating_add(passed_us),
        false => waits.moving_us.saturating_sub(passed_us),
    };
    let has_come = !moving || waits.moving_us > triggers.moving_ms.saturating_mul(1000);
    if has_come && !is_to_be_cut(view) {
        waits.waited_us += waited_us as f64;
        waits.waited_for_memory_us += memory_us as f64;
    }
    let counted = &mut waits.counted;
    let (of_merges, of_flushes) = (&mut counted.merges, &mut counted.flushes);
    let of_merges = what_for(view, spent.merges, of_merges);
    let of_flushes = match has_tiers {
        true => what_for(view, spent.flushes, of_flushes),
        false => None,
    };
    for (what_for, waited_us) in [
        (of_merges, &mut waits.waited_us),
        (of_flushes, &mut waits.waited_for_memory_us),
    ] {
        let waited_for = match what_for {
            None => continue,
            Some(WhatFor::Processors) => &mut waits.for_processors_us,
            Some(WhatFor::Devices) => &mut waits.for_devices_us,
        };
        *waited_for += std::mem::take(waited_us);
    }
    if of_merges.or(of_flushes).is_some() {
        divide(&mut waits, view);
    }
    waits
}

/// How many parts there should be, after what was waited for of late.
fn divide(waits: &mut Waits, view: &View<'_>) {
    let (now_us, triggers) = (view.now_us, &view.shape.ranges.part_triggers);
    let (processors_us, devices_us) = (waits.for_processors_us, waits.for_devices_us);
    let has_tiers = view.tiers.len() > 1;
    if has_tiers && waits.division == Division::Many {
        if processors_us + devices_us < Waits::FORGOTTEN_US {
            waits.division = Division::Few;
        }
        return;
    }
    let (waited_us, division) = match devices_us > processors_us {
        true if !has_tiers => (devices_us, Division::Whole),
        true if waits.division == Division::Few => (devices_us, Division::Many),
        true => (devices_us, Division::Few),
        false => (processors_us, Division::Few),
    };
    let (least_ms, not_before_us) = match waits.division {
        Division::Whole => (triggers.processor_waits_ms, waits.not_before_us),
        Division::Few | Division::Many => (triggers.device_waits_ms, 0),
    };
    let is_due = waited_us >= least_ms.saturating_mul(1000) as f64 && now_us >= not_before_us;
    if !is_due || division == waits.division {
        return;
    }
    waits.division = division;
    if division == Division::Whole {
        let doublings = waits.taken_back.min(triggers.again_doublings_max);
        let again_us = triggers.again_ms.saturating_mul(1000 << doublings.min(32));
        waits.not_before_us = now_us.saturating_add(again_us);
        waits.taken_back = waits.taken_back.saturating_add(1);
    } else if has_tiers {
        // Whether so many are enough is another question.
        (waits.for_processors_us, waits.for_devices_us) = (0.0, 0.0);
    }
}

/// On several tiers devices are waited for from such a part on of the share of their time for which
/// jobs wait on one tier: on an NVMe and a disk flushes and merges waited for a fifth to all of it.
const TIERS_WAITING: f64 = 0.5;

/// What jobs of a kind wait for.
#[derive(Clone, Copy)]
enum WhatFor {
    Processors,
    Devices,
}

/// What they waited for since it was `counted`, if they have taken long enough since to say so;
/// then that is counted, too.
fn what_for(view: &View<'_>, spent: JobTime, counted: &mut JobTime) -> Option<WhatFor> {
    let triggers = &view.shape.ranges.part_triggers;
    let all_us = spent.all_us.saturating_sub(counted.all_us);
    if all_us < triggers.merges_ms_min.saturating_mul(1000) {
        return None;
    }
    let running_us = spent.running_us.saturating_sub(counted.running_us);
    *counted = spent;
    let running_share = match view.tiers.len() {
        0 | 1 => triggers.running_share,
        _ => 1.0 - (1.0 - triggers.running_share) * TIERS_WAITING,
    };
    match running_us as f64 >= running_share * all_us as f64 {
        true => Some(WhatFor::Processors),
        false => Some(WhatFor::Devices),
    }
}

/// Whether there are several tiers and should be a few parts, but no cuts were made: keys in order
/// get none. Whether a few are enough only shows where there are some.
fn is_to_be_cut(view: &View<'_>) -> bool {
    let mut keyspaces = view.version.keyspaces.values();
    let is_cut = keyspaces.any(|keyspace| are_by_writes(keyspace));
    view.tiers.len() > 1 && view.waits.division == Division::Few && !is_cut
}

/// Whether what earlier cuts have handed down is not merged yet: with parts L1 has one run.
fn are_moving(view: &View<'_>) -> bool {
    let mut first = view
        .version
        .keyspaces
        .values()
        .filter_map(|k| k.levels.first());
    first.any(|level| level.runs.len() > 1)
}
