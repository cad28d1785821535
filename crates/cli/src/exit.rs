//! How a command ends: the exit codes, and the error that carries one.

use std::fmt;
use std::io;
use std::path::Path;

use crate::engine::{Error, ErrorKind};

/// The exit codes in words, for the help page.
pub(crate) const TABLE: &str = "\
  0  done
  1  the answer is no: get and explain did not find the key, events has none
     of the rule, load --strict met a bad record
  2  the call is wrong: unknown option, malformed argument, impossible value
  3  an I/O call failed, or the store refused for a reason not listed here
  4  damage: stored bytes are not the bytes that were written; verify found
     problems, repair could not save everything, replay read a wrong value
  5  the store is open elsewhere (get and scan can read it even so with
     --read-only; stat and explain ask whoever has it open)
  6  a tier's directory is missing, swapped, stale or of another store (verify
     reads what is there even so, reports it, and exits with 4)
130  interrupted; temporary stores were removed

A closed standard output (as in `thermocline scan | head`) ends a command early
with code 0.";

/// What the process tells its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no.
    No = 1,
    /// The call is wrong.
    Usage = 2,
    /// I/O or the engine failed.
    Failed = 3,
    /// Stored bytes are wrong.
    Damaged = 4,
    /// The store is open elsewhere.
    Locked = 5,
    /// A tier is missing or another one.
    WrongTier = 6,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> std::process::ExitCode {
        std::process::ExitCode::from(exit as u8)
    }
}

/// Why a command stopped before its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read standard output has seen enough. Not an error.
    ClosedPipe,
    /// Something to say on standard error, and the exit code.
    Error {
        /// The exit code.
        exit: Exit,
        /// The message.
        message: String,
    },
}

impl Failure {
    /// The call is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// A failure with exit code `exit`.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure::Error {
            exit,
            message: message.into(),
        }
    }

    /// The failure of a call of the operating system while `doing` to `path`.
    pub(crate) fn io(doing: &str, path: &Path, error: io::Error) -> Failure {
        Error::io(doing, path, error).into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::ClosedPipe => f.write_str("standard output was closed"),
            Failure::Error { message, .. } => f.write_str(message),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        // The engine writes dumps to standard output, so that a closed pipe
        // can come back as an error of the engine.
        let source = std::error::Error::source(&error);
        if let Some(source) = source.and_then(|s| s.downcast_ref::<io::Error>())
            && source.kind() == io::ErrorKind::BrokenPipe
        {
            return Failure::ClosedPipe;
        }
        let exit = match error.kind() {
            ErrorKind::InvalidArgument => Exit::Usage,
            ErrorKind::Corruption => Exit::Damaged,
            ErrorKind::Locked => Exit::Locked,
            ErrorKind::WrongTier => Exit::WrongTier,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

/// The failure of a write to standard output: every other I/O call names its
/// file through [`Failure::io`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ClosedPipe;
        }
        Failure::new(Exit::Failed, format!("writing standard output: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Failure::new(Exit::Failed, format!("writing JSON: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_exit_code() {
        for (kind, expected) in [
            (ErrorKind::InvalidArgument, Exit::Usage),
            (ErrorKind::NotFound, Exit::Failed),
            (ErrorKind::Corruption, Exit::Damaged),
            (ErrorKind::Locked, Exit::Locked),
            (ErrorKind::WrongTier, Exit::WrongTier),
            (ErrorKind::Poisoned, Exit::Failed),
        ] {
            match Failure::from(Error::new(kind, "x")) {
                Failure::Error { exit, .. } => assert_eq!(exit, expected),
                Failure::ClosedPipe => panic!("not a pipe"),
            }
        }
    }

    #[test]
    fn a_closed_pipe_is_recognised_through_the_engine() {
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = Error::io("writing", Path::new("-"), pipe);
        assert!(matches!(Failure::from(error), Failure::ClosedPipe));
    }
}
