//! Setting the options of placement by heat and price; see [`super::set`].

use super::Options;

impl Options {
    /// Most that all tables together may cost, in USD per 10^9 bytes and month
    /// on average over all bytes, with a preset that keeps to it (`mutant`, `nova`).
    /// Every tier then needs a price. Default: no limit.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    /// let options = Options::new().tier(tier("ssd", 0.528)).tier(tier("hdd", 0.045));
    /// let options = options.preset("mutant").cost_target_usd_per_gb_month(0.2);
    /// assert_eq!(Db::open(options.clone())?.stats().cost.target_usd_gb_month, Some(0.2));
    /// let error = Db::open(options.cost_target_usd_per_gb_month(1.0)).unwrap_err();
    /// assert!(error.to_string().contains("the cheapest placement costs 0.045, the dearest 0.528"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn cost_target_usd_per_gb_month(mut self, target: f64) -> Options {
        self.cost_target_usd_per_gb_month = Some(target);
        self
    }

    /// Milliseconds between two reckonings of the temperatures. Default 1000.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().heat_epoch_ms(100)).is_ok());
    /// let error = Db::open(options.heat_epoch_ms(0)).unwrap_err();
    /// assert!(error.to_string().contains("heat_epoch_ms: expected 10 to 3600000, found 0"));
    /// ```
    #[must_use]
    pub fn heat_epoch_ms(mut self, milliseconds: u64) -> Options {
        self.heat_epoch_ms = milliseconds;
        self
    }

    /// How much of its temperature a table keeps from one epoch to the next: above
    /// 0, at most 1. Default 0.999. A table whose share of the reads doubles or halves is known
    /// anew in any case (but see [`Options::cooling_from_start`]); lower it where changes are
    /// smaller than that, and matter.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().cooling_coefficient(0.99)).is_ok());
    /// let error = Db::open(options.cooling_coefficient(1.1)).unwrap_err();
    /// assert!(error.to_string().contains("cooling_coefficient"));
    /// ```
    #[must_use]
    pub fn cooling_coefficient(mut self, coefficient: f64) -> Options {
        self.cooling_coefficient = coefficient;
        self
    }

    /// Whether tables cool by the coefficient from their first epoch on, as Mutant's equation
    /// 4 has it, and nothing else; with preset `logstore`, whether counts only fade. Otherwise a
    /// temperature is the mean of what a table has shown, until that is as many
    /// epochs as the coefficient remembers, and cools by it from then on; and when a table's share
    /// of the reads has doubled or halved, it is known from then on only. Default false: where a
    /// device serves few reads, equation 4 keeps what chance made of the first second for a
    /// quarter of an hour, and everywhere it keeps a hot set that has moved for as long.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path()).preset("mutant");
    /// assert!(Db::open(options.cooling_from_start(true)).is_ok());
    /// ```
    #[must_use]
    pub fn cooling_from_start(mut self, from_start: bool) -> Options {
        self.cooling_from_start = from_start;
        self
    }

    /// Of all tables, the share by which one must be out of its place in the order
    /// of temperatures before it is moved; from 0 to 1. Default 0.05. Raise it
    /// where tables go to and fro. Above 0, a table makes room for another only if that
    /// is hotter by more than chance, too.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().migration_resistance(0.13)).is_ok());
    /// let error = Db::open(options.migration_resistance(13.0)).unwrap_err();
    /// assert!(error.to_string().contains("migration_resistance: expected 0 to 1, found 13"));
    /// ```
    #[must_use]
    pub fn migration_resistance(mut self, share: f64) -> Options {
        self.migration_resistance = share;
        self
    }

    /// Bytes that relocations may move in a second, at least 1024. Default 64 MiB.
    /// Lower it where they disturb reads; what merges write is not counted.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().migration_bytes_per_second_max(8 << 20)).is_ok());
    /// let error = Db::open(options.migration_bytes_per_second_max(0)).unwrap_err();
    /// assert!(error.to_string().contains("migration_bytes_per_second_max: expected 1024"));
    /// ```
    #[must_use]
    pub fn migration_bytes_per_second_max(mut self, bytes: u64) -> Options {
        self.migration_bytes_per_second_max = bytes;
        self
    }

    /// Seconds in which no table is relocated twice, unless the cost target
    /// changes. Default 30; at most a year.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().migration_cool_down_s(600)).is_ok());
    /// let error = Db::open(options.migration_cool_down_s(u64::MAX)).unwrap_err();
    /// assert!(error.to_string().contains("migration_cool_down_s: expected 0 to 31536000"));
    /// ```
    #[must_use]
    pub fn migration_cool_down_s(mut self, seconds: u64) -> Options {
        self.migration_cool_down_s = seconds;
        self
    }

    /// Seconds within which a table that is relocated because it is hotter must save
    /// its readers as much time as the relocation takes the devices, by their
    /// profiles; 0 asks for nothing, as the paper does. Default 0; at most a year.
    /// Raise it from there, to an hour or a day, where the hot keys change faster
    /// than tables can follow.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().migration_payback_s(3600)).is_ok());
    /// let error = Db::open(options.migration_payback_s(u64::MAX)).unwrap_err();
    /// assert!(error.to_string().contains("migration_payback_s: expected 0 to 31536000"));
    /// ```
    #[must_use]
    pub fn migration_payback_s(mut self, seconds: u64) -> Options {
        self.migration_payback_s = seconds;
        self
    }
}
