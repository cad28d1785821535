//! Fills a store before a run: by puts, in the order of record numbers, which
//! with hashed keys is a random order. So YCSB loads.
//!
//! Threads take records from one counter, a few at a time. With a stretch for each
//! thread, what a workload takes for the latest records would be the end of one stretch,
//! written while others were in the middle of theirs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::content::Content;
use super::plan::Keys;
use super::{RunOrder, Start};
use crate::dice::Dice;
use crate::engine::{Engine, Result};
use crate::keys::text::KEY_BYTES_MAX;
use crate::mix::trace::Trace;
use crate::workload::run_threads;

/// Threads that load; more gain nothing on the machines in mind.
const THREADS: u32 = 2;

/// Records that a thread takes at once.
const TAKEN: u64 = 16;

/// Writes what the workload of `order` begins with.
pub(super) fn load<E: Engine>(
    store: &E,
    order: &RunOrder,
    keys: &Keys,
    trace: Option<&Trace>,
) -> Result<()> {
    let records = match (trace, order.workload.start) {
        (Some(trace), _) => trace.keys().len() as u64,
        (None, Start::Empty) => return Ok(()),
        (None, _) => order.records,
    };
    let filled = matches!(
        order.workload.start,
        Start::FilledAtRandom | Start::FilledAndSettled
    );
    let at_random = trace.is_none() && filled;
    let next = AtomicU64::new(0);
    run_threads(THREADS, |number| {
        let mut content = Content::new(u64::from(number), order.compressible);
        let mut dice = Dice::new(order.seed + u64::from(number));
        let mut buffer = [0; KEY_BYTES_MAX];
        loop {
            let from = next.fetch_add(TAKEN, Ordering::Relaxed);
            if from >= records {
                break;
            }
            for index in from..records.min(from + TAKEN) {
                let record = match at_random {
                    true => dice.below(records),
                    false => index,
                };
                let bytes = match trace {
                    Some(trace) => trace.sizes()[record as usize],
                    None => order.workload.value_bytes,
                };
                let value = content.make(record, bytes as usize);
                store.put(keys.of(record, &mut buffer), value)?;
            }
        }
        crate::workload::Tally::new(false)
    })?;
    Ok(())
}
