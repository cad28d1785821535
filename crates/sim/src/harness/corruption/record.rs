//! What a store may still tell of its events when their record was damaged.
//!
//! Damage costs the events that it touches and no others, and makes none up. What is
//! left is found here without the engine's reader: the frames of the undamaged file,
//! byte for byte, wherever they now stand.

use std::path::Path;

use thermocline::{Db, Event, Options};

use super::store::disk_of;
use super::truth::{Image, number};

/// The files of the record, older first.
const FILES: [&str; 2] = ["EVENTS.old", "EVENTS"];
const MARK: &[u8] = b"\nTE\x02";
const HEADER_BYTES: usize = 12;

/// The events in the record of a store that nobody has open, each with its frame.
#[derive(Clone, Debug, Default)]
pub struct Record(Vec<(Vec<u8>, Event)>);

impl Record {
    /// What the store tells of itself.
    ///
    /// # Panics
    /// When the store does not open, or tells less than its record has.
    #[must_use]
    pub fn of(image: &Image, options: &Options) -> Record {
        let disk = disk_of(image, options, 1);
        let db = Db::open_in(options.clone(), &disk.environment())
            .unwrap_or_else(|e| panic!("an undamaged store: {e}"));
        let events = db.events(usize::MAX);
        let frames = whole_frames(image, options);
        assert!(frames.len() <= events.len(), "{events:?}");
        Record(frames.into_iter().zip(events).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Requires that `db`, whose files were `damaged` when it was opened, tells of
    /// every event whose frame is whole, in order, and of no other but its own.
    ///
    /// # Errors
    /// What it does instead.
    pub fn check(&self, damaged: &Image, options: &Options, db: &Db) -> Result<(), String> {
        let told = db.events(usize::MAX);
        let left: Vec<&Event> = FILES
            .iter()
            .filter_map(|name| damaged.get(&place(options, name)))
            .flat_map(|bytes| self.in_bytes(bytes))
            .collect();
        if !told.iter().take(left.len()).eq(left.iter().copied()) {
            let numbers = |events: &mut dyn Iterator<Item = &Event>| {
                let numbers: Vec<String> = events.map(|e| e.number.to_string()).collect();
                numbers.join(" ")
            };
            return Err(format!(
                "of the events {} it tells {}",
                numbers(&mut left.into_iter()),
                numbers(&mut told.iter()),
            ));
        }
        let newest = left.iter().map(|e| e.number).max().unwrap_or(0);
        let mut own = told[left.len()..].iter();
        match own.find(|e| e.number <= newest) {
            Some(event) => Err(format!("an event from nowhere: {} {event}", event.number)),
            None => Ok(()),
        }
    }

    /// The events whose frames are whole in `bytes`.
    fn in_bytes<'a>(&'a self, bytes: &[u8]) -> Vec<&'a Event> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let mut frames = self.0.iter().filter(|_| rest.starts_with(MARK));
            match frames.find(|(frame, _)| rest.starts_with(frame)) {
                Some((frame, event)) => {
                    found.push(event);
                    at += frame.len();
                }
                None => at += 1,
            }
        }
        found
    }
}

fn place(options: &Options, name: &str) -> std::path::PathBuf {
    let first = options.tier_list().first();
    first.map_or(Path::new("/"), |tier| tier.path()).join(name)
}

/// The frames of undamaged files.
fn whole_frames(image: &Image, options: &Options) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for bytes in FILES.iter().filter_map(|n| image.get(&place(options, n))) {
        let mut rest = &bytes[..];
        while rest.starts_with(MARK) && rest.len() >= HEADER_BYTES {
            let length = HEADER_BYTES + number(rest, 4, 4) as usize;
            let (frame, behind) = rest.split_at(length.min(rest.len()));
            frames.push(frame.to_vec());
            rest = behind;
        }
    }
    frames
}
