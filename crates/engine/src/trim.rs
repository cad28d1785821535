//! What of the log is still needed, and what becomes of the rest.
//!
//! Two numbers in the manifest say it: the *floor*, the first segment that counts, and the *reach*,
//! the number up to which the log must be there. Both follow from the memtables; a clean close sets
//! the reach to the log's end. A segment goes once the floor has passed it (I3); a log that ends
//! before its reach was cut by something other than a crash (I9).

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::key::SeqNo;
use thermocline_model::version::{KeyspaceId, Version};
use thermocline_policy::plan::parts::have_moved;

use crate::engine::{Engine, recorded};
use crate::error::{ErrorKind, Result};
use crate::job::Sealed;
use crate::sync::atomic::Ordering;

/// What the log must keep for the memtables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogNeed {
    /// The lowest segment that some memtable still needs.
    pub(crate) floor: u64,
    /// The last number of the entries that folds logged anew: before anything below the
    /// floor goes, the log must be durable up to here.
    pub(crate) restated_upto: SeqNo,
}

impl LogNeed {
    /// What the edit says that lets the rest of the log go.
    pub(crate) fn changes(self) -> impl Iterator<Item = Change> {
        let floor = Change::SetLogFloor {
            segment: self.floor,
        };
        let seq = Some(self.restated_upto).filter(|&seq| seq > SeqNo::ZERO);
        std::iter::once(floor).chain(seq.map(|seq| Change::SetLogReach { seq }))
    }
}

impl Engine {
    /// What of the log the memtables still need, but for those which a flush of parts of a keyspace
    /// makes superfluous there.
    pub(crate) fn log_need(&self, keyspace: KeyspaceId, flushed: &[Sealed]) -> LogNeed {
        // Read first: a memtable that gets its first entry from here on gets
        // it in this segment or a later one.
        let mut floor = self.log_segment.load(Ordering::Acquire);
        let mut restated_upto = 0;
        for space in self.spaces.load().values() {
            for (part, number) in space.view.load().parts.iter().zip(0..) {
                let here = |sealed: &&Sealed| space.id == keyspace && sealed.part == number;
                let without = flushed.iter().find(here);
                let without = without.map_or(&[][..], |sealed| &sealed.memtables);
                for memtable in part.memtables() {
                    if !without.iter().any(|w| Arc::ptr_eq(w, memtable)) {
                        floor = floor.min(memtable.oldest_segment.load(Ordering::Acquire));
                        restated_upto =
                            restated_upto.max(memtable.restated_upto.load(Ordering::Acquire));
                    }
                }
            }
        }
        LogNeed {
            floor,
            restated_upto: SeqNo(restated_upto),
        }
    }

    /// How far the log must reach once `edit` is in force, if the edit changes that
    /// (see [`Version::log_reach`]); so far it must be durable before the edit is.
    ///
    /// A flush asks before it commits, to persist the log, and the commit asks again. In between
    /// the answer gets no larger than what is durable: the flush's own memtables are in the view
    /// all along; where no other had anything as old, none gets it, as new entries have higher
    /// numbers, and folds and moved cuts make nothing older than it was; and what else raises the
    /// recorded reach persists the log as well.
    pub(crate) fn log_reach(&self, version: &Version, edit: &Edit) -> Option<SeqNo> {
        let mut flushed = BTreeMap::new();
        for change in &edit.changes {
            if let Change::SetFlushed {
                keyspace,
                part,
                flushed: upto,
            } = change
            {
                flushed.insert((*keyspace, *part), *upto);
            }
        }
        let newest = flushed.values().max()?.0;
        // Numbers of bulk loads are in no log, so those of the memtables count.
        let (mut reach, mut oldest) = (version.log_reach.0, u64::MAX);
        for (id, space) in self.spaces.load().iter() {
            for (part, number) in space.view.load().parts.iter().zip(0..) {
                let upto = flushed.get(&(*id, number)).map_or(0, |seq| seq.0);
                for memtable in part.memtables() {
                    let last = memtable.last_seq.load(Ordering::Acquire);
                    if last > upto {
                        oldest = oldest.min(memtable.first_seq.load(Ordering::Acquire));
                    }
                    if last <= newest {
                        reach = reach.max(last);
                    }
                }
            }
        }
        Some(SeqNo(if oldest <= reach { reach } else { 0 }))
    }

