//! How hard writers must brake: by memory, by runs, and where flushes wait for room on the first
//! tier, by that.
//!
//! Runs count by what they hold, and while hardly anybody reads for less: see [`counted_runs`] and
//! [`Patience`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use thermocline_model::job::{Job, Merge};
use thermocline_model::table::TableMeta;
use thermocline_model::tier::TierId;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_policy::pace::{self, Drain, Lump};
use thermocline_policy::pressure::{RUNS_DUE_PERCENT, Room, counted_runs, runs_slow_percent};

use crate::engine::{Engine, PartView, ReadView};
use crate::error::Result;
use crate::job::{Done, Progress};
use crate::step::flushed::FlushedShare;
use crate::step::log_waits::LogWaits;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::tree::{RunTables, Tree};

mod patience;
pub(crate) use patience::Patience;

/// The share of the write buffer, in percent, at which writers begin to slow, where nothing lasts.
const MEMORY_SLOW_PERCENT: u64 = 60;
/// The same of the room that flushes wait for.
const ROOM_SLOW_PERCENT: u64 = 50;
/// And however little is left of it, writers are slowed as if it were so much that is taken: to
/// about a fifth of the rate at which it is made.
const ROOM_SHARE_MAX: f64 = 0.9;
/// A merge within the fast levels that leaves out less than one part in so many of what it read was
/// not done for room.
const LEFT_OUT_MIN: u64 = 8;
/// The rate at which something is emptied, before any job has shown it: that of a disk.
const UNKNOWN_BYTES_PER_US: f64 = 100.0;
/// Jobs that take longer are worth pacing writers for from the first byte: they would stand still
/// for about as long.
const LONG_JOB_US: u64 = 250_000;
/// So many jobs after writers were slowed, what comes is still no burst.
const LASTING_JOBS: u64 = 3;
/// But no longer than this.
const LASTING_US_MAX: u64 = 60_000_000;
/// A writer sleeps for no less: shorter sleeps are not accurate.
const SLEEP_NS_MIN: u64 = 1_000_000;
/// Nor for longer, whatever those before it have written: they may be very many, or their batches
/// very large, and then what is left to them is to stop at the limit.
const SLEEP_NS_MAX: u64 = 1_000_000_000;
/// Of what all writers bring while they are slowed, every so many bytes one of them lets others
/// have its processor: to do so takes a microsecond or two, which is more than a small write.
const GIVE_WAY_BYTES: u64 = 1 << 10;
/// In so long the brake may be off, and nobody owes anything.
const NAP: Duration = Duration::from_millis(10);

