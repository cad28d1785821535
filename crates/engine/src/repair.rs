//! What `repair` does: makes a store that can be opened out of one that cannot,
//! keeping everything that can be read.
//!
//! It never makes things worse: the tables it cannot use, the log it cannot
//! replay, and every file that nothing names afterwards are put into the
//! directory `lost` of their tier, before the new manifest takes over. Until
//! that moment the store is as it was, and a repair that was cut short can be
//! run again.
//!
//! Where the manifest can be read, its version stands. A table with damaged
//! blocks is written anew from its sound ones and takes the old one's place; a
//! table whose meta is damaged is written anew from its blocks, where these say
//! all there was in it. The log is kept up to where it is damaged.
//!
//! Where the manifest cannot be read, or edits in its middle cannot, places are
//! lost, and with them what said which of two overlapping tables is newer. The
//! order of sequence numbers does not say it: one table can have the newer
//! version of one key and the older version of another. So tables that overlap
//! are merged, together with what is in the log, entry by entry, by number;
//! tables that overlap nothing stay as they are. All of it becomes one run. What
//! that cannot know, the report says: a table that a merge had replaced, and
//! that was not deleted yet, can bring back a key whose delete was merged away.

mod find;
mod rewrite;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use thermocline_model::check;
use thermocline_model::cover::{Cover, RangeDelete};
use thermocline_model::edit::Change;
use thermocline_model::key::{Kind, SeqNo};
use thermocline_model::table::{TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, KeyspaceId, Level, Run, RunId, Version};

use crate::batch::Operations;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::StoreLock;
use crate::log::{self, FRAME_HEADER_BYTES, Found};
use crate::open::DEFAULT_KEYSPACE;
use crate::options::Options;
use crate::store::{
    Environment, ObjectKind, ObjectName, OpenHow, TIER_FILE_NAME, TierIdentity, write_all_at,
};
use crate::table::Table;
use crate::table::salvage::{self, Entry, Piece};
use crate::verify::{Examined, Problem, check_directories, examine, home, named_objects};
use crate::version::manifest::{self, Header, Manifest, Remains};
use crate::version::tree::{OpenTable, TableHome};

use rewrite::{Merged, Plan};

/// Where in a tier's directory things are put that are of no use any more.
const LOST: &str = "lost";

/// A table of which nothing could be saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LostTable {
    /// Its number.
    pub table: u64,
    /// Its keyspace, as far as that is known.
    pub keyspace: String,
    /// Its keys, escaped.
    pub range: String,
    /// Its entries.
    pub entries: u64,
    /// Why.
    pub why: String,
}

/// Keys of which entries were lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LostRange {
    /// In which keyspace.
    pub keyspace: String,
    /// In which table.
    pub table: u64,
    /// The first key, escaped.
    pub first: String,
    /// The last key, escaped.
    pub last: String,
    /// The first key.
    #[serde(skip)]
    pub first_key: Vec<u8>,
    /// The last key.
    #[serde(skip)]
    pub last_key: Vec<u8>,
    /// Why.
    pub why: String,
}

/// What [`repair`] did, saved and lost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RepairReport {
    /// Nothing was wrong, and nothing was changed.
    pub was_sound: bool,
    /// What was wrong.
    pub problems: Vec<Problem>,
    /// Tables kept as they were.
    pub tables_kept: u64,
    /// Tables written anew, from what could be read.
    pub tables_rewritten: u64,
    /// Tables of which nothing was saved.
    pub tables_lost: Vec<LostTable>,
    /// Keys of which entries were lost: older values of them may be back.
    pub key_ranges_lost: Vec<LostRange>,
    /// Entries of the log that were saved.
    pub log_entries_kept: u64,
    /// The first and the last number of the log entries that were lost.
    pub log_numbers_lost: Option<(u64, u64)>,
    /// Files put into the directory `lost` of their tier.
    pub moved_aside: Vec<PathBuf>,
    /// What should be known besides.
    pub notes: Vec<String>,
    /// What was lost, or may have been, in words; empty when nothing was.
    pub lost: Vec<String>,
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.was_sound {
            return f.write_str("nothing is wrong, and nothing was changed");
        }
        let s = if self.problems.len() == 1 { "" } else { "s" };
        writeln!(f, "{} problem{s}:", self.problems.len())?;
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        writeln!(
            f,
            "tables   {} kept, {} written anew, {} lost",
            self.tables_kept,
            self.tables_rewritten,
            self.tables_lost.len()
        )?;
        write!(f, "log      {} entries kept", self.log_entries_kept)?;
        if let Some((first, last)) = self.log_numbers_lost {
            write!(f, ", numbers {first} to {last} lost")?;
        }
        let mut places: BTreeMap<&Path, u64> = BTreeMap::new();
        for place in self.moved_aside.iter().filter_map(|file| file.parent()) {
            *places.entry(place).or_default() += 1;
        }
        for (place, files) in places {
            write!(f, "\nmoved aside: {files} files, to {}", place.display())?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        if self.lost.is_empty() {
            return write!(f, "\nnothing was lost");
        }
        write!(f, "\nlost:")?;
        for lost in &self.lost {
            write!(f, "\n  {lost}")?;
        }
        Ok(())
    }
}

