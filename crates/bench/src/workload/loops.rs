//! The loops that are timed, one for each row, each thread with its own dice.
//! Every engine gets the same keys in the same order.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::Settings;
use super::data::{KEY_BYTES, Values};
use super::timing::{Tally, Timing, run_threads, share};
use crate::dice::{Dice, Permutation};
use crate::engine::{Cursor, Engine, Load, Result};

/// Steps after each seek.
const NEXTS: usize = 10;

/// Keys of one multi-get.
const MULTI_GET_KEYS: usize = 16;

/// A row that seeks does this share of the reads that others do.
const SEEK_DIVISOR: u64 = 4;

/// The random writer beside readers looks this often, in writes, whether the
/// readers are done.
const WRITER_CHECKS: u64 = 16;

/// Which way a scan goes.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The loops, over an open store.
pub(super) struct Runner<'a, E> {
    pub settings: &'a Settings,
    pub store: &'a E,
    pub seed: u64,
}

impl<E: Engine> Runner<'_, E> {
    fn entries(&self) -> u64 {
        self.settings.engine.entries
    }

    fn tally(&self) -> Result<Tally> {
        Tally::new(self.settings.latency)
    }

    /// Dice for one thread of one repetition; every engine gets the same.
    fn dice(&self, number: u32) -> Dice {
        Dice::new((self.seed << 32) + u64::from(number))
    }

    fn values(&self, number: u32) -> Values {
        Values::new(self.settings.value_bytes, self.seed + u64::from(number))
    }

    /// What a reader does with a value: looks at its first byte.
    #[inline]
    fn see(&self) -> impl Fn(&[u8]) + use<E> {
        |value| {
            black_box(value.first());
        }
    }

    pub(super) fn bulk_load(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            let mut load = self.store.bulk_load()?;
            for index in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(index);
                tally.step(1, || load.add(&key, values.take()))?;
            }
            load.finish()?;
            Ok(tally)
        })
    }

    pub(super) fn random_writes(&self, threads: u32) -> Result<Timing> {
        let permutation = Permutation::new(self.entries(), self.seed);
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            for index in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(permutation.at(index));
                tally.step(1, || self.store.put(&key, values.take()))?;
            }
            Ok(tally)
        })
    }

    pub(super) fn overwrite(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut values = self.values(number);
            let mut dice = self.dice(number);
            for _ in share(self.entries(), number, threads) {
                let key = self.settings.keys.present(dice.below(self.entries()));
                tally.step(1, || self.store.put(&key, values.take()))?;
            }
            Ok(tally)
        })
    }

    pub(super) fn read(&self, threads: u32, present: bool) -> Result<Timing> {
        run_threads(threads, |number| self.read_share(number, threads, present))
    }

    /// One thread's reads, all of which must be found, or none.
    fn read_share(&self, number: u32, threads: u32, present: bool) -> Result<Tally> {
        let mut tally = self.tally()?;
        let mut dice = self.dice(number);
        let mut found = 0_u64;
        for _ in share(self.settings.reads, number, threads) {
            let index = dice.below(self.entries());
            let key = match present {
                true => self.settings.keys.present(index),
                false => self.settings.keys.absent(index),
            };
            tally.step(1, || {
                found += u64::from(self.store.get(&key, self.see())?);
                Ok(())
            })?;
        }
        let expected = if present { tally.operations } else { 0 };
        self.expect("reads that found a value", expected, found)?;
        Ok(tally)
    }

    pub(super) fn multi_get(&self, threads: u32) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut dice = self.dice(number);
            let mut found = 0;
            let mut keys = [[0; KEY_BYTES]; MULTI_GET_KEYS];
            for _ in share(self.settings.reads / MULTI_GET_KEYS as u64, number, threads) {
                for key in &mut keys {
                    *key = self.settings.keys.present(dice.below(self.entries()));
                }
                let list: [&[u8]; MULTI_GET_KEYS] = std::array::from_fn(|index| &keys[index][..]);
                tally.step(MULTI_GET_KEYS as u64, || {
                    found += self.store.multi_get(&list, self.see())? as u64;
                    Ok(())
                })?;
            }
            self.expect("keys that have a value", tally.operations, found)?;
            Ok(tally)
        })
    }

    pub(super) fn seek(&self, threads: u32, reuse: bool) -> Result<Timing> {
        run_threads(threads, |number| {
            let mut tally = self.tally()?;
            let mut dice = self.dice(number);
            let mut one = self.store.cursor()?;
            // So low that ten more entries always follow.
            let limit = self.entries().saturating_sub(NEXTS as u64).max(1);
            let mut steps = 0_u64;
            for _ in share(self.settings.reads / SEEK_DIVISOR, number, threads) {
                let key = self.settings.keys.present(dice.below(limit));
                tally.step(1, || {
                    steps += match reuse {
                        true => walk(&mut one, &key)?,
                        false => walk(&mut self.store.cursor()?, &key)?,
                    };
                    Ok(())
                })?;
            }
            let expected = tally.operations * NEXTS as u64;
            if self.entries() > NEXTS as u64 {
                self.expect("entries after a seek", expected, steps)?;
            }
            Ok(tally)
        })
    }

    /// Every thread walks over all entries, which must be as many as were
    /// written.
    pub(super) fn scan(&self, threads: u32, direction: Direction) -> Result<Timing> {
        run_threads(threads, |_| {
            let mut tally = Tally::new(false)?;
            let mut cursor = self.store.cursor()?;
            match direction {
                Direction::Forward => {
                    cursor.seek_to_first()?;
                    while cursor.valid() {
                        black_box((cursor.key().first(), cursor.value().first()));
                        tally.operations += 1;
                        cursor.next()?;
                    }
                }
                Direction::Backward => {
                    cursor.seek_to_last()?;
                    while cursor.valid() {
                        black_box((cursor.key().first(), cursor.value().first()));
                        tally.operations += 1;
                        cursor.prev()?;
                    }
                }
            }
            cursor.status()?;
            self.expect("entries in a scan", self.entries(), tally.operations)?;
            Ok(tally)
        })
    }

    /// The readers' timing and the writer's rate.
    pub(super) fn read_while_writing(&self, threads: u32) -> Result<(Timing, f64)> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<f64> {
                let mut values = self.values(threads);
                let mut dice = self.dice(threads);
                let mut writes = 0_u64;
                let start = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..WRITER_CHECKS {
                        let key = self.settings.keys.present(dice.below(self.entries()));
                        self.store.put(&key, values.take())?;
                    }
                    writes += WRITER_CHECKS;
                }
                Ok(writes as f64 / start.elapsed().as_secs_f64())
            });
            let timing = run_threads(threads, |number| self.read_share(number, threads, true));
            done.store(true, Ordering::Relaxed);
            let rate = writer.join().map_err(|_| "the writer panicked")??;
            Ok((timing?, rate))
        })
    }

    /// Fails if an engine that is checked gave another number than expected.
    fn expect(&self, what: &str, expected: u64, found: u64) -> Result<()> {
        if E::CHECKED && expected != found {
            return Err(format!("{what}: expected {expected}, found {found}").into());
        }
        Ok(())
    }
}

/// A seek and the steps after it; says how many entries were stepped to.
#[inline]
fn walk(cursor: &mut impl Cursor, key: &[u8]) -> Result<u64> {
    cursor.seek(key)?;
    let mut steps = 0;
    while steps < NEXTS as u64 && cursor.valid() {
        black_box((cursor.key().first(), cursor.value().first()));
        cursor.next()?;
        steps += 1;
    }
    if steps < NEXTS as u64 {
        cursor.status()?;
    }
    Ok(steps)
}
