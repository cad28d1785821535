//! What whoever operates a store asks of it: state, tables, events, prices, and what
//! would happen.

use thermocline_model::forecast::Forecast;

use crate::db::Db;
use crate::error::Result;
use crate::events::Event;
use crate::pulse::Pulse;
use crate::stats::{Stats, TableInfo};
use crate::what_if::WhatIf;

impl Db {
    /// State and history of the store since it was opened.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// db.get(b"key")?;
    /// let stats = db.stats();
    /// assert_eq!((stats.writes, stats.memtable_hits), (1, 1));
    /// println!("{stats}"); // As `thermocline stats` shows it.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        crate::report::stats(self.engine())
    }

    /// Price, places and counts, in short: what there is to watch.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.pulse().writes, 1);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::of(self.engine())
    }

    /// Every table.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// db.put(b"a", b"")?;
    /// db.put(b"b", b"")?;
    /// db.flush()?;
    /// let table = &db.tables()[0];
    /// assert_eq!((table.entries, &*table.slot, &*table.tier), (2, "L0.0", "main"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        crate::report::tables(self.engine())
    }

    /// The last `count` background jobs and other events, oldest first. The last
    /// 4096 of this opening are in memory; if more are asked for, the record on the
    /// first tier is read, which has those of earlier openings too and holds some
    /// thousand in all.
    ///
    /// ```
    /// # use thermocline::{Db, Options};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?;
    /// let event = db.events(1).remove(0);
    /// assert_eq!(event.job, "flush");
    /// println!("{}", event.reason); // The rule, and the numbers it compared.
    /// db.close()?;
    /// let db = Db::open(Options::at(directory.path()))?;
    /// assert_eq!(db.events(1), [event]); // It outlives a restart.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn events(&self, count: usize) -> Vec<Event> {
        self.engine().events(count)
    }

    /// What a change of preset or cost target would move, cost and gain, as far as is
    /// known now. Nothing is changed or moved.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier, WhatIf};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    /// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05));
    /// let db = Db::open(options.preset("mutant"))?;
    /// db.put(b"key", b"value")?;
    /// db.flush()?; // To the fast tier.
    /// let forecast = db.forecast(&WhatIf::nothing_changes().cost_target(Some(0.05)))?;
    /// assert_eq!((forecast.moves[0].from, forecast.moves[0].to), (0, 1));
    /// assert!(forecast.after.cost_usd_month < forecast.before.cost_usd_month);
    /// println!("{forecast}"); // As `thermocline tune --dry-run` shows it.
    /// assert_eq!(db.stats().cost.target_usd_gb_month, None); // As before.
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unknown preset, and
    /// for a target that cannot be met, as [`Db::set_cost_target`] has it.
    pub fn forecast(&self, what_if: &WhatIf) -> Result<Forecast> {
        self.engine().forecast(what_if)
    }
}
