//! What happens to a write: room, log, memtables, publication, durability.
//!
//! Under the commit mutex a writer takes sequence numbers and appends its
//! record to the log; that is all that is serial. Insertion into the memtables
//! runs concurrently. Publication, which makes entries visible, happens in
//! sequence order, so that a reader never sees a later write without an
//! earlier one. A writer that asked for device durability then waits for a
//! persist of the log, which concurrent writers share.
//!
//! `Ensures:` a batch is one record of the log, so it is whole or absent after
//! a crash; it is published with one store, so readers see it whole or not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::key::{Kind, Prefix, SeqNo};
use thermocline_model::version::KeyspaceId;
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{BATCH_BYTES_MAX, Operations, WriteBatch};
use crate::engine::{Commit, Engine, LiveMemtable, Owed, PartView, ReadView, Space};
use crate::error::{Error, ErrorKind, Result};
use crate::lookup::Indexing;
use crate::options::Durability;
use crate::seal::SealedRoom;
use crate::stats::Stall;
use crate::sync::MutexGuard;

/// What an entry takes in a memtable beyond its bytes in the batch: header, node
/// and what both are rounded up by, on average.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// How one write is acknowledged.
///
/// ```
/// use thermocline::{Durability, WriteBatch, WriteOptions};
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// let safe = WriteOptions::default().durability(Durability::Device);
/// let mut batch = WriteBatch::new();
/// batch.put(b"paid", b"yes")?;
/// db.write_with(&batch, safe)?; // One write may wait for the device,
/// batch.clear();
/// batch.put(b"visits", b"17")?;
/// db.write_with(&batch, WriteOptions::default())?; // the next one need not.
/// # assert!(db.get(b"paid")?.is_some() && db.get(b"visits")?.is_some());
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct WriteOptions {
    durability: Option<Durability>,
}

impl WriteOptions {
    /// What an acknowledgement means. Default: the store's own durability.
    ///
    /// ```
    /// # use thermocline::{Durability, WriteBatch, WriteOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"paid", b"yes")?;
    /// db.write_with(&batch, WriteOptions::default().durability(Durability::Device))?;
    /// assert!(db.get(b"paid")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = Some(durability);
        self
    }
}

/// The memtables that one batch goes to: nearly always one.
struct Route {
    space: Arc<Space>,
    view: Arc<ReadView>,
    /// Which memtable of a duplicated part takes the batch.
    turn: u64,
}

