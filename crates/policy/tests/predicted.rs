//! What jobs of every kind are predicted to cost and to gain.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::{KEYSPACE, M, World, leveled, line, logstore, read, two_tiers};
use thermocline_model::job::{Flush, Fold, Job, Merge, Reason, Recut, Relocate};
use thermocline_model::tier::{DeviceProfile, TierId};
use thermocline_model::version::Slot;
use thermocline_model::view::{FewKeys, PartLoad};
use thermocline_model::{Predicted, TableId};

const LARGE: u64 = 1 << 40;

/// What a job of its kind is for at the least. A new kind does not compile before it is said here.
fn benefits_of(job: &Job) -> &'static [&'static str] {
    match job {
        Job::Flush(_) | Job::Fold(_) => &["memory_freed_bytes", "log_segments_freed_max"],
        Job::Merge(merge) if passes(merge) => {
            &["rewritten_bytes_saved", "merge_device_seconds_saved"]
        }
        Job::Merge(_) => &["runs_fewer", "overwritten_bytes_max"],
        Job::Relocate(_) => &[
            "tier_freed_bytes",
            "usd_month_saved",
            "read_us_saved_per_second",
        ],
        Job::Recut(_) => &["hottest_share_less"],
    }
}

fn passes(merge: &Merge) -> bool {
    merge.inputs.len() == 1 && !merge.rewrite
}

/// A job of the kind behind that of `job`, the first one behind none. A new kind does not compile
/// before it has a place here.
fn after(job: Option<&Job>) -> Option<Job> {
    let reason = || Reason::new("asked-for");
    let (keyspace, part, active) = (KEYSPACE, 0, false);
    Some(match job {
        None => Job::Flush(Flush {
            keyspace,
            part,
            beside: Vec::new(),
            active,
            reason: reason(),
        }),
        Some(Job::Flush(_)) => Job::Fold(Fold {
            keyspace,
            part,
            active,
            reason: reason(),
        }),
        Some(Job::Fold(_)) => Job::Merge(merge(&[9, 1], 6)),
        Some(Job::Merge(merged)) if !passes(merged) => Job::Merge(merge(&[2], 5)),
        Some(Job::Merge(_)) => Job::Relocate(Relocate {
            keyspace,
            table: TableId(1),
            to: TierId(1),
            reason: reason(),
        }),
        Some(Job::Relocate(_)) => Job::Recut(Recut {
            keyspace,
            parts: Vec::new(),
            slots: 1,
            reason: reason().with("share", 0.5).with("share_after", 0.25),
        }),
        Some(Job::Recut(_)) => return None,
    })
}

fn merge(inputs: &[u64], level: u32) -> Merge {
    Merge {
        keyspace: KEYSPACE,
        inputs: inputs.iter().map(|n| TableId(*n)).collect(),
        output: Slot::Level(level),
        table_bytes: M,
        rewrite: false,
        deeper: None,
        reason: Reason::new("asked-for"),
    }
}

/// Two tiers with a little of everything, of 100 and 10 MB a second.
fn world() -> World {
    let text =
        "L0.0: #9[a..m]{size=1M} | L1: #2[x..z]{size=2M} | L7: #1[a..k]{size=3M} #3[n..p]{size=1M}";
    let mut world = World::of(text, &[LARGE, LARGE]);
    for (tier, sequential_mb_s) in world.tiers.iter_mut().zip([100.0, 10.0]) {
        tier.profile = Some(DeviceProfile {
            random_read_iops: sequential_mb_s * 10.0,
            sequential_mb_s,
        });
    }
    let few = |live_bytes| {
        Some(FewKeys {
            keys: 1,
            live_bytes,
        })
    };
    let load = PartLoad {
        takers: 1,
        sealed: 2,
        sealed_bytes: 4 * M,
        sealed_few: few(M / 2),
        oldest_segment: Some(3),
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 0), load);
    world.log_segments = (3, 7);
    world
}

