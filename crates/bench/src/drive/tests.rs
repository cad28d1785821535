use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::engine::{Compression, Cursor, Load};
use crate::mix::parse;

/// An engine that keeps everything in a map, and can be made to lose or mix up.
struct Map {
    entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The keys in the order in which they were put.
    put: Mutex<Vec<Vec<u8>>>,
    /// How often it still says what it has counted, before it fails to.
    says: AtomicU32,
}

struct MapCursor<'a> {
    map: &'a Map,
    at: Option<(Vec<u8>, Vec<u8>)>,
}

struct MapLoad<'a>(&'a Map);

impl Engine for Map {
    type Cursor<'a> = MapCursor<'a>;
    type Load<'a> = MapLoad<'a>;

    fn open(_: &[Home], _: &EngineOptions) -> Result<Self> {
        Ok(Map {
            entries: Mutex::default(),
            put: Mutex::default(),
            says: u32::MAX.into(),
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut entries = self.entries.lock().unwrap();
        entries.insert(key.to_vec(), value.to_vec());
        self.put.lock().unwrap().push(key.to_vec());
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.entries.lock().unwrap().remove(key);
        Ok(())
    }

    fn get(&self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<bool> {
        let entries = self.entries.lock().unwrap();
        let value = entries.get(key);
        if let Some(value) = value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, _: &[&[u8]], _: impl FnMut(&[u8])) -> Result<usize> {
        Ok(0)
    }

    fn cursor(&self) -> Result<MapCursor<'_>> {
        Ok(MapCursor {
            map: self,
            at: None,
        })
    }

    fn bulk_load(&self) -> Result<MapLoad<'_>> {
        Ok(MapLoad(self))
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn counted(&self) -> Result<Vec<Counted>> {
        if self.says.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err("nothing is counted".into());
        }
        let entries = self.entries.lock().unwrap().len() as u64;
        Ok(vec![Counted::new("entries", entries)])
    }
}

impl Load for MapLoad<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}

impl Cursor for MapCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let entries = self.map.entries.lock().unwrap();
        let next = entries.range(key.to_vec()..).next();
        self.at = next.map(|(key, value)| (key.clone(), value.clone()));
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.seek(b"")
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let mut after = self.key().to_vec();
        after.push(0);
        self.seek(&after)
    }

    fn prev(&mut self) -> Result<()> {
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.at.as_ref().unwrap().0
    }

    fn value(&self) -> &[u8] {
        &self.at.as_ref().unwrap().1
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}

fn driver() -> (EngineDriver<Map>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup {
        homes: vec![Home::plain(directory.path().join("home"))],
        engine: EngineOptions {
            held: false,
            write_buffer_bytes: 1 << 20,
            block_cache_bytes: 1 << 20,
            filter_bits_per_key: 10,
            background_threads: 1,
            entries: 0,
            direct_reads: false,
            synced: false,
            compression: Compression::None,
            preset: None,
            options_file: None,
        },
    };
    (EngineDriver::new(setup), directory)
}

fn order(workload: &str) -> RunOrder {
    RunOrder {
        workload: parse(workload).unwrap().remove(0),
        records: 500,
        clients: 3,
        warmup_seconds: 0.02,
        seconds: 0.1,
        operations: None,
        rate: None,
        seed: 7,
        load_only: false,
        keep_inserted: false,
        compressible: 0.0,
    }
}

#[test]
fn every_workload_runs_and_counts_its_operations() {
    for name in ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"] {
        let (mut driver, _directory) = driver();
        let order = order(name);
        let outcome = driver.run(&order).unwrap();
        assert!(outcome.load_seconds.is_some());
        let mix = order.workload.mix;
        let some = [
            mix.read > 0,
            mix.update + mix.insert + mix.read_modify_write > 0,
            mix.scan > 0,
        ];
        assert_eq!(outcome.counts.map(|count| count > 0), some, "{name}");
        assert_eq!(outcome.latency_ns.map(|ns| ns.is_some()), some, "{name}");
        assert_eq!(outcome.long_write_seconds.is_some(), some[1], "{name}");
        let curves = outcome.curves_ns.each_ref().map(|curve| curve.len());
        assert_eq!(
            curves,
            some.map(|some| if some { QUANTILES.len() } else { 0 })
        );
        assert_eq!(outcome.written_bytes > 0, mix.writes(), "{name}");
        assert!(outcome.operations > 100 && outcome.seconds >= 0.1, "{name}");
        assert_eq!(outcome.missing, 0);
        // Inserts are counted as live data.
        let entries = outcome.counted[0].count;
        assert_eq!(entries > 0, mix.insert > 0, "{name}");
        let live = outcome.live_bytes.unwrap() as f64 / (500 + entries) as f64;
        assert!((1020.0..1025.0).contains(&live), "{name}: {live}");
    }
}

