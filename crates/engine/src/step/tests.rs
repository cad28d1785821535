//! Of who does which job.

use std::sync::atomic::AtomicBool;

use thermocline_model::job::{Flush, Reason, Relocate};
use thermocline_model::tier::TierId;
use thermocline_model::view::View;
use thermocline_policy::Planner;

use super::*;
use crate::store::{ObjectKind, ObjectName};
use crate::{Db, Options, Tier};

/// Makes room by moving the first table down, once.
#[derive(Debug, Default)]
struct Once(AtomicBool);

impl Planner for Once {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let mut tables = view.version.tables();
        let table = tables.next().filter(|t| t.tier() == TierId(0))?;
        let moved = Relocate {
            keyspace: KeyspaceId::DEFAULT,
            table: table.id,
            to: TierId(1),
            reason: Reason::new("once"),
        };
        let is_first = !self.0.swap(true, Ordering::Relaxed);
        is_first.then_some(Job::Relocate(moved))
    }
}

/// Plans nothing.
#[derive(Debug)]
struct Never;

impl Planner for Never {
    fn plan(&mut self, _: &View<'_>) -> Option<Job> {
        None
    }
}

/// Flushes, but [`Once`] has a table give way before.
#[derive(Debug, Default)]
struct GivesWay(Once);

impl Planner for GivesWay {
    fn plan(&mut self, view: &View<'_>) -> Option<Job> {
        let flush = Flush {
            keyspace: KeyspaceId::DEFAULT,
            part: 0,
            beside: Vec::new(),
            active: true,
            reason: Reason::new("test"),
        };
        self.0.plan(view).or(Some(Job::Flush(flush)))
    }
}

fn store(directory: &std::path::Path, preset: &str, threads: usize) -> Db {
    let options = Options::new()
        .tier(Tier::new("fast", directory.join("f")))
        .tier(Tier::new("slow", directory.join("s")))
        .preset(preset)
        .background_threads(threads);
    Db::open(options).unwrap()
}

/// A store without threads that has one table, for which room is made [`Once`].
fn store_of_one(directory: &std::path::Path) -> Db {
    let db = store(directory, "mutant", 0);
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    db.engine().scheduler.lock().preset.room = Some(Box::new(Once::default()));
    db
}

/// Who takes it does so even if the store is about to be closed.
fn take_what_is_handed_over(engine: &Engine) {
    engine.closing.store(true, Ordering::Release);
    engine.work_until_closed(Role::Handed);
    engine.closing.store(false, Ordering::Release);
}

#[test]
fn who_only_flushes_hands_over_what_makes_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let db = store_of_one(directory.path());
    let engine = db.engine();
    let tier = || db.tables()[0].tier.clone();
    assert!(!engine.step_as(Role::NoFlush).unwrap());
    assert!(!engine.step_as(Role::FlushOnly).unwrap());
    assert_eq!(tier(), "fast", "nobody has taken it yet");
    {
        let scheduler = engine.scheduler.lock();
        assert!(scheduler.handed.is_some());
        assert_eq!((scheduler.running, scheduler.busy.len()), (1, 1));
    }
    take_what_is_handed_over(engine);
    assert_eq!(tier(), "slow");
    let scheduler = engine.scheduler.lock();
    assert!(scheduler.handed.is_none() && scheduler.busy.is_empty());
    assert_eq!(scheduler.running, 0);
}

/// Measured: it moved a table for a third of a second, and all writers waited.
#[test]
fn who_only_flushes_hands_over_what_gives_way_to_a_flush_and_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let db = store_of_one(directory.path());
    let engine = db.engine();
    {
        let mut scheduler = engine.scheduler.lock();
        scheduler.preset.room = Some(Box::new(Never));
        scheduler.preset.flush = Box::new(GivesWay::default());
    }
    db.put(b"key", b"anew").unwrap();
    let flushes = engine.counters.flushes.get();
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert_eq!(engine.counters.flushes.get(), flushes + 1);
    let waits = || engine.scheduler.lock().handed.is_some();
    assert!(waits());
    take_what_is_handed_over(engine);
    assert!(!waits());
    assert_eq!(db.tables().iter().filter(|t| t.tier == "slow").count(), 1);
}

