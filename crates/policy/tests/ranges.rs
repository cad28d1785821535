//! Cuts that move: what the planner does with shares of writes, and the paper's
//! figure of load imbalance (Nova-LSM, section 8.2.1), over the policy alone.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;
use thermocline_model::cuts::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::{Job, NewPart, Reason, Recut};
use thermocline_model::triggers::RecutTriggers;
use thermocline_model::version::KeyspaceId;
use thermocline_model::view::{KeyspaceWrites, PartLoad, PartWrites, RangeOptions};
use thermocline_model::{SeqNo, check_edit, check_version};
use thermocline_policy::Planner;
use thermocline_policy::plan::major::{Gain, Judged, gains, imbalance, judged, rebuild, shares};
use thermocline_policy::plan::sample::{PartSample, Sample, Weighed};
use thermocline_policy::plan::{FlushSealed, MoveCuts};

const K: KeyspaceId = KeyspaceId::DEFAULT;

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to 1, 1 excluded.
    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Keys as YCSB writes them: the popular ones are the small ones, as in the paper.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Zipf {
            sums: sums.collect(),
        }
    }

    fn key(&self, dice: &mut Dice) -> Vec<u8> {
        let at = dice.share() * self.sums[self.sums.len() - 1];
        let rank = self.sums.partition_point(|s| *s <= at);
        format!("{rank:010}").into_bytes()
    }
}

/// `keys` ascending, one for each write.
fn sorted(keys: &[Vec<u8>]) -> Vec<Weighed<'_>> {
    let mut keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    keys.sort_unstable();
    let weighed = keys.into_iter().map(|key| Weighed {
        key,
        writes: 1.0,
        is_range: false,
    });
    weighed.collect()
}

/// An entry in memory.
struct Entry {
    key: Vec<u8>,
    seq: SeqNo,
    part: usize,
}

/// A keyspace whose writes are counted, and that is cut as the planner says.
struct Store {
    world: World,
    parts: Vec<NewPart>,
    options: RangeOptions,
    since: u64,
    in_vain: u32,
    /// What memtables hold. When it is full the part with the most is flushed.
    memory: Vec<Entry>,
    memory_max: usize,
    written: u64,
    minors: u32,
    majors: u32,
    vain: u32,
}

impl Store {
    fn new(options: RangeOptions, memory_max: usize) -> Store {
        let mut world = World::of("", &[1 << 40]);
        world.shape.ranges = options;
        let mut store = Store {
            world,
            parts: rebuild(&[], &options),
            options,
            since: 0,
            in_vain: 0,
            memory: Vec::new(),
            memory_max,
            written: 0,
            minors: 0,
            majors: 0,
            vain: 0,
        };
        store.world.version.last_seq = SeqNo(1 << 40);
        store.load();
        store
    }

    fn load(&mut self) {
        for part in 0..self.parts.len() as u32 {
            let full = self.memory.len() >= self.memory_max / 2;
            let load = PartLoad {
                sealed: usize::from(full),
                ..PartLoad::default()
            };
            self.world.memtables.insert((K, part), load);
        }
        self.world
            .memtables
            .retain(|(_, part), _| (*part as usize) < self.parts.len());
    }

    fn cuts(&self) -> Cuts {
        let bounds = self.parts[1..].iter().map(|p| p.start().into());
        Cuts::new(bounds.collect()).unwrap()
    }

    fn write(&mut self, key: &[u8]) {
        let part = self.parts.partition_point(|p| p.start() <= key) - 1;
        let tiny = &mut self.parts[part].tiny;
        let at = tiny.partition_point(|t| *t.start <= *key) - 1;
        tiny[at].writes += 1;
        self.since += 1;
        self.written += 1;
        self.memory.push(Entry {
            key: key.to_vec(),
            seq: SeqNo(self.written),
            part,
        });
        if self.memory.len() > self.memory_max {
            let mut held = vec![0; self.parts.len()];
            self.memory.iter().for_each(|entry| held[entry.part] += 1);
            let fullest = (0..held.len()).max_by_key(|&part| held[part]).unwrap();
            self.memory.retain(|entry| entry.part != fullest);
        }
        if self.since.is_multiple_of(64) {
            self.plan();
        }
    }

    fn writes(&self) -> KeyspaceWrites {
        let parts = self.parts.iter().map(|part| PartWrites {
            duplicates: part.duplicates,
            starts: part.tiny.iter().map(|t| t.start.clone()).collect(),
            writes: part.tiny.iter().map(|t| t.writes).collect(),
        });
        KeyspaceWrites {
            parts: parts.collect(),
            since: self.since,
            in_vain: self.in_vain,
        }
    }

