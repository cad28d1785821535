//! The limit: what no engine can exceed on these devices with these fast bytes. That of whole
//! tables, whose grain is one, stands beside that of records. Both have all of the memory full of
//! records, of which an engine here has half for its write buffer and its block cache and half for
//! whatever else it needs; so that of whole tables is told for the first half, too.
//!
//! It is that of an all-knowing placement of single records: the most used ones
//! in memory, the next on the fast tier, and so on, with no overhead and nothing
//! moved in vain. Then
//!
//! - a read of a record that lies on a tier is one request there, so a tier's
//!   requests a second over the share of the operations that read from it bound
//!   the rate;
//! - a scan is at least one request where its first record lies, and reads each of
//!   its records once: a tier's requests, and its bandwidth of reading over the
//!   bytes of records read there, bound the rate. Each bound has the placement that
//!   is best for it, which need not be one and the same;
//! - every write goes to the log on the first tier once, and a record that lives
//!   on another tier is written there once; an inserted record pushes one out to
//!   the last tier. So a tier's write bandwidth over these bytes bounds it too.
//!
//! Draws are independent, and for these no policy that cannot see the future
//! does better than a fixed placement by frequency, for reads and for writes
//! held back alike. A trace is taken for its frequencies: what a policy could
//! gain by moving records as the trace goes on is not in its limit, and neither
//! are a moving hot set's moves. The processor is not a part of the limit. That of
//! scans is out of reach by more than others: neighbours that lie on several tiers
//! cost a request on each, which it leaves out.

use serde::{Deserialize, Serialize};

mod place;

pub(crate) use place::{shares, spread, table_shares};

/// A request of up to this many bytes counts as one.
const REQUEST_BYTES_MAX: f64 = 1_048_576.0;

/// What a device gives at most.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Rates {
    /// Random reads a second.
    pub reads: f64,
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Writes a second.
    pub writes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
}

/// What a workload asks for, per operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Demand {
    /// Reads, and scans, which begin with one.
    pub reads: f64,
    /// Records read, those of scans included.
    pub read_records: f64,
    /// Records written that existed.
    pub updates: f64,
    /// Records written that did not.
    pub inserts: f64,
    /// Bytes of a record.
    pub record_bytes: f64,
}

/// The limits of one workload on one set of tiers.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Limit {
    /// Where single records are placed.
    pub by_record: Bound,
    /// Where single records are in memory, but tiers have whole tables of
    /// neighbours, if the order of keys is known.
    pub by_table: Option<Bound>,
    /// The same with no more records in memory than the write buffer and the block cache hold that
    /// every engine is given: what is left is a matter of placement. None in results of old.
    #[serde(default)]
    pub by_table_cached: Option<Bound>,
}

/// What one way of placing records gives at best.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Bound {
    /// Share of the accesses to records in memory, and on each tier, fast to
    /// slow.
    pub shares: Vec<f64>,
    /// Operations a second, where the devices are known.
    pub per_second: Option<f64>,
    /// What bounds it.
    pub bound_by: Option<String>,
}