#[test]
fn a_job_of_every_kind_says_bytes_cost_and_benefit() {
    let world = world();
    let (mut job, mut names) = (after(None), BTreeSet::new());
    while let Some(asked) = job {
        names.insert(asked.name());
        let priced = world.priced(asked.clone());
        let predicted = priced.reason().predicted.as_ref().unwrap();
        let told = priced.reason().to_string();
        assert_eq!(predicted.device_seconds.len(), 2, "{told}");
        assert!(predicted.is_finite(), "{told}");
        for name in benefits_of(&asked) {
            let one = predicted.benefits.iter().filter(|b| b.name == *name);
            assert_eq!(one.count(), 1, "{name} in {told}");
            assert!(told.contains(name), "{told}");
        }
        let transferred = predicted.read_bytes + predicted.written_bytes;
        assert_eq!(transferred > 0, predicted.cost_seconds() > 0.0, "{told}");
        // It has one cost.
        let mut numbers = priced.reason().numbers.iter();
        assert!(!numbers.any(|(n, _)| n.contains("seconds")), "{told}");
        job = after(Some(&asked));
    }
    assert_eq!(names.len(), 5, "{names:?}");
}

/// Those of [`after`], by what tells them apart.
fn of(world: &World, is: impl Fn(&Job) -> bool) -> Predicted {
    let mut job = after(None);
    while let Some(asked) = job {
        if is(&asked) {
            return world.predicted(&asked);
        }
        job = after(Some(&asked));
    }
    panic!("no such job");
}

#[test]
fn a_flush_writes_what_memory_has_and_frees_it() {
    let mut world = world();
    let is_flush = |job: &Job| matches!(job, Job::Flush(_));
    let flush = of(&world, is_flush);
    assert_eq!((flush.read_bytes, flush.written_bytes), (0, 4 * M));
    assert_eq!(flush.device_seconds, [(4 * M) as f64 / 100e6, 0.0]);
    assert_eq!(flush.benefit("memory_freed_bytes"), Some((4 * M) as f64));
    assert_eq!(flush.benefit("log_segments_freed_max"), Some(4.0));
    // Another part still needs the log from there on.
    let needs = |segment| PartLoad {
        oldest_segment: Some(segment),
        ..PartLoad::default()
    };
    world.memtables.insert((KEYSPACE, 1), needs(5));
    let flush = of(&world, is_flush);
    assert_eq!(flush.benefit("log_segments_freed_max"), Some(2.0));
}

#[test]
fn a_fold_writes_what_is_left_to_the_tier_of_the_log() {
    let mut world = world();
    world.shape.pins.log = Some(TierId(1));
    let fold = of(&world, |job| matches!(job, Job::Fold(_)));
    assert_eq!(fold.device_seconds, [0.0, (M / 2) as f64 / 10e6]);
    assert_eq!(fold.benefit("memory_freed_bytes"), Some((7 * M / 2) as f64));
    for load in world.memtables.values_mut() {
        load.sealed_few = None;
    }
    let fold = of(&world, |job| matches!(job, Job::Fold(_)));
    assert_eq!(fold.benefit("memory_freed_bytes"), None);
}

#[test]
fn what_is_passed_down_costs_nothing_and_saves_its_merge() {
    let world = world();
    let passed = world.predicted(&Job::Merge(merge(&[2], 5)));
    assert_eq!((passed.read_bytes, passed.written_bytes), (0, 0));
    assert_eq!(passed.device_seconds, [0.0, 0.0]);
    let rewritten = Merge {
        rewrite: true,
        ..merge(&[2], 5)
    };
    let rewritten = world.predicted(&Job::Merge(rewritten));
    let bytes = passed.benefit("rewritten_bytes_saved").unwrap();
    assert_eq!(bytes, rewritten.read_bytes as f64);
    let seconds = passed.benefit("merge_device_seconds_saved").unwrap();
    assert_eq!(seconds, rewritten.cost_seconds());
    // Of a merge of both kinds, each is what it is; and what lies where the others go stays.
    let both = world.predicted(&Job::Merge(merge(&[9, 2, 1, 3], 6)));
    assert_eq!(both.benefit("rewritten_bytes_saved"), Some(bytes));
    let merged = world.predicted(&Job::Merge(merge(&[9, 1], 6)));
    assert_eq!(both.read_bytes, merged.read_bytes);
    assert_eq!(
        merged.benefit("overwritten_bytes_max"),
        Some((M + 1) as f64)
    );
}

