//! When parts pay: what writers wait for, look by look.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;
use thermocline_model::Cuts;
use thermocline_model::triggers::PartTriggers;
use thermocline_model::version::{Keyspace, KeyspaceId, Tiny, Version};
use thermocline_model::view::{Division, Waits};
use thermocline_policy::plan::waits::waits;

/// A store that is looked at, a second apart.
struct Looks(World);

impl Default for Looks {
    fn default() -> Looks {
        with(PartTriggers::default())
    }
}

fn with(triggers: PartTriggers) -> Looks {
    on_tiers(&[1 << 30], triggers)
}

fn on_tiers(capacities: &[u64], triggers: PartTriggers) -> Looks {
    let mut world = World::of("L1: #1[a..m]", capacities);
    world.now_us = 0;
    world.shape.ranges.part_triggers = triggers;
    Looks(world)
}

impl Looks {
    /// A look after so much more was spent, and whether there should be more than one part.
    fn look(&mut self, stalled_ms: u64, merges_ms: u64, running_ms: u64) -> bool {
        self.0.now_us += 1_000_000;
        self.0.spent.stalled_us += stalled_ms * 1000;
        self.0.spent.merges.all_us += merges_ms * 1000;
        self.0.spent.merges.running_us += running_ms * 1000;
        self.0.waits = waits(&self.0.view());
        self.0.waits.division > Division::Whole
    }

    fn may_pay(&self) -> bool {
        let tiers = self.0.view().tiers.len();
        self.0.waits.parts_may_pay(self.0.now_us, tiers)
    }

    /// The same while cuts are on their way: L1 has a run that was handed down.
    fn look_moving(&mut self, stalled_ms: u64, merges_ms: u64, running_ms: u64) -> bool {
        let one = self.0.version.clone();
        self.0.version = World::of("L1: #2[a..b] / #1[a..m]", &[1 << 30]).version;
        let pay = self.look(stalled_ms, merges_ms, running_ms);
        self.0.version = one;
        pay
    }
}

#[test]
fn parts_pay_while_writers_wait_for_merges_that_wait_for_processors() {
    let mut looks = Looks::default();
    assert!(!looks.look(500, 0, 0), "no merge says what for");
    // What was waited before counts for those that ended since.
    assert!(!looks.look(0, 1000, 100));
    assert!(!looks.look(250, 1000, 900), "most was for devices");
    looks = Looks::default();
    assert!(!looks.look(80, 1000, 900));
    assert!(looks.look(40, 1000, 500));
    assert!(looks.look(900, 1000, 400));
    assert!(!looks.look(500, 1000, 400));
    assert!(!looks.look(1000, 50, 50), "too little to say");
}

/// Parts came only after writers had waited for a tenth of a second.
#[test]
fn parts_pay_before_writers_wait_where_one_part_has_too_many_runs() {
    let mut looks = Looks::default();
    assert!(looks.may_pay());
    looks.0.spent.pressed_us += 99_000;
    assert!(!looks.look(0, 1000, 1000));
    looks.0.spent.pressed_us += 10_000;
    assert!(
        looks.look(0, 1000, 1000) && !looks.may_pay(),
        "there are some"
    );
    // Who waits does so while runs are that many: it is one time.
    let mut looks = Looks::default();
    looks.0.spent.pressed_us += 60_000;
    assert!(!looks.look(60, 1000, 1000));
    // Where merges wait for devices parts are no remedy.
    let mut looks = Looks::default();
    looks.0.spent.pressed_us += 500_000;
    assert!(!looks.look(0, 1000, 100) && !looks.may_pay());
    // Nor for a while after they were taken back.
    let mut looks = with(PartTriggers {
        waits_fade_ms: 100,
        ..PartTriggers::default()
    });
    looks.0.waits = Waits::beginning(Division::Few);
    assert!(!looks.look(3000, 1000, 0));
    let may_pay =
        |looks: &mut Looks| (0..40).position(|_| !looks.look(0, 1000, 1000) && looks.may_pay());
    assert_eq!(may_pay(&mut looks), Some(29));
}

/// Of two tiers, with a few parts that its writes have made, if `cut`.
fn two(cut: bool) -> Looks {
    let mut looks = on_tiers(&[1 << 30, 1 << 34], PartTriggers::default());
    if cut {
        looks.0.waits = Waits::beginning(Division::Few);
        let cuts = Cuts::new(vec![(*b"g").into()]).unwrap();
        let mut keyspace = Keyspace::new(KeyspaceId::DEFAULT, "default", cuts);
        keyspace.parts[0].tiny = vec![Tiny {
            start: Box::default(),
            writes: 1,
        }];
        looks.0.version = Version::default();
        let keyspaces = &mut looks.0.version.keyspaces;
        keyspaces.insert(KeyspaceId::DEFAULT, keyspace.into());
    }
    looks
}

