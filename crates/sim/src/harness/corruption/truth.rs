//! What a damaged store may answer.
//!
//! The rule is: the right answer, or an error. There are two exceptions, and
//! both are damage that no reader can tell from a crash, because every byte
//! that contradicts the crash is itself gone:
//!
//! - **The log beyond its last durable claim.** Frames and segment headers say
//!   up to which number everything was durable when they were written, and the
//!   manifest says it of what is in tables. With *D* the highest number that
//!   any undamaged claim names, a store whose log is damaged may answer as it
//!   did after any operation from *D* on. A log that was closed ends with a
//!   seal that claims all of it, so a single flip never gets this far. Where
//!   parts or keyspaces were flushed at different times, what is in tables
//!   stays while older entries of other parts are gone with the log: no key is
//!   older than at *D*, but together they are no prefix. Such a *hole* takes
//!   a log cut by something else than a crash; it is counted.
//! - **The tail of the manifest**, with nothing sound left behind it. It then
//!   reads as an earlier manifest (`docs/formats/manifest.md`, "What this
//!   cannot tell"). Every value must still be one that the key once had.
//!
//! The claims are found here by a reader of the format of its own, not by the
//! engine's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline::{Db, Error, Result};

/// The files of a store.
pub type Image = BTreeMap<PathBuf, Arc<[u8]>>;

/// A keyspace and a key. The empty key stands for the keyspace itself.
pub type Place = (String, Vec<u8>);

/// What a key was given, and by which number; none is a delete.
pub type Given = (u64, Option<Vec<u8>>);

/// What a store holds.
pub type State = BTreeMap<Place, Vec<u8>>;

/// Everything that was ever done to a store.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What it held after each operation, by the operation's last number.
    pub states: BTreeMap<u64, State>,
    /// What each key was ever given.
    pub ever: BTreeMap<Place, Vec<Given>>,
    /// Up to which number everything is in tables.
    pub flushed: u64,
}

impl History {
    /// The last number and what the store holds.
    #[must_use]
    pub fn last(&self) -> (u64, &State) {
        let (seq, state) = self.states.last_key_value().expect("begins with one");
        (*seq, state)
    }

    fn is_earlier(&self, place: &Place, value: Option<&Vec<u8>>) -> bool {
        let values = self.ever.get(place);
        value.is_none() || values.is_some_and(|v| v.iter().any(|(_, v)| v.as_ref() == value))
    }
}

/// What a store answered: every key that ever was, and every keyspace's scan,
/// up to its first error.
#[derive(Debug, Default)]
pub struct Answers {
    gets: BTreeMap<Place, Option<Vec<u8>>>,
    /// What was scanned, and whether all of it was.
    scans: BTreeMap<String, (State, bool)>,
    /// The errors that were answered.
    pub errors: Vec<Error>,
    /// How many answers.
    pub count: u64,
}

impl Answers {
    /// Asks `db` everything.
    #[must_use]
    pub fn of(db: &Db, history: &History, backward: bool) -> Answers {
        let mut answers = Answers::default();
        let mut names = db.keyspaces();
        for place in history.ever.keys() {
            if !names.contains(&place.0) {
                names.push(place.0.clone());
            }
        }
        for name in names {
            if let Err(error) = answers.keyspace(db, history, &name, backward) {
                answers.errors.push(error);
            }
        }
        answers
    }

    fn keyspace(
        &mut self,
        db: &Db,
        history: &History,
        name: &str,
        backward: bool,
    ) -> Result<(), Error> {
        let there = db.keyspaces().iter().any(|k| k == name);
        let itself = (name.to_string(), Vec::new());
        self.gets.insert(itself.clone(), there.then(Vec::new));
        let first = itself.clone();
        let keyspace = there.then(|| db.keyspace(name)).transpose()?;
        for (place, _) in history.ever.range(first..) {
            if place.0 != name {
                break;
            }
            let (Some(keyspace), false) = (&keyspace, place.1.is_empty()) else {
                self.gets.entry(place.clone()).or_insert(None);
                continue;
            };
            self.count += 1;
            match keyspace.get(&place.1) {
                Ok(value) => {
                    self.gets.insert(place.clone(), value.map(|v| v.to_vec()));
                }
                Err(error) => self.errors.push(error),
            }
        }
        let Some(keyspace) = keyspace else {
            return Ok(());
        };
        let scan = self
            .scans
            .entry(name.to_string())
            .or_insert((State::new(), false));
        let entries = match backward {
            true => keyspace.iter()?.backward(),
            false => keyspace.iter()?.forward(),
        };
        for entry in entries {
            let (key, value) = entry?;
            self.count += 1;
            scan.0.insert((name.to_string(), key), value);
        }
        scan.1 = true;
        Ok(())
    }

