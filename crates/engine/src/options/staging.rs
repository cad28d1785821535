//! Setting the options of presets with overlapping fast levels; see
//! [`super::set`].

use super::Options;

impl Options {
    /// Of all bytes, the share that the fast levels of the preset `logstore` may
    /// hold, within what the first tier holds; from 0 to 1. Default 0.5.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("logstore");
    /// assert!(Db::open(options.clone().fast_share(0.16)).is_ok());
    /// let error = Db::open(options.fast_share(16.0)).unwrap_err();
    /// assert!(error.to_string().contains("fast_share: expected 0 to 1, found 16"));
    /// ```
    #[must_use]
    pub fn fast_share(mut self, share: f64) -> Options {
        self.fast_share = share;
        self
    }

    /// Tables of the last level that a table of the fast levels may overlap and yet
    /// be merged into it at once; one that overlaps more is merged within the fast
    /// levels first, with the preset `logstore`. From 0 to 100000, default 30.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("logstore");
    /// assert!(Db::open(options.clone().staging_overlap_tables(4)).is_ok());
    /// let error = Db::open(options.staging_overlap_tables(1 << 20)).unwrap_err();
    /// assert!(error.to_string().contains("staging_overlap_tables: expected 0 to 100000"));
    /// ```
    #[must_use]
    pub fn staging_overlap_tables(mut self, tables: usize) -> Options {
        self.staging_overlap_tables = tables;
        self
    }

    /// What is switched off, to see what each is worth: of the preset `logstore` `informed`,
    /// `reverse`, `deferred`, `staging`; of `mutant` `joined` (what a merge writes stays on the
    /// tier of most of its inputs, and is moved later), `organised` (metadata is written beside its
    /// data; relocations leave it there) and `rewritten` (tables lie by what is read of them alone,
    /// also while writers wait for merges). Default: none.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("logstore");
    /// assert!(Db::open(options.clone().optimisations_off(&["reverse"])).is_ok());
    /// let error = Db::open(options.optimisations_off(&["sideways"])).unwrap_err();
    /// assert!(error.to_string().contains("optimisations_off: expected informed, reverse"));
    /// ```
    #[must_use]
    pub fn optimisations_off(mut self, names: &[&str]) -> Options {
        self.optimisations_off = names.iter().map(ToString::to_string).collect();
        self
    }
}
