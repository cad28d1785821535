//! The accesses of a trace in memory, for the benchmark: read as `replay` reads
//! them.

use std::path::Path;
use std::sync::Arc;

use crate::exit::Failure;
use crate::input::source::Input;
use crate::input::trace::TraceFormat;
use crate::progress;
use crate::replay::survey::{self, Survey, Trace};

pub use crate::input::trace::Operation;

/// The most accesses that are kept; those behind them are left out.
pub const ACCESSES_MAX: u64 = 1 << 27;

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The key's number: its place in [`Accesses::keys`].
    pub key: u32,
    /// What is done.
    pub operation: Operation,
    /// Size of the value to write, in bytes; 0 keeps the size of before.
    pub value_bytes: u32,
}

/// The accesses of a trace.
#[derive(Clone, Debug)]
pub struct Accesses {
    /// The keys by number, in the order of their first appearance.
    pub keys: Vec<Arc<[u8]>>,
    /// The size of each key's value before the first access, in bytes.
    pub sizes: Vec<u32>,
    /// The accesses in their order.
    pub list: Vec<Access>,
}

impl Accesses {
    /// Reads the trace in the file `path`, whose name tells its format. A value
    /// whose size the trace does not record has `value_bytes`.
    ///
    /// # Errors
    /// In words, if the file cannot be read, its name tells no format, or it
    /// holds no access.
    pub fn read(path: &Path, value_bytes: u32) -> Result<Accesses, String> {
        read(path, value_bytes).map_err(|failure| failure.to_string())
    }
}

fn read(path: &Path, value_bytes: u32) -> Result<Accesses, Failure> {
    let format = TraceFormat::of_name(path).ok_or_else(|| {
        let name = path.display();
        Failure::usage(format!(
            "{name}: a trace ends in .lis, .csv or .keys, and .gz or .zst behind it"
        ))
    })?;
    let input = Input::of(path);
    let bar = progress::none();
    let survey = Survey::of(
        Trace::open(&input, format, ACCESSES_MAX)?,
        value_bytes,
        &bar,
    )?;
    if survey.accesses == 0 {
        let name = path.display();
        return Err(Failure::usage(format!("{name} holds no access")));
    }
    let mut trace = Trace::open(&input, format, ACCESSES_MAX)?;
    let mut list = Vec::new();
    while let Some(traced) = trace.next(None)? {
        if let Some(access) = survey::Access::of(&traced, &survey) {
            list.push(Access {
                key: access.key,
                operation: access.operation,
                value_bytes: access.value_bytes,
            });
        }
    }
    Ok(Accesses {
        keys: survey.keys,
        sizes: survey.sizes,
        list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_and_sizes_are_the_first_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        let lines = "0,a,1,0,1,get,0\n1,b,1,70,1,set,0\nbad\n2,a,1,30,1,set,0\n";
        std::fs::write(&path, lines).unwrap();
        let accesses = Accesses::read(&path, 9).unwrap();
        assert_eq!(accesses.sizes, [30, 70]);
        let found: Vec<_> = accesses.list.iter().map(|a| (a.key, a.operation)).collect();
        let (read, write) = (Operation::Read, Operation::Write);
        assert_eq!(found, [(0, read), (1, write), (0, write)]);
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text, word) in [
            ("t.txt", "1 1 0 0\n", ".lis"),
            ("t.lis", "", "no access"),
            ("no.lis", "-", "no.lis"),
        ] {
            let path = directory.path().join(name);
            if text != "-" {
                std::fs::write(&path, text).unwrap();
            }
            let error = Accesses::read(&path, 9).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