    fn sample(&self) -> Sample {
        let part = |part: &NewPart| PartSample {
            entries: Vec::new(),
            tiny: part.tiny.clone(),
        };
        let mut sample = Sample {
            parts: self.parts.iter().map(part).collect(),
        };
        for entry in &self.memory {
            let entries = &mut sample.parts[entry.part].entries;
            entries.push((entry.key.as_slice().into(), entry.seq));
        }
        sample.parts.iter_mut().for_each(|part| part.entries.sort());
        sample
    }

    /// As the engine does it, so that old writes weigh less.
    fn forget(&mut self) {
        let slots: u64 = self.parts.iter().map(|p| 1 + u64::from(p.duplicates)).sum();
        let tiny = || self.parts.iter().flat_map(|p| &p.tiny);
        if tiny().map(|t| t.writes).sum::<u64>()
            >= self.options.triggers.looks_kept * slots * self.options.writes
        {
            let tiny = self.parts.iter_mut().flat_map(|p| &mut p.tiny);
            tiny.for_each(|t| t.writes -= t.writes / 2);
        }
    }

    fn plan(&mut self) {
        self.load();
        self.forget();
        self.world.writes.insert(K, self.writes());
        let Some(Job::Recut(job)) = MoveCuts.plan(&self.world.view()) else {
            return;
        };
        self.carry_out(&job);
    }

    fn carry_out(&mut self, job: &Recut) {
        self.since = 0;
        let parts = if job.parts.is_empty() {
            let parts = match judged(&self.world.view(), job, &self.sample()) {
                Judged::Better(parts, _) => parts,
                found => {
                    self.vain += 1;
                    self.in_vain = match found {
                        Judged::TooLittle => self.in_vain.max(1),
                        _ => self.in_vain + 1,
                    };
                    return;
                }
            };
            self.majors += 1;
            parts
        } else {
            self.minors += 1;
            job.parts.clone()
        };
        self.in_vain = 0;
        self.parts = parts;
        for entry in &mut self.memory {
            entry.part = self.parts.partition_point(|p| *p.start() <= *entry.key) - 1;
        }
        let edit = Edit::of(Change::SetCuts {
            keyspace: K,
            cuts: self.cuts(),
        });
        let after = edit.apply(&self.world.version).unwrap();
        check_edit(&self.world.version, &edit, &after).unwrap();
        check_version(&after).unwrap();
        self.world.version = after;
        let slots: u32 = self.parts.iter().map(|p| 1 + p.duplicates).sum();
        assert!(slots as usize <= self.options.slots);
        assert!(
            self.parts
                .iter()
                .all(|p| p.tiny.len() <= self.options.tiny_max)
        );
    }
}

fn options(slots: usize) -> RangeOptions {
    RangeOptions {
        slots,
        ..RangeOptions::default()
    }
}

/// The imbalance of the shares of `count` further writes, and the store after them.
fn run(
    slots: usize,
    mut next: impl FnMut() -> Vec<u8>,
    before: usize,
    count: usize,
) -> (f64, Store) {
    let mut store = Store::new(options(slots), 40_000);
    for _ in 0..before {
        store.write(&next());
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        let key = next();
        store.write(&key);
        keys.push(key);
    }
    let keys = sorted(&keys);
    (imbalance(&shares(&store.parts, &keys)), store)
}

#[test]
fn skewed_writes_are_shared_out_as_evenly_as_the_paper_says() {
    // 0.99, the paper's skew, over a million keys.
    let zipf = Zipf::new(1_000_000, 0.99);
    println!("parts  uniform    zipfian    ratio  (minor, major, in vain; duplicates)");
    for slots in [2, 4, 8, 16, 32, 64] {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + slots as u64);
        let (uniform, even) = run(
            slots,
            || format!("{:010}", dice.roll() % 1_000_000).into_bytes(),
            400_000,
            400_000,
        );
        let mut dice = Dice(0xd1b5_4a32_d192_ed03 + slots as u64);
        let (skewed, store) = run(slots, || zipf.key(&mut dice), 400_000, 400_000);
        let ratio = skewed / uniform;
        let duplicates: u32 = store.parts.iter().map(|p| p.duplicates).sum();
        println!(
            "{slots:>5}  {uniform:.2e}  {skewed:.2e}  {ratio:>5.2}  ({} {} {}; {} {} {}; {duplicates})",
            even.minors, even.majors, even.vain, store.minors, store.majors, store.vain
        );
        assert!(ratio <= 6.0, "{slots} parts: {ratio}");
        // Without cuts that move, the first part would have nearly all of it.
        assert!(skewed < 0.3 / slots as f64, "{slots} parts: {skewed}");
        assert_eq!(even.majors, 1);
    }
}