/// Of two tiers parts had to be asked for where merges wait for the slower one.
#[test]
fn on_several_tiers_many_parts_pay_where_merges_wait_for_devices() {
    let divided = |looks: &mut Looks, stalled_ms, running_ms| {
        looks.look(stalled_ms, 1000, running_ms);
        looks.0.waits.division
    };
    // One becomes a few, whatever is waited for, and no more before there are some.
    let mut one = two(false);
    assert!(one.may_pay());
    assert_eq!(divided(&mut one, 90, 100), Division::Whole);
    assert!(one.may_pay(), "writers are not slowed for that");
    assert_eq!(divided(&mut one, 20, 100), Division::Few);
    assert!((0..100).all(|_| divided(&mut one, 900, 0) == Division::Few));
    // With a few it takes a second.
    let mut few = two(true);
    few.0.waits.for_devices_us = one.0.waits.for_devices_us;
    assert_eq!(divided(&mut few, 900, 740), Division::Few);
    assert_eq!(divided(&mut few, 900, 750), Division::Few);
    assert_eq!(divided(&mut few, 900, 740), Division::Many);
    // They stay, whatever writers wait for, until they have not for two minutes,
    assert!((0..100).all(|_| divided(&mut few, 900, 1000) == Division::Many));
    let calm = (1..).find(|_| divided(&mut few, 0, 1000) == Division::Few);
    assert!((100..140).contains(&calm.unwrap()), "{calm:?}");
    // and come again.
    assert_eq!(divided(&mut few, 900, 0), Division::Few);
    assert_eq!(divided(&mut few, 400, 0), Division::Many);
}

/// In W100 on an NVMe and a disk writers of `leveled` waited for memory alone, as flushes waited
/// while merges kept the devices busy, and there were no more parts for that.
#[test]
fn on_several_tiers_flushes_that_wait_for_devices_make_many_parts() {
    let of = |mut looks: Looks, running_ms: u64| {
        looks.0.spent.memory_us += 1_200_000;
        looks.0.spent.flushes.all_us += 1_000_000;
        looks.0.spent.flushes.running_us += running_ms * 1000;
        // What merges wait for is another matter.
        looks.look(0, 1000, 1000);
        looks.0.waits.division
    };
    assert_eq!(of(two(true), 740), Division::Many);
    assert_eq!(of(two(true), 750), Division::Few);
    assert_eq!(of(two(false), 740), Division::Few);
    assert_eq!(of(Looks::default(), 740), Division::Whole);
    // It counts once flushes say what for.
    let mut looks = two(true);
    looks.0.spent.memory_us += 1_200_000;
    looks.0.spent.flushes.all_us += 90_000;
    looks.look(0, 1000, 1000);
    assert_eq!(looks.0.waits.division, Division::Few);
    looks.0.spent.flushes.all_us += 20_000;
    looks.look(0, 0, 0);
    assert_eq!(looks.0.waits.division, Division::Many);
}

#[test]
fn what_was_waited_for_fades() {
    let mut looks = Looks::default();
    for _ in 0..1000 {
        assert!(!looks.look(5, 1000, 1000));
    }
    let mut busy = Looks::default();
    assert!((0..30).any(|_| busy.look(30, 1000, 1000)));
    // Also while no merge says what for.
    looks.look(900, 0, 0);
    for _ in 0..60 {
        looks.look(0, 0, 0);
    }
    assert!(!looks.look(0, 1000, 1000));
    looks.0.now_us = 0;
    assert!(!looks.look(5, 1000, 1000), "a clock that goes back");
}

#[test]
fn each_time_parts_are_taken_back_it_takes_longer_until_there_are_some_again() {
    let mut looks = Looks::default();
    let mut waited = Vec::new();
    for _ in 0..4 {
        let mut seconds = 1;
        while !looks.look(500, 1000, 1000) {
            seconds += 1;
        }
        waited.push(seconds);
        while looks.look(900, 1000, 0) {}
    }
    assert!(waited[0] == 1 && waited[1] >= 25, "{waited:?}");
    assert!(waited[2] >= 55 && waited[3] >= 115, "{waited:?}");
    for _ in 0..20 {
        while !looks.look(500, 1000, 1000) {}
        while looks.look(900, 1000, 0) {}
    }
    let most_us = (30_000_000 << 7) + looks.0.now_us;
    assert!(looks.0.waits.not_before_us <= most_us);
}

#[test]
fn what_writers_wait_for_while_cuts_are_on_their_way_says_nothing_for_a_while() {
    let mut looks = Looks::default();
    let moving = |looks: &mut Looks, running_ms| looks.look_moving(800, 1000, running_ms);
    for _ in 0..10 {
        assert!(!moving(&mut looks, 1000));
    }
    assert!(!looks.look(0, 1000, 1000));
    assert!(looks.look(400, 1000, 1000));
    for _ in 0..20 {
        looks.look(0, 0, 0);
    }
    let moved = (0..30).take_while(|_| moving(&mut looks, 0)).count();
    assert!((9..20).contains(&moved), "{moved}");
}

