//! Setting the options of cuts that move; see [`super::set`].

use thermocline_model::version::{Keyspace, TINY_MAX};
use thermocline_model::view::RangeOptions;
use thermocline_policy::plan::parts;
use thermocline_policy::plan::staging::RUNS_CUT_MAX;

use super::Options;
use super::check::within;
use crate::error::{Error, Result};

impl Options {
    /// Whether cuts move with the writes, so that all parts get about as many. With presets that
    /// make cuts (`leveled`, `mutant`, `nova`, `ohdb`), and `logstore`, which makes them if this is
    /// `true`. Default: with `nova` they do, with `ohdb` they do not, and with `leveled` and
    /// `mutant` those do that writers gain by ([`Options::partitions`]), and not those that were
    /// given. With these two, `true` is as with `nova`, and `false` makes no cuts and leaves those
    /// that there are.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(1 << 20).partitions(4);
    /// let db = Db::open(options.clone().preset("ohdb").moving_cuts(true))?;
    /// for n in 0..20_000 {
    ///     db.put(format!("{:08}", n * 7919 % 20_000).as_bytes(), &[0; 100])?;
    /// }
    /// db.settle()?;
    /// assert_eq!(db.stats().keyspaces[0].parts, 4);
    /// # drop(db);
    /// let error = Db::open(options.preset("logstore-unoptimised").moving_cuts(true)).unwrap_err();
    /// assert!(error.to_string().contains("option moving_cuts: the preset logstore-unoptimised"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn moving_cuts(mut self, moving: bool) -> Options {
        self.moving_cuts = Some(moving);
        self
    }

    /// Most tiny ranges in a part: pieces that count their writes and are given to
    /// neighbours. From 1 to 256, default 16.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("nova");
    /// let error = Db::open(options.tiny_ranges(0)).unwrap_err();
    /// assert!(error.to_string().contains("option tiny_ranges: expected 1 to 256, found 0"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn tiny_ranges(mut self, most: usize) -> Options {
        self.tiny_ranges = most;
        self
    }

    /// By how much a part's share of the writes may exceed the even share, as a share of that,
    /// before tiny ranges of it go to its neighbours. From 0.01 to 1000, default 0.2.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("nova");
    /// let error = Db::open(options.recut_excess(0.0)).unwrap_err();
    /// assert!(error.to_string().contains("option recut_excess: expected 0.01 to 1000, found 0"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn recut_excess(mut self, excess: f64) -> Options {
        self.recut_excess = excess;
        self
    }

    /// By how much a part's share may still exceed the even share when tiny ranges were
    /// given away, before all cuts are made anew. From 0.01 to 1000, default 0.6.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("nova").recut_excess(0.5);
    /// let error = Db::open(options.recut_major_excess(0.1)).unwrap_err();
    /// assert!(error.to_string().contains("option recut_major_excess: expected 0.5 to 1000"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn recut_major_excess(mut self, excess: f64) -> Options {
        self.recut_major_excess = excess;
        self
    }

    /// Writes for each part, on average, between two looks at the shares. From 16 to
    /// 10^9, default 1000: below some hundreds, chance alone moves cuts.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("nova");
    /// let error = Db::open(options.recut_writes(1)).unwrap_err();
    /// assert!(error.to_string().contains("option recut_writes: expected 16 to 1000000000, found 1"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn recut_writes(mut self, writes: u64) -> Options {
        self.recut_writes = writes;
        self
    }

    /// How often a part may be duplicated that is one very hot key, or little more. Each duplicate
    /// is one more memtable for reads to look in; those that a store has from before beyond that
    /// are gone once it is opened. From 0 to 63, default 7; with `leveled` and `mutant` none unless
    /// [`Options::moving_cuts`] is `true`.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("nova");
    /// let error = Db::open(options.duplicates_max(64)).unwrap_err();
    /// assert!(error.to_string().contains("option duplicates_max: expected 0 to 63, found 64"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn duplicates_max(mut self, most: u32) -> Options {
        self.duplicates_max = most;
        self
    }

    /// Whether merges end their tables at the cuts, so that neighbouring parts share none below and
    /// are merged side by side. Default: with `nova` they do, with `leveled` and `mutant` at those
    /// that they made.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).cuts(vec![b"m".to_vec()]);
    /// let db = Db::open(options.merges_end_at_cuts(true))?;
    /// for round in 0..2 {
    ///     for key in [b"a", b"z"] {
    ///         db.put(key, &[round])?;
    ///     }
    ///     db.flush()?;
    /// }
    /// db.compact_range(None, None)?;
    /// assert_eq!(db.tables().len(), 2);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn merges_end_at_cuts(mut self, end: bool) -> Options {
        self.merges_end_at_cuts = Some(end);
        self
    }

    /// Whether cuts may move at all, but for those that a preset which makes none takes back.
    pub(crate) fn moves_cuts(&self) -> bool {
        let by_preset = self.entry().is_some_and(|p| p.moves_cuts);
        self.makes_cuts() && self.moving_cuts.unwrap_or(by_preset)
    }

    /// Whether those of `keyspace` do. Those that writes have made go again with a
    /// preset that makes none.
    pub(crate) fn moves_cuts_of(&self, keyspace: &Keyspace) -> bool {
        if !self.makes_cuts() {
            return parts::are_by_writes(keyspace);
        }
        let can = match self.adapts_parts() {
            true => {
                parts::have_moved(keyspace) || (keyspace.parts.len() == 1 && self.parts_max() > 1)
            }
            false => true,
        };
        can && self.moves_cuts()
    }

    /// Whether a keyspace is cut once, by the keys of its first memtable.
    pub(crate) fn cuts_by_first_memtable(&self) -> bool {
        let adapts = self.entry().is_some_and(|p| p.adapts_parts);
        self.makes_cuts() && !adapts && !self.moves_cuts()
    }

    /// Whether merges into `keyspace` end their tables at its cuts.
    pub(crate) fn ends_outputs(&self, keyspace: &Keyspace) -> bool {
        let by_preset = || match self.entry() {
            Some(preset) if preset.adapts_parts => {
                self.moving_cuts == Some(true) || parts::are_by_writes(keyspace)
            }
            preset => preset.is_some_and(|p| p.moves_cuts),
        };
        self.merges_end_at_cuts.unwrap_or_else(by_preset)
    }

    /// Memtables that take writes, of a keyspace, above which parts that its writes have made are
    /// joined, if so many `parts` are allowed now: an earlier opening allowed more, or they paid
    /// then. As many as given cuts make are always let be.
    pub(crate) fn joins_above(&self, parts: usize) -> usize {
        match (self.adapts_parts(), self.moves_cuts()) {
            (true, _) => parts,
            (false, true) => parts.max(self.given_parts()),
            (false, false) if self.makes_cuts() => usize::MAX,
            (false, false) => 1,
        }
    }

    /// When and how cuts move.
    pub(crate) fn ranges(&self) -> RangeOptions {
        RangeOptions {
            slots: self.parts_max(),
            joins_above: self.joins_above(self.parts_max()),
            once: self.cuts_by_first_memtable(),
            tiny_max: self.tiny_ranges,
            excess: self.recut_excess,
            major_excess: self.recut_major_excess,
            writes: self.recut_writes,
            duplicates_max: match self.adapts_parts() {
                true => 0,
                false => self.duplicates_max,
            },
            prefix_bytes: self.partition_prefix_bytes,
            first_runs_max: match self.entry() {
                Some(preset) if preset.cuts_if_asked => RUNS_CUT_MAX,
                _ => 1,
            },
            triggers: self.recut_triggers,
            part_triggers: self.part_triggers,
        }
    }

    /// Refuses what cannot work of these options.
    pub(super) fn check_ranges(&self) -> Result<()> {
        if self.moving_cuts == Some(true) && !self.makes_cuts() {
            return Err(Error::invalid(format!(
                "option moving_cuts: the preset {} makes no cuts",
                self.preset
            )));
        }
        let excess = self.recut_excess;
        within("tiny_ranges", self.tiny_ranges, 1, TINY_MAX)?;
        within("recut_excess", excess, 0.01, 1000.0)?;
        within(
            "recut_major_excess",
            self.recut_major_excess,
            excess,
            1000.0,
        )?;
        within("recut_writes", self.recut_writes, 16, 1_000_000_000)?;
        within("duplicates_max", self.duplicates_max, 0, 63)?;
        self.check_triggers()
    }
}