#[test]
fn keys_in_order_one_key_and_one_prefix_do_no_harm() {
    // Ascending: whatever cuts the past has, what comes goes to the last part.
    let mut n = 0u64;
    let mut ascending = || {
        n += 1;
        format!("{n:012}").into_bytes()
    };
    let (_, store) = run(16, &mut ascending, 500_000, 1);
    assert_eq!((store.parts.len(), store.majors, store.minors), (1, 0, 0));
    assert!(store.vain <= 10, "{} looks in vain", store.vain);
    let mut n = 0u64;
    let mut descending = || {
        n += 1;
        format!("{:012}", 1_000_000_000 - n).into_bytes()
    };
    let (_, store) = run(16, &mut descending, 500_000, 1);
    assert!(store.majors + store.minors <= 1 && store.vain <= 10);
    // One key: one part, duplicated as often as may be, once.
    let (_, store) = run(16, || b"k".to_vec(), 500_000, 1);
    assert_eq!((store.parts.len(), store.majors, store.minors), (1, 1, 0));
    assert_eq!(store.parts[0].duplicates, options(16).duplicates_max);
    // A common prefix is no hindrance, and if cuts may only fall within it there are none.
    let mut dice = Dice(7);
    let mut prefixed = || format!("{}{:08}", "p".repeat(200), dice.roll() % 100_000).into_bytes();
    let (imbalance, store) = run(16, &mut prefixed, 200_000, 100_000);
    assert_eq!(store.parts.len(), 16);
    assert!(imbalance < 0.2 / 16.0, "{imbalance}");
    let keys: Vec<Vec<u8>> = (0..10_000).map(|_| prefixed()).collect();
    let within = RangeOptions {
        prefix_bytes: 100,
        ..options(16)
    };
    assert_eq!(rebuild(&sorted(&keys), &within).len(), 1);
}

/// Keys with one prefix were taken for one hot key where cuts may only fall between prefixes, and
/// their part was duplicated seven times.
#[test]
fn a_prefix_that_many_keys_have_is_no_hot_key() {
    let prefixes = RangeOptions {
        prefix_bytes: 2,
        ..options(8)
    };
    let duplicates = |keys: &[Vec<u8>]| -> Vec<u32> {
        let parts = rebuild(&sorted(keys), &prefixes);
        parts.iter().map(|p| p.duplicates).collect()
    };
    let many: Vec<Vec<u8>> = (0..40_000u32)
        .map(|n| format!("aa{n:08}").into_bytes())
        .collect();
    assert_eq!(duplicates(&many), [0]);
    let one = vec![b"aa-and-more".to_vec(); 40_000];
    assert_eq!(duplicates(&one), [7]);
    // Hot prefixes among others have parts of their own, and none is written to twice.
    let mut mixed = many;
    mixed.extend((0..40_000u32).map(|n| format!("{:02}{n:08}", n % 90 + 10).into_bytes()));
    let found = duplicates(&mixed);
    assert!(
        found.len() > 2 && found.iter().all(|&d| d == 0),
        "{found:?}"
    );
}

#[test]
fn the_cuts_follow_writes_that_move_elsewhere() {
    let mut dice = Dice(11);
    let mut n = 0u64;
    let mut next = || {
        n += 1;
        // The first half of the keys, then the second.
        let base = if n < 400_000 { 0 } else { 500_000 };
        format!("{:010}", base + dice.roll() % 500_000).into_bytes()
    };
    let (imbalance, store) = run(16, &mut next, 700_000, 100_000);
    assert!(imbalance < 0.4 / 16.0, "{imbalance}");
    assert!(
        store.minors + store.majors < 40,
        "{} {}",
        store.minors,
        store.majors
    );
}