    /// Requires that everything answered is as in `state`.
    fn check(&self, state: &State, backward: bool) -> Result<(), String> {
        for (place, value) in &self.gets {
            if value.as_ref() != state.get(place) {
                return Err(differs(place, state.get(place), value.as_ref()));
            }
        }
        for (name, (found, complete)) in &self.scans {
            let wanted = state
                .iter()
                .filter(|(p, _)| p.0 == *name && !p.1.is_empty());
            let wanted: Vec<_> = match backward {
                true => wanted.rev().collect(),
                false => wanted.collect(),
            };
            let got: Vec<_> = match backward {
                true => found.iter().rev().collect(),
                false => found.iter().collect(),
            };
            let short = got.len() != wanted.len() && *complete;
            if short || wanted.get(..got.len()) != Some(&got[..]) {
                return Err(format!(
                    "the scan of {name} has {} of {} entries, complete: {complete}",
                    got.len(),
                    wanted.len()
                ));
            }
        }
        Ok(())
    }

    /// Requires that the answers are allowed.
    ///
    /// # Errors
    /// What is not.
    pub fn check_allowed(
        &self,
        history: &History,
        allowed: Allowed,
        backward: bool,
    ) -> Result<Fit, String> {
        let (last, state) = history.last();
        let right = self.check(state, backward);
        match allowed {
            Allowed::Right => right.map(|()| Fit::Right),
            Allowed::Since(durable) => {
                let since = || history.states.range(durable.min(last)..).map(|(_, s)| s);
                if right.is_ok() {
                    return Ok(Fit::Right);
                }
                if since().any(|state| self.check(state, backward).is_ok()) {
                    return Ok(Fit::Prefix);
                }
                for (place, value) in &self.gets {
                    if since().all(|state| state.get(place) != value.as_ref()) {
                        let wrong = differs(place, state.get(place), value.as_ref());
                        return Err(format!("{wrong}, as in no state since {durable}"));
                    }
                }
                self.check_kept(history, false, &|_, _| false)?;
                Ok(Fit::Hole)
            }
            Allowed::Ever => {
                self.check_kept(history, false, &|_, _| false)?;
                Ok(match right {
                    Ok(()) => Fit::Right,
                    Err(_) => Fit::Earlier,
                })
            }
        }
    }

    /// Requires that every answer is right that `must` be, and that each of the
    /// others was right once, in its own keyspace or, where they are `mixed`,
    /// in another one; and that gets and scans agree.
    ///
    /// # Errors
    /// What is not.
    pub fn check_kept(
        &self,
        history: &History,
        mixed: bool,
        must: &dyn Fn(&Place, &[Given]) -> bool,
    ) -> Result<(), String> {
        let state = history.last().1;
        let elsewhere = |place: &Place, value: &Vec<u8>| {
            let mut same_key = history.ever.iter().filter(|(p, _)| p.1 == place.1);
            same_key.any(|(_, e)| e.iter().any(|(_, v)| v.as_ref() == Some(value)))
        };
        for (place, value) in &self.gets {
            let value = value.as_ref();
            let right = value == state.get(place);
            let ever = history.ever.get(place).map_or(&[][..], |e| e);
            // A repair may name a keyspace anew when its name is lost.
            let named = history.ever.keys().any(|(name, _)| *name == place.0);
            let foreign = mixed && value.is_some_and(|value| elsewhere(place, value));
            if !right && must(place, ever) {
                return Err(differs(place, state.get(place), value));
            }
            if !right && named && !foreign && !history.is_earlier(place, value) {
                return Err(format!("{} was never written", words(place)));
            }
        }
        for (name, (found, complete)) in &self.scans {
            let here = self.gets.iter().filter(|(p, _)| p.0 == *name);
            for (place, value) in here.filter(|(p, _)| !p.1.is_empty()) {
                let scanned = found.get(place);
                let unseen = !complete && scanned.is_none();
                if !unseen && scanned != value.as_ref() {
                    return Err(format!("get and scan differ at {}", words(place)));
                }
            }
            for (place, value) in found {
                // A repair may name a keyspace anew when its name is lost.
                let named = history.ever.keys().any(|(name, _)| *name == place.0);
                let foreign = (mixed || !named) && elsewhere(place, value);
                if !history.ever.contains_key(place) && !foreign {
                    return Err(format!("{} comes from nowhere", words(place)));
                }
            }
        }
        Ok(())
    }
}