/// Repairs the store of `options`. A sound store is left alone.
///
/// ```
/// use thermocline::{Db, Options};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path());
/// let db = Db::open(options.clone())?;
/// db.put(b"k", b"v")?;
/// db.close()?;
/// std::fs::remove_file(directory.path().join("CURRENT")).unwrap();
/// assert!(Db::open(options.clone()).is_err());
/// let report = thermocline::repair(options.clone())?;
/// assert!(report.lost.is_empty(), "{report}");
/// assert_eq!(Db::open(options)?.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// What is lost is in the report and no error. [`ErrorKind::NotFound`] when
/// there is no store; [`ErrorKind::WrongTier`] when a tier is missing, of
/// another store, or in another's place; [`ErrorKind::Locked`] when the store
/// is open; [`ErrorKind::NoSpace`] and [`ErrorKind::Io`] from the devices: the
/// store is then as it was, but for files that nothing names.
pub fn repair(options: Options) -> Result<RepairReport> {
    let environment = Environment::real();
    options.check()?;
    check_directories(&options, &environment)?;
    let _lock = StoreLock::take_in(&options, &environment)?;
    let examined = examine(&options, &environment)?;
    if examined.report.problems.is_empty() {
        return Ok(RepairReport {
            was_sound: true,
            tables_kept: examined.report.tables,
            log_entries_kept: examined.report.log_entries,
            ..RepairReport::default()
        });
    }
    let mut repair = Repair::new(&options, &environment, &examined)?;
    let mut version = match repair.remains() {
        Some(remains) if remains.gap.is_none() => repair.keep_places(&remains, &examined)?,
        remains => repair.rebuild(remains.unwrap_or_default())?,
    };
    repair.finish(&mut version)?;
    let again = examine(&options, &environment)?;
    for problem in again.report.problems {
        let words = format!("still wrong after the repair: {problem}");
        repair.report.lost.push(words);
    }
    Ok(repair.report)
}

/// Log entries that count, and what does not.
#[derive(Default)]
struct LogRemains {
    entries: BTreeMap<KeyspaceId, Vec<Entry>>,
    range_deletes: BTreeMap<KeyspaceId, Vec<RangeDelete>>,
    /// The last frame: its segment, and where it ends.
    end: Option<(u64, u64)>,
    last: SeqNo,
    is_damaged: bool,
}

struct Repair<'a> {
    options: &'a Options,
    environment: &'a Environment,
    home: Arc<TableHome>,
    report: RepairReport,
    store_id: u128,
    generation: u64,
    next_id: u64,
    /// Objects from this number on were made here.
    first_new_id: u64,
    /// Numbers up to this one were given.
    last_seq: SeqNo,
    /// The log segment to cut, and where.
    cut: Option<(u64, u64)>,
    /// Log segments to put aside.
    segments: Vec<u64>,
}