/// What was written was flushed, so there was nothing to sample: of no keys the new cuts were held
/// to be better, as nothing is no more than four fifths of nothing, and all cuts and counters were
/// thrown away for one part.
#[test]
fn a_sample_that_is_empty_or_small_changes_no_cuts() {
    let mut dice = Dice(17);
    let mut key = || format!("{:010}", dice.roll() % 1_000_000).into_bytes();
    let (_, store) = run(8, &mut key, 200_000, 1);
    assert_eq!(store.parts.len(), 8);
    let found = |count: u64| -> Option<Gain> {
        // All that was counted is in the first part.
        let entry = |n: u64| {
            let key = format!("{:010}", n * 7919 % count);
            (key.into_bytes().into(), SeqNo(n + 1))
        };
        let mut parts = vec![PartSample::default(); 8];
        parts[0] = PartSample {
            entries: (0..count).map(entry).collect(),
            tiny: vec![thermocline_model::Tiny {
                start: Box::default(),
                writes: 1000,
            }],
        };
        parts[0].entries.sort();
        gains(&store.parts, &Sample { parts }, &store.options)
    };
    for count in [0, 1, 20, 63] {
        assert!(found(count).is_none(), "{count} keys");
    }
    let gain = found(10_000).unwrap();
    assert!(
        gain.is_worth_it(&store.options) && gain.before == 1.0,
        "{gain:?}"
    );
}

/// The hot part was flushed so often that of the older half of the sample hardly anything was its
/// own: cuts made of that were no better than those there were, look after look, and the wait
/// doubled each time.
#[test]
fn a_steady_skew_that_follows_other_writes_is_shared_out() {
    let zipf = Zipf::new(20_000, 0.99);
    let (mut dice, mut written) = (Dice(23), 0);
    let next = || {
        written += 1;
        match written <= 100_000 {
            true => format!("{:010}", dice.roll() % 20_000).into_bytes(),
            false => zipf.key(&mut dice),
        }
    };
    let (imbalance, store) = run(8, next, 400_000, 200_000);
    assert!(imbalance < 0.2 / 8.0, "{imbalance}");
    assert!(store.vain <= 1, "{} looks in vain", store.vain);
}

/// A store with these tiny ranges, and counts in them.
fn with(parts: &[(u32, &[(&str, u64)])], since: u64) -> Store {
    let mut store = Store::new(options(parts.len()), 1000);
    store.parts = parts
        .iter()
        .map(|(duplicates, tiny)| NewPart {
            duplicates: *duplicates,
            tiny: tiny
                .iter()
                .map(|(start, writes)| thermocline_model::Tiny {
                    start: start.as_bytes().into(),
                    writes: *writes,
                })
                .collect(),
        })
        .collect();
    let edit = Edit::of(Change::SetCuts {
        keyspace: K,
        cuts: store.cuts(),
    });
    store.world.version = edit.apply(&store.world.version).unwrap();
    store.since = since;
    store.load();
    let writes = store.writes();
    store.world.writes.insert(K, writes);
    store
}

fn planned(store: &Store) -> String {
    let Some(Job::Recut(job)) = MoveCuts.plan(&store.world.view()) else {
        return "nothing".to_string();
    };
    let part = |part: &NewPart| {
        let tiny = part.tiny.iter();
        let tiny: Vec<_> = tiny
            .map(|t| format!("{}={}", t.start.escape_ascii(), t.writes))
            .collect();
        tiny.join(" ")
    };
    let parts: Vec<_> = job.parts.iter().map(part).collect();
    format!("{}: {}", job.reason.rule, parts.join(" | "))
}

#[test]
fn a_hot_part_gives_tiny_ranges_to_its_neighbours() {
    let hot = [
        (0, &[("", 50), ("b", 50)][..]),
        (0, &[("g", 80), ("h", 60), ("i", 60)]),
        (0, &[("p", 80), ("q", 40)]),
    ];
    // 100, 200 and 120 of 420: more than 168 is too hot.
    let store = with(&hot, 100_000);
    assert_eq!(
        planned(&store),
        "minor: =50 b=50 g=80 | h=60 i=60 | p=80 q=40"
    );
    // Not before so many writes were counted.
    assert_eq!(planned(&with(&hot, 100)), "nothing");
    // Nor while a flush of a part concerned runs.
    let mut store = with(&hot, 100_000);
    store.world.memtables.get_mut(&(K, 1)).unwrap().flushing = true;
    assert_eq!(planned(&store), "nothing");
    // Nor while memtables of the generation before wait.
    let mut store = with(&hot, 100_000);
    store.world.memtables.get_mut(&(K, 0)).unwrap().older = true;
    assert_eq!(planned(&store), "nothing");
    // A balanced keyspace is left alone.
    let even = [(0, &[("", 100)][..]), (0, &[("g", 110)]), (0, &[("p", 90)])];
    assert_eq!(planned(&with(&even, 100_000)), "nothing");
}