impl Engine {
    /// How hard writers must brake now: nothing, picoseconds per byte, or
    /// `u64::MAX` for stop. Also fits the emptied memory that is kept for later
    /// memtables into what the write buffer has left.
    pub(crate) fn update_brake(&self) -> u64 {
        // One look at a time: an older answer never takes the place of a newer.
        let mut patience = self.brake_turn.lock();
        let stop = self.options.newest_runs_stop as u64;
        let spaces = self.spaces.load();
        let views: Vec<_> = spaces.values().map(|space| space.view.load()).collect();
        let planned = self.emptied.lock().patience;
        patience.look(views.iter().map(|view| &*view.tree), stop, planned);
        let (mut memory, mut newest_runs, mut parts) = (0u64, 0, 1);
        for view in &views {
            memory += memtable_bytes(view);
            let runs = runs_of(&view.tree, patience.times());
            if runs >= newest_runs {
                (newest_runs, parts) = (runs, view.tree.parts.len());
            }
        }
        let resident = self.memtable_bytes_soon();
        // Below half of the limit nothing may be worth a flush, so nothing would
        // ever let writers go on (see the planner of flushes).
        let is_full = |limit| resident >= limit && memory >= limit / 2;
        let mut limit = self.write_buffer_bytes();
        if (is_full(limit) || memory >= limit) && self.lend_for_burst() {
            limit = self.write_buffer_bytes();
        }
        self.arenas
            .shrink_to(limit.saturating_sub(resident) as usize);
        self.grant_memory(0);
        let full = is_full(limit);
        let memory = if full { memory.max(limit) } else { memory };
        let now_us = self.environment.clock.now_micros();
        let mut emptied = self.emptied.lock();
        let parts_may_pay = emptied.parts_may_pay;
        let of_memory = &mut emptied.memory;
        let by_memory = of_memory.brake(now_us, memory, limit, MEMORY_SLOW_PERCENT);
        let of_runs = &mut emptied.runs;
        let slow_percent = runs_slow_percent(parts, parts_may_pay);
        let by_runs = of_runs.brake(now_us, newest_runs, stop, slow_percent);
        let due = slow_at(stop, RUNS_DUE_PERCENT);
        let is_pressed = parts_may_pay && parts == 1 && newest_runs > due;
        emptied.pressed.look(now_us, is_pressed);
        let by_room = emptied.flush_room.map_or(0, |room| {
            let taken = room.bytes.saturating_sub(room.free_bytes);
            let of_room = &mut emptied.room;
            let by_room = of_room.brake(now_us, taken, room.bytes, ROOM_SLOW_PERCENT);
            // Without room there is memory still, and only where that is full do writers stop.
            let by_room = by_room.min(pace::ps_per_byte(ROOM_SHARE_MAX, of_room.rate()));
            // What is overwritten in memory takes no room.
            (by_room as f64 * emptied.flushed.share()).ceil() as u64
        });
        drop(emptied);
        let brake = by_memory.max(by_runs).max(by_room);
        self.counters.brake_for.set(match brake {
            _ if by_runs > 0 && by_runs >= brake => What::Runs,
            _ if by_memory >= brake => What::Memory,
            _ => What::Room,
        });
        self.counters.brake.store(brake, Ordering::Relaxed);
        if brake == 0 {
            self.pace.clear();
        }
        brake
    }

    /// Memory of memtables, with what may be added before it is looked at again: half of that
    /// unseen, half by writers that are past the brake.
    pub(crate) fn memtable_bytes_soon(&self) -> u64 {
        self.memtable_resident_bytes() + 2 * self.options.memory_step_bytes()
    }

    /// Whether memtables may take no more.
    pub(super) fn memory_is_full(&self) -> bool {
        self.memtable_bytes_soon() >= self.write_buffer_bytes()
    }

    /// Sleeps for `owed`, or until writers are no longer slowed, or have to stop.
    pub(crate) fn sleep_off(&self, mut owed: Duration) {
        let is_slowed = || !matches!(self.counters.brake.load(Ordering::Relaxed), 0 | u64::MAX);
        let is_poisoned = || self.is_poisoned.load(Ordering::Acquire);
        while owed > Duration::ZERO && is_slowed() && !is_poisoned() {
            let nap = owed.min(NAP);
            self.environment.clock.sleep(nap);
            owed -= nap;
        }
    }

    /// Notes that `job` begins; what it is about to take of what writers fill, if that is what
    /// it does. `progress` is how far it will be.
    pub(super) fn begin_emptying(
        &self,
        job: &Job,
        progress: &Arc<Progress>,
        now_us: u64,
    ) -> Option<(What, u64)> {
        let of_memory = |bytes| (What::Memory, bytes);
        let (what, bytes) = match job {
            Job::Flush(flush) => {
                let parts = flush.parts();
                let bytes = parts.map(|part| self.sealed_bytes(flush.keyspace, part, flush.active));
                of_memory(bytes.sum())
            }
            Job::Fold(fold) => of_memory(self.sealed_bytes(fold.keyspace, fold.part, fold.active)),
            Job::Merge(merge) => match self.newest_bytes(merge) {
                0 => (What::Room, self.room_bytes(merge)),
                bytes => (What::Runs, bytes),
            },
            Job::Relocate(_) | Job::Recut(_) => return None,
        };
        (bytes > 0).then(|| {
            let mut emptied = self.emptied.lock();
            emptied.of(what).begin(now_us);
            if let (What::Room, Job::Merge(merge)) = (what, job) {
                let share = match is_first_level(merge.output) {
                    true => emptied.left_out_share,
                    false => 1.0,
                };
                let deeper = deeper_bytes(merge, bytes);
                emptied.room.running_jobs.push(Running {
                    progress: Arc::clone(progress),
                    bytes: (bytes - deeper) as f64 * share + deeper as f64,
                });
            }
            (what, bytes)
        })
    }

