//! The size of an array: its maximum number of keys, and the number of lines for these keys.

use super::space::Space;

/// The maximum number of keys in an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The number of keys at which the root is turned over.
    pub(super) limit: u64,
    /// The maximum number of keys that may have a place while the previous array is being turned
    /// over into this array. The places above `limit` are for keys inserted during the turnover.
    pub(super) most: u64,
}

impl Size {
    /// Returns the size of the first array of a table.
    pub(super) const fn first(limit: u64) -> Self {
        Self { limit, most: limit }
    }

    /// Returns the size of an array that receives `used` keys from an array with `chunks` chunks.
    /// Each insertion turns over one chunk before it requests a place. Therefore one extra place
    /// for each chunk is enough for all keys inserted during the turnover, unless the places end at
    /// `max_keys`.
    pub(super) fn after(chunks: u64, used: u64, limit: u64, max_keys: u64) -> Self {
        Self { limit, most: limit.max(used + chunks).min(max_keys) }
    }

    /// Returns the number of lines in the space. Two thirds of the slots are taken at the limit,
    /// and at most four fifths at any time. In a small space, these fractions are lower.
    pub(super) fn lines(self) -> u64 {
        Space::lines_for(self.limit).max(Space::lines_for(self.most - self.most / 6))
    }
}
