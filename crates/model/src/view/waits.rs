//! What writers wait for, as policies see it.

/// How long threads were at jobs of a kind, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JobTime {
    /// Whatever they did.
    pub all_us: u64,
    /// Of that, running or waiting for a processor; all else is waiting for devices.
    pub running_us: u64,
}

/// What was spent since the store was opened, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Time in which a writer waited, or several did, because of runs that are not merged yet.
    pub stalled_us: u64,
    /// Time in which a writer waited, or several did, because memtables filled the memory.
    pub memory_us: u64,
    /// Time in which a keyspace of one part had so many newest runs that writers would have been
    /// slowed, if parts might not have been the remedy ([`Waits::parts_may_pay`]).
    pub pressed_us: u64,
    /// Of the time of `stalled_us`, that of each writer, added up.
    pub writers_us: u64,
    /// Of merges.
    pub merges: JobTime,
    /// Of flushes.
    pub flushes: JobTime,
}

/// How many parts pay, where there are only as many as writers gain by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Division {
    /// One.
    #[default]
    Whole,
    /// A few for each thread of the background, so that it always finds one to merge.
    Few,
    /// As many as the memory is good for, so that little is rewritten at a time.
    Many,
}

/// What was made of it so far: how many parts pay, and what that is said by. A look makes the next
/// of these out of the last.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Waits {
    /// How many parts there should be.
    pub division: Division,
    /// What was spent up to the last look that counted it.
    pub counted: Spent,
    /// When the last look was, in microseconds since the Unix epoch.
    pub looked_us: u64,
    /// Waited for merges since these last said what they wait for, in microseconds; like the next
    /// three less and less as time passes.
    pub waited_us: f64,
    /// The same for flushes, where there are several tiers.
    pub waited_for_memory_us: f64,
    /// Waited for jobs that waited for processors.
    pub for_processors_us: f64,
    /// The same for devices.
    pub for_devices_us: f64,
    /// How many writers waited of late, on average.
    pub writers: f64,
    /// For how long cuts have been on their way, less what has passed since.
    pub moving_us: u64,
    /// How often parts were taken back.
    pub taken_back: u32,
    /// No parts before this moment, in microseconds since the Unix epoch.
    pub not_before_us: u64,
}

impl Waits {
    /// What was waited fades, and is as good as forgotten from here on.
    pub const FORGOTTEN_US: f64 = 1000.0;

    /// Whether more parts than one may be the remedy, should there be more newest runs than merges
    /// take away: there is one, parts were not taken back just now, and on one tier nothing says
    /// yet that merges wait for its device.
    #[must_use]
    pub fn parts_may_pay(&self, now_us: u64, tiers: usize) -> bool {
        self.division == Division::Whole
            && now_us >= self.not_before_us
            && (tiers > 1 || self.for_devices_us <= self.for_processors_us + Waits::FORGOTTEN_US)
    }

    /// Of a store that just began, divided like that.
    #[must_use]
    pub fn beginning(division: Division) -> Waits {
        Waits {
            division,
            ..Waits::default()
        }
    }
}