#[cfg(test)]
mod tests {
    use thermocline_model::Cuts;
    use thermocline_model::version::{KeyspaceId, Tiny};

    use super::*;

    /// A keyspace of two parts, that its writes have made or somebody gave.
    fn keyspace(by_writes: bool) -> Keyspace {
        let cuts = Cuts::new(vec![(*b"m").into()]).unwrap();
        let mut keyspace = Keyspace::new(KeyspaceId::DEFAULT, "default", cuts);
        if by_writes {
            let writes = Tiny {
                start: Box::default(),
                writes: 1,
            };
            keyspace.parts[0].tiny = vec![writes];
        }
        keyspace
    }

    #[test]
    fn whose_cuts_move_and_who_ends_tables_at_them() {
        let (given, by_writes) = (keyspace(false), keyspace(true));
        let whole = Keyspace::new(KeyspaceId::DEFAULT, "default", Cuts::default());
        let options = |preset: &str| Options::at("/x").preset(preset);
        let says = |options: Options| {
            let keyspaces = [&whole, &given, &by_writes];
            let moves = keyspaces.map(|k| options.moves_cuts_of(k));
            (moves, keyspaces.map(|k| options.ends_outputs(k)))
        };
        let (none, all, last) = ([false; 3], [true; 3], [false, false, true]);
        assert_eq!(says(options("leveled")), ([true, false, true], last));
        assert_eq!(says(options("leveled").moving_cuts(true)), (all, all));
        assert_eq!(says(options("leveled").moving_cuts(false)), (none, last));
        assert_eq!(says(options("leveled").partitions(1)), (last, last));
        assert_eq!(says(options("nova")), (all, all));
        assert_eq!(says(options("ohdb")), (none, none));
        assert_eq!(says(options("mutant")), ([true, false, true], last));
        assert_eq!(says(options("logstore")), (last, none));
        assert_eq!(says(options("logstore").moving_cuts(false)), (last, none));
        assert_eq!(says(options("logstore").moving_cuts(true)), (all, none));
        let ends = options("logstore").merges_end_at_cuts(true);
        assert_eq!(says(ends), (last, all));
    }
}
