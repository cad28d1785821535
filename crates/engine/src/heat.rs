//! Heat over a restart, and what else is seen to once an epoch.
//!
//! Temperatures are kept in a small file of their own on the first tier, written once a minute and
//! when the store closes. Nothing depends on it: a file that is damaged or of another store is
//! noted among the events, and the tables begin without a temperature, as they do where there is
//! none. A file that cannot be written is noted too, and tried again. Byte layout:
//! docs/formats/heat.md.

use std::path::Path;

use thermocline_model::job::Reason;
use thermocline_model::table::TableId;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::lend::LOOK_MICROS;
use crate::store::{Environment, OpenHow, read_exact_at, swap_file};

/// The name of the heat file in the first tier's directory.
pub(crate) const HEAT_FILE: &str = "HEAT";
pub(crate) const MAGIC: [u8; 8] = *b"THCHEAT\n";
const FORMAT_VERSION: u32 = 1;
/// Bytes before the tables: magic, version, checksum, store, count.
const FIXED_BYTES: usize = 40;
const TABLE_BYTES: usize = 16;
/// The largest file that is read: some four million tables.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// How often the file is written.
const SAVE_MICROS: u64 = 60_000_000;
/// How often events are appended to their record.
const RECORD_MICROS: u64 = 200_000;

/// When the engine last saw to what it sees to now and then.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    epoch_us: u64,
    saved_us: u64,
    recorded_us: u64,
    lent_us: u64,
    waits_us: u64,
}

impl Tended {
    /// Whether it is to be looked what writers wait for, every `period_us`.
    pub(crate) fn waits_are_due(&mut self, now_us: u64, period_us: u64) -> bool {
        is_due(&mut self.waits_us, now_us, period_us)
    }
}

/// Whether `period_us` has passed since `last_us`, or the clock has gone back.
fn is_due(last_us: &mut u64, now_us: u64, period_us: u64) -> bool {
    let due = now_us < *last_us || now_us - *last_us >= period_us;
    if due {
        *last_us = now_us;
    }
    due
}

/// What a heat file says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HeatFile {
    pub(crate) store_id: u128,
    /// By ascending number.
    pub(crate) temperatures: Vec<(TableId, f64)>,
}

impl HeatFile {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = FIXED_BYTES + TABLE_BYTES * self.temperatures.len();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.store_id.to_le_bytes());
        bytes.extend_from_slice(&(self.temperatures.len() as u64).to_le_bytes());
        for (table, temperature) in &self.temperatures {
            bytes.extend_from_slice(&table.0.to_le_bytes());
            bytes.extend_from_slice(&temperature.to_bits().to_le_bytes());
        }
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<HeatFile> {
        let damaged = |what: &str| Error::corruption(what).at(path);
        let u64_at = |at: usize| {
            let word = bytes[at..at + 8].first_chunk().expect("eight bytes taken");
            u64::from_le_bytes(*word)
        };
        if bytes.len() < FIXED_BYTES || bytes[..8] != MAGIC {
            return Err(damaged("no heat file"));
        }
        let (stored, computed) = ((u64_at(8) >> 32) as u32, checksum(bytes));
        if stored != computed {
            return Err(damaged("wrong checksum of the heat file")
                .offset(12)
                .expected(format_args!("{stored:08x}"), format_args!("{computed:08x}")));
        }
        let version = u64_at(8) as u32;
        if version != FORMAT_VERSION {
            return Err(damaged("unknown version of the heat file")
                .offset(8)
                .expected(FORMAT_VERSION, version));
        }
        let tables = &bytes[FIXED_BYTES..];
        let count = u64_at(32);
        let found = (tables.len() / TABLE_BYTES) as u64;
        if !tables.len().is_multiple_of(TABLE_BYTES) || found != count {
            return Err(damaged("wrong length of the heat file")
                .expected(format_args!("{count} tables"), tables.len() / TABLE_BYTES));
        }
        let mut temperatures: Vec<(TableId, f64)> = Vec::with_capacity(tables.len() / TABLE_BYTES);
        for at in (FIXED_BYTES..bytes.len()).step_by(TABLE_BYTES) {
            let (table, temperature) = (TableId(u64_at(at)), f64::from_bits(u64_at(at + 8)));
            let ascends = temperatures.last().is_none_or(|(last, _)| *last < table);
            if !(ascends && temperature.is_finite() && temperature >= 0.0) {
                return Err(damaged("unsound temperature").offset(at as u64));
            }
            temperatures.push((table, temperature));
        }
        let halves = (u128::from(u64_at(24)), u128::from(u64_at(16)));
        Ok(HeatFile {
            store_id: halves.0 << 64 | halves.1,
            temperatures,
        })
    }

    /// Reads the file of `directory`; `None` where there is none.
    fn read(environment: &Environment, directory: &Path) -> Result<Option<HeatFile>> {
        let path = directory.join(HEAT_FILE);
        let fail = |e| Error::io("reading heat file", &path, e);
        let file = match environment.file_system.open(&path, OpenHow::READ) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e)),
        };
        let size = file.size_bytes().map_err(fail)?;
        if size > FILE_BYTES_MAX {
            return Err(Error::corruption("heat file is too large")
                .at(&path)
                .expected(format_args!("at most {FILE_BYTES_MAX} bytes"), size));
        }
        let mut bytes = vec![0; size as usize];
        let length = read_exact_at(&*file, &mut bytes, 0).map_err(fail)?;
        HeatFile::decode(&bytes[..length], &path).map(Some)
    }
}

