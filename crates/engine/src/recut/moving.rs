//! The job that moves cuts. See [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_model::cuts::Cuts;
use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::{NewPart, Recut};
use thermocline_model::key::{Prefix, SeqNo};
use thermocline_model::triggers::RecutTriggers;
use thermocline_model::version::{KeyspaceId, Slot};
use thermocline_model::view::{KeyspaceWrites, PartWrites};
use thermocline_policy::plan::major::{Gain, Judged, judged};
use thermocline_policy::plan::sample::{PartSample, Sample};

use crate::engine::{Commit, Engine, LiveMemtable, PartView, ReadView, Space, recorded};
use crate::error::{Error, Result};
use crate::job::{Attempt, COMMIT_WAIT, Done};
use crate::memory::TinyCounts;
use crate::merge::{MergeCursor, Source};
use crate::step::{Counted, Scheduler};
use crate::write::likely_prefix;

/// Every so many-th entry of a part's memtables, in order of keys.
struct Sampler {
    entries: Vec<(Box<[u8]>, SeqNo)>,
    bytes: usize,
    step: usize,
    keys_max: usize,
    bytes_max: usize,
}

impl Sampler {
    /// One that takes `share` of what a sample may have.
    fn new(share: f64, triggers: &RecutTriggers) -> Sampler {
        Sampler {
            entries: Vec::new(),
            bytes: 0,
            step: 1,
            keys_max: (triggers.sample_keys_max as f64 * share) as usize,
            bytes_max: (triggers.sample_bytes_max as f64 * share) as usize,
        }
    }

    fn add_all(&mut self, mut merged: MergeCursor) -> Result<()> {
        merged.seek_first()?;
        let mut at = 0;
        while merged.valid() {
            if at % self.step == 0 {
                self.add(merged.key(), merged.seq());
            }
            at += 1;
            merged.next()?;
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], seq: SeqNo) {
        self.bytes += key.len();
        self.entries.push((key.into(), seq));
        while self.entries.len() > 1
            && (self.entries.len() > self.keys_max || self.bytes > self.bytes_max)
        {
            let mut keep = false;
            self.entries.retain(|_| {
                keep = !keep;
                keep
            });
            self.bytes = self.entries.iter().map(|(key, _)| key.len()).sum();
            self.step *= 2;
        }
    }
}

/// What memory has of each part's writes. A part may have half of the sample for being one, and
/// half of it for its writes. What a fold has left is no sample: of each key it has the last entry
/// alone.
fn sample_of(view: &ReadView, triggers: &RecutTriggers) -> Result<Sample> {
    let all = total(view).max(1) as f64;
    let even = 1.0 / view.parts.len() as f64;
    let parts = view.parts.iter().enumerate().map(|(at, part)| {
        let (low, high) = view.cuts.interval(at);
        let tiny = part.tiny.as_ref().map_or_else(Vec::new, |t| t.tiny());
        let writes: u64 = tiny.iter().map(|tiny| tiny.writes).sum();
        let memtables = part.memtables().filter(|m| !m.is_folded());
        let sources: Vec<Source> = memtables.map(|m| m.source(low, high)).collect();
        let share = f64::midpoint(even, (writes as f64 / all).min(1.0));
        let mut sampler = Sampler::new(share, triggers);
        sampler.add_all(MergeCursor::new(sources))?;
        Ok(PartSample {
            entries: sampler.entries,
            tiny,
        })
    });
    Ok(Sample {
        parts: parts.collect::<Result<_>>()?,
    })
}

/// What came of a look at a keyspace's writes.
#[derive(Clone, Copy)]
enum Look {
    /// The cuts have moved,
    Moved,
    /// were not worth moving,
    InVain,
    /// or that could not be told yet.
    TooSoon,
}

const DROPPED: &str = "the keyspace was dropped";
const TOO_MANY_SEALED: &str = "too many memtables would be sealed";

