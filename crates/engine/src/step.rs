//! Background work: plan one job, run it, again.
//!
//! [`Engine::step`] is all there is; the threads loop on it, and with no threads a test or a
//! stalled writer calls it. Planners see a view and answer with a job; the tables it names are
//! marked busy while it runs. With two or more threads one of them only flushes, and moves what
//! gives way to a flush, so that a long merge never keeps memory from being freed; it deletes what
//! nobody names any more only when there is nothing to flush, one object at a time. What makes room
//! for merges it hands to a thread that mostly waits for the device that it moves to.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thermocline_model::job::{Fold, Job};
use thermocline_model::moves::Moves;
use thermocline_model::range::KeyRange;
use thermocline_model::table::TableId;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::{CostOptions, TableHeat, Waits};
use thermocline_policy::{Preset, pressure};

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::events::Event;
use crate::job::{Done, Progress};
use crate::place::Placing;

mod brake;
mod flushed;
mod heat;
mod log_waits;
mod memory;
mod recalled;
mod scene;
pub(crate) use brake::{Emptied, Pace, Patience, What};
pub(crate) use scene::Scene;

/// How long an idle thread waits before it looks again.
const IDLE_WAIT: Duration = Duration::from_millis(500);
/// The least that it waits for the bound on moved bytes.
const MOVE_WAIT_LEAST: Duration = Duration::from_millis(5);
/// How long the background pauses after a job failed.
const BACKOFF_MICROS: u64 = 200_000;

/// Which jobs a caller of `step` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Any,
    FlushOnly,
    NoFlush,
    /// Plans none: runs those that are handed to it.
    Handed,
}

/// What is planned and running.
pub(crate) struct Scheduler {
    pub(crate) preset: Preset,
    pub(crate) busy: BTreeSet<TableId>,
    pub(crate) busy_outputs: Vec<(KeyspaceId, Slot, KeyRange)>,
    pub(crate) flushing: BTreeSet<(KeyspaceId, u32)>,
    /// Keyspaces that a job is about to cut anew.
    pub(crate) recutting: BTreeSet<KeyspaceId>,
    /// What was counted of writes, by keyspace.
    pub(crate) counted: BTreeMap<KeyspaceId, Counted>,
    /// What the heat tracker was told of each table so far, by ascending number.
    fed: Vec<(TableId, TableHeat)>,
    pub(crate) running: usize,
    /// What was planned for the thread that moves beside flushes, and is not begun yet.
    handed: Option<Planned>,
    /// The options of placement by price; the target changes while the store
    /// is open.
    pub(crate) cost: CostOptions,
    pub(crate) moves: Moves,
    pub(crate) tended: crate::heat::Tended,
    /// What new tables are placed by.
    pub(crate) placing: Option<Arc<Placing>>,
    /// What is known of what writers wait for.
    pub(crate) waits: Waits,
    flushed: flushed::Rate,
    block_reads: flushed::Rate,
    stalled: flushed::Rate,
    /// No job before this moment: one has just failed.
    not_before_us: u64,
}

/// What is remembered of the writes to a keyspace beside its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Writes that the counters were made to forget.
    pub(crate) forgotten: u64,
    /// All writes when the cuts were last moved, or were to be.
    pub(crate) base: u64,
    /// See [`KeyspaceWrites::in_vain`].
    pub(crate) in_vain: u32,
    /// All writes when it was first looked at.
    pub(crate) began: Option<u64>,
    /// Whether it was written to enough since to share the parts with others.
    pub(crate) shares: bool,
    /// Its cuts could not be moved when that was planned: not before another job has
    /// ended, or nothing else would ever be planned.
    pub(crate) held: bool,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("busy", &self.busy)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    pub(crate) fn new(preset: Preset, cost: CostOptions) -> Scheduler {
        Scheduler {
            preset,
            busy: BTreeSet::new(),
            busy_outputs: Vec::new(),
            flushing: BTreeSet::new(),
            recutting: BTreeSet::new(),
            counted: BTreeMap::new(),
            fed: Vec::new(),
            running: 0,
            handed: None,
            cost,
            moves: Moves::default(),
            tended: crate::heat::Tended::default(),
            placing: None,
            waits: Waits::default(),
            flushed: flushed::Rate::default(),
            block_reads: flushed::Rate::default(),
            stalled: flushed::Rate::default(),
            not_before_us: 0,
        }
    }

    /// `job`, which was planned by `scene` or is about to be run under it, with what it is
    /// predicted to cost and to gain. What it makes is placed by the same scene.
    fn price(&mut self, scene: Scene, job: Job) -> Job {
        let placing = Placing::new(scene, self);
        let job = placing.price(&*self.preset.placer, job);
        self.placing = Some(Arc::new(placing));
        job
    }

    /// For how long no job is planned, because one has just failed.
    pub(crate) fn backoff_us(&self, now_us: u64) -> u64 {
        match self.not_before_us.saturating_sub(now_us) {
            // A longer wait was never asked for: the clock went back.
            wait_us if wait_us > BACKOFF_MICROS => 0,
            wait_us => wait_us,
        }
    }
}