    /// Notes that it has ended; `begun` is what [`Engine::begin_emptying`] said.
    pub(super) fn end_emptying(
        &self,
        job: &Job,
        progress: &Arc<Progress>,
        begun: Option<(What, u64)>,
        result: &Result<Done>,
    ) {
        let Some((what, bytes)) = begun else {
            return;
        };
        let now_us = self.environment.clock.now_micros();
        let taken = result.as_ref().ok().and_then(|done| match job {
            Job::Flush(_) | Job::Fold(_) if done.bytes_in == 0 => None,
            // What a fold has left is in memory still, unless it had to flush.
            Job::Fold(_) if done.tables_out.is_empty() => {
                Some(bytes.saturating_sub(done.bytes_out))
            }
            Job::Merge(_) if done.tables_in.is_empty() => None,
            // Within the fast levels, what was overwritten has gone, and what went deeper.
            Job::Merge(merge) if what == What::Room && is_first_level(merge.output) => {
                let left_out = bytes.checked_sub(done.bytes_out_above());
                left_out.filter(|&left_out| left_out >= bytes / LEFT_OUT_MIN)
            }
            _ => Some(bytes),
        });
        let spaces = self.spaces.load();
        let held: u64 = spaces
            .values()
            .map(|space| memtable_bytes(&space.view.load()))
            .sum();
        let mut emptied = self.emptied.lock();
        if matches!(job, Job::Flush(_)) {
            let counters = &self.counters;
            let (written, flushed) = (counters.written_bytes.get(), counters.flushed_bytes.get());
            // What is in memory still may be flushed, and what was dropped is not overwritten.
            let flushable = written.saturating_sub(emptied.dropped_bytes);
            emptied
                .flushed
                .note(flushable.saturating_sub(held), flushed);
        }
        if what == What::Room {
            emptied.end_room(job, progress, bytes, taken, result);
        }
        emptied.of(what).end(now_us, taken);
    }

    /// Notes that memory with `view` is dropped, and will not be flushed.
    pub(crate) fn note_dropped(&self, view: &ReadView) {
        self.emptied.lock().dropped_bytes += memtable_bytes(view);
    }

    /// What the memtables hold for a part that a flush of it would take.
    fn sealed_bytes(&self, keyspace: KeyspaceId, part: u32, active: bool) -> u64 {
        let Some(space) = self.space(keyspace) else {
            return 0;
        };
        let view = space.view.load();
        let Some(part) = view.parts.get(part as usize) else {
            return 0;
        };
        let takers = part.takers().filter(|_| active);
        let memtables = takers.chain(&part.sealed);
        memtables.map(|m| m.size_share() as u64).sum()
    }

    /// Of a merge's inputs, the bytes that lie in newest levels.
    fn newest_bytes(&self, merge: &Merge) -> u64 {
        let newest = |tree: &Tree| {
            let read = inputs_among(merge, tree.parts.iter().flatten());
            read.iter().map(|table| table.size_bytes()).sum()
        };
        self.space(merge.keyspace)
            .map_or(0, |space| newest(&space.view.load().tree))
    }

    /// Of its inputs, the bytes that lie where flushes wait for room, if they do: above the level
    /// that it writes, or in the first one if all lie there and it writes there; what comes up
    /// makes no room.
    fn room_bytes(&self, merge: &Merge) -> u64 {
        let waits = self.emptied.lock().flush_room.is_some();
        let (Some(space), Slot::Level(level), true) =
            (self.space(merge.keyspace), merge.output, waits)
        else {
            return 0;
        };
        let view = space.view.load();
        let fast = view.tree.levels.iter().take((level as usize).max(1));
        let read = inputs_among(merge, fast.flatten());
        let comes_up = merge.deeper.is_none() && read.len() < merge.inputs.len();
        if is_first_level(merge.output) && comes_up {
            return 0;
        }
        let here = read.iter().filter(|table| table.tier() == TierId(0));
        here.map(|table| table.size_bytes()).sum()
    }
}

