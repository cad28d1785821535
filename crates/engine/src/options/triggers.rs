//! Setting what sets reorganisations off, and what makes parts and takes them back; see
//! [`super::set`]. They are two tables in the file, as there are many and few will want one.

use thermocline_model::triggers::{PartTriggers, RecutTriggers};

use super::Options;
use super::check::{DAY_MS, HOUR_MS, within};
use crate::error::Result;

/// Most looks that a trigger may wait for.
const LOOKS_MAX: u64 = 1_000_000;

/// Most keys of a sample that a part may be asked to have.
const PART_KEYS_MAX: usize = 1024;

impl Options {
    /// What sets off a reorganisation of the parts beside [`Options::recut_excess`] and its
    /// neighbours, what one must gain, and how large a sample of keys says so. With presets whose
    /// cuts move ([`Options::moving_cuts`]); and with `ohdb` how many keys a part must have.
    ///
    /// ```
    /// # use thermocline::{Db, Options, RecutTriggers};
    /// # let directory = tempfile::tempdir().unwrap();
    /// // Only keys with three even shares are worth more than one memtable.
    /// let triggers = RecutTriggers { duplicate_shares: 3.0, ..RecutTriggers::default() };
    /// let options = Options::at(directory.path()).preset("nova");
    /// assert!(Db::open(options.clone().recut_triggers(triggers)).is_ok());
    /// let triggers = RecutTriggers { gain_share_min: f64::NAN, ..triggers };
    /// let error = Db::open(options.recut_triggers(triggers)).unwrap_err();
    /// let expected = "option recut_triggers.gain_share_min: expected 0 to 1, found NaN";
    /// assert!(error.to_string().contains(expected));
    /// ```
    #[must_use]
    pub fn recut_triggers(mut self, triggers: RecutTriggers) -> Options {
        self.recut_triggers = triggers;
        self
    }

    /// When parts are made and taken back, where a preset has only as many as writers gain by:
    /// `leveled` and `mutant`, unless [`Options::moving_cuts`] says otherwise.
    ///
    /// ```
    /// # use thermocline::{Db, Options, PartTriggers};
    /// # let directory = tempfile::tempdir().unwrap();
    /// // Writers may wait for a second, of late, before their keyspace is cut.
    /// let triggers = PartTriggers { processor_waits_ms: 1000, ..PartTriggers::default() };
    /// let options = Options::at(directory.path());
    /// assert!(Db::open(options.clone().part_triggers(triggers)).is_ok());
    /// let triggers = PartTriggers { processor_waits_ms: 0, ..triggers };
    /// let error = Db::open(options.part_triggers(triggers)).unwrap_err();
    /// let expected = "option part_triggers.processor_waits_ms: expected 1 to 3600000, found 0";
    /// assert!(error.to_string().contains(expected));
    /// ```
    #[must_use]
    pub fn part_triggers(mut self, triggers: PartTriggers) -> Options {
        self.part_triggers = triggers;
        self
    }

