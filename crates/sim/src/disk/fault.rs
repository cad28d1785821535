//! What goes wrong, and at which call.

use std::io;
use std::path::Path;

use super::device::Gone;
use super::{EIO, EMFILE, ENOSPC, EROFS, State, error};

/// What the n-th call that it can happen to meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The machine stops: this call happens in part, no later one at all.
    Crash,
    /// An I/O error, once.
    Io,
    /// The device is full, for this many calls that need room.
    Full(u64),
    /// A sync fails, once, and the ones after it pretend to have worked.
    Sync,
    /// A read or write is interrupted before it did anything.
    Interrupted,
    /// A read or write does only a part.
    Short,
    /// The device of this call is read-only from here on.
    ReadOnly,
    /// No file descriptor is left, for this many calls that need one.
    Handles(u64),
    /// The device of this call is gone from here on.
    Vanish,
    /// A read returns one flipped bit.
    FlipRead,
    /// A write puts down one flipped bit.
    FlipWrite,
    /// A read returns the bytes of another place.
    MisdirectRead,
    /// A write puts its bytes to another place.
    MisdirectWrite,
    /// A call of a background thread panics, as a fault of the program would.
    Panic,
}

impl Fault {
    /// The name of its kind, for counts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::Crash => "crash",
            Fault::Io => "io-error",
            Fault::Full(1) => "full-once",
            Fault::Full(_) => "full-long",
            Fault::Sync => "failed-sync",
            Fault::Interrupted => "interrupted",
            Fault::Short => "short",
            Fault::ReadOnly => "read-only",
            Fault::Handles(_) => "no-handles",
            Fault::Vanish => "vanished",
            Fault::FlipRead => "flipped-read",
            Fault::FlipWrite => "flipped-write",
            Fault::MisdirectRead => "misdirected-read",
            Fault::MisdirectWrite => "misdirected-write",
            Fault::Panic => "panic",
        }
    }

    /// Whether it can happen to such a call.
    fn befalls(self, call: Call) -> bool {
        let changes = matches!(
            call,
            Call::Make | Call::Write | Call::Grow | Call::Change | Call::Lock
        );
        match self {
            Fault::Crash | Fault::Io | Fault::Vanish => true,
            Fault::Full(_) => matches!(call, Call::Make | Call::Write | Call::Grow | Call::Lock),
            Fault::Sync => matches!(call, Call::Sync | Call::SyncDirectory),
            Fault::Interrupted | Fault::Short => matches!(call, Call::Read | Call::Write),
            Fault::ReadOnly => changes || call == Call::Sync,
            Fault::Handles(_) => matches!(
                call,
                Call::Make | Call::Open | Call::List | Call::Lock | Call::SyncDirectory
            ),
            Fault::FlipRead | Fault::MisdirectRead => call == Call::Read,
            Fault::FlipWrite | Fault::MisdirectWrite => call == Call::Write,
            Fault::Panic => std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("thermocline-")),
        }
    }
}

/// Which calls a fault is meant for.
#[derive(Clone, Default, Debug)]
pub struct Where {
    pub(super) device: Option<usize>,
    pub(super) name: Option<&'static str>,
}

impl Where {
    /// Calls on files whose names contain `part`.
    #[must_use]
    pub fn named(part: &'static str) -> Where {
        Where {
            device: None,
            name: Some(part),
        }
    }
}

/// A fault that is to come.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) place: Where,
    /// Calls that it can happen to, up to the one that it happens to.
    pub(super) left: u64,
    pub(super) fault: Fault,
}

/// What a call does, as far as faults care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// Opens a file that is there.
    Open,
    /// Makes a file.
    Make,
    /// Asks for sizes and names.
    Look,
    List,
    Read,
    Write,
    /// Needs room, apart from writes.
    Grow,
    Sync,
    SyncDirectory,
    /// Changes names or cuts files.
    Change,
    Lock,
    /// Writes through a map: no call of the system at all.
    Map,
}

/// How a call that is not refused goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Go {
    Whole,
    /// The machine stops in the middle of it.
    Part,
    Short,
    Flipped,
    Misdirected,
}

impl State {
    /// Counts a call and says how it goes.
    pub(super) fn call(&mut self, device: usize, path: &Path, call: Call) -> io::Result<Go> {
        if self.crashed {
            return Err(error(EIO));
        }
        if self.recorded.is_some() {
            self.record();
        }
        self.calls += 1;
        self.devices[device].calls += 1;
        self.devices[device].check(call)?;
        let hit = self.rules.iter_mut().position(|rule| {
            let place = &rule.place;
            let here = place.device.is_none_or(|d| d == device)
                && place
                    .name
                    .is_none_or(|part| path.to_string_lossy().contains(part))
                && rule.fault.befalls(call);
            rule.left -= u64::from(here);
            here && rule.left == 0
        });
        let Some(at) = hit else {
            return Ok(Go::Whole);
        };
        self.faults_met += 1;
        let rule = self.rules.remove(at);
        match rule.fault {
            Fault::Crash => {
                self.crashed = true;
                Ok(Go::Part)
            }
            Fault::Io | Fault::Sync => Err(error(EIO)),
            Fault::Full(more) | Fault::Handles(more) if more > 1 => {
                let (fault, code) = match rule.fault {
                    Fault::Full(_) => (Fault::Full(more - 1), ENOSPC),
                    _ => (Fault::Handles(more - 1), EMFILE),
                };
                let next = Rule {
                    left: 1,
                    fault,
                    ..rule
                };
                self.rules.insert(at, next);
                Err(error(code))
            }
            Fault::Full(_) => Err(error(ENOSPC)),
            Fault::Handles(_) => Err(error(EMFILE)),
            Fault::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            Fault::Short => Ok(Go::Short),
            Fault::ReadOnly => {
                self.devices[device].read_only = true;
                Err(error(EROFS))
            }
            Fault::Vanish => {
                self.devices[device].gone = Some(Gone::Silent);
                Err(error(EIO))
            }
            Fault::FlipRead | Fault::FlipWrite => Ok(Go::Flipped),
            Fault::MisdirectRead | Fault::MisdirectWrite => Ok(Go::Misdirected),
            Fault::Panic => panic!("a call of a background thread was to panic"),
        }
    }

    /// A call that either happens or does not.
    pub(super) fn whole_call(&mut self, device: usize, path: &Path, call: Call) -> io::Result<()> {
        let go = self.call(device, path, call)?;
        if go == Go::Part && self.dice.percent(50) {
            return Err(error(EIO));
        }
        Ok(())
    }
}