impl<'a> Repair<'a> {
    fn new(
        options: &'a Options,
        environment: &'a Environment,
        examined: &Examined,
    ) -> Result<Repair<'a>> {
        let mut repair = Repair {
            options,
            environment,
            home: home(options, environment)?,
            report: RepairReport {
                problems: examined.report.problems.clone(),
                ..RepairReport::default()
            },
            store_id: 0,
            generation: 0,
            next_id: 1,
            first_new_id: 1,
            last_seq: SeqNo::ZERO,
            cut: None,
            segments: Vec::new(),
        };
        for tier in &options.tiers {
            let list = environment.file_system.list(tier.path());
            for entry in list.map_err(|e| Error::io("listing", tier.path(), e))? {
                let name = entry.name.to_string_lossy();
                let object = ObjectName::parse(&name).map(|o| o.id);
                let number = object.or_else(|| manifest::number_of(&name)).unwrap_or(0);
                repair.next_id = repair.next_id.max(number + 1);
            }
        }
        Ok(repair)
    }

    fn directory(&self) -> &'a Path {
        self.options.tiers[0].path()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// What can be read of the best manifest: the one in force if that is
    /// known, else the newest.
    fn remains(&mut self) -> Option<Remains> {
        let directory = self.directory();
        let mut numbers: Vec<u64> = self
            .environment
            .file_system
            .list(directory)
            .ok()?
            .iter()
            .filter_map(|entry| manifest::number_of(&entry.name.to_string_lossy()))
            .collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        if let Ok(Some(current)) = manifest::current(self.environment, directory) {
            numbers.sort_by_key(|&n| n != current);
        }
        let mut best: Option<Remains> = None;
        for (index, &number) in numbers.iter().enumerate() {
            let Ok(mut remains) = manifest::remains(self.environment, directory, number) else {
                continue;
            };
            let lawful = remains
                .version
                .as_ref()
                .is_some_and(|v| check::check_version(v).is_ok());
            if !lawful || index > 0 {
                // Of an older manifest only what it knows of tables is of use.
                remains.gap.get_or_insert(0);
            }
            if remains.header.is_some() && best.is_none() {
                best = Some(remains);
            }
        }
        best
    }

    /// Requires that the tiers are those of one store, and learns which.
    fn identify(&mut self, header: Option<&Header>) -> Result<()> {
        let mut store_id = header.map(|h| h.store_id);
        self.generation = header.map_or(0, |h| h.generation);
        for (tier, id) in self.options.tiers.iter().zip(0u32..) {
            let wrong = |what: &str| {
                Error::new(
                    ErrorKind::WrongTier,
                    format!("tier {:?} {what}", tier.name()),
                )
                .at(tier.path())
            };
            if let Some((_, name)) = header.and_then(|h| h.tiers.get(id as usize))
                && name != tier.name()
            {
                return Err(wrong("is another one of the store").expected(name, tier.name()));
            }
            let Ok(Some(identity)) = TierIdentity::read(self.environment, tier.path()) else {
                continue;
            };
            if *store_id.get_or_insert(identity.store_id) != identity.store_id {
                return Err(wrong("belongs to another store"));
            }
            if identity.tier_id != id {
                return Err(wrong("is in the place of another").expected(identity.tier_id, id));
            }
            self.generation = self.generation.max(identity.generation);
        }
        if header.is_some_and(|h| h.tiers.len() > self.options.tiers.len()) {
            let what = "the store has more tiers than the options";
            return Err(Error::new(ErrorKind::WrongTier, what).at(self.directory()));
        }
        if store_id.is_none() {
            // The segments of the log say whose they are.
            for (segment, _) in
                log::list_segments(&*self.environment.file_system, self.directory())?
            {
                let path = log::segment_path(self.directory(), segment);
                let _ = log::scan_frames(self.environment, &path, None, &mut |found| {
                    if let Found::Header(header) = found {
                        store_id.get_or_insert(header.store_id);
                    }
                    Ok(())
                });
            }
        }
        let dice = &self.environment.dice;
        self.store_id = store_id
            .unwrap_or_else(|| u128::from(dice.next_u64()) << 64 | u128::from(dice.next_u64()));
        Ok(())
    }

    /// The manifest can be read: its version stands, but for damaged tables.
    fn keep_places(&mut self, remains: &Remains, examined: &Examined) -> Result<Version> {
        self.identify(remains.header.as_ref())?;
        let mut version = remains.version.clone().unwrap_or_else(Version::empty);
        self.next_id = self.next_id.max(version.next_id);
        self.first_new_id = self.next_id;
        self.last_seq = version.last_seq;
        let read = examined.manifest.is_some();
        for keyspace in version.keyspaces.values_mut() {
            let keyspace = Arc::make_mut(keyspace);
            let name = keyspace.name.clone();
            let newest = keyspace.parts.iter_mut().map(|p| &mut p.newest);
            for level in newest.chain(&mut keyspace.levels) {
                for run in &mut level.runs {
                    let mut tables = Vec::with_capacity(run.tables.len());
                    for table in &run.tables {
                        let sound = if read {
                            !examined.damaged.contains(&table.id.0)
                        } else {
                            self.is_sound(table)
                        };
                        if sound {
                            self.report.tables_kept += 1;
                            tables.push(Arc::clone(table));
                        } else {
                            tables.extend(self.rescue(&name, table)?);
                        }
                    }
                    run.tables = tables;
                }
                level.runs.retain(|r| !r.tables.is_empty());
            }
            while keyspace.levels.last().is_some_and(|l| l.runs.is_empty()) {
                keyspace.levels.pop();
            }
        }
        let log = self.read_log(version.log_floor, false)?;
        self.last_seq = self.last_seq.max(log.last);
        if log.is_damaged {
            self.cut_log(&log)?;
        }
        Ok(version)
    }

    fn open(&self, meta: &Arc<TableMeta>) -> Result<Arc<Table>> {
        OpenTable::new(Arc::clone(meta), &self.home, None)?
            .table()
            .cloned()
    }

    fn is_sound(&self, meta: &Arc<TableMeta>) -> bool {
        let Ok(table) = self.open(meta) else {
            return false;
        };
        let mut sound = true;
        table.verify_all(&mut |_| sound = false);
        sound
    }

    /// Writes a damaged table anew; nothing if nothing of it can be read.
    fn rescue(&mut self, keyspace: &str, meta: &Arc<TableMeta>) -> Result<Vec<Arc<TableMeta>>> {
        let (source, cover) = match self.open(meta) {
            Ok(table) => {
                let cover = table.cover().clone();
                (Merged::table(keyspace, table), cover)
            }
            Err(error) => match self.entries_without_meta(keyspace, meta)? {
                Some(entries) => (Merged::entries(entries), Cover::default()),
                None => {
                    self.lose(keyspace, meta, &error.to_string());
                    return Ok(Vec::new());
                }
            },
        };
        let plan = Plan {
            sources: vec![source],
            cover,
            meta_tier: meta.meta.tier,
            data_tier: meta.tier(),
            table_bytes: u64::MAX,
        };
        let tables = rewrite::write(self, plan)?;
        match tables.is_empty() {
            true => self.lose(keyspace, meta, "none of its blocks can be read"),
            false => self.report.tables_rewritten += 1,
        }
        Ok(tables)
    }

    fn lose(&mut self, keyspace: &str, meta: &TableMeta, why: &str) {
        self.report.tables_lost.push(LostTable {
            table: meta.id.0,
            keyspace: keyspace.to_string(),
            range: meta.range.to_string(),
            entries: meta.entries,
            why: why.to_string(),
        });
        self.report.key_ranges_lost.push(LostRange {
            keyspace: keyspace.to_string(),
            table: meta.id.0,
            first: meta.range.start.escape_ascii().to_string(),
            last: meta.range.end.escape_ascii().to_string(),
            first_key: meta.range.start.to_vec(),
            last_key: meta.range.end.to_vec(),
            why: why.to_string(),
        });
    }

    /// The entries of a table whose meta cannot be read, from its blocks. None
    /// where these do not say all: where it had range deletes, which are in the
    /// meta, or dead blocks, which only the meta tells from live ones.
    fn entries_without_meta(
        &mut self,
        keyspace: &str,
        meta: &TableMeta,
    ) -> Result<Option<Vec<Entry>>> {
        if meta.range_deletes > 0 || meta.dead_bytes > 0 {
            return Ok(None);
        }
        let is_loaded = meta.seq_min == meta.seq_max;
        let mut blocks: Vec<Vec<Entry>> = Vec::new();
        for extent in &meta.data {
            let name = ObjectName {
                id: extent.object.0,
                kind: ObjectKind::Data,
            };
            let Ok(reader) = self.home.store(extent)?.open(name) else {
                return Ok(None);
            };
            let end = reader
                .size_bytes()
                .min(extent.offset.saturating_add(extent.length));
            let mut bytes = vec![0; end.saturating_sub(extent.offset) as usize];
            if reader.read_at(extent.offset, &mut bytes).is_err() {
                return Ok(None);
            }
            for piece in salvage::pieces(&bytes) {
                if let Piece::Block { stored, .. } = piece
                    && let Ok(entries) = salvage::entries(stored)
                {
                    blocks.push(entries);
                }
            }
        }
        blocks.sort_by(|a, b| {
            a.first()
                .map(|e| (&e.0, std::cmp::Reverse(e.1)))
                .cmp(&b.first().map(|e| (&e.0, std::cmp::Reverse(e.1))))
        });
        let mut entries: Vec<Entry> = blocks.into_iter().flatten().collect();
        if is_loaded {
            entries.iter_mut().for_each(|e| e.1 = meta.seq_min);
        }
        let ascending = entries
            .windows(2)
            .all(|p| (&p[0].0, std::cmp::Reverse(p[0].1)) < (&p[1].0, std::cmp::Reverse(p[1].1)));
        let within = entries
            .iter()
            .all(|e| e.1 >= meta.seq_min && e.1 <= meta.seq_max && meta.range.contains(&e.0));
        if entries.is_empty() || !ascending || !within {
            return Ok(None);
        }
        let missing = meta.entries.saturating_sub(entries.len() as u64);
        if missing > 0 {
            // Without the meta nobody knows where they lay.
            self.report.key_ranges_lost.push(LostRange {
                keyspace: keyspace.to_string(),
                table: meta.id.0,
                first: meta.range.start.escape_ascii().to_string(),
                last: meta.range.end.escape_ascii().to_string(),
                first_key: meta.range.start.to_vec(),
                last_key: meta.range.end.to_vec(),
                why: format!("the meta and the blocks of {missing} entries cannot be read"),
            });
        }
        Ok(Some(entries))
    }

    /// Reads the log as far as it is sound, from segment `floor` on. Entries
    /// are kept if `wanted`.
    fn read_log(&mut self, floor: u64, wanted: bool) -> Result<LogRemains> {
        let mut log = LogRemains::default();
        let directory = self.directory();
        let replayed = log::replay(
            self.environment,
            directory,
            self.store_id,
            floor,
            &mut |frame| {
                let count = Operations::new(frame.payload).filter(Result::is_ok).count();
                if count as u64 != u64::from(frame.count) {
                    return Err(Error::corruption("log record"));
                }
                let mut seq = frame.first_seq;
                for operation in Operations::new(frame.payload).flatten().filter(|_| wanted) {
                    let (key, value) = (operation.key, operation.value);
                    let space = operation.keyspace;
                    match operation.kind {
                        Kind::RangeDelete => {
                            log.range_deletes
                                .entry(space)
                                .or_default()
                                .push(RangeDelete {
                                    start: key.into(),
                                    end: value.into(),
                                    seq,
                                })
                        }
                        kind => log.entries.entry(space).or_default().push((
                            key.to_vec(),
                            seq,
                            kind == Kind::Put,
                            value.to_vec(),
                        )),
                    }
                    seq = seq.next();
                }
                self.report.log_entries_kept += u64::from(frame.count);
                let end = frame.offset as usize + FRAME_HEADER_BYTES + frame.payload.len();
                log.end = Some((frame.segment, end.next_multiple_of(8) as u64));
                log.last = SeqNo(frame.first_seq.0 + u64::from(frame.count) - 1);
                Ok(())
            },
        );
        match replayed {
            Ok(report) => log.is_damaged = report.durable_seq > log.last.max(self.last_seq),
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => log.is_damaged = true,
        }
        if log.is_damaged {
            self.report_log_loss(floor, log.last)?;
        }
        Ok(log)
    }

    /// Says which numbers behind `last` the log had.
    fn report_log_loss(&mut self, floor: u64, last: SeqNo) -> Result<()> {
        let mut highest = last;
        for (segment, _) in log::list_segments(&*self.environment.file_system, self.directory())? {
            if segment < floor {
                continue;
            }
            let path = log::segment_path(self.directory(), segment);
            // What cannot be read has been reported.
            let _ = log::scan_frames(self.environment, &path, Some(self.store_id), &mut |found| {
                match found {
                    Found::Frame {
                        first_seq,
                        count,
                        durable_seq,
                        ..
                    } => {
                        let end = (first_seq.0 + u64::from(count)).saturating_sub(1);
                        highest = highest.max(SeqNo(end)).max(durable_seq);
                    }
                    Found::Header(header) => highest = highest.max(SeqNo(header.durable_seq)),
                    _ => {}
                }
                Ok(())
            });
        }
        self.last_seq = self.last_seq.max(highest);
        if highest > last {
            self.report.log_numbers_lost = Some((last.0 + 1, highest.0));
        }
        Ok(())
    }

    /// Plans to keep the log up to its damage.
    fn cut_log(&mut self, log: &LogRemains) -> Result<()> {
        let kept = log.end.map_or(0, |(segment, _)| segment);
        let segments = log::list_segments(&*self.environment.file_system, self.directory())?;
        self.segments
            .extend(segments.iter().map(|s| s.0).filter(|&s| s > kept));
        self.cut = log.end;
        Ok(())
    }

    /// Places are lost: puts a version together from what lies on the tiers.
    fn rebuild(&mut self, remains: Remains) -> Result<Version> {
        self.identify(remains.header.as_ref())?;
        let known = Known::of(&remains);
        let next_id = remains.version.as_ref().map_or(0, |v| v.next_id);
        self.next_id = self.next_id.max(next_id);
        self.first_new_id = self.next_id;
        let mut version = Version::empty();
        version.next_keyspace = known.next_keyspace.max(1);
        self.last_seq = remains.version.as_ref().map_or(SeqNo::ZERO, |v| v.last_seq);
        if remains.version.is_none() {
            self.report.lost.push(
                "no manifest can be read, so all tables are in the default keyspace now: if there were \
                 others, the keys they had in common hide each other"
                    .to_string(),
            );
        }
        self.report.notes.push(
            "places were lost: a table that a merge had replaced, but that was not deleted yet, may bring \
             back keys whose deletes had been merged away"
                .to_string(),
        );
        let tables = self.find_tables(&known)?;
        let floor = self.lowest_segment(remains.version.as_ref().map_or(0, |v| v.log_floor))?;
        let mut log = self.read_log(floor, true)?;
        self.last_seq = self.last_seq.max(log.last);
        for (_, table) in &tables {
            self.last_seq = self.last_seq.max(table.seq_max);
        }
        let mut ids: Vec<KeyspaceId> = known.keyspaces.keys().copied().collect();
        ids.push(KeyspaceId::DEFAULT);
        ids.extend(
            log.entries
                .keys()
                .chain(log.range_deletes.keys())
                .filter(|id| {
                    // One that is not known and was not dropped.
                    id.0 >= known.next_keyspace_before
                }),
        );
        ids.sort_unstable();
        ids.dedup();
        for id in ids.into_iter().filter(|id| !known.dropped.contains(id)) {
            let name = match known.keyspaces.get(&id) {
                Some((name, _)) => name.clone(),
                None if id == KeyspaceId::DEFAULT => DEFAULT_KEYSPACE.to_string(),
                None => format!("recovered-{id}"),
            };
            let cuts = match known.keyspaces.get(&id) {
                Some((_, cuts)) => cuts.clone(),
                None if id == KeyspaceId::DEFAULT => self.options.default_cuts()?,
                None => Default::default(),
            };
            let of_this = tables
                .iter()
                .filter(|(k, _)| *k == id)
                .map(|(_, t)| Arc::clone(t))
                .collect();
            let entries = log.entries.remove(&id).unwrap_or_default();
            let range_deletes = log.range_deletes.remove(&id).unwrap_or_default();
            let run = self.one_run(&name, of_this, entries, &range_deletes)?;
            let mut keyspace = Keyspace::new(id, &name, cuts);
            if !run.is_empty() {
                let run = Run {
                    id: RunId(self.new_id()),
                    tables: run,
                };
                keyspace.levels.push(Level { runs: vec![run] });
            }
            version.next_keyspace = version.next_keyspace.max(id.0 + 1);
            version.keyspaces.insert(id, Arc::new(keyspace));
        }
        // What the log held is in tables now.
        let segments = log::list_segments(&*self.environment.file_system, self.directory())?;
        version.log_floor = segments.last().map_or(0, |s| s.0 + 1).max(floor);
        self.segments = segments.iter().map(|s| s.0).collect();
        for keyspace in version.keyspaces.values_mut() {
            for part in &mut Arc::make_mut(keyspace).parts {
                part.flushed = self.last_seq;
            }
        }
        Ok(version)
    }

    /// The lowest log segment there is, from `floor` on.
    fn lowest_segment(&self, floor: u64) -> Result<u64> {
        let segments = log::list_segments(&*self.environment.file_system, self.directory())?;
        Ok(segments
            .iter()
            .map(|s| s.0)
            .find(|&s| s >= floor)
            .unwrap_or(floor))
    }

    /// Every table that lies on the tiers and was not removed, with its
    /// keyspace.
    fn find_tables(&mut self, known: &Known) -> Result<Vec<(KeyspaceId, Arc<TableMeta>)>> {
        let objects = find::objects(self)?;
        let mut found: BTreeMap<TableId, (KeyspaceId, Arc<TableMeta>)> = BTreeMap::new();
        let mut loaded = Vec::new();
        for meta in objects.iter().filter(|o| o.name.kind == ObjectKind::Meta) {
            match find::table(self, meta, &objects)? {
                None => {
                    let store = &self.home.stores[meta.tier.0 as usize];
                    let path = store.directory().join(meta.name.to_string());
                    let named = known
                        .tables
                        .values()
                        .any(|(_, t)| t.meta.object.0 == meta.name.id);
                    if !named {
                        self.report.lost.push(format!(
                            "{}: the meta of a table cannot be read",
                            path.display()
                        ));
                    }
                }
                Some(Err(without)) => {
                    if !known.tables.contains_key(&without.id)
                        && !known.removed.contains(&without.id)
                    {
                        self.report.tables_lost.push(LostTable {
                            table: without.id.0,
                            keyspace: String::new(),
                            range: without.range,
                            entries: without.entries,
                            why: "its data is not to be found".to_string(),
                        });
                    }
                }
                Some(Ok(table)) => {
                    let id = table.record.id;
                    if known.removed.contains(&id) {
                        continue;
                    }
                    let record = known.tables.get(&id);
                    let keyspace = record.map_or(KeyspaceId::DEFAULT, |(k, _)| *k);
                    let mut meta = table.record;
                    match record {
                        // Written before its number was known.
                        Some((_, r)) if table.is_loaded => {
                            (meta.seq_min, meta.seq_max) = (r.seq_min, r.seq_max)
                        }
                        None if table.is_loaded => loaded.push(id),
                        _ => {}
                    }
                    found.insert(id, (keyspace, Arc::new(meta)));
                }
            }
        }
        self.number_loaded(&mut found, &loaded);
        for (id, (keyspace, record)) in &known.tables {
            if found.contains_key(id) {
                continue;
            }
            let name = known.name(*keyspace);
            let tables = match self.entries_without_meta(&name, record)? {
                Some(entries) => rewrite::write(
                    self,
                    Plan {
                        sources: vec![Merged::entries(entries)],
                        cover: Cover::default(),
                        meta_tier: record.meta.tier,
                        data_tier: record.tier(),
                        table_bytes: u64::MAX,
                    },
                )?,
                None => {
                    self.lose(&name, record, "an edit that cannot be read removed it, or it is gone, or its meta cannot be read");
                    Vec::new()
                }
            };
            found.extend(tables.into_iter().map(|t| (t.id, (*keyspace, t))));
        }
        Ok(found.into_values().collect())
    }

    /// Bulk-loaded tables whose number is not known are taken to be newer than
    /// every table written before them.
    fn number_loaded(
        &mut self,
        found: &mut BTreeMap<TableId, (KeyspaceId, Arc<TableMeta>)>,
        loaded: &[TableId],
    ) {
        for id in loaded {
            let before = found
                .range(..id)
                .filter(|(other, _)| !loaded.contains(other));
            let seq = before
                .map(|(_, (_, t))| t.seq_max)
                .max()
                .unwrap_or(SeqNo(1));
            if let Some((_, table)) = found.get_mut(id) {
                let table = Arc::make_mut(table);
                (table.seq_min, table.seq_max) = (seq, seq);
            }
        }
        if !loaded.is_empty() {
            self.report.lost.push(format!(
                "when {} tables were bulk loaded is not known: they are taken to be newer than the \
                 tables written before them and older than those written after",
                loaded.len()
            ));
        }
    }

    /// Makes one run of tables that may overlap and of log entries.
    fn one_run(
        &mut self,
        keyspace: &str,
        mut tables: Vec<Arc<TableMeta>>,
        mut log: Vec<Entry>,
        range_deletes: &[RangeDelete],
    ) -> Result<Vec<Arc<TableMeta>>> {
        if !log.is_empty() || !range_deletes.is_empty() {
            log.sort_by(|a, b| (&a.0, std::cmp::Reverse(a.1)).cmp(&(&b.0, std::cmp::Reverse(b.1))));
            let plan = Plan {
                sources: vec![Merged::entries(log)],
                cover: Cover::new(range_deletes),
                meta_tier: TierId(0),
                data_tier: TierId(0),
                table_bytes: u64::MAX,
            };
            tables.extend(rewrite::write(self, plan)?);
        }
        tables.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        let mut run = Vec::new();
        let mut group: Vec<Arc<TableMeta>> = Vec::new();
        let mut hull = None;
        for table in tables {
            let apart = hull
                .as_ref()
                .is_some_and(|h: &thermocline_model::KeyRange| h.is_before(&table.range));
            if apart {
                run.extend(self.merge(keyspace, std::mem::take(&mut group))?);
                hull = None;
            }
            hull = Some(hull.map_or_else(|| table.range.clone(), |h| h.hull(&table.range)));
            group.push(table);
        }
        run.extend(self.merge(keyspace, group)?);
        Ok(run)
    }

    /// Makes of tables that overlap tables that do not.
    fn merge(&mut self, keyspace: &str, group: Vec<Arc<TableMeta>>) -> Result<Vec<Arc<TableMeta>>> {
        if let [alone] = &group[..] {
            if self.is_sound(alone) {
                self.report.tables_kept += 1;
                return Ok(group);
            }
            return self.rescue(keyspace, alone);
        }
        let mut sources = Vec::new();
        let mut covers = Vec::new();
        for meta in &group {
            match self.open(meta) {
                Ok(table) => {
                    covers.push(table.cover().clone());
                    sources.push(Merged::table(keyspace, table));
                }
                Err(error) => self.lose(keyspace, meta, &error.to_string()),
            }
        }
        let Some(largest) = group.iter().max_by_key(|t| t.data_bytes()) else {
            return Ok(Vec::new());
        };
        self.report.tables_rewritten += sources.len() as u64;
        let plan = Plan {
            sources,
            cover: Cover::merge(&covers),
            meta_tier: largest.meta.tier,
            data_tier: largest.tier(),
            table_bytes: self.options.table_size(),
        };
        rewrite::write(self, plan)
    }

    /// Puts the version in force, and what it does not name aside.
    fn finish(&mut self, version: &mut Version) -> Result<()> {
        self.report_loss();
        let number = self.new_id();
        version.next_id = version.next_id.max(self.next_id);
        version.last_seq = version.last_seq.max(self.last_seq);
        let directory = self.directory();
        check::check_version(version)
            .map_err(|e| Error::corruption(format!("the repaired version: {e}")).at(directory))?;
        let (fs, environment) = (&self.environment.file_system, self.environment);
        // Names first, in both places, so that nothing is ever in neither.
        let mut gone = Vec::new();
        let named = named_objects(version);
        for ((tier, store), id) in self.options.tiers.iter().zip(&self.home.stores).zip(0u32..) {
            for (name, _) in store.list()? {
                if named.contains_key(&(TierId(id), name)) {
                    continue;
                }
                if name.id >= self.first_new_id {
                    // A step on the way to a table that is named.
                    store.delete(name)?;
                } else {
                    gone.push((tier.path(), name.to_string()));
                }
            }
            if TierIdentity::read(environment, tier.path()).is_err() {
                gone.push((tier.path(), TIER_FILE_NAME.to_string()));
            }
        }
        for entry in fs
            .list(directory)
            .map_err(|e| Error::io("listing", directory, e))?
        {
            let name = entry.name.to_string_lossy().into_owned();
            let pointer =
                name == manifest::CURRENT && manifest::current(environment, directory).is_err();
            if pointer || manifest::number_of(&name).is_some() {
                gone.push((directory, name));
            }
        }
        for &segment in &self.segments {
            let path = log::segment_path(directory, segment);
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            gone.extend(name.map(|n| (directory, n)));
        }
        for (tier, name) in &gone {
            self.set_aside(tier, name, false)?;
        }
        let cut_name = self
            .cut
            .map(|(segment, _)| log::segment_path(directory, segment));
        if let Some(name) = cut_name.as_ref().and_then(|p| p.file_name()) {
            // A copy: the original is cut.
            self.set_aside(directory, &name.to_string_lossy(), true)?;
        }

        let tiers = self
            .options
            .tiers
            .iter()
            .zip(0u32..)
            .map(|(t, id)| (TierId(id), t.name().to_string()));
        let header = Header {
            store_id: self.store_id,
            number,
            generation: self.generation + 1,
            tiers: tiers.collect(),
        };
        let generation = header.generation;
        let mut new = Manifest::create(environment, directory, header, version, false)?;
        manifest::install(environment, directory, number)?;
        for (tier, id) in self.options.tiers.iter().zip(0u32..) {
            let identity = TierIdentity {
                store_id: self.store_id,
                tier_id: id,
                tier_name: tier.name().to_string(),
                generation,
            };
            identity.write(environment, tier.path())?;
        }
        new.settle()?;

        if let Some((segment, end)) = self.cut {
            let path = log::segment_path(directory, segment);
            let cut = || {
                let file = fs.open(&path, OpenHow::WRITE)?;
                file.set_size(end)?;
                file.sync()
            };
            cut().map_err(|e| Error::io("cutting the log", &path, e))?;
        }
        // From the highest down, so that a log cut short stays one.
        gone.sort_by(|a, b| b.1.cmp(&a.1));
        for (tier, name) in gone {
            if name != TIER_FILE_NAME && name != manifest::CURRENT {
                let path = tier.join(name);
                fs.unlink(&path)
                    .map_err(|e| Error::io("moving aside", &path, e))?;
            }
        }
        for tier in &self.options.tiers {
            let path = tier.path();
            fs.sync_directory(path)
                .map_err(|e| Error::io("persisting directory", path, e))?;
        }
        Ok(())
    }

    /// Says in words what was lost.
    fn report_loss(&mut self) {
        let report = &mut self.report;
        let whole: HashSet<u64> = report.tables_lost.iter().map(|t| t.table).collect();
        for t in &report.tables_lost {
            report.lost.push(format!(
                "table {:06} of keyspace {:?}, {} entries, keys {}: {}",
                t.table, t.keyspace, t.entries, t.range, t.why
            ));
        }
        for r in report
            .key_ranges_lost
            .iter()
            .filter(|r| !whole.contains(&r.table))
        {
            report.lost.push(format!(
                "entries of table {:06} of keyspace {:?}, keys {} to {}: {}",
                r.table, r.keyspace, r.first, r.last, r.why
            ));
        }
        if let Some((first, last)) = report.log_numbers_lost {
            report.lost.push(format!(
                "log entries numbered {first} to {last}, but for those in tables"
            ));
        }
        if !report.key_ranges_lost.is_empty() || report.log_numbers_lost.is_some() {
            report.notes.push(
                "where entries were lost, older values of their keys may be back".to_string(),
            );
        }
    }

    /// Gives the file `name` of a tier a second name in the tier's directory
    /// for lost things, or puts a copy there.
    fn set_aside(&mut self, tier: &Path, name: &str, copy: bool) -> Result<()> {
        let fs = &self.environment.file_system;
        let lost = tier.join(LOST);
        fs.create_directory(&lost)
            .map_err(|e| Error::io("creating", &lost, e))?;
        let from = tier.join(name);
        let mut to = lost.join(name);
        for attempt in 1.. {
            let there = fs
                .metadata(&to)
                .map_err(|e| Error::io("looking for", &to, e))?;
            if there.is_none() {
                break;
            }
            to = lost.join(format!("{name}.{attempt}"));
        }
        let linked = !copy && fs.hard_link(&from, &to).is_ok();
        if !linked {
            let bytes = manifest::read_file(self.environment, &from)?;
            let write = || {
                let file = fs.open(&to, OpenHow::NEW)?;
                write_all_at(&*file, &bytes, 0)?;
                file.sync()
            };
            write().map_err(|e| Error::io("moving aside", &to, e))?;
        }
        fs.sync_directory(&lost)
            .map_err(|e| Error::io("persisting directory", &lost, e))?;
        self.report.moved_aside.push(to);
        Ok(())
    }
}

