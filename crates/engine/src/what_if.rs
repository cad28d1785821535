//! What if: what another preset or cost target would move, cost and gain.
//!
//! The planners of a preset made for this plan on a copy of what the store's own see
//! (`thermocline_policy::forecast`). Nothing is moved, kept or written down.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_model::forecast::Forecast;

use crate::control::{Given, Heard, Wanted, ask};
use crate::db::Db;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::store::Environment;

/// Of the moves predicted, so many are named.
const MOVES_MAX: usize = 100;

/// A change to be judged before it is made. See [`Db::forecast`].
///
/// ```
/// # use thermocline::WhatIf;
/// let change = WhatIf::nothing_changes().preset("mutant").cost_target(Some(0.2));
/// assert_ne!(change, WhatIf::nothing_changes());
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    preset: Option<String>,
    /// Whether the target stays as it is.
    keeps_cost_target: bool,
    cost_target_usd_per_gb_month: Option<f64>,
}

impl WhatIf {
    /// What the store is about to do as it is.
    ///
    /// ```
    /// # use thermocline::{Db, Options, WhatIf};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()))?;
    /// assert_eq!(db.forecast(&WhatIf::nothing_changes())?.moved_tables, 0);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn nothing_changes() -> WhatIf {
        WhatIf {
            keeps_cost_target: true,
            ..WhatIf::default()
        }
    }

    /// Another preset.
    ///
    /// ```
    /// # use thermocline::{Db, Options, WhatIf};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Db::open(Options::at(directory.path()))?;
    /// let change = WhatIf::nothing_changes().preset("mutant");
    /// assert_eq!(db.forecast(&change)?.preset, "mutant");
    /// assert!(db.forecast(&change.preset("none")).is_err());
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn preset(mut self, name: &str) -> WhatIf {
        self.preset = Some(name.to_string());
        self
    }

    /// Another cost target in USD per 10^9 bytes and month, or none.
    ///
    /// ```
    /// # use thermocline::{Db, Options, Tier, WhatIf};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
    /// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05));
    /// let db = Db::open(options.preset("mutant"))?;
    /// let error = db.forecast(&WhatIf::nothing_changes().cost_target(Some(0.9))).unwrap_err();
    /// assert!(error.to_string().contains("the dearest 0.5"));
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn cost_target(mut self, target_usd_gb_month: Option<f64>) -> WhatIf {
        self.keeps_cost_target = false;
        self.cost_target_usd_per_gb_month = target_usd_gb_month;
        self
    }

    /// Makes the change in `options`. A target that the preset does not keep to goes
    /// where only the preset changes.
    fn change(&self, options: &mut Options, target: Option<f64>) -> Result<()> {
        if let Some(preset) = &self.preset {
            options.preset.clone_from(preset);
        }
        options.cost_target_usd_per_gb_month = match self.keeps_cost_target {
            true => target.filter(|_| options.keeps_cost()),
            false => self.cost_target_usd_per_gb_month,
        };
        options.check()
    }
}

impl Engine {
    /// See [`Db::forecast`].
    pub(crate) fn forecast(&self, what_if: &WhatIf) -> Result<Forecast> {
        let mut options = self.options.clone();
        let mut scene = {
            let mut scheduler = self.scheduler.lock();
            what_if.change(&mut options, scheduler.cost.target_usd_gb_month)?;
            self.scene(&mut scheduler)
        };
        let mut preset = options.policies()?;
        scene.cost = options.cost();
        if let Some(target) = what_if.cost_target_usd_per_gb_month {
            scene.check_bounds(target)?;
        }
        let nothing = BTreeSet::new();
        let view = scene.view(&nothing, &[]);
        let mut forecast = thermocline_policy::forecast(&view, &mut preset);
        forecast.moves.truncate(MOVES_MAX);
        Ok(forecast)
    }
}

/// What a change would move, cost and gain in the store of `options`. A process that
/// has the store open is asked, which knows best what is read, and given `patience` to
/// answer; else the store is read as it lies there, with the heat it has kept.
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{Db, Options, Tier, WhatIf, forecast};
/// # let directory = tempfile::tempdir().unwrap();
/// let tier = |name, price| Tier::new(name, directory.path().join(name)).price_usd_gb_month(price);
/// let options = Options::new().tier(tier("ssd", 0.5)).tier(tier("hdd", 0.05)).preset("mutant");
/// let db = Db::open(options.clone().heat_epoch_ms(10))?;
/// db.put(b"key", b"value")?;
/// db.flush()?;
/// let change = WhatIf::nothing_changes().cost_target(Some(0.05)); // All on the cheap tier.
/// let asked = forecast(&options, &change, Duration::from_secs(60))?;
/// db.close()?;
/// let read = forecast(&options, &change, Duration::ZERO)?;
/// assert_eq!((asked.moved_tables, read.moved_tables), (1, 1));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unknown preset or a
/// target that cannot be met; [`ErrorKind::Locked`](crate::ErrorKind::Locked) when whoever has it
/// open did not answer in time; those of opening a store for reading only.
pub fn forecast(options: &Options, what_if: &WhatIf, patience: Duration) -> Result<Forecast> {
    let environment = Environment::real();
    options.check()?;
    let wanted = Wanted::Forecast(what_if.clone());
    match ask(&environment, options, wanted, patience)? {
        Heard::Nobody(_lock) => {
            let options = options.clone().create_if_missing(false).read_only(true);
            Db::open(options)?.forecast(what_if)
        }
        Heard::Given(Given::Forecast(forecast)) => Ok(*forecast),
        Heard::Given(_) => {
            let directory = options.tiers[0].path();
            Err(Error::invalid("not what was asked for").at(directory))
        }
    }
}