/// What memory holds of the generation before is free once the last of its parts was flushed.
#[test]
fn memtables_of_the_generation_before_are_flushed_for_all_parts_at_once() {
    let parts = [(0, &[("", 10)][..]), (0, &[("g", 10)]), (0, &[("p", 10)])];
    let mut store = with(&parts, 0);
    let older = PartLoad {
        sealed: 1,
        sealed_bytes: 1000,
        older: true,
        oldest_segment: Some(1),
        ..PartLoad::default()
    };
    for part in 0..3 {
        store.world.memtables.insert((K, part), older);
    }
    store.world.memtables.insert((KeyspaceId(7), 0), older);
    let planned = |store: &Store| match FlushSealed::default().plan(&store.world.view()) {
        Some(Job::Flush(flush)) => {
            assert!(!flush.active && flush.reason.rule == "older-generation");
            let parts: Vec<u32> = flush.parts().collect();
            (flush.keyspace, parts, flush.reason.numbers[0].1)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(planned(&store), (K, vec![0, 1, 2], 3000.0));
    store.world.memtables.get_mut(&(K, 1)).unwrap().flushing = true;
    assert_eq!(planned(&store), (K, vec![0, 2], 2000.0));
    store.world.memtables.get_mut(&(K, 2)).unwrap().older = false;
    assert_eq!(planned(&store), (K, vec![0], 1000.0));
}

/// After skewed writes, uniform ones found tiny ranges so coarse that cuts went to and fro, twenty
/// times in a minute, for a thousandth of the writes, and each time what was handed down was merged
/// with L6.
#[test]
fn cuts_move_only_for_a_share_of_what_is_too_much() {
    // 100 of 139, of which 83.4 are not too hot, and 99 afterwards.
    let coarse = |first| {
        let parts = [(0, &[("", first), ("b", 60)][..]), (0, &[("g", 39)])];
        let mut store = with(&parts, 100_000);
        store.world.shape.ranges.major_excess = 10.0;
        store
    };
    assert_eq!(planned(&coarse(40)), "nothing");
    let mut store = coarse(40);
    store.world.shape.ranges.triggers.gain_share_min = 0.0;
    assert_eq!(planned(&store), "minor: =40 | b=60 g=39");
    // 105 of 144, of which 86.4 are not: a third of what is too much goes.
    assert_eq!(planned(&coarse(45)), "minor: =45 | b=60 g=39");
}

/// What is handed down makes runs of L1: where these are the shape, cuts move while there are few.
#[test]
fn cuts_stay_while_l1_has_more_runs_than_it_may() {
    let hot = [
        (0, &[("", 50), ("b", 50)][..]),
        (0, &[("g", 80), ("h", 60), ("i", 60)]),
        (0, &[("p", 80), ("q", 40)]),
    ];
    let mut store = with(&hot, 100_000);
    let runs = World::of("L1: #9[a..f] / #8[c..z]", &[1 << 40]).version;
    let runs = runs.keyspaces[&K].levels.clone();
    let keyspace = store.world.version.keyspaces.get_mut(&K).unwrap();
    std::sync::Arc::make_mut(keyspace).levels = runs;
    assert_eq!(planned(&store), "nothing");
    store.world.shape.ranges.first_runs_max = 2;
    assert!(planned(&store).starts_with("minor"), "{}", planned(&store));
}

/// The same with cuts that the version says the writes have made.
fn moved(parts: &[(u32, &[(&str, u64)])]) -> Store {
    let mut store = with(parts, 0);
    let tiny = |(part, at): (&NewPart, u32)| Change::SetTiny {
        keyspace: K,
        part: at,
        duplicates: part.duplicates,
        tiny: part.tiny.clone(),
    };
    let edit = Edit {
        changes: store.parts.iter().zip(0..).map(tiny).collect(),
    };
    store.world.version = edit.apply(&store.world.version).unwrap();
    let slots = store.world.shape.ranges.slots;
    allow(&mut store, slots);
    store
}

/// Lets a keyspace have so many memtables that take writes, and no more.
fn allow(store: &mut Store, slots: usize) {
    let ranges = &mut store.world.shape.ranges;
    (ranges.slots, ranges.joins_above) = (slots, slots);
}

#[test]
fn where_fewer_parts_are_allowed_neighbours_are_joined() {
    let whole = [(0, &[("", 100_000)][..])];
    let mut store = with(&whole, 100_000);
    store.world.shape.ranges.slots = 4;
    store.world.memtables.get_mut(&(K, 0)).unwrap().sealed = 1;
    assert_eq!(planned(&store), "first-memtable: ");
    store.world.shape.ranges.slots = 1;
    assert_eq!(planned(&store), "nothing");
    let thirds = [
        (0, &[("", 10), ("c", 20)][..]),
        (0, &[("g", 30), ("p", 1)]),
        (0, &[("x", 2)]),
    ];
    let mut store = moved(&thirds);
    assert_eq!(planned(&store), "nothing");
    allow(&mut store, 2);
    assert_eq!(planned(&store), "fewer-parts: =10 c=20 | g=30 p=1 x=2");
    allow(&mut store, 1);
    assert_eq!(planned(&store), "fewer-parts: =10 c=20 g=30 p=1 x=2");
    store.world.shape.ranges.tiny_max = 2;
    assert_eq!(planned(&store), "fewer-parts: =30 g=33");
    // What an earlier move has handed down need not be merged before.
    let runs = World::of("L1: #9[a..f] / #8[c..z]", &[1 << 40]).version;
    let runs = runs.keyspaces[&K].levels.clone();
    let keyspace = store.world.version.keyspaces.get_mut(&K).unwrap();
    std::sync::Arc::make_mut(keyspace).levels = runs;
    assert_eq!(planned(&store), "fewer-parts: =30 g=33");
    // Given cuts make more than that.
    store.world.shape.ranges.joins_above = 3;
    assert_eq!(planned(&store), "nothing");
    store.world.shape.ranges.joins_above = usize::MAX;
    assert_eq!(planned(&store), "nothing");
    // Those that somebody gave stay.
    let mut store = with(&thirds, 0);
    allow(&mut store, 1);
    assert_eq!(planned(&store), "nothing");
    // What is duplicated too often is less often.
    let mut store = moved(&[(7, &[("", 1000)][..]), (2, &[("c", 5)])]);
    allow(&mut store, 5);
    let Some(Job::Recut(job)) = MoveCuts.plan(&store.world.view()) else {
        panic!("{}", planned(&store));
    };
    let duplicates: Vec<u32> = job.parts.iter().map(|p| p.duplicates).collect();
    assert_eq!(duplicates, [3, 0]);
    allow(&mut store, 64);
    assert_eq!(planned(&store), "nothing");
    store.world.shape.ranges.duplicates_max = 0;
    assert_eq!(planned(&store), "fewer-parts: =1000 | c=5");
}

#[test]
fn one_tiny_range_that_is_too_hot_calls_for_all_cuts_anew() {
    let point = [
        (0, &[("", 10), ("b", 10)][..]),
        (0, &[("g", 300)]),
        (0, &[("p", 20)]),
    ];
    assert_eq!(planned(&with(&point, 100_000)), "major: ");
    let mut store = with(&point, 100_000);
    // Found to be no better so often, it is not looked at again at once.
    store.in_vain = 10;
    let writes = store.writes();
    store.world.writes.insert(K, writes);
    assert_eq!(planned(&store), "nothing");
    // A duplicated part counts by its memtables, and gives nothing away.
    let twice = [
        (0, &[("", 90), ("b", 60)][..]),
        (2, &[("g", 450)]),
        (0, &[("p", 150)]),
    ];
    assert_eq!(planned(&with(&twice, 100_000)), "nothing");
}

#[test]
fn rebuilt_parts_divide_any_keys_and_hot_ones_are_duplicated() {
    let mut dice = Dice(99);
    for round in 0..300 {
        let kinds = 1 + dice.roll() % 200;
        let count = (dice.roll() % 2000) as usize;
        let keys: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let n = dice.roll() % kinds * (dice.roll() % 3);
                format!("{n:04}").into_bytes()
            })
            .collect();
        let keys = sorted(&keys);
        let options = RangeOptions {
            slots: 1 + (dice.roll() % 64) as usize,
            tiny_max: 1 + (dice.roll() % 20) as usize,
            duplicates_max: (dice.roll() % 8) as u32,
            prefix_bytes: (dice.roll() % 5) as usize,
            ..RangeOptions::default()
        };
        let parts = rebuild(&keys, &options);
        let slots: usize = parts.iter().map(|p| 1 + p.duplicates as usize).sum();
        assert!(slots <= options.slots, "round {round}");
        assert!(parts[0].start().is_empty());
        let tiny: Vec<_> = parts.iter().flat_map(|p| &p.tiny).collect();
        assert!(
            tiny.windows(2).all(|t| t[0].start < t[1].start),
            "round {round}"
        );
        assert!(parts.iter().all(|p| p.tiny.len() <= options.tiny_max));
        assert!(parts.iter().all(|p| p.duplicates <= options.duplicates_max));
        let writes: u64 = tiny.iter().map(|t| t.writes).sum();
        assert_eq!(writes, keys.len() as u64, "round {round}");
        let all: f64 = shares(&parts, &keys).iter().sum();
        assert!(keys.is_empty() || (all - 1.0).abs() < 1e-9, "round {round}");
    }
}