    /// Whether the log is durable as far as `edit` says that it reaches.
    pub(crate) fn reaches_durably(&self, edit: &Edit) -> bool {
        let syncer = self.syncer.as_ref();
        let durable = syncer.map_or(SeqNo::MAX, |syncer| syncer.durable_seq());
        edit.changes.iter().all(|change| match change {
            Change::SetLogReach { seq } => *seq <= durable,
            _ => true,
        })
    }

    /// Makes the log durable and has the manifest say how far it reaches, at a clean
    /// close: the log's own seal may go wrong with what it seals. With it goes what was counted of
    /// the writes to parts.
    ///
    /// # Errors
    /// As of the log and the manifest; without room for it, it is left out.
    pub(crate) fn note_log_end(&self) -> Result<()> {
        let Some(syncer) = &self.syncer else {
            return Ok(());
        };
        let last = syncer.appended_seq();
        syncer.persist(last)?;
        let version = Arc::clone(&self.versions.lock().current);
        // A write that is still on its way is not waited for.
        let seq = last.min(self.published.upto());
        let mut edit = Edit::default();
        if seq > version.log_base.max(version.log_reach) {
            edit.changes.push(Change::SetLogReach { seq });
        }
        if self.counters.writes.get() > 0 {
            edit.changes.extend(self.counted_writes(&version));
        }
        if edit.changes.is_empty() {
            return Ok(());
        }
        match self.commit_edit(edit, Vec::new(), &mut |_, _| {}) {
            Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
            _ => Ok(()),
        }
    }

    /// What the manifest keeps of the writes to parts, of keyspaces whose cuts have moved.
    fn counted_writes(&self, version: &Version) -> Vec<Change> {
        let spaces = self.spaces.load();
        let moved = spaces.iter().filter(|(id, space)| {
            let keyspace = version.keyspaces.get(id);
            let counted = space.view.load().parts.iter().all(|p| p.tiny.is_some());
            counted && keyspace.is_some_and(|k| have_moved(k))
        });
        let changes = moved.map(|(&id, space)| {
            let view = space.view.load();
            recorded(id, &view.parts).collect::<Vec<_>>()
        });
        changes.flatten().collect()
    }

