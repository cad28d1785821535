//! The stores of a comparison: workloads that begin with the same store, how
//! large it is, what memory and fast tiers its engine gets.

use super::CompareArgs;
use super::places::Places;
use crate::contender::{Contender, Layout};
use crate::keys::text::fnv;
use crate::limit::{Demand, Limit, bound, shares, spread, table_shares};
use crate::mix::Workload;
use crate::mix::trace::Trace;

/// The share of the data that is the default of memory.
const MEMORY_SHARE: f64 = 0.08;

/// The least default of memory.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// The most write buffer.
const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 20;

/// The grain of the limit by tables: Thermocline's default.
const TABLE_BYTES: [u64; 2] = [1 << 20, 32 << 20];

/// A table is this part of the fast tier, between those.
const TABLES_OF_FAST_TIER: u64 = 64;
/// Tables are no smaller, unless the fast tier would have fewer than the next many.
const TABLE_SEEK_BYTES: u64 = 4 << 20;
const TABLES_LEAST: u64 = 16;

/// Workloads on one store.
#[derive(Debug)]
pub(super) struct Load {
    pub workloads: Vec<Planned>,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// Memory of an engine.
    pub memory_bytes: u64,
    /// Bytes of tables on each tier but the last.
    pub fast_bytes: Vec<u64>,
}

/// A workload and what its limit is computed from.
#[derive(Debug)]
pub(super) struct Planned {
    pub workload: Workload,
    /// The weights of the records in the order of their keys, where known.
    weights: Option<Vec<f64>>,
    /// Whether the order of the weights is that of keys.
    in_key_order: bool,
    /// Of an operation.
    demand: Demand,
}

impl Load {
    /// Memory of all write buffers, and of the block cache: half of what there
    /// is. The rest is for tables' metadata, what is being merged, a second
    /// write buffer where an engine keeps one, and the page cache.
    pub(super) fn buffers(&self) -> [u64; 2] {
        let write_buffer = (self.memory_bytes / 8).min(WRITE_BUFFER_BYTES_MAX);
        [write_buffer, self.memory_bytes / 8 * 3]
    }

    /// Its workloads and sizes in words.
    pub(super) fn describe(&self) -> String {
        let [write_buffer, cache] = self.buffers();
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let fast: Vec<String> = self.fast_bytes.iter().map(|&bytes| mib(bytes)).collect();
        let mut text = format!(
            "A store of {}: memory {} (write buffer {}, block cache {}), {} on faster tiers:\n",
            mib(self.data_bytes),
            mib(self.memory_bytes),
            mib(write_buffer),
            mib(cache),
            fast.join(" and "),
        );
        for planned in &self.workloads {
            text.push_str(&format!("- {}\n", planned.workload.describe()));
        }
        text
    }
}

impl Planned {
    fn new(workload: Workload, records: u64) -> Result<(Planned, u64), String> {
        let trace = match &workload.trace {
            Some(path) => Some(Trace::read(path, workload.value_bytes)?),
            None => None,
        };
        let (record_bytes, data_bytes) = match &trace {
            Some(trace) => {
                let bytes = trace.data_bytes();
                (bytes as f64 / trace.keys().len() as f64, bytes)
            }
            None => {
                let bytes = workload.keys.mean_bytes() + f64::from(workload.value_bytes);
                (bytes, (bytes * records as f64) as u64)
            }
        };
        let demand = match &trace {
            Some(trace) => {
                let [reads, writes] = trace.shares();
                Demand {
                    reads,
                    read_records: reads,
                    updates: writes,
                    inserts: 0.0,
                    record_bytes,
                }
            }
            None => demand(&workload, record_bytes),
        };
        let weights = match &trace {
            Some(trace) => Some(trace.weights()),
            None => workload.weights(records),
        };
        let hashed = trace.is_none() && !workload.keys.clustered;
        let weights = weights.map(|weights| match hashed {
            true => in_order_of_hashes(weights),
            false => weights,
        });
        let planned = Planned {
            in_key_order: trace.is_none(),
            workload,
            weights,
            demand,
        };
        Ok((planned, data_bytes))
    }

