//! Merge: tables become new tables one slot further on.
//!
//! A table that overlaps no other input is moved without being rewritten; of
//! the others, a block that overlaps nothing is copied without being decoded.
//! A large merge is split by key into sub-ranges that run side by side, and so is what goes to
//! a deeper level, on another device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermocline_model::cover::Cover;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::Merge;
use thermocline_model::join::{Join, alone, join};
use thermocline_model::key::SeqNo;
use thermocline_model::range::KeyRange;
use thermocline_model::table::{Compression, TableId, TableMeta};
use thermocline_model::tier::TierId;
use thermocline_model::version::{Keyspace, KeyspaceId, RunId, Slot};

use super::below::Below;
use super::lanes::{lanes, side_by_side, threads};
use super::output::{Host, Outputs, Target, Written, is_closing, spilling};
use super::stretches::{Inputs, Stretch, cuts_within, ends_of_deeper, leaving, stretches, walls};
use super::survive::Survivors;
use super::{Done, Progress, WentDeeper};
use crate::engine::Engine;
use crate::error::Result;
use crate::events::PlacedTable;
use crate::memory::Filter;
use crate::merge::{MergeCursor, RunCursor, Source};
use crate::table::{MergeRun, ReadMode};
use crate::version::tree::{OpenTable, RunTables};

/// Bytes of input after which a merge looks whether it should stop.
const CHECK_STEP_BYTES: u64 = 1 << 20;

