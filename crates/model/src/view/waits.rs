//! What writers wait for, as policies see it.

/// What was spent since the store was opened, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Time in which a writer waited, or several did, because of runs that are not merged yet.
    pub stalled_us: u64,
    /// Time in which a keyspace of one part had so many newest runs that writers would have been
    /// slowed, if parts might not have been the remedy ([`Waits::parts_may_pay`]).
    pub pressed_us: u64,
    /// Of the time of `stalled_us`, that of each writer, added up.
    pub writers_us: u64,
    /// By threads, on merges.
    pub merges_us: u64,
    /// Of these, running or waiting for a processor; all else is waiting for devices.
    pub running_us: u64,
}

/// What was made of it so far: whether parts pay, and what that is said by. A look makes the next
/// of these out of the last.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Waits {
    /// Whether there should be more than one part.
    pub parts_pay: bool,
    /// What was spent up to the last look that counted it.
    pub counted: Spent,
    /// When the last look was, in microseconds since the Unix epoch.
    pub looked_us: u64,
    /// Waited since merges last said what for, in microseconds; like the next two less and less as
    /// time passes.
    pub waited_us: f64,
    /// Waited for merges that waited for processors.
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

/// What was waited for devices fades, and is as good as forgotten from here on.
const FORGOTTEN_US: f64 = 1000.0;

impl Waits {
    /// Whether more parts than one may be the remedy, should there be more newest runs than merges
    /// take away: there is one, nothing says yet that merges wait for devices, and parts were not
    /// taken back just now.
    #[must_use]
    pub fn parts_may_pay(&self, now_us: u64) -> bool {
        !self.parts_pay
            && now_us >= self.not_before_us
            && self.for_devices_us <= self.for_processors_us + FORGOTTEN_US
    }

    /// Of a store that just began, with several parts or not.
    #[must_use]
    pub fn beginning(parts_pay: bool) -> Waits {
        Waits {
            parts_pay,
            ..Waits::default()
        }
    }
}