/// CRC-32C of everything but the four bytes it is stored in.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

impl Engine {
    /// Sees to what is due: several times a second the record of events and what the
    /// block cache lends, once an
    /// epoch what somebody asks for from outside, once a minute the heat file.
    pub(crate) fn tend(&self) {
        // A time from before another thread's look would seem to be of a clock that has gone back,
        // and two threads would do the same at once. So it is read under the lock.
        let clock = &self.environment.clock;
        let (record, lend) = {
            let tended = &mut self.scheduler.lock().tended;
            let now_us = clock.now_micros();
            (
                is_due(&mut tended.recorded_us, now_us, RECORD_MICROS),
                is_due(&mut tended.lent_us, now_us, LOOK_MICROS),
            )
        };
        if lend {
            self.lend_memory();
        }
        if record {
            self.record_events();
        }
        if self.check_writable().is_err() {
            return;
        }
        let (epoch, save) = {
            let tended = &mut self.scheduler.lock().tended;
            let now_us = clock.now_micros();
            let epoch_us = self.options.heat().epoch_us;
            let epoch = is_due(&mut tended.epoch_us, now_us, epoch_us);
            (
                epoch,
                epoch && is_due(&mut tended.saved_us, now_us, SAVE_MICROS),
            )
        };
        if epoch {
            self.take_request();
        }
        if save {
            self.save_heat();
        }
    }

    /// Appends the events that wait to their record. A store that takes no more
    /// writes goes on saying why.
    pub(crate) fn record_events(&self) {
        if !self.options.read_only {
            let (environment, directory) = (&self.environment, self.options.event_directory());
            self.events.record.write(environment, directory);
        }
    }

    /// Takes over the temperatures of before.
    pub(crate) fn load_heat(&self) {
        match HeatFile::read(&self.environment, &self.directory()) {
            Ok(None) => {}
            Ok(Some(file)) if file.store_id != self.store_id => self.note_heat(
                "temperatures were not read",
                "heat-foreign",
                &Error::invalid("the heat file is of another store"),
            ),
            Ok(Some(file)) => {
                let tracker = &self.scheduler.lock().preset.heat;
                tracker.restore(&file.temperatures);
            }
            Err(e) => self.note_heat("temperatures were not read", "heat-lost", &e),
        }
    }

    /// Writes the heat file, if there are temperatures.
    pub(crate) fn save_heat(&self) {
        if self.options.read_only || self.check_poisoned().is_err() {
            return;
        }
        if let Err(e) = self.write_heat(&self.directory(), self.store_id) {
            self.note_heat("temperatures were not written", "heat-unsaved", &e);
        }
    }

