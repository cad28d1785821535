//! Explanations by the process that has the store open: it alone knows how hot everything is just
//! now, and by which rules it goes. Another one that looks at the files finds the heat that was
//! last kept, a minute old and more, and no counts at all.

use std::sync::Arc;
use std::time::Duration;

use super::{Explanation, RangeExplanation, of_key, of_range};
use crate::control::{Given, Wanted, ask_if_open, check_answer};
use crate::engine::{Engine, Space};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;

/// Tables that one answer tells of: planners wait while it is made.
const TABLES_MAX: usize = 256;

/// Where `key` of a keyspace is found, as the process says that has the store of `options` open. It
/// is given `patience` to answer; `None` where nobody has it open. See
/// [`Keyspace::explain`](crate::Keyspace::explain).
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{DEFAULT_KEYSPACE, Db, Options, explain};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path()).heat_epoch_ms(10);
/// let db = Db::open(options.clone())?;
/// db.put(b"planet", b"earth")?;
/// db.flush()?;
/// db.get(b"planet")?;
/// let patience = Duration::from_secs(60);
/// let told = explain(&options, DEFAULT_KEYSPACE, b"planet", patience)?.unwrap();
/// assert_eq!((told.found, told.places[0].hits), (true, 1));
/// drop(db);
/// assert_eq!(explain(&options, DEFAULT_KEYSPACE, b"planet", patience)?, None);
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when it has no such keyspace;
/// [`ErrorKind::Locked`] when it did not answer in time; [`ErrorKind::Io`].
pub fn explain(
    options: &Options,
    keyspace: &str,
    key: &[u8],
    patience: Duration,
) -> Result<Option<Explanation>> {
    let wanted = Wanted::Explain {
        keyspace: keyspace.to_string(),
        key: key.to_vec(),
    };
    match ask_if_open(options, wanted, patience)? {
        None => Ok(None),
        Some(Given::Explanation(told)) => Ok(Some(*told)),
        Some(_) => Err(Error::invalid("not what was asked for")),
    }
}

/// The same of the tables with keys from `start` up to `end`, exclusive; of 256 tables at most.
///
/// ```
/// # use std::time::Duration;
/// # use thermocline::{DEFAULT_KEYSPACE, Db, Options, explain_range};
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::at(directory.path()).heat_epoch_ms(10);
/// let db = Db::open(options.clone())?;
/// db.put(b"planet", b"earth")?;
/// db.flush()?;
/// let patience = Duration::from_secs(60);
/// let told = explain_range(&options, DEFAULT_KEYSPACE, Some(b"a"), None, patience)?;
/// assert_eq!(told, Some(db.explain_range(Some(b"a"), None)?));
/// # Ok::<(), thermocline::Error>(())
/// ```
///
/// # Errors
/// Those of [`explain`](fn@explain); [`ErrorKind::InvalidArgument`] also when `start` lies behind
/// `end`, and for more tables than that.
pub fn explain_range(
    options: &Options,
    keyspace: &str,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    patience: Duration,
) -> Result<Option<RangeExplanation>> {
    let wanted = Wanted::ExplainRange {
        keyspace: keyspace.to_string(),
        start: start.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
    };
    match ask_if_open(options, wanted, patience)? {
        None => Ok(None),
        Some(Given::RangeExplanation(told)) => Ok(Some(*told)),
        Some(_) => Err(Error::invalid("not what was asked for")),
    }
}

impl Engine {
    fn space_named(&self, name: &str) -> Result<Arc<Space>> {
        let spaces = self.spaces.load();
        let found = spaces.values().find(|space| space.name == name).cloned();
        found.ok_or_else(|| {
            let names: Vec<_> = spaces.values().map(|space| space.name.as_str()).collect();
            let what = format!(
                "the store has no keyspace {name:?}; it has: {}",
                names.join(", ")
            );
            Error::new(ErrorKind::NotFound, what)
        })
    }

    /// What [`explain`](fn@explain) asks for.
    pub(crate) fn tell_of_key(&self, keyspace: &str, key: &[u8]) -> Result<Explanation> {
        of_key(self, &*self.space_named(keyspace)?, key)
    }

    /// What [`explain_range`](fn@explain_range) asks for.
    pub(crate) fn tell_of_range(
        &self,
        keyspace: &str,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<RangeExplanation> {
        let space = self.space_named(keyspace)?;
        let view = space.view.load_full();
        let tables = view.tree.tables();
        let tables = tables.filter(|t| t.meta.range.overlaps_bounds(start, end));
        let (count, bytes) = tables.fold((0, 0), |(count, bytes), t| {
            (count + 1, bytes + t.meta.range.key_bytes())
        });
        if count > TABLES_MAX {
            let expected = format!("an interval of at most {TABLES_MAX} tables");
            return Err(Error::invalid("explain range").expected(expected, count));
        }
        // Keys are longer when they are escaped.
        check_answer(bytes)?;
        of_range(self, &space, start, end)
    }
}
