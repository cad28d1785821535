//! Contenders: an engine in one of the configurations that people use.
//!
//! Written `ENGINE[:PRESET][@FILE][/LAYOUT]`: `thermocline`,
//! `thermocline:leveled`, `thermocline@options.toml/all-fast`,
//! `rocksdb/db-paths`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engine::EngineKind;

/// Which tiers a store fills.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Layout {
    /// All, as Thermocline does.
    Tiers,
    /// All, as RocksDB's `db_paths`.
    DbPaths,
    /// The same, and writers wait while the faster paths hold more than they may.
    DbPathsHeld,
    /// The fastest, as large as need be.
    AllFast,
    /// The slowest.
    AllSlow,
}

impl Layout {
    const ALL: [(&'static str, Layout); 5] = [
        ("tiers", Layout::Tiers),
        ("db-paths", Layout::DbPaths),
        ("db-paths-held", Layout::DbPathsHeld),
        ("all-fast", Layout::AllFast),
        ("all-slow", Layout::AllSlow),
    ];

    /// The name in options and reports.
    pub(crate) fn name(self) -> &'static str {
        let found = Layout::ALL.iter().find(|(_, layout)| *layout == self);
        found.map_or("", |(name, _)| name)
    }

    /// Whether it fills several tiers.
    pub(crate) fn is_tiered(self) -> bool {
        !matches!(self, Layout::AllFast | Layout::AllSlow)
    }
}

/// One of the compared.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct Contender {
    /// The engine.
    pub engine: EngineKind,
    /// The tiers it fills.
    pub layout: Layout,
    /// Thermocline's preset, if not the default.
    pub preset: Option<String>,
    /// Thermocline's options file.
    pub options_file: Option<PathBuf>,
}

/// What runs when nothing else is asked for; with `--quick` those before
/// the mark.
const USUAL: [&str; 8] = [
    "thermocline",
    "thermocline/all-fast",
    "rocksdb/db-paths",
    "rocksdb/all-fast",
    "leveldb/all-fast",
    "fjall/all-fast",
    "rocksdb/all-slow",
    "leveldb/all-slow",
];

/// How many of the usual ones run with `--quick`.
const QUICK: usize = 6;

impl Contender {
    /// The usual contenders of this build, and why others are missing.
    pub(crate) fn usual(quick: bool) -> (Vec<Contender>, Vec<&'static str>) {
        let count = if quick { QUICK } else { USUAL.len() };
        let parse = |text: &&str| text.parse::<Contender>().ok();
        let all = USUAL.iter().take(count).filter_map(parse);
        let (have, lack): (Vec<_>, Vec<_>) = all.partition(|c| c.engine.missing().is_none());
        let mut missing: Vec<_> = lack.iter().filter_map(|c| c.engine.missing()).collect();
        missing.dedup();
        (have, missing)
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Contender, String> {
        let named = |(name, layout): &(&str, Layout)| {
            let rest = text.strip_suffix(name)?.strip_suffix('/')?;
            Some((rest, *layout))
        };
        let (rest, layout) = match Layout::ALL.iter().find_map(named) {
            Some((rest, layout)) => (rest, Some(layout)),
            None => (text, None),
        };
        let (rest, file) = match rest.split_once('@') {
            Some((rest, file)) => (rest, Some(PathBuf::from(file))),
            None => (rest, None),
        };
        let (name, preset) = match rest.split_once(':') {
            Some((name, preset)) => (name, Some(preset.to_string())),
            None => (rest, None),
        };
        let engine = EngineKind::from_str(name, false).map_err(|_| {
            let names: Vec<_> = EngineKind::ALL.iter().map(|e| e.name()).collect();
            let layouts: Vec<_> = Layout::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "{text:?} is no engine; there are {}, with /{} behind the name",
                names.join(", "),
                layouts.join(" /")
            )
        })?;
        let ours = engine == EngineKind::Thermocline;
        if (preset.is_some() || file.is_some()) && !ours {
            return Err(format!(
                "{text:?}: only thermocline has presets and options files"
            ));
        }
        if let Some(file) = file.as_ref().filter(|file| !file.is_file()) {
            return Err(format!("there is no options file {}", file.display()));
        }
        check_preset(preset.as_deref())?;
        let usual = match engine {
            EngineKind::Thermocline => Layout::Tiers,
            EngineKind::Rocksdb => Layout::DbPaths,
            EngineKind::Leveldb | EngineKind::Fjall | EngineKind::Null => Layout::AllFast,
        };
        let layout = layout.unwrap_or(usual);
        let fits = match layout {
            Layout::Tiers => ours,
            Layout::DbPaths | Layout::DbPathsHeld => engine == EngineKind::Rocksdb,
            Layout::AllFast | Layout::AllSlow => true,
        };
        if !fits {
            return Err(format!("{engine} has no configuration {}", layout.name()));
        }
        Ok(Contender {
            engine,
            layout,
            preset,
            options_file: file,
        })
    }
}

/// Fails in words where there is no such preset.
#[cfg(feature = "thermocline")]
fn check_preset(preset: Option<&str>) -> Result<(), String> {
    let known = thermocline::presets();
    match preset {
        Some(name) if !known.iter().any(|preset| preset.name == name) => {
            let names: Vec<_> = known.iter().map(|preset| preset.name).collect();
            Err(format!(
                "there is no preset {name:?} yet; there are {}",
                names.join(", ")
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(not(feature = "thermocline"))]
fn check_preset(_: Option<&str>) -> Result<(), String> {
    Ok(())
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.engine)?;
        if let Some(preset) = &self.preset {
            write!(f, ":{preset}")?;
        }
        if let Some(file) = self.options_file.as_ref().and_then(|file| file.file_name()) {
            write!(f, "@{}", file.to_string_lossy())?;
        }
        match self.layout {
            Layout::Tiers => Ok(()),
            layout => write!(f, "/{}", layout.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "thermocline",
            "thermocline:leveled",
            "thermocline/all-fast",
            "rocksdb/db-paths",
            "rocksdb/all-slow",
            "leveldb/all-fast",
            "null/all-fast",
        ] {
            let contender: Contender = text.parse().unwrap();
            assert_eq!(contender.to_string(), text);
        }
        let usual: Contender = "rocksdb".parse().unwrap();
        assert_eq!(usual.layout, Layout::DbPaths);
    }

    #[test]
    fn an_options_file_may_lie_in_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("o.toml");
        std::fs::write(&path, "").unwrap();
        let text = format!("thermocline@{}/all-fast", path.display());
        let contender: Contender = text.parse().unwrap();
        assert_eq!(contender.options_file, Some(path));
        assert_eq!(contender.to_string(), "thermocline@o.toml/all-fast");
    }

    #[test]
    fn what_cannot_be_is_said_in_words() {
        for (text, word) in [
            ("sqlite", "leveldb"),
            ("leveldb/tiers", "no configuration"),
            ("rocksdb:nova", "presets"),
            ("thermocline@/no/such", "/no/such"),
            ("thermocline:none", "preset"),
            ("thermocline/db-paths", "no configuration"),
        ] {
            let error = text.parse::<Contender>().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
