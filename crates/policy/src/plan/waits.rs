//! Whether parts pay: by what writers wait for.
//!
//! A keyspace has one part until writers have had to wait for merges that wait for processors, or
//! would have had to if they had been slowed as writers of one part are
//! ([`PartTriggers`](thermocline_model::triggers::PartTriggers)): merges of a part rewrite its
//! share of the next level and no more, side by side. Where merges wait for a device there is one
//! again: flushes of parts are smaller, so that each byte is merged more often.
//!
//! A look makes the next [`Waits`] out of the last, which the view has, and of what was spent
//! since. While what earlier cuts have handed down to L1 is not merged yet, writers may wait for
//! that, and for a while it counts for nothing.

use thermocline_model::view::{Spent, View, Waits};

/// What there is to remember after a look, and whether there should be more than one part
/// ([`Waits::parts_pay`]).
#[must_use]
pub fn waits(view: &View<'_>) -> Waits {
    let (spent, now_us, triggers) = (view.spent, view.now_us, &view.shape.ranges.part_triggers);
    let mut waits = view.waits;
    let passed_us = now_us.saturating_sub(waits.looked_us);
    let fade_us = triggers.waits_fade_ms.max(1).saturating_mul(1000);
    let fades = 0.5f64.powf(passed_us as f64 / fade_us as f64);
    for waited_us in [
        &mut waits.waited_us,
        &mut waits.for_processors_us,
        &mut waits.for_devices_us,
    ] {
        *waited_us *= fades;
    }
    waits.looked_us = now_us;
    let stalled_us = spent.stalled_us.saturating_sub(waits.counted.stalled_us);
    let pressed_us = spent.pressed_us.saturating_sub(waits.counted.pressed_us);
    // Whoever waits does so while runs are that many.
    let waited_us = stalled_us.max(pressed_us);
    waits.counted.stalled_us = spent.stalled_us;
    waits.counted.pressed_us = spent.pressed_us;
    if passed_us > 0 {
        let waited_us = spent.writers_us.saturating_sub(waits.counted.writers_us);
        let writers = waited_us as f64 / passed_us as f64;
        waits.writers += (writers - waits.writers) * (1.0 - fades);
        waits.counted.writers_us = spent.writers_us;
    }
    let moving = are_moving(view);
    waits.moving_us = match moving {
        true => waits.moving_us.saturating_add(passed_us),
        false => waits.moving_us.saturating_sub(passed_us),
    };
    if !moving || waits.moving_us > triggers.moving_ms.saturating_mul(1000) {
        waits.waited_us += waited_us as f64;
    }
    let merges_us = spent.merges_us.saturating_sub(waits.counted.merges_us);
    if merges_us < triggers.merges_ms_min.saturating_mul(1000) {
        return waits;
    }
    let running_us = spent.running_us.saturating_sub(waits.counted.running_us);
    waits.counted = Spent {
        writers_us: waits.counted.writers_us,
        ..spent
    };
    let waited_us = std::mem::take(&mut waits.waited_us);
    match running_us as f64 >= triggers.running_share * merges_us as f64 {
        true => waits.for_processors_us += waited_us,
        false => waits.for_devices_us += waited_us,
    }
    let (processors_us, devices_us) = (waits.for_processors_us, waits.for_devices_us);
    let long_us = |ms: u64| ms.saturating_mul(1000) as f64;
    if waits.parts_pay {
        if devices_us >= long_us(triggers.device_waits_ms) && devices_us > processors_us {
            waits.parts_pay = false;
            let doublings = waits.taken_back.min(triggers.again_doublings_max);
            let again_us = triggers.again_ms.saturating_mul(1000 << doublings.min(32));
            waits.not_before_us = now_us.saturating_add(again_us);
            waits.taken_back = waits.taken_back.saturating_add(1);
        }
    } else if now_us >= waits.not_before_us {
        waits.parts_pay =
            processors_us >= long_us(triggers.processor_waits_ms) && processors_us > devices_us;
    }
    waits
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
