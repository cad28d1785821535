//! The engine: everything that the handles, the verbs and the background
//! threads share.
//!
//! Lock order, outermost first: `commit` (the write path), `scheduler` (what is
//! planned and running), `versions` (the manifest and the current version),
//! `Space::change` (one keyspace's view). `snapshots`, `last_write`, `poisoned` and
//! the turns of the lookup index are taken last and alone. A bulk load, a checkpoint and a flush
//! on demand hold `commit` while they wait for flushes, so no flush may wait for `commit` before
//! it has ended. Reads take none of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_model::check;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::{Prefix, SeqNo};
use thermocline_model::table::TableId;
use thermocline_model::tier::{TierId, TierState};
use thermocline_model::version::{KeyspaceId, Part, Tiny, Version};
use thermocline_model::view::{Division, RangeOptions};

use crate::control::Answered;
use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::job::SpareThreads;
use crate::lend::Lent;
use crate::log::{LocalLog, LogSyncer};
use crate::lookup::Indexing;
use crate::memory::{ArenaPool, TinyCounts};
use crate::options::{Options, Tier};
use crate::publish::Published;
use crate::scan::RangeIndex;
use crate::stats::{Counters, TierCounters};
use crate::step::{Emptied, Pace, Patience, Scheduler};
use crate::store::{Environment, IoBudget, Lock, ObjectKind, ObjectName, Store, StoreState};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{ArcSwap, Condvar, Mutex};
use crate::version::manifest::{self, Header, Manifest};
use crate::version::pointer;
use crate::version::tree::{OpenTable, TableHome, Tree};

mod parts;

use parts::recalled;
pub(crate) use parts::{LiveMemtable, PartView, ReadView, lowest_stamp, recorded};

/// Range deletes in one memtable beyond which it is sealed: they are kept in
/// a list that is copied for each new one.
pub(crate) const RANGE_DELETES_MAX: usize = 512;

/// A keyspace in memory.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    pub(crate) view: ArcSwap<ReadView>,
    pub(crate) dropped: AtomicBool,
    /// Whether a memtable that takes writes may be full: so that not every write looks at those of
    /// all parts, which others write to.
    pub(crate) may_be_full: AtomicBool,
    /// Bulk loads under way, which keep its cuts as they are.
    pub(crate) loads: AtomicUsize,
    change: Mutex<()>,
}

impl Space {
    /// Replaces the view by what `next` makes of it.
    pub(crate) fn update(&self, next: impl FnOnce(&ReadView) -> ReadView) {
        let _guard = self.change.lock();
        let view = next(&self.view.load());
        self.view.store(Arc::new(view));
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("keyspace {:?} was dropped", self.name),
            ));
        }
        Ok(())
    }
}

/// A tier in use.
#[derive(Debug)]
pub(crate) struct TierInUse {
    pub(crate) id: TierId,
    pub(crate) spec: Tier,
    pub(crate) store: Arc<dyn Store>,
    /// The same, paid from the tier's budget for background work.
    pub(crate) background: Arc<dyn Store>,
    pub(crate) budget: Arc<IoBudget>,
    pub(crate) counters: TierCounters,
    /// Held as long as the store is open; none when it is open read-only.
    pub(crate) _lock: Option<Box<dyn Lock>>,
}

/// The manifest and the version in force.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) store_id: u128,
    /// None when the store is open read-only.
    pub(crate) manifest: Option<Manifest>,
    pub(crate) current: Arc<Version>,
    pub(crate) tables: BTreeMap<TableId, Arc<OpenTable>>,
}

/// The state of the write path, under one mutex.
#[derive(Debug)]
pub(crate) struct Commit {
    /// None when the store is open read-only.
    pub(crate) log: Option<LocalLog>,
    pub(crate) next_seq: SeqNo,
    /// What memtables may have grown by since the memory was last looked at, in
    /// bytes.
    pub(crate) grown_bytes: u64,
}

pub(crate) type Spaces = BTreeMap<KeyspaceId, Arc<Space>>;