impl Engine {
    /// Commits `batch`.
    pub(crate) fn write(&self, batch: &WriteBatch, options: WriteOptions) -> Result<()> {
        if batch.is_empty() {
            return self.check_writable();
        }
        batch.check_store(self.store_id)?;
        let payload = batch.encoded();
        if payload.len() > BATCH_BYTES_MAX {
            return Err(Error::invalid("batch size in bytes")
                .expected(format!("at most {BATCH_BYTES_MAX}"), payload.len()));
        }
        let checksum = crc32c::crc32c(payload);
        self.admit(payload)?;
        let (mut commit, routes) = self.enter(payload)?;
        let count = batch.len() as u32;
        let first = commit.next_seq;
        let last = SeqNo(first.0 + u64::from(count) - 1);
        if last.0 >= SeqNo::MAX.0 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "sequence numbers are used up",
            ));
        }
        let log = commit
            .log
            .as_mut()
            .ok_or_else(|| Error::invalid("the store is open for reading only"))?;
        let owed = Owed(self);
        if let Err(e) = log.append(first, count, payload, checksum) {
            owed.settle();
            if e.kind() == ErrorKind::Poisoned {
                self.poison(&e);
            }
            self.counters.failed_writes.add(1);
            return Err(e);
        }
        let segment = log.segment();
        if segment != self.log_segment.load(Ordering::Relaxed) {
            self.log_bytes.store(log.size_bytes(), Ordering::Relaxed);
        }
        commit.next_seq = last.next();
        // Before the mutex is free: a flush that seals these memtables must
        // know that entries are on their way.
        for_each_memtable(&routes, payload, &mut |memtable| {
            memtable.pending.fetch_add(1, Ordering::AcqRel);
            memtable.oldest_segment.fetch_min(segment, Ordering::AcqRel);
            memtable.last_seq.fetch_max(last.0, Ordering::AcqRel);
            memtable.first_seq.fetch_min(first.0, Ordering::AcqRel);
        });
        // After the memtables know their segment (see `log_need`).
        self.log_segment.store(segment, Ordering::Release);
        commit.grown_bytes += payload.len() as u64 + u64::from(count) * ENTRY_OVERHEAD_BYTES;
        if commit.grown_bytes >= self.options.memory_step_bytes() {
            commit.grown_bytes = 0;
            self.update_brake();
        }
        drop(commit);

        insert(&self.lookup, &routes, payload, first);
        let mut is_full = false;
        for_each_memtable(&routes, payload, &mut |memtable| {
            is_full |= memtable.is_full();
            memtable.pending.fetch_sub(1, Ordering::AcqRel);
        });
        if is_full {
            for route in &routes {
                route.space.may_be_full.store(true, Ordering::Release);
            }
        }
        let is_visible = self.published.publish(first, last);
        owed.settle();
        if !is_visible {
            return self.check_poisoned();
        }
        self.counters.writes.add(u64::from(count));
        self.counters.written_bytes.add(payload.len() as u64);
        if options.durability.unwrap_or(self.options.durability) == Durability::Device {
            self.persist_log(last)?;
        }
        Ok(())
    }

    /// Makes every entry up to `upto` durable on the device.
    pub(crate) fn persist_log(&self, upto: SeqNo) -> Result<()> {
        let Some(syncer) = &self.syncer else {
            return Ok(());
        };
        // Numbers that never were in the log, such as a bulk load's, are durable
        // elsewhere.
        syncer
            .persist(upto.min(syncer.appended_seq()))
            .inspect_err(|e| {
                // A failed persist is final (I5).
                self.poison(e);
            })
    }

    /// The write path, once there is room for the batch, and where it goes.
    fn enter(&self, payload: &[u8]) -> Result<(MutexGuard<'_, Commit>, Vec<Route>)> {
        loop {
            self.make_room(payload.len())?;
            let mut commit = self.commit.lock();
            self.check_writable()?;
            if let Some(routes) = self.routes(&mut commit, payload)? {
                return Ok((commit, routes));
            }
            drop(commit);
            self.wait_to_seal(|room| self.lacks_room(room, payload))?;
        }
    }

    /// Whether a memtable that the batch will reach is full and may not be sealed.
    fn lacks_room(&self, room: &SealedRoom, payload: &[u8]) -> bool {
        self.spaces.load().values().any(|space| {
            let view = space.view.load();
            Engine::is_stuck(
                room,
                &view,
                parts_reached(&view, payload, space.id).into_iter(),
            )
        })
    }

    /// The views of the keyspaces that the batch names, with room in every
    /// memtable it will reach; `None` where one is full and there are too many sealed ones.
    fn routes(&self, commit: &mut Commit, payload: &[u8]) -> Result<Option<Vec<Route>>> {
        let mut routes: Vec<Route> = Vec::with_capacity(1);
        let spaces = self.spaces.load();
        let (mut sealed, mut is_stuck) = (false, false);
        for operation in Operations::new(payload) {
            let operation = operation.map_err(Error::invalid)?;
            let id = operation.keyspace;
            if routes.iter().any(|r| r.space.id == id) {
                continue;
            }
            let space = spaces.get(&id).ok_or_else(|| {
                Error::new(ErrorKind::Closed, format!("keyspace {id} was dropped"))
            })?;
            space.check_open()?;
            let has_full = || space.view.load().parts.iter().any(PartView::is_full);
            let may_be_full = &space.may_be_full;
            // Taken back before the memtables are looked at: who fills one meanwhile says so again.
            if may_be_full.load(Ordering::Relaxed)
                && may_be_full.swap(false, Ordering::AcqRel)
                && has_full()
            {
                self.recut_if_due(commit, space);
                let view = space.view.load_full();
                // Where room is short, it is for those who need it.
                let bounds = self.options.bounds_sealed();
                let reached = bounds.then(|| parts_reached(&view, payload, id));
                let is_due = |at: usize, part: &PartView| {
                    part.is_full() && reached.as_ref().is_none_or(|r| r.contains(&at))
                };
                // One that nobody writes to may be full for long.
                let mut parts = view.parts.iter().enumerate();
                if parts.any(|(at, part)| is_due(at, part)) {
                    is_stuck |= !self.seal(commit, space, is_due);
                    sealed = true;
                }
                if has_full() {
                    may_be_full.store(true, Ordering::Release);
                }
            }
            routes.push(Route {
                space: Arc::clone(space),
                view: space.view.load_full(),
                turn: commit.next_seq.0,
            });
        }
        if sealed {
            self.update_brake();
            self.wake();
        }
        Ok((!is_stuck).then_some(routes))
    }

    /// Slows the writer down, or makes it wait, as the background falls behind.
    fn make_room(&self, bytes: usize) -> Result<()> {
        let brake = self.counters.brake.load(Ordering::Relaxed);
        if brake == 0 {
            return Ok(());
        }
        self.brake(brake, bytes)
    }

    #[cold]
    fn brake(&self, mut brake: u64, bytes: usize) -> Result<()> {
        let clock = &self.environment.clock;
        let mut stall = Stall::of(&self.counters, &**clock);
        let mut has_paid = false;
        loop {
            while brake == u64::MAX {
                stall.stop(self.counters.brake_for.get());
                self.check_writable()?;
                if !self.options.has_threads() {
                    // Nobody else will make room.
                    if !self.step_for_writer()? {
                        break;
                    }
                } else {
                    self.wait_for_room()?;
                }
                brake = self.update_brake();
            }
            // Without threads nothing is emptied meanwhile.
            let is_paced = self.options.has_threads() && brake > 0 && brake < u64::MAX;
            if !is_paced || has_paid {
                break;
            }
            has_paid = true;
            self.counters.slowdowns.add(1);
            let cost_ns = u128::from(brake) * bytes as u128 / 1000;
            let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
            if let Some(owed) = self.pace.take(clock.now_micros(), cost_ns) {
                stall.slow(self.counters.brake_for.get());
                self.sleep_off(owed);
                // It may have come to a stop meanwhile.
                brake = self.counters.brake.load(Ordering::Relaxed);
            } else if self.pace.gives_way(bytes as u64) {
                // What empties memory and levels may be waiting for this very processor.
                clock.give_way();
            }
        }
        Ok(())
    }
}