    /// The limit of this workload for a contender's layout.
    pub(super) fn limit(
        &self,
        places: &Places,
        contender: &Contender,
        load: &Load,
    ) -> Option<Limit> {
        let weights = self.weights.as_ref()?;
        let tiers = places.rates(contender.layout);
        let records = |bytes: u64| (bytes as f64 / self.demand.record_bytes) as u64;
        let mut rooms = vec![records(load.memory_bytes)];
        if contender.layout.is_tiered() {
            rooms.extend(load.fast_bytes.iter().map(|&bytes| records(bytes)));
        }
        let read = match self.workload.mix.scan {
            0 => None,
            _ => Some(spread(weights, self.workload.scan_entries)),
        };
        let of = |place: &dyn Fn(&[f64]) -> Vec<f64>| {
            let requests = place(weights);
            let read = read.as_deref().map_or_else(|| requests.clone(), place);
            bound(requests, &read, self.demand, &tiers)
        };
        let fast = load.fast_bytes.first().copied().unwrap_or(0);
        let [least, most] = TABLE_BYTES;
        let table = (fast / TABLES_OF_FAST_TIER).max(TABLE_SEEK_BYTES.min(fast / TABLES_LEAST));
        let table = records(table.clamp(least, most));
        let by_table = self.in_key_order && contender.layout == Layout::Tiers;
        let tables =
            |rooms: &[u64]| by_table.then(|| of(&|weights| table_shares(weights, rooms, table)));
        let mut cached = rooms.clone();
        cached[0] = records(load.buffers().into_iter().sum());
        Some(Limit {
            by_record: of(&|weights| shares(weights, &rooms)),
            by_table: tables(&rooms),
            by_table_cached: tables(&cached),
        })
    }
}

/// What an operation of `workload` asks for, on average.
fn demand(workload: &Workload, record_bytes: f64) -> Demand {
    let mix = &workload.mix;
    let share = |percent: u32| f64::from(percent) / 100.0;
    let reads = share(mix.read + mix.read_modify_write);
    let [least, most] = workload.scan_entries.map(f64::from);
    Demand {
        reads: reads + share(mix.scan),
        read_records: reads + share(mix.scan) * (least + most) / 2.0,
        updates: share(mix.update + mix.read_modify_write),
        inserts: share(mix.insert),
        record_bytes,
    }
}

/// The weights of records in the order of their hashed keys.
fn in_order_of_hashes(weights: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<(u64, f64)> = weights
        .into_iter()
        .zip(0..)
        .map(|(weight, record)| (fnv(record), weight))
        .collect();
    order.sort_unstable_by_key(|(hash, _)| *hash);
    order.into_iter().map(|(_, weight)| weight).collect()
}

/// The stores that `workloads` need, in their order.
///
/// # Errors
/// In words, if a trace cannot be read or memory is short.
pub(super) fn loads(
    args: &CompareArgs,
    workloads: Vec<Workload>,
    places: &Places,
) -> Result<Vec<Load>, String> {
    let mut loads: Vec<Load> = Vec::new();
    for workload in workloads {
        let (planned, data_bytes) = Planned::new(workload, args.records())?;
        match loads.last_mut() {
            Some(load) if load.workloads[0].workload.starts_as(&planned.workload) => {
                load.workloads.push(planned);
            }
            _ => loads.push(Load {
                workloads: vec![planned],
                data_bytes,
                memory_bytes: memory_bytes(args, data_bytes, places.memory_bytes_max())?,
                fast_bytes: places.fast_bytes(&args.fast_share, data_bytes),
            }),
        }
    }
    Ok(loads)
}

/// The memory of an engine, under the rig's cap if it has one.
fn memory_bytes(args: &CompareArgs, data_bytes: u64, cap: Option<u64>) -> Result<u64, String> {
    match (args.memory_mib.map(|mib| mib << 20), cap) {
        (Some(asked), Some(cap)) if asked > cap => Err(format!(
            "--memory-mib {} is more than the rig's cap of {} MiB",
            asked >> 20,
            cap >> 20
        )),
        (Some(asked), _) => Ok(asked),
        (None, Some(cap)) => Ok(cap),
        (None, None) => Ok(((data_bytes as f64 * MEMORY_SHARE) as u64).max(MEMORY_BYTES_MIN)),
    }
}
