//! Flush, settle and compaction on demand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thermocline_model::job::{Flush, Job, Merge, Reason};
use thermocline_model::table::TableMeta;
use thermocline_model::version::{Keyspace, KeyspaceId, Slot};

use crate::engine::{Commit, Engine, Space};
use crate::error::Result;
use crate::step::Planned;

/// How long to wait for a busy table before looking again.
const BUSY_WAIT: Duration = Duration::from_millis(20);

impl Engine {
    /// Flushes every memtable, of one keyspace or of all.
    pub(crate) fn flush_all(&self, only: Option<KeyspaceId>) -> Result<()> {
        self.check_writable()?;
        let is_all = self.seal_all(only);
        for space in self.spaces.load().values() {
            if only.is_none_or(|id| id == space.id) {
                self.flush_sealed(space, Engine::run)?;
            }
        }
        if !is_all {
            // Writers could take the room again and again that was made for these.
            let mut commit = self.commit.lock();
            self.flush_still(&mut commit, only)?;
            drop(commit);
            self.trim_log();
        }
        Ok(())
    }

    /// Flushes all that is sealed, of all keyspaces.
    pub(crate) fn flush_listed(&self) -> Result<()> {
        for space in self.spaces.load().values() {
            self.flush_sealed(space, Engine::run)?;
        }
        Ok(())
    }

    /// Seals and flushes every memtable, of one keyspace or of all, while the
    /// caller keeps writers out. On return everything visible is in tables, and
    /// nothing else of the keyspaces concerned.
    pub(crate) fn flush_still(&self, commit: &mut Commit, only: Option<KeyspaceId>) -> Result<()> {
        // The last writers have their numbers but may still be inserting.
        while self.visible().next() != commit.next_seq {
            self.check_poisoned()?;
            crate::sync::yield_now();
        }
        for space in self.spaces.load().values() {
            if only.is_none_or(|id| id == space.id) {
                while !self.seal(commit, space, |_, _| true) {
                    // Others may have all the room. With none sealed there is enough for any part.
                    for space in self.spaces.load().values() {
                        self.flush_sealed(space, Engine::run_untrimmed)?;
                    }
                    if space.dropped.load(Ordering::Acquire) {
                        break;
                    }
                }
                self.flush_sealed(space, Engine::run_untrimmed)?;
            }
        }
        Ok(())
    }

    /// Flushes the sealed memtables of `space`, waiting for flushes that run.
    fn flush_sealed(&self, space: &Space, run: fn(&Engine, Planned) -> Result<()>) -> Result<()> {
        // Until all parts were looked at with the same cuts: when a keyspace is cut
        // meanwhile, what was sealed may come to lie in a part that was passed.
        loop {
            let cuts = Arc::clone(&space.view.load().cuts);
            self.flush_parts(space, run)?;
            if Arc::ptr_eq(&cuts, &space.view.load().cuts) {
                return Ok(());
            }
        }
    }

