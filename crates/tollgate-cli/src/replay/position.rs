//! [`Position`]: the position of a request, for reports and decisions.

/// The position of a request in the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The index among the inputs.
    pub(crate) file: usize,
    /// Counted from 1.
    pub(crate) line: u64,
}
