//! How fast writers may write when what they fill is emptied more slowly.
//!
//! Memtables are emptied by flushes, newest levels by merges, and both in lumps: a merge of a level
//! that lies on a slow disk takes seconds, in which nothing gets less, and then all is gone.
//! Writers that are not slowed in time fill what room there is in a moment and stand still for the
//! rest. So they are given the rate at which it is emptied, many times that while there is much
//! room and a small part of it while there is little: with the share `x` of the room taken, 2 (1 -
//! x) / x times the rate. At two thirds it is the rate itself, and near the end it goes to nothing,
//! so that a merge which takes longer than the ones before it does not stop anybody: beginning with
//! an empty room, 0.95 of it are full when as much was written as is emptied, and 0.98 when it took
//! half as long again (half the integral of x / (1 - x)).
//!
//! Where it can be said of each job how much it will take away and how far it is, nothing has to
//! come in lumps ([`ps_per_byte_beside`]). What a job has done counts as taken away though it is
//! not, which makes one even flow of what they do. Then writers are given no more than 5/3 - x
//! times the rate, between jobs too, which changes little with the share; and no more than what
//! room there really is lasts for until they end.
//!
//! The rate is what jobs took away while one of them ran. Where they do not run all the time, or
//! writers overwrite what no flush will write, it is not what can be written; then the share
//! settles where the factor makes up for it.

/// What the latest job leaves of the weight of those before it: about five jobs count.
const KEPT: f64 = 0.8;

/// As how many usual jobs, and a second, one counts at most, however long it took: a process that
/// stood still, or a store at rest with much to empty, says nothing about how fast it is emptied.
const JOBS_MAX: u64 = 16;

/// How many times the rate, where half of the room is taken.
const AT_HALF: f64 = 2.0;

/// The least part of the rate that writers are left.
const LEAST: f64 = 1.0 / 64.0;

/// Before so much of a job is done nobody knows how long it takes.
const DONE_MIN: f64 = 0.05;

/// A job that is all but done may still take this part of its time.
const LEFT_MIN: f64 = 0.1;

/// What is taken of the room counts as no less, once writers are slowed; and for a job that takes
/// away less nobody has to wait.
const SHARE_MIN: f64 = 0.01;

/// The share of the room that is taken where writers keep to the rate itself.
const STEADY_AT: f64 = 2.0 / 3.0;

/// Bytes taken away and the time it took, of the latest jobs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Drain {
    bytes: f64,
    micros: f64,
}

impl Drain {
    /// A job has taken `bytes` away, `micros` after it began or, where several run at once, after
    /// the one before it ended.
    pub fn note(&mut self, bytes: u64, micros: u64) {
        let micros = match self.bytes_per_us() {
            Some(_) => micros.min(JOBS_MAX * self.job_us() + 1_000_000),
            None => micros,
        };
        self.bytes = self.bytes * KEPT + bytes as f64;
        self.micros = self.micros * KEPT + micros as f64;
    }

    /// The time of one of the latest jobs, once there were some.
    #[must_use]
    pub fn job_us(&self) -> u64 {
        (self.micros * (1.0 - KEPT)) as u64
    }

    /// Bytes taken away each microsecond; none before there was a job that took any.
    #[must_use]
    pub fn bytes_per_us(&self) -> Option<f64> {
        (self.bytes >= 1.0 && self.micros >= 1.0).then(|| self.bytes / self.micros)
    }
}

/// Picoseconds that a byte written takes of all writers together, where `share` of the room
/// between where they begin to slow and where they stop is taken: 0 for nothing, `u64::MAX` for
/// stop.
#[must_use]
pub fn ps_per_byte(share: f64, bytes_per_us: f64) -> u64 {
    if share <= 0.0 {
        return 0;
    }
    if share >= 1.0 {
        return u64::MAX;
    }
    ps(bytes_per_us * (AT_HALF * (1.0 - share) / share).max(LEAST))
}

fn ps(bytes_per_us: f64) -> u64 {
    // At least 1, as writers are to slow; and a second for each byte is as good as stop.
    (1e6 / bytes_per_us).round().clamp(1.0, 1e12) as u64
}

/// A job that is under way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lump {
    /// Of the room, the share that it will have emptied when it ends.
    pub share: f64,
    /// How far it is, from 0 to 1.
    pub done: f64,
    /// For how long it has run, in microseconds.
    pub ran_us: f64,
}