/// See the module's documentation.
pub(crate) struct Engine {
    /// The store's own number, from its manifest.
    pub(crate) store_id: u128,
    pub(crate) options: Options,
    pub(crate) environment: Environment,
    pub(crate) tiers: Vec<TierInUse>,
    pub(crate) home: Arc<TableHome>,
    pub(crate) arenas: Arc<ArenaPool>,
    pub(crate) lookup: Indexing,
    pub(crate) range_index: RangeIndex,
    pub(crate) lent: Lent,
    pub(crate) spare_threads: SpareThreads,
    /// Memory of memtables that are in no view any more and that a flush still
    /// holds, in bytes.
    pub(crate) leaving_bytes: AtomicUsize,
    /// Held by the thread that works out how hard writers must brake.
    pub(crate) brake_turn: Mutex<Patience>,
    pub(crate) emptied: Mutex<Emptied>,
    pub(crate) pace: Pace,
    pub(crate) commit: Mutex<Commit>,
    /// Held by the thread that deletes log segments.
    pub(crate) trimming: Mutex<()>,
    pub(crate) syncer: Option<Arc<LogSyncer>>,
    /// Every entry up to this number is in the memtables: what reads see.
    pub(crate) published: Published,
    /// The segment that takes appends, and the bytes of all segments.
    pub(crate) log_segment: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) versions: Mutex<Versions>,
    pub(crate) spaces: ArcSwap<Spaces>,
    pub(crate) snapshots: Mutex<BTreeMap<SeqNo, usize>>,
    pub(crate) scheduler: Mutex<Scheduler>,
    /// Signalled when there may be work, and when a job has ended.
    pub(crate) work: Condvar,
    pub(crate) done: Condvar,
    /// Signalled when a job is handed to the thread that moves beside flushes.
    pub(crate) handed: Condvar,
    pub(crate) next_id: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) poisoned: Mutex<Option<Error>>,
    pub(crate) is_poisoned: AtomicBool,
    pub(crate) closing: AtomicBool,
    /// How many callers wait for the store to settle.
    pub(crate) settling: AtomicUsize,
    /// The newest entry when that last changed, and when it did.
    pub(crate) last_write: Mutex<(SeqNo, u64)>,
    /// Held while the cost target changes.
    pub(crate) tuning: Mutex<()>,
    /// Held by who answers a request from outside.
    pub(crate) answered: Mutex<Answered>,
    pub(crate) recovery: crate::stats::Recovery,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("directory", &self.directory())
            .finish_non_exhaustive()
    }
}

/// What a writer, or a fold, owes the others from its place in the log to its publication: they
/// wait for it. If it panics in between, nothing is written any more, and they are told.
pub(crate) struct Owed<'a>(pub(crate) &'a Engine);

impl Owed<'_> {
    pub(crate) fn settle(self) {
        std::mem::forget(self);
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        let what = "a caller panicked in a write";
        self.0.poison(&Error::new(ErrorKind::Poisoned, what));
        self.0.published.break_off();
    }
}

impl Engine {
    /// The first tier's: where the pointer to the manifest lies, and the options.
    pub(crate) fn directory(&self) -> PathBuf {
        self.options.tiers[0].path().to_path_buf()
    }

    /// Where the log lies.
    pub(crate) fn log_directory(&self) -> PathBuf {
        self.options.log_directory().to_path_buf()
    }