#[test]
fn how_long_writers_wait_until_parts_come_and_go_is_a_trigger() {
    let usual = PartTriggers::default();
    for ms in [1, 40, 700] {
        let come = PartTriggers {
            processor_waits_ms: ms,
            ..usual
        };
        assert!(!with(come).look(ms - 1, 1000, 1000), "{ms} ms");
        assert!(with(come).look(ms, 1000, 1000), "{ms} ms");
        let go = PartTriggers {
            device_waits_ms: ms,
            ..usual
        };
        let goes = |waited_ms| {
            let mut looks = with(go);
            looks.0.waits = Waits::beginning(Division::Few);
            !looks.look(waited_ms, 1000, 0)
        };
        assert!(!goes(ms - 1) && goes(ms), "{ms} ms");
    }
    // What they wait for, and from how much of merges that is told.
    let share = |running_share| PartTriggers {
        running_share,
        ..usual
    };
    assert!(with(share(0.9)).look(300, 1000, 900) && !with(share(0.9)).look(300, 1000, 899));
    let of = |merges_ms_min| PartTriggers {
        merges_ms_min,
        ..usual
    };
    assert!(with(of(2000)).look(300, 2000, 2000) && !with(of(2000)).look(300, 1999, 1999));
    // After its time what was waited counts half.
    let half = |waits_fade_ms| {
        let mut looks = with(PartTriggers {
            waits_fade_ms,
            ..usual
        });
        looks.look(170, 0, 0);
        looks.look(0, 1000, 1000)
    };
    assert!(half(1500) && !half(1000));
}

#[test]
fn how_long_parts_stay_away_is_a_trigger() {
    let seconds = |again_ms, again_doublings_max| {
        let mut looks = with(PartTriggers {
            again_ms,
            again_doublings_max,
            ..PartTriggers::default()
        });
        let away = (0..4).map(|_| {
            let away = (0..).take_while(|_| !looks.look(500, 1000, 1000)).count();
            while looks.look(3000, 1000, 0) {}
            looks.0.waits.for_devices_us = 0.0;
            away
        });
        away.collect::<Vec<_>>()
    };
    assert_eq!(seconds(0, 16), [0; 4]);
    assert_eq!(seconds(20_000, 0), [0, 19, 19, 19]);
    assert_eq!(seconds(20_000, 1), [0, 19, 39, 39]);
    assert_eq!(seconds(20_000, 16), [0, 19, 39, 79]);
    // While cuts are on their way nothing is counted, for so long.
    let counts_after = |moving_ms| {
        let mut looks = with(PartTriggers {
            moving_ms,
            ..PartTriggers::default()
        });
        (1..)
            .take_while(|_| !looks.look_moving(900, 1000, 1000))
            .count()
    };
    assert_eq!((counts_after(0), counts_after(5000)), (0, 5));
}

#[test]
fn how_many_writers_waited_of_late_is_a_mean_that_fades() {
    let mut looks = Looks::default();
    let mut waiting = |writers_ms: u64| {
        looks.0.spent.writers_us += writers_ms * 1000;
        looks.look(0, 1000, 0);
        looks.0.waits.writers
    };
    assert_eq!(waiting(0), 0.0);
    let all: Vec<f64> = (0..100).map(|_| waiting(4000)).collect();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    assert!(
        (all[9] - 2.0).abs() < 1e-9,
        "half of it after ten seconds: {}",
        all[9]
    );
    assert!((all[99] - 4.0).abs() < 0.01, "{}", all[99]);
    let after: Vec<f64> = (0..20).map(|_| waiting(0)).collect();
    assert!((after[19] - all[99] / 4.0).abs() < 1e-9, "{}", after[19]);
}

#[test]
fn a_clock_that_jumps_makes_no_more_writers_wait_than_do() {
    let mut looks = Looks::default();
    let mut most = 0.0f64;
    for jump_us in [0, 1 << 50, 1, 1 << 40, 0, 1 << 30] {
        // Three wait, by the same clock.
        let passed_us = jump_us + 1_000_000;
        looks.0.now_us += jump_us;
        looks.0.spent.writers_us += 3 * passed_us;
        looks.look(0, 0, 0);
        most = most.max(looks.0.waits.writers);
        // And back: it has counted nothing.
        looks.0.now_us = looks.0.now_us.saturating_sub(passed_us + 1_000_000);
        looks.look(0, 0, 0);
    }
    assert!(most > 2.9 && most <= 3.0, "{most}");
    assert!(looks.0.waits.writers <= 3.0);
}