/// Of so many `bytes` that `merge` reads above it, those that are to go to its deeper slot.
fn deeper_bytes(merge: &Merge, bytes: u64) -> u64 {
    let deeper = merge.deeper.as_ref();
    deeper.map_or(0, |deeper| deeper.bytes.min(bytes))
}

fn is_first_level(slot: Slot) -> bool {
    slot == Slot::Level(0)
}

/// Those inputs of `merge` that `runs` have.
fn inputs_among<'a>(
    merge: &Merge,
    runs: impl Iterator<Item = &'a Arc<RunTables>>,
) -> Vec<&'a TableMeta> {
    let inputs: HashSet<_> = merge.inputs.iter().collect();
    let tables = runs.flat_map(|run| &run.tables).map(|t| &*t.meta);
    tables.filter(|table| inputs.contains(&table.id)).collect()
}

/// What the memtables of a keyspace hold.
fn memtable_bytes(view: &ReadView) -> u64 {
    let memtables = view.parts.iter().flat_map(PartView::memtables);
    let held = memtables.filter(|m| !m.is_empty());
    held.map(|m| m.size_share() as u64).sum()
}

/// The runs of the fullest part of `tree`, as they count with such [`patience`].
fn runs_of(tree: &Tree, patience: f64) -> u64 {
    let counted = tree.parts.iter().zip(&tree.base_shares);
    let counted = counted.map(|(runs, share)| runs_of_part(runs, *share, patience));
    counted.max().unwrap_or(0)
}

/// The same of a part whose share of what lies below is `base_bytes`.
fn runs_of_part(runs: &[Arc<RunTables>], base_bytes: u64, patience: f64) -> u64 {
    let tables = runs.iter().flat_map(|run| &run.tables);
    let bytes = tables.map(|table| table.meta.size_bytes()).sum();
    counted_runs(runs.len() as u64, bytes, base_bytes, patience)
}

/// From where on writers are slowed that stop at `limit`. With few runs some are left to slow
/// writers by all the same.
fn slow_at(limit: u64, slow_percent: u64) -> u64 {
    (limit.saturating_mul(slow_percent) / 100).min(limit.saturating_sub(2))
}

/// What empties memtables, or newest levels: how many jobs do so now, and how fast they are.
#[derive(Debug, Default)]
struct Emptying {
    running: usize,
    /// While any runs, or writers are slowed: up to when the time is noted.
    since_us: u64,
    /// Whether jobs run as they are due, which may be long after writers are slowed: then the time
    /// between them does not count.
    only_jobs: bool,
    /// Whether there is so much to empty that writers are slowed,
    is_wanted: bool,
    /// and when there last was.
    wanted_us: Option<u64>,
    drain: Drain,
    /// Those that run now, where it can be said what each will take away.
    running_jobs: Vec<Running>,
}

/// A job that empties, under way.
#[derive(Debug)]
struct Running {
    progress: Arc<Progress>,
    /// What it will have taken away, in bytes, as far as that can be said.
    bytes: f64,
}