/// How many parts and duplicates there are.
fn in_words(parts: &[NewPart]) -> String {
    let counted = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let duplicates: usize = parts.iter().map(|p| p.duplicates as usize).sum();
    let words = counted(parts.len(), "part");
    match duplicates {
        0 => words,
        duplicates => format!("{words} with {}", counted(duplicates, "duplicate")),
    }
}

/// What a sample of so many keys has shown.
fn in_numbers(Gain { before, after }: Gain, keys: usize) -> String {
    format!(" (the largest share {after:.4} instead of {before:.4}, of {keys} keys)")
}

/// What is known of the writes to the parts of `view`, of which there is more in `counted`.
fn writes_of(view: &ReadView, counted: &Counted) -> KeyspaceWrites {
    let parts = view.parts.iter().filter_map(|part| {
        let tiny = part.tiny.as_ref()?;
        Some(PartWrites {
            duplicates: part.twins.len() as u32,
            starts: Arc::clone(tiny.starts()),
            writes: tiny.writes(),
        })
    });
    let parts: Vec<PartWrites> = parts.collect();
    let all: u64 = parts.iter().flat_map(|p| &p.writes).sum();
    KeyspaceWrites {
        parts,
        since: (all + counted.forgotten).saturating_sub(counted.base),
        in_vain: counted.in_vain,
    }
}

fn total(view: &ReadView) -> u64 {
    let tiny = view.parts.iter().filter_map(|p| p.tiny.as_ref());
    tiny.map(|t| t.total()).sum()
}

/// Whether `part`, which begins at `old_start`, is what `new` says already.
fn is_kept(part: &PartView, new: &NewPart) -> bool {
    let same = |tiny: &Arc<TinyCounts>| {
        let starts = tiny.starts().iter().map(|s| &**s);
        starts.eq(new.tiny.iter().map(|t| &*t.start))
    };
    part.twins.len() == new.duplicates as usize && part.tiny.as_ref().is_some_and(same)
}

impl Engine {
    /// What the manifest has of writes says what shares parts get, and not that any were
    /// written since the last look.
    pub(crate) fn begin_counting(&self) {
        let mut scheduler = self.scheduler.lock();
        for (&id, space) in self.spaces.load().iter() {
            scheduler.counted.entry(id).or_default().base = total(&space.view.load());
        }
    }

    /// What was counted of writes to keyspaces whose cuts may move now; and how many keyspaces
    /// were written to enough since the store was opened to share the parts that there may be.
    pub(crate) fn count_writes(
        &self,
        scheduler: &mut Scheduler,
    ) -> (BTreeMap<KeyspaceId, KeyspaceWrites>, usize) {
        let look_writes = self.options.recut_writes;
        let looks_kept = self.options.recut_triggers.looks_kept;
        let sharer_looks = self.options.part_triggers.sharer_looks;
        let spaces = self.spaces.load();
        scheduler.counted.retain(|id, _| spaces.contains_key(id));
        let (mut writes, mut sharers) = (BTreeMap::new(), 0);
        for (&id, space) in spaces.iter() {
            let view = space.view.load();
            if view.parts.iter().all(|part| part.tiny.is_none()) {
                continue;
            }
            let all = total(&view);
            let counted = scheduler.counted.entry(id).or_default();
            let ever = all + counted.forgotten;
            let began = *counted.began.get_or_insert(ever);
            counted.shares |=
                ever.saturating_sub(began) >= look_writes.saturating_mul(sharer_looks);
            sharers += usize::from(counted.shares);
            let busy = scheduler.recutting.contains(&id) || counted.held;
            if busy || space.loads.load(Ordering::Acquire) > 0 {
                continue;
            }
            let look = look_writes.saturating_mul(view.takers() as u64);
            let mut kept = all;
            while kept >= looks_kept.saturating_mul(look) {
                let tiny = view.parts.iter().filter_map(|p| p.tiny.as_ref());
                let gone: u64 = tiny.map(|t| t.halve()).sum();
                counted.forgotten += gone;
                kept = match gone {
                    0 => break,
                    gone => kept.saturating_sub(gone),
                };
            }
            writes.insert(id, writes_of(&view, counted));
        }
        (writes, sharers)
    }