/// The bound, from the shares of memory and of every tier: those of requests (reads,
/// updates and the first records of scans), and those of all records read.
pub(crate) fn bound(
    shares: Vec<f64>,
    read_shares: &[f64],
    demand: Demand,
    tiers: &[(String, Option<Rates>)],
) -> Bound {
    let mut best: Option<(f64, String)> = None;
    let mut least = |capacity: f64, per_operation: f64, words: String| {
        let rate = capacity / per_operation;
        if per_operation > 0.0 && best.as_ref().is_none_or(|(known, _)| rate < *known) {
            best = Some((rate, words));
        }
    };
    for (index, (name, rates)) in tiers.iter().enumerate() {
        let Some(rates) = rates else {
            continue;
        };
        let share = shares[index + 1];
        least(
            rates.reads,
            demand.reads * share,
            format!("reads of {name}"),
        );
        least(
            rates.read_bytes,
            demand.read_records * demand.record_bytes * read_shares[index + 1],
            format!("bytes read of {name}"),
        );
        let mut records = if index == 0 {
            demand.updates + demand.inserts
        } else {
            demand.updates * share
        };
        if index > 0 && index + 1 == tiers.len() {
            records += demand.inserts;
        }
        let bytes = rates.written_bytes.min(rates.writes * REQUEST_BYTES_MAX);
        least(
            bytes,
            records * demand.record_bytes,
            format!("writes of {name}"),
        );
    }
    let (per_second, bound_by) = best.unzip();
    Bound {
        shares,
        per_second,
        bound_by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(name: &str, reads: f64, mb_s: f64) -> (String, Option<Rates>) {
        let rates = Rates {
            reads,
            read_bytes: 1e12,
            writes: 1000.0,
            written_bytes: mb_s * 1e6,
        };
        (name.to_string(), Some(rates))
    }

    const READS: Demand = Demand {
        reads: 1.0,
        read_records: 1.0,
        updates: 0.0,
        inserts: 0.0,
        record_bytes: 1000.0,
    };

    fn limit(shares: Vec<f64>, demand: Demand, tiers: &[(String, Option<Rates>)]) -> Bound {
        bound(shares.clone(), &shares, demand, tiers)
    }

    #[test]
    fn a_slow_tier_bounds_reads_by_its_share() {
        let tiers = [tier("fast", 10_000.0, 400.0), tier("slow", 60.0, 100.0)];
        let limit = limit(vec![0.5, 0.49, 0.01], READS, &tiers);
        assert!((limit.per_second.unwrap() - 6000.0).abs() < 1e-6);
        assert_eq!(limit.bound_by.as_deref(), Some("reads of slow"));
        let all = super::tests::limit(vec![0.5, 0.5, 0.0], READS, &tiers);
        assert_eq!(all.per_second, Some(20_000.0));
    }

    #[test]
    fn the_log_takes_every_write_and_the_slow_tier_its_share() {
        let tiers = [tier("fast", 1e9, 400.0), tier("slow", 1e9, 100.0)];
        let writes = Demand {
            reads: 0.0,
            read_records: 0.0,
            updates: 1.0,
            ..READS
        };
        let cold = limit(vec![0.1, 0.4, 0.5], writes, &tiers);
        assert_eq!(cold.per_second, Some(200_000.0));
        let hot = limit(vec![0.5, 0.4, 0.1], writes, &tiers);
        assert_eq!(hot.per_second, Some(400_000.0));
        assert_eq!(hot.bound_by.as_deref(), Some("writes of fast"));
        let inserts = Demand {
            updates: 0.0,
            inserts: 1.0,
            ..writes
        };
        let pushed = limit(vec![0.5, 0.5, 0.0], inserts, &tiers);
        assert_eq!(pushed.per_second, Some(100_000.0));
    }

    #[test]
    fn a_scan_is_one_request_at_least_and_all_of_its_bytes() {
        let mut slow = tier("slow", 60.0, 100.0);
        slow.1.as_mut().unwrap().read_bytes = 1.5e6;
        let tiers = [slow];
        let scans = |records: f64| Demand {
            read_records: records,
            ..READS
        };
        let of = |records| bound(vec![0.5, 0.5], &[0.25, 0.75], scans(records), &tiers);
        // 60 requests a second, of which every second scan needs one.
        assert_eq!(of(10.0).per_second, Some(120.0));
        assert_eq!(of(10.0).bound_by.as_deref(), Some("reads of slow"));
        // 75 records of 1,000 bytes a scan, at 1.5 MB/s.
        assert_eq!(of(100.0).per_second, Some(20.0));
        assert_eq!(of(100.0).bound_by.as_deref(), Some("bytes read of slow"));
    }

    #[test]
    fn few_large_requests_bound_a_bandwidth() {
        let mut slow = tier("slow", 60.0, 150.0);
        if let Some(rates) = &mut slow.1 {
            rates.writes = 60.0;
        }
        let writes = Demand {
            reads: 0.0,
            read_records: 0.0,
            updates: 1.0,
            ..READS
        };
        let limit = limit(vec![0.0, 1.0], writes, &[slow]);
        assert_eq!(limit.per_second, Some(60.0 * REQUEST_BYTES_MAX / 1000.0));
    }

    #[test]
    fn without_known_devices_only_the_shares_stand() {
        let tiers = [("fast".to_string(), None), ("slow".to_string(), None)];
        let limit = limit(vec![0.5, 0.4, 0.1], READS, &tiers);
        assert_eq!((limit.per_second, limit.bound_by), (None, None));
    }
}