/// With `change` made to the triggers of the usual options for so many memtables.
fn triggered(slots: usize, change: impl FnOnce(&mut RecutTriggers)) -> RangeOptions {
    let mut options = options(slots);
    change(&mut options.triggers);
    options
}

#[test]
fn the_share_from_which_a_key_is_duplicated_is_a_trigger() {
    // Two even shares of ten, and then one.
    let keys = |hot: usize| -> Vec<Vec<u8>> {
        let others = (0..1000 - hot).map(|n| format!("b{n:04}").into_bytes());
        std::iter::repeat_n(b"a".to_vec(), hot)
            .chain(others)
            .collect()
    };
    let duplicates = |hot, shares| -> u32 {
        let options = triggered(10, |t| t.duplicate_shares = shares);
        let parts = rebuild(&sorted(&keys(hot)), &options);
        parts.iter().map(|p| p.duplicates).sum()
    };
    assert_eq!((duplicates(200, 2.0), duplicates(200, 2.01)), (1, 0));
    assert_eq!((duplicates(149, 1.5), duplicates(150, 1.5)), (0, 1));
    assert_eq!(duplicates(900, 1000.0), 0);
}

#[test]
fn how_many_keys_a_part_needs_is_a_trigger() {
    let keys: Vec<Vec<u8>> = (0..40).map(|n| format!("{n:02}").into_bytes()).collect();
    let parts = |least| {
        let options = triggered(8, |t| t.part_keys_min = least);
        rebuild(&sorted(&keys), &options).len()
    };
    assert_eq!([1, 5, 6, 20, 21].map(parts), [8, 8, 6, 2, 1]);
}