/// What the readable edits of a damaged manifest say, wherever they stand.
#[derive(Default)]
struct Known {
    keyspaces: BTreeMap<KeyspaceId, (String, thermocline_model::cuts::Cuts)>,
    dropped: HashSet<KeyspaceId>,
    tables: HashMap<TableId, (KeyspaceId, Arc<TableMeta>)>,
    removed: HashSet<TableId>,
    next_keyspace: u32,
    /// The next number before any edit that cannot be read.
    next_keyspace_before: u32,
}

impl Known {
    fn of(remains: &Remains) -> Known {
        let before = remains.version.as_ref().map_or(0, |v| v.next_keyspace);
        let mut known = Known {
            next_keyspace: before,
            next_keyspace_before: before,
            ..Known::default()
        };
        for change in remains.edits.iter().flat_map(|e| &e.changes) {
            match change {
                Change::AddKeyspace {
                    keyspace,
                    name,
                    cuts,
                } => {
                    known
                        .keyspaces
                        .insert(*keyspace, (name.clone(), cuts.clone()));
                }
                Change::DropKeyspace { keyspace } => {
                    known.keyspaces.remove(keyspace);
                    known.dropped.insert(*keyspace);
                    let (dropped, rest): (HashMap<_, _>, HashMap<_, _>) =
                        std::mem::take(&mut known.tables)
                            .into_iter()
                            .partition(|(_, (k, _))| k == keyspace);
                    known.removed.extend(dropped.into_keys());
                    known.tables = rest;
                }
                Change::AddTable {
                    keyspace, table, ..
                }
                | Change::ReplaceTable { keyspace, table } => {
                    known.removed.remove(&table.id);
                    known
                        .tables
                        .insert(table.id, (*keyspace, Arc::clone(table)));
                }
                Change::RemoveTable { table, .. } => {
                    known.tables.remove(table);
                    known.removed.insert(*table);
                }
                Change::SetCounters { next_keyspace, .. } => {
                    known.next_keyspace = known.next_keyspace.max(*next_keyspace);
                }
                Change::SetFlushed { .. } | Change::SetLogFloor { .. } => {}
            }
        }
        known
    }

    fn name(&self, keyspace: KeyspaceId) -> String {
        self.keyspaces
            .get(&keyspace)
            .map_or_else(|| keyspace.to_string(), |(name, _)| name.clone())
    }
}
