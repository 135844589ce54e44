//! The size of an array: how many keys it is for, and the lines that they need.

use super::space::Space;

/// How many keys an array is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The root is turned over when this many keys have a place.
    pub(super) limit: u64,
    /// How many keys may have a place while the array before is turned over into this one. The
    /// difference is for keys that are inserted meanwhile.
    pub(super) most: u64,
}

impl Size {
    /// The size of the first array of a table.
    pub(super) const fn first(limit: u64) -> Self {
        Self { limit, most: limit }
    }

    /// The size of an array into which `used` keys come from one of so many
    /// `chunks`. Each insertion does one chunk
    /// before it asks for a place, so one place for each chunk is enough for all keys that come
    /// meanwhile.
    pub(super) fn after(chunks: u64, used: u64, limit: u64, max_keys: u64) -> Self {
        Self { limit, most: limit.max(used + chunks).min(max_keys) }
    }

    /// How many lines the space has. At the limit two thirds of the slots are taken, and at most
    /// four fifths ever; in a small space fewer.
    pub(super) fn lines(self) -> u64 {
        Space::lines_for(self.limit).max(Space::lines_for(self.most - self.most / 6))
    }
}