/// Measured: it was planned for the room that the table leaves, and then went to the slow tier, as
/// nobody told its placer.
#[test]
fn a_flush_lies_where_what_is_moved_away_has_room_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .tier(Tier::new("fast", directory.path().join("f")).capacity_bytes(1 << 20))
        .tier(Tier::new("slow", directory.path().join("s")))
        .preset("mutant")
        .background_threads(0);
    let db = Db::open(options).unwrap();
    let put = || {
        for n in 0..700u32 {
            let value: Vec<u8> = (0..1000).map(|at| (at * at * n) as u8).collect();
            db.put(&n.to_be_bytes(), &value).unwrap();
        }
    };
    put();
    db.flush().unwrap();
    let on = |tier: &str| db.tables().iter().filter(|t| t.tier == tier).count();
    assert_eq!((on("fast"), on("slow")), (1, 0));
    put();
    let engine = db.engine();
    engine.scheduler.lock().preset.flush = Box::new(GivesWay::default());
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert!(engine.scheduler.lock().handed.is_some());
    assert_eq!((on("fast"), on("slow")), (2, 0));
    take_what_is_handed_over(engine);
    assert_eq!((on("fast"), on("slow")), (1, 1));
}

#[test]
fn where_one_thread_does_all_it_makes_room_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let db = store_of_one(directory.path());
    assert!(db.step().unwrap());
    assert!(db.engine().scheduler.lock().handed.is_none());
    assert_eq!(db.tables()[0].tier, "slow");
}

#[test]
fn a_thread_for_what_is_handed_over_is_there_where_somebody_hands_over() {
    let directory = tempfile::tempdir().unwrap();
    let roles = |preset: &str, threads: usize| {
        let place = directory.path().join(format!("{preset}-{threads}"));
        store(&place, preset, threads).engine().roles()
    };
    assert_eq!(roles("mutant", 0), []);
    assert_eq!(roles("mutant", 1), [Role::Any]);
    let two = [Role::FlushOnly, Role::NoFlush];
    assert_eq!(roles("leveled", 2), two);
    assert_eq!(roles("mutant", 2), [&two[..], &[Role::Handed]].concat());
    let three = [Role::FlushOnly, Role::NoFlush, Role::NoFlush, Role::Handed];
    assert_eq!(roles("nova", 3), three);
    let one_tier = Options::at(directory.path().join("one")).preset("nova");
    let one_tier = Db::open(one_tier.background_threads(2)).unwrap();
    assert_eq!(one_tier.engine().roles(), two);
}

/// The inputs of a merge took up to 65 milliseconds to delete, and a flush waited for it.
#[test]
fn who_only_flushes_deletes_when_there_is_nothing_to_flush_and_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .background_threads(0)
        .write_buffer_bytes(1 << 20);
    let db = Db::open(options).unwrap();
    let engine = db.engine();
    let (graveyard, store) = (&engine.home.graveyard, &engine.home.stores[0]);
    let name = |id| ObjectName {
        id,
        kind: ObjectKind::Data,
    };
    // The first cannot be deleted, as it is a directory.
    let stays = store.directory().join(name(1000).to_string());
    std::fs::create_dir(&stays).unwrap();
    for id in 1000..1003 {
        graveyard.put(Arc::clone(store), name(id));
    }
    let waiting = || graveyard.len();
    for n in 0..600u32 {
        db.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
    }
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert_eq!((engine.counters.flushes.get(), waiting()), (1, 3));
    assert!(!engine.step_as(Role::FlushOnly).unwrap());
    assert_eq!(waiting(), 3, "it comes after the others");
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert_eq!(waiting(), 1);
    std::fs::remove_dir(&stays).unwrap();
    assert!(engine.step_as(Role::FlushOnly).unwrap());
    assert!(!engine.step_as(Role::FlushOnly).unwrap());
    // The others delete all of it first.
    graveyard.put(Arc::clone(store), name(1003));
    graveyard.put(Arc::clone(store), name(1004));
    engine.step_as(Role::NoFlush).unwrap();
    assert_eq!(waiting(), 0);
}