    fn flush_parts(&self, space: &Space, run: fn(&Engine, Planned) -> Result<()>) -> Result<()> {
        let parts = (0u32..).take_while(|&p| (p as usize) < space.view.load().parts.len());
        for part in parts {
            loop {
                let view = space.view.load_full();
                let sealed = view.parts.get(part as usize).map_or(0, |p| p.sealed.len());
                if sealed == 0 || space.dropped.load(Ordering::Acquire) {
                    break;
                }
                self.check_writable()?;
                let job = Job::Flush(Flush {
                    keyspace: space.id,
                    part,
                    beside: Vec::new(),
                    active: false,
                    reason: Reason::new("on-demand").with("sealed memtables", sealed as f64),
                });
                let begun = {
                    let mut scheduler = self.scheduler.lock();
                    let busy = scheduler.flushing.contains(&(space.id, part));
                    if busy {
                        self.done.wait_for(&mut scheduler, BUSY_WAIT);
                        None
                    } else {
                        Some(self.begin(&mut scheduler, job))
                    }
                };
                if let Some(planned) = begun {
                    run(self, planned)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until no background work is wanted, what is only done at rest
    /// included.
    pub(crate) fn settle(&self) -> Result<()> {
        self.settling.fetch_add(1, Ordering::Relaxed);
        let settled = self.wait_settled();
        self.settling.fetch_sub(1, Ordering::Relaxed);
        settled
    }

    fn wait_settled(&self) -> Result<()> {
        loop {
            self.check_writable()?;
            let errors = self.counters.job_errors.get();
            if self.step()? {
                continue;
            }
            let mut scheduler = self.scheduler.lock();
            let wait_us = scheduler.moves.wait_us(self.environment.clock.now_micros());
            if wait_us > 0 && scheduler.running == 0 && self.options.keeps_cost() {
                // A relocation may be wanted as soon as the bound on bytes allows.
                drop(scheduler);
                let wait = Duration::from_micros(wait_us).min(BUSY_WAIT);
                self.environment.clock.sleep(wait);
                continue;
            }
            if scheduler.running == 0 && !self.has_flushable() {
                return Ok(());
            }
            let backoff_us = scheduler.backoff_us(self.environment.clock.now_micros());
            if backoff_us > 0 && scheduler.running == 0 {
                // Nobody is about to end a job: only time helps.
                drop(scheduler);
                let wait = Duration::from_micros(backoff_us).min(BUSY_WAIT);
                self.environment.clock.sleep(wait);
            } else {
                self.done.wait_for(&mut scheduler, BUSY_WAIT);
                drop(scheduler);
            }
            if self.counters.job_errors.get() > errors
                && let Some(error) = self.counters.last_error()
            {
                return Err(error);
            }
        }
    }

    /// Whether some part holds enough sealed memtables to be flushed soon.
    fn has_flushable(&self) -> bool {
        let limit = self.shape().flush_bytes;
        self.spaces.load().values().any(|space| {
            space
                .view
                .load()
                .parts
                .iter()
                .any(|p| p.sealed.iter().map(|m| m.size_share() as u64).sum::<u64>() >= limit)
        })
    }
}

/// See [`crate::Keyspace::compact_range`].
pub(crate) fn compact_range(
    engine: &Engine,
    space: &Arc<Space>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    if let (Some(s), Some(e)) = (start, end)
        && s > e
    {
        return Err(crate::Error::invalid(
            "compact range: start lies behind end",
        ));
    }
    engine.flush_all(Some(space.id))?;
    // Each round moves the newest slot that overlaps one step down.
    let mut slot = 0;
    loop {
        engine.check_writable()?;
        space.check_open()?;
        let planned = {
            let mut scheduler = engine.scheduler.lock();
            let version = Arc::clone(&engine.versions.lock().current);
            let Some(keyspace) = version.keyspaces.get(&space.id) else {
                return Ok(());
            };
            match next(keyspace, start, end, engine.options.table_size(), &mut slot) {
                None => return Ok(()),
                Some(merge) => {
                    let busy = merge.inputs.iter().any(|id| scheduler.busy.contains(id))
                        || scheduler
                            .busy_outputs
                            .iter()
                            .any(|(k, s, _)| *k == space.id && *s == merge.output);
                    if busy {
                        engine.done.wait_for(&mut scheduler, BUSY_WAIT);
                        None
                    } else {
                        Some((engine.begin(&mut scheduler, Job::Merge(merge)), slot))
                    }
                }
            }
        };
        if let Some((planned, at)) = planned {
            engine.run(planned)?;
            slot = at + 1;
        }
    }
}

/// The next merge of a manual compaction, from the slots at `slot` on: every
/// overlapping table of one slot with those of the next level it overlaps; at
/// last the last level by itself, so that its deletes go.
fn next(
    keyspace: &Keyspace,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    table_bytes: u64,
    slot: &mut usize,
) -> Option<Merge> {
    let slots: Vec<Slot> = keyspace.slots().collect();
    let parts = keyspace.parts.len();
    let last_level = keyspace.levels.iter().rposition(|l| !l.runs.is_empty());
    while *slot <= slots.len() {
        let from = *slots.get(*slot)?;
        let level = keyspace.level(from)?;
        let output = match from {
            Slot::Newest(_) => {
                let first = keyspace.levels.iter().position(|l| !l.runs.is_empty());
                Slot::Level(first.unwrap_or(0) as u32)
            }
            Slot::Level(at) if Some(at as usize) == last_level => Slot::Level(at),
            Slot::Level(at) => Slot::Level(at + 1),
        };
        let mut chosen: Vec<&Arc<TableMeta>> = level
            .tables()
            .filter(|t| t.range.overlaps_bounds(start, end))
            .collect();
        let rewrite = output == from;
        // What overlaps within a level is merged along, whichever run it lies in.
        let overlaps = level.runs.len() > 1;
        let droppable = |t: &TableMeta| t.deletes > 0 || t.range_deletes > 0 || t.dead_bytes > 0;
        if rewrite && !overlaps {
            chosen.retain(|t| droppable(t));
        }
        if chosen.is_empty() {
            *slot += 1;
            continue;
        }
        // Everything of the newest level that overlaps comes along, or a newer
        // entry would stay above an older one that passed it: which is lawful,
        // but would leave the range in two places.
        if *slot < parts || overlaps || !rewrite {
            grow(keyspace, from, output, &mut chosen);
        }
        let inputs: BTreeSet<_> = chosen.iter().map(|t| t.id).collect();
        return Some(Merge {
            keyspace: keyspace.id,
            inputs: inputs.into_iter().collect(),
            output,
            table_bytes,
            rewrite,
            deeper: None,
            reason: Reason::new("on-demand"),
        });
    }
    None
}

/// Adds tables of `from` and `output` until nothing outside overlaps.
fn grow<'a>(
    keyspace: &'a Keyspace,
    from: Slot,
    output: Slot,
    chosen: &mut Vec<&'a Arc<TableMeta>>,
) {
    loop {
        let Some(hull) = chosen
            .iter()
            .map(|t| t.range.clone())
            .reduce(|a, b| a.hull(&b))
        else {
            return;
        };
        let before = chosen.len();
        for slot in [from, output] {
            let strict = matches!(slot, Slot::Level(_));
            let strict = strict && keyspace.level(slot).is_none_or(|l| l.runs.len() < 2);
            for table in keyspace.level(slot).into_iter().flat_map(|l| l.tables()) {
                let known = chosen.iter().any(|t| t.id == table.id);
                if !known && table.range.overlaps(&hull) && (slot == output || !strict) {
                    chosen.push(table);
                }
            }
        }
        if chosen.len() == before {
            return;
        }
    }
}
