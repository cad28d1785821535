//! The one public error.
//!
//! Few kinds, because a caller can do few things: correct the call, free space,
//! try later, or look at the named file. Everything else an error knows is in
//! its message: path, offset, what was expected and what was found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a call on the store.
///
/// ```
/// use thermocline::Db;
///
/// fn visits(db: &Db) -> thermocline::Result<u64> {
///     let value = db.get(b"visits")?;
///     Ok(value.and_then(|v| v[..].try_into().ok()).map_or(0, u64::from_be_bytes))
/// }
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// db.put(b"visits", &7u64.to_be_bytes())?;
/// assert_eq!(visits(&db)?, 7);
/// # Ok::<(), thermocline::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an [`Error`].
///
/// ```
/// use thermocline::ErrorKind;
/// # fn seconds_to_wait(error: &thermocline::Error) -> Option<u64> {
/// match error.kind() {
///     ErrorKind::NoSpace => Some(60), // Writes resume when space returns.
///     ErrorKind::Locked => Some(1),   // Somebody else has it open yet.
///     _ => None,                      // Waiting does not help.
/// }
/// # }
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
/// # let twice = thermocline::Db::open(thermocline::Options::at(directory.path()));
/// # assert_eq!(seconds_to_wait(&twice.unwrap_err()), Some(1));
/// # assert_eq!(seconds_to_wait(&db.put(b"", b"").unwrap_err()), None);
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong: an empty or oversized key, an oversized value,
    /// a range whose end lies before its start, an option out of range.
    /// Correct the call.
    InvalidArgument,
    /// The named keyspace, tier, table or path does not exist. Correct the name
    /// or create it.
    NotFound,
    /// Something of that name exists already. Choose another.
    AlreadyExists,
    /// Bytes read from a device are not the bytes that were written. Nothing
    /// was returned from them. Restore the named file, or run `repair`.
    Corruption,
    /// The operating system refused or failed an I/O call. See the source
    /// error; retry when its cause is gone.
    Io,
    /// A device is full. Reads go on; writes resume by themselves when space
    /// returns. Free space or add a tier.
    NoSpace,
    /// Another process, or another handle in this one, has the store or one of
    /// its tiers open. Close it.
    Locked,
    /// A tier directory is not the one this store was last opened with:
    /// missing, swapped, of another store, or older than the store remembers.
    /// Put the right directory in place.
    WrongTier,
    /// The files were written by a version of Thermocline that this one does
    /// not understand. Use a newer one.
    Unsupported,
    /// An earlier write could not be made durable, or the background or a write
    /// panicked, and the store no longer accepts writes. Reads go on. Reopen the store,
    /// after looking at the device.
    Poisoned,
    /// The store is closing, or what the call refers to was dropped.
    Closed,
}

impl ErrorKind {
    /// A short name, stable over releases, for programs that read messages.
    ///
    /// ```
    /// assert_eq!(thermocline::ErrorKind::WrongTier.name(), "wrong tier");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::Corruption => "corruption",
            ErrorKind::Io => "I/O error",
            ErrorKind::NoSpace => "no space",
            ErrorKind::Locked => "locked",
            ErrorKind::WrongTier => "wrong tier",
            ErrorKind::Unsupported => "unsupported format",
            ErrorKind::Poisoned => "store poisoned by an earlier failure",
            ErrorKind::Closed => "closed",
        }
    }
}

/// An error of the store: a kind and what is known about the case.
///
/// ```
/// use thermocline::{Error, ErrorKind};
/// let error = Error::invalid("key is empty");
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// assert_eq!(error.to_string(), "invalid argument: key is empty");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    expected_found: Option<(String, String)>,
    source: Option<std::sync::Arc<io::Error>>,
}