    /// Writes a heat file for the store `store_id` into `directory`.
    pub(crate) fn write_heat(&self, directory: &Path, store_id: u128) -> Result<()> {
        let temperatures = self.scheduler.lock().preset.heat.save();
        if temperatures.is_empty() {
            return Ok(());
        }
        let file = HeatFile {
            store_id,
            temperatures,
        };
        swap_file(&self.environment, directory, HEAT_FILE, &file.encode())
    }

    fn note_heat(&self, what: &str, rule: &str, error: &Error) {
        let now_us = self.environment.clock.now_micros();
        self.events.push(Event {
            error: Some(error.to_string()),
            ..Event::new("heat", what, Reason::new(rule), now_us)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::store::Clock;
    use crate::{Db, Options};

    fn file() -> HeatFile {
        HeatFile {
            store_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
            temperatures: vec![(TableId(7), 1.5), (TableId(258), 0.0)],
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let bytes = file().encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let document = include_str!("../../../docs/formats/heat.md");
        let example = document.split("```").nth(1).unwrap();
        assert_eq!(example.split_whitespace().collect::<String>(), hex);
        let decoded = HeatFile::decode(&bytes, Path::new("HEAT")).unwrap();
        assert_eq!(decoded, file());
    }

    #[test]
    fn no_damage_passes() {
        let bytes = file().encode();
        let refused = |bytes: &[u8]| HeatFile::decode(bytes, Path::new("HEAT")).is_err();
        for length in 0..bytes.len() {
            assert!(refused(&bytes[..length]), "cut at {length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(refused(&flipped), "bit {bit}");
        }
    }

    #[test]
    fn sound_checksums_do_not_excuse_unsound_content() {
        let sealed = |temperatures: &[(u64, f64)]| {
            let temperatures = temperatures.iter().map(|&(t, v)| (TableId(t), v));
            let file = HeatFile {
                store_id: 1,
                temperatures: temperatures.collect(),
            };
            HeatFile::decode(&file.encode(), Path::new("HEAT")).is_ok()
        };
        assert!(sealed(&[(1, 2.0), (2, 1.0)]));
        assert!(!sealed(&[(2, 2.0), (1, 1.0)]));
        assert!(!sealed(&[(1, f64::NAN)]));
        assert!(!sealed(&[(1, -1.0)]));
    }

    #[test]
    fn what_is_due_does_not_wait_for_a_clock_that_went_back() {
        let mut last_us = 0;
        assert!(is_due(&mut last_us, 100, 10));
        assert!(!is_due(&mut last_us, 109, 10));
        assert!(is_due(&mut last_us, 110, 10));
        assert!(is_due(&mut last_us, 5, 10));
        assert!(!is_due(&mut last_us, 6, 10));
    }

    /// Ten milliseconds later at each look, at which whoever looked is not at once.
    #[derive(Debug, Default)]
    struct Slow(AtomicU64);

    impl Clock for Slow {
        fn now_micros(&self) -> u64 {
            let now_us = self.0.fetch_add(10_000, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(50));
            now_us
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn threads_that_look_at_once_write_the_file_once_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(Slow(AtomicU64::new(SAVE_MICROS)));
        let environment = Environment {
            clock: clock.clone(),
            ..Environment::real()
        };
        let options = Options::at(directory.path())
            .preset("mutant")
            .background_threads(0);
        let db = Db::open_in(options, &environment).unwrap();
        let tracker = Arc::clone(&db.engine().scheduler.lock().preset.heat);
        tracker.restore(&file().temperatures);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| db.engine().tend()));
            }
        });
        let unsaved = |event: &Event| event.reason.rule == "heat-unsaved";
        assert!(directory.path().join(HEAT_FILE).exists());
        assert_eq!(db.events(4096).iter().filter(|e| unsaved(e)).count(), 0);
    }
}
