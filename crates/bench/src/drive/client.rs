//! One client: it does one step after the other, as fast as the store answers
//! (closed loop) or at given moments (open loop).
//!
//! In an open loop a latency counts from the moment at which the operation
//! should have begun, so that a store that stops for a second cannot hide the
//! requests that would have come meanwhile.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use super::content::{Content, is_of};
use super::inserted::Inserted;
use super::plan::{Keys, Plan, Step};
use super::tally::{Class, Tally};
use crate::dice::Dice;
use crate::engine::{Cursor, Engine, Result};
use crate::keys::text::{KEY_BYTES_MAX, KeyBuffer};
use crate::mix::Operation;

/// Before this much of the wait is left a client of an open loop sleeps; then it watches the clock.
/// A sleep is accurate to about as much ([`SLACK_NS`]), and clients that watch for longer take the
/// processors from the engine's own threads, of which it then has fewer than in a closed loop.
const WATCH: Duration = Duration::from_micros(5);

/// By how many nanoseconds the kernel may let a client's sleep last longer than asked for, to wake
/// several threads at once; 50,000 if nobody says so.
const SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// The part of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    WarmUp = 0,
    Measured = 1,
    Over = 2,
}

/// A number on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(pub AtomicU64);

/// What all clients share.
pub(super) struct Shared<'a> {
    pub phase: AtomicU8,
    pub failed: AtomicBool,
    pub began: Instant,
    pub inserted: &'a Inserted,
    /// Operations done by each client, warm-up included.
    pub done: Vec<Count>,
    /// Operations that may still be begun, if they are counted.
    pub left: Option<AtomicU64>,
    pub keys: &'a Keys,
    /// Whether answers are compared.
    pub checked: bool,
    /// Whether a record may be missing.
    pub may_miss: bool,
}

impl Shared<'_> {
    pub(super) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Lets `measured` operations more begin, which are measured.
    pub(super) fn count(&self, measured: u64) {
        if let Some(left) = &self.left {
            left.store(measured, Ordering::Relaxed);
        }
        self.set(Phase::Measured);
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    /// Operations done by all clients.
    pub(super) fn total(&self) -> u64 {
        let count = |count: &Count| count.0.load(Ordering::Relaxed);
        self.done.iter().map(count).sum()
    }

    /// Whether another operation may begin.
    #[inline]
    fn goes_on(&self) -> bool {
        let take = |left: &AtomicU64| {
            let one_less = |n: u64| n.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
        };
        !self.is(Phase::Over) && self.left.as_ref().is_none_or(take)
    }
}

/// When the operations of an open loop begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// From the beginning of the run to the first operation of this client.
    pub first: Duration,
    /// Between two operations of this client.
    pub every: Duration,
}

/// A client of one store.
pub(super) struct Client<'a, E> {
    pub number: usize,
    pub store: &'a E,
    pub shared: &'a Shared<'a>,
    pub plan: Plan,
    pub pace: Option<Pace>,
    pub content: Content,
    pub dice: Dice,
}

impl<E: Engine> Client<'_, E> {
    /// Goes on until the run is over.
    pub(super) fn run(mut self) -> Result<Tally> {
        let outcome = self.steps();
        if outcome.is_err() {
            self.shared.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn steps(&mut self) -> Result<Tally> {
        let mut tally = Tally::new()?;
        if self.pace.is_some() {
            set_current_timer_slack(Some(SLACK_NS))?;
        }
        let mut turn = 0_u32;
        while self.shared.goes_on() {
            let begin = match self.pace {
                None => Instant::now(),
                Some(pace) => {
                    let due = self.shared.began + pace.first + pace.every * turn;
                    turn += 1;
                    if !self.wait(due) {
                        break;
                    }
                    due
                }
            };
            let seconds = begin.duration_since(self.shared.began).as_secs_f64();
            let Some(step) = self.plan.next(self.shared.inserted, seconds) else {
                break;
            };
            let measured = self.shared.is(Phase::Measured);
            let done = self.act(step, measured, &mut tally)?;
            if measured {
                tally.record(done, begin.elapsed().as_nanos() as u64);
            }
            self.shared.done[self.number]
                .0
                .fetch_add(1, Ordering::Relaxed);
        }
        Ok(tally)
    }

    /// Waits for `due`; `false` if the run is over before.
    fn wait(&self, due: Instant) -> bool {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            if self.shared.is(Phase::Over) {
                return false;
            }
            match left.checked_sub(WATCH) {
                Some(sleep) if !sleep.is_zero() => {
                    thread::sleep(sleep.min(Duration::from_millis(100)));
                }
                _ => std::hint::spin_loop(),
            }
        }
    }

    #[inline]
    fn act(&mut self, step: Step, measured: bool, tally: &mut Tally) -> Result<Class> {
        let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
        let key = self.shared.keys.of(step.record, &mut buffer);
        match step.operation {
            Operation::Read => {
                let (shared, mut bytes, mut right) = (self.shared, 0, true);
                let found = self.store.get(key, |value| {
                    bytes = value.len();
                    right = is_of(black_box(value), step.record);
                })?;
                shared.judge(found, right, step.record)?;
                if measured {
                    tally.missing += u64::from(!found);
                    tally.read_bytes += (bytes + key.len()) as u64;
                }
                Ok(Class::Read)
            }
            Operation::Update | Operation::Insert => {
                let value = self.content.make(step.record, step.value_bytes);
                self.store.put(key, value)?;
                tally.written_bytes += (value.len() + key.len()) as u64;
                if step.operation == Operation::Insert {
                    self.shared.inserted.acknowledge(step.record);
                }
                Ok(Class::Write)
            }
            Operation::ReadModifyWrite => {
                let (content, dice) = (&mut self.content, &mut self.dice);
                let mut right = true;
                let mut changed = 0;
                let found = self.store.get(key, |value| {
                    right = is_of(value, step.record);
                    changed = content.change(value, dice).len();
                })?;
                self.shared.judge(found, right, step.record)?;
                let value = match found {
                    true => self.content.made(),
                    false => self.content.make(step.record, step.value_bytes),
                };
                self.store.put(key, value)?;
                tally.written_bytes += (value.len() + key.len()) as u64;
                if measured {
                    tally.missing += u64::from(!found);
                    tally.read_bytes += (changed + key.len()) as u64;
                }
                Ok(Class::Write)
            }
            Operation::Scan => {
                let mut cursor = self.store.cursor()?;
                cursor.seek(key)?;
                let (mut entries, mut bytes) = (0, 0);
                while entries < step.entries && cursor.valid() {
                    bytes += black_box(cursor.key()).len() + black_box(cursor.value()).len();
                    entries += 1;
                    if entries < step.entries {
                        cursor.next()?;
                    }
                }
                cursor.status()?;
                let shared = self.shared;
                shared.judge(entries > 0, true, step.record)?;
                if measured {
                    tally.read_bytes += bytes as u64;
                }
                Ok(Class::Scan)
            }
            Operation::Delete => {
                self.store.delete(key)?;
                tally.written_bytes += key.len() as u64;
                Ok(Class::Write)
            }
        }
    }
}

impl Shared<'_> {
    /// Fails where the store did not answer what was written.
    #[inline]
    fn judge(&self, found: bool, right: bool, record: u64) -> Result<()> {
        if !self.checked || (right && (found || self.may_miss)) {
            return Ok(());
        }
        Err(match found {
            true => format!("record {record} has another record's value"),
            false => format!("record {record} is not found"),
        }
        .into())
    }
}