impl Lump {
    /// How long it will still take, in microseconds; infinite if nothing can be said of it.
    fn left_us(&self) -> f64 {
        if self.done < DONE_MIN {
            return f64::INFINITY;
        }
        let total_us = self.ran_us / self.done;
        total_us * (1.0 - self.done).max(LEFT_MIN)
    }
}

/// As [`ps_per_byte`], of room for `room_bytes` where `lumps` are all the jobs that make some:
/// writers keep to one rate all through a long one, instead of to many times that at first and to a
/// small part of it in the end.
#[must_use]
pub fn ps_per_byte_beside(
    share: f64,
    bytes_per_us: f64,
    room_bytes: f64,
    mut lumps: Vec<Lump>,
) -> u64 {
    if share <= 0.0 || share >= 1.0 {
        return ps_per_byte(share, bytes_per_us);
    }
    let emptied: f64 = lumps.iter().map(|lump| lump.share * lump.done).sum();
    let smooth = (share - emptied).max(SHARE_MIN);
    let times = AT_HALF * (1.0 - smooth) / smooth;
    let mut allowed = bytes_per_us * times.min(1.0 + STEADY_AT - smooth);
    // What there is before each of them ends.
    let mut left = 1.0 - share;
    lumps.sort_by(|a, b| a.left_us().total_cmp(&b.left_us()));
    for lump in lumps.into_iter().filter(|lump| lump.share >= SHARE_MIN) {
        if lump.left_us().is_finite() {
            allowed = allowed.min(left * room_bytes / lump.left_us().max(1.0));
        }
        left += lump.share;
    }
    ps(allowed.max(bytes_per_us * LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_slowed_by_the_room_that_is_left_and_stop_where_there_is_none() {
        let of = |share| ps_per_byte(share, 100.0);
        assert_eq!((of(-1.0), of(0.0)), (0, 0));
        // 100 MB/s: five nanoseconds a byte at half, a third of that at a quarter.
        assert_eq!((of(0.5), of(0.25), of(0.75)), (5_000, 1_667, 15_000));
        assert_eq!((of(0.999), of(1.0), of(7.0)), (640_000, u64::MAX, u64::MAX));
        let steps: Vec<u64> = (0..=100).map(|n| of(f64::from(n) / 100.0)).collect();
        assert!(steps.is_sorted());
        assert_eq!(ps_per_byte(0.5, 1e-300), 1_000_000_000_000);
        assert_eq!(ps_per_byte(f64::NAN, 1.0), 64_000_000);
    }

    #[test]
    fn the_rate_is_that_of_the_latest_jobs() {
        let mut drain = Drain::default();
        assert_eq!(drain.bytes_per_us(), None);
        drain.note(0, 5);
        assert_eq!(drain.bytes_per_us(), None);
        for _ in 0..100 {
            drain.note(1_000, 10);
        }
        assert!((drain.bytes_per_us().unwrap() - 100.0).abs() < 0.1);
        for _ in 0..20 {
            drain.note(100, 10);
        }
        let now = drain.bytes_per_us().unwrap();
        assert!((10.0..12.0).contains(&now), "{now}");
        assert_eq!(drain.job_us(), 9);
        // An hour of standing still is forgotten in a few dozen jobs.
        drain.note(100, 3_600_000_000);
        assert!(drain.job_us() < 201_000);
        for _ in 0..60 {
            drain.note(100, 10);
        }
        assert!(drain.bytes_per_us().unwrap() > 8.0);
        // Two that end together count as one of both.
        let mut pair = Drain::default();
        pair.note(50, 10);
        pair.note(50, 0);
        assert!((pair.bytes_per_us().unwrap() - 90.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn beside_a_job_writers_go_by_what_it_has_done_and_by_what_there_is_until_it_ends() {
        let beside = |share, lumps: &[Lump]| {
            let ps = ps_per_byte_beside(share, 100.0, 1e9, lumps.to_vec());
            1e6 / ps as f64 / 100.0
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.01 * b, "{a} {b}");
        assert_eq!(ps_per_byte_beside(0.0, 100.0, 1e9, Vec::new()), 0);
        assert_eq!(ps_per_byte_beside(1.0, 100.0, 1e9, Vec::new()), u64::MAX);
        // Times the rate.
        near(beside(2.0 / 3.0, &[]), 1.0);
        near(beside(0.1, &[]), 1.0 + 2.0 / 3.0 - 0.1);
        near(beside(0.9, &[]), 2.0 / 9.0);
        // The half of what it takes away is as good as gone: 0.7 less 0.2. A second more lasts for
        // much more than that.
        let lump = Lump {
            share: 0.4,
            done: 0.5,
            ran_us: 1e6,
        };
        near(beside(0.7, &[lump]), 1.0 + 2.0 / 3.0 - 0.5);
        // But ten seconds do not: 0.3 of 1e9 bytes in 1e7 us.
        let slow = Lump {
            ran_us: 1e7,
            ..lump
        };
        near(beside(0.7, &[slow]), 0.3);
        // Unless another ends before it; and of one that has just begun nobody knows when it does.
        near(beside(0.7, &[slow, lump]), 0.7);
        let new = Lump { done: 0.01, ..slow };
        near(beside(0.7, &[new]), 2.0 * 0.304 / 0.696);
        // All but done it takes a tenth of its time still: 0.02 of 1e9 in 1e6 us.
        let late = Lump { done: 1.0, ..slow };
        near(beside(0.98, &[late]), 0.2);
        let far = Lump {
            ran_us: 1e300,
            ..late
        };
        near(beside(0.98, &[far]), LEAST);
        let odd = Lump {
            ran_us: 0.0,
            share: f64::NAN,
            done: 0.5,
        };
        assert!(beside(0.5, &[odd]) > 0.0);
    }

    /// Jobs in turn that take little and much time for what they take away, writers that always
    /// write as fast as they may: the slowest second has nine tenths of the mean, and half of it
    /// where writers go by the room alone.
    #[test]
    fn beside_jobs_that_come_in_lumps_writers_keep_nearly_one_rate() {
        let least_of_mean = |is_even: bool| {
            let room = 1_000.0;
            let (mut taken, mut drain) = (500.0f64, Drain::default());
            drain.note(300, 4_000);
            let mut rates = Vec::new();
            for job in 0..200 {
                let (share, steps) = if job % 2 == 0 {
                    (0.3, 2_000)
                } else {
                    (0.25, 4_000)
                };
                for step in 0..steps {
                    let lump = Lump {
                        share,
                        done: f64::from(step) / f64::from(steps),
                        ran_us: f64::from(step),
                    };
                    let rate = drain.bytes_per_us().unwrap();
                    let x = taken / room;
                    let ps = match is_even {
                        true => ps_per_byte_beside(x, rate, room, vec![lump]),
                        false => ps_per_byte(x, rate),
                    };
                    let allowed = if ps == u64::MAX {
                        0.0
                    } else {
                        (1e6 / ps.max(1) as f64).min(1.0)
                    };
                    taken += allowed;
                    assert!(taken < room, "nobody stops");
                    if job > 20 {
                        rates.push(allowed);
                    }
                }
                taken = (taken - share * room).max(1.0);
                drain.note((share * room) as u64, steps as u64);
            }
            let seconds: Vec<f64> = rates.chunks(1_000).map(|s| s.iter().sum()).collect();
            let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
            seconds.iter().copied().fold(f64::INFINITY, f64::min) / mean
        };
        let (even, by_room) = (least_of_mean(true), least_of_mean(false));
        assert!(even > 0.8 && by_room < 0.6, "{even} {by_room}");
    }

    /// Merges that each take away all there was when they began, writers that always write as
    /// fast as they may: nobody stops, though one merge in four takes half as long again.
    #[test]
    fn writers_do_not_stop_for_merges_that_come_in_lumps() {
        let (stop, slow) = (24.0, 10.0);
        let mut drain = Drain::default();
        let (mut held, mut most, mut written) = (0.0f64, 0.0f64, 0.0);
        for merge in 0..200 {
            let taken = held.max(8.0);
            held = held.max(8.0);
            let steps = if merge % 4 == 3 { 15_000 } else { 10_000 };
            for _ in 0..steps {
                let share = (held - slow) / (stop - slow);
                let rate = drain.bytes_per_us().unwrap_or(0.001);
                let allowed = match ps_per_byte(share, rate) {
                    0 => 0.1,
                    u64::MAX => 0.0,
                    ps => (1e6 / ps as f64).min(0.1),
                };
                held += allowed;
                written += allowed;
                if merge > 20 {
                    most = most.max(held);
                }
            }
            drain.note(taken as u64, steps);
            held -= taken;
        }
        assert!(most < stop, "{most} of {stop}");
        // Nor do they wait for more than merges do.
        assert!(written > 200.0 * 11.0, "{written}");
    }
}