impl Engine {
    pub(crate) fn run_merge(&self, job: &Merge, progress: &Progress) -> Result<Done> {
        let (version, known) = {
            let versions = self.versions.lock();
            let known: Option<Vec<_>> = job
                .inputs
                .iter()
                .map(|id| versions.tables.get(id).cloned())
                .collect();
            (Arc::clone(&versions.current), known)
        };
        let keyspace = version.keyspaces.get(&job.keyspace);
        let (Some(keyspace), Some(known)) = (keyspace, known) else {
            return Ok(Done::nothing());
        };
        let Some(inputs) = placed(keyspace, &known) else {
            return Ok(Done::nothing());
        };

        let (moved, merged) = split_moved(job, keyspace, inputs);
        let bytes_in = merged.values().flatten().map(|t| t.meta.size_bytes()).sum();
        let raw_bytes = merged.values().flatten().map(|t| t.meta.raw_bytes).sum();
        let below = below(keyspace, job, &merged);
        let snapshots = self.held_snapshots();
        let mut walls = walls(keyspace, job, &moved, &merged);
        walls.extend(ends_of_deeper(job));
        if self.options.ends_outputs(keyspace) {
            walls.extend(cuts_within(keyspace, &merged));
        }
        let threads = threads(self.options.threads());
        let stretches = stretches(threads, job, keyspace, &merged, &walls);
        let done = spilling(self, |first_tier| {
            progress.begin(self.environment.clock.now_micros(), raw_bytes);
            self.merge_into(
                job, &moved, &merged, &below, &snapshots, &stretches, first_tier, progress,
            )
        })?;
        let counter = match merged.is_empty() {
            true => &self.counters.merges_by_edit,
            false => &self.counters.merges,
        };
        counter.add(1);
        self.counters.tables_moved.add(moved.len() as u64);
        self.counters.merge_in_bytes.add(bytes_in);
        self.counters.merge_out_bytes.add(done.bytes_out);
        for table in merged.values().flatten() {
            if let Some(tier) = self.tiers.get(table.meta.tier().0 as usize) {
                tier.counters.job_read_bytes.add(table.meta.size_bytes());
            }
        }
        let stored_share = bytes_in as f64 / raw_bytes.max(1) as f64;
        let deeper = WentDeeper {
            bytes_in: (done.deeper.bytes_in as f64 * stored_share) as u64,
            ..done.deeper
        };
        Ok(Done {
            bytes_in,
            deeper,
            ..done
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one plan, used in one place"
    )]
    fn merge_into(
        &self,
        job: &Merge,
        moved: &[Arc<OpenTable>],
        merged: &Inputs,
        below: &[Vec<Arc<TableMeta>>],
        snapshots: &[SeqNo],
        stretches: &[Stretch],
        first_tier: TierId,
        progress: &Progress,
    ) -> Result<Done> {
        let mut covers = Vec::new();
        for table in merged
            .values()
            .flatten()
            .filter(|t| t.meta.range_deletes > 0)
        {
            covers.push(table.table()?);
        }
        let cover = Cover::merge(covers.iter().map(|t| t.cover()));
        let inputs = merged.values().flatten();
        let inputs = inputs.map(|t| t.meta.rewritten_bytes_max());
        let target = Target {
            keyspace: job.keyspace,
            slot: job.output,
            table_bytes: job.table_bytes,
            bytes_max: inputs.fold(0, u64::saturating_add),
            parents: merged.values().flatten().map(|t| t.meta.id).collect(),
            first_tier,
            background: true,
            written: Written::default(),
        };
        let raw_bytes_down = AtomicU64::new(0);
        let run_one = |stretch: &Stretch,
                       failed: &AtomicBool|
         -> Result<(Outputs<'_>, Vec<Arc<TableMeta>>)> {
            let clipped = cover.clip(stretch.low.as_deref(), stretch.high.as_deref());
            let below = Below::new(below.to_vec());
            let survivors = Survivors::new(snapshots.to_vec(), &clipped, Some(below));
            let target = Target {
                slot: stretch.slot,
                ..target.clone()
            };
            let cover = survivors.cover_to_write(&clipped);
            let mut outputs = Outputs::new(Host::Job(self), target, cover);
            let stop = || failed.load(Ordering::Relaxed) || self.closing.load(Ordering::Relaxed);
            let down =
                self.merge_stretch(merged, stretch, survivors, &mut outputs, progress, &stop)?;
            raw_bytes_down.fetch_add(down, Ordering::Relaxed);
            let tables = outputs.finish(&stop)?;
            Ok((outputs, tables))
        };
        let run_one = |stretch: &Stretch, failed: &AtomicBool| {
            self.timed(&self.counters.merge_times, || run_one(stretch, failed))
        };
        let mut results = Vec::new();
        if !merged.is_empty() {
            let deeper = stretches.iter().map(|stretch| stretch.slot != job.output);
            let lanes = lanes(deeper, self.options.threads(), &self.spare_threads);
            results = side_by_side(stretches, &lanes, &run_one)?;
        }

        let mut edit = Edit::default();
        let leaving = leaving(moved, merged);
        for &table in &leaving {
            edit.changes.push(Change::RemoveTable {
                keyspace: job.keyspace,
                table,
            });
        }
        let new: Vec<Arc<TableMeta>> = results
            .iter()
            .flat_map(|(_, tables)| tables.iter().cloned())
            .collect();
        let opened = self.open_outputs(&new)?;
        // Merges into one level may end at the same time: the second must find
        // the run that the first one made, or the level has two.
        let ending = self.scheduler.lock();
        for slot in job.slots() {
            let written = stretches.iter().zip(&results);
            let written = written.filter(|(stretch, _)| stretch.slot == slot);
            let written = written.flat_map(|(_, (_, tables))| tables);
            let moved = moved.iter().filter(|_| slot == job.output);
            let added: Vec<_> = moved.map(|t| &t.meta).chain(written).collect();
            let (run, behind) = self.output_run(job.keyspace, slot, &leaving, &added);
            edit.changes
                .extend(added.into_iter().map(|table| Change::AddTable {
                    keyspace: job.keyspace,
                    slot,
                    run,
                    behind,
                    table: Arc::clone(table),
                }));
        }
        if edit.changes.is_empty() {
            return Ok(Done::nothing());
        }
        let committed = self.commit_edit(edit, opened, &mut |_, _| {});
        if committed.is_ok() {
            // Before anybody plans with the new version.
            let parents = merged.values().flatten().map(|t| Arc::clone(&t.meta));
            let parents: Vec<_> = parents.collect();
            let below: Vec<_> = below.iter().flatten().cloned().collect();
            ending.preset.heat.inherit(&parents, &new, &below);
        }
        drop(ending);
        if committed.is_err() && self.space(job.keyspace).is_none() {
            // The keyspace was dropped meanwhile.
            return Ok(Done::nothing());
        }
        committed?;
        let deeper = stretches.iter().zip(&results);
        let deeper = deeper.filter(|(stretch, _)| stretch.slot != job.output);
        let deeper = deeper.flat_map(|(_, (_, tables))| tables);
        let deeper = WentDeeper {
            bytes_in: raw_bytes_down.into_inner(),
            bytes_out: deeper.map(|t| t.size_bytes()).sum(),
        };
        let kept = results.into_iter().flat_map(|(outputs, _)| outputs.keep());
        let moved_tables = moved.iter().map(|t| PlacedTable {
            table: t.meta.id.0,
            tier: t.meta.tier().0,
            bytes: t.meta.data_bytes(),
            rule: "moved".into(),
        });
        let tables_out = kept.chain(moved_tables).collect();
        let count = merged.values().map(Vec::len).sum::<usize>();
        let slots: Vec<_> = job.slots().map(|slot| slot.to_string()).collect();
        let slots = slots.join(" and ");
        let what = match (count, moved.len()) {
            (0, moved) => format!("{moved} tables moved to {slots}, nothing rewritten"),
            (_, 0) => format!("{count} tables into {} of {slots}", new.len()),
            (_, moved) => format!(
                "{count} tables into {} of {slots}, {moved} moved",
                new.len()
            ),
        };
        Ok(Done {
            what,
            tables_in: job.inputs.iter().map(|t| t.0).collect(),
            tables_out,
            bytes_in: 0,
            bytes_out: new.iter().map(|t| t.size_bytes()).sum(),
            deeper,
        })
    }

    /// The run of `slot` that `outputs` join now, or a new one and the run that it
    /// lies behind.
    fn output_run(
        &self,
        keyspace: KeyspaceId,
        slot: Slot,
        leaving: &[TableId],
        outputs: &[&Arc<TableMeta>],
    ) -> (RunId, Option<RunId>) {
        let version = Arc::clone(&self.versions.lock().current);
        let ranges: Vec<KeyRange> = outputs.iter().map(|t| t.range.clone()).collect();
        let keyspace = version.keyspaces.get(&keyspace);
        let joined = keyspace.map(|k| join(k, slot, leaving, &ranges));
        match joined {
            Some(Join::Run(run)) => (run, None),
            Some(Join::New { behind }) => (RunId(self.new_id()), behind),
            None => (RunId(self.new_id()), None),
        }
    }

    /// Merges what lies in `stretch` into `outputs`. Gives the bytes of keys and values that it
    /// read of the sources above.
    fn merge_stretch(
        &self,
        inputs: &Inputs,
        stretch: &Stretch,
        mut survivors: Survivors<'_>,
        outputs: &mut Outputs<'_>,
        progress: &Progress,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64> {
        let runs = inputs.values().map(|tables| {
            let overlapping = tables.iter().filter(|t| {
                t.meta
                    .range
                    .overlaps_bounds(stretch.low.as_deref(), stretch.high.as_deref())
            });
            overlapping.cloned().collect()
        });
        let runs: Vec<Vec<Arc<OpenTable>>> = runs.collect();
        let sources = runs.iter().zip(read_modes(&runs)).map(|(tables, mode)| {
            let run = RunTables::new(tables.clone());
            Source::Run(RunCursor::new(Arc::new(run), mode))
        });
        let mut cursor = MergeCursor::new(sources.collect());
        match &stretch.low {
            Some(low) => cursor.seek(low, SeqNo::MAX)?,
            None => cursor.seek_first()?,
        }
        let (mut unchecked, mut merged, mut from_above) = (0, 0, 0);
        // By source: whether the block it stands in is cached.
        let mut warm = vec![false; inputs.len()];
        while cursor.valid() {
            let key = cursor.key();
            if stretch.high.as_deref().is_some_and(|high| key >= high) {
                break;
            }
            if unchecked >= CHECK_STEP_BYTES {
                self.pay_for_reads(&cursor, unchecked);
                progress.add(merged);
                (unchecked, merged) = (0, 0);
                if stop() {
                    return Err(is_closing());
                }
            }
            let source = cursor.top_index();
            let is_above = u64::from(source < stretch.above);
            if let Some((stored, raw)) =
                self.copy_block(&mut cursor, stretch, &mut survivors, outputs)?
            {
                unchecked += stored;
                merged += raw;
                from_above += is_above * raw;
                continue;
            }
            if let Some(disk) = cursor.top().disk().filter(|d| d.at_block_start()) {
                warm[source] = disk.table().is_cached(disk.block_index());
            }
            let key = cursor.key();
            let value = cursor.value();
            let entry_bytes = (key.len() + value.len()) as u64;
            unchecked += entry_bytes;
            merged += entry_bytes;
            from_above += is_above * entry_bytes;
            let (seq, kind) = (cursor.seq(), cursor.kind());
            if survivors.keeps(key, seq, kind) {
                if survivors.is_new_key() && outputs.is_full() {
                    outputs.cut(key)?;
                }
                outputs.add(key, seq, kind, value)?;
                if warm[source] {
                    outputs.keep_warm();
                }
            }
            cursor.next()?;
        }
        progress.add(merged);
        Ok(from_above)
    }

    /// Pays for bytes that a merge has read. All of them are put down to the
    /// tier that it reads from just now: over many steps each tier gets its share.
    fn pay_for_reads(&self, cursor: &MergeCursor, bytes: u64) {
        let disk = cursor.top().disk();
        let tier = disk.and_then(|d| self.tiers.get(d.table().record().tier().0 as usize));
        if let Some(tier) = tier {
            tier.budget.take(bytes);
        }
    }

    /// If the cursor stands at the start of a block that overlaps nothing and
    /// loses nothing, copies it whole and moves behind it. Gives its bytes, as stored and as
    /// they are read.
    #[inline]
    fn copy_block(
        &self,
        cursor: &mut MergeCursor,
        stretch: &Stretch,
        survivors: &mut Survivors<'_>,
        outputs: &mut Outputs<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let Some(disk) = cursor.top().disk() else {
            return Ok(None);
        };
        if !disk.at_block_start() {
            return Ok(None);
        }
        let table = Arc::clone(disk.table());
        let index = disk.block_index();
        let block = table.block_info(index);
        if block.has_deletes || block.has_versions || block.continues {
            return Ok(None);
        }
        // A cached block is decoded, so that its successor is cached too.
        if table.is_cached(index) {
            return Ok(None);
        }
        let continued = index + 1 < table.block_count() && table.block_info(index + 1).continues;
        let last = &*disk.block_last_key()?;
        let limit = |key: &[u8]| last < key;
        if continued
            || cursor.second().is_some_and(|s| !limit(s.key()))
            || stretch.high.as_deref().is_some_and(|high| !limit(high))
            || !survivors.passes_block(disk.key(), last)
        {
            return Ok(None);
        }
        let tier = outputs.tier(disk.key())?;
        let spec = &self.tiers[tier.0 as usize].spec;
        let payload_bytes = disk.block().map_or(0, |block| block.bytes().len());
        let compressed = (block.stored_bytes as usize) < payload_bytes;
        let fits = (spec.block_size() / 2..spec.block_size() * 2).contains(&payload_bytes);
        if compressed != (spec.block_compression() != Compression::None)
            || !fits
            || !outputs.takes_blocks_of(&table)
        {
            return Ok(None);
        }
        if outputs.is_full() {
            let key = disk.key().to_vec();
            outputs.cut(&key)?;
        }
        let bytes = outputs.add_block(disk)?;
        survivors.passed_block(last);
        self.counters.blocks_copied.add(1);
        let skipped = cursor.top_mut().skip_block();
        cursor.resettle(skipped)?;
        Ok(Some((bytes, payload_bytes as u64)))
    }

    /// Opens new tables before a version names them: what cannot be opened
    /// must not be committed.
    pub(crate) fn open_outputs(&self, tables: &[Arc<TableMeta>]) -> Result<Vec<Arc<OpenTable>>> {
        self.open_flushed(tables, None, 0)
    }

    /// As [`Engine::open_outputs`]; every key of the tables is in `filter`, if there
    /// is one, and in the lookup index with `stamp` or a higher one.
    pub(crate) fn open_flushed(
        &self,
        tables: &[Arc<TableMeta>],
        filter: Option<Arc<Filter>>,
        stamp: u64,
    ) -> Result<Vec<Arc<OpenTable>>> {
        let open = |meta: &Arc<TableMeta>| -> Result<Arc<OpenTable>> {
            let open = OpenTable::new(Arc::clone(meta), &self.home, None)?;
            let open = open.with_filter(filter.clone()).with_stamp(stamp);
            open.table()?;
            Ok(Arc::new(open))
        };
        tables.iter().map(open).collect()
    }
}

/// How a merge reads each of `runs`: as if all of one lay on its slowest tier, with the
/// bytes that do.
fn read_modes(runs: &[Vec<Arc<OpenTable>>]) -> Vec<ReadMode> {
    let slowest = |run: &Vec<Arc<OpenTable>>| run.iter().map(|t| t.meta.tier()).max();
    let fastest = runs.iter().filter_map(slowest).min();
    let merged: Vec<MergeRun> = runs
        .iter()
        .map(|run| {
            let tier = slowest(run);
            let there = run.iter().filter(|t| Some(t.meta.tier()) == tier);
            MergeRun {
                is_slow: tier.is_some() && tier > fastest,
                bytes: there.map(|t| t.meta.size_bytes()).sum(),
            }
        })
        .collect();
    ReadMode::merge_of(&merged)
}

/// The inputs by slot and run, or `None` when one of them is not in the
/// keyspace any more.
fn placed(keyspace: &Keyspace, tables: &[Arc<OpenTable>]) -> Option<Inputs> {
    let mut inputs = Inputs::new();
    let mut found = 0;
    let wanted: BTreeMap<TableId, &Arc<OpenTable>> =
        tables.iter().map(|t| (t.meta.id, t)).collect();
    for (at, slot) in keyspace.slots().enumerate() {
        let runs = keyspace.level(slot).map_or(&[][..], |l| &l.runs);
        for (run_at, run) in runs.iter().enumerate() {
            for table in &run.tables {
                if let Some(open) = wanted.get(&table.id) {
                    inputs
                        .entry((at, run_at))
                        .or_default()
                        .push(Arc::clone(open));
                    found += 1;
                }
            }
        }
    }
    (found == wanted.len()).then_some(inputs)
}

/// Sets apart the inputs that overlap no other input: those of the output slot's
/// first run stay where they are, others are moved to that slot.
fn split_moved(job: &Merge, keyspace: &Keyspace, inputs: Inputs) -> (Vec<Arc<OpenTable>>, Inputs) {
    if job.rewrite {
        return (Vec::new(), inputs);
    }
    let alone = alone(inputs.values().flatten().map(|t| &*t.meta));
    let run = keyspace.level(job.output).and_then(|l| l.runs.first());
    let in_output =
        |table: &OpenTable| run.is_some_and(|r| r.tables.iter().any(|t| t.id == table.meta.id));
    let mut moved = Vec::new();
    let mut merged = Inputs::new();
    for (place, tables) in inputs {
        for table in tables {
            if !alone.contains(&table.meta.id) {
                merged.entry(place).or_default().push(table);
            } else if !in_output(&table) {
                moved.push(table);
            }
        }
    }
    (moved, merged)
}

/// The tables outside the merge that may hold entries older than its inputs:
/// everything from the newest input's place on.
fn below(keyspace: &Keyspace, job: &Merge, merged: &Inputs) -> Vec<Vec<Arc<TableMeta>>> {
    let Some(&(first, _)) = merged.keys().next() else {
        return Vec::new();
    };
    let mut runs = Vec::new();
    for slot in keyspace.slots().skip(first) {
        // The newest levels of other parts hold other keys.
        let other_part =
            matches!(slot, Slot::Newest(_)) && keyspace.slots().nth(first) != Some(slot);
        if other_part {
            continue;
        }
        for run in keyspace.level(slot).map_or(&[][..], |l| &l.runs) {
            let tables: Vec<_> = run
                .tables
                .iter()
                .filter(|t| !job.inputs.contains(&t.id))
                .cloned()
                .collect();
            if !tables.is_empty() {
                runs.push(tables);
            }
        }
    }
    runs
}
