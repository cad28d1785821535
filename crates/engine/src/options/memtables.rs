//! Setting how many memtables there may be; see [`super::set`].
//!
//! What takes writes: one memtable for each part, and one for each of its duplicates
//! ([`Options::duplicates_max`]), so that the parts bound them. What is sealed waits for a flush,
//! and memory bounds it; these options bound its number too, and what a part may have of the
//! memory.

use thermocline_model::version::Part;

use super::Options;
use super::check::within;
use crate::error::{Error, Result};

/// Most that may be asked for: as good as no limit.
const MEMTABLES_MAX: usize = 1_000_000;
const PART_BYTES_MAX: u64 = 1 << 40;

impl Options {
    /// Most memtables that take writes in all keyspaces together: one for each part, and one for
    /// each duplicate of a part. Where cuts move, no more parts and duplicates are made; a keyspace
    /// for which there is no room is not created, and a store that has more parts already is not
    /// opened. From 1 to 1,000,000, and no fewer than given cuts make. Default: no limit but the
    /// number of keyspaces times [`Options::partitions`], or times the parts that given cuts make.
    ///
    /// ```
    /// # use thermocline::{Db, KeyspaceOptions, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).active_memtables_total_max(2);
    /// let db = Db::open(options.clone())?;
    /// db.create_keyspace("second", KeyspaceOptions::default())?;
    /// let error = db.create_keyspace("third", KeyspaceOptions::default()).unwrap_err();
    /// assert!(error.to_string().contains("active_memtables_total_max"));
    /// # drop(db);
    /// let error = Db::open(options.active_memtables_total_max(1)).unwrap_err();
    /// assert!(error.to_string().contains("expected at least 2, the parts of the store, found 1"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn active_memtables_total_max(mut self, most: usize) -> Options {
        self.active_memtables_total_max = Some(most);
        self
    }

    /// Most sealed memtables of a part: those that are full and wait for a flush. Never exceeded,
    /// whatever seals: a writer who would have to waits, [`Db::flush`](crate::Db::flush) flushes
    /// first what is sealed already, and before cuts are moved memtables are flushed that would be
    /// too many afterwards. Where cuts have moved, one that reaches into several parts counts in
    /// each. A part is flushed as soon as its next memtables would find no room. From 1 to
    /// 1,000,000, and no fewer than a part has memtables that take writes, as these are sealed
    /// together ([`Options::duplicates_max`] and one). Default: no limit but
    /// [`Options::write_buffer_bytes`]. Set it where reads must not look in more memtables than so
    /// many, at the price of smaller runs and of waiting.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(1 << 20).memtable_bytes(64 << 10);
    /// let db = Db::open(options.sealed_memtables_max(1))?;
    /// for n in 0..10_000u32 {
    ///     db.put(&n.to_be_bytes(), &[0; 100])?;
    ///     assert!(n % 100 > 0 || db.stats().sealed_memtables <= 1);
    /// }
    /// # let directory = tempfile::tempdir().unwrap();
    /// let duplicated = Options::at(directory.path()).preset("nova").sealed_memtables_max(4);
    /// let error = Db::open(duplicated).unwrap_err();
    /// assert!(error.to_string().contains("expected at least 8, as a part may have so many"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn sealed_memtables_max(mut self, most: usize) -> Options {
        self.sealed_memtables_max = Some(most);
        self
    }

    /// Most sealed memtables of all keyspaces and parts together, where one that several parts have
    /// counts once; else as [`Options::sealed_memtables_max`]. Default: no limit but
    /// [`Options::write_buffer_bytes`].
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).cuts(vec![b"m".to_vec()]);
    /// let db = Db::open(options.clone().sealed_memtables_total_max(1))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"z", b"")?;
    /// db.flush()?; // One after the other.
    /// assert_eq!((db.stats().flushes, db.stats().sealed_memtables), (2, 0));
    /// # drop(db);
    /// let error = Db::open(options.sealed_memtables_total_max(0)).unwrap_err();
    /// assert!(error.to_string().contains("sealed_memtables_total_max: expected 1 to 1000000, found 0"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn sealed_memtables_total_max(mut self, most: usize) -> Options {
        self.sealed_memtables_total_max = Some(most);
        self
    }

    /// Most memory of the memtables of a part, those that take writes and those that are sealed, in
    /// bytes; else as [`Options::sealed_memtables_max`]. Where cuts have moved, a memtable that
    /// reaches into several parts counts whole in each. A batch goes to one memtable of a part,
    /// however large it is; one larger than a memtable takes what it takes. From
    /// [`Options::part_memory_bytes_least`] to a TiB. Default: no limit but
    /// [`Options::write_buffer_bytes`], which all parts share. Set it where a part that is written
    /// to much must not take the memory of the others. Opened for reading only a store holds all
    /// that the log has.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).cuts(vec![b"m".to_vec()]).memtable_bytes(64 << 10);
    /// let least = options.part_memory_bytes_least();
    /// let db = Db::open(options.clone().part_memory_bytes_max(least))?;
    /// for n in 0..20_000u32 {
    ///     db.put(&n.to_be_bytes(), &[0; 100])?;
    ///     assert!(n % 100 > 0 || db.stats().keyspaces[0].part_list[0].memory_bytes <= least);
    /// }
    /// # drop(db);
    /// let error = Db::open(options.part_memory_bytes_max(least - 1)).unwrap_err();
    /// assert!(error.to_string().contains("option part_memory_bytes_max"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn part_memory_bytes_max(mut self, most: u64) -> Options {
        self.part_memory_bytes_max = Some(most);
        self
    }

    /// The least that [`Options::part_memory_bytes_max`] may be with these options: twice what the
    /// memtables of a part that take writes come to take, as those that are sealed wait while
    /// others take their place. Each comes to an eighth more than its capacity and 256 KiB. It
    /// depends on [`Options::memtable_bytes`], or where that is not given on
    /// [`Options::write_buffer_bytes`], and on how often a part may be duplicated; the same on any
    /// machine.
    ///
    /// ```
    /// # use thermocline::Options;
    /// let options = Options::at("/x").memtable_bytes(1 << 20);
    /// assert_eq!(options.part_memory_bytes_least(), 2 * ((1 << 20) + (1 << 17) + (256 << 10)));
    /// ```
    #[must_use]
    pub fn part_memory_bytes_least(&self) -> u64 {
        // The more memtables share the write buffer, the smaller they are.
        let takers = 1..=self.sealed_memtables_least() as u64;
        let bytes = takers.map(|t| self.memtable_bytes_max(t).saturating_mul(2 * t));
        bytes.max().unwrap_or(0)
    }

    /// The least that [`Options::sealed_memtables_max`] and [`Options::sealed_memtables_total_max`]
    /// may be with these options: as many as a part may have memtables that take writes, at least
    /// 1; the same on any machine.
    ///
    /// ```
    /// # use thermocline::Options;
    /// let nova = Options::at("/x").preset("nova");
    /// assert_eq!(nova.clone().sealed_memtables_least(), 8);
    /// assert_eq!(nova.duplicates_max(0).sealed_memtables_least(), 1);
    /// ```
    #[must_use]
    pub fn sealed_memtables_least(&self) -> usize {
        let duplicates = self.ranges().duplicates_max as usize;
        match self.moves_cuts() {
            true => (1 + duplicates)
                .min(self.parts_max_with(self.threads_anywhere()))
                .max(1),
            false => 1,
        }
    }

    /// Whether it is bounded what is sealed, of a part or of all.
    pub(crate) fn bounds_sealed(&self) -> bool {
        self.sealed_memtables_max.is_some()
            || self.sealed_memtables_total_max.is_some()
            || self.part_memory_bytes_max.is_some()
    }

    /// How many memtables take writes beside the first of `part` when it is opened: as many as it
    /// is duplicated times, if there may still be so many and all of them can be sealed together.
    pub(crate) fn twins_of(&self, part: &Part) -> u32 {
        let limits = [self.sealed_memtables_max, self.sealed_memtables_total_max];
        let most = limits.into_iter().flatten().min();
        let most = most.and_then(|most| u32::try_from(most).ok());
        part.duplicates
            .min(self.ranges().duplicates_max)
            .min(most.map_or(u32::MAX, |most| most.saturating_sub(1)))
    }

    /// Refuses what cannot work of these options.
    pub(super) fn check_memtables(&self) -> Result<()> {
        let least = self.sealed_memtables_least();
        for (name, most) in [
            ("sealed_memtables_max", self.sealed_memtables_max),
            (
                "sealed_memtables_total_max",
                self.sealed_memtables_total_max,
            ),
        ] {
            let Some(most) = most else { continue };
            within(name, most, 1, MEMTABLES_MAX)?;
            if most < least {
                return Err(Error::invalid(format!("option {name}")).expected(
                    format!(
                        "at least {least}, as a part may have so many memtables that take writes \
                         (duplicates_max) and all are sealed together"
                    ),
                    most,
                ));
            }
        }
        if let Some(most) = self.part_memory_bytes_max {
            let least = self.part_memory_bytes_least();
            within(
                "part_memory_bytes_max",
                most,
                least,
                PART_BYTES_MAX.max(least),
            )?;
        }
        let Some(most) = self.active_memtables_total_max else {
            return Ok(());
        };
        let name = "active_memtables_total_max";
        within(name, most, 1, MEMTABLES_MAX)?;
        let given = self.given_parts();
        if most < given {
            return Err(Error::invalid(format!("option {name}"))
                .expected(format!("at least {given}, the parts by option cuts"), most));
        }
        Ok(())
    }

    /// Refuses so many parts in all keyspaces.
    pub(crate) fn check_active(&self, parts: usize) -> Result<()> {
        match self.active_memtables_total_max {
            Some(most) if most < parts => {
                let expected = format!("at least {parts}, the parts of the store");
                Err(Error::invalid("option active_memtables_total_max").expected(expected, most))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_a_part_alone_would_exceed_is_refused_by_name() {
        let nova = Options::at("/x").preset("nova");
        let says = |options: &Options| options.check().err().map(|e| e.to_string());
        let sealed = |options: &Options, most| says(&options.clone().sealed_memtables_max(most));
        assert!(sealed(&nova, 7).unwrap().contains("duplicates_max"));
        assert_eq!(sealed(&nova, 8), None);
        assert_eq!(sealed(&nova.clone().duplicates_max(0), 1), None);
        assert_eq!(sealed(&nova.clone().partitions(2), 2), None);
        assert_eq!(sealed(&nova.clone().moving_cuts(false), 1), None);
        // `leveled` duplicates nothing by itself.
        assert_eq!(sealed(&Options::at("/x"), 1), None);
        let all = nova.clone().sealed_memtables_total_max(7);
        let error = says(&all).unwrap();
        assert!(
            error.contains("option sealed_memtables_total_max: expected at least 8"),
            "{error}"
        );
        let memory = nova
            .clone()
            .part_memory_bytes_max(nova.part_memory_bytes_least() - 1);
        assert!(
            says(&memory)
                .unwrap()
                .contains("option part_memory_bytes_max")
        );
        let cuts = vec![b"b".to_vec(), b"c".to_vec()];
        let given = nova.cuts(cuts).active_memtables_total_max(2);
        let error = says(&given).unwrap();
        assert!(
            error.contains("at least 3, the parts by option cuts, found 2"),
            "{error}"
        );
    }

    #[test]
    fn limits_survive_toml_and_none_are_not_written() {
        let options = Options::at("/x")
            .active_memtables_total_max(40)
            .sealed_memtables_max(3)
            .sealed_memtables_total_max(9)
            .part_memory_bytes_max(1 << 30);
        let text = options.to_toml();
        assert!(text.contains("sealed_memtables_max = 3") && text.contains("_total_max = 9"));
        assert_eq!(Options::from_toml(&text).unwrap(), options);
        let none = Options::at("/x").to_toml();
        assert!(!none.contains("memtables_") && !none.contains("part_memory"));
    }

    /// It followed the processors, so that options that opened on one machine were refused on
    /// another.
    #[test]
    fn what_may_be_sealed_at_least_is_the_same_on_any_machine() {
        let options = Options::at("/x")
            .moving_cuts(true)
            .duplicates_max(63)
            .write_buffer_bytes(1 << 30)
            .block_cache_bytes(16 << 30);
        // Four parts for each of eight threads.
        assert_eq!(options.sealed_memtables_least(), 32);
        let given = options.background_threads(4);
        assert_eq!(given.sealed_memtables_least(), 16);
    }

    #[test]
    fn a_part_has_only_so_many_duplicates_as_can_be_sealed_together() {
        let part = Part {
            duplicates: 5,
            ..Part::default()
        };
        let twins = |options: Options| options.twins_of(&part);
        let nova = Options::at("/x").preset("nova");
        assert_eq!(twins(nova.clone()), 5);
        assert_eq!(twins(nova.clone().sealed_memtables_max(3)), 2);
        assert_eq!(twins(nova.clone().duplicates_max(4)), 4);
        let both = nova.sealed_memtables_max(9);
        assert_eq!(twins(both.sealed_memtables_total_max(1)), 0);
        // `leveled` duplicates nothing by itself.
        assert_eq!(twins(Options::at("/x")), 0);
    }
}