    /// Deletes log segments that the version in force does not need, oldest first. Writers go on
    /// meanwhile: on a file system that deletes in a millisecond or two they waited for it at each
    /// flush. Requires: the commit mutex is free.
    pub(crate) fn trim_log(&self) {
        if let Some(syncer) = &self.syncer {
            syncer.tidy();
        }
        let _turn = self.trimming.lock();
        let floor = self.versions.lock().current.log_floor;
        let taken = {
            let mut commit = self.commit.lock();
            commit.log.as_mut().map(|log| log.take_before(floor))
        };
        let (Some(syncer), Some(mut segments)) = (&self.syncer, taken) else {
            return;
        };
        if let Err(e) = syncer.delete(&mut segments) {
            self.counters.background_error(&e);
        }
        let mut commit = self.commit.lock();
        if let Some(log) = commit.log.as_mut() {
            log.put_back(segments);
            self.log_bytes.store(log.size_bytes(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use thermocline_model::job::{Flush, Fold, Job, Reason};
    use thermocline_model::version::KeyspaceId;

    use crate::{Db, KeyspaceOptions, Options, WriteBatch};

    #[test]
    fn a_flush_persists_the_log_only_for_what_is_older_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(Options::at(directory.path()).background_threads(0)).unwrap();
        let durable = || db.engine().syncer.as_ref().unwrap().durable_seq();
        let reach = || db.engine().versions.lock().current.log_reach;
        let other = db
            .create_keyspace("other", KeyspaceOptions::default())
            .unwrap();
        let begun = durable();
        db.put(b"alone", b"1").unwrap();
        db.flush().unwrap();
        assert_eq!(durable(), begun, "nobody needs the log of that");
        other.put(b"newer", b"2").unwrap();
        db.put(b"older", b"3").unwrap();
        other.put(b"newest", b"4").unwrap();
        let upto = db.engine().visible();
        // What the other keyspace has begins before and ends behind.
        db.engine().flush_all(Some(KeyspaceId::DEFAULT)).unwrap();
        assert_eq!(durable(), upto);
        assert!(reach() > begun && reach() <= upto);
        db.flush().unwrap();
        assert_eq!(reach().0, 0);
    }

    /// Found by measuring: with ten parts on one disk a quarter of what was written there was the
    /// log.
    #[test]
    fn parts_that_are_flushed_together_need_no_log_and_become_durable_in_one_commit() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path()).background_threads(0);
        let options = options.cuts(vec![b"g".to_vec(), b"p".to_vec()]);
        let db = Db::open(options.clone()).unwrap();
        let engine = db.engine();
        let durable = || engine.syncer.as_ref().unwrap().durable_seq();
        let reach = || engine.versions.lock().current.log_reach.0;
        let flush = |part, beside: &[u32]| {
            let job = Job::Flush(Flush {
                keyspace: KeyspaceId::DEFAULT,
                part,
                beside: beside.to_vec(),
                active: true,
                reason: Reason::new("test"),
            });
            let planned = engine.begin(&mut engine.scheduler.lock(), job);
            engine.run(planned).unwrap();
        };
        let begun = durable();
        for key in [&b"a"[..], b"z", b"h", b"b", b"y"] {
            db.put(key, b"1").unwrap();
        }
        db.delete_range(b"b", b"y").unwrap();
        flush(2, &[0, 1]);
        assert_eq!(durable(), begun, "nobody needs the log of that");
        assert_eq!((db.stats().flushes, reach()), (1, 0));
        for key in [&b"c"[..], b"i", b"x"] {
            db.put(key, b"2").unwrap();
        }
        // What is in the middle stays, and is older.
        flush(0, &[2]);
        assert!(durable() > begun);
        let found = |db: &Db| {
            let entries = db.iter().unwrap().forward();
            let entries = entries.map(|entry| {
                let (key, value) = entry.unwrap();
                (key.to_vec(), value.to_vec())
            });
            entries.collect::<Vec<_>>()
        };
        let expected = [
            ("a", "1"),
            ("c", "2"),
            ("i", "2"),
            ("x", "2"),
            ("y", "1"),
            ("z", "1"),
        ];
        let expected = expected
            .map(|(key, value)| (key.into(), value.into()))
            .to_vec();
        assert_eq!(found(&db), expected);
        drop(db);
        assert_eq!(found(&Db::open(options).unwrap()), expected);
    }

    /// Found with many writers and a limit of sealed memtables: the flush was refused, as the log
    /// was to reach further than the last entry that was published, and writers who waited for it
    /// got that as an error.
    #[test]
    fn a_flush_beside_a_fold_that_waits_for_a_writer_knows_the_numbers_that_the_fold_took() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::at(directory.path()).background_threads(0);
        let options = options.cuts(vec![b"m".to_vec()]);
        let db = Db::open(options.clone()).unwrap();
        for n in 0..100u32 {
            db.put(b"folded", &n.to_be_bytes()).unwrap();
        }
        db.put(b"z flushed", b"1").unwrap();
        let engine = db.engine();
        let keyspace = KeyspaceId::DEFAULT;
        let begin = |job| engine.begin(&mut engine.scheduler.lock(), job);
        // A writer on its way: its entry is in the log, and not published yet.
        let mut batch = WriteBatch::new();
        batch.put(b"a late one", b"2").unwrap();
        let payload = batch.encoded();
        let seq = {
            let mut commit = engine.commit.lock();
            let seq = commit.next_seq;
            let log = commit.log.as_mut().unwrap();
            log.append(seq, 1, payload, crc32c::crc32c(payload))
                .unwrap();
            commit.next_seq = seq.next();
            seq
        };
        std::thread::scope(|scope| {
            let fold = begin(Job::Fold(Fold {
                keyspace,
                part: 0,
                active: true,
                reason: Reason::new("test"),
            }));
            let folding = scope.spawn(|| engine.run(fold));
            let space = engine.space(keyspace).unwrap();
            let is_folded = || {
                let view = space.view.load();
                view.parts[0].sealed.iter().any(|m| m.is_folded())
            };
            while !is_folded() {
                std::thread::yield_now();
            }
            assert!(engine.visible() < seq);
            let flush = begin(Job::Flush(Flush {
                keyspace,
                part: 1,
                beside: Vec::new(),
                active: true,
                reason: Reason::new("test"),
            }));
            let flushed = catch_unwind(AssertUnwindSafe(|| engine.run(flush)));
            assert!(engine.published.publish(seq, seq));
            folding.join().unwrap().unwrap();
            flushed.unwrap().unwrap();
        });
        let version = Arc::clone(&engine.versions.lock().current);
        assert!(version.log_reach > seq && version.log_reach <= version.last_seq);
        drop(db);
        let db = Db::open(options).unwrap();
        let found = |key: &[u8]| db.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(found(b"folded"), Some(99u32.to_be_bytes().to_vec()));
        assert_eq!(found(b"z flushed"), Some(b"1".to_vec()));
        assert_eq!(found(b"a late one"), Some(b"2".to_vec()));
    }
}