/// The bytes that most keys of the next memtable will begin with, going by the
/// last one.
pub(crate) fn likely_prefix(memtable: &LiveMemtable) -> Prefix {
    match (memtable.table.smallest_key(), memtable.table.largest_key()) {
        (Some(first), Some(last)) => Prefix::between(first, last),
        _ => Prefix::default(),
    }
}

fn route(routes: &[Route], id: KeyspaceId) -> Option<&Route> {
    routes.iter().find(|r| r.space.id == id)
}

/// Calls `visit` once for every memtable that the batch reaches (and, when a
/// batch spans parts, perhaps more often).
fn for_each_memtable(routes: &[Route], payload: &[u8], visit: &mut dyn FnMut(&LiveMemtable)) {
    if let [only] = routes
        && let [part] = &only.view.parts[..]
    {
        return visit(part.taker(only.turn));
    }
    for operation in Operations::new(payload).flatten() {
        let Some(route) = route(routes, operation.keyspace) else {
            continue;
        };
        for part in parts_of(&route.view, operation.kind, operation.key, operation.value) {
            visit(route.view.parts[part].taker(route.turn));
        }
    }
}

/// The parts that an operation concerns: one, or for a range delete every part
/// that it crosses.
fn parts_of(
    view: &ReadView,
    kind: Kind,
    key: &[u8],
    value: &[u8],
) -> std::ops::RangeInclusive<usize> {
    let first = view.cuts.part_of(key);
    if kind != Kind::RangeDelete {
        return first..=first;
    }
    let mut last = view.cuts.part_of(value);
    // The end is exclusive: a part that begins exactly there is not reached.
    if last > first && view.cuts.interval(last).0 == Some(value) {
        last -= 1;
    }
    first..=last
}

/// All parts of a keyspace, as `view` has it, that the batch concerns.
fn parts_reached(view: &ReadView, payload: &[u8], keyspace: KeyspaceId) -> BTreeSet<usize> {
    let operations = Operations::new(payload).flatten();
    let here = operations.filter(|operation| operation.keyspace == keyspace);
    here.flat_map(|o| parts_of(view, o.kind, o.key, o.value))
        .collect()
}

/// Puts the batch's entries into the memtables.
fn insert(lookup: &Indexing, routes: &[Route], payload: &[u8], first: SeqNo) {
    let mut seq = first;
    for operation in Operations::new(payload).flatten() {
        if let Some(route) = route(routes, operation.keyspace) {
            apply(
                lookup,
                &route.view,
                seq,
                operation.kind,
                operation.key,
                operation.value,
                &|part| {
                    let part = &route.view.parts[part];
                    if let Some(tiny) = &part.tiny {
                        tiny.count(operation.key);
                    }
                    Some(part.taker(route.turn))
                },
            );
        }
        seq = seq.next();
    }
}

/// Puts one operation into the memtables that `taker` names by part of `view`. It counts nothing:
/// what recovery replays was counted when it was written, and the manifest has that.
pub(crate) fn apply<'a>(
    lookup: &Indexing,
    view: &'a ReadView,
    seq: SeqNo,
    kind: Kind,
    key: &[u8],
    value: &[u8],
    taker: &dyn Fn(usize) -> Option<&'a LiveMemtable>,
) {
    for part in parts_of(view, kind, key, value) {
        let Some(taker) = taker(part) else {
            continue;
        };
        let table = &taker.table;
        // The index first: what a reader may see must be in it.
        let stamp = taker.stamp.load(Ordering::Acquire);
        if kind == Kind::RangeDelete {
            let (low, high) = view.cuts.interval(part);
            let start = low.map_or(key, |l| key.max(l));
            let end = high.map_or(value, |h| value.min(h));
            lookup.note_cover(stamp);
            table.insert_range_delete(start, end, seq);
        } else {
            let hash = xxh3_64(key);
            lookup.note(hash, stamp, seq.0);
            table.insert(key, hash, seq, kind, value);
        }
    }
}