    /// Refuses what cannot work of these options. Every one is named here, so that none is
    /// forgotten.
    pub(super) fn check_triggers(&self) -> Result<()> {
        let RecutTriggers {
            duplicate_shares,
            gain_share_min,
            few_parts_share,
            uncut_looks,
            wait_doublings_max,
            looks_kept,
            half_keys_min,
            part_keys_min,
            sample_keys_max,
            sample_bytes_max,
        } = self.recut_triggers;
        let of = |name: &str| format!("recut_triggers.{name}");
        within(&of("duplicate_shares"), duplicate_shares, 1.0, 1000.0)?;
        within(&of("gain_share_min"), gain_share_min, 0.0, 1.0)?;
        within(&of("few_parts_share"), few_parts_share, 0.0, 1.0)?;
        within(&of("uncut_looks"), uncut_looks, 1, LOOKS_MAX)?;
        within(&of("wait_doublings_max"), wait_doublings_max, 0, 32)?;
        within(&of("looks_kept"), looks_kept, 1, LOOKS_MAX)?;
        within(&of("sample_keys_max"), sample_keys_max, 64, 1 << 20)?;
        within(&of("sample_bytes_max"), sample_bytes_max, 4 << 10, 64 << 20)?;
        // A sample that is full is thinned to half, and is judged by halves.
        let half_max = sample_keys_max / 4;
        within(&of("half_keys_min"), half_keys_min, 1, half_max)?;
        within(&of("part_keys_min"), part_keys_min, 1, PART_KEYS_MAX)?;
        let PartTriggers {
            processor_waits_ms,
            device_waits_ms,
            waits_fade_ms,
            merges_ms_min,
            running_share,
            again_ms,
            again_doublings_max,
            moving_ms,
            sharer_looks,
        } = self.part_triggers;
        let of = |name: &str| format!("part_triggers.{name}");
        within(&of("processor_waits_ms"), processor_waits_ms, 1, HOUR_MS)?;
        within(&of("device_waits_ms"), device_waits_ms, 1, HOUR_MS)?;
        within(&of("waits_fade_ms"), waits_fade_ms, 100, HOUR_MS)?;
        within(&of("merges_ms_min"), merges_ms_min, 1, HOUR_MS)?;
        within(&of("running_share"), running_share, 0.0, 1.0)?;
        within(&of("again_ms"), again_ms, 0, DAY_MS)?;
        within(&of("again_doublings_max"), again_doublings_max, 0, 16)?;
        within(&of("moving_ms"), moving_ms, 0, HOUR_MS)?;
        within(&of("sharer_looks"), sharer_looks, 1, LOOKS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of an options file with `key` of a table set to `value`.
    fn said(table: &str, key: &str, value: &str) -> Option<String> {
        let text =
            format!("[{table}]\n{key} = {value}\n[[tier]]\nname = \"main\"\npath = \"/x\"\n");
        let options = Options::from_toml(&text).and_then(|options| {
            options.check()?;
            assert_eq!(Options::from_toml(&options.to_toml())?, options);
            Ok(())
        });
        options.err().map(|e| e.to_string())
    }

    #[test]
    fn each_trigger_is_taken_up_to_its_bounds_and_refused_beyond_them_by_name() {
        const RECUT: [(&str, &str, [&str; 2], [&str; 2]); 10] = [
            (
                "duplicate_shares",
                "1 to 1000",
                ["1.0", "1000.0"],
                ["0.999", "1000.1"],
            ),
            (
                "gain_share_min",
                "0 to 1",
                ["0.0", "1.0"],
                ["-0.01", "1.01"],
            ),
            (
                "few_parts_share",
                "0 to 1",
                ["0.0", "1.0"],
                ["-0.01", "1.01"],
            ),
            (
                "uncut_looks",
                "1 to 1000000",
                ["1", "1000000"],
                ["0", "1000001"],
            ),
            ("wait_doublings_max", "0 to 32", ["0", "32"], ["33", "64"]),
            (
                "looks_kept",
                "1 to 1000000",
                ["1", "1000000"],
                ["0", "1000001"],
            ),
            (
                "half_keys_min",
                "1 to 16384",
                ["1", "16384"],
                ["0", "16385"],
            ),
            ("part_keys_min", "1 to 1024", ["1", "1024"], ["0", "1025"]),
            (
                "sample_keys_max",
                "64 to 1048576",
                ["128", "1048576"],
                ["63", "1048577"],
            ),
            (
                "sample_bytes_max",
                "4096 to 67108864",
                ["4096", "67108864"],
                ["4095", "67108865"],
            ),
        ];
        const PART: [(&str, &str, [&str; 2], [&str; 2]); 9] = [
            (
                "processor_waits_ms",
                "1 to 3600000",
                ["1", "3600000"],
                ["0", "3600001"],
            ),
            (
                "device_waits_ms",
                "1 to 3600000",
                ["1", "3600000"],
                ["0", "3600001"],
            ),
            (
                "waits_fade_ms",
                "100 to 3600000",
                ["100", "3600000"],
                ["99", "3600001"],
            ),
            (
                "merges_ms_min",
                "1 to 3600000",
                ["1", "3600000"],
                ["0", "3600001"],
            ),
            ("running_share", "0 to 1", ["0.0", "1.0"], ["-0.01", "1.01"]),
            (
                "again_ms",
                "0 to 86400000",
                ["0", "86400000"],
                ["86400001", "999999999999"],
            ),
            ("again_doublings_max", "0 to 16", ["0", "16"], ["17", "64"]),
            (
                "moving_ms",
                "0 to 3600000",
                ["0", "3600000"],
                ["3600001", "999999999999"],
            ),
            (
                "sharer_looks",
                "1 to 1000000",
                ["1", "1000000"],
                ["0", "1000001"],
            ),
        ];
        for (table, rows) in [("recut_triggers", &RECUT[..]), ("part_triggers", &PART)] {
            for (key, bounds, able, unable) in rows {
                for value in able {
                    assert_eq!(said(table, key, value), None, "{key} = {value}");
                }
                // A number that is none, or infinite, is out of every range.
                let none = match able[0].contains('.') {
                    true => &["nan", "inf", "-inf"][..],
                    false => &[],
                };
                for value in unable.iter().chain(none) {
                    let error = said(table, key, value).unwrap_or_default();
                    let expected = format!("option {table}.{key}: expected {bounds}, found");
                    assert!(error.contains(&expected), "{key} = {value}: {error}");
                }
                let negative = said(table, key, "-1").unwrap_or_default();
                assert!(negative.contains(key), "{key}: {negative}");
            }
        }
        // Half of a sample must be able to have so many keys.
        let error = said("recut_triggers", "sample_keys_max", "127").unwrap_or_default();
        let expected = "option recut_triggers.half_keys_min: expected 1 to 31, found 32";
        assert!(error.contains(expected), "{error}");
        let error = said("recut_triggers", "gain", "1").unwrap_or_default();
        assert!(error.contains("unknown field `gain`"), "{error}");
    }

    #[test]
    fn planners_go_by_the_triggers_that_were_given() {
        let triggers = RecutTriggers {
            uncut_looks: 3,
            ..RecutTriggers::default()
        };
        for preset in ["leveled", "mutant", "nova", "ohdb"] {
            let options = Options::at("/x").preset(preset);
            let given = options.shape().ranges.triggers;
            assert_eq!(given, RecutTriggers::default(), "{preset}");
            let given = options.recut_triggers(triggers).shape().ranges.triggers;
            assert_eq!(given, triggers, "{preset}");
        }
    }
}
