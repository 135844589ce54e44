//! Where a request stands: names for it in reports and decisions.

/// Where a request stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index among the inputs.
    pub(crate) file: usize,
    /// Counted from 1.
    pub(crate) line: u64,
}