    pub(crate) fn run_recut(&self, job: &Recut) -> Result<Done> {
        let Some(space) = self.space(job.keyspace) else {
            return Ok(Done::nothing());
        };
        let done = self.recut(job, &space);
        if !matches!(done, Ok(Ok(_))) {
            let mut scheduler = self.scheduler.lock();
            scheduler.counted.entry(space.id).or_default().held = true;
        }
        Ok(done?.unwrap_or_else(|why| Done {
            what: format!("left as it is for now: {why}"),
            ..Done::default()
        }))
    }

    /// Does the job, if it can be done just now.
    fn recut(&self, job: &Recut, space: &Space) -> Attempt<Done> {
        let (parts, found) = match job.parts.is_empty() {
            false => (job.parts.clone(), String::new()),
            true => match self.judge(job, space)? {
                (Judged::Better(parts, gain), keys) => (parts, in_numbers(gain, keys)),
                (Judged::InVain(gain), keys) => {
                    let why = in_numbers(gain, keys);
                    return Ok(Ok(self.left_alone(space, Look::InVain, &why)));
                }
                (Judged::TooLittle, keys) => {
                    let why = format!(" (memory has too little to tell, {keys} keys)");
                    return Ok(Ok(self.left_alone(space, Look::TooSoon, &why)));
                }
            },
        };
        // Who holds the mutex for long may be waiting for jobs to end.
        let Some(mut commit) = self.commit.try_lock_for(COMMIT_WAIT) else {
            return Ok(Err("the write path was held"));
        };
        self.check_poisoned()?;
        let mut changed = self.move_cuts(&mut commit, space, &parts)?;
        drop(commit);
        if changed == Err(TOO_MANY_SEALED) {
            // Writers fill memtables all the time, and with few allowed there might never be room
            // for all that are concerned. So they are flushed, most of it while writers go on, and
            // the rest while they wait: then there is nothing to seal.
            self.flush_all(Some(space.id))?;
            let Some(mut commit) = self.commit.try_lock_for(COMMIT_WAIT) else {
                return Ok(Err("the write path was held"));
            };
            self.flush_still(&mut commit, Some(space.id))?;
            changed = self.move_cuts(&mut commit, space, &parts)?;
        }
        Ok(changed.map(|changed| {
            self.note_look(space, Look::Moved);
            self.counters.recuts.add(1);
            Done {
                what: format!("cut into {}, {changed} new{found}", in_words(&parts)),
                ..Done::default()
            }
        }))
    }

    /// Samples what memory has of the writes to `space`; what policy says of that, and of how many
    /// keys.
    fn judge(&self, job: &Recut, space: &Space) -> Result<(Judged, usize)> {
        let view = space.view.load_full();
        let sample = sample_of(&view, &self.options.recut_triggers)?;
        let scene = {
            let mut scheduler = self.scheduler.lock();
            let mut scene = self.scene(&mut scheduler);
            let counted = scheduler.counted.entry(space.id).or_default();
            // Which has none of a keyspace that a job is about to cut.
            scene.writes.insert(space.id, writes_of(&view, counted));
            scene
        };
        let judged = judged(&scene.view(&BTreeSet::new(), &[]), job, &sample);
        Ok((judged, sample.keys()))
    }

    fn left_alone(&self, space: &Space, look: Look, why: &str) -> Done {
        self.note_look(space, look);
        Done {
            what: format!("left as it is{why}"),
            ..Done::default()
        }
    }

