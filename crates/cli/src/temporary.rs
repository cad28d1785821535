//! Directories and files that go when the command ends, be it by Ctrl-C.
//!
//! Not covered: a kill that cannot be caught. Such leftovers lie in the
//! system's directory for temporary files and begin with `thermocline-`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::Failure;

/// The exit code of a command ended by Ctrl-C or a termination signal.
const INTERRUPTED: i32 = 130;

/// How often removal is tried while the interrupted work still writes.
const REMOVALS_MAX: u32 = 5;

/// What is to be removed when the process is interrupted.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// A path that is removed, with all below it, when this value goes or the
/// process is interrupted.
pub(crate) struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// A fresh directory below `parent`, or below the system's directory for
    /// temporary files.
    pub(crate) fn directory(parent: Option<&Path>) -> Result<Temporary, Failure> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        let path = parent.join(format!("thermocline-{}-{nanos:x}", std::process::id()));
        // Not `create_dir_all`: a directory that exists already is someone
        // else's and must not be removed.
        fs::create_dir(&path).map_err(|e| Failure::io("creating a directory", &path, e))?;
        Ok(Temporary::existing(path))
    }

    /// Takes charge of `path`, which need not exist yet.
    pub(crate) fn existing(path: PathBuf) -> Temporary {
        HANDLER.call_once(|| {
            // Without a handler the worst is a leftover directory.
            let _ = ctrlc::set_handler(|| {
                for path in LIVE.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    let _ = remove(path);
                }
                std::process::exit(INTERRUPTED);
            });
        });
        LIVE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path.clone());
        Temporary { path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|path| *path != self.path);
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let mut tries = 1;
    loop {
        let result = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound && tries < REMOVALS_MAX => {
                tries += 1;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(()),
        }
    }
}
