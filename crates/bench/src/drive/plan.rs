//! What a client does next: drawn by dice, or read from a trace.

use std::sync::Arc;

use super::inserted::Inserted;
use crate::dice::Dice;
use crate::keys::text::{KeyBuffer, KeyText};
use crate::keys::{Chooser, Moment};
use crate::mix::trace::{self, Trace};
use crate::mix::{Operation, Workload};

/// One thing to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub operation: Operation,
    /// The record it is about.
    pub record: u64,
    /// Entries of a scan.
    pub entries: u32,
    /// Bytes of the value to write.
    pub value_bytes: usize,
}

/// The keys of the records.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// Made from the number.
    Made(KeyText),
    /// Those of a trace.
    Listed(Arc<Trace>),
}

impl Keys {
    /// The key of `record`.
    #[inline]
    pub(super) fn of<'a>(&'a self, record: u64, buffer: &'a mut KeyBuffer) -> &'a [u8] {
        match self {
            Keys::Made(text) => text.write(record, buffer),
            Keys::Listed(trace) => &trace.keys()[record as usize],
        }
    }
}

/// Where a client's steps come from.
pub(super) enum Plan {
    Drawn {
        workload: Workload,
        chooser: Chooser,
        dice: Dice,
    },
    Traced {
        trace: Arc<Trace>,
        at: usize,
        /// Which client of how many: its keys are those of this number modulo
        /// the clients.
        client: [u32; 2],
        /// The size of each value of its keys as it is now.
        sizes: Vec<u32>,
    },
}

impl Plan {
    /// The plan of client `number` of `clients`.
    pub(super) fn new(
        workload: &Workload,
        chooser: &Chooser,
        trace: Option<&Arc<Trace>>,
        client: [u32; 2],
        seed: u64,
    ) -> Plan {
        match trace {
            Some(trace) => {
                let [number, clients] = client.map(|n| n as usize);
                let sizes = trace.sizes().iter().skip(number).step_by(clients);
                Plan::Traced {
                    trace: Arc::clone(trace),
                    at: 0,
                    client,
                    sizes: sizes.copied().collect(),
                }
            }
            None => Plan::Drawn {
                workload: workload.clone(),
                chooser: chooser.clone(),
                dice: Dice::new((seed << 32) + u64::from(client[0])),
            },
        }
    }

    /// The next step, or `None` if this client has none at all.
    #[inline]
    pub(super) fn next(&mut self, inserted: &Inserted, seconds: f64) -> Option<Step> {
        match self {
            Plan::Drawn {
                workload,
                chooser,
                dice,
            } => {
                let operation = workload.mix.draw(dice);
                let record = match operation {
                    Operation::Insert => inserted.take(),
                    _ => {
                        let records = inserted.readable();
                        chooser.draw(dice, Moment { records, seconds })
                    }
                };
                let [least, most] = workload.scan_entries;
                let entries = match operation {
                    Operation::Scan => least + dice.below(u64::from(most - least) + 1) as u32,
                    _ => 0,
                };
                Some(Step {
                    operation,
                    record,
                    entries,
                    value_bytes: workload.value_bytes as usize,
                })
            }
            Plan::Traced {
                trace,
                at,
                client,
                sizes,
            } => {
                let (access, behind) = trace.next(*at, *client)?;
                *at = behind;
                let size = &mut sizes[(access.key / client[1]) as usize];
                if access.value_bytes > 0 {
                    *size = access.value_bytes;
                }
                Some(Step {
                    operation: trace::operation(&access),
                    record: u64::from(access.key),
                    entries: 0,
                    value_bytes: *size as usize,
                })
            }
        }
    }
}
