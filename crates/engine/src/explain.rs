//! Explanations: where a key or an interval of keys lies, how hot that is, what put it
//! there, and what would move it next.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thermocline_model::job::Reason;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::table::TableId;
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::{Engine, Space};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::stats::human_bytes;

mod running;

pub use running::{explain, explain_range};

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
/// let entries: Vec<_> = explanation.places.iter().map(|place| &*place.entry).collect();
/// assert_eq!(entries, ["delete", "put"]);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
/// assert_eq!((&*place.kind, place.slot.as_deref(), place.hits), ("table", Some("L0.0"), 1));
/// assert!(place.rule.is_some()); // Why it lies there.
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// `memtable`, `sealed memtable` or `table`.
    pub kind: Cow<'static, str>,
    /// What the newest entry there says: `put`, `delete` or `range delete`.
    pub entry: Cow<'static, str>,
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
    /// The rule that put or keeps it there.
    pub rule: Option<String>,
    /// What the rule compares, each number with name and unit.
    pub numbers: Vec<(String, f64)>,
    /// What would move it next.
    pub next: Option<String>,
    /// The job that put it there, as long as the record of events knows; of its tables this one.
    pub put_by: Option<Event>,
}

/// Which tables may hold the keys of an interval. See
/// [`Keyspace::explain_range`](crate::Keyspace::explain_range).
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"planet", b"earth")?;
/// let explanation = db.explain_range(None, None)?;
/// assert!(explanation.tables.is_empty() && explanation.memtable_bytes > 0);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RangeExplanation {
    /// The bounds, escaped; none for no bound. The end is exclusive.
    pub start: Option<String>,
    /// See `start`.
    pub end: Option<String>,
    /// Bytes of all memtables of the keyspace, which may hold newer entries.
    pub memtable_bytes: u64,
    /// The tables, newest place first, then by key.
    pub tables: Vec<TablePlace>,
}

/// One table whose keys overlap an interval.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"planet", b"earth")?;
/// db.flush()?;
/// let place = db.explain_range(Some(b"p"), None)?.tables.remove(0);
/// assert_eq!((&*place.slot, &*place.tier, &*place.rule), ("L0.0", "main", "only-tier"));
/// assert_eq!(place.put_by.unwrap().job, "flush");
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TablePlace {
    /// The table's number.
    pub table: u64,
    /// Its slot, such as `L1`.
    pub slot: String,
    /// The tier of its data.
    pub tier: String,
    /// Its keys, as `[first..last]`.
    pub range: String,
    /// Its data bytes.
    pub data_bytes: u64,
    /// Point reads that looked into it, and that it answered, since the store was
    /// opened.
    pub probes: u64,
    /// See `probes`.
    pub hits: u64,
    /// Block reads per second and MiB of the table, smoothed; none where the
    /// preset keeps no temperatures, and for a table that is too young.
    pub temperature: Option<f64>,
    /// The rule that keeps it there.
    pub rule: String,
    /// What the rule compares, each number with name and unit.
    pub numbers: Vec<(String, f64)>,
    /// What would move it next.
    pub next: Option<String>,
    /// The job that put it there, as long as the record of events knows; of its tables this one.
    pub put_by: Option<Event>,
}

impl fmt::Display for RangeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start.as_deref().unwrap_or("the first key");
        match &self.end {
            Some(end) => write!(f, "keys from {start} up to {end}")?,
            None => write!(f, "keys from {start} on")?,
        }
        let bytes = self.tables.iter().map(|t| t.data_bytes).sum();
        write!(
            f,
            ": {} table{} with {}",
            self.tables.len(),
            if self.tables.len() == 1 { "" } else { "s" },
            human_bytes(bytes)
        )?;
        let mut tiers: Vec<(&str, u64)> = Vec::new();
        for table in &self.tables {
            match tiers.iter_mut().find(|(name, _)| *name == table.tier) {
                Some((_, bytes)) => *bytes += table.data_bytes,
                None => tiers.push((&table.tier, table.data_bytes)),
            }
        }
        for (at, (tier, bytes)) in tiers.iter().enumerate() {
            let joint = if at == 0 { ": " } else { ", " };
            write!(f, "{joint}{} on {tier}", human_bytes(*bytes))?;
        }
        if self.memtable_bytes > 0 {
            let memtables = human_bytes(self.memtable_bytes);
            write!(f, "; {memtables} in memtables of the keyspace")?;
        }
        for table in &self.tables {
            write!(
                f,
                "\n  table {:06} {} in {} on tier {}, {}, read {} times, answered {}",
                table.table,
                table.range,
                table.slot,
                table.tier,
                human_bytes(table.data_bytes),
                table.probes,
                table.hits
            )?;
            if let Some(temperature) = table.temperature {
                write!(f, ", temperature {temperature:.3} reads/s/MiB")?;
            }
            let reason = Reason {
                rule: table.rule.clone(),
                numbers: table.numbers.clone(),
                predicted: None,
            };
            write!(f, "\n    because: {reason}")?;
            tell(f, &table.put_by, &table.next)?;
        }
        Ok(())
    }
}

