//! Versions on disk and in memory: the manifest that records them, and the
//! tree of open tables that reads walk.

pub(crate) mod manifest;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