/// A reorganisation that makes all parts anew, so many of them.
fn of_all_parts(slots: usize) -> Recut {
    Recut {
        keyspace: K,
        parts: Vec::new(),
        slots,
        reason: Reason::new("test"),
    }
}

#[test]
fn what_a_major_reorganisation_must_gain_is_a_trigger() {
    // Three quarters of the writes go to the first of two parts, and could be one half.
    let found = |gain_share_min| {
        let parts = [(0, &[("", 750)][..]), (0, &[("075", 250)])];
        let mut store = with(&parts, 100_000);
        store.world.shape.ranges.triggers.gain_share_min = gain_share_min;
        let entry = |n: u64| (format!("{:03}", n % 100).into_bytes().into(), SeqNo(n + 1));
        let mut entries: Vec<(Box<[u8]>, SeqNo)> = (0..200).map(entry).collect();
        entries.sort();
        let second = entries.split_off(150);
        let sampled = [entries, second].into_iter().zip(&store.parts);
        let sampled = sampled.map(|(entries, part)| PartSample {
            entries,
            tiny: part.tiny.clone(),
        });
        let sample = Sample {
            parts: sampled.collect(),
        };
        let recut = of_all_parts(2);
        match judged(&store.world.view(), &recut, &sample) {
            Judged::Better(parts, _) => parts.len(),
            Judged::InVain(gain) => {
                assert!((gain.before, gain.after) == (0.75, 0.5), "{gain:?}");
                0
            }
            Judged::TooLittle => panic!("too little"),
        }
    };
    assert_eq!([0.0, 0.2, 0.33].map(found), [2; 3]);
    assert_eq!([0.34, 0.9, 1.0].map(found), [0; 3]);
}

#[test]
fn a_view_without_the_writes_to_a_keyspace_says_nothing_of_its_cuts() {
    let mut store = with(&[(0, &[("", 750)][..]), (0, &[("m", 250)])], 100_000);
    store.world.writes.clear();
    let recut = of_all_parts(2);
    let sample = store.sample();
    let judged = judged(&store.world.view(), &recut, &sample);
    assert!(matches!(judged, Judged::TooLittle), "{judged:?}");
}

#[test]
fn how_many_parts_are_few_is_a_trigger() {
    let even = [(0, &[("", 100)][..]), (0, &[("m", 100)])];
    let planned_with = |share| {
        let mut store = with(&even, 100_000);
        store.world.shape.ranges.slots = 5;
        store.world.shape.ranges.triggers.few_parts_share = share;
        planned(&store)
    };
    for (share, expected) in [
        (0.4, "few-parts: "),
        (1.0, "few-parts: "),
        (0.39, "nothing"),
        (0.0, "nothing"),
    ] {
        assert_eq!(planned_with(share), expected, "{share}");
    }
}