/// A job whose tables are marked busy.
pub(crate) struct Planned {
    pub(crate) job: Job,
    /// What a merge covers of the slots that it writes to.
    outputs: Vec<(KeyspaceId, Slot, KeyRange)>,
}

impl Engine {
    /// Plans and runs one job. Says whether there was one.
    pub(crate) fn step(&self) -> Result<bool> {
        self.step_as(Role::Any)
    }

    /// As [`Engine::step`], of those that `role` takes, or deletes something if there is none.
    pub(crate) fn step_as(&self, role: Role) -> Result<bool> {
        // A flush does not wait until the inputs of merges are deleted.
        if role != Role::FlushOnly {
            self.bury();
        }
        self.tend();
        let Some(planned) = self.plan(role) else {
            self.update_brake();
            self.unload_cold_tables();
            return Ok(role == Role::FlushOnly && self.bury_one());
        };
        self.run(planned).map(|()| true)
    }

    /// The next job, its tables marked busy.
    #[inline(never)] // So that a profile tells what it costs.
    fn plan(&self, role: Role) -> Option<Planned> {
        if self.options.read_only || self.is_poisoned.load(Ordering::Acquire) {
            return None;
        }
        let mut scheduler = self.scheduler.lock();
        if scheduler.backoff_us(self.environment.clock.now_micros()) > 0 {
            return None;
        }
        let mut scene = self.scene(&mut scheduler);
        self.look_what_is_waited_for(&mut scheduler, &mut scene);
        let may_hand_over = role == Role::FlushOnly && self.has_mover(&scheduler.preset);
        let Scheduler {
            preset,
            busy,
            busy_outputs,
            handed,
            ..
        } = &mut *scheduler;
        let view = scene.view(busy, busy_outputs);
        {
            let adapts = self.options.adapts_parts();
            let mut emptied = self.emptied.lock();
            emptied.flush_room = preset.flush.room(&view);
            emptied.patience = pressure::patience(&view);
            emptied.parts_may_pay =
                adapts && view.waits.parts_may_pay(view.now_us, view.tiers.len());
        }
        let (flushes, merges) = (role != Role::NoFlush, role != Role::FlushOnly);
        let recut = preset.recut.plan(&view);
        let first = recut.or_else(|| flushes.then(|| preset.flush.plan(&view))?);
        let gives_way = matches!(first, Some(Job::Relocate(_)));
        if gives_way && may_hand_over && handed.is_none() && !view.moves.are_running() {
            let job = scheduler.price(scene, first?);
            self.hand_over(&mut scheduler, job);
            drop(scheduler);
            // What is moved away is not in the way of the flush any more.
            return self.plan(role);
        }
        let room = match (&first, &mut preset.room) {
            // One at a time: what waits to be taken would never end if another took its place.
            (None, Some(room)) if flushes && handed.is_none() => room.plan(&view),
            _ => None,
        };
        let hands_over = room.is_some() && !merges;
        let job = first.or(room).or_else(|| {
            let mut planners = preset.planners.iter_mut().filter(|_| merges);
            planners.find_map(|p| p.plan(&view))
        })?;
        let job = scheduler.price(scene, job);
        if hands_over {
            self.hand_over(&mut scheduler, job);
            return None;
        }
        Some(self.begin(&mut scheduler, job))
    }

    /// Begins `job` for the thread that moves beside flushes. Requires: none waits for that
    /// already.
    fn hand_over(&self, scheduler: &mut Scheduler, job: Job) {
        let planned = self.begin(scheduler, job);
        scheduler.handed = Some(planned);
        self.handed.notify_all();
    }

    /// Whether there is a thread that moves what makes room beside flushes, where there are several
    /// threads.
    fn has_mover(&self, preset: &Preset) -> bool {
        self.tiers.len() > 1 && preset.room.is_some()
    }

