//! How many parts a keyspace may be cut into where the user names no number, and how
//! large memtables are: both by memory, threads and load.
//!
//! *Memory.* The write buffer is shared by the parts, and the fullest is flushed when half
//! of it is taken, so a flush is about twice the write buffer over their number. It costs
//! a sync of its table and one of the manifest, whatever it holds. So each part has at least
//! [`PART_BYTES_MIN`] of the write buffer; a small one has one part.
//!
//! *Threads.* Merges of different parts run side by side: a few parts for each thread of the
//! background, so that there is one to merge while others are busy.
//!
//! *Load.* This is only how many parts there may be. There is one until writers have had to wait for
//! merges that wait for processors ([`Waits`], by [`PartTriggers`]): merges of a part rewrite its share of the next
//! level and no more, side by side. Where merges wait for a device there is one again: flushes of
//! parts are smaller, so that each byte is merged more often. And cuts are only made if keys
//! written earlier share out those written later ([`super::ranges`]). Keys in order and a single
//! hot key do not pass that, and stay in one part, whose memtables are as large as those of a
//! store that may not be cut.

use thermocline_model::triggers::PartTriggers;
use thermocline_model::version::Keyspace;

/// What was spent since the store was opened, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Time in which a writer waited, or several did, because of runs that are not merged yet.
    pub stalled_us: u64,
    /// By threads, on merges.
    pub merges_us: u64,
    /// Of these, running or waiting for a processor; all else is waiting for devices.
    pub running_us: u64,
}

/// What writers wait for; see the module.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Waits {
    last: Spent,
    looked_us: u64,
    /// Waited since merges last said what for.
    waited_us: f64,
    for_processors_us: f64,
    for_devices_us: f64,
    moving_us: u64,
    parts_pay: bool,
    taken_back: u32,
    not_before_us: u64,
}

impl Waits {
    /// Of a store that just began, with several parts or not.
    #[must_use]
    pub fn beginning(parts_pay: bool) -> Waits {
        Waits {
            parts_pay,
            ..Waits::default()
        }
    }

    /// Whether there should be more than one part at the time `now_us`, where so much was spent up
    /// to then. `moving`: what earlier cuts have handed down is not merged yet, so that what
    /// writers wait for may be that.
    pub fn parts_pay(
        &mut self,
        now: Spent,
        now_us: u64,
        moving: bool,
        triggers: &PartTriggers,
    ) -> bool {
        let passed_us = now_us.saturating_sub(self.looked_us);
        let fade_us = triggers.waits_fade_ms.max(1).saturating_mul(1000);
        let fades = 0.5f64.powf(passed_us as f64 / fade_us as f64);
        for waited_us in [
            &mut self.waited_us,
            &mut self.for_processors_us,
            &mut self.for_devices_us,
        ] {
            *waited_us *= fades;
        }
        self.looked_us = now_us;
        let waited_us = now.stalled_us.saturating_sub(self.last.stalled_us);
        self.last.stalled_us = now.stalled_us;
        self.moving_us = match moving {
            true => self.moving_us.saturating_add(passed_us),
            false => self.moving_us.saturating_sub(passed_us),
        };
        if !moving || self.moving_us > triggers.moving_ms.saturating_mul(1000) {
            self.waited_us += waited_us as f64;
        }
        let merges_us = now.merges_us.saturating_sub(self.last.merges_us);
        if merges_us < triggers.merges_ms_min.saturating_mul(1000) {
            return self.parts_pay;
        }
        let running_us = now.running_us.saturating_sub(self.last.running_us);
        self.last = now;
        let waited_us = std::mem::take(&mut self.waited_us);
        match running_us as f64 >= triggers.running_share * merges_us as f64 {
            true => self.for_processors_us += waited_us,
            false => self.for_devices_us += waited_us,
        }
        let (processors_us, devices_us) = (self.for_processors_us, self.for_devices_us);
        let long_us = |ms: u64| ms.saturating_mul(1000) as f64;
        if self.parts_pay {
            if devices_us >= long_us(triggers.device_waits_ms) && devices_us > processors_us {
                self.parts_pay = false;
                let doublings = self.taken_back.min(triggers.again_doublings_max);
                let again_us = triggers.again_ms.saturating_mul(1000 << doublings.min(32));
                self.not_before_us = now_us.saturating_add(again_us);
                self.taken_back = self.taken_back.saturating_add(1);
            }
        } else if now_us >= self.not_before_us {
            self.parts_pay =
                processors_us >= long_us(triggers.processor_waits_ms) && processors_us > devices_us;
        }
        self.parts_pay
    }
}