/// Few parts that were uneven, and could be no less so, stayed few.
#[test]
fn few_parts_are_cut_anew_however_uneven_they_are() {
    // 100 of 139, of which 83.4 are not too hot.
    let uneven = [(0, &[("", 40), ("b", 60)][..]), (0, &[("g", 39)])];
    let mut store = with(&uneven, 100_000);
    store.world.shape.ranges.major_excess = 10.0;
    let mut planned_with = |slots| {
        store.world.shape.ranges.slots = slots;
        planned(&store)
    };
    assert_eq!(planned_with(3), "nothing");
    assert_eq!(planned_with(4), "few-parts: ");
}

#[test]
fn after_how_many_looks_a_keyspace_is_cut_without_a_full_memtable_is_a_trigger() {
    let planned_after = |looks, since| {
        let mut store = with(&[(0, &[("", 100)][..])], since);
        store.world.shape.ranges.slots = 4;
        store.world.shape.ranges.triggers.uncut_looks = looks;
        planned(&store)
    };
    for looks in [1, 16, 1_000_000] {
        // A thousand writes a look, for each of four parts.
        assert_eq!(planned_after(looks, looks * 4000), "first-memtable: ");
        assert_eq!(planned_after(looks, looks * 4000 - 1), "nothing");
    }
}

#[test]
fn how_long_looks_in_vain_keep_back_the_next_one_is_a_trigger() {
    let planned_after = |doublings, since| {
        let mut store = with(&[(0, &[("", 10)][..]), (0, &[("m", 300)])], since);
        store.world.shape.ranges.triggers.wait_doublings_max = doublings;
        store.in_vain = 10;
        let writes = store.writes();
        store.world.writes.insert(K, writes);
        planned(&store)
    };
    for doublings in [0, 3, 10] {
        let wait = 2000 << doublings;
        assert_eq!(planned_after(doublings, wait), "major: ");
        assert_eq!(planned_after(doublings, wait - 1), "nothing");
    }
    assert_eq!(
        planned_after(32, 2000 << 10),
        "major: ",
        "no more than it was in vain"
    );
}

/// With nothing to be gained the same cuts are as good, and would be made again and again.
#[test]
fn cuts_that_would_be_the_same_are_not_made_anew() {
    let mut store = with(&[(0, &[("", 1000)][..])], 100_000);
    store.world.shape.ranges.triggers.gain_share_min = 0.0;
    store.world.shape.ranges.slots = 4;
    let recut = of_all_parts(4);
    let mut found = |prefix_bytes| {
        store.world.shape.ranges.prefix_bytes = prefix_bytes;
        let entry = |n: u64| {
            (
                format!("key{n:03}").into_bytes().into(),
                SeqNo(n * 7919 % 500),
            )
        };
        let sample = Sample {
            parts: vec![PartSample {
                entries: (0..500).map(entry).collect(),
                tiny: store.parts[0].tiny.clone(),
            }],
        };
        judged(&store.world.view(), &recut, &sample)
    };
    assert!(matches!(found(0), Judged::Better(..)));
    // All keys have this prefix, so that there is one part.
    assert!(matches!(found(3), Judged::InVain(_)));
}

/// What is written now gathers in a tenth of the keys, or was gathered there and is not any more.
#[test]
fn cuts_that_earlier_writes_make_are_judged_by_later_ones() {
    let mut store = with(&[(0, &[("", 1000)][..])], 100_000);
    store.world.shape.ranges.slots = 4;
    let recut = of_all_parts(4);
    let found = |gathered_from: u64| {
        let entry = |n: u64| {
            let key = match n / 250 == gathered_from {
                true => 300 + n % 250 * 37 % 100,
                false => n % 250 * 37 % 250 * 4,
            };
            (format!("{key:03}").into_bytes().into(), SeqNo(n + 1))
        };
        let mut entries: Vec<(Box<[u8]>, SeqNo)> = (0..500).map(entry).collect();
        entries.sort();
        let sample = Sample {
            parts: vec![PartSample {
                entries,
                tiny: store.parts[0].tiny.clone(),
            }],
        };
        judged(&store.world.view(), &recut, &sample)
    };
    // Cuts of all keys, and nearly all writes in one part.
    let gathered = found(1);
    let Judged::InVain(gain) = gathered else {
        panic!("{gathered:?}");
    };
    assert!(gain.before == 1.0 && gain.after > 0.8, "{gain:?}");
    // Cuts of few keys, and most writes on one side of them.
    let spread = found(0);
    let Judged::Better(_, gain) = spread else {
        panic!("{spread:?}");
    };
    assert!(gain.before == 1.0 && gain.after < 0.7, "{gain:?}");
}