impl Error {
    /// An error of `kind` with a message in words.
    ///
    /// ```
    /// use thermocline::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::NotFound, "keyspace \"users\"");
    /// assert_eq!(error.to_string(), "not found: keyspace \"users\"");
    /// ```
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            path: None,
            offset: None,
            expected_found: None,
            source: None,
        }))
    }

    /// An [`ErrorKind::InvalidArgument`].
    ///
    /// ```
    /// let error = thermocline::Error::invalid("key is empty");
    /// assert_eq!(error.to_string(), "invalid argument: key is empty");
    /// ```
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// An [`ErrorKind::Corruption`].
    ///
    /// ```
    /// use thermocline::{Error, ErrorKind};
    /// assert_eq!(Error::corruption("checksum of a block").kind(), ErrorKind::Corruption);
    /// ```
    #[must_use]
    pub fn corruption(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, message)
    }

    /// The error of a failed I/O call while doing `doing` to `path`. A full
    /// device or an exhausted quota becomes [`ErrorKind::NoSpace`].
    ///
    /// ```
    /// use std::{io, path::Path};
    /// use thermocline::{Error, ErrorKind};
    /// let full = io::Error::from(io::ErrorKind::StorageFull);
    /// let error = Error::io("appending", Path::new("/data/000001.log"), full);
    /// assert_eq!(error.kind(), ErrorKind::NoSpace);
    /// assert!(error.to_string().starts_with("no space: appending: /data/000001.log: "));
    /// ```
    #[must_use]
    pub fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        let full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let kind = if full {
            ErrorKind::NoSpace
        } else {
            ErrorKind::Io
        };
        let mut error = Error::new(kind, doing).at(path);
        error.0.source = Some(std::sync::Arc::new(source));
        error
    }

    /// Adds the file concerned.
    ///
    /// ```
    /// use std::path::Path;
    /// let error = thermocline::Error::corruption("checksum").at(Path::new("/data/000007.data"));
    /// assert_eq!(error.to_string(), "corruption: checksum: /data/000007.data");
    /// ```
    #[must_use]
    pub fn at(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_path_buf());
        self
    }

    /// Adds the byte offset concerned.
    ///
    /// ```
    /// let error = thermocline::Error::corruption("checksum").offset(4096);
    /// assert_eq!(error.to_string(), "corruption: checksum at offset 4096");
    /// ```
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Error {
        self.0.offset = Some(offset);
        self
    }

    /// Adds what was expected and what was found.
    ///
    /// ```
    /// let error = thermocline::Error::invalid("level_ratio").expected("2 to 1000", 1);
    /// assert_eq!(error.to_string(), "invalid argument: level_ratio: expected 2 to 1000, found 1");
    /// ```
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Error {
        self.0.expected_found = Some((expected.to_string(), found.to_string()));
        self
    }

    /// What the caller can do about it.
    ///
    /// ```
    /// # use thermocline::ErrorKind;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = thermocline::Db::open(thermocline::Options::at(directory.path()))?;
    /// assert_eq!(db.put(b"", b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
    /// # Ok::<(), thermocline::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The offset concerned, if one is.
    ///
    /// ```
    /// use thermocline::Error;
    /// assert_eq!(Error::corruption("checksum").offset(4096).offset_at(), Some(4096));
    /// assert_eq!(Error::corruption("checksum").offset_at(), None);
    /// ```
    #[must_use]
    pub fn offset_at(&self) -> Option<u64> {
        self.0.offset
    }

    /// What is wrong, without the file, the offset, what was expected and what
    /// was found.
    pub(crate) fn words(&self) -> String {
        let mut bare = self.clone();
        (bare.0.path, bare.0.offset) = (None, None);
        bare.0.expected_found = None;
        bare.to_string()
    }

    /// What was expected and what was found, where that is known.
    ///
    /// ```
    /// let error = thermocline::Options::at("/x").level_ratio(1);
    /// # let error = thermocline::Db::open(error).unwrap_err();
    /// assert_eq!(error.expected_found(), Some(("2 to 1000", "1")));
    /// ```
    #[must_use]
    pub fn expected_found(&self) -> Option<(&str, &str)> {
        let both = self.0.expected_found.as_ref();
        both.map(|(expected, found)| (expected.as_str(), found.as_str()))
    }

    /// The file concerned, if one is.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// let missing = directory.path().join("options.toml");
    /// let error = thermocline::Options::from_file(&missing).unwrap_err();
    /// assert_eq!(error.path(), Some(&*missing));
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: {}", inner.kind.name(), inner.message)?;
        if let Some(path) = &inner.path {
            write!(f, ": {}", path.display())?;
        }
        if let Some(offset) = inner.offset {
            write!(f, " at offset {offset}")?;
        }
        if let Some((expected, found)) = &inner.expected_found {
            write!(f, ": expected {expected}, found {found}")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