impl Emptying {
    /// How hard to brake with `value` of `limit` to empty: nothing below `slow_percent` of it, stop
    /// at the limit, and in between by the rate at which it is emptied ([`pace`]), if that is
    /// known. Where it was more than that a few long jobs ago, what comes now is no burst that
    /// there is room for: then the brake begins with the first byte, so that the room is not gone
    /// long before the next job ends.
    fn brake(&mut self, now_us: u64, value: u64, limit: u64, slow_percent: u64) -> u64 {
        let slow = slow_at(limit, slow_percent);
        self.want(now_us, value > slow);
        if value >= limit {
            return u64::MAX;
        }
        let lasts = self.is_lasting(now_us);
        let from = if lasts { 0 } else { slow };
        if value <= from {
            return 0;
        }
        let room = (limit - from) as f64;
        let share = (value - from) as f64 / room;
        if !self.only_jobs || !lasts {
            return pace::ps_per_byte(share, self.rate());
        }
        let lumps = self.running_jobs.iter().map(|job| Lump {
            share: job.bytes / room,
            done: job.progress.share(),
            ran_us: job.progress.ran_us(now_us) as f64,
        });
        pace::ps_per_byte_beside(share, self.rate(), room, lumps.collect())
    }

    fn rate(&self) -> f64 {
        self.drain.bytes_per_us().unwrap_or(UNKNOWN_BYTES_PER_US)
    }

    fn is_lasting(&self, now_us: u64) -> bool {
        let job_us = self.drain.job_us();
        let since_us = self.wanted_us.and_then(|at| now_us.checked_sub(at));
        let lasts_us = job_us.saturating_mul(LASTING_JOBS).min(LASTING_US_MAX);
        job_us >= LONG_JOB_US && since_us.is_some_and(|us| us <= lasts_us)
    }

    /// Writers are slowed for it from now on, or are not. Then the time in which no job runs is a
    /// part of what emptying takes: other jobs are in its way.
    fn want(&mut self, now_us: u64, is_wanted: bool) {
        if is_wanted && !self.is_wanted && self.running == 0 && !self.only_jobs {
            self.since_us = now_us;
        }
        self.is_wanted = is_wanted && !self.only_jobs;
        if is_wanted {
            self.wanted_us = Some(now_us);
        }
    }

    fn begin(&mut self, now_us: u64) {
        if self.running == 0 && !self.is_wanted {
            self.since_us = now_us;
        }
        self.running += 1;
    }

    /// One of them has ended; `bytes` is what it took away, none if it failed or had nothing left
    /// to do.
    fn end(&mut self, now_us: u64, bytes: Option<u64>) {
        self.running = self.running.saturating_sub(1);
        let micros = now_us.saturating_sub(self.since_us);
        if let Some(bytes) = bytes {
            self.drain.note(bytes, micros);
        }
        // What the others took up to now is theirs, if this one says nothing of it.
        if bytes.is_some() || self.running == 0 {
            self.since_us = now_us;
        }
    }
}

/// The time in which something was so.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    since_us: Option<u64>,
    us: u64,
}

impl Stopwatch {
    /// From now on it is so, or is not.
    fn look(&mut self, now_us: u64, is_so: bool) {
        self.us = self.micros(now_us);
        self.since_us = is_so.then_some(now_us);
    }

    /// Up to now.
    pub(crate) fn micros(&self, now_us: u64) -> u64 {
        let since = self.since_us.map_or(0, |at| now_us.saturating_sub(at));
        self.us.saturating_add(since)
    }
}

/// What writers fill, and jobs empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum What {
    /// Memory, by flushes and folds.
    Memory,
    /// Newest levels, by merges.
    Runs,
    /// The first tier, by merges to the ones below, and within the fast levels.
    Room,
}

impl What {
    /// How many there are.
    pub(crate) const COUNT: usize = 3;
}

/// How each of these is emptied.
#[derive(Debug)]
pub(crate) struct Emptied {
    memory: Emptying,
    runs: Emptying,
    room: Emptying,
    /// What is left of the room that flushes wait for, if they do.
    pub(super) flush_room: Option<Room>,
    /// How many times as many runs may wait, by the planners.
    pub(super) patience: f64,
    /// Whether more parts than one may be the remedy for many runs, by the planners.
    pub(super) parts_may_pay: bool,
    /// How long one part had so many runs that writers would have been slowed otherwise.
    pub(crate) pressed: Stopwatch,
    /// Of what writers write, the share that flushes do.
    flushed: FlushedShare,
    /// What flushes of single parts wait for the log of the others.
    pub(crate) log_waits: LogWaits,
    /// What memtables held of keyspaces when these were dropped.
    dropped_bytes: u64,
    /// Of what merges within the fast levels read, the share that they leave out.
    left_out_share: f64,
}