fn words(place: &Place) -> String {
    format!("{}/{}", place.0, place.1.escape_ascii())
}

fn differs(place: &Place, wanted: Option<&Vec<u8>>, found: Option<&Vec<u8>>) -> String {
    let short = |value: Option<&Vec<u8>>| match value {
        Some(value) => {
            let start = value[..value.len().min(24)].escape_ascii();
            format!("{start} ({} bytes)", value.len())
        }
        None => "nothing".to_string(),
    };
    format!(
        "{} should be {}, and is {}",
        words(place),
        short(wanted),
        short(found)
    )
}

/// How answers are allowed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Fit {
    /// They are right.
    #[default]
    Right,
    /// They are those of an earlier time.
    Prefix,
    /// They are those of several earlier times, of each part its own.
    Hole,
    /// They are those of an earlier manifest.
    Earlier,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// The right answer.
    Right,
    /// Any state since this number.
    Since(u64),
    /// For every key a state that it once had.
    Ever,
}

/// What a store made of `damaged` may answer that was `whole` before.
#[must_use]
pub fn allowed(whole: &Image, damaged: &Image, history: &History) -> Allowed {
    let mut log_is_whole = true;
    let mut durable = history.flushed;
    for (path, bytes) in whole {
        let now = damaged.get(path).map_or(&[][..], |b| b);
        let name = file_name(path);
        if name.ends_with(".log") {
            log_is_whole &= **bytes == *now;
            durable = durable.max(log_claims(bytes, now));
        }
        if name.starts_with("MANIFEST-") && lost_tail(bytes, now) {
            return Allowed::Ever;
        }
    }
    match log_is_whole {
        true => Allowed::Right,
        false => Allowed::Since(durable),
    }
}

/// Whether the damage may have taken all files of a table: a meta, and a data object where
/// the table has one. With the edit that added it gone too, nothing says that it was there.
pub(super) fn tables_gone(whole: &Image, damaged: &Image) -> bool {
    let of_kind = |kind: &'static str| {
        whole
            .iter()
            .filter(move |(p, _)| file_name(p).ends_with(kind))
    };
    let is_hit = |kind| of_kind(kind).any(|(path, bytes)| damaged.get(path) != Some(bytes));
    is_hit(".meta") && (is_hit(".data") || of_kind(".meta").count() > of_kind(".data").count())
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A little-endian number.
pub(super) fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let place = bytes.get(at..at + length).unwrap_or_default();
    place.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// The highest durable claim of a header of the segment `whole` that `damaged`
/// still has.
fn log_claims(whole: &[u8], damaged: &[u8]) -> u64 {
    let same = |from: usize, to: usize| whole.get(from..to) == damaged.get(from..to);
    let mut durable = 0;
    if whole.len() >= 96 && same(0, 96) {
        durable = number(whole, 72, 8);
    }
    let mut at = 96;
    // A frame's number is never 0; what is reserved is zeros.
    while at + 32 <= whole.len() && number(whole, at + 16, 8) > 0 {
        if same(at, at + 32) {
            durable = durable.max(number(whole, at + 24, 8));
        }
        at = (at + 32 + number(whole, at + 8, 4) as usize).next_multiple_of(8);
    }
    durable
}

/// Where the frames of a manifest begin and end, and whether each is an edit.
pub(super) fn manifest_frames(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    const EDIT: u64 = 0x7468_6501;
    let mut frames = Vec::new();
    let mut at = 0;
    while at + 16 <= bytes.len() {
        let end = (at + 16 + number(bytes, at + 8, 4) as usize).next_multiple_of(8);
        frames.push((at, end, number(bytes, at + 12, 4) == EDIT));
        at = end;
    }
    frames
}

/// Whether an edit at the end of the manifest is gone and nothing is left
/// behind it.
fn lost_tail(whole: &[u8], damaged: &[u8]) -> bool {
    let same = |&(from, to, _): &(usize, usize, bool)| {
        damaged.len() >= to && whole.get(from..to) == damaged.get(from..to)
    };
    let frames = manifest_frames(whole);
    let left = frames.iter().rposition(same).map_or(0, |at| at + 1);
    frames[left..].iter().any(|&(_, _, is_edit)| is_edit)
}