    /// What the threads of the background do.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let count = match self.options.read_only {
            true => 0,
            false => self.options.threads(),
        };
        if count < 2 {
            return vec![Role::Any; count];
        }
        let mut roles = vec![Role::NoFlush; count];
        roles[0] = Role::FlushOnly;
        if self.has_mover(&self.scheduler.lock().preset) {
            roles.push(Role::Handed);
        }
        roles
    }

    /// Marks what `job` works on as busy. One that was asked for, and not planned, is priced by
    /// what there is now.
    pub(crate) fn begin(&self, scheduler: &mut Scheduler, job: Job) -> Planned {
        let job = match job.reason().predicted {
            Some(_) => job,
            None => {
                let scene = self.scene(scheduler);
                scheduler.price(scene, job)
            }
        };
        scheduler.running += 1;
        let mut outputs = Vec::new();
        match &job {
            Job::Flush(flush) => {
                let parts = flush.parts().map(|part| (flush.keyspace, part));
                scheduler.flushing.extend(parts);
            }
            Job::Fold(Fold { keyspace, part, .. }) => {
                scheduler.flushing.insert((*keyspace, *part));
            }
            Job::Merge(merge) => {
                scheduler.busy.extend(&merge.inputs);
                let versions = self.versions.lock();
                let inputs = merge.inputs.iter().filter_map(|id| versions.tables.get(id));
                let hull = inputs
                    .map(|t| t.meta.range.clone())
                    .reduce(|a, b| a.hull(&b));
                let upper = hull.map(|range| (merge.output, range));
                let deeper = merge.deeper.iter().filter_map(|deeper| {
                    let ranges = deeper.ranges.iter().cloned();
                    Some((deeper.slot, ranges.reduce(|a, b| a.hull(&b))?))
                });
                let covered = upper.into_iter().chain(deeper);
                outputs.extend(covered.map(|(slot, range)| (merge.keyspace, slot, range)));
                scheduler.busy_outputs.extend(outputs.iter().cloned());
            }
            Job::Relocate(relocate) => {
                scheduler.busy.insert(relocate.table);
                let table = self.versions.lock().tables.get(&relocate.table).cloned();
                let bytes = table.map_or(0, |t| t.meta.data_bytes());
                let now_us = self.environment.clock.now_micros();
                let rate = scheduler.cost.migration_bytes_per_second_max;
                scheduler.moves.begin(relocate.table, bytes, rate, now_us);
            }
            Job::Recut(recut) => {
                scheduler.recutting.insert(recut.keyspace);
            }
        }
        Planned { job, outputs }
    }

    /// Runs a job that was begun, ends it, and deletes the log segments that
    /// it made superfluous. Requires: the commit mutex is free.
    pub(crate) fn run(&self, planned: Planned) -> Result<()> {
        let flushed = matches!(planned.job, Job::Flush(_) | Job::Fold(_));
        let result = self.run_untrimmed(planned);
        if flushed && result.is_ok() {
            self.trim_log();
        }
        result
    }

    /// As [`Engine::run`], for those who hold the commit mutex: the log is
    /// trimmed by the next flush.
    pub(crate) fn run_untrimmed(&self, planned: Planned) -> Result<()> {
        let Planned { job, outputs } = planned;
        let job = &job;
        let started_us = self.environment.clock.now_micros();
        let progress = Arc::new(Progress::default());
        let emptying = self.begin_emptying(job, &progress, started_us);
        let ended = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Flush(flush) => {
                let times = &self.counters.flush_times;
                self.timed(times, || self.run_flush(flush))
            }
            Job::Fold(fold) => self.run_fold(fold),
            Job::Merge(merge) => self.run_merge(merge, &progress),
            Job::Relocate(relocate) => self.run_relocate(relocate),
            Job::Recut(recut) => self.run_recut(recut),
        }));
        let (result, panic) = match ended {
            Ok(result) => (result, None),
            Err(panic) => (Err(panicked("a job", &*panic)), Some(panic)),
        };
        {
            let mut scheduler = self.scheduler.lock();
            scheduler.running -= 1;
            match job {
                Job::Flush(flush) => {
                    for part in flush.parts() {
                        scheduler.flushing.remove(&(flush.keyspace, part));
                    }
                }
                Job::Fold(Fold { keyspace, part, .. }) => {
                    scheduler.flushing.remove(&(*keyspace, *part));
                }
                Job::Merge(merge) => {
                    for id in &merge.inputs {
                        scheduler.busy.remove(id);
                    }
                    for output in &outputs {
                        let at = scheduler.busy_outputs.iter().position(|o| o == output);
                        if let Some(at) = at {
                            scheduler.busy_outputs.swap_remove(at);
                        }
                    }
                }
                Job::Relocate(relocate) => {
                    scheduler.busy.remove(&relocate.table);
                    scheduler.moves.end(relocate.table);
                }
                Job::Recut(recut) => {
                    scheduler.recutting.remove(&recut.keyspace);
                }
            }
            if !matches!(job, Job::Recut(_)) {
                let counted = scheduler.counted.values_mut();
                counted.for_each(|counted| counted.held = false);
            }
            if result.is_err() {
                scheduler.not_before_us = self.environment.clock.now_micros() + BACKOFF_MICROS;
            }
        }
        self.end_emptying(job, &progress, emptying, &result);
        self.note(job, started_us, &result);
        self.update_full();
        self.update_brake();
        self.unload_cold_tables();
        self.work.notify_all();
        self.done.notify_all();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        result.map(drop)
    }

    fn note(&self, job: &Job, started_us: u64, result: &Result<Done>) {
        if let Err(e) = result {
            if e.kind() == ErrorKind::Poisoned {
                self.poison(e);
            }
            if e.kind() != ErrorKind::Closed {
                self.counters.background_error(e);
            }
        }
        let done = result.as_ref().ok().cloned().unwrap_or_default();
        let now_us = self.environment.clock.now_micros();
        let keyspace = self.space(job.keyspace());
        self.events.push(Event {
            took_us: now_us.saturating_sub(started_us),
            keyspace: keyspace.map_or_else(String::new, |s| s.name.clone()),
            tables_in: done.tables_in,
            tables_out: done.tables_out,
            bytes_in: done.bytes_in,
            bytes_out: done.bytes_out,
            error: result.as_ref().err().map(ToString::to_string),
            ..Event::new(job.name(), done.what, job.reason().clone(), started_us)
        });
    }

    /// Tells sleeping threads that there may be work.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
    }

    /// A reader is gone, and with it perhaps the last hold on some objects.
    pub(crate) fn note_reader_left(&self) {
        if !self.home.graveyard.is_empty() {
            self.wake();
        }
    }

    /// What a background thread does. A panic ends it, and with it all writing:
    /// nobody would make room any more, and writers would wait for ever.
    pub(crate) fn work_until_closed(&self, role: Role) {
        let worked = catch_unwind(AssertUnwindSafe(|| match role {
            Role::Handed => self.take_until_closed(),
            _ => self.loop_until_closed(role),
        }));
        if let Err(panic) = worked {
            let error = panicked("a background thread", &*panic);
            self.poison(&error);
            self.counters.background_error(&error);
            self.work.notify_all();
            self.done.notify_all();
        }
    }

    /// Runs what is handed over, the last of it even if the store is being closed.
    fn take_until_closed(&self) {
        loop {
            let mut scheduler = self.scheduler.lock();
            let Some(planned) = scheduler.handed.take() else {
                if self.closing.load(Ordering::Acquire) {
                    return;
                }
                self.handed.wait(&mut scheduler);
                continue;
            };
            drop(scheduler);
            // It is noted, and waited for.
            let _ = self.run(planned);
            self.bury();
        }
    }

    fn loop_until_closed(&self, role: Role) {
        // Where there are more clients than processors a flush of a millisecond else waits its turn
        // for twenty.
        if role == Role::FlushOnly {
            self.environment.clock.take_short_turns();
        }
        while !self.closing.load(Ordering::Acquire) {
            let worked = self.step_as(role).unwrap_or(false);
            if !worked {
                let mut scheduler = self.scheduler.lock();
                if !self.closing.load(Ordering::Acquire) {
                    // The bound on moved bytes may let the next move begin sooner.
                    let now_us = self.environment.clock.now_micros();
                    let move_us = match scheduler.moves.wait_us(now_us) {
                        0 => IDLE_WAIT,
                        us => Duration::from_micros(us).max(MOVE_WAIT_LEAST),
                    };
                    self.work.wait_for(&mut scheduler, move_us.min(IDLE_WAIT));
                }
            }
        }
    }
}

/// The error that a panic leaves: the store takes no more writes, as nobody knows
/// how much of its state in memory is right. What is on the devices is as after a
/// crash.
fn panicked(who: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without words");
    Error::new(ErrorKind::Poisoned, format!("{who} panicked: {text}"))
}

#[cfg(test)]
mod tests;