#[test]
fn a_store_is_loaded_again_only_when_it_must_be() {
    let (mut driver, _directory) = driver();
    let mut loads = |name: &str| driver.run(&order(name)).unwrap().load_seconds.is_some();
    assert!(loads("ycsb-a"));
    assert!(!loads("ycsb-c"), "updates change no key");
    assert!(!loads("ycsb-d"));
    assert!(loads("ycsb-c"), "after inserts there are other records");
    assert!(loads("hyperdb-c"), "its keys are others");
    assert!(loads("ohdb-readrandom"));
    assert!(loads("ohdb-readrandom"), "it has settled meanwhile");
    assert!(loads("ohdb-readrandom-settled"));
    assert!(!loads("ohdb-readrandom-settled"));
}

/// Each thread loaded a stretch of its own once: the last record was put when the first
/// thread was done with half of all, and "latest" meant something else than it says.
#[test]
fn records_are_loaded_in_their_order() {
    let (mut driver, _directory) = driver();
    let mut order = order("ycsb-c");
    order.workload.keys.clustered = true;
    order.records = 50_000;
    order.load_only = true;
    driver.run(&order).unwrap();
    let put = driver.store.as_ref().unwrap().put.lock().unwrap();
    assert_eq!(put.len(), 50_000);
    let mut last = put[49_000..].to_vec();
    let in_order = last.is_sorted();
    last.sort();
    let mut all = put.to_vec();
    all.sort();
    // A thread may be late with what it has taken, and with no more.
    let late = last.iter().filter(|key| **key < all[48_000]).count();
    assert!(late <= 32, "{late} late, in order: {in_order}");
}

#[test]
fn fillrandom_writes_as_often_as_there_are_records() {
    let (mut driver, _directory) = driver();
    let outcome = driver.run(&order("ohdb-fillrandom")).unwrap();
    assert_eq!((outcome.operations, outcome.load_seconds), (500, None));
    // Of n draws from n records, 1 - 1/e of them are hit.
    let entries = outcome.counted[0].count;
    assert!((280..350).contains(&entries), "{entries}");
    assert_eq!(outcome.counted_measured[0].count, entries);
    let outcome = driver.run(&order("ohdb-readrandom")).unwrap();
    let missing = outcome.missing as f64 / outcome.counts[0] as f64;
    assert!((0.3..0.45).contains(&missing), "{missing}");
}

#[test]
fn a_lost_record_fails_the_run() {
    let (mut driver, _directory) = driver();
    let order = order("ycsb-c:uniform");
    driver.run(&order).unwrap();
    let store = driver.store.as_ref().unwrap();
    store.entries.lock().unwrap().pop_first();
    let error = driver.run(&order).unwrap_err().to_string();
    assert!(error.contains("is not found"), "{error}");
}

