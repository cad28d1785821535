//! Input files: from bytes, compressed or not, over bounded lines to the
//! records of `load` and the accesses of `replay`.

pub(crate) mod delimited;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod record;
pub(crate) mod source;
pub(crate) mod stanza;
pub(crate) mod trace;