    /// The next look is so many writes away.
    fn note_look(&self, space: &Space, look: Look) {
        let mut scheduler = self.scheduler.lock();
        let all = total(&space.view.load());
        let counted = scheduler.counted.entry(space.id).or_default();
        counted.base = all + counted.forgotten;
        counted.in_vain = match look {
            Look::Moved => 0,
            Look::InVain => counted.in_vain.saturating_add(1),
            // One that was never cut waits for writes only after a look in vain.
            Look::TooSoon => counted.in_vain.max(1),
        };
    }

    /// Gives `space` the parts `new`, if it can be done just now; says how many of them were not
    /// there before. Requires: the commit mutex, so that nobody is being
    /// assigned to a memtable.
    fn move_cuts(&self, _commit: &mut Commit, space: &Space, new: &[NewPart]) -> Attempt<usize> {
        let bounds = new.iter().skip(1).map(|part| part.start().into());
        let cuts = Cuts::new(bounds.collect()).map_err(Error::invalid)?;
        // No job begins meanwhile.
        let scheduler = self.scheduler.lock();
        let mut outputs = scheduler.busy_outputs.iter();
        let newest = |slot: &Slot| matches!(slot, Slot::Newest(_));
        if outputs.any(|(id, slot, _)| *id == space.id && newest(slot)) {
            return Ok(Err("a merge writes to a newest level"));
        }
        if space.loads.load(Ordering::Acquire) > 0 {
            return Ok(Err("a bulk load is under way"));
        }
        if space.dropped.load(Ordering::Acquire) {
            return Ok(Err(DROPPED));
        }
        let view = space.view.load_full();
        let kept = |at: usize| {
            let (start, end) = cuts.interval(at);
            let old = start.map_or(0, |s| view.cuts.part_of(s));
            let same =
                view.cuts.interval(old) == (start, end) && is_kept(&view.parts[old], &new[at]);
            same.then_some(old)
        };
        let kept: Vec<Option<usize>> = (0..new.len()).map(kept).collect();
        let stays = |old: usize| kept.contains(&Some(old));
        for (old, part) in view.parts.iter().enumerate() {
            // A flush knows its part by number, and what is of an older generation has to
            // be flushed before the cuts move again.
            let flushing = scheduler.flushing.contains(&(space.id, old as u32));
            let numbered_anew = kept.get(old) != Some(&Some(old));
            let older = part.sealed.iter().any(|m| m.older.load(Ordering::Acquire));
            if flushing && numbered_anew {
                return Ok(Err("a part was being flushed"));
            }
            if older && !stays(old) {
                return Ok(Err(
                    "memtables that are older than the cuts wait for a flush",
                ));
            }
        }
        let changed = kept.iter().filter(|old| old.is_none()).count();
        if changed == 0 {
            return Ok(Err("the parts are such already"));
        }
        let takers = |part: &NewPart| 1 + part.duplicates as usize;
        let all: usize = new.iter().map(takers).sum();
        if all > view.takers() && all > self.active_room(space.id) {
            return Ok(Err("other keyspaces have all the parts that may be"));
        }
        let sharing = self.sharing_takers(Some((space.id, all)));
        let fresh = new.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let fresh: usize = fresh.map(|(part, _)| takers(part)).sum();
        let added = fresh as u64 * LiveMemtable::empty_bytes(&self.options, sharing);
        let takers_max = all.max(view.takers()) as u64;
        let bytes_max = self.options.memory_max(takers_max).memtables + self.borrowable_bytes();
        if self.memtable_resident_bytes() + added > bytes_max {
            return Ok(Err("memory has no room until something is flushed"));
        }
        self.grant_memory(added);
        let mut parts: Vec<PartView> = kept
            .iter()
            .zip(new)
            .enumerate()
            .map(|(at, (kept, new))| match kept {
                Some(old) => view.parts[*old].clone(),
                None => self.part_over(&view, cuts.interval(at), new, sharing),
            })
            .collect();
        if !self.may_list(space, &parts) {
            return Ok(Err(TOO_MANY_SEALED));
        }
        let mut edit = Edit::of(Change::SetCuts {
            keyspace: space.id,
            cuts: cuts.clone(),
        });
        edit.changes.extend(recorded(space.id, &parts));
        let moving: Vec<Arc<LiveMemtable>> = (0..view.parts.len())
            .filter(|&old| !stays(old))
            .flat_map(|old| view.parts[old].memtables().cloned())
            .collect();
        let committed = self.commit_edit(edit, Vec::new(), &mut |id, old| {
            if id != space.id {
                return;
            }
            for memtable in &moving {
                let lists = parts
                    .iter()
                    .filter(|p| p.sealed.iter().any(|m| Arc::ptr_eq(m, memtable)));
                memtable.holders.store(lists.count(), Ordering::Release);
                memtable.older.store(true, Ordering::Release);
            }
            let mut parts = std::mem::take(&mut parts);
            for (part, kept) in parts.iter_mut().zip(&kept) {
                if let Some(at) = kept {
                    // Not as it was seen above: a flush of it may have ended meanwhile.
                    *part = old[*at].clone();
                }
            }
            *old = parts;
        });
        if committed.is_err() && space.dropped.load(Ordering::Acquire) {
            return Ok(Err(DROPPED));
        }
        committed.map(|()| Ok(changed))
    }