#[test]
fn a_value_of_another_record_fails_the_run() {
    let (mut driver, _directory) = driver();
    let order = order("ycsb-f:uniform");
    driver.run(&order).unwrap();
    let store = driver.store.as_ref().unwrap();
    let mut entries = store.entries.lock().unwrap();
    let first = entries.values().next().unwrap().clone();
    entries
        .values_mut()
        .for_each(|value| value.clone_from(&first));
    drop(entries);
    let error = driver.run(&order).unwrap_err().to_string();
    assert!(error.contains("another record's value"), "{error}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let (mut driver, _directory) = driver();
    let mut order = order("ycsb-a");
    order.rate = Some(1000.0);
    order.seconds = 0.5;
    let outcome = driver.run(&order).unwrap();
    assert!(outcome.counts[1] > 0);
    assert_eq!(outcome.long_write_seconds, None);
    // A machine that is busy may fall behind, but none runs ahead.
    assert!(
        (1..=520).contains(&outcome.operations),
        "{}",
        outcome.operations
    );
}

#[test]
fn a_counted_run_does_as_many_operations_as_were_asked_for() {
    let (mut driver, _directory) = driver();
    let mut order = order("ycsb-a");
    order.seconds = 1e6;
    order.warmup_seconds = 1e6;
    for [warmup, measured] in [[0, 1], [0, 5_000], [1, 5_000], [5_000, 1]] {
        order.operations = Some([warmup, measured]);
        let outcome = driver.run(&order).unwrap();
        let counted = outcome.counts.iter().sum::<u64>();
        // Some begin or end between the end of the warm-up and the moment from which they count.
        let most = measured + u64::from(order.clients);
        assert!(outcome.operations >= measured && counted <= most);
        assert!(warmup > 0 || [outcome.operations, counted] == [measured; 2]);
    }
}

/// Seconds in stalls once were those of warm-up and settling, too.
#[test]
fn what_is_counted_before_the_measured_time_is_not_of_it() {
    let (mut driver, _directory) = driver();
    let mut order = order("ycsb-d");
    order.warmup_seconds = 0.1;
    let outcome = driver.run(&order).unwrap();
    let [all, measured] =
        [&outcome.counted, &outcome.counted_measured].map(|counted| counted[0].count);
    assert!(0 < measured && measured < all, "{measured} of {all}");
}

#[test]
fn an_engine_that_cannot_say_what_it_counted_fails_the_run() {
    for says in 0..4 {
        let (mut driver, _directory) = driver();
        driver.run(&order("ycsb-c")).unwrap();
        driver.store.as_mut().unwrap().says = says.into();
        let mut order = order("ycsb-d");
        if says < 2 {
            // What fails before anything is measured is not waited for.
            order.seconds = 1e6;
        }
        let error = driver.run(&order).unwrap_err();
        assert_eq!(error.to_string(), "nothing is counted", "{says}");
    }
}

#[test]
fn a_trace_is_replayed_with_its_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    let lines = "0,a,1,10,1,get,0\n1,b,1,20,1,set,0\n2,c,1,5,1,incr,0\n3,d,1,9,1,delete,0\n";
    std::fs::write(&path, lines).unwrap();
    let (mut driver, _other) = driver();
    let order = order(&format!("trace={}", path.display()));
    let outcome = driver.run(&order).unwrap();
    assert_eq!(outcome.counts.map(|count| count > 0), [true, true, false]);
    let store = driver.store.as_ref().unwrap();
    let entries = store.entries.lock().unwrap();
    assert_eq!(entries[&b"b"[..]].len(), 20);
    assert!(!entries.contains_key(&b"d"[..]));
}

#[test]
fn drift_compares_the_halves() {
    assert_eq!(clock::drift(&[]), None);
    assert_eq!(clock::drift(&[5]), None);
    assert_eq!(clock::drift(&[10, 10, 99, 10, 10]), Some(0.0));
    assert_eq!(clock::drift(&[5, 15]), Some(1.0));
    assert_eq!(clock::drift(&[0, 0]), Some(0.0));
}

#[test]
fn counts_are_those_since_the_beginning() {
    let before = [Counted::new("merges", 5)];
    let after = vec![Counted::new("merges", 7), Counted::new("flushes", 2)];
    let counts: Vec<u64> = counted_since(&before, after)
        .iter()
        .map(|c| c.count)
        .collect();
    assert_eq!(counts, [2, 2]);
}

/// Runs `ycsb-a` on `E` with a fast tier for 16 % of the data; the bytes on both
/// tiers.
#[cfg(any(feature = "thermocline", feature = "rocksdb"))]
fn over_two_tiers<E: Engine>() -> [u64; 2] {
    const RECORDS: u64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let (map, _directory) = driver();
    let mut setup = map.setup.clone();
    setup.homes = ["fast", "slow"]
        .map(|name| Home {
            name: name.to_string(),
            ..Home::plain(directory.path().join(name))
        })
        .to_vec();
    setup.homes[0].capacity_bytes = Some(RECORDS * 1000 * 16 / 100);
    let mut driver = EngineDriver::<E>::new(setup);
    let mut order = order("ycsb-a");
    order.records = RECORDS;
    let outcome = driver.run(&order).unwrap();
    assert_eq!(outcome.missing, 0);
    let count = |name: &str| {
        let counted = driver.store.as_ref().unwrap().counted().unwrap();
        let found = counted.iter().find(|counted| counted.name == name);
        found.map_or(0, |counted| counted.count)
    };
    assert!(count("flushes") > 0 && count("merges") > 0);
    [outcome.homes[0].bytes, outcome.homes[1].bytes]
}

#[cfg(feature = "thermocline")]
#[test]
fn thermocline_keeps_most_of_the_data_on_the_slow_tier() {
    let [fast, slow] = over_two_tiers::<crate::engine::thermocline::Thermocline>();
    assert!(slow > 14_000_000 && fast < 9_000_000, "{fast} {slow}");
}

#[cfg(feature = "rocksdb")]
#[test]
fn db_paths_keep_most_of_the_data_on_the_slow_tier() {
    let [fast, slow] = over_two_tiers::<crate::engine::rocksdb::Rocksdb>();
    assert!(slow > 14_000_000 && fast < 9_000_000, "{fast} {slow}");
}
