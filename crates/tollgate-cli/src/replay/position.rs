//! [`Position`]: the position of a request, for reports and decisions.

/// The position of a request in the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The index of the file among the inputs.
    pub(crate) file: usize,
    /// The number of the line, counted from 1.
    pub(crate) line: u64,
}
