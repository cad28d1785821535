//! Setting the options of parts, and of what lies on which tier whatever its level;
//! see [`super::set`].

use std::path::Path;

use thermocline_model::tier::TierId;
use thermocline_model::version::Keyspace;
use thermocline_model::view::{Division, TierPins};
use thermocline_policy::plan::parts;
use thermocline_policy::{PresetEntry, presets};

use super::{LookupIndex, Options};
use crate::error::{Error, Result};

/// Parts with presets that do not adapt them.
const PARTS: usize = 10;

/// Most keys that a memtable that is folded may be allowed: they are counted by
/// searching for each.
const FOLD_KEYS_MAX: usize = 100_000;

/// Longest prefix that cuts are made of, in bytes.
const PREFIX_BYTES_MAX: usize = 1024;

/// Most bytes from which parts are flushed together.
const TOGETHER_BYTES_MAX: u64 = 1 << 40;

impl Options {
    /// Most parts that keyspaces made without cuts are divided into: each with the presets `ohdb`
    /// and `nova`, those that are written to together with `leveled` and `mutant` (and `logstore`,
    /// if [`Options::moving_cuts`] asks for parts). With `ohdb` evenly by the keys of the first
    /// memtable, once that is full; with the others so that all get as many writes. Fewer where
    /// keys are few, and none where writes gain nothing by it, as keys in order. 1 leaves them
    /// whole. Where cuts move, neighbours are joined in a store that has more from before. From 1
    /// to 1024.
    ///
    /// Default: 10, or as many as given cuts make if these are more. `leveled` and `mutant` make
    /// them only once writers have waited for a tenth of a second, of late, for merges that wait
    /// for processors, or on several tiers for devices ([`Options::part_triggers`]), unless
    /// [`Options::moving_cuts`] says otherwise: one for each 1.5 MiB of `write_buffer_bytes`, but
    /// no more than 10, or four for each of `background_threads` if that is more, and so few that
    /// memtables of a given `memtable_bytes` fill no more than half of it. On one tier they take
    /// them back once writers have waited for a second for merges that wait for its device.
    ///
    /// On several tiers these two and `nova` make more, once writers have waited for a second for
    /// merges or flushes that wait for devices, until nobody has waited for some two minutes: one
    /// for each 192 KiB of `write_buffer_bytes`, up to 64, bounded by `memtable_bytes` too.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("ohdb").write_buffer_bytes(1 << 20);
    /// let db = Db::open(options.clone().partitions(4))?;
    /// for n in 0..2000 {
    ///     db.put(format!("{n:016}").as_bytes(), &[0; 100])?;
    /// }
    /// assert_eq!(db.stats().keyspaces[0].parts, 4);
    /// # drop(db);
    /// let error = Db::open(options.partitions(2000)).unwrap_err();
    /// assert!(error.to_string().contains("partitions: expected 1 to 1024, found 2000"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn partitions(mut self, parts: usize) -> Options {
        self.partitions = Some(parts);
        self
    }

    /// Cuts that a preset makes (all do but `logstore`, which has to be asked) fall only between
    /// keys that differ in so many first bytes; a shorter key counts as it is. Where all keys begin
    /// with the same so many bytes no cuts are made, and however much is written to them their part
    /// is not duplicated ([`Options::duplicates_max`]) unless it is one key. From 0 (in any byte)
    /// to 1024, default 0.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("ohdb").write_buffer_bytes(1 << 20);
    /// let db = Db::open(options.partition_prefix_bytes(12))?;
    /// for n in 0..2000 {
    ///     db.put(format!("{n:016}").as_bytes(), &[0; 100])?;
    /// }
    /// assert_eq!(db.stats().keyspaces[0].parts, 1); // All begin with twelve zeros.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn partition_prefix_bytes(mut self, bytes: usize) -> Options {
        self.partition_prefix_bytes = bytes;
        self
    }

    /// Memtables with fewer keys than this are folded instead of being flushed: of the sealed
    /// ones of a part, one small memtable is made of what survives, and that is logged
    /// anew. Saves most of what is flushed where few keys are written often. Each
    /// stretch of range deletes counts as a key. What survives must be at most half of what
    /// was there, and 1 MiB. From 0 (never) to 100,000; default 100 with the
    /// preset `nova`, else 0.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(1 << 20);
    /// let db = Db::open(options.clone().fold_keys_max(100).background_threads(0))?;
    /// for n in 0..20_000u32 {
    ///     db.put(format!("key{}", n % 50).as_bytes(), &[0; 100])?;
    /// }
    /// let stats = db.stats();
    /// assert!(stats.folds > 0 && stats.flushes == 0);
    /// # drop(db);
    /// let error = Db::open(options.fold_keys_max(1_000_000)).unwrap_err();
    /// assert!(error.to_string().contains("fold_keys_max: expected 0 to 100000, found 1000000"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn fold_keys_max(mut self, keys: usize) -> Options {
        self.fold_keys_max = Some(keys);
        self
    }

    /// Parts are flushed together, in one commit, if they have so many bytes on the average once
    /// half of the memory is taken; else the one that holds most is. What is flushed while
    /// something older stays in memory has its log made durable first; where all goes, the log goes
    /// too, before its device has seen most of it. That pays where the log keeps a device busy that
    /// writers wait for. Elsewhere flushes one by one make larger runs, which cost fewer merges,
    /// and free memory piece by piece. A part that holds more than three times the average is
    /// flushed alone in any case, and so is one while another keyspace has something in memory,
    /// which may be older. From 0 (never) to 2^40. Unset it is 64 KiB, always with the preset
    /// `ohdb`, with others where the log lies on the last tier, and flushes of single parts have
    /// waited for it for a fifth of their time (over half a minute or so) while some writer waited
    /// for a tenth of its (over ten seconds).
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(1 << 20).background_threads(0);
    /// let options = options.cuts(vec![b"5".to_vec()]);
    /// let db = Db::open(options.clone().flush_together_bytes_min(64 << 10))?;
    /// for n in 0..10_000u64 {
    ///     db.put(format!("{}", n * 7919 % 10_000).as_bytes(), &[0; 100])?;
    /// }
    /// let flush = db.events(100).into_iter().find(|event| event.job == "flush").unwrap();
    /// assert!(flush.what.ends_with("of 2 parts, L0.0 to L0.1"), "{}", flush.what);
    /// # drop(db);
    /// let error = Db::open(options.flush_together_bytes_min(u64::MAX)).unwrap_err();
    /// assert!(error.to_string().contains("flush_together_bytes_min: expected 0 to 1099511627776"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn flush_together_bytes_min(mut self, bytes: u64) -> Options {
        self.flush_together_bytes_min = Some(bytes);
        self
    }

    /// Whether a flush writes of each key only the versions that somebody may still read: the
    /// latest, and those that snapshots hold. With `false` it writes all that memtables have, as
    /// LevelDB does and Nova-LSM without its section 4.2, and merges drop them: to measure what
    /// that saves. Folds ([`Options::fold_keys_max`]) drop them all the same. All versions of a key
    /// are in one table, which may so become as large as what is flushed at once. Default true.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// let flushed = |drops| {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let db = Db::open(Options::at(directory.path()).flush_drops_versions(drops))?;
    ///     for n in 0..1000u32 {
    ///         db.put(b"key", &n.to_be_bytes())?;
    ///     }
    ///     db.flush()?;
    ///     assert_eq!(&*db.get(b"key")?.unwrap(), 999u32.to_be_bytes());
    ///     Ok::<u64, thermocline::Error>(db.stats().keyspaces[0].levels[0].entries)
    /// };
    /// assert_eq!((flushed(true)?, flushed(false)?), (1, 1000));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn flush_drops_versions(mut self, drops: bool) -> Options {
        self.flush_drops_versions = drops;
        self
    }

    /// Whether an index tells of a key which memtables, and which tables made of them, are
    /// all newer than its entries, so that reads pass over these. It takes a sixteenth of
    /// `write_buffer_bytes`, once it is in use, and one access to memory for each put and get;
    /// it saves one for each memtable passed over, or a search of it without
    /// [`Options::memtable_filters`]. Default: [`LookupIndex::Auto`], which
    /// has it where a read has a dozen places to look in or more (memtables without filters
    /// count as a dozen each), and rests where that cost more
    /// than it gave ([`LookupStats`](crate::LookupStats)).
    ///
    /// ```
    /// # use thermocline::{Db, LookupIndex, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).write_buffer_bytes(8 << 20);
    /// let db = Db::open(options.memtable_bytes(64 << 10).lookup_index(LookupIndex::On))?;
    /// for n in 0..10_000u32 {
    ///     db.put(&n.to_be_bytes(), &[0; 100])?;
    /// }
    /// assert_eq!(db.stats().memory.max.lookup_index, 512 << 10);
    /// assert!(db.stats().lookup.bytes > 0);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn lookup_index(mut self, when: LookupIndex) -> Options {
        self.lookup_index = when;
        self
    }

    /// Whether each memtable has a filter of its keys, so that a read that asks it for one it
    /// lacks looks at one line of memory; without, it searches the memtable. A filter takes
    /// 1.5 % of the memtable, from the start, and a line of memory for each put.
    /// Default: yes. Tables have their filters either way.
    ///
    /// Nova-LSM has none, and the lookup index in their place ([`Options::lookup_index`]):
    /// this is how to see what each of the two is worth.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()).memtable_filters(false))?;
    /// db.put(b"key", b"value")?;
    /// assert!(db.get(b"other")?.is_none());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn memtable_filters(mut self, are_kept: bool) -> Options {
        self.memtable_filters = are_kept;
        self
    }

    /// Bytes of the lookup index, where there is one.
    pub(crate) fn lookup_bytes(&self) -> u64 {
        match self.lookup_index {
            LookupIndex::Off => 0,
            LookupIndex::On | LookupIndex::Auto => self.write_buffer_bytes / 16,
        }
    }

    /// The name of the tier that newest levels begin on: what is flushed goes there, and to
    /// the next ones when it is full. With presets that place by level (`leveled`,
    /// `ohdb`). Default: the first.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = |name| directory.path().join(name);
    /// let options = Options::new()
    ///     .tier(Tier::new("ssd", path("ssd")))
    ///     .tier(Tier::new("hdd", path("hdd")));
    /// let db = Db::open(options.clone().newest_tier("hdd"))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// assert_eq!(db.tables()[0].tier, "hdd");
    /// # drop(db);
    /// let error = Db::open(options.newest_tier("tape")).unwrap_err();
    /// assert!(error.to_string().contains("option newest_tier: expected ssd or hdd, found tape"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn newest_tier(mut self, name: &str) -> Options {
        self.newest_tier = Some(name.to_string());
        self
    }

    /// The name of the tier that all other levels begin on; what does not fit goes to
    /// the next ones. With presets that place by level (`leveled`, `ohdb`).
    /// Default: the first.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = |name| directory.path().join(name);
    /// let options = Options::new()
    ///     .tier(Tier::new("ssd", path("ssd")))
    ///     .tier(Tier::new("hdd", path("hdd")));
    /// let db = Db::open(options.levels_tier("hdd"))?;
    /// for value in [b"1", b"2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    ///     assert_eq!(db.tables()[0].tier, "ssd");
    /// }
    /// db.compact_range(None, None)?;
    /// assert_eq!(db.tables()[0].tier, "hdd");
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn levels_tier(mut self, name: &str) -> Options {
        self.levels_tier = Some(name.to_string());
        self
    }

    /// The name of the tier that has the log. It stays where it is: an opening that names
    /// another tier than the one with the log is refused, and only a new store or a checkpoint
    /// takes another. Default: the first.
    ///
    /// ```
    /// # use thermocline::{Db, ErrorKind, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = |name| directory.path().join(name);
    /// let options = Options::new()
    ///     .tier(Tier::new("ssd", path("ssd")))
    ///     .tier(Tier::new("hdd", path("hdd")));
    /// let db = Db::open(options.clone().log_tier("hdd"))?;
    /// db.put(b"key", b"value")?; // Not a byte of it on the first tier.
    /// # drop(db);
    /// let error = Db::open(options.clone()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::WrongTier);
    /// let db = Db::open(options.log_tier("hdd"))?;
    /// assert!(db.get(b"key")?.is_some());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn log_tier(mut self, name: &str) -> Options {
        self.log_tier = Some(name.to_string());
        self
    }

    /// The name of the tier that has the record of events. Default: the first. On another
    /// one a new record begins.
    ///
    /// ```
    /// # use thermocline::{Db, EventReader, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = |name| directory.path().join(name);
    /// let options = Options::new()
    ///     .tier(Tier::new("ssd", path("ssd")))
    ///     .tier(Tier::new("hdd", path("hdd")))
    ///     .event_tier("hdd");
    /// let db = Db::open(options.clone())?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// db.close()?;
    /// assert_eq!(EventReader::new(&options).read()?.len(), 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn event_tier(mut self, name: &str) -> Options {
        self.event_tier = Some(name.to_string());
        self
    }

    /// The tier of that name, or the first: what names none is refused before.
    pub(super) fn tier_or_first(&self, name: Option<&String>) -> usize {
        let named = self.tier_named("", name).ok().flatten();
        named.map_or(0, |tier| tier.0 as usize)
    }

    /// The number of the tier that has the log.
    pub(crate) fn log_tier_index(&self) -> usize {
        self.tier_or_first(self.log_tier.as_ref())
    }

    /// Where the log lies.
    pub(crate) fn log_directory(&self) -> &Path {
        self.tiers[self.log_tier_index()].path()
    }

    /// Where the record of events lies.
    pub(crate) fn event_directory(&self) -> &Path {
        self.tiers[self.tier_or_first(self.event_tier.as_ref())].path()
    }

    /// Average bytes from which parts are flushed together, as given or as the preset has it, if
    /// either does.
    pub(crate) fn flushes_together_from(&self) -> Option<u64> {
        let of_preset = || self.entry()?.flush_together_bytes_min;
        self.flush_together_bytes_min.or_else(of_preset)
    }

    /// Keys below which memtables are folded, as given or as the preset has it.
    pub(crate) fn folds_below(&self) -> usize {
        let of_preset = || self.entry().map_or(0, |p| p.fold_keys_max);
        self.fold_keys_max.unwrap_or_else(of_preset)
    }

    pub(crate) fn entry(&self) -> Option<&'static PresetEntry> {
        presets().iter().find(|p| p.name == self.preset)
    }

    pub(super) fn given_parts(&self) -> usize {
        1 + self.cuts.len() + self.cuts_bytes.len()
    }

    /// Whether there are as many parts as writes gain by.
    pub(crate) fn adapts_parts(&self) -> bool {
        self.moving_cuts.is_none() && self.entry().is_some_and(|p| p.adapts_parts)
    }

    /// Whether it matters what writers wait for: the number of parts depends on it, or places do.
    pub(crate) fn heeds_waits(&self) -> bool {
        self.adapts_parts() || self.tiers.len() > 1
    }

    /// Most parts of keyspaces made without cuts.
    pub(crate) fn parts_max(&self) -> usize {
        self.parts_max_with(self.threads())
    }

    /// The same with so many threads of the background.
    pub(super) fn parts_max_with(&self, threads: usize) -> usize {
        self.parts_of(Division::Many, threads)
    }

    /// Most parts of them while so many pay: a few at least, unless [`Options::adapts_parts`].
    pub(crate) fn parts_paying(&self, division: Division) -> usize {
        match division {
            Division::Whole if self.adapts_parts() => 1,
            division => self.parts_of(division, self.threads()),
        }
    }

    /// How a keyspace of so many parts is divided: into a few at least, unless
    /// [`Options::adapts_parts`].
    pub(crate) fn division_into(&self, parts: usize) -> Division {
        match parts {
            0 | 1 if self.adapts_parts() => Division::Whole,
            parts if parts <= self.parts_paying(Division::Few) => Division::Few,
            _ => Division::Many,
        }
    }

    /// Most parts of keyspaces made without cuts, few or many, with so many threads of the
    /// background.
    fn parts_of(&self, division: Division, threads: usize) -> usize {
        let means = parts::Means {
            write_buffer_bytes: self.write_buffer_bytes,
            memtable_bytes: self.memtable_bytes,
            threads,
        };
        let few = match self.entry() {
            Some(p) if p.adapts_parts || p.cuts_if_asked => parts::parts_max(&means),
            _ => PARTS,
        };
        let may_be_many = self.tiers.len() > 1 && self.entry().is_some_and(|p| p.moves_cuts);
        let auto = || match may_be_many && division == Division::Many {
            true => parts::parts_on_tiers(&means).max(few),
            false => few,
        };
        let parts = match (self.makes_cuts(), self.partitions) {
            (false, _) => 1,
            (true, Some(parts)) if self.adapts_parts() => parts.min(auto()),
            (true, Some(parts)) => parts,
            (true, None) => auto().max(self.given_parts()),
        };
        parts.min(self.active_memtables_total_max.unwrap_or(parts))
    }

    /// Whether the preset cuts keyspaces that were made without cuts.
    pub(crate) fn makes_cuts(&self) -> bool {
        let asked = self.moving_cuts == Some(true);
        self.entry()
            .is_some_and(|p| p.makes_cuts || (p.cuts_if_asked && asked))
    }

    /// Parts of the default keyspace, as far as the options tell: where cuts move, as many as they
    /// may become. Duplicates are among them, as they are made of parts that there may be.
    pub(crate) fn parts_expected(&self) -> u64 {
        let keeps_whole = self.moving_cuts == Some(false) && !self.cuts_by_first_memtable();
        match self.given_parts() {
            1 if !keeps_whole => self.parts_max() as u64,
            given if self.moves_cuts() => given.max(self.parts_max()) as u64,
            given => given as u64,
        }
    }

    /// How many that take writes memtables are sized for, where keyspaces have so many: all of
    /// them, but no more than the options let expect, or a single keyspace has.
    pub(crate) fn sharing_takers(&self, takers: impl Iterator<Item = usize>) -> u64 {
        let (mut all, mut most) = (0, self.parts_expected());
        for takers in takers {
            all += takers as u64;
            most = most.max(takers as u64);
        }
        all.min(most)
    }

    /// How many memtables take the writes of `keyspace` when it is opened: one for each part, and
    /// one for each duplicate where there may be some.
    pub(crate) fn takers_of(&self, keyspace: &Keyspace) -> usize {
        let parts = keyspace.parts.len();
        let duplicates = keyspace.parts.iter().map(|p| self.twins_of(p) as usize);
        match self.moves_cuts_of(keyspace) {
            true => parts + duplicates.sum::<usize>(),
            false => parts,
        }
    }

    /// The tier of that name; the error names the option and the tiers there are.
    fn tier_named(&self, option: &str, name: Option<&String>) -> Result<Option<TierId>> {
        let Some(name) = name else {
            return Ok(None);
        };
        let at = self.tiers.iter().position(|t| t.name == *name);
        let at = at.and_then(|at| u32::try_from(at).ok()).ok_or_else(|| {
            let names: Vec<&str> = self.tiers.iter().map(|t| &*t.name).collect();
            Error::invalid(format!("option {option}")).expected(names.join(" or "), name)
        })?;
        Ok(Some(TierId(at)))
    }

    /// Where levels begin and the log lies; what names no tier counts as not given.
    pub(crate) fn pins(&self) -> TierPins {
        let tier = |name: &Option<String>| self.tier_named("", name.as_ref()).ok().flatten();
        TierPins {
            newest: tier(&self.newest_tier),
            levels: tier(&self.levels_tier),
            log: tier(&self.log_tier),
        }
    }

    /// Refuses what cannot work of these options.
    pub(super) fn check_parts(&self) -> Result<()> {
        super::check::within("partitions", self.partitions.unwrap_or(1), 1, 1024)?;
        let together = self.flushes_together_from().unwrap_or(0);
        super::check::within("flush_together_bytes_min", together, 0, TOGETHER_BYTES_MAX)?;
        super::check::within("fold_keys_max", self.folds_below(), 0, FOLD_KEYS_MAX)?;
        let prefix_bytes = self.partition_prefix_bytes;
        super::check::within("partition_prefix_bytes", prefix_bytes, 0, PREFIX_BYTES_MAX)?;
        self.tier_named("log_tier", self.log_tier.as_ref())?;
        self.tier_named("event_tier", self.event_tier.as_ref())?;
        self.tier_named("manifest_tier", self.manifest_tier.as_ref())?;
        for (option, name) in [
            ("newest_tier", &self.newest_tier),
            ("levels_tier", &self.levels_tier),
        ] {
            let given = self.tier_named(option, name.as_ref())?.is_some();
            if given && self.entry().is_some_and(|p| !p.by_level) {
                return Err(Error::invalid(format!(
                    "option {option}: the preset {} does not place tables by level",
                    self.preset
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tier;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memtables_of_many_parts_fill_half_of_the_write_buffer() {
        let options = |preset: &str| {
            let options = Options::at("/x").preset(preset);
            options.write_buffer_bytes(64 * MIB).background_threads(2)
        };
        let sharing = |options: &Options, parts: &[usize]| {
            let parts = options.sharing_takers(parts.iter().copied());
            (parts, options.memtable_capacity(parts) as u64)
        };
        let leveled = options("leveled");
        assert_eq!(sharing(&leveled, &[1]), (1, 8 * MIB));
        let ten = sharing(&leveled, &[10]);
        assert!(ten.0 == 10 && ten.1 < 3 * MIB, "{ten:?}");
        // Many keyspaces are as many parts, where there may be some.
        assert_eq!(sharing(&leveled, &[1; 1000]), ten);
        assert_eq!(sharing(&options("logstore"), &[1; 1000]), (1, 8 * MIB));
        // What other options have left counts as long as it is there.
        assert_eq!(sharing(&options("logstore"), &[10, 1]), ten);
        assert_eq!(sharing(&leveled.clone().partitions(1), &[10]), ten);
        // Whatever there is, the promise holds.
        for parts in [&[1][..], &[10], &[1, 10], &[1; 30], &[20, 20], &[7; 7]] {
            for options in [&leveled, &options("logstore"), &options("nova")] {
                let all = parts.iter().sum::<usize>() as u64;
                let (_, capacity) = sharing(options, parts);
                let taking = all * (capacity + capacity / 8 + (256 << 10));
                let max = options.memory_max(all).memtables;
                assert!(taking <= max, "{parts:?}: {taking} of {max}");
            }
        }
    }

    #[test]
    fn a_store_that_is_opened_begins_with_the_parts_it_has() {
        let options = Options::at("/x").write_buffer_bytes(64 * MIB);
        let one = options.background_threads(2);
        let two = one.clone().tier(Tier::new("slow", "/y"));
        let begins = |options: &Options| [0, 1, 2, 10, 11, 64].map(|n| options.division_into(n));
        use Division::{Few, Many, Whole};
        assert_eq!(begins(&two), [Whole, Whole, Few, Few, Many, Many]);
        let nova = two.clone().preset("nova");
        assert_eq!(begins(&nova), [Few, Few, Few, Few, Many, Many]);
        let paying = |options: &Options| [Whole, Few, Many].map(|d| options.parts_paying(d));
        assert_eq!(paying(&two), [1, 10, 64]);
        assert_eq!(paying(&one), [1, 10, 10]);
        assert_eq!(paying(&two.clone().partitions(20)), [1, 10, 20]);
        assert_eq!(paying(&two.clone().partitions(7)), [1, 7, 7]);
        assert_eq!(paying(&two.write_buffer_bytes(MIB)), [1, 1, 5]);
        let cut = one.cuts(vec![vec![7]]);
        assert_eq!(paying(&cut), [1, 10, 10]);
    }

    #[test]
    fn a_number_of_parts_is_no_more_than_the_memory_is_good_for() {
        let options = Options::at("/x").write_buffer_bytes(64 * MIB);
        let parts = |options: Options| options.background_threads(2).parts_max();
        assert_eq!(parts(options.clone()), 10);
        assert_eq!(parts(options.clone().partitions(4)), 4);
        assert_eq!(parts(options.clone().partitions(1000)), 10);
        let large = options.clone().memtable_bytes(32 * MIB);
        assert_eq!(parts(large.clone().partitions(10)), 1);
        assert_eq!(parts(large.moving_cuts(true).partitions(10)), 10);
        assert_eq!(parts(options.clone().preset("nova").partitions(1000)), 1000);
        // The promise is for as many as cuts that move may make of those that are given.
        let nova = options.clone().preset("nova").cuts(vec![vec![7]]);
        assert_eq!(nova.parts_expected(), 10);
        assert_eq!(nova.clone().partitions(1000).parts_expected(), 1000);
        assert_eq!(nova.clone().partitions(1).parts_expected(), 2);
        assert_eq!(nova.moving_cuts(false).parts_expected(), 2);
        // More where a part that has most of the keys would be merged on a slower tier.
        let two = |preset: &str| {
            let two = options.clone().preset(preset);
            two.tier(Tier::new("slow", "/y"))
        };
        assert_eq!(parts(two("nova")), 64);
        assert_eq!(parts(two("nova").write_buffer_bytes(6 * MIB)), 32);
        assert_eq!(parts(two("nova").memtable_bytes(MIB)), 23);
        assert_eq!(parts(two("nova").partitions(7)), 7);
        assert_eq!(parts(two("ohdb")), 10);
        assert_eq!(parts(two("ohdb").moving_cuts(true)), 10);
        assert_eq!(parts(two("leveled")), 64);
        assert_eq!(parts(two("mutant").write_buffer_bytes(6 * MIB)), 32);
        assert_eq!(parts(two("leveled").moving_cuts(true)), 64);
        let asked = two("logstore").moving_cuts(true);
        assert_eq!(parts(asked), 10);
        let options = options.preset("logstore");
        assert_eq!(parts(options.clone().partitions(1000)), 1);
        assert_eq!(parts(options.moving_cuts(true)), 10);
    }
}
