//! The size of an array: the number of keys that it is for, and of the lines that they need.

use super::space::Space;

/// How many keys an array is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The root is turned over when this many keys have a place.
    pub(super) limit: u64,
    /// The number of keys that may have a place while the previous array is turned over into this
    /// one. The difference from `limit` is for keys that are inserted during the turnover.
    pub(super) most: u64,
}

impl Size {
    /// The size of the first array of a table.
    pub(super) const fn first(limit: u64) -> Self {
        Self { limit, most: limit }
    }

    /// The size of an array into which `used` keys are moved from an array of `chunks` chunks. Each
    /// insertion does one chunk before it requests a place, so one place for each chunk is enough
    /// for all keys that are inserted during the turnover.
    pub(super) fn after(chunks: u64, used: u64, limit: u64, max_keys: u64) -> Self {
        Self { limit, most: limit.max(used + chunks).min(max_keys) }
    }

    /// The number of lines in the space. At the limit two thirds of the slots are taken, and never
    /// more than four fifths; in a small space these fractions are lower.
    pub(super) fn lines(self) -> u64 {
        Space::lines_for(self.limit).max(Space::lines_for(self.most - self.most / 6))
    }
}