/// Least bytes of the write buffer for each part.
pub const PART_BYTES_MIN: u64 = 1536 << 10;

/// Parts for each thread of the background,
const PARTS_PER_THREAD: usize = 4;

/// and with few threads.
const PARTS_FEW: usize = 10;

/// Least and most bytes of a memtable whose size the user does not give.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

/// Memtables in the write buffer, where these are few enough parts.
const MEMTABLES: u64 = 8;

/// What a memtable may take beyond its capacity: an eighth, and this.
const BEYOND_BYTES: u64 = 256 << 10;

/// What there is to share out.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Memory of all memtables, in bytes.
    pub write_buffer_bytes: u64,
    /// The size of a memtable that the user gave, in bytes.
    pub memtable_bytes: Option<u64>,
    /// Threads of the background.
    pub threads: usize,
}

/// Parts that all keyspaces may have together, at least one.
#[must_use]
pub fn parts_max(means: &Means) -> usize {
    let half = means.write_buffer_bytes / 2;
    let by_memory = means.write_buffer_bytes / PART_BYTES_MIN;
    // Memtables that take writes fill no more than half of the memory.
    let by_memtables = means.memtable_bytes.map_or(u64::MAX, |bytes| {
        half / bytes.saturating_add(bytes / 8 + BEYOND_BYTES)
    });
    let by_threads = PARTS_FEW.max(PARTS_PER_THREAD.saturating_mul(means.threads));
    (by_memory.min(by_memtables).min(by_threads as u64) as usize).max(1)
}

/// Bytes of a memtable in a store of so many parts: an eighth of the write buffer, or less, so
/// that those that take writes fill no more than half of it.
#[must_use]
pub fn memtable_bytes(write_buffer_bytes: u64, parts: u64) -> u64 {
    let eighth = write_buffer_bytes / MEMTABLES;
    let bytes = match parts {
        0 | 1 => eighth,
        parts => {
            let each = write_buffer_bytes / 2 / parts;
            eighth.min(each.saturating_sub(BEYOND_BYTES) / 9 * 8)
        }
    };
    bytes.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
}

/// Whether the parts of `keyspace` were made by its writes, so that all get about as many, and
/// are merged each by itself; cuts that the user gave say nothing about that.
#[must_use]
pub fn are_by_writes(keyspace: &Keyspace) -> bool {
    keyspace.parts.len() > 1 && have_moved(keyspace)
}

