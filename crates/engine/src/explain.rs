//! Explanations: where a key is found and why it lies there.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thermocline_model::job::Reason;
use thermocline_model::key::{Kind, SeqNo};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::{Engine, Space};
use crate::error::Result;

/// Where a key is found, newest place first: the first one answers reads.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"planet", b"earth")?;
/// db.flush()?;
/// db.delete(b"planet")?;
/// let explanation = db.explain(b"planet")?;
/// assert!(!explanation.found); // The newest place says so.
/// let entries: Vec<_> = explanation.places.iter().map(|place| place.entry).collect();
/// assert_eq!(entries, ["delete", "put"]);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The key, escaped.
    pub key: String,
    /// Whether a read finds a value.
    pub found: bool,
    /// Every place that holds an entry of the key or covers it with a range
    /// delete.
    pub places: Vec<Place>,
}

/// One place that holds an entry of a key.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"planet", b"earth")?;
/// db.flush()?;
/// db.get(b"planet")?;
/// let place = &db.explain(b"planet")?.places[0];
/// assert_eq!((place.kind, place.slot.as_deref(), place.hits), ("table", Some("L0.0"), 1));
/// assert!(place.rule.is_some()); // Why it lies there.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// `memtable`, `sealed memtable` or `table`.
    pub kind: &'static str,
    /// What the newest entry there says: `put`, `delete` or `range delete`.
    pub entry: &'static str,
    /// Its sequence number.
    pub seq: u64,
    /// Bytes of its value.
    pub value_bytes: u64,
    /// The table's number.
    pub table: Option<u64>,
    /// Its slot, such as `L1`.
    pub slot: Option<String>,
    /// The tier of its data.
    pub tier: Option<String>,
    /// Point reads that looked into the table.
    pub probes: u64,
    /// Point reads that it answered.
    pub hits: u64,
    /// Block reads per second and MiB of the table, smoothed; none where the
    /// preset keeps no temperatures, and for a table that is too young.
    pub temperature: Option<f64>,
    /// The rule that put or keeps it there, with its numbers.
    pub rule: Option<String>,
    /// What would move it next.
    pub next: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.found {
            "has a value"
        } else {
            "has no value"
        };
        write!(f, "key {} {state}", self.key)?;
        for place in &self.places {
            write!(f, "\n  {}", place.kind)?;
            if let Some(table) = place.table {
                write!(f, " {table:06}")?;
            }
            if let (Some(slot), Some(tier)) = (&place.slot, &place.tier) {
                write!(f, " in {slot} on tier {tier}")?;
            }
            write!(
                f,
                ": {} at {}, value of {} bytes",
                place.entry, place.seq, place.value_bytes
            )?;
            if place.table.is_some() {
                write!(f, ", read {} times, answered {}", place.probes, place.hits)?;
            }
            if let Some(temperature) = place.temperature {
                write!(f, ", temperature {temperature:.3} reads/s/MiB")?;
            }
            if let Some(rule) = &place.rule {
                write!(f, "\n    because: {rule}")?;
            }
            if let Some(next) = &place.next {
                write!(f, "\n    next: {next}")?;
            }
        }
        Ok(())
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::RangeDelete => "range delete",
    }
}

pub(crate) fn explain(engine: &Engine, space: &Space, key: &[u8]) -> Result<Explanation> {
    let hash = xxh3_64(key);
    let view = space.view.load_full();
    let part = view.cuts.part_of(key);
    // Before the reads that this very explanation makes.
    let heats: HashMap<_, _> = view
        .tree
        .runs_for(part)
        .filter_map(|run| run.find(key))
        .map(|open| (open.meta.id, open.heat()))
        .collect();
    let found = engine.get(space, key, None)?.is_some();
    let (scene, placer) = {
        let mut scheduler = engine.scheduler.lock();
        let placer = Arc::clone(&scheduler.preset.placer);
        (engine.scene(&mut scheduler), placer)
    };
    let nothing = BTreeSet::new();
    let policy_view = scene.view(&nothing, &[]);
    let mut places = Vec::new();
    for (at, memtable) in view.parts[part].memtables().enumerate() {
        let kind = if at == 0 {
            "memtable"
        } else {
            "sealed memtable"
        };
        let table = &memtable.table;
        let point = table
            .get(key, hash, SeqNo::MAX)
            .map(|h| (h.kind, h.seq, h.value.len()));
        let range = table
            .cover(key, SeqNo::MAX)
            .map(|seq| (Kind::RangeDelete, seq, 0));
        if let Some((entry, seq, value_bytes)) = point.into_iter().chain(range).max_by_key(|p| p.1)
        {
            places.push(Place {
                kind,
                entry: word(entry),
                seq: seq.0,
                value_bytes: value_bytes as u64,
                table: None,
                slot: None,
                tier: None,
                probes: 0,
                hits: 0,
                temperature: None,
                rule: Some("written, not flushed yet".to_string()),
                next: Some(
                    "a flush, when enough memtables are sealed or the log grows too long"
                        .to_string(),
                ),
            });
        }
    }
    for run in view.tree.runs_for(part) {
        let Some(open) = run.find(key) else { continue };
        let table = open.table()?;
        let point = table
            .get(key, hash, SeqNo::MAX)?
            .map(|h| (h.kind, h.seq, h.value.len()));
        let range = table
            .cover()
            .newest(key, SeqNo::MAX)
            .map(|seq| (Kind::RangeDelete, seq, 0));
        let Some((entry, seq, value_bytes)) = point.into_iter().chain(range).max_by_key(|p| p.1)
        else {
            continue;
        };
        let heat = heats.get(&open.meta.id).copied().unwrap_or_default();
        let why = placer.why(&policy_view, open.meta.id);
        let tier = engine.tiers.get(open.meta.tier().0 as usize);
        places.push(Place {
            kind: "table",
            entry: word(entry),
            seq: seq.0,
            value_bytes: value_bytes as u64,
            table: Some(open.meta.id.0),
            slot: why.as_ref().map(|w| w.slot.to_string()),
            tier: tier.map(|t| t.spec.name().to_string()),
            probes: heat.probes,
            hits: heat.hits,
            temperature: policy_view
                .heat
                .get(&open.meta.id)
                .and_then(|h| h.temperature),
            rule: why.as_ref().map(|w| {
                Reason {
                    rule: w.rule.clone(),
                    numbers: w.numbers.clone(),
                }
                .to_string()
            }),
            next: why.and_then(|w| w.next),
        });
    }
    Ok(Explanation {
        key: key.escape_ascii().to_string(),
        found,
        places,
    })
}
