//! The stand-in for a guard.

#[derive(Debug)]
pub(crate) struct Guard;

/// The error returned by a link if the walk must start again.
#[derive(Debug)]
pub(crate) struct Retry;

pub(crate) fn pin() -> Guard {
    Guard
}

impl Drop for Guard {
    // The real guard has a destructor, and callers drop it explicitly before a thread rests.
    fn drop(&mut self) {}
}