/// What put a table there and what would move it next.
fn tell(f: &mut fmt::Formatter<'_>, put: &Option<Event>, next: &Option<String>) -> fmt::Result {
    match put {
        Some(event) => {
            let (number, job, reason) = (event.number, &event.job, &event.reason);
            let by = format_args!("{job} (event {number}) because {reason}");
            write!(f, "\n    put there by: {by}")?;
        }
        None => write!(f, "\n    put there by: not recorded")?,
    }
    match next {
        Some(next) => write!(f, "\n    next: {next}"),
        None => Ok(()),
    }
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
                let reason = Reason {
                    rule: rule.clone(),
                    numbers: place.numbers.clone(),
                    predicted: None,
                };
                write!(f, "\n    because: {reason}")?;
            }
            if place.table.is_some() {
                tell(f, &place.put_by, &place.next)?;
            } else if let Some(next) = &place.next {
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

pub(crate) fn of_key(engine: &Engine, space: &Space, key: &[u8]) -> Result<Explanation> {
    let hash = xxh3_64(key);
    let view = space.view.load_full();
    let part = view.cuts.part_of(key);
    // Before the reads that this very explanation makes.
    let heats: HashMap<_, _> = view
        .tree
        .runs_for(part, 0)
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
    let put_by = put_by(engine);
    let mut places = Vec::new();
    for (at, memtable) in view.parts[part].memtables().enumerate() {
        let kind = if at <= view.parts[part].twins.len() {
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
                kind: Cow::Borrowed(kind),
                entry: Cow::Borrowed(word(entry)),
                seq: seq.0,
                value_bytes: value_bytes as u64,
                table: None,
                slot: None,
                tier: None,
                probes: 0,
                hits: 0,
                temperature: None,
                rule: Some("written, not flushed yet".to_string()),
                numbers: Vec::new(),
                next: Some(
                    "a flush, when enough memtables are sealed or the log grows too long"
                        .to_string(),
                ),
                put_by: None,
            });
        }
    }
    for run in view.tree.runs_for(part, 0) {
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
            kind: Cow::Borrowed("table"),
            entry: Cow::Borrowed(word(entry)),
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
            rule: why.as_ref().map(|w| w.rule.clone()),
            numbers: why.as_ref().map(|w| w.numbers.clone()).unwrap_or_default(),
            next: why.and_then(|w| w.next),
            put_by: of_table(&put_by, open.meta.id.0),
        });
    }
    Ok(Explanation {
        key: key.escape_ascii().to_string(),
        found,
        places,
    })
}

/// By table: the last job that put it where it is.
fn put_by(engine: &Engine) -> HashMap<u64, Arc<Event>> {
    let mut put_by = HashMap::new();
    for event in engine.events(usize::MAX) {
        let event = Arc::new(event);
        for placed in event.tables_out.iter().filter(|p| p.rule != "moved") {
            put_by.insert(placed.table, Arc::clone(&event));
        }
    }
    put_by
}

fn of_table(put_by: &HashMap<u64, Arc<Event>>, table: u64) -> Option<Event> {
    put_by.get(&table).map(|event| event.of_table(table))
}

pub(crate) fn of_range(
    engine: &Engine,
    space: &Space,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<RangeExplanation> {
    space.check_open()?;
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        return Err(Error::invalid("explain range: start lies behind end"));
    }
    let (scene, placer) = {
        let mut scheduler = engine.scheduler.lock();
        let placer = Arc::clone(&scheduler.preset.placer);
        (engine.scene(&mut scheduler), placer)
    };
    let nothing = BTreeSet::new();
    let policy_view = scene.view(&nothing, &[]);
    let put_by = put_by(engine);
    let view = space.view.load_full();
    let memtables = view.parts.iter().flat_map(|p| p.memtables());
    let memtable_bytes = memtables
        .filter(|m| !m.is_empty())
        .map(|m| m.size_share() as u64)
        .sum();
    let mut tables = Vec::new();
    let met = view.tree.tables();
    let met = met.filter(|t| t.meta.range.overlaps_bounds(start, end));
    let met: Vec<_> = met.collect();
    let ids: Vec<TableId> = met.iter().map(|open| open.meta.id).collect();
    let each = placer.why_each(&policy_view, &ids);
    for (open, why) in met.into_iter().zip(each) {
        let table = &open.meta;
        // One that has just been merged away lies nowhere any more.
        let Some(why) = why else {
            continue;
        };
        let tier = engine.tiers.get(table.tier().0 as usize);
        let heat = open.heat();
        tables.push(TablePlace {
            table: table.id.0,
            slot: why.slot.to_string(),
            tier: tier.map_or_else(String::new, |t| t.spec.name().to_string()),
            range: table.range.to_string(),
            data_bytes: table.data_bytes(),
            probes: heat.probes,
            hits: heat.hits,
            temperature: scene.temperature(table.id),
            rule: why.rule,
            numbers: why.numbers,
            next: why.next,
            put_by: of_table(&put_by, table.id.0),
        });
    }
    let escaped = |key: &[u8]| key.escape_ascii().to_string();
    Ok(RangeExplanation {
        start: start.map(escaped),
        end: end.map(escaped),
        memtable_bytes,
        tables,
    })
}