#[test]
fn a_merge_on_demand_is_predicted_as_the_planned_one_is() {
    let text = "L0.0: #9[a..z]{size=1M} / #8[a..z]{size=1M} / #7[a..z]{size=1M} / #6[a..z]{size=1M} | L7: #5[a..z]{size=1M}";
    let world = World::of(text, &[LARGE, LARGE]);
    let planned = world.plan(&mut leveled()).unwrap();
    let Job::Merge(mut asked) = planned.clone() else {
        panic!("{planned:?}");
    };
    asked.reason = Reason::new("on-demand");
    let predicted = world.predicted(&planned);
    assert_eq!(predicted, world.predicted(&Job::Merge(asked)));
    assert_eq!(predicted.benefit("runs_fewer"), Some(4.0));
}

/// LogStore's equation counts a seek for each table, so its reason names what was compared, and the
/// cost is that of every other job.
#[test]
fn what_comes_up_is_written_where_it_goes_and_its_rule_names_what_it_compared() {
    let text = "L1: #1[a..c]{size=2M} | L7: #2[d..f]{size=2M,tier=1} #3[g..z]{size=90M,tier=1}";
    let mut world = two_tiers(World::of(text, &[LARGE, LARGE]));
    world.shape.staging.fast_share = 0.5;
    read(&mut world, &[(1, 1), (2, 3), (3, 0)]);
    let job = world.plan(&mut logstore()).unwrap();
    assert_eq!(line(Some(job.clone())), "reverse: [2] into L1");
    let predicted = world.predicted(&job);
    let size = (2 * M + 1) as f64;
    assert_eq!(predicted.device_seconds, [size / 480e6, size / 150e6]);
    let number = |name: &str| {
        let mut numbers = job.reason().numbers.iter();
        numbers.find(|(n, _)| n == name).unwrap().1
    };
    let seek = 1.0 / 60.0;
    assert!((number("against_merge_s") - predicted.cost_seconds() - seek).abs() < 1e-9);
    assert!(number("compared_reads_s") > number("against_merge_s"));
    // Three reads a second and MiB, of 1/60 s there and 1/6000 s here.
    let saved = predicted.benefit("read_us_saved_per_second").unwrap();
    assert!(
        (saved - 6.0 * (1e6 / 60.0 - 1e6 / 6000.0)).abs() < 1.0,
        "{saved}"
    );
    assert!(job.reason().predicted.is_none(), "planners price nothing");
}

#[test]
fn what_goes_deeper_is_written_there() {
    use thermocline_model::KeyRange;
    use thermocline_model::job::Deeper;
    let text = "L1: #1[a..z]{size=4M} / #2[a..z]{size=4M} | L7: #3[a..c]{size=6M,tier=1}";
    let world = two_tiers(World::of(text, &[LARGE, LARGE]));
    let deeper = Deeper {
        slot: Slot::Level(6),
        ranges: vec![KeyRange::inclusive(b"a", b"c")],
        bytes: 2 * M,
    };
    let down = Merge {
        deeper: Some(deeper),
        rewrite: true,
        ..merge(&[1, 2, 3], 0)
    };
    let predicted = world.predicted(&Job::Merge(down));
    let seconds = |fast: u64, slow: u64| [fast as f64 / 480e6, slow as f64 / 150e6];
    let is = &predicted.device_seconds;
    for (is, expected) in is.iter().zip(seconds((8 + 6) * M, (6 + 8) * M)) {
        assert!((is / expected - 1.0).abs() < 1e-5, "{predicted}");
    }
}