impl Default for Emptied {
    fn default() -> Emptied {
        Emptied {
            memory: Emptying::default(),
            runs: Emptying::default(),
            room: Emptying {
                only_jobs: true,
                ..Emptying::default()
            },
            flush_room: None,
            patience: 1.0,
            parts_may_pay: false,
            pressed: Stopwatch::default(),
            flushed: FlushedShare::default(),
            log_waits: LogWaits::default(),
            dropped_bytes: 0,
            left_out_share: 0.0,
        }
    }
}

impl Emptied {
    /// A merge that had `bytes` of what room is made of has ended, and `taken` of them are gone.
    fn end_room(
        &mut self,
        job: &Job,
        progress: &Arc<Progress>,
        bytes: u64,
        taken: Option<u64>,
        result: &Result<Done>,
    ) {
        self.room
            .running_jobs
            .retain(|running| !Arc::ptr_eq(&running.progress, progress));
        // Until it is looked at again.
        if let (Some(room), Some(taken)) = (&mut self.flush_room, taken) {
            room.free_bytes = room.free_bytes.saturating_add(taken).min(room.bytes);
        }
        if let (Job::Merge(merge), Ok(done)) = (job, result)
            && is_first_level(merge.output)
            && !done.tables_in.is_empty()
        {
            let staying = bytes.saturating_sub(done.deeper.bytes_in);
            if staying > 0 {
                let left_out = staying.saturating_sub(done.bytes_out_above());
                let share = left_out as f64 / staying as f64;
                self.left_out_share = f64::midpoint(self.left_out_share, share);
            }
        }
    }

    /// Bytes of memtables that flushes free in a second, once there was one.
    pub(super) fn freed_bytes_per_s(&self) -> Option<f64> {
        Some(self.memory.drain.bytes_per_us()? * 1e6)
    }

    fn of(&mut self, what: What) -> &mut Emptying {
        match what {
            What::Memory => &mut self.memory,
            What::Runs => &mut self.runs,
            What::Room => &mut self.room,
        }
    }
}

/// When writers may go on: all of them keep to one pace, however many they are.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds of the clock up to which it is taken.
    taken_upto_ns: AtomicU64,
    /// Bytes of writers that were slowed and did not sleep.
    passed_bytes: AtomicU64,
}

impl Pace {
    /// Nobody owes anything any more.
    fn clear(&self) {
        self.taken_upto_ns.store(0, Ordering::Relaxed);
    }

    /// Whether a writer of `bytes` that is slowed and need not sleep is to give way.
    pub(crate) fn gives_way(&self, bytes: u64) -> bool {
        let before = self.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
        before / GIVE_WAY_BYTES < before.wrapping_add(bytes) / GIVE_WAY_BYTES
    }

    /// Takes `cost_ns` for a writer, which is to sleep as long as this says, if it says so. It owes
    /// for what others have taken before it, in sleeps that are long enough to be accurate.
    pub(crate) fn take(&self, now_us: u64, cost_ns: u64) -> Option<Duration> {
        let now_ns = now_us.saturating_mul(1000);
        let order = Ordering::Relaxed;
        let mut taken = self.taken_upto_ns.load(order);
        loop {
            // Not further ahead, whatever was taken under another brake.
            let from = taken.clamp(now_ns, now_ns.saturating_add(SLEEP_NS_MAX));
            let upto = from.saturating_add(cost_ns);
            match self
                .taken_upto_ns
                .compare_exchange(taken, upto, order, order)
            {
                Ok(_) => {
                    let wait_ns = from - now_ns;
                    return (wait_ns >= SLEEP_NS_MIN).then(|| Duration::from_nanos(wait_ns));
                }
                Err(other) => taken = other,
            }
        }
    }
}

#[cfg(test)]
mod tests;