    /// A number that was never used before.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn space(&self, id: KeyspaceId) -> Option<Arc<Space>> {
        self.spaces.load().get(&id).cloned()
    }

    pub(crate) fn new_memtable(&self, prefix: Prefix) -> Arc<LiveMemtable> {
        self.new_memtable_among(self.sharing_takers(None), prefix)
    }

    /// A memtable where so many that take writes share the write buffer.
    pub(crate) fn new_memtable_among(&self, takers: u64, prefix: Prefix) -> Arc<LiveMemtable> {
        LiveMemtable::new(&self.options, takers, prefix, &self.arenas)
    }

    /// How many that take writes memtables are sized for; see [`Options::sharing_takers`]. With a
    /// keyspace as it will be.
    pub(crate) fn sharing_takers(&self, will: Option<(KeyspaceId, usize)>) -> u64 {
        let spaces = self.spaces.load();
        let others = spaces
            .values()
            .filter(|s| will.is_none_or(|(id, _)| id != s.id));
        let takers = others.map(|s| s.view.load().takers());
        self.options
            .sharing_takers(takers.chain(will.map(|(_, takers)| takers)))
    }

    /// When and how cuts move, where so many keyspaces share the parts and that many pay.
    pub(crate) fn ranges(&self, sharers: usize, division: Division) -> RangeOptions {
        let ranges = self.options.ranges();
        let paying = self.options.parts_paying(division);
        let slots = match self.options.adapts_parts() {
            true => (paying / sharers.max(1)).max(1),
            false => paying,
        };
        // Each keyspace has one in any case.
        let spared = self.options.active_memtables_total_max.map(|most| {
            let spare = most.saturating_sub(self.spaces.load().len());
            1 + spare / sharers.max(1)
        });
        let slots = slots.min(spared.unwrap_or(slots));
        let joins_above = match self.options.adapts_parts() {
            true => slots,
            false => self.options.joins_above(paying),
        };
        RangeOptions {
            slots,
            joins_above,
            ..ranges
        }
    }

    /// How many memtables of a keyspace may take writes, beside those of all others.
    pub(crate) fn active_room(&self, id: KeyspaceId) -> usize {
        let Some(most) = self.options.active_memtables_total_max else {
            return usize::MAX;
        };
        let spaces = self.spaces.load();
        let others = spaces.values().filter(|space| space.id != id);
        let takers = others.map(|space| space.view.load().takers());
        most.saturating_sub(takers.sum())
    }

    /// A keyspace in memory with empty memtables, in a store where so many share the write buffer;
    /// with its duplicates if there is room for `duplicates`.
    pub(crate) fn new_space(
        &self,
        keyspace: &thermocline_model::Keyspace,
        tree: Arc<Tree>,
        sharing: u64,
        duplicates: bool,
    ) -> Arc<Space> {
        let memtable = || self.new_memtable_among(sharing, Prefix::default());
        let first = || {
            let first = memtable();
            let stamp = self.lookup.first_stamp();
            first.stamp.store(stamp, Ordering::Release);
            first
        };
        let moves = self.options.moves_cuts_of(keyspace);
        // The first look after the opening has as many new ones to go by.
        let look = self.options.takers_of(keyspace) as u64;
        let look = self.options.recut_writes.saturating_mul(look);
        let tiny = recalled(keyspace, look);
        let part = |(at, part): (usize, &Part)| PartView {
            active: first(),
            twins: match moves && duplicates {
                true => (0..self.options.twins_of(part))
                    .map(|_| memtable())
                    .collect(),
                false => Vec::new(),
            },
            sealed: Vec::new(),
            by_number: moves && part.duplicates > 0,
            tiny: moves.then(|| {
                let whole = Tiny {
                    start: keyspace.cuts.interval(at).0.unwrap_or_default().into(),
                    writes: 0,
                };
                Arc::new(match tiny.get(at) {
                    Some(tiny) if !tiny.is_empty() => TinyCounts::new(tiny),
                    _ => TinyCounts::new(&[whole]),
                })
            }),
            flushed_bytes: Arc::default(),
        };
        Arc::new(Space {
            id: keyspace.id,
            name: keyspace.name.clone(),
            view: ArcSwap::from_pointee(ReadView::new(
                Arc::new(keyspace.cuts.clone()),
                keyspace.parts.iter().enumerate().map(part).collect(),
                tree,
            )),
            dropped: AtomicBool::new(false),
            may_be_full: AtomicBool::new(true),
            loads: AtomicUsize::new(0),
            change: Mutex::new(()),
        })
    }

    /// Stops all writes for good: something could not be made durable (I5).
    pub(crate) fn poison(&self, error: &Error) {
        let mut poisoned = self.poisoned.lock();
        if poisoned.is_none() {
            *poisoned = Some(error.clone());
        }
        self.is_poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn check_poisoned(&self) -> Result<()> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.poisoned.lock().clone();
        Err(match cause {
            Some(cause) if cause.kind() == ErrorKind::Poisoned => cause,
            cause => {
                let why = cause.map(|cause| cause.to_string());
                Error::new(ErrorKind::Poisoned, why.unwrap_or_default())
            }
        })
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::invalid("the store is open for reading only"));
        }
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store is closing"));
        }
        self.check_poisoned()
    }

    /// The one door through which every change of the version goes: applies
    /// `edit`, checks the invariants, records it in the manifest, and lets
    /// reads see it. `view` may change a keyspace's memtables in the same step.
    ///
    /// `Ensures:` on an error nothing has changed in memory; after one that poisons the store the
    /// edit may be in force when it is next opened.
    pub(crate) fn commit_edit(
        &self,
        mut edit: Edit,
        opened: Vec<Arc<OpenTable>>,
        view: &mut dyn FnMut(KeyspaceId, &mut Vec<PartView>),
    ) -> Result<()> {
        let mut versions = self.versions.lock();
        self.check_poisoned()?;
        // A bulk load's number is published after its commit.
        let newest = edit.added().map(|(_, _, table)| table.seq_max).max();
        let published = self.published.upto();
        for change in &mut edit.changes {
            // Of two flushes that end together, the one that looked earlier may
            // commit later: what the other made superfluous stays so.
            if let Change::SetLogFloor { segment } = change {
                *segment = versions.current.log_floor.max(*segment);
            }
        }
        let floor = edit.changes.iter().find_map(|change| match change {
            Change::SetLogFloor { segment } => Some(*segment),
            _ => None,
        });
        if let (Some(floor), Some(syncer)) = (floor, &self.syncer) {
            edit.changes.push(Change::SetLogBase {
                seq: syncer.base_of(floor),
            });
        }
        let reach = self.log_reach(&versions.current, &edit);
        let asked = edit.changes.iter_mut().find_map(|change| match change {
            Change::SetLogReach { seq } => Some(seq),
            _ => None,
        });
        match (asked, reach) {
            // The job knows of entries logged anew; what else had to be there, if
            // anything still does, must be there all the same.
            (Some(seq), reach) => {
                *seq = reach.unwrap_or(versions.current.log_reach).max(*seq);
            }
            (None, Some(seq)) => edit.changes.push(Change::SetLogReach { seq }),
            (None, None) => {}
        }
        if !self.reaches_durably(&edit) {
            // After a power failure the store could not be opened (I9).
            debug_assert!(false, "the log is to reach further");
            let message = "refused edit: the log is not durable as far as it must reach";
            return Err(Error::invalid(message));
        }
        // Numbers under which a fold has logged entries anew count from then on, though writers
        // before it may have to publish theirs first.
        let logged = edit.changes.iter().filter_map(|change| match change {
            Change::SetLogReach { seq } | Change::SetLogBase { seq } => Some(*seq),
            _ => None,
        });
        let known = [published, versions.current.last_seq];
        let last_seq = known.into_iter().chain(newest).chain(logged).max();
        edit.changes.push(Change::SetCounters {
            next_id: self.next_id.load(Ordering::Relaxed),
            next_keyspace: versions.current.next_keyspace,
            last_seq: last_seq.unwrap_or(published),
        });
        let next = edit.apply(&versions.current).map_err(Error::invalid)?;
        if let Err(broken) = check::check_edit(&versions.current, &edit, &next) {
            // A policy or a job asked for what would lose data: refuse it.
            debug_assert!(false, "{broken}");
            return Err(Error::invalid(format!("refused edit: {broken}")));
        }
        let manifest = versions.manifest.as_mut();
        let manifest =
            manifest.ok_or_else(|| Error::invalid("the store is open for reading only"))?;
        if let Err(e) = manifest.append(&edit) {
            if e.kind() == ErrorKind::Poisoned {
                self.poison(&e);
            }
            return Err(e);
        }
        let wants_compaction = manifest.wants_compaction();
        let next = Arc::new(next);
        if let Err(e) = self.install(&mut versions, &edit, &next, opened, view) {
            // It is in the manifest, and not in memory: what is committed next would not fit it.
            self.poison(&e);
            return Err(e);
        }
        if wants_compaction {
            // Not part of this edit: a failure costs only space.
            if let Err(e) = self.compact_manifest(&mut versions) {
                if e.kind() == ErrorKind::Poisoned {
                    self.poison(&e);
                }
                self.counters.background_error(&e);
            }
        }
        Ok(())
    }

    fn install(
        &self,
        versions: &mut Versions,
        edit: &Edit,
        next: &Arc<Version>,
        opened: Vec<Arc<OpenTable>>,
        view: &mut dyn FnMut(KeyspaceId, &mut Vec<PartView>),
    ) -> Result<()> {
        let before = Arc::clone(&versions.current);
        let mut gone = Vec::new();
        for change in &edit.changes {
            let replaced = match change {
                Change::RemoveTable { table, .. } => versions.tables.get(table),
                Change::ReplaceTable { table, .. } => versions.tables.get(&table.id),
                _ => None,
            };
            gone.extend(replaced.cloned());
        }
        for open in opened {
            versions.tables.insert(open.meta.id, open);
        }
        let mut spaces = (**self.spaces.load()).clone();
        for (id, space) in &**self.spaces.load() {
            if !next.keyspaces.contains_key(id) {
                space.dropped.store(true, Ordering::Release);
                spaces.remove(id);
                gone.extend(space.view.load().tree.tables().cloned());
            }
        }
        for (id, keyspace) in &next.keyspaces {
            let unchanged = before
                .keyspaces
                .get(id)
                .is_some_and(|b| Arc::ptr_eq(b, keyspace));
            if unchanged && spaces.contains_key(id) {
                continue;
            }
            let tree = Arc::new(Tree::build(keyspace, &self.home, &mut versions.tables)?);
            match spaces.get(id) {
                Some(space) => space.update(|old| {
                    let mut parts = old.parts.clone();
                    view(*id, &mut parts);
                    let cuts = match *old.cuts == keyspace.cuts {
                        true => Arc::clone(&old.cuts),
                        false => Arc::new(keyspace.cuts.clone()),
                    };
                    ReadView::new(cuts, parts, Arc::clone(&tree))
                }),
                None => {
                    let takers = self.options.takers_of(keyspace);
                    let sharing = self.sharing_takers(Some((*id, takers)));
                    let space = self.new_space(keyspace, tree, sharing, true);
                    spaces.insert(*id, space);
                }
            }
        }
        versions.current = Arc::clone(next);
        let live: std::collections::HashSet<TableId> = next.tables().map(|t| t.id).collect();
        let mut forgotten = Vec::new();
        for old in gone {
            let keep = versions
                .tables
                .get(&old.meta.id)
                .filter(|_| live.contains(&old.meta.id));
            old.retire(keep.map(|k| &**k));
            if keep.is_none() {
                versions.tables.remove(&old.meta.id);
                forgotten.push(old);
            }
        }
        self.spaces.store(Arc::new(spaces));
        // Reads that still hold them find them nonetheless, on their devices.
        for table in forgotten {
            table.forget_blocks();
        }
        Ok(())
    }

    /// Makes reads see `versions.tables` anew, the version being the same.
    pub(crate) fn rebuild_trees(&self, versions: &mut Versions) {
        let current = Arc::clone(&versions.current);
        for (id, keyspace) in &current.keyspaces {
            let tree = Tree::build(keyspace, &self.home, &mut versions.tables);
            if let (Ok(tree), Some(space)) = (tree, self.space(*id)) {
                let tree = Arc::new(tree);
                space.update(|old| {
                    ReadView::new(Arc::clone(&old.cuts), old.parts.clone(), Arc::clone(&tree))
                });
            }
        }
    }

    /// Begins a new manifest with the current version and swaps it in.
    fn compact_manifest(&self, versions: &mut Versions) -> Result<()> {
        let Some(old) = versions.manifest.as_ref() else {
            return Ok(());
        };
        let number = self.new_id();
        let pointer = self.options.next_manifest(number);
        let directory = self.options.manifest_directory();
        let mut version = (*versions.current).clone();
        version.next_id = version.next_id.max(number + 1);
        let header = Header {
            number,
            ..old.header().clone()
        };
        let old_path = old.path().to_path_buf();
        let fs = &self.environment.file_system;
        let new = Manifest::create(&self.environment, directory, header, &version, true)
            .inspect_err(|_| {
                let _ = fs.unlink(&directory.join(manifest::file_name(number)));
            })?;
        pointer::install(&self.environment, &self.directory(), pointer).inspect_err(|e| {
            if e.kind() != ErrorKind::Poisoned {
                let _ = fs.unlink(new.path());
            }
        })?;
        versions.manifest = Some(new);
        versions.current = Arc::new(version);
        let _ = self.environment.file_system.unlink(&old_path);
        Ok(())
    }

    /// Deletes objects that no version and no reader names any more (I4).
    pub(crate) fn bury(&self) {
        for (store, name) in self.home.graveyard.take() {
            self.delete(store, name);
        }
    }

    /// Deletes one of them, if there is any. Says whether it did: one that cannot be deleted is
    /// tried again after the others.
    pub(crate) fn bury_one(&self) -> bool {
        let one = self.home.graveyard.take_one();
        one.is_some_and(|(store, name)| self.delete(store, name))
    }

    /// Whether the object is gone.
    fn delete(&self, store: Arc<dyn Store>, name: ObjectName) -> bool {
        match store.delete(name) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                self.counters.background_error(&e);
                self.home.graveyard.put(store, name);
                false
            }
            _ => true,
        }
    }

    /// What placement may know of the tiers now.
    pub(crate) fn tier_states(&self) -> Vec<TierState> {
        let options = &self.options;
        let reserved = [0, options.log_tier_index(), options.manifest_tier_index()];
        let state = |tier: &TierInUse| {
            let state = tier.store.state().unwrap_or(StoreState {
                used_bytes: 0,
                free_bytes: 0,
            });
            let device = state.used_bytes + state.free_bytes;
            TierState {
                id: tier.id,
                name: tier.spec.name().to_string(),
                used_bytes: state.used_bytes,
                capacity_bytes: tier.spec.capacity().unwrap_or(device),
                device_free_bytes: state.free_bytes,
                reserve_bytes: match reserved.contains(&(tier.id.0 as usize)) {
                    true => self.options.reserve_bytes,
                    false => 0,
                },
                price_usd_gb_month: tier.spec.price(),
                profile: tier.spec.device_profile(),
            }
        };
        self.tiers.iter().map(state).collect()
    }

    /// The sequence numbers that readers hold, ascending.
    pub(crate) fn held_snapshots(&self) -> Vec<SeqNo> {
        self.snapshots.lock().keys().copied().collect()
    }

    /// Deletes an object that no version ever named.
    pub(crate) fn discard(&self, tier: TierId, id: u64, kind: ObjectKind) {
        if self.is_poisoned.load(Ordering::Acquire) || std::thread::panicking() {
            // The edit that names it may be the one that could not be made
            // durable, or that a panic cut short after it was, and may yet be in
            // force when the store is next opened.
            return;
        }
        if let Some(tier) = self.tiers.get(tier.0 as usize) {
            let _ = tier.store.delete(ObjectName { id, kind });
        }
    }
}
