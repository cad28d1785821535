//! How a command of this program ends that does not succeed.

/// Why a command did not run as asked.
pub(crate) enum Failure {
    /// The command line cannot be obeyed.
    Usage(String),
    /// Something failed while it ran.
    Run(String),
}

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Run(error.to_string())
    }
}
