//! The clock of a run: starts the clients, counts what they do each second, and
//! ends it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Pace, Phase, Shared};
use super::content::Content;
use super::plan::Plan;
use super::tally::Tally;
use super::{Inserted, Keys, RunOrder};
use crate::dice::Dice;
use crate::engine::{Engine, Result};
use crate::keys::Chooser;
use crate::mix::trace::Trace;

/// How often the clock looks whether a client has failed or all are done.
const LOOK: Duration = Duration::from_millis(50);

/// The most samples that are kept: a run of twelve days.
const SAMPLES_MAX: usize = 1 << 20;

/// What was measured of a run; `M` is what was marked at the beginning and the
/// end of the measured time.
pub(super) struct Timed<M> {
    pub operations: u64,
    pub seconds: f64,
    pub per_second: Vec<u64>,
    pub tally: Tally,
    pub marks: [M; 2],
}

impl<'a> Shared<'a> {
    /// What the clients of a run share.
    pub(super) fn new(
        order: &RunOrder,
        inserted: &'a Inserted,
        keys: &'a Keys,
        checked: bool,
    ) -> Shared<'a> {
        Shared {
            phase: (Phase::WarmUp as u8).into(),
            failed: false.into(),
            began: Instant::now(),
            inserted,
            done: (0..order.clients).map(|_| Default::default()).collect(),
            left: order.counted().map(|_| u64::MAX.into()),
            keys,
            checked,
            may_miss: order.workload.may_miss(),
        }
    }
}

/// Runs the clients of `order` on `store`.
pub(super) fn run<E: Engine, M>(
    store: &E,
    order: &RunOrder,
    shared: &Shared<'_>,
    chooser: &Chooser,
    trace: Option<&Arc<Trace>>,
    mark: impl Fn() -> Result<M>,
) -> Result<Timed<M>> {
    let barrier = Barrier::new(order.clients as usize + 1);
    let counted = order.counted();
    // Without a warm-up all of a counted run is measured, so the mark comes before the first
    // client may begin.
    let at_once = match counted {
        Some([0, measured]) => {
            let from = mark()?;
            shared.count(measured);
            Some(from)
        }
        _ => None,
    };
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for number in 0..order.clients {
            let seed = order.seed.wrapping_mul(1000) + u64::from(number);
            let client = Client {
                number: number as usize,
                store,
                shared,
                plan: Plan::new(
                    &order.workload,
                    chooser,
                    trace,
                    [number, order.clients],
                    order.seed,
                ),
                pace: order.rate.map(|rate| Pace {
                    first: Duration::from_secs_f64(f64::from(number) / rate),
                    every: Duration::from_secs_f64(f64::from(order.clients) / rate),
                }),
                content: Content::new(seed, order.compressible),
                dice: Dice::new(seed),
            };
            let barrier = &barrier;
            handles.push(scope.spawn(move || {
                barrier.wait();
                client.run()
            }));
        }
        // Whatever becomes of the clock, clients end.
        let over = Over(shared);
        let mut begin = Instant::now();
        barrier.wait();
        let ended = || handles.iter().all(thread::ScopedJoinHandle::is_finished);
        let stop = || ended() || shared.failed.load(Ordering::Relaxed);
        let mut first = 0;
        let from = match at_once {
            Some(from) => Ok(from),
            None => {
                match counted {
                    Some([warmup, _]) => wait_for(|| stop() || shared.total() >= warmup),
                    None => {
                        wait_until(begin + Duration::from_secs_f64(order.warmup_seconds), stop);
                    }
                }
                let from = mark();
                if from.is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                begin = Instant::now();
                first = shared.total();
                match counted {
                    Some([_, measured]) => shared.count(measured),
                    None => shared.set(Phase::Measured),
                }
                from
            }
        };
        let end = match counted {
            Some(_) => None,
            None => Some(begin + Duration::from_secs_f64(order.seconds)),
        };
        let mut per_second = Vec::new();
        let mut last = first;
        loop {
            let next = begin + Duration::from_secs(per_second.len() as u64 + 1);
            let until = end.map_or(next, |end| end.min(next));
            let stopped = wait_until(until, stop);
            let total = shared.total();
            if !stopped && until == next && per_second.len() < SAMPLES_MAX {
                per_second.push(total - last);
                last = total;
            }
            if stopped || end.is_some_and(|end| end <= until) {
                break;
            }
        }
        let operations = shared.total() - first;
        let seconds = begin.elapsed().as_secs_f64();
        drop(over);
        let to = mark();
        let mut tally = Tally::new()?;
        for handle in handles {
            let one = handle
                .join()
                .map_err(|_| "a client of the driver panicked")??;
            tally.merge(&one)?;
        }
        Ok(Timed {
            operations,
            seconds,
            per_second,
            tally,
            marks: [from?, to?],
        })
    })
}

/// Ends a run when it is dropped.
struct Over<'a>(&'a Shared<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.set(Phase::Over);
    }
}

/// Waits until `moment`, or until `stop` says so; whether it did.
fn wait_until(moment: Instant, stop: impl Fn() -> bool) -> bool {
    loop {
        if stop() {
            return true;
        }
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// Waits until `stop` says so.
fn wait_for(stop: impl Fn() -> bool) {
    while !stop() {
        thread::sleep(LOOK);
    }
}

/// How much the rate of the second half differs from that of the first, as a
/// share of their mean; `None` of fewer than two samples.
pub(super) fn drift(per_second: &[u64]) -> Option<f64> {
    let half = per_second.len() / 2;
    if half == 0 {
        return None;
    }
    let sum = |samples: &[u64]| samples.iter().sum::<u64>() as f64;
    let first = sum(&per_second[..half]);
    let second = sum(&per_second[per_second.len() - half..]);
    let mean = (first + second) / 2.0;
    Some(if mean > 0.0 {
        (second - first) / mean
    } else {
        0.0
    })
}
