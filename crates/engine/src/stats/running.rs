//! Statistics of the process that has the store open: it alone has the counts, the memtables and
//! what each part was written. Another one that looks at the files finds what they say: the
//! version, and memtables that it makes of the log for itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Stats, TableInfo};
use crate::control::{Given, Wanted, ask_if_open, check_answer};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::report;

/// Keyspaces, parts and levels together, and tables, that one answer tells of.
const ROWS_MAX: usize = 8192;
const TABLES_MAX: usize = 4096;

/// Bytes of a cut, escaped, that an answer has. A key may have thousands.
const START_BYTES_MAX: usize = 256;

/// What stands for "no bound": an answer is text that has no more bits.
const UNBOUNDED: u64 = i64::MAX as u64;

/// The statistics of the store of `options` in the process that has it open, which is given
/// `patience` to answer; `None` where nobody has it open. As [`Db::stats`](crate::Db::stats) there,
/// but for cuts of more than 256 bytes, which are shortened.
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, Options, stats};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path()).heat_epoch_ms(10);
/// let db = Db::open(options.clone())?;
/// db.put(b"key", b"value")?;
/// let found = stats(&options, Duration::from_secs(60))?.unwrap();
/// assert_eq!((found.writes, found.memtables), (1, 1));
/// drop(db);
/// assert!(stats(&options, Duration::ZERO)?.is_none());
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Locked`](crate::ErrorKind::Locked) when whoever has it open did not answer in time;
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when that is another version of
/// Thermocline; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is
/// more to tell than an answer holds: 8192 keyspaces, parts and levels, or 4 MiB;
/// [`ErrorKind::Io`](crate::ErrorKind::Io).
pub fn stats(options: &Options, patience: Duration) -> Result<Option<Stats>> {
    match ask_if_open(options, Wanted::Stats {}, patience)? {
        None => Ok(None),
        Some(Given::Stats(stats)) => Ok(Some(stats.heard())),
        Some(_) => Err(Error::invalid("not what was asked for")),
    }
}

/// The tables, as [`Db::tables`](crate::Db::tables) lists them in the process that has the store
/// open. See [`stats`](fn@stats).
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, Options, tables};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path()).heat_epoch_ms(10);
/// let db = Db::open(options.clone())?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// db.get(b"key")?;
/// let found = tables(&options, Duration::from_secs(60))?.unwrap();
/// assert_eq!((found.len(), found[0].hits), (1, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// Those of [`stats`](fn@stats); an answer holds 4096 tables.
pub fn tables(options: &Options, patience: Duration) -> Result<Option<Vec<TableInfo>>> {
    match ask_if_open(options, Wanted::Tables {}, patience)? {
        None => Ok(None),
        Some(Given::Tables(tables)) => Ok(Some(tables)),
        Some(_) => Err(Error::invalid("not what was asked for")),
    }
}

impl Engine {
    /// What [`tables`](fn@tables) asks for.
    pub(crate) fn tell_of_tables(&self) -> Result<Vec<TableInfo>> {
        let version = Arc::clone(&self.versions.lock().current);
        check_count("tables", version.tables().count(), TABLES_MAX)?;
        // Keys have at most 64 KiB, and are longer when they are escaped.
        check_answer(version.tables().map(|table| table.range.key_bytes()).sum())?;
        Ok(report::tables(self))
    }
}

impl Stats {
    /// As an answer has it.
    pub(crate) fn told(mut self) -> Result<Stats> {
        let rows = self.keyspaces.iter();
        let rows = rows.map(|k| 1 + k.part_list.len() + k.levels.len()).sum();
        check_count("keyspaces, parts and levels", rows, ROWS_MAX)?;
        let parts = self.keyspaces.iter_mut().flat_map(|k| &mut k.part_list);
        for part in parts.filter(|part| part.start.len() > START_BYTES_MAX) {
            // What is escaped is ASCII.
            part.start.truncate(START_BYTES_MAX);
            part.start.push_str("...");
        }
        for tier in &mut self.tiers {
            tier.path = PathBuf::from(tier.path.to_string_lossy().into_owned());
        }
        for bound in self.bounds() {
            *bound = (*bound).min(UNBOUNDED);
        }
        Ok(self)
    }

    /// The same when it has come.
    fn heard(mut self) -> Stats {
        for bound in self.bounds() {
            if *bound == UNBOUNDED {
                *bound = u64::MAX;
            }
        }
        self
    }

    /// The numbers that may be `u64::MAX`.
    fn bounds(&mut self) -> impl Iterator<Item = &mut u64> {
        let max = &mut self.memory.max;
        let memory = [
            &mut max.memtables,
            &mut max.block_cache,
            &mut max.table_metadata,
            &mut max.jobs,
            &mut max.lookup_index,
            &mut max.other,
        ];
        let tiers = self.tiers.iter_mut();
        let tiers = tiers.flat_map(|tier| [&mut tier.capacity_bytes, &mut tier.device_free_bytes]);
        let whole = [&mut self.brake_ns_per_byte].into_iter();
        let whole = whole.chain(&mut self.capacity_bytes);
        tiers.chain(memory).chain(whole)
    }
}

fn check_count(what: &str, count: usize, max: usize) -> Result<()> {
    match count <= max {
        true => Ok(()),
        false => {
            let what = format!("{what} of one answer");
            Err(Error::invalid(what).expected(format!("at most {max}"), count))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::control::{ANSWER_FILE, REQUEST_FILE};
    use crate::{Db, ErrorKind, Tier};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A store with parts, and a tier that has a bound and one that has none.
    fn store(directory: &Path) -> Options {
        let tier = |name: &str| Tier::new(name, directory.join(name));
        Options::new()
            .tier(tier("fast").capacity_bytes(1 << 30))
            .tier(tier("slow"))
            .cuts(vec![b"m".to_vec(), vec![0xff; 300]])
            .heat_epoch_ms(10)
    }

    // `stat` beside a running process showed memtables that it had made of the log for itself, no
    // share of any part, and no count.
    #[test]
    fn who_has_the_store_open_tells_what_it_tells_by_call() {
        let directory = tempfile::tempdir().unwrap();
        let options = store(directory.path());
        let db = Db::open(options.clone()).unwrap();
        for key in [b"a", b"b", b"c"] {
            db.put(key, b"value").unwrap();
        }
        db.flush().unwrap();
        db.put(b"x", b"value").unwrap();
        db.get(b"a").unwrap();
        db.get(b"x").unwrap();
        let told = stats(&options, PATIENCE).unwrap().unwrap();
        let parts = &told.keyspaces[0].part_list;
        let shares: Vec<_> = parts.iter().map(|p| p.write_share.unwrap()).collect();
        assert!(shares[0] > shares[1] && shares[2] == 0.0, "{shares:?}");
        assert_eq!(parts[2].start.len(), START_BYTES_MAX + "...".len());
        let counts = (told.writes, told.memtable_hits, told.active_memtables);
        assert_eq!(counts, (4, 1, 3));
        // All that no clock and no device changes is the same by either way.
        let mut called = db.stats();
        called.keyspaces[0].part_list[2].start = parts[2].start.clone();
        called.now_us = told.now_us;
        for (called, told) in called.tiers.iter_mut().zip(&told.tiers) {
            called.device_free_bytes = told.device_free_bytes;
        }
        called.tiers[1].capacity_bytes = told.tiers[1].capacity_bytes;
        // The block cache lends.
        called.memory = told.memory;
        called.cache_mapped_bytes = told.cache_mapped_bytes;
        assert_eq!(told, called);
        let listed = tables(&options, PATIENCE).unwrap().unwrap();
        assert_eq!((listed.len(), listed[0].hits), (1, 1));
        assert_eq!(listed[0].entries, 3);
    }

    #[test]
    fn what_has_no_bound_comes_across_as_such_and_what_is_too_much_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(store(directory.path())).unwrap();
        let mut stats = db.stats();
        stats.brake_ns_per_byte = u64::MAX;
        stats.memory.max.jobs = u64::MAX;
        let told = stats.clone().told().unwrap();
        assert_eq!(told.brake_ns_per_byte, i64::MAX as u64);
        let heard = told.heard();
        let unbounded = (heard.brake_ns_per_byte, heard.memory.max.jobs);
        assert_eq!(unbounded, (u64::MAX, u64::MAX));
        let space = stats.keyspaces[0].clone();
        stats.keyspaces = vec![space; ROWS_MAX];
        let error = stats.told().unwrap_err();
        assert!(error.to_string().contains("at most 8192"), "{error}");
    }

    /// What the file of `name` says once there is one.
    fn awaited(directory: &Path, name: &str) -> String {
        let path = directory.join("fast").join(name);
        let found = (0..6000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::read_to_string(&path).ok()
        });
        found.unwrap()
    }

    /// What is left of the error of who asks and is answered `answer`, with the number asked for in
    /// place of `#`.
    fn asked_of(directory: &Path, options: &Options, answer: &str) -> Error {
        let first = directory.join("fast");
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| stats(options, PATIENCE).unwrap_err());
            let request = awaited(directory, REQUEST_FILE);
            let number = request.split('"').nth(1).unwrap();
            std::fs::remove_file(first.join(REQUEST_FILE)).unwrap();
            std::fs::write(first.join("new"), answer.replace('#', number)).unwrap();
            std::fs::rename(first.join("new"), first.join(ANSWER_FILE)).unwrap();
            asking.join().unwrap()
        })
    }

    #[test]
    fn processes_of_other_versions_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let options = store(directory.path());
        // Nobody looks for requests but the test.
        let db = Db::open(options.clone().background_threads(0)).unwrap();
        for (answer, said) in [
            // As the first version answers what it cannot read.
            (
                "request = \"\"\nerror = \"unknown field `version`\"\n",
                "does not understand requests of version 2 (unknown field `version`)",
            ),
            ("request = \"#\"\n[given.done]\n", "expected 2, found 1"),
            (
                "request = \"#\"\nversion = 3\n[given.new]\n",
                "expected 2, found 3",
            ),
            ("request = \"#\"\nversion = 2\n", "the answer says nothing"),
            (
                "request = \"#\"\nversion = 2\n[given.stats]\nwrites = -1\n",
                "the answer cannot be read",
            ),
        ] {
            let error = asked_of(directory.path(), &options, answer);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        // The first of these lies there yet, and is not taken for an answer.
        let stale = directory.path().join("fast").join(ANSWER_FILE);
        std::fs::write(&stale, "request = \"\"\nerror = \"old\"\n").unwrap();
        let error = stats(&options, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        // Asked by the first version and by one that is to come, it answers who asked.
        for (request, said) in [
            ("request = \"1\"\n[wanted.pulse]\n", "expected 2, found 1"),
            (
                "request = \"1\"\nversion = 3\n[wanted.new]\n",
                "expected 2, found 3",
            ),
            (
                "request = \"1\"\nversion = 2\n[wanted.new]\n",
                "unknown variant `new`",
            ),
            (
                "request = \"1\"\nversion = \"x\"\n[wanted.pulse]\n",
                "expected 2, found none",
            ),
        ] {
            let file = directory.path().join("fast").join(REQUEST_FILE);
            std::fs::write(file, request).unwrap();
            let _ = std::fs::remove_file(&stale);
            std::thread::sleep(Duration::from_millis(15));
            db.step().unwrap();
            let answer = std::fs::read_to_string(&stale).unwrap();
            let head = "request = \"1\"\nversion = 2\n";
            let is_told = answer.starts_with(head) && answer.contains(said);
            assert!(is_told, "{request}: {answer}");
        }
    }
}