    /// A part with empty memtables over those of `view` that reach into its interval, where so many
    /// share the write buffer.
    fn part_over(
        &self,
        view: &ReadView,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
        new: &NewPart,
        sharing: u64,
    ) -> PartView {
        let first = start.map_or(0, |s| view.cuts.part_of(s));
        let begins_before_end = |at: &usize| match (view.cuts.interval(*at).0, end) {
            (Some(low), Some(end)) => low < end,
            _ => true,
        };
        let old = (first..view.parts.len()).take_while(begins_before_end);
        let old = old.map(|at| &view.parts[at]);
        let memtables = old.clone().flat_map(PartView::memtables);
        let sealed: Vec<_> = memtables.filter(|m| !m.is_empty()).cloned().collect();
        let prefix = sealed
            .first()
            .map_or_else(Prefix::default, |m| likely_prefix(m));
        let part = PartView {
            active: self.new_memtable_among(sharing, prefix.clone()),
            twins: (0..new.duplicates)
                .map(|_| self.new_memtable_among(sharing, prefix.clone()))
                .collect(),
            by_number: new.duplicates > 0 || old.clone().any(|p| p.by_number),
            sealed,
            tiny: Some(Arc::new(TinyCounts::new(&new.tiny))),
            flushed_bytes: Arc::default(),
        };
        // Newer than all memtables that it stands over, whatever parts they were of.
        let stamp = self.lookup.stamp(&part, &[]);
        part.active.stamp.store(stamp, Ordering::Release);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_to_its_keys_and_bytes_and_has_keys_of_everywhere() {
        let taken = |keys_max: usize, bytes_max: u64, share: f64| {
            let triggers = RecutTriggers {
                sample_keys_max: keys_max,
                sample_bytes_max: bytes_max,
                ..RecutTriggers::default()
            };
            let mut sampler = Sampler::new(share, &triggers);
            for n in 0..1000u64 {
                if n.is_multiple_of(sampler.step as u64) {
                    sampler.add(format!("{n:04}").as_bytes(), SeqNo(n));
                }
            }
            let last = sampler.entries.last().map_or(0, |(_, seq)| seq.0);
            (sampler.entries.len(), last)
        };
        assert_eq!(taken(1000, 1 << 20, 1.0), (1000, 999));
        assert_eq!(taken(999, 1 << 20, 1.0), (500, 998));
        // Half of it, and four bytes a key.
        assert_eq!(taken(1000, 1 << 20, 0.5), (500, 998));
        assert_eq!(taken(1000, 4000, 1.0), (1000, 999));
        assert_eq!(taken(1000, 3999, 1.0), (500, 998));
    }
}