/// Whether the cuts of `keyspace` are what its writes have made them, though it may be none.
#[must_use]
pub fn have_moved(keyspace: &Keyspace) -> bool {
    keyspace.parts.iter().any(|part| !part.tiny.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What a store spends, look by look, a second apart.
    #[derive(Default)]
    struct Looks {
        waits: Waits,
        triggers: PartTriggers,
        spent: Spent,
        now_us: u64,
    }

    impl Looks {
        fn look(&mut self, stalled_ms: u64, merges_ms: u64, running_ms: u64) -> bool {
            self.now_us += 1_000_000;
            self.spend(stalled_ms, merges_ms, running_ms);
            self.waits
                .parts_pay(self.spent, self.now_us, false, &self.triggers)
        }

        fn spend(&mut self, stalled_ms: u64, merges_ms: u64, running_ms: u64) {
            self.spent.stalled_us += stalled_ms * 1000;
            self.spent.merges_us += merges_ms * 1000;
            self.spent.running_us += running_ms * 1000;
        }
    }

    #[test]
    fn parts_pay_while_writers_wait_for_merges_that_wait_for_processors() {
        let mut looks = Looks::default();
        assert!(!looks.look(500, 0, 0), "no merge says what for");
        // What was waited before counts for those that ended since.
        assert!(!looks.look(0, 1000, 100));
        assert!(!looks.look(250, 1000, 900), "most was for devices");
        looks = Looks::default();
        assert!(!looks.look(200, 1000, 900));
        assert!(looks.look(100, 1000, 500));
        assert!(looks.look(900, 1000, 400));
        assert!(!looks.look(500, 1000, 400));
        assert!(!looks.look(1000, 50, 50), "too little to say");
    }

    #[test]
    fn what_was_waited_for_fades() {
        let mut looks = Looks::default();
        for _ in 0..1000 {
            assert!(!looks.look(10, 1000, 1000));
        }
        let mut busy = Looks::default();
        assert!((0..30).any(|_| busy.look(30, 1000, 1000)));
        // Also while no merge says what for.
        looks.look(900, 0, 0);
        for _ in 0..60 {
            looks.look(0, 0, 0);
        }
        assert!(!looks.look(0, 1000, 1000));
        looks.now_us = 0;
        assert!(!looks.look(10, 1000, 1000), "a clock that goes back");
    }

    #[test]
    fn each_time_parts_are_taken_back_it_takes_longer_until_there_are_some_again() {
        let mut looks = Looks::default();
        let mut waited = Vec::new();
        for _ in 0..4 {
            let mut seconds = 1;
            while !looks.look(500, 1000, 1000) {
                seconds += 1;
            }
            waited.push(seconds);
            while looks.look(900, 1000, 0) {}
        }
        assert!(waited[0] == 1 && waited[1] >= 25, "{waited:?}");
        assert!(waited[2] >= 55 && waited[3] >= 115, "{waited:?}");
        for _ in 0..20 {
            while !looks.look(500, 1000, 1000) {}
            while looks.look(900, 1000, 0) {}
        }
        let most_us = (30_000_000 << 7) + looks.now_us;
        assert!(looks.waits.not_before_us <= most_us);
    }

    #[test]
    fn what_writers_wait_for_while_cuts_are_on_their_way_says_nothing_for_a_while() {
        let mut looks = Looks::default();
        let moving = |looks: &mut Looks, running_ms| {
            looks.now_us += 1_000_000;
            looks.spend(800, 1000, running_ms);
            let Looks {
                waits, triggers, ..
            } = looks;
            waits.parts_pay(looks.spent, looks.now_us, true, triggers)
        };
        for _ in 0..10 {
            assert!(!moving(&mut looks, 1000));
        }
        assert!(!looks.look(0, 1000, 1000));
        assert!(looks.look(400, 1000, 1000));
        for _ in 0..20 {
            looks.look(0, 0, 0);
        }
        let moved = (0..30).take_while(|_| moving(&mut looks, 0)).count();
        assert!((9..20).contains(&moved), "{moved}");
    }

    fn with(triggers: PartTriggers) -> Looks {
        Looks {
            triggers,
            ..Looks::default()
        }
    }

    #[test]
    fn how_long_writers_wait_until_parts_come_and_go_is_a_trigger() {
        let usual = PartTriggers::default();
        for ms in [1, 40, 700] {
            let come = PartTriggers {
                processor_waits_ms: ms,
                ..usual
            };
            assert!(!with(come).look(ms - 1, 1000, 1000), "{ms} ms");
            assert!(with(come).look(ms, 1000, 1000), "{ms} ms");
            let go = PartTriggers {
                device_waits_ms: ms,
                ..usual
            };
            let goes = |waited_ms| {
                let mut looks = with(go);
                looks.waits = Waits::beginning(true);
                !looks.look(waited_ms, 1000, 0)
            };
            assert!(!goes(ms - 1) && goes(ms), "{ms} ms");
        }
        // What they wait for, and from how much of merges that is told.
        let share = |running_share| PartTriggers {
            running_share,
            ..usual
        };
        assert!(with(share(0.9)).look(300, 1000, 900) && !with(share(0.9)).look(300, 1000, 899));
        let of = |merges_ms_min| PartTriggers {
            merges_ms_min,
            ..usual
        };
        assert!(with(of(2000)).look(300, 2000, 2000) && !with(of(2000)).look(300, 1999, 1999));
        // After its time what was waited counts half.
        let half = |waits_fade_ms| {
            let mut looks = with(PartTriggers {
                waits_fade_ms,
                ..usual
            });
            looks.look(400, 0, 0);
            looks.look(0, 1000, 1000)
        };
        assert!(half(1500) && !half(1000));
    }

    #[test]
    fn how_long_parts_stay_away_is_a_trigger() {
        let seconds = |again_ms, again_doublings_max| {
            let mut looks = with(PartTriggers {
                again_ms,
                again_doublings_max,
                ..PartTriggers::default()
            });
            let away = (0..4).map(|_| {
                let away = (0..).take_while(|_| !looks.look(500, 1000, 1000)).count();
                while looks.look(3000, 1000, 0) {}
                looks.waits.for_devices_us = 0.0;
                away
            });
            away.collect::<Vec<_>>()
        };
        assert_eq!(seconds(0, 16), [0; 4]);
        assert_eq!(seconds(20_000, 0), [0, 19, 19, 19]);
        assert_eq!(seconds(20_000, 1), [0, 19, 39, 39]);
        assert_eq!(seconds(20_000, 16), [0, 19, 39, 79]);
        // While cuts are on their way nothing is counted, for so long.
        let counts_after = |moving_ms| {
            let mut looks = with(PartTriggers {
                moving_ms,
                ..PartTriggers::default()
            });
            let look = |looks: &mut Looks| {
                looks.now_us += 1_000_000;
                looks.spend(900, 1000, 1000);
                let Looks {
                    waits, triggers, ..
                } = looks;
                waits.parts_pay(looks.spent, looks.now_us, true, triggers)
            };
            (1..).take_while(|_| !look(&mut looks)).count()
        };
        assert_eq!((counts_after(0), counts_after(5000)), (0, 5));
    }

    fn parts(write_buffer_bytes: u64, threads: usize) -> usize {
        parts_max(&Means {
            write_buffer_bytes,
            memtable_bytes: None,
            threads,
        })
    }

    #[test]
    fn parts_grow_with_memory_up_to_a_few_for_each_thread() {
        assert_eq!(parts(64 << 10, 2), 1);
        assert_eq!(parts(2 * MIB, 2), 1);
        assert_eq!(parts(6 * MIB, 2), 4);
        assert_eq!(parts(64 * MIB, 2), 10);
        assert_eq!(parts(64 * MIB, 0), 10);
        assert_eq!(parts(64 * MIB, 8), 32);
        assert_eq!(parts(6 * MIB, 64), 4);
        let grow = (0..20).map(|doublings| parts(MIB << doublings, 64));
        assert!(grow.collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn memtables_of_a_given_size_leave_half_of_the_memory() {
        let with = |bytes| {
            parts_max(&Means {
                write_buffer_bytes: 64 * MIB,
                memtable_bytes: Some(bytes),
                threads: 2,
            })
        };
        assert_eq!(with(MIB), 10);
        assert_eq!(with(8 * MIB), 3);
        assert_eq!(with(32 * MIB), 1);
        assert_eq!(with(64 * MIB), 1);
    }

    #[test]
    fn memtables_that_take_writes_fill_half_of_the_memory_at_most() {
        assert_eq!(memtable_bytes(64 * MIB, 1), 8 * MIB);
        for write_buffer_bytes in (0..12).map(|doublings| MIB << doublings) {
            let parts = parts(write_buffer_bytes, 16) as u64;
            for parts in 1..=parts {
                let bytes = memtable_bytes(write_buffer_bytes, parts);
                let taken = parts * (bytes + bytes / 8 + BEYOND_BYTES);
                let one = parts == 1 && taken <= write_buffer_bytes;
                assert!(one || taken <= write_buffer_bytes / 2, "{parts} parts");
            }
        }
    }
}
